/*
 * filter: the state machine of filter.h, one byte class at a time.
 */
#include "proxy/exchange/filter.h"

#include "common/json/json.h"

#define NAME_MAX_BYTES      256
#define SEPARATOR_MAX_BYTES 4096
#define USAGE_MAX_BYTES     8192

/* A name to look for, parted at its underscore. */
struct needle {
    struct bt_str before;
    struct bt_str after;
    bool is_count; /* of cached tokens: of interest where P gave one */
};

#define NEEDLE(before, after, is_count)                                 \
    {                                                                   \
        {"" before, sizeof(before) - 1}, {"" after, sizeof(after) - 1}, \
            is_count                                                    \
    }

/* Names of private members, and of what stands in them: errors tell both. */
static const struct needle NEEDLES[] = {
    NEEDLE("kv", "_transfer_params", false),
    NEEDLE("ec", "_transfer_params", false),
    NEEDLE("bootstrap", "_", false),
    NEEDLE("disagg", "_", false),
    NEEDLE("do", "_remote_", false),
    NEEDLE("cached", "_tokens", true),
    NEEDLE("cache", "_read_input_tokens", true),
    NEEDLE("remote", "_block_ids", false),
    NEEDLE("remote", "_engine_id", false),
    NEEDLE("remote", "_host", false),
    NEEDLE("remote", "_port", false),
    NEEDLE("remote", "_bootstrap_addr", false),
};

/* Does the needle lie around this underscore? */
static bool lies_at(const struct needle *needle, struct bt_str bytes,
                    const char *underscore)
{
    const size_t left = (size_t)(underscore - bytes.ptr);

    return left >= needle->before.len &&
           bytes.len - left >= needle->after.len &&
           memcmp(underscore - needle->before.len, needle->before.ptr,
                  needle->before.len) == 0 &&
           memcmp(underscore, needle->after.ptr, needle->after.len) == 0;
}

static bool lies_any(size_t from, size_t to, struct bt_str bytes,
                     const char *underscore, bool has_cached)
{
    for (size_t i = from; i < to; i++) {
        if ((has_cached || !NEEDLES[i].is_count) &&
            lies_at(&NEEDLES[i], bytes, underscore)) {
            return true;
        }
    }
    return false;
}

/* The byte before an underscore tells which needles may lie there. */
static inline bool is_name_at(struct bt_str bytes, const char *underscore,
                              bool has_cached)
{
    switch (underscore == bytes.ptr ? '\0' : underscore[-1]) {
    case 'v':
        return lies_any(0, 1, bytes, underscore, has_cached);
    case 'c':
        return lies_any(1, 2, bytes, underscore, has_cached);
    case 'p':
        return lies_any(2, 3, bytes, underscore, has_cached);
    case 'g':
        return lies_any(3, 4, bytes, underscore, has_cached);
    case 'o':
        return lies_any(4, 5, bytes, underscore, has_cached);
    case 'd':
        return lies_any(5, 6, bytes, underscore, has_cached);
    case 'e':
        return lies_any(6, BT_ARRAY_LEN(NEEDLES), bytes, underscore,
                        has_cached);
    default:
        return false;
    }
}

/* At "\\u004" to "\\u007": a letter or an underscore that needs no escape. */
static inline bool spells_letter(const char *at, const char *end)
{
    return end - at >= 5 && at[0] == '\\' && at[1] == 'u' && at[2] == '0' &&
           at[3] == '0' && at[4] >= '4' && at[4] <= '7';
}

static const char *find(const char *at, const char *end, char byte)
{
    return at == end ? NULL : memchr(at, byte, (size_t)(end - at));
}

bool filter_concerns(struct bt_str bytes, bool has_cached)
{
    const char *end;
    const char *at;

    if (bytes.len == 0) {
        return false;
    }
    end = bytes.ptr + bytes.len;
    at = find(bytes.ptr, end, '_');
    while (at != NULL && !is_name_at(bytes, at, has_cached)) {
        at = find(at + 1, end, '_');
    }
    if (at != NULL) {
        return true;
    }
    at = find(bytes.ptr, end, '\\');
    while (at != NULL && !spells_letter(at, end)) {
        at = find(at + 1, end, '\\');
    }
    return at != NULL;
}

void filter_init(struct filter *filter, struct bt_str cached)
{
    *filter = (struct filter){.cached = cached};
}

