/*
 * common/resolver: names asked of a server that the test plays.
 */
#include "common/io/resolver.h"
#include "tests/support/dns.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

#include <stdio.h>
#include <string.h>

static struct bt_loop *loop;
static struct bt_resolver *resolver;
static struct bt_query *query;
static struct dns dns;
static struct bt_answer said;
static unsigned answers;

static void setup(void)
{
    answers = 0;
    query = NULL;
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
    dns_open(&dns, loop);
    ck_assert_int_eq(bt_resolver_open(loop, dns.servers, &resolver), BT_OK);
}

static void teardown(void)
{
    bt_query_close(&query);
    bt_resolver_close(&resolver);
    dns_close(&dns);
    bt_loop_close(&loop);
}

static void on_answer(void *owner, const struct bt_answer *answer)
{
    (void)owner;
    said = *answer;
    answers++;
}

static void ask(const char *text)
{
    struct bt_url url;

    ck_assert_int_eq(bt_url_parse(text, &url, NULL), BT_OK);
    ck_assert_int_eq(bt_query_open(resolver, &url, on_answer, NULL, &query),
                     BT_OK);
    ck_assert_uint_eq(answers, 0); /* never from inside */
}

static void hear(const char *text)
{
    answers = 0;
    ask(text);
    pair_until(loop, answers > 0);
    bt_query_close(&query);
    ck_assert_uint_eq(answers, 1);
}

static void check_addr(size_t i, const char *expected)
{
    char text[BT_ADDR_TEXT_MAX];

    ck_assert_uint_lt(i, said.addrs.count);
    bt_addr_format(&said.addrs.items[i], text);
    ck_assert_str_eq(text, expected);
}

START_TEST(an_answer_has_the_addresses_the_port_and_the_time_to_live)
{
    dns.v4[0] = "10.0.0.1";
    dns.v4[1] = "10.0.0.2";
    dns.ttl_s = 17;
    hear("http://engine.test:81");
    ck_assert_int_eq(said.status, BT_OK);
    ck_assert_uint_eq(said.addrs.count, 2);
    check_addr(0, "10.0.0.1:81");
    check_addr(1, "10.0.0.2:81");
    ck_assert_uint_eq(said.ttl_ms, 17000);
}
END_TEST

START_TEST(an_alias_may_be_shorter_lived_than_its_addresses)
{
    dns.v4[0] = "10.0.0.1";
    dns.ttl_s = 300;
    dns.cname_ttl_s = 10;
    hear("http://engine.test:81");
    ck_assert_int_eq(said.status, BT_OK);
    ck_assert_uint_eq(said.ttl_ms, 10000);
}
END_TEST

START_TEST(both_families_take_turns)
{
    dns.v4[0] = "10.0.0.1";
    dns.v4[1] = "10.0.0.2";
    dns.v6[0] = "fd00::1";
    hear("http://engine.test:81");
    ck_assert_uint_eq(said.addrs.count, 3);
    ck_assert_int_ne(said.addrs.items[0].sa.ss_family,
                     said.addrs.items[1].sa.ss_family);
}
END_TEST

START_TEST(one_family_alone_is_an_answer)
{
    dns.v6[0] = "fd00::1";
    hear("http://engine.test:81");
    ck_assert_int_eq(said.status, BT_OK);
    ck_assert_uint_eq(said.addrs.count, 1);
    check_addr(0, "[fd00::1]:81");
}
END_TEST

START_TEST(a_time_to_live_of_none_or_too_long_is_not_known)
{
    static const unsigned TTLS[] = {0, 0xffffffff};

    dns.v4[0] = "10.0.0.1";
    for (size_t i = 0; i < BT_ARRAY_LEN(TTLS); i++) {
        dns.ttl_s = TTLS[i];
        hear("http://engine.test:81");
        ck_assert_int_eq(said.status, BT_OK);
        ck_assert_uint_eq(said.ttl_ms, 0);
    }
}
END_TEST

