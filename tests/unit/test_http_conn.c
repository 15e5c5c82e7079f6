/*
 * common/http_conn against a raw client: requests, bodies, answers, keep-alive,
 * pipelining, refusals, clients that leave, time-outs.
 */
#include "common/http/http_conn.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define CRLF "\r\n"
#define GET  "GET /g HTTP/1.1" CRLF "Host: a" CRLF CRLF
#define BIG  ((size_t)8 * 1024 * 1024)

/* What the owner does by itself in its callbacks. */
enum act {
    ACT_NONE,
    ACT_ANSWER,    /* a whole answer */
    ACT_READ,      /* the body, in pieces */
    ACT_READ_INTO, /* the body, into dst */
    ACT_CLOSE,
    ACT_ABORT,
    ACT_UPGRADE,
};

struct owner {
    struct bt_http_conn *conn;
    enum act on_head, on_body, on_request, on_bad, on_gone;
    struct bt_buf log; /* "head /g; request; …" */
    struct bt_buf body;
    char *dst;
    unsigned requests, gone, closed, rooms;
    struct bt_stream *upgraded;
    struct bt_buf upgrade_rest;
};

static struct bt_loop *loop;
static struct owner owner;
static int client;
static struct bt_buf got;
static struct bt_http_conn_options options;

static void act(struct owner *self, enum act what)
{
    struct bt_str rest;

    switch (what) {
    case ACT_NONE:
        break;
    case ACT_ANSWER:
        bt_http_conn_answer(self->conn, 200, BT_STR("X: y" CRLF), BT_STR("ok"));
        break;
    case ACT_READ:
        bt_http_conn_read_body(self->conn, NULL);
        break;
    case ACT_READ_INTO:
        bt_http_conn_read_body(self->conn, self->dst);
        break;
    case ACT_CLOSE:
        bt_http_conn_close(&self->conn);
        break;
    case ACT_ABORT:
        bt_http_conn_abort(&self->conn);
        break;
    case ACT_UPGRADE:
        ck_assert_int_eq(bt_http_conn_upgrade(&self->conn,
                                              BT_STR("Upgrade: x" CRLF),
                                              &self->upgraded, &rest),
                         BT_OK);
        bt_buf_append(&self->upgrade_rest, rest);
        break;
    }
}

static void on_head(void *arg, const struct bt_http_head *head)
{
    struct owner *self = arg;

    bt_buf_printf(&self->log, "head %.*s; ", BT_STR_ARG(head->path));
    act(self, self->on_head);
}

static void on_body(void *arg, struct bt_str bytes)
{
    struct owner *self = arg;

    bt_buf_append(&self->body, bytes);
    act(self, self->on_body);
}

static void on_request(void *arg)
{
    struct owner *self = arg;

    self->requests++;
    bt_buf_printf(&self->log, "request; ");
    act(self, self->on_request);
}

static void on_room(void *arg)
{
    struct owner *self = arg;

    self->rooms++;
}

static void on_gone(void *arg)
{
    struct owner *self = arg;

    self->gone++;
    bt_buf_printf(&self->log, "gone; ");
    act(self, self->on_gone);
}

static void on_bad(void *arg, unsigned code, const char *reason)
{
    struct owner *self = arg;

    ck_assert_ptr_nonnull(reason);
    bt_buf_printf(&self->log, "bad %u; ", code);
    if (self->on_bad == ACT_ANSWER) {
        bt_http_conn_answer(self->conn, code, BT_STR(""), BT_STR("bad"));
        return;
    }
    act(self, self->on_bad);
}

static void on_closed(void *arg)
{
    struct owner *self = arg;

    self->closed++;
    bt_buf_printf(&self->log, "closed; ");
    self->conn = NULL;
}

static const struct bt_http_conn_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_request = on_request,
    .on_room = on_room,
    .on_gone = on_gone,
    .on_bad = on_bad,
    .on_closed = on_closed,
};

static void open_conn(void)
{
    int fds[2];

    pair_open(fds);
    client = fds[0];
    ck_assert_int_eq(
        bt_http_conn_open(loop, fds[1], &options, &events, &owner, &owner.conn),
        BT_OK);
}

static void setup(void)
{
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
    owner = (struct owner){.on_bad = ACT_ANSWER};
    got = (struct bt_buf){.data = NULL};
    options = (struct bt_http_conn_options){
        .parse = {.head_bytes = 8192, .target_bytes = 1024, .fields = 50},
        .high_water = 64 * 1024,
        .head_timeout_ms = 60000,
        .body_timeout_ms = 60000,
        .body_idle_ms = 60000,
        .write_timeout_ms = 60000,
        .keep_alive_ms = 60000,
        .half_close_is_gone = true,
    };
    open_conn();
}

static void teardown(void)
{
    bt_http_conn_close(&owner.conn);
    bt_stream_close(&owner.upgraded);
    bt_loop_close(&loop);
    bt_buf_fini(&owner.log);
    bt_buf_fini(&owner.body);
    bt_buf_fini(&owner.upgrade_rest);
    bt_buf_fini(&got);
    free(owner.dst);
    if (client >= 0) {
        (void)close(client);
    }
}

static void leave(void)
{
    ck_assert_int_eq(close(client), 0);
    client = -1;
}

