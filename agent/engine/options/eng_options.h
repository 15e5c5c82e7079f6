/*
 * The command line of baton-engine, from one table.
 */
#ifndef AGENT_ENGINE_OPTIONS_ENG_OPTIONS_H
#define AGENT_ENGINE_OPTIONS_ENG_OPTIONS_H

#include "agent/engine/kv/model.h"
#include "common/conf/conf.h"
#include <baton/agent.h>

enum options_connector {
    CONNECTOR_NIXL,
    CONNECTOR_MOONCAKE_SEQ,
    CONNECTOR_MOONCAKE,
    CONNECTOR_TPU,
    CONNECTOR_NONE,
};

enum options_kv {
    OPTIONS_KV_SPLIT,
    OPTIONS_KV_PACKED,
    OPTIONS_KV_LATENT,
};

struct eng_options {
    char *listen;
    int role; /* 0 prefill, 1 decode, 2 both */
    char *url;
    struct bt_conf_strings agents;
    char *key_file;
    bool has_checksum;
    char *model;
    int64_t seed;
    char *engine_id;
    int64_t blocks, block_size, layers, kv_heads, head_size;
    int dtype; /* index; see options_dtype_bytes */
    int64_t tp;
    int kv; /* enum options_kv */
    char *kv_groups;
    int64_t prefill_rate, decode_step_us, step_tokens;
    int64_t max_model_len, max_running, max_waiting;
    char *provider;
    char *fabric_address;
    int64_t max_handoffs;
    uint64_t lease_ms, pull_timeout_ms, orphan_ms, drain_ms, keep_alive_ms;
    int on_load_failure; /* 0 fail, 1 recompute */
    int connector;       /* enum options_connector */
    struct bt_conf_strings faults;
    bool has_admin;
    int log_level;
};

/*
 * Parses argv into options_p, which is to be freed with options_fini whatever
 * the verdict. Prints what is wrong, or help.
 */
enum bt_conf_verdict options_read(int argc, char **argv,
                                  struct eng_options *options_p);
void options_fini(struct eng_options *options);

const char *options_role_name(const struct eng_options *options);
baton_role options_role(const struct eng_options *options);
/* What is wrong with --kv-groups; NULL: nothing. */
const char *options_groups_fault(const struct eng_options *options);
/* The model that the options describe; the groups are right. */
BT_MUST_CHECK enum bt_status options_model(const struct eng_options *options,
                                           struct eng_model *model_p);
/* All that decides the bytes inside a block, as text. */
void options_fingerprint(const struct eng_options *options, struct bt_buf *out);

#endif
