/*
 * What no row can say by itself: addresses, key files, engines and pools that
 * fit each other. The path of the value at hand is put before what is wrong.
 */
#include "common/io/net.h"
#include "proxy/config/config.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_MODES  027 /* the group may read it, nobody else anything */
#define PATH_TEXT_MAX 96

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define DIGITS  "0123456789"
#define NAMES   LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZ" DIGITS

/* A check on its way through the settings. */
struct check {
    const struct config *config;
    struct bt_conf_error *error;
    char path[PATH_TEXT_MAX]; /* of the value at hand */
};

static void at(struct check *check, const char *format, ...) BT_PRINTF(2, 3);

static void at(struct check *check, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(check->path, sizeof(check->path), format, args);
    va_end(args);
}

/* --- single values --- */

static bool is_made_of(const char *text, const char *bytes)
{
    return text[0] != '\0' && strspn(text, bytes) == strlen(text);
}

static bool is_port(struct bt_str text)
{
    uint64_t port;

    return bt_str_to_u64(text, &port) == BT_OK && port <= 65535;
}

/* host:port, [v6]:port or unix:/path; nothing is resolved here. */
static bool check_addr(struct check *check, const char *addr)
{
    const struct bt_str text = bt_str_of(addr);
    struct bt_str host, port;

    if (addr == NULL) {
        return true;
    }
    if (bt_str_starts(text, BT_STR("unix:"))) {
        return (addr[5] == '/' &&
                text.len - 5 < sizeof(((struct sockaddr_un *)0)->sun_path)) ||
               bt_conf_fail(check->error,
                            "bad unix socket \"%.100s\"; write unix: and an "
                            "absolute path of at most 107 bytes",
                            addr);
    }
    return (bt_str_split_host(text, &host, &port) && is_port(port)) ||
           bt_conf_fail(check->error,
                        "bad address \"%.100s\"; write host:port, [v6]:port "
                        "or unix:/path",
                        addr);
}

