/*
 * relay: what is held, when the answer commits, and what is edited.
 */
#include "proxy/exchange/relay.h"

#include "common/json/json.h"

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
    bt_buf_fini(&relay->joined);
    bt_buf_fini(&relay->text);
    filter_fini(&relay->filter);
}

void relay_begin(struct relay *relay, unsigned code, bool is_sse,
                 struct bt_str cached)
{
    bt_buf_clear(&relay->fields);
    bt_buf_clear(&relay->held);
    relay->code = code;
    relay->is_sse = is_sse;
    relay->cached = cached;
    relay->big = RELAY_SMALL;
    relay->event_at = 0;
    relay->error_code = 0;
    relay->error = (struct bt_str){0};
    relay->ends_by_close = false;
    relay->has_marker = false;
    bt_sse_init(&relay->sse);
}

size_t relay_error_max(unsigned code)
{
    return code < 500 ? RELAY_ERROR_MAX : RELAY_WORDS_MAX;
}

void relay_expect_marker(struct relay *relay)
{
    relay->ends_by_close = true;
}

static bool concerns(const struct relay *relay, struct bt_str bytes)
{
    return bytes.len > 0 && filter_concerns(bytes, relay->cached.len > 0);
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

/* --- what is too large to be held --- */

/* Big JSON text, edited into relay->edited. */
static enum relay_result edit_big(struct relay *relay, struct bt_str bytes)
{
    bt_buf_clear(&relay->edited);
    if (!bt_json_push_feed(&relay->push, bytes)) {
        return RELAY_BAD;
    }
    filter_feed(&relay->filter, bytes, &relay->edited);
    if (relay->edited.failed || relay->filter.held.failed ||
        relay->filter.usage.failed) {
        return RELAY_NO_MEMORY;
    }
    /* The words of an error that cannot be looked at whole do not pass. */
    return relay->filter.is_error ? RELAY_BAD : RELAY_GO;
}

static enum relay_result send_big(struct relay *relay, struct bt_str bytes)
{
    const enum relay_result result = edit_big(relay, bytes);

    return result == RELAY_GO ? send_bytes(relay, bt_buf_str(&relay->edited))
                              : result;
}

static enum relay_result send_big_end(struct relay *relay)
{
    if (!bt_json_push_is_whole(&relay->push)) {
        return RELAY_BAD;
    }
    bt_buf_clear(&relay->edited);
    filter_end(&relay->filter, &relay->edited);
    return relay->edited.failed ? RELAY_NO_MEMORY
                                : send_bytes(relay, bt_buf_str(&relay->edited));
}

/* Commits, when the JSON text so far is good; `before` is sent as it is. */
static enum relay_result begin_big(struct relay *relay, struct bt_str before,
                                   struct bt_str text)
{
    enum relay_result result;
    struct iovec iov[2];
    int count = 0;

    filter_fini(&relay->filter);
    filter_init(&relay->filter, relay->cached);
    relay->push = (struct bt_json_push){0};
    result = edit_big(relay, text);
    if (result != RELAY_GO) {
        return result;
    }
    relay->big = RELAY_BIG;
    if (!relay->committed) {
        commit(relay);
    }
    put_iov(iov, &count, before);
    put_iov(iov, &count, bt_buf_str(&relay->edited));
    return send_iov(relay, iov, count);
}

/* --- events --- */

/* An event's data, its lines joined; returns how many there are. */
static size_t read_data(struct relay *relay, struct bt_str event,
                        struct bt_str *data_p)
{
    struct bt_str name;
    struct bt_str value;
    size_t count = 0;

    while (bt_sse_field(&event, &name, &value)) {
        if (!bt_str_eq(name, BT_STR("data"))) {
            continue;
        }
        count++;
        if (count == 1) {
            *data_p = value;
            continue;
        }
        if (count == 2) {
            bt_buf_clear(&relay->joined);
            bt_buf_append(&relay->joined, *data_p);
        }
        bt_buf_append_char(&relay->joined, '\n');
        bt_buf_append(&relay->joined, value);
        *data_p = bt_buf_str(&relay->joined);
    }
    return count;
}

static bool is_object(struct bt_str text)
{
    struct bt_json_value value;

    return bt_json_check(text, &value, NULL) == BT_OK &&
           value.type == BT_JSON_OBJECT;
}

/* Says the data {"error": ...}? Then its code is kept, if any. */
static bool read_error(struct relay *relay, struct bt_str data)
{
    struct bt_json_value error;
    struct bt_json_value code;
    uint64_t number = 0;

    if (!is_object(data) || !bt_json_find(data, BT_STR("error"), &error) ||
        error.type == BT_JSON_NULL) {
        return false;
    }
    relay->error_code = 0;
    if (error.type == BT_JSON_OBJECT &&
        bt_json_find(error.text, BT_STR("code"), &code) &&
        bt_json_to_u64(&code, &number) == BT_OK && number >= 400 &&
        number <= 599) {
        relay->error_code = (unsigned)number;
    }
    return true;
}

/* Is this first event an error object? Then it is kept, edited. */
static bool is_error_event(struct relay *relay, struct bt_str event)
{
    struct bt_str data = {0};
    bool is_error;

    if (memmem(event.ptr, event.len, "\"error\"", 7) == NULL ||
        read_data(relay, event, &data) == 0 || !read_error(relay, data)) {
        return false;
    }
    bt_buf_clear(&relay->text);
    relay->error = (struct bt_str){0};
    if (filter_text(data, relay->cached, &relay->text, &is_error) &&
        !relay->text.failed) {
        relay->error = bt_buf_str(&relay->text);
    }
    return true;
}

/* Puts `text` where a data line stood, on as many lines as it has. */
static void put_data(struct bt_buf *out, struct bt_str line, struct bt_str name,
                     struct bt_str value, struct bt_str text)
{
    const char *const value_end = value.ptr + value.len;
    const bool has_colon = value.ptr > name.ptr + name.len;
    const struct bt_str prefix =
        has_colon ? bt_str_span(name.ptr, (size_t)(value.ptr - name.ptr))
                  : BT_STR("data:");
    const struct bt_str line_end =
        bt_str_span(value_end, (size_t)(line.ptr + line.len - value_end));

    bt_buf_append(out, bt_str_span(line.ptr, (size_t)(name.ptr - line.ptr)));
    for (;;) {
        const size_t len = bt_str_find(text, BT_STR("\n"));

        bt_buf_append(out, prefix);
        bt_buf_append(out, bt_str_span(text.ptr, len));
        bt_buf_append(out, line_end);
        if (len == text.len) {
            return;
        }
        text = bt_str_span(text.ptr + len + 1, text.len - len - 1);
    }
}

/*
 * An event with its data replaced by `text` (NULL: kept as it is); other
 * lines that hold a private name are left out.
 */
static void put_event(struct bt_buf *out, struct bt_str event,
                      const struct bt_str *text)
{
    struct bt_str rest = event;
    struct bt_str name;
    struct bt_str value;
    const char *begin = event.ptr;
    bool is_put = false;

    while (bt_sse_field(&rest, &name, &value)) {
        const struct bt_str line =
            bt_str_span(begin, (size_t)(rest.ptr - begin));
        const bool is_data = bt_str_eq(name, BT_STR("data"));

        if (is_data && text != NULL && !is_put) {
            put_data(out, line, name, value, *text);
            is_put = true;
        } else if (is_data ? text == NULL : !filter_concerns(line, false)) {
            bt_buf_append(out, line);
        }
        begin = rest.ptr;
    }
    bt_buf_append(out,
                  bt_str_span(begin, (size_t)(event.ptr + event.len - begin)));
}

/* Appends one event, edited, to relay->edited. */
static enum relay_result edit_event(struct relay *relay, struct bt_str event)
{
    struct bt_str data = {0};
    struct bt_str text;
    bool is_error;

    if (!concerns(relay, event)) {
        bt_buf_append(&relay->edited, event);
        return RELAY_GO;
    }
    (void)read_data(relay, event, &data);
    if (relay->joined.failed) {
        return RELAY_NO_MEMORY;
    }
    bt_buf_clear(&relay->text);
    if (!filter_text(data, relay->cached, &relay->text, &is_error)) {
        if (filter_concerns(data, false)) {
            return RELAY_BAD;
        }
        put_event(&relay->edited, event, NULL);
        return RELAY_GO;
    }
    if (relay->text.failed) {
        return RELAY_NO_MEMORY;
    }
    if (is_error && filter_concerns(data, false)) {
        (void)read_error(relay, data);
        relay->error = data;
        return RELAY_BAD;
    }
    text = bt_buf_str(&relay->text);
    put_event(&relay->edited, event, bt_str_eq(text, data) ? NULL : &text);
    return RELAY_GO;
}

/* The next event of a run, with its end; the last one may be incomplete. */
static struct bt_str next_event(struct bt_str *events)
{
    struct bt_sse sse;
    struct bt_str event;
    size_t end = 0;
    bool has_field = false;

    bt_sse_init(&sse);
    if (!bt_sse_next(&sse, *events, &end, &has_field)) {
        end = events->len;
    }
    event = bt_str_span(events->ptr, end);
    *events = bt_str_span(events->ptr + end, events->len - end);
    return event;
}

/* Appends events up to one that is bad. */
static enum relay_result edit_events(struct relay *relay, struct bt_str events)
{
    enum relay_result result = RELAY_GO;

    while (events.len > 0 && result == RELAY_GO) {
        result = edit_event(relay, next_event(&events));
    }
    return relay->edited.failed ? RELAY_NO_MEMORY : result;
}

/* The end marker is an event whose data says just that. */
static void look_for_marker(struct relay *relay, struct bt_str events)
{
    while (events.len > 0 && !relay->has_marker) {
        struct bt_str data = {0};

        (void)read_data(relay, next_event(&events), &data);
        relay->has_marker = bt_str_eq(data, BT_STR("[DONE]"));
    }
}

/* Sends two runs of whole events with one write, edited where needed. */
/* May the last event be the end marker? Two line ends or more stand behind. */
static inline bool may_end(struct bt_str events)
{
    size_t at = events.len > 3 ? events.len - 3 : 0;

    while (at > 0 && (events.ptr[at] == '\n' || events.ptr[at] == '\r')) {
        at--;
    }
    return at > 0 && events.ptr[at] == ']';
}

static enum relay_result send_events(struct relay *relay, struct bt_str first,
                                     struct bt_str second)
{
    struct iovec iov[2];
    int count = 0;
    enum relay_result result;
    enum relay_result sent;

    if (relay->ends_by_close || may_end(second.len > 0 ? second : first)) {
        look_for_marker(relay, first);
        look_for_marker(relay, second);
    }
    if (!concerns(relay, first) && !concerns(relay, second)) {
        put_iov(iov, &count, first);
        put_iov(iov, &count, second);
        return send_iov(relay, iov, count);
    }
    bt_buf_clear(&relay->edited);
    result = edit_events(relay, first);
    if (result == RELAY_GO) {
        result = edit_events(relay, second);
    }
    if (result == RELAY_NO_MEMORY) {
        return result;
    }
    sent = send_bytes(relay, bt_buf_str(&relay->edited));
    return result == RELAY_GO ? sent : result;
}

/* Can this event be sent once the answer is committed? */
static enum relay_result try_event(struct relay *relay, struct bt_str event)
{
    bt_buf_clear(&relay->edited);
    return concerns(relay, event) ? edit_events(relay, event) : RELAY_GO;
}

/* Where events end inside bytes: the first one, and the last. */
struct ends {
    size_t first; /* 0: none ended */
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
        ends.last = at;
        if (end == 0) {
            break;
        }
    }
    return ends;
}

