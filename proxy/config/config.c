/*
 * The proxy's configuration: the table of all settings, and the way from argv
 * to an immutable struct.
 *
 *     argv -> --config FILE -> rows <- flags, --set
 *                               |
 *                         config_check
 *                               |
 *            run, or --check, or --print-config
 */
#include "proxy/config/config.h"

#include "common/conf/conf_rows.h"
#include "common/io/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM  "baton-proxy"
#define FILE_MAX BT_MIB

const char *const config_connectors[] = {
    "baton", "nixl", "mooncake", "mooncake-seq", "tpu", "none", NULL};
const char *const config_policies[] = {"round-robin", "least-load", "prefix",
                                       NULL};
const char *const config_roles[] = {"prefill", "decode", NULL};
static const char *const on_failure_names[] = {"error", "retry", "local", NULL};
static const char *const client_params_names[] = {"strip", "refuse", NULL};
static const char *const alone_names[] = {"allow", "refuse", NULL};
static const char *const lease_names[] = {"auto", NULL};
static const char *const half_close_names[] = {"leave", "finish", NULL};
static const char *const level_names[] = {"error", "warn",  "info",
                                          "debug", "trace", NULL};
static const char *const worker_names[] = {"auto", NULL};

#include "proxy/config/config.def"

/* --- the options beside the settings --- */

struct load {
    struct config *config;
    bool has_file_pools;
    bool has_file;
};

static enum bt_status set_in_pool(struct load *load, const char *flag,
                                  const char *path, const char *value,
                                  struct bt_conf_error *error_p)
{
    if (load->has_file_pools) {
        (void)bt_conf_fail(error_p,
                           "%s: the file has pools already; leave one of the "
                           "two out, or use --set %s=VALUE",
                           flag, path);
        return BT_ERR_EXISTS;
    }
    return bt_conf_set(config_rows, load->config, flag, path, value, error_p);
}

/* Appends to the engines of one side of the first pool. */
static enum bt_status add_engine(struct load *load, const char *flag,
                                 const char *value,
                                 struct bt_conf_error *error_p)
{
    const struct pool_conf *const pool = load->config->pools.items;
    const bool is_prefill = strcmp(flag, "--prefill") == 0;
    char path[64];
    size_t count = 0;

    if (value[0] == '\0') {
        (void)bt_conf_fail(error_p, "%s: no URL; write http://host:port", flag);
        return BT_ERR_SYNTAX;
    }
    if (pool != NULL) {
        count = is_prefill ? pool->prefill.engines.count
                           : pool->decode.engines.count;
    }
    (void)snprintf(path, sizeof(path), "pools.0.%s.engines.%zu", flag + 2,
                   count);
    return set_in_pool(load, flag, path, value, error_p);
}

static enum bt_status on_option(void *owner, const char *flag,
                                const char *value,
                                struct bt_conf_error *error_p)
{
    struct load *const load = owner;

    if (strcmp(flag, "--prefill") == 0 || strcmp(flag, "--decode") == 0) {
        return add_engine(load, flag, value, error_p);
    }
    if (strcmp(flag, "--connector") == 0) {
        return set_in_pool(load, flag, "pools.0.connector", value, error_p);
    }
    if (strcmp(flag, "--config") == 0) { /* it was read before the flags */
        if (load->has_file) {
            (void)bt_conf_fail(error_p, "--config: given twice; name one file");
            return BT_ERR_EXISTS;
        }
        load->has_file = true;
    }
    return BT_OK; /* what else is asked for: see conclude */
}

static const struct bt_conf_option options[] = {
    {"--config", "FILE", "reads settings from a YAML file; flags win over it"},
    {"--connector", "NAME",
     "how the engines of --prefill and --decode pass KV blocks: baton, nixl, "
     "mooncake-seq, tpu or none (default baton)"},
    {"--prefill", "URL", "a prefill engine; as often as needed"},
    {"--decode", "URL", "a decode engine; as often as needed"},
    {"--check", NULL, "checks the configuration and ends: 0 good, 2 bad"},
    {"--print-config", NULL,
     "prints the effective configuration as a file, unchecked, and ends"},
    {"--with-help", NULL, "adds comments to --print-config"},
    {0},
};

