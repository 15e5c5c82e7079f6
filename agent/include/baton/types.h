/*
 * The types of <baton/agent.h>.
 *
 * All but the three values (id, bytes, blocks) begin with their own size and
 * may grow at their end. The library reads what the caller's struct has and
 * takes defaults for the rest; of one that is longer than its own, the rest
 * must be zero. So a host that was compiled with an older header runs with a
 * newer library, and with an older one as long as it asks for nothing new.
 * Name the members that you set: `baton_pull_request r = {.size = sizeof(r)}`.
 */
#ifndef BATON_TYPES_H
#define BATON_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BATON_API_VERSION 1
/* name, value, text */
#define BATON_STATUS_MAP(X)                                                \
    X(BATON_OK, 0, "ok")                                                   \
    X(BATON_ERR_ARGUMENT, -1, "an argument is out of its range")           \
    X(BATON_ERR_MEMORY, -2, "out of memory")                               \
    X(BATON_ERR_SYSTEM, -3, "a system call failed")                        \
    X(BATON_ERR_FABRIC, -4, "no usable fabric provider")                   \
    X(BATON_ERR_BUSY, -5, "a limit is met; try later or do without")       \
    X(BATON_ERR_STATE, -6, "not allowed in this state")                    \
    X(BATON_ERR_UNKNOWN, -7, "no such handoff, tag or peer")               \
    X(BATON_ERR_EXISTS, -8, "the handoff, tag or slot is in use")          \
    X(BATON_ERR_PARAMS, -9, "the params or info text is malformed")        \
    X(BATON_ERR_SPACE, -10, "the output buffer is too small")              \
    X(BATON_ERR_UNSUPPORTED, -11, "not supported by this build or device") \
    X(BATON_ERR_PROMPT, -12, "the params are of another prompt")           \
    X(BATON_ERR_SEAL, -13, "the params are not sealed with this key")
typedef enum baton_status {
#define BATON_STATUS_ENUM(name, value, text) name = value,
    BATON_STATUS_MAP(BATON_STATUS_ENUM)
#undef BATON_STATUS_ENUM
} baton_status;

/* clang-format off */
typedef enum baton_role {
    BATON_ROLE_PREFILL = 1, BATON_ROLE_DECODE = 2, BATON_ROLE_BOTH = 3,
    BATON_ROLE_SCHEDULER = 4 /* link only: no memory, no fabric */
} baton_role;
typedef enum baton_memory { BATON_MEMORY_HOST, BATON_MEMORY_CUDA } baton_memory;
/* What a tensor of a layer holds. KV: both of a token side by side; latent: MLA;
 * index, state: of sparse or linear attention. A host's own: NAMED + a number */
typedef enum baton_kind {
    BATON_KIND_K, BATON_KIND_V, BATON_KIND_KV, BATON_KIND_LATENT,
    BATON_KIND_INDEX, BATON_KIND_STATE, BATON_KIND_NAMED = 64
} baton_kind;
#define BATON_KIND_MAX (BATON_KIND_NAMED + 4095)
/* clang-format on */

/* Why a hold ended, or a pull or peer failed. */
typedef enum baton_reason {
    BATON_REASON_NONE,
    BATON_REASON_PULLED,      /* every block was read and proven */
    BATON_REASON_CANCELLED,   /* the proxy or the host gave it up */
    BATON_REASON_EXPIRED,     /* the lease or the orphan time ran out */
    BATON_REASON_BROKEN,      /* the host broke it or reused a block */
    BATON_REASON_LOST,        /* the hold word was another's: no proof */
    BATON_REASON_CHECKSUM,    /* a block's digest differs */
    BATON_REASON_TIMEOUT,     /* the pull's deadline passed */
    BATON_REASON_UNREACHABLE, /* the peer's fabric endpoint failed */
    BATON_REASON_RESTARTED,   /* the peer has another boot id than the params */
    BATON_REASON_MISMATCH,    /* fingerprints, geometry or block lists differ */
    BATON_REASON_UNKNOWN_PEER, /* no card of that engine, rank and boot */
    BATON_REASON_MEMORY        /* the agent is out of memory */
} baton_reason;

