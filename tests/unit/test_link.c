/*
 * Both ends of the link in one thread, by turns:
 *
 *     agent's links on a reactor  ==  loopback  ==  agents on a loop
 *
 * Peers that misbehave are played by a plain socket.
 */
#include "agent/src/link/link.h"
#include "agent/src/link/link_core.h"
#include "proxy/agents/agents_core.h"
#include "proxy/metrics/control_stats.h"
#include "tests/support/harness.h"
#include "tests/support/link_sides.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROXY_BOOT 0xb007u
#define WAIT_US    30000000u
#define NONCE      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define UPGRADE(path, token)                        \
    "GET " path " HTTP/1.1\r\nHost: x\r\n"          \
    "Connection: Upgrade\r\nUpgrade: " token "\r\n" \
    "Baton-Nonce: " NONCE "\r\n\r\n"

/* Only compared, never looked into. */
#define WORKER ((struct bt_mailbox *)(void *)&fx)

/* One agent with what its core was told. */
struct agent {
    struct bta_links *links;
    char hello[1024];
    unsigned syncs, downs, releases, renews, cancels;
    unsigned peers_up, cards, peers_down;
    bool refuses; /* engines that it is told of */
    uint64_t proxy;
    baton_id last_id;
    baton_reason last_reason;
    uint32_t last_lease_ms;
    char peer[512];
    /* What it tells when it is asked to sync. */
    baton_id hold, pull;
    uint64_t owner; /* of both */
};

struct fixture {
    struct proxy_side proxy;
    struct agent_side agent;
    struct agent p, d;
    char key_path[64];
    char address[BT_ADDR_TEXT_MAX];
};

static struct fixture fx;

/* --- the proxy's side --- */

static void write_key(const char *key)
{
    const size_t len = strlen(key);
    int fd;

    snprintf(fx.key_path, sizeof(fx.key_path), "/tmp/test_link_XXXXXX");
    fd = mkstemp(fx.key_path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, key, len), (ssize_t)len);
    close(fd);
}

static char listen_any[] = "127.0.0.1:0";

static void open_proxy(const char *key)
{
    fx.proxy.config.agents.listen = listen_any;
    fx.proxy.config.agents.key_file = NULL;
    if (key != NULL) {
        write_key(key);
        fx.proxy.config.agents.key_file = fx.key_path;
    }
    ck_assert(proxy_side_start(&fx.proxy, PROXY_BOOT));
    snprintf(fx.address, sizeof(fx.address), "%s",
             agents_address(fx.proxy.agents));
}

/* --- the agent's side --- */

static void on_sync(void *owner, struct bta_link *link, uint64_t proxy,
                    uint32_t lease_ms)
{
    struct agent *const agent = owner;

    agent->syncs++;
    agent->proxy = proxy;
    agent->last_lease_ms = lease_ms;
    if (agent->hold.lo != 0 && agent->owner == proxy) {
        const struct bta_hold_report hold = {agent->hold, 3,    64,
                                             4,           4096, 30000};

        bta_link_sync_hold(link, &hold);
    }
    if (agent->pull.lo != 0 && agent->owner == proxy) {
        bta_link_sync_pull(link, agent->pull, LINK_TYPE_PULLING,
                           BATON_REASON_NONE);
    }
}

static void on_down(void *owner, uint64_t proxy, uint64_t silent_us)
{
    struct agent *const agent = owner;

    ck_assert_uint_eq(proxy, PROXY_BOOT);
    ck_assert_uint_lt(silent_us, WAIT_US);
    agent->downs++;
}

static bool on_release(void *owner, uint64_t proxy, baton_id handoff,
                       baton_reason reason)
{
    struct agent *const agent = owner;

    ck_assert_uint_eq(proxy, PROXY_BOOT);
    agent->releases++;
    agent->last_id = handoff;
    agent->last_reason = reason;
    return proxy == agent->owner;
}

static bool on_renew(void *owner, uint64_t proxy, baton_id handoff,
                     uint32_t lease_ms)
{
    struct agent *const agent = owner;

    agent->renews++;
    agent->last_id = handoff;
    agent->last_lease_ms = lease_ms;
    return proxy == agent->owner;
}

static bool on_cancel(void *owner, uint64_t proxy, baton_id handoff)
{
    struct agent *const agent = owner;

    agent->cancels++;
    agent->last_id = handoff;
    return proxy == agent->owner;
}

static void on_peer_up(void *owner, uint64_t proxy,
                       const struct bta_peer_up *up)
{
    struct agent *const agent = owner;
    const uint32_t rank = 0;

    agent->peers_up++;
    ck_assert_uint_eq(up->world, 1);
    ck_assert_uint_eq(up->boot, 0xeaa);
    if (agent->refuses) {
        bta_links_peer_refuse(agent->links, proxy, up, "tp differs");
    } else {
        bta_links_peer_want(agent->links, proxy, up, &rank, 1);
    }
}

static void on_card(void *owner, uint64_t proxy, struct bt_str card)
{
    struct agent *const agent = owner;

    (void)proxy;
    agent->cards++;
    ck_assert_uint_lt(card.len, sizeof(agent->peer));
    memcpy(agent->peer, card.ptr, card.len);
    agent->peer[card.len] = '\0';
}

