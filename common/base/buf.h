/*
 * struct bt_buf: a growable byte buffer that owns its bytes.
 *
 *      data          data+at            data+at+len        data+cap
 *       |  consumed   |  bytes to read   |  room to write   |
 *
 * Appending never returns an error: `failed` is sticky and tested once, at
 * the end. A zeroed struct is a valid empty buffer.
 */
#ifndef COMMON_BASE_BUF_H
#define COMMON_BASE_BUF_H

#include "common/base/base.h"
#include "common/base/str.h"

#include <stdarg.h>

struct bt_buf {
    char *data;
    size_t at;
    size_t len;
    size_t cap;
    bool failed;
};

void bt_buf_init(struct bt_buf *buf);
void bt_buf_fini(struct bt_buf *buf); /* frees, and is a valid empty buffer */

void bt_buf_append(struct bt_buf *buf, struct bt_str bytes);
void bt_buf_append_char(struct bt_buf *buf, char byte);
/* A NUL that is not counted stands behind what was printed. */
void bt_buf_printf(struct bt_buf *buf, const char *format, ...) BT_PRINTF(2, 3);
void bt_buf_vprintf(struct bt_buf *buf, const char *format, va_list args)
    BT_PRINTF(2, 0);
/* Room for at least `size` more bytes, to be written at bt_buf_tail(). */
bool bt_buf_reserve(struct bt_buf *buf, size_t size);
char *bt_buf_tail(struct bt_buf *buf);
void bt_buf_commit(struct bt_buf *buf, size_t size);  /* written at the tail */
void bt_buf_consume(struct bt_buf *buf, size_t size); /* read from the front */
void bt_buf_clear(struct bt_buf *buf);                /* keeps the memory */
/* Moves src's bytes into dst, whose own are freed; src is empty afterwards. */
void bt_buf_take(struct bt_buf *dst, struct bt_buf *src);

static inline struct bt_str bt_buf_str(const struct bt_buf *buf)
{
    return bt_str_span(buf->data == NULL ? "" : buf->data + buf->at, buf->len);
}

#endif
