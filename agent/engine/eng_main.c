/*
 * baton-engine: the small engine over libbaton. This file puts the parts
 * together, in the order in which they depend on each other:
 *
 *   options -> kv -> handoff (agents) -> sched -> api -> loop
 *
 * and takes them down in an order that keeps memory alive as long as a read
 * may still write to it: api, agents, sched, kv.
 */
#include "agent/engine/options/eng_options.h"
#include "agent/engine/serve/api.h"
#include "common/base/log.h"
#include "common/io/key_file.h"
#include "common/io/log_file.h"
#include "common/io/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM  "baton-engine"
#define EXIT_BAD 2

struct eng_engine {
    struct eng_options options;
    struct bt_loop *loop;
    struct eng_model model;
    struct kv *kv;
    struct faults faults;
    struct sched *sched;
    struct eng_handoff *handoff;
    struct exchange_env env;
    struct api *api;
    struct bt_watch *signals[4];
    struct bt_log_file log; /* stderr */
    int listener;           /* -1: none, or the api's */
    char address[BT_ADDR_TEXT_MAX];
    char url[BT_ADDR_TEXT_MAX + 8];
    struct bt_str key; /* from its file */
};

static int complain(const char *about, const char *what)
{
    (void)fprintf(stderr, PROGRAM ": %s: %s\n", about, what);
    return EXIT_FAILURE;
}

/* A mistake on the command line. */
static int misused(const char *flag, const char *what)
{
    (void)complain(flag, what);
    return EXIT_BAD;
}

static int arm_faults(struct eng_engine *engine)
{
    const struct bt_conf_strings *const faults = &engine->options.faults;
    char why[200];

    for (size_t i = 0; i < faults->count; i++) {
        if (fault_arm(&engine->faults, faults->items[i], why, sizeof(why)) !=
            BT_OK) {
            return misused("--fault", why);
        }
    }
    return EXIT_SUCCESS;
}

/* The key is the first line of its file, as the proxies read it. */
static int read_key(struct eng_engine *engine)
{
    const char *const path = engine->options.key_file;

    return path == NULL || bt_key_read(path, &engine->key) == BT_OK
               ? EXIT_SUCCESS
               : EXIT_BAD;
}

static int listen_api(struct eng_engine *engine)
{
    struct bt_addr addr;

    if (bt_addr_parse(engine->options.listen, &addr) != BT_OK) {
        return misused("--listen", "no such address; host:port, [v6]:port or "
                                   "unix:/path would be right");
    }
    if (bt_listen(&addr, false, &engine->listener) != BT_OK ||
        bt_addr_of_fd(engine->listener, &addr) != BT_OK) {
        return complain(engine->options.listen, strerrordesc_np(errno));
    }
    bt_addr_format(&addr, engine->address);
    (void)snprintf(engine->url, sizeof(engine->url), "http://%s",
                   engine->address);
    if (engine->options.url == NULL && addr.sa.ss_family == AF_UNIX &&
        engine->options.agents.count > 0) {
        return misused("--url", "it must be given where --listen is a unix "
                                "socket and --agents is used");
    }
    return EXIT_SUCCESS;
}

static int open_pool(struct eng_engine *engine)
{
    const struct eng_options *const options = &engine->options;
    const struct kv_options kv = {
        .model = &engine->model,
        .blocks = (uint32_t)options->blocks,
        .block_tokens = (uint32_t)options->block_size,
        .tp = (uint32_t)options->tp,
        .is_packed = options->kv == OPTIONS_KV_PACKED,
    };
    const char *const fault = options_groups_fault(options);
    enum bt_status status;

    if (fault != NULL) {
        return misused("--kv-groups", fault);
    }
    status = options_model(options, &engine->model);
    if (status != BT_OK) {
        return misused("--head-size", "head size times bytes of the dtype must "
                                      "be a multiple of 8, at most 1 MiB");
    }
    status = kv_open(&kv, &engine->kv);
    if (status == BT_ERR_RANGE) {
        return misused("--tp", "--kv-heads must be a multiple of it, and the "
                               "pool at most 4 TiB");
    }
    if (status != BT_OK) {
        return complain("--blocks", bt_status_text(status));
    }
    return EXIT_SUCCESS;
}

