/*
 * program: listening sockets, fleet, control, workers, signals.
 *
 *   main thread   its own loop: signals, and word of workers that ended
 *   worker 0..N   one SO_REUSEPORT socket each (one shared unix socket)
 *   control       agents, probes, admin
 */
#include "proxy/program.h"

#include "common/base/log.h"
#include "common/base/random.h"
#include "common/io/log_file.h"
#include "common/io/process.h"
#include "proxy/base/quota.h"
#include "proxy/control.h"
#include "proxy/front/access_log.h"
#include "proxy/front/models.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WORKERS_MAX 1024

struct program_run {
    struct program program;
    struct bt_loop *loop;
    struct bt_watch *signals[5];
    struct worker **workers;
    struct bt_metrics **metrics; /* of the workers */
    size_t worker_count;
    size_t running;
    unsigned terms;             /* TERM and INT seen */
    struct bt_log_file logs[2]; /* the access log, and stderr */
    struct bt_addr *bound; /* all addresses of all that is to be listened on */
    char (*addresses)[BT_ADDR_TEXT_MAX];
    size_t address_count;
    size_t address_max;
    bool is_withdrawn; /* the files of unix sockets are gone */
    int *fds;          /* worker by worker, then address by address */
};

static size_t count_workers(const struct config *config)
{
    const size_t count =
        config->workers > 0 ? (size_t)config->workers : bt_process_cpus("");

    return count > WORKERS_MAX ? WORKERS_MAX : count;
}

/*
 * Clients may hold at most half of the descriptors that are not ours: each
 * request needs another one for its engine, and whoever only connects must
 * keep neither engines nor agents nor the admin out.
 */
static void limit_connections(struct program_run *run)
{
    struct program *const program = &run->program;
    const size_t files = bt_process_raise_files();
    const size_t own =
        64 + 16 * run->worker_count + 4 * program->fleet->engine_count;
    const size_t room = files > 2 * own ? files - own : files / 2;
    const size_t share = room / 2 / run->worker_count;
    const size_t wanted = (size_t)program->config->limits.connections;

    program->connections_max = share > 0 ? share : 1;
    if (wanted <= program->connections_max) {
        program->connections_max =
            wanted > 0 ? wanted : program->connections_max;
        return;
    }
    bt_log(BT_LOG_WARN, NULL,
           "the limit of open files is %zu: each worker takes %zu client "
           "connections at most, not %zu",
           files, program->connections_max, wanted);
}

/* The first worker's sockets, one for each address that the text stands for. */
static enum bt_status first_sockets(struct program_run *run, const char *text)
{
    struct bt_listening found;
    const char *why = "";
    const enum bt_status status = bt_listen_all(text, &found, &why);

    if (status != BT_OK) {
        bt_log(BT_LOG_ERROR, "listen",
               "cannot listen on %s: %s; set another address there, or stop "
               "what serves this one",
               text, why);
        return status;
    }
    for (size_t i = 0; i < found.addrs.count; i++) {
        const size_t index = run->address_count++;

        run->fds[index] = found.fds[i];
        run->bound[index] = found.addrs.items[i];
        bt_addr_format(&run->bound[index], run->addresses[index]);
    }
    return BT_OK;
}

/* -1: there are no descriptors left. */
static int further_socket(const struct bt_addr *addr, int first)
{
    int fd = -1;

    /* Where the system lets no second socket in, the workers share one. */
    if (addr->sa.ss_family != AF_UNIX && bt_listen_share(first) == BT_OK &&
        bt_listen(addr, true, &fd) == BT_OK) {
        return fd;
    }
    return fcntl(first, F_DUPFD_CLOEXEC, 3);
}

/* One address for all workers: a socket each, or copies of a unix one. */
static enum bt_status share_address(struct program_run *run, size_t index)
{
    const struct bt_addr *const addr = &run->bound[index];
    enum bt_status status = BT_OK;

    for (size_t i = 1; i < run->worker_count && status == BT_OK; i++) {
        int *const fd = &run->fds[i * run->address_max + index];

        *fd = further_socket(addr, run->fds[index]);
        if (*fd < 0) {
            bt_log(BT_LOG_ERROR, "listen", "a socket for each worker: %s",
                   strerrordesc_np(errno));
            status = BT_ERR_SYSTEM;
        }
    }
    return status;
}

static enum bt_status bind_all(struct program_run *run)
{
    const struct bt_conf_strings *const listen = &run->program.config->listen;
    const size_t max = listen->count * BT_ADDRS_MAX;
    const size_t total = run->worker_count * max;
    enum bt_status status = BT_OK;

