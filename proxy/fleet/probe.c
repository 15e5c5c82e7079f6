/*
 * Health probes of engines.
 */
#include "proxy/fleet/probe.h"

#include "common/base/buf.h"
#include "common/http/http_call.h"
#include "proxy/metrics/control_stats.h"

#include <stdlib.h>
#include <sys/queue.h>

#define LATE_MAX 3

struct probe {
    struct bt_grave grave;
    TAILQ_ENTRY(probe) entry;
    struct probes *probes;
    struct engine *engine;
    struct bt_http_origin *origin; /* NULL: it has no address yet */
    uint64_t version;              /* of its addresses */
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
    TAILQ_HEAD(, probe) items;
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
    uint64_t version = 0;
    const struct bt_addrs *const addrs =
        engine_addrs_at(probe->engine, &version);

    if (version != probe->version) {
        bt_http_origin_close(&probe->origin);
        probe->version = version;
    }
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

static void write_request(struct bt_buf *request, const struct engine *engine)
{
    bt_buf_printf(request,
                  "GET /health HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\n"
                  "Connection: close\r\n",
                  engine->url.authority);
    if (engine->key.len > 0) {
        bt_buf_printf(request, "Authorization: Bearer %.*s\r\n",
                      BT_STR_ARG(engine->key));
    }
    bt_buf_append(request, BT_STR("\r\n"));
}

static void destroy(struct bt_grave *grave)
{
    struct probe *const probe = bt_container_of(grave, struct probe, grave);

    bt_buf_fini(&probe->request);
    free(probe);
}

static void probe_close(struct probe *probe)
{
    TAILQ_REMOVE(&probe->probes->items, probe, entry);
    bt_timer_clear(&probe->timer);
    bt_http_call_close(&probe->call);
    bt_http_origin_close(&probe->origin);
    bt_loop_bury(probe->probes->options.loop, &probe->grave, destroy);
}

enum bt_status probes_add(struct probes *probes, struct engine *engine,
                          uint64_t delay_ms)
{
    struct probe *probe;

    /* Probes speak no TLS: such an engine is known by its calls alone. */
    if (!engine->is_probed) {
        return BT_OK;
    }
    probe = calloc(1, sizeof(*probe));
    if (probe == NULL) {
        return BT_ERR_NOMEM;
    }
    probe->probes = probes;
    probe->engine = engine;
    bt_timer_init(&probe->timer, probes->options.loop, on_due);
    bt_buf_init(&probe->request);
    write_request(&probe->request, engine);
    TAILQ_INSERT_TAIL(&probes->items, probe, entry);
    if (probe->request.failed) {
        probe_close(probe);
        return BT_ERR_NOMEM;
    }
    bt_timer_set(&probe->timer, delay_ms);
    return BT_OK;
}

void probes_remove(struct probes *probes, const struct engine *engine)
{
    struct probe *probe;

    TAILQ_FOREACH (probe, &probes->items, entry) {
        if (probe->engine == engine) {
            probe_close(probe);
            return;
        }
    }
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
    TAILQ_INIT(&probes->items);
    status = bt_http_pool_open(options->loop, &pool_options, &probes->pool);
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
    while (!TAILQ_EMPTY(&probes->items)) {
        probe_close(TAILQ_FIRST(&probes->items));
    }
    if (probes->pool != NULL) {
        bt_http_pool_close(&probes->pool);
    }
    free(probes);
}
