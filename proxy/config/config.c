/*
 * The proxy's configuration: the table of all settings, the checks that span
 * several of them, and the way from argv to an immutable struct.
 *
 *     argv --prescan--> --config FILE --> rows <-- flags, --set
 *                                          |
 *                                    config_check
 *                                          |
 *                      run, or --check, or --print-config
 */
#include "proxy/config/config.h"

#include "common/base/log.h"
#include "common/io/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRAM       "baton-proxy"
#define FILE_MAX      BT_MIB
#define SECRET_MODES  027 /* the group may read it, nobody else anything */
#define PATH_TEXT_MAX 96

static const char *const connector_names[] = {
    "baton", "nixl", "mooncake", "mooncake-seq", "tpu", "none", NULL};
static const char *const policy_names[] = {"round-robin", "least-load",
                                           "prefix", NULL};
static const char *const on_failure_names[] = {"error", "retry", "local", NULL};
static const char *const client_params_names[] = {"strip", "refuse", NULL};
static const char *const alone_names[] = {"allow", "refuse", NULL};
static const char *const lease_names[] = {"auto", NULL};
static const char *const half_close_names[] = {"leave", "finish", NULL};
static const char *const level_names[] = {"error", "warn",  "info",
                                          "debug", "trace", NULL};
static const char *const worker_names[] = {"auto", NULL};

/* --- the table --- */

/* clang-format off */
#define TABLE(table)        static const struct bt_conf_row table[] = {
#define PUBLIC_TABLE(table) const struct bt_conf_row table[] = {
#define END                 {.name = NULL}};

#define ROW(kind, key, field, value, low, high, text)                      \
    {.name = key, .type = BT_CONF_##kind, .offset = offsetof(OWNER, field),\
     .preset = value, .min = low, .max = high, .help = text},
#define NAMED(kind, key, field, value, words, text)                        \
    {.name = key, .type = BT_CONF_##kind, .offset = offsetof(OWNER, field),\
     .preset = value, .names = words, .help = text},
#define WORDS(kind, key, field, value, low, high, words, text)             \
    {.name = key, .type = BT_CONF_##kind, .offset = offsetof(OWNER, field),\
     .preset = value, .min = low, .max = high, .names = words, .help = text},
#define FLAG(kind, key, field, value, option, meta, text)                  \
    {.name = key, .type = BT_CONF_##kind, .offset = offsetof(OWNER, field),\
     .preset = value, .flag = option, .metavar = meta, .help = text,       \
     .is_start_only = true},
#define WORKERS(kind, key, field, value, low, high, words, option, meta, text) \
    {.name = key, .type = BT_CONF_##kind, .offset = offsetof(OWNER, field),\
     .preset = value, .min = low, .max = high, .names = words,             \
     .flag = option, .metavar = meta, .help = text, .is_start_only = true},
#define GROUP(key, field, table, short_form, text)                         \
    {.name = key, .type = BT_CONF_GROUP, .offset = offsetof(OWNER, field), \
     .rows = table, .scalar = short_form, .help = text},
#define INLINE(key, table, text)                                           \
    {.name = key, .type = BT_CONF_GROUP, .offset = 0, .rows = table,       \
     .help = text},
#define LIST(key, field, table, item, short_form, text)                    \
    {.name = key, .type = BT_CONF_LIST, .offset = offsetof(OWNER, field),  \
     .rows = table, .item_size = sizeof(item), .scalar = short_form,       \
     .preset = "", .help = text},

#include "proxy/config/config.def"
/* clang-format on */

/* --- checks of single values --- */

/* A check on its way through the settings. */
struct check {
    struct bt_conf_error *error;
    char path[PATH_TEXT_MAX]; /* of the value at hand */
};

static enum bt_status wrong(struct check *check, const char *format, ...)
    BT_PRINTF(2, 3);

