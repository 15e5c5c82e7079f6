/*
 * Looking up the names of engines, off the request path.
 */
#include "proxy/fleet/names.h"

#include "common/base/log.h"

#include <stdlib.h>
#include <sys/queue.h>

#define ASKING_MAX 64   /* questions at once */
#define START_MS   3000 /* what the start waits for all names together */
#define TURN_MS    20   /* until there may be room for a question */
#define AGAIN_MS   1000 /* after a failure; doubled each time up to */
#define AGAIN_MAX  30000
#define TTL_MIN    1000
#define TTL_MAX    300000
#define TTL_NONE   5000 /* where it is 0, or not known: a hosts file */

struct name {
    TAILQ_ENTRY(name) entry;
    struct names *names;
    struct engine *engine;
    struct bt_query *query; /* NULL: it is not asked for now */
    struct bt_timer timer;
    uint64_t again_ms;
    const char *why; /* as last logged; NULL: it is good */
    bool is_first;   /* nothing was heard yet */
};

struct names {
    struct names_options options;
    struct bt_resolver *resolver;
    TAILQ_HEAD(, name) items;
    size_t asking;  /* queries under way */
    size_t unheard; /* names of which nothing was heard */
};

static void log_addrs(const struct engine *engine, const struct bt_addrs *addrs,
                      bool is_first)
{
    char text[BT_ADDR_TEXT_MAX];

    bt_addr_format(&addrs->items[0], text);
    bt_log(BT_LOG_INFO, engine->url.normal, "its name %s %s%s",
           is_first ? "is resolved:" : "stands for others now:", text,
           addrs->count > 1 ? " and others" : "");
}

/* Once for each cause. */
static void log_failed(struct name *name, const char *why)
{
    if (name->why == why) {
        return;
    }
    name->why = why;
    bt_log(BT_LOG_WARN, name->engine->url.normal,
           "%s: %s; it is asked for again from time to time",
           engine_addrs(name->engine) == NULL
               ? "not usable: its name is not resolved"
               : "its name is not resolved any more, what it stood for is kept",
           why);
}

/* As sets: servers turn their answers around. Each is there once. */
static bool is_same(const struct bt_addrs *a, const struct bt_addrs *b)
{
    if (a == NULL || a->count != b->count) {
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        if (!bt_addrs_has(b, &a->items[i])) {
            return false;
        }
    }
    return true;
}

static void ask_again(struct name *name)
{
    bt_timer_set(&name->timer, name->again_ms);
    name->again_ms =
        name->again_ms * 2 < AGAIN_MAX ? name->again_ms * 2 : AGAIN_MAX;
}

static uint64_t clamp_ttl(uint64_t ms)
{
    ms = ms == 0 ? TTL_NONE : ms;
    ms = ms < TTL_MIN ? TTL_MIN : ms;
    return ms > TTL_MAX ? TTL_MAX : ms;
}

static void take_addrs(struct name *name, const struct bt_answer *answer)
{
    const struct names_options *const options = &name->names->options;
    const struct bt_addrs *const before = engine_addrs(name->engine);

    if (!is_same(before, &answer->addrs)) {
        log_addrs(name->engine, &answer->addrs, before == NULL);
        if (!options->on_addrs(options->owner, name->engine, &answer->addrs)) {
            log_failed(name, "out of memory");
            ask_again(name);
            return;
        }
    }
    name->why = NULL;
    name->again_ms = AGAIN_MS;
    bt_timer_set(&name->timer, clamp_ttl(answer->ttl_ms));
}

static void heard(struct name *name)
{
    name->names->unheard -= name->is_first ? 1 : 0;
    name->is_first = false;
}

static void end_query(struct name *name)
{
    if (name->query != NULL) {
        bt_query_close(&name->query);
        name->names->asking--;
    }
}

static void on_answer(void *owner, const struct bt_answer *answer)
{
    struct name *const name = owner;

    heard(name);
    if (answer->status == BT_OK) {
        take_addrs(name, answer);
    } else {
        log_failed(name, answer->why);
        ask_again(name);
    }
    end_query(name);
}

static void on_due(struct bt_timer *timer)
{
    struct name *const name = bt_container_of(timer, struct name, timer);
    struct names *const names = name->names;

    if (names->asking >= ASKING_MAX) {
        bt_timer_set(timer, TURN_MS);
    } else if (bt_query_open(names->resolver, &name->engine->url, on_answer,
                             name, &name->query) == BT_OK) {
        names->asking++;
    } else {
        name->query = NULL;
        heard(name);
        log_failed(name, "out of memory");
        ask_again(name);
    }
}

void names_await(struct names *names)
{
    const uint64_t until_us = bt_clock_us() + START_MS * UINT64_C(1000);
    struct name *name;

    while (names->unheard > 0 && bt_clock_us() < until_us) {
        bt_loop_turn(names->options.loop, 10);
    }
    TAILQ_FOREACH (name, &names->items, entry) {
        if (name->is_first) {
            log_failed(name, "no answer yet");
        }
    }
}

static void name_close(struct name *name)
{
    TAILQ_REMOVE(&name->names->items, name, entry);
    bt_timer_clear(&name->timer);
    heard(name);
    end_query(name);
    free(name);
}

enum bt_status names_add(struct names *names, struct engine *engine)
{
    struct name *name;

    if (engine_addrs(engine) != NULL) {
        return BT_OK;
    }
    name = calloc(1, sizeof(*name));
    if (name == NULL) {
        return BT_ERR_NOMEM;
    }
    name->names = names;
    name->engine = engine;
    name->again_ms = AGAIN_MS;
    name->is_first = true;
    names->unheard++;
    bt_timer_init(&name->timer, names->options.loop, on_due);
    TAILQ_INSERT_TAIL(&names->items, name, entry);
    bt_timer_set(&name->timer, 0);
    return BT_OK;
}

void names_remove(struct names *names, const struct engine *engine)
{
    struct name *name;

    TAILQ_FOREACH (name, &names->items, entry) {
        if (name->engine == engine) {
            name_close(name);
            return;
        }
    }
}

enum bt_status names_open(const struct names_options *options,
                          struct names **names_p)
{
    const char *const servers = options->config->names.servers;
    struct names *names = calloc(1, sizeof(*names));
    enum bt_status status;

    if (names == NULL) {
        return BT_ERR_NOMEM;
    }
    names->options = *options;
    TAILQ_INIT(&names->items);
    status = bt_resolver_open(options->loop, servers, &names->resolver);
    if (status != BT_OK) {
        if (status == BT_ERR_SYNTAX) {
            bt_log(BT_LOG_ERROR, "names.servers",
                   "cannot read \"%s\"; write addresses with commas between "
                   "them, such as 10.0.0.2:53,[fd00::2]:53",
                   servers);
        }
        free(names);
        return status;
    }
    *names_p = names;
    return BT_OK;
}

void names_close(struct names **names_p)
{
    struct names *const names = *names_p;
    struct name *name = names == NULL ? NULL : TAILQ_FIRST(&names->items);

    *names_p = NULL;
    while (name != NULL) {
        struct name *const next = TAILQ_NEXT(name, entry);

        name_close(name);
        name = next;
    }
    if (names != NULL) {
        bt_resolver_close(&names->resolver);
        free(names);
    }
}
