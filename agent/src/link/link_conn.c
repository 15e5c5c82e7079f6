/*
 * One link's life, from back-off to the lines of an open link:
 *
 *     IDLE -> CONNECTING -> UPGRADING -> GREETING -> UP
 *       ^--------- any failure: jittered back-off -------'
 *
 * The wire is described in agent/LINK.md.
 */
#include "agent/src/link/link_core.h"
#include "common/base/random.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READS_PER_TURN 8

static void link_log(const struct bta_link *link, int level, const char *what,
                     struct bt_str detail)
{
    bta_link_log(link->links, level, "proxy %s (%s): %s%s%.*s",
                 link->name->text, link->address, what,
                 detail.len == 0 ? "" : ": ", BT_STR_ARG(detail));
}

static void link_timer(struct bta_link *link, uint64_t delay_us)
{
    if (!bta_timer_set(link->links->reactor, &link->timer, delay_us)) {
        link_log(link, 0, "out of memory, the link is given up",
                 bt_str_span("", 0));
    }
}

/* Half of the back-off is certain, the other half is drawn. */
static uint64_t draw_delay_us(uint32_t backoff_ms)
{
    uint32_t random = 0;

    if (!bt_random_bytes(&random, sizeof(random))) {
        random = 0;
    }
    return (uint64_t)(backoff_ms / 2 + random % (backoff_ms / 2 + 1)) * 1000;
}

static void link_shut(struct bta_link *link)
{
    if (link->watch.fd >= 0) {
        bta_reactor_unwatch(link->links->reactor, &link->watch);
        close(link->watch.fd);
        link->watch.fd = -1;
    }
    bt_buf_fini(&link->in);
    bt_buf_fini(&link->out);
    bt_buf_fini(&link->sync);
    link->scanned = 0;
    link->sync_records = 0;
    link->broken = NULL;
    link->state = BTA_LINK_IDLE;
}

static void link_back_off(struct bta_link *link, bool was_stable)
{
    if (was_stable) {
        link->backoff_ms = BTA_LINK_BACKOFF_MIN;
    }
    link_timer(link, draw_delay_us(link->backoff_ms));
    link->backoff_ms = link->backoff_ms >= BTA_LINK_BACKOFF_MAX / 2
                           ? BTA_LINK_BACKOFF_MAX
                           : link->backoff_ms * 2;
}

/* Ends the connection, tells the core if it was up, and tries again later. */
static void link_fail(struct bta_link *link, const char *why,
                      struct bt_str detail)
{
    const bool was_up = link->state == BTA_LINK_UP;
    const uint64_t now = bta_now_us();
    const uint64_t proxy = link->proxy;
    const uint64_t silent_us = now - link->heard_us;

    if (was_up || !link->has_failed) {
        link_log(link, 1, why, detail);
    } else {
        link_log(link, 3, why, detail);
    }
    link->has_failed = true;
    link_shut(link);
    link->proxy = 0;
    link_back_off(link, was_up && now - link->up_us >= BTA_LINK_STABLE_US);
    if (was_up) {
        link->links->options.events->on_down(link->links->options.owner, proxy,
                                             silent_us);
    }
}

static void link_fail_plain(struct bta_link *link, const char *why)
{
    link_fail(link, why, bt_str_span("", 0));
}

void bta_link_break(struct bta_link *link, const char *why)
{
    if (link->state == BTA_LINK_IDLE || link->broken != NULL) {
        return;
    }
    link->broken = why;
    link_timer(link, 0);
}

bool bta_link_flush(struct bta_link *link)
{
    const uint32_t base = EPOLLIN | EPOLLRDHUP;
    uint32_t events;

    while (link->out.len > 0) {
        const struct bt_str bytes = bt_buf_str(&link->out);
        const ssize_t sent =
            send(link->watch.fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);

        if (sent > 0) {
            bt_buf_consume(&link->out, (size_t)sent);
        } else if (sent < 0 && errno == EINTR) {
            continue;
        } else if (sent < 0 && errno != EAGAIN) {
            bta_link_break(link, "the connection was lost");
            return false;
        } else {
            break;
        }
    }
    events = link->out.len > 0 ? base | EPOLLOUT : base;
    if (events != link->watch.events &&
        !bta_reactor_change(link->links->reactor, &link->watch, events)) {
        bta_link_break(link, "epoll refused the socket");
        return false;
    }
    return true;
}

