/*
 * Text written as JSON.
 */
#ifndef COMMON_JSON_JSON_WRITE_H
#define COMMON_JSON_JSON_WRITE_H

#include "common/base/buf.h"

/* Appends `text` as a JSON string with its quotes. Bytes that are no UTF-8
 * become U+FFFD each, so that what a stranger sent breaks no reader. */
void bt_buf_append_json(struct bt_buf *buf, struct bt_str text);

#endif
