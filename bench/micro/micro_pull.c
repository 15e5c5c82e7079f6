/*
 * micro-pull: what a pull by the agent costs beside the raw thing that it is
 * made of, in one run.
 *
 *     for each block size: fork a target; for each round, in turn:
 *       memcpy            within the reader
 *       process_vm_readv  all blocks in one call      <- pull over cma
 *       fi_read           the tcp provider, raw       <- pull over tcp
 *
 * 64 blocks each, contiguous (one run) and scattered. Every way is checked
 * byte for byte once; rounds are interleaved, so that the machine's other
 * work falls on all alike.
 */
#include "bench/micro/pull_case.h"
#include "common/conf/conf_rows.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 100
#define SIZES_MAX  16
#define WAIT_MS    60000

enum pull_way {
    WAY_MEMCPY,
    WAY_READV,
    WAY_PULL_CMA,
    WAY_FI_READ,
    WAY_PULL_TCP,
};
#define WAYS 5

static const char *const way_names[WAYS] = {"memcpy", "process_vm_readv",
                                            "pull cma", "fi_read", "pull tcp"};

struct pull_options {
    int64_t rounds;
    struct bt_conf_strings sizes;
    uint64_t bytes;
    int64_t min_ratio;
    bool check;
    char *json;
};

struct samples {
    double gb_s[ROUNDS_MAX];
    size_t count;
};

struct cell {
    size_t block_bytes;
    enum pull_order order;
    struct samples ways[WAYS];
};

struct child {
    struct pull_sheet *sheet; /* shared */
    pid_t pid;
    int fd;
};

struct pull_reader {
    const struct pull_sheet *sheet;
    char *memory;
    char *source; /* of memcpy; as the target's */
    baton_agent *agents[PULL_PROVIDERS];
    struct raw_fabric *raw;
    uint32_t target_ids[PULL_BLOCKS];
    uint32_t reader_ids[PULL_BLOCKS];
    struct raw_span spans[PULL_BLOCKS]; /* merged where they touch */
    size_t span_count;
    enum pull_order order;
    uint64_t tag;
    char why[160];
};

struct pull_bench {
    struct pull_options options;
    size_t sizes[SIZES_MAX];
    size_t size_count;
    struct child children[SIZES_MAX];
    struct cell *cells;
    size_t cell_count;
    char provider[32];
};

/* --- one way of reading --- */

static void plan_spans(struct pull_reader *reader, enum pull_order order)
{
    const size_t size = reader->sheet->block_bytes;

    reader->order = order;
    reader->span_count = 0;
    pull_ids(order, true, reader->target_ids);
    pull_ids(order, false, reader->reader_ids);
    for (size_t i = 0; i < PULL_BLOCKS; i++) {
        const uint64_t local = reader->reader_ids[i] * (uint64_t)size;
        const uint64_t remote = reader->target_ids[i] * (uint64_t)size;
        struct raw_span *last =
            i == 0 ? NULL : &reader->spans[reader->span_count - 1];

        if (last != NULL && last->local + last->length == local &&
            last->remote + last->length == remote) {
            last->length += size;
            continue;
        }
        reader->spans[reader->span_count++] =
            (struct raw_span){local, remote, size};
    }
}

static bool read_memcpy(struct pull_reader *reader)
{
    for (size_t i = 0; i < reader->span_count; i++) {
        const struct raw_span *span = &reader->spans[i];
        memcpy(reader->memory + span->local, reader->source + span->remote,
               span->length);
    }
    return true;
}

/* The pointer of another process that an address is. */
static void *foreign(uint64_t address)
{
    void *pointer;

    memcpy(&pointer, &address, sizeof(pointer));
    return pointer;
}

