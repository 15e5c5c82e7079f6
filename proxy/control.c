/*
 * The control thread: puts its parts together.
 *
 *     orders --> handoffs <--events-- agents <- listener, links
 *                   |  \--orders----->  |
 *                   v                   v
 *                  news to workers     engines' atomics      roster, probes,
 * admin
 *
 * Everything is opened on the program's first thread, so that errors are seen
 * at the start, and belongs to the control thread from control_start on.
 */
#include "proxy/control.h"

#include "common/base/log.h"
#include "proxy/admin/admin.h"
#include "proxy/agents/agents.h"
#include "proxy/agents/handoffs.h"
#include "proxy/metrics/control_stats.h"
#include "proxy/roster/roster.h"

#include <pthread.h>
#include <stdlib.h>

struct control {
    struct control_options options;
    struct bt_loop *loop;
    struct orders *orders;
    struct bt_metrics *stats;
    struct handoffs *handoffs;
    struct agents *agents;
    struct probes *probes;
    struct admin *admin;
    struct names *names;
    struct bootstraps *bootstraps;
    struct roster *roster;
    struct auth *auth; /* keys for changes */
    pthread_t thread;
    bool is_running;
};

/* --- to workers --- */

static void on_news(void *owner, struct bt_mailbox *worker,
                    struct control_news *news)
{
    (void)owner;
    bt_mailbox_post(worker, &news->mail);
}

static void on_room(void *owner)
{
    const struct control *const control = owner;

    orders_tell_waiting(control->orders);
}

static void on_lost(void *owner, const struct engine *engine)
{
    const struct control *const control = owner;

    orders_tell_lost(control->orders, engine);
}

/* --- between handoffs and agents --- */

static void on_order(void *owner, const struct engine *engine,
                     enum handoff_order order, struct handoff_id id,
                     enum release_reason reason)
{
    const struct control *const control = owner;

    agents_order(control->agents, engine, order, id, reason);
}

static unsigned ranks_of(void *owner, const struct engine *engine)
{
    const struct control *const control = owner;

    return agents_ranks(control->agents, engine);
}

static uint64_t now_us(void *owner)
{
    (void)owner;
    return bt_clock_us();
}

static const struct handoffs_events HANDOFFS_EVENTS = {
    .on_order = on_order,
    .on_news = on_news,
    .on_room = on_room,
    .ranks = ranks_of,
    .now_us = now_us,
};

/*
 * What workers posted comes before what agents say: a D that is chosen is
 * known before its agent can report on the handoff.
 */
static void on_reading(void *owner)
{
    const struct control *const control = owner;

    orders_drain(control->orders);
}

/* --- life --- */

static enum bt_status open_agents(struct control *control)
{
    const struct agents_options options = {
        .loop = control->loop,
        .config = control->options.config,
        .boot = control->options.boot,
        .stats = control->stats,
        .on_reading = on_reading,
        .on_room = on_room,
        .on_lost = on_lost,
        .owner = control,
    };
    const enum bt_status status = agents_open(&options, &control->agents);

    if (status != BT_OK) {
        return status;
    }
    control->handoffs =
        handoffs_open(control->stats, &HANDOFFS_EVENTS, control);
    if (control->handoffs == NULL) {
        return BT_ERR_NOMEM;
    }
    agents_set_handoffs(control->agents, control->handoffs);
    orders_set_handoffs(control->orders, control->handoffs);
    return BT_OK;
}

static enum bt_status open_admin(struct control *control)
{
    const struct admin_sources sources = {
        .loop = control->loop,
        .config = control->options.config,
        .fleet = control->options.fleet,
        .roster = control->roster,
        .auth = control->auth,
        .boot = control->options.boot,
        .agents = control->agents,
        .handoffs = control->handoffs,
        .metrics = control->options.metrics,
        .metrics_count = control->options.metrics_count,
        .stats = control->stats,
        .is_draining = control->options.is_draining,
    };

    return admin_open(&sources, &control->admin);
}

static enum bt_status open_probes(struct control *control)
{
    const struct probes_options options = {
        .loop = control->loop,
        .config = control->options.config,
        .stats = control->stats,
        .on_lost = on_lost,
        .owner = control,
    };

    return probes_open(&options, &control->probes);
}

