/*
 * Listener, connections, endpoints; see api.h.
 */
#include "agent/engine/serve/api.h"

#include "agent/engine/serve/eng_answer.h"
#include "agent/engine/serve/meter.h"
#include "common/base/log.h"
#include "common/json/json.h"
#include "common/json/json_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#define BODY_MAX     (64 * BT_MIB)
#define REST_MS      100 /* without descriptors */
#define ACCEPTS      64  /* connections taken in one turn */
#define ID_MAX       128
#define PATH_MAX_LEN 256
#define JSON_FIELD   "Content-Type: application/json\r\n"
#define TEXT_FIELD   "Content-Type: text/plain; version=0.0.4\r\n"
#define MODELS       "/v1/models/"

enum route {
    ROUTE_NONE,
    ROUTE_COMPLETIONS,
    ROUTE_CHAT,
    ROUTE_TOKENIZE,
    ROUTE_DETOKENIZE,
    ROUTE_MODELS,
    ROUTE_MODEL,
    ROUTE_HEALTH,
    ROUTE_VERSION,
    ROUTE_METRICS,
    ROUTE_STATE,
    ROUTE_FAULT,
};

struct eng_client {
    struct api *api;
    LIST_ENTRY(eng_client) entry;
    struct bt_grave grave;
    struct bt_http_conn *conn;
    enum route route;
    char path[PATH_MAX_LEN];
    char id[ID_MAX + 1];
    struct bt_buf body;
    bool is_answered;
    struct eng_exchange *exchange;
};

struct api {
    struct exchange_env *env;
    struct meter meter;
    int listener;
    struct bt_watch *watch;
    struct bt_timer rest; /* ends a pause of accepting */
    LIST_HEAD(, eng_client) clients;
    struct bt_http_conn_options conn_options;
    uint64_t started; /* seconds since 1970 */
};

static const struct {
    const char *path;
    bool is_post;
    enum route route;
} ROUTES[] = {
    {"/v1/completions", true, ROUTE_COMPLETIONS},
    {"/v1/chat/completions", true, ROUTE_CHAT},
    {"/tokenize", true, ROUTE_TOKENIZE},
    {"/detokenize", true, ROUTE_DETOKENIZE},
    {"/v1/models", false, ROUTE_MODELS},
    {"/health", false, ROUTE_HEALTH},
    {"/ping", false, ROUTE_HEALTH},
    {"/version", false, ROUTE_VERSION},
    {"/metrics", false, ROUTE_METRICS},
    {"/admin/state", false, ROUTE_STATE},
    {"/admin/fault", true, ROUTE_FAULT},
};

/* --- answers --- */

static void send_text(struct eng_client *client, unsigned code,
                      struct bt_str field, struct bt_buf *text)
{
    client->is_answered = true;
    if (text->failed) {
        bt_buf_fini(text);
        bt_http_conn_answer(client->conn, 503, BT_STR(""), BT_STR(""));
        return;
    }
    bt_http_conn_answer(client->conn, code, field, bt_buf_str(text));
    bt_buf_fini(text);
}

static void send_error(struct eng_client *client, unsigned code,
                       const char *type, const char *text)
{
    struct bt_buf out = {0};

    answer_error(&out, code, type, text);
    send_text(client, code, BT_STR(JSON_FIELD), &out);
}

static void append_model(const struct api *api, struct bt_buf *out)
{
    const struct bt_str name = bt_str_of(api->env->options->model);

    bt_buf_append(out, BT_STR("{\"id\":"));
    bt_buf_append_json(out, name);
    bt_buf_printf(out,
                  ",\"object\":\"model\",\"created\":%" PRIu64
                  ",\"owned_by\":\"baton\",\"root\":",
                  api->started);
    bt_buf_append_json(out, name);
    bt_buf_printf(out, ",\"parent\":null,\"max_model_len\":%" PRIu64 "}",
                  api->env->context_tokens);
}

static void send_models(struct eng_client *client)
{
    struct bt_buf out = {0};

    bt_buf_append(&out, BT_STR("{\"object\":\"list\",\"data\":["));
    append_model(client->api, &out);
    bt_buf_append(&out, BT_STR("]}"));
    send_text(client, 200, BT_STR(JSON_FIELD), &out);
}

static void send_model(struct eng_client *client)
{
    const char *const name = client->path + sizeof(MODELS) - 1;
    struct bt_buf out = {0};

    if (strcmp(name, client->api->env->options->model) != 0) {
        send_error(client, 404, "NotFoundError", "The model does not exist.");
        return;
    }
    append_model(client->api, &out);
    send_text(client, 200, BT_STR(JSON_FIELD), &out);
}

