/*
 * Moves the KV blocks of a handoff from a prefill engine (P) to a decode
 * engine (D) by one-sided reads, and proves that they are the handoff's own.
 *
 *   P host: hold_open -> compute -> hold_ready, params_write --params--> D host
 *   D host: pull(params) -> [reads, then the hold word] -> PULLED
 *   proxy:  release                                        -> P: RELEASED
 *
 * An agent belongs to one host thread at a time (hold_break, blocks_reused,
 * blocks_free: any thread); its native thread owns fabric and links, and
 * sleeps when nothing happens. All calls but open, start and close return at
 * once. Outputs come last, written only on success. Open agents after any
 * fork. It never exits, aborts, prints, or touches signals or environment.
 */
#ifndef BATON_AGENT_H
#define BATON_AGENT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
#define BATON_API_VERSION 1
/* name, value, text */
#define BATON_STATUS_MAP(X)                                          \
    X(BATON_OK, 0, "ok")                                             \
    X(BATON_ERR_ARGUMENT, -1, "an argument is out of its range")     \
    X(BATON_ERR_MEMORY, -2, "out of memory")                         \
    X(BATON_ERR_SYSTEM, -3, "a system call failed")                  \
    X(BATON_ERR_FABRIC, -4, "no usable fabric provider")             \
    X(BATON_ERR_BUSY, -5, "a limit is met; try later or do without") \
    X(BATON_ERR_STATE, -6, "not allowed in this state")              \
    X(BATON_ERR_UNKNOWN, -7, "no such handoff, tag or peer")         \
    X(BATON_ERR_EXISTS, -8, "the handoff, tag or slot is in use")    \
    X(BATON_ERR_PARAMS, -9, "the params or info text is malformed")  \
    X(BATON_ERR_SPACE, -10, "the output buffer is too small")        \
    X(BATON_ERR_UNSUPPORTED, -11, "not supported by this build or device")
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
typedef enum baton_kind { /* KV: both of a token side by side; latent: MLA */
    BATON_KIND_K, BATON_KIND_V, BATON_KIND_KV, BATON_KIND_LATENT
} baton_kind;
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
typedef struct baton_agent baton_agent;

