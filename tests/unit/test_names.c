/*
 * proxy/names: engines whose names have no address yet, with a resolver that
 * the test plays.
 */
#include "proxy/fleet/fleet.h"
#include "proxy/fleet/names.h"
#include "tests/support/config_pair.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

#include <arpa/inet.h>
#include <netdb.h>

/* What the resolver says of any name. */
static atomic_int code;
static atomic_uint asked;

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
int getaddrinfo(const char *host, const char *service,
                const struct addrinfo *hints, struct addrinfo **found_p)
{
    static struct sockaddr_in addrs[2];
    static struct addrinfo infos[2];
    const bool is_numeric = inet_pton(AF_INET, host, &addrs[0].sin_addr) == 1;

    (void)service;
    if (!is_numeric && (hints->ai_flags & AI_NUMERICHOST) != 0) {
        return EAI_NONAME;
    }
    if (!is_numeric) {
        atomic_fetch_add(&asked, 1);
    }
    if (!is_numeric && atomic_load(&code) != 0) {
        return atomic_load(&code);
    }
    for (size_t i = 0; i < 2; i++) {
        addrs[i].sin_family = AF_INET;
        addrs[i].sin_addr.s_addr = htonl((uint32_t)(INADDR_LOOPBACK + i));
        infos[i] = (struct addrinfo){.ai_family = AF_INET,
                                     .ai_addr = (void *)&addrs[i],
                                     .ai_addrlen = sizeof(addrs[i])};
    }
    infos[0].ai_next = is_numeric ? NULL : &infos[1];
    *found_p = &infos[0];
    return 0;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
void freeaddrinfo(struct addrinfo *info)
{
    (void)info;
}

static struct config config;
static struct config_pair pair;
static struct fleet *fleet;
static struct bt_loop *loop;
static struct names *names;

static void open_names(int says)
{
    static const char *const URLS[] = {"http://some.name:1",
                                       "http://127.0.0.1:1"};

    config = (struct config){0};
    atomic_store(&code, says);
    atomic_store(&asked, 0); /* the tests may share one process */
    config_pair_set(&pair, &config, CONNECTOR_NIXL, URLS);
    ck_assert_int_eq(fleet_open(&config, &fleet), BT_OK);
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
    ck_assert_int_eq(names_open(loop, &names), BT_OK);
    ck_assert_int_eq(names_add(names, fleet->slots[0]), BT_OK);
    ck_assert_int_eq(names_add(names, fleet->slots[1]), BT_OK);
    names_await(names);
}

static void teardown(void)
{
    names_close(&names);
    bt_loop_close(&loop);
    fleet_close(&fleet);
}

START_TEST(a_name_that_resolves_at_the_start_is_known_then)
{
    open_names(0);
    ck_assert(engine_is_usable(fleet->slots[0]));
    ck_assert_uint_eq(engine_addrs(fleet->slots[0])->count, 2);
    ck_assert_uint_eq(atomic_load(&asked), 1);
}
END_TEST

START_TEST(a_name_without_an_address_keeps_its_engine_unusable_and_no_other)
{
    open_names(EAI_NONAME);
    ck_assert(!engine_is_usable(fleet->slots[0]));
    ck_assert(engine_is_usable(fleet->slots[1]));
}
END_TEST

START_TEST(a_name_is_asked_for_again_until_it_resolves)
{
    open_names(EAI_AGAIN);
    atomic_store(&code, 0);
    pair_until(loop, engine_is_usable(fleet->slots[0]));
    ck_assert_uint_eq(atomic_load(&asked), 2);
    ck_assert_uint_eq(engine_addrs(fleet->slots[0])->count, 2);
}
END_TEST

HARNESS_MAIN_WITH(
    "names", NULL, teardown, a_name_that_resolves_at_the_start_is_known_then,
    a_name_without_an_address_keeps_its_engine_unusable_and_no_other,
    a_name_is_asked_for_again_until_it_resolves)
