/*
 * common/http_call and its pool against a raw server: reuse, early answers,
 * every kind of failure.
 */
#include "common/http/http_call.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define CRLF    "\r\n"
#define REQUEST "GET /g HTTP/1.1" CRLF "Host: a" CRLF CRLF
#define ANSWER \
    "HTTP/1.1 200 OK" CRLF "X: y" CRLF "Content-Length: 2" CRLF CRLF "ok"
#define BIG ((size_t)16 * 1024 * 1024)

enum when {
    NEVER,
    IN_HEAD,
    IN_BODY,
    IN_END,
    IN_FAILED,
    IN_SENT,
};

struct owner {
    struct bt_http_call *call;
    struct bt_buf body;
    unsigned code, heads, ends, failed, sent;
    struct bt_http_failure failure;
    struct bt_addr failed_addr;
    enum when closes;
    enum when pauses;
    bool opens_next; /* a second call from on_end */
    struct owner *next;
};

static struct bt_loop *loop;
static struct bt_http_pool *pool;
static struct bt_http_origin *origin;
static struct bt_addr addr;
static int listener;
static int server; /* the connection accepted last */
static struct bt_buf got;
static struct owner owner;
static struct owner other;

static void call(struct owner *self);

static void act(struct owner *self, enum when when)
{
    if (self->pauses == when) {
        bt_http_call_pause(self->call);
    }
    if (self->closes == when) {
        bt_http_call_close(&self->call);
    }
}

static void on_head(void *arg, const struct bt_http_head *head)
{
    struct owner *self = arg;

    self->heads++;
    self->code = head->code;
    act(self, IN_HEAD);
}

static void on_body(void *arg, struct bt_str bytes)
{
    struct owner *self = arg;

    bt_buf_append(&self->body, bytes);
    act(self, IN_BODY);
}

static void on_end(void *arg)
{
    struct owner *self = arg;

    self->ends++;
    if (self->next != NULL) {
        call(self->next);
    }
    act(self, IN_END);
}

static void on_failed(void *arg, const struct bt_http_failure *failure)
{
    struct owner *self = arg;

    self->failed++;
    self->failure = *failure;
    self->failed_addr = *failure->addr;
    ck_assert_ptr_nonnull(failure->reason);
    act(self, IN_FAILED);
}

static void on_sent(void *arg)
{
    struct owner *self = arg;

    self->sent++;
    act(self, IN_SENT);
}

static const struct bt_http_call_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_failed = on_failed,
    .on_sent = on_sent,
};

static char request[] = REQUEST;

static void call_with(struct owner *self,
                      const struct bt_http_call_options *options)
{
    static struct iovec iov[2][2];
    struct iovec *mine = iov[self == &other ? 1 : 0];

    mine[0] = (struct iovec){request, 10};
    mine[1] = (struct iovec){request + 10, sizeof(request) - 1 - 10};
    ck_assert_int_eq(
        bt_http_call_open(origin, options, mine, 2, &events, self, &self->call),
        BT_OK);
}

static void call(struct owner *self)
{
    const struct bt_http_call_options options = {.fresh_only = false};

    call_with(self, &options);
}

static void open_pool(size_t idle_max, uint64_t idle_ms)
{
    const struct bt_http_pool_options options = {
        .parse = {.head_bytes = 8192, .target_bytes = 1024, .fields = 50},
        .idle_max = idle_max,
        .idle_ms = idle_ms,
        .connect_ms = 20000,
        .high_water = 64 * 1024,
    };

    ck_assert_int_eq(bt_http_pool_open(loop, &options, &pool), BT_OK);
    ck_assert_int_eq(bt_http_origin_open(pool, &addr, 1, &origin), BT_OK);
}

static void setup(void)
{
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
    listener = pair_listen(&addr);
    server = -1;
    owner = (struct owner){.call = NULL};
    other = (struct owner){.call = NULL};
    got = (struct bt_buf){.data = NULL};
    open_pool(4, 60000);
}

static void close_pool(void)
{
    bt_http_call_close(&owner.call);
    bt_http_call_close(&other.call);
    bt_http_origin_close(&origin);
    bt_http_pool_close(&pool);
}

static void drop_server(void)
{
    if (server >= 0) {
        ck_assert_int_eq(close(server), 0);
    }
    server = -1;
}

