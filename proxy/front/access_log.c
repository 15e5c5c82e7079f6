/*
 * access_log: the lines' fields, and writing that does not wait.
 *
 *   pipe     opened anew, non-blocking, for the flag belongs to whoever shares
 *            stdout with us; pieces of whole lines up to PIPE_BUF, which the
 *            kernel takes whole or not at all: workers share the pipe
 *   socket   the same pieces, sent with MSG_DONTWAIT
 *   file     appended; where a full disk took half a line, the next one to be
 *            written, by any worker, begins a new line
 */
#include "proxy/front/access_log.h"

#include "common/base/log.h"
#include "common/json/json_write.h"
#include "proxy/exchange/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_MAX (1 * BT_MIB)

struct access_log {
    struct bt_loop *loop;
    struct bt_metrics *metrics;
    int fd;
    atomic_bool *is_torn; /* the file ends within a line */
    bool is_pipe;
    bool is_socket;
    bool is_due; /* a flush is buried for the end of this turn */
    struct bt_grave grave;
    struct bt_buf lines;
    time_t second; /* of the formatted time */
    char time_text[32];
};

/* Stdout, or where it is a pipe a description of our own for it. */
static int open_stdout(void)
{
    struct stat info;
    int fd = -1;

    if (fstat(STDOUT_FILENO, &info) == 0 && S_ISFIFO(info.st_mode)) {
        fd = open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    }
    return fd >= 0 ? fd : STDOUT_FILENO;
}

enum bt_status access_log_target(const char *text, int *fd_p)
{
    int fd;

    if (text == NULL || strcmp(text, "off") == 0) {
        *fd_p = -1;
        return BT_OK;
    }
    if (strcmp(text, "stdout") == 0) {
        *fd_p = open_stdout();
        return BT_OK;
    }
    /* Non-blocking for a named pipe; a file does not heed it. */
    fd = open(text, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK,
              0640);
    if (fd < 0) {
        bt_log(BT_LOG_ERROR, text, "access log cannot be opened: %s",
               errno == ENXIO ? "nobody reads the pipe"
                              : strerrordesc_np(errno));
        return BT_ERR_SYSTEM;
    }
    *fd_p = fd;
    return BT_OK;
}

enum bt_status access_log_open(struct bt_loop *loop, int fd,
                               atomic_bool *is_torn, struct bt_metrics *metrics,
                               struct access_log **log_p)
{
    struct access_log *const log = calloc(1, sizeof(*log));
    struct stat info;

    if (log == NULL) {
        return BT_ERR_NOMEM;
    }
    log->loop = loop;
    log->metrics = metrics;
    log->fd = fd;
    log->is_torn = is_torn;
    if (fd >= 0 && fstat(fd, &info) == 0) {
        log->is_pipe = S_ISFIFO(info.st_mode);
        log->is_socket = S_ISSOCK(info.st_mode);
    }
    *log_p = log;
    return BT_OK;
}

bool access_log_is_off(const struct access_log *log)
{
    return log->fd < 0;
}

/* Whole lines that a pipe or a socket takes at once; a longer one is a piece by
 * itself. */
static size_t piece_of(struct bt_str text)
{
    const char *end;

    if (text.len <= PIPE_BUF) {
        return text.len;
    }
    end = memrchr(text.ptr, '\n', PIPE_BUF);
    if (end == NULL) {
        end = memchr(text.ptr, '\n', text.len);
    }
    return end == NULL ? text.len : (size_t)(end - text.ptr) + 1;
}

static ssize_t write_some(const struct access_log *log, struct bt_str text)
{
    if (log->is_socket) {
        return send(log->fd, text.ptr, piece_of(text),
                    MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return write(log->fd, text.ptr, log->is_pipe ? piece_of(text) : text.len);
}

static void drop_lines(struct access_log *log)
{
    const struct bt_str text = bt_buf_str(&log->lines);
    int64_t count = 0;

    for (size_t i = 0; i < text.len; i++) {
        count += text.ptr[i] == '\n' ? 1 : 0;
    }
    bt_buf_clear(&log->lines);
    stats_add(log->metrics, STAT_LOG_DROPPED, count);
}

/* Ends the line that a full disk cut. False: it is full still. */
static bool mend_torn(const struct access_log *log)
{
    if (!atomic_load_explicit(log->is_torn, memory_order_relaxed) ||
        !atomic_exchange(log->is_torn, false)) {
        return true;
    }
    if (write(log->fd, "\n", 1) == 1) {
        return true;
    }
    atomic_store(log->is_torn, true);
    return false;
}

static void write_lines(struct access_log *log)
{
    bool is_inside = false; /* a line */

    if (log->lines.len > 0 && !mend_torn(log)) {
        drop_lines(log);
    }
    while (log->lines.len > 0) {
        const struct bt_str text = bt_buf_str(&log->lines);
        const ssize_t done = write_some(log, text);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0 && errno == EAGAIN) {
            return; /* kept for the next turn that has a line */
        }
        if (done <= 0) {
            break;
        }
        is_inside = text.ptr[done - 1] != '\n';
        bt_buf_consume(&log->lines, (size_t)done);
    }
    if (log->lines.len == 0) {
        return;
    }
    if (is_inside) {
        atomic_store(log->is_torn, true);
    }
    drop_lines(log);
}

static void on_turn_over(struct bt_grave *grave)
{
    struct access_log *const log =
        bt_container_of(grave, struct access_log, grave);

    log->is_due = false;
    write_lines(log);
}

static void destroy(struct bt_grave *grave)
{
    free(bt_container_of(grave, struct access_log, grave));
}

void access_log_close(struct access_log **log)
{
    struct access_log *const dead = *log;

    if (dead == NULL) {
        return;
    }
    *log = NULL;
    write_lines(dead);
    bt_buf_fini(&dead->lines);
    if (dead->is_due) {
        dead->grave.destroy = destroy;
    } else {
        free(dead);
    }
}

static bool begin_line(struct access_log *log)
{
    if (log == NULL || log->fd < 0) {
        return false;
    }
    if (log->lines.len > BUFFER_MAX) {
        stats_add(log->metrics, STAT_LOG_DROPPED, 1);
        return false;
    }
    return true;
}

static void put_time(struct access_log *log)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != log->second) {
        struct tm parts;

        log->second = now.tv_sec;
        (void)gmtime_r(&now.tv_sec, &parts);
        (void)strftime(log->time_text, sizeof(log->time_text),
                       "%Y-%m-%dT%H:%M:%S", &parts);
    }
    bt_buf_printf(&log->lines, "{\"time\":\"%s.%03dZ\"", log->time_text,
                  (int)(now.tv_nsec / 1000000));
}

