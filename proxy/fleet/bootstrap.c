/*
 * Bootstrap servers of connector mooncake.
 */
#include "proxy/fleet/bootstrap.h"

#include "common/base/log.h"
#include "common/http/http_call.h"
#include "common/json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define ANSWER_MAX  (1 * BT_MIB)
#define LIMIT_MS    2000
#define FIRST_MS    200 /* while the id is not known */
#define INTERVAL_MS 2000
#define START_MS    500 /* the first answers are waited for */

struct bootstrap {
    struct bt_grave grave;
    TAILQ_ENTRY(bootstrap) entry;
    struct bootstraps *all;
    struct engine *engine;
    struct bt_http_origin *origin; /* NULL: it has no address yet */
    uint64_t version;              /* of the engine's addresses */
    struct bt_http_call *call;     /* NULL: none is under way */
    struct bt_timer timer; /* the next one, or the present one's limit */
    struct bt_buf request;
    struct bt_buf answer;
    struct iovec iov;
    unsigned code;
    bool is_first; /* the call, of this engine */
};

struct bootstraps {
    struct bt_loop *loop;
    struct bt_http_pool *pool;
    TAILQ_HEAD(, bootstrap) items;
    size_t unheard; /* whose first call is under way */
};

/* --- the answer --- */

bool bootstrap_read(struct bt_str answer, struct bt_str *id_p,
                    const char **why_p)
{
    struct bt_json_iter it;
    struct bt_json_member rank;
    struct bt_json_value id = {0};
    size_t count = 0;

    bt_json_iter_object(&it, answer);
    while (bt_json_next_member(&it, &rank)) {
        count++;
        if (rank.value.type != BT_JSON_OBJECT ||
            !bt_json_find(rank.value.text, BT_STR("engine_id"), &id)) {
            id = (struct bt_json_value){0};
        }
    }
    if (bt_json_iter_end(&it) != BT_OK) {
        *why_p = "it is not one JSON object";
    } else if (count == 0) {
        *why_p = "no worker of the engine has registered yet";
    } else if (count > 1) {
        *why_p = "several data-parallel ranks share it; give each a server of "
                 "its own";
    } else if (id.type != BT_JSON_STRING || id.text.len <= 2) {
        *why_p = "its engine_id is not a string";
    } else {
        *id_p = id.text;
        return true;
    }
    return false;
}

static void complain(const struct bootstrap *bootstrap, const char *why)
{
    bt_log_limited(BT_LOG_WARN, bootstrap->engine->url.normal,
                   "http://%s/query does not tell its engine id: %s; is that "
                   "its Mooncake bootstrap server (`bootstrap` in its entry; "
                   "vLLM: VLLM_MOONCAKE_BOOTSTRAP_PORT, else port 8998)?",
                   engine_bootstrap(bootstrap->engine), why);
}

static bool is_known(const struct engine *engine, struct bt_str id)
{
    const char *const known = engine_bootstrap_id(engine);

    return known != NULL && bt_str_eq(bt_str_of(known), id);
}

static void set_id(struct bootstrap *bootstrap, struct bt_str id)
{
    struct engine *const engine = bootstrap->engine;

    if (is_known(engine, id)) {
        return;
    }
    if (!engine_set_bootstrap_id(engine, id)) {
        complain(bootstrap, "out of memory");
        return;
    }
    bt_log(BT_LOG_INFO, engine->url.normal, "its Mooncake engine id is %s",
           engine_bootstrap_id(engine));
}

/* --- the call --- */

static void end_call(struct bootstrap *bootstrap)
{
    bootstrap->all->unheard -= bootstrap->is_first ? 1 : 0;
    bootstrap->is_first = false;
    bt_http_call_close(&bootstrap->call);
    bt_buf_clear(&bootstrap->answer);
    bt_timer_set(&bootstrap->timer,
                 engine_bootstrap_id(bootstrap->engine) == NULL ? FIRST_MS
                                                                : INTERVAL_MS);
}

static void on_head(void *owner, const struct bt_http_head *head)
{
    struct bootstrap *const bootstrap = owner;

    bootstrap->code = head->code;
}

static void on_body(void *owner, struct bt_str bytes)
{
    struct bootstrap *const bootstrap = owner;

    if (bootstrap->answer.len + bytes.len > ANSWER_MAX) {
        complain(bootstrap, "its answer is too long");
        end_call(bootstrap);
        return;
    }
    bt_buf_append(&bootstrap->answer, bytes);
}

static void on_end(void *owner)
{
    struct bootstrap *const bootstrap = owner;
    const char *why = "its status is not 200";
    struct bt_str id;

    if (bootstrap->code == 200 && !bootstrap->answer.failed &&
        bootstrap_read(bt_buf_str(&bootstrap->answer), &id, &why)) {
        set_id(bootstrap, id);
    } else {
        complain(bootstrap, why);
    }
    end_call(bootstrap);
}

static void on_failed(void *owner, const struct bt_http_failure *failure)
{
    struct bootstrap *const bootstrap = owner;

    complain(bootstrap, failure->reason);
    end_call(bootstrap);
}

static const struct bt_http_call_events CALL_EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_failed = on_failed,
};

/* Of the address in its entry, which is a number or the URL's own host. */
static bool find_addrs(const struct engine *engine, struct bt_addrs *addrs_p)
{
    const struct bt_addrs *const own = engine_addrs(engine);
    char text[300];
    struct bt_url url;

    (void)snprintf(text, sizeof(text), "http://%s", engine_bootstrap(engine));
    if (bt_url_parse(text, &url, NULL) != BT_OK) {
        return false;
    }
    if (bt_url_addr(&url, addrs_p)) {
        return true;
    }
    if (own == NULL) {
        return false;
    }
    *addrs_p = *own;
    for (size_t i = 0; i < addrs_p->count; i++) {
        bt_addr_set_port(&addrs_p->items[i], url.port);
    }
    return true;
}