static void on_peer_down(void *owner, uint64_t proxy, struct bt_str engine,
                         uint32_t rank, uint64_t boot)
{
    struct agent *const agent = owner;

    (void)proxy;
    ck_assert(bt_str_eq(engine, BT_STR("p")) || bt_str_eq(engine, BT_STR("d")));
    ck_assert_uint_eq(rank, 0);
    ck_assert_uint_ne(boot, 0);
    agent->peers_down++;
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

static void write_hello(char *text, size_t size, char engine, unsigned boot)
{
    const bool is_prefill = engine == 'p';

    snprintf(text, size,
             "\"engine\":\"%c\",\"engine_boot\":\"e%x\",\"boot\":\"%x\","
             "\"rank\":0,\"world\":1,\"tp\":1,\"pp\":1,\"role\":\"%s\","
             "\"url\":\"http://127.0.0.1:%s/\",\"blocks\":100,"
             "\"block_tokens\":16,\"fingerprint\":\"f\","
             "\"card\":{ \"regions\" : [1.50] }",
             engine, boot, boot, is_prefill ? "prefill" : "decode",
             is_prefill ? "7001" : "7002");
}

static void open_agent_at(struct agent *agent, char engine, const char *key,
                          const char *address)
{
    const char *const proxies[] = {address};
    struct bta_links_options options = {.proxies = proxies,
                                        .proxy_count = 1,
                                        .events = &LINK_EVENTS,
                                        .owner = agent};

    write_hello(agent->hello, sizeof(agent->hello), engine,
                engine == 'p' ? 0xaau : 0xddu);
    options.hello = bt_str_of(agent->hello);
    if (key != NULL) {
        options.key = (baton_bytes){key, strlen(key)};
    }
    agent->owner = PROXY_BOOT;
    ck_assert_int_eq(bta_links_open(fx.agent.reactor, &options, &agent->links),
                     BATON_OK);
}

static void open_agent(struct agent *agent, char engine, const char *key)
{
    open_agent_at(agent, engine, key, fx.address);
}

/* --- turns --- */

static void turn(void)
{
    ck_assert(agent_side_turn(&fx.agent, 200));
    bt_loop_turn(fx.proxy.loop, 0);
}

/* Turns both sides until the condition holds; false when it never does. */
#define UNTIL(condition)                                               \
    do {                                                               \
        const uint64_t end_us = bt_clock_us() + WAIT_US;               \
        while (!(condition) && bt_clock_us() < end_us) {               \
            turn();                                                    \
        }                                                              \
        ck_assert_msg((condition), "never came true: %s", #condition); \
    } while (0)

static void setup(void)
{
    static const char *const URLS[] = {"http://127.0.0.1:7001",
                                       "http://127.0.0.1:7002"};

    memset(&fx, 0, sizeof(fx));
    fx.proxy.config.agents.lease_ms = 30000;
    fx.proxy.config.agents.ping_ms = 100;
    /* However long the machine stands still, nobody is given up. */
    fx.proxy.config.agents.dead_ms = 60000;
    ck_assert(proxy_side_open(&fx.proxy, URLS));
    ck_assert(agent_side_open(&fx.agent));
}

/* From now on the proxy waits no longer than this for a silent agent. */
static void give_up_soon(void)
{
    fx.proxy.config.agents.dead_ms = 300;
}

static void teardown(void)
{
    bta_links_close(fx.p.links);
    bta_links_close(fx.d.links);
    proxy_side_close(&fx.proxy);
    agent_side_close(&fx.agent);
    if (fx.key_path[0] != '\0') {
        unlink(fx.key_path);
    }
}

static int64_t stat_of(enum control_stat stat, const char *label)
{
    struct bt_metrics *const all[] = {fx.proxy.stats};

    return bt_metrics_sum(
        all, 1, stat,
        label == NULL ? 0 : control_stat_label(stat, bt_str_of(label)), 0);
}

/* --- a peer that is a plain socket --- */

static int raw_connect(void)
{
    const struct timeval soon = {.tv_usec = 1000};
    struct bt_addr addr;
    int fd;

    ck_assert_int_eq(bt_addr_parse(fx.address, &addr), BT_OK);
    fd = socket(addr.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(
        connect(fd, (const struct sockaddr *)(const void *)&addr.sa, addr.len),
        0);
    ck_assert_int_eq(
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)), 0);
    return fd;
}

static void raw_send(int fd, const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        const ssize_t sent = send(fd, text, left, MSG_NOSIGNAL | MSG_DONTWAIT);

        ck_assert(sent > 0 || errno == EAGAIN);
        if (sent > 0) {
            text += sent;
            left -= (size_t)sent;
        }
        turn();
    }
}

/* Reads until `text` was seen; what came is in `got`. */
static void raw_expect(int fd, const char *text, char *got, size_t size)
{
    const uint64_t end_us = bt_clock_us() + WAIT_US;
    size_t len = 0;

    got[0] = '\0';
    while (strstr(got, text) == NULL && bt_clock_us() < end_us) {
        ssize_t n;

        turn();
        n = recv(fd, got + len, size - 1 - len, 0);
        if (n > 0) {
            len += (size_t)n;
            got[len] = '\0';
        }
    }
    ck_assert_msg(strstr(got, text) != NULL, "no %s in: %s", text, got);
}

/* Reads on until the proxy's end of the connection is closed. */
static void raw_expect_end(int fd)
{
    const uint64_t end_us = bt_clock_us() + WAIT_US;
    char bytes[4096];
    ssize_t n = -1;

    while (n != 0 && bt_clock_us() < end_us) {
        turn();
        n = recv(fd, bytes, sizeof(bytes), 0);
        if (n < 0 && errno == ECONNRESET) {
            n = 0;
        }
    }
    ck_assert_int_eq(n, 0);
}

static int raw_upgrade(void)
{
    const int fd = raw_connect();
    char got[2048];

    raw_send(fd, UPGRADE("/agent/v1", "baton-agent/1"));
    raw_expect(fd, "\r\n\r\n", got, sizeof(got));
    ck_assert_ptr_nonnull(strstr(got, "HTTP/1.1 101"));
    return fd;
}

static int raw_link(char engine, unsigned boot)
{
    const int fd = raw_upgrade();
    char hello[1024], line[1100], got[2048];

    write_hello(hello, sizeof(hello), engine, boot);
    snprintf(line, sizeof(line), "{\"t\":\"hello\",\"v\":1,%s}\n", hello);
    raw_send(fd, line);
    raw_expect(fd, "\"t\":\"welcome\"", got, sizeof(got));
    return fd;
}

/* --- handoffs of the tests --- */

static const baton_id AGENT_ID = {0x11, 0x22};
static const struct bta_hold_report HELD = {{0x11, 0x22}, 1,    64, 4,
                                            4096,         30000};
static const struct handoff_id ID = {0x11, 0x22};

static void begin(void)
{
    const struct handoff_begin request = {.id = ID,
                                          .exchange = 5,
                                          .worker = WORKER,
                                          .prefill = fx.proxy.engines[0],
                                          .tokens = 10};

    handoffs_begin(fx.proxy.handoffs, &request);
}

static bool is_held(void)
{
    const struct handoff *const handoff = handoffs_find(fx.proxy.handoffs, ID);

    return handoff != NULL && (handoff->held & ~handoff->released) != 0;
}

/* --- tests --- */

START_TEST(links_and_makes_its_engine_routable)
{
    open_proxy("secret");
    open_agent(&fx.p, 'p', "secret");
    UNTIL(fx.p.syncs == 1 && atomic_load(&fx.proxy.engines[0]->is_linked));
    ck_assert_uint_eq(fx.p.proxy, PROXY_BOOT);
    ck_assert_uint_eq(bta_links_up(fx.p.links), 1);
    ck_assert(bta_links_has(fx.p.links, PROXY_BOOT));
    ck_assert_uint_eq(bta_links_lease_ms(fx.p.links, PROXY_BOOT), 30000);
    ck_assert_uint_eq(atomic_load(&fx.proxy.engines[0]->boot), 0xeaa);
    ck_assert_uint_eq(atomic_load(&fx.proxy.engines[0]->blocks_total), 100);
    ck_assert(!atomic_load(&fx.proxy.engines[1]->is_linked));
}
END_TEST