static void send_version(struct eng_client *client)
{
    struct bt_buf out = {0};

    bt_buf_printf(&out, "{\"version\":\"%s\"}", BATON_ENGINE_VERSION);
    send_text(client, 200, BT_STR(JSON_FIELD), &out);
}

static void send_metrics(struct eng_client *client)
{
    struct bt_buf out = {0};

    meter_write_metrics(&client->api->meter, &out);
    send_text(client, 200, BT_STR(TEXT_FIELD), &out);
}

static void send_state(struct eng_client *client)
{
    struct bt_buf out = {0};

    meter_write_state(&client->api->meter, &out);
    send_text(client, 200, BT_STR(JSON_FIELD), &out);
}

/* --- requests with a body --- */

static void on_exchange_over(void *owner)
{
    struct eng_client *const client = owner;

    client->exchange = NULL;
    client->is_answered = true;
}

static void send_refusal(struct eng_client *client,
                         const struct request_error *error)
{
    client->api->env->outcomes[EXCHANGE_REFUSED]++;
    send_error(client, error->code, error->type, error->text);
}

static void start_completion(struct eng_client *client, enum request_kind kind)
{
    struct exchange_env *const env = client->api->env;
    struct eng_request request;
    struct request_error error;
    bool is_open;

    if (!request_read(kind, bt_buf_str(&client->body), env->options->model,
                      &request, &error)) {
        send_refusal(client, &error);
        return;
    }
    is_open = exchange_open(env, client->conn, &request, bt_str_of(client->id),
                            &client->exchange);
    if (!is_open) {
        request_fini(&request);
        send_error(client, 503, "ServiceUnavailableError", "out of memory");
        return;
    }
    exchange_start(client->exchange, on_exchange_over, client);
}

static void send_tokens(struct eng_client *client,
                        const struct eng_request *request)
{
    const struct request_prompt *const prompt = &request->prompts[0];
    struct bt_buf out = {0};

    bt_buf_printf(&out,
                  "{\"count\":%zu,\"max_model_len\":%" PRIu64 ",\"tokens\":[",
                  prompt->count, client->api->env->context_tokens);
    for (size_t i = 0; i < prompt->count; i++) {
        bt_buf_printf(&out, "%s%" PRIu32, i == 0 ? "" : ",", prompt->tokens[i]);
    }
    bt_buf_append(&out, BT_STR("],\"token_strs\":null}"));
    send_text(client, 200, BT_STR(JSON_FIELD), &out);
}

static void send_detokenized(struct eng_client *client,
                             const struct eng_request *request)
{
    const struct request_prompt *const prompt = &request->prompts[0];
    struct bt_buf text = {0};
    struct bt_buf out = {0};

    for (size_t i = 0; i < prompt->count; i++) {
        model_detokenize(prompt->tokens[i], &text);
    }
    bt_buf_append(&out, BT_STR("{\"prompt\":"));
    bt_buf_append_json(&out, bt_buf_str(&text));
    bt_buf_append_char(&out, '}');
    out.failed = out.failed || text.failed;
    bt_buf_fini(&text);
    send_text(client, 200, BT_STR(JSON_FIELD), &out);
}

static void answer_tokens(struct eng_client *client, enum request_kind kind)
{
    struct eng_request request;
    struct request_error error;

    if (!request_read(kind, bt_buf_str(&client->body),
                      client->api->env->options->model, &request, &error)) {
        send_refusal(client, &error);
        return;
    }
    if (kind == REQUEST_TOKENIZE) {
        send_tokens(client, &request);
    } else {
        send_detokenized(client, &request);
    }
    request_fini(&request);
}

/* Appends a scalar of the fault call as it stands, a string decoded. */
static void append_scalar(struct bt_str body, struct bt_str name,
                          const char *before, struct bt_buf *text)
{
    struct bt_json_value value;

    if (!bt_json_find(body, name, &value) || value.type == BT_JSON_NULL) {
        return;
    }
    bt_buf_append(text, bt_str_of(before));
    if (value.type == BT_JSON_STRING) {
        bt_json_unescape(value.text, text);
    } else {
        bt_buf_append(text, value.text);
    }
}

