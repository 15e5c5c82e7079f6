/*
 * Operations on borrowed spans. Nothing here allocates but bt_str_dup.
 */
#include "common/base/str.h"

#include <stdlib.h>

static char lower(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return (char)(c - 'A' + 'a');
    }
    return c;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

bool bt_str_eq(struct bt_str a, struct bt_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool bt_str_same_nocase(const char *a, const char *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (lower(a[i]) != lower(b[i])) {
            return false;
        }
    }
    return true;
}

bool bt_str_starts(struct bt_str text, struct bt_str prefix)
{
    if (text.len < prefix.len) {
        return false;
    }
    return bt_str_eq(bt_str_span(text.ptr, prefix.len), prefix);
}

bool bt_str_starts_nocase(struct bt_str text, struct bt_str prefix)
{
    return bt_str_eq_nocase(bt_str_cut(text, prefix.len), prefix);
}

struct bt_str bt_str_trim(struct bt_str text)
{
    while (text.len > 0 && is_blank(text.ptr[0])) {
        text.ptr++;
        text.len--;
    }
    while (text.len > 0 && is_blank(text.ptr[text.len - 1])) {
        text.len--;
    }
    return text;
}

bool bt_str_next_item(struct bt_str *rest, struct bt_str *item_p)
{
    while (rest->len > 0) {
        const char *const comma = memchr(rest->ptr, ',', rest->len);
        const size_t len =
            comma == NULL ? rest->len : (size_t)(comma - rest->ptr);
        const size_t step = comma == NULL ? len : len + 1;
        const struct bt_str item = bt_str_trim(bt_str_span(rest->ptr, len));

        rest->ptr += step;
        rest->len -= step;
        if (item.len > 0) {
            *item_p = item;
            return true;
        }
    }
    return false;
}

size_t bt_str_find(struct bt_str text, struct bt_str needle)
{
    const char *found;

    if (needle.len == 0) {
        return 0;
    }
    if (text.len < needle.len) {
        return text.len;
    }
    found = memmem(text.ptr, text.len, needle.ptr, needle.len);
    return found == NULL ? text.len : (size_t)(found - text.ptr);
}

enum bt_status bt_str_to_u64(struct bt_str text, uint64_t *value_p)
{
    uint64_t value = 0;
    bool is_over = false;

    if (text.len == 0) {
        return BT_ERR_SYNTAX;
    }
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];

        if (c < '0' || c > '9') {
            return BT_ERR_SYNTAX;
        }
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(c - '0'), &value)) {
            is_over = true;
        }
    }
    if (is_over) {
        return BT_ERR_RANGE;
    }
    *value_p = value;
    return BT_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

enum bt_status bt_str_hex_to_u64(struct bt_str text, uint64_t *value_p)
{
    uint64_t value = 0;

    if (text.len == 0 || text.len > 16) {
        return BT_ERR_SYNTAX;
    }
    for (size_t i = 0; i < text.len; i++) {
        const int digit = hex_digit(text.ptr[i]);

        if (digit < 0) {
            return BT_ERR_SYNTAX;
        }
        value = value << 4 | (uint64_t)digit;
    }
    *value_p = value;
    return BT_OK;
}

char *bt_str_dup(struct bt_str text)
{
    char *copy;

    if (text.len == SIZE_MAX ||
        (text.len > 0 && memchr(text.ptr, '\0', text.len) != NULL)) {
        return NULL;
    }
    copy = malloc(text.len + 1);
    if (copy == NULL) {
        return NULL;
    }
    if (text.len > 0) {
        memcpy(copy, text.ptr, text.len);
    }
    copy[text.len] = '\0';
    return copy;
}

struct bt_str bt_str_of_u64(uint64_t value, char room[BT_U64_DIGITS])
{
    /* cppcheck-suppress ctuPointerArith; one behind the last may be named */
    char *const end = room + BT_U64_DIGITS;
    char *at = end;

    do {
        *--at = BT_HEX_DIGITS[value % 10];
        value /= 10;
    } while (value > 0);
    return bt_str_span(at, (size_t)(end - at));
}

void bt_str_hex_u64(uint64_t value, char hex[17])
{
    for (size_t i = 0; i < 16; i++) {
        hex[i] = BT_HEX_DIGITS[value >> (60 - 4 * i) & 15];
    }
    hex[16] = '\0';
}

bool bt_str_split_host(struct bt_str text, struct bt_str *host_p,
                       struct bt_str *port_p)
{
    bool is_bracketed;
    size_t end, behind;

    if (text.ptr == NULL || text.len == 0) {
        return false;
    }
    is_bracketed = text.ptr[0] == '[';
    end = bt_str_find(text, is_bracketed ? BT_STR("]") : BT_STR(":"));
    behind = is_bracketed ? end + 1 : end;
    if (is_bracketed && end == text.len) {
        return false;
    }
    *host_p = is_bracketed ? bt_str_span(text.ptr + 1, end - 1)
                           : bt_str_span(text.ptr, end);
    if (host_p->len == 0) {
        return false;
    }
    if (behind == text.len) {
        *port_p = bt_str_span("", 0);
        return true;
    }
    if (text.ptr[behind] != ':' || behind + 1 == text.len) {
        return false;
    }
    *port_p = bt_str_span(text.ptr + behind + 1, text.len - behind - 1);
    return true;
}

void bt_str_copy(char *to, size_t size, struct bt_str text)
{
    text = bt_str_cut(text, size - 1);
    bt_str_put(&to, text);
    *to = '\0';
}

void bt_str_hex(const unsigned char *bytes, size_t count, char *hex)
{
    for (size_t i = 0; i < count; i++) {
        hex[2 * i] = BT_HEX_DIGITS[bytes[i] >> 4];
        hex[2 * i + 1] = BT_HEX_DIGITS[bytes[i] & 15u];
    }
    hex[2 * count] = '\0';
}
