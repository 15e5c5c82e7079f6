/*
 * Ids as text.
 */
#include "agent/src/base/id.h"

#include "common/base/str.h"

baton_status baton_id_parse(const char *hex, size_t length, baton_id *id_p)
{
    baton_id id;

    if (hex == NULL || id_p == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (length != 32 ||
        bt_str_hex_to_u64(bt_str_span(hex, 16), &id.hi) != BT_OK ||
        bt_str_hex_to_u64(bt_str_span(hex + 16, 16), &id.lo) != BT_OK ||
        id.lo == 0) {
        return BATON_ERR_PARAMS;
    }
    *id_p = id;
    return BATON_OK;
}

void baton_id_format(baton_id id, char hex[33])
{
    bt_str_hex_u64(id.hi, hex);
    bt_str_hex_u64(id.lo, hex + 16);
}