typedef struct baton_id { /* of a handoff; lo is the hold word, never 0 */
    uint64_t hi, lo;
} baton_id;
typedef struct baton_bytes { /* borrowed */
    const void *data;
    size_t length;
} baton_bytes;
typedef struct baton_blocks { /* numbers of a group, in token order; borrowed */
    const uint32_t *ids;
    size_t count;
} baton_blocks;
typedef struct baton_options {
    size_t size; /* set by baton_options_preset, as all defaults */
    baton_role role;
    const char *engine;           /* 1..255 printable ASCII characters */
    uint64_t engine_boot;         /* of all ranks of one life; 0 unknown */
    const char *url;              /* the engine's, as the proxies know it */
    uint32_t rank, world, tp, pp; /* of ranks, tensor, pipeline (0, 1, 1, 1) */
    uint32_t dp; /* which of the data-parallel cores behind one url (0) */
    const char *const *proxies; /* "HOST:PORT" of agents' listeners */
    size_t proxy_count;         /* may be 0 */
    baton_bytes key;            /* shared with the proxies; empty: none */
    const char *provider;       /* "auto", "tcp", "cma", or libfabric's name */
    const char *fabric_address; /* local IP; NULL: the URL's, else loopback */
    const char *fingerprint;    /* UTF-8; all that decides a block's bytes */
    uint32_t max_handoffs, max_holds;   /* live, words (16384, 65536) */
    uint32_t pull_timeout_ms, drain_ms; /* then grace for reads (10000, 1000) */
    uint32_t orphan_ms;   /* life of a hold whose owner is gone (10000) */
    int checksum;         /* digests of blocks on both sides (0) */
    uint64_t stage_bytes; /* pinned memory to copy through; only 0 (none) yet */
    /* level 0 error … 4 trace; called on any of the agent's threads */
    void (*log)(void *arg, int level, const char *text);
    void *log_arg;
} baton_options;

static inline baton_options baton_options_preset(void)
{
    baton_options options;
    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    options.role = BATON_ROLE_BOTH;
    options.world = options.tp = options.pp = 1;
    options.provider = "auto";
    options.max_handoffs = 16384;
    options.max_holds = 65536;
    options.pull_timeout_ms = options.orphan_ms = 10000;
    options.drain_ms = 1000;
    return options;
}

/*
 * How blocks lie in a region: block b begins at b * block_stride, in it head h
 * at h * head_stride, in that token t at t * token_stride. Zeros stand for
 * blocks without gaps, [head][token]; blocks must have no gaps inside. Blocks
 * are read by peers with an equal layout, but for blocks and block_stride.
 */
typedef struct baton_layout {
    size_t size;
    uint32_t group;
    uint32_t layer; /* counted over all pipeline stages */
    uint32_t kind;  /* baton_kind or BATON_KIND_NAMED + n */
    /* Of KV heads: the first one here, how many, of how many in the model (0:
     * there are no others). 0 heads: not divided by heads, as a latent is. */
    uint32_t first_head, heads, model_heads;
    uint32_t block_tokens;  /* tokens of a block */
    uint32_t token_bytes;   /* of one token of one head */
    uint32_t window_tokens; /* the layer attends to these last ones; 0: all */
    uint64_t blocks, block_stride, token_stride, head_stride;
} baton_layout;

typedef struct baton_region {
    size_t size;
    /* All of `length` is registered, once: where it is longer than the blocks
     * need, later regions inside it share the registration. */
    void *base;
    uint64_t length;
    const baton_layout *layout;
    baton_memory memory;
    int device;
} baton_region;