static void teardown(void)
{
    close_pool();
    bt_loop_close(&loop);
    bt_buf_fini(&owner.body);
    bt_buf_fini(&other.body);
    bt_buf_fini(&got);
    drop_server();
    ck_assert_int_eq(close(listener), 0);
}

static void reset_server(void)
{
    const struct linger linger = {.l_onoff = 1, .l_linger = 0};

    ck_assert_int_eq(
        setsockopt(server, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    drop_server();
}

static void accept_one(void)
{
    drop_server();
    pair_until(loop, (server = pair_accept(listener)) >= 0);
}

static bool has_request(void)
{
    (void)pair_recv(server, &got);
    return bt_str_eq(bt_buf_str(&got), BT_STR(REQUEST));
}

/* A call on a new connection, its request read by the server. */
static void begin(void)
{
    call(&owner);
    accept_one();
    pair_until(loop, has_request());
    bt_buf_clear(&got);
}

static void finish(struct owner *self)
{
    pair_send(server, BT_STR(ANSWER));
    pair_until(loop, self->ends == 1);
    bt_http_call_close(&self->call);
}

START_TEST(a_call_sends_its_request_and_hands_on_the_answer)
{
    begin();
    pair_until(loop, owner.sent == 1);
    ck_assert(bt_http_call_is_connected(owner.call));
    ck_assert(bt_http_call_is_sent(owner.call));
    ck_assert(!bt_http_call_is_reused(owner.call));
    pair_send(server, BT_STR("HTTP/1.1 100 Continue" CRLF CRLF));
    pair_settle(loop);
    ck_assert_uint_eq(owner.heads, 0);
    finish(&owner);
    ck_assert_uint_eq(owner.code, 200);
    ck_assert(bt_str_eq(bt_buf_str(&owner.body), BT_STR("ok")));
    ck_assert_uint_eq(owner.failed, 0);
}
END_TEST

START_TEST(a_whole_answer_gives_the_connection_back)
{
    begin();
    finish(&owner);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
    call(&other);
    ck_assert(bt_http_call_is_reused(other.call));
    ck_assert(bt_http_call_is_sent(other.call));
    ck_assert_uint_eq(other.sent, 0); /* not from inside */
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
    pair_until(loop, other.sent == 1 && has_request());
    finish(&other);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
}
END_TEST

START_TEST(a_call_opened_from_on_end_reuses_the_connection)
{
    owner.next = &other;
    begin();
    finish(&owner);
    ck_assert(bt_http_call_is_reused(other.call));
    pair_until(loop, has_request());
    finish(&other);
}
END_TEST

START_TEST(fresh_only_takes_no_idle_connection)
{
    const struct bt_http_call_options options = {.fresh_only = true};

    begin();
    finish(&owner);
    call_with(&other, &options);
    ck_assert(!bt_http_call_is_reused(other.call));
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
    accept_one();
    pair_until(loop, has_request());
}
END_TEST

static void expect_not_kept(const char *answer)
{
    begin();
    pair_send(server, bt_str_of(answer));
    pair_until(loop, owner.ends == 1);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
}

START_TEST(an_answer_with_connection_close_is_not_kept)
{
    expect_not_kept("HTTP/1.1 200 OK" CRLF "Connection: close" CRLF
                    "Content-Length: 2" CRLF CRLF "ok");
}
END_TEST

START_TEST(an_answer_with_bytes_behind_it_is_not_kept)
{
    expect_not_kept(ANSWER ANSWER);
    ck_assert_uint_eq(owner.heads, 1);
}
END_TEST

START_TEST(a_204_with_a_body_is_not_kept)
{
    expect_not_kept("HTTP/1.1 204 No Content" CRLF "Content-Length: 2" CRLF CRLF
                    "ok");
    ck_assert_uint_eq(owner.body.len, 0);
}
END_TEST

START_TEST(a_closed_call_closes_its_connection)
{
    begin();
    bt_http_call_close(&owner.call);
    pair_until(loop, !pair_recv(server, &got));
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
}
END_TEST

START_TEST(an_idle_connection_that_turns_readable_is_dropped)
{
    begin();
    finish(&owner);
    pair_send(server, BT_STR("HTTP/1.1 408 Too late" CRLF CRLF));
    pair_until(loop, bt_http_origin_idle(origin) == 0);
}
END_TEST

START_TEST(an_idle_connection_that_is_closed_is_dropped)
{
    begin();
    finish(&owner);
    drop_server();
    pair_until(loop, bt_http_origin_idle(origin) == 0);
}
END_TEST

START_TEST(idle_connections_end_in_time)
{
    close_pool();
    open_pool(4, 30);
    begin();
    finish(&owner);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
    pair_until(loop, bt_http_origin_idle(origin) == 0);
    ck_assert(!pair_recv(server, &got));
}
END_TEST

START_TEST(idle_connections_are_bounded)
{
    int first;

    close_pool();
    open_pool(1, 60000);
    begin();
    first = server;
    server = -1;
    call(&other);
    accept_one();
    pair_until(loop, has_request());
    finish(&other);
    pair_send(first, BT_STR(ANSWER));
    pair_until(loop, owner.ends == 1);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
    ck_assert(!pair_recv(server, &got)); /* the older one was dropped */
    ck_assert_int_eq(close(first), 0);
}
END_TEST

START_TEST(the_origin_may_be_closed_under_a_call)
{
    begin();
    bt_http_origin_close(&origin);
    bt_http_pool_close(&pool);
    finish(&owner);
    pair_until(loop, !pair_recv(server, &got));
}
END_TEST

/* ---- failures ---- */

static void expect_failure(enum bt_status status, bool connecting, bool stale,
                           bool had_head)
{
    pair_until(loop, owner.failed + owner.ends > 0);
    ck_assert_uint_eq(owner.ends, 0);
    ck_assert_int_eq(owner.failure.status, status);
    ck_assert_int_eq(owner.failure.connecting, connecting);
    ck_assert_int_eq(owner.failure.stale, stale);
    ck_assert_int_eq(owner.failure.had_head, had_head);
    pair_settle(loop);
    ck_assert_uint_eq(owner.failed, 1);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
}

START_TEST(a_refused_connection_is_told)
{
    struct bt_addr nobody;

    bt_http_origin_close(&origin);
    pair_nobody(&nobody);
    ck_assert_int_eq(bt_http_origin_open(pool, &nobody, 1, &origin), BT_OK);
    call(&owner);
    ck_assert_uint_eq(owner.failed, 0);
    expect_failure(BT_ERR_REFUSED, true, false, false);
    ck_assert_uint_eq(owner.sent, 0);
    ck_assert_int_eq(owner.failure.error, ECONNREFUSED);
    ck_assert_mem_eq(&owner.failed_addr, &nobody, sizeof(nobody));
}
END_TEST

#define CROWD 3

/* A listener whose queue is full answers no SYN. */
static void fill_queue(int fd, const struct bt_addr *at, int crowd[CROWD])
{
    ck_assert_int_eq(listen(fd, 0), 0);
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(crowd[i], (const struct sockaddr *)(const void *)&at->sa,
                      at->len);
    }
}

static void close_crowd(const int crowd[CROWD])
{
    for (int i = 0; i < CROWD; i++) {
        ck_assert_int_eq(close(crowd[i]), 0);
    }
}

static void open_addrs(const struct bt_addr *addrs, size_t count,
                       uint64_t connect_ms)
{
    const struct bt_http_pool_options options = {
        .parse = {.head_bytes = 8192, .target_bytes = 1024, .fields = 50},
        .idle_max = 4,
        .connect_ms = connect_ms,
    };

    close_pool();
    ck_assert_int_eq(bt_http_pool_open(loop, &options, &pool), BT_OK);
    ck_assert_int_eq(bt_http_origin_open(pool, addrs, count, &origin), BT_OK);
}

START_TEST(a_connect_that_takes_too_long_is_told)
{
    int crowd[CROWD];

    fill_queue(listener, &addr, crowd);
    open_addrs(&addr, 1, 30);
    call(&owner);
    expect_failure(BT_ERR_TIMEOUT, true, false, false);
    close_crowd(crowd);
}
END_TEST

START_TEST(connecting_goes_on_to_the_next_address)
{
    struct bt_addr addrs[3];

    pair_nobody(&addrs[0]);
    pair_nobody(&addrs[1]);
    addrs[2] = addr;
    open_addrs(addrs, 3, 2000);
    begin();
    pair_until(loop, owner.sent == 1);
    finish(&owner);
    ck_assert_uint_eq(owner.failed, 0);
}
END_TEST

START_TEST(an_address_that_does_not_answer_leaves_time_for_the_next)
{
    struct bt_addr addrs[2];
    int crowd[CROWD];
    const int silent = pair_listen(&addrs[0]);

    fill_queue(silent, &addrs[0], crowd);
    addrs[1] = addr;
    open_addrs(addrs, 2, 200);
    begin();
    finish(&owner);
    close_crowd(crowd);
    ck_assert_int_eq(close(silent), 0);
}
END_TEST

START_TEST(the_address_that_was_good_is_tried_first_from_then_on)
{
    const struct bt_http_call_options options = {.fresh_only = true};
    struct bt_addr addrs[2];
    int late;

    pair_nobody(&addrs[0]);
    addrs[1] = addr;
    open_addrs(addrs, 2, 2000);
    begin();
    finish(&owner);
    ck_assert_int_eq(bt_listen(&addrs[0], false, &late), BT_OK);
    call_with(&other, &options);
    accept_one();
    pair_until(loop, has_request());
    ck_assert_int_lt(pair_accept(late), 0);
    ck_assert_int_eq(close(late), 0);
}
END_TEST

START_TEST(when_no_address_connects_the_last_one_is_told)
{
    struct bt_addr addrs[2];

    pair_nobody(&addrs[0]);
    pair_nobody(&addrs[1]);
    open_addrs(addrs, 2, 2000);
    call(&owner);
    expect_failure(BT_ERR_REFUSED, true, false, false);
    ck_assert_uint_eq(owner.failure.tried, 2);
    ck_assert_mem_eq(&owner.failed_addr, &addrs[1], sizeof(addrs[1]));
}
END_TEST

START_TEST(a_call_that_was_shut_while_connecting_is_shut_at_the_next_address)
{
    struct bt_addr addrs[2];

    pair_nobody(&addrs[0]);
    addrs[1] = addr;
    open_addrs(addrs, 2, 2000);
    call(&owner);
    bt_http_call_shut_write(owner.call);
    accept_one();
    pair_until(loop, !pair_recv(server, &got));
    ck_assert(bt_str_eq(bt_buf_str(&got), BT_STR(REQUEST)));
    finish(&owner);
}
END_TEST

/* ---- an origin that moves ---- */

static void move_to(const struct bt_addr *addrs, size_t count)
{
    ck_assert_int_eq(bt_http_origin_set_addrs(origin, addrs, count), BT_OK);
}

/* The connection there is the next call's; the old listener hears nothing. */
static void expect_call_at(int there)
{
    call(&other);
    drop_server();
    pair_until(loop, (server = pair_accept(there)) >= 0);
    ck_assert_int_lt(pair_accept(listener), 0);
    pair_until(loop, has_request());
    finish(&other);
}

START_TEST(when_an_origin_moves_idle_connections_to_where_it_was_are_closed)
{
    struct bt_addr moved;
    const int there = pair_listen(&moved);

    begin();
    finish(&owner);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
    move_to(&moved, 1);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
    pair_until(loop, !pair_recv(server, &got));
    expect_call_at(there);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
    ck_assert_int_eq(close(there), 0);
}
END_TEST

START_TEST(an_idle_connection_to_an_address_that_stays_is_kept)
{
    struct bt_addr addrs[3];

    begin();
    finish(&owner);
    pair_nobody(&addrs[0]);
    pair_nobody(&addrs[1]);
    addrs[2] = addr;
    move_to(addrs, 3);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
    call(&other);
    pair_until(loop, has_request());
    finish(&other);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
    move_to(addrs, 2); /* now it goes */
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
}
END_TEST

START_TEST(a_call_in_flight_ends_where_it_is_and_its_connection_is_not_kept)
{
    struct bt_addr moved;
    const int there = pair_listen(&moved);

    begin();
    move_to(&moved, 1);
    finish(&owner);
    ck_assert_uint_eq(owner.failed, 0);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
    expect_call_at(there);
    ck_assert_int_eq(close(there), 0);
}
END_TEST

START_TEST(a_call_in_flight_to_an_address_that_stays_gives_its_connection_back)
{
    struct bt_addr addrs[2];

    begin();
    pair_nobody(&addrs[0]);
    addrs[1] = addr;
    move_to(addrs, 2);
    finish(&owner);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
}
END_TEST

/* It was at the first of three; one is all there is now. */
START_TEST(a_call_that_is_connecting_goes_on_among_the_addresses_it_began_with)
{
    struct bt_addr addrs[3];
    struct bt_addr moved;
    const int there = pair_listen(&moved);

    pair_nobody(&addrs[0]);
    pair_nobody(&addrs[1]);
    addrs[2] = addr;
    open_addrs(addrs, 3, 2000);
    call(&owner);
    move_to(&moved, 1);
    accept_one();
    pair_until(loop, has_request());
    bt_buf_clear(&got);
    finish(&owner);
    ck_assert_uint_eq(owner.failed, 0);
    expect_call_at(there);
    ck_assert_int_eq(close(there), 0);
}
END_TEST

START_TEST(a_call_that_connects_nowhere_tells_the_last_address_after_a_move)
{
    struct bt_addr addrs[2];

    pair_nobody(&addrs[0]);
    pair_nobody(&addrs[1]);
    open_addrs(addrs, 2, 2000);
    call(&owner);
    move_to(&addr, 1);
    expect_failure(BT_ERR_REFUSED, true, false, false);
    ck_assert_uint_eq(owner.failure.tried, 2);
    ck_assert_mem_eq(&owner.failed_addr, &addrs[1], sizeof(addrs[1]));
}
END_TEST

START_TEST(a_connection_closed_without_an_answer_is_told)
{
    begin();
    drop_server();
    expect_failure(BT_ERR_CLOSED, false, false, false);
}
END_TEST

START_TEST(a_connection_reset_without_an_answer_is_told)
{
    begin();
    reset_server();
    expect_failure(BT_ERR_RESET, false, false, false);
}
END_TEST

START_TEST(a_reused_connection_that_dies_is_stale)
{
    begin();
    finish(&owner);
    owner.ends = 0;
    owner.heads = 0;
    call(&owner);
    ck_assert(bt_http_call_is_reused(owner.call));
    pair_until(loop, has_request());
    drop_server();
    expect_failure(BT_ERR_CLOSED, false, true, false);
}
END_TEST

START_TEST(a_reused_connection_that_answers_in_part_is_not_stale)
{
    begin();
    finish(&owner);
    owner.ends = 0;
    call(&owner);
    pair_until(loop, has_request());
    pair_send(server, BT_STR("HTTP/1.1 "));
    pair_settle(loop);
    reset_server();
    expect_failure(BT_ERR_RESET, false, false, false);
}
END_TEST

START_TEST(an_answer_cut_by_a_close_is_told)
{
    begin();
    pair_send(server, BT_STR("HTTP/1.1 200 OK" CRLF
                             "Content-Length: 5" CRLF CRLF "ab"));
    drop_server();
    expect_failure(BT_ERR_CLOSED, false, false, true);
    ck_assert_uint_eq(owner.body.len, 2);
}
END_TEST

START_TEST(a_chunked_answer_without_its_end_is_told)
{
    begin();
    pair_send(server, BT_STR("HTTP/1.1 200 OK" CRLF
                             "Transfer-Encoding: chunked" CRLF CRLF "2" CRLF
                             "ab" CRLF));
    drop_server();
    expect_failure(BT_ERR_CLOSED, false, false, true);
}
END_TEST

START_TEST(an_answer_against_the_protocol_is_told)
{
    begin();
    pair_send(server, BT_STR("HTTP/1.1 200 OK" CRLF "Content-Length: 5" CRLF
                             "Content-Length: 6" CRLF CRLF "ab"));
    expect_failure(BT_ERR_PROTOCOL, false, false, false);
}
END_TEST

START_TEST(an_unasked_upgrade_is_told)
{
    begin();
    pair_send(server,
              BT_STR("HTTP/1.1 101 Switching Protocols" CRLF "Upgrade: x" CRLF
                     "Connection: upgrade" CRLF CRLF));
    expect_failure(BT_ERR_PROTOCOL, false, false, false);
}
END_TEST

START_TEST(an_answer_until_close_is_whole_at_the_close)
{
    begin();
    pair_send(server, BT_STR("HTTP/1.1 200 OK" CRLF CRLF "abc"));
    drop_server();
    pair_until(loop, owner.ends == 1);
    ck_assert(bt_str_eq(bt_buf_str(&owner.body), BT_STR("abc")));
    ck_assert_uint_eq(owner.failed, 0);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
}
END_TEST

START_TEST(an_answer_until_close_that_is_reset_is_told)
{
    begin();
    pair_send(server, BT_STR("HTTP/1.1 200 OK" CRLF CRLF "abc"));
    pair_until(loop, owner.body.len == 3);
    reset_server();
    expect_failure(BT_ERR_RESET, false, false, true);
}
END_TEST

START_TEST(an_answer_to_head_has_no_body)
{
    const struct bt_http_call_options options = {.is_head = true};

    call_with(&owner, &options);
    accept_one();
    pair_until(loop, has_request());
    pair_send(server,
              BT_STR("HTTP/1.1 200 OK" CRLF "Content-Length: 5" CRLF CRLF));
    pair_until(loop, owner.ends == 1);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
}
END_TEST

/* ---- flow ---- */

/* A request too large for the kernel's buffers. */
static void begin_big(char *bytes, struct iovec *iov)
{
    const struct bt_http_call_options options = {.fresh_only = false};

    memset(bytes, 'b', BIG);
    *iov = (struct iovec){bytes, BIG};
    ck_assert_int_eq(bt_http_call_open(origin, &options, iov, 1, &events,
                                       &owner, &owner.call),
                     BT_OK);
    accept_one();
    pair_until(loop, bt_http_call_is_connected(owner.call));
}

START_TEST(a_large_request_is_sent_from_where_it_lies)
{
    char *bytes = malloc(BIG);
    struct iovec iov;

    ck_assert_ptr_nonnull(bytes);
    begin_big(bytes, &iov);
    ck_assert(!bt_http_call_is_sent(owner.call));
    pair_until(loop, (pair_recv(server, &got), got.len == BIG));
    pair_until(loop, owner.sent == 1);
    ck_assert(bt_http_call_is_sent(owner.call));
    finish(&owner);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
    free(bytes);
}
END_TEST

START_TEST(an_early_answer_stops_the_sending)
{
    char *bytes = malloc(BIG);
    struct iovec iov;

    ck_assert_ptr_nonnull(bytes);
    begin_big(bytes, &iov);
    pair_send(server, BT_STR("HTTP/1.1 413 Content Too Large" CRLF
                             "Content-Length: 2" CRLF CRLF "no"));
    pair_until(loop, owner.ends == 1);
    ck_assert_uint_eq(owner.code, 413);
    ck_assert_uint_eq(owner.sent, 0);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
    pair_until(loop, !pair_recv(server, &got));
    ck_assert_uint_lt(got.len, BIG);
    free(bytes);
}
END_TEST

START_TEST(an_early_answer_before_a_close_is_heard)
{
    char *bytes = malloc(BIG);
    struct iovec iov;

    ck_assert_ptr_nonnull(bytes);
    begin_big(bytes, &iov);
    pair_send(server, BT_STR("HTTP/1.1 413 Content Too Large" CRLF
                             "Content-Length: 2" CRLF CRLF "no"));
    drop_server(); /* unread bytes there: a reset follows the answer */
    pair_until(loop, owner.ends + owner.failed > 0);
    ck_assert_uint_eq(owner.ends, 1);
    ck_assert_uint_eq(owner.code, 413);
    free(bytes);
}
END_TEST

START_TEST(a_paused_call_holds_the_server_back)
{
    size_t sent = 0;
    char *block = calloc(1, BIG);
    ssize_t some;

    ck_assert_ptr_nonnull(block);
    begin();
    owner.pauses = IN_HEAD;
    pair_send(server, BT_STR("HTTP/1.1 200 OK" CRLF CRLF));
    pair_until(loop, owner.heads == 1);
    do {
        some = send(server, block, BIG, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += some > 0 ? (size_t)some : 0;
        pair_settle(loop);
    } while (some > 0 && sent < 64 * BIG);
    ck_assert_uint_lt(sent, 64 * BIG);
    ck_assert_uint_eq(owner.body.len, 0);
    drop_server();
    pair_settle(loop);
    ck_assert_uint_eq(owner.ends + owner.failed, 0); /* not all read yet */
    bt_http_call_resume(owner.call);
    pair_until(loop, owner.ends == 1);
    ck_assert_uint_eq(owner.body.len, sent);
    free(block);
}
END_TEST

START_TEST(shut_write_ends_our_half_and_the_answer_still_comes)
{
    begin();
    bt_http_call_shut_write(owner.call);
    pair_until(loop, !pair_recv(server, &got));
    finish(&owner);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
}
END_TEST

static void close_in(enum when when)
{
    owner.closes = when;
    call(&owner);
    accept_one();
    pair_until(loop, has_request() || owner.call == NULL);
    if (when != IN_SENT) {
        pair_send(server,
                  when == IN_FAILED ? BT_STR("garbage" CRLF) : BT_STR(ANSWER));
    }
    pair_until(loop, owner.call == NULL);
    pair_settle(loop);
}

START_TEST(a_call_may_be_closed_in_any_callback)
{
    static const enum when all[] = {IN_HEAD, IN_BODY, IN_FAILED, IN_SENT};

    for (size_t i = 0; i < BT_ARRAY_LEN(all); i++) {
        bt_buf_clear(&got);
        close_in(all[i]);
        ck_assert_uint_eq(owner.ends, 0);
        ck_assert_uint_eq(bt_http_origin_idle(origin), 0);
    }
    bt_buf_clear(&got);
    close_in(IN_END);
    ck_assert_uint_eq(owner.ends, 1);
    ck_assert_uint_eq(bt_http_origin_idle(origin), 1);
}
END_TEST

HARNESS_MAIN_WITH(
    "http_call", setup, teardown,
    a_call_sends_its_request_and_hands_on_the_answer,
    a_whole_answer_gives_the_connection_back,
    a_call_opened_from_on_end_reuses_the_connection,
    fresh_only_takes_no_idle_connection,
    an_answer_with_connection_close_is_not_kept,
    an_answer_with_bytes_behind_it_is_not_kept, a_204_with_a_body_is_not_kept,
    a_closed_call_closes_its_connection,
    an_idle_connection_that_turns_readable_is_dropped,
    an_idle_connection_that_is_closed_is_dropped, idle_connections_end_in_time,
    idle_connections_are_bounded, the_origin_may_be_closed_under_a_call,
    a_refused_connection_is_told, a_connect_that_takes_too_long_is_told,
    connecting_goes_on_to_the_next_address,
    an_address_that_does_not_answer_leaves_time_for_the_next,
    the_address_that_was_good_is_tried_first_from_then_on,
    when_no_address_connects_the_last_one_is_told,
    a_call_that_was_shut_while_connecting_is_shut_at_the_next_address,
    when_an_origin_moves_idle_connections_to_where_it_was_are_closed,
    an_idle_connection_to_an_address_that_stays_is_kept,
    a_call_in_flight_ends_where_it_is_and_its_connection_is_not_kept,
    a_call_in_flight_to_an_address_that_stays_gives_its_connection_back,
    a_call_that_is_connecting_goes_on_among_the_addresses_it_began_with,
    a_call_that_connects_nowhere_tells_the_last_address_after_a_move,
    a_connection_closed_without_an_answer_is_told,
    a_connection_reset_without_an_answer_is_told,
    a_reused_connection_that_dies_is_stale,
    a_reused_connection_that_answers_in_part_is_not_stale,
    an_answer_cut_by_a_close_is_told, a_chunked_answer_without_its_end_is_told,
    an_answer_against_the_protocol_is_told, an_unasked_upgrade_is_told,
    an_answer_until_close_is_whole_at_the_close,
    an_answer_until_close_that_is_reset_is_told, an_answer_to_head_has_no_body,
    a_large_request_is_sent_from_where_it_lies,
    an_early_answer_stops_the_sending, an_early_answer_before_a_close_is_heard,
    a_paused_call_holds_the_server_back,
    shut_write_ends_our_half_and_the_answer_still_comes,
    a_call_may_be_closed_in_any_callback)
