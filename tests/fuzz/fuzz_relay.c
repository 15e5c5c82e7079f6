/*
 * Passes any bytes through the relay, as JSON or as events (a bit of the first
 * byte), whole and in pieces (the second byte seeds their lengths). Both ways
 * must end alike; what passes has no private member on its top level. A whole
 * text becomes in one pass what the filter makes of it in pieces.
 */
#include "common/json/json.h"
#include "proxy/exchange/relay.h"
#include "tests/support/fake_sink.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact) {
        abort();
    }
}

/* In pieces of a random length of at most `max`; 0: whole. */
static enum relay_result pass(struct fake_sink *fake, unsigned flags,
                              struct bt_str text, unsigned seed, size_t max)
{
    struct sink *sink = &fake->sink;
    struct relay relay;
    enum relay_result result = RELAY_GO;

    relay_init(&relay, &sink);
    relay_begin(&relay, 200, (flags & 1) != 0,
                (flags & 2) != 0 ? BT_STR("7") : (struct bt_str){0});
    if ((flags & 4) != 0) {
        relay_expect_marker(&relay);
    }
    for (size_t at = 0; at < text.len && result == RELAY_GO;) {
        const size_t left = text.len - at;
        const size_t len = max == 0 ? left : 1 + seed % max;

        result = relay_body(
            &relay, bt_str_span(text.ptr + at, len < left ? len : left));
        at += len;
        seed = (seed * 131 + 7) % 65521;
    }
    if (result == RELAY_GO) {
        result = relay_end(&relay);
    }
    relay_fini(&relay);
    return result;
}

static void check_object(struct bt_str text)
{
    struct bt_json_iter it;
    struct bt_json_member member;

    if (bt_json_check(text, NULL, NULL) != BT_OK) {
        return;
    }
    bt_json_iter_object(&it, text);
    while (bt_json_next_member(&it, &member)) {
        require(!bt_json_name_is(member.name, BT_STR("kv_transfer_params")));
        require(!bt_json_name_is(member.name, BT_STR("bootstrap_room")));
        require(!bt_str_starts(member.name, BT_STR("disagg_")));
    }
}

/* The data of each event, its lines joined. */
static void check_events(struct bt_str text)
{
    struct bt_sse sse;
    size_t end = 0;
    bool has_field = false;

    bt_sse_init(&sse);
    while (text.len > 0 && bt_sse_next(&sse, text, &end, &has_field)) {
        struct bt_str event = bt_str_span(text.ptr, end);
        struct bt_buf joined = {0};
        struct bt_str name;
        struct bt_str value;

        while (bt_sse_field(&event, &name, &value)) {
            if (bt_str_eq(name, BT_STR("data"))) {
                bt_buf_append(&joined, value);
                bt_buf_append_char(&joined, '\n');
            }
        }
        check_object(bt_buf_str(&joined));
        bt_buf_fini(&joined);
        text = bt_str_span(text.ptr + end, text.len - end);
    }
}

/* Short enough that nothing is too long for the filter to hold it. */
static void check_filter(struct bt_str text, struct bt_str cached, size_t split)
{
    struct filter filter;
    struct bt_buf whole = {0};
    struct bt_buf pieces = {0};
    bool is_error;

    if (text.len > 256 || !filter_text(text, cached, &whole, &is_error)) {
        bt_buf_fini(&whole);
        return;
    }
    split = split < text.len ? split : text.len;
    filter_init(&filter, cached);
    filter_feed(&filter, bt_str_span(text.ptr, split), &pieces);
    filter_feed(&filter, bt_str_span(text.ptr + split, text.len - split),
                &pieces);
    filter_end(&filter, &pieces);
    require(bt_str_eq(bt_buf_str(&whole), bt_buf_str(&pieces)));
    require(is_error == filter.is_error);
    filter_fini(&filter);
    bt_buf_fini(&whole);
    bt_buf_fini(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fake_sink whole;
    struct fake_sink pieces;
    struct bt_str text;
    enum relay_result result;

    if (size < 2 || size > RELAY_HOLD_MAX ||
        memchr(data + 2, '\0', size - 2) != NULL) {
        return 0; /* where a NUL is met depends on the pieces */
    }
    text = bt_str_span((const char *)data + 2, size - 2);
    check_filter(text, (data[0] & 2) != 0 ? BT_STR("7") : BT_STR(""), data[1]);
    fake_sink_init(&whole);
    fake_sink_init(&pieces);
    result = pass(&whole, data[0], text, 0, 0);
    require(pass(&pieces, data[0], text, data[1], 1 + data[1] % 29) == result);
    require(bt_str_eq(bt_buf_str(&whole.body), bt_buf_str(&pieces.body)));
    require(fake_sink_verdicts(&whole) == (result == RELAY_GO ? 1 : 0));
    if ((data[0] & 1) != 0) {
        check_events(bt_buf_str(&whole.body));
    } else {
        check_object(bt_buf_str(&whole.body));
    }
    fake_sink_fini(&whole);
    fake_sink_fini(&pieces);
    return 0;
}
