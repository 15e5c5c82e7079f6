/*
 * Streams: see the drawing in stream.h.
 *
 *    edge (libevent) -> on_event -> flush -> read until short, 16 at most
 *                                             |
 *    deferred (loop) <- readable still, failed inside a call, connected at once
 *
 * Edge-triggered, so the stream remembers what the kernel said once:
 * is_readable holds until a read comes back short. A short read also proves
 * that the queue was empty, which saves the second recv. It does not prove that
 * no reset stands behind the bytes: libevent tells an error as an edge to read
 * and to write, which is what every edge looks like. So a stream that has been
 * quiet for LOOK_MS after its last bytes looks once more.
 */
#include "common/io/stream.h"

#include <event2/event.h>
#include <event2/event_struct.h>

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define READS_A_TURN 16
#define MAX_IOV      64
#define LOOK_MS      300

/*
 * A peer that vanished without a word (its host, or the way to it) is found
 * out after 10 + 3 * 5 s, whether bytes are under way or not.
 */
#define PEER_IDLE_S     10
#define PEER_INTERVAL_S 5
#define PEER_PROBES     3
#define PEER_SILENT_MS  25000

struct bt_stream {
    struct bt_grave grave;
    struct bt_loop *loop;
    int fd;
    struct event event;
    struct bt_deferred later;
    struct bt_timer look; /* for a reset that came with the last bytes */
    const struct bt_stream_events *events;
    void *owner;
    size_t high_water;
    struct bt_addr peer;

    struct bt_buf out;      /* unsent copies */
    struct iovec *borrowed; /* unsent, the owner's; NULL: none */
    int borrowed_count;
    size_t borrowed_len;

    char *fill; /* where the next bytes go; NULL: to on_bytes */
    size_t fill_left;

    uint64_t sent_ms; /* when bytes last went out */
    int queued;       /* what the peer had not taken at the last look */
    uint64_t read_ms; /* when bytes last came in */

    enum bt_status failure; /* BT_OK: none to be told */
    int failure_errno;

    bool is_closed;
    bool is_over;       /* on_failed was called */
    bool is_connecting; /* EINPROGRESS */
    bool is_connected_untold;
    bool is_paused;
    bool is_readable;   /* the kernel may have bytes or a FIN */
    bool is_peer_shut;  /* RDHUP was seen: read on until 0 */
    bool is_eof_told;   /* on_eof was called while paused */
    bool is_eof_read;   /* recv returned 0 */
    bool wants_room;    /* write said BT_AGAIN */
    bool wants_flushed; /* a write was not taken whole */
    bool wants_shut;    /* shut_write waits for what is unsent */
    bool is_write_shut;
    bool is_write_broken; /* sending failed; what was received still counts */
};

static bool is_dead(const struct bt_stream *stream)
{
    return stream->is_closed || stream->is_over;
}

static enum bt_status status_of_errno(int error)
{
    switch (error) {
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENOENT:
        return BT_ERR_REFUSED;
    case ETIMEDOUT:
        return BT_ERR_TIMEOUT;
    case ECONNRESET:
    case EPIPE:
    case ECONNABORTED:
        return BT_ERR_RESET;
    case ENOMEM:
    case ENOBUFS:
        return BT_ERR_NOMEM;
    default:
        return BT_ERR_SYSTEM;
    }
}

static void drop_unsent(struct bt_stream *stream)
{
    bt_buf_fini(&stream->out);
    stream->borrowed = NULL;
    stream->borrowed_count = 0;
    stream->borrowed_len = 0;
    stream->wants_room = false;
    stream->wants_flushed = false;
}

/* Tells the owner, from an event callback: nothing else comes afterwards. */
static void fail_now(struct bt_stream *stream, enum bt_status status, int error)
{
    if (is_dead(stream)) {
        return;
    }
    stream->is_over = true;
    drop_unsent(stream);
    (void)event_del(&stream->event);
    bt_deferred_clear(&stream->later);
    bt_timer_clear(&stream->look);
    stream->events->on_failed(stream->owner, status, error);
}

