/*
 * client: the allow-list of endpoints, the checks before a body is read, and
 * the reading of the body.
 */
#include "proxy/front/client.h"

#include "proxy/base/quota.h"
#include "proxy/exchange/exchange.h"
#include "proxy/front/cors.h"
#include "proxy/front/models.h"

#include <stdlib.h>
#include <unistd.h>

#define DIRECT_BYTES (16 * BT_KIB)
#define UNSENT_MAX   (64 * BT_KIB)

enum path {
    PATH_UNKNOWN,
    PATH_COMPLETIONS,
    PATH_CHAT,
    PATH_MODELS,
    PATH_MODEL,
    PATH_HEALTH,
    PATH_READY,
};

struct client {
    struct front *front;
    LIST_ENTRY(client) entry;
    struct bt_grave grave;
    struct bt_http_conn *conn;
    struct sink sink;
    struct exchange *exchange; /* NULL: none, or it needs us no more */
    uint64_t sending; /* the one whose answer is not all sent; 0: none */
    struct models *models;
    struct bt_buf unsent; /* body bytes of this turn, one write */
    struct bt_deferred flush;
    bool is_full;        /* the connection is above high water */
    struct quota *quota; /* of its address; NULL: no limit */
    const char *origin;  /* that may read this answer in a browser, or NULL */
    char peer[BT_ADDR_TEXT_MAX];
};

/* --- the sink --- */

static struct client *client_of(struct sink *sink)
{
    return bt_container_of(sink, struct client, sink);
}

/* The lines as a browser needs them; `lines` holds what had to be written. */
static struct bt_str fields_of(const struct client *client,
                               struct bt_str fields, struct bt_buf *lines)
{
    const struct cors_conf *const cors = &client->front->local->config->cors;

    if (!cors_is_on(cors)) {
        return fields;
    }
    cors_write_answer(cors, client->origin, fields, lines);
    return lines->failed ? fields : bt_buf_str(lines);
}

static void send_whole(struct client *client, unsigned code,
                       struct bt_str fields, struct bt_str body)
{
    struct bt_buf lines = {0};

    bt_http_conn_answer(client->conn, code, fields_of(client, fields, &lines),
                        body);
    bt_buf_fini(&lines);
}

/* Its answer is given. What it leaves unsent will be told once more. */
static void let_go(struct client *client)
{
    struct exchange *const x = client->exchange;

    client->exchange = NULL;
    client->models = NULL;
    if (x != NULL && bt_http_conn_unsent(client->conn) > 0) {
        x->is_unsent = true;
        client->sending = x->id;
    }
}

static void sink_answer(struct sink *sink, unsigned code, struct bt_str fields,
                        struct bt_str body)
{
    struct client *const client = client_of(sink);

    send_whole(client, code, fields, body);
    let_go(client);
}

static void sink_head(struct sink *sink, unsigned code, struct bt_str fields)
{
    struct client *const client = client_of(sink);
    struct bt_buf lines = {0};

    bt_http_conn_answer_head(client->conn, code,
                             fields_of(client, fields, &lines), BT_HTTP_CHUNKED,
                             0);
    bt_buf_fini(&lines);
}

static void write_body(struct client *client, const struct iovec *iov,
                       int count)
{
    if (bt_http_conn_answer_body(client->conn, iov, count) == BT_AGAIN) {
        client->is_full = true;
    }
}

static void flush(struct client *client)
{
    bt_deferred_clear(&client->flush);
    if (client->unsent.len > 0 && client->conn != NULL) {
        const struct iovec iov = {client->unsent.data + client->unsent.at,
                                  client->unsent.len};

        write_body(client, &iov, 1);
        bt_buf_clear(&client->unsent);
    }
}

static void on_flush(struct bt_deferred *deferred)
{
    flush(bt_container_of(deferred, struct client, flush));
}

/*
 * An engine that frames each event as a chunk gives a piece for each: they are
 * collected until the turn ends, so that what arrived together leaves
 * together. Large pieces are written as they are.
 */
