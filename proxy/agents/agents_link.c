/*
 * One agent's link after its upgrade: lines in, lines out, pings, and the
 * rival rule: a newcomer for a rank whose older link is up waits while that
 * one is asked; if it answers, the newcomer is a duplicate.
 *
 *     HELLO -> [RIVAL] -> UP -> CLOSED
 *         \-------\--------\--> REFUSED (the error is sent) -> CLOSED
 */
#include "common/base/log.h"
#include "proxy/agents/agents_core.h"
#include "proxy/agents/peers.h"

#include <stdlib.h>

#define REFUSED_MS 1000u

static uint64_t now_ms(const struct agent_link *link)
{
    return bt_loop_now_ms(link->agents->options.loop);
}

static bool is_over(const struct agent_link *link)
{
    return link->state == AGENT_LINK_REFUSED ||
           link->state == AGENT_LINK_CLOSED;
}

bool agent_link_is_rank(const struct agent_link *link)
{
    return link->hello.role != AGENT_ROLE_SCHEDULER;
}

void agent_link_ignore(struct agent_link *link)
{
    control_stat_add(link->agents->options.stats, CONTROL_STAT_MESSAGES_IGNORED,
                     0, 1);
}

/* --- the end --- */

static void destroy(struct bt_grave *grave)
{
    struct agent_link *const link =
        bt_container_of(grave, struct agent_link, grave);

    bt_buf_fini(&link->in);
    agent_hello_fini(&link->hello);
    free(link);
}

/* What others know of a link ends here, whatever comes of its socket. */
static void leave(struct agent_link *link, const char *why)
{
    struct agents *const agents = link->agents;

    if (link->state != AGENT_LINK_UP) {
        return;
    }
    control_stat_add(agents->options.stats, CONTROL_STAT_LINKS, 0, -1);
    control_stat_add(agents->options.stats, CONTROL_STAT_LINKS_LOST, 0, 1);
    bt_log_limited(agents->is_closing || link->is_draining ? BT_LOG_INFO
                                                           : BT_LOG_WARN,
                   link->hello.url, "the link of rank %u (%s) ended: %s",
                   link->hello.rank, link->address, why);
    link->state = AGENT_LINK_REFUSED;
    peers_forget(link);
    if (link->group != NULL) {
        agent_group_detach(link->group, link);
    }
}

void agent_link_end(struct agent_link *link, const char *why)
{
    struct agents *const agents = link->agents;

    if (link->state == AGENT_LINK_CLOSED) {
        return;
    }
    leave(link, why);
    link->state = AGENT_LINK_CLOSED;
    bt_timer_clear(&link->timer);
    bt_stream_close(&link->stream);
    if (link->conn != NULL) {
        bt_http_conn_close(&link->conn);
    }
    TAILQ_REMOVE(link->is_stranger ? &agents->strangers : &agents->links, link,
                 entry);
    agents->stranger_count -= link->is_stranger ? 1 : 0;
    agents->link_count--;
    bt_loop_bury(agents->options.loop, &link->grave, destroy);
}

/* How much is lost with it: what was refused, asked nothing, said no hello. */
static unsigned worth_of(const struct agent_link *link)
{
    switch (link->state) {
    case AGENT_LINK_REFUSED:
        return 0;
    case AGENT_LINK_HTTP:
        return 1;
    case AGENT_LINK_HELLO:
        return 2;
    case AGENT_LINK_RIVAL:
    case AGENT_LINK_UP:
    case AGENT_LINK_CLOSED:
        break;
    }
    return 3;
}

struct agent_link *agent_link_idlest(const struct agents *agents)
{
    struct agent_link *link, *idlest = NULL;
    unsigned least = 3;

    TAILQ_FOREACH (link, &agents->strangers, entry) {
        if (worth_of(link) < least) {
            least = worth_of(link);
            idlest = link;
        }
    }
    return idlest;
}

