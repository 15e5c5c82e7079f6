/*
 * The control thread as the program runs it: started, probing, asked by plain
 * blocking HTTP clients, given handoffs by a worker.
 */
#include "proxy/control.h"
#include "tests/support/config_pair.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

#include <jansson.h>

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WAIT_US 30000000u

/* Sanitizers have a malloc of their own. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define HAS_OWN_MALLOC
static _Thread_local bool is_out_of_memory;

/* NOLINTNEXTLINE(bugprone-reserved-identifier) */
extern void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
    return is_out_of_memory ? NULL : __libc_malloc(size);
}

/* NOLINTNEXTLINE(bugprone-reserved-identifier) */
extern void *__libc_calloc(size_t count, size_t size);

void *calloc(size_t count, size_t size)
{
    return is_out_of_memory ? NULL : __libc_calloc(count, size);
}
#endif

struct fixture {
    struct config config;
    struct config_pair pair;
    struct fleet *fleet;
    struct engine *engines[2];
    atomic_bool is_draining;
    struct control *control;
    struct bt_loop *loop; /* the worker's */
    struct bt_mailbox *worker;
    struct control_news news;
    unsigned news_count;
    struct bt_mailbox *other; /* a worker that gets what goes to all */
    unsigned lost[2];         /* news of it, by engine */
    int engine_fd;            /* plays the prefill engine */
};

static struct fixture fx;
static char listen_any[] = "127.0.0.1:0";

static void on_news(void *owner, struct bt_mail *mail)
{
    (void)owner;
    fx.news = *bt_container_of(mail, struct control_news, mail);
    fx.news_count++;
    free(bt_container_of(mail, struct control_news, mail));
}

static void on_lost(void *owner, struct bt_mail *mail)
{
    struct control_news *const news =
        bt_container_of(mail, struct control_news, mail);

    (void)owner;
    ck_assert_int_eq(news->kind, NEWS_ENGINE_LOST);
    fx.lost[news->engine->slot]++;
    free(news);
}

/* A listener in place of the prefill engine, nobody in that of the decode. */
static void open_fleet(void)
{
    char addresses[2][BT_ADDR_TEXT_MAX], texts[2][BT_ADDR_TEXT_MAX + 8];
    const char *const urls[] = {texts[0], texts[1]};
    struct bt_addr addr;

    fx.engine_fd = pair_listen(&addr);
    bt_addr_format(&addr, addresses[0]);
    pair_nobody(&addr);
    bt_addr_format(&addr, addresses[1]);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "http://%s", addresses[i]);
    }
    config_pair_set(&fx.pair, &fx.config, CONNECTOR_BATON, urls);
    ck_assert_int_eq(fleet_open(&fx.config, &fx.fleet), BT_OK);
    memcpy(fx.engines, fx.fleet->slots, sizeof(fx.engines));
}

static void open_with(uint64_t probe_ms)
{
    struct control_options options = {
        .config = &fx.config, .boot = 0xb007, .is_draining = &fx.is_draining};

    memset(&fx, 0, sizeof(fx));
    fx.config.admin = listen_any;
    fx.config.agents.listen = listen_any;
    fx.config.agents.lease_ms = 30000;
    fx.config.agents.ping_ms = 1000;
    fx.config.agents.dead_ms = 3000;
    fx.config.timeouts.probe_interval = 50;
    fx.config.timeouts.probe = probe_ms;
    open_fleet();
    options.fleet = fx.fleet;
    ck_assert_int_eq(bt_loop_open(&fx.loop), BT_OK);
    ck_assert_int_eq(bt_mailbox_open(fx.loop, on_news, NULL, &fx.worker),
                     BT_OK);
    ck_assert_int_eq(bt_mailbox_open(fx.loop, on_lost, NULL, &fx.other), BT_OK);
    ck_assert_int_eq(control_open(&options, &fx.control), BT_OK);
    orders_add_worker(control_orders(fx.control), fx.other);
    ck_assert_int_eq(control_start(fx.control), BT_OK);
}

static void setup(void)
{
    open_with(1000);
}

/* The release of what begin() began; for the test to give, or teardown. */
static struct control_order *release;

static void teardown(void)
{
    orders_drop(&release);
    control_close(&fx.control);
    bt_mailbox_close(&fx.worker);
    bt_mailbox_close(&fx.other);
    bt_loop_close(&fx.loop);
    fleet_close(&fx.fleet);
    close(fx.engine_fd);
}