static enum relay_result worse(enum relay_result a, enum relay_result b)
{
    return a > b ? a : b;
}

/*
 * The event that begins at `from` of what is held streams from here on: its
 * data must be one line, which may be whole.
 */
static enum relay_result begin_big_event(struct relay *relay, size_t from)
{
    const struct bt_str held = bt_buf_str(&relay->held);
    struct bt_str data = {0};
    const char *const end = held.ptr + held.len;
    struct bt_str before;
    struct bt_str behind;
    enum relay_result result;

    if (read_data(relay, bt_str_span(held.ptr + from, held.len - from),
                  &data) != 1) {
        return RELAY_BAD;
    }
    before = bt_str_span(held.ptr, (size_t)(data.ptr - held.ptr));
    behind = bt_str_span(data.ptr + data.len,
                         (size_t)(end - data.ptr - (ptrdiff_t)data.len));
    if (filter_concerns(before, false)) {
        return RELAY_BAD;
    }
    result = begin_big(relay, before, data);
    if (behind.len > 0 && result <= RELAY_FULL) {
        result = worse(result, send_big_end(relay));
        relay->big = RELAY_BIG_TAIL;
    }
    bt_buf_consume(&relay->held, held.len - behind.len);
    return result;
}

/* Keeps the beginning of an event until the rest comes. */
static enum relay_result hold(struct relay *relay, struct bt_str bytes,
                              enum relay_result result)
{
    if (bytes.len > 0) {
        bt_buf_append(&relay->held, bytes);
    }
    if (relay->held.failed) {
        return RELAY_NO_MEMORY;
    }
    if (relay->held.len <= RELAY_HOLD_MAX) {
        return result;
    }
    return worse(
        result, begin_big_event(relay, relay->committed ? 0 : relay->event_at));
}

