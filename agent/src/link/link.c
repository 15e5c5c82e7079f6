/*
 * The set of an agent's links: opening, closing, who is linked, and the
 * reports. Each report is one line; the wire is described in agent/LINK.md.
 *
 *     link.c ---- reports ---> link_conn.c ---- bytes ---> proxy
 *     link_name.c - addresses ---^   link_message.c: lines
 */
#include "agent/src/link/link.h"

#include "agent/src/link/link_core.h"
#include "common/json/json_write.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define GOODBYE_US   100000u
#define STATS_GAP_US 1000000u
#define ID_FORMAT    "%016" PRIx64 "%016" PRIx64

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

static void send_one(struct bta_link *link, const struct bt_buf *line)
{
    if (line->failed) {
        bta_link_break(link, "out of memory");
    } else {
        bta_link_send(link, bt_buf_str(line));
    }
}

/* To the proxy of that boot, when it is linked. */
static void send_to(const struct bta_links *links, uint64_t proxy,
                    const struct bt_buf *line)
{
    struct bta_link *const link = find_proxy(links, proxy);

    if (link != NULL) {
        send_one(link, line);
    }
}

/* To every link that is up. */
static void send_all(const struct bta_links *links, const struct bt_buf *line)
{
    for (struct bta_link *link = links->first; link != NULL;
         link = link->next) {
        if (link->state == BTA_LINK_UP) {
            send_one(link, line);
        }
    }
}