void filter_fini(struct filter *filter)
{
    bt_buf_fini(&filter->held);
    bt_buf_fini(&filter->usage);
}

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static bool starts_with(struct bt_str name, struct bt_str prefix)
{
    struct bt_buf quoted = {0};
    struct bt_buf plain = {0};
    bool starts;

    if (name.len < prefix.len || memchr(name.ptr, '\\', name.len) == NULL) {
        return bt_str_starts(name, prefix);
    }
    bt_buf_append_char(&quoted, '"');
    bt_buf_append(&quoted, name);
    bt_buf_append_char(&quoted, '"');
    bt_json_unescape(bt_buf_str(&quoted), &plain);
    starts = quoted.failed || plain.failed ||
             bt_str_starts(bt_buf_str(&plain), prefix);
    bt_buf_fini(&quoted);
    bt_buf_fini(&plain);
    return starts;
}

/* `name`, between its quotes, may be the beginning of one that is longer. */
static bool is_private_name(struct bt_str name)
{
#define PRIVATE(constant, text) bt_json_name_is(name, BT_STR(text)) ||
#define PRIVATE_PREFIX(text)    starts_with(name, BT_STR(text)) ||
    return
#include "proxy/exchange/private.def"
        false;
}

/* A kept member's held bytes go out; the first one without its comma. */
static void pass_held(struct filter *filter, struct bt_buf *out)
{
    struct bt_str held = bt_buf_str(&filter->held);
    const size_t comma =
        bt_str_find(bt_str_span(held.ptr, filter->name_at), BT_STR(","));

    if (!filter->has_kept && comma < filter->name_at) {
        bt_buf_append(out, bt_str_span(held.ptr, comma));
        held = bt_str_span(held.ptr + comma + 1, held.len - comma - 1);
    }
    bt_buf_append(out, held);
    filter->has_kept = true;
    bt_buf_clear(&filter->held);
}

/* Behind a name: its member is passed or, when private, dropped. */
static void begin_member(struct filter *filter, struct bt_str name,
                         struct bt_buf *out)
{
    filter->drops = is_private_name(name);
    filter->takes_usage = false;
    filter->depth = 0;
    filter->in_string = false;
    filter->after_backslash = false;
    filter->state = FILTER_VALUE;
    if (filter->drops) {
        bt_buf_clear(&filter->held);
    } else {
        pass_held(filter, out);
    }
}

static struct bt_str held_name(const struct filter *filter, size_t len)
{
    return bt_str_span(bt_buf_str(&filter->held).ptr + filter->name_at, len);
}

/* At a value's first byte. */
static void begin_value(struct filter *filter, char byte, struct bt_buf *out)
{
    const struct bt_str name = held_name(filter, filter->name_len);
    const bool is_usage =
        filter->cached.len > 0 && bt_json_name_is(name, BT_STR("usage"));

    filter->is_error = filter->is_error ||
                       (byte != 'n' && bt_json_name_is(name, BT_STR("error")));
    begin_member(filter, name, out);
    filter->takes_usage = is_usage;
}

/* What lies before `to` is left out. */
static void skip_to(struct bt_str *rest, const char *to)
{
    rest->len -= (size_t)(to - rest->ptr);
    rest->ptr = to;
}

/* What lies before `to` is passed, if any is left of it. */
static void pass_to(struct bt_str *rest, const char *to, struct bt_buf *out)
{
    if (to > rest->ptr) {
        bt_buf_append(out, bt_str_span(rest->ptr, (size_t)(to - rest->ptr)));
        skip_to(rest, to);
    }
}

/* The number becomes P's; null stays. */
static void correct(const struct bt_json_value *value, struct bt_str cached,
                    struct bt_str *rest, struct bt_buf *out)
{
    if (value->type == BT_JSON_NUMBER) {
        pass_to(rest, value->text.ptr, out);
        bt_buf_append(out, cached);
        skip_to(rest, value->text.ptr + value->text.len);
    }
}

/* Passes the details of a usage, with the counts of cached tokens corrected. */
static void correct_details(struct bt_str details, struct bt_str cached,
                            struct bt_str *rest, struct bt_buf *out)
{
    struct bt_json_iter it;
    struct bt_json_member member;

    bt_json_iter_object(&it, details);
    while (bt_json_next_member(&it, &member)) {
        if (bt_json_name_is(member.name, BT_STR("cached_tokens"))) {
            correct(&member.value, cached, rest, out);
        }
    }
}

