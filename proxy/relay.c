/*
 * relay: what is held, when the answer commits, and what is edited.
 */
#include "proxy/relay.h"

#include "common/json.h"

void relay_init(struct relay *relay, struct sink **sink)
{
    *relay = (struct relay){.sink = sink};
    bt_sse_init(&relay->sse);
}

void relay_fini(struct relay *relay)
{
    bt_buf_fini(&relay->fields);
    bt_buf_fini(&relay->held);
    bt_buf_fini(&relay->edited);
    filter_fini(&relay->filter);
}

void relay_begin(struct relay *relay, unsigned code, bool is_sse, bool is_coded,
                 struct bt_str cached)
{
    bt_buf_clear(&relay->fields);
    bt_buf_clear(&relay->held);
    relay->code = code;
    relay->is_sse = is_sse;
    relay->is_coded = is_coded;
    relay->cached = cached;
    relay->is_big = false;
    relay->error_code = 0;
    relay->error = (struct bt_str){0};
    relay->ends_by_close = false;
    relay->has_marker = false;
    bt_sse_init(&relay->sse);
}

void relay_expect_marker(struct relay *relay)
{
    relay->ends_by_close = true;
}

static void look_for_marker(struct relay *relay, struct bt_str events)
{
    if (relay->ends_by_close && relay->is_sse && !relay->has_marker &&
        events.len > 0) {
        relay->has_marker = memmem(events.ptr, events.len, "[DONE]", 6) != NULL;
    }
}

static bool concerns(const struct relay *relay, struct bt_str bytes)
{
    return !relay->is_coded && filter_concerns(bytes, relay->cached.len > 0);
}

static enum relay_result send_iov(struct relay *relay, struct iovec *iov,
                                  int count)
{
    struct sink *const sink = *relay->sink;

    if (sink == NULL || count == 0) {
        return RELAY_GO;
    }
    for (int i = 0; i < count; i++) {
        relay->bytes_out += iov[i].iov_len;
    }
    return sink->ops->body(sink, iov, count) == BT_AGAIN ? RELAY_FULL
                                                         : RELAY_GO;
}

static void put_iov(struct iovec *iov, int *count, struct bt_str bytes)
{
    if (bytes.len > 0) {
        iov[*count] = bt_str_iov(bytes);
        ++*count;
    }
}

static enum relay_result send_bytes(struct relay *relay, struct bt_str bytes)
{
    struct iovec iov[1];
    int count = 0;

    put_iov(iov, &count, bytes);
    return send_iov(relay, iov, count);
}

static void commit(struct relay *relay)
{
    struct sink *const sink = *relay->sink;

    relay->committed = true;
    if (sink != NULL) {
        sink->ops->head(sink, relay->code, bt_buf_str(&relay->fields));
    }
}

/* Streams bytes of a big answer or event through the filter. */
static enum relay_result send_big(struct relay *relay, struct bt_str bytes)
{
    if (relay->is_coded) {
        return send_bytes(relay, bytes);
    }
    bt_buf_clear(&relay->edited);
    filter_feed(&relay->filter, bytes, &relay->edited);
    if (relay->edited.failed || relay->filter.held.failed ||
        relay->filter.usage.failed) {
        return RELAY_NO_MEMORY;
    }
    return send_bytes(relay, bt_buf_str(&relay->edited));
}

static enum relay_result go_big(struct relay *relay)
{
    enum relay_result result;

    filter_fini(&relay->filter);
    filter_init(&relay->filter, relay->cached);
    relay->is_big = true;
    result = send_big(relay, bt_buf_str(&relay->held));
    bt_buf_clear(&relay->held);
    return result;
}

/* Appends one event (or more, one by one) with private members taken out. */
static void edit_events(struct relay *relay, struct bt_str events)
{
    struct bt_sse sse;
    size_t end = 0;
    bool has_field = false;

    bt_sse_init(&sse);
    while (events.len > 0) {
        struct filter filter;

        if (!bt_sse_next(&sse, events, &end, &has_field)) {
            end = events.len;
        }
        const struct bt_str event = bt_str_span(events.ptr, end);

        filter_init(&filter, relay->cached);
        filter_feed(&filter, event, &relay->edited);
        filter_end(&filter, &relay->edited);
        filter_fini(&filter);
        events = bt_str_span(events.ptr + end, events.len - end);
    }
}

/* Sends two runs of whole events with one write, edited where needed. */
static enum relay_result send_events(struct relay *relay, struct bt_str first,
                                     struct bt_str second)
{
    struct iovec iov[2];
    int count = 0;

    look_for_marker(relay, first);
    look_for_marker(relay, second);
    if (!concerns(relay, first) && !concerns(relay, second)) {
        put_iov(iov, &count, first);
        put_iov(iov, &count, second);
        return send_iov(relay, iov, count);
    }
    bt_buf_clear(&relay->edited);
    edit_events(relay, first);
    edit_events(relay, second);
    if (relay->edited.failed) {
        return RELAY_NO_MEMORY;
    }
    return send_bytes(relay, bt_buf_str(&relay->edited));
}