static enum bt_status wrong(struct check *check, const char *format, ...)
{
    char why[360];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    (void)snprintf(check->error->text, sizeof(check->error->text), "%s: %s",
                   check->path, why);
    return BT_ERR_SYNTAX;
}

static void at(struct check *check, const char *format, ...) BT_PRINTF(2, 3);

static void at(struct check *check, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(check->path, sizeof(check->path), format, args);
    va_end(args);
}

static bool is_port(const char *text)
{
    uint64_t port;

    return bt_str_to_u64(bt_str_of(text), &port) == BT_OK && port <= 65535;
}

/* host:port, [v6]:port or unix:/path; nothing is resolved here. */
static enum bt_status check_addr(struct check *check, const char *addr)
{
    const char *const colon = strrchr(addr, ':');
    const char *host_end = colon;

    if (strncmp(addr, "unix:", 5) == 0) {
        if (addr[5] != '/' ||
            strlen(addr + 5) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
            return wrong(check,
                         "bad unix socket \"%.100s\"; write unix: and an "
                         "absolute path of at most 107 bytes",
                         addr);
        }
        return BT_OK;
    }
    if (colon == NULL || colon == addr || !is_port(colon + 1)) {
        return wrong(check,
                     "bad address \"%.100s\"; write host:port, [v6]:port or "
                     "unix:/path",
                     addr);
    }
    if (addr[0] == '[') {
        host_end = strchr(addr, ']');
    } else if (strchr(addr, ':') != colon) {
        return wrong(check,
                     "bad address \"%.100s\"; an IPv6 address stands in "
                     "brackets, [::1]:8000",
                     addr);
    }
    if (host_end == NULL || (addr[0] == '[' && host_end + 1 != colon)) {
        return wrong(check, "bad address \"%.100s\"; write [v6]:port", addr);
    }
    return BT_OK;
}

/* Nothing but its owner, and its group for reading, may get at a secret. */
static enum bt_status check_secret(struct check *check, const char *path)
{
    struct stat info;

