/*
 * Strings of JSON: see json_write.h.
 */
#include "common/json/json_write.h"

#include "common/base/utf8.h"
#include "common/json/json.h"

static void append_escape(struct bt_buf *buf, char byte)
{
    char text[6] = {'\\', 'u', '0', '0', '0', '0'};
    size_t len = 2;

    switch (byte) {
    case '"':
    case '\\':
        text[1] = byte;
        break;
    case '\b':
        text[1] = 'b';
        break;
    case '\f':
        text[1] = 'f';
        break;
    case '\n':
        text[1] = 'n';
        break;
    case '\r':
        text[1] = 'r';
        break;
    case '\t':
        text[1] = 't';
        break;
    default:
        text[4] = BT_HEX_DIGITS[((unsigned char)byte >> 4) & 15];
        text[5] = BT_HEX_DIGITS[(unsigned char)byte & 15];
        len = 6;
        break;
    }
    bt_buf_append(buf, bt_str_span(text, len));
}

/* What is not UTF-8 becomes U+FFFD, a byte at a time. */
static void append_utf8(struct bt_buf *buf, struct bt_str text)
{
    size_t good = 0; /* bytes at the front that are well-formed */

    while (good < text.len) {
        const size_t len =
            bt_utf8_len(bt_str_span(text.ptr + good, text.len - good));

        if (len > 0) {
            good += len;
            continue;
        }
        bt_buf_append(buf, bt_str_span(text.ptr, good));
        bt_buf_append(buf, BT_STR("\\ufffd"));
        text = bt_str_span(text.ptr + good + 1, text.len - good - 1);
        good = 0;
    }
    bt_buf_append(buf, text);
}

void bt_buf_append_json(struct bt_buf *buf, struct bt_str text)
{
    bt_buf_append_char(buf, '"');
    while (text.len > 0) {
        const size_t plain = bt_json_skip_plain(text);

        append_utf8(buf, bt_str_span(text.ptr, plain));
        text.ptr += plain;
        text.len -= plain;
        if (text.len > 0) {
            append_escape(buf, *text.ptr);
            text.ptr++;
            text.len--;
        }
    }
    bt_buf_append_char(buf, '"');
}
