/*
 * The loop of a run. A timerfd tells when the next request is due, since the
 * loop's own timers count milliseconds.
 */
#include "bench/load/run.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PROGRESS_MS   5000
#define CANCEL_STREAM (UINT64_C(8) << 60)

struct run {
    const struct run_setup *setup;
    struct record *record;
    struct client_setup client;
    struct workload workload;
    struct bt_random random; /* who cancels */
    struct workload_item next;
    struct client_message message; /* of next */
    bool has_next;
    LIST_HEAD(, load_client) clients; /* in flight */
    size_t in_flight;
    size_t max_in_flight;
    int timer_fd;
    struct bt_watch *due;
    struct bt_watch *interrupt;
    struct bt_watch *terminate;
    struct bt_timer progress;
    struct bt_timer drain;
    uint64_t start_us;
    uint64_t checked;
    bool is_closed_loop;
    bool is_pumping;
    bool interrupted;
};

static uint64_t elapsed_us(const struct run *run)
{
    return bt_clock_us() - run->start_us;
}

/* --- what comes next --- */

static void end_sending(struct run *run)
{
    run->has_next = false;
    client_message_fini(&run->message);
    if (run->in_flight > 0 && run->setup->options->drain_ms != 0) {
        bt_timer_set(&run->drain, run->setup->options->drain_ms);
    }
}

static bool time_is_up(const struct run *run)
{
    const uint64_t duration_ms = run->setup->options->duration_ms;

    return run->is_closed_loop && duration_ms != 0 &&
           elapsed_us(run) >= duration_ms * 1000;
}

static void prepare_next(struct run *run)
{
    const struct run_setup *setup = run->setup;

    run->has_next = !run->interrupted && !time_is_up(run) &&
                    workload_next(&run->workload, &run->next);
    if (run->has_next &&
        !request_write(setup->form, setup->plan, &run->next, &run->message)) {
        run->record->failed = true;
        run->has_next = false;
    }
    if (!run->has_next) {
        end_sending(run);
    }
}

/* --- sending --- */

static void send_next(struct run *run)
{
    const bool cancels = bt_random_below(&run->random, 100) <
                         (uint32_t)run->setup->options->cancel_rate;
    struct load_client *client = NULL;

    if (client_open(&run->client, &run->message, &run->next, cancels,
                    &client) != BT_OK) {
        run->record->failed = true;
        end_sending(run);
        return;
    }
    client->row.intended_us =
        run->is_closed_loop ? client->row.sent_us : run->next.at_us;
    LIST_INSERT_HEAD(&run->clients, client, entry);
    run->in_flight++;
    prepare_next(run);
}

static bool may_send(const struct run *run)
{
    return run->has_next && run->in_flight < run->max_in_flight &&
           (run->is_closed_loop || elapsed_us(run) >= run->next.at_us);
}