static bool logged(const char *text)
{
    return bt_str_eq(bt_buf_str(&owner.log), bt_str_of(text));
}

static void expect_log(const char *text)
{
    ck_assert_msg(logged(text), "log is '%.*s', not '%s'",
                  BT_STR_ARG(bt_buf_str(&owner.log)), text);
}

static bool received(const char *text)
{
    (void)pair_recv(client, &got);
    return bt_str_eq(bt_buf_str(&got), bt_str_of(text));
}

static bool has_received(const char *part)
{
    (void)pair_recv(client, &got);
    return bt_str_find(bt_buf_str(&got), bt_str_of(part)) < got.len;
}

static bool has_ended(void)
{
    return !pair_recv(client, &got);
}

#define OK_ANSWER \
    "HTTP/1.1 200 OK" CRLF "X: y" CRLF "Content-Length: 2" CRLF CRLF "ok"
#define OK_CLOSE                                                \
    "HTTP/1.1 200 OK" CRLF "X: y" CRLF "Content-Length: 2" CRLF \
    "Connection: close" CRLF CRLF "ok"

START_TEST(a_request_is_answered_and_the_connection_lives_on)
{
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR(GET));
    pair_until(loop, received(OK_ANSWER));
    bt_buf_clear(&got);
    ck_assert(bt_http_conn_is_idle(owner.conn));
    pair_send(client, BT_STR(GET));
    pair_until(loop, received(OK_ANSWER));
    expect_log("head /g; request; head /g; request; ");
}
END_TEST

START_TEST(an_answer_may_come_later)
{
    pair_send(client, BT_STR(GET));
    pair_until(loop, owner.requests == 1);
    ck_assert(!bt_http_conn_is_idle(owner.conn));
    act(&owner, ACT_ANSWER);
    ck_assert(received(OK_ANSWER)); /* written at once */
    ck_assert(bt_http_conn_is_idle(owner.conn));
    ck_assert_uint_eq(bt_http_conn_unsent(owner.conn), 0);
    pair_send(client, BT_STR(GET));
    pair_until(loop, owner.requests == 2);
}
END_TEST

START_TEST(pipelined_requests_are_answered_one_by_one)
{
    pair_send(client, BT_STR(GET GET GET));
    pair_until(loop, owner.requests == 1);
    pair_settle(loop);
    ck_assert_uint_eq(owner.requests, 1);
    act(&owner, ACT_ANSWER);
    ck_assert_uint_eq(owner.requests, 1); /* never from inside */
    pair_until(loop, owner.requests == 2);
    owner.on_request = ACT_ANSWER;
    act(&owner, ACT_ANSWER);
    pair_until(loop, received(OK_ANSWER OK_ANSWER OK_ANSWER));
}
END_TEST

START_TEST(pipelined_requests_answered_at_once_come_in_order)
{
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR(GET GET GET));
    pair_until(loop, received(OK_ANSWER OK_ANSWER OK_ANSWER));
    ck_assert_uint_eq(owner.requests, 3);
}
END_TEST

START_TEST(one_turn_serves_a_few_pipelined_requests_of_a_connection)
{
    struct bt_buf many = {0};

    owner.on_request = ACT_ANSWER;
    for (int i = 0; i < 500; i++) {
        bt_buf_append(&many, BT_STR(GET));
    }
    pair_send(client, bt_buf_str(&many));
    bt_buf_fini(&many);
    while (owner.requests == 0) {
        bt_loop_turn(loop, 100);
    }
    ck_assert_uint_le(owner.requests, 32);
    pair_until(loop, owner.requests == 500);
}
END_TEST

#define POST5 \
    "POST /p HTTP/1.1" CRLF "Host: a" CRLF "Content-Length: 5" CRLF CRLF

START_TEST(a_body_comes_in_pieces_where_asked_for)
{
    owner.on_head = ACT_READ;
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR(POST5 "ab"));
    pair_until(loop, owner.body.len == 2);
    pair_send(client, BT_STR("cde" GET));
    pair_until(loop, received(OK_ANSWER OK_ANSWER));
    ck_assert(bt_str_eq(bt_buf_str(&owner.body), BT_STR("abcde")));
}
END_TEST

START_TEST(a_body_asked_for_later_waits)
{
    pair_send(client, BT_STR(POST5 "abcde"));
    pair_until(loop, logged("head /p; "));
    pair_settle(loop);
    expect_log("head /p; ");
    act(&owner, ACT_READ);
    ck_assert_uint_eq(owner.body.len, 0);
    pair_until(loop, owner.requests == 1);
    ck_assert(bt_str_eq(bt_buf_str(&owner.body), BT_STR("abcde")));
}
END_TEST

START_TEST(a_chunked_body_is_decoded)
{
    owner.on_head = ACT_READ;
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR("POST /p HTTP/1.1" CRLF "Host: a" CRLF
                             "Transfer-Encoding: chunked" CRLF CRLF "3;x=y" CRLF
                             "abc" CRLF "2" CRLF "de" CRLF "0" CRLF
                             "T: v" CRLF CRLF GET));
    pair_until(loop, received(OK_ANSWER OK_ANSWER));
    ck_assert(bt_str_eq(bt_buf_str(&owner.body), BT_STR("abcde")));
}
END_TEST