void agent_link_refuse(struct agent_link *link, const char *code,
                       const char *text)
{
    struct bt_metrics *const stats = link->agents->options.stats;
    const bool is_duplicate = strncmp(code, "duplicate", 9) == 0;
    struct bt_buf line;

    if (is_over(link)) {
        return;
    }
    control_stat_add(
        stats, CONTROL_STAT_LINKS_REFUSED,
        control_stat_label(CONTROL_STAT_LINKS_REFUSED,
                           bt_str_of(is_duplicate ? "duplicate" : code)),
        1);
    bt_log_limited(strcmp(code, "duplicate_link") == 0 ? BT_LOG_DEBUG
                                                       : BT_LOG_WARN,
                   link->address, "agent refused (%s): %s", code, text);
    link_line_begin(&line, LINK_TYPE_ERROR);
    link_line_text(&line, LINK_MEMBER_CODE, bt_str_of(code));
    link_line_text(&line, LINK_MEMBER_TEXT, bt_str_of(text));
    agent_link_end_line(link, &line);
    leave(link, text);
    link->state = AGENT_LINK_REFUSED;
    bt_stream_shut_write(link->stream);
    bt_timer_set(&link->timer, REFUSED_MS);
}

/* --- lines out --- */

/* Never from inside a send: the sender may be walking a list. */
static void link_break(struct agent_link *link, const char *why)
{
    if (link->broken == NULL) {
        link->broken = why;
        bt_timer_set(&link->timer, 0);
    }
}

void agent_link_send(struct agent_link *link, const struct bt_buf *line)
{
    struct iovec iov[2];

    if (is_over(link) || link->broken != NULL) {
        return;
    }
    if (line->failed) {
        link_break(link, "out of memory");
        return;
    }
    if (line->len >= LINK_LINE_MAX) {
        link_break(link, "a message is longer than 1 MiB");
        return;
    }
    if (bt_stream_unsent(link->stream) + line->len >= LINK_QUEUE_MAX) {
        link_break(link, "the agent does not read: 4 MiB are unsent");
        return;
    }
    iov[0] = bt_str_iov(bt_buf_str(line));
    iov[1] = bt_str_iov(BT_STR("\n"));
    (void)bt_stream_writev(link->stream, iov, 2);
}

void agent_link_end_line(struct agent_link *link, struct bt_buf *line)
{
    link_line_end(line);
    agent_link_send(link, line);
    bt_buf_fini(line);
}

void agent_link_say(struct agent_link *link, enum link_type type)
{
    struct bt_buf line;

    link_line_begin(&line, type);
    agent_link_end_line(link, &line);
}

static void send_order(struct agent_link *link, enum link_type type,
                       struct handoff_id id, enum release_reason reason)
{
    struct bt_buf line;

    link_line_begin(&line, type);
    link_line_id(&line, id.hi, id.lo);
    if (type == LINK_TYPE_RELEASE) {
        link_line_text(&line, LINK_MEMBER_REASON,
                       bt_str_of(handoff_reason_word(reason)));
    } else if (type == LINK_TYPE_RENEW) {
        link_line_u64(&line, LINK_MEMBER_LEASE_MS,
                      link->agents->options.config->agents.lease_ms);
    }
    agent_link_end_line(link, &line);
}

void agent_link_order(struct agent_link *link, enum handoff_order order,
                      struct handoff_id id, enum release_reason reason)
{
    static const enum link_type TYPES[] = {
        [HANDOFF_ORDER_RELEASE] = LINK_TYPE_RELEASE,
        [HANDOFF_ORDER_RENEW] = LINK_TYPE_RENEW,
        [HANDOFF_ORDER_CANCEL] = LINK_TYPE_CANCEL,
    };

    send_order(link, TYPES[order], id, reason);
}

static void answer(struct agent_link *link, enum handoff_answer verdict,
                   struct handoff_id id, enum release_reason reason)
{
    static const enum link_type TYPES[] = {
        [HANDOFF_ANSWER_ACK] = LINK_TYPE_ACK,
        [HANDOFF_ANSWER_RENEW] = LINK_TYPE_RENEW,
        [HANDOFF_ANSWER_RELEASE] = LINK_TYPE_RELEASE,
        [HANDOFF_ANSWER_CANCEL] = LINK_TYPE_CANCEL,
    };

    if (verdict != HANDOFF_ANSWER_NONE) {
        send_order(link, TYPES[verdict], id, reason);
    }
}

/* --- reports of handoffs --- */

/* Engines of none: what an unconfigured agent says concerns no handoff. */
static struct handoff_place place_of(const struct agent_link *link)
{
    struct handoff_place place = {.engines = NULL, .rank = link->hello.rank};

    if (link->group != NULL && agent_link_is_rank(link)) {
        place.engines = link->group->engines;
        place.engine_count = link->group->engine_count;
    }
    return place;
}

