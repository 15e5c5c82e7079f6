/*
 * The admin listener: connections, the table of paths. The JSON of /engines
 * and /handoffs is made in admin_view.c, single engines are admin_engine.c's.
 *
 *   request -> waiting (by turns) -> one answer a turn of the loop
 *
 * An answer costs milliseconds and a megabyte. The agents' links share the
 * thread, so they never wait for more than one; and a connection that does not
 * read holds one at most, since its next request waits until it is sent.
 */
#include "proxy/admin/admin.h"

#include "common/base/log.h"
#include "common/http/http_conn.h"
#include "common/json/json_write.h"
#include "proxy/admin/admin_engine.h"
#include "proxy/admin/admin_view.h"
#include "proxy/base/control_listener.h"
#include "proxy/metrics/control_stats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#define CONNS_MAX 64

struct admin_conn {
    struct bt_grave grave;
    TAILQ_ENTRY(admin_conn) entry;
    TAILQ_ENTRY(admin_conn) turn; /* while it waits for its answer */
    struct admin *admin;
    struct bt_http_conn *conn;
    bool is_waiting;
    bool is_reading;             /* its body is awaited */
    size_t path;                 /* of its request, among PATHS; or none: */
    struct admin_engine_ask ask; /* of a single engine */
    struct bt_buf body;
};
TAILQ_HEAD(admin_conn_list, admin_conn);

struct admin {
    struct admin_sources sources;
    struct control_listener listener;
    struct admin_conn_list conns;
    size_t conn_count;
    struct admin_conn_list waiting;
    struct bt_deferred answering;
    struct bt_http_idle idle;
    struct bt_http_conn_options conn_options;
};

static const struct bt_http_conn_options CONN_OPTIONS = {
    .parse = {.head_bytes = 16384, .target_bytes = 4096, .fields = 64},
    .high_water = 1048576,
    .head_timeout_ms = 10000,
    .body_timeout_ms = 10000,
    .write_timeout_ms = 10000,
    .keep_alive_ms = 75000,
    .adds_date = true,
    .half_close_is_gone = false,
};

