/*
 * UTF-8: the bounds of each row of the Unicode Standard's table 3-7.
 */
#include "common/base/utf8.h"
#include "tests/support/harness.h"

START_TEST(characters_at_the_bounds_have_their_length)
{
    static const char *const good[] = {
        "a",
        "\xc2\x80",
        "\xdf\xbf",
        "\xe0\xa0\x80",
        "\xe1\x80\x80",
        "\xec\xbf\xbf",
        "\xed\x80\x80",
        "\xed\x9f\xbf",
        "\xee\x80\x80",
        "\xef\xbf\xbf",
        "\xf0\x90\x80\x80",
        "\xf3\xbf\xbf\xbf",
        "\xf4\x8f\xbf\xbf",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        ck_assert_uint_eq(bt_utf8_len(bt_str_of(good[i])), strlen(good[i]));
    }
    ck_assert_uint_eq(bt_utf8_len(BT_STR("\0")), 1);
}
END_TEST

START_TEST(bytes_outside_the_bounds_are_no_character)
{
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xc2",
        "\xc2\x7f",
        "\xc2\xc0",
        "\xe0\x9f\xbf",
        "\xe1\x80",
        "\xe1\x80\x7f",
        "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf0\x90\x80\xc0",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        ck_assert_uint_eq(bt_utf8_len(bt_str_of(bad[i])), 0);
    }
}
END_TEST

START_TEST(a_text_is_valid_when_each_character_is)
{
    ck_assert(bt_utf8_is_valid(BT_STR("")));
    ck_assert(bt_utf8_is_valid(BT_STR("na\xc3\xafve \xf0\x9f\x98\x80")));
    ck_assert(!bt_utf8_is_valid(BT_STR("ok\xffok")));
    ck_assert(!bt_utf8_is_valid(BT_STR("cut \xf0\x9f\x98")));
}
END_TEST

START_TEST(a_character_has_its_code)
{
    ck_assert_uint_eq(bt_utf8_code(BT_STR("a")), 'a');
    ck_assert_uint_eq(bt_utf8_code(BT_STR("\xc2\x82")), 0x82);
    ck_assert_uint_eq(bt_utf8_code(BT_STR("\xe2\x80\xa8")), 0x2028);
    ck_assert_uint_eq(bt_utf8_code(BT_STR("\xf4\x8f\xbf\xbf")), 0x10ffff);
}
END_TEST

START_TEST(one_mark_in_front_is_skipped)
{
    ck_assert(
        bt_str_eq(bt_utf8_skip_mark(BT_STR("\xef\xbb\xbf[")), BT_STR("[")));
    ck_assert(
        bt_str_eq(bt_utf8_skip_mark(BT_STR("\xef\xbb")), BT_STR("\xef\xbb")));
    ck_assert_uint_eq(bt_utf8_skip_mark(BT_STR("\xef\xbb\xbf")).len, 0);
    ck_assert_uint_eq(bt_utf8_skip_mark((struct bt_str){0}).len, 0);
}
END_TEST

HARNESS_MAIN("utf8", characters_at_the_bounds_have_their_length,
             bytes_outside_the_bounds_are_no_character,
             a_text_is_valid_when_each_character_is, a_character_has_its_code,
             one_mark_in_front_is_skipped)
