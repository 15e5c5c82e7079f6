/*
 * roster: what follows for whom when an engine comes or goes.
 */
#include "proxy/roster/roster.h"

#include "common/base/log.h"
#include "proxy/metrics/control_stats.h"

#include <stdlib.h>
#include <sys/queue.h>

#define FIRST_MS  10 /* from one sweep to the next; doubled up to */
#define LAST_MS   1000
#define ANSWER_MS 5000 /* a sweep whose answer was lost is made anew */

enum departure_kind {
    DEPARTURE_OLD,   /* an old side, or old addresses, are read no more */
    DEPARTURE_DRAIN, /* nobody uses the engine */
    DEPARTURE_LEAVE, /* as it; then it is gone */
    DEPARTURE_FREE,  /* nobody knows it */
};

/* What is waited for until it can be freed, or called drained. */
struct departure {
    TAILQ_ENTRY(departure) entry;
    struct roster *roster;
    enum departure_kind kind;
    struct engine *engine; /* OLD: NULL */
    /* To be freed after the first sweep; or NULL. */
    struct side *old;
    struct engine_place *old_place;
    struct bt_timer timer;
    uint64_t wait_ms;
    uint64_t cut_ms; /* LEAVE: loop time; 0: never */
    bool is_cut;     /* FREE: what is open there ends */
    uint64_t number; /* of the sweep that is out */
    bool is_out;
    size_t awaited; /* answers to it */
    bool is_used;   /* some worker said so, in this sweep */
    bool is_known;
};

struct roster {
    struct roster_options options;
    TAILQ_HEAD(, departure) departures;
    uint64_t sweeps; /* so far */
};

/* --- joining the control thread's parts --- */

static void leave_parts(struct roster *roster, struct engine *engine)
{
    const struct roster_options *const o = &roster->options;

    probes_remove(o->probes, engine);
    names_remove(o->names, engine);
    bootstraps_remove(o->bootstraps, engine);
    agents_remove(o->agents, engine);
}

static enum bt_status join_parts(struct roster *roster, struct engine *engine,
                                 uint64_t probe_ms)
{
    const struct roster_options *const o = &roster->options;
    enum bt_status status = names_add(o->names, engine);

    if (status == BT_OK) {
        status = bootstraps_add(o->bootstraps, engine);
    }
    if (status == BT_OK) {
        status = probes_add(o->probes, engine, probe_ms);
    }
    if (status == BT_OK) {
        status = agents_add(o->agents, engine);
    }
    if (status != BT_OK) {
        leave_parts(roster, engine);
    }
    return status;
}

static void count_engines(const struct roster *roster, int64_t more)
{
    control_stat_add(roster->options.stats, CONTROL_STAT_ENGINES, 0, more);
}

/* --- departures --- */

static void on_due(struct bt_timer *timer);

static struct departure *departure_open(struct roster *roster,
                                        enum departure_kind kind,
                                        struct engine *engine)
{
    struct departure *const departure = calloc(1, sizeof(*departure));

    if (departure != NULL) {
        departure->roster = roster;
        departure->kind = kind;
        departure->engine = engine;
        departure->wait_ms = FIRST_MS;
        bt_timer_init(&departure->timer, roster->options.loop, on_due);
        TAILQ_INSERT_TAIL(&roster->departures, departure, entry);
    }
    return departure;
}

static void free_old(struct departure *departure)
{
    free(departure->old);
    free(departure->old_place);
    departure->old = NULL;
    departure->old_place = NULL;
}

/* The caller uses it no more. */
static void departure_close(struct departure *departure)
{
    TAILQ_REMOVE(&departure->roster->departures, departure, entry);
    bt_timer_clear(&departure->timer);
    free_old(departure);
    free(departure);
}

static struct departure *departure_of(const struct roster *roster,
                                      const struct engine *engine)
{
    struct departure *departure;

    TAILQ_FOREACH (departure, &roster->departures, entry) {
        if (departure->engine == engine) {
            break;
        }
    }
    return departure;
}

