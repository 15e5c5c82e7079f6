/*
 * UTF-8, well-formed as the Unicode Standard's table 3-7 says: no overlong
 * form, no surrogate, nothing above U+10FFFF.
 */
#ifndef COMMON_BASE_UTF8_H
#define COMMON_BASE_UTF8_H

#include "common/base/str.h"

/* Bytes of the character that begins text, which is not empty; 0: none does. */
size_t bt_utf8_len(struct bt_str text);
/* The code point of one well-formed character. */
uint32_t bt_utf8_code(struct bt_str character);
bool bt_utf8_is_valid(struct bt_str text);
/* Without the byte order mark that some editors and clients put in front. */
struct bt_str bt_utf8_skip_mark(struct bt_str text);

#endif
