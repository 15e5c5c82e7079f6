/*
 * blame: from a status and a few words to who is at fault.
 */
#include "proxy/exchange/blame.h"

#include "proxy/exchange/filter.h"
#include "proxy/exchange/relay.h"

#include <string.h>

static bool is_good(const struct blame_facts *facts)
{
    return facts->role == LEG_PREFILL
               ? facts->code == 200
               : facts->code >= 200 && facts->code < 300 && !facts->is_coded;
}

enum blame blame_of(const struct blame_facts *facts)
{
    const unsigned code = facts->code;

    if (is_good(facts)) {
        return BLAME_NOBODY;
    }
    if (facts->role == LEG_PREFILL && facts->forces_tool &&
        (code == 400 || code == 500)) {
        return BLAME_TOOLS;
    }
    if ((code == 401 || code == 403) && facts->engine->key.len > 0) {
        return BLAME_KEY;
    }
    if (code == 503) {
        return BLAME_LOAD;
    }
    if (code == 429) {
        return BLAME_LIMIT;
    }
    if (code >= 500) {
        return BLAME_ENGINE;
    }
    if (code < 400) {
        return BLAME_GARBAGE;
    }
    return facts->is_coded ? BLAME_CODED : BLAME_CLIENT;
}

bool blame_is_coded(const struct bt_http_head *head)
{
    const struct bt_str coding =
        bt_http_field_get(head, BT_STR("content-encoding"));

    return coding.len > 0 && !bt_str_eq_nocase(coding, BT_STR("identity"));
}

/* Does the text hold this name in quotes, of JSON or of Python? */
static bool quotes(struct bt_str text, struct bt_str name)
{
    for (;;) {
        const size_t at = bt_str_find(text, name);
        const char *const behind = text.ptr + at + name.len;

        if (at == text.len) {
            return false;
        }
        if (at > 0 && behind < text.ptr + text.len &&
            (behind[-(ptrdiff_t)name.len - 1] == '"' ||
             behind[-(ptrdiff_t)name.len - 1] == '\'') &&
            (*behind == '"' || *behind == '\'' || *behind == '\\')) {
            return true;
        }
        text = bt_str_span(behind, text.len - at - name.len);
    }
}

bool blame_refuses_params(unsigned code, struct bt_str words)
{
    return (code == 400 || code == 422) && filter_concerns(words, false) &&
           !quotes(words, BT_STR("prompt")) &&
           !quotes(words, BT_STR("messages"));
}

/* NUL: of UTF-16, or of no text at all. */
bool blame_is_public(struct bt_str words)
{
    return words.len <= RELAY_ERROR_MAX && !filter_concerns(words, false) &&
           (words.len == 0 || memchr(words.ptr, '\0', words.len) == NULL);
}
