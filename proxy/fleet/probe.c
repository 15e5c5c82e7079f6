/*
 * Health probes of engines.
 */
#include "proxy/fleet/probe.h"

#include "common/base/buf.h"
#include "common/http/http_call.h"
#include "proxy/metrics/control_stats.h"

#include <stdlib.h>

#define LATE_MAX 3

struct probe {
    struct probes *probes;
    struct engine *engine;
    struct bt_http_origin *origin; /* NULL: it has no address yet */
    struct bt_http_call *call;     /* NULL: none is under way */
    struct bt_timer timer; /* the next one, or the present one's limit */
    struct bt_buf request;
    struct iovec iov;
    bool is_answered;
    unsigned late; /* in a row */
};

struct probes {
    struct probes_options options;
    uint64_t interval_ms, limit_ms;
    struct bt_http_pool *pool;
    struct probe *items;
    size_t count;
};

static void count_result(const struct probe *probe,
                         enum control_probe_result result)
{
    control_stat_add(probe->probes->options.stats, CONTROL_STAT_PROBES,
                     (size_t)result, 1);
}

static uint64_t now_ms(const struct probe *probe)
{
    return bt_loop_now_ms(probe->probes->options.loop);
}

/*
 * After the engine was marked: a call may have found out first. Told by each
 * bad probe: a leg stays there while nobody else is usable, and leaves when
 * somebody is again.
 */
static void tell_lost(struct probe *probe)
{
    const struct probes_options *const options = &probe->probes->options;

    options->on_lost(options->owner, probe->engine);
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
    probe->late = 0;
    count_result(probe, head->code >= 200 && head->code < 300
                            ? CONTROL_PROBE_GOOD
                            : CONTROL_PROBE_BAD_STATUS);
    if (head->code == 503) {
        engine_mark_failed(probe->engine, now_ms(probe),
                           "its GET /health is answered 503; its own log says "
                           "why");
        tell_lost(probe);
    } else if (head->code < 500) {
        engine_mark_good(probe->engine);
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
    const bool is_lost = failure->connecting ||
                         failure->status == BT_ERR_RESET ||
                         failure->status == BT_ERR_CLOSED;

    if (!failure->had_head && is_lost && failure->status != BT_ERR_NOMEM) {
        count_result(probe, CONTROL_PROBE_LOST);
        engine_mark_lost(probe->engine, now_ms(probe), failure);
        tell_lost(probe);
    } else if (!failure->had_head) {
        count_result(probe, CONTROL_PROBE_BAD_STATUS);
    }
    probe_end(probe);
}

static const struct bt_http_call_events CALL_EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_failed = on_failed,
};

static bool has_origin(struct probe *probe)
{
    const struct bt_addrs *const addrs = engine_addrs(probe->engine);

    if (probe->origin == NULL && addrs != NULL &&
        bt_http_origin_open(probe->probes->pool, addrs->items, addrs->count,
                            &probe->origin) != BT_OK) {
        probe->origin = NULL;
    }
    return probe->origin != NULL;
}

static void probe_start(struct probe *probe)
{
    const struct bt_http_call_options options = {.fresh_only = true};
    enum bt_status status = BT_ERR_NOT_FOUND;

    probe->is_answered = false;
    probe->iov = (struct iovec){probe->request.data + probe->request.at,
                                probe->request.len};
    if (has_origin(probe)) {
        status = bt_http_call_open(probe->origin, &options, &probe->iov, 1,
                                   &CALL_EVENTS, probe, &probe->call);
    }
    if (status == BT_OK) {
        bt_timer_set(&probe->timer, probe->probes->limit_ms);
        return;
    }
    /* Else ours is the lack, not the engine's. */
    if (status == BT_ERR_UNSUPPORTED) {
        engine_mark_failed(probe->engine, now_ms(probe),
                           "this host does not speak its address's protocol "
                           "(IPv6 is off?)");
        tell_lost(probe);
    }
    probe->call = NULL;
    bt_timer_set(&probe->timer, probe->probes->interval_ms);
}

/* No answer within the limit. */
static void probe_late(struct probe *probe)
{
    count_result(probe, CONTROL_PROBE_LATE);
    probe->late++;
    if (!bt_http_call_is_connected(probe->call)) {
        engine_mark_failed(probe->engine, now_ms(probe),
                           "a health probe cannot connect in time; look at its "
                           "host, the network and what filters it");
        tell_lost(probe);
    } else if (probe->late >= LATE_MAX) {
        engine_mark_failed(probe->engine, now_ms(probe),
                           "three GET /health in a row are not answered in "
                           "time (timeouts.probe); does it hang?");
        tell_lost(probe);
    }
}

static void on_due(struct bt_timer *timer)
{
    struct probe *const probe = bt_container_of(timer, struct probe, timer);

    if (probe->call == NULL) {
        probe_start(probe);
        return;
    }
    if (!probe->is_answered) {
        probe_late(probe);
    }
    probe_end(probe);
}

static enum bt_status probe_open(struct probes *probes, struct probe *probe,
                                 struct engine *engine)
{
    probe->probes = probes;
    probe->engine = engine;
    bt_timer_init(&probe->timer, probes->options.loop, on_due);
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
    return probe->request.failed ? BT_ERR_NOMEM : BT_OK;
}

static enum bt_status open_all(struct probes *probes)
{
    struct registry *const registry = probes->options.registry;
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
        if (registry->engines[i].is_probed) {
            bt_timer_set(&probes->items[i].timer,
                         i * probes->interval_ms / count);
        }
    }
    return BT_OK;
}

enum bt_status probes_open(const struct probes_options *options,
                           struct probes **probes_p)
{
    const struct config *const config = options->config;
    const struct bt_http_pool_options pool_options = {
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
    probes->options = *options;
    probes->interval_ms = config->timeouts.probe_interval;
    probes->limit_ms = config->timeouts.probe;
    status = bt_http_pool_open(options->loop, &pool_options, &probes->pool);
    if (status == BT_OK && probes->interval_ms != 0 &&
        options->registry->engine_count > 0) {
        status = open_all(probes);
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