static enum bt_status sink_body(struct sink *sink, const struct iovec *iov,
                                int count)
{
    struct client *const client = client_of(sink);
    size_t size = 0;

    for (int i = 0; i < count; i++) {
        size += iov[i].iov_len;
    }
    if (size >= DIRECT_BYTES || client->unsent.len + size > UNSENT_MAX ||
        !bt_buf_reserve(&client->unsent, size)) {
        flush(client);
        write_body(client, iov, count);
        return client->is_full ? BT_AGAIN : BT_OK;
    }
    for (int i = 0; i < count; i++) {
        bt_buf_append(&client->unsent,
                      bt_str_span(iov[i].iov_base, iov[i].iov_len));
    }
    bt_loop_defer(client->front->local->loop, &client->flush);
    return client->is_full ? BT_AGAIN : BT_OK;
}

static void sink_end(struct sink *sink)
{
    struct client *const client = client_of(sink);

    bt_deferred_clear(&client->flush);
    bt_http_conn_answer_last(client->conn, bt_buf_str(&client->unsent));
    bt_buf_clear(&client->unsent);
    let_go(client);
}

static void sink_cut(struct sink *sink)
{
    struct client *const client = client_of(sink);

    flush(client);
    bt_http_conn_answer_cut(client->conn);
    let_go(client);
}

static const struct sink_ops SINK_OPS = {
    .answer = sink_answer,
    .head = sink_head,
    .body = sink_body,
    .end = sink_end,
    .cut = sink_cut,
};

/* --- refusals and what is answered here --- */

struct refusal {
    enum fault fault;
    struct bt_str detail;
    struct bt_str fields; /* further lines */
};

/* The client's own name of its request; empty: none, or no head came. */
static struct bt_str request_id(const struct bt_http_head *head)
{
    if (head == NULL) {
        return (struct bt_str){0};
    }
    return bt_http_field_get(head, BT_STR("x-request-id"));
}

static void log_refusal(struct client *client, const struct bt_http_head *head,
                        unsigned code, enum fault fault)
{
    static const struct bt_http_head NO_HEAD;
    const struct bt_http_head *const known = head == NULL ? &NO_HEAD : head;
    const struct access_refusal line = {
        .peer = client->peer,
        .method = known->method,
        .path = known->path,
        .request_id = request_id(head),
        .code = code,
        .fault = fault,
    };

    access_log_refusal(client->front->access_log, &line);
}

static void answer(struct client *client, const struct bt_http_head *head,
                   unsigned code, const struct bt_buf *fields,
                   const struct bt_buf *body)
{
    const struct bt_str id = request_id(head);
    struct bt_buf lines = {0};

    bt_buf_append(&lines, BT_STR("Content-Type: application/json\r\n"));
    if (fields != NULL) {
        bt_buf_append(&lines, bt_buf_str(fields));
    }
    if (id.len > 0) {
        bt_http_write_field(&lines, BT_STR("X-Request-Id"), id);
    }
    stats_code(client->front->local->metrics, code);
    if (lines.failed || body->failed) {
        bt_http_conn_answer_cut(client->conn);
    } else {
        send_whole(client, code, bt_buf_str(&lines), bt_buf_str(body));
    }
    bt_buf_fini(&lines);
}

static void refuse(struct client *client, const struct bt_http_head *head,
                   const struct refusal *refusal)
{
    const unsigned code = fault_status(refusal->fault);
    struct bt_buf fields = {0};
    struct bt_buf body = {0};

    bt_buf_append(&fields, refusal->fields);
    if (fault_is_passing(refusal->fault)) {
        bt_buf_append(&fields, BT_STR("Retry-After: 1\r\n"));
    }
    fault_write(&body, refusal->fault, 0, refusal->detail);
    stats_count(client->front->local->metrics, STAT_FAULTS, refusal->fault);
    log_refusal(client, head, code, refusal->fault);
    answer(client, head, code, &fields, &body);
    bt_buf_fini(&fields);
    bt_buf_fini(&body);
}

static void refuse_plain(struct client *client, const struct bt_http_head *head,
                         enum fault fault)
{
    refuse(client, head, &(struct refusal){.fault = fault});
}

static void serve_health(struct client *client, const struct bt_http_head *head)
{
    struct bt_buf body = {0};

    bt_buf_append(&body, BT_STR("{\"status\":\"ok\"}"));
    answer(client, head, 200, NULL, &body);
    bt_buf_fini(&body);
}