static struct bt_str tail(struct bt_str bytes, size_t from)
{
    return bt_str_span(bytes.ptr + from, bytes.len - from);
}

/*
 * Takes bytes up to the end of the first event with data; returns how many.
 * Blocks without (comments, retry) wait before it.
 */
static size_t take_first(struct relay *relay, struct bt_str bytes)
{
    size_t at = 0;
    size_t end = 0;
    bool has_field = false;

    while (at < bytes.len &&
           bt_sse_next(&relay->sse, tail(bytes, at), &end, &has_field)) {
        struct bt_str data;

        bt_buf_append(&relay->held, bt_str_span(bytes.ptr + at, end));
        at += end;
        if (has_field &&
            read_data(relay, tail(bt_buf_str(&relay->held), relay->event_at),
                      &data) > 0) {
            return at;
        }
        relay->event_at = relay->held.len;
    }
    return 0;
}

static enum relay_result sse_before_commit(struct relay *relay,
                                           struct bt_str bytes)
{
    const size_t held = relay->held.len;
    const size_t from = take_first(relay, bytes);
    enum relay_result result;
    size_t last;

    if (relay->held.failed) {
        return RELAY_NO_MEMORY;
    }
    if (from == 0) {
        return hold(relay, tail(bytes, relay->held.len - held), RELAY_GO);
    }
    if (is_error_event(relay,
                       tail(bt_buf_str(&relay->held), relay->event_at))) {
        return RELAY_FIRST_ERROR;
    }
    result = try_event(relay, bt_buf_str(&relay->held));
    if (result != RELAY_GO) {
        return result;
    }
    commit(relay);
    last = from + scan(relay, tail(bytes, from)).last;
    result = send_events(relay, bt_buf_str(&relay->held),
                         bt_str_span(bytes.ptr + from, last - from));
    bt_buf_clear(&relay->held);
    return result > RELAY_FULL ? result
                               : hold(relay, tail(bytes, last), result);
}