/* Nothing but its owner, and its group for reading, may get at a secret. */
static bool check_secret(struct check *check, const char *path)
{
    struct stat info;

    if (path == NULL) {
        return true;
    }
    if (stat(path, &info) != 0) {
        return bt_conf_fail(check->error,
                            "cannot look at %.160s (%s); name a file that "
                            "this user can read",
                            path, strerrordesc_np(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return bt_conf_fail(check->error,
                            "%.160s is no regular file; name a file", path);
    }
    if ((info.st_mode & SECRET_MODES) != 0) {
        return bt_conf_fail(check->error,
                            "%.160s has mode %04o, so others can get at it; "
                            "chmod 600 it",
                            path, (unsigned)(info.st_mode & 07777));
    }
    return access(path, R_OK) == 0 ||
           bt_conf_fail(check->error,
                        "cannot read %.160s (%s); give this user the right "
                        "to read it",
                        path, strerrordesc_np(errno));
}

/* An address, or a CIDR block. */
static bool is_network(struct bt_str text)
{
    const size_t slash = bt_str_find(text, BT_STR("/"));
    const struct bt_str host = bt_str_cut(text, slash);
    const bool is_v4 = bt_str_find(host, BT_STR(":")) == host.len;
    unsigned char address[16];
    uint64_t bits = 0;

    return bt_host_bytes(host, address) &&
           (slash == text.len ||
            (bt_str_to_u64(bt_str_skip(text, slash + 1), &bits) == BT_OK &&
             bits <= (is_v4 ? 32 : 128)));
}

/* A host's name: what looks like an address must be one. */
static bool is_name(const char *text)
{
    const char *const dot = strrchr(text, '.');

    return text[0] != '.' && is_made_of(text, NAMES "-_.") &&
           !is_made_of(dot == NULL ? text : dot + 1, DIGITS);
}

/* As a browser writes it: scheme and host in lower case, and no path. */
static bool is_origin(const char *text)
{
    const char *const host = strstr(text, "://");

    return strcmp(text, "*") == 0 ||
           (host != NULL && host != text &&
            strspn(text, LETTERS DIGITS "+-.") == (size_t)(host - text) &&
            is_made_of(host + 3, LETTERS DIGITS "-._:[]"));
}

/* --- engines and pools --- */

static bool check_url(struct check *check, const struct engine_conf *engine,
                      struct bt_url *url_p)
{
    const char *why = NULL;

    if (engine->url == NULL) {
        return bt_conf_fail(check->error,
                            "no url; write url: http://host:port");
    }
    if (strncasecmp(engine->url, "https://", 8) == 0) {
        return bt_conf_fail(check->error,
                            "%.160s: TLS towards engines is not built yet; "
                            "use an http:// URL",
                            engine->url);
    }
    return bt_url_parse(engine->url, url_p, &why) == BT_OK ||
           bt_conf_fail(check->error,
                        "bad URL \"%.160s\" (%s); write http://host:port",
                        engine->url, why == NULL ? "no URL" : why);
}

static bool check_handoff_places(struct check *check,
                                 const struct engine_conf *engine)
{
    for (size_t i = 0; i < engine->handoff_hosts.count; i++) {
        const char *const host = engine->handoff_hosts.items[i];

        if (!is_network(bt_str_of(host)) && !is_name(host)) {
            return bt_conf_fail(check->error,
                                "bad handoff_hosts \"%.80s\"; write an "
                                "address, a block such as 10.1.0.0/16, or a "
                                "name as the engine spells it",
                                host);
        }
    }
    for (size_t i = 0; i < engine->handoff_ports.count; i++) {
        if (!is_port(bt_str_of(engine->handoff_ports.items[i]))) {
            return bt_conf_fail(check->error,
                                "bad handoff_ports \"%.80s\"; write a number "
                                "from 0 to 65535",
                                engine->handoff_ports.items[i]);
        }
    }
    return true;
}

/* Names are resolved for the URL alone. */
static bool check_bootstrap(struct check *check,
                            const struct engine_conf *engine,
                            const struct bt_url *url)
{
    char text[300];
    struct bt_url own;
    struct bt_addrs addrs;

    if (engine->bootstrap == NULL) {
        return true;
    }
    (void)snprintf(text, sizeof(text), "http://%.280s", engine->bootstrap);
    return (bt_url_parse(text, &own, NULL) == BT_OK &&
            (bt_url_addr(&own, &addrs) || strcmp(own.host, url->host) == 0)) ||
           bt_conf_fail(check->error,
                        "bad bootstrap \"%.160s\"; write host:port, the host "
                        "as a number or as the URL has it",
                        engine->bootstrap);
}

/* Whether one of the engines has this URL; those before are good. */
static bool has_url(const struct engine_conf *engines, size_t count,
                    const struct bt_url *url)
{
    struct bt_url other;

    for (size_t i = 0; i < count; i++) {
        if (bt_url_parse(engines[i].url, &other, NULL) == BT_OK &&
            strcmp(other.normal, url->normal) == 0) {
            return true;
        }
    }
    return false;
}

static bool check_engine(struct check *check, const struct engine_conf *engine,
                         struct bt_url *url_p)
{
    return check_url(check, engine, url_p) &&
           check_handoff_places(check, engine) &&
           check_bootstrap(check, engine, url_p) &&
           check_secret(check, engine->key_file);
}

bool config_check_engine(const struct engine_conf *engine,
                         struct bt_conf_error *error)
{
    struct check check = {.error = error};
    struct bt_url url;

    return check_engine(&check, engine, &url);
}

static bool check_engines(struct check *check, const struct side_conf *side,
                          size_t pool, const char *name)
{
    const struct engine_conf *const engines = side->engines.items;

    for (size_t i = 0; i < side->engines.count; i++) {
        struct bt_url url;

        at(check, "pools.%zu.%s.engines.%zu", pool, name, i);
        if (!check_engine(check, &engines[i], &url)) {
            return false;
        }
        if (has_url(engines, i, &url)) {
            return bt_conf_fail(check->error,
                                "%.160s stands there twice; name each engine "
                                "once, and give it a weight if it is larger",
                                engines[i].url);
        }
    }
    return true;
}

static bool check_side(struct check *check, const struct side_conf *side,
                       size_t pool, const char *name)
{
    at(check, "pools.%zu.%s.policy", pool, name);
    if (side->policy != POLICY_ROUND_ROBIN) {
        return bt_conf_fail(check->error,
                            "%s is not built yet; use round-robin",
                            config_policies[side->policy]);
    }
    return check_engines(check, side, pool, name);
}

static bool check_agents(struct check *check)
{
    at(check, "agents.listen");
    if (check->config->agents.listen == NULL) {
        return bt_conf_fail(check->error,
                            "connector baton needs an address for the "
                            "engines' agents; set it (--agents ADDR)");
    }
    at(check, "agents.key_file");
    return check->config->agents.key_file != NULL ||
           bt_conf_fail(check->error,
                        "connector baton needs the key that agents prove; set "
                        "it (--agent-key FILE)");
}

static bool check_connector(struct check *check, const struct pool_conf *pool,
                            size_t index)
{
    const char *const name = config_connectors[pool->connector];

    at(check, "pools.%zu.connector", index);
    if (pool->connector != CONNECTOR_NONE && pool->prefill.engines.count == 0) {
        return bt_conf_fail(check->error,
                            "%s needs prefill engines; add one (--prefill "
                            "URL), or choose none",
                            name);
    }
    return pool->connector != CONNECTOR_BATON || check_agents(check);
}

/* Where D may not serve alone, nothing may ask for that. */
static bool check_alone(struct check *check, const struct pool_conf *pool,
                        size_t index)
{
    at(check, "pools.%zu.handoff.alone", index);
    if (pool->handoff.alone == ALONE_ALLOW) {
        return true;
    }
    if (pool->connector == CONNECTOR_NONE) {
        return bt_conf_fail(check->error,
                            "with connector none the decode engines serve "
                            "alone; use allow");
    }
    if (pool->handoff.on_failure == ON_FAILURE_LOCAL) {
        return bt_conf_fail(check->error,
                            "refuse contradicts handoff.on_failure local; use "
                            "on_failure retry, or allow");
    }
    return pool->handoff.min_prompt_tokens == 0 ||
           bt_conf_fail(check->error,
                        "refuse contradicts handoff.min_prompt_tokens; set "
                        "that to 0, or use allow");
}

static bool check_pool(struct check *check, const struct pool_conf *pool,
                       size_t index)
{
    const bool is_last = index + 1 == check->config->pools.count;

    at(check, "pools.%zu.decode.engines", index);
    if (pool->decode.engines.count == 0) {
        return bt_conf_fail(check->error,
                            "no decode engine; add one (--decode URL)");
    }
    if (!check_connector(check, pool, index) ||
        !check_alone(check, pool, index) ||
        !check_side(check, &pool->prefill, index, "prefill") ||
        !check_side(check, &pool->decode, index, "decode")) {
        return false;
    }
    at(check, "pools.%zu.model", index);
    return pool->models.count > 0 || is_last ||
           bt_conf_fail(check->error,
                        "without models this pool serves all of them and the "
                        "pools below none; name its models, or move it to the "
                        "end");
}

static bool check_pools(struct check *check)
{
    const struct bt_conf_list *const list = &check->config->pools;
    const struct pool_conf *const pools = list->items;

    at(check, "pools");
    if (list->count == 0) {
        return bt_conf_fail(check->error,
                            "no engines; name them (--prefill URL --decode "
                            "URL), or list pools in a file (--config FILE)");
    }
    for (size_t i = 0; i < list->count; i++) {
        if (!check_pool(check, &pools[i], i)) {
            return false;
        }
    }
    return true;
}

/* --- the rest --- */

static bool check_listeners(struct check *check)
{
    const struct config *const config = check->config;

    at(check, "listen");
    if (config->listen.count == 0) {
        return bt_conf_fail(check->error,
                            "no address for clients; set one (--listen ADDR)");
    }
    for (size_t i = 0; i < config->listen.count; i++) {
        at(check, "listen.%zu", i);
        if (!check_addr(check, config->listen.items[i])) {
            return false;
        }
    }
    at(check, "admin");
    if (!check_addr(check, config->admin)) {
        return false;
    }
    at(check, "agents.listen");
    if (!check_addr(check, config->agents.listen)) {
        return false;
    }
    at(check, "agents.dead");
    return config->agents.dead_ms > config->agents.ping_ms ||
           bt_conf_fail(check->error,
                        "not longer than agents.ping, so every link would "
                        "die; make it three times as long");
}

static bool check_keys(struct check *check)
{
    const struct {
        const char *path;
        const char *file;
    } keys[] = {{"agents.key_file", check->config->agents.key_file},
                {"auth.client_keys_file", check->config->auth.client_keys_file},
                {"auth.admin_keys_file", check->config->auth.admin_keys_file},
                {"auth.engine_key_file", check->config->auth.engine_key_file}};

    for (size_t i = 0; i < BT_ARRAY_LEN(keys); i++) {
        at(check, "%s", keys[i].path);
        if (!check_secret(check, keys[i].file)) {
            return false;
        }
    }
    return true;
}

/* As c-ares reads them, which takes more than it can use. */
static bool is_server(struct bt_str text)
{
    unsigned char bytes[16];
    struct bt_str host;
    struct bt_str port;

    if (bt_host_bytes(text, bytes)) {
        return true;
    }
    return bt_str_split_host(text, &host, &port) && is_port(port) &&
           bt_host_bytes(host, bytes);
}

static bool check_names(struct check *check)
{
    const char *const servers = check->config->names.servers;
    struct bt_str rest = bt_str_of(servers == NULL ? "" : servers);
    bool are_good = true;

    at(check, "names.servers");
    while (servers != NULL && are_good) {
        const size_t comma = bt_str_find(rest, BT_STR(","));

        are_good = is_server(bt_str_cut(rest, comma));
        if (comma == rest.len) {
            break;
        }
        rest = bt_str_skip(rest, comma + 1);
    }
    return are_good ||
           bt_conf_fail(check->error,
                        "bad DNS servers \"%.100s\"; write addresses with "
                        "commas between them, such as 10.0.0.2:53,[fd00::2]:53",
                        servers);
}

static bool check_tokens(struct check *check, const char *name,
                         const struct bt_conf_strings *list)
{
    for (size_t i = 0; i < list->count; i++) {
        at(check, "cors.%s.%zu", name, i);
        if (!is_made_of(list->items[i], NAMES "!#$%&'*+-.^_`|~")) {
            return bt_conf_fail(check->error,
                                "bad name \"%.80s\"; write a single word",
                                list->items[i]);
        }
    }
    return true;
}

static bool check_cors(struct check *check)
{
    const struct cors_conf *const cors = &check->config->cors;

    for (size_t i = 0; i < cors->origins.count; i++) {
        at(check, "cors.origins.%zu", i);
        if (!is_origin(cors->origins.items[i])) {
            return bt_conf_fail(check->error,
                                "bad origin \"%.160s\"; write scheme://host "
                                "or scheme://host:port in lower case, without "
                                "a path, or \"*\"",
                                cors->origins.items[i]);
        }
    }
    return check_tokens(check, "methods", &cors->methods) &&
           check_tokens(check, "headers", &cors->headers);
}

enum bt_status config_check(const struct config *config,
                            struct bt_conf_error *error_p)
{
    struct check check = {.config = config, .error = error_p};

    if (check_listeners(&check) && check_pools(&check) && check_cors(&check) &&
        check_keys(&check) && check_names(&check)) {
        return BT_OK;
    }
    (void)bt_conf_place(error_p, "%s: ", check.path);
    return BT_ERR_SYNTAX;
}