/* How long answers are waited for. */
static uint64_t patience(const struct departure *departure)
{
    const uint64_t now_ms = bt_loop_now_ms(departure->roster->options.loop);
    const uint64_t left_ms =
        departure->cut_ms > now_ms ? departure->cut_ms - now_ms : 0;

    return departure->kind == DEPARTURE_LEAVE && departure->cut_ms != 0 &&
                   left_ms < ANSWER_MS
               ? left_ms
               : ANSWER_MS;
}

/* Asks all workers; without any (they have ended) the answer is no. */
static void sweep(struct departure *departure)
{
    struct roster *const roster = departure->roster;

    departure->number = ++roster->sweeps;
    departure->is_out = true;
    departure->is_used = false;
    departure->is_known = false;
    departure->awaited = orders_sweep(roster->options.orders, departure->engine,
                                      departure->number);
    bt_timer_set(&departure->timer,
                 departure->awaited > 0 ? patience(departure) : 0);
}

static void sweep_again(struct departure *departure)
{
    bt_timer_set(&departure->timer, departure->wait_ms);
    departure->wait_ms =
        departure->wait_ms * 2 < LAST_MS ? departure->wait_ms * 2 : LAST_MS;
}

/* Nobody is to ask it anything any more. */
static void make_gone(struct departure *departure)
{
    struct engine *const engine = departure->engine;

    atomic_store(&engine->state, ENGINE_GONE);
    handoffs_release_engine(departure->roster->options.handoffs, engine);
    leave_parts(departure->roster, engine);
    bt_log(BT_LOG_INFO, engine->url.normal, "is removed (engine %llu)",
           (unsigned long long)engine->id);
    departure->kind = DEPARTURE_FREE;
    departure->wait_ms = FIRST_MS;
    sweep(departure);
}

static bool is_late(const struct departure *departure)
{
    return departure->cut_ms != 0 &&
           bt_loop_now_ms(departure->roster->options.loop) >= departure->cut_ms;
}

static void cut(struct departure *departure)
{
    bt_log(BT_LOG_WARN, departure->engine->url.normal,
           "time to drain is over: its calls are cut");
    departure->is_cut = true;
    orders_cut(departure->roster->options.orders, departure->engine);
    make_gone(departure);
}

static void judge_leaving(struct departure *departure)
{
    struct engine *const engine = departure->engine;

    if (!departure->is_used && atomic_load(&engine->held_count) == 0) {
        make_gone(departure);
    } else if (is_late(departure)) {
        cut(departure);
    } else {
        sweep_again(departure);
    }
}

static void judge_known(struct departure *departure)
{
    const struct roster_options *const o = &departure->roster->options;

    if (departure->is_known) {
        if (departure->is_cut) { /* what began meanwhile */
            orders_cut(o->orders, departure->engine);
        }
        sweep_again(departure);
        return;
    }
    count_engines(departure->roster, -1);
    handoffs_forget_engine(o->handoffs, departure->engine);
    fleet_free(o->fleet, &departure->engine);
    departure_close(departure);
}

/* All workers have answered. */
static void judge(struct departure *departure)
{
    departure->is_out = false;
    free_old(departure);
    switch (departure->kind) {
    case DEPARTURE_OLD:
        departure_close(departure);
        break;
    case DEPARTURE_DRAIN:
        if (departure->is_used ||
            atomic_load(&departure->engine->held_count) != 0) {
            sweep_again(departure);
        } else {
            atomic_store(&departure->engine->state, ENGINE_DRAINED);
            departure_close(departure);
        }
        break;
    case DEPARTURE_LEAVE:
        judge_leaving(departure);
        break;
    case DEPARTURE_FREE:
        judge_known(departure);
        break;
    }
}

