/*
 * json_push: a state per place in the grammar; one bit per open container
 * says what it is.
 */
#include "common/json/json_push.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

static void open_container(struct bt_json_push *push, bool is_object)
{
    const uint64_t bit = (uint64_t)1 << (push->depth % 64);
    uint64_t *const word = &push->is_object[push->depth / 64];

    if (push->depth >= BT_JSON_DEPTH_MAX) {
        push->state = BT_JSON_PUSH_BAD;
        return;
    }
    *word = is_object ? *word | bit : *word & ~bit;
    push->depth++;
    push->state =
        is_object ? BT_JSON_PUSH_FIRST_NAME : BT_JSON_PUSH_FIRST_VALUE;
}

static bool top_is_object(const struct bt_json_push *push)
{
    const unsigned top = push->depth - 1;

    return (push->is_object[top / 64] >> (top % 64) & 1) != 0;
}

static void close_container(struct bt_json_push *push, char c)
{
    if (c != (top_is_object(push) ? '}' : ']')) {
        push->state = BT_JSON_PUSH_BAD;
        return;
    }
    push->depth--;
    push->state = push->depth == 0 ? BT_JSON_PUSH_AFTER : BT_JSON_PUSH_COMMA;
}

static void begin_string(struct bt_json_push *push, char c, bool is_name)
{
    push->state = c == '"' ? BT_JSON_PUSH_STRING : BT_JSON_PUSH_BAD;
    push->in_name = is_name;
}

static void begin_literal(struct bt_json_push *push, const char *rest)
{
    push->literal = rest;
    push->state = BT_JSON_PUSH_LITERAL;
}

static void begin_value(struct bt_json_push *push, char c)
{
    switch (c) {
    case '{':
    case '[':
        open_container(push, c == '{');
        return;
    case 't':
        begin_literal(push, "rue");
        return;
    case 'f':
        begin_literal(push, "alse");
        return;
    case 'n':
        begin_literal(push, "ull");
        return;
    case '-':
        push->state = BT_JSON_PUSH_MINUS;
        return;
    case '0':
        push->state = BT_JSON_PUSH_ZERO;
        return;
    default:
        if (is_digit(c)) {
            push->state = BT_JSON_PUSH_INTEGER;
        } else {
            begin_string(push, c, false);
        }
    }
}

/* Where a number goes on with this byte; COMMA: it is over before it. */
static enum bt_json_push_state after_digit(enum bt_json_push_state state,
                                           char c)
{
    const bool has_e = state == BT_JSON_PUSH_EXPONENT;
    const bool has_point = has_e || state == BT_JSON_PUSH_FRACTION;

    if (is_digit(c)) {
        return state == BT_JSON_PUSH_ZERO ? BT_JSON_PUSH_BAD : state;
    }
    if (c == '.' && !has_point) {
        return BT_JSON_PUSH_POINT;
    }
    return (c == 'e' || c == 'E') && !has_e ? BT_JSON_PUSH_E
                                            : BT_JSON_PUSH_COMMA;
}

static enum bt_json_push_state in_number(enum bt_json_push_state state, char c)
{
    if (state == BT_JSON_PUSH_MINUS) {
        if (c == '0') {
            return BT_JSON_PUSH_ZERO;
        }
        return is_digit(c) ? BT_JSON_PUSH_INTEGER : BT_JSON_PUSH_BAD;
    }
    if (state == BT_JSON_PUSH_POINT) {
        return is_digit(c) ? BT_JSON_PUSH_FRACTION : BT_JSON_PUSH_BAD;
    }
    if (state == BT_JSON_PUSH_E && (c == '+' || c == '-')) {
        return BT_JSON_PUSH_E_SIGN;
    }
    if (state == BT_JSON_PUSH_E || state == BT_JSON_PUSH_E_SIGN) {
        return is_digit(c) ? BT_JSON_PUSH_EXPONENT : BT_JSON_PUSH_BAD;
    }
    return after_digit(state, c);
}

/* A quote, a backslash or a control byte. */
static void in_string(struct bt_json_push *push, char c)
{
    if (c == '"') {
        push->state = push->in_name ? BT_JSON_PUSH_COLON : BT_JSON_PUSH_COMMA;
    } else {
        push->state = c == '\\' ? BT_JSON_PUSH_ESCAPE : BT_JSON_PUSH_BAD;
    }
}

static void in_escape(struct bt_json_push *push, char c)
{
    if (c == 'u') {
        push->hex = 4;
        push->state = BT_JSON_PUSH_HEX;
    } else {
        push->state = c != '\0' && strchr("\"\\/bfnrt", c) != NULL
                          ? BT_JSON_PUSH_STRING
                          : BT_JSON_PUSH_BAD;
    }
}