static void send_large_body(size_t size, enum act how)
{
    struct bt_buf raw = {.data = NULL};
    size_t sent = 0;

    owner.dst = calloc(1, size + 1);
    ck_assert_ptr_nonnull(owner.dst);
    owner.on_head = how;
    bt_buf_printf(&raw,
                  "POST /p HTTP/1.1" CRLF "Host: a" CRLF
                  "Content-Length: %zu" CRLF CRLF,
                  size);
    ck_assert(bt_buf_reserve(&raw, size));
    for (size_t i = 0; i < size; i++) {
        bt_buf_tail(&raw)[i] = (char)('a' + i % 23);
    }
    bt_buf_commit(&raw, size);
    bt_buf_append(&raw, BT_STR(GET));
    while (owner.requests == 0) {
        const ssize_t some = send(client, raw.data + raw.at + sent,
                                  raw.len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

        sent += some > 0 ? (size_t)some : 0;
        bt_loop_turn(loop, 0);
    }
    pair_send(client, bt_str_span(raw.data + raw.at + sent, raw.len - sent));
    bt_buf_fini(&raw);
}

static void expect_large_body(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != (char)('a' + i % 23)) {
            ck_abort_msg("byte %zu differs", i);
        }
    }
}

START_TEST(a_large_body_goes_straight_to_its_place)
{
    send_large_body(BIG, ACT_READ_INTO);
    expect_large_body(owner.dst, BIG);
    ck_assert_int_eq(owner.dst[BIG], 0);
    expect_large_body(owner.body.data, BIG); /* told piece by piece */
    ck_assert_uint_eq(owner.body.len, BIG);
    owner.on_head = ACT_NONE;
    act(&owner, ACT_ANSWER);
    pair_until(loop, owner.requests == 2);
}
END_TEST

START_TEST(a_small_body_goes_straight_to_its_place)
{
    send_large_body(3, ACT_READ_INTO);
    expect_large_body(owner.dst, 3);
    owner.on_head = ACT_NONE;
    act(&owner, ACT_ANSWER);
    pair_until(loop, owner.requests == 2);
    expect_log("head /p; request; head /g; request; ");
}
END_TEST

START_TEST(a_chunked_body_is_never_written_to_a_place)
{
    char place[1] = "";

    pair_send(client, BT_STR("POST /p HTTP/1.1" CRLF "Host: a" CRLF
                             "Transfer-Encoding: chunked" CRLF CRLF "3" CRLF
                             "abc" CRLF "0" CRLF CRLF));
    pair_until(loop, logged("head /p; "));
    bt_http_conn_read_body(owner.conn, place);
    pair_until(loop, owner.requests == 1);
    ck_assert_uint_eq(owner.body.len, 3);
    ck_assert_int_eq(place[0], 0);
}
END_TEST

#define EXPECT                                                         \
    "POST /p HTTP/1.1" CRLF "Host: a" CRLF "Expect: 100-continue" CRLF \
    "Content-Length: 5" CRLF CRLF

START_TEST(continue_is_sent_only_when_the_body_is_wanted)
{
    pair_send(client, BT_STR(EXPECT));
    pair_until(loop, logged("head /p; "));
    pair_settle(loop);
    ck_assert(received(""));
    act(&owner, ACT_READ);
    pair_until(loop, received("HTTP/1.1 100 Continue" CRLF CRLF));
    pair_send(client, BT_STR("abcde"));
    pair_until(loop, owner.requests == 1);
    bt_buf_clear(&got);
    act(&owner, ACT_ANSWER);
    ck_assert(received(OK_ANSWER));
}
END_TEST

START_TEST(continue_is_not_sent_to_one_that_did_not_wait)
{
    owner.on_head = ACT_READ;
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR(EXPECT "abcde"));
    pair_until(loop, received(OK_ANSWER));
}
END_TEST

START_TEST(a_refusal_before_the_body_drains_and_closes)
{
    owner.on_head = ACT_ANSWER;
    pair_send(client, BT_STR(POST5));
    pair_until(loop, has_ended());
    ck_assert(received(OK_CLOSE));
    ck_assert_uint_eq(owner.closed, 0); /* lingers */
    pair_send(client, BT_STR("abcde" GET));
    pair_settle(loop);
    ck_assert_uint_eq(owner.requests, 0);
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("head /p; closed; ");
}
END_TEST

START_TEST(a_lingering_connection_ends_after_a_second)
{
    owner.on_head = ACT_ANSWER;
    pair_send(client, BT_STR(POST5));
    pair_until(loop, owner.closed == 1);
    ck_assert(received(OK_CLOSE));
}
END_TEST

START_TEST(a_refusal_is_readable_though_the_client_sends_on)
{
    static const char junk[65536];

    owner.on_head = ACT_ANSWER;
    pair_send(client, BT_STR("POST /p HTTP/1.1" CRLF "Host: a" CRLF
                             "Content-Length: 9999999" CRLF CRLF));
    for (int i = 0; i < 40; i++) {
        (void)send(client, junk, sizeof(junk), MSG_DONTWAIT | MSG_NOSIGNAL);
        bt_loop_turn(loop, 0);
    }
    ck_assert(received(OK_CLOSE));
    ck_assert(!pair_was_reset(client));
}
END_TEST