static const char *url_of(const struct eng_engine *engine)
{
    return engine->options.url != NULL ? engine->options.url : engine->url;
}

static const char *id_of(const struct eng_engine *engine)
{
    return engine->options.engine_id != NULL ? engine->options.engine_id
                                             : url_of(engine);
}

static void on_handoff_room(void *owner)
{
    struct eng_engine *const engine = owner;

    sched_kick(engine->sched);
}

static const struct handoff_events HANDOFF_EVENTS = {
    .on_room = on_handoff_room,
};

/* Without proxies nobody could introduce this engine to another one. */
static int open_agents(struct eng_engine *engine)
{
    const struct eng_options *const options = &engine->options;
    struct bt_buf fingerprint = {0};
    struct handoff_options handoff = {
        .loop = engine->loop,
        .kv = engine->kv,
        .agent = baton_options_preset(),
        .tp = (uint32_t)options->tp,
        .lease_ms = (uint32_t)options->lease_ms,
    };
    const char *why = "";
    enum bt_status status = BT_ERR_NOMEM;

    if (options->agents.count == 0) {
        return EXIT_SUCCESS;
    }
    options_fingerprint(options, &fingerprint);
    handoff.agent.role = options_role(options);
    handoff.agent.engine = id_of(engine);
    handoff.agent.url = url_of(engine);
    handoff.agent.proxies = (const char *const *)options->agents.items;
    handoff.agent.proxy_count = options->agents.count;
    handoff.agent.key = (baton_bytes){engine->key.ptr, engine->key.len};
    handoff.agent.provider = options->provider;
    handoff.agent.fabric_address = options->fabric_address;
    handoff.agent.fingerprint = bt_buf_str(&fingerprint).ptr;
    handoff.agent.max_handoffs = (uint32_t)options->max_handoffs;
    handoff.agent.pull_timeout_ms = (uint32_t)options->pull_timeout_ms;
    handoff.agent.orphan_ms = (uint32_t)options->orphan_ms;
    handoff.agent.drain_ms = (uint32_t)options->drain_ms;
    handoff.agent.checksum = options->has_checksum ? 1 : 0;
    if (!fingerprint.failed) {
        status = handoff_open(&handoff, &HANDOFF_EVENTS, engine,
                              &engine->handoff, &why);
    }
    bt_buf_fini(&fingerprint);
    if (status != BT_OK) {
        return complain("agent", why);
    }
    sched_set_handoff(engine->sched, engine->handoff);
    return EXIT_SUCCESS;
}

static int open_sched(struct eng_engine *engine)
{
    const struct eng_options *const options = &engine->options;
    const struct sched_options sched = {
        .loop = engine->loop,
        .kv = engine->kv,
        .faults = &engine->faults,
        .prefill_rate = (uint64_t)options->prefill_rate,
        .decode_step_us = (uint64_t)options->decode_step_us,
        .step_tokens = (uint32_t)options->step_tokens,
        .max_running = (uint32_t)options->max_running,
        .max_waiting = (uint32_t)options->max_waiting,
        .recomputes = options->on_load_failure == 1,
    };
    const enum bt_status status = sched_open(&sched, &engine->sched);

    if (status != BT_OK) {
        return complain("scheduler", bt_status_text(status));
    }
    return EXIT_SUCCESS;
}