static void on_stats_due(struct bta_timer *timer)
{
    struct bta_links *const links =
        bt_container_of(timer, struct bta_links, stats_timer);
    struct bt_buf line;

    if (links->blocks_free == links->blocks_free_sent) {
        return;
    }
    bt_buf_init(&line);
    bt_buf_printf(&line, "{\"t\":\"stats\",\"blocks_free\":%" PRIu64 "}",
                  links->blocks_free);
    send_all(links, &line);
    bt_buf_fini(&line);
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
    bta_link_send(link, BT_STR("{\"t\":\"drain\"}"));
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

/* Opens a part if none is open, and separates the records. */
static void sync_begin(struct bta_link *link)
{
    if (link->sync_records == LINK_SYNC_RECORDS) {
        bt_buf_append(&link->sync, BT_STR("]}"));
        bta_link_send(link, bt_buf_str(&link->sync));
        bt_buf_clear(&link->sync);
        link->sync_records = 0;
    }
    bt_buf_append(&link->sync, link->sync_records == 0
                                   ? BT_STR("{\"t\":\"sync\",\"records\":[")
                                   : BT_STR(","));
    link->sync_records++;
}

static void sync_check(struct bta_link *link)
{
    if (link->sync.failed) {
        bta_link_break(link, "out of memory");
    }
}

/* NOLINTNEXTLINE(readability-function-size): one record, told whole. */
void bta_link_sync_hold(struct bta_link *link, baton_id handoff, uint32_t slot,
                        uint64_t tokens, uint32_t blocks, uint64_t bytes,
                        uint32_t lease_ms)
{
    sync_begin(link);
    bt_buf_printf(
        &link->sync,
        "{\"kind\":\"hold\",\"handoff\":\"" ID_FORMAT "\",\"slot\":%" PRIu32
        ",\"tokens\":%" PRIu64 ",\"blocks\":%" PRIu32 ",\"bytes\":%" PRIu64
        ",\"lease_ms\":%" PRIu32 "}",
        handoff.hi, handoff.lo, slot, tokens, blocks, bytes, lease_ms);
    sync_check(link);
}

void bta_link_sync_pull(struct bta_link *link, baton_id handoff,
                        const char *state, baton_reason reason)
{
    sync_begin(link);
    bt_buf_printf(&link->sync,
                  "{\"kind\":\"pull\",\"handoff\":\"" ID_FORMAT
                  "\",\"state\":\"%s\",\"reason\":\"%s\"}",
                  handoff.hi, handoff.lo, state, bta_reason_word(reason));
    sync_check(link);
}

/* NOLINTNEXTLINE(readability-function-size): one record, told whole. */
void bta_links_held(struct bta_links *links, uint64_t proxy, baton_id handoff,
                    uint32_t slot, uint64_t tokens, uint32_t blocks,
                    uint64_t bytes, uint32_t lease_ms)
{
    struct bta_link *const link = find_proxy(links, proxy);

    if (link == NULL) {
        return;
    }
    bta_link_printf(
        link,
        "{\"t\":\"held\",\"handoff\":\"" ID_FORMAT "\",\"slot\":%" PRIu32
        ",\"tokens\":%" PRIu64 ",\"blocks\":%" PRIu32 ",\"bytes\":%" PRIu64
        ",\"lease_ms\":%" PRIu32 "}",
        handoff.hi, handoff.lo, slot, tokens, blocks, bytes, lease_ms);
}

void bta_links_released(struct bta_links *links, uint64_t proxy,
                        baton_id handoff, baton_reason reason)
{
    struct bta_link *const link = find_proxy(links, proxy);

    if (link == NULL) {
        return;
    }
    bta_link_printf(link,
                    "{\"t\":\"released\",\"handoff\":\"" ID_FORMAT
                    "\",\"reason\":\"%s\"}",
                    handoff.hi, handoff.lo, bta_reason_word(reason));
}

void bta_links_pulling(struct bta_links *links, uint64_t proxy,
                       baton_id handoff)
{
    struct bta_link *const link = find_proxy(links, proxy);

    if (link == NULL) {
        return;
    }
    bta_link_printf(link, "{\"t\":\"pulling\",\"handoff\":\"" ID_FORMAT "\"}",
                    handoff.hi, handoff.lo);
}

static void send_pull(struct bta_links *links, const char *type,
                      const struct bta_pull_report *report)
{
    struct bta_link *const link = find_proxy(links, report->proxy);
    struct bt_buf line;

    if (link == NULL) {
        return;
    }
    bt_buf_init(&line);
    bt_buf_printf(
        &line,
        "{\"t\":\"%s\",\"handoff\":\"" ID_FORMAT "\",\"bytes\":%" PRIu64
        ",\"runs\":%" PRIu32 ",\"blocks\":%" PRIu32 ",\"wait_us\":%" PRIu32
        ",\"read_us\":%" PRIu32 ",\"proof_us\":%" PRIu32
        ",\"reason\":\"%s\",\"provider\":",
        type, report->handoff.hi, report->handoff.lo, report->bytes,
        report->runs, report->blocks, report->wait_us, report->read_us,
        report->proof_us, bta_reason_word(report->reason));
    bt_buf_append_json(
        &line, bt_str_of(report->provider == NULL ? "" : report->provider));
    bt_buf_append_char(&line, '}');
    send_one(link, &line);
    bt_buf_fini(&line);
}

void bta_links_pulled(struct bta_links *links,
                      const struct bta_pull_report *report)
{
    send_pull(links, "pulled", report);
}

void bta_links_pull_failed(struct bta_links *links,
                           const struct bta_pull_report *report)
{
    send_pull(links, "pull_failed", report);
}

static void begin_answer(const struct bta_peer_up *up, const char *type,
                         struct bt_buf *line)
{
    bt_buf_init(line);
    bt_buf_printf(line, "{\"t\":\"%s\",\"engine\":", type);
    bt_buf_append_json(line, up->engine);
    bt_buf_printf(line, ",\"boot\":\"%016" PRIx64 "\"", up->boot);
}

void bta_links_peer_want(struct bta_links *links, uint64_t proxy,
                         const struct bta_peer_up *up, const uint32_t *ranks,
                         size_t count)
{
    struct bt_buf line;

    begin_answer(up, "peer_want", &line);
    for (size_t i = 0; i < count; i++) {
        bt_buf_printf(&line, "%s%" PRIu32, i == 0 ? ",\"ranks\":[" : ",",
                      ranks[i]);
    }
    bt_buf_append(&line, BT_STR("]}"));
    send_to(links, proxy, &line);
    bt_buf_fini(&line);
}

void bta_links_peer_refuse(struct bta_links *links, uint64_t proxy,
                           const struct bta_peer_up *up, const char *why)
{
    struct bt_buf line;

    begin_answer(up, "peer_failed", &line);
    bt_buf_append(&line, BT_STR(",\"reason\":"));
    bt_buf_append_json(&line, bt_str_of(why));
    bt_buf_append_char(&line, '}');
    send_to(links, proxy, &line);
    bt_buf_fini(&line);
}

void bta_links_peer_ready(struct bta_links *links, const char *engine,
                          uint32_t rank, uint64_t boot, const char *provider,
                          uint32_t us)
{
    struct bt_buf line;

    bt_buf_init(&line);
    bt_buf_append(&line, BT_STR("{\"t\":\"peer_ready\",\"engine\":"));
    bt_buf_append_json(&line, bt_str_of(engine));
    bt_buf_printf(&line,
                  ",\"rank\":%" PRIu32 ",\"boot\":\"%016" PRIx64
                  "\",\"us\":%" PRIu32 ",\"provider\":",
                  rank, boot, us);
    bt_buf_append_json(&line, bt_str_of(provider == NULL ? "" : provider));
    bt_buf_append_char(&line, '}');
    send_all(links, &line);
    bt_buf_fini(&line);
}

void bta_links_peer_failed(struct bta_links *links, const char *engine,
                           uint32_t rank, uint64_t boot, const char *why)
{
    struct bt_buf line;

    bt_buf_init(&line);
    bt_buf_append(&line, BT_STR("{\"t\":\"peer_failed\",\"engine\":"));
    bt_buf_append_json(&line, bt_str_of(engine));
    bt_buf_printf(
        &line,
        ",\"rank\":%" PRIu32 ",\"boot\":\"%016" PRIx64 "\",\"reason\":", rank,
        boot);
    bt_buf_append_json(&line, bt_str_of(why == NULL ? "" : why));
    bt_buf_append_char(&line, '}');
    send_all(links, &line);
    bt_buf_fini(&line);
}

void bta_links_stats(struct bta_links *links, uint64_t blocks_free)
{
    links->blocks_free = blocks_free;
    if (links->stats_timer.due.at == 0) {
        on_stats_due(&links->stats_timer);
    }
}
