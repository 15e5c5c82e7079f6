/*
 * Pools, origins and idle connections. One timer an origin, for its oldest
 * idle link.
 */
#include "common/http/http_pool.h"

#include <stdlib.h>
#include <string.h>

/* A link idle for longer than this is looked at before it is used. */
#define TRUSTED_MS 500

struct bt_http_pool {
    struct bt_loop *loop;
    struct bt_http_pool_options options;
    struct bt_http_origin *origins;
};

struct bt_http_addrs {
    size_t references; /* of the origin and of links */
    size_t good;       /* index of the one that was good last */
    size_t count;
    struct bt_addr items[];
};

struct bt_http_origin {
    struct bt_grave grave;
    struct bt_http_pool *pool;
    struct bt_loop *loop;
    struct bt_http_pool_options options; /* outlive the pool */
    struct bt_http_origin *next;
    struct bt_timer timer;
    TAILQ_HEAD(bt_http_links, bt_http_link) idle; /* the newest first */
    size_t idle_count;
    size_t links; /* idle and in use */
    bool is_closed;
    struct bt_http_addrs *addrs; /* the present ones */
};

struct bt_loop *bt_http_origin_loop(const struct bt_http_origin *origin)
{
    return origin->loop;
}

uint64_t bt_http_origin_connect_ms(const struct bt_http_origin *origin)
{
    return origin->options.connect_ms;
}

size_t bt_http_origin_idle(const struct bt_http_origin *origin)
{
    return origin->idle_count;
}

static struct bt_http_link *oldest_idle(const struct bt_http_origin *origin)
{
    return TAILQ_LAST(&origin->idle, bt_http_links);
}

static void unlist(struct bt_http_link *link)
{
    TAILQ_REMOVE(&link->origin->idle, link, entry);
    link->origin->idle_count--;
    link->is_idle = false;
}

/* ---- addresses ---- */

static struct bt_http_addrs *addrs_new(const struct bt_addr *items,
                                       size_t count)
{
    struct bt_http_addrs *addrs =
        malloc(sizeof(*addrs) + count * sizeof(*items));

    if (addrs != NULL) {
        addrs->references = 1;
        addrs->good = 0;
        addrs->count = count;
        memcpy(addrs->items, items, count * sizeof(*items));
    }
    return addrs;
}

static struct bt_http_addrs *addrs_ref(struct bt_http_addrs *addrs)
{
    addrs->references++;
    return addrs;
}

static void addrs_unref(struct bt_http_addrs *addrs)
{
    addrs->references--;
    if (addrs->references == 0) {
        free(addrs);
    }
}

static void origin_destroy(struct bt_grave *grave)
{
    struct bt_http_origin *origin =
        bt_container_of(grave, struct bt_http_origin, grave);

    addrs_unref(origin->addrs);
    free(origin);
}

static void origin_bury_if_unused(struct bt_http_origin *origin)
{
    if (origin->is_closed && origin->links == 0) {
        bt_loop_bury(origin->loop, &origin->grave, origin_destroy);
    }
}

/* ---- links ---- */

static void link_destroy(struct bt_grave *grave)
{
    struct bt_http_link *link =
        bt_container_of(grave, struct bt_http_link, grave);

    bt_http_parser_close(&link->parser);
    addrs_unref(link->addrs);
    free(link);
}

static size_t addr_index(const struct bt_http_link *link)
{
    return (link->first + link->tried - 1) % link->addrs->count;
}

const struct bt_addr *bt_http_link_addr(const struct bt_http_link *link)
{
    return &link->addrs->items[addr_index(link)];
}

size_t bt_http_link_left(const struct bt_http_link *link)
{
    return link->addrs->count - link->tried;
}

void bt_http_link_good(const struct bt_http_link *link)
{
    link->addrs->good = addr_index(link);
}

/* Is its address one of the present ones? Then it keeps those. */
static bool link_stays(struct bt_http_link *link)
{
    struct bt_http_addrs *const addrs = link->origin->addrs;
    const struct bt_addr *const own = bt_http_link_addr(link);

    for (size_t i = 0; i < addrs->count; i++) {
        if (bt_addr_equal(&addrs->items[i], own)) {
            addrs_unref(link->addrs);
            link->addrs = addrs_ref(addrs);
            link->first = i;
            link->tried = 1;
            return true;
        }
    }
    return false;
}

enum bt_status bt_http_link_next(struct bt_http_link *link)
{
    struct bt_http_origin *const origin = link->origin;
    const struct bt_stream_options options = {.high_water =
                                                  origin->options.high_water};
    enum bt_status status = BT_ERR_NOT_FOUND;

    bt_stream_close(&link->stream);
    while (bt_http_link_left(link) > 0 && status != BT_OK &&
           status != BT_ERR_NOMEM) {
        link->tried++;
        status =
            bt_stream_connect(origin->loop, bt_http_link_addr(link), &options,
                              link->stream_events, link, &link->stream);
    }
    return status;
}

enum bt_status bt_http_link_open(
    struct bt_http_origin *origin, const struct bt_stream_events *stream_events,
    const struct bt_http_parse_events *parse_events,
    struct bt_http_link **link_p)
{
    struct bt_http_link *link = calloc(1, sizeof(*link));
    enum bt_status status = BT_ERR_NOMEM;

    if (link == NULL) {
        return BT_ERR_NOMEM;
    }
    link->origin = origin;
    link->stream_events = stream_events;
    link->addrs = addrs_ref(origin->addrs);
    link->first = link->addrs->good;
    link->parser = bt_http_parser_open(BT_HTTP_ANSWERS, &origin->options.parse,
                                       parse_events, link);
    if (link->parser == NULL) {
        goto err_link;
    }
    status = bt_http_link_next(link);
    if (status != BT_OK) {
        goto err_parser;
    }
    origin->links++;
    *link_p = link;
    return BT_OK;

err_parser:
    bt_http_parser_close(&link->parser);
err_link:
    addrs_unref(link->addrs);
    free(link);
    return status;
}

