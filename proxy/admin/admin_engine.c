/*
 * admin_engine: from a request to a change of the roster.
 */
#include "proxy/admin/admin_engine.h"

#define ENGINES "/engines/"

/* --- what is asked for --- */

static bool is(struct bt_str a, const char *b)
{
    return bt_str_eq(a, bt_str_of(b));
}

static bool find_verb(struct bt_str method, bool is_drain,
                      enum admin_engine_verb *verb_p)
{
    if (is(method, "DELETE")) {
        *verb_p = is_drain ? ADMIN_ENGINE_TAKE_BACK : ADMIN_ENGINE_REMOVE;
        return true;
    }
    *verb_p = is_drain ? ADMIN_ENGINE_DRAIN : ADMIN_ENGINE_SHOW;
    return is_drain ? is(method, "POST")
                    : is(method, "GET") || is(method, "HEAD");
}

bool admin_engine_find(struct bt_str method, struct bt_str path,
                       struct admin_engine_ask *ask_p, const char **allow_p)
{
    struct bt_str id;
    size_t slash;
    bool is_drain;

    *allow_p = NULL;
    if (is(path, "/engines") && is(method, "POST")) {
        ask_p->verb = ADMIN_ENGINE_ADD;
        return true;
    }
    if (!bt_str_starts(path, BT_STR(ENGINES))) {
        return false;
    }
    id = bt_str_skip(path, sizeof(ENGINES) - 1);
    slash = bt_str_find(id, BT_STR("/"));
    is_drain = is(bt_str_skip(id, slash), "/drain");
    if ((slash < id.len && !is_drain) ||
        bt_str_to_u64(bt_str_cut(id, slash), &ask_p->id) != BT_OK) {
        return false;
    }
    if (!find_verb(method, is_drain, &ask_p->verb)) {
        *allow_p = is_drain ? "Content-Type: application/json\r\n"
                              "Allow: POST, DELETE\r\n"
                            : "Content-Type: application/json\r\n"
                              "Allow: GET, HEAD, DELETE\r\n";
    }
    return true;
}

/* --- who may --- */

/* A name might be another site's, which leads here by its DNS (rebinding). */
static bool is_own_host(struct bt_str authority)
{
    unsigned char address[16];
    struct bt_str host;
    struct bt_str port;

    if (!bt_str_split_host(authority, &host, &port)) {
        host = authority;
    }
    return host.len == 0 || bt_str_eq_nocase(host, BT_STR("localhost")) ||
           bt_host_bytes(host, address);
}

static bool is_forwarded(const struct bt_http_head *head)
{
    static const char *const FIELDS[] = {"forwarded", "via", "x-real-ip",
                                         "x-forwarded-for"};

    for (size_t i = 0; i < BT_ARRAY_LEN(FIELDS); i++) {
        if (bt_http_field_get(head, bt_str_of(FIELDS[i])).ptr != NULL) {
            return true;
        }
    }
    return false;
}

unsigned admin_engine_refuses(const struct admin_sources *sources,
                              const struct admin_engine_ask *ask,
                              const struct bt_http_head *head,
                              const struct bt_addr *peer, const char **why_p)
{
    if (ask->verb == ADMIN_ENGINE_SHOW) {
        return 0;
    }
    if (bt_http_field_get(head, BT_STR("origin")).ptr != NULL) {
        *why_p = "pages in a browser (Origin) may not change engines";
        return 403;
    }
    if (auth_is_needed(sources->auth)) {
        *why_p = "show a key of auth.admin_keys_file (Authorization: Bearer)";
        return auth_allows(sources->auth,
                           bt_http_field_get(head, BT_STR("authorization")))
                   ? 0
                   : 401;
    }
    if (!bt_addr_is_local(peer) || is_forwarded(head)) {
        *why_p = "without auth.admin_keys_file engines are changed from this "
                 "host alone, and through no proxy";
        return 403;
    }
    *why_p = "without auth.admin_keys_file the Host must be an address or "
             "localhost";
    return is_own_host(bt_http_field_get(head, BT_STR("host"))) ? 0 : 403;
}

/* --- doing it --- */

static unsigned code_of(enum bt_status status)
{
    switch ((int)status) {
    case BT_ERR_SYNTAX:
        return 400;
    case BT_ERR_EXISTS:
    case BT_ERR_CLOSED:
    case BT_ERR_UNSUPPORTED:
        return 409;
    default: /* memory, room, a key file that went away */
        return 503;
    }
}

static unsigned show(const struct admin_sources *sources,
                     const struct engine *engine, unsigned code,
                     struct bt_buf *body, struct bt_conf_error *error_p)
{
    if (admin_view_engine(sources, engine, body)) {
        return code;
    }
    (void)bt_conf_fail(error_p, "out of memory");
    return 500;
}

static unsigned add(const struct admin_sources *sources, struct bt_str request,
                    uint64_t *id_p, struct bt_buf *body,
                    struct bt_conf_error *error_p)
{
    struct engine *engine = NULL;
    const enum bt_status status =
        roster_add(sources->roster, request, &engine, error_p);

    if (status == BT_ERR_EXISTS) {
        (void)bt_conf_fail(error_p, "the pool has an engine of this URL and "
                                    "role; GET /engines shows it");
    } else if (status == BT_ERR_LIMIT) {
        (void)bt_conf_fail(error_p, "there are %u engines; remove one first",
                           ENGINES_MAX);
    }
    if (status != BT_OK) {
        return code_of(status);
    }
    *id_p = engine->id;
    return show(sources, engine, 201, body, error_p);
}

static enum bt_status change(const struct admin_sources *sources,
                             enum admin_engine_verb verb, struct engine *engine,
                             struct bt_conf_error *error_p)
{
    enum bt_status status = BT_OK;

    if (verb == ADMIN_ENGINE_REMOVE) {
        status = roster_remove(sources->roster, engine);
    } else if (verb != ADMIN_ENGINE_SHOW) {
        status =
            roster_drain(sources->roster, engine, verb == ADMIN_ENGINE_DRAIN);
    }
    (void)bt_conf_fail(
        error_p, "%s",
        status == BT_ERR_UNSUPPORTED
            ? "the configuration brought this engine: take it out there; POST "
              "/engines/{id}/drain keeps requests away from it until then"
        : status == BT_ERR_CLOSED ? "this engine is being removed"
                                  : bt_status_text(status));
    return status;
}

unsigned admin_engine_do(const struct admin_sources *sources,
                         struct admin_engine_ask *ask, struct bt_str request,
                         struct bt_buf *body, struct bt_conf_error *error_p)
{
    struct engine *engine;
    enum bt_status status;

    if (ask->verb == ADMIN_ENGINE_ADD) {
        return add(sources, request, &ask->id, body, error_p);
    }
    engine = fleet_find(sources->fleet, ask->id);
    if (engine == NULL || atomic_load(&engine->state) == ENGINE_GONE) {
        (void)bt_conf_fail(error_p, "there is no engine %llu, or none any more",
                           (unsigned long long)ask->id);
        return 404;
    }
    status = change(sources, ask->verb, engine, error_p);
    if (status != BT_OK) {
        return code_of(status);
    }
    return show(sources, engine,
                ask->verb == ADMIN_ENGINE_REMOVE ||
                        ask->verb == ADMIN_ENGINE_DRAIN
                    ? 202
                    : 200,
                body, error_p);
}
