/*
 * kv_transfer_params: what P's host answers and D's host hands to its agent.
 *
 *     {"do_remote_prefill":true,"do_remote_decode":false,"baton":{"v":1,
 *      "handoff":…,"proxy":…,"engine":…,"boots":[…],"slot":…,"tokens":…,
 *      "groups":["10-73,80"],"digests":[["…"]],"ready":1,
 *      "prompt":…,"seal":…}}
 *
 * "proxy" is the boot of the handoff's owner, absent where there is none.
 * "ready":1 says that the blocks are read once the slot's record covers the
 * tokens. "prompt" is 32 hex digits of a SHA-256 over the tokens, items and
 * adapter; "seal" an HMAC-SHA256 over the text of the members before it, as
 * they are written here: hosts may print them in another way on their way to D.
 *
 * Members beside these are ignored.
 */
#ifndef AGENT_SRC_PULL_PARAMS_H
#define AGENT_SRC_PULL_PARAMS_H

#include "agent/src/fabric/region.h"

#define BTA_WORLD_MAX         4096
#define BTA_PARAMS_BLOCKS_MAX (1u << 22)

struct bta_params {
    struct bt_arena arena; /* of all below */
    baton_id handoff;
    uint64_t owner; /* the proxy's boot; 0: none */
    struct bt_str engine;
    uint64_t *boots; /* by rank */
    uint32_t world;
    uint32_t slot;
    uint64_t tokens;
    baton_blocks groups[BTA_GROUPS_MAX];
    size_t group_count;
    const uint64_t *digests; /* NULL: none; block_count by rank, all ranks */
    size_t block_count;
    bool is_early;        /* written before the blocks: to wait for them */
    struct bt_str prompt; /* hex of its digest; empty: not said */
    struct bt_str seal;   /* hex; empty: none */
};

/* `params` is to be finished in every case. ERR_PARAMS, ERR_MEMORY. */
baton_status bta_params_read(struct bta_params *params, struct bt_str text,
                             const char **why_p);
/* Read, are they of this prompt (NULL: any) and sealed with this key (empty:
 * any)? ERR_PROMPT, ERR_SEAL, ERR_ARGUMENT for the prompt, ERR_MEMORY. */
baton_status bta_params_check(const struct bta_params *params,
                              const baton_prompt *prompt, struct bt_str key);
/* The members of "baton" but the seal, as they are sealed. */
void bta_params_write(const struct bta_params *params, struct bt_buf *out);
void bta_params_fini(struct bta_params *params);

#endif