static void correct_usage(struct bt_str usage, struct bt_str cached,
                          struct bt_str *rest, struct bt_buf *out)
{
    struct bt_json_iter it;
    struct bt_json_member member;

    bt_json_iter_object(&it, usage);
    while (bt_json_next_member(&it, &member)) {
        if (bt_json_name_is(member.name, BT_STR("prompt_tokens_details")) ||
            bt_json_name_is(member.name, BT_STR("input_tokens_details"))) {
            correct_details(member.value.text, cached, rest, out);
        } else if (bt_json_name_is(member.name,
                                   BT_STR("cache_read_input_tokens"))) {
            correct(&member.value, cached, rest, out);
        }
    }
}

static void pass_usage(struct filter *filter, struct bt_buf *out)
{
    struct bt_str rest = bt_buf_str(&filter->usage);

    correct_usage(rest, filter->cached, &rest, out);
    bt_buf_append(out, rest);
    bt_buf_clear(&filter->usage);
    filter->takes_usage = false;
}

static void put_value(struct filter *filter, struct bt_str bytes,
                      struct bt_buf *out)
{
    if (bytes.len == 0 || filter->drops) {
        return;
    }
    if (!filter->takes_usage) {
        bt_buf_append(out, bytes);
        return;
    }
    bt_buf_append(&filter->usage, bytes);
    if (filter->usage.len > USAGE_MAX_BYTES) {
        bt_buf_append(out, bt_buf_str(&filter->usage));
        bt_buf_clear(&filter->usage);
        filter->takes_usage = false;
    }
}

/* Is the value over before this byte? Keeps count of strings and depth. */
static bool ends_value(struct filter *filter, char byte)
{
    if (filter->in_string) {
        if (filter->after_backslash) {
            filter->after_backslash = false;
        } else if (byte == '\\') {
            filter->after_backslash = true;
        } else if (byte == '"') {
            filter->in_string = false;
        }
        return false;
    }
    if (byte == '"') {
        filter->in_string = true;
    } else if (byte == '{' || byte == '[') {
        filter->depth++;
    } else if (byte == '}' || byte == ']') {
        if (filter->depth == 0) {
            return true;
        }
        filter->depth--;
    } else if (byte == ',' && filter->depth == 0) {
        return true;
    }
    return false;
}

/* What tells, outside of strings, where a value ends. */
static const bool IS_STRUCTURE[256] = {
    ['"'] = true, ['{'] = true, ['['] = true,
    ['}'] = true, [']'] = true, [','] = true,
};

/* How many bytes from the front change nothing of where the value is. */
static size_t skip_inside(const struct filter *filter, struct bt_str bytes)
{
    size_t i = 0;

    if (filter->in_string) {
        return filter->after_backslash ? 0 : bt_json_skip_plain(bytes);
    }
    while (i < bytes.len && !IS_STRUCTURE[(unsigned char)bytes.ptr[i]]) {
        i++;
    }
    return i;
}

/* Takes value bytes from the front; returns how many. */
static size_t take_value(struct filter *filter, struct bt_str bytes,
                         struct bt_buf *out)
{
    size_t i = 0;

    for (;;) {
        i += skip_inside(filter, bt_str_span(bytes.ptr + i, bytes.len - i));
        if (i >= bytes.len || ends_value(filter, bytes.ptr[i])) {
            break;
        }
        i++;
    }
    put_value(filter, bt_str_span(bytes.ptr, i), out);
    if (i < bytes.len) {
        if (filter->takes_usage) {
            pass_usage(filter, out);
        }
        filter->drops = false;
        filter->state = FILTER_SEPARATOR;
    }
    return i;
}

static size_t take_before(struct filter *filter, struct bt_str bytes,
                          struct bt_buf *out)
{
    size_t len = bt_str_find(bytes, BT_STR("{"));

    if (len < bytes.len) {
        len++;
        filter->state = FILTER_SEPARATOR;
    }
    bt_buf_append(out, bt_str_span(bytes.ptr, len));
    return len;
}

static size_t take_separator(struct filter *filter, char byte,
                             struct bt_buf *out)
{
    if (byte == '"') {
        filter->name_at = filter->held.len;
        bt_buf_append_char(&filter->held, byte);
        filter->name_at++;
        filter->after_backslash = false;
        filter->state = FILTER_NAME;
        return 1;
    }
    if (is_blank(byte) || byte == ',') {
        /* Endless blanks are not held. */
        bt_buf_append_char(
            filter->held.len < SEPARATOR_MAX_BYTES ? &filter->held : out, byte);
        return 1;
    }
    /* '}' ends the object; anything else is not JSON and passes. */
    bt_buf_append(out, bt_buf_str(&filter->held));
    bt_buf_clear(&filter->held);
    filter->state = FILTER_AFTER;
    return 0;
}

