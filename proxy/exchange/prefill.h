/*
 * What to ask of a prefill engine and what to keep of its answer: one row per
 * connector. Pure.
 */
#ifndef PROXY_EXCHANGE_PREFILL_H
#define PROXY_EXCHANGE_PREFILL_H

#include "common/base/arena.h"
#include "proxy/agents/news.h"

enum prefill_verdict {
    PREFILL_HANDOFF,    /* params are there and well-formed */
    PREFILL_NO_HANDOFF, /* absent, null, or {}: D alone */
    PREFILL_BAD,        /* the answer or its params are unusable */
    PREFILL_FOREIGN,    /* it names a host that is not P's */
};

struct prefill_answer {
    struct bt_str params; /* text as P wrote it, a span of the answer */
    struct bt_str cached; /* cached_tokens as P wrote it; empty: none given */
    uint64_t prompt_tokens;
    struct bt_str foreign; /* with PREFILL_FOREIGN: that host */
    struct bt_str why;     /* with PREFILL_BAD: what is wrong, static */
};

/* A handoff's id as 32 hex digits with a NUL. */
void prefill_handoff_text(struct handoff_id id, char text[33]);

/* Does this connector have a P leg? */
bool prefill_is_asked(int connector);
/* Is a handoff of this connector one that only its D can free? */
bool prefill_is_stock(int connector);
/* Are both legs sent at once? P's answer then brings nothing. */
bool prefill_is_at_once(int connector);

/* How long P keeps the blocks of a stock handoff. */
uint64_t prefill_lease_ms(const struct pool_conf *conf);

/* The value of kv_transfer_params for P; empty: none is sent. */
struct bt_str prefill_params(int connector, struct bt_arena *arena,
                             const char *handoff, uint64_t boot);

/* As it for D beside P, whose engine id is known; empty: it is not. */
struct bt_str prefill_decode_params(const struct engine *prefill,
                                    struct bt_arena *arena,
                                    const char *handoff);

/* Reads P's whole 200 answer. Spans of answer_p point into `answer`. */
enum prefill_verdict prefill_read(const struct engine *engine,
                                  const char *handoff, struct bt_str answer,
                                  struct prefill_answer *answer_p);

#endif
