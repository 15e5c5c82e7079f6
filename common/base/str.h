/*
 * struct bt_str: a borrowed span of bytes (pointer and length, no NUL).
 */
#ifndef COMMON_BASE_STR_H
#define COMMON_BASE_STR_H

#include "common/base/base.h"
#include "common/base/status.h"

#include <string.h>
#include <sys/uio.h>

struct bt_str {
    const char *ptr;
    size_t len;
};

/* A span of a string literal, usable as an expression. */
#define BT_STR(literal) ((struct bt_str){"" literal, sizeof(literal) - 1})
/* For printf's "%.*s". */
#define BT_STR_ARG(str) (int)(str).len, (str).ptr

static inline struct bt_str bt_str_of(const char *text)
{
    return (struct bt_str){text, text == NULL ? 0 : strlen(text)};
}

static inline struct bt_str bt_str_span(const char *ptr, size_t len)
{
    return (struct bt_str){ptr, len};
}

/* The first `max` bytes, or all. */
static inline struct bt_str bt_str_cut(struct bt_str text, size_t max)
{
    return bt_str_span(text.ptr, text.len < max ? text.len : max);
}

/* Without the first `count` bytes. */
static inline struct bt_str bt_str_skip(struct bt_str text, size_t count)
{
    count = count < text.len ? count : text.len;
    return bt_str_span(text.ptr + count, text.len - count);
}

/* Copies text to *at, where there is room for it, and moves *at behind it. */
static inline void bt_str_put(char **at, struct bt_str text)
{
    if (text.len > 0) {
        memcpy(*at, text.ptr, text.len);
        *at += text.len;
    }
}

/* For a writev; iovecs are not const, though a writer changes nothing. */
static inline struct iovec bt_str_iov(struct bt_str bytes)
{
    union {
        const char *read_only;
        void *any;
    } base = {.read_only = bytes.ptr};

    return (struct iovec){base.any, bytes.len};
}

bool bt_str_eq(struct bt_str a, struct bt_str b);
/* As many bytes of both are the same, ASCII letters without case? */
bool bt_str_same_nocase(const char *a, const char *b, size_t len);

/* ASCII letters compare without case. */
static inline bool bt_str_eq_nocase(struct bt_str a, struct bt_str b)
{
    return a.len == b.len && bt_str_same_nocase(a.ptr, b.ptr, a.len);
}

bool bt_str_starts(struct bt_str text, struct bt_str prefix);
bool bt_str_starts_nocase(struct bt_str text, struct bt_str prefix);
/* Without leading and trailing SP and HTAB. */
struct bt_str bt_str_trim(struct bt_str text);
/*
 * The next item of a comma separated list (trimmed, empty ones skipped);
 * false at the end. *rest is advanced.
 */
bool bt_str_next_item(struct bt_str *rest, struct bt_str *item_p);
/* Offset of the first `needle` in `text`, or text.len. */
size_t bt_str_find(struct bt_str text, struct bt_str needle);

/* Whole text must be decimal digits; BT_ERR_SYNTAX or BT_ERR_RANGE. */
BT_MUST_CHECK enum bt_status bt_str_to_u64(struct bt_str text,
                                           uint64_t *value_p);
/* Whole text must be 1 to 16 hex digits, either case. */
BT_MUST_CHECK enum bt_status bt_str_hex_to_u64(struct bt_str text,
                                               uint64_t *value_p);
/* The most decimal digits of a uint64_t. */
#define BT_U64_DIGITS 20
/* The decimal digits of `value`, at the end of `room`. */
struct bt_str bt_str_of_u64(uint64_t value, char room[BT_U64_DIGITS]);
/* The 16 hex digits of `value` in lower case, and a NUL. */
void bt_str_hex_u64(uint64_t value, char hex[17]);
/*
 * Splits "host:port" or "[v6]:port", the brackets left out; *port_p is empty
 * when there is none. What host and port are made of is not looked at.
 */
bool bt_str_split_host(struct bt_str text, struct bt_str *host_p,
                       struct bt_str *port_p);
/* Into `size` bytes with a NUL behind; what does not fit is cut off. */
void bt_str_copy(char *to, size_t size, struct bt_str text);
#define BT_HEX_DIGITS "0123456789abcdef"
/* 2 * count hex digits in lower case, and a NUL. */
void bt_str_hex(const unsigned char *bytes, size_t count, char *hex);
/* A heap copy with a NUL; NULL when memory is out or a NUL is inside. */
char *bt_str_dup(struct bt_str text);

#endif