/* A run of plain bytes of the name, or one other byte; returns how many. */
static size_t take_name(struct filter *filter, struct bt_str bytes,
                        struct bt_buf *out)
{
    const size_t room = filter->name_at + NAME_MAX_BYTES + 1 - filter->held.len;
    const size_t plain =
        filter->after_backslash ? 0 : bt_json_skip_plain(bytes);
    const size_t run = plain < room ? plain : room;
    const size_t len = run > 0 ? run : 1;

    bt_buf_append(&filter->held, bt_str_span(bytes.ptr, len));
    if (run > 0 || filter->after_backslash) {
        filter->after_backslash = false;
    } else if (bytes.ptr[0] == '\\') {
        filter->after_backslash = true;
    } else if (bytes.ptr[0] == '"') {
        filter->name_len = filter->held.len - 1 - filter->name_at;
        filter->state = FILTER_COLON;
    }
    if (filter->held.len > filter->name_at + NAME_MAX_BYTES &&
        filter->state == FILTER_NAME) {
        const bool after_backslash = filter->after_backslash;

        /* Its rest goes the way of the value. */
        begin_member(filter, held_name(filter, NAME_MAX_BYTES), out);
        filter->in_string = true;
        filter->after_backslash = after_backslash;
    }
    return len;
}

static size_t take_colon(struct filter *filter, char byte, struct bt_buf *out)
{
    if (byte != ':' && !is_blank(byte)) {
        begin_value(filter, byte, out);
        return 0;
    }
    bt_buf_append_char(&filter->held, byte);
    return 1;
}

void filter_feed(struct filter *filter, struct bt_str bytes, struct bt_buf *out)
{
    size_t at = 0;

    while (at < bytes.len) {
        const struct bt_str rest = bt_str_span(bytes.ptr + at, bytes.len - at);

        switch (filter->state) {
        case FILTER_BEFORE:
            at += take_before(filter, rest, out);
            break;
        case FILTER_SEPARATOR:
            at += take_separator(filter, rest.ptr[0], out);
            break;
        case FILTER_NAME:
            at += take_name(filter, rest, out);
            break;
        case FILTER_COLON:
            at += take_colon(filter, rest.ptr[0], out);
            break;
        case FILTER_VALUE:
            at += take_value(filter, rest, out);
            break;
        case FILTER_AFTER:
            bt_buf_append(out, rest);
            return;
        }
    }
}

void filter_end(struct filter *filter, struct bt_buf *out)
{
    bt_buf_append(out, bt_buf_str(&filter->held));
    bt_buf_append(out, bt_buf_str(&filter->usage));
    bt_buf_clear(&filter->held);
    bt_buf_clear(&filter->usage);
    filter->state = FILTER_AFTER;
}

static bool is_error(const struct bt_json_member *member)
{
    return member->value.type != BT_JSON_NULL &&
           bt_json_name_is(member->name, BT_STR("error"));
}

/* Behind the blanks at `at`. */
static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && is_blank(*at)) {
        at++;
    }
    return at;
}

bool filter_text(struct bt_str text, struct bt_str cached, struct bt_buf *out,
                 bool *is_error_p)
{
    struct bt_str rest = text;
    bool has_kept = false;
    struct bt_json_iter it;
    struct bt_json_member member;
    const char *comma; /* before the next member; behind the '{' at first */

    *is_error_p = false;
    bt_json_iter_object(&it, text);
    comma = it.at;
    while (bt_json_next_member(&it, &member)) {
        const char *const end = skip_blanks(member.end, it.end);

        if (is_private_name(member.name)) {
            pass_to(&rest, comma, out);
            skip_to(&rest, end);
            comma = end;
            continue;
        }
        if (!has_kept && rest.ptr == comma) {
            skip_to(&rest, comma + 1); /* what was before it is dropped */
        }
        has_kept = true;
        *is_error_p = *is_error_p || is_error(&member);
        if (cached.len > 0 && bt_json_name_is(member.name, BT_STR("usage"))) {
            correct_usage(member.value.text, cached, &rest, out);
        }
        comma = end;
    }
    bt_buf_append(out, rest);
    return bt_json_iter_end(&it) == BT_OK;
}
