/*
 * Spans: comparison, lists, numbers.
 */
#include "common/base/str.h"
#include "tests/support/harness.h"

START_TEST(compares_with_and_without_case)
{
    ck_assert(bt_str_eq(BT_STR("abc"), BT_STR("abc")));
    ck_assert(!bt_str_eq(BT_STR("abc"), BT_STR("abd")));
    ck_assert(!bt_str_eq(BT_STR("abc"), BT_STR("ab")));
    ck_assert(bt_str_eq(bt_str_of(NULL), BT_STR("")));
    ck_assert(
        bt_str_eq_nocase(BT_STR("Content-LENGTH"), BT_STR("content-length")));
    ck_assert(!bt_str_eq_nocase(BT_STR("a@"), BT_STR("a`")));
    ck_assert(!bt_str_eq_nocase(BT_STR("a["), BT_STR("a{")));
    ck_assert(!bt_str_eq_nocase(BT_STR("a"), BT_STR("ab")));
    ck_assert(bt_str_eq_nocase(bt_str_of(NULL), BT_STR("")));
    ck_assert(bt_str_starts_nocase(BT_STR("X-Baton-a"), BT_STR("x-baton-")));
    ck_assert(!bt_str_starts_nocase(BT_STR("x-bato"), BT_STR("x-baton-")));
}
END_TEST

START_TEST(finds_prefixes_and_needles)
{
    ck_assert(bt_str_starts(BT_STR("/v1/models"), BT_STR("/v1/")));
    ck_assert(bt_str_starts(BT_STR("x"), BT_STR("")));
    ck_assert(!bt_str_starts(BT_STR("/v1"), BT_STR("/v1/")));
    ck_assert_uint_eq(bt_str_find(BT_STR("hello"), BT_STR("lo")), 3);
    ck_assert_uint_eq(bt_str_find(BT_STR("hello"), BT_STR("lx")), 5);
    ck_assert_uint_eq(bt_str_find(BT_STR("hello"), BT_STR("")), 0);
    ck_assert_uint_eq(bt_str_find(BT_STR("h"), BT_STR("hello")), 1);
    ck_assert_uint_eq(bt_str_find(bt_str_of(NULL), BT_STR("a")), 0);
}
END_TEST

START_TEST(trims_blanks_but_no_other_space)
{
    ck_assert(bt_str_eq(bt_str_trim(BT_STR(" \t a b \t")), BT_STR("a b")));
    ck_assert(bt_str_eq(bt_str_trim(BT_STR(" \t ")), BT_STR("")));
    ck_assert(bt_str_eq(bt_str_trim(BT_STR("\na")), BT_STR("\na")));
}
END_TEST

START_TEST(gives_out_the_items_of_a_list)
{
    struct bt_str rest = BT_STR(" , close,\t,keep-alive ,, Upgrade");
    struct bt_str item;

    ck_assert(bt_str_next_item(&rest, &item));
    ck_assert(bt_str_eq(item, BT_STR("close")));
    ck_assert(bt_str_next_item(&rest, &item));
    ck_assert(bt_str_eq(item, BT_STR("keep-alive")));
    ck_assert(bt_str_next_item(&rest, &item));
    ck_assert(bt_str_eq(item, BT_STR("Upgrade")));
    ck_assert(!bt_str_next_item(&rest, &item));
    rest = BT_STR(" ,\t, ");
    ck_assert(!bt_str_next_item(&rest, &item));
    rest = bt_str_of(NULL);
    ck_assert(!bt_str_next_item(&rest, &item));
}
END_TEST

START_TEST(reads_decimal_numbers_exactly)
{
    uint64_t value = 7;

    ck_assert_int_eq(bt_str_to_u64(BT_STR(""), &value), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_str_to_u64(BT_STR("+1"), &value), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_str_to_u64(BT_STR("-1"), &value), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_str_to_u64(BT_STR(" 1"), &value), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_str_to_u64(BT_STR("1 "), &value), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_str_to_u64(BT_STR("18446744073709551616"), &value),
                     BT_ERR_RANGE);
    ck_assert_int_eq(bt_str_to_u64(BT_STR("99999999999999999999999"), &value),
                     BT_ERR_RANGE);
    ck_assert_int_eq(bt_str_to_u64(BT_STR("99999999999999999999999x"), &value),
                     BT_ERR_SYNTAX);
    ck_assert_uint_eq(value, 7);
    ck_assert_int_eq(bt_str_to_u64(BT_STR("18446744073709551615"), &value),
                     BT_OK);
    ck_assert_uint_eq(value, UINT64_MAX);
    ck_assert_int_eq(bt_str_to_u64(BT_STR("000"), &value), BT_OK);
    ck_assert_uint_eq(value, 0);
}
END_TEST