static bool has_origin(struct bootstrap *bootstrap)
{
    struct bt_addrs addrs;
    uint64_t version = 0;

    (void)engine_addrs_at(bootstrap->engine, &version);
    if (version != bootstrap->version) {
        bt_http_origin_close(&bootstrap->origin);
        bootstrap->version = version;
    }
    if (bootstrap->origin == NULL && find_addrs(bootstrap->engine, &addrs) &&
        bt_http_origin_open(bootstrap->all->pool, addrs.items, addrs.count,
                            &bootstrap->origin) != BT_OK) {
        bootstrap->origin = NULL;
    }
    return bootstrap->origin != NULL;
}

static void start_call(struct bootstrap *bootstrap)
{
    const struct bt_http_call_options options = {.fresh_only = true};

    bootstrap->code = 0;
    bootstrap->iov =
        (struct iovec){bootstrap->request.data + bootstrap->request.at,
                       bootstrap->request.len};
    if (has_origin(bootstrap) &&
        bt_http_call_open(bootstrap->origin, &options, &bootstrap->iov, 1,
                          &CALL_EVENTS, bootstrap, &bootstrap->call) == BT_OK) {
        bt_timer_set(&bootstrap->timer, LIMIT_MS);
    } else {
        bootstrap->call = NULL;
        bt_timer_set(&bootstrap->timer, INTERVAL_MS);
    }
}

static void on_due(struct bt_timer *timer)
{
    struct bootstrap *const bootstrap =
        bt_container_of(timer, struct bootstrap, timer);

    if (bootstrap->call == NULL) {
        start_call(bootstrap);
    } else {
        complain(bootstrap, "no answer within 2 s");
        end_call(bootstrap);
    }
}

/* --- life --- */

static bool is_asked(const struct engine *engine)
{
    return engine->role == ENGINE_PREFILL &&
           engine->pool->conf->connector == CONNECTOR_MOONCAKE;
}

static void destroy(struct bt_grave *grave)
{
    struct bootstrap *const bootstrap =
        bt_container_of(grave, struct bootstrap, grave);

    bt_buf_fini(&bootstrap->request);
    bt_buf_fini(&bootstrap->answer);
    free(bootstrap);
}

static void bootstrap_close(struct bootstrap *bootstrap)
{
    struct bootstraps *const all = bootstrap->all;

    TAILQ_REMOVE(&all->items, bootstrap, entry);
    all->unheard -= bootstrap->is_first ? 1 : 0;
    bt_timer_clear(&bootstrap->timer);
    bt_http_call_close(&bootstrap->call);
    bt_http_origin_close(&bootstrap->origin);
    bt_loop_bury(all->loop, &bootstrap->grave, destroy);
}

enum bt_status bootstraps_add(struct bootstraps *all, struct engine *engine)
{
    struct bootstrap *bootstrap;

    if (!is_asked(engine)) {
        return BT_OK;
    }
    bootstrap = calloc(1, sizeof(*bootstrap));
    if (bootstrap == NULL) {
        return BT_ERR_NOMEM;
    }
    bootstrap->all = all;
    bootstrap->engine = engine;
    bt_timer_init(&bootstrap->timer, all->loop, on_due);
    TAILQ_INSERT_TAIL(&all->items, bootstrap, entry);
    bt_buf_printf(&bootstrap->request,
                  "GET /query HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n"
                  "Connection: close\r\n\r\n",
                  engine_bootstrap(engine));
    if (bootstrap->request.failed) {
        bootstrap_close(bootstrap);
        return BT_ERR_NOMEM;
    }
    start_call(bootstrap);
    bootstrap->is_first = bootstrap->call != NULL;
    all->unheard += bootstrap->is_first ? 1 : 0;
    return BT_OK;
}

void bootstraps_remove(struct bootstraps *all, const struct engine *engine)
{
    struct bootstrap *bootstrap;

    TAILQ_FOREACH (bootstrap, &all->items, entry) {
        if (bootstrap->engine == engine) {
            bootstrap_close(bootstrap);
            return;
        }
    }
}

void bootstraps_await(struct bootstraps *all)
{
    const uint64_t until_us = bt_clock_us() + START_MS * UINT64_C(1000);

    while (all->unheard > 0 && bt_clock_us() < until_us) {
        bt_loop_turn(all->loop, 10);
    }
}

enum bt_status bootstraps_open(struct bt_loop *loop,
                               const struct config *config,
                               struct bootstraps **bootstraps_p)
{
    const struct bt_http_pool_options options = {
        .parse = {.head_bytes = 32 * BT_KIB,
                  .target_bytes = 1024,
                  .fields = 100},
        .idle_max = 1,
        .idle_ms = 1000,
        .connect_ms = config->timeouts.connect,
        .high_water = 64 * BT_KIB,
    };
    struct bootstraps *all = calloc(1, sizeof(*all));
    enum bt_status status;

    if (all == NULL) {
        return BT_ERR_NOMEM;
    }
    all->loop = loop;
    TAILQ_INIT(&all->items);
    status = bt_http_pool_open(loop, &options, &all->pool);
    if (status != BT_OK) {
        bootstraps_close(&all);
        return status;
    }
    *bootstraps_p = all;
    return BT_OK;
}

void bootstraps_close(struct bootstraps **bootstraps_p)
{
    struct bootstraps *const all = *bootstraps_p;

    *bootstraps_p = NULL;
    if (all == NULL) {
        return;
    }
    while (!TAILQ_EMPTY(&all->items)) {
        bootstrap_close(TAILQ_FIRST(&all->items));
    }
    bt_http_pool_close(&all->pool);
    free(all);
}