    if (path == NULL) {
        return BT_OK;
    }
    if (stat(path, &info) != 0) {
        return wrong(check,
                     "cannot look at %.160s (%s); name a file that "
                     "this user can read",
                     path, strerrordesc_np(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return wrong(check, "%.160s is no regular file; name a file", path);
    }
    if ((info.st_mode & SECRET_MODES) != 0) {
        return wrong(check,
                     "%.160s has mode %04o, so others can get at it; chmod "
                     "600 it",
                     path, (unsigned)(info.st_mode & 07777));
    }
    if (access(path, R_OK) != 0) {
        return wrong(check,
                     "cannot read %.160s (%s); give this user the "
                     "right to read it",
                     path, strerrordesc_np(errno));
    }
    return BT_OK;
}

/* An address, or a CIDR block. */
static bool is_network(const char *text)
{
    unsigned char address[16];
    char host[INET6_ADDRSTRLEN];
    const char *const slash = strchr(text, '/');
    const size_t len = slash == NULL ? strlen(text) : (size_t)(slash - text);
    uint64_t bits = 0;
    bool is_v4;

    if (len == 0 || len >= sizeof(host)) {
        return false;
    }
    memcpy(host, text, len);
    host[len] = '\0';
    is_v4 = inet_pton(AF_INET, host, address) == 1;
    if (!is_v4 && inet_pton(AF_INET6, host, address) != 1) {
        return false;
    }
    return slash == NULL ||
           (bt_str_to_u64(bt_str_of(slash + 1), &bits) == BT_OK &&
            bits <= (is_v4 ? 32 : 128));
}

/* A host's name: what looks like an address must be one. */
static bool is_name(const char *text)
{
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const char *const dot = strrchr(text, '.');
    const char *const last = dot == NULL ? text : dot + 1;

    return text[0] != '\0' && text[0] != '.' &&
           strspn(text, LETTERS) == strlen(text) &&
           (last[0] == '\0' || strspn(last, "0123456789") != strlen(last));
}

/* --- checks of engines and pools --- */

static enum bt_status check_url(struct check *check,
                                const struct engine_conf *engine)
{
    const char *why = NULL;
    struct bt_url url;

    if (engine->url == NULL) {
        return wrong(check, "no url; write url: http://host:port");
    }
    if (strncasecmp(engine->url, "https://", 8) == 0) {
        return wrong(check,
                     "%.160s: TLS towards engines is not built yet; use an "
                     "http:// URL",
                     engine->url);
    }
    if (bt_url_parse(engine->url, &url, &why) != BT_OK) {
        return wrong(check, "bad URL \"%.160s\" (%s); write http://host:port",
                     engine->url, why == NULL ? "no URL" : why);
    }
    return BT_OK;
}

static enum bt_status check_engine(struct check *check,
                                   const struct engine_conf *engine)
{
    enum bt_status status = check_url(check, engine);

    for (size_t i = 0; i < engine->handoff_hosts.count && status == BT_OK;
         i++) {
        const char *const host = engine->handoff_hosts.items[i];

        if (!is_network(host) && !is_name(host)) {
            status = wrong(check,
                           "bad handoff_hosts \"%.80s\"; write an address, a "
                           "block such as 10.1.0.0/16, or a name as the "
                           "engine spells it",
                           host);
        }
    }
    for (size_t i = 0; i < engine->handoff_ports.count && status == BT_OK;
         i++) {
        const char *const port = engine->handoff_ports.items[i];

        if (!is_port(port)) {
            status = wrong(check,
                           "bad handoff_ports \"%.80s\"; write a number from "
                           "0 to 65535",
                           port);
        }
    }
    return status == BT_OK ? check_secret(check, engine->key_file) : status;
}

static bool is_same_url(const struct engine_conf *a,
                        const struct engine_conf *b)
{
    struct bt_url first;
    struct bt_url second;

    return bt_url_parse(a->url, &first, NULL) == BT_OK &&
           bt_url_parse(b->url, &second, NULL) == BT_OK &&
           strcmp(first.normal, second.normal) == 0;
}

/* Whether an engine before `index` has its URL. */
static bool is_repeated(const struct engine_conf *engines, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (is_same_url(&engines[index], &engines[i])) {
            return true;
        }
    }
    return false;
}

static enum bt_status check_side(struct check *check,
                                 const struct side_conf *side, size_t pool,
                                 const char *name)
{
    const struct engine_conf *const engines = side->engines.items;

    if (side->policy != POLICY_ROUND_ROBIN) {
        at(check, "pools.%zu.%s.policy", pool, name);
        return wrong(check, "%s is not built yet; use round-robin",
                     policy_names[side->policy]);
    }
    for (size_t i = 0; i < side->engines.count; i++) {
        enum bt_status status;

        at(check, "pools.%zu.%s.engines.%zu", pool, name, i);
        status = check_engine(check, &engines[i]);
        if (status != BT_OK) {
            return status;
        }
        if (is_repeated(engines, i)) {
            return wrong(check,
                         "%.160s stands there twice; name each engine once, "
                         "and give it a weight if it is larger",
                         engines[i].url);
        }
    }
    return BT_OK;
}

static enum bt_status check_connector(struct check *check,
                                      const struct config *config,
                                      const struct pool_conf *pool,
                                      size_t index)
{
    at(check, "pools.%zu.connector", index);
    if (pool->connector == CONNECTOR_MOONCAKE) {
        return wrong(check,
                     "%s is not built yet; use baton, nixl, mooncake-seq, tpu "
                     "or none",
                     connector_names[pool->connector]);
    }
    if (pool->connector != CONNECTOR_NONE && pool->prefill.engines.count == 0) {
        return wrong(check,
                     "%s needs prefill engines; add one (--prefill URL), or "
                     "choose none",
                     connector_names[pool->connector]);
    }
    if (pool->connector != CONNECTOR_BATON) {
        return BT_OK;
    }
    if (config->agents.listen == NULL) {
        at(check, "agents.listen");
        return wrong(check, "connector baton needs an address for the "
                            "engines' agents; set it (--agents ADDR)");
    }
    if (config->agents.key_file == NULL) {
        at(check, "agents.key_file");
        return wrong(check, "connector baton needs the key that agents prove; "
                            "set it (--agent-key FILE)");
    }
    return BT_OK;
}

/* Where D may not serve alone, nothing may ask for that. */
static enum bt_status check_alone(struct check *check,
                                  const struct pool_conf *pool, size_t index)
{
    at(check, "pools.%zu.handoff.alone", index);
    if (pool->handoff.alone == ALONE_ALLOW) {
        return BT_OK;
    }
    if (pool->connector == CONNECTOR_NONE) {
        return wrong(check, "with connector none the decode engines serve "
                            "alone; use allow");
    }
    if (pool->handoff.on_failure == ON_FAILURE_LOCAL) {
        return wrong(check, "refuse contradicts handoff.on_failure local; use "
                            "on_failure retry, or allow");
    }
    if (pool->handoff.min_prompt_tokens > 0) {
        return wrong(check, "refuse contradicts handoff.min_prompt_tokens; "
                            "set that to 0, or use allow");
    }
    return BT_OK;
}

static enum bt_status check_pool(struct check *check,
                                 const struct config *config,
                                 const struct pool_conf *pool, size_t index)
{
    enum bt_status status;

    if (pool->decode.engines.count == 0) {
        at(check, "pools.%zu.decode.engines", index);
        return wrong(check, "no decode engine; add one (--decode URL)");
    }
    status = check_connector(check, config, pool, index);
    if (status == BT_OK) {
        status = check_alone(check, pool, index);
    }
    if (status == BT_OK) {
        status = check_side(check, &pool->prefill, index, "prefill");
    }
    if (status == BT_OK) {
        status = check_side(check, &pool->decode, index, "decode");
    }
    if (status == BT_OK && pool->models.count == 0 &&
        index + 1 < config->pools.count) {
        at(check, "pools.%zu.model", index);
        return wrong(check, "without models this pool serves all of them and "
                            "the pools below none; name its models, or move "
                            "it to the end");
    }
    return status;
}

static enum bt_status check_pools(struct check *check,
                                  const struct config *config)
{
    const struct pool_conf *const pools = config->pools.items;

    if (config->pools.count == 0) {
        at(check, "pools");
        return wrong(check, "no engines; name them (--prefill URL --decode "
                            "URL), or list pools in a file (--config FILE)");
    }
    for (size_t i = 0; i < config->pools.count; i++) {
        const enum bt_status status = check_pool(check, config, &pools[i], i);

        if (status != BT_OK) {
            return status;
        }
    }
    return BT_OK;
}

static enum bt_status check_listeners(struct check *check,
                                      const struct config *config)
{
    enum bt_status status = BT_OK;

    at(check, "listen");
    if (config->listen.count == 0) {
        return wrong(check, "no address for clients; set one (--listen ADDR)");
    }
    for (size_t i = 0; i < config->listen.count && status == BT_OK; i++) {
        at(check, "listen.%zu", i);
        status = check_addr(check, config->listen.items[i]);
    }
    if (status == BT_OK && config->admin != NULL) {
        at(check, "admin");
        status = check_addr(check, config->admin);
    }
    if (status == BT_OK && config->agents.listen != NULL) {
        at(check, "agents.listen");
        status = check_addr(check, config->agents.listen);
    }
    if (status == BT_OK && config->agents.dead_ms <= config->agents.ping_ms) {
        at(check, "agents.dead");
        status = wrong(check, "not longer than agents.ping, so every link "
                              "would die; make it three times as long");
    }
    return status;
}

static enum bt_status check_keys(struct check *check,
                                 const struct config *config)
{
    enum bt_status status;

    at(check, "agents.key_file");
    status = check_secret(check, config->agents.key_file);
    if (status == BT_OK) {
        at(check, "auth.client_keys_file");
        status = check_secret(check, config->auth.client_keys_file);
    }
    if (status == BT_OK) {
        at(check, "auth.engine_key_file");
        status = check_secret(check, config->auth.engine_key_file);
    }
    return status;
}

static bool is_token(const char *text)
{
    return text[0] != '\0' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789!#$%&'*+-.^_`|~") == strlen(text);
}

/* As a browser writes it: scheme and host in lower case, and no path. */
static bool is_origin(const char *text)
{
    const char *const host = strstr(text, "://");

    return strcmp(text, "*") == 0 ||
           (host != NULL && host != text && host[3] != '\0' &&
            strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+-.") ==
                (size_t)(host - text) &&
            strspn(host + 3, "abcdefghijklmnopqrstuvwxyz0123456789-._:[]") ==
                strlen(host + 3));
}

static enum bt_status check_tokens(struct check *check, const char *name,
                                   const struct bt_conf_strings *list)
{
    for (size_t i = 0; i < list->count; i++) {
        at(check, "cors.%s.%zu", name, i);
        if (!is_token(list->items[i])) {
            return wrong(check, "bad name \"%.80s\"; write a single word",
                         list->items[i]);
        }
    }
    return BT_OK;
}

static enum bt_status check_cors(struct check *check,
                                 const struct cors_conf *cors)
{
    enum bt_status status;

    for (size_t i = 0; i < cors->origins.count; i++) {
        at(check, "cors.origins.%zu", i);
        if (!is_origin(cors->origins.items[i])) {
            return wrong(check,
                         "bad origin \"%.160s\"; write scheme://host or "
                         "scheme://host:port in lower case, without a path, "
                         "or \"*\"",
                         cors->origins.items[i]);
        }
    }
    status = check_tokens(check, "methods", &cors->methods);
    return status == BT_OK ? check_tokens(check, "headers", &cors->headers)
                           : status;
}

enum bt_status config_check(const struct config *config,
                            struct bt_conf_error *error_p)
{
    struct check check = {.error = error_p};
    enum bt_status status = check_listeners(&check, config);

