/*
 * proxy/config: the defaults of every row, what config_check refuses, and
 * how file, flags and --set meet.
 */
#include "common/base/log.h"
#include "proxy/config/config.h"
#include "proxy/exchange/prefill.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static struct config config;
static struct bt_conf_error error;
static char secret[] = "/tmp/baton-config-XXXXXX";

static void setup(void)
{
    const int fd = mkstemp(secret);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    error.text[0] = '\0';
    ck_assert_int_eq(bt_conf_init(config_rows, &config), BT_OK);
}

static void teardown(void)
{
    (void)unlink(secret);
    memcpy(secret, "/tmp/baton-config-XXXXXX", sizeof(secret));
    bt_conf_fini(config_rows, &config);
}

static void set(const char *path, const char *value)
{
    ck_assert_msg(bt_conf_set(config_rows, &config, "--set", path, value,
                              &error) == BT_OK,
                  "%s", error.text);
}

/* A pool of the baton connector that config_check lets pass. */
static void make_good(void)
{
    set("agents.listen", "127.0.0.1:0");
    set("agents.key_file", secret);
    set("pools.0.prefill.engines", "[http://127.0.0.1:1, http://127.0.0.1:2]");
    set("pools.0.decode.engines", "[http://127.0.0.1:3]");
}

static void expect_refusal(const char *message)
{
    ck_assert_int_ne(config_check(&config, &error), BT_OK);
    ck_assert_str_eq(error.text, message);
}

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

    set("pools.0.decode.engines.0", "http://h:1");
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
                               &error) == BT_OK,
                  "%s", error.text);
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

START_TEST(accepts_a_good_pool_of_each_connector)
{
    make_good();
    ck_assert_msg(config_check(&config, &error) == BT_OK, "%s", error.text);
    set("pools.0.connector", "nixl");
    ck_assert_msg(config_check(&config, &error) == BT_OK, "%s", error.text);
    set("pools.0.connector", "none");
    set("pools.0.prefill.engines", "[]");
    ck_assert_msg(config_check(&config, &error) == BT_OK, "%s", error.text);
}
END_TEST

START_TEST(refuses_a_configuration_without_engines)
{
    expect_refusal("pools: no engines; name them (--prefill URL --decode URL), "
                   "or list pools in a file (--config FILE)");
    set("pools.0.prefill.engines.0", "http://a:1");
    expect_refusal(
        "pools.0.decode.engines: no decode engine; add one (--decode URL)");
}
END_TEST

START_TEST(refuses_connectors_that_do_not_fit_the_engines)
{
    make_good();
    set("pools.0.connector", "nixl");
    set("pools.0.prefill.engines", "[]");
    expect_refusal("pools.0.connector: nixl needs prefill engines; add one "
                   "(--prefill URL), or choose none");
}
END_TEST

/* So that a pool's connector can be tried out without moving its engines. */
START_TEST(accepts_prefill_engines_that_connector_none_does_not_ask)
{
    static const char *const connectors[] = {"none", "mooncake-seq", "tpu"};

    make_good();
    for (size_t i = 0; i < BT_ARRAY_LEN(connectors); i++) {
        set("pools.0.connector", connectors[i]);
        ck_assert_int_eq(config_check(&config, &error), BT_OK);
    }
}
END_TEST

START_TEST(keeps_a_handoff_as_long_as_its_connector_unless_set)
{
    static const struct {
        const char *connector;
        uint64_t lease_ms;
    } rows[] = {{"nixl", 30000}, {"mooncake-seq", 480000}, {"tpu", 120000}};
    const struct pool_conf *pool;

    make_good();
    pool = config.pools.items;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        set("pools.0.connector", rows[i].connector);
        ck_assert_uint_eq(prefill_lease_ms(pool), rows[i].lease_ms);
    }
    set("pools.0.handoff.lease", "7s");
    ck_assert_uint_eq(prefill_lease_ms(pool), 7000);
    set("pools.0.handoff.lease", "auto");
    ck_assert_uint_eq(prefill_lease_ms(pool), 120000);
}
END_TEST

