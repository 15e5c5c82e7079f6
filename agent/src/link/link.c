/*
 * The set of an agent's links: opening, closing, who is linked, and the
 * reports. Each report is one line; the wire is described in agent/LINK.md.
 *
 *     link.c ---- reports ---> link_conn.c ---- bytes ---> proxy
 *     link_name.c - addresses ---^
 */
#include "agent/src/link/link.h"

#include "agent/src/link/link_core.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define GOODBYE_US   100000u
#define STATS_GAP_US 1000000u
#define WHOLE        UINT32_MAX

void bta_link_log(const struct bta_links *links, int level, const char *format,
                  ...)
{
    char text[512];
    va_list args;

    if (links->options.log == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    links->options.log(links->options.log_arg, level, text);
}

static struct bta_link *find_proxy(const struct bta_links *links,
                                   uint64_t proxy)
{
    struct bta_link *link = links->first;

    while (link != NULL &&
           (link->state != BTA_LINK_UP || link->proxy != proxy)) {
        link = link->next;
    }
    return link;
}

/* Ends the line; to the proxy of that boot, when it is linked. */
static void send_to(const struct bta_links *links, uint64_t proxy,
                    struct bt_buf *line)
{
    struct bta_link *const link = find_proxy(links, proxy);

    if (link != NULL) {
        bta_link_end_line(link, line);
    } else {
        bt_buf_fini(line);
    }
}

/* Ends the line; to every link that is up. */
static void send_all(const struct bta_links *links, struct bt_buf *line)
{
    link_line_end(line);
    for (struct bta_link *link = links->first; link != NULL;
         link = link->next) {
        if (link->state == BTA_LINK_UP) {
            bta_link_send(link, line);
        }
    }
    bt_buf_fini(line);
}

static void on_stats_due(struct bta_timer *timer)
{
    struct bta_links *const links =
        bt_container_of(timer, struct bta_links, stats_timer);

    if (links->blocks_free == links->blocks_free_sent) {
        return;
    }
    for (struct bta_link *link = links->first; link != NULL;
         link = link->next) {
        if (link->state == BTA_LINK_UP) {
            bta_link_send_stats(link);
        }
    }
    links->blocks_free_sent = links->blocks_free;
    (void)bta_timer_set(links->reactor, &links->stats_timer, STATS_GAP_US);
}

static bool copy_key(struct bta_links *links, baton_bytes key)
{
    if (key.length == 0) {
        links->options.key = (baton_bytes){NULL, 0};
        return true;
    }
    links->key = malloc(key.length);
    if (links->key == NULL) {
        return false;
    }
    memcpy(links->key, key.data, key.length);
    links->options.key = (baton_bytes){links->key, key.length};
    return true;
}

static baton_status open_names(struct bta_links *links)
{
    const size_t count = links->options.proxy_count;

    if (count == 0) {
        return BATON_OK;
    }
    links->names = calloc(count, sizeof(*links->names));
    if (links->names == NULL) {
        return BATON_ERR_MEMORY;
    }
    links->name_count = count;
    for (size_t i = 0; i < count; i++) {
        const baton_status status =
            bta_name_open(&links->names[i], links, links->options.proxies[i]);
        if (status != BATON_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < count; i++) {
        bta_name_start(&links->names[i]);
    }
    return BATON_OK;
}

baton_status bta_links_open(struct bta_reactor *reactor,
                            const struct bta_links_options *options,
                            struct bta_links **links_p)
{
    struct bta_links *links = calloc(1, sizeof(*links));
    baton_status status = BATON_ERR_MEMORY;

    if (links == NULL) {
        return status;
    }
    links->reactor = reactor;
    links->options = *options;
    links->blocks_free = UINT64_MAX;
    links->blocks_free_sent = UINT64_MAX;
    links->stats_timer.on_due = on_stats_due;
    if (copy_key(links, options->key)) {
        status = open_names(links);
    }
    if (status != BATON_OK) {
        bta_links_close(links);
        return status;
    }
    links->options.proxies = NULL;
    *links_p = links;
    return BATON_OK;
}

/* Waits until the goodbye is with the kernel, within what is left. */
static void say_goodbye(struct bta_link *link, uint64_t until_us)
{
    bta_link_say(link, LINK_TYPE_DRAIN);
    while (link->broken == NULL && link->out.len > 0) {
        const uint64_t now = bta_now_us();
        struct pollfd fd = {.fd = link->watch.fd, .events = POLLOUT};

        if (now >= until_us ||
            poll(&fd, 1, (int)((until_us - now) / 1000)) <= 0 ||
            !bta_link_flush(link)) {
            return;
        }
    }
}

void bta_links_close(struct bta_links *links)
{
    const uint64_t until_us = bta_now_us() + GOODBYE_US;

    if (links == NULL) {
        return;
    }
    while (links->first != NULL) {
        if (links->first->state == BTA_LINK_UP) {
            say_goodbye(links->first, until_us);
        }
        bta_link_remove(links->first);
    }
    for (size_t i = 0; i < links->name_count; i++) {
        bta_name_close(&links->names[i]);
    }
    bta_timer_clear(links->reactor, &links->stats_timer);
    free(links->names);
    free(links->key);
    free(links);
}

size_t bta_links_up(const struct bta_links *links)
{
    size_t count = 0;

    for (const struct bta_link *link = links->first; link != NULL;
         link = link->next) {
        count += link->state == BTA_LINK_UP ? 1u : 0u;
    }
    return count;
}

bool bta_links_has(const struct bta_links *links, uint64_t proxy)
{
    return find_proxy(links, proxy) != NULL;
}

uint32_t bta_links_lease_ms(const struct bta_links *links, uint64_t proxy)
{
    const struct bta_link *const link = find_proxy(links, proxy);

    return link == NULL ? BTA_LINK_LEASE_MS : link->lease_ms;
}

/* A record: opens a part if none is open, and separates the records. */
static struct bt_buf *sync_record(struct bta_link *link, const char *kind)
{
    struct bt_buf *const sync = &link->sync;

    if (link->sync_records == LINK_SYNC_RECORDS) {
        bt_buf_append_char(sync, ']');
        bta_link_end_line(link, sync);
        link->sync_records = 0;
    }
    if (link->sync_records == 0) {
        bta_link_begin_sync(link);
    } else {
        bt_buf_append_char(sync, ',');
    }
    link->sync_records++;
    bt_buf_append_char(sync, '{');
    link_line_text(sync, LINK_MEMBER_KIND, bt_str_of(kind));
    return sync;
}

static void add_hold(struct bt_buf *line, const struct bta_hold_report *hold)
{
    link_line_id(line, hold->handoff.hi, hold->handoff.lo);
    link_line_u64(line, LINK_MEMBER_SLOT, hold->slot);
    link_line_u64(line, LINK_MEMBER_TOKENS, hold->tokens);
    link_line_u64(line, LINK_MEMBER_BLOCKS, hold->blocks);
    link_line_u64(line, LINK_MEMBER_BYTES, hold->bytes);
    link_line_u64(line, LINK_MEMBER_LEASE_MS, hold->lease_ms);
}

static void add_reason(struct bt_buf *line, baton_reason reason)
{
    link_line_text(line, LINK_MEMBER_REASON,
                   bt_str_of(bta_reason_word(reason)));
}

void bta_link_sync_hold(struct bta_link *link,
                        const struct bta_hold_report *hold)
{
    struct bt_buf *const sync = sync_record(link, "hold");

    add_hold(sync, hold);
    link_line_end(sync);
}

void bta_link_sync_pull(struct bta_link *link, baton_id handoff,
                        enum link_type state, baton_reason reason)
{
    struct bt_buf *const sync = sync_record(link, "pull");

    link_line_id(sync, handoff.hi, handoff.lo);
    link_line_word(sync, LINK_MEMBER_STATE, state);
    add_reason(sync, reason);
    link_line_end(sync);
}

void bta_links_held(struct bta_links *links, uint64_t proxy,
                    const struct bta_hold_report *hold)
{
    struct bt_buf line;

    link_line_begin(&line, LINK_TYPE_HELD);
    add_hold(&line, hold);
    send_to(links, proxy, &line);
}

void bta_links_released(struct bta_links *links, uint64_t proxy,
                        baton_id handoff, baton_reason reason)
{
    struct bt_buf line;

    link_line_begin(&line, LINK_TYPE_RELEASED);
    link_line_id(&line, handoff.hi, handoff.lo);
    add_reason(&line, reason);
    send_to(links, proxy, &line);
}

void bta_links_pulling(struct bta_links *links, uint64_t proxy,
                       baton_id handoff)
{
    struct bt_buf line;

    link_line_begin(&line, LINK_TYPE_PULLING);
    link_line_id(&line, handoff.hi, handoff.lo);
    send_to(links, proxy, &line);
}

void bta_links_pull_over(struct bta_links *links,
                         const struct bta_pull_report *report)
{
    struct bt_buf line;

    link_line_begin(&line, report->is_pulled ? LINK_TYPE_PULLED
                                             : LINK_TYPE_PULL_FAILED);
    link_line_id(&line, report->handoff.hi, report->handoff.lo);
    link_line_u64(&line, LINK_MEMBER_BYTES, report->bytes);
    link_line_u64(&line, LINK_MEMBER_RUNS, report->runs);
    link_line_u64(&line, LINK_MEMBER_BLOCKS, report->blocks);
    link_line_u64(&line, LINK_MEMBER_WAIT_US, report->wait_us);
    link_line_u64(&line, LINK_MEMBER_READ_US, report->read_us);
    link_line_u64(&line, LINK_MEMBER_PROOF_US, report->proof_us);
    add_reason(&line, report->reason);
    link_line_text(&line, LINK_MEMBER_PROVIDER, bt_str_of(report->provider));
    send_to(links, report->proxy, &line);
}

/* rank WHOLE: of the engine. */
static void begin_peer(struct bt_buf *line, enum link_type type,
                       struct bt_str engine, uint32_t rank, uint64_t boot)
{
    link_line_begin(line, type);
    link_line_text(line, LINK_MEMBER_ENGINE, engine);
    if (rank != WHOLE) {
        link_line_u64(line, LINK_MEMBER_RANK, rank);
    }
    link_line_hex(line, LINK_MEMBER_BOOT, boot);
}

void bta_links_peer_want(struct bta_links *links, uint64_t proxy,
                         const struct bta_peer_up *up, const uint32_t *ranks,
                         size_t count)
{
    struct bt_buf line;

    begin_peer(&line, LINK_TYPE_PEER_WANT, up->engine, WHOLE, up->boot);
    link_line_name(&line, LINK_MEMBER_RANKS);
    bt_buf_append_char(&line, '[');
    for (size_t i = 0; i < count; i++) {
        bt_buf_printf(&line, "%s%" PRIu32, i == 0 ? "" : ",", ranks[i]);
    }
    bt_buf_append_char(&line, ']');
    send_to(links, proxy, &line);
}

void bta_links_peer_refuse(struct bta_links *links, uint64_t proxy,
                           const struct bta_peer_up *up, const char *why)
{
    struct bt_buf line;

    begin_peer(&line, LINK_TYPE_PEER_FAILED, up->engine, WHOLE, up->boot);
    link_line_text(&line, LINK_MEMBER_REASON, bt_str_of(why));
    send_to(links, proxy, &line);
}

void bta_links_peer_ready(struct bta_links *links, const char *engine,
                          uint32_t rank, uint64_t boot, const char *provider,
                          uint32_t us)
{
    struct bt_buf line;

    begin_peer(&line, LINK_TYPE_PEER_READY, bt_str_of(engine), rank, boot);
    link_line_u64(&line, LINK_MEMBER_US, us);
    link_line_text(&line, LINK_MEMBER_PROVIDER, bt_str_of(provider));
    send_all(links, &line);
}

void bta_links_peer_failed(struct bta_links *links, const char *engine,
                           uint32_t rank, uint64_t boot, const char *why)
{
    struct bt_buf line;

    begin_peer(&line, LINK_TYPE_PEER_FAILED, bt_str_of(engine), rank, boot);
    link_line_text(&line, LINK_MEMBER_REASON, bt_str_of(why));
    send_all(links, &line);
}

void bta_links_stats(struct bta_links *links, uint64_t blocks_free)
{
    links->blocks_free = blocks_free;
    if (links->stats_timer.due.at == 0) {
        on_stats_due(&links->stats_timer);
    }
}