    if (status == BT_OK) {
        status = check_pools(&check, config);
    }
    if (status == BT_OK) {
        status = check_cors(&check, &config->cors);
    }
    return status == BT_OK ? check_keys(&check, config) : status;
}

/* --- from argv --- */

struct load {
    struct config *config;
    struct config_run run;
    bool has_file_pools;
    bool has_help;
    bool has_file;
};

static enum bt_status flag_error(struct bt_conf_error *error_p,
                                 const char *text)
{
    (void)snprintf(error_p->text, sizeof(error_p->text), "%s", text);
    return BT_ERR_SYNTAX;
}

static enum bt_status set_in_pool(struct load *load, const char *flag,
                                  const char *path, const char *value,
                                  struct bt_conf_error *error_p)
{
    if (load->has_file_pools) {
        (void)snprintf(error_p->text, sizeof(error_p->text),
                       "%s: the file has pools already; leave one of the two "
                       "out, or use --set %s=VALUE",
                       flag, path);
        return BT_ERR_EXISTS;
    }
    return bt_conf_set(config_rows, load->config, flag, path, value, error_p);
}

/* Appends to the engines of one side of the first pool. */
static enum bt_status on_engine(struct load *load, const char *flag,
                                const char *value,
                                struct bt_conf_error *error_p)
{
    const struct pool_conf *const pool = load->config->pools.items;
    char path[64];
    size_t count = 0;