static bool read_readv(struct pull_reader *reader)
{
    struct iovec local[PULL_BLOCKS];
    struct iovec remote[PULL_BLOCKS];
    ssize_t wanted = 0;

    for (size_t i = 0; i < reader->span_count; i++) {
        const struct raw_span *span = &reader->spans[i];
        const uint64_t at = reader->sheet->memory_at + span->remote;
        local[i] = (struct iovec){reader->memory + span->local, span->length};
        remote[i] = (struct iovec){foreign(at), span->length};
        wanted += (ssize_t)span->length;
    }
    if (process_vm_readv(reader->sheet->pid, local, reader->span_count, remote,
                         reader->span_count, 0) != wanted) {
        (void)snprintf(reader->why, sizeof(reader->why),
                       "process_vm_readv is not allowed or fell short");
        return false;
    }
    return true;
}

static bool read_fabric(struct pull_reader *reader)
{
    if (!raw_fabric_read(reader->raw, reader->spans, reader->span_count)) {
        (void)snprintf(reader->why, sizeof(reader->why), "fi_read failed");
        return false;
    }
    return true;
}

/* The next event of the agent; false when none comes. */
static bool next_event(struct pull_reader *reader, baton_agent *agent,
                       baton_event *event)
{
    struct pollfd fd = {.fd = baton_agent_fd(agent), .events = POLLIN};

    while (baton_poll(agent, event, 1) == 0) {
        if (poll(&fd, 1, WAIT_MS) <= 0) {
            (void)snprintf(reader->why, sizeof(reader->why),
                           "no event of the agent came");
            return false;
        }
    }
    return true;
}

static bool read_pull(struct pull_reader *reader, enum pull_provider provider)
{
    const struct pull_text *params =
        &reader->sheet->params[provider][reader->order];
    const baton_blocks blocks = {reader->reader_ids, PULL_BLOCKS};
    const baton_pull_request request = {
        .size = sizeof(request),
        .handoff = pull_handoff(reader->order),
        .params = {params->text, params->length},
        .groups = &blocks,
        .group_count = 1,
        .tag = ++reader->tag,
    };
    baton_event event;
    const baton_status status = baton_pull(reader->agents[provider], &request);

    if (status != BATON_OK) {
        (void)snprintf(reader->why, sizeof(reader->why), "baton_pull: %s",
                       baton_status_text(status));
        return false;
    }
    if (!next_event(reader, reader->agents[provider], &event)) {
        return false;
    }
    if (event.type != BATON_EVENT_PULLED) {
        (void)snprintf(reader->why, sizeof(reader->why), "pull over %s: %s",
                       pull_provider_name(provider),
                       baton_reason_text(event.reason));
        return false;
    }
    return true;
}

static bool read_by(struct pull_reader *reader, enum pull_way way)
{
    switch (way) {
    case WAY_MEMCPY:
        return read_memcpy(reader);
    case WAY_READV:
        return read_readv(reader);
    case WAY_PULL_CMA:
        return read_pull(reader, PULL_CMA);
    case WAY_FI_READ:
        return read_fabric(reader);
    case WAY_PULL_TCP:
        return read_pull(reader, PULL_TCP);
    }
    return false;
}

/* Are the blocks there, every byte, and nothing beside them touched? */
static bool is_right(const struct pull_reader *reader)
{
    const size_t words = reader->sheet->block_bytes / sizeof(uint64_t);
    size_t found = 0;

    for (size_t i = 0; i < PULL_BLOCKS; i++) {
        const uint64_t local =
            reader->reader_ids[i] * (uint64_t)reader->sheet->block_bytes;
        const uint64_t remote =
            reader->target_ids[i] * (uint64_t)reader->sheet->block_bytes;
        for (size_t word = 0; word < words; word++) {
            uint64_t value;
            memcpy(&value, reader->memory + local + word * sizeof(value),
                   sizeof(value));
            found += value == pull_word(remote + word * sizeof(value)) ? 1 : 0;
        }
    }
    return found == PULL_BLOCKS * words;
}