typedef struct baton_options {
    size_t size; /* of this struct; set by baton_options_preset */
    baton_role role;
    const char *engine;           /* 1..255 printable ASCII characters */
    uint64_t engine_boot;         /* of all ranks of one life; 0 unknown */
    const char *url;              /* the engine's, as the proxies know it */
    uint32_t rank, world, tp, pp; /* of ranks, tensor, pipeline (0, 1, 1, 1) */
    const char *const *proxies;   /* "HOST:PORT" of agents' listeners */
    size_t proxy_count;           /* may be 0 */
    baton_bytes key;              /* shared with the proxies; empty: none */
    const char *provider;       /* "auto", "tcp", "cma", or libfabric's name */
    const char *fabric_address; /* local IP; NULL: the URL's, else loopback */
    const char *fingerprint;    /* UTF-8; all that decides a block's bytes */
    uint32_t max_handoffs, max_holds;   /* live, words (16384, 65536) */
    uint32_t pull_timeout_ms, drain_ms; /* then grace for reads (10000, 1000) */
    uint32_t orphan_ms; /* life of a hold whose owner is gone (10000) */
    int checksum;       /* digests of blocks on both sides (0) */
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

/* How blocks lie in a region: block b is [base + b*stride, + block_bytes). */
typedef struct baton_layout {
    size_t size; /* sizeof(baton_layout) */
    uint32_t group, layer;
    baton_kind kind;
    uint32_t heads;        /* KV heads of this rank inside a block; 0: latent */
    uint32_t block_tokens; /* tokens of a block */
    uint32_t token_bytes;  /* bytes of one token of one head (of all: latent) */
    int head_major;        /* 1: [head][token], 0: [token][head] */
    /* block_bytes = (latent: 1, else heads) * block_tokens * token_bytes */
    uint64_t blocks, stride, block_bytes;
} baton_layout;

typedef enum baton_event_type {
    BATON_EVENT_PEER_READY = 1,
    BATON_EVENT_PEER_FAILED,
    BATON_EVENT_RELEASED,   /* P: the blocks may be reused */
    BATON_EVENT_PULLED,     /* D: the blocks are there and proven */
    BATON_EVENT_PULL_FAILED /* D: no read will write to the blocks any more */
} baton_event_type;

typedef struct baton_event {
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
    size_t size; /* sizeof(baton_stats) */
    uint64_t holds_live, holds_total, slots_live, released_pulled;
    uint64_t released_cancelled, released_expired, released_broken;
    uint64_t pulls_live, pulls_total, pulls_failed, pulled_bytes, pulled_runs;
    uint64_t peers_ready, links_up, boot; /* boot: this agent's id */
} baton_stats;

const char *baton_status_text(baton_status status);
const char *baton_reason_text(baton_reason reason);
const char *baton_version(void);
/* A `log` for hosts that lend no thread: lines to stderr, up to level *arg. */
void baton_log_stderr(void *arg, int level, const char *text);
/* 32 hex digits to an id and back. ERR_PARAMS; a zero low half is an error. */
baton_status baton_id_parse(const char *hex, size_t length, baton_id *id_p);
void baton_id_format(baton_id id, char hex[33]);
/* Checks the options and opens the fabric; starts nothing. */
baton_status baton_agent_open(const baton_options *options,
                              baton_agent **agent_p);
/* Ends reads in flight, says goodbye, frees everything. NULL is fine; in the
 * child of a fork, which has a useless copy, nothing is done. */
void baton_agent_close(baton_agent *agent);
/* Registers blocks, between open and start. Regions may alias; the memory must
 * outlive the agent. All of `length` is registered, once: where it is longer
 * than the blocks need, later regions inside it share the registration. */
baton_status baton_region_add(baton_agent *agent, void *base, uint64_t length,
                              baton_memory memory, int device,
                              const baton_layout *layout);
/* The fingerprint is final; the thread starts and introduces itself. */
baton_status baton_agent_start(baton_agent *agent);
/* JSON that tells others about this rank. *length_p also on ERR_SPACE. */
baton_status baton_agent_info(baton_agent *agent, char *text, size_t cap,
                              size_t *length_p);
/* A peer given by the host, not a proxy: PEER_READY or PEER_FAILED follows. */
baton_status baton_peer_add(baton_agent *agent, baton_bytes info);
baton_status baton_peer_remove(baton_agent *agent, const char *engine,
                               uint32_t rank);
/* How many blocks are free now, for the proxies' admission. */
baton_status baton_blocks_free(baton_agent *agent, uint64_t blocks);
/* P: sets the hold word of `slot` before the first token is computed. The host
 * assigns the slot, the same on all ranks, free again after RELEASED of each.
 * owner: the proxy's boot id, 0 none. ERR_BUSY; ERR_EXISTS (or lately ended) */
baton_status baton_hold_open(baton_agent *agent, baton_id handoff,
                             uint32_t slot, uint64_t owner);
/* P: the blocks are written. From now on RELEASED will come, exactly once.
 * lease_ms 0: the owner's value. digests (may be NULL): with checksum, one
 * per block over all groups in order, for baton_params_write. ERR_UNKNOWN. */
baton_status baton_hold_ready(baton_agent *agent, baton_id handoff,
                              const baton_blocks *groups, size_t group_count,
                              uint64_t tokens, uint32_t lease_ms,
                              uint64_t *digests, size_t digest_count);
/* P: preempted or aborted: the word is clear on return. An OPEN hold ends
 * silently; a READY one gives RELEASED(broken). Unknown: ERR_UNKNOWN. */
baton_status baton_hold_break(baton_agent *agent, baton_id handoff);
/* P: ends a READY hold where there is no proxy: RELEASED(pulled). */
baton_status baton_hold_release(baton_agent *agent, baton_id handoff);
/* P: before blocks are overwritten: breaks each READY hold with one of them. */
baton_status baton_blocks_reused(baton_agent *agent, uint32_t group,
                                 const uint32_t *ids, size_t count);
/* P: kv_transfer_params for D, from all ranks' infos in order; needs no agent.
 * owner: as opened. digests: by rank, or NULL. *length_p also on ERR_SPACE. */
baton_status baton_params_write(const baton_bytes *infos, size_t info_count,
                                baton_id handoff, uint32_t slot, uint64_t owner,
                                const baton_blocks *groups, size_t group_count,
                                uint64_t tokens, const uint64_t *digests,
                                size_t digest_count, char *text, size_t cap,
                                size_t *length_p);
typedef struct baton_pull_request {
    size_t size; /* sizeof(baton_pull_request) */
    baton_id handoff;
    baton_bytes params;         /* kv_transfer_params as received */
    const baton_blocks *groups; /* D's blocks of tokens [have_tokens, tokens) */
    size_t group_count;
    uint64_t have_tokens; /* prefix that D has already, whole blocks of D */
    uint64_t tag;         /* the host's name of this pull, unique while live */
} baton_pull_request;

/* D: starts a pull; exactly one of PULLED and PULL_FAILED follows, and until
 * then the blocks belong to the agent. Nothing wanted: PULLED at once. */
baton_status baton_pull(baton_agent *agent, const baton_pull_request *request);
/* D: gives a pull up; PULL_FAILED(cancelled) once no read can write. */
baton_status baton_cancel(baton_agent *agent, uint64_t tag);
/* Takes up to max events; returns how many. Never blocks. */
size_t baton_poll(baton_agent *agent, baton_event *events, size_t max);
/* Readable while events wait (an eventfd that baton_poll clears). */
int baton_agent_fd(const baton_agent *agent);
void baton_agent_stats(baton_agent *agent, baton_stats *stats_p);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