    if (value[0] == '\0') {
        (void)snprintf(error_p->text, sizeof(error_p->text),
                       "%s: no URL; write http://host:port", flag);
        return BT_ERR_SYNTAX;
    }
    if (pool != NULL) {
        count = strcmp(flag, "--prefill") == 0 ? pool->prefill.engines.count
                                               : pool->decode.engines.count;
    }
    (void)snprintf(path, sizeof(path), "pools.0.%s.engines.%zu", flag + 2,
                   count);
    return set_in_pool(load, flag, path, value, error_p);
}

static enum bt_status on_prefill(void *owner, const char *value,
                                 struct bt_conf_error *error_p)
{
    return on_engine(owner, "--prefill", value, error_p);
}

static enum bt_status on_decode(void *owner, const char *value,
                                struct bt_conf_error *error_p)
{
    return on_engine(owner, "--decode", value, error_p);
}

static enum bt_status on_connector(void *owner, const char *value,
                                   struct bt_conf_error *error_p)
{
    return set_in_pool(owner, "--connector", "pools.0.connector", value,
                       error_p);
}

static enum bt_status on_config(void *owner, const char *value,
                                struct bt_conf_error *error_p)
{
    struct load *const load = owner;

    (void)value; /* read before the flags: see read_file */
    if (load->has_file) {
        return flag_error(error_p, "--config: given twice; name one file");
    }
    load->has_file = true;
    return BT_OK;
}

static enum bt_status on_check(void *owner, const char *value,
                               struct bt_conf_error *error_p)
{
    (void)value;
    (void)error_p;
    ((struct load *)owner)->run.check_only = true;
    return BT_OK;
}

static enum bt_status on_print(void *owner, const char *value,
                               struct bt_conf_error *error_p)
{
    (void)value;
    (void)error_p;
    ((struct load *)owner)->run.print_only = true;
    return BT_OK;
}

static enum bt_status on_with_help(void *owner, const char *value,
                                   struct bt_conf_error *error_p)
{
    (void)value;
    (void)error_p;
    ((struct load *)owner)->has_help = true;
    return BT_OK;
}

static const struct bt_conf_option options[] = {
    {"--config", "FILE", "reads settings from a YAML file; flags win over it",
     on_config},
    {"--connector", "NAME",
     "how the engines of --prefill and --decode pass KV blocks: baton, nixl, "
     "mooncake-seq, tpu or none (default baton)",
     on_connector},
    {"--prefill", "URL", "a prefill engine; as often as needed", on_prefill},
    {"--decode", "URL", "a decode engine; as often as needed", on_decode},
    {"--check", NULL, "checks the configuration and ends: 0 good, 2 bad",
     on_check},
    {"--print-config", NULL,
     "prints the effective configuration as a file, unchecked, and ends",
     on_print},
    {"--with-help", NULL, "adds comments to --print-config", on_with_help},
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
};

static const char *find_file(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0) {
            return argv[i] + 9;
        }
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc &&
            strncmp(argv[i + 1], "--", 2) != 0) {
            return argv[i + 1];
        }
    }
    return NULL;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0 ||
            strcmp(argv[i], "--version") == 0) {
            return true;
        }
    }
    return false;
}

