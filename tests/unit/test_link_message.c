/*
 * The words of the link and its lines, as bytes.
 */
#include "agent/link/link_message.h"
#include "tests/support/harness.h"

#include <stdlib.h>

#define ONE "0000000000000001"

static const struct {
    enum link_type type;
    const char *word;
    enum link_side from;
} TYPES[] = {
#define LINK_TYPE(id, word, from) {LINK_TYPE_##id, word, from},
#include "agent/link/protocol.def"
};

static const char *const NAMES[] = {
#define LINK_MEMBER(id, name) [LINK_MEMBER_##id] = name,
#include "agent/link/protocol.def"
};

static struct link_message parse(const char *line)
{
    struct link_message message;

    ck_assert(link_message_parse(bt_str_of(line), LINK_AGENT, &message));
    return message;
}

static void assert_line(const struct bt_buf *line, const char *expected)
{
    ck_assert(!line->failed);
    ck_assert_msg(bt_str_eq(bt_buf_str(line), bt_str_of(expected)),
                  "%.*s is not %s", BT_STR_ARG(bt_buf_str(line)), expected);
}

/* A word that stood twice, or a name, would be found as the first of them. */
START_TEST(finds_each_word_of_the_side_that_says_it)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(TYPES); i++) {
        const struct bt_str word = bt_str_of(TYPES[i].word);

        ck_assert_int_eq(link_type_of(word, LINK_AGENT),
                         (TYPES[i].from & LINK_AGENT) != 0 ? TYPES[i].type
                                                           : LINK_TYPE_NONE);
        ck_assert_int_eq(link_type_of(word, LINK_PROXY),
                         (TYPES[i].from & LINK_PROXY) != 0 ? TYPES[i].type
                                                           : LINK_TYPE_NONE);
    }
    ck_assert_int_eq(link_type_of(BT_STR(""), LINK_AGENT), LINK_TYPE_NONE);
    ck_assert_int_eq(link_type_of(BT_STR("hel"), LINK_AGENT), LINK_TYPE_NONE);
}
END_TEST

START_TEST(finds_each_member_by_its_name)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(NAMES); i++) {
        ck_assert_uint_eq(link_member_of(bt_str_of(NAMES[i])), i);
    }
    ck_assert_int_eq(link_member_of(BT_STR("\\u0074")), LINK_MEMBER_TYPE);
    ck_assert_int_eq(link_member_of(BT_STR("handof")), LINK_MEMBERS);
    ck_assert_int_eq(link_member_of(BT_STR("handoffs")), LINK_MEMBERS);
    ck_assert_int_eq(link_member_of(BT_STR("")), LINK_MEMBERS);
}
END_TEST

START_TEST(writes_a_line_byte_by_byte)
{
    struct bt_buf line;

    link_line_begin(&line, LINK_TYPE_HELD);
    link_line_id(&line, 0x11, UINT64_MAX);
    link_line_u64(&line, LINK_MEMBER_BYTES, UINT64_MAX);
    link_line_u64(&line, LINK_MEMBER_SLOT, 0);
    link_line_hex(&line, LINK_MEMBER_BOOT, 0xb007);
    link_line_text(&line, LINK_MEMBER_ENGINE, BT_STR("a\"b"));
    link_line_text(&line, LINK_MEMBER_PROVIDER, bt_str_of(NULL));
    link_line_word(&line, LINK_MEMBER_STATE, LINK_TYPE_PULL_FAILED);
    link_line_end(&line);
    assert_line(&line, "{\"t\":\"held\",\"handoff\":\"0000000000000011"
                       "ffffffffffffffff\",\"bytes\":18446744073709551615,"
                       "\"slot\":0,\"boot\":\"000000000000b007\","
                       "\"engine\":\"a\\\"b\",\"provider\":\"\","
                       "\"state\":\"pull_failed\"}");
    bt_buf_fini(&line);
}
END_TEST

START_TEST(parts_the_members_of_inner_objects_too)
{
    struct bt_buf line;

    link_line_begin(&line, LINK_TYPE_SYNC);
    link_line_name(&line, LINK_MEMBER_RECORDS);
    bt_buf_append(&line, BT_STR("[{"));
    link_line_u64(&line, LINK_MEMBER_SLOT, 1);
    link_line_u64(&line, LINK_MEMBER_TOKENS, 2);
    bt_buf_append(&line, BT_STR("},{"));
    link_line_u64(&line, LINK_MEMBER_SLOT, 3);
    bt_buf_append(&line, BT_STR("}]"));
    link_line_name(&line, LINK_MEMBER_LAST);
    bt_buf_append(&line, BT_STR("true"));
    link_line_end(&line);
    assert_line(&line, "{\"t\":\"sync\",\"records\":[{\"slot\":1,\"tokens\":2},"
                       "{\"slot\":3}],\"last\":true}");
    bt_buf_fini(&line);
}
END_TEST