static const struct bt_conf_program program = {
    .name = PROGRAM,
    .summary = "one OpenAI-compatible address before prefill and decode "
               "engines",
    .usage = "[--config FILE] [--listen ADDR]… [--admin ADDR] "
             "[--agents ADDR]\n"
             "       [--agent-key FILE] [--workers N] [--connector NAME] "
             "[--prefill URL]…\n"
             "       [--decode URL]… [--set PATH=VALUE]… [--check] "
             "[--print-config]",
    .epilog = "examples:\n"
              "  baton-proxy --connector none --decode http://127.0.0.1:8100\n"
              "  baton-proxy --config /etc/baton/baton.yaml --set "
              "log.level=debug\n\n"
              "signals: TERM drains, then ends\n"
              "exit status: 0 done, 1 failed, 2 bad usage or configuration",
    .rows = config_rows,
    .options = options,
    .on_option = on_option,
};

/* --- from argv --- */

static bool read_file(struct load *load, const char *name,
                      struct bt_conf_error *error_p)
{
    struct bt_buf text = {0};
    bool is_read = bt_file_read(name, FILE_MAX, &text);

    if (is_read) {
        is_read = bt_conf_read(config_rows, load->config, name,
                               bt_buf_str(&text), error_p) == BT_OK;
        load->has_file_pools = load->config->pools.count > 0;
    } else if (errno == EFBIG) {
        (void)bt_conf_fail(error_p,
                           "%.200s: larger than 1 MiB; a configuration is "
                           "smaller",
                           name);
    } else {
        (void)bt_conf_fail(error_p,
                           "%.200s: cannot read the file (%s); name a file "
                           "that this user can read",
                           name, strerrordesc_np(errno));
    }
    bt_buf_fini(&text);
    return is_read;
}

static enum bt_conf_verdict print_config(const struct config *config,
                                         bool has_help)
{
    struct bt_buf text = {0};

    if (has_help) {
        bt_buf_append(&text,
                      BT_STR("# Every setting of baton-proxy. Values with "
                             "units: 64MiB, 250ms, 20%.\n"
                             "# A setting that takes a list takes a single "
                             "value too.\n\n"));
    }
    bt_conf_print(config_rows, config, has_help, &text);
    return bt_conf_write(&text);
}

static enum bt_conf_verdict report(const struct bt_conf_error *error)
{
    (void)fprintf(stderr, PROGRAM ": %s\n", error->text);
    return BT_CONF_EXIT_USAGE;
}

/* Do engines of this connector find a handoff by the request's id alone? */
static bool matches_by_id(int connector)
{
    return connector == CONNECTOR_TPU || connector == CONNECTOR_MOONCAKE_SEQ;
}

static enum bt_conf_verdict say_good(const struct config *config)
{
    const struct pool_conf *const pools = config->pools.items;

    (void)puts("the configuration is good");
    for (size_t i = 0; i < config->pools.count; i++) {
        if (matches_by_id(pools[i].connector)) {
            (void)printf("pools.%zu: %s engines find a handoff by the id of "
                         "its request: start vLLM 0.14 and later with "
                         "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1\n",
                         i, config_connectors[pools[i].connector]);
        }
    }
    return BT_CONF_EXIT_OK;
}

/* What argv asks for beside running. */
static enum bt_conf_verdict conclude(const struct config *config, int argc,
                                     char **argv)
{
    const bool has_help = bt_conf_arg(argc, argv, "--with-help") != NULL;
    const bool is_print = bt_conf_arg(argc, argv, "--print-config") != NULL;
    const bool is_check = bt_conf_arg(argc, argv, "--check") != NULL;
    struct bt_conf_error error = {{0}};

    if (has_help && !is_print) {
        (void)bt_conf_fail(&error, "--with-help: belongs to --print-config; "
                                   "add that, or see --help");
        return report(&error);
    }
    if ((!is_print || is_check) && config_check(config, &error) != BT_OK) {
        return report(&error);
    }
    if (is_print) {
        return print_config(config, has_help);
    }
    return is_check ? say_good(config) : BT_CONF_RUN;
}

static enum bt_conf_verdict read_all(struct load *load, int argc, char **argv)
{
    struct bt_conf_error error = {{0}};
    const char *const file = bt_conf_arg(argc, argv, "--config");
    enum bt_conf_verdict verdict;

    if (file != NULL && file[0] != '\0' && !bt_conf_asks_for_help(argc, argv) &&
        !read_file(load, file, &error)) {
        return report(&error);
    }
    verdict = bt_conf_args(&program, load->config, load, argc, argv);
    return verdict == BT_CONF_RUN ? conclude(load->config, argc, argv)
                                  : verdict;
}

