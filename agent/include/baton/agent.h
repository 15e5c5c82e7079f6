/*
 * Moves the KV blocks of a handoff from a prefill engine (P) to a decode
 * engine (D) by one-sided reads, and proves that they are the handoff's own.
 *
 *   P host: hold_open -> compute -> hold_ready, params_write --params--> D host
 *           (hold_progress: chunks, for a D that has its params early)
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

#include <baton/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
typedef struct baton_agent baton_agent;

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
 * outlive the agent. *region_p (may be NULL) names the region. */
baton_status baton_region_add(baton_agent *agent, const baton_region *region,
                              uint32_t *region_p);
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
/* P: so many tokens can be read from now on: a number that only grows, below
 * 2^32. Whoever has params that say so (BATON_PARAMS_READY) waits for it. */
baton_status baton_hold_progress(baton_agent *agent,
                                 const baton_progress *progress);
/* P: all blocks are written. From now on RELEASED will come, exactly once.
 * ERR_UNKNOWN: there is no such hold. */
baton_status baton_hold_ready(baton_agent *agent,
                              const baton_progress *progress);
/* P: preempted or aborted: the word is clear on return. An OPEN hold ends
 * silently; a READY one gives RELEASED(broken). Unknown: ERR_UNKNOWN. */
baton_status baton_hold_break(baton_agent *agent, baton_id handoff);
/* P: ends a READY hold where there is no proxy: RELEASED(pulled). */
baton_status baton_hold_release(baton_agent *agent, baton_id handoff);
/* P: before blocks are overwritten: breaks each READY hold with one of them. */
baton_status baton_blocks_reused(baton_agent *agent, uint32_t group,
                                 const uint32_t *ids, size_t count);
/* P: kv_transfer_params for D; needs no agent. They carry a digest of the
 * prompt and, with a key, a seal over all of it. *length_p also on ERR_SPACE.
 */
baton_status baton_params_write(const baton_params *params, char *text,
                                size_t cap, size_t *length_p);
/* D: what params (a text) say; needs no agent. ERR_PARAMS: malformed;
 * ERR_PROMPT: not of `prompt` (NULL: any); ERR_SEAL: not sealed with `key`
 * (empty: any). */
baton_status baton_params_read(baton_bytes text, const baton_prompt *prompt,
                               baton_bytes key, baton_offer *offer_p);
/* D: starts a pull; params must be of the prompt, and sealed where the agent
 * has a key (ERR_PARAMS, ERR_PROMPT, ERR_SEAL). Exactly one of PULLED and
 * PULL_FAILED follows, and until then the blocks belong to the agent. Nothing
 * wanted: PULLED at once. */
baton_status baton_pull(baton_agent *agent, const baton_pull_request *request);
/* D: gives a pull up; PULL_FAILED(cancelled) once no read can write. */
baton_status baton_cancel(baton_agent *agent, uint64_t tag);
/* Takes up to max events of `size` bytes each; how many. Never blocks. */
size_t baton_poll_sized(baton_agent *agent, baton_event *events, size_t size,
                        size_t max);
static inline size_t baton_poll(baton_agent *agent, baton_event *events,
                                size_t max)
{
    return baton_poll_sized(agent, events, sizeof(*events), max);
}
/* Readable while events wait (an eventfd that baton_poll clears). */
int baton_agent_fd(const baton_agent *agent);
/* stats_p->size says how much may be written. */
baton_status baton_agent_stats(baton_agent *agent, baton_stats *stats_p);
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
