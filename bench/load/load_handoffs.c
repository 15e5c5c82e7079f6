/*
 * {"live_count":n,"live":[{…,"blocks":n},…],"recent":[…]}: the array may be
 * shorter than the count, which is the number that is true.
 */
#include "bench/load/load_handoffs.h"

#include "common/json/json.h"

static uint64_t blocks_of(struct bt_str handoff)
{
    struct bt_json_value value;
    uint64_t blocks = 0;

    if (!bt_json_find(handoff, BT_STR("blocks"), &value) ||
        bt_json_to_u64(&value, &blocks) != BT_OK) {
        return 0;
    }
    return blocks;
}

static bool read_count(struct bt_str table, uint64_t *count_p)
{
    struct bt_json_value value;

    return bt_json_find(table, BT_STR("live_count"), &value) &&
           bt_json_to_u64(&value, count_p) == BT_OK;
}

bool handoffs_read(struct bt_str json, struct load_handoffs *handoffs_p)
{
    struct load_handoffs handoffs = {0};
    struct bt_json_iter it;
    struct bt_json_value value;

    if (bt_json_check(json, &value, NULL) != BT_OK ||
        value.type != BT_JSON_OBJECT ||
        !read_count(value.text, &handoffs.live) ||
        !bt_json_find(value.text, BT_STR("live"), &value) ||
        value.type != BT_JSON_ARRAY) {
        return false;
    }
    bt_json_iter_array(&it, value.text);
    while (bt_json_next_element(&it, &value)) {
        if (value.type != BT_JSON_OBJECT) {
            return false;
        }
        handoffs.blocks += blocks_of(value.text);
    }
    if (bt_json_iter_end(&it) != BT_OK) {
        return false;
    }
    *handoffs_p = handoffs;
    return true;
}