void bta_link_send(struct bta_link *link, const struct bt_buf *line)
{
    const bool was_empty = link->out.len == 0;

    if (link->state < BTA_LINK_GREETING || link->broken != NULL) {
        return;
    }
    if (line->len >= LINK_LINE_MAX) {
        bta_link_break(link, "a message is longer than 1 MiB");
        return;
    }
    if (link->out.len + line->len >= LINK_QUEUE_MAX) {
        bta_link_break(link, "the proxy does not read: 4 MiB are unsent");
        return;
    }
    bt_buf_append(&link->out, bt_buf_str(line));
    bt_buf_append_char(&link->out, '\n');
    if (line->failed || link->out.failed) {
        bta_link_break(link, "out of memory");
        return;
    }
    if (was_empty) {
        (void)bta_link_flush(link);
    }
}

void bta_link_end_line(struct bta_link *link, struct bt_buf *line)
{
    link_line_end(line);
    bta_link_send(link, line);
    bt_buf_fini(line);
}

void bta_link_say(struct bta_link *link, enum link_type type)
{
    struct bt_buf line;

    link_line_begin(&line, type);
    bta_link_end_line(link, &line);
}

void bta_link_send_stats(struct bta_link *link)
{
    struct bt_buf line;

    link_line_begin(&line, LINK_TYPE_STATS);
    link_line_u64(&line, LINK_MEMBER_BLOCKS_FREE, link->links->blocks_free);
    bta_link_end_line(link, &line);
}

/* --- lines of an open link --- */

void bta_link_begin_sync(struct bta_link *link)
{
    link_line_begin(&link->sync, LINK_TYPE_SYNC);
    link_line_name(&link->sync, LINK_MEMBER_RECORDS);
    bt_buf_append_char(&link->sync, '[');
}

static void send_last_sync(struct bta_link *link)
{
    if (link->sync_records == 0) {
        bta_link_begin_sync(link);
    }
    bt_buf_append_char(&link->sync, ']');
    link_line_name(&link->sync, LINK_MEMBER_LAST);
    bt_buf_append(&link->sync, BT_STR("true"));
    bta_link_end_line(link, &link->sync);
    link->sync_records = 0;
}

static const struct bta_link *find_twin(const struct bta_link *link,
                                        uint64_t proxy)
{
    const struct bta_link *twin = link->links->first;

    while (twin != NULL && (twin == link || twin->state != BTA_LINK_UP ||
                            twin->proxy != proxy)) {
        twin = twin->next;
    }
    return twin;
}

static void end_as_twin(struct bta_link *link)
{
    link_log(link, 3, "another link goes to that proxy already",
             bt_str_span("", 0));
    link_shut(link);
    link_timer(link, draw_delay_us(BTA_LINK_BACKOFF_TWIN));
}

static void clamp_values(struct bta_link *link)
{
    if (link->lease_ms == 0) {
        link->lease_ms = BTA_LINK_LEASE_MS;
    }
    if (link->ping_ms < 10) {
        link->ping_ms = 10;
    }
    if (link->dead_ms / 2 < link->ping_ms) {
        link->dead_ms = 2 * link->ping_ms;
    }
}

static void on_welcome(struct bta_link *link,
                       const struct link_message *message)
{
    const struct bta_links *const links = link->links;
    uint64_t proxy = 0;

    if (link->state != BTA_LINK_GREETING) {
        link_fail_plain(link, "the proxy welcomes twice");
        return;
    }
    link->lease_ms = BTA_LINK_LEASE_MS;
    link->ping_ms = 1000;
    link->dead_ms = 3000;
    if (!link_message_hex(message, LINK_MEMBER_BOOT, &proxy) || proxy == 0) {
        link_fail_plain(link, "the proxy's welcome names no boot");
        return;
    }
    (void)link_message_read_u32(message, LINK_MEMBER_LEASE_MS, &link->lease_ms);
    (void)link_message_read_u32(message, LINK_MEMBER_PING_MS, &link->ping_ms);
    (void)link_message_read_u32(message, LINK_MEMBER_DEAD_MS, &link->dead_ms);
    clamp_values(link);
    if (find_twin(link, proxy) != NULL) {
        end_as_twin(link);
        return;
    }
    link->proxy = proxy;
    link->state = BTA_LINK_UP;
    link->up_us = bta_now_us();
    link->has_failed = false;
    link_timer(link, (uint64_t)link->ping_ms * 1500);
    link_log(link, 2, "linked", bt_str_span("", 0));
    links->options.events->on_sync(links->options.owner, link, proxy,
                                   link->lease_ms);
    send_last_sync(link);
    if (links->blocks_free != UINT64_MAX) {
        bta_link_send_stats(link);
    }
}

