/*
 * From bytes to a verdict. Only the first thing that goes wrong is kept.
 */
#include "bench/load/load_answer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define EVENT_MAX BT_MIB        /* of one event */
#define JSON_MAX  (16 * BT_MIB) /* of an answer that is no stream */
#define ERROR_MAX ((size_t)512) /* kept of an HTTP error */

const char *verdict_name(enum verdict verdict)
{
    switch (verdict) {
    case VERDICT_OK:
        return "ok";
    case VERDICT_HTTP_ERROR:
        return "http_error";
    case VERDICT_REFUSED:
        return "refused";
    case VERDICT_CONNECT_TIMEOUT:
        return "connect_timeout";
    case VERDICT_TTFT_TIMEOUT:
        return "ttft_timeout";
    case VERDICT_IDLE_TIMEOUT:
        return "idle_timeout";
    case VERDICT_TRUNCATED:
        return "truncated";
    case VERDICT_ERROR_EVENT:
        return "error_event";
    case VERDICT_MALFORMED:
        return "malformed";
    case VERDICT_WRONG_TEXT:
        return "wrong_text";
    case VERDICT_CANCELLED:
        return "cancelled";
    }
    return "unknown";
}

void answer_init(struct load_answer *answer, bool wants_stream)
{
    memset(answer, 0, sizeof(*answer));
    answer->wants_stream = wants_stream;
    bt_sse_init(&answer->sse);
}

void answer_fini(struct load_answer *answer)
{
    bt_buf_fini(&answer->pending);
    bt_buf_fini(&answer->text);
    bt_buf_fini(&answer->gaps);
}

