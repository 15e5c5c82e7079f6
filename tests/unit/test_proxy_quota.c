/*
 * proxy/quota: what one address may hold, and that nothing stays counted.
 */
#include "proxy/base/quota.h"
#include "tests/support/harness.h"

static struct quotas *quotas;

static void setup(void)
{
    quotas = quotas_open(2, 100);
    ck_assert_ptr_nonnull(quotas);
}

static void teardown(void)
{
    quotas_close(&quotas);
}

static struct bt_addr address(const char *text)
{
    struct bt_addr addr;

    ck_assert_int_eq(bt_addr_parse(text, &addr), BT_OK);
    return addr;
}

static enum bt_status enter(const char *text, struct quota **quota_p)
{
    const struct bt_addr addr = address(text);

    return quota_enter(quotas, &addr, quota_p);
}

START_TEST(an_address_has_so_many_connections)
{
    struct quota *first = NULL;
    struct quota *second = NULL;
    struct quota *other = NULL;

    ck_assert_int_eq(enter("10.0.0.1:1", &first), BT_OK);
    ck_assert_int_eq(enter("10.0.0.1:2", &second), BT_OK);
    ck_assert_int_eq(enter("10.0.0.1:3", &other), BT_ERR_LIMIT);
    ck_assert_int_eq(enter("10.0.0.2:3", &other), BT_OK);
    quota_leave(first);
    ck_assert_int_eq(enter("10.0.0.1:3", &first), BT_OK);
    quota_leave(first);
    quota_leave(second);
    quota_leave(other);
}
END_TEST

START_TEST(an_address_of_ipv6_is_its_network)
{
    struct quota *quota[3] = {NULL, NULL, NULL};

    ck_assert_int_eq(enter("[2001:db8::1]:1", &quota[0]), BT_OK);
    ck_assert_int_eq(enter("[2001:db8::2:3]:1", &quota[1]), BT_OK);
    ck_assert_int_eq(enter("[2001:db8::4]:1", &quota[2]), BT_ERR_LIMIT);
    ck_assert_int_eq(enter("[2001:db8:0:1::1]:1", &quota[2]), BT_OK);
    for (int i = 0; i < 3; i++) {
        quota_leave(quota[i]);
    }
}
END_TEST

START_TEST(a_mapped_address_is_the_ipv4_one)
{
    struct quota *quota[3] = {NULL, NULL, NULL};

    ck_assert_int_eq(enter("10.0.0.1:1", &quota[0]), BT_OK);
    ck_assert_int_eq(enter("[::ffff:10.0.0.1]:1", &quota[1]), BT_OK);
    ck_assert_int_eq(enter("10.0.0.1:2", &quota[2]), BT_ERR_LIMIT);
    quota_leave(quota[0]);
    quota_leave(quota[1]);
}
END_TEST

START_TEST(a_unix_socket_is_not_limited)
{
    struct quota *quota = NULL;

    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(enter("unix:/tmp/x", &quota), BT_OK);
        ck_assert_ptr_null(quota);
    }
    ck_assert(quota_charge(quota, UINT64_MAX));
    quota_return(quota, UINT64_MAX);
    quota_leave(quota);
}
END_TEST

START_TEST(bytes_outlive_their_connection)
{
    struct quota *quota = NULL;
    struct quota *again = NULL;

    ck_assert_int_eq(enter("10.0.0.1:1", &quota), BT_OK);
    ck_assert(quota_charge(quota, 60));
    ck_assert(!quota_charge(quota, 41));
    quota_leave(quota);
    ck_assert_int_eq(enter("10.0.0.1:2", &again), BT_OK);
    ck_assert_ptr_eq(again, quota);
    ck_assert(quota_charge(again, 40));
    quota_leave(again);
    quota_return(quota, 100); /* the last: nothing is left to leak */
}
END_TEST

HARNESS_MAIN_WITH("quota", setup, teardown, an_address_has_so_many_connections,
                  an_address_of_ipv6_is_its_network,
                  a_mapped_address_is_the_ipv4_one,
                  a_unix_socket_is_not_limited, bytes_outlive_their_connection)