static enum bt_status read_bytes(int fd, struct bt_buf *text)
{
    while (text->len <= FILE_MAX) {
        ssize_t got;

        if (!bt_buf_reserve(text, 16 * BT_KIB)) {
            return BT_ERR_NOMEM;
        }
        got = read(fd, bt_buf_tail(text), 16 * BT_KIB);
        if (got == 0) {
            return BT_OK;
        }
        if (got < 0 && errno != EINTR) {
            return BT_ERR_SYSTEM;
        }
        if (got > 0) {
            bt_buf_commit(text, (size_t)got);
        }
    }
    return BT_ERR_LIMIT;
}

static enum bt_status read_file(struct load *load, const char *name,
                                struct bt_conf_error *error_p)
{
    struct bt_buf text = {0};
    const int fd = open(name, O_RDONLY | O_CLOEXEC);
    enum bt_status status = fd < 0 ? BT_ERR_SYSTEM : read_bytes(fd, &text);

    if (status == BT_ERR_LIMIT) {
        (void)snprintf(error_p->text, sizeof(error_p->text),
                       "%.200s: larger than 1 MiB; a configuration is smaller",
                       name);
    } else if (status != BT_OK) {
        (void)snprintf(error_p->text, sizeof(error_p->text),
                       "%.200s: cannot read the file (%s); name a file that "
                       "this user can read",
                       name, strerrordesc_np(errno));
    } else {
        status = bt_conf_read(config_rows, load->config, name,
                              bt_buf_str(&text), error_p);
        load->has_file_pools = load->config->pools.count > 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    bt_buf_fini(&text);
    return status;
}

static enum bt_conf_verdict print_config(const struct load *load)
{
    struct bt_buf text = {0};
    struct bt_str bytes;
    bool is_whole;