START_TEST(refuses_decode_alone_where_something_asks_for_it)
{
    make_good();
    set("pools.0.handoff.alone", "refuse");
    ck_assert_int_eq(config_check(&config, &error), BT_OK);
    set("pools.0.handoff.min_prompt_tokens", "9");
    expect_refusal("pools.0.handoff.alone: refuse contradicts "
                   "handoff.min_prompt_tokens; set that to 0, or use allow");
    set("pools.0.handoff.on_failure", "local");
    expect_refusal("pools.0.handoff.alone: refuse contradicts "
                   "handoff.on_failure local; use on_failure retry, or allow");
    set("pools.0.connector", "none");
    expect_refusal("pools.0.handoff.alone: with connector none the decode "
                   "engines serve alone; use allow");
}
END_TEST

START_TEST(takes_origins_as_browsers_write_them)
{
    static const char *const good[] = {
        "*", "https://a.test", "http://[::1]:8080", "chrome-extension://abc"};
    static const char *const bad[] = {"a.test", "https://A.test", "null",
                                      "https://a.test/", "https://"};

    make_good();
    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        set("cors.origins.0", good[i]);
        ck_assert_msg(config_check(&config, &error) == BT_OK, "%s", good[i]);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        set("cors.origins.0", bad[i]);
        ck_assert_msg(config_check(&config, &error) != BT_OK, "%s", bad[i]);
    }
    set("cors.origins.0", "*");
    set("cors.headers.0", "X-A, X-B");
    expect_refusal(
        "cors.headers.0: bad name \"X-A, X-B\"; write a single word");
}
END_TEST

START_TEST(a_bootstrap_server_has_a_number_or_the_name_of_its_engine)
{
    static const struct {
        const char *bootstrap;
        bool is_good;
    } rows[] = {{"10.0.0.1:8998", true}, {"[::1]:8998", true},
                {"x:8998", true},        {"y:8998", false},
                {"x:8998/a", false},     {"10.0.0.1:", false},
                {"x:99999", false}};

    make_good();
    set("pools.0.decode.engines.0", "http://x:1");
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        set("pools.0.decode.engines.0.bootstrap", rows[i].bootstrap);
        ck_assert_msg((config_check(&config, &error) == BT_OK) ==
                          rows[i].is_good,
                      "%s", rows[i].bootstrap);
    }
}
END_TEST

START_TEST(refuses_what_is_not_built_yet)
{
    make_good();
    set("pools.0.decode.policy", "prefix");
    expect_refusal("pools.0.decode.policy: prefix is not built yet; use "
                   "round-robin");
    set("pools.0.decode.policy", "round-robin");
    set("pools.0.decode.engines.0", "https://x:1");
    expect_refusal("pools.0.decode.engines.0: https://x:1: TLS towards "
                   "engines is not built yet; use an http:// URL");
}
END_TEST

START_TEST(refuses_baton_without_agents_or_key)
{
    make_good();
    set("agents.listen", "");
    expect_refusal("agents.listen: connector baton needs an address for the "
                   "engines' agents; set it (--agents ADDR)");
    set("agents.listen", "127.0.0.1:0");
    set("agents.key_file", "");
    expect_refusal("agents.key_file: connector baton needs the key that "
                   "agents prove; set it (--agent-key FILE)");
}
END_TEST