static void arm_fault(struct eng_client *client)
{
    struct exchange_env *const env = client->api->env;
    const struct bt_str body = bt_buf_str(&client->body);
    struct bt_json_value whole;
    struct bt_buf text = {0};
    struct bt_buf out = {0};
    char why[200] = "the body must be a JSON object";
    enum bt_status status = BT_ERR_SYNTAX;

    if (!env->options->has_admin && env->options->faults.count == 0) {
        send_error(client, 403, "BadRequestError",
                   "faults are not allowed; start with --admin-faults");
        return;
    }
    if (bt_json_check(body, &whole, NULL) == BT_OK &&
        whole.type == BT_JSON_OBJECT) {
        append_scalar(body, BT_STR("name"), "", &text);
        append_scalar(body, BT_STR("arg"), "=", &text);
        append_scalar(body, BT_STR("times"), "*", &text);
        bt_buf_append_char(&text, '\0');
        status = text.failed ? BT_ERR_NOMEM
                             : fault_arm(env->faults, bt_buf_str(&text).ptr,
                                         why, sizeof(why));
    }
    bt_buf_fini(&text);
    if (status != BT_OK) {
        send_error(client, 400, "BadRequestError", why);
        return;
    }
    fault_write(env->faults, &out);
    send_text(client, 200, BT_STR(JSON_FIELD), &out);
}

static void handle(struct eng_client *client)
{
    struct bt_buf empty = {0};

    switch (client->route) {
    case ROUTE_NONE:
        send_error(client, 404, "NotFoundError", "Not Found");
        break;
    case ROUTE_COMPLETIONS:
        start_completion(client, REQUEST_COMPLETION);
        break;
    case ROUTE_CHAT:
        start_completion(client, REQUEST_CHAT);
        break;
    case ROUTE_TOKENIZE:
        answer_tokens(client, REQUEST_TOKENIZE);
        break;
    case ROUTE_DETOKENIZE:
        answer_tokens(client, REQUEST_DETOKENIZE);
        break;
    case ROUTE_MODELS:
        send_models(client);
        break;
    case ROUTE_MODEL:
        send_model(client);
        break;
    case ROUTE_HEALTH:
        send_text(client, 200, BT_STR(""), &empty);
        break;
    case ROUTE_VERSION:
        send_version(client);
        break;
    case ROUTE_METRICS:
        send_metrics(client);
        break;
    case ROUTE_STATE:
        send_state(client);
        break;
    case ROUTE_FAULT:
        arm_fault(client);
        break;
    }
}

/* --- connection events --- */

static bool find_route(struct eng_client *client,
                       const struct bt_http_head *head, bool *is_post_p)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(ROUTES); i++) {
        if (bt_str_eq(head->path, bt_str_of(ROUTES[i].path))) {
            client->route = ROUTES[i].route;
            *is_post_p = ROUTES[i].is_post;
            return true;
        }
    }
    if (bt_str_starts(head->path, BT_STR(MODELS)) &&
        head->path.len < PATH_MAX_LEN) {
        bt_str_copy(client->path, sizeof(client->path), head->path);
        client->route = ROUTE_MODEL;
        *is_post_p = false;
        return true;
    }
    client->route = ROUTE_NONE;
    return false;
}

static void remember_id(struct eng_client *client,
                        const struct bt_http_head *head)
{
    const struct bt_str id = bt_http_field_get(head, BT_STR("X-Request-Id"));

    client->id[0] = '\0';
    if (id.len > 0 && id.len <= ID_MAX) {
        bt_str_copy(client->id, sizeof(client->id), id);
    }
}

static void on_head(void *owner, const struct bt_http_head *head)
{
    struct eng_client *const client = owner;
    const bool is_get = bt_str_eq(head->method, BT_STR("GET")) ||
                        bt_str_eq(head->method, BT_STR("HEAD"));
    bool is_post = false;

    bt_buf_clear(&client->body);
    client->is_answered = false;
    remember_id(client, head);
    if (!find_route(client, head, &is_post)) {
        send_error(client, 404, "NotFoundError", "Not Found");
        return;
    }
    if (is_post ? !bt_str_eq(head->method, BT_STR("POST")) : !is_get) {
        send_error(client, 405, "MethodNotAllowedError", "Method Not Allowed");
        return;
    }
    if (head->framing == BT_HTTP_LENGTH && head->content_length > BODY_MAX) {
        send_error(client, 413, "BadRequestError", "the body is too large");
        return;
    }
    if ((client->route == ROUTE_COMPLETIONS || client->route == ROUTE_CHAT) &&
        fault_take(client->api->env->faults, FAULT_STOP_READING, NULL)) {
        return;
    }
    if (head->framing != BT_HTTP_NO_BODY) {
        bt_http_conn_read_body(client->conn, NULL);
    }
}

static void on_body(void *owner, struct bt_str bytes)
{
    struct eng_client *const client = owner;

    if (client->is_answered) {
        return;
    }
    if (client->body.len + bytes.len > BODY_MAX) {
        send_error(client, 413, "BadRequestError", "the body is too large");
        return;
    }
    bt_buf_append(&client->body, bytes);
}

static void on_request(void *owner)
{
    struct eng_client *const client = owner;

    if (client->is_answered) {
        return;
    }
    if (client->body.failed) {
        bt_buf_fini(&client->body);
        send_error(client, 503, "ServiceUnavailableError", "out of memory");
        return;
    }
    handle(client);
    if (client->body.cap > BT_MIB && client->exchange == NULL) {
        bt_buf_fini(&client->body);
    }
}