static int open_api(struct eng_engine *engine)
{
    const struct eng_options *const options = &engine->options;
    const uint64_t pool = (uint64_t)options->blocks /
                          engine->model.group_count *
                          (uint64_t)options->block_size;
    const uint64_t wanted = (uint64_t)options->max_model_len;
    struct api_options api = {
        .env = &engine->env,
        .kv = engine->kv,
        .handoff = engine->handoff,
        .listener = engine->listener,
    };
    enum bt_status status;

    engine->env = (struct exchange_env){
        .loop = engine->loop,
        .options = options,
        .sched = engine->sched,
        .faults = &engine->faults,
        .context_tokens = wanted < pool ? wanted : pool,
        .url = url_of(engine),
        .engine_id = id_of(engine),
    };
    status = api_open(&api, &engine->api);
    if (status != BT_OK) {
        return complain("api", bt_status_text(status));
    }
    engine->listener = -1;
    return EXIT_SUCCESS;
}

static void on_signal(void *owner, int number)
{
    struct eng_engine *const engine = owner;

    if (number == SIGHUP || number == SIGUSR1) {
        (void)bt_log_file_reopen(&engine->log);
        return;
    }
    bt_log(BT_LOG_INFO, NULL, "ends upon signal %d", number);
    bt_loop_stop(engine->loop);
}

static int open_loop(struct eng_engine *engine)
{
    static const int SIGNALS[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    enum bt_status status = bt_loop_open(&engine->loop);

    bt_log_file_note(&engine->log, STDERR_FILENO, NULL);
    for (size_t i = 0; i < BT_ARRAY_LEN(SIGNALS) && status == BT_OK; i++) {
        status = bt_signal_open(engine->loop, SIGNALS[i], on_signal, engine,
                                &engine->signals[i]);
    }
    if (status != BT_OK) {
        return complain("loop", bt_status_text(status));
    }
    (void)signal(SIGPIPE, SIG_IGN);
    return EXIT_SUCCESS;
}

static int start(struct eng_engine *engine)
{
    static int (*const STEPS[])(struct eng_engine *) = {
        arm_faults, read_key,   open_pool,   open_loop,
        listen_api, open_sched, open_agents, open_api,
    };

    bt_log_set_level((enum bt_log_level)engine->options.log_level);
    for (size_t i = 0; i < BT_ARRAY_LEN(STEPS); i++) {
        const int code = STEPS[i](engine);

        if (code != EXIT_SUCCESS) {
            return code;
        }
    }
    return EXIT_SUCCESS;
}

static void say_ready(const struct eng_engine *engine)
{
    const struct bt_conf_strings *const agents = &engine->options.agents;
    struct bt_buf line = {0};

    bt_buf_printf(&line, PROGRAM ": ready on %s (role %s, agents ",
                  engine->address, options_role_name(&engine->options));
    for (size_t i = 0; i < agents->count; i++) {
        bt_buf_printf(&line, "%s%s", i == 0 ? "" : " ", agents->items[i]);
    }
    bt_buf_printf(&line, "%s)\n", agents->count == 0 ? "none" : "");
    (void)fwrite(bt_buf_str(&line).ptr, 1, line.len, stderr);
    bt_buf_fini(&line);
}

static void stop(struct eng_engine *engine)
{
    api_close(&engine->api);
    handoff_close(&engine->handoff);
    sched_close(&engine->sched);
    if (engine->listener >= 0) {
        (void)close(engine->listener);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(engine->signals); i++) {
        bt_watch_close(&engine->signals[i]);
    }
    bt_loop_close(&engine->loop);
    kv_close(&engine->kv);
    bt_log_file_forget(&engine->log);
    bt_key_free(&engine->key);
}

int main(int argc, char **argv)
{
    struct eng_engine engine = {.listener = -1};
    int code = EXIT_BAD;

    if (!bt_process_hold_stdio()) {
        return EXIT_BAD;
    }
    (void)bt_process_raise_files();
    switch (options_read(argc, argv, &engine.options)) {
    case BT_CONF_RUN:
        code = start(&engine);
        if (code == EXIT_SUCCESS) {
            say_ready(&engine);
            bt_loop_run(engine.loop);
        }
        stop(&engine);
        break;
    case BT_CONF_EXIT_OK:
        code = EXIT_SUCCESS;
        break;
    case BT_CONF_EXIT_USAGE:
        break;
    }
    options_fini(&engine.options);
    return code;
}