/* --- a case --- */

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool prove(struct pull_reader *reader, enum pull_way way)
{
    memset(reader->memory, 0, PULL_POOL * reader->sheet->block_bytes);
    if (!read_by(reader, way)) {
        return false;
    }
    if (!is_right(reader)) {
        (void)snprintf(reader->why, sizeof(reader->why), "%s read wrong bytes",
                       way_names[way]);
        return false;
    }
    return true;
}

static bool time_way(struct pull_reader *reader, enum pull_way way,
                     size_t repeats, double *gb_s_p)
{
    const double bytes =
        (double)repeats * PULL_BLOCKS * (double)reader->sheet->block_bytes;
    const double from_s = now_s();

    for (size_t i = 0; i < repeats; i++) {
        if (!read_by(reader, way)) {
            return false;
        }
    }
    *gb_s_p = bytes / (now_s() - from_s) / 1e9;
    return true;
}

/* Each way once, checked; then it is warm too. */
static bool prove_all(struct pull_reader *reader)
{
    bool right = true;

    for (unsigned way = 0; right && way < WAYS; way++) {
        right = prove(reader, (enum pull_way)way);
    }
    return right;
}

static bool run_round(struct pull_reader *reader, size_t repeats,
                      struct cell *cell)
{
    bool done = true;

    for (unsigned way = 0; done && way < WAYS; way++) {
        struct samples *samples = &cell->ways[way];
        done = time_way(reader, (enum pull_way)way, repeats,
                        &samples->gb_s[samples->count]);
        samples->count++;
    }
    return done;
}

static bool run_cell(struct pull_reader *reader,
                     const struct pull_options *options, struct cell *cell)
{
    const size_t pull_bytes = PULL_BLOCKS * cell->block_bytes;
    const size_t repeats =
        options->bytes < pull_bytes ? 1 : (size_t)options->bytes / pull_bytes;
    bool done;

    plan_spans(reader, cell->order);
    done = prove_all(reader);
    for (int64_t round = 0; done && round < options->rounds; round++) {
        done = run_round(reader, repeats, cell);
    }
    return done;
}

static bool introduce(struct pull_reader *reader, enum pull_provider provider)
{
    const struct pull_text *card = &reader->sheet->cards[provider];
    const size_t block_bytes = reader->sheet->block_bytes;
    baton_event event;
    baton_status status;

    reader->agents[provider] =
        pull_agent(provider, false, reader->memory, block_bytes, reader->why);
    if (reader->agents[provider] == NULL) {
        return false;
    }
    status = baton_peer_add(reader->agents[provider],
                            (baton_bytes){card->text, card->length});
    if (status != BATON_OK) {
        (void)snprintf(reader->why, sizeof(reader->why), "baton_peer_add: %s",
                       baton_status_text(status));
        return false;
    }
    if (!next_event(reader, reader->agents[provider], &event)) {
        return false;
    }
    if (event.type != BATON_EVENT_PEER_READY) {
        (void)snprintf(reader->why, sizeof(reader->why), "peer over %s: %s",
                       pull_provider_name(provider),
                       baton_reason_text(event.reason));
        return false;
    }
    return true;
}

static bool open_reader(struct pull_reader *reader)
{
    const size_t length = PULL_POOL * reader->sheet->block_bytes;
    const char *why = "out of memory";

    reader->memory = pull_memory(reader->sheet->block_bytes);
    reader->source = pull_memory(reader->sheet->block_bytes);
    if (reader->memory != NULL && reader->source != NULL) {
        for (size_t at = 0; at < length; at += sizeof(uint64_t)) {
            const uint64_t word = pull_word(at);
            memcpy(reader->source + at, &word, sizeof(word));
        }
        reader->raw = raw_fabric_open(reader->memory, length, &why);
    }
    if (reader->raw == NULL) {
        (void)snprintf(reader->why, sizeof(reader->why), "%s", why);
        return false;
    }
    if (!raw_fabric_connect(reader->raw, &reader->sheet->raw)) {
        (void)snprintf(reader->why, sizeof(reader->why), "fi_av_insert failed");
        return false;
    }
    return introduce(reader, PULL_TCP) && introduce(reader, PULL_CMA);
}

