/*
 * Which bytes to read from whom: pure, from cards and block lists to runs.
 *
 *     theirs  [7][8][9]   [20]           runs contiguous on both sides
 *              |  |  |     |             become one read
 *     ours    [3][4][5]   [9]
 */
#ifndef AGENT_SRC_GEOMETRY_PLAN_H
#define AGENT_SRC_GEOMETRY_PLAN_H

#include "agent/src/geometry/card.h"

#define BTA_SOURCES_MAX 64
#define BTA_NO_REGION   UINT32_MAX

/* The ranks that one of our ranks reads from. */
struct bta_sources {
    uint32_t ranks[BTA_SOURCES_MAX];
    size_t count;
};

/* One read. `source` is an index into the sources. */
struct bta_run {
    uint32_t source;
    uint32_t ours, theirs; /* region numbers in the cards */
    uint64_t our_offset, their_offset;
    uint64_t length;
};

struct bta_plan {
    struct bta_run *runs; /* by source; heap */
    size_t count;
    uint32_t blocks; /* wanted, over all groups */
    uint64_t bytes;
};

struct bta_plan_input {
    const struct bta_card *own;
    /* By source: the card, and its region for each of ours. */
    const struct bta_card *const *cards;
    const uint32_t *const *maps;
    size_t source_count;
    const baton_blocks *theirs; /* of [0, tokens), or a window's tail */
    const baton_blocks *ours;   /* of [have_tokens, tokens) */
    size_t group_count;
    uint64_t tokens, have_tokens;
    uint64_t max_run;
};

/*
 * Ranks of an engine with this card's tp, pp and world. MISMATCH where the
 * sizes differ from ours: heads are not sliced across sizes.
 */
baton_reason bta_plan_sources(const struct bta_card *own, uint32_t tp,
                              uint32_t pp, uint32_t world,
                              struct bta_sources *sources_p);
#define BTA_MISFIT_MAX 160
/* Why there are no sources. */
void bta_plan_misfit(const struct bta_card *own, uint32_t tp, uint32_t pp,
                     uint32_t world, char why[BTA_MISFIT_MAX]);
/*
 * For each region of `own` the number of the one in `theirs` that holds the
 * same; `map` has own->region_count places. MISMATCH when one has no partner,
 * or the fingerprints differ: then `why` says which and what.
 */
baton_reason bta_plan_map(const struct bta_card *own,
                          const struct bta_card *theirs, uint32_t *map,
                          char why[BTA_MISFIT_MAX]);
/* NONE, MISMATCH or MEMORY. `plan_p` is to be finished when NONE. */
baton_status bta_plan_make(const struct bta_plan_input *input,
                           struct bta_plan *plan_p, baton_reason *reason_p);
void bta_plan_fini(struct bta_plan *plan);

#endif