static void serve_ready(struct client *client, const struct bt_http_head *head)
{
    struct program *const program = client->front->local->program;
    const char *why = "the proxy is draining";
    const bool is_ready = !atomic_load(&program->is_draining) &&
                          fleet_is_ready(program->fleet, &why);
    struct bt_buf body = {0};

    if (is_ready) {
        bt_buf_append(&body, BT_STR("{\"status\":\"ready\"}"));
    } else {
        bt_buf_printf(&body, "{\"status\":\"not_ready\",\"reason\":\"%s\"}",
                      why);
    }
    answer(client, head, is_ready ? 200 : 503, NULL, &body);
    bt_buf_fini(&body);
}

/* --- the head --- */

static enum path path_of(struct bt_str path)
{
    const struct bt_str models = BT_STR("/v1/models");

    if (bt_str_eq(path, BT_STR("/v1/chat/completions"))) {
        return PATH_CHAT;
    }
    if (bt_str_eq(path, BT_STR("/v1/completions"))) {
        return PATH_COMPLETIONS;
    }
    if (bt_str_eq(path, models)) {
        return PATH_MODELS;
    }
    if (bt_str_starts(path, models) && path.len > models.len + 1 &&
        path.ptr[models.len] == '/') {
        return PATH_MODEL;
    }
    if (bt_str_eq(path, BT_STR("/health"))) {
        return PATH_HEALTH;
    }
    return bt_str_eq(path, BT_STR("/ready")) ? PATH_READY : PATH_UNKNOWN;
}

static bool is_post_path(enum path path)
{
    return path == PATH_COMPLETIONS || path == PATH_CHAT;
}

static bool needs_key(enum path path)
{
    return path != PATH_HEALTH && path != PATH_READY;
}

static bool method_fits(enum path path, struct bt_str method)
{
    if (is_post_path(path)) {
        return bt_str_eq(method, BT_STR("POST"));
    }
    return bt_str_eq(method, BT_STR("GET")) ||
           bt_str_eq(method, BT_STR("HEAD"));
}

/* A browser asks what a page may do. It sends no key with that. */
static bool serve_preflight(struct client *client,
                            const struct bt_http_head *head)
{
    const struct cors_conf *const cors = &client->front->local->config->cors;
    struct bt_buf lines = {0};

    if (client->origin == NULL || !cors_is_preflight(head)) {
        return false;
    }
    cors_write_preflight(cors, client->origin, head, &lines);
    stats_code(client->front->local->metrics, 204);
    if (lines.failed) {
        bt_http_conn_answer_cut(client->conn);
    } else {
        bt_http_conn_answer(client->conn, 204, bt_buf_str(&lines),
                            (struct bt_str){0});
    }
    bt_buf_fini(&lines);
    return true;
}

/* True when the request was answered. */
static bool check_head(struct client *client, const struct bt_http_head *head,
                       enum path path)
{
    const struct auth *const auth = client->front->local->program->auth;

    if (path == PATH_UNKNOWN) {
        refuse_plain(client, head, FAULT_NOT_FOUND);
        return true;
    }
    if (serve_preflight(client, head)) {
        return true;
    }
    if (!method_fits(path, head->method)) {
        refuse(
            client, head,
            &(struct refusal){.fault = FAULT_BAD_METHOD,
                              .fields = is_post_path(path)
                                            ? BT_STR("Allow: POST\r\n")
                                            : BT_STR("Allow: GET, HEAD\r\n")});
        return true;
    }
    if (auth_is_needed(auth) && needs_key(path) &&
        !auth_allows(auth, bt_http_field_get(head, BT_STR("authorization")))) {
        refuse(client, head,
               &(struct refusal){.fault = FAULT_UNAUTHORIZED,
                                 .fields =
                                     BT_STR("WWW-Authenticate: Bearer\r\n")});
        return true;
    }
    /* HTTP/1.0 has no expectations (RFC 9110, 10.1.1). */
    if (head->minor > 0 && !head->expects_continue &&
        bt_http_field_find(head, BT_STR("expect")) != NULL) {
        refuse_plain(client, head, FAULT_EXPECTATION);
        return true;
    }
    return false;
}