static bool report_read(struct agent_link *link,
                        const struct link_message *message,
                        struct handoff_report *report)
{
    if (!link_message_id(message, &report->id.hi, &report->id.lo)) {
        agent_link_refuse(link, "bad_message",
                          "handoff is no string of 32 hex digits");
        return false;
    }
    report->slot = link_message_u32(message, LINK_MEMBER_SLOT, 0);
    report->tokens = link_message_u64(message, LINK_MEMBER_TOKENS, 0);
    if (report->tokens > INT32_MAX) {
        report->tokens = INT32_MAX;
    }
    report->bytes = link_message_u64(message, LINK_MEMBER_BYTES, 0);
    report->blocks = link_message_u32(message, LINK_MEMBER_BLOCKS, 0);
    report->runs = link_message_u32(message, LINK_MEMBER_RUNS, 0);
    report->wait_us = link_message_u32(message, LINK_MEMBER_WAIT_US, 0);
    report->read_us = link_message_u32(message, LINK_MEMBER_READ_US, 0);
    report->proof_us = link_message_u32(message, LINK_MEMBER_PROOF_US, 0);
    report->reason = link_message_text(message, LINK_MEMBER_REASON);
    report->provider = link_message_text(message, LINK_MEMBER_PROVIDER);
    return true;
}

/* One that must not live is released; a sync also renews one that may. */
static void take_hold(struct agent_link *link, const struct link_message *m,
                      bool is_sync)
{
    const struct handoff_place place = place_of(link);
    enum release_reason reason = RELEASE_CANCELLED;
    enum handoff_answer verdict;
    struct handoff_report report;

    if (!report_read(link, m, &report)) {
        return;
    }
    verdict = handoffs_held(link->agents->handoffs, &place, &report, &reason);
    if (is_sync || verdict == HANDOFF_ANSWER_RELEASE) {
        answer(link, verdict, report.id, reason);
    }
}

static void on_held(struct agent_link *link, const struct link_message *m)
{
    take_hold(link, m, false);
}

static void on_released(struct agent_link *link, const struct link_message *m)
{
    const struct handoff_place place = place_of(link);
    struct handoff_report report;

    if (report_read(link, m, &report)) {
        handoffs_released(link->agents->handoffs, &place, &report);
    }
}

static enum handoff_answer take_pull(struct agent_link *link,
                                     const struct handoff_report *report,
                                     enum link_type state)
{
    const struct handoff_place place = place_of(link);
    struct handoffs *const handoffs = link->agents->handoffs;

    if (state == LINK_TYPE_PULLING) {
        return handoffs_pulling(handoffs, &place, report);
    }
    if (state == LINK_TYPE_PULLED) {
        return handoffs_pulled(handoffs, &place, report);
    }
    return state == LINK_TYPE_PULL_FAILED
               ? handoffs_pull_failed(handoffs, &place, report)
               : HANDOFF_ANSWER_ACK;
}

static void on_pull(struct agent_link *link, const struct link_message *m)
{
    struct handoff_report report;

    if (report_read(link, m, &report)) {
        answer(link, take_pull(link, &report, m->type), report.id,
               RELEASE_CANCELLED);
    }
}

/* --- sync --- */

static void sync_pull(struct agent_link *link, const struct link_message *m)
{
    const enum link_type state =
        link_type_of(link_message_text(m, LINK_MEMBER_STATE), LINK_AGENT);
    enum handoff_answer verdict = HANDOFF_ANSWER_ACK;
    struct handoff_report report;

    if (!report_read(link, m, &report)) {
        return;
    }
    if (handoffs_find(link->agents->handoffs, report.id) != NULL) {
        verdict = take_pull(link, &report, state);
    } else if (state == LINK_TYPE_PULLING) {
        /* Whatever it was for is over; a finished one cannot be cancelled. */
        verdict = HANDOFF_ANSWER_CANCEL;
    }
    answer(link, verdict == HANDOFF_ANSWER_NONE ? HANDOFF_ANSWER_ACK : verdict,
           report.id, RELEASE_CANCELLED);
}

static void sync_record(struct agent_link *link, struct bt_str text)
{
    struct link_message record;
    struct bt_str kind;

    if (!link_message_parse(text, LINK_AGENT, &record)) {
        agent_link_refuse(link, "bad_message", "a sync record is no object");
        return;
    }
    kind = link_message_text(&record, LINK_MEMBER_KIND);
    if (bt_str_eq(kind, BT_STR("hold"))) {
        take_hold(link, &record, true);
    } else if (bt_str_eq(kind, BT_STR("pull"))) {
        sync_pull(link, &record);
    } else {
        agent_link_ignore(link);
    }
}

