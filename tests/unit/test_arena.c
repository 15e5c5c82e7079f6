/*
 * The arena: alignment, growth, refusal.
 */
#include "common/base/arena.h"
#include "tests/support/harness.h"

#include <stdalign.h>

static struct bt_arena arena;

static void setup(void)
{
    bt_arena_init(&arena);
}

static void teardown(void)
{
    bt_arena_fini(&arena);
}

START_TEST(blocks_are_aligned_and_apart)
{
    static unsigned char *blocks[2000];

    for (size_t i = 0; i < BT_ARRAY_LEN(blocks); i++) {
        const size_t size = i % 97;

        blocks[i] = bt_arena_alloc(&arena, size);
        ck_assert_ptr_nonnull(blocks[i]);
        ck_assert_uint_eq((uintptr_t)blocks[i] % alignof(max_align_t), 0);
        memset(blocks[i], (int)(i & 255), size);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(blocks); i++) {
        for (size_t k = 0; k < i % 97; k++) {
            ck_assert_uint_eq(blocks[i][k], i & 255);
        }
    }
}
END_TEST

START_TEST(a_large_block_leaves_the_current_chunk_in_use)
{
    char *const first = bt_arena_alloc(&arena, 16);
    char *const large = bt_arena_alloc(&arena, BT_MIB);
    char *const second = bt_arena_alloc(&arena, 16);

    ck_assert_ptr_nonnull(large);
    memset(large, 1, BT_MIB);
    ck_assert_ptr_eq(second, first + 16);
}
END_TEST

START_TEST(a_large_first_block_works)
{
    char *const large = bt_arena_alloc(&arena, BT_MIB);

    ck_assert_ptr_nonnull(large);
    memset(large, 1, BT_MIB);
    ck_assert_ptr_nonnull(bt_arena_alloc(&arena, 1));
}
END_TEST

START_TEST(refuses_sizes_that_cannot_be)
{
    ck_assert_ptr_null(bt_arena_alloc(&arena, SIZE_MAX));
    ck_assert(arena.failed);
    arena.failed = false;
    ck_assert_ptr_null(bt_arena_alloc(&arena, SIZE_MAX / 2 - 3));
    ck_assert(arena.failed);
    ck_assert_ptr_null(bt_arena_dup(&arena, bt_str_span("", SIZE_MAX)).ptr);
}
END_TEST

START_TEST(zeroes_copies_and_prints)
{
    const char *const zeros = bt_arena_zalloc(&arena, 300);
    const struct bt_str copy = bt_arena_dup(&arena, BT_STR("a\0b"));
    const struct bt_str empty = bt_arena_dup(&arena, bt_str_of(NULL));
    const struct bt_str text = bt_arena_printf(&arena, "%s-%05d", "x", 42);

    for (size_t i = 0; i < 300; i++) {
        ck_assert_int_eq(zeros[i], 0);
    }
    ck_assert(bt_str_eq(copy, BT_STR("a\0b")));
    ck_assert_int_eq(copy.ptr[copy.len], '\0');
    ck_assert_ptr_nonnull(empty.ptr);
    ck_assert_uint_eq(empty.len, 0);
    ck_assert_str_eq(text.ptr, "x-00042");
    ck_assert_uint_eq(text.len, 7);
}
END_TEST

HARNESS_MAIN_WITH("arena", setup, teardown, blocks_are_aligned_and_apart,
                  a_large_block_leaves_the_current_chunk_in_use,
                  a_large_first_block_works, refuses_sizes_that_cannot_be,
                  zeroes_copies_and_prints)