static void on_error_line(struct bta_link *link,
                          const struct link_message *message)
{
    const struct bt_str code = link_message_text(message, LINK_MEMBER_CODE);
    struct bt_str text = link_message_text(message, LINK_MEMBER_TEXT);

    if (bt_str_eq(code, BT_STR("duplicate_link"))) {
        end_as_twin(link);
        return;
    }
    if (text.len > 200) {
        text.len = 200;
    }
    link_fail(link, "the proxy refused", text.len > 0 ? text : code);
}

static void on_release(struct bta_link *link,
                       const struct link_message *message)
{
    const struct bta_links_options *const options = &link->links->options;
    baton_id id;

    if (!link_message_id(message, &id.hi, &id.lo) ||
        !options->events->on_release(
            options->owner, link->proxy, id,
            bta_reason_of(link_message_text(message, LINK_MEMBER_REASON)))) {
        link->ignored++;
    }
}

static void on_renew(struct bta_link *link, const struct link_message *message)
{
    const struct bta_links_options *const options = &link->links->options;
    uint32_t lease_ms = link->lease_ms;
    baton_id id;

    if (!link_message_id(message, &id.hi, &id.lo)) {
        link->ignored++;
        return;
    }
    if (link_message_read_u32(message, LINK_MEMBER_LEASE_MS, &lease_ms) &&
        lease_ms == 0) {
        lease_ms = link->lease_ms;
    }
    if (!options->events->on_renew(options->owner, link->proxy, id, lease_ms)) {
        link->ignored++;
    }
}

static void on_cancel(struct bta_link *link, const struct link_message *message)
{
    const struct bta_links_options *const options = &link->links->options;
    baton_id id;

    if (!link_message_id(message, &id.hi, &id.lo) ||
        !options->events->on_cancel(options->owner, link->proxy, id)) {
        link->ignored++;
    }
}

static void on_peer_up(struct bta_link *link,
                       const struct link_message *message)
{
    const struct bta_links_options *const options = &link->links->options;
    char *const engine =
        link_message_dup(message, LINK_MEMBER_ENGINE, LINK_ENGINE_MAX);
    struct bta_peer_up up = {.engine = bt_str_of(engine)};

    if (up.engine.len == 0 ||
        !link_message_read_u32(message, LINK_MEMBER_WORLD, &up.world) ||
        !link_message_read_u32(message, LINK_MEMBER_TP, &up.tp) ||
        !link_message_read_u32(message, LINK_MEMBER_PP, &up.pp) ||
        !link_message_hex(message, LINK_MEMBER_BOOT, &up.boot)) {
        link->ignored++;
    } else {
        options->events->on_peer_up(options->owner, link->proxy, &up);
    }
    free(engine);
}

static void on_card(struct bta_link *link, const struct link_message *message)
{
    const struct bta_links_options *const options = &link->links->options;
    const struct bt_json_value *const peer =
        &message->members[LINK_MEMBER_PEER];

    if (peer->type != BT_JSON_OBJECT) {
        link->ignored++;
        return;
    }
    options->events->on_card(options->owner, link->proxy, peer->text);
}

static void on_peer_down(struct bta_link *link,
                         const struct link_message *message)
{
    const struct bta_links_options *const options = &link->links->options;
    char *const engine =
        link_message_dup(message, LINK_MEMBER_ENGINE, LINK_ENGINE_MAX);
    const struct bt_str name = bt_str_of(engine);
    uint32_t rank = 0;
    uint64_t boot = 0;

    if (name.len == 0 ||
        !link_message_read_u32(message, LINK_MEMBER_RANK, &rank) ||
        !link_message_hex(message, LINK_MEMBER_BOOT, &boot)) {
        link->ignored++;
    } else {
        options->events->on_peer_down(options->owner, link->proxy, name, rank,
                                      boot);
    }
    free(engine);
}

static void on_ping(struct bta_link *link, const struct link_message *message)
{
    (void)message;
    bta_link_say(link, LINK_TYPE_PONG);
}