    run->address_max = max;
    run->fds = calloc(total + 1, sizeof(*run->fds));
    run->bound = calloc(max + 1, sizeof(*run->bound));
    run->addresses = calloc(max + 1, sizeof(*run->addresses));
    if (run->fds == NULL || run->bound == NULL || run->addresses == NULL) {
        return BT_ERR_NOMEM;
    }
    for (size_t i = 0; i < total; i++) {
        run->fds[i] = -1;
    }
    for (size_t i = 0; i < listen->count && status == BT_OK; i++) {
        status = first_sockets(run, listen->items[i]);
    }
    for (size_t i = 0; i < run->address_count && status == BT_OK; i++) {
        status = share_address(run, i);
    }
    return status;
}

static enum bt_status open_metrics(struct program_run *run)
{
    run->metrics = calloc(run->worker_count + 1, sizeof(struct bt_metrics *));
    run->workers = calloc(run->worker_count + 1, sizeof(struct worker *));
    if (run->metrics == NULL || run->workers == NULL) {
        return BT_ERR_NOMEM;
    }
    for (size_t i = 0; i < run->worker_count; i++) {
        run->metrics[i] = stats_open();
        if (run->metrics[i] == NULL) {
            return BT_ERR_NOMEM;
        }
    }
    return BT_OK;
}

static enum bt_status open_control(struct program_run *run)
{
    struct program *const program = &run->program;
    const struct control_options options = {
        .config = program->config,
        .fleet = program->fleet,
        .boot = program->boot,
        .metrics = run->metrics,
        .metrics_count = run->worker_count,
        .is_draining = &program->is_draining,
    };

    const enum bt_status status = control_open(&options, &program->control);

    if (status == BT_OK) {
        program->orders = control_orders(program->control);
    }
    return status;
}

static enum bt_status open_workers(struct program_run *run)
{
    enum bt_status status = BT_OK;

    for (size_t i = 0; i < run->worker_count && status == BT_OK; i++) {
        int *const fds = &run->fds[i * run->address_max];

        status =
            worker_open(&run->program, (unsigned)i, fds, run->address_count,
                        run->metrics[i], &run->workers[i]);
        for (size_t f = 0; f < run->address_count; f++) {
            fds[f] = -1; /* taken over, or closed */
        }
    }
    return status;
}

static void on_worker_ended(void *owner, struct bt_mail *mail)
{
    struct program_run *const run = owner;

    free(mail);
    run->running--;
    if (run->running == 0) {
        bt_loop_stop(run->loop);
    }
}

static void note_logs(struct program_run *run)
{
    const char *const access = run->program.config->log.access;
    const bool is_path =
        run->program.access_fd > STDERR_FILENO && strcmp(access, "stdout") != 0;

    bt_log_file_note(&run->logs[0], run->program.access_fd,
                     is_path ? access : NULL);
    bt_log_file_note(&run->logs[1], STDERR_FILENO, NULL);
}

static void reopen_logs(struct program_run *run, int signal_number)
{
    unsigned count = 0;

    for (size_t i = 0; i < BT_ARRAY_LEN(run->logs); i++) {
        count += bt_log_file_reopen(&run->logs[i]) ? 1 : 0;
    }
    bt_log(BT_LOG_INFO, NULL, "%s: %u log files were opened anew%s",
           sigabbrev_np(signal_number), count,
           signal_number == SIGHUP ? "; the configuration is read at start only"
                                   : "");
}

/*
 * The files of unix sockets go with the first order to stop, while all sockets
 * still listen: later they may be those of the program that takes over.
 */
static void withdraw_sockets(struct program_run *run)
{
    for (size_t i = 0; i < run->address_count && !run->is_withdrawn; i++) {
        bt_listen_withdraw(&run->bound[i]);
    }
    run->is_withdrawn = true;
}

static void on_signal(void *owner, int signal_number)
{
    struct program_run *const run = owner;

    if (signal_number == SIGHUP || signal_number == SIGUSR1) {
        reopen_logs(run, signal_number);
        return;
    }
    if (signal_number == SIGUSR2) {
        bt_log(BT_LOG_WARN, NULL,
               "USR2: a new program is not started; nothing changes");
        return;
    }
    run->terms++;
    withdraw_sockets(run);
    atomic_store(&run->program.is_draining, true);
    bt_log(BT_LOG_INFO, NULL, "signal %d: %s", signal_number,
           run->terms == 1 ? "draining" : "ending at once");
    for (size_t i = 0; i < run->worker_count; i++) {
        if (run->terms == 1) {
            worker_drain(run->workers[i]);
        } else {
            worker_stop(run->workers[i]);
        }
    }
}

static enum bt_status open_loop(struct program_run *run)
{
    const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    enum bt_status status = bt_loop_open(&run->loop);

    if (status == BT_OK) {
        status = bt_mailbox_open(run->loop, on_worker_ended, run,
                                 &run->program.mailbox);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(numbers) && status == BT_OK; i++) {
        status = bt_signal_open(run->loop, numbers[i], on_signal, run,
                                &run->signals[i]);
    }
    return status;
}

static enum bt_status open_shared(struct program *program)
{
    const size_t connections =
        (size_t)program->config->limits.client_connections;
    const uint64_t bytes = program->config->limits.client_body_memory;

