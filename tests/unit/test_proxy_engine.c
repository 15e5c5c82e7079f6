/*
 * proxy/engine, proxy/fleet: pools, health, and the names that an engine may
 * use.
 */
#include "proxy/fleet/fleet.h"
#include "tests/support/config_pair.h"
#include "tests/support/harness.h"

static char host_net[] = "10.1.0.0/16";
static char host_six[] = "fd00::/8";
static char port_text[] = "5600";
static char glob_text[] = "llama-*";

static char *hosts[] = {host_net, host_six};
static char *ports[] = {port_text};
static char *globs[] = {glob_text};
static struct config_pair pair;
static struct config config;
static struct fleet *fleet;

static void setup(void)
{
    static const char *const URLS[] = {"http://127.0.0.1:8100",
                                       "http://127.0.0.1:8200"};

    config = (struct config){0};
    config_pair_set(&pair, &config, CONNECTOR_NIXL, URLS);
    fleet = NULL;
}

static void teardown(void)
{
    fleet_close(&fleet);
}

static struct engine *engine_of(enum engine_role role)
{
    return pool_side(&fleet->pools[0], role)->engines[0];
}

static struct engine *open_prefill(void)
{
    ck_assert_int_eq(fleet_open(&config, &fleet), BT_OK);
    return engine_of(ENGINE_PREFILL);
}

START_TEST(every_engine_stands_in_its_pool)
{
    const struct engine *const prefill = open_prefill();

    ck_assert_uint_eq(fleet->engine_count, 2);
    ck_assert_uint_eq(pool_side(&fleet->pools[0], ENGINE_DECODE)->count, 1);
    ck_assert_int_eq(prefill->role, ENGINE_PREFILL);
    ck_assert_int_eq(engine_of(ENGINE_DECODE)->role, ENGINE_DECODE);
    ck_assert_uint_ne(engine_of(ENGINE_DECODE)->id, prefill->id);
    ck_assert_str_eq(prefill->url.normal, "http://127.0.0.1:8100");
}
END_TEST

START_TEST(a_bad_url_is_an_error)
{
    static char bad[] = "ftp://x";

    pair.engines[1].url = bad;
    ck_assert_int_lt(fleet_open(&config, &fleet), BT_OK);
    ck_assert_ptr_null(fleet);
}
END_TEST

START_TEST(a_failed_engine_is_usable_again_after_a_good_word)
{
    struct engine *const engine = open_prefill();
    const char *why = NULL;

    ck_assert(engine_is_usable(engine));
    ck_assert(fleet_is_ready(fleet, &why));
    engine_mark_failed(engine, 7, "refused");
    ck_assert(!engine_is_usable(engine));
    ck_assert(!fleet_is_ready(fleet, &why));
    ck_assert_str_eq(why, "no prefill engine is usable");
    engine_mark_failed(engine, 9, "refused");
    ck_assert_uint_eq(atomic_load(&engine->failed_at_ms), 7);
    engine_mark_good(engine);
    ck_assert(engine_is_usable(engine));
}
END_TEST

START_TEST(where_probes_are_sent_an_answer_to_a_call_does_not_make_it_good)
{
    struct engine *engine;

    config.timeouts.probe_interval = 2000;
    engine = open_prefill();
    engine_mark_failed(engine, 7, "its probe is answered 503");
    engine_answered(engine, 100000);
    ck_assert(!engine_is_usable(engine));
}
END_TEST

START_TEST(without_probes_an_answer_makes_it_good_a_second_after_it_failed)
{
    struct engine *const engine = open_prefill();

    engine_mark_failed(engine, 5000, "refused");
    engine_answered(engine, 4999); /* another thread's clock */
    engine_answered(engine, 5999);
    ck_assert(!engine_is_usable(engine));
    engine_answered(engine, 6000);
    ck_assert(engine_is_usable(engine));
}
END_TEST