START_TEST(links_by_a_name_that_is_looked_up)
{
    char address[BT_ADDR_TEXT_MAX + 16];

    open_proxy(NULL);
    snprintf(address, sizeof(address), "localhost%s", strchr(fx.address, ':'));
    open_agent_at(&fx.p, 'p', NULL, address);
    UNTIL(bta_links_up(fx.p.links) == 1);
    ck_assert_uint_eq(fx.p.syncs, 1);
}
END_TEST

START_TEST(closes_while_a_name_is_looked_up)
{
    open_agent_at(&fx.p, 'p', NULL, "localhost:1");
    bta_links_close(fx.p.links);
    fx.p.links = NULL;
    ck_assert_uint_eq(fx.p.syncs, 0);
}
END_TEST

START_TEST(refuses_a_malformed_name)
{
    static const char *const NAMES[] = {"host",  "host:0",     ":9",
                                        "::1:9", "host:99999", "unix:"};

    for (size_t i = 0; i < BT_ARRAY_LEN(NAMES); i++) {
        const struct bta_links_options options = {.proxies = &NAMES[i],
                                                  .proxy_count = 1,
                                                  .events = &LINK_EVENTS,
                                                  .owner = &fx.p};

        ck_assert_int_eq(
            bta_links_open(fx.agent.reactor, &options, &fx.p.links),
            BATON_ERR_ARGUMENT);
        ck_assert_ptr_null(fx.p.links);
    }
}
END_TEST

START_TEST(agent_leaves_a_proxy_that_does_not_prove_the_key)
{
    open_proxy("another");
    open_agent(&fx.p, 'p', "secret");
    UNTIL(fx.proxy.agents->stranger_count == 1);
    UNTIL(fx.proxy.agents->link_count == 0);
    ck_assert_uint_eq(fx.p.syncs, 0);
    ck_assert_int_eq(stat_of(CONTROL_STAT_LINKS_REFUSED, "proof"), 0);
}
END_TEST

START_TEST(agent_with_a_key_leaves_a_proxy_without_one)
{
    open_proxy(NULL);
    open_agent(&fx.p, 'p', "secret");
    UNTIL(fx.proxy.agents->stranger_count == 1);
    UNTIL(fx.proxy.agents->link_count == 0);
    ck_assert_uint_eq(fx.p.syncs, 0);
}
END_TEST

START_TEST(proxy_refuses_an_agent_that_does_not_prove_the_key)
{
    char hello[1024], line[1300], got[2048];
    int fd;

    open_proxy("secret");
    fd = raw_upgrade();
    write_hello(hello, sizeof(hello), 'p', 1);
    snprintf(line, sizeof(line),
             "{\"t\":\"hello\",\"v\":1,\"proof\":\"%s\",%s}\n", NONCE, hello);
    raw_send(fd, line);
    raw_expect(fd, "\"code\":\"proof\"", got, sizeof(got));
    raw_expect_end(fd);
    close(fd);
    ck_assert_int_eq(stat_of(CONTROL_STAT_LINKS_REFUSED, "proof"), 1);
    ck_assert(!atomic_load(&fx.proxy.engines[0]->is_linked));
}
END_TEST

