/*
 * models: one call per engine, one merged list, ids once.
 *
 *   clients -> desk (a worker's) -> book (the program's: the list, 1 s long)
 *                  |                  ^
 *                  +--> asks[], one per engine, of the desk whose turn it is
 *
 * Whoever asks while a round of calls runs, on any worker, waits for its end.
 * A call counts among the engine's calls in flight; an engine that is full is
 * not asked, its last list stands.
 */
#include "proxy/front/models.h"

#include "common/json/json.h"
#include "proxy/base/fault.h"
#include "proxy/exchange/complaint.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#define ANSWER_MAX  (1 * BT_MIB)
#define DEADLINE_MS 2000
#define GOOD_MS     1000 /* how long a list is told on */
#define BAD_MS      100  /* … and that there was none */
#define LOOK_MS     10   /* while another worker asks */

enum ask_state {
    ASK_FAILED,
    ASK_FULL, /* not asked: its last answer stands */
    ASK_OPEN,
    ASK_GOOD,
};

struct ask {
    struct desk *desk;
    struct engine *engine;
    struct bt_http_call *call;
    struct bt_buf head;
    struct bt_buf answer;
    struct iovec iov[1];
    enum ask_state state;
};

/* What an engine answered last. */
struct told {
    uint64_t engine; /* its id */
    struct bt_buf answer;
};

struct models_book {
    pthread_mutex_t lock;
    struct told *told; /* of the engines of the last round */
    size_t told_count;
    struct bt_buf list; /* merged */
    enum fault fault;   /* why there is none */
    uint64_t until_ms;  /* both hold so long */
    bool is_asking;     /* a desk is at it */
};

struct models {
    struct desk *desk;
    TAILQ_ENTRY(models) entry;
    struct sink *sink;
    struct bt_buf id; /* empty: the list is wanted */
};

struct desk {
    struct front *front;
    TAILQ_HEAD(, models) waiting;
    size_t waiting_count;
    struct bt_deferred look;
    struct bt_timer timer; /* the round's end, or the next look */
    struct ask *asks;      /* NULL: no round of this desk */
    size_t ask_count;
    size_t open_count;
};

/* --- the merged list --- */

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

/* One model in the answers of the engines; spans of their text. */
struct model {
    struct bt_str id;
    struct bt_str text;
};

/* The elements of one engine's answer that have an id. */
static void gather(struct bt_buf *models, struct bt_str answer)
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
        const struct model model = {
            .id = element.type == BT_JSON_OBJECT ? id_of(element.text)
                                                 : (struct bt_str){0},
            .text = element.text,
        };

        if (model.id.len > 0) {
            bt_buf_append(models,
                          bt_str_span((const char *)&model, sizeof(model)));
        }
    }
}

/* By id, and where that is the same by place. */
static int compare_models(const void *left, const void *right)
{
    const struct model *const a = *(struct model *const *)left;
    const struct model *const b = *(struct model *const *)right;
    const size_t len = a->id.len < b->id.len ? a->id.len : b->id.len;
    const int order = memcmp(a->id.ptr, b->id.ptr, len);

    if (order != 0 || a->id.len != b->id.len) {
        return order != 0 ? order : a->id.len < b->id.len ? -1 : 1;
    }
    return a < b ? -1 : 1;
}

/*
 * Empties the text of each but the first of its id. Sorted for that: engines
 * tell thousands of adapters, and no other request of this worker is served
 * meanwhile.
 */
static bool drop_repeated(struct model *models, size_t count)
{
    struct model **const sorted = calloc(count + 1, sizeof(*sorted));

    if (sorted == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &models[i];
    }
    qsort(sorted, count, sizeof(*sorted), compare_models);
    for (size_t i = 1; i < count; i++) {
        if (bt_str_eq(sorted[i]->id, sorted[i - 1]->id)) {
            sorted[i]->text.len = 0;
        }
    }
    free(sorted);
    return true;
}