START_TEST(a_name_without_an_address_is_not_usable_until_it_has_one)
{
    static char named[] = "http://no-such-host.invalid:8100";
    struct bt_addrs addrs = {.count = 1};
    struct engine_place *before = NULL;
    struct engine *engine;

    pair.engines[0].url = named;
    engine = open_prefill();
    ck_assert(!engine_is_usable(engine));
    ck_assert_ptr_null(engine_addrs(engine));
    ck_assert(!engine_owns_host(engine, BT_STR("127.0.0.1"), BT_STR("1")));
    ck_assert(
        engine_owns_host(engine, BT_STR("NO-such-host.invalid"), BT_STR("1")));
    ck_assert_int_eq(bt_addr_parse("127.0.0.1:8100", &addrs.items[0]), BT_OK);
    ck_assert_int_eq(engine_set_addrs(engine, &addrs, &before), BT_OK);
    free(before);
    ck_assert(engine_is_usable(engine));
    ck_assert_uint_eq(engine_addrs(engine)->count, 1);
}
END_TEST

START_TEST(a_failed_engine_that_moves_waits_for_its_probe_where_it_is_probed)
{
    for (int probed = 0; probed < 2; probed++) {
        struct bt_addrs addrs = {.count = 1};
        struct engine_place *before = NULL;
        struct engine *engine;

        config.timeouts.probe_interval = (uint64_t)probed;
        engine = open_prefill();
        engine_mark_failed(engine, 7, "lost");
        ck_assert_int_eq(bt_addr_parse("10.0.0.1:1", &addrs.items[0]), BT_OK);
        ck_assert_int_eq(engine_set_addrs(engine, &addrs, &before), BT_OK);
        free(before);
        ck_assert_int_eq(engine_is_usable(engine), probed == 0);
        fleet_close(&fleet);
    }
}
END_TEST

START_TEST(a_loss_at_an_address_that_the_name_has_left_is_not_the_engines)
{
    struct engine *const engine = open_prefill();
    struct bt_addr left = engine_addrs(engine)->items[0];
    struct bt_http_failure failure = {.reason = "lost", .addr = &left};
    struct bt_addrs addrs = {.count = 1};
    struct engine_place *before = NULL;

    ck_assert_int_eq(bt_addr_parse("10.9.0.1:8100", &addrs.items[0]), BT_OK);
    ck_assert_int_eq(engine_set_addrs(engine, &addrs, &before), BT_OK);
    free(before);
    engine_mark_lost(engine, 7, &failure);
    ck_assert(engine_is_usable(engine));
    failure.addr = &addrs.items[0];
    engine_mark_lost(engine, 7, &failure);
    ck_assert(!engine_is_usable(engine));
}
END_TEST

START_TEST(a_stand_in_is_another_usable_engine_or_decode_where_that_is_allowed)
{
    const struct engine *const prefill = open_prefill();
    struct engine *const decode = engine_of(ENGINE_DECODE);

    ck_assert(!fleet_has_stand_in(prefill));
    ck_assert(!fleet_has_stand_in(decode));
    pair.pool.handoff.on_failure = ON_FAILURE_LOCAL;
    ck_assert(fleet_has_stand_in(prefill));
    ck_assert(!fleet_has_stand_in(decode));
    engine_mark_failed(decode, 7, "refused");
    ck_assert(!fleet_has_stand_in(prefill));
}
END_TEST

START_TEST(connector_baton_needs_a_link)
{
    struct engine *engine;

    pair.pool.connector = CONNECTOR_BATON;
    engine = open_prefill();
    ck_assert(!engine_is_usable(engine));
    atomic_store(&engine->is_linked, true);
    ck_assert(engine_is_usable(engine));
}
END_TEST

START_TEST(a_pool_is_found_by_name_and_glob)
{
    pair.pool.models = (struct bt_conf_strings){globs, 1};
    (void)open_prefill();
    ck_assert_ptr_nonnull(fleet_pool(fleet, BT_STR("llama-70b")));
    ck_assert_ptr_null(fleet_pool(fleet, BT_STR("other")));
    ck_assert_ptr_null(fleet_pool(fleet, BT_STR("llama-70b\0other")));
    ck_assert_ptr_null(fleet_pool(fleet, BT_STR("")));
}
END_TEST

START_TEST(without_names_a_pool_serves_every_model)
{
    (void)open_prefill();
    ck_assert_ptr_nonnull(fleet_pool(fleet, BT_STR("anything")));
    ck_assert_ptr_nonnull(fleet_pool(fleet, BT_STR("")));
}
END_TEST

