/*
 * proxy/config: the defaults of every row, and how file, flags and --set meet.
 */
#include "common/base/log.h"
#include "proxy/exchange/prefill.h"
#include "tests/support/harness.h"
#include "tests/support/settings.h"

#include <stdio.h>

START_TEST(begins_with_the_documented_values)
{
    ck_assert_uint_eq(config.listen.count, 1);
    ck_assert_str_eq(config.listen.items[0], "127.0.0.1:8000");
    ck_assert_ptr_null(config.admin);
    ck_assert_ptr_null(config.agents.listen);
    ck_assert_ptr_null(config.agents.key_file);
    ck_assert_uint_eq(config.agents.lease_ms, 30000);
    ck_assert_uint_eq(config.agents.ping_ms, 1000);
    ck_assert_uint_eq(config.agents.dead_ms, 3000);
    ck_assert_int_eq(config.workers, 0);
    ck_assert_uint_eq(config.pools.count, 0);
    ck_assert_int_eq(config.retry.attempts, 2);
    ck_assert_int_eq(config.retry.budget_percent, 20);
    ck_assert_int_eq(config.client.half_close, HALF_CLOSE_LEAVE);
    ck_assert_int_eq(config.log.level, BT_LOG_INFO);
    ck_assert_str_eq(config.log.access, "stdout");
    ck_assert_ptr_null(config.auth.client_keys_file);
    ck_assert_ptr_null(config.auth.engine_key_file);
}
END_TEST

START_TEST(begins_with_the_documented_limits)
{
    ck_assert_uint_eq(config.limits.body, 64 * BT_MIB);
    ck_assert_uint_eq(config.limits.head, 32 * BT_KIB);
    ck_assert_uint_eq(config.limits.target, 8 * BT_KIB);
    ck_assert_int_eq(config.limits.fields, 100);
    ck_assert_uint_eq(config.limits.body_memory, 1024 * BT_MIB);
    ck_assert_uint_eq(config.limits.body_rate, 64 * BT_KIB);
    ck_assert_uint_eq(config.limits.client_body_memory, 0);
    ck_assert_int_eq(config.limits.client_connections, 0);
    ck_assert_int_eq(config.limits.tails, 4096);
    ck_assert_uint_eq(config.limits.stream_buffer, 256 * BT_KIB);
    ck_assert_uint_eq(config.limits.prefill_answer, 16 * BT_MIB);
    ck_assert_int_eq(config.limits.in_flight, 4096);
    ck_assert_int_eq(config.limits.queue, 1024);
    ck_assert_int_eq(config.limits.connections, 16384);
}
END_TEST

START_TEST(begins_with_the_documented_deadlines)
{
    ck_assert_uint_eq(config.timeouts.connect, 2000);
    ck_assert_uint_eq(config.timeouts.prefill, 600000);
    ck_assert_uint_eq(config.timeouts.first_byte, 600000);
    ck_assert_uint_eq(config.timeouts.idle, 120000);
    ck_assert_uint_eq(config.timeouts.queue, 30000);
    ck_assert_uint_eq(config.timeouts.total, 0);
    ck_assert_uint_eq(config.timeouts.head, 10000);
    ck_assert_uint_eq(config.timeouts.body, 60000);
    ck_assert_uint_eq(config.timeouts.body_idle, 30000);
    ck_assert_uint_eq(config.timeouts.write, 30000);
    ck_assert_uint_eq(config.timeouts.keep_alive, 75000);
    ck_assert_uint_eq(config.timeouts.engine_keep_alive, 4000);
    ck_assert_uint_eq(config.timeouts.drain, 300000);
    ck_assert_uint_eq(config.timeouts.probe_interval, 2000);
    ck_assert_uint_eq(config.timeouts.probe, 2000);
}
END_TEST

