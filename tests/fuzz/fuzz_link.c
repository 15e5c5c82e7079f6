/*
 * Both readers of the link over one input, whose first byte says which:
 *
 *     even  the proxy's: the bytes follow an agent's upgrade
 *     odd   the agent's: the bytes follow its GET
 *
 * Each runs over a socketpair, as whole as in the program.
 */
#include "agent/src/link/link.h"
#include "common/base/log.h"
#include "proxy/agents/agents_core.h"
#include "tests/support/link_sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#define INPUT_MAX 65536
#define TURNS     12

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* --- the proxy's reader --- */

static const char *const URLS[] = {"http://127.0.0.1:1", "http://127.0.0.1:2"};

static void open_proxy(struct proxy_side *side)
{
    struct handoff_begin begin = {.id = {0x11, 0x22}};

    side->config.agents.ping_ms = 1000;
    side->config.agents.dead_ms = 3000;
    check(proxy_side_open(side, URLS));
    check(proxy_side_start(side, 1));
    begin.prefill = side->engines[0];
    handoffs_begin(side->handoffs, &begin);
    handoffs_decode(side->handoffs, begin.id, side->engines[1]);
}

static void on_unused(void *owner)
{
    (void)owner;
}

static const struct bt_stream_events NO_EVENTS = {.on_connected = on_unused};

/* A link as the upgrade leaves it. */
static void open_link(struct proxy_side *side, int fd)
{
    const struct bt_stream_options options = {.high_water = 65536};
    struct agent_link *const link = calloc(1, sizeof(*link));
    struct bt_stream *stream = NULL;

    check(link != NULL);
    agent_link_init(link, side->agents);
    check(bt_stream_open(side->loop, fd, &options, &NO_EVENTS, NULL, &stream) ==
          BT_OK);
    link->is_stranger = true;
    TAILQ_INSERT_TAIL(&side->agents->strangers, link, entry);
    side->agents->link_count++;
    side->agents->stranger_count++;
    agent_link_start(link, stream, bt_str_span("", 0));
}

static void send_all(int fd, const uint8_t *data, size_t size)
{
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);

    (void)sent;
}

static void fuzz_proxy(const uint8_t *data, size_t size)
{
    struct proxy_side side = {.loop = NULL};
    int pair[2];

    open_proxy(&side);
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                     pair) == 0);
    open_link(&side, pair[0]);
    send_all(pair[1], data, size);
    for (unsigned i = 0; i < TURNS; i++) {
        bt_loop_turn(side.loop, 0);
    }
    close(pair[1]);
    bt_loop_turn(side.loop, 0);
    proxy_side_close(&side);
}

/* --- the agent's reader --- */

static void on_sync(void *owner, struct bta_link *link, uint64_t proxy,
                    uint32_t lease_ms)
{
    (void)owner;
    (void)proxy;
    bta_link_sync_hold(link,
                       &(struct bta_hold_report){{1, 2}, 0, 1, 1, 1, lease_ms});
}

static void on_down(void *owner, uint64_t proxy, uint64_t silent_us)
{
    (void)owner;
    (void)proxy;
    (void)silent_us;
}

static bool on_release(void *owner, uint64_t proxy, baton_id handoff,
                       baton_reason reason)
{
    (void)owner;
    (void)proxy;
    check(handoff.lo != 0);
    check(reason <= BATON_REASON_MEMORY);
    return handoff.hi % 2 == 0;
}

static bool on_renew(void *owner, uint64_t proxy, baton_id handoff,
                     uint32_t lease_ms)
{
    (void)owner;
    (void)proxy;
    check(handoff.lo != 0);
    check(lease_ms != 0);
    return handoff.hi % 2 == 0;
}

static bool on_cancel(void *owner, uint64_t proxy, baton_id handoff)
{
    (void)owner;
    (void)proxy;
    check(handoff.lo != 0);
    return handoff.hi % 2 == 0;
}

static void on_peer_up(void *owner, uint64_t proxy,
                       const struct bta_peer_up *up)
{
    (void)owner;
    (void)proxy;
    check(up->engine.len > 0);
}

static void on_card(void *owner, uint64_t proxy, struct bt_str card)
{
    (void)owner;
    (void)proxy;
    check(card.len >= 2 && card.ptr[0] == '{');
}

static void on_peer_down(void *owner, uint64_t proxy, struct bt_str engine,
                         uint32_t rank, uint64_t boot)
{
    (void)owner;
    (void)proxy;
    (void)engine;
    (void)rank;
    (void)boot;
}

static const struct bta_link_events LINK_EVENTS = {
    .on_sync = on_sync,
    .on_down = on_down,
    .on_release = on_release,
    .on_renew = on_renew,
    .on_cancel = on_cancel,
    .on_peer_up = on_peer_up,
    .on_card = on_card,
    .on_peer_down = on_peer_down,
};

static int listen_unix(char text[64])
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    const int fd =
        socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    check(fd >= 0);
    snprintf(sun.sun_path, sizeof(sun.sun_path), "/tmp/fuzz_link_%ld",
             (long)getpid());
    (void)unlink(sun.sun_path);
    check(bind(fd, (const struct sockaddr *)&sun, sizeof(sun)) == 0);
    check(listen(fd, 8) == 0);
    snprintf(text, 64, "unix:%.50s", sun.sun_path);
    return fd;
}

static void fuzz_agent(const uint8_t *data, size_t size)
{
    struct agent_side side = {.reactor = NULL};
    char address[64];
    const char *const proxies[] = {address};
    const struct bta_links_options options = {
        .proxies = proxies, .proxy_count = 1, .events = &LINK_EVENTS};
    struct bta_links *links = NULL;
    const int listener = listen_unix(address);
    int fd = -1;

    check(agent_side_open(&side));
    check(bta_links_open(side.reactor, &options, &links) == BATON_OK);
    for (unsigned i = 0; i < TURNS && fd < 0; i++) {
        check(agent_side_turn(&side, 0));
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    check(fd >= 0);
    send_all(fd, data, size);
    for (unsigned i = 0; i < TURNS; i++) {
        check(agent_side_turn(&side, 0));
    }
    close(fd);
    bta_links_close(links);
    agent_side_close(&side);
    close(listener);
    (void)unlink(address + 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bt_log_set_level(BT_LOG_ERROR);
    if (size == 0 || size > INPUT_MAX) {
        return 0;
    }
    if ((data[0] & 1) == 0) {
        fuzz_proxy(data + 1, size - 1);
    } else {
        fuzz_agent(data + 1, size - 1);
    }
    return 0;
}
