/*
 * proxy/names: engines whose names have no address, or others than before,
 * with a DNS server that the test plays.
 */
#include "proxy/fleet/fleet.h"
#include "proxy/fleet/names.h"
#include "tests/support/config_pair.h"
#include "tests/support/dns.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

static struct config config;
static struct config_pair pair;
static struct fleet *fleet;
static struct engine *engine; /* the one that is named */
static struct bt_loop *loop;
static struct names *names;
static struct dns dns;
static unsigned changes;

static bool on_addrs(void *owner, struct engine *changed,
                     const struct bt_addrs *addrs)
{
    struct engine_place *before = NULL;

    (void)owner;
    ck_assert_ptr_eq(changed, engine);
    ck_assert_int_eq(engine_set_addrs(engine, addrs, &before), BT_OK);
    free(before);
    changes++;
    return true;
}

static void setup(void)
{
    static const char *const URLS[] = {"http://some.name:1",
                                       "http://127.0.0.1:1"};

    config = (struct config){0};
    changes = 0;
    config_pair_set(&pair, &config, CONNECTOR_NIXL, URLS);
    ck_assert_int_eq(fleet_open(&config, &fleet), BT_OK);
    engine = fleet->slots[0];
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
    dns_open(&dns, loop);
    dns.v4[0] = "10.0.0.1";
    dns.v4[1] = "10.0.0.2";
    dns.ttl_s = 1;
    config.names.servers = dns.servers;
}

static void start(void)
{
    const struct names_options options = {
        .loop = loop, .config = &config, .on_addrs = on_addrs};

    ck_assert_int_eq(names_open(&options, &names), BT_OK);
    ck_assert_int_eq(names_add(names, fleet->slots[0]), BT_OK);
    ck_assert_int_eq(names_add(names, fleet->slots[1]), BT_OK);
    names_await(names);
}

static void teardown(void)
{
    names_close(&names);
    dns_close(&dns);
    bt_loop_close(&loop);
    fleet_close(&fleet);
}

static const char *first_addr(void)
{
    static char text[BT_ADDR_TEXT_MAX];

    bt_addr_format(&engine_addrs(engine)->items[0], text);
    return text;
}

START_TEST(a_name_that_resolves_at_the_start_is_known_then)
{
    start();
    ck_assert(engine_is_usable(engine));
    ck_assert_uint_eq(engine_addrs(engine)->count, 2);
    ck_assert_uint_eq(changes, 1);
}
END_TEST

START_TEST(a_name_without_an_address_keeps_its_engine_unusable_and_no_other)
{
    dns.word = DNS_NO_NAME;
    start();
    ck_assert(!engine_is_usable(engine));
    ck_assert(engine_is_usable(fleet->slots[1]));
}
END_TEST

START_TEST(a_name_is_asked_for_again_until_it_resolves)
{
    dns.word = DNS_FAILS;
    start();
    dns.word = DNS_ADDRESSES;
    pair_until(loop, engine_is_usable(engine));
    ck_assert_uint_eq(engine_addrs(engine)->count, 2);
}
END_TEST

START_TEST(when_its_time_is_over_a_name_may_stand_for_others)
{
    uint64_t before = 0;
    uint64_t version = 0;

    start();
    (void)engine_addrs_at(engine, &before);
    dns.v4[0] = "10.0.0.7";
    dns.v4[1] = NULL;
    pair_until(loop, changes == 2);
    ck_assert_str_eq(first_addr(), "10.0.0.7:1");
    (void)engine_addrs_at(engine, &version);
    ck_assert_uint_ne(version, before);
}
END_TEST

START_TEST(the_same_addresses_in_another_order_change_nothing)
{
    unsigned asked;

    start();
    dns.v4[0] = "10.0.0.2";
    dns.v4[1] = "10.0.0.1";
    asked = dns.asked;
    pair_until(loop, dns.asked >= asked + 4); /* two families, twice */
    ck_assert_uint_eq(changes, 1);
    ck_assert_str_eq(first_addr(), "10.0.0.1:1");
}
END_TEST

START_TEST(a_failed_or_empty_answer_keeps_what_was_there)
{
    unsigned asked;

    start();
    dns.word = DNS_NO_NAME;
    asked = dns.asked;
    pair_until(loop, dns.asked >= asked + 2);
    dns.word = DNS_ADDRESSES;
    dns.v4[0] = NULL;
    asked = dns.asked;
    pair_until(loop, dns.asked >= asked + 2);
    pair_settle(loop);
    ck_assert(engine_is_usable(engine));
    ck_assert_uint_eq(engine_addrs(engine)->count, 2);
    ck_assert_uint_eq(changes, 1);
}
END_TEST

START_TEST(an_engine_that_left_is_asked_for_no_more)
{
    dns.word = DNS_SILENT;
    start();
    names_remove(names, engine);
    names_remove(names, engine);
    dns.word = DNS_ADDRESSES;
    pair_settle(loop);
    ck_assert_uint_eq(changes, 0);
}
END_TEST

HARNESS_MAIN_WITH(
    "names", setup, teardown, a_name_that_resolves_at_the_start_is_known_then,
    a_name_without_an_address_keeps_its_engine_unusable_and_no_other,
    a_name_is_asked_for_again_until_it_resolves,
    when_its_time_is_over_a_name_may_stand_for_others,
    the_same_addresses_in_another_order_change_nothing,
    a_failed_or_empty_answer_keeps_what_was_there,
    an_engine_that_left_is_asked_for_no_more)
