/*
 * The handoffs of other connectors, as their prefill engines spell them.
 */
#include "agent/engine/handoff/stock.h"
#include "tests/support/harness.h"

static struct stock_place place;

static void set_up(void)
{
    place = (struct stock_place){.connector = CONNECTOR_NIXL,
                                 .url = "http://[::1]:8100",
                                 .engine_id = "e\"1",
                                 .request_id = "r",
                                 .block_tokens = 16,
                                 .tp = 2,
                                 .tokens = 33};
}

static void expect_params(const char *wanted)
{
    struct bt_buf text = {0};

    stock_write_params(&place, &text);
    ck_assert_msg(bt_str_eq(bt_buf_str(&text), bt_str_of(wanted)), "%.*s",
                  BT_STR_ARG(bt_buf_str(&text)));
    bt_buf_fini(&text);
}

START_TEST(nixl_names_every_block_the_last_one_too)
{
    expect_params("{\"do_remote_prefill\":true,\"do_remote_decode\":false,"
                  "\"remote_block_ids\":[[1,2,3]],"
                  "\"remote_engine_id\":\"e\\\"1\",\"remote_request_id\":\"r\","
                  "\"remote_host\":\"::1\",\"remote_port\":8100,"
                  "\"tp_size\":2,\"remote_num_tokens\":33}");
    place.tokens = 32;
    place.engine_id = "e";
    expect_params("{\"do_remote_prefill\":true,\"do_remote_decode\":false,"
                  "\"remote_block_ids\":[[1,2]],"
                  "\"remote_engine_id\":\"e\",\"remote_request_id\":\"r\","
                  "\"remote_host\":\"::1\",\"remote_port\":8100,"
                  "\"tp_size\":2,\"remote_num_tokens\":32}");
}
END_TEST

START_TEST(mooncake_in_sequence_names_only_the_place)
{
    place.connector = CONNECTOR_MOONCAKE_SEQ;
    expect_params("{\"do_remote_prefill\":true,\"do_remote_decode\":false,"
                  "\"remote_host\":\"::1\",\"remote_port\":8100}");
}
END_TEST

START_TEST(tpu_hands_on_full_blocks_alone)
{
    place.connector = CONNECTOR_TPU;
    expect_params("{\"uuid\":114,\"remote_block_ids\":[1,2],"
                  "\"remote_host\":\"::1\",\"remote_port\":8100}");
    place.tokens = 15;
    expect_params("{}");
    place.tokens = 16;
    expect_params("{\"uuid\":114,\"remote_block_ids\":[1],"
                  "\"remote_host\":\"::1\",\"remote_port\":8100}");
}
END_TEST

START_TEST(a_number_made_of_a_long_request_id_stays_a_signed_one)
{
    struct bt_buf text = {0};
    uint64_t uuid = 0;

    place.connector = CONNECTOR_TPU;
    place.request_id = "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz";
    stock_write_params(&place, &text);
    const struct bt_str number =
        bt_str_skip(bt_buf_str(&text), sizeof("{\"uuid\":") - 1);
    ck_assert_int_eq(
        bt_str_to_u64(bt_str_cut(number, bt_str_find(number, BT_STR(","))),
                      &uuid),
        BT_OK);
    ck_assert_uint_gt(uuid, 0);
    ck_assert_uint_le(uuid, INT64_MAX);
    bt_buf_fini(&text);
}
END_TEST

START_TEST(a_connector_without_params_writes_nothing)
{
    place.connector = CONNECTOR_MOONCAKE;
    expect_params("");
    place.connector = CONNECTOR_NONE;
    expect_params("");
}
END_TEST

HARNESS_MAIN_WITH("stock", set_up, NULL,
                  nixl_names_every_block_the_last_one_too,
                  mooncake_in_sequence_names_only_the_place,
                  tpu_hands_on_full_blocks_alone,
                  a_number_made_of_a_long_request_id_stays_a_signed_one,
                  a_connector_without_params_writes_nothing)