/* The rest of a big event behind its data: nothing more of that. */
static enum relay_result send_tail(struct relay *relay)
{
    const struct bt_str held = bt_buf_str(&relay->held);
    struct bt_str data;
    enum relay_result result;

    if (read_data(relay, held, &data) > 0 || filter_concerns(held, false)) {
        return RELAY_BAD;
    }
    result = send_bytes(relay, held);
    bt_buf_clear(&relay->held);
    relay->big = RELAY_SMALL;
    return result;
}

static size_t line_len(struct bt_str bytes)
{
    size_t len = 0;

    while (len < bytes.len && bytes.ptr[len] != '\n' &&
           bytes.ptr[len] != '\r') {
        len++;
    }
    return len;
}

/* The rest of a big event, up to its end (0: it is not there yet). */
static enum relay_result sse_big(struct relay *relay, struct bt_str bytes,
                                 size_t end)
{
    enum relay_result result = RELAY_GO;
    size_t from = 0;

    bytes.len = end == 0 ? bytes.len : end;
    if (relay->big == RELAY_BIG) {
        from = line_len(bytes);
        result = send_big(relay, bt_str_span(bytes.ptr, from));
        if (from < bytes.len && result <= RELAY_FULL) {
            result = worse(result, send_big_end(relay));
            relay->big = RELAY_BIG_TAIL;
        }
    }
    if (result > RELAY_FULL || from == bytes.len) {
        return result;
    }
    bt_buf_append(&relay->held, tail(bytes, from));
    if (relay->held.failed) {
        return RELAY_NO_MEMORY;
    }
    if (end != 0) {
        return worse(result, send_tail(relay));
    }
    return relay->held.len > RELAY_HOLD_MAX ? RELAY_BAD : result;
}

static enum relay_result sse_body(struct relay *relay, struct bt_str bytes)
{
    struct ends ends;
    enum relay_result result = RELAY_GO;
    size_t from = 0;

    if (!relay->committed) {
        /* Of UTF-16, which is no event stream, or of no text at all. */
        return memchr(bytes.ptr, '\0', bytes.len) != NULL
                   ? RELAY_BAD
                   : sse_before_commit(relay, bytes);
    }
    ends = scan(relay, bytes);
    if (relay->big != RELAY_SMALL) {
        result = sse_big(relay, bytes, ends.first);
        if (ends.first == 0 || result > RELAY_FULL) {
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
        result =
            worse(result,
                  send_events(relay, bt_buf_str(&relay->held),
                              bt_str_span(bytes.ptr + from, ends.last - from)));
        bt_buf_clear(&relay->held);
        from = ends.last;
    }
    return from == bytes.len || result > RELAY_FULL
               ? result
               : hold(relay, tail(bytes, from), result);
}

/* --- JSON and errors --- */

static enum relay_result json_body(struct relay *relay, struct bt_str bytes)
{
    enum relay_result result;