START_TEST(proves_the_key_over_both_nonces)
{
    char got[2048], text[256], hex[65];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    int fd;

    open_proxy("secret");
    fd = raw_connect();
    raw_send(fd, UPGRADE("/agent/v1", "baton-agent/1"));
    raw_expect(fd, "\r\n\r\n", got, sizeof(got));
    snprintf(text, sizeof(text), "proxy%s%.64s", NONCE,
             strstr(got, "Baton-Nonce: ") + 13);
    ck_assert_ptr_nonnull(HMAC(EVP_sha256(), "secret", 6,
                               (const unsigned char *)text, strlen(text),
                               digest, &len));
    for (size_t i = 0; i < 32; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    ck_assert_ptr_nonnull(strstr(got, hex));
    close(fd);
}
END_TEST

START_TEST(answers_another_version_with_426)
{
    char got[2048];
    int fd;

    open_proxy(NULL);
    fd = raw_connect();
    raw_send(fd, UPGRADE("/agent/v2", "baton-agent/2"));
    raw_expect(fd, "HTTP/1.1 426", got, sizeof(got));
    close(fd);
    fd = raw_connect();
    raw_send(fd, UPGRADE("/agent/v1", "baton-agent/2"));
    raw_expect(fd, "Upgrade: baton-agent/1", got, sizeof(got));
    close(fd);
    fd = raw_connect();
    raw_send(fd, UPGRADE("/other", "baton-agent/1"));
    raw_expect(fd, "HTTP/1.1 404", got, sizeof(got));
    close(fd);
    ck_assert_int_eq(stat_of(CONTROL_STAT_LINKS_REFUSED, "version"), 2);
}
END_TEST

START_TEST(an_agent_gets_in_although_idle_connections_take_all_places)
{
    int fds[AGENTS_STRANGERS];
    char byte;

    open_proxy(NULL);
    for (size_t i = 0; i < BT_ARRAY_LEN(fds); i++) {
        fds[i] = raw_connect();
        turn();
    }
    UNTIL(fx.proxy.agents->stranger_count == AGENTS_STRANGERS);
    raw_send(fds[0], UPGRADE("/agent/v1", "baton-agent/1"));
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    ck_assert_int_eq(stat_of(CONTROL_STAT_LINKS_REFUSED, "too_many_links"), 1);
    /* The second had shown least; the first was about to say hello. */
    ck_assert_int_eq(recv(fds[1], &byte, 1, 0), 0);
    ck_assert_int_gt(recv(fds[0], &byte, 1, 0), 0);
    for (size_t i = 0; i < BT_ARRAY_LEN(fds); i++) {
        close(fds[i]);
    }
}
END_TEST

START_TEST(refuses_a_hello_of_another_version)
{
    char got[2048];
    int fd;

    open_proxy(NULL);
    fd = raw_upgrade();
    raw_send(fd, "{\"t\":\"hello\",\"v\":2}\n");
    raw_expect(fd, "\"code\":\"version\"", got, sizeof(got));
    raw_expect_end(fd);
    close(fd);
}
END_TEST

START_TEST(refuses_a_hello_without_what_it_needs)
{
    static const char *const HELLOS[] = {
        "{\"t\":\"held\"}\n",
        "{\"t\":\"hello\",\"v\":1}\n",
        "{\"t\":\"hello\",\"v\":1,\"engine\":\"p\",\"fingerprint\":\"\","
        "\"url\":\"ftp://x\"}\n",
        "{\"t\":\"hello\",\"v\":1,\"engine\":\"p\",\"fingerprint\":\"\","
        "\"url\":\"http://x:1\",\"rank\":65,\"world\":66}\n",
        "{\"t\":\"hello\",\"v\":1,\"engine\":\"p\",\"fingerprint\":\"\","
        "\"url\":\"http://x:1\",\"rank\":0,\"world\":1,\"boot\":\"1\","
        "\"engine_boot\":\"1\",\"role\":\"king\"}\n",
        "{\"t\":\"hello\",\"v\":1,\"engine\":\"p\",\"fingerprint\":\"\","
        "\"url\":\"http://x:1\",\"rank\":0,\"world\":1,\"boot\":\"1\","
        "\"engine_boot\":\"1\",\"role\":\"both\"}\n",
    };
    char got[2048];

    open_proxy(NULL);
    for (size_t i = 0; i < BT_ARRAY_LEN(HELLOS); i++) {
        const int fd = raw_upgrade();

        raw_send(fd, HELLOS[i]);
        raw_expect(fd, "\"code\":\"bad_hello\"", got, sizeof(got));
        close(fd);
    }
}
END_TEST

START_TEST(shows_an_agent_of_no_configured_engine_but_does_not_route_it)
{
    char line[1200], got[2048];
    int fd;

    open_proxy(NULL);
    fd = raw_upgrade();
    snprintf(line, sizeof(line),
             "{\"t\":\"hello\",\"v\":1,\"engine\":\"x\",\"fingerprint\":\"\","
             "\"url\":\"http://127.0.0.1:9999\",\"rank\":0,\"world\":1,"
             "\"boot\":\"1\",\"engine_boot\":\"1\",\"role\":\"both\","
             "\"card\":{}}\n");
    raw_send(fd, line);
    raw_expect(fd, "welcome", got, sizeof(got));
    ck_assert_ptr_null(TAILQ_FIRST(&fx.proxy.agents->links)->group);
    ck_assert_int_eq(stat_of(CONTROL_STAT_LINKS, NULL), 1);
    close(fd);
}
END_TEST

START_TEST(closes_a_link_that_speaks_garbage)
{
    char got[2048];
    int fd;

    open_proxy(NULL);
    fd = raw_link('p', 1);
    raw_send(fd, "{\"t\":\"held\",\"handoff\":\n");
    raw_expect(fd, "\"code\":\"bad_message\"", got, sizeof(got));
    raw_expect_end(fd);
    close(fd);
    ck_assert(!atomic_load(&fx.proxy.engines[0]->is_linked));
    fd = raw_link('p', 1);
    raw_send(fd, "{\"t\":\"held\",\"handoff\":\"short\"}\n");
    raw_expect(fd, "32 hex digits", got, sizeof(got));
    close(fd);
}
END_TEST

START_TEST(ignores_and_counts_what_it_does_not_know)
{
    int fd;

    open_proxy(NULL);
    fd = raw_link('p', 1);
    raw_send(fd, "{\"t\":\"dance\",\"x\":[1,{\"y\":2}]}\n{\"z\":1}\n"
                 "{\"t\":\"peer_ready\",\"engine\":\"?\"}\n");
    UNTIL(stat_of(CONTROL_STAT_MESSAGES_IGNORED, NULL) == 3);
    ck_assert(atomic_load(&fx.proxy.engines[0]->is_linked));
    close(fd);
}
END_TEST

START_TEST(closes_a_link_whose_line_is_longer_than_one_mebibyte)
{
    char *const line = malloc(BT_MIB + 2);
    char got[2048];
    int fd;

    ck_assert_ptr_nonnull(line);
    memset(line, 'x', BT_MIB + 1);
    line[BT_MIB + 1] = '\0';
    open_proxy(NULL);
    fd = raw_link('p', 1);
    raw_send(fd, line);
    raw_expect(fd, "longer than 1 MiB", got, sizeof(got));
    close(fd);
    free(line);
}
END_TEST

START_TEST(takes_a_line_that_comes_byte_by_byte)
{
    static const char LINE[] = "{\"t\":\"ping\"}\n";
    char got[2048], byte[2] = "";
    int fd;

    open_proxy(NULL);
    fd = raw_link('p', 1);
    for (size_t i = 0; i + 1 < sizeof(LINE); i++) {
        byte[0] = LINE[i];
        raw_send(fd, byte);
    }
    raw_expect(fd, "\"t\":\"pong\"", got, sizeof(got));
    close(fd);
}
END_TEST

START_TEST(gives_up_a_peer_that_is_silent)
{
    int fd;

    open_proxy(NULL);
    fd = raw_link('p', 1);
    ck_assert(atomic_load(&fx.proxy.engines[0]->is_linked));
    give_up_soon();
    UNTIL(!atomic_load(&fx.proxy.engines[0]->is_linked));
    ck_assert_int_eq(stat_of(CONTROL_STAT_LINKS_LOST, NULL), 1);
    close(fd);
}
END_TEST

/* A link is given up for nothing but the age of what was heard last. */
START_TEST(keeps_an_idle_link_up_by_pings)
{
    const struct bta_link *near;
    const struct agent_link *far;
    uint64_t near_us, far_ms;

    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    near = fx.p.links->first;
    far = TAILQ_FIRST(&fx.proxy.agents->links);
    for (unsigned i = 0; i < 10; i++) {
        near_us = near->heard_us;
        far_ms = far->heard_ms;
        UNTIL(near->heard_us > near_us && far->heard_ms > far_ms);
    }
    ck_assert_uint_eq(fx.p.downs, 0);
    ck_assert(atomic_load(&fx.proxy.engines[0]->is_linked));
}
END_TEST

START_TEST(delivers_release_renew_and_cancel)
{
    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    open_agent(&fx.d, 'd', NULL);
    UNTIL(fx.p.syncs == 1 && fx.d.syncs == 1);
    agents_order(fx.proxy.agents, fx.proxy.engines[0], HANDOFF_ORDER_RENEW, ID,
                 RELEASE_PULLED);
    UNTIL(fx.p.renews == 1);
    ck_assert_uint_eq(fx.p.last_lease_ms, 30000);
    agents_order(fx.proxy.agents, fx.proxy.engines[0], HANDOFF_ORDER_RELEASE,
                 ID, RELEASE_PULLED);
    UNTIL(fx.p.releases == 1);
    ck_assert_int_eq(fx.p.last_reason, BATON_REASON_PULLED);
    ck_assert_uint_eq(fx.p.last_id.hi, AGENT_ID.hi);
    ck_assert_uint_eq(fx.p.last_id.lo, AGENT_ID.lo);
    agents_order(fx.proxy.agents, fx.proxy.engines[1], HANDOFF_ORDER_CANCEL, ID,
                 RELEASE_CANCELLED);
    UNTIL(fx.d.cancels == 1);
    ck_assert_uint_eq(fx.p.cancels, 0);
}
END_TEST

START_TEST(releases_a_hold_of_an_unknown_handoff)
{
    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    bta_links_held(fx.p.links, PROXY_BOOT, &HELD);
    UNTIL(fx.p.releases == 1);
    ck_assert_int_eq(fx.p.last_reason, BATON_REASON_CANCELLED);
    ck_assert_int_eq(stat_of(CONTROL_STAT_STRAY_HOLDS, NULL), 1);
}
END_TEST

START_TEST(drops_reports_to_a_proxy_that_is_not_linked)
{
    const struct bta_pull_report foreign = {.proxy = 99, .handoff = AGENT_ID};

    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    bta_links_held(fx.p.links, 99, &HELD);
    bta_links_pulling(fx.p.links, 99, AGENT_ID);
    bta_links_pull_over(fx.p.links, &foreign);
    bta_links_released(fx.p.links, PROXY_BOOT, AGENT_ID,
                       BATON_REASON_CANCELLED);
    ck_assert(!bta_links_has(fx.p.links, 99));
    ck_assert_uint_eq(bta_links_lease_ms(fx.p.links, 99), 30000);
    bta_links_stats(fx.p.links, 42);
    UNTIL(atomic_load(&fx.proxy.engines[0]->blocks_free) == 42);
    ck_assert_uint_eq(fx.p.releases, 0);
    ck_assert_int_eq(stat_of(CONTROL_STAT_MESSAGES_IGNORED, NULL), 0);
}
END_TEST

START_TEST(carries_one_handoff_from_held_to_released)
{
    const struct bta_pull_report report = {.proxy = PROXY_BOOT,
                                           .handoff = AGENT_ID,
                                           .is_pulled = true,
                                           .bytes = 4096,
                                           .runs = 2,
                                           .blocks = 4,
                                           .read_us = 77,
                                           .provider = "tcp"};

    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    open_agent(&fx.d, 'd', NULL);
    UNTIL(fx.p.syncs == 1 && fx.d.syncs == 1);
    begin();
    bta_links_held(fx.p.links, PROXY_BOOT, &HELD);
    UNTIL(is_held());
    ck_assert_uint_eq(atomic_load(&fx.proxy.engines[0]->held_tokens), 64);
    handoffs_decode(fx.proxy.handoffs, ID, fx.proxy.engines[1]);
    bta_links_pulling(fx.d.links, PROXY_BOOT, AGENT_ID);
    bta_links_pull_over(fx.d.links, &report);
    UNTIL(fx.p.releases == 1);
    ck_assert_int_eq(fx.p.last_reason, BATON_REASON_PULLED);
    ck_assert_uint_eq(fx.proxy.news_count, 1);
    ck_assert_int_eq(fx.proxy.news[0].kind, NEWS_PULLED);
    ck_assert_uint_eq(fx.proxy.news[0].read_us, 77);
    ck_assert_str_eq(fx.proxy.news[0].provider, "tcp");
    bta_links_released(fx.p.links, PROXY_BOOT, AGENT_ID, BATON_REASON_PULLED);
    UNTIL(handoffs_live(fx.proxy.handoffs) == 0);
    ck_assert_uint_eq(atomic_load(&fx.proxy.engines[0]->held_tokens), 0);
}
END_TEST

START_TEST(tells_why_a_pull_failed)
{
    const struct bta_pull_report report = {
        .proxy = PROXY_BOOT, .handoff = AGENT_ID, .reason = BATON_REASON_LOST};

    open_proxy(NULL);
    open_agent(&fx.d, 'd', NULL);
    UNTIL(fx.d.syncs == 1);
    begin();
    handoffs_decode(fx.proxy.handoffs, ID, fx.proxy.engines[1]);
    bta_links_pull_over(fx.d.links, &report);
    UNTIL(fx.proxy.news_count == 1);
    ck_assert_int_eq(fx.proxy.news[0].kind, NEWS_PULL_FAILED);
    ck_assert_str_eq(fx.proxy.news[0].reason, "lost");
}
END_TEST

START_TEST(reconnects_and_tells_its_state)
{
    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    begin();
    fx.p.hold = AGENT_ID;
    agent_link_end(TAILQ_FIRST(&fx.proxy.agents->links), "the test cuts it");
    UNTIL(fx.p.downs == 1);
    UNTIL(fx.p.syncs == 2 && is_held());
    UNTIL(fx.p.renews == 1);
    ck_assert_uint_eq(fx.p.releases, 0);
    ck_assert(atomic_load(&fx.proxy.engines[0]->is_linked));
}
END_TEST

START_TEST(answers_a_sync_of_its_own_that_is_unknown_with_release_and_cancel)
{
    open_proxy(NULL);
    fx.p.hold = AGENT_ID;
    fx.d.pull = AGENT_ID;
    open_agent(&fx.p, 'p', NULL);
    open_agent(&fx.d, 'd', NULL);
    UNTIL(fx.p.releases == 1 && fx.d.cancels == 1);
    ck_assert_uint_eq(fx.p.renews, 0);
}
END_TEST

START_TEST(ends_a_hold_that_is_absent_from_the_sync)
{
    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    begin();
    bta_links_held(fx.p.links, PROXY_BOOT, &HELD);
    UNTIL(is_held());
    agent_link_end(TAILQ_FIRST(&fx.proxy.agents->links), "the test cuts it");
    UNTIL(fx.p.syncs == 2 && fx.proxy.news_count == 1);
    ck_assert_int_eq(fx.proxy.news[0].kind, NEWS_HOLD_ENDED);
    ck_assert_str_eq(fx.proxy.news[0].reason, "gone");
}
END_TEST

static void on_big_sync(void *owner, struct bta_link *link, uint64_t proxy,
                        uint32_t lease_ms)
{
    struct agent *const agent = owner;

    agent->syncs++;
    agent->proxy = proxy;
    agent->last_lease_ms = lease_ms;
    for (uint64_t i = 1; i <= 2500; i++) {
        const struct bta_hold_report hold = {{1, i}, (uint32_t)i, 16, 1, 10, 0};

        bta_link_sync_hold(link, &hold);
    }
}

START_TEST(syncs_thousands_of_records_in_parts)
{
    static struct bta_link_events events;
    const char *const proxies[] = {fx.address};
    struct bta_links_options options = {
        .proxies = proxies, .proxy_count = 1, .owner = &fx.p};

    open_proxy(NULL);
    events = LINK_EVENTS;
    events.on_sync = on_big_sync;
    options.events = &events;
    write_hello(fx.p.hello, sizeof(fx.p.hello), 'p', 0xaa);
    options.hello = bt_str_of(fx.p.hello);
    ck_assert_int_eq(bta_links_open(fx.agent.reactor, &options, &fx.p.links),
                     BATON_OK);
    UNTIL(fx.p.releases == 2500);
    ck_assert_uint_eq(fx.p.last_id.lo, 2500);
    ck_assert(!TAILQ_FIRST(&fx.proxy.agents->links)->is_syncing);
}
END_TEST

START_TEST(introduces_prefill_to_decode)
{
    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    ck_assert_uint_eq(fx.p.peers_up, 0);
    open_agent(&fx.d, 'd', NULL);
    UNTIL(fx.d.cards == 1);
    ck_assert_uint_eq(fx.d.peers_up, 1);
    ck_assert_uint_eq(fx.p.peers_up, 0);
    /* The text as it came, spaces and spelling of numbers included. */
    ck_assert_ptr_nonnull(strstr(fx.d.peer, "{ \"regions\" : [1.50] }"));
    ck_assert_ptr_nonnull(strstr(fx.d.peer, "\"engine\":\"p\""));
    ck_assert_ptr_null(strstr(fx.d.peer, "features"));
    ck_assert(!engine_is_paired(fx.proxy.engines[1], fx.proxy.engines[0]));
    bta_links_peer_ready(fx.d.links, "p", 0, 0xaa, "tcp", 12);
    UNTIL(engine_is_paired(fx.proxy.engines[1], fx.proxy.engines[0]));
    bta_links_peer_failed(fx.d.links, "p", 0, 0xaa, "unreachable");
    UNTIL(!engine_is_paired(fx.proxy.engines[1], fx.proxy.engines[0]));
    bta_links_peer_ready(fx.d.links, "p", 0, 0xaa, "tcp", 12);
    UNTIL(engine_is_paired(fx.proxy.engines[1], fx.proxy.engines[0]));
    give_up_soon();
    bta_links_close(fx.p.links);
    fx.p.links = NULL;
    UNTIL(fx.d.peers_down == 1);
    ck_assert(!engine_is_paired(fx.proxy.engines[1], fx.proxy.engines[0]));
    ck_assert(!atomic_load(&fx.proxy.engines[0]->is_linked));
}
END_TEST

START_TEST(does_not_introduce_different_fingerprints)
{
    char *fingerprint;
    int fd;
    char hello[1024], line[1200], got[2048];

    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    fd = raw_upgrade();
    write_hello(hello, sizeof(hello), 'd', 2);
    fingerprint = strstr(hello, "\"f\"");
    fingerprint[1] = 'g';
    snprintf(line, sizeof(line),
             "{\"t\":\"hello\",\"v\":1,\"features\":[\"want\"],%s}\n", hello);
    raw_send(fd, line);
    raw_expect(fd, "\"t\":\"ping\"", got, sizeof(got));
    ck_assert_ptr_null(strstr(got, "peer_up"));
    ck_assert_uint_eq(fx.p.peers_up, 0);
    close(fd);
}
END_TEST

START_TEST(does_not_say_peer_down_for_a_link_that_comes_back)
{
    struct agent_link *link;

    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    open_agent(&fx.d, 'd', NULL);
    UNTIL(fx.d.cards == 1);
    TAILQ_FOREACH (link, &fx.proxy.agents->links, entry) {
        if (link->hello.role == AGENT_ROLE_PREFILL) {
            break;
        }
    }
    agent_link_end(link, "the test cuts it");
    UNTIL(fx.p.syncs == 2 && atomic_load(&fx.proxy.engines[0]->is_linked));
    /* Nor is it introduced anew: D knows it. */
    ck_assert_uint_eq(fx.d.peers_up, 1);
    ck_assert_uint_eq(fx.d.peers_down, 0);
    bta_links_peer_ready(fx.d.links, "p", 0, 0xaa, "tcp", 12);
    UNTIL(engine_is_paired(fx.proxy.engines[1], fx.proxy.engines[0]));
}
END_TEST

START_TEST(agrees_on_the_features_that_both_know)
{
    char hello[1024], line[1200], got[2048];
    int fd;

    open_proxy(NULL);
    fd = raw_upgrade();
    write_hello(hello, sizeof(hello), 'd', 2);
    snprintf(line, sizeof(line),
             "{\"t\":\"hello\",\"v\":1,"
             "\"features\":[7,\"unheard_of\",\"want\"],%s}\n",
             hello);
    raw_send(fd, line);
    raw_expect(fd, "\"features\":[\"want\"]", got, sizeof(got));
    close(fd);
}
END_TEST

START_TEST(gives_the_card_of_its_own_number_to_a_rank_that_cannot_ask)
{
    char hello[1024], line[1200], got[2048];
    int fd;

    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    fd = raw_upgrade();
    write_hello(hello, sizeof(hello), 'd', 2);
    snprintf(line, sizeof(line), "{\"t\":\"hello\",\"v\":1,%s}\n", hello);
    raw_send(fd, line);
    raw_expect(fd, "\"t\":\"ping\"", got, sizeof(got));
    ck_assert_ptr_nonnull(strstr(got, "\"features\":[]"));
    ck_assert_ptr_nonnull(strstr(got, "{\"t\":\"peer_up\",\"peer\":{"));
    close(fd);
}
END_TEST

START_TEST(keeps_the_reason_why_an_engine_has_no_sources)
{
    const struct peer *peer;

    open_proxy(NULL);
    fx.d.refuses = true;
    open_agent(&fx.d, 'd', NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.d.peers_up == 1 &&
          (peer = TAILQ_FIRST(&fx.proxy.agents->by_engine[0]->as_prefill)) !=
              NULL &&
          peer->state == PEER_FAILED);
    ck_assert_str_eq(peer->reason, "tp differs");
    ck_assert_uint_eq(peer->sources, 0);
    ck_assert_uint_eq(fx.d.cards, 0);
    ck_assert(!engine_is_paired(fx.proxy.engines[1], fx.proxy.engines[0]));
}
END_TEST

START_TEST(tells_the_worker_that_its_decode_is_dead)
{
    int fd;

    open_proxy(NULL);
    fd = raw_link('d', 0xdd);
    begin();
    handoffs_decode(fx.proxy.handoffs, ID, fx.proxy.engines[1]);
    give_up_soon();
    close(fd);
    UNTIL(fx.proxy.news_count == 1);
    ck_assert_int_eq(fx.proxy.news[0].kind, NEWS_D_LOST);
}
END_TEST

START_TEST(tells_of_an_engine_whose_agent_is_dead_and_not_of_a_short_break)
{
    int fd;

    open_proxy(NULL);
    fd = raw_link('p', 1);
    close(fd);
    UNTIL(!atomic_load(&fx.proxy.engines[0]->is_linked));
    fd = raw_link('p', 1);
    UNTIL(atomic_load(&fx.proxy.engines[0]->is_linked));
    ck_assert_ptr_null(fx.proxy.lost);
    give_up_soon();
    close(fd);
    UNTIL(fx.proxy.lost == fx.proxy.engines[0]);
}
END_TEST

START_TEST(frees_the_holds_of_a_prefill_that_restarted)
{
    int fd, next;

    open_proxy(NULL);
    fd = raw_link('p', 1);
    begin();
    raw_send(fd, "{\"t\":\"held\",\"handoff\":"
                 "\"00000000000000110000000000000022\",\"tokens\":5}\n");
    UNTIL(is_held());
    give_up_soon();
    close(fd);
    UNTIL(!atomic_load(&fx.proxy.engines[0]->is_linked));
    ck_assert(is_held());
    next = raw_link('p', 2);
    ck_assert(!is_held());
    ck_assert_uint_eq(atomic_load(&fx.proxy.engines[0]->boot), 0xe2);
    close(next);
}
END_TEST

START_TEST(refuses_a_second_engine_of_the_same_name_while_the_first_answers)
{
    char hello[1024], line[1100], got[2048];
    int fd;

    open_proxy(NULL);
    open_agent(&fx.p, 'p', NULL);
    UNTIL(fx.p.syncs == 1);
    fd = raw_upgrade();
    write_hello(hello, sizeof(hello), 'p', 2);
    snprintf(line, sizeof(line), "{\"t\":\"hello\",\"v\":1,%s}\n", hello);
    raw_send(fd, line);
    raw_expect(fd, "duplicate_engine", got, sizeof(got));
    ck_assert_uint_eq(fx.p.downs, 0);
    ck_assert_uint_eq(atomic_load(&fx.proxy.engines[0]->boot), 0xeaa);
    close(fd);
}
END_TEST

START_TEST(replaces_an_engine_that_no_longer_answers)
{
    int old, fresh;

    open_proxy(NULL);
    old = raw_link('p', 1);
    fresh = raw_link('p', 2);
    ck_assert_uint_eq(atomic_load(&fx.proxy.engines[0]->boot), 0xe2);
    close(old);
    close(fresh);
}
END_TEST

START_TEST(makes_one_engine_of_ranks_that_a_scheduler_names)
{
    static const char RANK[] =
        "{\"t\":\"hello\",\"v\":1,\"engine\":\"p\",\"fingerprint\":\"f\","
        "\"url\":\"http://127.0.0.1:7001\",\"rank\":%u,\"world\":2,"
        "\"boot\":\"%x\",\"engine_boot\":\"0\",\"role\":\"prefill\","
        "\"card\":{}}\n";
    static const char SCHEDULER[] =
        "{\"t\":\"hello\",\"v\":1,\"engine\":\"p\",\"fingerprint\":\"f\","
        "\"url\":\"http://127.0.0.1:7001\",\"rank\":0,\"world\":2,"
        "\"boot\":\"c\",\"engine_boot\":\"ee\",\"role\":\"scheduler\","
        "\"boots\":[\"a\",\"b\"]}\n";
    char line[1100], got[2048];
    int fds[3];

    open_proxy(NULL);
    for (unsigned i = 0; i < 2; i++) {
        fds[i] = raw_upgrade();
        snprintf(line, sizeof(line), RANK, i, 10 + i);
        raw_send(fds[i], line);
        raw_expect(fds[i], "welcome", got, sizeof(got));
    }
    ck_assert(!atomic_load(&fx.proxy.engines[0]->is_linked));
    fds[2] = raw_upgrade();
    raw_send(fds[2], SCHEDULER);
    raw_expect(fds[2], "welcome", got, sizeof(got));
    ck_assert(atomic_load(&fx.proxy.engines[0]->is_linked));
    ck_assert_uint_eq(atomic_load(&fx.proxy.engines[0]->boot), 0xee);
    ck_assert_uint_eq(agents_ranks(fx.proxy.agents, fx.proxy.engines[0]), 2);
    for (unsigned i = 0; i < 3; i++) {
        close(fds[i]);
    }
}
END_TEST

START_TEST(cuts_an_agent_that_does_not_read)
{
    struct agent_link *link;
    struct bt_buf line;
    int fd;

    bt_buf_init(&line);
    ck_assert(bt_buf_reserve(&line, BT_MIB - 1));
    memset(bt_buf_tail(&line), ' ', BT_MIB - 1);
    bt_buf_commit(&line, BT_MIB - 1);
    open_proxy(NULL);
    fd = raw_link('p', 1);
    link = TAILQ_FIRST(&fx.proxy.agents->links);
    for (unsigned i = 0; i < 64 && link->broken == NULL; i++) {
        agent_link_send(link, &line);
    }
    ck_assert_ptr_nonnull(link->broken);
    UNTIL(!atomic_load(&fx.proxy.engines[0]->is_linked));
    close(fd);
    bt_buf_fini(&line);
}
END_TEST

/* --- a proxy that is a plain socket --- */

static int fake_listener;

static void open_fake_proxy(void)
{
    struct bt_addr addr;

    ck_assert_int_eq(bt_addr_parse("127.0.0.1:0", &addr), BT_OK);
    ck_assert_int_eq(bt_listen(&addr, false, &fake_listener), BT_OK);
    ck_assert_int_eq(bt_addr_of_fd(fake_listener, &addr), BT_OK);
    bt_addr_format(&addr, fx.address);
}

/* Accepts the agent, reads its GET, and sends `text`. */
static int fake_proxy(const char *text)
{
    const struct timeval soon = {.tv_usec = 1000};
    const uint64_t end_us = bt_clock_us() + WAIT_US;
    char got[2048];
    int fd = -1;

    while (fd < 0 && bt_clock_us() < end_us) {
        turn();
        fd = accept4(fake_listener, NULL, NULL, SOCK_CLOEXEC);
    }
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)), 0);
    raw_expect(fd, "\r\n\r\n", got, sizeof(got));
    raw_send(fd, text);
    return fd;
}

