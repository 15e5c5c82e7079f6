/*
 * The buffer: growth, consumption, refusal.
 */
#include "common/base/buf.h"
#include "tests/support/harness.h"
#include "tests/support/rng.h"

static struct bt_buf buf;

static void setup(void)
{
    bt_buf_init(&buf);
}

static void teardown(void)
{
    bt_buf_fini(&buf);
}

static void assert_text(const char *expected)
{
    ck_assert(!buf.failed);
    ck_assert_msg(bt_str_eq(bt_buf_str(&buf), bt_str_of(expected)),
                  "\"%.*s\" is not \"%s\"", BT_STR_ARG(bt_buf_str(&buf)),
                  expected);
}

START_TEST(a_zeroed_buffer_is_empty_and_works)
{
    struct bt_buf zeroed = {0};

    ck_assert_ptr_nonnull(bt_buf_str(&zeroed).ptr);
    ck_assert_uint_eq(bt_buf_str(&zeroed).len, 0);
    bt_buf_consume(&zeroed, 5);
    bt_buf_append(&zeroed, bt_str_of(NULL));
    ck_assert_uint_eq(zeroed.len, 0);
    bt_buf_append_char(&zeroed, 'x');
    ck_assert(bt_str_eq(bt_buf_str(&zeroed), BT_STR("x")));
    bt_buf_fini(&zeroed);
    bt_buf_fini(&zeroed);
}
END_TEST

START_TEST(bytes_come_out_in_order_whatever_the_sizes)
{
    struct rng rng = {4711};
    size_t written = 0;
    size_t read = 0;

    for (int round = 0; round < 20000; round++) {
        const size_t grow = rng_below(&rng, 40);
        struct bt_str held;
        size_t take;

        ck_assert(bt_buf_reserve(&buf, grow));
        for (size_t i = 0; i < grow; i++) {
            bt_buf_tail(&buf)[i] = (char)(written++ % 251);
        }
        bt_buf_commit(&buf, grow);
        held = bt_buf_str(&buf);
        take = rng_below(&rng, held.len + 2);
        take = take > held.len ? held.len : take;
        for (size_t i = 0; i < take; i++) {
            ck_assert_int_eq(held.ptr[i], (char)(read++ % 251));
        }
        bt_buf_consume(&buf, take);
    }
    ck_assert_uint_eq(buf.len, written - read);
    ck_assert_uint_lt(buf.cap, 4096);
}
END_TEST

START_TEST(the_first_reservation_is_exact)
{
    ck_assert(bt_buf_reserve(&buf, 12345));
    ck_assert_uint_eq(buf.cap, 12345);
}
END_TEST

START_TEST(failure_is_sticky_and_loses_nothing)
{
    bt_buf_append(&buf, BT_STR("abc"));
    ck_assert(!bt_buf_reserve(&buf, SIZE_MAX - 2));
    ck_assert(buf.failed);
    bt_buf_append(&buf, BT_STR("def"));
    bt_buf_printf(&buf, "%d", 1);
    ck_assert(!bt_buf_reserve(&buf, 0));
    ck_assert(bt_str_eq(bt_buf_str(&buf), BT_STR("abc")));
    bt_buf_clear(&buf);
    bt_buf_append(&buf, BT_STR("def"));
    assert_text("def");
    ck_assert(!bt_buf_reserve(&buf, SIZE_MAX / 2));
}
END_TEST

START_TEST(prints_short_and_long_texts)
{
    char wide[1001];

    bt_buf_printf(&buf, "%s=%d;", "a", 5);
    assert_text("a=5;");
    bt_buf_clear(&buf);
    memset(wide, 'w', 1000);
    wide[1000] = '\0';
    bt_buf_printf(&buf, "%s", wide);
    assert_text(wide);
}
END_TEST

START_TEST(taking_moves_the_bytes)
{
    struct bt_buf other = {0};

    bt_buf_append(&buf, BT_STR("old"));
    bt_buf_append(&other, BT_STR("new"));
    bt_buf_take(&buf, &other);
    assert_text("new");
    ck_assert_ptr_null(other.data);
    ck_assert_uint_eq(other.len, 0);
    bt_buf_take(&buf, &buf);
    assert_text("new");
}
END_TEST

HARNESS_MAIN_WITH("buf", setup, teardown, a_zeroed_buffer_is_empty_and_works,
                  bytes_come_out_in_order_whatever_the_sizes,
                  the_first_reservation_is_exact,
                  failure_is_sticky_and_loses_nothing,
                  prints_short_and_long_texts, taking_moves_the_bytes)
