/*
 * common/stream: bytes in and out, water marks, pausing, ends.
 */
#include "common/io/stream.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define BIG ((size_t)8 * 1024 * 1024)

/* A stream's owner: counts what comes up, and may act in a callback. */
struct owner {
    struct bt_stream *stream;
    struct bt_buf bytes;
    unsigned connected, eofs, rooms, flushes, failures;
    size_t filled;
    enum bt_status failure;
    bool pauses_on_bytes;
    bool closes; /* in whatever callback comes first */
};

static struct bt_loop *loop;
static struct owner owner;
static int fds[2]; /* [0] the test's end, [1] the stream's */
static struct bt_buf got;

static void act(struct owner *self)
{
    if (self->closes) {
        bt_stream_close(&self->stream);
    }
}

static void on_connected(void *arg)
{
    struct owner *self = arg;

    self->connected++;
    act(self);
}

static void on_bytes(void *arg, struct bt_str bytes)
{
    struct owner *self = arg;

    bt_buf_append(&self->bytes, bytes);
    if (self->pauses_on_bytes) {
        bt_stream_pause(self->stream);
    }
    act(self);
}

static void on_filled(void *arg, struct bt_str bytes)
{
    struct owner *self = arg;

    self->filled += bytes.len;
    act(self);
}

static void on_eof(void *arg)
{
    struct owner *self = arg;

    self->eofs++;
    act(self);
}

static void on_room(void *arg)
{
    struct owner *self = arg;

    self->rooms++;
    act(self);
}

static void on_flushed(void *arg)
{
    struct owner *self = arg;

    self->flushes++;
    act(self);
}

static void on_failed(void *arg, enum bt_status status, int error)
{
    struct owner *self = arg;

    (void)error;
    self->failures++;
    self->failure = status;
    act(self);
}

static const struct bt_stream_events events = {
    .on_connected = on_connected,
    .on_bytes = on_bytes,
    .on_filled = on_filled,
    .on_eof = on_eof,
    .on_room = on_room,
    .on_flushed = on_flushed,
    .on_failed = on_failed,
};

static const struct bt_stream_options options = {.high_water = 64 * 1024};

static void setup(void)
{
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
    pair_open(fds);
    owner = (struct owner){.stream = NULL};
    got = (struct bt_buf){.data = NULL};
    ck_assert_int_eq(
        bt_stream_open(loop, fds[1], &options, &events, &owner, &owner.stream),
        BT_OK);
}

static void teardown(void)
{
    bt_stream_close(&owner.stream);
    bt_loop_close(&loop);
    bt_buf_fini(&owner.bytes);
    bt_buf_fini(&got);
    if (fds[0] >= 0) {
        (void)close(fds[0]);
    }
}

static void leave(void)
{
    ck_assert_int_eq(close(fds[0]), 0);
    fds[0] = -1;
}