/* All have answered, or an answer was lost, or it is time for another sweep. */
static void on_due(struct bt_timer *timer)
{
    struct departure *const departure =
        bt_container_of(timer, struct departure, timer);

    if (departure->is_out && departure->awaited == 0) {
        judge(departure);
    } else if (departure->kind == DEPARTURE_LEAVE && is_late(departure)) {
        cut(departure); /* whoever has not answered */
    } else {
        sweep(departure);
    }
}

static struct departure *departure_swept(const struct roster *roster,
                                         uint64_t number)
{
    struct departure *departure;

    TAILQ_FOREACH (departure, &roster->departures, entry) {
        if (departure->number == number && departure->awaited > 0) {
            break;
        }
    }
    return departure;
}

/* What follows is done later: an agent's link may be in the middle of a line.
 */
void roster_swept(struct roster *roster, const struct orders_swept *swept)
{
    struct departure *const departure = departure_swept(roster, swept->number);

    if (departure == NULL) {
        return;
    }
    departure->is_used = departure->is_used || swept->is_used;
    departure->is_known = departure->is_known || swept->is_known;
    departure->awaited--;
    if (departure->awaited == 0) {
        bt_timer_set(&departure->timer, 0);
    }
}

/* --- adding --- */

/* Published, or freed. */
static enum bt_status publish(struct roster *roster, struct engine *engine)
{
    struct departure *const departure =
        departure_open(roster, DEPARTURE_OLD, NULL);
    enum bt_status status = BT_ERR_NOMEM;

    if (departure != NULL) {
        status = join_parts(roster, engine, 0);
    }
    if (status == BT_OK) {
        status = fleet_publish(roster->options.fleet, engine, &departure->old);
        if (status != BT_OK) {
            leave_parts(roster, engine);
        }
    }
    if (status == BT_OK) {
        sweep(departure);
    } else if (departure != NULL) {
        departure_close(departure);
    }
    return status;
}

enum bt_status roster_add(struct roster *roster, struct bt_str request,
                          struct engine **engine_p,
                          struct bt_conf_error *error_p)
{
    const struct roster_options *const o = &roster->options;
    struct engine_conf *conf = NULL;
    struct engine *engine = NULL;
    enum engine_role role = ENGINE_PREFILL;
    enum bt_status status;
    size_t pool = 0;

    if (!config_read_engine(request, o->config, &conf, &role, &pool, error_p)) {
        return BT_ERR_SYNTAX;
    }
    status =
        fleet_add(o->fleet, &o->fleet->pools[pool], role, NULL, conf, &engine);
    if (status == BT_OK) {
        status = publish(roster, engine);
        if (status != BT_OK) {
            fleet_free(o->fleet, &engine);
        }
    }
    if (status != BT_OK) {
        (void)bt_conf_fail(error_p, "%s", bt_status_text(status));
        return status;
    }
    bt_log(BT_LOG_INFO, engine->url.normal,
           "is added (engine %llu, %s, pool %zu)",
           (unsigned long long)engine->id, config_roles[role], pool);
    count_engines(roster, 1);
    orders_tell_waiting(o->orders);
    *engine_p = engine;
    return BT_OK;
}

bool roster_set_addrs(struct roster *roster, struct engine *engine,
                      const struct bt_addrs *addrs)
{
    struct departure *const departure =
        departure_open(roster, DEPARTURE_OLD, NULL);

    if (departure == NULL) {
        return false;
    }
    if (engine_set_addrs(engine, addrs, &departure->old_place) != BT_OK) {
        departure_close(departure);
        return false;
    }
    sweep(departure);
    orders_tell_waiting(roster->options.orders);
    return true;
}

/* --- draining and removing --- */

static bool is_leaving(const struct engine *engine)
{
    const enum engine_state state = atomic_load(&engine->state);

    return state == ENGINE_LEAVING || state == ENGINE_GONE;
}

static void stop_draining(struct roster *roster, struct engine *engine)
{
    struct departure *const departure = departure_of(roster, engine);

    if (departure != NULL && departure->kind == DEPARTURE_DRAIN) {
        departure_close(departure);
    }
}