/* One request on a fresh connection, read to its end. Heap. */
static char *ask(const char *method, const char *path)
{
    const size_t cap = BT_MIB;
    char *const got = calloc(1, cap);
    char request[256];
    struct bt_addr addr;
    size_t len = 0;
    ssize_t n;
    int fd;

    ck_assert_ptr_nonnull(got);
    ck_assert_int_eq(bt_addr_parse(control_admin_address(fx.control), &addr),
                     BT_OK);
    fd = socket(addr.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(
        connect(fd, (const struct sockaddr *)(const void *)&addr.sa, addr.len),
        0);
    snprintf(request, sizeof(request),
             "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method,
             path);
    ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL),
                     (ssize_t)strlen(request));
    while ((n = recv(fd, got + len, cap - 1 - len, 0)) > 0) {
        len += (size_t)n;
    }
    close(fd);
    return got;
}

static void expect(const char *method, const char *path, const char *text)
{
    char *const got = ask(method, path);

    ck_assert_msg(strstr(got, text) != NULL, "no %s in %s", text, got);
    free(got);
}

static json_t *ask_json(const char *path)
{
    char *const got = ask("GET", path);
    const char *const body = strstr(got, "\r\n\r\n");
    json_t *json;

    ck_assert_ptr_nonnull(body);
    json = json_loads(body, 0, NULL);
    ck_assert_msg(json != NULL, "no JSON: %s", got);
    free(got);
    return json;
}

/* Answers each probe with `answer` until the atomic is as wanted. */
static void serve_until(const char *answer, const atomic_ullong *value,
                        bool is_zero)
{
    const uint64_t end_us = bt_clock_us() + WAIT_US;

    while ((atomic_load(value) == 0) != is_zero && bt_clock_us() < end_us) {
        struct pollfd ready = {.fd = fx.engine_fd, .events = POLLIN};
        char got[1024];
        int fd;

        if (poll(&ready, 1, 10) <= 0) {
            continue;
        }
        fd = accept4(fx.engine_fd, NULL, NULL, SOCK_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_gt(recv(fd, got, sizeof(got), 0), 0);
        ck_assert_int_eq(memcmp(got, "GET /health HTTP/1.1\r\n", 22), 0);
        ck_assert_int_eq(send(fd, answer, strlen(answer), MSG_NOSIGNAL),
                         (ssize_t)strlen(answer));
        close(fd);
    }
    ck_assert_int_eq(atomic_load(value) == 0, is_zero);
}

static const struct handoff_id ID = {0x11, 0x22};

static void begin(void)
{
    struct handoff_begin request = {.id = ID,
                                    .exchange = 5,
                                    .worker = fx.worker,
                                    .prefill = fx.engines[0],
                                    .tokens = 10,
                                    .request_id = "req-1"};

    release = orders_begin(control_orders(fx.control), &request);
    ck_assert_ptr_nonnull(release);
}

START_TEST(answers_what_an_operator_asks)
{
    expect("GET", "/health", "HTTP/1.1 200");
    expect("GET", "/metrics", "# TYPE baton_agent_links gauge");
    expect("GET", "/metrics", "baton_pull_failures_total{reason=\"lost\"} 0");
    expect("GET", "/engines", "Content-Type: application/json");
    expect("GET", "/handoffs", "\"live_count\": 0");
    expect("HEAD", "/metrics", "HTTP/1.1 200");
}
END_TEST

START_TEST(sends_no_body_to_a_head_request)
{
    char *const got = ask("HEAD", "/health");

    ck_assert_str_eq(strstr(got, "\r\n\r\n"), "\r\n\r\n");
    free(got);
}
END_TEST

START_TEST(refuses_other_paths_and_methods_as_json)
{
    expect("GET", "/", "HTTP/1.1 404");
    expect("GET", "/v1/models", "{\"error\":");
    expect("POST", "/metrics", "HTTP/1.1 405");
    expect("DELETE", "/engines", "Allow: GET, HEAD");
}
END_TEST

START_TEST(is_not_ready_while_draining)
{
    atomic_store(&fx.is_draining, true);
    expect("GET", "/ready", "HTTP/1.1 503");
    expect("GET", "/ready", "draining");
}
END_TEST

START_TEST(shows_each_engine)
{
    json_t *const root = ask_json("/engines");
    const json_t *const engines = json_object_get(root, "engines");
    const json_t *const first = json_array_get(engines, 0);

    ck_assert_uint_eq(json_array_size(engines), 2);
    ck_assert_str_eq(json_string_value(json_object_get(first, "url")),
                     fx.engines[0]->url.normal);
    ck_assert_str_eq(json_string_value(json_object_get(first, "role")),
                     "prefill");
    ck_assert(json_is_false(json_object_get(first, "linked")));
    json_decref(root);
}
END_TEST

START_TEST(shows_a_handoff_from_begin_to_its_end)
{
    json_t *root;
    const json_t *handoff;

    begin();
    orders_decode(control_orders(fx.control), ID, fx.engines[1]);
    root = ask_json("/handoffs");
    handoff = json_array_get(json_object_get(root, "live"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(handoff, "state")),
                     "decode");
    ck_assert_str_eq(json_string_value(json_object_get(handoff, "handoff")),
                     "00000000000000110000000000000022");
    ck_assert_str_eq(json_string_value(json_object_get(handoff, "request")),
                     "req-1");
    json_decref(root);
    orders_release(control_orders(fx.control), &release, RELEASE_CANCELLED,
                   true);
    orders_first_token(control_orders(fx.control), ID, 1234);
    root = ask_json("/handoffs");
    ck_assert_uint_eq(json_array_size(json_object_get(root, "live")), 0);
    handoff = json_array_get(json_object_get(root, "recent"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(handoff, "state")),
                     "ended");
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(handoff, "timeline"),
                                           "first_token_us")),
        1234);
    json_decref(root);
}
END_TEST

