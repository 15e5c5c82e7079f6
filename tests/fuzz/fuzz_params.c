/*
 * Any bytes as kv_transfer_params: refused, or read within the bounds.
 */
#include "agent/src/pull/params.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact) {
        abort();
    }
}

static void check_bounds(const struct bta_params *params)
{
    uint64_t sum = 0;

    require(params->handoff.lo != 0);
    require(params->world > 0 && params->world <= BTA_WORLD_MAX);
    require(params->group_count <= BTA_GROUPS_MAX);
    require(params->block_count <= BTA_PARAMS_BLOCKS_MAX);
    for (size_t i = 0; i < params->group_count; i++) {
        for (size_t block = 0; block < params->groups[i].count; block++) {
            sum += params->groups[i].ids[block];
        }
    }
    for (size_t i = 0; params->digests != NULL &&
                       i < (size_t)params->world * params->block_count;
         i++) {
        sum += params->digests[i];
    }
    for (size_t i = 0; i < params->world; i++) {
        sum += params->boots[i];
    }
    require(sum != 1 || params->world > 0); /* all of it was touched */
}

/* What was read is written, and read again, the same. */
static void check_again(const struct bta_params *params)
{
    struct bta_params back;
    struct bt_buf text, again;

    bt_buf_init(&text);
    bt_buf_init(&again);
    bt_buf_append(&text, BT_STR("{\"baton\":{"));
    bta_params_write(params, &text);
    bt_buf_append(&text, BT_STR("}}"));
    require(bta_params_read(&back, bt_buf_str(&text), NULL) == BATON_OK);
    bt_buf_append(&again, BT_STR("{\"baton\":{"));
    bta_params_write(&back, &again);
    bt_buf_append(&again, BT_STR("}}"));
    require(bt_str_eq(bt_buf_str(&text), bt_buf_str(&again)));
    bta_params_fini(&back);
    bt_buf_fini(&text);
    bt_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct bt_str text = bt_str_span((const char *)data, size);
    struct bta_params params;
    const char *why = NULL;
    const baton_status status = bta_params_read(&params, text, &why);

    require(status == BATON_OK || status == BATON_ERR_MEMORY || why != NULL);
    if (status == BATON_OK) {
        check_bounds(&params);
        check_again(&params);
    }
    bta_params_fini(&params);
    return 0;
}