START_TEST(malformed_requests_are_told_and_refused)
{
    pair_send(client, BT_STR("GET / HTTP/1.1" CRLF CRLF));
    pair_until(loop, has_ended());
    ck_assert(received("HTTP/1.1 400 Bad Request" CRLF "Content-Length: 3" CRLF
                       "Connection: close" CRLF CRLF "bad"));
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("bad 400; closed; ");
}
END_TEST

START_TEST(a_malformed_body_is_told_before_the_request)
{
    owner.on_head = ACT_READ;
    pair_send(client, BT_STR("POST /p HTTP/1.1" CRLF "Host: a" CRLF
                             "Transfer-Encoding: chunked" CRLF CRLF "zz"));
    pair_until(loop, has_ended());
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("head /p; bad 400; closed; ");
}
END_TEST

START_TEST(the_owner_may_close_instead_of_answering)
{
    owner.on_bad = ACT_CLOSE;
    pair_send(client, BT_STR("GARBAGE" CRLF));
    pair_until(loop, owner.conn == NULL);
    pair_settle(loop);
    expect_log("bad 400; ");
    ck_assert_uint_eq(owner.closed, 0);
}
END_TEST

START_TEST(a_head_too_large_is_431)
{
    struct bt_buf raw = {.data = NULL};

    bt_buf_append(&raw, BT_STR("GET / HTTP/1.1" CRLF "Host: a" CRLF "X: "));
    for (int i = 0; i < 9000; i++) {
        bt_buf_append_char(&raw, 'v');
    }
    pair_send(client, bt_buf_str(&raw));
    bt_buf_fini(&raw);
    pair_until(loop, has_received("HTTP/1.1 431 "));
}
END_TEST

START_TEST(a_client_that_closes_while_idle_is_closed)
{
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("closed; ");
}
END_TEST

START_TEST(a_client_that_closes_in_its_head_is_closed)
{
    pair_send(client, BT_STR("GET / HT"));
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("closed; ");
}
END_TEST

START_TEST(a_client_that_leaves_while_waiting_is_gone)
{
    pair_send(client, BT_STR(GET));
    pair_until(loop, owner.requests == 1);
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("head /g; request; gone; closed; ");
}
END_TEST

START_TEST(a_client_that_leaves_with_its_request_is_gone)
{
    pair_send(client, BT_STR(GET));
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("head /g; request; gone; closed; ");
}
END_TEST

START_TEST(a_client_that_pipelines_and_leaves_is_gone)
{
    pair_send(client, BT_STR(GET GET));
    pair_until(loop, owner.requests == 1);
    ck_assert_int_eq(shutdown(client, SHUT_WR), 0);
    pair_until(loop, owner.closed == 1);
    expect_log("head /g; request; gone; closed; ");
}
END_TEST

START_TEST(a_client_that_leaves_before_its_body_is_read_is_gone)
{
    pair_send(client, BT_STR(POST5 "ab"));
    pair_until(loop, logged("head /p; "));
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("head /p; gone; closed; ");
}
END_TEST

START_TEST(a_client_that_leaves_in_its_body_is_gone)
{
    options.half_close_is_gone = false;
    owner.on_head = ACT_READ;
    pair_send(client, BT_STR(POST5 "ab"));
    pair_until(loop, owner.body.len == 2);
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("head /p; gone; closed; ");
}
END_TEST

START_TEST(a_client_that_resets_is_gone)
{
    const struct linger linger = {.l_onoff = 1, .l_linger = 0};

    pair_send(client, BT_STR(GET));
    pair_until(loop, owner.requests == 1);
    ck_assert_int_eq(
        setsockopt(client, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("head /g; request; gone; closed; ");
}
END_TEST

START_TEST(a_half_closed_client_may_be_answered)
{
    options.half_close_is_gone = false;
    pair_send(client, BT_STR(GET));
    ck_assert_int_eq(shutdown(client, SHUT_WR), 0);
    pair_until(loop, owner.requests == 1);
    pair_settle(loop);
    ck_assert_uint_eq(owner.gone, 0);
    act(&owner, ACT_ANSWER);
    pair_until(loop, owner.closed == 1);
    ck_assert(received(OK_CLOSE));
}
END_TEST

START_TEST(the_owner_may_close_when_the_client_is_gone)
{
    owner.on_gone = ACT_CLOSE;
    pair_send(client, BT_STR(GET));
    leave();
    pair_until(loop, owner.gone == 1);
    pair_settle(loop);
    ck_assert_uint_eq(owner.closed, 0);
}
END_TEST

START_TEST(the_owner_may_close_in_on_head_and_on_request)
{
    owner.on_head = ACT_CLOSE;
    pair_send(client, BT_STR(GET));
    pair_until(loop, has_ended());
    expect_log("head /g; ");
    (void)close(client);
    open_conn();
    owner.on_head = ACT_NONE;
    owner.on_request = ACT_ABORT;
    pair_send(client, BT_STR(GET GET));
    pair_until(loop, owner.conn == NULL);
    ck_assert_uint_eq(owner.closed, 0);
}
END_TEST

START_TEST(the_owner_may_close_in_on_body)
{
    owner.on_head = ACT_READ;
    owner.on_body = ACT_CLOSE;
    pair_send(client, BT_STR(POST5 "abcde"));
    pair_until(loop, owner.conn == NULL);
    pair_settle(loop);
    expect_log("head /p; ");
}
END_TEST

static void answer_piece(const char *text)
{
    struct iovec iov[2];
    char copy[64];
    const size_t len = strlen(text);

    ck_assert_uint_lt(len, sizeof(copy));
    snprintf(copy, sizeof(copy), "%s", text);
    iov[0] = (struct iovec){copy, len / 2};
    iov[1] = (struct iovec){copy + len / 2, len - len / 2};
    ck_assert_int_eq(bt_http_conn_answer_body(owner.conn, iov, 2), BT_OK);
}

static void ask(struct bt_str raw)
{
    const unsigned before = owner.requests;

    pair_send(client, raw);
    pair_until(loop, owner.requests > before);
}

START_TEST(a_chunked_answer_is_framed)
{
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR("A: b" CRLF),
                             BT_HTTP_CHUNKED, 0);
    answer_piece("hello");
    answer_piece("0123456789abcdef0");
    bt_http_conn_answer_end(owner.conn);
    pair_until(loop, received("HTTP/1.1 200 OK" CRLF "A: b" CRLF
                              "Transfer-Encoding: chunked" CRLF CRLF "5" CRLF
                              "hello" CRLF "11" CRLF "0123456789abcdef0" CRLF
                              "0" CRLF CRLF));
    bt_buf_clear(&got);
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR(GET));
    pair_until(loop, received(OK_ANSWER));
}
END_TEST