/* Room for one more request and for its body? True when refused. */
static bool check_room(struct client *client, const struct bt_http_head *head)
{
    const struct config *const config = client->front->local->config;
    const uint64_t limit = config->limits.body;

    if (config->limits.in_flight > 0 &&
        client->front->local->exchange_count + models_count(client->front) >=
            (size_t)config->limits.in_flight) {
        refuse_plain(client, head, FAULT_TOO_MANY);
        return true;
    }
    if (head->framing == BT_HTTP_LENGTH && limit > 0 &&
        head->content_length > limit) {
        refuse_plain(client, head, FAULT_BODY_TOO_LARGE);
        return true;
    }
    return false;
}

/* The exchange's verdict on the head; FAULT_NONE: the body may be read. */
static enum fault fill_exchange(struct exchange *x,
                                const struct bt_http_head *head,
                                const char **twice_p)
{
    struct bt_str target = head->path;

    if (head->query.len > 0) {
        target = bt_arena_printf(&x->arena, "%.*s?%.*s", BT_STR_ARG(head->path),
                                 BT_STR_ARG(head->query));
    } else {
        target = bt_arena_dup(&x->arena, target);
    }
    x->target = target;
    switch (headers_read(head, &x->arena, &x->headers, twice_p)) {
    case BT_OK:
        break;
    case BT_ERR_PROTOCOL:
        return FAULT_BAD_REQUEST;
    case BT_AGAIN:
    case BT_ERR_NOMEM:
    case BT_ERR_SYSTEM:
    case BT_ERR_SYNTAX:
    case BT_ERR_RANGE:
    case BT_ERR_LIMIT:
    case BT_ERR_NOT_FOUND:
    case BT_ERR_EXISTS:
    case BT_ERR_UNSUPPORTED:
    case BT_ERR_REFUSED:
    case BT_ERR_RESET:
    case BT_ERR_CLOSED:
    case BT_ERR_TIMEOUT:
        return FAULT_OVERLOADED;
    }
    if (x->arena.failed) {
        return FAULT_OVERLOADED;
    }
    return head->framing == BT_HTTP_LENGTH
               ? exchange_reserve_body(x, head->content_length)
               : FAULT_NONE;
}

static void open_exchange(struct client *client,
                          const struct bt_http_head *head, enum path path)
{
    struct exchange *const x =
        exchange_open(client->front->local, &client->sink,
                      path == PATH_CHAT ? ENDPOINT_CHAT : ENDPOINT_COMPLETIONS);
    const char *twice = "";
    enum fault fault;

    if (x == NULL) {
        refuse_plain(client, head, FAULT_OVERLOADED);
        return;
    }
    client->exchange = x;
    x->quota = client->quota;
    x->peer = bt_arena_dup(&x->arena, bt_str_of(client->peer));
    fault = fill_exchange(x, head, &twice);
    if (fault != FAULT_NONE) {
        exchange_refuse(x, fault, 0, bt_str_of(twice));
        return;
    }
    if (head->framing != BT_HTTP_NO_BODY) {
        bt_http_conn_read_body(client->conn, head->framing == BT_HTTP_LENGTH
                                                 ? bt_buf_tail(&x->body)
                                                 : NULL);
    }
}

static void open_models(struct client *client, const struct bt_http_head *head,
                        enum path path)
{
    client->models =
        models_open(client->front, &client->sink,
                    path == PATH_MODEL
                        ? bt_str_span(head->path.ptr + 11, head->path.len - 11)
                        : (struct bt_str){0});
    if (client->models == NULL) {
        refuse_plain(client, head, FAULT_OVERLOADED);
    }
}

static void on_head(void *owner, const struct bt_http_head *head)
{
    struct client *const client = owner;
    const enum path path = path_of(head->path);

    client->is_full = false;
    client->origin = cors_origin(&client->front->local->config->cors, head);
    if (check_head(client, head, path)) {
        return;
    }
    switch (path) {
    case PATH_UNKNOWN:
        return;
    case PATH_HEALTH:
        serve_health(client, head);
        return;
    case PATH_READY:
        serve_ready(client, head);
        return;
    case PATH_MODELS:
    case PATH_MODEL:
        if (!check_room(client, head)) {
            open_models(client, head, path);
        }
        return;
    case PATH_COMPLETIONS:
    case PATH_CHAT:
        if (!check_room(client, head)) {
            open_exchange(client, head, path);
        }
        return;
    }
}

/* --- the body --- */