    if (relay->committed) {
        return send_big(relay, bytes);
    }
    bt_buf_append(&relay->held, bytes);
    if (relay->held.failed) {
        return RELAY_NO_MEMORY;
    }
    if (relay->held.len <= RELAY_HOLD_MAX) {
        return RELAY_GO;
    }
    result = begin_big(relay, (struct bt_str){0}, bt_buf_str(&relay->held));
    bt_buf_clear(&relay->held);
    return result;
}

static enum relay_result error_body(struct relay *relay, struct bt_str bytes)
{
    bt_buf_append(&relay->held, bytes);
    if (relay->held.failed) {
        return RELAY_NO_MEMORY;
    }
    return relay->held.len > relay_error_max(relay->code) ? RELAY_ERROR
                                                          : RELAY_GO;
}

enum relay_result relay_body(struct relay *relay, struct bt_str bytes)
{
    if (bytes.len == 0) {
        return RELAY_GO;
    }
    if (relay->code >= 400) {
        return error_body(relay, bytes);
    }
    return relay->is_sse ? sse_body(relay, bytes) : json_body(relay, bytes);
}

/* --- the end --- */

static enum relay_result answer_whole(struct relay *relay)
{
    struct sink *const sink = *relay->sink;
    struct bt_str body = bt_buf_str(&relay->held);

    if (concerns(relay, body)) {
        bool is_error;

        bt_buf_clear(&relay->edited);
        if (!filter_text(body, relay->cached, &relay->edited, &is_error)) {
            return RELAY_BAD;
        }
        if (relay->edited.failed) {
            return RELAY_NO_MEMORY;
        }
        if (is_error && filter_concerns(body, false)) {
            relay->error = body;
            return RELAY_BAD;
        }
        body = bt_buf_str(&relay->edited);
    } else if (!is_object(body)) {
        return RELAY_BAD;
    }
    relay->committed = true;
    relay->bytes_out += body.len;
    *relay->sink = NULL;
    if (sink != NULL) {
        sink->ops->answer(sink, relay->code, bt_buf_str(&relay->fields), body);
    }
    return RELAY_GO;
}

/* May the stream's end stand, and what is held be passed before it? */
static enum relay_result judge_end(struct relay *relay)
{
    const struct bt_str held = bt_buf_str(&relay->held);
    struct bt_str data;

    look_for_marker(relay, held);
    if (relay->ends_by_close && !relay->has_marker) {
        return RELAY_CUT;
    }
    if (relay->committed) {
        return RELAY_GO;
    }
    if (is_error_event(relay, tail(held, relay->event_at))) {
        return RELAY_FIRST_ERROR;
    }
    if (read_data(relay, tail(held, relay->event_at), &data) == 0) {
        return RELAY_BAD; /* not one event */
    }
    return try_event(relay, held);
}

/* What a clean end leaves held is passed as it is, private members apart. */
static enum relay_result send_rest(struct relay *relay)
{
    enum relay_result result = RELAY_GO;

    if (relay->big == RELAY_BIG) {
        result = send_big_end(relay);
    } else if (relay->big == RELAY_BIG_TAIL) {
        result = send_tail(relay);
    } else if (relay->held.len > 0) {
        result =
            send_events(relay, bt_buf_str(&relay->held), (struct bt_str){0});
    }
    bt_buf_clear(&relay->held);
    return result;
}

enum relay_result relay_end(struct relay *relay)
{
    enum relay_result result;
    struct sink *sink;

    if (relay->code >= 400) {
        return RELAY_ERROR;
    }
    if (!relay->is_sse && !relay->committed) {
        return answer_whole(relay);
    }
    result = relay->is_sse ? judge_end(relay) : RELAY_GO;
    if (result > RELAY_FULL) {
        bt_buf_clear(&relay->held);
        return result;
    }
    if (!relay->committed) {
        commit(relay);
    }
    result = send_rest(relay);
    if (result > RELAY_FULL) {
        return result;
    }
    sink = *relay->sink;
    *relay->sink = NULL;
    if (sink != NULL) {
        sink->ops->end(sink);
    }
    return RELAY_GO;
}

void relay_break(struct relay *relay, enum fault fault, unsigned status)
{
    struct sink *sink;

    if (relay->is_sse && relay->big == RELAY_SMALL) {
        bt_buf_clear(&relay->edited);
        fault_write_event(&relay->edited, fault, status);
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
