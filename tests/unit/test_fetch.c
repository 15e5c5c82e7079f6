/*
 * One small GET, against a listener in the same loop.
 */
#include "bench/load/fetch.h"
#include "common/io/net.h"
#include "tests/support/harness.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_MS 30000 /* never waited for: each answer comes */

static struct bt_loop *loop;
static struct bt_http_pool *pool;
static struct fetch fetch;
static struct bt_addr addr;
static int listener;
static int conn;
static struct bt_watch *watches[2]; /* of the listener and the connection */
static struct bt_buf asked;         /* what the listener was sent */
static const char *answer;          /* what it says then, and ends */
static struct bt_buf body;
static unsigned code;

static void on_bytes(void *owner)
{
    char bytes[1024];
    const ssize_t got = read(conn, bytes, sizeof(bytes));

    (void)owner;
    if (got <= 0) {
        bt_watch_pause(watches[1], true);
        return;
    }
    bt_buf_append(&asked, bt_str_span(bytes, (size_t)got));
    if (bt_str_find(bt_buf_str(&asked), BT_STR("\r\n\r\n")) < asked.len) {
        bt_watch_pause(watches[1], true);
        ck_assert_int_eq(write(conn, answer, strlen(answer)),
                         (ssize_t)strlen(answer));
        ck_assert_int_eq(shutdown(conn, SHUT_WR), 0);
    }
}

static void on_client(void *owner)
{
    (void)owner;
    conn = accept(listener, NULL, NULL);
    ck_assert_int_ge(conn, 0);
    bt_watch_pause(watches[0], true);
    ck_assert_int_eq(bt_watch_open(loop, conn, on_bytes, NULL, &watches[1]),
                     BT_OK);
}

static void set_up(void)
{
    const struct bt_http_pool_options options = {
        .parse = {.head_bytes = 4096, .target_bytes = 1024, .fields = 20},
        .idle_max = 4,
        .idle_ms = PATIENCE_MS,
        .connect_ms = PATIENCE_MS,
        .high_water = BT_MIB};

    conn = -1;
    code = 0;
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
    ck_assert_int_eq(bt_addr_parse("127.0.0.1:0", &addr), BT_OK);
    ck_assert_int_eq(bt_listen(&addr, false, &listener), BT_OK);
    ck_assert_int_eq(bt_addr_of_fd(listener, &addr), BT_OK);
    ck_assert_int_eq(
        bt_watch_open(loop, listener, on_client, NULL, &watches[0]), BT_OK);
    ck_assert_int_eq(bt_http_pool_open(loop, &options, &pool), BT_OK);
    fetch = (struct fetch){.loop = loop, .authority = "h:1"};
    ck_assert_int_eq(bt_http_origin_open(pool, &addr, 1, &fetch.origin), BT_OK);
}

static void stop_listening(void)
{
    bt_watch_close(&watches[0]);
    (void)close(listener);
    listener = -1;
}

static void tear_down(void)
{
    if (listener >= 0) {
        stop_listening();
    }
    if (conn >= 0) {
        bt_watch_close(&watches[1]);
        (void)close(conn);
    }
    bt_http_origin_close(&fetch.origin);
    bt_http_pool_close(&pool);
    bt_loop_close(&loop);
    bt_buf_fini(&asked);
    bt_buf_fini(&body);
}

static enum bt_status get(const char *path)
{
    return fetch_text(&fetch, path, PATIENCE_MS, &body, &code);
}

START_TEST(a_200_gives_its_body_behind_what_was_there)
{
    answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    bt_buf_append(&body, BT_STR("is "));
    ck_assert_int_eq(get("/v1/models"), BT_OK);
    ck_assert_uint_eq(code, 200);
    ck_assert(bt_str_eq(bt_buf_str(&body), BT_STR("is ok")));
    ck_assert(
        bt_str_eq(bt_buf_str(&asked),
                  BT_STR("GET /v1/models HTTP/1.1\r\nHost: h:1\r\n\r\n")));
}
END_TEST

START_TEST(a_key_goes_along_as_a_bearer)
{
    answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    fetch.bearer = "k";
    ck_assert_int_eq(get("/x"), BT_OK);
    ck_assert(bt_str_eq(bt_buf_str(&asked),
                        BT_STR("GET /x HTTP/1.1\r\nHost: h:1\r\n"
                               "Authorization: Bearer k\r\n\r\n")));
}
END_TEST

START_TEST(another_status_is_told_and_is_no_success)
{
    answer = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";
    ck_assert_int_eq(get("/x"), BT_ERR_UNSUPPORTED);
    ck_assert_uint_eq(code, 401);
    ck_assert_uint_eq(body.len, 0);
}
END_TEST

START_TEST(an_answer_that_is_cut_is_no_success)
{
    answer = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
    ck_assert_int_lt(get("/x"), BT_OK);
}
END_TEST

START_TEST(what_is_no_http_is_a_protocol_error)
{
    answer = "220 smtp.example.org ready\r\n";
    ck_assert_int_eq(get("/x"), BT_ERR_PROTOCOL);
    ck_assert_uint_eq(code, 0);
}
END_TEST

START_TEST(a_closed_port_is_a_refusal)
{
    stop_listening();
    ck_assert_int_eq(get("/x"), BT_ERR_REFUSED);
    ck_assert_uint_eq(code, 0);
}
END_TEST

START_TEST(without_time_nothing_is_waited_for)
{
    answer = "";
    ck_assert_int_eq(fetch_text(&fetch, "/x", 0, &body, &code), BT_ERR_TIMEOUT);
}
END_TEST

HARNESS_MAIN_WITH(
    "fetch", set_up, tear_down, a_200_gives_its_body_behind_what_was_there,
    a_key_goes_along_as_a_bearer, another_status_is_told_and_is_no_success,
    an_answer_that_is_cut_is_no_success, what_is_no_http_is_a_protocol_error,
    a_closed_port_is_a_refusal, without_time_nothing_is_waited_for)