START_TEST(an_answer_that_was_cut_off_is_asked_for_by_tcp)
{
    dns.word = DNS_BY_TCP;
    dns.v4[0] = "10.0.0.1";
    dns.v6[0] = "fd00::1";
    hear("http://engine.test:81");
    ck_assert_int_eq(said.status, BT_OK);
    ck_assert_uint_eq(said.addrs.count, 2);
    ck_assert_uint_eq(dns.by_tcp, 2); /* both families */
}
END_TEST

START_TEST(whatever_bytes_come_there_is_one_answer_and_none_without_addresses)
{
    dns.word = DNS_NOISE;
    for (int i = 0; i < 100; i++) {
        hear("http://engine.test:81");
        ck_assert_int_eq(said.status == BT_OK, said.addrs.count > 0);
        ck_assert_int_eq(said.status == BT_OK, said.why == NULL);
    }
}
END_TEST

START_TEST(what_is_no_answer_says_why)
{
    static const enum dns_word WORDS[] = {DNS_NO_NAME, DNS_FAILS, DNS_GARBAGE,
                                          DNS_ADDRESSES /* and none */};

    for (size_t i = 0; i < BT_ARRAY_LEN(WORDS); i++) {
        dns.word = WORDS[i];
        hear("http://engine.test:81");
        ck_assert_int_eq(said.status, BT_ERR_NOT_FOUND);
        ck_assert_ptr_nonnull(said.why);
        ck_assert_uint_gt(strlen(said.why), 3);
    }
}
END_TEST

/* No resolver takes a label of more than 63 characters. */
START_TEST(a_name_that_cannot_be_is_not_found)
{
    hear(
        "http://"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        ".invalid");
    ck_assert_int_eq(said.status, BT_ERR_NOT_FOUND);
}
END_TEST

START_TEST(a_hosts_file_is_read_before_anybody_is_asked)
{
    hear("http://localhost:81");
    ck_assert_int_eq(said.status, BT_OK);
    ck_assert_uint_eq(dns.asked, 0);
}
END_TEST

START_TEST(many_names_are_asked_for_at_once)
{
    enum {
        many = 200
    };
    struct bt_query *queries[many];
    struct bt_url url;
    char text[64];

    dns.v4[0] = "10.0.0.1";
    for (int i = 0; i < many; i++) {
        (void)snprintf(text, sizeof(text), "http://engine-%d.test:81", i);
        ck_assert_int_eq(bt_url_parse(text, &url, NULL), BT_OK);
        ck_assert_int_eq(
            bt_query_open(resolver, &url, on_answer, NULL, &queries[i]), BT_OK);
    }
    pair_until(loop, answers == many);
    for (int i = 0; i < many; i++) {
        bt_query_close(&queries[i]);
    }
}
END_TEST

START_TEST(a_query_may_be_closed_while_it_is_open_and_when_it_is_answered)
{
    dns.word = DNS_SILENT;
    ask("http://engine.test:81");
    pair_until(loop, dns.asked > 0);
    bt_query_close(&query);
    ck_assert_ptr_null(query);
    bt_query_close(&query);
    pair_settle(loop);
    ck_assert_uint_eq(answers, 0);
}
END_TEST

START_TEST(servers_that_cannot_be_read_are_an_error)
{
    struct bt_resolver *bad = NULL;

    ck_assert_int_eq(bt_resolver_open(loop, "not an address", &bad),
                     BT_ERR_SYNTAX);
    ck_assert_ptr_null(bad);
}
END_TEST

HARNESS_MAIN_WITH(
    "resolver", setup, teardown,
    an_answer_has_the_addresses_the_port_and_the_time_to_live,
    an_alias_may_be_shorter_lived_than_its_addresses, both_families_take_turns,
    one_family_alone_is_an_answer,
    a_time_to_live_of_none_or_too_long_is_not_known,
    an_answer_that_was_cut_off_is_asked_for_by_tcp,
    whatever_bytes_come_there_is_one_answer_and_none_without_addresses,
    what_is_no_answer_says_why, a_name_that_cannot_be_is_not_found,
    a_hosts_file_is_read_before_anybody_is_asked,
    many_names_are_asked_for_at_once,
    a_query_may_be_closed_while_it_is_open_and_when_it_is_answered,
    servers_that_cannot_be_read_are_an_error)