START_TEST(reads_what_it_writes)
{
    struct link_message message;
    uint64_t hi = 0, lo = 0, boot = 0;
    struct bt_buf line;
    char *engine;

    link_line_begin(&line, LINK_TYPE_PEER_READY);
    link_line_id(&line, 1, 2);
    link_line_text(&line, LINK_MEMBER_ENGINE, BT_STR("a\nb"));
    link_line_hex(&line, LINK_MEMBER_BOOT, UINT64_MAX);
    link_line_u64(&line, LINK_MEMBER_RANK, UINT32_MAX);
    link_line_end(&line);
    ck_assert(link_message_parse(bt_buf_str(&line), LINK_AGENT, &message));
    ck_assert_int_eq(message.type, LINK_TYPE_PEER_READY);
    ck_assert(link_message_id(&message, &hi, &lo));
    ck_assert(hi == 1 && lo == 2);
    ck_assert(link_message_hex(&message, LINK_MEMBER_BOOT, &boot));
    ck_assert(boot == UINT64_MAX);
    ck_assert(link_message_u32(&message, LINK_MEMBER_RANK, 0) == UINT32_MAX);
    engine = link_message_dup(&message, LINK_MEMBER_ENGINE, 3);
    ck_assert_str_eq(engine, "a\nb");
    free(engine);
    ck_assert_ptr_null(link_message_dup(&message, LINK_MEMBER_ENGINE, 2));
    ck_assert_uint_eq(link_message_text(&message, LINK_MEMBER_ENGINE).len, 0);
    ck_assert(link_message_parse(bt_buf_str(&line), LINK_PROXY, &message));
    ck_assert_int_eq(message.type, LINK_TYPE_NONE);
    bt_buf_fini(&line);
}
END_TEST

START_TEST(takes_no_number_that_is_none)
{
    const struct link_message message =
        parse("{\"rank\":4294967296,\"tp\":\"1\",\"pp\":1.5,\"us\":7}");
    uint32_t value = 9;

    ck_assert(!link_message_read_u32(&message, LINK_MEMBER_RANK, &value));
    ck_assert(!link_message_read_u32(&message, LINK_MEMBER_TP, &value));
    ck_assert(!link_message_read_u32(&message, LINK_MEMBER_PP, &value));
    ck_assert(!link_message_read_u32(&message, LINK_MEMBER_WORLD, &value));
    ck_assert_uint_eq(value, 9);
    ck_assert_uint_eq(link_message_u32(&message, LINK_MEMBER_RANK, 5), 5);
    ck_assert(link_message_u64(&message, LINK_MEMBER_RANK, 5) == 4294967296);
    ck_assert(link_message_read_u32(&message, LINK_MEMBER_US, &value));
    ck_assert_uint_eq(value, 7);
}
END_TEST

START_TEST(takes_no_handoff_that_is_none)
{
    static const char *const LINES[] = {
        "{}",
        "{\"handoff\":1}",
        "{\"handoff\":\"" ONE "000000000000001\"}",
        "{\"handoff\":\"" ONE ONE "1\"}",
        "{\"handoff\":\"" ONE "000000000000000x\"}",
        "{\"handoff\":\"x000000000000001" ONE "\"}",
        "{\"handoff\":\"" ONE "0000000000000000\"}",
    };
    const struct link_message good = parse("{\"handoff\":\"" ONE ONE "\"}");
    uint64_t hi = 5, lo = 6;

    for (size_t i = 0; i < BT_ARRAY_LEN(LINES); i++) {
        const struct link_message message = parse(LINES[i]);

        ck_assert_msg(!link_message_id(&message, &hi, &lo), "%s", LINES[i]);
    }
    ck_assert(hi == 5 && lo == 6);
    ck_assert(link_message_id(&good, &hi, &lo));
    ck_assert(hi == 1 && lo == 1);
}
END_TEST

START_TEST(takes_the_last_of_two_and_no_line_that_is_no_object)
{
    struct link_message message =
        parse("{\"t\":\"held\",\"\\u0074\":\"pulled\",\"new\":[]}");

    ck_assert_int_eq(message.type, LINK_TYPE_PULLED);
    ck_assert(!link_message_parse(BT_STR("[]"), LINK_AGENT, &message));
    ck_assert(!link_message_parse(BT_STR("{\"t\":}"), LINK_AGENT, &message));
    ck_assert(!link_message_parse(BT_STR(""), LINK_AGENT, &message));
}
END_TEST

HARNESS_MAIN("link_message", finds_each_word_of_the_side_that_says_it,
             finds_each_member_by_its_name, writes_a_line_byte_by_byte,
             parts_the_members_of_inner_objects_too, reads_what_it_writes,
             takes_no_number_that_is_none, takes_no_handoff_that_is_none,
             takes_the_last_of_two_and_no_line_that_is_no_object)