START_TEST(the_last_bytes_and_the_end_leave_together)
{
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_CHUNKED, 0);
    answer_piece("a");
    bt_http_conn_answer_last(owner.conn, BT_STR("hello"));
    pair_until(loop, received("HTTP/1.1 200 OK" CRLF
                              "Transfer-Encoding: chunked" CRLF CRLF "1" CRLF
                              "a" CRLF "5" CRLF "hello" CRLF "0" CRLF CRLF));
    bt_buf_clear(&got);
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_CHUNKED, 0);
    bt_http_conn_answer_last(owner.conn, BT_STR(""));
    pair_until(loop,
               received("HTTP/1.1 200 OK" CRLF
                        "Transfer-Encoding: chunked" CRLF CRLF "0" CRLF CRLF));
    bt_buf_clear(&got);
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_LENGTH, 2);
    bt_http_conn_answer_last(owner.conn, BT_STR("ab"));
    pair_until(loop, received("HTTP/1.1 200 OK" CRLF
                              "Content-Length: 2" CRLF CRLF "ab"));
}
END_TEST

START_TEST(a_head_alone_goes_out_soon)
{
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_CHUNKED, 0);
    ck_assert_uint_gt(bt_http_conn_unsent(owner.conn), 0);
    pair_until(loop, received("HTTP/1.1 200 OK" CRLF
                              "Transfer-Encoding: chunked" CRLF CRLF));
}
END_TEST

START_TEST(an_answer_of_known_length_keeps_to_it)
{
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_LENGTH, 5);
    answer_piece("ab");
    answer_piece("cde");
    bt_http_conn_answer_end(owner.conn);
    pair_until(loop, received("HTTP/1.1 200 OK" CRLF
                              "Content-Length: 5" CRLF CRLF "abcde"));
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_LENGTH, 5);
    answer_piece("ab");
    bt_http_conn_answer_end(owner.conn); /* too short: cut */
    pair_until(loop, owner.closed == 1);
    ck_assert_uint_eq(owner.gone, 0);
    ck_assert(has_ended());
}
END_TEST

START_TEST(a_client_of_http_1_0_gets_no_chunks)
{
    ask(BT_STR("GET /g HTTP/1.0" CRLF "Connection: keep-alive" CRLF CRLF));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_CHUNKED, 0);
    answer_piece("hello");
    bt_http_conn_answer_end(owner.conn);
    pair_until(loop, has_ended());
    ck_assert(
        received("HTTP/1.1 200 OK" CRLF "Connection: close" CRLF CRLF "hello"));
    ck_assert(!pair_was_reset(client));
}
END_TEST

START_TEST(a_client_of_http_1_0_is_kept_only_when_it_asks)
{
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR("GET /g HTTP/1.0" CRLF
                             "Connection: keep-alive" CRLF CRLF));
    pair_until(loop, received("HTTP/1.1 200 OK" CRLF "X: y" CRLF
                              "Content-Length: 2" CRLF
                              "Connection: keep-alive" CRLF CRLF "ok"));
    bt_buf_clear(&got);
    pair_send(client, BT_STR("GET /g HTTP/1.0" CRLF CRLF));
    pair_until(loop, has_ended());
    ck_assert(received(OK_CLOSE));
}
END_TEST

START_TEST(an_answer_to_head_has_no_body)
{
    ask(BT_STR("HEAD /g HTTP/1.1" CRLF "Host: a" CRLF CRLF));
    act(&owner, ACT_ANSWER);
    pair_until(loop, received("HTTP/1.1 200 OK" CRLF "X: y" CRLF
                              "Content-Length: 2" CRLF CRLF));
    bt_buf_clear(&got);
    ask(BT_STR("HEAD /g HTTP/1.1" CRLF "Host: a" CRLF CRLF));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_CHUNKED, 0);
    answer_piece("hello");
    bt_http_conn_answer_end(owner.conn);
    pair_until(loop, received("HTTP/1.1 200 OK" CRLF
                              "Transfer-Encoding: chunked" CRLF CRLF));
    bt_buf_clear(&got);
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR(GET));
    pair_until(loop, received(OK_ANSWER));
}
END_TEST