START_TEST(refuses_bad_engine_entries)
{
    static const struct {
        const char *value;
        const char *part;
    } cases[] = {
        {"{weight: 2}", "no url; write url: http://host:port"},
        {"{url: 'ftp://x'}", "bad URL \"ftp://x\""},
        {"{url: 'http://x:99999'}", "bad URL"},
        {"{url: 'http://x:1', handoff_hosts: 'a b'}", "bad handoff_hosts"},
        {"{url: 'http://x:1', handoff_hosts: 10.1.0.300}", "bad handoff_hosts"},
        {"{url: 'http://x:1', handoff_hosts: 10.0.0.0/33}",
         "bad handoff_hosts"},
        {"{url: 'http://x:1', handoff_ports: 70000}", "bad handoff_ports"},
        {"{url: 'http://x:1', key_file: /no/such/file}",
         "cannot look at /no/such/file (No such file or directory)"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char value[128];

        make_good();
        (void)snprintf(value, sizeof(value), "[%s]", cases[i].value);
        set("pools.0.decode.engines", value);
        ck_assert_int_ne(config_check(&config, &error), BT_OK);
        ck_assert_msg(strstr(error.text, cases[i].part) != NULL, "%s",
                      error.text);
        ck_assert_ptr_nonnull(strstr(error.text, "pools.0.decode.engines.0: "));
    }
}
END_TEST

START_TEST(accepts_addresses_blocks_and_names_as_handoff_hosts)
{
    make_good();
    set("pools.0.prefill.engines.0.handoff_hosts",
        "[10.0.0.1, 10.0.0.0/8, '::1', 'fd00::/8', localhost, "
        "Prefill-0.vllm.svc.]");
    set("pools.0.prefill.engines.0.handoff_ports", "[5600, 5601]");
    ck_assert_msg(config_check(&config, &error) == BT_OK, "%s", error.text);
}
END_TEST

START_TEST(refuses_an_engine_that_stands_there_twice)
{
    make_good();
    set("pools.0.prefill.engines", "[http://127.0.0.1:1, http://127.0.0.1:1/]");
    ck_assert_int_ne(config_check(&config, &error), BT_OK);
    ck_assert_ptr_nonnull(strstr(error.text, "stands there twice"));
}
END_TEST

START_TEST(refuses_a_pool_that_hides_the_next)
{
    make_good();
    set("pools.1.connector", "none");
    set("pools.1.decode.engines", "[http://127.0.0.1:3]");
    ck_assert_int_ne(config_check(&config, &error), BT_OK);
    ck_assert_ptr_nonnull(strstr(error.text, "pools.0.model: "));
}
END_TEST

START_TEST(refuses_bad_addresses)
{
    static const char *const bad[] = {
        "nonsense", ":80",     "h:",       "h:70000",   "h:x",  "::1:80",
        "[::1]80",  "[::1:80", "unix:rel", "[::1]x:80", "unix:"};
    static const char *const good[] = {"127.0.0.1:0", "[::1]:80", "localhost:1",
                                       "unix:/tmp/x"};

    make_good();
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        set("admin", bad[i]);
        ck_assert_msg(config_check(&config, &error) != BT_OK, "%s", bad[i]);
        ck_assert_int_eq(strncmp(error.text, "admin: bad ", 11), 0);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        set("admin", good[i]);
        ck_assert_msg(config_check(&config, &error) == BT_OK, "%s", error.text);
    }
}
END_TEST

START_TEST(refuses_a_link_that_would_always_die)
{
    make_good();
    set("agents.dead", "1s");
    ck_assert_int_ne(config_check(&config, &error), BT_OK);
    ck_assert_int_eq(strncmp(error.text, "agents.dead: ", 13), 0);
}
END_TEST

START_TEST(refuses_secrets_that_others_can_read)
{
    make_good();
    ck_assert_int_eq(chmod(secret, 0640), 0);
    ck_assert_msg(config_check(&config, &error) == BT_OK, "%s", error.text);
    ck_assert_int_eq(chmod(secret, 0644), 0);
    ck_assert_int_ne(config_check(&config, &error), BT_OK);
    ck_assert_ptr_nonnull(strstr(
        error.text, "has mode 0644, so others can get at it; chmod 600 it"));
    set("agents.key_file", "/tmp");
    ck_assert_int_ne(config_check(&config, &error), BT_OK);
    ck_assert_ptr_nonnull(strstr(error.text, "is no regular file"));
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

HARNESS_MAIN_WITH("config", setup, teardown, begins_with_the_documented_values,
                  begins_with_the_documented_limits,
                  begins_with_the_documented_deadlines,
                  gives_a_new_pool_its_defaults, reads_a_whole_file,
                  accepts_a_good_pool_of_each_connector,
                  refuses_a_configuration_without_engines,
                  refuses_connectors_that_do_not_fit_the_engines,
                  accepts_prefill_engines_that_connector_none_does_not_ask,
                  keeps_a_handoff_as_long_as_its_connector_unless_set,
                  refuses_decode_alone_where_something_asks_for_it,
                  takes_origins_as_browsers_write_them,
                  a_bootstrap_server_has_a_number_or_the_name_of_its_engine,
                  refuses_what_is_not_built_yet,
                  refuses_baton_without_agents_or_key,
                  refuses_bad_engine_entries,
                  accepts_addresses_blocks_and_names_as_handoff_hosts,
                  refuses_an_engine_that_stands_there_twice,
                  refuses_a_pool_that_hides_the_next, refuses_bad_addresses,
                  refuses_a_link_that_would_always_die,
                  refuses_secrets_that_others_can_read,
                  describes_one_pool_by_flags,
                  lets_flags_win_over_the_file_wherever_they_stand,
                  refuses_pool_flags_beside_pools_in_the_file,
                  exits_with_two_on_bad_input, ends_well_after_check_and_print)