START_TEST(a_probe_marks_what_cannot_be_reached)
{
    serve_until("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                &fx.engines[1]->failed_at_ms, false);
    ck_assert_uint_eq(atomic_load(&fx.engines[0]->failed_at_ms), 0);
    expect("GET", "/engines", "\"usable\": false");
}
END_TEST

START_TEST(a_good_probe_makes_an_engine_usable_again)
{
    serve_until("", &fx.engines[0]->failed_at_ms, false);
    serve_until("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                &fx.engines[0]->failed_at_ms, true);
}
END_TEST

static void wait_lost(unsigned id)
{
    const uint64_t end_us = bt_clock_us() + WAIT_US;

    while (fx.lost[id] == 0 && bt_clock_us() < end_us) {
        bt_loop_turn(fx.loop, 10);
    }
    ck_assert_uint_eq(fx.lost[id], 1);
}

START_TEST(a_probe_answered_503_makes_an_engine_unusable_until_it_is_good)
{
    serve_until("HTTP/1.1 503 Dead\r\nContent-Length: 0\r\n\r\n",
                &fx.engines[0]->failed_at_ms, false);
    wait_lost(0);
    serve_until("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                &fx.engines[0]->failed_at_ms, true);
}
END_TEST

START_TEST(an_engine_without_a_health_path_is_good_while_it_answers)
{
    serve_until("", &fx.engines[0]->failed_at_ms, false);
    serve_until("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                &fx.engines[0]->failed_at_ms, true);
}
END_TEST

START_TEST(another_bad_status_changes_nothing)
{
    serve_until("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
                &fx.engines[1]->failed_at_ms, false);
    ck_assert_uint_eq(atomic_load(&fx.engines[0]->failed_at_ms), 0);
}
END_TEST

/* The listener's queue takes the probes, and nobody ever answers. */
START_TEST(three_probes_in_a_row_without_an_answer_make_an_engine_unusable)
{
    teardown();
    open_with(100);
    wait_lost(0);
    ck_assert_uint_ne(atomic_load(&fx.engines[0]->failed_at_ms), 0);
    expect("GET", "/metrics", "baton_probes_total{result=\"late\"} 3");
}
END_TEST

START_TEST(every_worker_hears_once_of_an_engine_that_is_lost)
{
    wait_lost(1);
    serve_until("", &fx.engines[0]->failed_at_ms, false);
    wait_lost(0);
    ck_assert_uint_eq(fx.lost[1], 1);
}
END_TEST

/* An agent that holds and lets go, as bytes; the answers are not read. */
static int raw_prefill(void)
{
    char line[1024];
    struct bt_addr addr;
    int fd;

    ck_assert_int_eq(bt_addr_parse(control_agents_address(fx.control), &addr),
                     BT_OK);
    fd = socket(addr.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(
        connect(fd, (const struct sockaddr *)(const void *)&addr.sa, addr.len),
        0);
    snprintf(line, sizeof(line),
             "GET /agent/v1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
             "Upgrade: baton-agent/1\r\nBaton-Nonce: %064d\r\n\r\n"
             "{\"t\":\"hello\",\"v\":1,\"engine\":\"p\",\"fingerprint\":\"f\","
             "\"url\":\"%s\",\"rank\":0,\"world\":1,\"boot\":\"1\","
             "\"engine_boot\":\"1\",\"role\":\"prefill\",\"card\":{}}\n",
             7, fx.engines[0]->url.normal);
    ck_assert_int_eq(send(fd, line, strlen(line), MSG_NOSIGNAL),
                     (ssize_t)strlen(line));
    return fd;
}

static void say(int fd, const char *type, const char *more)
{
    char line[256];

    snprintf(line, sizeof(line),
             "{\"t\":\"%s\",\"handoff\":\"00000000000000110000000000000022\"%s}"
             "\n",
             type, more);
    ck_assert_int_eq(send(fd, line, strlen(line), MSG_NOSIGNAL),
                     (ssize_t)strlen(line));
}

static void wait_held(unsigned count)
{
    const uint64_t end_us = bt_clock_us() + WAIT_US;

    while (atomic_load(&fx.engines[0]->held_count) != count &&
           bt_clock_us() < end_us) {
        bt_loop_turn(fx.loop, 1);
    }
    ck_assert_uint_eq(atomic_load(&fx.engines[0]->held_count), count);
}

static void wait_news(unsigned count)
{
    const uint64_t end_us = bt_clock_us() + WAIT_US;

    while (fx.news_count < count && bt_clock_us() < end_us) {
        bt_loop_turn(fx.loop, 10);
    }
    ck_assert_uint_eq(fx.news_count, count);
}

START_TEST(tells_the_worker_what_agents_say_and_when_there_is_room)
{
    const int fd = raw_prefill();

    begin();
    say(fd, "held", ",\"tokens\":9,\"blocks\":2");
    wait_held(1);
    ck_assert_uint_eq(atomic_load(&fx.engines[0]->held_tokens), 9);
    orders_want_room(control_orders(fx.control), fx.worker);
    orders_want_room(control_orders(fx.control), fx.worker);
    say(fd, "released", ",\"reason\":\"expired\"");
    wait_news(2);
    wait_held(0);
    ck_assert_int_eq(fx.news.kind, NEWS_ROOM);
    orders_release(control_orders(fx.control), &release, RELEASE_FAILED, false);
    close(fd);
}
END_TEST

static void wait_release(int fd)
{
    char got[4096] = "";
    size_t len = 0;

    while (strstr(got, "\"t\":\"release\"") == NULL) {
        const ssize_t n = recv(fd, got + len, sizeof(got) - 1 - len, 0);

        ck_assert_int_gt(n, 0);
        len += (size_t)n;
    }
}

START_TEST(releases_what_a_worker_that_ends_has_left)
{
    const int fd = raw_prefill();

    begin();
    say(fd, "held", ",\"tokens\":9");
    wait_held(1);
    orders_want_room(control_orders(fx.control), fx.worker);
    orders_forget_worker(control_orders(fx.control), fx.worker);
    wait_release(fd);
    say(fd, "released", ",\"reason\":\"cancelled\"");
    wait_held(0);
    ck_assert_uint_eq(fx.news_count, 0);
    close(fd);
}
END_TEST

#ifdef HAS_OWN_MALLOC
START_TEST(a_release_is_not_lost_for_want_of_memory)
{
    const int fd = raw_prefill();

    begin();
    say(fd, "held", ",\"tokens\":9");
    wait_held(1);
    is_out_of_memory = true;
    orders_release(control_orders(fx.control), &release, RELEASE_CANCELLED,
                   false);
    is_out_of_memory = false;
    wait_release(fd);
    say(fd, "released", ",\"reason\":\"cancelled\"");
    wait_held(0);
    close(fd);
}
END_TEST
#else
#define a_release_is_not_lost_for_want_of_memory \
    closes_with_links_and_handoffs_alive
#endif

START_TEST(closes_with_links_and_handoffs_alive)
{
    const int fd = raw_prefill();

    begin();
    say(fd, "held", ",\"tokens\":9");
    wait_held(1);
    close(fd);
}
END_TEST

HARNESS_MAIN_WITH(
    "control", setup, teardown, answers_what_an_operator_asks,
    sends_no_body_to_a_head_request, refuses_other_paths_and_methods_as_json,
    is_not_ready_while_draining, shows_each_engine,
    shows_a_handoff_from_begin_to_its_end, a_probe_marks_what_cannot_be_reached,
    a_good_probe_makes_an_engine_usable_again,
    a_probe_answered_503_makes_an_engine_unusable_until_it_is_good,
    an_engine_without_a_health_path_is_good_while_it_answers,
    another_bad_status_changes_nothing,
    three_probes_in_a_row_without_an_answer_make_an_engine_unusable,
    every_worker_hears_once_of_an_engine_that_is_lost,
    tells_the_worker_what_agents_say_and_when_there_is_room,
    releases_what_a_worker_that_ends_has_left,
    a_release_is_not_lost_for_want_of_memory,
    closes_with_links_and_handoffs_alive)
