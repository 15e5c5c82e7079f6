/*
 * common/net, bt_listen_all: names with several addresses, from a resolver
 * that the test plays.
 */
#include "common/io/net.h"
#include "tests/support/harness.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Each name and what it stands for; 203.0.113.0/24 is nobody's (RFC 5737). */
static const char *const NAMES[][3] = {
    {"two.name", "127.0.0.1", "127.0.0.2"},
    {"half.name", "203.0.113.1", "127.0.0.1"},
    {"far.name", "203.0.113.1", "203.0.113.2"},
};

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int getaddrinfo(const char *host, const char *service,
                const struct addrinfo *hints, struct addrinfo **found_p)
{
    static struct sockaddr_in addrs[2];
    static struct addrinfo infos[2];
    size_t at = 0;

    (void)hints;
    while (at < BT_ARRAY_LEN(NAMES) && strcmp(NAMES[at][0], host) != 0) {
        at++;
    }
    if (at == BT_ARRAY_LEN(NAMES)) {
        return EAI_NONAME;
    }
    for (size_t i = 0; i < 2; i++) {
        addrs[i] = (struct sockaddr_in){
            .sin_family = AF_INET,
            .sin_port = htons((uint16_t)strtoul(service, NULL, 10))};
        ck_assert_int_eq(
            inet_pton(AF_INET, NAMES[at][1 + i], &addrs[i].sin_addr), 1);
        infos[i] = (struct addrinfo){.ai_family = AF_INET,
                                     .ai_addr = (void *)&addrs[i],
                                     .ai_addrlen = sizeof(addrs[i])};
    }
    infos[0].ai_next = &infos[1];
    *found_p = &infos[0];
    return 0;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
void freeaddrinfo(struct addrinfo *info)
{
    (void)info;
}

static void close_all(const struct bt_listening *listening)
{
    for (size_t i = 0; i < listening->addrs.count; i++) {
        ck_assert_int_eq(close(listening->fds[i]), 0);
    }
}

static void expect_addr(const struct bt_addr *addr, const char *host,
                        const char *port)
{
    char text[BT_ADDR_TEXT_MAX], wanted[BT_ADDR_TEXT_MAX];

    bt_addr_format(addr, text);
    (void)snprintf(wanted, sizeof(wanted), "%s%s", host, port);
    ck_assert_str_eq(text, wanted);
}

START_TEST(a_name_is_listened_on_at_all_its_addresses_and_one_port)
{
    struct bt_listening listening;
    char first[BT_ADDR_TEXT_MAX];
    const char *why = NULL;

    ck_assert_int_eq(bt_listen_all("two.name:0", &listening, &why), BT_OK);
    ck_assert_uint_eq(listening.addrs.count, 2);
    bt_addr_format(&listening.addrs.items[0], first);
    ck_assert_str_ne(strchr(first, ':'), ":0");
    expect_addr(&listening.addrs.items[1], "127.0.0.2", strchr(first, ':'));
    close_all(&listening);
}
END_TEST

START_TEST(an_address_that_this_host_does_not_have_is_left_out)
{
    struct bt_listening listening;
    char first[BT_ADDR_TEXT_MAX];
    const char *why = NULL;

    ck_assert_int_eq(bt_listen_all("half.name:0", &listening, &why), BT_OK);
    ck_assert_uint_eq(listening.addrs.count, 1);
    bt_addr_format(&listening.addrs.items[0], first);
    expect_addr(&listening.addrs.items[0], "127.0.0.1", strchr(first, ':'));
    close_all(&listening);
}
END_TEST

START_TEST(without_any_address_of_this_host_the_cause_is_told)
{
    struct bt_listening listening;
    const char *why = NULL;

    ck_assert_int_eq(bt_listen_all("far.name:0", &listening, &why),
                     BT_ERR_SYSTEM);
    ck_assert_str_eq(why, "Cannot assign requested address");
    ck_assert_int_eq(bt_listen_all("no.name:0", &listening, &why),
                     BT_ERR_NOT_FOUND);
    ck_assert_str_eq(why, "Name or service not known");
}
END_TEST

START_TEST(one_address_in_use_is_an_error_and_leaves_nothing_open)
{
    struct bt_listening taken, listening;
    char first[BT_ADDR_TEXT_MAX], text[BT_ADDR_TEXT_MAX];
    const char *why = NULL;

    ck_assert_int_eq(bt_listen_all("two.name:0", &taken, &why), BT_OK);
    bt_addr_format(&taken.addrs.items[0], first);
    (void)snprintf(text, sizeof(text), "two.name%s", strchr(first, ':'));
    ck_assert_int_eq(close(taken.fds[0]), 0);
    ck_assert_int_eq(bt_listen_all(text, &listening, &why), BT_ERR_EXISTS);
    ck_assert_int_eq(close(taken.fds[1]), 0);
    ck_assert_int_eq(bt_listen_all(text, &listening, &why), BT_OK);
    close_all(&listening);
}
END_TEST

HARNESS_MAIN("listen", a_name_is_listened_on_at_all_its_addresses_and_one_port,
             an_address_that_this_host_does_not_have_is_left_out,
             without_any_address_of_this_host_the_cause_is_told,
             one_address_in_use_is_an_error_and_leaves_nothing_open)