static void on_room(void *owner)
{
    struct eng_client *const client = owner;

    if (client->exchange != NULL) {
        exchange_room(client->exchange);
    }
}

static void on_gone(void *owner)
{
    struct eng_client *const client = owner;

    exchange_close(&client->exchange);
}

static void on_bad(void *owner, unsigned code, const char *reason)
{
    struct eng_client *const client = owner;

    exchange_close(&client->exchange);
    send_error(client, code, "BadRequestError", reason);
}

static void destroy_client(struct bt_grave *grave)
{
    struct eng_client *const client =
        bt_container_of(grave, struct eng_client, grave);

    bt_buf_fini(&client->body);
    free(client);
}

static void bury_client(struct eng_client *client)
{
    struct api *const api = client->api;

    exchange_close(&client->exchange);
    LIST_REMOVE(client, entry);
    bt_loop_bury(api->env->loop, &client->grave, destroy_client);
}

static void on_closed(void *owner)
{
    struct eng_client *const client = owner;

    client->conn = NULL;
    bury_client(client);
}

static const struct bt_http_conn_events CONN_EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_request = on_request,
    .on_room = on_room,
    .on_gone = on_gone,
    .on_bad = on_bad,
    .on_closed = on_closed,
};

/* --- listener --- */

static void open_client(struct api *api, int fd)
{
    struct eng_client *const client = calloc(1, sizeof(*client));

    if (client == NULL) {
        (void)close(fd);
        return;
    }
    client->api = api;
    LIST_INSERT_HEAD(&api->clients, client, entry);
    if (bt_http_conn_open(api->env->loop, fd, &api->conn_options, &CONN_EVENTS,
                          client, &client->conn) != BT_OK) {
        bury_client(client);
    }
}

static void on_rested(struct bt_timer *timer)
{
    bt_watch_pause(bt_container_of(timer, struct api, rest)->watch, false);
}

/* Without descriptors the listener would stay readable, and the loop busy. */
static void accept_failed(struct api *api, int error)
{
    if (error == EAGAIN || error == ECONNABORTED || error == EINTR) {
        return;
    }
    bt_log(BT_LOG_WARN, "api", "accept: %s", strerrordesc_np(error));
    bt_watch_pause(api->watch, true);
    bt_timer_set(&api->rest, REST_MS);
}

static void on_listener(void *owner)
{
    struct api *const api = owner;

    for (int i = 0; i < ACCEPTS; i++) {
        const int fd =
            accept4(api->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            accept_failed(api, errno);
            return;
        }
        open_client(api, fd);
    }
}

enum bt_status api_open(const struct api_options *options, struct api **api_p)
{
    struct api *const api = calloc(1, sizeof(*api));
    enum bt_status status;

    if (api == NULL) {
        return BT_ERR_NOMEM;
    }
    api->env = options->env;
    api->started = (uint64_t)time(NULL);
    api->meter.env = options->env;
    api->meter.kv = options->kv;
    api->meter.handoff = options->handoff;
    api->conn_options = (struct bt_http_conn_options){
        .parse = {.head_bytes = 64 * BT_KIB,
                  .target_bytes = 16 * BT_KIB,
                  .fields = 200},
        .high_water = 256 * BT_KIB,
        .head_timeout_ms = 60000,
        .body_timeout_ms = 60000,
        .body_rate = 64 * BT_KIB,
        .body_idle_ms = 60000,
        .write_timeout_ms = 60000,
        .keep_alive_ms = options->env->options->keep_alive_ms,
        .half_close_is_gone = true,
    };
    bt_timer_init(&api->rest, options->env->loop, on_rested);
    status = meter_init(&api->meter);
    if (status == BT_OK) {
        status = bt_watch_open(options->env->loop, options->listener,
                               on_listener, api, &api->watch);
    }
    if (status != BT_OK) {
        meter_fini(&api->meter);
        free(api);
        return status;
    }
    api->listener = options->listener;
    *api_p = api;
    return BT_OK;
}

void api_close(struct api **api)
{
    struct api *const self = *api;

    *api = NULL;
    if (self == NULL) {
        return;
    }
    while (!LIST_EMPTY(&self->clients)) {
        struct eng_client *const client = LIST_FIRST(&self->clients);

        exchange_close(&client->exchange);
        bt_http_conn_close(&client->conn);
        bury_client(client);
    }
    bt_timer_clear(&self->rest);
    bt_watch_close(&self->watch);
    (void)close(self->listener);
    meter_fini(&self->meter);
    free(self);
}
