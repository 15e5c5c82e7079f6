/*
 * fault: the table of fault.def and the bodies made from it.
 */
#include "proxy/base/fault.h"

#include "common/json/json_write.h"

#define DETAIL_MAX 512 /* what a client sent may be as large as its body */

struct fault_row {
    unsigned status;
    const char *type;
    const char *code;
    const char *message;
};

static const struct fault_row ROWS[FAULT_COUNT] = {
    [FAULT_NONE] = {200, "", "none", ""},
#define FAULT(name, status, type, code, message) \
    [FAULT_##name] = {status, type, code, message},
#include "proxy/base/fault.def"
#undef FAULT
};

const char *const fault_names[FAULT_COUNT] = {
    [FAULT_NONE] = "none",
#define FAULT(name, status, type, code, message) [FAULT_##name] = code,
#include "proxy/base/fault.def"
#undef FAULT
};

unsigned fault_status(enum fault fault)
{
    return ROWS[fault].status;
}

bool fault_is_passing(enum fault fault)
{
    return ROWS[fault].status == 503 || ROWS[fault].status == 429;
}

enum fault fault_of_http(unsigned status)
{
    switch (status) {
    case 408:
        return FAULT_CLIENT_SLOW;
    case 413:
        return FAULT_BODY_TOO_LARGE;
    case 414:
        return FAULT_TARGET_TOO_LONG;
    case 417:
        return FAULT_EXPECTATION;
    case 431:
        return FAULT_HEAD_TOO_LARGE;
    case 501:
        return FAULT_NOT_IMPLEMENTED;
    case 505:
        return FAULT_BAD_VERSION;
    default:
        return FAULT_BAD_HTTP;
    }
}

void fault_write(struct bt_buf *out, enum fault fault, unsigned status,
                 struct bt_str detail)
{
    const struct fault_row *const row = &ROWS[fault];
    struct bt_buf text = {0};

    bt_buf_append(&text, bt_str_of(row->message));
    if (detail.len > 0) {
        bt_buf_append(&text, BT_STR(": "));
        bt_buf_append(&text, bt_str_cut(detail, DETAIL_MAX));
        bt_buf_append(&text,
                      detail.len > DETAIL_MAX ? BT_STR("...") : BT_STR(""));
    }
    bt_buf_append(out, BT_STR("{\"error\":{\"message\":"));
    bt_buf_append_json(out, bt_buf_str(&text));
    bt_buf_printf(out, ",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"",
                  row->type, row->code);
    bt_buf_printf(out, ",\"status\":%u}}", status != 0 ? status : row->status);
    if (text.failed) {
        out->failed = true;
    }
    bt_buf_fini(&text);
}

void fault_write_event(struct bt_buf *out, enum fault fault, unsigned status)
{
    const struct fault_row *const row = &ROWS[fault];

    bt_buf_append(out, BT_STR("data: {\"error\":{\"message\":"));
    bt_buf_append_json(out, bt_str_of(row->message));
    bt_buf_printf(out, ",\"type\":\"%s\",\"param\":null,\"code\":%u}}\n\n",
                  row->type, status != 0 ? status : row->status);
}