void bt_http_link_close(struct bt_http_link *link)
{
    struct bt_http_origin *origin = link->origin;

    if (link->is_closed) {
        return;
    }
    link->is_closed = true;
    link->call = NULL;
    if (link->is_idle) {
        unlist(link);
    }
    bt_stream_close(&link->stream);
    bt_loop_bury(origin->loop, &link->grave, link_destroy);
    origin->links--;
    origin_bury_if_unused(origin);
}

struct bt_http_link *bt_http_link_take(struct bt_http_origin *origin)
{
    const uint64_t now_ms = bt_loop_now_ms(origin->loop);

    struct bt_http_link *link;

    while ((link = TAILQ_FIRST(&origin->idle)) != NULL) {
        if (now_ms - link->idle_since_ms <= TRUSTED_MS ||
            !bt_stream_is_readable(link->stream)) {
            unlist(link);
            return link;
        }
        bt_http_link_close(link);
    }
    return NULL;
}

void bt_http_link_park(struct bt_http_link *link)
{
    struct bt_http_origin *origin = link->origin;

    link->call = NULL;
    if (origin->is_closed || origin->options.idle_max == 0 ||
        (link->addrs != origin->addrs && !link_stays(link))) {
        bt_http_link_close(link);
        return;
    }
    if (origin->idle_count >= origin->options.idle_max) {
        bt_http_link_close(oldest_idle(origin));
    }
    link->idle_since_ms = bt_loop_now_ms(origin->loop);
    TAILQ_INSERT_HEAD(&origin->idle, link, entry);
    origin->idle_count++;
    link->is_idle = true;
    bt_stream_resume(link->stream);
    if (origin->options.idle_ms > 0 && !bt_timer_is_set(&origin->timer)) {
        bt_timer_set(&origin->timer, origin->options.idle_ms);
    }
}

/* ---- origins and pools ---- */

static void on_due(struct bt_timer *timer)
{
    struct bt_http_origin *origin =
        bt_container_of(timer, struct bt_http_origin, timer);
    const uint64_t now_ms = bt_loop_now_ms(origin->loop);
    const uint64_t idle_ms = origin->options.idle_ms;
    struct bt_http_link *link;

    while ((link = oldest_idle(origin)) != NULL &&
           now_ms - link->idle_since_ms >= idle_ms) {
        bt_http_link_close(link);
    }
    if (link != NULL) {
        bt_timer_set(timer, link->idle_since_ms + idle_ms - now_ms);
    }
}

enum bt_status bt_http_origin_open(struct bt_http_pool *pool,
                                   const struct bt_addr *addrs, size_t count,
                                   struct bt_http_origin **origin_p)
{
    struct bt_http_origin *origin = calloc(1, sizeof(*origin));

    if (origin == NULL) {
        return BT_ERR_NOMEM;
    }
    origin->addrs = addrs_new(addrs, count);
    if (origin->addrs == NULL) {
        free(origin);
        return BT_ERR_NOMEM;
    }
    origin->pool = pool;
    origin->loop = pool->loop;
    origin->options = pool->options;
    TAILQ_INIT(&origin->idle);
    bt_timer_init(&origin->timer, pool->loop, on_due);
    origin->next = pool->origins;
    pool->origins = origin;
    *origin_p = origin;
    return BT_OK;
}

enum bt_status bt_http_origin_set_addrs(struct bt_http_origin *origin,
                                        const struct bt_addr *items,
                                        size_t count)
{
    struct bt_http_addrs *const addrs = addrs_new(items, count);
    struct bt_http_link *link = TAILQ_FIRST(&origin->idle);

    if (addrs == NULL) {
        return BT_ERR_NOMEM;
    }
    addrs_unref(origin->addrs);
    origin->addrs = addrs;
    while (link != NULL) {
        struct bt_http_link *const next = TAILQ_NEXT(link, entry);

        if (!link_stays(link)) {
            bt_http_link_close(link);
        }
        link = next;
    }
    return BT_OK;
}

static void origin_close(struct bt_http_origin *origin)
{
    struct bt_http_origin **at = &origin->pool->origins;

    while (*at != origin) {
        at = &(*at)->next;
    }
    *at = origin->next;
    bt_timer_clear(&origin->timer);
    while (!TAILQ_EMPTY(&origin->idle)) {
        bt_http_link_close(TAILQ_FIRST(&origin->idle));
    }
    origin->is_closed = true;
    origin_bury_if_unused(origin);
}

void bt_http_origin_close(struct bt_http_origin **origin_p)
{
    struct bt_http_origin *origin = *origin_p;

    *origin_p = NULL;
    if (origin != NULL) {
        origin_close(origin);
    }
}

enum bt_status bt_http_pool_open(struct bt_loop *loop,
                                 const struct bt_http_pool_options *options,
                                 struct bt_http_pool **pool_p)
{
    struct bt_http_pool *pool = calloc(1, sizeof(*pool));

    if (pool == NULL) {
        return BT_ERR_NOMEM;
    }
    pool->loop = loop;
    pool->options = *options;
    *pool_p = pool;
    return BT_OK;
}

void bt_http_pool_close(struct bt_http_pool **pool_p)
{
    struct bt_http_pool *pool = *pool_p;

    *pool_p = NULL;
    if (pool == NULL) {
        return;
    }
    while (pool->origins != NULL) {
        origin_close(pool->origins);
    }
    free(pool);
}
