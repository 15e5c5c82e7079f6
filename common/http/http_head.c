/*
 * Looking things up in a head, and writing heads.
 */
#include "common/http/http_head.h"

#define NAME(literal)                   \
    {                                   \
        "" literal, sizeof(literal) - 1 \
    }

static const struct bt_str hop_names[] = {
    NAME("connection"),
    NAME("keep-alive"),
    NAME("proxy-connection"),
    NAME("proxy-authenticate"),
    NAME("proxy-authorization"),
    NAME("te"),
    NAME("trailer"),
    NAME("transfer-encoding"),
    NAME("upgrade"),
    NAME("http2-settings"),
    NAME("content-length"),
};

static const struct {
    unsigned code;
    const char *reason;
} reasons[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {203, "Non-Authoritative Information"},
    {204, "No Content"},
    {205, "Reset Content"},
    {206, "Partial Content"},
    {300, "Multiple Choices"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {402, "Payment Required"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {407, "Proxy Authentication Required"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {424, "Failed Dependency"},
    {425, "Too Early"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
    {529, "Site Is Overloaded"},
};

const struct bt_http_field *bt_http_field_find(const struct bt_http_head *head,
                                               struct bt_str name)
{
    for (size_t i = 0; i < head->field_count; i++) {
        if (bt_str_eq_nocase(head->fields[i].name, name)) {
            return &head->fields[i];
        }
    }
    return NULL;
}

struct bt_str bt_http_field_get(const struct bt_http_head *head,
                                struct bt_str name)
{
    const struct bt_http_field *field = bt_http_field_find(head, name);

    return field == NULL ? bt_str_span(NULL, 0) : field->value;
}

static bool is_nominated(struct bt_str list, struct bt_str name)
{
    struct bt_str item;

    while (bt_str_next_item(&list, &item)) {
        if (bt_str_eq_nocase(item, name)) {
            return true;
        }
    }
    return false;
}

bool bt_http_field_is_hop(const struct bt_http_head *head, struct bt_str name)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(hop_names); i++) {
        if (bt_str_eq_nocase(hop_names[i], name)) {
            return true;
        }
    }
    for (size_t i = 0; i < head->field_count; i++) {
        if (bt_str_eq_nocase(head->fields[i].name, BT_STR("connection")) &&
            is_nominated(head->fields[i].value, name)) {
            return true;
        }
    }
    return false;
}

bool bt_http_lines_have(struct bt_str lines, struct bt_str name)
{
    while (lines.len > 0) {
        const char *const end = memchr(lines.ptr, '\n', lines.len);
        const size_t used =
            end == NULL ? lines.len : (size_t)(end + 1 - lines.ptr);

        if (used > name.len && lines.ptr[name.len] == ':' &&
            bt_str_starts_nocase(lines, name)) {
            return true;
        }
        lines = bt_str_span(lines.ptr + used, lines.len - used);
    }
    return false;
}

void bt_http_unescape(struct bt_str part, struct bt_buf *out)
{
    while (part.len > 0) {
        uint64_t byte = 0;
        size_t used = 1;

        /* A "%" that begins no escape stands for itself. */
        if (part.ptr[0] == '%' && part.len > 2 &&
            bt_str_hex_to_u64(bt_str_span(part.ptr + 1, 2), &byte) == BT_OK) {
            used = 3;
        } else {
            byte = (unsigned char)part.ptr[0];
        }
        bt_buf_append_char(out, (char)byte);
        part = bt_str_span(part.ptr + used, part.len - used);
    }
}

const char *bt_http_reason(unsigned code)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(reasons); i++) {
        if (reasons[i].code == code) {
            return reasons[i].reason;
        }
    }
    return "Unknown";
}

void bt_http_write_status(struct bt_buf *out, unsigned code)
{
    char line[] = "HTTP/1.1 000 ";

    if (code == 200) {
        bt_buf_append(out, BT_STR("HTTP/1.1 200 OK\r\n"));
        return;
    }
    line[9] = (char)('0' + code / 100 % 10);
    line[10] = (char)('0' + code / 10 % 10);
    line[11] = (char)('0' + code % 10);
    bt_buf_append(out, bt_str_span(line, sizeof(line) - 1));
    bt_buf_append(out, bt_str_of(bt_http_reason(code)));
    bt_buf_append(out, BT_STR("\r\n"));
}

void bt_http_write_field(struct bt_buf *out, struct bt_str name,
                         struct bt_str value)
{
    bt_buf_append(out, name);
    bt_buf_append(out, BT_STR(": "));
    bt_buf_append(out, value);
    bt_buf_append(out, BT_STR("\r\n"));
}