static const char BUSY[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    "Retry-After: 1\r\nConnection: close\r\nContent-Length: 33\r\n\r\n"
    "{\"error\":\"too many connections\"}\n";

static const char JSON_FIELDS[] = "Content-Type: application/json\r\n"
                                  "Cache-Control: no-store\r\n";
static const char TEXT_FIELDS[] =
    "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    "Cache-Control: no-store\r\n";

#define ALLOW_GET "Content-Type: application/json\r\nAllow: GET, HEAD\r\n"
#define ALLOW_POST \
    "Content-Type: application/json\r\nAllow: GET, HEAD, POST\r\n"

/* Writes the body; the status is returned. */
static unsigned get_metrics(const struct admin *admin, struct bt_buf *body)
{
    struct bt_metrics *const own[] = {admin->sources.stats};

    if (admin->sources.metrics_count > 0) {
        bt_metrics_write(admin->sources.metrics, admin->sources.metrics_count,
                         body);
    }
    bt_metrics_write(own, 1, body);
    return 200;
}

static unsigned get_engines(const struct admin *admin, struct bt_buf *body)
{
    return admin_view_engines(&admin->sources, body) ? 200 : 500;
}

static unsigned get_handoffs(const struct admin *admin, struct bt_buf *body)
{
    return admin_view_handoffs(admin->sources.handoffs, body) ? 200 : 500;
}

static unsigned get_health(const struct admin *admin, struct bt_buf *body)
{
    (void)admin;
    bt_buf_append(body, BT_STR("{\"status\":\"ok\"}\n"));
    return 200;
}

static unsigned get_ready(const struct admin *admin, struct bt_buf *body)
{
    const atomic_bool *const draining = admin->sources.is_draining;
    const char *why = "";
    bool is_ready = fleet_is_ready(admin->sources.fleet, &why);

    if (draining != NULL && atomic_load(draining)) {
        is_ready = false;
        why = "draining";
    }
    if (is_ready) {
        bt_buf_append(body, BT_STR("{\"status\":\"ready\"}\n"));
        return 200;
    }
    bt_buf_append(body, BT_STR("{\"status\":\"not ready\",\"reason\":"));
    bt_buf_append_json(body, bt_str_of(why));
    bt_buf_append(body, BT_STR("}\n"));
    return 503;
}

static const struct {
    const char *path;
    const char *fields;
    const char *allow; /* of a 405 */
    unsigned (*get)(const struct admin *admin, struct bt_buf *body);
} PATHS[] = {
    {"/metrics", TEXT_FIELDS, ALLOW_GET, get_metrics},
    {"/engines", JSON_FIELDS, ALLOW_POST, get_engines},
    {"/handoffs", JSON_FIELDS, ALLOW_GET, get_handoffs},
    {"/health", JSON_FIELDS, ALLOW_GET, get_health},
    {"/ready", JSON_FIELDS, ALLOW_GET, get_ready},
};

static void answer_error(struct admin_conn *conn, unsigned code,
                         const char *fields, const char *why)
{
    struct bt_buf body;

    bt_buf_init(&body);
    bt_buf_append(&body, BT_STR("{\"error\":"));
    bt_buf_append_json(&body, bt_str_of(why));
    bt_buf_append(&body, BT_STR("}\n"));
    bt_http_conn_answer(conn->conn, code, bt_str_of(fields), bt_buf_str(&body));
    bt_buf_fini(&body);
}

static void answer_engine(struct admin_conn *conn)
{
    struct bt_conf_error error = {{0}};
    struct bt_buf fields = {0};
    struct bt_buf body = {0};
    const unsigned code =
        admin_engine_do(&conn->admin->sources, &conn->ask,
                        bt_buf_str(&conn->body), &body, &error);

    bt_buf_fini(&conn->body);
    bt_buf_append(&fields, bt_str_of(JSON_FIELDS));
    if (code == 201) {
        bt_buf_printf(&fields, "Location: /engines/%" PRIu64 "\r\n",
                      conn->ask.id);
    }
    if (code >= 300 || fields.failed) {
        answer_error(conn, fields.failed ? 500 : code, JSON_FIELDS, error.text);
    } else {
        bt_http_conn_answer(conn->conn, code, bt_buf_str(&fields),
                            bt_buf_str(&body));
    }
    bt_buf_fini(&fields);
    bt_buf_fini(&body);
}

static void answer_path(struct admin_conn *conn)
{
    const size_t index = conn->path;
    struct bt_buf body;
    unsigned code;

    if (index == BT_ARRAY_LEN(PATHS)) {
        answer_engine(conn);
        return;
    }
    bt_buf_init(&body);
    code = PATHS[index].get(conn->admin, &body);
    if (code == 500 || body.failed) {
        answer_error(conn, 500, JSON_FIELDS, "out of memory");
    } else {
        bt_http_conn_answer(conn->conn, code, bt_str_of(PATHS[index].fields),
                            bt_buf_str(&body));
    }
    bt_buf_fini(&body);
}

static void leave_turn(struct admin_conn *conn)
{
    if (conn->is_waiting) {
        conn->is_waiting = false;
        TAILQ_REMOVE(&conn->admin->waiting, conn, turn);
    }
}

static void await_turn(struct admin_conn *conn, size_t path)
{
    struct admin *const admin = conn->admin;

    leave_turn(conn);
    conn->path = path;
    conn->is_waiting = true;
    TAILQ_INSERT_TAIL(&admin->waiting, conn, turn);
    bt_loop_defer(admin->sources.loop, &admin->answering);
}

static void on_turn(struct bt_deferred *deferred)
{
    struct admin *const admin =
        bt_container_of(deferred, struct admin, answering);
    struct admin_conn *const conn = TAILQ_FIRST(&admin->waiting);

    if (conn == NULL) {
        return;
    }
    leave_turn(conn);
    answer_path(conn);
    if (!TAILQ_EMPTY(&admin->waiting)) {
        bt_loop_defer(admin->sources.loop, &admin->answering);
    }
}

/* Of a single engine: true, and it is answered or its body is awaited. */
static bool take_engine(struct admin_conn *conn,
                        const struct bt_http_head *head)
{
    const struct admin_sources *const sources = &conn->admin->sources;
    const char *allow = NULL;
    const char *why = "";
    unsigned code;

    if (!admin_engine_find(head->method, head->path, &conn->ask, &allow)) {
        return false;
    }
    if (allow != NULL) {
        answer_error(conn, 405, allow, "this path does not take that method");
        return true;
    }
    code = admin_engine_refuses(sources, &conn->ask, head,
                                bt_http_conn_peer(conn->conn), &why);
    if (code == 0 && head->framing == BT_HTTP_LENGTH &&
        head->content_length > ADMIN_BODY_MAX) {
        code = 413;
        why = "an engine's description has 64 KiB at most";
    }
    if (code != 0) {
        answer_error(conn, code,
                     code == 401 ? "Content-Type: application/json\r\n"
                                   "WWW-Authenticate: Bearer\r\n"
                                 : JSON_FIELDS,
                     why);
        return true;
    }
    conn->path = BT_ARRAY_LEN(PATHS);
    conn->is_reading = true;
    bt_buf_clear(&conn->body);
    bt_http_conn_read_body(conn->conn, NULL);
    return true;
}

/* Where no body is needed a request's head is all that is waited for. */
static void on_head(void *owner, const struct bt_http_head *head)
{
    struct admin_conn *const conn = owner;
    size_t i = 0;

    conn->is_reading = false;
    if (take_engine(conn, head)) {
        return;
    }

    while (i < BT_ARRAY_LEN(PATHS) &&
           !bt_str_eq(head->path, bt_str_of(PATHS[i].path))) {
        i++;
    }
    if (i == BT_ARRAY_LEN(PATHS)) {
        answer_error(conn, 404, JSON_FIELDS,
                     "no such path; there are /metrics, /engines, /handoffs, "
                     "/health and /ready");
        return;
    }
    if (!bt_str_eq(head->method, BT_STR("GET")) &&
        !bt_str_eq(head->method, BT_STR("HEAD"))) {
        answer_error(conn, 405, PATHS[i].allow,
                     "this path does not take that method");
        return;
    }
    await_turn(conn, i);
}

static void on_body(void *owner, struct bt_str bytes)
{
    struct admin_conn *const conn = owner;

    if (!conn->is_reading) {
        return;
    }
    bt_buf_append(&conn->body, bytes);
    if (conn->body.failed || conn->body.len > ADMIN_BODY_MAX) {
        conn->is_reading = false;
        answer_error(conn, conn->body.failed ? 500 : 413, JSON_FIELDS,
                     conn->body.failed
                         ? "out of memory"
                         : "an engine's description has 64 KiB at most");
        bt_buf_fini(&conn->body);
    }
}

static void on_request(void *owner)
{
    struct admin_conn *const conn = owner;

    if (conn->is_reading) {
        conn->is_reading = false;
        await_turn(conn, BT_ARRAY_LEN(PATHS));
    }
}

static void on_unused(void *owner)
{
    (void)owner;
}

static void on_bad(void *owner, unsigned code, const char *reason)
{
    answer_error(owner, code, JSON_FIELDS, reason);
}

static void destroy(struct bt_grave *grave)
{
    struct admin_conn *const conn =
        bt_container_of(grave, struct admin_conn, grave);

    bt_buf_fini(&conn->body);
    free(conn);
}

static void conn_close(struct admin_conn *conn)
{
    struct admin *const admin = conn->admin;

    if (conn->conn != NULL) {
        bt_http_conn_close(&conn->conn);
    }
    leave_turn(conn);
    TAILQ_REMOVE(&admin->conns, conn, entry);
    admin->conn_count--;
    bt_loop_bury(admin->sources.loop, &conn->grave, destroy);
}

static void on_closed(void *owner)
{
    struct admin_conn *const conn = owner;

    conn->conn = NULL;
    conn_close(conn);
}

static const struct bt_http_conn_events CONN_EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_request = on_request,
    .on_room = on_unused,
    .on_gone = on_unused,
    .on_bad = on_bad,
    .on_closed = on_closed,
};