static void in_hex(struct bt_json_push *push, char c)
{
    push->hex--;
    if (!is_hex(c)) {
        push->state = BT_JSON_PUSH_BAD;
    } else if (push->hex == 0) {
        push->state = BT_JSON_PUSH_STRING;
    }
}

static void in_literal(struct bt_json_push *push, char c)
{
    if (c != *push->literal) {
        push->state = BT_JSON_PUSH_BAD;
        return;
    }
    push->literal++;
    if (*push->literal == '\0') {
        push->state = BT_JSON_PUSH_COMMA;
    }
}

static void behind_value(struct bt_json_push *push, char c)
{
    if (c == ',') {
        push->state =
            top_is_object(push) ? BT_JSON_PUSH_NAME : BT_JSON_PUSH_VALUE;
    } else {
        close_container(push, c);
    }
}

/* Where a container may close at once. */
static bool may_close(enum bt_json_push_state state, char c)
{
    return (state == BT_JSON_PUSH_FIRST_VALUE && c == ']') ||
           (state == BT_JSON_PUSH_FIRST_NAME && c == '}');
}

static void begin_token(struct bt_json_push *push, char c)
{
    switch (push->state) {
    case BT_JSON_PUSH_NAME:
    case BT_JSON_PUSH_FIRST_NAME:
        begin_string(push, c, true);
        return;
    case BT_JSON_PUSH_VALUE:
    case BT_JSON_PUSH_FIRST_VALUE:
        begin_value(push, c);
        return;
    case BT_JSON_PUSH_COLON:
        push->state = c == ':' ? BT_JSON_PUSH_VALUE : BT_JSON_PUSH_BAD;
        return;
    case BT_JSON_PUSH_COMMA:
        behind_value(push, c);
        return;
    case BT_JSON_PUSH_BEFORE:
        if (c == '{') {
            open_container(push, true);
            return;
        }
        push->state = BT_JSON_PUSH_BAD;
        return;
    case BT_JSON_PUSH_STRING:
    case BT_JSON_PUSH_ESCAPE:
    case BT_JSON_PUSH_HEX:
    case BT_JSON_PUSH_LITERAL:
    case BT_JSON_PUSH_MINUS:
    case BT_JSON_PUSH_ZERO:
    case BT_JSON_PUSH_INTEGER:
    case BT_JSON_PUSH_POINT:
    case BT_JSON_PUSH_FRACTION:
    case BT_JSON_PUSH_E:
    case BT_JSON_PUSH_E_SIGN:
    case BT_JSON_PUSH_EXPONENT:
    case BT_JSON_PUSH_AFTER:
    case BT_JSON_PUSH_BAD:
        push->state = BT_JSON_PUSH_BAD;
        return;
    }
}

/* Between tokens, where white space may stand. */
static void between(struct bt_json_push *push, char c)
{
    if (is_space(c)) {
        return;
    }
    if (may_close(push->state, c)) {
        close_container(push, c);
    } else {
        begin_token(push, c);
    }
}

static void take(struct bt_json_push *push, char c)
{
    if (push->state >= BT_JSON_PUSH_MINUS &&
        push->state <= BT_JSON_PUSH_EXPONENT) {
        push->state = in_number(push->state, c);
        if (push->state == BT_JSON_PUSH_COMMA) {
            between(push, c);
        }
    } else if (push->state == BT_JSON_PUSH_STRING) {
        in_string(push, c);
    } else if (push->state == BT_JSON_PUSH_ESCAPE) {
        in_escape(push, c);
    } else if (push->state == BT_JSON_PUSH_HEX) {
        in_hex(push, c);
    } else if (push->state == BT_JSON_PUSH_LITERAL) {
        in_literal(push, c);
    } else {
        between(push, c);
    }
}

bool bt_json_push_feed(struct bt_json_push *push, struct bt_str bytes)
{
    size_t i = 0;

    while (i < bytes.len && push->state != BT_JSON_PUSH_BAD) {
        if (push->state == BT_JSON_PUSH_STRING) {
            i += bt_json_skip_plain(bt_str_span(bytes.ptr + i, bytes.len - i));
        }
        if (i < bytes.len) {
            take(push, bytes.ptr[i]);
            i++;
        }
    }
    return push->state != BT_JSON_PUSH_BAD;
}

bool bt_json_push_is_whole(const struct bt_json_push *push)
{
    return push->state == BT_JSON_PUSH_AFTER;
}