/* A whole JSON text with private members taken out; empty: no memory. */
static struct bt_str edit_text(struct relay *relay, struct bt_str text)
{
    struct filter filter;

    bt_buf_clear(&relay->edited);
    filter_init(&filter, relay->cached);
    filter_feed(&filter, text, &relay->edited);
    filter_end(&filter, &relay->edited);
    filter_fini(&filter);
    if (relay->edited.failed) {
        return (struct bt_str){0};
    }
    return bt_buf_str(&relay->edited);
}

/*
 * Does the data of this event say {"error": ...}? Then it is kept, with its
 * code, if any.
 */
static bool is_error_event(struct relay *relay, struct bt_str event)
{
    struct bt_str rest = event;
    struct bt_str name;
    struct bt_str value;
    struct bt_json_value error;
    struct bt_json_value code;
    uint64_t number = 0;

    if (memmem(event.ptr, event.len, "\"error\"", 7) == NULL) {
        return false;
    }
    while (bt_sse_field(&rest, &name, &value)) {
        if (!bt_str_eq(name, BT_STR("data")) ||
            bt_json_check(value, &error, NULL) != BT_OK ||
            error.type != BT_JSON_OBJECT ||
            !bt_json_find(value, BT_STR("error"), &error) ||
            error.type == BT_JSON_NULL) {
            continue;
        }
        if (error.type == BT_JSON_OBJECT &&
            bt_json_find(error.text, BT_STR("code"), &code) &&
            bt_json_to_u64(&code, &number) == BT_OK && number >= 400 &&
            number <= 599) {
            relay->error_code = (unsigned)number;
        }
        relay->error = edit_text(relay, value);
        return true;
    }
    return false;
}

/* Where events end inside bytes: the first one with a field, and the last. */
struct ends {
    size_t first; /* 0: none ended */
    size_t field; /* behind the first event that is no comment; 0: none */
    size_t last;
};

static struct ends scan(struct relay *relay, struct bt_str bytes)
{
    struct ends ends = {0};
    size_t at = 0;
    size_t end = 0;
    bool has_field = false;

    while (at < bytes.len &&
           bt_sse_next(&relay->sse, bt_str_span(bytes.ptr + at, bytes.len - at),
                       &end, &has_field)) {
        at += end;
        ends.first = ends.first == 0 ? at : ends.first;
        if (has_field && ends.field == 0) {
            ends.field = at;
        }
        ends.last = at;
        if (end == 0) {
            break;
        }
    }
    return ends;
}

/* Keeps the beginning of an event until the rest comes. */
static enum relay_result hold(struct relay *relay, struct bt_str bytes,
                              enum relay_result result)
{
    if (bytes.len == 0) {
        return result;
    }
    bt_buf_append(&relay->held, bytes);
    if (relay->held.failed) {
        return RELAY_NO_MEMORY;
    }
    if (relay->held.len <= RELAY_HOLD_MAX) {
        return result;
    }
    if (!relay->committed) {
        commit(relay);
    }
    const enum relay_result sent = go_big(relay);

    return sent == RELAY_GO ? result : sent;
}

static struct bt_str tail(struct bt_str bytes, size_t from)
{
    return bt_str_span(bytes.ptr + from, bytes.len - from);
}

static enum relay_result sse_before_commit(struct relay *relay,
                                           struct bt_str bytes)
{
    const struct ends ends = scan(relay, bytes);
    enum relay_result result;

    if (ends.field == 0) {
        return hold(relay, bytes, RELAY_GO);
    }
    bt_buf_append(&relay->held, bt_str_span(bytes.ptr, ends.field));
    if (relay->held.failed) {
        return RELAY_NO_MEMORY;
    }
    if (!relay->is_coded && is_error_event(relay, bt_buf_str(&relay->held))) {
        return RELAY_FIRST_ERROR;
    }
    commit(relay);
    result = send_events(
        relay, bt_buf_str(&relay->held),
        bt_str_span(bytes.ptr + ends.field, ends.last - ends.field));
    bt_buf_clear(&relay->held);
    return result == RELAY_NO_MEMORY
               ? result
               : hold(relay, tail(bytes, ends.last), result);
}

/* The rest of a big event, up to its end. */
static enum relay_result sse_big(struct relay *relay, struct bt_str bytes,
                                 const struct ends *ends)
{
    const size_t end = ends->first == 0 ? bytes.len : ends->first;
    enum relay_result result = send_big(relay, bt_str_span(bytes.ptr, end));

    if (ends->first != 0 && result != RELAY_NO_MEMORY) {
        bt_buf_clear(&relay->edited);
        filter_end(&relay->filter, &relay->edited);
        relay->is_big = false;
        if (send_bytes(relay, bt_buf_str(&relay->edited)) == RELAY_FULL) {
            result = RELAY_FULL;
        }
    }
    return result;
}