static void on_sync(struct agent_link *link, const struct link_message *m)
{
    const struct handoff_place place = place_of(link);
    struct bt_json_iter it;
    struct bt_json_value record;

    bt_json_iter_array(&it, m->members[LINK_MEMBER_RECORDS].text);
    while (!is_over(link) && bt_json_next_element(&it, &record)) {
        sync_record(link, record.text);
    }
    if (is_over(link)) {
        return;
    }
    if (bt_json_iter_end(&it) != BT_OK) {
        agent_link_refuse(link, "bad_message", "sync has no list of records");
        return;
    }
    if (m->members[LINK_MEMBER_LAST].type == BT_JSON_TRUE && link->is_syncing) {
        link->is_syncing = false;
        handoffs_sync_end(link->agents->handoffs, &place);
    }
}

/* --- other messages --- */

static void on_peer_want(struct agent_link *link, const struct link_message *m)
{
    if (!peers_want(link, m)) {
        agent_link_ignore(link);
    }
}

static void on_peer_report(struct agent_link *link,
                           const struct link_message *m)
{
    if (!peers_report(link, m, m->type == LINK_TYPE_PEER_READY)) {
        agent_link_ignore(link);
    }
}

static void on_stats(struct agent_link *link, const struct link_message *m)
{
    link->blocks_free =
        link_message_u64(m, LINK_MEMBER_BLOCKS_FREE, UINT64_MAX);
    if (link->group != NULL && agent_link_is_rank(link)) {
        agent_group_occupancy(link->group);
    }
}

static void on_ping(struct agent_link *link, const struct link_message *m)
{
    (void)m;
    agent_link_say(link, LINK_TYPE_PONG);
}

/* The agent says goodbye: its process closes the agent now. */
static void on_drain(struct agent_link *link, const struct link_message *m)
{
    (void)m;
    link->is_draining = true;
    agent_link_end(link, "the agent said goodbye");
}

/* Of a link that is up. */
static void (*const HANDLERS[LINK_TYPES])(struct agent_link *link,
                                          const struct link_message *m) = {
    [LINK_TYPE_PING] = on_ping,
    [LINK_TYPE_HELD] = on_held,
    [LINK_TYPE_RELEASED] = on_released,
    [LINK_TYPE_PULLING] = on_pull,
    [LINK_TYPE_PULLED] = on_pull,
    [LINK_TYPE_PULL_FAILED] = on_pull,
    [LINK_TYPE_SYNC] = on_sync,
    [LINK_TYPE_STATS] = on_stats,
    [LINK_TYPE_PEER_WANT] = on_peer_want,
    [LINK_TYPE_PEER_READY] = on_peer_report,
    [LINK_TYPE_PEER_FAILED] = on_peer_report,
    [LINK_TYPE_DRAIN] = on_drain,
};

static void on_message(struct agent_link *link,
                       const struct link_message *message)
{
    if (HANDLERS[message->type] != NULL) {
        HANDLERS[message->type](link, message);
    } else if (message->type != LINK_TYPE_PONG) {
        agent_link_ignore(link);
    }
}

/* --- hello --- */

static bool same_rank(const struct agent_link *a, const struct agent_link *b)
{
    const bool same_engine = strcmp(a->hello.engine, b->hello.engine) == 0 ||
                             (a->group != NULL && a->group == b->group);

    return same_engine && a->hello.rank == b->hello.rank &&
           agent_link_is_rank(a) == agent_link_is_rank(b);
}

static struct agent_link *find_rival(const struct agent_link *link)
{
    struct agent_link *rival;

    TAILQ_FOREACH (rival, &link->agents->links, entry) {
        if (rival != link && rival->state == AGENT_LINK_UP &&
            rival->broken == NULL && same_rank(rival, link)) {
            break;
        }
    }
    return rival;
}