START_TEST(an_engine_owns_its_address_and_its_name)
{
    const struct engine *const engine = open_prefill();

    ck_assert(engine_owns_host(engine, BT_STR("127.0.0.1"), BT_STR("5600")));
    ck_assert(
        engine_owns_host(engine, BT_STR("::ffff:127.0.0.1"), BT_STR("1")));
    ck_assert(!engine_owns_host(engine, BT_STR("10.1.0.2"), BT_STR("5600")));
    ck_assert(!engine_owns_host(engine, BT_STR("localhost"), BT_STR("5600")));
    ck_assert(!engine_owns_host(engine, BT_STR(""), BT_STR("5600")));
}
END_TEST

START_TEST(any_address_of_an_engine_is_its_own)
{
    static char named[] = "http://two.invalid:8100";
    struct bt_addrs addrs = {.count = 2};
    struct engine_place *before = NULL;
    struct engine *engine;

    pair.engines[0].url = named;
    engine = open_prefill();
    ck_assert_int_eq(bt_addr_parse("[fd00::1]:8100", &addrs.items[0]), BT_OK);
    ck_assert_int_eq(bt_addr_parse("10.9.0.1:8100", &addrs.items[1]), BT_OK);
    ck_assert_int_eq(engine_set_addrs(engine, &addrs, &before), BT_OK);
    free(before);
    ck_assert(engine_owns_host(engine, BT_STR("fd00::1"), BT_STR("1")));
    ck_assert(engine_owns_host(engine, BT_STR("10.9.0.1"), BT_STR("1")));
    ck_assert(!engine_owns_host(engine, BT_STR("10.9.0.2"), BT_STR("1")));
}
END_TEST

START_TEST(a_name_among_the_further_hosts_is_compared_as_text)
{
    static char name[] = "prefill-0.vllm.svc";
    static char *names[] = {name};
    struct engine *engine;

    pair.engines[0].handoff_hosts = (struct bt_conf_strings){names, 1};
    engine = open_prefill();
    ck_assert(
        engine_owns_host(engine, BT_STR("prefill-0.VLLM.svc"), BT_STR("5600")));
    ck_assert(!engine_owns_host(engine, BT_STR("prefill-0.vllm.svc."),
                                BT_STR("5600")));
    ck_assert(!engine_owns_host(engine, BT_STR("prefill-1.vllm.svc"),
                                BT_STR("5600")));
}
END_TEST

START_TEST(further_hosts_and_ports_are_rules)
{
    struct engine *engine;

    pair.engines[0].handoff_hosts = (struct bt_conf_strings){hosts, 2};
    pair.engines[0].handoff_ports = (struct bt_conf_strings){ports, 1};
    engine = open_prefill();
    ck_assert(engine_owns_host(engine, BT_STR("10.1.255.9"), BT_STR("5600")));
    ck_assert(!engine_owns_host(engine, BT_STR("10.2.0.1"), BT_STR("5600")));
    ck_assert(engine_owns_host(engine, BT_STR("[fd00::1]"), BT_STR("5600")));
    ck_assert(!engine_owns_host(engine, BT_STR("fe80::1"), BT_STR("5600")));
    ck_assert(!engine_owns_host(engine, BT_STR("127.0.0.1"), BT_STR("5601")));
}
END_TEST

HARNESS_MAIN_WITH(
    "engine", setup, teardown, every_engine_stands_in_its_pool,
    a_bad_url_is_an_error, a_failed_engine_is_usable_again_after_a_good_word,
    where_probes_are_sent_an_answer_to_a_call_does_not_make_it_good,
    without_probes_an_answer_makes_it_good_a_second_after_it_failed,
    a_name_without_an_address_is_not_usable_until_it_has_one,
    a_failed_engine_that_moves_waits_for_its_probe_where_it_is_probed,
    a_loss_at_an_address_that_the_name_has_left_is_not_the_engines,
    a_stand_in_is_another_usable_engine_or_decode_where_that_is_allowed,
    any_address_of_an_engine_is_its_own,
    a_name_among_the_further_hosts_is_compared_as_text,
    connector_baton_needs_a_link, a_pool_is_found_by_name_and_glob,
    without_names_a_pool_serves_every_model,
    an_engine_owns_its_address_and_its_name, further_hosts_and_ports_are_rules)
