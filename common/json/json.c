/*
 * The JSON scanner. One loop over the bytes, no recursion: a container that
 * is open is one bit (object or array) on a stack of BT_JSON_DEPTH_MAX bits.
 *
 *      +-----> value begins -- '{' '[' --> open_container --+
 *      |            | scalar                 |  empty       | first value
 *      |            v                        v              v
 *      |       after_value <-----------------+         (value begins)
 *      |            | '}' ']': pop, and after that value again
 *      +--- ',' ----+
 *                   | back at the depth of the start
 *                   v
 *                 done
 *
 * The scan functions take the place they begin at and return the place behind
 * what they scanned, or NULL after fail().
 */
#include "common/json/json.h"

#include "common/base/simd.h"

struct scan {
    const char *end;
    const char *error_at;
    enum bt_status status;
    unsigned depth; /* open containers */
    uint64_t is_object[BT_JSON_DEPTH_MAX / 64];
};

static const char *fail(struct scan *s, const char *at, enum bt_status status)
{
    s->error_at = at;
    s->status = status;
    return NULL;
}

/* Most bytes asked about are above the space. */
static inline bool is_space(char c)
{
    return (unsigned char)c <= ' ' &&
           (c == ' ' || c == '\n' || c == '\r' || c == '\t');
}

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline const char *skip_space(const char *at, const char *end)
{
    while (at < end && is_space(*at)) {
        at++;
    }
    return at;
}

static inline bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && c != '"' && c != '\\';
}

static const char *skip_plain_scalar(const char *at, const char *end)
{
    while (at < end && is_plain(*at)) {
        at++;
    }
    return at;
}

#if BT_SIMD
/* Passes blocks of 64 plain bytes. */
static inline const char *skip_blocks(const char *at, const char *end)
{
    while (end - at >= 64 && !bt_simd_json_any64(at)) {
        at += 64;
    }
    return at;
}

/* Most strings of a body are names and short words: 16 bytes come first. */
static inline const char *skip_plain(const char *at, const char *end)
{
    if (end - at >= 16) {
        const uint64_t mask = bt_simd_json(at);

        if (mask != 0) {
            return at + bt_simd_first(mask);
        }
        at = skip_blocks(at + 16, end);
    }
    while (end - at >= 16) {
        const uint64_t mask = bt_simd_json(at);

        if (mask != 0) {
            return at + bt_simd_first(mask);
        }
        at += 16;
    }
    return skip_plain_scalar(at, end);
}
#else
static inline const char *skip_plain(const char *at, const char *end)
{
    return skip_plain_scalar(at, end);
}
#endif

