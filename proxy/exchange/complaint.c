/*
 * complaint: see complaint.h. The times and counts live in the engine.
 */
#include "proxy/exchange/complaint.h"

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/json/json_write.h"

#define EVERY_MS  1000
#define WORDS_MAX 512

/* May this line be written? Else it is counted. */
static bool take_turn(struct engine *engine, uint64_t now_ms)
{
    unsigned long long last = atomic_load(&engine->complained_ms);
    /* 0 stands for never. */
    const unsigned long long now = now_ms == 0 ? 1 : now_ms;

    if ((last == 0 || now >= last + EVERY_MS) &&
        atomic_compare_exchange_strong(&engine->complained_ms, &last, now)) {
        return true;
    }
    atomic_fetch_add(&engine->complaints_left_out, 1);
    return false;
}

void complaint_log(struct engine *engine, uint64_t now_ms, struct bt_str what,
                   struct bt_str words)
{
    struct bt_buf line = {0};
    unsigned left_out;

    if (!take_turn(engine, now_ms)) {
        return;
    }
    left_out = atomic_exchange(&engine->complaints_left_out, 0);
    bt_buf_append(&line, what);
    if (words.len > 0) {
        const size_t len = words.len < WORDS_MAX ? words.len : WORDS_MAX;

        bt_buf_append(&line, BT_STR(": "));
        bt_buf_append_json(&line, bt_str_span(words.ptr, len));
        bt_buf_append(&line, len < words.len ? BT_STR("...") : BT_STR(""));
    }
    if (left_out > 0) {
        bt_buf_printf(&line, " (%u more since the last such line)", left_out);
    }
    if (!line.failed) {
        bt_log(BT_LOG_WARN, engine->url.normal, "%.*s",
               BT_STR_ARG(bt_buf_str(&line)));
    }
    bt_buf_fini(&line);
}