static void close_reader(struct pull_reader *reader)
{
    const size_t length = PULL_POOL * reader->sheet->block_bytes;

    for (size_t i = 0; i < PULL_PROVIDERS; i++) {
        baton_agent_close(reader->agents[i]);
    }
    if (reader->raw != NULL) {
        raw_fabric_close(reader->raw);
    }
    if (reader->memory != NULL) {
        (void)munmap(reader->memory, length);
    }
    if (reader->source != NULL) {
        (void)munmap(reader->source, length);
    }
}

/* --- children --- */

/*
 * All targets are forked before any agent exists, and wait for their turn:
 * agents own threads and sockets that a fork must not copy.
 */
static bool fork_child(struct child *child, size_t block_bytes)
{
    int fds[2];
    char go = 0;

    child->fd = -1;
    child->sheet = mmap(NULL, sizeof(*child->sheet), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (child->sheet == MAP_FAILED ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        return false;
    }
    child->sheet->block_bytes = block_bytes;
    child->pid = fork();
    if (child->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(fds[0]);
        if (read(fds[1], &go, 1) == 1) {
            pull_target(child->sheet, fds[1]);
        }
        _exit(0);
    }
    (void)close(fds[1]);
    child->fd = fds[0];
    return child->pid > 0;
}

static void end_child(struct child *child)
{
    if (child->fd >= 0) {
        /* A close would not be seen: later children hold copies of the fd. */
        (void)shutdown(child->fd, SHUT_RDWR);
        (void)close(child->fd);
        child->fd = -1;
    }
    if (child->pid > 0) {
        (void)waitpid(child->pid, NULL, 0);
        child->pid = 0;
    }
}

static bool wake_child(struct child *child)
{
    char byte = 'g';

    return write(child->fd, &byte, 1) == 1 && read(child->fd, &byte, 1) == 1 &&
           child->sheet->is_ready;
}

/* --- the run --- */

static bool complain(const char *what, const char *why)
{
    (void)fprintf(stderr, "micro-pull: %s: %s\n", what, why);
    return false;
}

static bool run_size(struct pull_bench *bench, size_t index)
{
    struct child *child = &bench->children[index];
    struct pull_reader *reader = calloc(1, sizeof(*reader));
    bool done = false;

    if (reader == NULL) {
        return complain("start", "out of memory");
    }
    reader->sheet = child->sheet;
    if (!wake_child(child)) {
        complain("target", child->sheet->why);
        free(reader);
        return false;
    }
    done = open_reader(reader);
    if (done) {
        (void)snprintf(bench->provider, sizeof(bench->provider), "%s",
                       raw_fabric_provider(reader->raw));
    }
    for (unsigned order = 0; done && order < PULL_ORDERS; order++) {
        struct cell *cell = &bench->cells[bench->cell_count];
        cell->block_bytes = child->sheet->block_bytes;
        cell->order = (enum pull_order)order;
        done = run_cell(reader, &bench->options, cell);
        bench->cell_count += done ? 1 : 0;
    }
    if (!done) {
        complain("reader", reader->why);
    }
    close_reader(reader);
    free(reader);
    return done;
}

/* --- report --- */

static int by_value(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return left < right ? -1 : left > right;
}

static double median_of(const double *values, size_t count)
{
    double sorted[ROUNDS_MAX];

    if (count == 0) {
        return 0;
    }
    memcpy(sorted, values, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), by_value);
    if (count % 2 == 1) {
        return sorted[count / 2];
    }
    return (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static double median(const struct samples *samples)
{
    return median_of(samples->gb_s, samples->count);
}

static double extreme(const struct samples *samples, bool wants_max)
{
    double found = samples->gb_s[0];

    for (size_t i = 1; i < samples->count; i++) {
        const double value = samples->gb_s[i];
        found = (value > found) == wants_max ? value : found;
    }
    return found;
}

/*
 * Median of the rounds' quotients: both ways of a round met the same other
 * work on the machine.
 */
static double ratio(const struct cell *cell, enum pull_way way,
                    enum pull_way raw)
{
    double quotients[ROUNDS_MAX];
    const size_t count = cell->ways[way].count;

    for (size_t i = 0; i < count; i++) {
        quotients[i] = cell->ways[way].gb_s[i] / cell->ways[raw].gb_s[i];
    }
    return median_of(quotients, count);
}

static void print_table(const struct pull_bench *bench, struct bt_buf *out)
{
    bt_buf_printf(out,
                  "GB/s of 64 blocks: median (min–max) of %" PRId64
                  " rounds; fi_read is provider %s\n\n| blocks |",
                  bench->options.rounds, bench->provider);
    for (unsigned way = 0; way < WAYS; way++) {
        bt_buf_printf(out, " %s |", way_names[way]);
    }
    bt_buf_append(out, BT_STR(" cma / readv | tcp / fi_read |\n"
                              "|---|---|---|---|---|---|---|---|\n"));
    for (size_t i = 0; i < bench->cell_count; i++) {
        const struct cell *cell = &bench->cells[i];
        bt_buf_printf(out, "| 64 x %zu KiB %s |", cell->block_bytes / BT_KIB,
                      pull_order_name(cell->order));
        for (unsigned way = 0; way < WAYS; way++) {
            const struct samples *samples = &cell->ways[way];
            bt_buf_printf(out, " %.2f (%.2f–%.2f) |", median(samples),
                          extreme(samples, false), extreme(samples, true));
        }
        bt_buf_printf(out, " %.2f | %.2f |\n",
                      ratio(cell, WAY_PULL_CMA, WAY_READV),
                      ratio(cell, WAY_PULL_TCP, WAY_FI_READ));
    }
}

static void json_cell(const struct cell *cell, struct bt_buf *out)
{
    bt_buf_printf(out, "{\"blocks\":%d,\"block_bytes\":%zu,\"order\":\"%s\"",
                  PULL_BLOCKS, cell->block_bytes, pull_order_name(cell->order));
    bt_buf_append(out, BT_STR(",\"gb_s\":{"));
    for (unsigned way = 0; way < WAYS; way++) {
        const struct samples *samples = &cell->ways[way];
        bt_buf_printf(
            out, "%s\"%s\":{\"min\":%.4f,\"median\":%.4f,\"max\":%.4f}",
            way == 0 ? "" : ",", way_names[way], extreme(samples, false),
            median(samples), extreme(samples, true));
    }
    bt_buf_printf(out, "},\"cma_to_readv\":%.4f,\"tcp_to_fi_read\":%.4f}",
                  ratio(cell, WAY_PULL_CMA, WAY_READV),
                  ratio(cell, WAY_PULL_TCP, WAY_FI_READ));
}

static bool write_json(const struct pull_bench *bench)
{
    struct bt_buf out = {0};
    FILE *file = fopen(bench->options.json, "wbe");
    bool done;

    bt_buf_printf(&out,
                  "{\"schema\":\"baton-micro-pull/1\",\"rounds\":%" PRId64
                  ",\"provider\":\"%s\",\"cells\":[",
                  bench->options.rounds, bench->provider);
    for (size_t i = 0; i < bench->cell_count; i++) {
        bt_buf_append(&out, i == 0 ? BT_STR("") : BT_STR(","));
        json_cell(&bench->cells[i], &out);
    }
    bt_buf_append(&out, BT_STR("]}\n"));
    done = file != NULL && !out.failed &&
           fwrite(bt_buf_str(&out).ptr, 1, out.len, file) == out.len;
    if (file != NULL) {
        done = fclose(file) == 0 && done;
    }
    bt_buf_fini(&out);
    return done || complain(bench->options.json, "could not be written");
}

/* Only the largest blocks are promised: smaller ones are latency. */
static bool passes(const struct pull_bench *bench)
{
    const double least = (double)bench->options.min_ratio / 100.0;
    bool passed = true;

    for (size_t i = 0; i < bench->cell_count; i++) {
        const struct cell *cell = &bench->cells[i];
        if (cell->block_bytes < BT_MIB) {
            continue;
        }
        passed = passed && ratio(cell, WAY_PULL_CMA, WAY_READV) >= least &&
                 ratio(cell, WAY_PULL_TCP, WAY_FI_READ) >= least;
    }
    return passed || complain("check", "a pull of 1 MiB blocks is below the "
                                       "least ratio to its raw way");
}

static bool report(const struct pull_bench *bench)
{
    struct bt_buf table = {0};
    bool done;

    print_table(bench, &table);
    done = !table.failed &&
           fwrite(bt_buf_str(&table).ptr, 1, table.len, stdout) == table.len;
    bt_buf_fini(&table);
    if (done && bench->options.json != NULL) {
        done = write_json(bench);
    }
    if (done && bench->options.check) {
        done = passes(bench);
    }
    return done;
}

/* --- program --- */

#include "bench/micro/micro_pull.def"

static const struct bt_conf_program program = {
    .name = "micro-pull",
    .summary = "pulls by the agent beside raw reads of the same memory",
    .usage = "[--rounds N] [--size SIZE]... [--check] [--json FILE]",
    .rows = rows,
};

static bool add_size(struct pull_bench *bench, struct bt_str text)
{
    uint64_t bytes = 0;

    if (bench->size_count == SIZES_MAX ||
        bt_conf_parse_size(text, &bytes) != BT_OK || bytes < 256 ||
        bytes % 256 != 0 || bytes > 16 * BT_MIB) {
        return complain("--size", "up to 16 of them, each a multiple of 256 "
                                  "bytes up to 16MiB");
    }
    bench->sizes[bench->size_count++] = (size_t)bytes;
    return true;
}

static bool pick_sizes(struct pull_bench *bench)
{
    static const char *const presets[] = {"4KiB", "16KiB", "64KiB", "256KiB",
                                          "1MiB"};
    const struct bt_conf_strings *sizes = &bench->options.sizes;
    bool done = true;

    for (size_t i = 0; done && i < sizes->count; i++) {
        done = add_size(bench, bt_str_of(sizes->items[i]));
    }
    for (size_t i = 0; done && sizes->count == 0 && i < BT_ARRAY_LEN(presets);
         i++) {
        done = add_size(bench, bt_str_of(presets[i]));
    }
    return done;
}

static int run(struct pull_bench *bench)
{
    bool done = true;

    if (!pick_sizes(bench)) {
        return 2;
    }
    bench->cells = calloc(bench->size_count * PULL_ORDERS, sizeof(struct cell));
    if (bench->cells == NULL) {
        complain("start", "out of memory");
        return 1;
    }
    for (size_t i = 0; i < bench->size_count; i++) {
        done = fork_child(&bench->children[i], bench->sizes[i]) && done;
    }
    for (size_t i = 0; done && i < bench->size_count; i++) {
        done = run_size(bench, i);
        end_child(&bench->children[i]);
    }
    for (size_t i = 0; i < bench->size_count; i++) {
        end_child(&bench->children[i]);
    }
    done = done && report(bench);
    free(bench->cells);
    return done ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct pull_bench bench;
    int code = 0;

    memset(&bench, 0, sizeof(bench));
    (void)signal(SIGPIPE, SIG_IGN);
    if (bt_conf_init(rows, &bench.options) != BT_OK) {
        return 1;
    }
    switch (bt_conf_args(&program, &bench.options, NULL, argc, argv)) {
    case BT_CONF_RUN:
        code = run(&bench);
        break;
    case BT_CONF_EXIT_OK:
        break;
    case BT_CONF_EXIT_USAGE:
        code = 2;
        break;
    }
    bt_conf_fini(rows, &bench.options);
    return code;
}