START_TEST(no_content_has_no_framing)
{
    ask(BT_STR(GET));
    bt_http_conn_answer(owner.conn, 204, BT_STR(""), BT_STR(""));
    pair_until(loop, received("HTTP/1.1 204 No Content" CRLF CRLF));
    ck_assert(bt_http_conn_is_idle(owner.conn));
}
END_TEST

START_TEST(a_client_that_wishes_it_is_closed)
{
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR("GET /g HTTP/1.1" CRLF "Host: a" CRLF
                             "Connection: close" CRLF CRLF GET));
    pair_until(loop, has_ended());
    ck_assert(received(OK_CLOSE));
    leave();
    pair_until(loop, owner.closed == 1);
    ck_assert_uint_eq(owner.requests, 1);
}
END_TEST

START_TEST(a_cut_chunked_answer_has_no_end)
{
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_CHUNKED, 0);
    answer_piece("hello");
    bt_http_conn_answer_cut(owner.conn);
    ck_assert_uint_eq(owner.closed, 0);
    pair_until(loop, owner.closed == 1);
    ck_assert(has_ended());
    ck_assert(received("HTTP/1.1 200 OK" CRLF
                       "Transfer-Encoding: chunked" CRLF CRLF "5" CRLF
                       "hello" CRLF));
    ck_assert_uint_eq(owner.gone, 0);
}
END_TEST

START_TEST(a_cut_answer_until_close_is_reset)
{
    ask(BT_STR("GET /g HTTP/1.0" CRLF CRLF));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_CHUNKED, 0);
    answer_piece("hello");
    bt_http_conn_answer_cut(owner.conn);
    pair_until(loop, owner.closed == 1);
    pair_settle(loop);
    ck_assert(pair_was_reset(client));
}
END_TEST

static enum bt_status answer_big(void)
{
    static char block[65536];
    struct iovec iov = {block, sizeof(block)};
    enum bt_status status = BT_OK;

    memset(block, 'z', sizeof(block));
    for (size_t sent = 0; sent < BIG; sent += sizeof(block)) {
        status = bt_http_conn_answer_body(owner.conn, &iov, 1);
    }
    return status;
}

START_TEST(a_slow_client_is_waited_for)
{
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_LENGTH, BIG);
    ck_assert_int_eq(answer_big(), BT_AGAIN);
    ck_assert_uint_gt(bt_http_conn_unsent(owner.conn), 0);
    pair_until(loop, has_received("zz") && owner.rooms == 1);
    bt_http_conn_answer_end(owner.conn);
    pair_until(loop, (pair_recv(client, &got), got.len > BIG));
    pair_until(loop, bt_http_conn_is_idle(owner.conn));
}
END_TEST

START_TEST(the_next_request_waits_for_a_slow_client)
{
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_LENGTH, BIG);
    ck_assert_int_eq(answer_big(), BT_AGAIN);
    bt_http_conn_answer_end(owner.conn);
    pair_send(client, BT_STR(GET));
    pair_settle(loop);
    ck_assert_uint_eq(owner.requests, 1);
    pair_until(loop, (pair_recv(client, &got), owner.requests == 2));
}
END_TEST

START_TEST(a_client_that_does_not_read_is_gone_in_time)
{
    options.write_timeout_ms = 30;
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_LENGTH, BIG);
    ck_assert_int_eq(answer_big(), BT_AGAIN);
    pair_until(loop, owner.closed == 1);
    expect_log("head /g; request; gone; closed; ");
}
END_TEST

START_TEST(a_cut_answer_sends_what_is_unsent_first)
{
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_CHUNKED, 0);
    ck_assert_int_eq(answer_big(), BT_AGAIN);
    bt_http_conn_answer_cut(owner.conn);
    pair_until(loop, has_ended());
    ck_assert_uint_gt(got.len, BIG);
    ck_assert_uint_eq(owner.closed, 1);
}
END_TEST

START_TEST(a_slow_head_is_408)
{
    options.head_timeout_ms = 30;
    pair_send(client, BT_STR("GET / HTTP/1.1" CRLF "Ho"));
    pair_until(loop, has_received("HTTP/1.1 408 "));
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("bad 408; closed; ");
}
END_TEST

START_TEST(a_slow_body_is_408)
{
    options.body_idle_ms = 30;
    owner.on_head = ACT_READ_INTO;
    owner.dst = calloc(1, 5);
    pair_send(client, BT_STR(POST5 "ab"));
    pair_until(loop, has_received("HTTP/1.1 408 "));
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("head /p; bad 408; closed; ");
}
END_TEST

static void trickle(const char *piece)
{
    (void)!send(client, piece, strlen(piece), MSG_DONTWAIT | MSG_NOSIGNAL);
}

START_TEST(a_body_that_comes_byte_by_byte_is_408_all_the_same)
{
    options.body_timeout_ms = 50;
    options.body_rate = BT_MIB;
    owner.on_head = ACT_READ_INTO;
    owner.dst = calloc(1, BIG);
    pair_send(client, BT_STR("POST /p HTTP/1.1" CRLF "Host: a" CRLF
                             "Content-Length: 8388608" CRLF CRLF));
    pair_until(loop, (trickle("x"), has_received("HTTP/1.1 408 ")));
    leave();
    pair_until(loop, owner.closed == 1);
    expect_log("head /p; bad 408; closed; ");
}
END_TEST