/* The list of those that are left, in their order. */
static void write_list(struct bt_buf *list, const struct model *models,
                       size_t count)
{
    bt_buf_clear(list);
    bt_buf_append_char(list, '[');
    for (size_t i = 0; i < count; i++) {
        if (models[i].text.len > 0) {
            bt_buf_append(list, list->len > 1 ? BT_STR(",") : BT_STR(""));
            bt_buf_append(list, models[i].text);
        }
    }
    bt_buf_append_char(list, ']');
}

static void find_one(struct bt_str list, struct bt_str wanted,
                     struct bt_buf *out)
{
    struct bt_json_iter it;
    struct bt_json_value element;

    bt_json_iter_array(&it, list);
    while (bt_json_next_element(&it, &element)) {
        struct bt_buf id = {0};
        bool is_it;

        bt_json_unescape(id_of(element.text), &id);
        is_it = bt_str_eq(bt_buf_str(&id), wanted);
        bt_buf_fini(&id);
        if (is_it) {
            bt_buf_append(out, element.text);
            return;
        }
    }
}

static uint64_t clock_ms(void)
{
    return bt_clock_us() / 1000;
}

/* Under the book's lock, after its fault was set. */
static void merge_all(struct models_book *book)
{
    struct bt_buf models = {0};
    struct model *all;
    size_t count;

    for (size_t i = 0; i < book->told_count; i++) {
        if (book->told[i].answer.len > 0) {
            gather(&models, bt_buf_str(&book->told[i].answer));
        }
    }
    all = (struct model *)(void *)models.data;
    count = models.len / sizeof(*all);
    if (models.failed || !drop_repeated(all, count)) {
        book->fault = FAULT_OVERLOADED;
    } else {
        write_list(&book->list, all, count);
        book->fault = book->list.failed ? FAULT_OVERLOADED : book->fault;
    }
    bt_buf_fini(&models);
}

/* --- answers --- */

static void leave_desk(struct models *models)
{
    struct desk *const desk = models->desk;

    TAILQ_REMOVE(&desk->waiting, models, entry);
    desk->waiting_count--;
    stats_add(desk->front->local->metrics, STAT_IN_FLIGHT, -1);
    bt_buf_fini(&models->id);
    free(models);
}

static void write_body(const struct models *models, struct bt_str list,
                       struct bt_buf *body)
{
    if (models->id.len > 0) {
        find_one(list, bt_buf_str(&models->id), body);
    } else {
        bt_buf_append(body, BT_STR("{\"object\":\"list\",\"data\":"));
        bt_buf_append(body, list);
        bt_buf_append_char(body, '}');
    }
}

/* One client's answer; it is gone from the desk. */
static void answer(struct models *models, enum fault fault, struct bt_str list)
{
    struct sink *const sink = models->sink;
    struct bt_buf fields = {0};
    struct bt_buf body = {0};

    if (fault == FAULT_NONE) {
        write_body(models, list, &body);
        fault = body.len > 0 ? FAULT_NONE : FAULT_NO_MODEL;
    }
    if (fault != FAULT_NONE) {
        bt_buf_clear(&body);
        fault_write(&body, fault, 0, bt_buf_str(&models->id));
    }
    bt_buf_append(&fields, BT_STR("Content-Type: application/json\r\n"));
    if (fault_is_passing(fault)) {
        bt_buf_append(&fields, BT_STR("Retry-After: 1\r\n"));
    }
    stats_code(models->desk->front->local->metrics, fault_status(fault));
    leave_desk(models);
    if (fields.failed || body.failed) {
        sink->ops->cut(sink);
    } else {
        sink->ops->answer(sink, fault_status(fault), bt_buf_str(&fields),
                          bt_buf_str(&body));
    }
    bt_buf_fini(&fields);
    bt_buf_fini(&body);
}

/* --- a round of calls --- */

static void close_call(struct ask *ask)
{
    if (ask->call != NULL) {
        bt_http_call_close(&ask->call);
        atomic_fetch_sub(&ask->engine->in_flight, 1);
        admission_has_room(&ask->desk->front->local->admission);
    }
}