    if (load->has_help) {
        bt_buf_append(&text,
                      BT_STR("# Every setting of baton-proxy. Values with "
                             "units: 64MiB, 250ms, 20%.\n"
                             "# A setting that takes a list takes a single "
                             "value too.\n\n"));
    }
    bt_conf_print(config_rows, load->config, load->has_help, &text);
    bytes = bt_buf_str(&text);
    is_whole = !text.failed &&
               fwrite(bytes.ptr, 1, bytes.len, stdout) == bytes.len &&
               fflush(stdout) == 0;
    bt_buf_fini(&text);
    if (!is_whole) {
        (void)fprintf(stderr, PROGRAM ": cannot write to stdout\n");
        return BT_CONF_EXIT_USAGE;
    }
    return BT_CONF_EXIT_OK;
}

static enum bt_conf_verdict report(const struct bt_conf_error *error)
{
    (void)fprintf(stderr, PROGRAM ": %s\n", error->text);
    return BT_CONF_EXIT_USAGE;
}

/* Do engines of this connector find a handoff by the request's id alone? */
static bool matches_by_id(int connector)
{
    return connector == CONNECTOR_TPU || connector == CONNECTOR_MOONCAKE ||
           connector == CONNECTOR_MOONCAKE_SEQ;
}

static void say_good(const struct config *config)
{
    const struct pool_conf *const pools = config->pools.items;

    (void)puts("the configuration is good");
    for (size_t i = 0; i < config->pools.count; i++) {
        if (matches_by_id(pools[i].connector)) {
            (void)printf("pools.%zu: %s engines find a handoff by the id of "
                         "its request: start vLLM 0.14 and later with "
                         "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1\n",
                         i, connector_names[pools[i].connector]);
        }
    }
}

/* What the flags asked for beside running. */
static enum bt_conf_verdict conclude(const struct load *load)
{
    struct bt_conf_error error = {{0}};

    if (load->has_help && !load->run.print_only) {
        (void)flag_error(&error, "--with-help: belongs to --print-config; add "
                                 "that, or see --help");
        return report(&error);
    }
    if (load->run.print_only && !load->run.check_only) {
        return print_config(load);
    }
    if (config_check(load->config, &error) != BT_OK) {
        return report(&error);
    }
    if (load->run.print_only) {
        return print_config(load);
    }
    if (load->run.check_only) {
        say_good(load->config);
        return BT_CONF_EXIT_OK;
    }
    return BT_CONF_RUN;
}

static enum bt_conf_verdict read_all(struct load *load, int argc, char **argv)
{
    struct bt_conf_error error = {{0}};
    const char *const file = find_file(argc, argv);
    enum bt_conf_verdict verdict;

    if (file != NULL && !wants_help(argc, argv) &&
        read_file(load, file, &error) != BT_OK) {
        return report(&error);
    }
    verdict = bt_conf_args(&program, load->config, load, argc, argv);
    return verdict == BT_CONF_RUN ? conclude(load) : verdict;
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

void config_close(struct config **config)
{
    if (*config == NULL) {
        return;
    }
    bt_conf_fini(config_rows, *config);
    free(*config);
    *config = NULL;
}
