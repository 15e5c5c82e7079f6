/*
 * The proxy's configuration: one struct, immutable after load, described by
 * the table in config.def.
 */
#ifndef PROXY_CONFIG_CONFIG_H
#define PROXY_CONFIG_CONFIG_H

#include "common/conf/conf.h"

enum connector {
    CONNECTOR_BATON,
    CONNECTOR_NIXL,
    CONNECTOR_MOONCAKE,
    CONNECTOR_MOONCAKE_SEQ,
    CONNECTOR_TPU,
    CONNECTOR_NONE,
};

enum engine_role {
    ENGINE_PREFILL,
    ENGINE_DECODE
};
#define ENGINE_ROLES 2

enum policy {
    POLICY_ROUND_ROBIN,
    POLICY_LEAST_LOAD,
    POLICY_PREFIX
};
enum on_failure {
    ON_FAILURE_ERROR,
    ON_FAILURE_RETRY,
    ON_FAILURE_LOCAL
};
enum client_params {
    CLIENT_PARAMS_STRIP,
    CLIENT_PARAMS_REFUSE
};
enum alone {
    ALONE_ALLOW,
    ALONE_REFUSE
};
enum half_close {
    HALF_CLOSE_LEAVE,
    HALF_CLOSE_FINISH
};

struct engine_conf {
    char *url;
    struct bt_conf_strings handoff_hosts; /* addresses, CIDR, names */
    struct bt_conf_strings handoff_ports; /* numbers; empty: any */
    int64_t weight;
    int64_t max_in_flight; /* 0: no limit */
    char *key_file;        /* bearer key put in towards this engine */
    char *bootstrap;       /* P of mooncake: host:port; NULL: its URL's */
};

/* An engine that is to come while the program runs. */
struct engine_request {
    struct engine_conf engine; /* first: the rows of both count from here */
    char *role;                /* "prefill", "decode" */
    int64_t pool;              /* its number in the configuration */
};

struct side_conf {
    int policy;                  /* enum policy */
    struct bt_conf_list engines; /* struct engine_conf */
};

struct handoff_conf {
    int64_t min_prompt_tokens; /* shorter prompts go to D alone */
    int on_failure;            /* enum on_failure */
    int client_params;         /* enum client_params */
    bool require;              /* P without params is 502, else D alone */
    bool fast_release;
    int alone;         /* enum alone */
    uint64_t lease_ms; /* of stock handoffs; 0: the connector's own */
};

struct pool_conf {
    struct bt_conf_strings
        models;    /* key `model`; names and globs; empty: all */
    int connector; /* enum connector */
    struct side_conf prefill;
    struct side_conf decode;
    struct handoff_conf handoff;
};

/* Pages of other sites that may call from a browser; no origins: none. */
struct cors_conf {
    struct bt_conf_strings origins; /* scheme://host[:port], or "*" */
    struct bt_conf_strings methods;
    struct bt_conf_strings headers; /* "*": those that are asked for */
    uint64_t max_age_ms;
};

struct config {
    struct bt_conf_strings listen; /* ADDRs */
    char *admin;                   /* ADDR or NULL */
    struct {
        char *listen; /* ADDR or NULL */
        char *key_file;
        uint64_t lease_ms; /* 30 s */
        uint64_t ping_ms;  /* 1 s */
        uint64_t dead_ms;  /* 3 s */
    } agents;
    int64_t workers;           /* 0: auto, bt_process_cpus */
    struct bt_conf_list pools; /* struct pool_conf */
    struct {
        uint64_t body, head, target, body_memory, body_rate, stream_buffer,
            prefill_answer, client_body_memory;
        int64_t fields, in_flight, queue, tails, connections,
            client_connections;
    } limits;
    struct {
        uint64_t connect, prefill, first_byte, idle, queue, head, body,
            body_idle, write, keep_alive, engine_keep_alive, drain,
            probe_interval, probe, total; /* total: 0, whole exchange */
    } timeouts;                           /* ms */
    struct {
        int64_t attempts;
        int64_t budget_percent;
    } retry;
    struct {
        char *client_keys_file;
        char *admin_keys_file;
        char *engine_key_file;
    } auth;
    struct {
        char *servers; /* NULL: the system's */
    } names;
    struct cors_conf cors;
    struct {
        int half_close; /* enum half_close */
    } client;
    struct {
        int level;    /* enum bt_log_level */
        char *access; /* "stdout", "off", or a path */
    } log;
};

extern const struct bt_conf_row config_rows[];

/*
 * Checks what a table cannot (no engines, connector baton without agents, a
 * duplicate URL, key files' modes …) and reads nothing. error_p names the path.
 */
BT_MUST_CHECK enum bt_status config_check(const struct config *config,
                                          struct bt_conf_error *error_p);

/* By enum connector and enum policy. */
extern const char *const config_connectors[];
extern const char *const config_policies[];

/*
 * argv -> config, --config, --check and --print-config included. Errors are
 * printed. BT_CONF_RUN: go on (print and check were done if asked for: then
 * BT_CONF_EXIT_OK).
 */
enum bt_conf_verdict config_load(int argc, char **argv,
                                 struct config **config_p);
void config_close(struct config **config);

extern const char *const config_roles[]; /* by enum engine_role */

/*
 * Reads an engine_request, an object of JSON (or YAML), and checks it. On true
 * what is in it is heap: `engine` goes into *engine_p (heap too).
 */
BT_MUST_CHECK bool config_read_engine(struct bt_str text,
                                      const struct config *config,
                                      struct engine_conf **engine_p,
                                      enum engine_role *role_p, size_t *pool_p,
                                      struct bt_conf_error *error);
/* What config_read_engine made. NULL is fine. */
void config_engine_free(struct engine_conf *engine);
/* As config_check, of one engine. */
BT_MUST_CHECK bool config_check_engine(const struct engine_conf *engine,
                                       struct bt_conf_error *error);

#endif
