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

#include <inttypes.h>
#include <stdlib.h>

#define REFUSED_MS 1000u
#define ID_FORMAT  "%016" PRIx64 "%016" PRIx64

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
    agent_link_printf(link, "{\"t\":\"error\",\"code\":\"%s\",\"text\":\"%s\"}",
                      code, text);
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

void agent_link_send(struct agent_link *link, struct bt_str line)
{
    struct iovec iov[2];

    if (is_over(link) || link->broken != NULL) {
        return;
    }
    if (line.len >= LINK_LINE_MAX) {
        link_break(link, "a message is longer than 1 MiB");
        return;
    }
    if (bt_stream_unsent(link->stream) + line.len >= LINK_QUEUE_MAX) {
        link_break(link, "the agent does not read: 4 MiB are unsent");
        return;
    }
    iov[0] = bt_str_iov(line);
    iov[1] = bt_str_iov(BT_STR("\n"));
    (void)bt_stream_writev(link->stream, iov, 2);
}

void agent_link_printf(struct agent_link *link, const char *format, ...)
{
    struct bt_buf line;
    va_list args;

    bt_buf_init(&line);
    va_start(args, format);
    bt_buf_vprintf(&line, format, args);
    va_end(args);
    if (line.failed) {
        link_break(link, "out of memory");
    } else {
        agent_link_send(link, bt_buf_str(&line));
    }
    bt_buf_fini(&line);
}

void agent_link_order(struct agent_link *link, enum handoff_order order,
                      struct handoff_id id, enum release_reason reason)
{
    switch (order) {
    case HANDOFF_ORDER_RELEASE:
        agent_link_printf(link,
                          "{\"t\":\"release\",\"handoff\":\"" ID_FORMAT
                          "\",\"reason\":\"%s\"}",
                          id.hi, id.lo, handoff_reason_word(reason));
        break;
    case HANDOFF_ORDER_RENEW:
        agent_link_printf(link,
                          "{\"t\":\"renew\",\"handoff\":\"" ID_FORMAT
                          "\",\"lease_ms\":%" PRIu64 "}",
                          id.hi, id.lo,
                          link->agents->options.config->agents.lease_ms);
        break;
    case HANDOFF_ORDER_CANCEL:
        agent_link_printf(link,
                          "{\"t\":\"cancel\",\"handoff\":\"" ID_FORMAT "\"}",
                          id.hi, id.lo);
        break;
    }
}