START_TEST(a_chunked_body_that_comes_byte_by_byte_is_408_all_the_same)
{
    options.body_timeout_ms = 50;
    options.body_rate = BT_MIB;
    owner.on_head = ACT_READ;
    pair_send(client, BT_STR("POST /p HTTP/1.1" CRLF "Host: a" CRLF
                             "Transfer-Encoding: chunked" CRLF CRLF));
    pair_until(loop,
               (trickle("1" CRLF "x" CRLF), has_received("HTTP/1.1 408 ")));
}
END_TEST

START_TEST(a_body_that_keeps_the_rate_may_take_longer)
{
    const uint64_t begin_us = bt_clock_us();

    options.body_timeout_ms = 200;
    options.body_rate = 1;
    owner.on_head = ACT_READ;
    pair_send(client, BT_STR("POST /p HTTP/1.1" CRLF "Host: a" CRLF
                             "Transfer-Encoding: chunked" CRLF CRLF));
    pair_until(loop,
               (trickle("1" CRLF "x" CRLF), bt_clock_us() - begin_us > 500000));
    trickle("0" CRLF CRLF);
    pair_until(loop, owner.requests == 1);
}
END_TEST

START_TEST(the_rest_of_an_ended_answer_is_told_when_it_is_out)
{
    ask(BT_STR(GET));
    bt_http_conn_answer_head(owner.conn, 200, BT_STR(""), BT_HTTP_LENGTH, BIG);
    ck_assert_int_eq(answer_big(), BT_AGAIN);
    bt_http_conn_answer_end(owner.conn);
    pair_settle(loop);
    ck_assert_uint_eq(owner.rooms, 0);
    pair_until(loop, (pair_recv(client, &got), owner.rooms == 1));
    ck_assert_uint_eq(bt_http_conn_unsent(owner.conn), 0);
}
END_TEST

/* --- idle connections --- */

static struct bt_http_idle idle;

/* Opens the connection again, among the idle. */
static void open_listed(void)
{
    bt_http_conn_close(&owner.conn);
    (void)close(client);
    bt_http_idle_init(&idle);
    options.idle = &idle;
    open_conn();
}

START_TEST(the_connection_idle_longest_gives_way)
{
    struct owner other = {.on_request = ACT_ANSWER};
    int ends[2];

    open_listed();
    pair_open(ends);
    ck_assert_int_eq(bt_http_conn_open(loop, ends[1], &options, &events, &other,
                                       &other.conn),
                     BT_OK);
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR(GET)); /* now it is the one idle last */
    pair_until(loop, received(OK_ANSWER));
    ck_assert(bt_http_idle_give_way(&idle));
    ck_assert_uint_eq(other.closed, 1);
    ck_assert(bt_http_idle_give_way(&idle));
    ck_assert_uint_eq(owner.closed, 1);
    ck_assert(!bt_http_idle_give_way(&idle));
    bt_buf_fini(&other.log);
    (void)close(ends[0]);
}
END_TEST

START_TEST(a_connection_at_work_does_not_give_way)
{
    open_listed();
    pair_send(client, BT_STR(GET));
    ck_assert(!bt_http_idle_give_way(&idle)); /* its request is here */
    pair_until(loop, owner.requests == 1);
    ck_assert(!bt_http_idle_give_way(&idle));
    act(&owner, ACT_ANSWER);
    pair_until(loop, received(OK_ANSWER));
    pair_send(client, BT_STR("GET "));
    pair_settle(loop);
    ck_assert(!bt_http_idle_give_way(&idle)); /* part of a head is */
}
END_TEST

START_TEST(an_idle_connection_is_closed_in_time)
{
    bt_http_conn_close(&owner.conn);
    (void)close(client);
    options.keep_alive_ms = 30;
    open_conn();
    pair_until(loop, owner.closed == 1);
    expect_log("closed; ");
    ck_assert(has_ended());
}
END_TEST

START_TEST(finish_closes_an_idle_connection)
{
    owner.on_request = ACT_ANSWER;
    ask(BT_STR(GET));
    bt_http_conn_finish(owner.conn);
    ck_assert_uint_eq(owner.closed, 0);
    pair_until(loop, owner.closed == 1);
}
END_TEST

START_TEST(finish_waits_for_the_first_request_of_a_connection)
{
    bt_http_conn_finish(owner.conn);
    pair_settle(loop);
    ck_assert_uint_eq(owner.closed, 0);
    owner.on_request = ACT_ANSWER;
    pair_send(client, BT_STR(GET));
    pair_until(loop, owner.closed == 1);
    ck_assert(received(OK_CLOSE));
}
END_TEST

START_TEST(finish_lets_the_current_request_end)
{
    ask(BT_STR(GET));
    bt_http_conn_finish(owner.conn);
    pair_settle(loop);
    ck_assert_uint_eq(owner.closed, 0);
    act(&owner, ACT_ANSWER);
    pair_until(loop, owner.closed == 1);
    ck_assert(received(OK_CLOSE));
}
END_TEST