START_TEST(reads_hex_numbers_exactly)
{
    uint64_t value = 7;

    ck_assert_int_eq(bt_str_hex_to_u64(BT_STR(""), &value), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_str_hex_to_u64(BT_STR("0x1"), &value), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_str_hex_to_u64(BT_STR("g"), &value), BT_ERR_SYNTAX);
    ck_assert_int_eq(bt_str_hex_to_u64(BT_STR("00000000000000001"), &value),
                     BT_ERR_SYNTAX);
    ck_assert_uint_eq(value, 7);
    ck_assert_int_eq(bt_str_hex_to_u64(BT_STR("DEADbeef01234567"), &value),
                     BT_OK);
    ck_assert_uint_eq(value, 0xdeadbeef01234567U);
    ck_assert_int_eq(bt_str_hex_to_u64(BT_STR("aF"), &value), BT_OK);
    ck_assert_uint_eq(value, 0xaf);
}
END_TEST

START_TEST(writes_numbers_in_decimal_and_hex)
{
    char room[BT_U64_DIGITS];
    char hex[17];

    ck_assert(bt_str_eq(bt_str_of_u64(0, room), BT_STR("0")));
    ck_assert(bt_str_eq(bt_str_of_u64(10203, room), BT_STR("10203")));
    ck_assert(bt_str_eq(bt_str_of_u64(UINT64_MAX, room),
                        BT_STR("18446744073709551615")));
    bt_str_hex_u64(0xabc, hex);
    ck_assert_str_eq(hex, "0000000000000abc");
    bt_str_hex_u64(0xfedcba9876543210U, hex);
    ck_assert_str_eq(hex, "fedcba9876543210");
}
END_TEST

START_TEST(copies_to_c_strings_but_no_nul)
{
    char *copy = bt_str_dup(BT_STR("a b"));

    ck_assert_str_eq(copy, "a b");
    free(copy);
    copy = bt_str_dup(bt_str_of(NULL));
    ck_assert_str_eq(copy, "");
    free(copy);
    ck_assert_ptr_null(bt_str_dup(BT_STR("a\0b")));
}
END_TEST

START_TEST(copies_what_fits_and_ends_it)
{
    char text[4] = "xyz";

    bt_str_copy(text, sizeof(text), BT_STR("ab"));
    ck_assert_str_eq(text, "ab");
    bt_str_copy(text, sizeof(text), BT_STR("abcd"));
    ck_assert_str_eq(text, "abc");
    bt_str_copy(text, sizeof(text), bt_str_of(NULL));
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(splits_a_host_from_its_port)
{
    static const struct {
        const char *text;
        const char *host;
        const char *port;
    } good[] = {{"h:80", "h", "80"},
                {"h", "h", ""},
                {"[::1]:80", "::1", "80"},
                {"[::1]", "::1", ""},
                {"h:x:y", "h", "x:y"}};
    static const char *const bad[] = {
        "", ":80", "::1", "[::1", "[]:1", "h:", "[::1]x", "[::1]80", "[::1]:"};
    struct bt_str host, port;

    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        ck_assert(bt_str_split_host(bt_str_of(good[i].text), &host, &port));
        ck_assert(bt_str_eq(host, bt_str_of(good[i].host)));
        ck_assert(bt_str_eq(port, bt_str_of(good[i].port)));
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        ck_assert_msg(!bt_str_split_host(bt_str_of(bad[i]), &host, &port), "%s",
                      bad[i]);
    }
}
END_TEST

START_TEST(spells_bytes_in_hex)
{
    static const unsigned char bytes[] = {0x00, 0xaf, 0x10};
    char text[7];

    bt_str_hex(bytes, sizeof(bytes), text);
    ck_assert_str_eq(text, "00af10");
}
END_TEST

HARNESS_MAIN("str", compares_with_and_without_case, finds_prefixes_and_needles,
             trims_blanks_but_no_other_space, gives_out_the_items_of_a_list,
             reads_decimal_numbers_exactly, reads_hex_numbers_exactly,
             writes_numbers_in_decimal_and_hex, copies_to_c_strings_but_no_nul,
             copies_what_fits_and_ends_it, splits_a_host_from_its_port,
             spells_bytes_in_hex)