    program->models = models_book_open();
    if (program->models == NULL) {
        return BT_ERR_NOMEM;
    }
    if (connections == 0 && bytes == 0) {
        return BT_OK;
    }
    program->quotas = quotas_open(connections, bytes);
    return program->quotas == NULL ? BT_ERR_NOMEM : BT_OK;
}

static enum bt_status build(struct program_run *run)
{
    struct program *const program = &run->program;
    const struct config *const config = program->config;
    enum bt_status status = BT_OK;

    if (!bt_random_id(&program->boot)) {
        return BT_ERR_SYSTEM;
    }
    status = access_log_target(config->log.access, &program->access_fd);
    if (status == BT_OK) {
        note_logs(run);
        status = auth_open(config->auth.client_keys_file, &program->auth);
    }
    if (status == BT_OK) {
        status = fleet_open(config, &program->fleet);
    }
    if (status == BT_OK) {
        limit_connections(run);
        status = open_shared(program);
    }
    if (status == BT_OK) {
        status = bind_all(run);
    }
    if (status == BT_OK) {
        status = open_metrics(run);
    }
    if (status == BT_OK) {
        status = open_loop(run);
    }
    if (status == BT_OK) {
        status = open_control(run);
    }
    return status == BT_OK ? open_workers(run) : status;
}

enum bt_status program_open(const struct config *config,
                            struct program_run **run_p)
{
    struct program_run *run = calloc(1, sizeof(*run));
    enum bt_status status;

    if (run == NULL) {
        return BT_ERR_NOMEM;
    }
    run->program.config = config;
    run->program.access_fd = -1;
    run->worker_count = count_workers(config);
    status = build(run);
    if (status != BT_OK) {
        program_close(&run);
        return status;
    }
    *run_p = run;
    return BT_OK;
}

static void print_ready(const struct program_run *run)
{
    const char *const admin = control_admin_address(run->program.control);
    const char *const agents = control_agents_address(run->program.control);
    struct bt_buf line = {0};

    bt_buf_append(&line, BT_STR("baton-proxy: ready on "));
    for (size_t i = 0; i < run->address_count; i++) {
        bt_buf_printf(&line, "%s%s", i == 0 ? "" : ", ", run->addresses[i]);
    }
    if (admin[0] != '\0' && agents[0] != '\0') {
        bt_buf_printf(&line, " (admin %s, agents %s)", admin, agents);
    } else if (admin[0] != '\0') {
        bt_buf_printf(&line, " (admin %s)", admin);
    } else if (agents[0] != '\0') {
        bt_buf_printf(&line, " (agents %s)", agents);
    }
    bt_buf_append_char(&line, '\n');
    if (!line.failed) {
        (void)!write(STDERR_FILENO, line.data + line.at, line.len);
    }
    bt_buf_fini(&line);
}

bool program_run(struct program_run *run)
{
    bool is_good = control_start(run->program.control) == BT_OK;

    for (size_t i = 0; i < run->worker_count && is_good; i++) {
        is_good = worker_start(run->workers[i]) == BT_OK;
        run->running += is_good ? 1 : 0;
    }
    if (!is_good) {
        for (size_t i = 0; i < run->worker_count; i++) {
            worker_stop(run->workers[i]);
        }
    } else {
        print_ready(run);
    }
    if (run->running > 0) {
        bt_loop_run(run->loop);
    }
    return is_good;
}

static void close_sockets(struct program_run *run)
{
    const size_t total = run->worker_count * run->address_max;

    for (size_t i = 0; run->fds != NULL && i < total; i++) {
        if (run->fds[i] >= 0) {
            (void)close(run->fds[i]);
        }
    }
    free(run->fds);
    free(run->bound);
    free(run->addresses);
}

void program_close(struct program_run **run)
{
    struct program_run *const dead = *run;

    if (dead == NULL) {
        return;
    }
    *run = NULL;
    withdraw_sockets(dead);
    for (size_t i = 0; dead->workers != NULL && i < dead->worker_count; i++) {
        worker_close(&dead->workers[i]);
    }
    control_close(&dead->program.control);
    for (size_t i = 0; i < BT_ARRAY_LEN(dead->signals); i++) {
        bt_watch_close(&dead->signals[i]);
    }
    bt_mailbox_close(&dead->program.mailbox);
    bt_loop_close(&dead->loop);
    for (size_t i = 0; dead->metrics != NULL && i < dead->worker_count; i++) {
        bt_metrics_close(&dead->metrics[i]);
    }
    close_sockets(dead);
    fleet_close(&dead->program.fleet);
    auth_close(&dead->program.auth);
    quotas_close(&dead->program.quotas);
    models_book_close(&dead->program.models);
    if (dead->program.access_fd > STDERR_FILENO) {
        (void)close(dead->program.access_fd);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(dead->logs); i++) {
        bt_log_file_forget(&dead->logs[i]);
    }
    free(dead->metrics);
    free(dead->workers);
    free(dead);
}