#define SWITCHED                           \
    "HTTP/1.1 101 Switching Protocols\r\n" \
    "Connection: Upgrade\r\nbaton-nonce:" NONCE " \r\n\r\n"
#define WELCOME_DEAD(dead_ms)                                 \
    "{\"t\":\"welcome\",\"boot\":\"b007\",\"lease_ms\":1000," \
    "\"ping_ms\":100,\"dead_ms\":" dead_ms ",\"new\":{}}\n"
#define WELCOME WELCOME_DEAD("60000")

START_TEST(agent_links_to_whoever_speaks_the_protocol)
{
    int fd;

    open_fake_proxy();
    open_agent(&fx.p, 'p', NULL);
    fd = fake_proxy(SWITCHED);
    raw_send(fd, WELCOME);
    UNTIL(fx.p.syncs == 1);
    ck_assert_uint_eq(fx.p.last_lease_ms, 1000);
    close(fd);
    UNTIL(fx.p.downs == 1);
    close(fake_listener);
}
END_TEST

START_TEST(agent_gives_up_a_proxy_that_is_silent)
{
    int fd;

    open_fake_proxy();
    open_agent(&fx.p, 'p', NULL);
    fd = fake_proxy(SWITCHED);
    raw_send(fd, WELCOME_DEAD("300"));
    UNTIL(fx.p.syncs == 1);
    UNTIL(fx.p.downs == 1);
    close(fd);
    close(fake_listener);
}
END_TEST