enum bt_conf_verdict config_load(int argc, char **argv,
                                 struct config **config_p)
{
    struct load load = {.config = calloc(1, sizeof(struct config))};
    enum bt_conf_verdict verdict;

    if (load.config == NULL ||
        bt_conf_init(config_rows, load.config) != BT_OK) {
        free(load.config);
        (void)fprintf(stderr, PROGRAM ": out of memory\n");
        return BT_CONF_EXIT_USAGE;
    }
    verdict = read_all(&load, argc, argv);
    if (verdict == BT_CONF_RUN) {
        *config_p = load.config;
    } else {
        config_close(&load.config);
    }
    return verdict;
}

/* --- one engine --- */

#define REQUEST_ROWS \
    (BT_ARRAY_LEN(engine_rows) - 1 + BT_ARRAY_LEN(request_rows))

static bool is_key_of(const struct bt_conf_list *engines, const char *file)
{
    const struct engine_conf *const items = engines->items;

    for (size_t i = 0; i < engines->count; i++) {
        if (items[i].key_file != NULL && strcmp(items[i].key_file, file) == 0) {
            return true;
        }
    }
    return false;
}

/* Whoever may add an engine could else have any private file sent to it. */
static bool names_key(const struct config *config, const char *file,
                      struct bt_conf_error *error)
{
    const struct pool_conf *const pools = config->pools.items;

    if (file == NULL || (config->auth.engine_key_file != NULL &&
                         strcmp(config->auth.engine_key_file, file) == 0)) {
        return true;
    }
    for (size_t i = 0; i < config->pools.count; i++) {
        if (is_key_of(&pools[i].prefill.engines, file) ||
            is_key_of(&pools[i].decode.engines, file)) {
            return true;
        }
    }
    return bt_conf_fail(error, "key_file: only files that the configuration "
                               "names for engines may be used");
}

static bool check_request(const struct engine_request *request,
                          const struct config *config, enum engine_role *role_p,
                          struct bt_conf_error *error)
{
    const struct pool_conf *const pools = config->pools.items;
    const bool is_decode =
        request->role != NULL &&
        strcmp(request->role, config_roles[ENGINE_DECODE]) == 0;

    *role_p = is_decode ? ENGINE_DECODE : ENGINE_PREFILL;
    if (!is_decode && (request->role == NULL ||
                       strcmp(request->role, config_roles[*role_p]) != 0)) {
        return bt_conf_fail(error, "role: write \"prefill\" or \"decode\"");
    }
    if ((size_t)request->pool >= config->pools.count) {
        return bt_conf_fail(error,
                            "pool: there is none of number %lld; there are %zu",
                            (long long)request->pool, config->pools.count);
    }
    if (!is_decode && pools[request->pool].connector == CONNECTOR_NONE) {
        return bt_conf_fail(error, "role: a pool of connector none has no "
                                   "prefill engines");
    }
    return names_key(config, request->engine.key_file, error) &&
           config_check_engine(&request->engine, error);
}

bool config_read_engine(struct bt_str text, const struct config *config,
                        struct engine_conf **engine_p, enum engine_role *role_p,
                        size_t *pool_p, struct bt_conf_error *error)
{
    struct bt_conf_row rows[REQUEST_ROWS];
    struct engine_request request = {0};
    struct engine_conf *const engine = malloc(sizeof(*engine));

    memcpy(rows, engine_rows, sizeof(engine_rows));
    memcpy(rows + BT_ARRAY_LEN(engine_rows) - 1, request_rows,
           sizeof(request_rows));
    if (engine == NULL || bt_conf_init(rows, &request) != BT_OK) {
        bt_conf_fini(rows, &request);
        free(engine);
        return bt_conf_fail(error, "out of memory");
    }
    if (bt_conf_read(rows, &request, "body", text, error) != BT_OK ||
        !check_request(&request, config, role_p, error)) {
        bt_conf_fini(rows, &request);
        free(engine);
        return false;
    }
    bt_conf_fini(request_rows, &request);
    *engine = request.engine;
    *engine_p = engine;
    *pool_p = (size_t)request.pool;
    return true;
}

void config_engine_free(struct engine_conf *engine)
{
    if (engine != NULL) {
        bt_conf_fini(engine_rows, engine);
        free(engine);
    }
}

void config_close(struct config **config)
{
    if (*config != NULL) {
        bt_conf_fini(config_rows, *config);
        free(*config);
        *config = NULL;
    }
}