/* From inside a call of the owner: told after its return. */
static void fail_later(struct bt_stream *stream, enum bt_status status,
                       int error)
{
    drop_unsent(stream);
    if (stream->failure == BT_OK) {
        stream->failure = status;
        stream->failure_errno = error;
    }
    bt_loop_defer(stream->loop, &stream->later);
}

/*
 * Sending failed. The peer may have answered before it closed, so the read
 * side has the last word: its bytes first, then its end or error.
 */
static void write_broke(struct bt_stream *stream, int error)
{
    drop_unsent(stream);
    stream->is_write_broken = true;
    stream->failure_errno = error;
    stream->is_readable = true;
    bt_loop_defer(stream->loop, &stream->later);
}

/* ---- sending ---- */

/* Bytes that the kernel took; 0: none now; -1: sending broke. */
static ssize_t send_some(struct bt_stream *stream, struct iovec *iov, int count)
{
    struct msghdr message = {
        .msg_iov = iov,
        .msg_iovlen = (size_t)(count < MAX_IOV ? count : MAX_IOV),
    };
    ssize_t sent;

    do {
        sent = sendmsg(stream->fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        stream->sent_ms = bt_loop_now_ms(stream->loop);
        return sent;
    }
    if (errno == EAGAIN) {
        return 0;
    }
    write_broke(stream, errno);
    return -1;
}

static size_t iov_len(const struct iovec *iov, int count)
{
    size_t len = 0;

    for (int i = 0; i < count; i++) {
        len += iov[i].iov_len;
    }
    return len;
}

/* Steps over `sent` bytes of the iovecs. */
static void iov_advance(struct iovec **iov_p, int *count_p, size_t sent)
{
    struct iovec *iov = *iov_p;
    int count = *count_p;

    while (count > 0 && sent >= iov->iov_len) {
        sent -= iov->iov_len;
        iov++;
        count--;
    }
    if (count > 0 && sent > 0) {
        iov->iov_base = (char *)iov->iov_base + sent;
        iov->iov_len -= sent;
    }
    *iov_p = iov;
    *count_p = count;
}

/* Sends borrowed iovecs until the kernel is full; true when none is left. */
static bool send_borrowed(struct bt_stream *stream)
{
    while (stream->borrowed_len > 0) {
        const size_t batch =
            iov_len(stream->borrowed, stream->borrowed_count < MAX_IOV
                                          ? stream->borrowed_count
                                          : MAX_IOV);
        const ssize_t sent =
            send_some(stream, stream->borrowed, stream->borrowed_count);

        if (sent <= 0) {
            return false;
        }
        stream->borrowed_len -= (size_t)sent;
        iov_advance(&stream->borrowed, &stream->borrowed_count, (size_t)sent);
        if ((size_t)sent < batch) {
            return false;
        }
    }
    stream->borrowed = NULL;
    stream->borrowed_count = 0;
    return true;
}

static bool send_out(struct bt_stream *stream)
{
    while (stream->out.len > 0) {
        struct iovec iov = {stream->out.data + stream->out.at, stream->out.len};
        const ssize_t sent = send_some(stream, &iov, 1);

        if (sent <= 0) {
            return false;
        }
        bt_buf_consume(&stream->out, (size_t)sent);
        if (stream->out.len > 0) {
            return false;
        }
    }
    bt_buf_fini(&stream->out);
    return true;
}

static void shut_if_wanted(struct bt_stream *stream)
{
    if (stream->wants_shut && !stream->is_write_shut &&
        bt_stream_unsent(stream) == 0 && !stream->is_connecting) {
        stream->is_write_shut = true;
        (void)shutdown(stream->fd, SHUT_WR);
    }
}

/* The socket takes bytes again. */
static void flush(struct bt_stream *stream)
{
    if (bt_stream_unsent(stream) > 0) {
        (void)(send_out(stream) && send_borrowed(stream));
    }
    shut_if_wanted(stream);
    if (stream->wants_room &&
        bt_stream_unsent(stream) <= stream->high_water / 2) {
        stream->wants_room = false;
        stream->events->on_room(stream->owner);
        if (is_dead(stream)) {
            return;
        }
    }
    if (stream->wants_flushed && bt_stream_unsent(stream) == 0) {
        stream->wants_flushed = false;
        stream->events->on_flushed(stream->owner);
    }
}

/* ---- receiving ---- */

static void tell_eof(struct bt_stream *stream)
{
    if (stream->is_eof_read) {
        return;
    }
    stream->is_eof_read = true;
    stream->events->on_eof(stream->owner);
}

/* One recv, into the fill and behind it the scratch. */
static ssize_t receive(struct bt_stream *stream, char *scratch, size_t *room_p)
{
    struct iovec iov[2] = {{stream->fill, stream->fill_left},
                           {scratch, BT_LOOP_SCRATCH}};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t got;

    *room_p = stream->fill_left + BT_LOOP_SCRATCH;
    do {
        got = stream->fill_left > 0
                  ? recvmsg(stream->fd, &message, 0)
                  : recv(stream->fd, scratch, BT_LOOP_SCRATCH, 0);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Hands on what was read. */
static void deliver(struct bt_stream *stream, const char *scratch, size_t len)
{
    if (stream->fill_left > 0) {
        const size_t filled = len < stream->fill_left ? len : stream->fill_left;
        const struct bt_str bytes = bt_str_span(stream->fill, filled);

        stream->fill_left -= filled;
        stream->fill = stream->fill_left > 0 ? stream->fill + filled : NULL;
        len -= filled;
        stream->events->on_filled(stream->owner, bytes);
        if (len == 0 || is_dead(stream)) {
            return;
        }
    }
    stream->events->on_bytes(stream->owner, bt_str_span(scratch, len));
}

/* recv gave nothing: the end, nothing now, or an error. */
static void read_ended(struct bt_stream *stream, ssize_t got)
{
    const int error = got < 0 ? errno : 0;

    stream->is_readable = false;
    if (got == 0) {
        tell_eof(stream);
        if (!is_dead(stream) && stream->is_write_broken) {
            fail_now(stream, BT_ERR_RESET, stream->failure_errno);
        }
        return;
    }
    if (error == EAGAIN && !stream->is_write_broken) {
        return;
    }
    if (error == EAGAIN) {
        fail_now(stream, status_of_errno(stream->failure_errno),
                 stream->failure_errno);
        return;
    }
    fail_now(stream, status_of_errno(error), error);
}

static void read_some(struct bt_stream *stream)
{
    char *scratch = bt_loop_scratch(stream->loop);

    for (int i = 0; i < READS_A_TURN; i++) {
        size_t room;
        ssize_t got;

        if (is_dead(stream) || stream->is_paused || !stream->is_readable) {
            return;
        }
        got = receive(stream, scratch, &room);
        if (got <= 0) {
            read_ended(stream, got);
            return;
        }
        stream->read_ms = bt_loop_now_ms(stream->loop);
        if ((size_t)got < room && !stream->is_peer_shut &&
            !stream->is_write_broken) {
            stream->is_readable = false;
            bt_timer_set(&stream->look, LOOK_MS);
        }
        deliver(stream, scratch, (size_t)got);
    }
    if (!is_dead(stream) && stream->is_readable && !stream->is_paused) {
        bt_loop_defer(stream->loop, &stream->later);
    }
}

/* ---- events ---- */

static int socket_error(int fd)
{
    int error = 0;
    socklen_t len = sizeof(error);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) {
        return errno;
    }
    return error;
}

static void connect_done(struct bt_stream *stream)
{
    const int error = socket_error(stream->fd);

    if (error != 0) {
        fail_now(stream, status_of_errno(error), error);
        return;
    }
    stream->is_connecting = false;
    stream->sent_ms = bt_loop_now_ms(stream->loop);
    stream->events->on_connected(stream->owner);
}

static void tell_early_eof(struct bt_stream *stream)
{
    if (!stream->is_eof_told && !stream->is_eof_read) {
        stream->is_eof_told = true;
        stream->events->on_eof(stream->owner);
    }
}

/* While paused only a peer that left matters, and it matters at once. */
static void look_while_paused(struct bt_stream *stream, short what)
{
    int error;

    if ((what & EV_CLOSED) != 0) {
        tell_early_eof(stream);
        return;
    }
    if ((what & EV_WRITE) == 0 || stream->is_write_broken) {
        return;
    }
    error = socket_error(stream->fd);
    if (error != 0) {
        fail_now(stream, status_of_errno(error), error);
    }
}

static void on_look(struct bt_timer *timer)
{
    struct bt_stream *const stream =
        bt_container_of(timer, struct bt_stream, look);

    if (stream->is_paused) {
        look_while_paused(stream, EV_WRITE);
        return;
    }
    stream->is_readable = true;
    read_some(stream);
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    struct bt_stream *stream = arg;

    (void)fd;
    if (stream->is_connecting) {
        if ((what & EV_WRITE) == 0) {
            return;
        }
        connect_done(stream);
        if (is_dead(stream)) {
            return;
        }
    }
    if ((what & EV_CLOSED) != 0) {
        stream->is_peer_shut = true;
    }
    if ((what & (EV_READ | EV_CLOSED)) != 0) {
        stream->is_readable = true;
    }
    if (stream->is_connected_untold || stream->failure != BT_OK) {
        return; /* `later` tells first */
    }
    if ((what & EV_WRITE) != 0) {
        flush(stream);
    }
    if (is_dead(stream) || (what & (EV_READ | EV_CLOSED)) == 0) {
        return;
    }
    if (stream->is_paused) {
        look_while_paused(stream, what);
        return;
    }
    read_some(stream);
}

static void on_later(struct bt_deferred *deferred)
{
    struct bt_stream *stream =
        bt_container_of(deferred, struct bt_stream, later);

    if (stream->failure != BT_OK) {
        fail_now(stream, stream->failure, stream->failure_errno);
        return;
    }
    if (stream->is_connected_untold) {
        stream->is_connected_untold = false;
        stream->events->on_connected(stream->owner);
        if (is_dead(stream)) {
            return;
        }
        flush(stream);
    }
    if (!is_dead(stream) && stream->is_write_broken && stream->is_paused) {
        fail_now(stream, status_of_errno(stream->failure_errno),
                 stream->failure_errno);
    }
    if (!is_dead(stream) && stream->is_paused && stream->is_peer_shut) {
        tell_early_eof(stream);
    }
    read_some(stream);
}

/* ---- open and close ---- */

static struct bt_stream *stream_new(struct bt_loop *loop,
                                    const struct bt_stream_options *options,
                                    const struct bt_stream_events *events,
                                    void *owner)
{
    struct bt_stream *stream = calloc(1, sizeof(*stream));

    if (stream == NULL) {
        return NULL;
    }
    stream->loop = loop;
    stream->high_water = options->high_water;
    stream->events = events;
    stream->owner = owner;
    stream->later.on_run = on_later;
    bt_timer_init(&stream->look, loop, on_look);
    stream->sent_ms = bt_loop_now_ms(loop);
    stream->read_ms = stream->sent_ms;
    return stream;
}

static bool watch_fd(struct bt_stream *stream, int fd)
{
    const short what =
        (short)(EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST);

    stream->fd = fd;
    return event_assign(&stream->event, bt_loop_base(stream->loop), fd, what,
                        on_event, stream) == 0 &&
           event_add(&stream->event, NULL) == 0;
}

static void set_no_delay(int fd)
{
    const int on = 1;

    /* Fails on a unix socket, which has no delay. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void watch_peer(int fd)
{
    static const unsigned silent_ms = PEER_SILENT_MS;

    bt_keep_alive(fd, PEER_IDLE_S, PEER_INTERVAL_S, PEER_PROBES);
    /* Fails on a unix socket. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms,
                     sizeof(silent_ms));
}

enum bt_status bt_stream_open(struct bt_loop *loop, int fd,
                              const struct bt_stream_options *options,
                              const struct bt_stream_events *events,
                              void *owner, struct bt_stream **stream_p)
{
    struct bt_stream *stream = stream_new(loop, options, events, owner);

    if (stream == NULL) {
        (void)close(fd);
        return BT_ERR_NOMEM;
    }
    stream->peer.len = sizeof(stream->peer.sa);
    if (getpeername(fd, (struct sockaddr *)(void *)&stream->peer.sa,
                    &stream->peer.len) != 0) {
        stream->peer.len = 0; /* gone already: reading will tell */
    }
    set_no_delay(fd);
    if (!watch_fd(stream, fd)) {
        (void)close(fd);
        free(stream);
        return BT_ERR_SYSTEM;
    }
    *stream_p = stream;
    return BT_OK;
}

enum bt_status bt_stream_connect(struct bt_loop *loop,
                                 const struct bt_addr *addr,
                                 const struct bt_stream_options *options,
                                 const struct bt_stream_events *events,
                                 void *owner, struct bt_stream **stream_p)
{
    const int fd = socket(addr->sa.ss_family,
                          SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct bt_stream *stream;
    int error = 0;

    if (fd < 0) {
        return errno == EAFNOSUPPORT ? BT_ERR_UNSUPPORTED : BT_ERR_SYSTEM;
    }
    stream = stream_new(loop, options, events, owner);
    if (stream == NULL) {
        (void)close(fd);
        return BT_ERR_NOMEM;
    }
    set_no_delay(fd);
    watch_peer(fd);
    if (connect(fd, (const struct sockaddr *)(const void *)&addr->sa,
                addr->len) != 0) {
        error = errno;
    }
    stream->peer = *addr;
    if (!watch_fd(stream, fd)) {
        (void)close(fd);
        free(stream);
        return BT_ERR_SYSTEM;
    }
    stream->is_connecting = error == EINPROGRESS;
    stream->is_connected_untold = error == 0;
    if (error == 0) {
        bt_loop_defer(loop, &stream->later);
    } else if (error != EINPROGRESS) {
        /* A full backlog of a unix socket is EAGAIN: nobody takes us. */
        fail_later(stream,
                   error == EAGAIN ? BT_ERR_REFUSED : status_of_errno(error),
                   error);
    }
    *stream_p = stream;
    return BT_OK;
}

static void stream_destroy(struct bt_grave *grave)
{
    free(bt_container_of(grave, struct bt_stream, grave));
}

void bt_stream_close(struct bt_stream **stream_p)
{
    struct bt_stream *stream = *stream_p;

    if (stream == NULL) {
        return;
    }
    *stream_p = NULL;
    stream->is_closed = true;
    (void)event_del(&stream->event);
    bt_deferred_clear(&stream->later);
    bt_timer_clear(&stream->look);
    drop_unsent(stream);
    (void)close(stream->fd);
    bt_loop_bury(stream->loop, &stream->grave, stream_destroy);
}

void bt_stream_reset(struct bt_stream **stream_p)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    if (*stream_p == NULL) {
        return;
    }
    (void)setsockopt((*stream_p)->fd, SOL_SOCKET, SO_LINGER, &at_once,
                     sizeof(at_once));
    bt_stream_close(stream_p);
}

void bt_stream_adopt(struct bt_stream *stream,
                     const struct bt_stream_events *events, void *owner)
{
    stream->events = events;
    stream->owner = owner;
}

/* ---- what the owner does ---- */

static bool can_send_now(const struct bt_stream *stream)
{
    return !stream->is_connecting && !stream->is_connected_untold &&
           stream->out.len == 0 && stream->borrowed_len == 0;
}

static bool cannot_send(const struct bt_stream *stream)
{
    return is_dead(stream) || stream->is_write_broken ||
           stream->is_write_shut || stream->failure != BT_OK;
}

/* Keeps what lies behind the first `sent` bytes. */
static void keep_rest(struct bt_stream *stream, const struct iovec *iov,
                      int count, size_t sent)
{
    for (int i = 0; i < count; i++) {
        const size_t skip = sent < iov[i].iov_len ? sent : iov[i].iov_len;

        sent -= skip;
        bt_buf_append(&stream->out,
                      bt_str_span((const char *)iov[i].iov_base + skip,
                                  iov[i].iov_len - skip));
    }
    stream->wants_flushed = true;
    if (stream->out.failed) {
        fail_later(stream, BT_ERR_NOMEM, ENOMEM);
    }
}

/* At most MAX_IOV of them: what lies behind would wait for an edge that never
 * comes. */
static enum bt_status write_batch(struct bt_stream *stream,
                                  const struct iovec *iov, int count)
{
    size_t sent = 0;

    if (cannot_send(stream)) {
        return BT_OK;
    }
    if (can_send_now(stream)) {
        struct msghdr message = {.msg_iov = NULL};
        ssize_t taken;

        memcpy(&message.msg_iov, &iov, sizeof(iov)); /* sendmsg only reads */
        message.msg_iovlen = (size_t)count;
        do {
            taken = sendmsg(stream->fd, &message, MSG_NOSIGNAL);
        } while (taken < 0 && errno == EINTR);
        if (taken < 0 && errno != EAGAIN) {
            write_broke(stream, errno);
            return BT_OK;
        }
        stream->sent_ms = bt_loop_now_ms(stream->loop);
        sent = taken < 0 ? 0 : (size_t)taken;
        if (sent == iov_len(iov, count)) {
            return BT_OK;
        }
    }
    keep_rest(stream, iov, count, sent);
    if (bt_stream_unsent(stream) <= stream->high_water) {
        return BT_OK;
    }
    stream->wants_room = true;
    return BT_AGAIN;
}

enum bt_status bt_stream_writev(struct bt_stream *stream,
                                const struct iovec *iov, int count)
{
    while (count > MAX_IOV) {
        (void)write_batch(stream, iov, MAX_IOV);
        iov += MAX_IOV;
        count -= MAX_IOV;
    }
    return write_batch(stream, iov, count);
}

enum bt_status bt_stream_write(struct bt_stream *stream, struct bt_str bytes)
{
    struct iovec iov = {NULL, bytes.len};

    memcpy(&iov.iov_base, &bytes.ptr, sizeof(bytes.ptr)); /* only read */
    return bt_stream_writev(stream, &iov, 1);
}

bool bt_stream_send_borrowed(struct bt_stream *stream, struct iovec *iov,
                             int count)
{
    const bool can_send = can_send_now(stream);

    if (cannot_send(stream)) {
        return false;
    }
    stream->borrowed = iov;
    stream->borrowed_count = count;
    stream->borrowed_len = iov_len(iov, count);
    if (can_send) {
        stream->sent_ms = bt_loop_now_ms(stream->loop);
        if (send_borrowed(stream)) {
            return true;
        }
        if (stream->is_write_broken) {
            return false;
        }
    }
    stream->wants_flushed = true;
    return false;
}

size_t bt_stream_unsent(const struct bt_stream *stream)
{
    return stream->out.len + stream->borrowed_len;
}

uint64_t bt_stream_stalled_ms(const struct bt_stream *stream)
{
    if (bt_stream_unsent(stream) == 0) {
        return 0;
    }
    return bt_loop_now_ms(stream->loop) - stream->sent_ms;
}

void bt_stream_look(struct bt_stream *stream)
{
    int queued = 0;

    if (ioctl(stream->fd, SIOCOUTQ, &queued) == 0 && queued != stream->queued) {
        stream->queued = queued;
        stream->sent_ms = bt_loop_now_ms(stream->loop);
    }
}

uint64_t bt_stream_quiet_ms(const struct bt_stream *stream)
{
    return bt_loop_now_ms(stream->loop) - stream->read_ms;
}

void bt_stream_drop_unsent(struct bt_stream *stream)
{
    drop_unsent(stream);
}

void bt_stream_read_into(struct bt_stream *stream, char *dst, size_t size)
{
    stream->fill = dst;
    stream->fill_left = size;
}

void bt_stream_pause(struct bt_stream *stream)
{
    stream->is_paused = true;
    if (stream->is_peer_shut && !is_dead(stream)) {
        bt_loop_defer(stream->loop, &stream->later); /* its edge is past */
    }
}

void bt_stream_resume(struct bt_stream *stream)
{
    if (!stream->is_paused) {
        return;
    }
    stream->is_paused = false;
    if (stream->is_readable && !is_dead(stream)) {
        bt_loop_defer(stream->loop, &stream->later);
    }
}

void bt_stream_shut_write(struct bt_stream *stream)
{
    if (is_dead(stream)) {
        return;
    }
    stream->wants_shut = true;
    shut_if_wanted(stream);
}

bool bt_stream_is_readable(struct bt_stream *stream)
{
    char byte;
    const ssize_t got = recv(stream->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return got >= 0 || errno != EAGAIN;
}

const struct bt_addr *bt_stream_peer(const struct bt_stream *stream)
{
    return &stream->peer;
}