static void put_name(struct access_log *log, const char *name)
{
    bt_buf_append(&log->lines, BT_STR(",\""));
    bt_buf_append(&log->lines, bt_str_of(name));
    bt_buf_append(&log->lines, BT_STR("\":"));
}

static void put_text(struct access_log *log, const char *name,
                     struct bt_str text)
{
    const size_t max = 256; /* what a client sends is cut, not trusted */

    put_name(log, name);
    if (text.len > max) {
        text.len = max;
    }
    bt_buf_append_json(&log->lines, text);
}

static void put_number(struct access_log *log, const char *name, uint64_t value)
{
    char digits[BT_U64_DIGITS];

    put_name(log, name);
    bt_buf_append(&log->lines, bt_str_of_u64(value, digits));
}

static void end_line(struct access_log *log)
{
    bt_buf_append(&log->lines, BT_STR("}\n"));
    if (log->lines.failed) {
        bt_buf_fini(&log->lines);
        stats_add(log->metrics, STAT_LOG_DROPPED, 1);
        return;
    }
    if (!log->is_due) {
        log->is_due = true;
        bt_loop_bury(log->loop, &log->grave, on_turn_over);
    }
}

static void put_engine(struct access_log *log, const char *name,
                       const struct engine *engine)
{
    if (engine != NULL) {
        put_text(log, name, bt_str_of(engine->url.normal));
    }
}

static uint64_t span_us(uint64_t from, uint64_t to)
{
    return from != 0 && to > from ? to - from : 0;
}

static void put_stages(struct access_log *log, const struct exchange *x,
                       uint64_t end_us)
{
    put_number(log, "queue_us", x->queued_us);
    if (x->prefill.number > 0) {
        put_number(log, "prefill_us", x->prefill_us);
    }
    if (x->decode.number > 0) {
        put_number(log, "decode_first_us",
                   span_us(x->decode.begun_us, x->decode.first_us));
    }
    if (x->pull != NULL) {
        put_number(log, "pull_wait_us", x->pull->wait_us);
        put_number(log, "pull_read_us", x->pull->read_us);
        put_number(log, "pull_proof_us", x->pull->proof_us);
        put_number(log, "pull_bytes", x->pull->bytes);
        put_number(log, "pull_blocks", x->pull->blocks);
        put_number(log, "pull_runs", x->pull->runs);
        put_text(log, "provider", bt_str_of(x->pull->provider));
        if (x->pull->reason[0] != '\0') {
            put_text(log, "pull_failed", bt_str_of(x->pull->reason));
        }
    }
    put_number(log, "ttft_us", x->ttft_us);
    put_number(log, "total_us", span_us(x->start_us, end_us));
}

void access_log_exchange(struct access_log *log, const struct exchange *x,
                         uint64_t end_us)
{
    const struct bt_str path =
        bt_str_span(x->target.ptr, bt_str_find(x->target, BT_STR("?")));

    if (!begin_line(log)) {
        return;
    }
    put_time(log);
    put_text(log, "id",
             x->headers.request_id.len > 0 ? x->headers.request_id
                                           : bt_str_of(x->inner_id));
    put_text(log, "inner_id", bt_str_of(x->inner_id));
    put_text(log, "client", x->peer);
    put_text(log, "method", BT_STR("POST"));
    put_text(log, "path", path);
    put_text(log, "model", x->request.model);
    put_number(log, "code", x->code);
    if (x->attempt.pool != NULL) {
        put_text(log, "route",
                 bt_str_of(route_reason_names[x->attempt.reason]));
    }
    put_engine(log, "prefill",
               x->prefill.number > 0 ? x->prefill.engine : NULL);
    put_engine(log, "decode", x->decode.number > 0 ? x->decode.engine : NULL);
    put_number(log, "prefill_attempts", x->prefill.number);
    put_number(log, "decode_attempts", x->decode.number);
    put_number(log, "bytes_in", x->bytes_in);
    put_number(log, "bytes_out", x->relay.bytes_out);
    if (x->fault != FAULT_NONE) {
        put_text(log, "fault", bt_str_of(fault_names[x->fault]));
    }
    if (x->handoff.lo != 0) {
        put_text(log, "handoff", bt_str_of(x->handoff_text));
    }
    put_stages(log, x, end_us);
    end_line(log);
}

void access_log_refusal(struct access_log *log,
                        const struct access_refusal *refusal)
{
    if (!begin_line(log)) {
        return;
    }
    put_time(log);
    put_text(log, "id", refusal->request_id);
    put_text(log, "client", bt_str_of(refusal->peer));
    put_text(log, "method", refusal->method);
    put_text(log, "path", refusal->path);
    put_number(log, "code", refusal->code);
    if (refusal->fault != FAULT_NONE) {
        put_text(log, "fault", bt_str_of(fault_names[refusal->fault]));
    }
    end_line(log);
}