static void close_asks(struct desk *desk)
{
    for (size_t i = 0; i < desk->ask_count; i++) {
        struct ask *const ask = &desk->asks[i];

        close_call(ask);
        bt_buf_fini(&ask->head);
        bt_buf_fini(&ask->answer);
    }
    bt_timer_clear(&desk->timer);
    free(desk->asks);
    desk->asks = NULL;
    desk->ask_count = 0;
    desk->open_count = 0;
}

/* Whoever asks within `for_ms` gets this; then another desk may ask. */
static void publish(struct models_book *book, enum fault fault, uint64_t for_ms)
{
    (void)pthread_mutex_lock(&book->lock);
    book->fault = fault;
    if (fault == FAULT_NONE) {
        merge_all(book);
    }
    book->until_ms = clock_ms() + for_ms;
    book->is_asking = false;
    (void)pthread_mutex_unlock(&book->lock);
}

static void free_told(struct told *told, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bt_buf_fini(&told[i].answer);
    }
    free(told);
}

/* Its answer, and where it was full the one before. */
static void take_told(const struct models_book *book, struct ask *ask,
                      struct told *told)
{
    told->engine = ask->engine->id;
    if (ask->state == ASK_GOOD) {
        bt_buf_take(&told->answer, &ask->answer);
    }
    for (size_t i = 0; ask->state == ASK_FULL && i < book->told_count; i++) {
        if (book->told[i].engine == told->engine) {
            bt_buf_take(&told->answer, &book->told[i].answer);
        }
    }
}

/* Keeps what the engines answered; the fault where nothing is known. */
static enum fault keep_answers(struct models_book *book, struct desk *desk)
{
    struct told *const told = calloc(desk->ask_count + 1, sizeof(*told));
    enum fault fault = FAULT_NO_DECODE;

    if (told == NULL) {
        return FAULT_OVERLOADED;
    }
    (void)pthread_mutex_lock(&book->lock);
    for (size_t i = 0; i < desk->ask_count; i++) {
        struct ask *const ask = &desk->asks[i];

        take_told(book, ask, &told[i]);
        if (ask->state == ASK_GOOD || told[i].answer.len > 0) {
            fault = FAULT_NONE;
        } else if (ask->state == ASK_FULL && fault != FAULT_NONE) {
            fault = FAULT_ENGINE_BUSY;
        }
    }
    free_told(book->told, book->told_count);
    book->told = told;
    book->told_count = desk->ask_count;
    (void)pthread_mutex_unlock(&book->lock);
    return fault;
}

/* All have answered, or had their time. */
static void end_round(struct desk *desk)
{
    struct models_book *const book = desk->front->local->program->models;
    const enum fault fault = keep_answers(book, desk);

    publish(book, fault, fault == FAULT_NONE ? GOOD_MS : BAD_MS);
    close_asks(desk);
    bt_loop_defer(desk->front->local->loop, &desk->look);
}

