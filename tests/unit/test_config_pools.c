/*
 * proxy/config_check: what is refused of engines and pools, and the path and
 * the remedy it names.
 */
#include "tests/support/harness.h"
#include "tests/support/settings.h"

START_TEST(accepts_a_good_pool_of_each_connector)
{
    settings_make_good();
    ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                  config_error.text);
    settings_set("pools.0.connector", "nixl");
    ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                  config_error.text);
    settings_set("pools.0.connector", "none");
    settings_set("pools.0.prefill.engines", "[]");
    ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                  config_error.text);
}
END_TEST

START_TEST(refuses_a_configuration_without_engines)
{
    expect_refusal("pools: no engines; name them (--prefill URL --decode URL), "
                   "or list pools in a file (--config FILE)");
    settings_set("pools.0.prefill.engines.0", "http://a:1");
    expect_refusal(
        "pools.0.decode.engines: no decode engine; add one (--decode URL)");
}
END_TEST

START_TEST(refuses_connectors_that_do_not_fit_the_engines)
{
    settings_make_good();
    settings_set("pools.0.connector", "nixl");
    settings_set("pools.0.prefill.engines", "[]");
    expect_refusal("pools.0.connector: nixl needs prefill engines; add one "
                   "(--prefill URL), or choose none");
}
END_TEST

/* So that a pool's connector can be tried out without moving its engines. */
START_TEST(accepts_prefill_engines_that_connector_none_does_not_ask)
{
    static const char *const connectors[] = {"none", "mooncake-seq", "tpu"};

    settings_make_good();
    for (size_t i = 0; i < BT_ARRAY_LEN(connectors); i++) {
        settings_set("pools.0.connector", connectors[i]);
        ck_assert_int_eq(config_check(&config, &config_error), BT_OK);
    }
}
END_TEST

START_TEST(refuses_decode_alone_where_something_asks_for_it)
{
    settings_make_good();
    settings_set("pools.0.handoff.alone", "refuse");
    ck_assert_int_eq(config_check(&config, &config_error), BT_OK);
    settings_set("pools.0.handoff.min_prompt_tokens", "9");
    expect_refusal("pools.0.handoff.alone: refuse contradicts "
                   "handoff.min_prompt_tokens; set that to 0, or use allow");
    settings_set("pools.0.handoff.on_failure", "local");
    expect_refusal("pools.0.handoff.alone: refuse contradicts "
                   "handoff.on_failure local; use on_failure retry, or allow");
    settings_set("pools.0.connector", "none");
    expect_refusal("pools.0.handoff.alone: with connector none the decode "
                   "engines serve alone; use allow");
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

    settings_make_good();
    settings_set("pools.0.decode.engines.0", "http://x:1");
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        settings_set("pools.0.decode.engines.0.bootstrap", rows[i].bootstrap);
        ck_assert_msg((config_check(&config, &config_error) == BT_OK) ==
                          rows[i].is_good,
                      "%s", rows[i].bootstrap);
    }
}
END_TEST

START_TEST(refuses_what_is_not_built_yet)
{
    settings_make_good();
    settings_set("pools.0.decode.policy", "prefix");
    expect_refusal("pools.0.decode.policy: prefix is not built yet; use "
                   "round-robin");
    settings_set("pools.0.decode.policy", "round-robin");
    settings_set("pools.0.decode.engines.0", "https://x:1");
    expect_refusal("pools.0.decode.engines.0: https://x:1: TLS towards "
                   "engines is not built yet; use an http:// URL");
}
END_TEST

START_TEST(refuses_baton_without_agents_or_key)
{
    settings_make_good();
    settings_set("agents.listen", "");
    expect_refusal("agents.listen: connector baton needs an address for the "
                   "engines' agents; set it (--agents ADDR)");
    settings_set("agents.listen", "127.0.0.1:0");
    settings_set("agents.key_file", "");
    expect_refusal("agents.key_file: connector baton needs the key that "
                   "agents prove; set it (--agent-key FILE)");
}
END_TEST

START_TEST(accepts_addresses_blocks_and_names_as_handoff_hosts)
{
    settings_make_good();
    settings_set("pools.0.prefill.engines.0.handoff_hosts",
                 "[10.0.0.1, 10.0.0.0/8, '::1', 'fd00::/8', localhost, "
                 "Prefill-0.vllm.svc.]");
    settings_set("pools.0.prefill.engines.0.handoff_ports", "[5600, 5601]");
    ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                  config_error.text);
}
END_TEST