START_TEST(gives_a_new_pool_its_defaults)
{
    const struct pool_conf *pool;
    const struct engine_conf *engine;

    settings_set("pools.0.decode.engines.0", "http://h:1");
    pool = config.pools.items;
    engine = pool->decode.engines.items;
    ck_assert_uint_eq(pool->models.count, 0);
    ck_assert_int_eq(pool->connector, CONNECTOR_BATON);
    ck_assert_int_eq(pool->prefill.policy, POLICY_ROUND_ROBIN);
    ck_assert_int_eq(pool->handoff.min_prompt_tokens, 0);
    ck_assert_int_eq(pool->handoff.on_failure, ON_FAILURE_RETRY);
    ck_assert_int_eq(pool->handoff.client_params, CLIENT_PARAMS_STRIP);
    ck_assert(!pool->handoff.require);
    ck_assert(!pool->handoff.fast_release);
    ck_assert_int_eq(pool->handoff.alone, ALONE_ALLOW);
    ck_assert_uint_eq(pool->handoff.lease_ms, 0);
    ck_assert_str_eq(engine->url, "http://h:1");
    ck_assert_int_eq(engine->weight, 1);
    ck_assert_int_eq(engine->max_in_flight, 0);
    ck_assert_uint_eq(engine->handoff_hosts.count, 0);
    ck_assert_ptr_null(engine->key_file);
}
END_TEST

START_TEST(reads_a_whole_file)
{
    static const char text[] =
        "listen: 0.0.0.0:8000\n"
        "agents: {listen: 0.0.0.0:9400, key_file: /k}\n"
        "workers: auto\n"
        "pools:\n"
        "  - model: [llama-*, l]\n"
        "    connector: nixl\n"
        "    prefill: {policy: round-robin, engines: [http://a:1, {url: "
        "http://b:1, weight: 2, handoff_hosts: [10.1.0.2]}]}\n"
        "    decode: http://c:1\n"
        "    handoff: {on_failure: local, client_params: refuse}\n"
        "limits: {body: 1MiB}\n"
        "retry: {budget: 5%}\n"
        "log: {level: debug, access: \"off\"}\n";
    const struct pool_conf *pool;
    const struct engine_conf *engines;

    ck_assert_msg(bt_conf_read(config_rows, &config, "f", bt_str_of(text),
                               &config_error) == BT_OK,
                  "%s", config_error.text);
    pool = config.pools.items;
    engines = pool->prefill.engines.items;
    ck_assert_uint_eq(pool->models.count, 2);
    ck_assert_int_eq(pool->connector, CONNECTOR_NIXL);
    ck_assert_int_eq(engines[1].weight, 2);
    ck_assert_str_eq(engines[1].handoff_hosts.items[0], "10.1.0.2");
    ck_assert_uint_eq(pool->decode.engines.count, 1);
    ck_assert_int_eq(pool->handoff.on_failure, ON_FAILURE_LOCAL);
    ck_assert_uint_eq(config.limits.body, BT_MIB);
    ck_assert_int_eq(config.log.level, BT_LOG_DEBUG);
}
END_TEST

START_TEST(keeps_a_handoff_as_long_as_its_connector_unless_set)
{
    static const struct {
        const char *connector;
        uint64_t lease_ms;
    } rows[] = {{"nixl", 30000}, {"mooncake-seq", 480000}, {"tpu", 120000}};
    const struct pool_conf *pool;

    settings_make_good();
    pool = config.pools.items;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        settings_set("pools.0.connector", rows[i].connector);
        ck_assert_uint_eq(prefill_lease_ms(pool), rows[i].lease_ms);
    }
    settings_set("pools.0.handoff.lease", "7s");
    ck_assert_uint_eq(prefill_lease_ms(pool), 7000);
    settings_set("pools.0.handoff.lease", "auto");
    ck_assert_uint_eq(prefill_lease_ms(pool), 120000);
}
END_TEST

/* --- argv --- */

static enum bt_conf_verdict load(const char *const *words,
                                 struct config **loaded_p)
{
    char copies[12][96];
    char *argv[13] = {0};
    int argc = 0;

    for (; words[argc] != NULL; argc++) {
        ck_assert_int_lt(argc, 12);
        (void)snprintf(copies[argc], sizeof(copies[argc]), "%s", words[argc]);
        argv[argc] = copies[argc];
    }
    return config_load(argc, argv, loaded_p);
}

#define LOAD(...) \
    load((const char *const[]){"baton-proxy", __VA_ARGS__, NULL}, &loaded)