enum bt_status roster_drain(struct roster *roster, struct engine *engine,
                            bool is_draining)
{
    const enum engine_state state = atomic_load(&engine->state);
    struct departure *departure;

    if (is_leaving(engine)) {
        return BT_ERR_CLOSED;
    }
    if (is_draining != (state == ENGINE_UP)) {
        return BT_OK; /* it is so already */
    }
    if (!is_draining) {
        stop_draining(roster, engine);
        atomic_store(&engine->state, ENGINE_UP);
        bt_log(BT_LOG_INFO, engine->url.normal, "takes requests again");
        orders_tell_waiting(roster->options.orders);
        return BT_OK;
    }
    departure = departure_open(roster, DEPARTURE_DRAIN, engine);
    if (departure == NULL) {
        return BT_ERR_NOMEM;
    }
    atomic_store(&engine->state, ENGINE_DRAINING);
    bt_log(BT_LOG_INFO, engine->url.normal, "drains: it gets no new requests");
    sweep(departure);
    orders_tell_waiting(roster->options.orders); /* for another engine */
    return BT_OK;
}

enum bt_status roster_remove(struct roster *roster, struct engine *engine)
{
    const struct roster_options *const o = &roster->options;
    const uint64_t drain_ms = o->config->timeouts.drain;
    struct departure *departure;
    enum bt_status status;

    if (engine->own_conf == NULL) {
        return BT_ERR_UNSUPPORTED;
    }
    if (is_leaving(engine)) {
        return BT_OK;
    }
    departure = departure_open(roster, DEPARTURE_LEAVE, engine);
    if (departure == NULL) {
        return BT_ERR_NOMEM;
    }
    status = fleet_withdraw(o->fleet, engine, &departure->old);
    if (status != BT_OK) {
        departure_close(departure);
        return status;
    }
    stop_draining(roster, engine); /* the older of the two */
    atomic_store(&engine->state, ENGINE_LEAVING);
    departure->cut_ms = drain_ms == 0 ? 0 : bt_loop_now_ms(o->loop) + drain_ms;
    bt_log(BT_LOG_INFO, engine->url.normal,
           "leaves: it gets no new requests (engine %llu)",
           (unsigned long long)engine->id);
    sweep(departure);
    orders_tell_waiting(o->orders); /* for another engine, or for nobody */
    return BT_OK;
}

/* --- life --- */

static enum bt_status join_all(struct roster *roster)
{
    const struct roster_options *const o = &roster->options;
    const uint64_t interval_ms = o->config->timeouts.probe_interval;
    enum bt_status status = BT_OK;
    struct engine *engine;

    FLEET_FOREACH (engine, o->fleet) {
        /* Probes are spread over the interval. */
        status = join_parts(roster, engine,
                            engine->slot * interval_ms / o->fleet->slot_count);
        if (status != BT_OK) {
            break;
        }
        count_engines(roster, 1);
    }
    return status;
}

enum bt_status roster_open(const struct roster_options *options,
                           struct roster **roster_p)
{
    struct roster *roster = calloc(1, sizeof(*roster));
    enum bt_status status;

    if (roster == NULL) {
        return BT_ERR_NOMEM;
    }
    roster->options = *options;
    TAILQ_INIT(&roster->departures);
    status = join_all(roster);
    if (status != BT_OK) {
        roster_close(&roster);
        return status;
    }
    *roster_p = roster;
    return BT_OK;
}

void roster_close(struct roster **roster)
{
    struct roster *const dead = *roster;
    struct departure *departure =
        dead == NULL ? NULL : TAILQ_FIRST(&dead->departures);

    *roster = NULL;
    while (departure != NULL) {
        struct departure *const next = TAILQ_NEXT(departure, entry);

        departure_close(departure);
        departure = next;
    }
    free(dead);
}
