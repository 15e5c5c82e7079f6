/*
 * common/hash: things by their keys.
 */
#include "common/base/hash.h"
#include "tests/support/harness.h"

#define MANY 1000

static struct bt_hash hash;
static struct bt_hash_node nodes[MANY];

static void setup(void)
{
    ck_assert(bt_hash_init(&hash, 64)); /* many share a bucket */
    for (size_t i = 0; i < MANY; i++) {
        nodes[i].key = (struct bt_key){.hi = i % 7, .lo = i};
        bt_hash_insert(&hash, &nodes[i]);
    }
}

static void teardown(void)
{
    bt_hash_fini(&hash);
}

START_TEST(each_is_found_by_its_whole_key)
{
    ck_assert_uint_eq(hash.count, MANY);
    for (size_t i = 0; i < MANY; i++) {
        ck_assert_ptr_eq(bt_hash_find(&hash, nodes[i].key), &nodes[i]);
        ck_assert_ptr_null(
            bt_hash_find(&hash, (struct bt_key){.hi = i % 7 + 1, .lo = i}));
    }
    ck_assert_ptr_null(bt_hash_find(&hash, (struct bt_key){.lo = MANY}));
}
END_TEST

START_TEST(what_is_removed_is_gone_and_nothing_else)
{
    for (size_t i = 0; i < MANY; i += 2) {
        bt_hash_remove(&hash, &nodes[i]);
    }
    ck_assert_uint_eq(hash.count, MANY / 2);
    for (size_t i = 0; i < MANY; i++) {
        ck_assert_ptr_eq(bt_hash_find(&hash, nodes[i].key),
                         i % 2 == 0 ? NULL : &nodes[i]);
    }
}
END_TEST

START_TEST(numbers_in_a_row_spread_over_the_buckets)
{
    size_t longest = 0;

    for (size_t b = 0; b <= hash.mask; b++) {
        size_t length = 0;

        for (const struct bt_hash_node *node = hash.buckets[b]; node != NULL;
             node = node->next) {
            length++;
        }
        longest = length > longest ? length : longest;
    }
    ck_assert_uint_le(longest, 4 * MANY / 64);
}
END_TEST

HARNESS_MAIN_WITH("hash", setup, teardown, each_is_found_by_its_whole_key,
                  what_is_removed_is_gone_and_nothing_else,
                  numbers_in_a_row_spread_over_the_buckets)
