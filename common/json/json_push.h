/*
 * Validates one JSON object (RFC 8259) that comes in pieces, of any lengths,
 * and keeps none of its bytes. It takes what bt_json_check() takes of the
 * whole text, objects alone.
 */
#ifndef COMMON_JSON_JSON_PUSH_H
#define COMMON_JSON_JSON_PUSH_H

#include "common/json/json.h"

enum bt_json_push_state {
    BT_JSON_PUSH_BEFORE,      /* no '{' yet */
    BT_JSON_PUSH_VALUE,       /* a value must begin */
    BT_JSON_PUSH_FIRST_VALUE, /* or ']' */
    BT_JSON_PUSH_NAME,
    BT_JSON_PUSH_FIRST_NAME, /* or '}' */
    BT_JSON_PUSH_COLON,
    BT_JSON_PUSH_COMMA, /* behind a value: or a closing bracket */
    BT_JSON_PUSH_STRING,
    BT_JSON_PUSH_ESCAPE,
    BT_JSON_PUSH_HEX,
    BT_JSON_PUSH_LITERAL,
    BT_JSON_PUSH_MINUS, /* the numbers' states, in their order */
    BT_JSON_PUSH_ZERO,
    BT_JSON_PUSH_INTEGER,
    BT_JSON_PUSH_POINT,
    BT_JSON_PUSH_FRACTION,
    BT_JSON_PUSH_E,
    BT_JSON_PUSH_E_SIGN,
    BT_JSON_PUSH_EXPONENT,
    BT_JSON_PUSH_AFTER, /* the object is over */
    BT_JSON_PUSH_BAD,
};

/* Zeroed, it stands before the text. */
struct bt_json_push {
    enum bt_json_push_state state;
    unsigned depth; /* open containers */
    uint64_t is_object[BT_JSON_DEPTH_MAX / 64];
    const char *literal; /* what must still come of true, false or null */
    unsigned hex;        /* digits of an escape to come */
    bool in_name;        /* this string is one */
};

/* False: the bytes so far begin no JSON object; it stays so. */
bool bt_json_push_feed(struct bt_json_push *push, struct bt_str bytes);
/* Were the bytes one whole object, with white space around it at most? */
bool bt_json_push_is_whole(const struct bt_json_push *push);

#endif