static int hex_digit(char c)
{
    if (is_digit(c)) {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* At the 'u' of an escape. */
static const char *scan_hex4(struct scan *s, const char *at)
{
    at++;
    for (int i = 0; i < 4; i++, at++) {
        if (at == s->end || hex_digit(*at) < 0) {
            return fail(s, at, BT_ERR_SYNTAX);
        }
    }
    return at;
}

/* What may follow a backslash and is one byte. */
static const bool IS_SIMPLE_ESCAPE[256] = {
    ['"'] = true, ['\\'] = true, ['/'] = true, ['b'] = true,
    ['f'] = true, ['n'] = true,  ['r'] = true, ['t'] = true,
};

/* At a byte that is not plain and not a quote. */
static inline const char *scan_escape(struct scan *s, const char *at)
{
    if (*at != '\\') {
        return fail(s, at, BT_ERR_SYNTAX);
    }
    at++;
    if (at < s->end && IS_SIMPLE_ESCAPE[(unsigned char)*at]) {
        return at + 1;
    }
    if (at == s->end || *at != 'u') {
        return fail(s, at, BT_ERR_SYNTAX);
    }
    return scan_hex4(s, at);
}

/* Inside a string; returns behind the closing quote. */
static const char *scan_string_scalar(struct scan *s, const char *at)
{
    for (;;) {
        at = skip_plain_scalar(at, s->end);
        if (at == s->end) {
            return fail(s, at, BT_ERR_SYNTAX);
        }
        if (*at == '"') {
            return at + 1;
        }
        at = scan_escape(s, at);
        if (at == NULL) {
            return NULL;
        }
    }
}

#if BT_SIMD
/*
 * Passes the simple escapes of a block of 16 bytes, whose bytes that are not
 * plain are in `mask`. Returns at the first other one, or behind the block.
 */
static inline const char *pass_escapes(const char *at, uint64_t mask)
{
    while (mask != 0) {
        const size_t i = bt_simd_first(mask);

        if (i == 15 || at[i] != '\\' ||
            !IS_SIMPLE_ESCAPE[(unsigned char)at[i + 1]]) {
            return at + i;
        }
        mask = bt_simd_clear2(mask, i);
    }
    return at + 16;
}

/* At the opening quote; returns behind the closing one. */
static inline const char *scan_string(struct scan *s, const char *at)
{
    at++;
    while (s->end - at > 16) {
        const uint64_t mask = bt_simd_json(at);

        if (mask == 0) {
            at = skip_blocks(at + 16, s->end);
            continue;
        }
        at = pass_escapes(at, mask);
        if (*at == '"') {
            return at + 1;
        }
        if (!is_plain(*at)) {
            at = scan_escape(s, at);
        }
        if (at == NULL) {
            return NULL;
        }
    }
    return scan_string_scalar(s, at);
}
#else
static inline const char *scan_string(struct scan *s, const char *at)
{
    return scan_string_scalar(s, at + 1);
}
#endif

static inline const char *skip_digits(const char *at, const char *end)
{
#if BT_SIMD
    if (end - at >= 16) {
        const uint64_t mask = bt_simd_not_digit(at);

        if (mask != 0) {
            return at + bt_simd_first(mask);
        }
        at += 16;
    }
#endif
    while (at < end && is_digit(*at)) {
        at++;
    }
    return at;
}

/* One digit at least. */
static inline const char *scan_digits(struct scan *s, const char *at)
{
    const char *const begin = at;

    at = skip_digits(at, s->end);
    return at == begin ? fail(s, at, BT_ERR_SYNTAX) : at;
}

/* At the '.' or the 'e' of a number. */
static const char *scan_fraction(struct scan *s, const char *at)
{
    if (*at == '.') {
        at = scan_digits(s, at + 1);
        if (at == NULL || at == s->end || (*at != 'e' && *at != 'E')) {
            return at;
        }
    }
    at++;
    if (at < s->end && (*at == '+' || *at == '-')) {
        at++;
    }
    return scan_digits(s, at);
}

/* At the first digit, if there is one. */
static inline const char *scan_number(struct scan *s, const char *at)
{
    const char *const begin = at;

    at = scan_digits(s, at);
    if (at == NULL) {
        return NULL;
    }
    if (*begin == '0' && at - begin > 1) {
        return fail(s, begin + 1, BT_ERR_SYNTAX);
    }
    if (at < s->end && (*at == '.' || (*at | 0x20) == 'e')) {
        return scan_fraction(s, at);
    }
    return at;
}

static const char *scan_literal(struct scan *s, const char *at,
                                struct bt_str literal)
{
    if ((size_t)(s->end - at) < literal.len ||
        memcmp(at, literal.ptr, literal.len) != 0) {
        return fail(s, at, BT_ERR_SYNTAX);
    }
    return at + literal.len;
}

/* A name, its colon, and the space up to the value; *name_end_p: the quote. */
static inline const char *scan_name(struct scan *s, const char *at,
                                    const char **name_end_p)
{
    if (at == s->end || *at != '"') {
        return fail(s, at, BT_ERR_SYNTAX);
    }
    at = scan_string(s, at);
    if (at == NULL) {
        return NULL;
    }
    *name_end_p = at - 1;
    at = skip_space(at, s->end);
    if (at == s->end || *at != ':') {
        return fail(s, at, BT_ERR_SYNTAX);
    }
    return skip_space(at + 1, s->end);
}

static inline bool top_is_object(const struct scan *s)
{
    const unsigned top = s->depth - 1;

    return (s->is_object[top / 64] >> (top % 64) & 1) != 0;
}

/*
 * At '{' or '['. Returns where its first value begins; when it is empty, the
 * place behind it, and the depth is as before.
 */
static const char *open_container(struct scan *s, const char *at)
{
    const bool is_object = *at == '{';
    const uint64_t bit = (uint64_t)1 << (s->depth % 64);
    const char *name_end;

    if (s->depth >= BT_JSON_DEPTH_MAX) {
        return fail(s, at, BT_ERR_LIMIT);
    }
    at = skip_space(at + 1, s->end);
    if (at < s->end && *at == (is_object ? '}' : ']')) {
        return at + 1;
    }
    if (is_object) {
        s->is_object[s->depth / 64] |= bit;
    } else {
        s->is_object[s->depth / 64] &= ~bit;
    }
    s->depth++;
    return is_object ? scan_name(s, at, &name_end) : at;
}

static const char *scan_scalar(struct scan *s, const char *at)
{
    switch (*at) {
    case '"':
        return scan_string(s, at);
    case 't':
        return scan_literal(s, at, BT_STR("true"));
    case 'f':
        return scan_literal(s, at, BT_STR("false"));
    case 'n':
        return scan_literal(s, at, BT_STR("null"));
    default:
        return scan_number(s, *at == '-' ? at + 1 : at);
    }
}

/* Returns where the next value begins; or, at depth `base`, the end. */
static inline const char *after_value(struct scan *s, const char *at,
                                      unsigned base)
{
    const char *name_end;

    while (s->depth > base) {
        bool is_object;

        at = skip_space(at, s->end);
        is_object = top_is_object(s);
        if (at < s->end && *at == ',') {
            at = skip_space(at + 1, s->end);
            return is_object ? scan_name(s, at, &name_end) : at;
        }
        if (at == s->end || *at != (is_object ? '}' : ']')) {
            return fail(s, at, BT_ERR_SYNTAX);
        }
        at++;
        s->depth--;
    }
    return at;
}

static enum bt_json_type type_of(char first)
{
    switch (first) {
    case '{':
        return BT_JSON_OBJECT;
    case '[':
        return BT_JSON_ARRAY;
    case '"':
        return BT_JSON_STRING;
    case 't':
        return BT_JSON_TRUE;
    case 'f':
        return BT_JSON_FALSE;
    case 'n':
        return BT_JSON_NULL;
    default:
        return BT_JSON_NUMBER;
    }
}

/* One value that begins at `begin`, whole. */
static const char *scan_value(struct scan *s, const char *begin,
                              struct bt_json_value *value_p)
{
    const unsigned base = s->depth;
    const char *at = begin;

    do {
        const unsigned depth = s->depth;

        if (at == s->end) {
            return fail(s, at, BT_ERR_SYNTAX);
        }
        if (is_digit(*at)) {
            at = scan_number(s, at);
        } else if (*at == '{' || *at == '[') {
            at = open_container(s, at);
        } else {
            at = scan_scalar(s, at);
        }
        if (at != NULL && s->depth == depth) {
            at = after_value(s, at, base);
        }
        if (at == NULL) {
            return NULL;
        }
    } while (s->depth > base);
    value_p->type = type_of(*begin);
    value_p->text = bt_str_span(begin, (size_t)(at - begin));
    return at;
}

enum bt_status bt_json_check(struct bt_str text, struct bt_json_value *value_p,
                             size_t *offset_p)
{
    const char *const base = text.len == 0 ? "" : text.ptr;
    struct scan s = {.end = base + text.len};
    struct bt_json_value value = {.type = BT_JSON_NONE};
    const char *at = scan_value(&s, skip_space(base, s.end), &value);

    if (at != NULL) {
        at = skip_space(at, s.end);
        if (at != s.end) {
            (void)fail(&s, at, BT_ERR_SYNTAX);
        }
    }
    if (s.status != BT_OK) {
        if (offset_p != NULL) {
            *offset_p = (size_t)(s.error_at - base);
        }
        return s.status;
    }
    if (value_p != NULL) {
        *value_p = value;
    }
    return BT_OK;
}

/* Iterators */

static void iter_fail(struct bt_json_iter *it, const char *at,
                      enum bt_status status)
{
    it->at = at;
    it->kind = BT_JSON_NONE;
    it->status = status;
}

static void iter_init(struct bt_json_iter *it, struct bt_str text,
                      enum bt_json_type kind)
{
    const char *const base = text.len == 0 ? "" : text.ptr;

    *it = (struct bt_json_iter){
        .base = base, .at = base, .end = base + text.len, .kind = kind};
    it->at = skip_space(it->at, it->end);
    if (it->at == it->end || type_of(*it->at) != kind) {
        iter_fail(it, it->at, BT_ERR_SYNTAX);
        return;
    }
    it->at++;
}

void bt_json_iter_object(struct bt_json_iter *it, struct bt_str text)
{
    iter_init(it, text, BT_JSON_OBJECT);
}

void bt_json_iter_array(struct bt_json_iter *it, struct bt_str text)
{
    iter_init(it, text, BT_JSON_ARRAY);
}

/* At the closing bracket, which `at` is left behind. */
static void iter_finish(struct bt_json_iter *it)
{
    const char *const rest = skip_space(it->at + 1, it->end);

    if (rest != it->end) {
        iter_fail(it, rest, BT_ERR_SYNTAX);
        return;
    }
    it->at++;
    it->finished = true;
}

/* To the next name or value; false at the end and on an error. */
static bool iter_advance(struct bt_json_iter *it, enum bt_json_type kind)
{
    if (it->kind != kind || it->finished) {
        return false;
    }
    it->at = skip_space(it->at, it->end);
    if (it->at < it->end && *it->at == (kind == BT_JSON_OBJECT ? '}' : ']')) {
        iter_finish(it);
        return false;
    }
    if (it->started) {
        if (it->at == it->end || *it->at != ',') {
            iter_fail(it, it->at, BT_ERR_SYNTAX);
            return false;
        }
        it->at = skip_space(it->at + 1, it->end);
    }
    it->started = true;
    return true;
}

bool bt_json_next_member(struct bt_json_iter *it, struct bt_json_member *m_p)
{
    struct bt_json_member member = {0};
    struct scan s = {.depth = 1};
    const char *name_end = NULL;
    const char *at;

    if (!iter_advance(it, BT_JSON_OBJECT)) {
        return false;
    }
    s.end = it->end;
    member.begin = it->at;
    at = scan_name(&s, it->at, &name_end);
    if (at != NULL) {
        member.name = bt_str_span(member.begin + 1,
                                  (size_t)(name_end - member.begin) - 1);
        at = scan_value(&s, at, &member.value);
    }
    if (at == NULL) {
        iter_fail(it, s.error_at, s.status);
        return false;
    }
    it->at = at;
    member.end = at;
    *m_p = member;
    return true;
}

bool bt_json_next_element(struct bt_json_iter *it, struct bt_json_value *v_p)
{
    struct scan s = {.depth = 1};
    const char *at;

    if (!iter_advance(it, BT_JSON_ARRAY)) {
        return false;
    }
    s.end = it->end;
    at = scan_value(&s, it->at, v_p);
    if (at == NULL) {
        iter_fail(it, s.error_at, s.status);
        return false;
    }
    it->at = at;
    return true;
}

enum bt_status bt_json_iter_end(const struct bt_json_iter *it)
{
    if (it->status != BT_OK) {
        return it->status;
    }
    return it->finished ? BT_OK : BT_ERR_SYNTAX;
}

size_t bt_json_iter_offset(const struct bt_json_iter *it)
{
    return (size_t)(it->at - it->base);
}

/* Names and strings */

/* The four digits at `at`, or -1. */
static int32_t hex4(const char *at, const char *end)
{
    int32_t value = 0;

    if (end - at < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(at[i]);

        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

static size_t put_utf8(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

#define REPLACEMENT 0xfffdU

/* Behind "\u". Returns the code, *used_p the bytes read. */
static uint32_t decode_u(const char *at, const char *end, size_t *used_p)
{
    const int32_t high = hex4(at, end);
    int32_t low = -1;

    if (high < 0) {
        *used_p = 0;
        return REPLACEMENT;
    }
    *used_p = 4;
    if (high < 0xd800 || high > 0xdfff) {
        return (uint32_t)high;
    }
    if (high <= 0xdbff && end - at >= 10 && at[4] == '\\' && at[5] == 'u') {
        low = hex4(at + 6, end);
    }
    if (low < 0xdc00 || low > 0xdfff) {
        return REPLACEMENT;
    }
    *used_p = 10;
    return 0x10000 + ((uint32_t)(high - 0xd800) << 10) +
           (uint32_t)(low - 0xdc00);
}

/*
 * Decodes the escape at `at` (a backslash); returns the bytes read. What is
 * not an escape by the grammar still gives some bytes: the scanner has
 * refused it before.
 */
static size_t decode_escape(const char *at, const char *end, char out[4],
                            size_t *len_p)
{
    size_t used = 0;
    uint32_t code;

    *len_p = 1;
    if (end - at < 2) {
        out[0] = '\\';
        return 1;
    }
    out[0] = at[1];
    switch (at[1]) {
    case 'b':
        out[0] = '\b';
        return 2;
    case 'f':
        out[0] = '\f';
        return 2;
    case 'n':
        out[0] = '\n';
        return 2;
    case 'r':
        out[0] = '\r';
        return 2;
    case 't':
        out[0] = '\t';
        return 2;
    case 'u':
        code = decode_u(at + 2, end, &used);
        *len_p = put_utf8(code, out);
        return 2 + used;
    default:
        return 2;
    }
}

static bool decoded_name_is(struct bt_str raw, struct bt_str plain)
{
    const char *at = raw.ptr;
    const char *const end = raw.ptr + raw.len;
    size_t done = 0;

    while (at < end) {
        char bytes[4] = {*at};
        size_t len = 1;

        at += *at == '\\' ? decode_escape(at, end, bytes, &len) : 1;
        if (len > plain.len - done ||
            memcmp(plain.ptr + done, bytes, len) != 0) {
            return false;
        }
        done += len;
    }
    return done == plain.len;
}

bool bt_json_name_spells(struct bt_str raw_name, struct bt_str plain)
{
    if (raw_name.len == plain.len) {
        return bt_str_eq(raw_name, plain) &&
               (raw_name.len == 0 ||
                memchr(raw_name.ptr, '\\', raw_name.len) == NULL);
    }
    if (memchr(raw_name.ptr, '\\', raw_name.len) == NULL) {
        return false;
    }
    return decoded_name_is(raw_name, plain);
}

bool bt_json_find(struct bt_str object, struct bt_str name,
                  struct bt_json_value *value_p)
{
    struct bt_json_iter it;
    struct bt_json_member member;
    struct bt_json_value value = {.type = BT_JSON_NONE};

    bt_json_iter_object(&it, object);
    while (bt_json_next_member(&it, &member)) {
        if (bt_json_name_is(member.name, name)) {
            value = member.value;
        }
    }
    if (bt_json_iter_end(&it) != BT_OK || value.type == BT_JSON_NONE) {
        return false;
    }
    *value_p = value;
    return true;
}

void bt_json_unescape(struct bt_str string_text, struct bt_buf *out)
{
    const char *at;
    const char *end;

    if (string_text.len < 2) {
        return;
    }
    at = string_text.ptr + 1;
    end = string_text.ptr + string_text.len - 1;
    while (at < end) {
        const char *const special = skip_plain(at, end);
        char bytes[4];
        size_t len = 1;

        bt_buf_append(out, bt_str_span(at, (size_t)(special - at)));
        at = special;
        if (at == end) {
            return;
        }
        bytes[0] = *at;
        at += *at == '\\' ? decode_escape(at, end, bytes, &len) : 1;
        bt_buf_append(out, bt_str_span(bytes, len));
    }
}

/* Numbers */

enum bt_status bt_json_to_u64(const struct bt_json_value *value,
                              uint64_t *number_p)
{
    int64_t negative;

    if (value->type != BT_JSON_NUMBER) {
        return BT_ERR_SYNTAX;
    }
    if (value->text.len > 0 && value->text.ptr[0] == '-') {
        const enum bt_status status = bt_json_to_i64(value, &negative);

        return status == BT_OK ? BT_ERR_RANGE : status;
    }
    return bt_str_to_u64(value->text, number_p);
}

enum bt_status bt_json_to_i64(const struct bt_json_value *value,
                              int64_t *number_p)
{
    const uint64_t max = INT64_MAX;
    struct bt_str digits = value->text;
    const bool is_negative = digits.len > 0 && digits.ptr[0] == '-';
    uint64_t size = 0;
    enum bt_status status;

    if (value->type != BT_JSON_NUMBER) {
        return BT_ERR_SYNTAX;
    }
    if (is_negative) {
        digits = bt_str_span(digits.ptr + 1, digits.len - 1);
    }
    status = bt_str_to_u64(digits, &size);
    if (status != BT_OK) {
        return status;
    }
    if (!is_negative) {
        if (size > max) {
            return BT_ERR_RANGE;
        }
        *number_p = (int64_t)size;
        return BT_OK;
    }
    if (size == 0) {
        return BT_ERR_SYNTAX;
    }
    if (size > max + 1) {
        return BT_ERR_RANGE;
    }
    *number_p = -(int64_t)(size - 1) - 1;
    return BT_OK;
}

size_t bt_json_skip_plain(struct bt_str text)
{
    if (text.len == 0) {
        return 0;
    }
    return (size_t)(skip_plain(text.ptr, text.ptr + text.len) - text.ptr);
}

size_t bt_json_skip_plain_scalar(struct bt_str text)
{
    if (text.len == 0) {
        return 0;
    }
    return (size_t)(skip_plain_scalar(text.ptr, text.ptr + text.len) -
                    text.ptr);
}