/* What is said to us; nothing is to be done for the others. */
static const struct {
    bool before_up;
    void (*on_message)(struct bta_link *link,
                       const struct link_message *message);
} HANDLERS[LINK_TYPES] = {
    [LINK_TYPE_WELCOME] = {true, on_welcome},
    [LINK_TYPE_ERROR] = {true, on_error_line},
    [LINK_TYPE_PING] = {true, on_ping},
    [LINK_TYPE_PONG] = {true, NULL},
    [LINK_TYPE_RELEASE] = {false, on_release},
    [LINK_TYPE_RENEW] = {false, on_renew},
    [LINK_TYPE_CANCEL] = {false, on_cancel},
    [LINK_TYPE_PEER_UP] = {false, on_peer_up},
    [LINK_TYPE_CARD] = {false, on_card},
    [LINK_TYPE_PEER_DOWN] = {false, on_peer_down},
};

static void on_line(struct bta_link *link, struct bt_str line)
{
    struct link_message message;

    if (!link_message_parse(line, LINK_PROXY, &message)) {
        link_fail_plain(link, "the proxy sent a line that is no JSON object");
    } else if (message.type == LINK_TYPE_NONE) {
        link->ignored++;
    } else if (link->state != BTA_LINK_UP &&
               !HANDLERS[message.type].before_up) {
        link_fail_plain(link, "the proxy spoke before its welcome");
    } else if (HANDLERS[message.type].on_message != NULL) {
        HANDLERS[message.type].on_message(link, &message);
    }
}

/* --- the upgrade --- */

static bool send_raw(struct bta_link *link, const struct bt_buf *text)
{
    bt_buf_append(&link->out, bt_buf_str(text));
    return !text->failed && !link->out.failed && bta_link_flush(link);
}

static void send_upgrade(struct bta_link *link)
{
    const bool is_unix = link->addr.ss_family == AF_UNIX;
    struct bt_buf text;
    bool sent;

    bt_buf_init(&text);
    bt_buf_printf(&text,
                  "GET /agent/v1 HTTP/1.1\r\nHost: %s\r\n"
                  "Connection: Upgrade\r\nUpgrade: baton-agent/1\r\n"
                  "Baton-Nonce: %s\r\n\r\n",
                  is_unix ? "localhost" : link->address, link->nonces.agent);
    link->state = BTA_LINK_UPGRADING;
    link_timer(link, BTA_LINK_STEP_US);
    sent = send_raw(link, &text);
    bt_buf_fini(&text);
    if (!sent && link->broken == NULL) {
        link_fail_plain(link, "out of memory");
    }
}

/* The value of a field of the 101's head; empty when absent. */
static struct bt_str head_field(struct bt_str head, struct bt_str name)
{
    while (head.len > 0) {
        const size_t end = bt_str_find(head, BT_STR("\r\n"));
        const struct bt_str line = bt_str_span(head.ptr, end);
        const size_t colon = bt_str_find(line, BT_STR(":"));

        if (colon < line.len &&
            bt_str_eq_nocase(bt_str_span(line.ptr, colon), name)) {
            return bt_str_trim(
                bt_str_span(line.ptr + colon + 1, line.len - colon - 1));
        }
        if (end == head.len) {
            break;
        }
        head = bt_str_span(head.ptr + end + 2, head.len - end - 2);
    }
    return bt_str_span("", 0);
}

/* Empty: none. */
static struct bt_str key_of(const struct bta_link *link)
{
    const baton_bytes key = link->links->options.key;

    return bt_str_span(key.data, key.length);
}

static bool proof_is_good(struct bta_link *link, struct bt_str head)
{
    const struct bt_str nonce = head_field(head, BT_STR("Baton-Nonce"));
    const struct bt_str proof = head_field(head, BT_STR("Baton-Proof"));

    if (!bt_nonce_take(nonce, link->nonces.proxy)) {
        return false;
    }
    return link->links->options.key.length == 0 ||
           bt_proof_is_good(key_of(link), &link->nonces, BT_PROOF_PROXY, proof);
}

static void send_hello(struct bta_link *link)
{
    const struct bta_links_options *const options = &link->links->options;
    char proof[BT_PROOF_LEN + 1] = "";
    struct bt_buf hello;

    if (options->key.length > 0 &&
        !bt_proof_make(key_of(link), &link->nonces, BT_PROOF_AGENT, proof)) {
        link_fail_plain(link, "the proof cannot be made");
        return;
    }
    link->state = BTA_LINK_GREETING;
    link_timer(link, BTA_LINK_WELCOME_US);
    link_line_begin(&hello, LINK_TYPE_HELLO);
    link_line_u64(&hello, LINK_MEMBER_V, LINK_VERSION);
    link_line_name(&hello, LINK_MEMBER_FEATURES);
    bt_buf_append(&hello, BT_STR("[\"" LINK_FEATURE_WANT "\"]"));
    if (proof[0] != '\0') {
        link_line_text(&hello, LINK_MEMBER_PROOF, bt_str_of(proof));
    }
    if (options->hello.len > 0) {
        bt_buf_append_char(&hello, ',');
        bt_buf_append(&hello, options->hello);
    }
    bta_link_end_line(link, &hello);
}

