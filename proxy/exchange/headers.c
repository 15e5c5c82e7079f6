/*
 * headers: the fixed lists of what does not pass, and the copying of the rest.
 */
#include "proxy/exchange/headers.h"

#define NAME(literal)                   \
    {                                   \
        "" literal, sizeof(literal) - 1 \
    }

/* Not passed to engines, beside hop-by-hop fields. */
static const struct bt_str DROPPED[] = {
    NAME("host"),         NAME("expect"),        NAME("accept-encoding"),
    NAME("x-request-id"), NAME("authorization"), /* put back by the leg, by rule
                                                  */
    NAME("forwarded"),    NAME("x-real-ip"),
};
/*
 * Nor these: besides ours and other proxies', the fields by which routers and
 * engines of this field let the sender choose engines, ranks and transfers
 * (llm-d, Dynamo, SGLang, vLLM).
 */
static const struct bt_str DROPPED_PREFIXES[] = {
    NAME("x-baton-"),  NAME("x-forwarded-"),
    NAME("x-prefill"), NAME("x-decode"),
    NAME("x-encode"),  NAME("x-data-parallel-"),
    NAME("x-dp-"),     NAME("x-gateway-destination-"),
    NAME("x-worker-"), NAME("x-dynamo-"),
    NAME("x-smg-"),    NAME("x-sglang-"),
    NAME("x-kv-"),
};
/* May stand once. */
static const struct bt_str SINGLE[] = {
    NAME("content-type"),
    NAME("authorization"),
    NAME("x-request-id"),
};
/* Standing twice they mean nothing and are left out. */
static const struct bt_str TRACE = NAME("traceparent");

static bool is_listed(struct bt_str name, const struct bt_str *list,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].len == name.len && bt_str_eq_nocase(list[i], name)) {
            return true;
        }
    }
    return false;
}

static bool has_prefix(struct bt_str name)
{
    if (!bt_str_starts_nocase(name, BT_STR("x-"))) {
        return false;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(DROPPED_PREFIXES); i++) {
        if (bt_str_starts_nocase(name, DROPPED_PREFIXES[i])) {
            return true;
        }
    }
    return false;
}

static size_t count_of(const struct bt_http_head *head, struct bt_str name)
{
    size_t count = 0;

    for (size_t i = 0; i < head->field_count; i++) {
        count += bt_str_eq_nocase(head->fields[i].name, name) ? 1 : 0;
    }
    return count;
}

static bool passes(const struct bt_http_head *head, struct bt_str name)
{
    return !is_listed(name, DROPPED, BT_ARRAY_LEN(DROPPED)) &&
           !has_prefix(name) && !bt_http_field_is_hop(head, name) &&
           memchr(name.ptr, '_', name.len) == NULL;
}

static struct bt_str copy_fields(const struct bt_http_head *head,
                                 struct bt_arena *arena)
{
    const bool drops_trace = count_of(head, TRACE) > 1;
    size_t size = 1;
    char *text;
    char *at;

    for (size_t i = 0; i < head->field_count; i++) {
        size += head->fields[i].name.len + head->fields[i].value.len + 4;
    }
    text = bt_arena_alloc(arena, size);
    if (text == NULL) {
        return (struct bt_str){0};
    }
    at = text;
    for (size_t i = 0; i < head->field_count; i++) {
        const struct bt_http_field *const field = &head->fields[i];

        if (!passes(head, field->name) ||
            (drops_trace && bt_str_eq_nocase(field->name, TRACE))) {
            continue;
        }
        bt_str_put(&at, field->name);
        bt_str_put(&at, BT_STR(": "));
        bt_str_put(&at, field->value);
        bt_str_put(&at, BT_STR("\r\n"));
    }
    return bt_str_span(text, (size_t)(at - text));
}

enum bt_status headers_read(const struct bt_http_head *head,
                            struct bt_arena *arena, struct headers *headers_p,
                            const char **twice_p)
{
    struct headers headers = {0};

    for (size_t i = 0; i < BT_ARRAY_LEN(SINGLE); i++) {
        if (count_of(head, SINGLE[i]) > 1) {
            *twice_p = SINGLE[i].ptr;
            return BT_ERR_PROTOCOL;
        }
    }
    headers.fields = copy_fields(head, arena);
    headers.request_id =
        bt_arena_dup(arena, bt_http_field_get(head, BT_STR("x-request-id")));
    headers.authorization =
        bt_arena_dup(arena, bt_http_field_get(head, BT_STR("authorization")));
    if (arena->failed) {
        return BT_ERR_NOMEM;
    }
    *headers_p = headers;
    return BT_OK;
}

void headers_write_answer(const struct bt_http_head *head, struct bt_buf *out)
{
    for (size_t i = 0; i < head->field_count; i++) {
        const struct bt_http_field *const field = &head->fields[i];

        if (bt_http_field_is_hop(head, field->name) ||
            bt_str_starts_nocase(field->name, BT_STR("x-baton-")) ||
            /* Which pages may read it is this proxy's to say. */
            bt_str_starts_nocase(field->name, BT_STR("access-control-")) ||
            bt_str_eq_nocase(field->name, BT_STR("x-request-id"))) {
            continue;
        }
        bt_http_write_field(out, field->name, field->value);
    }
}

bool headers_type_is(struct bt_str content_type, struct bt_str type)
{
    const size_t end = bt_str_find(content_type, BT_STR(";"));

    return bt_str_eq_nocase(bt_str_trim(bt_str_span(content_type.ptr, end)),
                            type);
}