static void on_accept(void *owner, int fd)
{
    struct admin *const admin = owner;
    struct admin_conn *conn;

    if (admin->conn_count >= CONNS_MAX &&
        !bt_http_idle_give_way(&admin->idle)) {
        control_stat_add(admin->sources.stats, CONTROL_STAT_ADMIN_REFUSED, 0,
                         1);
        bt_http_turn_away(fd, bt_str_of(BUSY));
        return;
    }
    conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        close(fd);
        return;
    }
    conn->admin = admin;
    if (bt_http_conn_open(admin->sources.loop, fd, &admin->conn_options,
                          &CONN_EVENTS, conn, &conn->conn) != BT_OK) {
        free(conn);
        return;
    }
    TAILQ_INSERT_TAIL(&admin->conns, conn, entry);
    admin->conn_count++;
}

enum bt_status admin_open(const struct admin_sources *sources,
                          struct admin **admin_p)
{
    struct admin *admin = calloc(1, sizeof(*admin));
    enum bt_status status = BT_OK;

    if (admin == NULL) {
        return BT_ERR_NOMEM;
    }
    admin->sources = *sources;
    TAILQ_INIT(&admin->conns);
    TAILQ_INIT(&admin->waiting);
    admin->answering.on_run = on_turn;
    bt_http_idle_init(&admin->idle);
    admin->conn_options = CONN_OPTIONS;
    admin->conn_options.idle = &admin->idle;
    admin->listener.on_accept = on_accept;
    admin->listener.owner = admin;
    if (sources->config->admin != NULL) {
        status = control_listener_open(&admin->listener, sources->loop,
                                       sources->config->admin, "admin");
    }
    if (status != BT_OK) {
        admin_close(&admin);
        return status;
    }
    *admin_p = admin;
    return BT_OK;
}

void admin_close(struct admin **admin_p)
{
    struct admin *const admin = *admin_p;
    struct admin_conn *conn;

    *admin_p = NULL;
    if (admin == NULL) {
        return;
    }
    control_listener_close(&admin->listener);
    while ((conn = TAILQ_FIRST(&admin->conns)) != NULL) {
        conn_close(conn);
    }
    bt_deferred_clear(&admin->answering);
    free(admin);
}

const char *admin_address(const struct admin *admin)
{
    return admin->listener.address;
}
