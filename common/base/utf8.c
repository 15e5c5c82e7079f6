#include "common/base/utf8.h"

/* Characters of several bytes, by their first one; low, high: the second's. */
struct utf8_range {
    unsigned char first, last, low, high;
    size_t len;
};

static const struct utf8_range UTF8_RANGES[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
    {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
    {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
    {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

static const struct utf8_range *range_of(unsigned char first)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(UTF8_RANGES); i++) {
        if (first >= UTF8_RANGES[i].first && first <= UTF8_RANGES[i].last) {
            return &UTF8_RANGES[i];
        }
    }
    return NULL;
}

size_t bt_utf8_len(struct bt_str text)
{
    const unsigned char *const at = (const unsigned char *)text.ptr;
    const struct utf8_range *range;

    if (at[0] < 0x80) {
        return 1;
    }
    range = range_of(at[0]);
    if (range == NULL || text.len < range->len || at[1] < range->low ||
        at[1] > range->high) {
        return 0;
    }
    for (size_t i = 2; i < range->len; i++) {
        if (at[i] < 0x80 || at[i] > 0xbf) {
            return 0;
        }
    }
    return range->len;
}

uint32_t bt_utf8_code(struct bt_str character)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)character.ptr[0] & masks[character.len];

    for (size_t i = 1; i < character.len; i++) {
        code = code << 6 | ((unsigned char)character.ptr[i] & 0x3f);
    }
    return code;
}

bool bt_utf8_is_valid(struct bt_str text)
{
    while (text.len > 0) {
        const size_t len = bt_utf8_len(text);

        if (len == 0) {
            return false;
        }
        text = bt_str_span(text.ptr + len, text.len - len);
    }
    return true;
}

struct bt_str bt_utf8_skip_mark(struct bt_str text)
{
    const struct bt_str mark = BT_STR("\xef\xbb\xbf");

    return bt_str_starts(text, mark)
               ? bt_str_span(text.ptr + mark.len, text.len - mark.len)
               : text;
}
