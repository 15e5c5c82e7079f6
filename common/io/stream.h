/*
 * One socket: bytes in, bytes out, water marks, close. It knows no protocol.
 *
 *    owner  -- write/pause/close -->  stream  -- recv/send -->  kernel
 *    owner  <-- struct bt_stream_events --  stream
 *
 * One registration for the connection's life: EV_READ, EV_WRITE and EV_CLOSED
 * (EPOLLRDHUP), edge-triggered. So pausing, resuming and a full send buffer
 * cost no system call, and a peer that leaves is always seen, paused or not.
 * (EV_CLOSED alone would not do: libevent tells a reset as EV_READ|EV_WRITE.)
 * Bytes are read into a per-loop 64 KiB scratch and handed on. Writes go to
 * the kernel at once, and only the unsent rest is kept (copied, or borrowed
 * with send_borrowed). At most 16 reads a connection and turn.
 */
#ifndef COMMON_IO_STREAM_H
#define COMMON_IO_STREAM_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/status.h"
#include "common/io/loop.h"
#include "common/io/net.h"

#include <sys/uio.h>

struct bt_stream;

/* What comes up. The owner may close the stream inside any of them. */
struct bt_stream_events {
    void (*on_connected)(void *owner); /* a stream from bt_stream_connect */
    void (*on_bytes)(void *owner, struct bt_str bytes); /* valid until return */
    /* Bytes asked for with bt_stream_read_into are in their place. */
    void (*on_filled)(void *owner, struct bt_str bytes);
    /*
     * The peer closed its half (FIN). While reading is paused this comes
     * early, with bytes perhaps still unread: they come after resume, and
     * then on_eof once more.
     */
    void (*on_eof)(void *owner);
    /* Unsent bytes fell to half of high water or below after BT_AGAIN. */
    void (*on_room)(void *owner);
    /* Nothing is unsent any more (after a write that was not taken whole). */
    void (*on_flushed)(void *owner);
    /* The connection is lost; nothing else is called afterwards. */
    void (*on_failed)(void *owner, enum bt_status status, int error);
};

struct bt_stream_options {
    size_t high_water; /* unsent bytes above which write says BT_AGAIN */
};

/* Takes over an accepted, non-blocking fd (closed on failure too). */
BT_MUST_CHECK enum bt_status bt_stream_open(
    struct bt_loop *loop, int fd, const struct bt_stream_options *options,
    const struct bt_stream_events *events, void *owner,
    struct bt_stream **stream_p);
/*
 * Starts connecting; on_connected or on_failed follows, never from inside. A
 * peer that vanishes is found out (TCP keep-alive, 25 s). BT_ERR_UNSUPPORTED:
 * this machine has no such family; BT_ERR_SYSTEM: no descriptor.
 */
BT_MUST_CHECK enum bt_status bt_stream_connect(
    struct bt_loop *loop, const struct bt_addr *addr,
    const struct bt_stream_options *options,
    const struct bt_stream_events *events, void *owner,
    struct bt_stream **stream_p);
/* Closes the fd now and buries the rest. NULL is fine; nulls the pointer. */
void bt_stream_close(struct bt_stream **stream);
/* As close, but the peer gets a reset (SO_LINGER 0). */
void bt_stream_reset(struct bt_stream **stream);

/* Gives the stream to another owner (a pooled or upgraded connection). */
void bt_stream_adopt(struct bt_stream *stream,
                     const struct bt_stream_events *events, void *owner);

/*
 * Sends, in order. Everything is accepted in any case; BT_AGAIN says that more
 * than high_water is unsent now: stop until on_room. A lost connection is told
 * by on_failed only (then BT_OK).
 */
enum bt_status bt_stream_writev(struct bt_stream *stream,
                                const struct iovec *iov, int count);
enum bt_status bt_stream_write(struct bt_stream *stream, struct bt_str bytes);
/*
 * Sends without copying: the iovec array and its bytes must stay as they are
 * until on_flushed, on_failed or close. Nothing else may be written meanwhile.
 * True when everything was handed to the kernel at once (no on_flushed then).
 */
bool bt_stream_send_borrowed(struct bt_stream *stream, struct iovec *iov,
                             int count);
size_t bt_stream_unsent(const struct bt_stream *stream);
/*
 * Milliseconds (loop time) since bytes last went out while some are unsent:
 * to the kernel or, as far as bt_stream_look was asked, to the peer. The
 * kernel's buffer is large: a slow reader may take from it for minutes before
 * it has room for more.
 */
uint64_t bt_stream_stalled_ms(const struct bt_stream *stream);
/* Did the peer take anything since the last look? The first look says yes. */
void bt_stream_look(struct bt_stream *stream);

/* Milliseconds (loop time) since bytes last came in. */
uint64_t bt_stream_quiet_ms(const struct bt_stream *stream);
/* Forgets what is unsent, also what is borrowed; no on_flushed for it. */
void bt_stream_drop_unsent(struct bt_stream *stream);

/* The next `size` bytes go straight to `dst`, each piece with on_filled. */
void bt_stream_read_into(struct bt_stream *stream, char *dst, size_t size);
void bt_stream_pause(struct bt_stream *stream);      /* reading */
void bt_stream_resume(struct bt_stream *stream);     /* reading */
void bt_stream_shut_write(struct bt_stream *stream); /* after what is unsent */
/* Is something readable (bytes or FIN) right now? One MSG_PEEK. */
bool bt_stream_is_readable(struct bt_stream *stream);

const struct bt_addr *bt_stream_peer(const struct bt_stream *stream);

#endif