static void speak_garbage(unsigned round, const char *line)
{
    const int fd = fake_proxy(SWITCHED);

    raw_send(fd, WELCOME);
    UNTIL(fx.p.syncs == round);
    raw_send(fd, line);
    UNTIL(fx.p.downs == round);
    close(fd);
}

START_TEST(agent_leaves_a_proxy_that_speaks_garbage)
{
    open_fake_proxy();
    open_agent(&fx.p, 'p', NULL);
    speak_garbage(1, "}\n");
    speak_garbage(2, "[]\n");
    speak_garbage(3, "{\"t\":\"welcome\"\n");
    speak_garbage(4, WELCOME);
    close(fake_listener);
}
END_TEST

START_TEST(agent_ignores_orders_without_a_good_id)
{
    int fd;

    open_fake_proxy();
    open_agent(&fx.p, 'p', NULL);
    fd = fake_proxy(SWITCHED);
    raw_send(fd, WELCOME "{\"t\":\"release\"}\n"
                         "{\"t\":\"renew\",\"handoff\":7}\n"
                         "{\"t\":\"cancel\",\"handoff\":\"00\"}\n"
                         "{\"t\":\"card\",\"peer\":1}\n"
                         "{\"t\":\"peer_up\",\"engine\":\"x\"}\n"
                         "{\"t\":\"peer_down\",\"engine\":\"x\"}\n"
                         "{\"t\":\"unheard_of\"}\n"
                         "{\"t\":\"release\",\"reason\":\"odd\",\"handoff\":"
                         "\"00000000000000110000000000000022\"}\n");
    UNTIL(fx.p.releases == 1);
    ck_assert_int_eq(fx.p.last_reason, BATON_REASON_NONE);
    ck_assert_uint_eq(fx.p.renews + fx.p.cancels + fx.p.peers_up, 0);
    ck_assert_uint_eq(fx.p.downs, 0);
    close(fd);
    close(fake_listener);
}
END_TEST