START_TEST(finish_serves_a_request_that_is_already_here)
{
    pair_send(client, BT_STR(GET));
    bt_http_conn_finish(owner.conn);
    owner.on_request = ACT_ANSWER;
    pair_until(loop, owner.closed == 1);
    ck_assert(received(OK_CLOSE));
}
END_TEST

static unsigned foreign_bytes;

static void on_foreign_bytes(void *arg, struct bt_str bytes)
{
    (void)arg;
    foreign_bytes += (unsigned)bytes.len;
}

START_TEST(an_upgraded_stream_leaves_with_its_rest)
{
    const struct bt_stream_events foreign = {.on_bytes = on_foreign_bytes};

    foreign_bytes = 0;
    owner.on_request = ACT_UPGRADE;
    pair_send(client, BT_STR("GET /u HTTP/1.1" CRLF "Host: a" CRLF
                             "Connection: upgrade" CRLF "Upgrade: x" CRLF CRLF
                             "first frame"));
    pair_until(loop, received("HTTP/1.1 101 Switching Protocols" CRLF
                              "Upgrade: x" CRLF CRLF));
    ck_assert_ptr_null(owner.conn);
    ck_assert_ptr_nonnull(owner.upgraded);
    ck_assert(
        bt_str_eq(bt_buf_str(&owner.upgrade_rest), BT_STR("first frame")));
    bt_stream_adopt(owner.upgraded, &foreign, NULL);
    pair_send(client, BT_STR("abc"));
    pair_until(loop, foreign_bytes == 3);
    ck_assert_uint_eq(owner.closed, 0);
}
END_TEST

START_TEST(an_upgrade_may_come_later)
{
    const struct bt_stream_events foreign = {.on_bytes = on_foreign_bytes};

    foreign_bytes = 0;
    pair_send(client, BT_STR(GET "rest"));
    pair_until(loop, owner.requests == 1);
    act(&owner, ACT_UPGRADE);
    bt_stream_adopt(owner.upgraded, &foreign, NULL);
    ck_assert(bt_str_eq(bt_buf_str(&owner.upgrade_rest), BT_STR("rest")));
    pair_send(client, BT_STR("abc"));
    pair_until(loop, foreign_bytes == 3);
}
END_TEST

HARNESS_MAIN_WITH(
    "http_conn", setup, teardown,
    a_request_is_answered_and_the_connection_lives_on, an_answer_may_come_later,
    pipelined_requests_are_answered_one_by_one,
    pipelined_requests_answered_at_once_come_in_order,
    one_turn_serves_a_few_pipelined_requests_of_a_connection,
    a_body_comes_in_pieces_where_asked_for, a_body_asked_for_later_waits,
    a_chunked_body_is_decoded, a_large_body_goes_straight_to_its_place,
    a_small_body_goes_straight_to_its_place,
    a_chunked_body_is_never_written_to_a_place,
    continue_is_sent_only_when_the_body_is_wanted,
    continue_is_not_sent_to_one_that_did_not_wait,
    a_refusal_before_the_body_drains_and_closes,
    a_lingering_connection_ends_after_a_second,
    a_refusal_is_readable_though_the_client_sends_on,
    malformed_requests_are_told_and_refused,
    a_malformed_body_is_told_before_the_request,
    the_owner_may_close_instead_of_answering, a_head_too_large_is_431,
    a_client_that_closes_while_idle_is_closed,
    a_client_that_closes_in_its_head_is_closed,
    a_client_that_leaves_while_waiting_is_gone,
    a_client_that_leaves_with_its_request_is_gone,
    a_client_that_pipelines_and_leaves_is_gone,
    a_client_that_leaves_before_its_body_is_read_is_gone,
    a_client_that_leaves_in_its_body_is_gone, a_client_that_resets_is_gone,
    a_half_closed_client_may_be_answered,
    the_owner_may_close_when_the_client_is_gone,
    the_owner_may_close_in_on_head_and_on_request,
    the_owner_may_close_in_on_body, a_chunked_answer_is_framed,
    the_last_bytes_and_the_end_leave_together, a_head_alone_goes_out_soon,
    an_answer_of_known_length_keeps_to_it, a_client_of_http_1_0_gets_no_chunks,
    a_client_of_http_1_0_is_kept_only_when_it_asks,
    an_answer_to_head_has_no_body, no_content_has_no_framing,
    a_client_that_wishes_it_is_closed, a_cut_chunked_answer_has_no_end,
    a_cut_answer_until_close_is_reset, a_slow_client_is_waited_for,
    the_next_request_waits_for_a_slow_client,
    a_client_that_does_not_read_is_gone_in_time,
    a_cut_answer_sends_what_is_unsent_first, a_slow_head_is_408,
    a_slow_body_is_408, a_body_that_comes_byte_by_byte_is_408_all_the_same,
    a_chunked_body_that_comes_byte_by_byte_is_408_all_the_same,
    a_body_that_keeps_the_rate_may_take_longer,
    the_rest_of_an_ended_answer_is_told_when_it_is_out,
    the_connection_idle_longest_gives_way,
    a_connection_at_work_does_not_give_way,
    an_idle_connection_is_closed_in_time, finish_closes_an_idle_connection,
    finish_waits_for_the_first_request_of_a_connection,
    finish_lets_the_current_request_end,
    finish_serves_a_request_that_is_already_here,
    an_upgraded_stream_leaves_with_its_rest, an_upgrade_may_come_later)