static void ask_over(struct ask *ask, bool is_good)
{
    struct desk *const desk = ask->desk;

    ask->state = is_good ? ASK_GOOD : ASK_FAILED;
    close_call(ask);
    desk->open_count--;
    if (desk->open_count == 0) {
        /* Never from inside a call: the timer fires at once. */
        bt_timer_set(&desk->timer, 0);
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
    if (ask->answer.len > ANSWER_MAX) {
        complaint_log(ask->engine,
                      bt_loop_now_ms(ask->desk->front->local->loop),
                      BT_STR("its list of models has more than 1 MiB and is "
                             "left out"),
                      (struct bt_str){0});
    }
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

static const struct bt_http_call_events EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_failed = on_failed,
};

static void write_head(struct bt_buf *head, const struct engine *engine)
{
    bt_buf_append(head, BT_STR("GET /v1/models HTTP/1.1\r\n"));
    bt_http_write_field(head, BT_STR("Host"), bt_str_of(engine->url.authority));
    bt_http_write_field(head, BT_STR("Accept-Encoding"), BT_STR("identity"));
    if (engine->key.len > 0) {
        bt_buf_append(head, BT_STR("Authorization: Bearer "));
        bt_buf_append(head, engine->key);
        bt_buf_append(head, BT_STR("\r\n"));
    }
    bt_buf_append(head, BT_STR("\r\n"));
}

static enum ask_state ask_open(struct ask *ask)
{
    /* A stale connection would take the engine's models from the list. */
    const struct bt_http_call_options options = {.fresh_only = true};
    struct engine *const engine = ask->engine;
    const int64_t limit = engine->conf->max_in_flight;
    struct bt_http_origin *const origin =
        local_origin(ask->desk->front->local, engine);

    if (atomic_fetch_add(&engine->in_flight, 1) >= limit && limit > 0) {
        atomic_fetch_sub(&engine->in_flight, 1);
        return ASK_FULL;
    }
    write_head(&ask->head, engine);
    ask->iov[0] = bt_str_iov(bt_buf_str(&ask->head));
    if (origin == NULL || ask->head.failed ||
        bt_http_call_open(origin, &options, ask->iov, 1, &EVENTS, ask,
                          &ask->call) != BT_OK) {
        atomic_fetch_sub(&engine->in_flight, 1);
        return ASK_FAILED;
    }
    ask->desk->open_count++;
    return ASK_OPEN;
}

static bool has_failed(const struct engine *engine)
{
    return atomic_load(&engine->failed_at_ms) != 0;
}

/* Those that failed would keep all who ask waiting; with none left they are
 * asked all the same. */
static bool have_all_failed(const struct desk *desk)
{
    bool all = true;

    for (size_t i = 0; i < desk->ask_count; i++) {
        all = all && has_failed(desk->asks[i].engine);
    }
    return all;
}

static void ask_all(struct desk *desk)
{
    const bool all_failed = have_all_failed(desk);

    for (size_t i = 0; i < desk->ask_count; i++) {
        struct ask *const ask = &desk->asks[i];

        ask->state =
            has_failed(ask->engine) && !all_failed ? ASK_FAILED : ask_open(ask);
    }
}

static size_t add_asks(struct desk *desk, size_t count, const struct side *side)
{
    for (size_t i = 0; i < side->count; i++) {
        desk->asks[count + i].desk = desk;
        desk->asks[count + i].engine = side->engines[i];
    }
    return count + side->count;
}

/* The book is this desk's until the round's end. */
static void begin_round(struct desk *desk)
{
    const struct fleet *const fleet = desk->front->local->program->fleet;

    /* A worker's turn sees at most as many engines as ever were at once. */
    desk->asks = calloc(ENGINES_MAX, sizeof(*desk->asks));
    if (desk->asks == NULL) {
        publish(desk->front->local->program->models, FAULT_OVERLOADED, BAD_MS);
        bt_loop_defer(desk->front->local->loop, &desk->look);
        return;
    }
    desk->ask_count = 0;
    for (size_t i = 0; i < fleet->pool_count; i++) {
        const struct pool *const pool = &fleet->pools[i];

        desk->ask_count =
            add_asks(desk, desk->ask_count, pool_side(pool, ENGINE_PREFILL));
        desk->ask_count =
            add_asks(desk, desk->ask_count, pool_side(pool, ENGINE_DECODE));
    }
    ask_all(desk);
    bt_timer_set(&desk->timer, desk->open_count > 0 ? DEADLINE_MS : 0);
}

/* --- the desk --- */

/* Answers all who wait, from a copy: other workers need the book. */
static void answer_all(struct desk *desk, enum fault fault,
                       const struct bt_buf *list)
{
    while (!TAILQ_EMPTY(&desk->waiting)) {
        /* Each leaves the queue before it is freed, which the analyzer does
         * not follow through the macros. */
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        answer(TAILQ_FIRST(&desk->waiting),
               list->failed ? FAULT_OVERLOADED : fault, bt_buf_str(list));
    }
}

static void on_look(struct bt_deferred *deferred)
{
    struct desk *const desk = bt_container_of(deferred, struct desk, look);
    struct models_book *const book = desk->front->local->program->models;
    struct bt_buf list = {0};
    enum fault fault;
    bool is_fresh;
    bool is_ours;

    if (TAILQ_EMPTY(&desk->waiting) || desk->asks != NULL) {
        return;
    }
    (void)pthread_mutex_lock(&book->lock);
    fault = book->fault;
    is_fresh = book->until_ms > clock_ms();
    is_ours = !is_fresh && !book->is_asking;
    book->is_asking = book->is_asking || is_ours;
    if (is_fresh && fault == FAULT_NONE) {
        bt_buf_append(&list, bt_buf_str(&book->list));
    }
    (void)pthread_mutex_unlock(&book->lock);
    if (is_fresh) {
        answer_all(desk, fault, &list);
    } else if (is_ours) {
        begin_round(desk);
    } else {
        bt_timer_set(&desk->timer, LOOK_MS);
    }
    bt_buf_fini(&list);
}

static void on_due(struct bt_timer *timer)
{
    struct desk *const desk = bt_container_of(timer, struct desk, timer);

    if (desk->asks != NULL) {
        end_round(desk);
    } else {
        on_look(&desk->look);
    }
}

static struct desk *desk_of(struct front *front)
{
    if (front->models == NULL) {
        front->models = calloc(1, sizeof(*front->models));
        if (front->models == NULL) {
            return NULL;
        }
        front->models->front = front;
        front->models->look.on_run = on_look;
        bt_timer_init(&front->models->timer, front->local->loop, on_due);
        TAILQ_INIT(&front->models->waiting);
    }
    return front->models;
}

struct models *models_open(struct front *front, struct sink *sink,
                           struct bt_str id)
{
    struct desk *const desk = desk_of(front);
    struct models *const models = calloc(1, sizeof(*models));

    if (models == NULL) {
        return NULL;
    }
    bt_http_unescape(id, &models->id);
    if (desk == NULL || models->id.failed) {
        bt_buf_fini(&models->id);
        free(models);
        return NULL;
    }
    models->desk = desk;
    models->sink = sink;
    TAILQ_INSERT_TAIL(&desk->waiting, models, entry);
    desk->waiting_count++;
    stats_add(front->local->metrics, STAT_IN_FLIGHT, 1);
    bt_loop_defer(front->local->loop, &desk->look);
    return models;
}

size_t models_count(const struct front *front)
{
    return front->models == NULL ? 0 : front->models->waiting_count;
}

void models_cancel(struct models **models)
{
    if (*models != NULL) {
        leave_desk(*models);
        *models = NULL;
    }
}

void models_close(struct front *front)
{
    struct desk *const desk = front->models;

    if (desk == NULL) {
        return;
    }
    front->models = NULL;
    if (desk->asks != NULL) {
        close_asks(desk);
        publish(front->local->program->models, FAULT_SHUT_DOWN, 0);
    }
    bt_timer_clear(&desk->timer);
    bt_deferred_clear(&desk->look);
    free(desk);
}

bool models_ask(const struct front *front, const struct engine *engine)
{
    const struct desk *const desk = front->models;

    for (size_t i = 0; desk != NULL && i < desk->ask_count; i++) {
        if (desk->asks[i].engine == engine) {
            return true;
        }
    }
    return false;
}

struct models_book *models_book_open(void)
{
    struct models_book *const book = calloc(1, sizeof(*book));

    if (book == NULL) {
        return NULL;
    }
    if (pthread_mutex_init(&book->lock, NULL) != 0) {
        free(book);
        return NULL;
    }
    return book;
}

void models_book_close(struct models_book **book)
{
    struct models_book *const dead = *book;

    if (dead == NULL) {
        return;
    }
    *book = NULL;
    free_told(dead->told, dead->told_count);
    bt_buf_fini(&dead->list);
    (void)pthread_mutex_destroy(&dead->lock);
    free(dead);
}