START_TEST(agent_counts_orders_for_another_proxys_handoffs)
{
    static const char HANDOFF[] =
        "\"handoff\":\"00000000000000110000000000000022\"}\n";
    char text[1024];
    int fd;

    open_fake_proxy();
    open_agent(&fx.p, 'p', NULL);
    fx.p.owner = 99;
    fd = fake_proxy(SWITCHED);
    snprintf(text, sizeof(text),
             WELCOME "{\"t\":\"release\",%s{\"t\":\"renew\",%s"
                     "{\"t\":\"cancel\",%s",
             HANDOFF, HANDOFF, HANDOFF);
    raw_send(fd, text);
    UNTIL(fx.p.cancels == 1);
    ck_assert_uint_eq(fx.p.links->first->ignored, 3);
    ck_assert_uint_eq(fx.p.downs, 0);
    close(fd);
    close(fake_listener);
}
END_TEST

START_TEST(agent_leaves_a_proxy_whose_line_is_too_long)
{
    char *const line = malloc(BT_MIB + 2);
    int fd;

    ck_assert_ptr_nonnull(line);
    memset(line, 'x', BT_MIB + 1);
    line[BT_MIB + 1] = '\0';
    open_fake_proxy();
    open_agent(&fx.p, 'p', NULL);
    fd = fake_proxy(SWITCHED);
    raw_send(fd, WELCOME);
    UNTIL(fx.p.syncs == 1);
    raw_send(fd, line);
    UNTIL(fx.p.downs == 1);
    close(fd);
    close(fake_listener);
    free(line);
}
END_TEST