static void on_head(struct bta_link *link, struct bt_str head)
{
    const struct bt_str line =
        bt_str_span(head.ptr, bt_str_find(head, BT_STR("\r\n")));

    if (bt_str_starts(line, BT_STR("HTTP/1.1 426"))) {
        link_fail_plain(link, "the proxy speaks another version of the link");
        return;
    }
    if (!bt_str_starts(line, BT_STR("HTTP/1.1 101"))) {
        struct bt_str shown = line;

        shown.len = shown.len > 64 ? 64 : shown.len;
        link_fail(link, "the proxy did not upgrade the connection", shown);
        return;
    }
    if (!proof_is_good(link, head)) {
        link_fail_plain(link, "the proxy did not prove the shared key");
        return;
    }
    send_hello(link);
}

/* --- bytes --- */

/* Takes the next line or head out of `in`; false when none is whole. */
static bool take_head(struct bta_link *link)
{
    const struct bt_str in = bt_buf_str(&link->in);
    const size_t end = bt_str_find(in, BT_STR("\r\n\r\n"));

    if (end == in.len) {
        if (in.len > BTA_LINK_HEAD_MAX) {
            link_fail_plain(link, "the proxy's head is longer than 8 KiB");
        }
        return false;
    }
    on_head(link, bt_str_span(in.ptr, end));
    if (link->state == BTA_LINK_IDLE) {
        return false;
    }
    bt_buf_consume(&link->in, end + 4);
    return true;
}

static bool take_line(struct bta_link *link)
{
    const struct bt_str in = bt_buf_str(&link->in);
    const char *const end =
        in.len == link->scanned
            ? NULL
            : memchr(in.ptr + link->scanned, '\n', in.len - link->scanned);
    const size_t len = end == NULL ? in.len : (size_t)(end - in.ptr);

    if (len >= LINK_LINE_MAX) {
        link_fail_plain(link, "the proxy sent a line longer than 1 MiB");
        return false;
    }
    if (end == NULL) {
        link->scanned = in.len;
        return false;
    }
    link->scanned = 0;
    on_line(link, bt_str_span(in.ptr, len));
    if (link->state == BTA_LINK_IDLE) {
        return false;
    }
    bt_buf_consume(&link->in, len + 1);
    return true;
}

static void take_bytes(struct bta_link *link)
{
    bool more = true;

    link->heard_us = bta_now_us();
    while (more) {
        more = link->state == BTA_LINK_UPGRADING ? take_head(link)
                                                 : take_line(link);
    }
    if (link->in.len == 0 && link->in.cap > 4 * BTA_LINK_READ) {
        bt_buf_fini(&link->in);
    }
}

