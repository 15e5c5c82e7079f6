/*
 * The growable buffer. It doubles, so that appending is linear; what has been
 * consumed is reclaimed before more memory is asked for, once it is at least
 * half of what is held.
 */
#include "common/base/buf.h"

#include <stdio.h>
#include <stdlib.h>

#define CAP_MIN 64

void bt_buf_init(struct bt_buf *buf)
{
    *buf = (struct bt_buf){0};
}

void bt_buf_fini(struct bt_buf *buf)
{
    free(buf->data);
    *buf = (struct bt_buf){0};
}

static bool grow(struct bt_buf *buf, size_t need)
{
    size_t cap = buf->cap > SIZE_MAX / 4 ? need : buf->cap * 2;
    char *data = NULL;

    cap = cap < need ? need : cap;
    cap = cap < CAP_MIN ? CAP_MIN : cap;
    if (cap > SIZE_MAX / 2) {
        buf->failed = true;
        return false;
    }
    if (buf->at == 0 || buf->data == NULL) {
        data = realloc(buf->data, cap);
    } else {
        data = malloc(cap);
    }
    if (data == NULL) {
        buf->failed = true;
        return false;
    }
    if (buf->at != 0 && buf->data != NULL) {
        memcpy(data, buf->data + buf->at, buf->len);
        free(buf->data);
    }
    buf->at = 0;
    buf->data = data;
    buf->cap = cap;
    return true;
}

bool bt_buf_reserve(struct bt_buf *buf, size_t size)
{
    if (buf->failed) {
        return false;
    }
    if (buf->data != NULL && size <= buf->cap - buf->at - buf->len) {
        return true;
    }
    if (size > SIZE_MAX / 2 - buf->len) {
        buf->failed = true;
        return false;
    }
    if (buf->at >= buf->len && buf->data != NULL &&
        size <= buf->cap - buf->len) {
        memmove(buf->data, buf->data + buf->at, buf->len);
        buf->at = 0;
        return true;
    }
    return grow(buf, buf->len + size);
}

char *bt_buf_tail(struct bt_buf *buf)
{
    return buf->data == NULL ? NULL : buf->data + buf->at + buf->len;
}

void bt_buf_commit(struct bt_buf *buf, size_t size)
{
    buf->len += size;
}

void bt_buf_consume(struct bt_buf *buf, size_t size)
{
    if (size >= buf->len) {
        buf->at = 0;
        buf->len = 0;
        return;
    }
    buf->at += size;
    buf->len -= size;
}

void bt_buf_clear(struct bt_buf *buf)
{
    buf->at = 0;
    buf->len = 0;
    buf->failed = false;
}

void bt_buf_take(struct bt_buf *dst, struct bt_buf *src)
{
    if (dst == src) {
        return;
    }
    free(dst->data);
    *dst = *src;
    *src = (struct bt_buf){0};
}

void bt_buf_append(struct bt_buf *buf, struct bt_str bytes)
{
    if (bytes.len == 0 || !bt_buf_reserve(buf, bytes.len)) {
        return;
    }
    memcpy(buf->data + buf->at + buf->len, bytes.ptr, bytes.len);
    buf->len += bytes.len;
}

void bt_buf_append_char(struct bt_buf *buf, char byte)
{
    bt_buf_append(buf, bt_str_span(&byte, 1));
}

void bt_buf_vprintf(struct bt_buf *buf, const char *format, va_list args)
{
    va_list again;
    size_t room;
    int len;

    if (!bt_buf_reserve(buf, CAP_MIN)) {
        return;
    }
    va_copy(again, args);
    room = buf->cap - buf->at - buf->len;
    len = vsnprintf(bt_buf_tail(buf), room, format, args);
    if (len < 0) {
        buf->failed = true;
    } else if ((size_t)len < room) {
        buf->len += (size_t)len;
    } else if (bt_buf_reserve(buf, (size_t)len + 1)) {
        (void)vsnprintf(bt_buf_tail(buf), (size_t)len + 1, format, again);
        buf->len += (size_t)len;
    }
    va_end(again);
}

void bt_buf_printf(struct bt_buf *buf, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    bt_buf_vprintf(buf, format, args);
    va_end(args);
}