/* P: what of a handoff is written. */
typedef struct baton_progress {
    size_t size;
    baton_id handoff;
    const baton_blocks *groups; /* of the tokens, one list for each group */
    size_t group_count;
    uint64_t tokens; /* from the prompt's begin */
    void *event;     /* of a device, when they are; host memory: NULL, now */
    /* of baton_hold_ready alone */
    uint64_t *digests; /* with checksum: filled with one for each block, over */
    size_t digest_count; /* all groups in order; for baton_params. NULL: no */
    uint32_t lease_ms;   /* 0: the owner's value */
    uint32_t flags;      /* 0 */
} baton_progress;

/* All that decides the KV of a prompt but for the engine itself. */
typedef struct baton_prompt {
    size_t size;
    const uint32_t *tokens;
    size_t token_count;
    const baton_bytes *items; /* names of images and the like, in order */
    size_t item_count;
    const char *adapter, *adapter_revision; /* NULL: none, not known */
} baton_prompt;

/* Written before the blocks are: D waits for what baton_hold_progress tells. */
#define BATON_PARAMS_READY 1u

/* P: what kv_transfer_params say. */
typedef struct baton_params {
    size_t size;
    const baton_bytes *infos; /* of all ranks, in order */
    size_t info_count;
    baton_id handoff;
    uint64_t owner; /* as opened, as the slot */
    const baton_blocks *groups;
    size_t group_count;
    uint64_t tokens;
    const uint64_t *digests; /* by rank, or NULL */
    size_t digest_count;
    uint32_t slot;
    uint32_t flags;             /* BATON_PARAMS_… */
    const baton_prompt *prompt; /* that they are of; NULL: not said */
    baton_bytes key;            /* of the engines; empty: no seal */
} baton_params;

/* D: what params turned out to say. */
typedef struct baton_offer {
    size_t size;
    baton_id handoff;
    uint64_t owner, tokens;
} baton_offer;

/* D: what to read, and where to. */
typedef struct baton_pull_request {
    size_t size;
    baton_id handoff;
    baton_bytes params;         /* kv_transfer_params as received */
    const baton_blocks *groups; /* D's blocks of tokens [have_tokens, tokens) */
    size_t group_count;
    uint64_t have_tokens; /* prefix that D has already, whole blocks of D */
    uint64_t tag;         /* the host's name of this pull, unique while live */
    void *event; /* of a device, when the blocks are free; host memory: NULL */
    const baton_prompt *prompt; /* NULL: compared by baton_params_read */
} baton_pull_request;

typedef enum baton_event_type {
    BATON_EVENT_PEER_READY = 1,
    BATON_EVENT_PEER_FAILED,
    BATON_EVENT_RELEASED,   /* P: the blocks may be reused */
    BATON_EVENT_PULLED,     /* D: the blocks are there and proven */
    BATON_EVENT_PULL_FAILED /* D: no read will write to the blocks any more */
} baton_event_type;

typedef struct baton_event {
    size_t size; /* what the library filled in */
    baton_event_type type;
    baton_reason reason;
    baton_id handoff; /* RELEASED, PULLED, PULL_FAILED */
    uint64_t tag;     /* of a pull, as given to baton_pull */
    /* PULLED: bytes read, blocks wanted, reads posted, time by stage */
    uint64_t bytes;
    uint32_t blocks, runs, wait_us, read_us, proof_us;
    uint32_t rank; /* PEER_*: the peer's, as boot and engine */
    uint64_t boot;
    char engine[256];
    char provider[16]; /* PEER_READY, PULLED */
} baton_event;

typedef struct baton_stats {
    size_t size;
    uint64_t holds_live, holds_total, slots_live, released_pulled;
    uint64_t released_cancelled, released_expired, released_broken;
    uint64_t pulls_live, pulls_total, pulls_failed, pulled_bytes, pulled_runs;
    uint64_t peers_ready, links_up, boot; /* boot: this agent's id */
} baton_stats;

#endif