/* Reads once; false when there is nothing more or the link ended. */
static bool read_once(struct bta_link *link)
{
    ssize_t got;

    if (!bt_buf_reserve(&link->in, BTA_LINK_READ)) {
        link_fail_plain(link, "out of memory");
        return false;
    }
    got = recv(link->watch.fd, bt_buf_tail(&link->in), BTA_LINK_READ, 0);
    if (got > 0) {
        bt_buf_commit(&link->in, (size_t)got);
        take_bytes(link);
        return link->state != BTA_LINK_IDLE && (size_t)got == BTA_LINK_READ;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    link_fail_plain(link, got == 0 ? "the proxy closed the connection"
                                   : "the connection was lost");
    return false;
}

static void on_connected(struct bta_link *link)
{
    int error = 0;
    socklen_t len = sizeof(error);
    const int one = 1;

    if (getsockopt(link->watch.fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) {
        error = errno;
    }
    if (error != 0) {
        link_fail_plain(link, error == ECONNREFUSED
                                  ? "the connection was refused"
                                  : "the proxy cannot be reached");
        return;
    }
    if (link->addr.ss_family != AF_UNIX) {
        (void)setsockopt(link->watch.fd, IPPROTO_TCP, TCP_NODELAY, &one,
                         sizeof(one));
    }
    send_upgrade(link);
}

static void on_ready(struct bta_watch *watch, uint32_t events)
{
    struct bta_link *const link =
        bt_container_of(watch, struct bta_link, watch);
    unsigned reads = 0;

    if (link->broken != NULL) {
        link_fail_plain(link, link->broken);
        return;
    }
    if (link->state == BTA_LINK_CONNECTING) {
        on_connected(link);
        return;
    }
    if ((events & EPOLLOUT) != 0 && !bta_link_flush(link)) {
        return;
    }
    if ((events & ~(uint32_t)EPOLLOUT) == 0) {
        return;
    }
    while (reads < READS_PER_TURN && read_once(link)) {
        reads++;
    }
}

static void link_connect(struct bta_link *link)
{
    const struct sockaddr *const addr =
        (const struct sockaddr *)(const void *)&link->addr;
    const int fd = socket(link->addr.ss_family,
                          SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    link->state = BTA_LINK_CONNECTING;
    link->heard_us = bta_now_us();
    if (fd < 0) {
        link_fail_plain(link, "no socket could be opened");
        return;
    }
    link->watch.fd = fd;
    link->watch.events = EPOLLOUT;
    if (!bta_reactor_watch(link->links->reactor, &link->watch)) {
        close(fd);
        link->watch.fd = -1;
        link_fail_plain(link, "epoll refused the socket");
        return;
    }
    if (connect(fd, addr, link->addr_len) != 0 && errno != EINPROGRESS) {
        link_fail_plain(link, errno == ECONNREFUSED || errno == ENOENT
                                  ? "the connection was refused"
                                  : "the proxy cannot be reached");
        return;
    }
    if (!bt_nonce_make(link->nonces.agent)) {
        link_fail_plain(link, "no random bytes for the nonce");
        return;
    }
    link_timer(link, BTA_LINK_STEP_US);
}

static void check_alive(struct bta_link *link)
{
    const uint64_t ping_us = (uint64_t)link->ping_ms * 1500;
    const uint64_t dead_us = (uint64_t)link->dead_ms * 1000;
    const uint64_t silent_us = bta_now_us() - link->heard_us;

    if (silent_us >= dead_us) {
        link_fail_plain(link, "the proxy is silent");
    } else if (silent_us >= ping_us) {
        bta_link_say(link, LINK_TYPE_PING);
        link_timer(link, dead_us - silent_us);
    } else {
        link_timer(link, ping_us - silent_us);
    }
}

static void on_due(struct bta_timer *timer)
{
    struct bta_link *const link =
        bt_container_of(timer, struct bta_link, timer);

    if (link->broken != NULL) {
        link_fail_plain(link, link->broken);
        return;
    }
    switch (link->state) {
    case BTA_LINK_IDLE:
        link_connect(link);
        break;
    case BTA_LINK_CONNECTING:
        link_fail_plain(link, "connecting takes longer than 2 s");
        break;
    case BTA_LINK_UPGRADING:
        link_fail_plain(link, "no answer to the upgrade in 2 s");
        break;
    case BTA_LINK_GREETING:
        link_fail_plain(link, "no welcome in 4 s");
        break;
    case BTA_LINK_UP:
        check_alive(link);
        break;
    }
}

bool bta_link_add(struct bta_name *name, const struct sockaddr *addr,
                  socklen_t addr_len)
{
    struct bta_links *const links = name->links;
    struct bta_link *const link = calloc(1, sizeof(*link));

    if (link == NULL || addr_len > sizeof(link->addr)) {
        free(link);
        return false;
    }
    link->links = links;
    link->name = name;
    link->watch.fd = -1;
    link->watch.on_ready = on_ready;
    link->timer.on_due = on_due;
    link->backoff_ms = BTA_LINK_BACKOFF_MIN;
    memcpy(&link->addr, addr, addr_len);
    link->addr_len = addr_len;
    bta_address_format(addr, addr_len, link->address);
    if (links->options.key.length == 0 && !bta_address_is_local(addr)) {
        link_log(link, 0,
                 "not linked: without a key only loopback and unix addresses "
                 "are allowed",
                 bt_str_span("", 0));
    } else if (!bta_timer_set(links->reactor, &link->timer, 0)) {
        free(link);
        return false;
    }
    link->next = links->first;
    links->first = link;
    return true;
}

void bta_link_remove(struct bta_link *link)
{
    struct bta_link **at = &link->links->first;

    while (*at != link) {
        at = &(*at)->next;
    }
    *at = link->next;
    bta_timer_clear(link->links->reactor, &link->timer);
    link_shut(link);
    free(link);
}
