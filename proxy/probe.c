/*
 * Health probes of engines.
 */
#include "proxy/probe.h"

#include "common/buf.h"
#include "common/http_call.h"
#include "proxy/control_stats.h"

#include <stdlib.h>

struct probe {
    struct probes *probes;
    struct engine *engine;
    struct bt_http_origin *origin;
    struct bt_http_call *call; /* NULL: none is under way */
    struct bt_timer timer;     /* the next one, or the present one's limit */
    struct bt_buf request;
    struct iovec iov;
    bool is_answered;
};

struct probes {
    struct bt_loop *loop;
    struct bt_metrics *stats;
    uint64_t interval_ms, limit_ms;
    struct bt_http_pool *pool;
    struct probe *items;
    size_t count;
};

static void count_result(const struct probe *probe,
                         enum control_probe_result result)
{
    control_stat_add(probe->probes->stats, CONTROL_STAT_PROBES, (size_t)result,
                     1);
}

static void probe_end(struct probe *probe)
{
    bt_http_call_close(&probe->call);
    bt_timer_set(&probe->timer, probe->probes->interval_ms);
}

static void on_head(void *owner, const struct bt_http_head *head)
{
    struct probe *const probe = owner;

    probe->is_answered = true;
    if (head->code >= 200 && head->code < 300) {
        count_result(probe, CONTROL_PROBE_GOOD);
        engine_mark_good(probe->engine);
    } else {
        count_result(probe, CONTROL_PROBE_BAD_STATUS);
    }
}

static void on_body(void *owner, struct bt_str bytes)
{
    (void)owner;
    (void)bytes;
}

static void on_end(void *owner)
{
    probe_end(owner);
}

static void on_failed(void *owner, const struct bt_http_failure *failure)
{
    struct probe *const probe = owner;
    const bool is_lost =
        failure->status == BT_ERR_RESET || failure->status == BT_ERR_CLOSED;

    if (!failure->had_head && (failure->connecting || is_lost)) {
        count_result(probe, CONTROL_PROBE_LOST);
        engine_mark_failed(probe->engine, bt_loop_now_ms(probe->probes->loop),
                           failure->reason);
    } else if (!failure->had_head) {
        count_result(probe, CONTROL_PROBE_BAD_STATUS);
    }
    probe_end(probe);
}

static void on_sent(void *owner)
{
    (void)owner;
}

static const struct bt_http_call_events CALL_EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_failed = on_failed,
    .on_sent = on_sent,
};

static void probe_start(struct probe *probe)
{
    const struct bt_http_call_options options = {.fresh_only = true};

    probe->is_answered = false;
    probe->iov = (struct iovec){probe->request.data + probe->request.at,
                                probe->request.len};
    if (bt_http_call_open(probe->origin, &options, &probe->iov, 1, &CALL_EVENTS,
                          probe, &probe->call) != BT_OK) {
        /* Ours is the lack, not the engine's. */
        probe->call = NULL;
        bt_timer_set(&probe->timer, probe->probes->interval_ms);
        return;
    }
    bt_timer_set(&probe->timer, probe->probes->limit_ms);
}

static void on_due(struct bt_timer *timer)
{
    struct probe *const probe = bt_container_of(timer, struct probe, timer);

    if (probe->call == NULL) {
        probe_start(probe);
        return;
    }
    if (!probe->is_answered) {
        count_result(probe, CONTROL_PROBE_LATE);
        if (!bt_http_call_is_connected(probe->call)) {
            engine_mark_failed(probe->engine,
                               bt_loop_now_ms(probe->probes->loop),
                               "the probe could not connect in time");
        }
    }
    probe_end(probe);
}

static enum bt_status probe_open(struct probes *probes, struct probe *probe,
                                 struct engine *engine)
{
    probe->probes = probes;
    probe->engine = engine;
    bt_timer_init(&probe->timer, probes->loop, on_due);
    bt_buf_init(&probe->request);
    bt_buf_printf(&probe->request,
                  "GET /health HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n"
                  "Connection: close\r\n",
                  engine->url.authority);
    if (engine->key.len > 0) {
        bt_buf_printf(&probe->request, "Authorization: Bearer %.*s\r\n",
                      BT_STR_ARG(engine->key));
    }
    bt_buf_append(&probe->request, BT_STR("\r\n"));
    if (probe->request.failed) {
        return BT_ERR_NOMEM;
    }
    return bt_http_origin_open(probes->pool, &engine->addr, &probe->origin);
}

static enum bt_status open_all(struct probes *probes, struct registry *registry)
{
    const size_t count = registry->engine_count;

    probes->items = calloc(count, sizeof(*probes->items));
    if (probes->items == NULL) {
        return BT_ERR_NOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const enum bt_status status =
            probe_open(probes, &probes->items[i], &registry->engines[i]);

        probes->count++;
        if (status != BT_OK) {
            return status;
        }
        /* Spread over the interval. Probes speak no TLS: such an engine is
         * known by its calls alone. */
        if (!registry->engines[i].url.is_tls) {
            bt_timer_set(&probes->items[i].timer,
                         i * probes->interval_ms / count);
        }
    }
    return BT_OK;
}

enum bt_status probes_open(struct bt_loop *loop, const struct config *config,
                           struct registry *registry, struct bt_metrics *stats,
                           struct probes **probes_p)
{
    const struct bt_http_pool_options options = {
        .parse = {.head_bytes = 32 * BT_KIB,
                  .target_bytes = 1024,
                  .fields = 100},
        .idle_max = 1,
        .idle_ms = 1000,
        .connect_ms = config->timeouts.probe,
        .high_water = 64 * BT_KIB,
    };
    struct probes *probes = calloc(1, sizeof(*probes));
    enum bt_status status;

    if (probes == NULL) {
        return BT_ERR_NOMEM;
    }
    probes->loop = loop;
    probes->stats = stats;
    probes->interval_ms = config->timeouts.probe_interval;
    probes->limit_ms = config->timeouts.probe;
    status = bt_http_pool_open(loop, &options, &probes->pool);
    if (status == BT_OK && probes->interval_ms != 0 &&
        registry->engine_count > 0) {
        status = open_all(probes, registry);
    }
    if (status != BT_OK) {
        probes_close(&probes);
        return status;
    }
    *probes_p = probes;
    return BT_OK;
}

void probes_close(struct probes **probes_p)
{
    struct probes *const probes = *probes_p;

    *probes_p = NULL;
    if (probes == NULL) {
        return;
    }
    for (size_t i = 0; i < probes->count; i++) {
        struct probe *const probe = &probes->items[i];

        bt_timer_clear(&probe->timer);
        bt_http_call_close(&probe->call);
        if (probe->origin != NULL) {
            bt_http_origin_close(&probe->origin);
        }
        bt_buf_fini(&probe->request);
    }
    if (probes->pool != NULL) {
        bt_http_pool_close(&probes->pool);
    }
    free(probes->items);
    free(probes);
}