#define ENGINES "pools.0.decode.engines"
#define HOSTS                                                          \
    "write an address, a block such as 10.1.0.0/16, or a name as the " \
    "engine spells it"
#define AT "pools.0.decode.engines.0: "

START_TEST(refuses_bad_engine_entries)
{
    static const struct refusal rows[] = {
        {ENGINES, "[{weight: 2}]", AT "no url; write url: http://host:port"},
        {ENGINES, "[{url: 'ftp://x'}]",
         AT
         "bad URL \"ftp://x\" (it must begin with http:// or https://); write http://host:port"},
        {ENGINES, "[{url: 'http://x:99999'}]",
         AT
         "bad URL \"http://x:99999\" (the port must be 1 to 65535); write http://host:port"},
        {ENGINES, "[{url: 'http://x:1', handoff_hosts: 'a b'}]",
         AT "bad handoff_hosts \"a b\"; " HOSTS},
        {ENGINES, "[{url: 'http://x:1', handoff_hosts: 10.1.0.300}]",
         AT "bad handoff_hosts \"10.1.0.300\"; " HOSTS},
        {ENGINES, "[{url: 'http://x:1', handoff_hosts: 10.0.0.0/33}]",
         AT "bad handoff_hosts \"10.0.0.0/33\"; " HOSTS},
        {ENGINES, "[{url: 'http://x:1', handoff_hosts: 'fd00::/129'}]",
         AT "bad handoff_hosts \"fd00::/129\"; " HOSTS},
        {ENGINES, "[{url: 'http://x:1', handoff_ports: 65536}]",
         AT "bad handoff_ports \"65536\"; write a number from 0 to 65535"},
        {ENGINES, "[{url: 'http://x:1', bootstrap: 'y:8998'}]",
         AT "bad bootstrap \"y:8998\"; write host:port, the host as a number "
            "or as the URL has it"},
        {ENGINES, "[{url: 'http://x:1', key_file: /no/such/file}]",
         AT "cannot look at /no/such/file (No such file or directory); name a "
            "file that this user can read"},
        {ENGINES, "[http://h:3, http://g:1, http://h:3/]",
         "pools.0.decode.engines.2: http://h:3/ stands there twice; name each "
         "engine once, and give it a weight if it is larger"},
        {"pools.0.prefill.engines", "[http://h:3, {weight: 2}]",
         "pools.0.prefill.engines.1: no url; write url: http://host:port"},
        {"pools.0.prefill.policy", "prefix",
         "pools.0.prefill.policy: prefix is not built yet; use round-robin"},
    };

    expect_refusals(rows, BT_ARRAY_LEN(rows));
}
END_TEST

START_TEST(takes_a_new_engine_by_the_same_rules)
{
    char url[] = "http://x:1", bootstrap[] = "y:8998";
    struct engine_conf engine = {.url = url};

    ck_assert(config_check_engine(&engine, &config_error));
    engine.bootstrap = bootstrap;
    ck_assert(!config_check_engine(&engine, &config_error));
    ck_assert_str_eq(config_error.text,
                     "bad bootstrap \"y:8998\"; write host:port, "
                     "the host as a number or as the URL has it");
}
END_TEST

START_TEST(refuses_a_pool_that_hides_the_next)
{
    settings_make_good();
    settings_set("pools.1.connector", "none");
    settings_set("pools.1.decode.engines", "[http://127.0.0.1:3]");
    expect_refusal("pools.0.model: without models this pool serves all of them "
                   "and the pools below none; name its models, or move it to "
                   "the end");
    settings_set("pools.0.model", "m");
    ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                  config_error.text);
}
END_TEST

HARNESS_MAIN_WITH("config_pools", settings_init, settings_fini,
                  accepts_a_good_pool_of_each_connector,
                  refuses_a_configuration_without_engines,
                  refuses_connectors_that_do_not_fit_the_engines,
                  accepts_prefill_engines_that_connector_none_does_not_ask,
                  refuses_decode_alone_where_something_asks_for_it,
                  a_bootstrap_server_has_a_number_or_the_name_of_its_engine,
                  refuses_what_is_not_built_yet,
                  refuses_baton_without_agents_or_key,
                  accepts_addresses_blocks_and_names_as_handoff_hosts,
                  refuses_bad_engine_entries,
                  takes_a_new_engine_by_the_same_rules,
                  refuses_a_pool_that_hides_the_next)
