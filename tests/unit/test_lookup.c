/*
 * common/lookup: names that are looked up in the background.
 */
#include "common/io/lookup.h"
#include "tests/support/harness.h"

static struct bt_lookup *look_up(const char *text)
{
    struct bt_lookup *lookup;
    struct bt_url url;

    ck_assert_int_eq(bt_url_parse(text, &url, NULL), BT_OK);
    ck_assert_int_eq(bt_lookup_open(&url, &lookup), BT_OK);
    bt_lookup_wait(lookup, 10000);
    return lookup;
}

START_TEST(an_answer_has_the_addresses_with_the_port)
{
    struct bt_lookup *lookup = look_up("http://127.0.0.9:81");
    char text[BT_ADDR_TEXT_MAX];
    struct bt_addrs addrs;
    const char *why;

    ck_assert_int_eq(bt_lookup_take(lookup, &addrs, &why), BT_OK);
    ck_assert_uint_eq(addrs.count, 1);
    bt_addr_format(&addrs.items[0], text);
    ck_assert_str_eq(text, "127.0.0.9:81");
    bt_lookup_close(&lookup);
    ck_assert_ptr_null(lookup);
}
END_TEST

/* No resolver takes a label of more than 63 characters. */
START_TEST(a_name_that_is_not_found_says_why)
{
    struct bt_lookup *lookup = look_up(
        "http://"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        ".invalid");
    const char *why = NULL;
    struct bt_addrs addrs;

    ck_assert_int_eq(bt_lookup_take(lookup, &addrs, &why), BT_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(why);
    bt_lookup_close(&lookup);
}
END_TEST

START_TEST(a_look_up_may_be_closed_while_it_is_under_way)
{
    struct bt_lookup *lookup;
    struct bt_url url;

    ck_assert_int_eq(bt_url_parse("http://127.0.0.9:81", &url, NULL), BT_OK);
    ck_assert_int_eq(bt_lookup_open(&url, &lookup), BT_OK);
    bt_lookup_close(&lookup);
    ck_assert_ptr_null(lookup);
    bt_lookup_close(&lookup);
}
END_TEST

HARNESS_MAIN("lookup", an_answer_has_the_addresses_with_the_port,
             a_name_that_is_not_found_says_why,
             a_look_up_may_be_closed_while_it_is_under_way)