static void on_body(void *owner, struct bt_str bytes)
{
    struct client *const client = owner;
    struct exchange *const x = client->exchange;
    const uint64_t limit = client->front->local->config->limits.body;
    enum fault fault;

    if (x == NULL) {
        return;
    }
    fault = limit > 0 && x->body.len + bytes.len > limit
                ? FAULT_BODY_TOO_LARGE
                : exchange_take_body(x, bytes);
    if (fault != FAULT_NONE) {
        exchange_refuse(x, fault, 0, (struct bt_str){0});
    }
}

static void on_request(void *owner)
{
    struct client *const client = owner;
    const struct exchange_event event = {.kind = XE_START};

    if (client->exchange != NULL) {
        exchange_on(client->exchange, &event);
    }
}

/* The exchange that waits for this client, if any: it is being answered, or
 * its answer is being sent. */
static struct exchange *exchange_of(struct client *client)
{
    return client->exchange != NULL || client->sending == 0
               ? client->exchange
               : exchange_find(client->front->local, client->sending);
}

static void on_room(void *owner)
{
    struct client *const client = owner;
    struct exchange *const x = exchange_of(client);
    const struct exchange_event event = {.kind = XE_ROOM};

    client->is_full = false;
    client->sending = 0;
    if (x != NULL) {
        exchange_on(x, &event);
    }
}

static void leave(struct client *client)
{
    struct exchange *const x = exchange_of(client);
    const struct exchange_event event = {.kind = XE_CLIENT_GONE};

    client->exchange = NULL;
    client->sending = 0;
    bt_deferred_clear(&client->flush);
    bt_buf_clear(&client->unsent);
    models_cancel(&client->models);
    if (x != NULL) {
        x->is_stuck =
            client->conn != NULL && bt_http_conn_is_stuck(client->conn);
        exchange_on(x, &event);
    }
}

static void on_gone(void *owner)
{
    leave(owner);
}

static void on_bad(void *owner, unsigned code, const char *reason)
{
    struct client *const client = owner;
    const enum fault fault = fault_of_http(code);

    if (client->exchange != NULL) {
        exchange_refuse(client->exchange, fault, 0, bt_str_of(reason));
        return;
    }
    client->origin = NULL; /* that of the request before */
    refuse(client, NULL,
           &(struct refusal){.fault = fault, .detail = bt_str_of(reason)});
}

static void destroy(struct bt_grave *grave)
{
    struct client *const client = bt_container_of(grave, struct client, grave);

    bt_buf_fini(&client->unsent);
    free(client);
}

static void bury(struct client *client)
{
    struct front *const front = client->front;

    leave(client);
    LIST_REMOVE(client, entry);
    front->client_count--;
    quota_leave(client->quota);
    stats_add(front->local->metrics, STAT_CONNECTIONS, -1);
    bt_loop_bury(front->local->loop, &client->grave, destroy);
    front->local->events->on_less(front->local->owner);
}

static void on_closed(void *owner)
{
    struct client *const client = owner;

    leave(client);
    client->conn = NULL;
    bury(client);
}

static const struct bt_http_conn_events EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_request = on_request,
    .on_room = on_room,
    .on_gone = on_gone,
    .on_bad = on_bad,
    .on_closed = on_closed,
};

void client_open(struct front *front, int fd, struct quota *quota)
{
    struct client *const client = calloc(1, sizeof(*client));

    if (client == NULL) {
        (void)close(fd);
        quota_leave(quota);
        return;
    }
    client->front = front;
    client->quota = quota;
    client->sink.ops = &SINK_OPS;
    client->flush.on_run = on_flush;
    if (bt_http_conn_open(front->local->loop, fd, &front->conn_options, &EVENTS,
                          client, &client->conn) != BT_OK) {
        quota_leave(quota);
        free(client);
        return;
    }
    bt_addr_format(bt_http_conn_peer(client->conn), client->peer);
    LIST_INSERT_HEAD(&front->clients, client, entry);
    front->client_count++;
    stats_add(front->local->metrics, STAT_CONNECTIONS, 1);
}

void client_finish(struct client *client)
{
    if (client->conn != NULL) {
        bt_http_conn_finish(client->conn);
    }
}

void client_abort(struct client *client)
{
    leave(client);
    if (client->conn != NULL) {
        bt_http_conn_abort(&client->conn);
        bury(client);
    }
}

struct client *client_next(const struct client *client)
{
    return LIST_NEXT(client, entry);
}
