/*
 * The planner. It trusts nothing but the checks that card.c made: every
 * block number is tested against the region that it is used for.
 */
#include "agent/src/geometry/plan.h"

#include <stdio.h>
#include <stdlib.h>

struct builder {
    struct bta_plan plan;
    size_t cap;
    uint64_t max_run;
    bool failed;
};

baton_reason bta_plan_sources(const struct bta_card *own, uint32_t tp,
                              uint32_t pp, uint32_t world,
                              struct bta_sources *sources_p)
{
    if (own->tp != tp || own->pp != pp || own->world != world) {
        return BATON_REASON_MISMATCH;
    }
    sources_p->ranks[0] = own->rank;
    sources_p->count = 1;
    return BATON_REASON_NONE;
}

void bta_plan_misfit(const struct bta_card *own, uint32_t tp, uint32_t pp,
                     uint32_t world, char why[BTA_MISFIT_MAX])
{
    (void)snprintf(why, BTA_MISFIT_MAX,
                   "tp %u, pp %u and world %u are not ours, %u, %u and %u", tp,
                   pp, world, own->tp, own->pp, own->world);
}

/*
 * Theirs for the same tensor of the same layer. Both sides mostly add their
 * regions in the same order: looks there first.
 */
static uint32_t partner_of(const struct bta_card *theirs, size_t index,
                           const baton_layout *layout)
{
    for (size_t n = 0; n < theirs->region_count; n++) {
        const size_t at = (index + n) % theirs->region_count;
        const baton_layout *const other = &theirs->regions[at].layout;
        if (other->layer == layout->layer && other->group == layout->group &&
            other->kind == layout->kind) {
            return (uint32_t)at;
        }
    }
    return BTA_NO_REGION;
}

/* The number of ours in theirs, or BTA_NO_REGION and why. */
static uint32_t match(const struct bta_card *own, const struct bta_card *theirs,
                      size_t index, char why[BTA_MISFIT_MAX])
{
    const baton_layout *const layout = &own->regions[index].layout;
    const uint32_t at = partner_of(theirs, index, layout);
    const char *const differs =
        at == BTA_NO_REGION
            ? "they have none"
            : bta_layout_differs(layout, &theirs->regions[at].layout);

    if (differs == NULL) {
        return at;
    }
    (void)snprintf(why, BTA_MISFIT_MAX, "group %u layer %u kind %u: %s",
                   layout->group, layout->layer, layout->kind, differs);
    return BTA_NO_REGION;
}

baton_reason bta_plan_map(const struct bta_card *own,
                          const struct bta_card *theirs, uint32_t *map,
                          char why[BTA_MISFIT_MAX])
{
    if (!bt_str_eq(own->fingerprint, theirs->fingerprint)) {
        (void)snprintf(why, BTA_MISFIT_MAX, "the fingerprints differ");
        return BATON_REASON_MISMATCH;
    }
    if (own->region_count != theirs->region_count) {
        (void)snprintf(why, BTA_MISFIT_MAX, "they have %zu regions, we %zu",
                       theirs->region_count, own->region_count);
        return BATON_REASON_MISMATCH;
    }
    for (size_t i = 0; i < own->region_count; i++) {
        map[i] = match(own, theirs, i, why);
        if (map[i] == BTA_NO_REGION) {
            return BATON_REASON_MISMATCH;
        }
    }
    return BATON_REASON_NONE;
}

/* --- runs --- */

static struct bta_run *run_add(struct builder *builder)
{
    struct bta_plan *const plan = &builder->plan;

    if (plan->count == builder->cap) {
        const size_t cap = builder->cap == 0 ? 64 : builder->cap * 2;
        struct bta_run *const runs =
            realloc(plan->runs, cap * sizeof(*plan->runs));
        if (runs == NULL) {
            builder->failed = true;
            return NULL;
        }
        plan->runs = runs;
        builder->cap = cap;
    }
    plan->count++;
    return &plan->runs[plan->count - 1];
}

/* Does `run` continue the last one on both sides? */
static bool run_continues(const struct builder *builder,
                          const struct bta_run *last, const struct bta_run *run)
{
    return last->source == run->source && last->ours == run->ours &&
           last->our_offset + last->length == run->our_offset &&
           last->their_offset + last->length == run->their_offset &&
           run->length <= builder->max_run - last->length;
}