static void leave_by_reset(void)
{
    const struct linger linger = {.l_onoff = 1, .l_linger = 0};

    ck_assert_int_eq(
        setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    leave();
}

/* Bytes whose place can be told from their value. */
static struct bt_buf pattern(size_t size)
{
    struct bt_buf buf = {.data = NULL};

    ck_assert(bt_buf_reserve(&buf, size));
    for (size_t i = 0; i < size; i++) {
        bt_buf_tail(&buf)[i] = (char)(i * 31 + (i >> 11));
    }
    bt_buf_commit(&buf, size);
    return buf;
}

static void expect_pattern(struct bt_buf *expected, struct bt_str bytes)
{
    ck_assert_uint_eq(bytes.len, expected->len);
    ck_assert_int_eq(memcmp(bytes.ptr, bt_buf_str(expected).ptr, expected->len),
                     0);
    bt_buf_fini(expected);
}

static bool is_ended(void)
{
    return !pair_recv(fds[0], &got);
}

static bool has_got(size_t size)
{
    (void)pair_recv(fds[0], &got);
    return got.len >= size;
}

START_TEST(bytes_and_the_end_are_handed_on)
{
    pair_send(fds[0], BT_STR("hello"));
    pair_until(loop, owner.bytes.len == 5);
    ck_assert_uint_eq(owner.eofs, 0);
    pair_send(fds[0], BT_STR(" again"));
    leave();
    pair_until(loop, owner.eofs > 0);
    ck_assert(bt_str_eq(bt_buf_str(&owner.bytes), BT_STR("hello again")));
    pair_settle(loop);
    ck_assert_uint_eq(owner.eofs, 1);
    ck_assert_uint_eq(owner.failures, 0);
}
END_TEST

START_TEST(writes_beyond_high_water_wait_for_room)
{
    struct bt_buf bytes = pattern(BIG);

    ck_assert_int_eq(bt_stream_write(owner.stream, bt_buf_str(&bytes)),
                     BT_AGAIN);
    ck_assert_uint_gt(bt_stream_unsent(owner.stream), options.high_water);
    ck_assert_int_eq(bt_stream_write(owner.stream, BT_STR("tail")), BT_AGAIN);
    ck_assert_uint_eq(owner.rooms, 0);
    pair_until(loop, has_got(BIG + 4));
    pair_settle(loop);
    ck_assert_uint_eq(owner.rooms, 1);
    ck_assert_uint_eq(owner.flushes, 1);
    ck_assert_uint_eq(bt_stream_unsent(owner.stream), 0);
    expect_pattern(&bytes, bt_str_span(got.data + got.at, BIG));
    ck_assert_int_eq(memcmp(got.data + got.at + BIG, "tail", 4), 0);
}
END_TEST

START_TEST(more_pieces_than_one_call_takes_arrive_in_order)
{
    struct bt_buf bytes = pattern(300);
    struct iovec iov[300];

    for (size_t i = 0; i < BT_ARRAY_LEN(iov); i++) {
        iov[i] = (struct iovec){bytes.data + bytes.at + i, 1};
    }
    ck_assert_int_eq(bt_stream_writev(owner.stream, iov, BT_ARRAY_LEN(iov)),
                     BT_OK);
    pair_until(loop, has_got(300));
    expect_pattern(&bytes, bt_buf_str(&got));
}
END_TEST

/* The kernel tells of room in thirds of its buffer; a slow reader takes less.
 */
START_TEST(a_look_sees_what_the_peer_takes_before_there_is_room)
{
    static char block[64 * 1024];
    const struct bt_str piece = bt_str_span(block, sizeof(block));

    for (size_t sent = 0; sent < BIG; sent += sizeof(block)) {
        (void)bt_stream_write(owner.stream, piece);
    }
    pair_until(loop, (bt_stream_look(owner.stream),
                      bt_stream_stalled_ms(owner.stream) > 20));
    while (bt_stream_stalled_ms(owner.stream) > 0) {
        ck_assert_int_gt(recv(fds[0], block, sizeof(block), MSG_DONTWAIT), 0);
        bt_stream_look(owner.stream);
    }
    ck_assert_uint_eq(owner.rooms, 0);
}
END_TEST

START_TEST(small_writes_go_out_at_once_without_events)
{
    ck_assert_int_eq(bt_stream_write(owner.stream, BT_STR("x")), BT_OK);
    ck_assert(has_got(1));
    pair_settle(loop);
    ck_assert_uint_eq(owner.flushes + owner.rooms, 0);
}
END_TEST

START_TEST(borrowed_bytes_are_sent_in_order_without_a_copy)
{
    struct bt_buf bytes = pattern(BIG);
    struct iovec iov[128];

    for (size_t i = 0; i < 128; i++) {
        iov[i].iov_base = bytes.data + bytes.at + i * (BIG / 128);
        iov[i].iov_len = BIG / 128;
    }
    ck_assert(!bt_stream_send_borrowed(owner.stream, iov, 128));
    pair_until(loop, has_got(BIG));
    pair_settle(loop);
    ck_assert_uint_eq(owner.flushes, 1);
    expect_pattern(&bytes, bt_buf_str(&got));
}
END_TEST

START_TEST(a_small_borrowed_send_is_done_at_once)
{
    char text[] = "abc";
    struct iovec iov[2] = {{text, 1}, {text + 1, 2}};

    ck_assert(bt_stream_send_borrowed(owner.stream, iov, 2));
    ck_assert(has_got(3));
    pair_settle(loop);
    ck_assert_uint_eq(owner.flushes, 0);
}
END_TEST

START_TEST(dropped_bytes_are_not_sent)
{
    struct bt_buf bytes = pattern(BIG);

    ck_assert_int_eq(bt_stream_write(owner.stream, bt_buf_str(&bytes)),
                     BT_AGAIN);
    bt_stream_drop_unsent(owner.stream);
    bt_buf_fini(&bytes);
    bt_stream_shut_write(owner.stream);
    pair_until(loop, is_ended());
    ck_assert_uint_lt(got.len, BIG);
    ck_assert_uint_eq(owner.flushes + owner.rooms, 0);
}
END_TEST

START_TEST(shut_write_comes_behind_what_is_unsent)
{
    struct bt_buf bytes = pattern(BIG);

    (void)bt_stream_write(owner.stream, bt_buf_str(&bytes));
    bt_stream_shut_write(owner.stream);
    pair_until(loop, is_ended());
    expect_pattern(&bytes, bt_buf_str(&got));
    pair_send(fds[0], BT_STR("still heard"));
    pair_until(loop, owner.bytes.len == 11);
}
END_TEST

START_TEST(a_paused_stream_reads_nothing_and_catches_up)
{
    bt_stream_pause(owner.stream);
    pair_send(fds[0], BT_STR("abc"));
    pair_settle(loop);
    ck_assert_uint_eq(owner.bytes.len, 0);
    bt_stream_resume(owner.stream);
    ck_assert_uint_eq(owner.bytes.len, 0); /* not from inside */
    pair_until(loop, owner.bytes.len == 3);
}
END_TEST

START_TEST(a_paused_stream_sees_the_peer_leave_and_the_bytes_later)
{
    bt_stream_pause(owner.stream);
    pair_send(fds[0], BT_STR("abc"));
    pair_settle(loop);
    leave();
    pair_until(loop, owner.eofs == 1);
    ck_assert_uint_eq(owner.bytes.len, 0);
    pair_settle(loop);
    ck_assert_uint_eq(owner.eofs, 1);
    bt_stream_resume(owner.stream);
    pair_until(loop, owner.eofs == 2);
    ck_assert_uint_eq(owner.bytes.len, 3);
}
END_TEST

START_TEST(a_stream_paused_while_reading_sees_an_end_that_came_along)
{
    owner.pauses_on_bytes = true;
    pair_send(fds[0], BT_STR("abc"));
    leave();
    pair_until(loop, owner.eofs == 1);
    ck_assert_uint_eq(owner.bytes.len, 3);
}
END_TEST

START_TEST(a_paused_stream_sees_a_reset)
{
    bt_stream_pause(owner.stream);
    pair_settle(loop);
    leave_by_reset();
    pair_until(loop, owner.failures + owner.eofs > 0);
    pair_settle(loop);
    ck_assert_uint_le(owner.failures, 1);
}
END_TEST

START_TEST(a_reset_is_a_failure)
{
    leave_by_reset();
    pair_until(loop, owner.failures > 0);
    ck_assert_int_eq(owner.failure, BT_ERR_RESET);
    ck_assert_int_eq(bt_stream_write(owner.stream, BT_STR("x")), BT_OK);
    pair_settle(loop);
    ck_assert_uint_eq(owner.failures, 1);
}
END_TEST

START_TEST(a_broken_write_is_told_later_and_after_what_was_received)
{
    bt_stream_pause(owner.stream);
    pair_send(fds[0], BT_STR("last words"));
    leave_by_reset();
    bt_stream_resume(owner.stream);
    while (bt_stream_write(owner.stream, BT_STR("xxxxxxxx")) == BT_OK &&
           owner.failures == 0 && owner.bytes.len == 0) {
        ck_assert_uint_eq(owner.failures, 0);
        bt_loop_turn(loop, 0);
    }
    pair_until(loop, owner.failures > 0);
    ck_assert_int_eq(owner.failure, BT_ERR_RESET);
    ck_assert_uint_eq(owner.failures, 1);
}
END_TEST

START_TEST(bytes_go_straight_to_where_they_are_wanted)
{
    char dst[6] = "";

    bt_stream_read_into(owner.stream, dst, 5);
    pair_send(fds[0], BT_STR("abc"));
    pair_settle(loop);
    ck_assert_uint_eq(owner.filled, 3);
    pair_send(fds[0], BT_STR("defg"));
    pair_until(loop, owner.filled == 5);
    ck_assert_str_eq(dst, "abcde");
    ck_assert(bt_str_eq(bt_buf_str(&owner.bytes), BT_STR("fg")));
}
END_TEST

START_TEST(a_large_read_arrives_whole)
{
    struct bt_buf bytes = pattern(BIG);
    char *dst = malloc(BIG);
    size_t sent = 0;

    ck_assert_ptr_nonnull(dst);
    bt_stream_read_into(owner.stream, dst, BIG);
    while (owner.filled < BIG) {
        const ssize_t some = send(fds[0], bytes.data + bytes.at + sent,
                                  BIG - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

        sent += some > 0 ? (size_t)some : 0;
        bt_loop_turn(loop, 0);
    }
    ck_assert_uint_eq(sent, BIG);
    expect_pattern(&bytes, bt_str_span(dst, BIG));
    free(dst);
}
END_TEST

START_TEST(a_stream_may_be_closed_in_any_callback)
{
    owner.closes = true;
    pair_send(fds[0], BT_STR("abc"));
    pair_until(loop, owner.stream == NULL);
    pair_settle(loop);
    ck_assert_uint_eq(owner.eofs + owner.failures, 0);
}
END_TEST

START_TEST(a_stream_may_be_closed_when_the_peer_left)
{
    owner.closes = true;
    leave();
    pair_until(loop, owner.stream == NULL);
    pair_settle(loop);
    ck_assert_uint_eq(owner.eofs, 1);
}
END_TEST

START_TEST(a_stream_may_be_closed_when_there_is_room)
{
    struct bt_buf bytes = pattern(BIG);

    (void)bt_stream_write(owner.stream, bt_buf_str(&bytes));
    owner.closes = true;
    pair_until(loop, has_got(1) && owner.stream == NULL);
    ck_assert_uint_eq(owner.rooms, 1);
    ck_assert_uint_eq(owner.flushes, 0);
    bt_buf_fini(&bytes);
}
END_TEST

START_TEST(closing_ends_and_resetting_resets)
{
    bt_stream_reset(&owner.stream);
    ck_assert_ptr_null(owner.stream);
    pair_settle(loop);
    ck_assert(pair_was_reset(fds[0]));
}
END_TEST

START_TEST(readable_tells_bytes_and_the_end)
{
    bt_stream_pause(owner.stream);
    ck_assert(!bt_stream_is_readable(owner.stream));
    pair_send(fds[0], BT_STR("x"));
    ck_assert(bt_stream_is_readable(owner.stream));
}
END_TEST

START_TEST(a_connect_is_told_later_and_what_was_written_arrives)
{
    struct owner client = {.stream = NULL};
    struct bt_addr addr;
    const int listener = pair_listen(&addr);
    int fd = -1;

    ck_assert_int_eq(bt_stream_connect(loop, &addr, &options, &events, &client,
                                       &client.stream),
                     BT_OK);
    ck_assert_uint_eq(client.connected, 0);
    ck_assert_int_eq(bt_stream_write(client.stream, BT_STR("early")), BT_OK);
    pair_until(loop, client.connected == 1);
    pair_until(loop, fd >= 0 || (fd = pair_accept(listener)) >= 0);
    pair_until(loop, (pair_recv(fd, &got), got.len == 5));
    bt_stream_close(&client.stream);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(close(listener), 0);
}
END_TEST

START_TEST(a_refused_connect_is_told_later)
{
    struct owner client = {.stream = NULL};
    struct bt_addr addr;

    pair_nobody(&addr);
    ck_assert_int_eq(bt_stream_connect(loop, &addr, &options, &events, &client,
                                       &client.stream),
                     BT_OK);
    ck_assert_uint_eq(client.failures, 0);
    pair_until(loop, client.failures == 1);
    ck_assert_int_eq(client.failure, BT_ERR_REFUSED);
    bt_stream_close(&client.stream);
}
END_TEST

START_TEST(a_missing_unix_socket_is_refused)
{
    struct owner client = {.stream = NULL};
    struct bt_addr addr;

    ck_assert_int_eq(bt_addr_parse("unix:/nonexistent/baton", &addr), BT_OK);
    ck_assert_int_eq(bt_stream_connect(loop, &addr, &options, &events, &client,
                                       &client.stream),
                     BT_OK);
    ck_assert_uint_eq(client.failures, 0);
    pair_until(loop, client.failures == 1);
    ck_assert_int_eq(client.failure, BT_ERR_REFUSED);
    bt_stream_close(&client.stream);
}
END_TEST

/* The descriptor that the next socket has. */
static int next_fd(void)
{
    const int fd = dup(STDERR_FILENO);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
    return fd;
}

static int option_of(int fd, int level, int name)
{
    int value = 0;
    socklen_t len = sizeof(value);

    ck_assert_int_eq(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

START_TEST(a_peer_that_vanishes_is_found_out_on_a_connection_of_ours)
{
    struct owner client = {.stream = NULL};
    struct bt_addr addr;
    const int listener = pair_listen(&addr);
    const int fd = next_fd();

    ck_assert_int_eq(bt_stream_connect(loop, &addr, &options, &events, &client,
                                       &client.stream),
                     BT_OK);
    ck_assert_int_eq(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
    ck_assert_int_eq(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), 10);
    ck_assert_int_eq(option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL), 5);
    ck_assert_int_eq(option_of(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
    ck_assert_int_eq(option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 25000);
    bt_stream_close(&client.stream);
    ck_assert_int_eq(close(listener), 0);
}
END_TEST

START_TEST(an_adopted_stream_talks_to_its_new_owner)
{
    struct owner other = {.stream = NULL};

    bt_stream_adopt(owner.stream, &events, &other);
    pair_send(fds[0], BT_STR("abc"));
    pair_until(loop, other.bytes.len == 3);
    ck_assert_uint_eq(owner.bytes.len, 0);
    bt_buf_fini(&other.bytes);
}
END_TEST

static void reset_behind_bytes(void)
{
    static const struct linger now = {.l_onoff = 1, .l_linger = 0};

    ck_assert_int_eq(send(fds[0], "bytes", 5, 0), 5);
    ck_assert_int_eq(
        setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    (void)close(fds[0]);
    fds[0] = -1;
    pair_until(loop, owner.failures > 0);
    ck_assert_int_eq(owner.failure, BT_ERR_RESET);
}

/* The edge tells of both at once, and a short read takes the bytes alone. */
START_TEST(a_reset_right_behind_the_last_bytes_is_noticed)
{
    reset_behind_bytes();
}
END_TEST

START_TEST(a_reset_is_noticed_while_reading_is_paused)
{
    owner.pauses_on_bytes = true;
    reset_behind_bytes();
}
END_TEST

HARNESS_MAIN_WITH(
    "stream", setup, teardown, bytes_and_the_end_are_handed_on,
    a_reset_right_behind_the_last_bytes_is_noticed,
    a_reset_is_noticed_while_reading_is_paused,
    writes_beyond_high_water_wait_for_room,
    more_pieces_than_one_call_takes_arrive_in_order,
    a_look_sees_what_the_peer_takes_before_there_is_room,
    small_writes_go_out_at_once_without_events,
    borrowed_bytes_are_sent_in_order_without_a_copy,
    a_small_borrowed_send_is_done_at_once, dropped_bytes_are_not_sent,
    shut_write_comes_behind_what_is_unsent,
    a_paused_stream_reads_nothing_and_catches_up,
    a_paused_stream_sees_the_peer_leave_and_the_bytes_later,
    a_stream_paused_while_reading_sees_an_end_that_came_along,
    a_paused_stream_sees_a_reset, a_reset_is_a_failure,
    a_broken_write_is_told_later_and_after_what_was_received,
    bytes_go_straight_to_where_they_are_wanted, a_large_read_arrives_whole,
    a_stream_may_be_closed_in_any_callback,
    a_stream_may_be_closed_when_the_peer_left,
    a_stream_may_be_closed_when_there_is_room,
    closing_ends_and_resetting_resets, readable_tells_bytes_and_the_end,
    a_connect_is_told_later_and_what_was_written_arrives,
    a_refused_connect_is_told_later, a_missing_unix_socket_is_refused,
    a_peer_that_vanishes_is_found_out_on_a_connection_of_ours,
    an_adopted_stream_talks_to_its_new_owner)