static void send_welcome(struct agent_link *link)
{
    const struct agents_options *const options = &link->agents->options;
    struct bt_buf line;

    link_line_begin(&line, LINK_TYPE_WELCOME);
    link_line_u64(&line, LINK_MEMBER_V, LINK_VERSION);
    link_line_hex(&line, LINK_MEMBER_BOOT, options->boot);
    link_line_name(&line, LINK_MEMBER_FEATURES);
    bt_buf_append(&line, link->hello.has_want
                             ? BT_STR("[\"" LINK_FEATURE_WANT "\"]")
                             : BT_STR("[]"));
    link_line_u64(&line, LINK_MEMBER_LEASE_MS,
                  options->config->agents.lease_ms);
    link_line_u64(&line, LINK_MEMBER_PING_MS, options->config->agents.ping_ms);
    link_line_u64(&line, LINK_MEMBER_DEAD_MS, options->config->agents.dead_ms);
    agent_link_end_line(link, &line);
}

static void await_ping(struct agent_link *link)
{
    const uint64_t ping_ms = link->agents->options.config->agents.ping_ms;

    bt_timer_set(&link->timer, ping_ms);
    link->ping_us = (now_ms(link) + ping_ms) * 1000;
}

static void go_up(struct agent_link *link)
{
    struct agents *const agents = link->agents;

    TAILQ_REMOVE(&agents->strangers, link, entry);
    TAILQ_INSERT_TAIL(&agents->links, link, entry);
    agents->stranger_count--;
    link->is_stranger = false;
    link->state = AGENT_LINK_UP;
    link->is_syncing = true;
    link->up_ms = now_ms(link);
    control_stat_add(agents->options.stats, CONTROL_STAT_LINKS, 0, 1);
    await_ping(link);
    bt_log_limited(
        link->group == NULL ? BT_LOG_WARN : BT_LOG_INFO, link->hello.url,
        "rank %u of %u is linked (%s)%s", link->hello.rank, link->hello.world,
        link->address,
        link->group == NULL ? ", but no engine of that URL is configured" : "");
    send_welcome(link);
    if (link->group != NULL) {
        agent_group_attach(link->group, link);
    }
}

static void on_hello(struct agent_link *link, struct bt_str line,
                     const struct link_message *message)
{
    const char *code = NULL, *why = NULL;
    struct agent_link *rival;

    if (message->type != LINK_TYPE_HELLO) {
        agent_link_refuse(link, "bad_hello", "the first line is no hello");
        return;
    }
    if (!agent_hello_read(link, line, message, &link->hello, &code, &why)) {
        agent_link_refuse(link, code, why);
        return;
    }
    link->group = agents_find_group(link->agents, link->hello.url);
    rival = find_rival(link);
    if (rival == NULL) {
        go_up(link);
        return;
    }
    link->state = AGENT_LINK_RIVAL;
    link->rival_heard = rival->heard;
    agent_link_say(rival, LINK_TYPE_PING);
    bt_timer_set(&link->timer, AGENT_RIVAL_MS);
}

static void judge_rival(struct agent_link *link)
{
    struct agent_link *rival;

    /* Engines come and go meanwhile. */
    link->group = agents_find_group(link->agents, link->hello.url);
    rival = find_rival(link);
    if (rival == NULL) {
        go_up(link);
        return;
    }
    if (rival->heard == link->rival_heard) {
        agent_link_end(rival, "it does not answer, and a newer one is there");
        go_up(link);
        return;
    }
    if (rival->hello.boot == link->hello.boot) {
        agent_link_refuse(link, "duplicate_link",
                          "this agent has another link that is up");
    } else {
        agent_link_refuse(link, "duplicate_engine",
                          "another agent is linked as this engine and rank");
    }
}

/* --- bytes --- */

static void on_line(struct agent_link *link, struct bt_str line)
{
    struct link_message message;

    if (!link_message_parse(line, LINK_AGENT, &message)) {
        agent_link_refuse(link, "bad_message", "a line is no JSON object");
        return;
    }
    switch (link->state) {
    case AGENT_LINK_HELLO:
        on_hello(link, line, &message);
        break;
    case AGENT_LINK_UP:
        on_message(link, &message);
        break;
    case AGENT_LINK_RIVAL:
        agent_link_refuse(link, "bad_message", "a line before the welcome");
        break;
    case AGENT_LINK_HTTP:
    case AGENT_LINK_REFUSED:
    case AGENT_LINK_CLOSED:
        break;
    }
}

