/*
 * cors: the fields of the Fetch standard. Credentials (cookies) are never
 * allowed: keys come in a field that the page sets itself.
 */
#include "proxy/front/cors.h"

#include <inttypes.h>

static const char ANY[] = "*";

static bool has_any(const struct bt_conf_strings *list)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], ANY) == 0) {
            return true;
        }
    }
    return false;
}

bool cors_is_on(const struct cors_conf *cors)
{
    return cors->origins.count > 0;
}

const char *cors_origin(const struct cors_conf *cors,
                        const struct bt_http_head *head)
{
    struct bt_str origin;

    if (!cors_is_on(cors)) {
        return NULL;
    }
    if (has_any(&cors->origins)) {
        return ANY;
    }
    origin = bt_http_field_get(head, BT_STR("origin"));
    for (size_t i = 0; i < cors->origins.count; i++) {
        if (bt_str_eq(origin, bt_str_of(cors->origins.items[i]))) {
            return cors->origins.items[i];
        }
    }
    return NULL;
}

bool cors_is_preflight(const struct bt_http_head *head)
{
    return bt_str_eq(head->method, BT_STR("OPTIONS")) &&
           bt_http_field_find(head, BT_STR("origin")) != NULL &&
           bt_http_field_find(head, BT_STR("access-control-request-method")) !=
               NULL;
}

/* The origin; and that the answer hangs on it, for what stores answers. */
static void write_origin(const struct cors_conf *cors, const char *origin,
                         struct bt_buf *out)
{
    if (origin != NULL) {
        bt_http_write_field(out, BT_STR("Access-Control-Allow-Origin"),
                            bt_str_of(origin));
    }
    if (!has_any(&cors->origins)) {
        bt_http_write_field(out, BT_STR("Vary"), BT_STR("Origin"));
    }
}

static void write_list(const char *name, const struct bt_conf_strings *list,
                       struct bt_buf *out)
{
    bt_buf_printf(out, "%s: ", name);
    for (size_t i = 0; i < list->count; i++) {
        bt_buf_printf(out, "%s%s", i == 0 ? "" : ", ", list->items[i]);
    }
    bt_buf_append(out, BT_STR("\r\n"));
}

void cors_write_preflight(const struct cors_conf *cors, const char *origin,
                          const struct bt_http_head *head, struct bt_buf *out)
{
    const struct bt_str asked =
        bt_http_field_get(head, BT_STR("access-control-request-headers"));

    write_origin(cors, origin, out);
    write_list("Access-Control-Allow-Methods", &cors->methods, out);
    if (!has_any(&cors->headers)) {
        write_list("Access-Control-Allow-Headers", &cors->headers, out);
    } else if (asked.len > 0) {
        /* Named one by one: "*" does not stand for Authorization. */
        bt_http_write_field(out, BT_STR("Access-Control-Allow-Headers"), asked);
        bt_http_write_field(out, BT_STR("Vary"),
                            BT_STR("Access-Control-Request-Headers"));
    }
    if (cors->max_age_ms > 0) {
        bt_buf_printf(out, "Access-Control-Max-Age: %" PRIu64 "\r\n",
                      cors->max_age_ms / 1000);
    }
}

void cors_write_answer(const struct cors_conf *cors, const char *origin,
                       struct bt_str fields, struct bt_buf *out)
{
    bt_buf_append(out, fields);
    write_origin(cors, origin, out);
    if (origin != NULL) {
        bt_buf_append(out, BT_STR("Access-Control-Expose-Headers: *\r\n"));
    }
}