static void answer(struct agent_link *link, enum handoff_answer verdict,
                   struct handoff_id id, enum release_reason reason)
{
    switch (verdict) {
    case HANDOFF_ANSWER_NONE:
        break;
    case HANDOFF_ANSWER_ACK:
        agent_link_printf(link, "{\"t\":\"ack\",\"handoff\":\"" ID_FORMAT "\"}",
                          id.hi, id.lo);
        break;
    case HANDOFF_ANSWER_RENEW:
        agent_link_order(link, HANDOFF_ORDER_RENEW, id, reason);
        break;
    case HANDOFF_ANSWER_RELEASE:
        agent_link_order(link, HANDOFF_ORDER_RELEASE, id, reason);
        break;
    case HANDOFF_ANSWER_CANCEL:
        agent_link_order(link, HANDOFF_ORDER_CANCEL, id, reason);
        break;
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
                        const struct agent_message *message,
                        struct handoff_report *report)
{
    if (!agent_message_id(message, &report->id)) {
        agent_link_refuse(link, "bad_message",
                          "handoff is no string of 32 hex digits");
        return false;
    }
    report->slot = agent_message_u32(message, AGENT_MEMBER_SLOT, 0);
    report->tokens = agent_message_u64(message, AGENT_MEMBER_TOKENS, 0);
    if (report->tokens > INT32_MAX) {
        report->tokens = INT32_MAX;
    }
    report->bytes = agent_message_u64(message, AGENT_MEMBER_BYTES, 0);
    report->blocks = agent_message_u32(message, AGENT_MEMBER_BLOCKS, 0);
    report->runs = agent_message_u32(message, AGENT_MEMBER_RUNS, 0);
    report->wait_us = agent_message_u32(message, AGENT_MEMBER_WAIT_US, 0);
    report->read_us = agent_message_u32(message, AGENT_MEMBER_READ_US, 0);
    report->proof_us = agent_message_u32(message, AGENT_MEMBER_PROOF_US, 0);
    report->reason = agent_message_text(message, AGENT_MEMBER_REASON);
    report->provider = agent_message_text(message, AGENT_MEMBER_PROVIDER);
    return true;
}

static void on_held(struct agent_link *link, const struct agent_message *m)
{
    const struct handoff_place place = place_of(link);
    enum release_reason reason = RELEASE_CANCELLED;
    enum handoff_answer verdict;
    struct handoff_report report;

    if (!report_read(link, m, &report)) {
        return;
    }
    verdict = handoffs_held(link->agents->handoffs, &place, &report, &reason);
    if (verdict == HANDOFF_ANSWER_RELEASE) {
        answer(link, verdict, report.id, reason);
    }
}

static void on_released(struct agent_link *link, const struct agent_message *m)
{
    const struct handoff_place place = place_of(link);
    struct handoff_report report;

    if (report_read(link, m, &report)) {
        handoffs_released(link->agents->handoffs, &place, &report);
    }
}

static void on_pull(
    struct agent_link *link, const struct agent_message *m,
    enum handoff_answer (*take)(struct handoffs *handoffs,
                                const struct handoff_place *from,
                                const struct handoff_report *report))
{
    const struct handoff_place place = place_of(link);
    struct handoff_report report;

    if (report_read(link, m, &report)) {
        answer(link, take(link->agents->handoffs, &place, &report), report.id,
               RELEASE_CANCELLED);
    }
}

static void on_pulling(struct agent_link *link, const struct agent_message *m)
{
    on_pull(link, m, handoffs_pulling);
}

static void on_pulled(struct agent_link *link, const struct agent_message *m)
{
    on_pull(link, m, handoffs_pulled);
}

static void on_pull_failed(struct agent_link *link,
                           const struct agent_message *m)
{
    on_pull(link, m, handoffs_pull_failed);
}

/* --- sync --- */

/* A hold that lives is renewed, one that must not is released. */
static void sync_hold(struct agent_link *link, const struct agent_message *m)
{
    const struct handoff_place place = place_of(link);
    enum release_reason reason = RELEASE_CANCELLED;
    enum handoff_answer verdict;
    struct handoff_report report;

    if (report_read(link, m, &report)) {
        verdict =
            handoffs_held(link->agents->handoffs, &place, &report, &reason);
        answer(link, verdict, report.id, reason);
    }
}

static void sync_pull(struct agent_link *link, const struct agent_message *m)
{
    const struct bt_str state = agent_message_text(m, AGENT_MEMBER_STATE);
    const struct handoff_place place = place_of(link);
    struct handoffs *const handoffs = link->agents->handoffs;
    enum handoff_answer verdict = HANDOFF_ANSWER_ACK;
    struct handoff_report report;

    if (!report_read(link, m, &report)) {
        return;
    }
    if (handoffs_find(handoffs, report.id) == NULL) {
        /* Whatever it was for is over; a finished one cannot be cancelled. */
        verdict = bt_str_eq(state, BT_STR("pulling")) ? HANDOFF_ANSWER_CANCEL
                                                      : HANDOFF_ANSWER_ACK;
    } else if (bt_str_eq(state, BT_STR("pulling"))) {
        verdict = handoffs_pulling(handoffs, &place, &report);
    } else if (bt_str_eq(state, BT_STR("pulled"))) {
        verdict = handoffs_pulled(handoffs, &place, &report);
    } else if (bt_str_eq(state, BT_STR("pull_failed"))) {
        verdict = handoffs_pull_failed(handoffs, &place, &report);
    }
    answer(link, verdict == HANDOFF_ANSWER_NONE ? HANDOFF_ANSWER_ACK : verdict,
           report.id, RELEASE_CANCELLED);
}

static void sync_record(struct agent_link *link, struct bt_str text)
{
    struct agent_message record;
    struct bt_str kind;

    if (!agent_message_parse(text, &record)) {
        agent_link_refuse(link, "bad_message", "a sync record is no object");
        return;
    }
    kind = agent_message_text(&record, AGENT_MEMBER_KIND);
    if (bt_str_eq(kind, BT_STR("hold"))) {
        sync_hold(link, &record);
    } else if (bt_str_eq(kind, BT_STR("pull"))) {
        sync_pull(link, &record);
    } else {
        agent_link_ignore(link);
    }
}

static void on_sync(struct agent_link *link, const struct agent_message *m)
{
    const struct handoff_place place = place_of(link);
    struct bt_json_iter it;
    struct bt_json_value record;

    bt_json_iter_array(&it, m->members[AGENT_MEMBER_RECORDS].text);
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
    if (m->members[AGENT_MEMBER_LAST].type == BT_JSON_TRUE &&
        link->is_syncing) {
        link->is_syncing = false;
        handoffs_sync_end(link->agents->handoffs, &place);
    }
}

/* --- other messages --- */

static void on_peer_want(struct agent_link *link, const struct agent_message *m)
{
    if (!peers_want(link, m)) {
        agent_link_ignore(link);
    }
}

static void on_peer_ready(struct agent_link *link,
                          const struct agent_message *m)
{
    if (!peers_report(link, m, true)) {
        agent_link_ignore(link);
    }
}

static void on_peer_failed(struct agent_link *link,
                           const struct agent_message *m)
{
    if (!peers_report(link, m, false)) {
        agent_link_ignore(link);
    }
}

static void on_stats(struct agent_link *link, const struct agent_message *m)
{
    link->blocks_free =
        agent_message_u64(m, AGENT_MEMBER_BLOCKS_FREE, UINT64_MAX);
    if (link->group != NULL && agent_link_is_rank(link)) {
        agent_group_occupancy(link->group);
    }
}

static void on_ping(struct agent_link *link, const struct agent_message *m)
{
    (void)m;
    agent_link_send(link, BT_STR("{\"t\":\"pong\"}"));
}

static void on_nothing(struct agent_link *link, const struct agent_message *m)
{
    (void)link;
    (void)m;
}

/* The agent says goodbye: its process closes the agent now. */
static void on_drain(struct agent_link *link, const struct agent_message *m)
{
    (void)m;
    link->is_draining = true;
    agent_link_end(link, "the agent said goodbye");
}

static const struct {
    const char *type;
    void (*on_message)(struct agent_link *link,
                       const struct agent_message *message);
} HANDLERS[] = {
    {"pong", on_nothing},
    {"ping", on_ping},
    {"held", on_held},
    {"released", on_released},
    {"pulling", on_pulling},
    {"pulled", on_pulled},
    {"pull_failed", on_pull_failed},
    {"sync", on_sync},
    {"stats", on_stats},
    {"peer_want", on_peer_want},
    {"peer_ready", on_peer_ready},
    {"peer_failed", on_peer_failed},
    {"ack", on_nothing},
    {"drain", on_drain},
};

static void on_message(struct agent_link *link,
                       const struct agent_message *message)
{
    const struct bt_str type = agent_message_text(message, AGENT_MEMBER_TYPE);

    for (size_t i = 0; i < BT_ARRAY_LEN(HANDLERS); i++) {
        if (bt_str_eq(type, bt_str_of(HANDLERS[i].type))) {
            HANDLERS[i].on_message(link, message);
            return;
        }
    }
    agent_link_ignore(link);
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

static void go_up(struct agent_link *link)
{
    struct agents *const agents = link->agents;
    const struct config *const config = agents->options.config;

    TAILQ_REMOVE(&agents->strangers, link, entry);
    TAILQ_INSERT_TAIL(&agents->links, link, entry);
    agents->stranger_count--;
    link->is_stranger = false;
    link->state = AGENT_LINK_UP;
    link->is_syncing = true;
    link->up_ms = now_ms(link);
    control_stat_add(agents->options.stats, CONTROL_STAT_LINKS, 0, 1);
    bt_timer_set(&link->timer, config->agents.ping_ms);
    bt_log_limited(
        link->group == NULL ? BT_LOG_WARN : BT_LOG_INFO, link->hello.url,
        "rank %u of %u is linked (%s)%s", link->hello.rank, link->hello.world,
        link->address,
        link->group == NULL ? ", but no engine of that URL is configured" : "");
    agent_link_printf(link,
                      "{\"t\":\"welcome\",\"v\":1,\"boot\":\"%016" PRIx64
                      "\",\"features\":[%s],\"lease_ms\":%" PRIu64
                      ",\"ping_ms\":%" PRIu64 ",\"dead_ms\":%" PRIu64 "}",
                      agents->options.boot,
                      link->hello.has_want ? "\"" LINK_FEATURE_WANT "\"" : "",
                      config->agents.lease_ms, config->agents.ping_ms,
                      config->agents.dead_ms);
    if (link->group != NULL) {
        agent_group_attach(link->group, link);
    }
}

static void on_hello(struct agent_link *link, struct bt_str line,
                     const struct agent_message *message)
{
    const char *code = NULL, *why = NULL;
    struct agent_link *rival;

    if (!bt_str_eq(agent_message_text(message, AGENT_MEMBER_TYPE),
                   BT_STR("hello"))) {
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
    agent_link_send(rival, BT_STR("{\"t\":\"ping\"}"));
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
    struct agent_message message;

    if (!agent_message_parse(line, &message)) {
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

    if (now_ms(link) - link->heard_ms >= config->agents.dead_ms) {
        agent_link_end(link, "the agent is silent");
        return;
    }
    agent_link_send(link, BT_STR("{\"t\":\"ping\"}"));
    if (link->broken == NULL) {
        bt_timer_set(&link->timer, config->agents.ping_ms);
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