BT_PRINTF(2, 3)
static void say(struct load_answer *answer, const char *format, ...)
{
    va_list args;

    if (answer->why[0] != '\0') {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(answer->why, sizeof(answer->why), format, args);
    va_end(args);
}

/* Adds what the server said, as far as there is room, to be printed. */
static void quote(struct load_answer *answer, struct bt_str bytes)
{
    size_t at = strlen(answer->why);

    for (size_t i = 0; i < bytes.len && at + 1 < sizeof(answer->why); i++) {
        const char byte = bytes.ptr[i];
        if (byte >= ' ' && byte <= '~') {
            answer->why[at] = byte;
        } else {
            answer->why[at] = '?';
        }
        at++;
    }
    answer->why[at] = '\0';
}

static void malformed(struct load_answer *answer, const char *what)
{
    answer->is_malformed = true;
    say(answer, "%s", what);
}

/* --- JSON of one event or answer --- */

static bool is_null(const struct bt_json_value *value)
{
    return value->type == BT_JSON_NULL;
}

/* A non-empty string member of that name, its bytes appended to the text. */
static bool take_text(struct load_answer *answer, struct bt_str object,
                      struct bt_str name)
{
    struct bt_json_value value;

    if (!bt_json_find(object, name, &value) || value.type != BT_JSON_STRING ||
        value.text.len <= 2) {
        return false;
    }
    bt_json_unescape(value.text, &answer->text);
    return true;
}

/* Do tool calls carry a piece of arguments or a name? */
static bool has_tool_calls(struct bt_str object)
{
    struct bt_json_value value;

    return bt_json_find(object, BT_STR("tool_calls"), &value) &&
           value.type == BT_JSON_ARRAY && value.text.len > 2;
}

/* The delta or message of a chat choice. */
static bool take_message(struct load_answer *answer, struct bt_str object)
{
    bool found = take_text(answer, object, BT_STR("reasoning_content"));

    found = take_text(answer, object, BT_STR("reasoning")) || found;
    found = take_text(answer, object, BT_STR("content")) || found;
    return has_tool_calls(object) || found;
}

static bool take_choice(struct load_answer *answer, struct bt_str choice)
{
    struct bt_json_value value;
    bool found = take_text(answer, choice, BT_STR("text"));

    if (bt_json_find(choice, BT_STR("finish_reason"), &value) &&
        !is_null(&value)) {
        answer->has_finish = true;
    }
    if ((bt_json_find(choice, BT_STR("delta"), &value) ||
         bt_json_find(choice, BT_STR("message"), &value)) &&
        value.type == BT_JSON_OBJECT) {
        found = take_message(answer, value.text) || found;
    }
    return found;
}

static bool take_choices(struct load_answer *answer, struct bt_str array)
{
    struct bt_json_iter it;
    struct bt_json_value value;
    bool found = false;

    bt_json_iter_array(&it, array);
    while (bt_json_next_element(&it, &value)) {
        if (value.type != BT_JSON_OBJECT) {
            malformed(answer, "a choice is not an object");
            return found;
        }
        found = take_choice(answer, value.text) || found;
    }
    return found;
}

static uint64_t number_in(struct bt_str object, struct bt_str name)
{
    struct bt_json_value value;
    uint64_t number = 0;

    if (!bt_json_find(object, name, &value) ||
        bt_json_to_u64(&value, &number) != BT_OK) {
        return 0;
    }
    return number;
}

static void take_usage(struct load_answer *answer, struct bt_str usage)
{
    struct bt_json_value value;

    answer->usage.is_known = true;
    answer->usage.prompt_tokens = number_in(usage, BT_STR("prompt_tokens"));
    answer->usage.completion_tokens =
        number_in(usage, BT_STR("completion_tokens"));
    if (bt_json_find(usage, BT_STR("prompt_tokens_details"), &value) &&
        value.type == BT_JSON_OBJECT) {
        answer->usage.cached_tokens =
            number_in(value.text, BT_STR("cached_tokens"));
    }
}

static void take_error(struct load_answer *answer,
                       const struct bt_json_value *error)
{
    answer->has_error = true;
    if (answer->why[0] == '\0') {
        say(answer, "error in a 200: ");
        quote(answer, error->text);
    }
}

/* One object of the answer; true when it holds a piece of content. */
static bool take_object(struct load_answer *answer, struct bt_str text)
{
    struct bt_json_value value;

    if (bt_json_check(text, &value, NULL) != BT_OK ||
        value.type != BT_JSON_OBJECT) {
        malformed(answer, "an event is not a JSON object");
        return false;
    }
    const struct bt_str object = value.text;
    if (bt_json_find(object, BT_STR("error"), &value) && !is_null(&value)) {
        take_error(answer, &value);
        return false;
    }
    if (bt_json_find(object, BT_STR("usage"), &value) &&
        value.type == BT_JSON_OBJECT) {
        take_usage(answer, value.text);
    }
    if (!bt_json_find(object, BT_STR("choices"), &value) ||
        value.type != BT_JSON_ARRAY) {
        malformed(answer, "an event has no choices");
        return false;
    }
    return take_choices(answer, value.text);
}

/* --- events --- */

static void mark_content(struct load_answer *answer, uint64_t now_us)
{
    const uint64_t gap_us = now_us - answer->stamps.last_content_us;

    answer->content_events++;
    if (answer->stamps.first_content_us == 0) {
        answer->stamps.first_content_us = now_us;
    } else {
        bt_buf_append(&answer->gaps,
                      bt_str_span((const char *)&gap_us, sizeof(gap_us)));
    }
    answer->stamps.last_content_us = now_us;
}

static void take_data(struct load_answer *answer, struct bt_str data,
                      uint64_t now_us)
{
    if (answer->is_done) {
        malformed(answer, "an event follows [DONE]");
        return;
    }
    if (bt_str_eq(data, BT_STR("[DONE]"))) {
        answer->is_done = true;
        return;
    }
    answer->events++;
    if (answer->stamps.first_event_us == 0) {
        answer->stamps.first_event_us = now_us;
    }
    if (take_object(answer, data)) {
        mark_content(answer, now_us);
    }
}

/* Joins the data lines of a whole event; one line, the rule, is not copied. */
static void take_event(struct load_answer *answer, struct bt_str event,
                       uint64_t now_us)
{
    struct bt_str name;
    struct bt_str value;
    struct bt_str data = {NULL, 0};
    struct bt_buf joined = {0};

    while (bt_sse_field(&event, &name, &value)) {
        if (!bt_str_eq(name, BT_STR("data"))) {
            continue;
        }
        if (data.ptr == NULL) {
            data = value;
            continue;
        }
        if (joined.len == 0) {
            bt_buf_append(&joined, data);
        }
        bt_buf_append_char(&joined, '\n');
        bt_buf_append(&joined, value);
        data = bt_buf_str(&joined);
    }
    if (joined.failed) {
        malformed(answer, "out of memory");
    } else if (data.ptr != NULL) {
        take_data(answer, data, now_us);
    }
    bt_buf_fini(&joined);
}

/* Keeps the start of what is not whole yet. */
static void keep(struct load_answer *answer, struct bt_str bytes, size_t limit)
{
    if (answer->pending.len + bytes.len > limit) {
        malformed(answer, "an event or answer is too long");
        return;
    }
    bt_buf_append(&answer->pending, bytes);
    if (answer->pending.failed) {
        malformed(answer, "out of memory");
    }
}

static void stream_bytes(struct load_answer *answer, struct bt_str bytes,
                         uint64_t now_us)
{
    size_t end = 0;
    bool has_field = false;

    while (!answer->is_malformed &&
           bt_sse_next(&answer->sse, bytes, &end, &has_field)) {
        struct bt_str event = bt_str_span(bytes.ptr, end);

        if (answer->pending.len > 0) {
            keep(answer, event, EVENT_MAX);
            event = bt_buf_str(&answer->pending);
        }
        if (has_field && !answer->is_malformed) {
            take_event(answer, event, now_us);
        }
        bt_buf_clear(&answer->pending);
        bytes = bt_str_span(bytes.ptr + end, bytes.len - end);
    }
    if (!answer->is_malformed && bytes.len > 0) {
        keep(answer, bytes, EVENT_MAX);
    }
}

void answer_head(struct load_answer *answer, unsigned code,
                 struct bt_str content_type, uint64_t now_us)
{
    const struct bt_str wanted = answer->wants_stream
                                     ? BT_STR("text/event-stream")
                                     : BT_STR("application/json");
    struct bt_str type = content_type;

    answer->code = code;
    answer->stamps.first_byte_us = now_us;
    if (code != 200) {
        say(answer, "HTTP status %u", code);
        return;
    }
    if (type.len > wanted.len) {
        type.len = wanted.len;
    }
    if (!bt_str_eq_nocase(type, wanted)) {
        malformed(answer, "another Content-Type than asked for");
    }
}

void answer_bytes(struct load_answer *answer, struct bt_str bytes,
                  uint64_t now_us)
{
    if (answer->is_malformed) {
        return;
    }
    if (answer->code != 200) {
        const size_t room = ERROR_MAX - answer->pending.len;
        bt_buf_append(
            &answer->pending,
            bt_str_span(bytes.ptr, bytes.len < room ? bytes.len : room));
        return;
    }
    if (answer->wants_stream) {
        stream_bytes(answer, bytes, now_us);
        return;
    }
    keep(answer, bytes, JSON_MAX);
}

static void end_error(struct load_answer *answer)
{
    answer->why[0] = '\0';
    say(answer, "HTTP status %u: ", answer->code);
    quote(answer, bt_buf_str(&answer->pending));
}

void answer_end(struct load_answer *answer, uint64_t now_us)
{
    answer->stamps.end_us = now_us;
    if (answer->code != 200) {
        end_error(answer);
        return;
    }
    if (answer->wants_stream || answer->is_malformed) {
        return;
    }
    answer->events++;
    answer->stamps.first_event_us = now_us;
    if (take_object(answer, bt_buf_str(&answer->pending))) {
        mark_content(answer, now_us);
    }
    answer->is_done = true;
}

enum verdict answer_verdict(const struct load_answer *answer)
{
    if (answer->code != 200) {
        return answer->code == 0 ? VERDICT_TRUNCATED : VERDICT_HTTP_ERROR;
    }
    if (answer->has_error) {
        return VERDICT_ERROR_EVENT;
    }
    if (answer->is_malformed || answer->text.failed) {
        return VERDICT_MALFORMED;
    }
    if (!answer->is_done || !answer->has_finish || answer->stamps.end_us == 0) {
        return VERDICT_TRUNCATED;
    }
    return VERDICT_OK;
}

size_t answer_gap_count(const struct load_answer *answer)
{
    return answer->gaps.len / sizeof(uint64_t);
}

uint64_t answer_gap_us(const struct load_answer *answer, size_t i)
{
    uint64_t gap_us;

    memcpy(&gap_us, bt_buf_str(&answer->gaps).ptr + i * sizeof(gap_us),
           sizeof(gap_us));
    return gap_us;
}

uint64_t answer_tpot_us(const struct load_answer *answer)
{
    const struct answer_stamps *stamps = &answer->stamps;

    if (!answer->usage.is_known || answer->usage.completion_tokens < 2 ||
        stamps->first_content_us == 0) {
        return 0;
    }
    return (stamps->last_content_us - stamps->first_content_us) /
           (answer->usage.completion_tokens - 1);
}
