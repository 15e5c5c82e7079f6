/*
 * models: one call per engine, one merged list, ids once.
 *
 *   models -> asks[] (one per engine) -> bt_http_call
 */
#include "proxy/models.h"

#include "common/json.h"
#include "proxy/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ANSWER_MAX  (1 * BT_MIB)
#define DEADLINE_MS 2000
#define ASKS_MAX    256

struct ask {
    struct models *models;
    struct bt_http_call *call;
    struct bt_buf head;
    struct bt_buf answer;
    struct iovec iov[1];
    bool is_good;
};

struct models {
    struct worker *worker;
    struct models *prev;
    struct models *next;
    struct sink *sink; /* NULL: the client left */
    struct bt_timer timer;
    struct bt_grave grave;
    struct bt_buf id; /* empty: the list is wanted */
    struct ask *asks;
    size_t ask_count;
    size_t open_count;
    bool is_over;
};

static void destroy(struct bt_grave *grave)
{
    struct models *const models = bt_container_of(grave, struct models, grave);

    for (size_t i = 0; i < models->ask_count; i++) {
        bt_buf_fini(&models->asks[i].head);
        bt_buf_fini(&models->asks[i].answer);
    }
    bt_buf_fini(&models->id);
    free(models->asks);
    free(models);
}

static void close_all(struct models *models)
{
    struct worker *const worker = models->worker;

    if (models->is_over) {
        return;
    }
    models->is_over = true;
    bt_timer_clear(&models->timer);
    for (size_t i = 0; i < models->ask_count; i++) {
        bt_http_call_close(&models->asks[i].call);
    }
    if (models->prev != NULL) {
        models->prev->next = models->next;
    } else if (worker->models == models) {
        worker->models = models->next;
    }
    if (models->next != NULL) {
        models->next->prev = models->prev;
    }
    bt_loop_bury(worker->loop, &models->grave, destroy);
}

/* An element's id, quotes included; {NULL, 0} when it has none. */
static struct bt_str id_of(struct bt_str element)
{
    struct bt_json_value id;

    if (!bt_json_find(element, BT_STR("id"), &id) ||
        id.type != BT_JSON_STRING) {
        return (struct bt_str){0};
    }
    return id.text;
}

static bool has_id(struct bt_str list, struct bt_str id)
{
    struct bt_json_iter it;
    struct bt_json_value element;

    bt_json_iter_array(&it, list);
    while (bt_json_next_element(&it, &element)) {
        if (element.type == BT_JSON_OBJECT &&
            bt_str_eq(id_of(element.text), id)) {
            return true;
        }
    }
    return false;
}

/* Adds the elements of one engine's answer that are not in the list yet. */
static void merge(struct bt_buf *list, struct bt_str answer)
{
    struct bt_json_value data;
    struct bt_json_value element;
    struct bt_json_iter it;

    if (bt_json_check(answer, &data, NULL) != BT_OK ||
        data.type != BT_JSON_OBJECT ||
        !bt_json_find(answer, BT_STR("data"), &data) ||
        data.type != BT_JSON_ARRAY) {
        return;
    }
    bt_json_iter_array(&it, data.text);
    while (bt_json_next_element(&it, &element)) {
        const struct bt_str id = element.type == BT_JSON_OBJECT
                                     ? id_of(element.text)
                                     : (struct bt_str){0};
        const size_t len = list->len;

        if (id.len == 0) {
            continue;
        }
        bt_buf_append_char(list, ']');
        if (!list->failed && has_id(bt_buf_str(list), id)) {
            list->len = len;
            continue;
        }
        list->len = list->failed ? list->len : len;
        bt_buf_append(list, len > 1 ? BT_STR(",") : BT_STR(""));
        bt_buf_append(list, element.text);
    }
}

static void find_one(const struct models *models, struct bt_str list,
                     struct bt_buf *out)
{
    struct bt_json_iter it;
    struct bt_json_value element;

    bt_json_iter_array(&it, list);
    while (bt_json_next_element(&it, &element)) {
        struct bt_buf id = {0};
        bool is_it;

        bt_json_unescape(id_of(element.text), &id);
        is_it = bt_str_eq(bt_buf_str(&id), bt_buf_str(&models->id));
        bt_buf_fini(&id);
        if (is_it) {
            bt_buf_append(out, element.text);
            return;
        }
    }
}

static void send_list(struct models *models, enum fault fault,
                      const struct bt_buf *body)
{
    struct sink *const sink = models->sink;
    struct bt_buf fields = {0};
    struct bt_buf text = {0};
    const unsigned code = fault_status(fault);

    bt_buf_append(&fields, BT_STR("Content-Type: application/json\r\n"));
    if (fault_is_passing(fault)) {
        bt_buf_append(&fields, BT_STR("Retry-After: 1\r\n"));
    }
    if (fault == FAULT_NONE) {
        bt_buf_append(&text, bt_buf_str(body));
    } else {
        fault_write(&text, fault, 0, bt_buf_str(&models->id));
    }
    models->sink = NULL;
    stats_code(models->worker->metrics, code);
    if (fields.failed || text.failed) {
        sink->ops->cut(sink);
    } else {
        sink->ops->answer(sink, code, bt_buf_str(&fields), bt_buf_str(&text));
    }
    bt_buf_fini(&fields);
    bt_buf_fini(&text);
}

