/*
 * Owns the process' log level. A line is made on the caller's stack and goes
 * out in one write(2), so that threads (and processes on one pipe) do not mix
 * their lines; it is at most PIPE_BUF long, for the same reason.
 */
#include "common/base/log.h"

#include "common/base/str.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096
#define TEXT_MAX_BYTES 3072

static _Atomic int current_level = BT_LOG_INFO;

/* Between looking whether stderr takes a line and writing it, nobody else may
 * fill it. */
static pthread_mutex_t stderr_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long lines_lost; /* under the lock */

static const char *const LEVEL_NAMES[] = {
    [BT_LOG_ERROR] = "error", [BT_LOG_WARN] = "warn",   [BT_LOG_INFO] = "info",
    [BT_LOG_DEBUG] = "debug", [BT_LOG_TRACE] = "trace",
};

/* A line being made; what does not fit is left out and marked. */
struct line {
    char bytes[LINE_MAX_BYTES];
    size_t len;
    bool is_cut;
};

/* Behind the text there is always room for the mark and the line feed. */
static const char CUT_MARK[] = "...";
#define LINE_ROOM (LINE_MAX_BYTES - sizeof(CUT_MARK))

void bt_log_set_level(enum bt_log_level level)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

enum bt_log_level bt_log_level(void)
{
    return (enum bt_log_level)atomic_load_explicit(&current_level,
                                                   memory_order_relaxed);
}

static void put_raw(struct line *line, const char *bytes, size_t len)
{
    if (line->is_cut || len > LINE_ROOM - line->len) {
        line->is_cut = true;
        return;
    }
    memcpy(line->bytes + line->len, bytes, len);
    line->len += len;
}

/* Control bytes become \n, \r, \t or \xNN. */
static void put_escaped_byte(struct line *line, char byte)
{
    const unsigned char c = (unsigned char)byte;
    const char hex[4] = {'\\', 'x', BT_HEX_DIGITS[c >> 4],
                         BT_HEX_DIGITS[c & 15]};

    if (c == '\n') {
        put_raw(line, "\\n", 2);
    } else if (c == '\r') {
        put_raw(line, "\\r", 2);
    } else if (c == '\t') {
        put_raw(line, "\\t", 2);
    } else if (c < 0x20 || c == 0x7f) {
        put_raw(line, hex, sizeof(hex));
    } else {
        put_raw(line, &byte, 1);
    }
}

static void put_escaped(struct line *line, const char *text)
{
    for (; *text != '\0' && !line->is_cut; text++) {
        put_escaped_byte(line, *text);
    }
}

static void put_head(struct line *line, enum bt_log_level level,
                     const char *object)
{
    struct timespec now = {0};
    struct tm tm = {0};
    char head[64];
    int len;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &tm);
    len = (int)strftime(head, sizeof(head), "%Y-%m-%dT%H:%M:%S", &tm);
    put_raw(line, head, (size_t)len);
    len = snprintf(head, sizeof(head), ".%03dZ %s ",
                   (int)(now.tv_nsec / 1000000), LEVEL_NAMES[level]);
    put_raw(line, head, len < 0 ? 0 : (size_t)len);
    if (object != NULL) {
        put_raw(line, "[", 1);
        put_escaped(line, object);
        put_raw(line, "] ", 2);
    }
}

/* A pipe that polls writable takes PIPE_BUF bytes without waiting. */
static bool takes_a_line(void)
{
    struct pollfd entry = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&entry, 1, 0) != 0;
}

static void write_whole(const char *bytes, size_t len)
{
    /* Nobody can be told that writing a log line failed. */
    while (write(STDERR_FILENO, bytes, len) < 0 && errno == EINTR) {
    }
}

static void tell_lost(void)
{
    char text[64];
    const int len =
        snprintf(text, sizeof(text), "%lu log lines were lost\n", lines_lost);

    if (len > 0) {
        lines_lost = 0;
        write_whole(text, (size_t)len);
    }
}

static void line_write(struct line *line)
{
    if (line->is_cut) {
        memcpy(line->bytes + line->len, CUT_MARK, sizeof(CUT_MARK) - 1);
        line->len += sizeof(CUT_MARK) - 1;
    }
    line->bytes[line->len++] = '\n';
    (void)pthread_mutex_lock(&stderr_lock);
    if (lines_lost > 0 && takes_a_line()) {
        tell_lost();
    }
    if (takes_a_line()) {
        write_whole(line->bytes, line->len);
    } else {
        lines_lost++;
    }
    (void)pthread_mutex_unlock(&stderr_lock);
}

static void BT_PRINTF(3, 0)
    write_args(enum bt_log_level level, const char *object, const char *format,
               va_list args)
{
    const int saved = errno;
    char text[TEXT_MAX_BYTES];
    struct line line;
    int len;

    line.len = 0;
    line.is_cut = false;
    len = vsnprintf(text, sizeof(text), format, args);
    put_head(&line, level, object);
    if (len >= 0) {
        put_escaped(&line, text);
        line.is_cut = line.is_cut || (size_t)len >= sizeof(text);
    }
    line_write(&line);
    errno = saved;
}

void bt_log_write(enum bt_log_level level, const char *object,
                  const char *format, ...)
{
    va_list args;

    va_start(args, format);
    write_args(level, object, format, args);
    va_end(args);
}

/* --- limits --- */

/* Where a limited line comes from: its format is its name. */
struct site {
    const char *format;
    time_t second;
    unsigned lines, left_out;
};

#define SITES 64u /* more than there are; what is beyond has no limit */

static pthread_mutex_t sites_lock = PTHREAD_MUTEX_INITIALIZER;
static struct site sites[SITES]; /* under the lock */

/* Under the lock. NULL: the table is full. */
static struct site *site_of(const char *format)
{
    for (size_t i = 0; i < SITES; i++) {
        if (sites[i].format == NULL) {
            sites[i].format = format;
        }
        if (sites[i].format == format) {
            return &sites[i];
        }
    }
    return NULL;
}

/* May this line be written? Then also how many before it were not. */
static bool site_takes(const char *format, unsigned *left_out_p)
{
    struct timespec now = {0};
    struct site *site;
    bool takes = true;

    *left_out_p = 0;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    (void)pthread_mutex_lock(&sites_lock);
    site = site_of(format);
    if (site != NULL && site->second != now.tv_sec) {
        site->second = now.tv_sec;
        site->lines = 0;
    }
    if (site != NULL && site->lines >= BT_LOG_SITE_LINES) {
        site->left_out++;
        takes = false;
    } else if (site != NULL) {
        site->lines++;
        *left_out_p = site->left_out;
        site->left_out = 0;
    }
    (void)pthread_mutex_unlock(&sites_lock);
    return takes;
}

void bt_log_limited(enum bt_log_level level, const char *object,
                    const char *format, ...)
{
    unsigned left_out;
    va_list args;

    if (level > bt_log_level() || !site_takes(format, &left_out)) {
        return;
    }
    if (left_out > 0) {
        bt_log_write(level, NULL, "%u lines like the next one were left out",
                     left_out);
    }
    va_start(args, format);
    write_args(level, object, format, args);
    va_end(args);
}
