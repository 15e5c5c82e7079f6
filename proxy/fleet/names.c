/*
 * Looking up the names of engines, off the request path.
 */
#include "proxy/fleet/names.h"

#include "common/base/log.h"
#include "common/io/lookup.h"

#include <stdlib.h>
#include <sys/queue.h>

#define ASKING_MAX 64   /* look-ups at once */
#define START_MS   3000 /* what the start waits for all names together */
#define LOOK_MS    50   /* between two looks at one that is under way */
#define AGAIN_MS   1000 /* after a failure; doubled each time up to */
#define AGAIN_MAX  30000

/* One engine without an address. */
struct name {
    TAILQ_ENTRY(name) entry;
    struct names *names;
    struct engine *engine;
    struct bt_lookup *lookup; /* NULL: none is under way */
    struct bt_timer timer;
    uint64_t again_ms;
    const char *why; /* as last logged */
};

struct names {
    struct bt_loop *loop;
    TAILQ_HEAD(, name) items;
    size_t asking; /* look-ups under way */
};

static void log_found(const struct engine *engine)
{
    const struct bt_addrs *const addrs = engine_addrs(engine);
    char text[BT_ADDR_TEXT_MAX];

    bt_addr_format(&addrs->items[0], text);
    bt_log(BT_LOG_INFO, engine->url.normal, "its name is resolved: %s%s", text,
           addrs->count > 1 ? " and others" : "");
}

/* Once for each cause. */
static void log_failed(struct name *name, const char *why)
{
    if (name->why != why) {
        name->why = why;
        bt_log(BT_LOG_WARN, name->engine->url.normal,
               "not usable: its name is not resolved: %s; it is asked for "
               "again from time to time",
               why);
    }
}

static void end_lookup(struct name *name)
{
    bt_lookup_close(&name->lookup);
    name->names->asking--;
}

static void ask_again(struct name *name)
{
    bt_timer_set(&name->timer, name->again_ms);
    name->again_ms =
        name->again_ms * 2 < AGAIN_MAX ? name->again_ms * 2 : AGAIN_MAX;
}

static void ask(struct name *name)
{
    if (name->names->asking >= ASKING_MAX) {
        bt_timer_set(&name->timer, LOOK_MS);
    } else if (bt_lookup_open(&name->engine->url, &name->lookup) == BT_OK) {
        name->names->asking++;
        bt_timer_set(&name->timer, LOOK_MS);
    } else {
        name->lookup = NULL;
        log_failed(name, "the look-up cannot be started");
        ask_again(name);
    }
}

static void look(struct name *name)
{
    const char *why = "";
    struct bt_addrs addrs;
    const enum bt_status status = bt_lookup_take(name->lookup, &addrs, &why);

    if (status == BT_AGAIN) {
        bt_timer_set(&name->timer, LOOK_MS);
    } else if (status != BT_OK) {
        log_failed(name, why);
        end_lookup(name);
        ask_again(name);
    } else {
        bt_timer_clear(&name->timer);
        end_lookup(name);
        engine_set_addrs(name->engine, &addrs);
        log_found(name->engine);
    }
}

static void on_due(struct bt_timer *timer)
{
    struct name *const name = bt_container_of(timer, struct name, timer);

    if (name->lookup == NULL) {
        ask(name);
    } else {
        look(name);
    }
}

/* All were asked for at once: one that hangs takes no other's time. */
void names_await(struct names *names)
{
    const uint64_t until_us = bt_clock_us() + START_MS * UINT64_C(1000);
    struct name *name;

    TAILQ_FOREACH (name, &names->items, entry) {
        const uint64_t now_us = bt_clock_us();

        if (name->lookup == NULL && name->why == NULL) {
            ask(name); /* there were too many at first */
        }
        if (name->lookup != NULL && now_us < until_us) {
            bt_lookup_wait(name->lookup, (until_us - now_us) / 1000);
        }
        if (name->lookup != NULL) {
            look(name);
        }
        if (name->why == NULL && engine_addrs(name->engine) == NULL) {
            log_failed(name, "no answer yet");
        }
    }
}

static void name_close(struct name *name)
{
    TAILQ_REMOVE(&name->names->items, name, entry);
    bt_timer_clear(&name->timer);
    if (name->lookup != NULL) {
        end_lookup(name);
    }
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
    bt_timer_init(&name->timer, names->loop, on_due);
    TAILQ_INSERT_TAIL(&names->items, name, entry);
    ask(name);
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

enum bt_status names_open(struct bt_loop *loop, struct names **names_p)
{
    struct names *const names = calloc(1, sizeof(*names));

    if (names == NULL) {
        return BT_ERR_NOMEM;
    }
    names->loop = loop;
    TAILQ_INIT(&names->items);
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
    free(names);
}