static void answer(struct models *models)
{
    struct bt_buf list = {0};
    struct bt_buf body = {0};
    bool is_any = false;

    bt_buf_append_char(&list, '[');
    for (size_t i = 0; i < models->ask_count; i++) {
        if (models->asks[i].is_good) {
            is_any = true;
            merge(&list, bt_buf_str(&models->asks[i].answer));
        }
    }
    bt_buf_append_char(&list, ']');
    if (list.failed) {
        send_list(models, FAULT_OVERLOADED, &body);
    } else if (!is_any) {
        send_list(models, FAULT_NO_DECODE, &body);
    } else if (models->id.len > 0) {
        find_one(models, bt_buf_str(&list), &body);
        send_list(models, body.len > 0 ? FAULT_NONE : FAULT_NO_MODEL, &body);
    } else {
        bt_buf_append(&body, BT_STR("{\"object\":\"list\",\"data\":"));
        bt_buf_append(&body, bt_buf_str(&list));
        bt_buf_append_char(&body, '}');
        send_list(models, body.failed ? FAULT_OVERLOADED : FAULT_NONE, &body);
    }
    bt_buf_fini(&list);
    bt_buf_fini(&body);
}

static void finish(struct models *models)
{
    if (models->is_over) {
        return;
    }
    if (models->sink != NULL) {
        answer(models);
    }
    close_all(models);
}

static void ask_over(struct ask *ask, bool is_good)
{
    struct models *const models = ask->models;

    ask->is_good = is_good;
    bt_http_call_close(&ask->call);
    models->open_count--;
    if (models->open_count == 0) {
        finish(models);
    }
}

static void on_head(void *owner, const struct bt_http_head *head)
{
    if (head->code != 200) {
        ask_over(owner, false);
    }
}

static void on_body(void *owner, struct bt_str bytes)
{
    struct ask *const ask = owner;

    bt_buf_append(&ask->answer, bytes);
    if (ask->answer.failed || ask->answer.len > ANSWER_MAX) {
        ask_over(ask, false);
    }
}

static void on_end(void *owner)
{
    ask_over(owner, true);
}

static void on_failed(void *owner, const struct bt_http_failure *failure)
{
    (void)failure;
    ask_over(owner, false);
}

static void on_sent(void *owner)
{
    (void)owner;
}

static const struct bt_http_call_events EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_failed = on_failed,
    .on_sent = on_sent,
};

static void on_due(struct bt_timer *timer)
{
    finish(bt_container_of(timer, struct models, timer));
}

static bool ask_open(struct ask *ask, struct models *models,
                     const struct engine *engine)
{
    const struct bt_http_call_options options = {.fresh_only = false};
    struct bt_http_origin *const origin = worker_origin(models->worker, engine);
    struct bt_buf *const head = &ask->head;

    ask->models = models;
    bt_buf_append(head, BT_STR("GET /v1/models HTTP/1.1\r\n"));
    bt_http_write_field(head, BT_STR("Host"), bt_str_of(engine->url.authority));
    bt_http_write_field(head, BT_STR("Accept-Encoding"), BT_STR("identity"));
    if (engine->key.len > 0) {
        bt_buf_append(head, BT_STR("Authorization: Bearer "));
        bt_buf_append(head, engine->key);
        bt_buf_append(head, BT_STR("\r\n"));
    }
    bt_buf_append(head, BT_STR("\r\n"));
    if (origin == NULL || head->failed) {
        return false;
    }
    ask->iov[0] = (struct iovec){head->data + head->at, head->len};
    return bt_http_call_open(origin, &options, ask->iov, 1, &EVENTS, ask,
                             &ask->call) == BT_OK;
}

struct models *models_open(struct worker *worker, struct sink *sink,
                           struct bt_str id)
{
    const struct registry *const registry = worker->program->registry;
    const size_t count =
        registry->engine_count < ASKS_MAX ? registry->engine_count : ASKS_MAX;
    struct models *const models = calloc(1, sizeof(*models));

    if (models == NULL) {
        return NULL;
    }
    models->asks = calloc(count + 1, sizeof(*models->asks));
    bt_http_unescape(id, &models->id);
    if (models->asks == NULL || models->id.failed) {
        free(models->asks);
        bt_buf_fini(&models->id);
        free(models);
        return NULL;
    }
    models->worker = worker;
    models->sink = sink;
    bt_timer_init(&models->timer, worker->loop, on_due);
    models->next = worker->models;
    if (models->next != NULL) {
        models->next->prev = models;
    }
    worker->models = models;
    models->ask_count = count;
    for (size_t i = 0; i < count; i++) {
        if (ask_open(&models->asks[i], models, &registry->engines[i])) {
            models->open_count++;
        }
    }
    /* Never from inside: with nothing to wait for the timer fires at once. */
    bt_timer_set(&models->timer, models->open_count > 0 ? DEADLINE_MS : 1);
    return models;
}

void models_cancel(struct models **models)
{
    struct models *const dead = *models;

    *models = NULL;
    if (dead != NULL) {
        dead->sink = NULL;
        close_all(dead);
    }
}

void models_abort(struct worker *worker)
{
    while (worker->models != NULL) {
        worker->models->sink = NULL;
        close_all(worker->models);
    }
}