static bool on_addrs(void *owner, struct engine *engine,
                     const struct bt_addrs *addrs)
{
    const struct control *const control = owner;

    return roster_set_addrs(control->roster, engine, addrs);
}

static enum bt_status open_names(struct control *control)
{
    const struct names_options options = {
        .loop = control->loop,
        .config = control->options.config,
        .on_addrs = on_addrs,
        .owner = control,
    };

    return names_open(&options, &control->names);
}

static void on_swept(void *owner, const struct orders_swept *swept)
{
    const struct control *const control = owner;

    roster_swept(control->roster, swept);
}

/* The first answers about engines are waited for, shortly. */
static enum bt_status open_roster(struct control *control)
{
    const struct roster_options options = {
        .loop = control->loop,
        .config = control->options.config,
        .fleet = control->options.fleet,
        .orders = control->orders,
        .stats = control->stats,
        .agents = control->agents,
        .handoffs = control->handoffs,
        .probes = control->probes,
        .names = control->names,
        .bootstraps = control->bootstraps,
    };
    const enum bt_status status = roster_open(&options, &control->roster);

    if (status == BT_OK) {
        orders_on_swept(control->orders, on_swept, control);
        names_await(control->names);
        bootstraps_await(control->bootstraps);
    }
    return status;
}

static enum bt_status open_parts(struct control *control)
{
    enum bt_status status = bt_loop_open(&control->loop);

    if (status != BT_OK) {
        return status;
    }
    control->stats = bt_metrics_open(control_stat_rows, CONTROL_STATS);
    if (control->stats == NULL) {
        return BT_ERR_NOMEM;
    }
    status = orders_open(control->loop, &control->orders);
    if (status == BT_OK) {
        status = open_agents(control);
    }
    if (status == BT_OK) {
        status = open_names(control);
    }
    if (status == BT_OK) {
        status = bootstraps_open(control->loop, control->options.config,
                                 &control->bootstraps);
    }
    if (status == BT_OK) {
        status = open_probes(control);
    }
    if (status == BT_OK) {
        status = open_roster(control);
    }
    if (status == BT_OK) {
        status = auth_open(control->options.config->auth.admin_keys_file,
                           &control->auth);
    }
    return status == BT_OK ? open_admin(control) : status;
}

enum bt_status control_open(const struct control_options *options,
                            struct control **control_p)
{
    struct control *control = calloc(1, sizeof(*control));
    enum bt_status status;

    if (control == NULL) {
        return BT_ERR_NOMEM;
    }
    control->options = *options;
    status = open_parts(control);
    if (status != BT_OK) {
        bt_log(BT_LOG_ERROR, "control", "cannot start: %s",
               bt_status_text(status));
        control_close(&control);
        return status;
    }
    *control_p = control;
    return BT_OK;
}

const char *control_admin_address(const struct control *control)
{
    return admin_address(control->admin);
}

const char *control_agents_address(const struct control *control)
{
    return agents_address(control->agents);
}

static void *run(void *arg)
{
    struct control *const control = arg;

    bt_loop_run(control->loop);
    return NULL;
}

struct orders *control_orders(const struct control *control)
{
    return control->orders;
}

enum bt_status control_start(struct control *control)
{
    if (pthread_create(&control->thread, NULL, run, control) != 0) {
        bt_log(BT_LOG_ERROR, "control", "the thread cannot be started");
        return BT_ERR_SYSTEM;
    }
    control->is_running = true;
    orders_started(control->orders);
    return BT_OK;
}

static void stop_thread(struct control *control)
{
    orders_stop(control->orders);
    (void)pthread_join(control->thread, NULL);
}

void control_close(struct control **control_p)
{
    struct control *const control = *control_p;

    *control_p = NULL;
    if (control == NULL) {
        return;
    }
    if (control->is_running) {
        stop_thread(control);
    }
    if (control->admin != NULL) {
        admin_close(&control->admin);
    }
    auth_close(&control->auth);
    roster_close(&control->roster);
    probes_close(&control->probes);
    bootstraps_close(&control->bootstraps);
    names_close(&control->names);
    agents_close(&control->agents);
    handoffs_close(&control->handoffs);
    orders_close(&control->orders);
    if (control->loop != NULL) {
        bt_loop_close(&control->loop);
    }
    bt_metrics_close(&control->stats);
    free(control);
}