/* Takes whole lines off the front; what is left is no whole line. */
static struct bt_str take_lines(struct agent_link *link, struct bt_str bytes)
{
    while (!is_over(link)) {
        const char *const from = bytes.ptr + link->scanned;
        const char *const end = memchr(from, '\n', bytes.len - link->scanned);
        const size_t len = end == NULL ? bytes.len : (size_t)(end - bytes.ptr);

        if (len >= LINK_LINE_MAX) {
            agent_link_refuse(link, "bad_message",
                              "a line is longer than 1 MiB");
            break;
        }
        if (end == NULL) {
            link->scanned = bytes.len;
            break;
        }
        link->scanned = 0;
        on_line(link, bt_str_span(bytes.ptr, len));
        bytes = bt_str_span(bytes.ptr + len + 1, bytes.len - len - 1);
    }
    return bytes;
}

static void on_bytes(void *owner, struct bt_str bytes)
{
    struct agent_link *const link = owner;
    struct agents *const agents = link->agents;
    struct bt_str rest;

    if (is_over(link)) {
        return;
    }
    agents->options.on_reading(agents->options.owner);
    link->heard_ms = now_ms(link);
    link->heard++;
    if (link->in.len == 0) {
        rest = take_lines(link, bytes);
        if (!is_over(link) && rest.len > 0) {
            bt_buf_append(&link->in, rest);
        }
    } else {
        bt_buf_append(&link->in, bytes);
        if (!link->in.failed) {
            rest = take_lines(link, bt_buf_str(&link->in));
            bt_buf_consume(&link->in, link->in.len - rest.len);
        }
        if (link->in.len == 0) {
            bt_buf_fini(&link->in);
        }
    }
    if (link->in.failed) {
        agent_link_end(link, "out of memory");
    }
}

static void on_eof(void *owner)
{
    agent_link_end(owner, "the agent closed the connection");
}

static void on_failed(void *owner, enum bt_status status, int error)
{
    (void)error;
    agent_link_end(owner, bt_status_text(status));
}

static void on_room(void *owner)
{
    peers_send(owner);
}

static void on_unused(void *owner)
{
    (void)owner;
}

static const struct bt_stream_events STREAM_EVENTS = {
    .on_connected = on_unused,
    .on_bytes = on_bytes,
    .on_eof = on_eof,
    .on_room = on_room,
    .on_flushed = on_unused,
    .on_failed = on_failed,
};

static void check_alive(struct agent_link *link)
{
    const struct config *const config = link->agents->options.config;
    const uint64_t now_us = bt_clock_us();

    bt_metrics_observe_us(link->agents->options.stats, CONTROL_STAT_PING_LATE,
                          0,
                          now_us < link->ping_us ? 0 : now_us - link->ping_us);

    if (now_ms(link) - link->heard_ms >= config->agents.dead_ms) {
        agent_link_end(link, "the agent is silent");
        return;
    }
    agent_link_say(link, LINK_TYPE_PING);
    if (link->broken == NULL) {
        await_ping(link);
    }
}

static void on_due(struct bt_timer *timer)
{
    struct agent_link *const link =
        bt_container_of(timer, struct agent_link, timer);

    if (link->broken != NULL) {
        agent_link_end(link, link->broken);
        return;
    }
    switch (link->state) {
    case AGENT_LINK_HELLO:
        agent_link_refuse(link, "late", "no hello in 2 s");
        break;
    case AGENT_LINK_RIVAL:
        judge_rival(link);
        break;
    case AGENT_LINK_UP:
        check_alive(link);
        break;
    case AGENT_LINK_REFUSED:
        agent_link_end(link, "refused");
        break;
    case AGENT_LINK_HTTP:
    case AGENT_LINK_CLOSED:
        break;
    }
}

void agent_link_init(struct agent_link *link, struct agents *agents)
{
    link->agents = agents;
    link->blocks_free = UINT64_MAX;
    TAILQ_INIT(&link->as_decode);
    TAILQ_INIT(&link->unsent);
    bt_timer_init(&link->timer, agents->options.loop, on_due);
}

void agent_link_start(struct agent_link *link, struct bt_stream *stream,
                      struct bt_str rest)
{
    link->stream = stream;
    link->state = AGENT_LINK_HELLO;
    link->heard_ms = now_ms(link);
    bt_timer_set(&link->timer, AGENT_HELLO_MS);
    bt_stream_adopt(stream, &STREAM_EVENTS, link);
    if (rest.len > 0) {
        on_bytes(link, rest);
    }
}