static void arm(struct run *run)
{
    const uint64_t at_us = run->start_us + run->next.at_us;
    const struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(at_us / 1000000),
                     .tv_nsec = (long)(at_us % 1000000) * 1000},
    };

    /* Cannot fail: the fd is ours and the time is in range. */
    (void)timerfd_settime(run->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Sends all that is due and may be sent. */
static void pump(struct run *run)
{
    if (run->is_pumping) {
        return;
    }
    run->is_pumping = true;
    while (may_send(run)) {
        send_next(run);
    }
    run->is_pumping = false;
    if (run->has_next && !run->is_closed_loop &&
        run->in_flight < run->max_in_flight) {
        arm(run);
    }
}

static void on_due(void *owner)
{
    struct run *run = owner;
    uint64_t times = 0;

    if (read(run->timer_fd, &times, sizeof(times)) < 0 && errno != EAGAIN) {
        return;
    }
    pump(run);
}

/* --- what comes back --- */

static void compare(struct run *run, struct load_client *client)
{
    if (run->setup->check == NULL || client->row.verdict != VERDICT_OK) {
        return;
    }
    run->checked++;
    if (check_answer(run->setup->check, &client->row.item, &client->answer) !=
        BT_OK) {
        client->row.verdict = VERDICT_WRONG_TEXT;
    }
}

static void on_finished(void *owner, struct load_client *client)
{
    struct run *run = owner;

    LIST_REMOVE(client, entry);
    run->in_flight--;
    compare(run, client);
    record_add(run->record, &client->row, &client->answer);
    if (run->has_next) {
        pump(run);
    }
}

static void cancel_all(struct run *run)
{
    while (!LIST_EMPTY(&run->clients)) {
        client_cancel(LIST_FIRST(&run->clients));
    }
}

static void on_drained(struct bt_timer *timer)
{
    cancel_all(bt_container_of(timer, struct run, drain));
}

static void on_signal(void *owner, int signal_number)
{
    struct run *run = owner;

    (void)signal_number;
    run->interrupted = true;
    if (run->has_next) {
        end_sending(run);
    }
    cancel_all(run);
}

static void on_progress(struct bt_timer *timer)
{
    struct run *run = bt_container_of(timer, struct run, progress);
    const struct record *record = run->record;
    const uint64_t ttft_us =
        histogram_at(&record->metrics[METRIC_TTFT_RESPONSE], 50.0);

    (void)fprintf(stderr,
                  "baton-bench: %" PRIu64 " s: %zu done, %zu in flight, "
                  "%" PRIu64 " failed, median ttft %.1f ms\n",
                  (elapsed_us(run) + 500000) / 1000000, record->count,
                  run->in_flight, record_failures(record),
                  (double)ttft_us / 1000.0);
    bt_timer_set(timer, PROGRESS_MS);
}

/* --- begin and end --- */

static void fill(struct run *run, const struct run_setup *setup,
                 struct record *record)
{
    const struct load_options *options = setup->options;

    memset(run, 0, sizeof(*run));
    run->setup = setup;
    run->record = record;
    run->timer_fd = -1;
    run->is_closed_loop = options->concurrency > 0;
    run->max_in_flight = (size_t)(run->is_closed_loop ? options->concurrency
                                                      : options->max_in_flight);
    workload_init(&run->workload, setup->plan);
    bt_random_init(&run->random, setup->plan->seed, CANCEL_STREAM);
    bt_timer_init(&run->progress, setup->loop, on_progress);
    bt_timer_init(&run->drain, setup->loop, on_drained);
    run->client = (struct client_setup){
        .loop = setup->loop,
        .origin = setup->origin,
        .ttft_ms = options->ttft_ms,
        .idle_ms = options->idle_ms,
        .wants_stream = setup->form->wants_stream,
        .on_finished = on_finished,
        .owner = run,
    };
}

static enum bt_status open_watches(struct run *run)
{
    struct bt_loop *loop = run->setup->loop;
    enum bt_status status;

    run->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (run->timer_fd < 0) {
        return BT_ERR_SYSTEM;
    }
    status = bt_watch_open(loop, run->timer_fd, on_due, run, &run->due);
    if (status == BT_OK) {
        status = bt_signal_open(loop, SIGINT, on_signal, run, &run->interrupt);
    }
    if (status == BT_OK) {
        status = bt_signal_open(loop, SIGTERM, on_signal, run, &run->terminate);
    }
    return status;
}

static void close_watches(struct run *run)
{
    bt_timer_clear(&run->progress);
    bt_timer_clear(&run->drain);
    bt_watch_close(&run->due);
    bt_watch_close(&run->interrupt);
    bt_watch_close(&run->terminate);
    if (run->timer_fd >= 0) {
        (void)close(run->timer_fd);
    }
}

static double cpu_seconds(void)
{
    struct rusage usage;

    memset(&usage, 0, sizeof(usage));
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

enum bt_status run_load(const struct run_setup *setup, struct record *record,
                        struct run_outcome *outcome_p)
{
    struct run run;
    enum bt_status status;

    fill(&run, setup, record);
    status = open_watches(&run);
    if (status != BT_OK) {
        close_watches(&run);
        return status;
    }
    run.start_us = bt_clock_us();
    prepare_next(&run);
    if (!setup->options->quiet) {
        bt_timer_set(&run.progress, PROGRESS_MS);
    }
    const double cpu_before = cpu_seconds();
    run.start_us = bt_clock_us();
    run.client.start_us = run.start_us;
    pump(&run);
    while (run.has_next || run.in_flight > 0) {
        bt_loop_turn(setup->loop, -1);
    }
    const uint64_t wall_us = elapsed_us(&run);
    outcome_p->wall_s = (double)wall_us / 1e6;
    outcome_p->cpu_share = (cpu_seconds() - cpu_before) / outcome_p->wall_s;
    outcome_p->checked = run.checked;
    outcome_p->interrupted = run.interrupted;
    client_message_fini(&run.message);
    close_watches(&run);
    return BT_OK;
}