static void run_put(struct builder *builder, const struct bta_run *run)
{
    struct bta_plan *const plan = &builder->plan;
    struct bta_run *added;

    if (plan->count > 0 &&
        run_continues(builder, &plan->runs[plan->count - 1], run)) {
        plan->runs[plan->count - 1].length += run->length;
        return;
    }
    added = run_add(builder);
    if (added != NULL) {
        *added = *run;
    }
}

/* One block of one region; longer than the longest read: several. */
static void block_put(struct builder *builder, struct bta_run run)
{
    uint64_t left = run.length;

    while (left > 0 && !builder->failed) {
        run.length = left > builder->max_run ? builder->max_run : left;
        run_put(builder, &run);
        run.our_offset += run.length;
        run.their_offset += run.length;
        left -= run.length;
    }
}

/* --- block lists --- */

/*
 * The first of their blocks that we want. A window's group gives only its
 * tail, so the lists are matched from the end.
 */
static bool first_wanted(const struct bta_plan_input *input, size_t group,
                         uint32_t block_tokens, size_t *first_p)
{
    const uint64_t all =
        input->tokens / block_tokens + (input->tokens % block_tokens != 0);
    const uint64_t had = input->have_tokens >= input->tokens
                             ? all
                             : input->have_tokens / block_tokens;
    const size_t theirs = input->theirs[group].count;
    const size_t ours = input->ours[group].count;

    if (theirs > all || ours > theirs || (theirs == all && ours != all - had) ||
        (input->have_tokens < input->tokens &&
         input->have_tokens % block_tokens != 0)) {
        return false;
    }
    *first_p = theirs - ours;
    return true;
}

static bool region_put(struct builder *builder,
                       const struct bta_plan_input *input, uint32_t source,
                       uint32_t ours)
{
    const struct bta_card *const card = input->cards[source];
    const uint32_t theirs = input->maps[source][ours];
    const baton_layout *const our_layout = &input->own->regions[ours].layout;
    const baton_layout *const their_layout = &card->regions[theirs].layout;
    const baton_blocks *const our_ids = &input->ours[our_layout->group];
    const uint64_t block_bytes = bta_layout_block_bytes(our_layout);
    const uint32_t *their_ids;
    size_t first;

    if (!first_wanted(input, our_layout->group, our_layout->block_tokens,
                      &first)) {
        return false;
    }
    their_ids = input->theirs[our_layout->group].ids;
    for (size_t i = 0; i < our_ids->count; i++) {
        const uint64_t our_id = our_ids->ids[i];
        const uint64_t their_id = their_ids[first + i];
        if (our_id >= our_layout->blocks || their_id >= their_layout->blocks) {
            return false;
        }
        block_put(builder,
                  (struct bta_run){
                      .source = source,
                      .ours = ours,
                      .theirs = theirs,
                      .our_offset = our_id * our_layout->block_stride,
                      .their_offset = their_id * their_layout->block_stride,
                      .length = block_bytes,
                  });
    }
    return true;
}

static bool source_put(struct builder *builder,
                       const struct bta_plan_input *input, uint32_t source)
{
    for (size_t i = 0; i < input->own->region_count; i++) {
        if (input->own->regions[i].layout.group >= input->group_count ||
            !region_put(builder, input, source, (uint32_t)i)) {
            return false;
        }
    }
    return true;
}

static bool sources_put(struct builder *builder,
                        const struct bta_plan_input *input)
{
    for (size_t source = 0; source < input->source_count; source++) {
        if (!source_put(builder, input, (uint32_t)source)) {
            return false;
        }
    }
    return true;
}

baton_status bta_plan_make(const struct bta_plan_input *input,
                           struct bta_plan *plan_p, baton_reason *reason_p)
{
    struct builder builder = {.max_run = input->max_run == 0 ? UINT64_MAX
                                                             : input->max_run};
    const bool fits = sources_put(&builder, input);

    if (builder.failed || !fits) {
        free(builder.plan.runs);
        *reason_p =
            builder.failed ? BATON_REASON_MEMORY : BATON_REASON_MISMATCH;
        return builder.failed ? BATON_ERR_MEMORY : BATON_OK;
    }
    for (size_t i = 0; i < input->group_count; i++) {
        builder.plan.blocks += (uint32_t)input->ours[i].count;
    }
    for (size_t i = 0; i < builder.plan.count; i++) {
        builder.plan.bytes += builder.plan.runs[i].length;
    }
    *plan_p = builder.plan;
    *reason_p = BATON_REASON_NONE;
    return BATON_OK;
}

void bta_plan_fini(struct bta_plan *plan)
{
    free(plan->runs);
    *plan = (struct bta_plan){0};
}
