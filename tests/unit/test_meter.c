/*
 * What /metrics and /admin/state show: the values as they are now.
 */
#include "agent/engine/serve/meter.h"
#include "common/json/json.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <string.h>

#define BLOCKS 8

/* Made anew for each test; an engine without agents. */
static struct {
    struct eng_options options;
    struct eng_model model;
    struct bt_loop *loop;
    struct kv *kv;
    struct faults faults;
    struct sched *sched;
    struct exchange_env env;
    struct meter meter;
    struct bt_buf text;
} world;

static void set_up(void)
{
    const struct model_options model = {.name = "m",
                                        .layers = 1,
                                        .kv_heads = 1,
                                        .head_size = 8,
                                        .dtype_bytes = 2};
    const struct kv_options kv = {
        .model = &world.model, .blocks = BLOCKS, .block_tokens = 4, .tp = 1};
    struct sched_options sched = {.faults = &world.faults,
                                  .step_tokens = 64,
                                  .max_running = 8,
                                  .max_waiting = 8};

    memset(&world, 0, sizeof(world));
    ck_assert_int_eq(bt_loop_open(&world.loop), BT_OK);
    ck_assert_int_eq(model_init(&model, &world.model), BT_OK);
    ck_assert_int_eq(kv_open(&kv, &world.kv), BT_OK);
    sched.loop = world.loop;
    sched.kv = world.kv;
    ck_assert_int_eq(sched_open(&sched, &world.sched), BT_OK);
    world.env = (struct exchange_env){.options = &world.options,
                                      .sched = world.sched,
                                      .faults = &world.faults,
                                      .engine_id = "e\"1"};
    world.meter = (struct meter){.env = &world.env, .kv = world.kv};
    ck_assert_int_eq(meter_init(&world.meter), BT_OK);
}

static void tear_down(void)
{
    bt_buf_fini(&world.text);
    meter_fini(&world.meter);
    sched_close(&world.sched);
    bt_loop_close(&world.loop);
    kv_close(&world.kv);
}

static const char *metrics(void)
{
    bt_buf_clear(&world.text);
    meter_write_metrics(&world.meter, &world.text);
    bt_buf_append_char(&world.text, '\0');
    return bt_buf_str(&world.text).ptr;
}

static void expect_line(const char *line)
{
    const char *const whole = metrics();

    ck_assert_msg(strstr(whole, line) != NULL, "no '%s' in:\n%s", line, whole);
}

static void expect_state(const char *spelled)
{
    struct bt_json_value value;

    bt_buf_clear(&world.text);
    meter_write_state(&world.meter, &world.text);
    ck_assert_int_eq(bt_json_check(bt_buf_str(&world.text), &value, NULL),
                     BT_OK);
    ck_assert_msg(bt_str_eq(value.text, bt_str_of(spelled)), "%.*s",
                  BT_STR_ARG(value.text));
}

START_TEST(blocks_are_counted_by_what_they_are_now)
{
    uint32_t ids[3];

    expect_line("\nbaton_engine_blocks{state=\"total\"} 8\n");
    expect_line("\nbaton_engine_blocks{state=\"free\"} 8\n");
    ck_assert(kv_take(world.kv, 3, ids));
    kv_hold(world.kv, ids[0]);
    expect_line("\nbaton_engine_blocks{state=\"free\"} 5\n");
    expect_line("\nbaton_engine_blocks{state=\"held\"} 1\n");
    kv_unhold(world.kv, ids[0]);
    kv_publish(world.kv, ids[1], 0, 7);
    for (size_t i = 0; i < BT_ARRAY_LEN(ids); i++) {
        kv_unref(world.kv, ids[i]);
    }
    expect_line("\nbaton_engine_blocks{state=\"free\"} 8\n");
    expect_line("\nbaton_engine_blocks{state=\"cached\"} 1\n");
    expect_line("\nbaton_engine_blocks{state=\"held\"} 0\n");
}
END_TEST

START_TEST(each_outcome_of_a_request_has_its_own_count)
{
    world.env.outcomes[EXCHANGE_ANSWERED] = 4;
    world.env.outcomes[EXCHANGE_REFUSED] = 3;
    world.env.outcomes[EXCHANGE_LOAD_FAILED] = 2;
    world.env.outcomes[EXCHANGE_GONE] = 1;
    expect_line("\nbaton_engine_requests_total{outcome=\"answered\"} 4\n");
    expect_line("\nbaton_engine_requests_total{outcome=\"refused\"} 3\n");
    expect_line("\nbaton_engine_requests_total{outcome=\"load_failed\"} 2\n");
    expect_line("\nbaton_engine_requests_total{outcome=\"gone\"} 1\n");
}
END_TEST

START_TEST(looking_twice_counts_nothing_twice)
{
    world.env.prompt_tokens = 100;
    expect_line("\nbaton_engine_prompt_tokens_total 100\n");
    expect_line("\nbaton_engine_prompt_tokens_total 100\n");
    world.env.prompt_tokens = UINT64_C(5000000000);
    expect_line("\nbaton_engine_prompt_tokens_total 5000000000\n");
}
END_TEST

START_TEST(every_metric_says_what_it_is)
{
    static const struct {
        const char *name, *type, *help;
    } rows[] = {
#define METRIC(name, text, type, label, values, help) {text, #type, help},
#define PLAIN(name, text, type, help)                 {text, #type, help},
#include "agent/engine/serve/metrics.def"
#undef PLAIN
#undef METRIC
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const bool is_counter = strcmp(rows[i].type, "COUNTER") == 0;
        const size_t len = strlen(rows[i].name);
        char line[200];

        (void)snprintf(line, sizeof(line), "# HELP %s %s\n# TYPE %s %s\n",
                       rows[i].name, rows[i].help, rows[i].name,
                       is_counter ? "counter" : "gauge");
        expect_line(line);
        ck_assert_msg(is_counter == (len > 6 && strcmp(rows[i].name + len - 6,
                                                       "_total") == 0),
                      "%s", rows[i].name);
    }
}
END_TEST

START_TEST(the_state_of_an_engine_without_agents_is_whole)
{
    uint32_t id;

    world.options.role = 2;
    ck_assert(kv_take(world.kv, 1, &id));
    ck_assert_int_eq(fault_arm(&world.faults, "refuse*2", NULL, 0), BT_OK);
    expect_state("{\"role\":\"both\",\"engine\":\"e\\\"1\",\"blocks\":"
                 "{\"total\":8,\"free\":7,\"cached\":0,\"held\":0},"
                 "\"answers\":{\"running\":0,\"waiting\":0,\"pulling\":0},"
                 "\"faults\":[{\"name\":\"refuse\",\"armed\":true,\"arg\":0,"
                 "\"left\":2,\"done\":0}],\"holds\":[],\"agents\":[]}");
    kv_unref(world.kv, id);
}
END_TEST

HARNESS_MAIN_WITH("meter", set_up, tear_down,
                  blocks_are_counted_by_what_they_are_now,
                  each_outcome_of_a_request_has_its_own_count,
                  looking_twice_counts_nothing_twice,
                  every_metric_says_what_it_is,
                  the_state_of_an_engine_without_agents_is_whole)