static enum relay_result sse_body(struct relay *relay, struct bt_str bytes)
{
    struct ends ends;
    enum relay_result result = RELAY_GO;
    size_t from = 0;

    if (!relay->committed) {
        return sse_before_commit(relay, bytes);
    }
    ends = scan(relay, bytes);
    if (relay->is_big) {
        result = sse_big(relay, bytes, &ends);
        if (ends.first == 0 || result == RELAY_NO_MEMORY) {
            return result;
        }
        from = ends.first;
    } else if (relay->held.len > 0 && ends.first > 0) {
        bt_buf_append(&relay->held, bt_str_span(bytes.ptr, ends.first));
        if (relay->held.failed) {
            return RELAY_NO_MEMORY;
        }
        from = ends.first;
    }
    if (ends.last > 0) {
        const enum relay_result sent =
            send_events(relay, bt_buf_str(&relay->held),
                        bt_str_span(bytes.ptr + from, ends.last - from));

        result = sent == RELAY_GO ? result : sent;
        bt_buf_clear(&relay->held);
        from = ends.last;
    }
    return result == RELAY_NO_MEMORY ? result
                                     : hold(relay, tail(bytes, from), result);
}

static enum relay_result json_body(struct relay *relay, struct bt_str bytes)
{
    if (relay->committed) {
        return send_big(relay, bytes);
    }
    return hold(relay, bytes, RELAY_GO);
}

enum relay_result relay_body(struct relay *relay, struct bt_str bytes)
{
    if (bytes.len == 0) {
        return RELAY_GO;
    }
    return relay->is_sse ? sse_body(relay, bytes) : json_body(relay, bytes);
}

static enum relay_result answer_whole(struct relay *relay)
{
    struct sink *const sink = *relay->sink;
    struct bt_str body = bt_buf_str(&relay->held);

    if (concerns(relay, body)) {
        body = edit_text(relay, body);
        if (relay->edited.failed) {
            return RELAY_NO_MEMORY;
        }
    }
    relay->committed = true;
    relay->bytes_out += body.len;
    *relay->sink = NULL;
    if (sink != NULL) {
        sink->ops->answer(sink, relay->code, bt_buf_str(&relay->fields), body);
    }
    return RELAY_GO;
}

/* What a clean end leaves held is passed as it is, private members apart. */
static void send_rest(struct relay *relay)
{
    if (relay->is_big && !relay->is_coded) {
        bt_buf_clear(&relay->edited);
        filter_end(&relay->filter, &relay->edited);
        (void)send_bytes(relay, bt_buf_str(&relay->edited));
    }
    if (relay->held.len > 0) {
        (void)send_events(relay, bt_buf_str(&relay->held), (struct bt_str){0});
        bt_buf_clear(&relay->held);
    }
}

/* Did an answer that the engine's close ended end in its middle? */
static bool is_cut(struct relay *relay)
{
    struct bt_json_value value;

    if (!relay->ends_by_close) {
        return false;
    }
    if (relay->is_sse) {
        look_for_marker(relay, bt_buf_str(&relay->held));
        return !relay->has_marker;
    }
    if (relay->code != 200) {
        return false; /* an error's text may be no JSON */
    }
    if (relay->committed) {
        return relay->filter.state != FILTER_AFTER;
    }
    return bt_json_check(bt_buf_str(&relay->held), &value, NULL) != BT_OK;
}

enum relay_result relay_end(struct relay *relay)
{
    struct sink *sink;

    if (relay->is_sse && !relay->committed && !relay->is_coded &&
        relay->held.len > 0 &&
        is_error_event(relay, bt_buf_str(&relay->held))) {
        return RELAY_FIRST_ERROR;
    }
    if (is_cut(relay)) {
        bt_buf_clear(&relay->held);
        return RELAY_CUT;
    }
    if (!relay->is_sse && !relay->committed) {
        return answer_whole(relay);
    }
    if (!relay->committed) {
        commit(relay);
    }
    send_rest(relay);
    sink = *relay->sink;
    *relay->sink = NULL;
    if (sink != NULL) {
        sink->ops->end(sink);
    }
    return RELAY_GO;
}

void relay_break(struct relay *relay, enum fault fault)
{
    struct sink *sink;

    if (relay->is_sse && !relay->is_big && !relay->is_coded) {
        bt_buf_clear(&relay->edited);
        fault_write_event(&relay->edited, fault);
        if (!relay->edited.failed) {
            (void)send_bytes(relay, bt_buf_str(&relay->edited));
        }
    }
    sink = *relay->sink;
    *relay->sink = NULL;
    if (sink != NULL) {
        sink->ops->cut(sink);
    }
}