START_TEST(describes_one_pool_by_flags)
{
    struct config *loaded = NULL;
    const struct pool_conf *pool;

    ck_assert_int_eq(LOAD("--set", "pools.0.handoff.on_failure=local",
                          "--prefill", "http://a:1", "--prefill=http://b:1",
                          "--decode", "http://c:1", "--connector", "nixl",
                          "--workers=3"),
                     BT_CONF_RUN);
    ck_assert_int_eq(loaded->workers, 3);
    ck_assert_uint_eq(loaded->pools.count, 1);
    pool = loaded->pools.items;
    ck_assert_int_eq(pool->connector, CONNECTOR_NIXL);
    ck_assert_uint_eq(pool->prefill.engines.count, 2);
    ck_assert_uint_eq(pool->decode.engines.count, 1);
    ck_assert_int_eq(pool->handoff.on_failure, ON_FAILURE_LOCAL);
    config_close(&loaded);
    ck_assert_ptr_null(loaded);
}
END_TEST

static void write_file(const char *text)
{
    FILE *const file = fopen(secret, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(lets_flags_win_over_the_file_wherever_they_stand)
{
    struct config *loaded = NULL;

    write_file("listen: [a:1, b:1]\nlog: {level: error}\npools:\n"
               "  - {connector: none, decode: 'http://c:1'}\n");
    ck_assert_int_eq(LOAD("--listen", "127.0.0.1:9", "--config", secret,
                          "--set", "log.level=trace"),
                     BT_CONF_RUN);
    ck_assert_uint_eq(loaded->listen.count, 1);
    ck_assert_str_eq(loaded->listen.items[0], "127.0.0.1:9");
    ck_assert_int_eq(loaded->log.level, BT_LOG_TRACE);
    ck_assert_uint_eq(loaded->pools.count, 1);
    config_close(&loaded);
}
END_TEST

START_TEST(refuses_pool_flags_beside_pools_in_the_file)
{
    struct config *loaded = NULL;

    write_file("pools:\n  - {connector: none, decode: 'http://c:1'}\n");
    ck_assert_int_eq(LOAD("--config", secret, "--decode", "http://d:1"),
                     BT_CONF_EXIT_USAGE);
    ck_assert_int_eq(LOAD("--config", secret, "--prefill", "http://d:1"),
                     BT_CONF_EXIT_USAGE);
    ck_assert_int_eq(LOAD("--config", secret, "--connector", "nixl"),
                     BT_CONF_EXIT_USAGE);
    ck_assert_ptr_null(loaded);
}
END_TEST

START_TEST(exits_with_two_on_bad_input)
{
    struct config *loaded = NULL;

    ck_assert_int_eq(LOAD("--config", "/no/such/file"), BT_CONF_EXIT_USAGE);
    ck_assert_int_eq(LOAD("--config", secret, "--config", secret),
                     BT_CONF_EXIT_USAGE);
    ck_assert_int_eq(LOAD("--check"), BT_CONF_EXIT_USAGE);
    ck_assert_int_eq(LOAD("--with-help"), BT_CONF_EXIT_USAGE);
    ck_assert_int_eq(LOAD("--decode="), BT_CONF_EXIT_USAGE);
    write_file("listen: [\n");
    ck_assert_int_eq(LOAD("--config", secret), BT_CONF_EXIT_USAGE);
    ck_assert_ptr_null(loaded);
}
END_TEST

START_TEST(ends_well_after_check_and_print)
{
    struct config *loaded = NULL;

    ck_assert_int_eq(
        LOAD("--connector", "none", "--decode", "http://c:1", "--check"),
        BT_CONF_EXIT_OK);
    ck_assert_int_eq(LOAD("--print-config", "--with-help"), BT_CONF_EXIT_OK);
    ck_assert_int_eq(LOAD("--config", "/no/such/file", "--help"),
                     BT_CONF_EXIT_OK);
    ck_assert_ptr_null(loaded);
}
END_TEST

HARNESS_MAIN_WITH("config", settings_init, settings_fini,
                  begins_with_the_documented_values,
                  begins_with_the_documented_limits,
                  begins_with_the_documented_deadlines,
                  gives_a_new_pool_its_defaults, reads_a_whole_file,
                  keeps_a_handoff_as_long_as_its_connector_unless_set,
                  describes_one_pool_by_flags,
                  lets_flags_win_over_the_file_wherever_they_stand,
                  refuses_pool_flags_beside_pools_in_the_file,
                  exits_with_two_on_bad_input, ends_well_after_check_and_print)