START_TEST(agent_tries_again_after_any_other_answer)
{
    static const char *const ANSWERS[] = {
        "HTTP/1.1 426 Upgrade Required\r\n\r\n",
        "HTTP/1.1 503 Busy\r\n\r\n",
        "HTTP/1.1 101 X\r\n\r\n",
        "nonsense\r\n\r\n",
    };

    open_fake_proxy();
    open_agent(&fx.p, 'p', NULL);
    for (size_t i = 0; i < BT_ARRAY_LEN(ANSWERS); i++) {
        close(fake_proxy(ANSWERS[i]));
    }
    ck_assert_uint_eq(fx.p.syncs, 0);
    close(fake_listener);
}
END_TEST

HARNESS_MAIN_WITH(
    "link", setup, teardown, links_and_makes_its_engine_routable,
    links_by_a_name_that_is_looked_up, closes_while_a_name_is_looked_up,
    refuses_a_malformed_name, agent_leaves_a_proxy_that_does_not_prove_the_key,
    agent_with_a_key_leaves_a_proxy_without_one,
    proxy_refuses_an_agent_that_does_not_prove_the_key,
    proves_the_key_over_both_nonces, answers_another_version_with_426,
    an_agent_gets_in_although_idle_connections_take_all_places,
    refuses_a_hello_of_another_version, refuses_a_hello_without_what_it_needs,
    shows_an_agent_of_no_configured_engine_but_does_not_route_it,
    closes_a_link_that_speaks_garbage, ignores_and_counts_what_it_does_not_know,
    closes_a_link_whose_line_is_longer_than_one_mebibyte,
    takes_a_line_that_comes_byte_by_byte, gives_up_a_peer_that_is_silent,
    keeps_an_idle_link_up_by_pings, delivers_release_renew_and_cancel,
    releases_a_hold_of_an_unknown_handoff,
    drops_reports_to_a_proxy_that_is_not_linked,
    carries_one_handoff_from_held_to_released, tells_why_a_pull_failed,
    reconnects_and_tells_its_state,
    answers_a_sync_of_its_own_that_is_unknown_with_release_and_cancel,
    ends_a_hold_that_is_absent_from_the_sync,
    syncs_thousands_of_records_in_parts, introduces_prefill_to_decode,
    does_not_introduce_different_fingerprints,
    does_not_say_peer_down_for_a_link_that_comes_back,
    agrees_on_the_features_that_both_know,
    gives_the_card_of_its_own_number_to_a_rank_that_cannot_ask,
    keeps_the_reason_why_an_engine_has_no_sources,
    tells_the_worker_that_its_decode_is_dead,
    tells_of_an_engine_whose_agent_is_dead_and_not_of_a_short_break,
    frees_the_holds_of_a_prefill_that_restarted,
    refuses_a_second_engine_of_the_same_name_while_the_first_answers,
    replaces_an_engine_that_no_longer_answers,
    makes_one_engine_of_ranks_that_a_scheduler_names,
    cuts_an_agent_that_does_not_read,
    agent_links_to_whoever_speaks_the_protocol,
    agent_gives_up_a_proxy_that_is_silent,
    agent_leaves_a_proxy_that_speaks_garbage,
    agent_ignores_orders_without_a_good_id,
    agent_counts_orders_for_another_proxys_handoffs,
    agent_leaves_a_proxy_whose_line_is_too_long,
    agent_tries_again_after_any_other_answer)
