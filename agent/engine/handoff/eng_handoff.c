/*
 * The handoff; see handoff.h. This file is also the example of a host of
 * libbaton: every duty that agent.h asks of an engine is met here.
 */
#include "agent/engine/handoff/eng_handoff.h"

#include "common/base/log.h"
#include "common/base/random.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define POLL_EVENTS  8
#define PARAMS_FIRST 2048
#define PARAMS_MAX   (64 * BT_MIB)
#define STATE_HOLDS  100 /* holds listed one by one */
#define LEASE_ALONE  30000
#define OBJECT       "handoff"

struct rank {
    struct eng_handoff *handoff;
    uint32_t number;
    baton_agent *agent;
    struct bt_watch *watch;
    struct bt_buf info;
};

struct hold {
    struct eng_handoff *handoff;
    LIST_ENTRY(hold) entry;
    baton_id id;
    uint32_t slot;
    uint64_t owner; /* the proxy's boot */
    bool is_ready;
    bool is_offered;  /* early: its params are out, its blocks kept */
    uint64_t waiting; /* ranks whose RELEASED is still to come */
    uint32_t *blocks; /* held, of all groups; NULL while open */
    uint32_t block_count;
    baton_blocks groups[MODEL_GROUPS_MAX]; /* parts of blocks */
    uint64_t tokens;
    uint64_t since_us;
};

struct eng_handoff {
    struct bt_loop *loop;
    struct kv *kv;
    const struct handoff_events *events;
    void *owner;
    uint32_t lease_ms;
    bool has_checksum;
    baton_bytes key; /* the host's */
    uint32_t tp;
    uint32_t group_count;
    struct rank *ranks;
    LIST_HEAD(, hold) holds; /* the newest first */
    uint32_t *slots;         /* free ones, a stack */
    uint32_t slot_count;
    LIST_HEAD(, pull) pulls;
    uint64_t next_tag;
    struct handoff_counts counts;
};

/* --- holds --- */

static struct hold *find_hold(const struct eng_handoff *handoff, baton_id id)
{
    struct hold *hold;

    LIST_FOREACH (hold, &handoff->holds, entry) {
        if (hold->id.lo == id.lo && hold->id.hi == id.hi) {
            return hold;
        }
    }
    return NULL;
}

static void free_hold(struct hold *hold)
{
    for (uint32_t i = 0; i < hold->block_count; i++) {
        kv_unhold(hold->handoff->kv, hold->blocks[i]);
    }
    free(hold->blocks);
    free(hold);
}

/* Unlinks and frees the hold; its slot is free again, its blocks are. */
static void end_hold(struct hold *hold)
{
    struct eng_handoff *const handoff = hold->handoff;

    LIST_REMOVE(hold, entry);
    if (hold->is_ready) {
        handoff->counts.holds_ready--;
    } else {
        handoff->counts.holds_open--;
    }
    handoff->slots[handoff->slot_count++] = hold->slot;
    free_hold(hold);
}

static void break_ranks(struct hold *hold, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        (void)baton_hold_break(hold->handoff->ranks[i].agent, hold->id);
    }
}

static struct hold *new_hold(struct eng_handoff *handoff, baton_id id)
{
    struct hold *const hold = calloc(1, sizeof(*hold));

    if (hold == NULL) {
        return NULL;
    }
    hold->handoff = handoff;
    hold->id = id;
    hold->slot = handoff->slots[--handoff->slot_count];
    hold->since_us = bt_clock_us();
    LIST_INSERT_HEAD(&handoff->holds, hold, entry);
    handoff->counts.holds_open++;
    return hold;
}

enum bt_status hold_open(struct eng_handoff *handoff, baton_id id,
                         uint64_t owner, struct hold **hold_p)
{
    struct hold *hold;

    if (find_hold(handoff, id) != NULL) {
        handoff->counts.holds_refused++;
        return BT_ERR_EXISTS;
    }
    if (handoff->slot_count == 0) {
        handoff->counts.holds_refused++;
        return BT_ERR_LIMIT;
    }
    hold = new_hold(handoff, id);
    if (hold == NULL) {
        return BT_ERR_NOMEM;
    }
    hold->owner = owner;
    for (uint32_t i = 0; i < handoff->tp; i++) {
        const baton_status status =
            baton_hold_open(handoff->ranks[i].agent, id, hold->slot, owner);

        if (status != BATON_OK) {
            bt_log(BT_LOG_WARN, OBJECT, "hold refused by rank %" PRIu32 ": %s",
                   i, baton_status_text(status));
            break_ranks(hold, 0, i);
            end_hold(hold);
            handoff->counts.holds_refused++;
            return BT_ERR_LIMIT;
        }
    }
    handoff->counts.holds_total++;
    *hold_p = hold;
    return BT_OK;
}

void hold_break(struct hold **hold)
{
    struct hold *const self = *hold;

    *hold = NULL;
    if (self != NULL) {
        break_ranks(self, 0, self->handoff->tp);
        end_hold(self);
    }
}

/* Makes the hold the owner of a reference to each block. */
static bool keep_blocks(struct hold *hold, const baton_blocks *groups,
                        uint64_t tokens)
{
    struct eng_handoff *const handoff = hold->handoff;
    size_t count = 0;

    for (uint32_t i = 0; i < handoff->group_count; i++) {
        count += groups[i].count;
    }
    hold->blocks = count == 0 ? NULL : calloc(count, sizeof(*hold->blocks));
    if (hold->blocks == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < handoff->group_count; i++) {
        hold->groups[i] =
            (baton_blocks){hold->blocks + hold->block_count, groups[i].count};
        for (size_t j = 0; j < groups[i].count; j++) {
            kv_hold(handoff->kv, groups[i].ids[j]);
            hold->blocks[hold->block_count++] = groups[i].ids[j];
        }
    }
    hold->tokens = tokens;
    return true;
}

/* READY on every rank. On failure the ranks that have not said so are broken
 * silently, those that have will report. */
static bool make_ready(struct hold *hold, uint64_t *digests)
{
    struct eng_handoff *const handoff = hold->handoff;

    for (uint32_t i = 0; i < handoff->tp; i++) {
        uint64_t *const own =
            digests == NULL ? NULL : digests + (size_t)i * hold->block_count;
        const baton_progress progress = {
            .size = sizeof(progress),
            .handoff = hold->id,
            .groups = hold->groups,
            .group_count = handoff->group_count,
            .tokens = hold->tokens,
            .digests = own,
            .digest_count = own == NULL ? 0 : hold->block_count,
            .lease_ms = handoff->lease_ms,
        };
        const baton_status status =
            baton_hold_ready(handoff->ranks[i].agent, &progress);

        if (status != BATON_OK) {
            bt_log(BT_LOG_WARN, OBJECT, "rank %" PRIu32 " lost its hold: %s", i,
                   baton_status_text(status));
            break_ranks(hold, 0, handoff->tp);
            return false;
        }
        hold->waiting |= (uint64_t)1 << i;
    }
    return true;
}

/* What each rank's agent tells of itself. */
static void collect_infos(const struct eng_handoff *handoff, baton_bytes *infos)
{
    for (uint32_t i = 0; i < handoff->tp; i++) {
        const struct bt_str info = bt_buf_str(&handoff->ranks[i].info);

        infos[i] = (baton_bytes){info.ptr, info.len};
    }
}

static enum bt_status write_params(const struct hold *hold,
                                   const baton_prompt *prompt, uint32_t flags,
                                   const uint64_t *digests,
                                   struct bt_buf *params)
{
    struct eng_handoff *const handoff = hold->handoff;
    baton_bytes infos[HANDOFF_RANKS_MAX];
    baton_params input = {
        .size = sizeof(input),
        .infos = infos,
        .info_count = handoff->tp,
        .handoff = hold->id,
        .owner = hold->owner,
        .groups = hold->groups,
        .group_count = handoff->group_count,
        .tokens = hold->tokens,
        .digests = digests,
        .digest_count =
            digests == NULL ? 0 : (size_t)handoff->tp * hold->block_count,
        .slot = hold->slot,
        .flags = flags,
        .prompt = prompt,
        .key = handoff->key,
    };
    size_t length = PARAMS_FIRST;
    baton_status status;

    collect_infos(handoff, infos);
    do {
        const size_t cap = length;

        if (cap > PARAMS_MAX || !bt_buf_reserve(params, cap)) {
            return BT_ERR_NOMEM;
        }
        status = baton_params_write(&input, bt_buf_tail(params), cap, &length);
        if (status == BATON_ERR_SPACE && length <= cap) {
            length = cap * 2;
        }
    } while (status == BATON_ERR_SPACE);
    if (status != BATON_OK) {
        bt_log(BT_LOG_WARN, OBJECT, "params cannot be written: %s",
               baton_status_text(status));
        return BT_ERR_UNSUPPORTED;
    }
    bt_buf_commit(params, length);
    return BT_OK;
}

void hold_tell(struct hold *hold, const baton_blocks *groups, uint64_t tokens)
{
    for (uint32_t i = 0; hold != NULL && i < hold->handoff->tp; i++) {
        const baton_progress progress = {
            .size = sizeof(progress),
            .handoff = hold->id,
            .groups = groups,
            .group_count = hold->handoff->group_count,
            .tokens = tokens,
        };
        const baton_status status =
            baton_hold_progress(hold->handoff->ranks[i].agent, &progress);

        if (status != BATON_OK) {
            bt_log(BT_LOG_WARN, OBJECT, "rank %" PRIu32 ": no progress: %s", i,
                   baton_status_text(status));
        }
    }
}

enum bt_status hold_offer_early(struct hold *hold, const baton_blocks *groups,
                                const baton_prompt *prompt, uint32_t flags,
                                struct bt_buf *params)
{
    if (!keep_blocks(hold, groups, prompt->token_count)) {
        return BT_ERR_NOMEM;
    }
    hold->is_offered = true;
    return write_params(hold, prompt, flags, NULL, params);
}

enum bt_status hold_offer(struct hold **hold, const baton_blocks *groups,
                          const baton_prompt *prompt, struct bt_buf *params)
{
    struct hold *const self = *hold;
    struct eng_handoff *const handoff = self->handoff;
    enum bt_status status = BT_ERR_UNSUPPORTED;
    uint64_t *digests = NULL;

    *hold = NULL;
    if (!self->is_offered && !keep_blocks(self, groups, prompt->token_count)) {
        hold_break(&(struct hold *){self});
        return BT_ERR_NOMEM;
    }
    if (handoff->has_checksum && !self->is_offered) {
        digests =
            calloc((size_t)handoff->tp * self->block_count, sizeof(*digests));
        if (digests == NULL) {
            hold_break(&(struct hold *){self});
            return BT_ERR_NOMEM;
        }
    }
    self->is_ready = true;
    handoff->counts.holds_open--;
    handoff->counts.holds_ready++;
    if (make_ready(self, digests)) {
        status = self->is_offered
                     ? BT_OK
                     : write_params(self, prompt, 0, digests, params);
        if (status != BT_OK) {
            break_ranks(self, 0, handoff->tp);
        }
    }
    free(digests);
    if (self->waiting == 0) {
        end_hold(self);
    }
    return status;
}

/* --- events --- */

static void on_released(struct rank *rank, const baton_event *event)
{
    struct eng_handoff *const handoff = rank->handoff;
    struct hold *const hold = find_hold(handoff, event->handoff);

    if (hold == NULL) {
        bt_log(BT_LOG_WARN, OBJECT, "released a hold that is not known");
        return;
    }
    hold->waiting &= ~((uint64_t)1 << rank->number);
    bt_log(BT_LOG_DEBUG, OBJECT,
           "hold in slot %" PRIu32 " released by rank %" PRIu32 ": %s",
           hold->slot, rank->number, baton_reason_text(event->reason));
    if (hold->waiting == 0) {
        if ((size_t)event->reason < BT_ARRAY_LEN(handoff->counts.released)) {
            handoff->counts.released[event->reason]++;
        }
        end_hold(hold);
        handoff->events->on_room(handoff->owner);
    }
}

static struct pull *find_pull(const struct eng_handoff *handoff, uint64_t tag)
{
    struct pull *pull;

    LIST_FOREACH (pull, &handoff->pulls, entry) {
        if (pull->tag == tag) {
            return pull;
        }
    }
    return NULL;
}

static void cancel_ranks(struct eng_handoff *handoff, const struct pull *pull)
{
    for (uint32_t i = 0; i < handoff->tp; i++) {
        if ((pull->pending >> i & 1) != 0) {
            (void)baton_cancel(handoff->ranks[i].agent, pull->tag);
        }
    }
}

static void finish_pull(struct eng_handoff *handoff, struct pull *pull)
{
    LIST_REMOVE(pull, entry);
    handoff->counts.pulls--;
    if (!pull->failed) {
        handoff->counts.pulled++;
        handoff->counts.pulled_bytes += pull->bytes;
    } else if ((size_t)pull->reason <
               BT_ARRAY_LEN(handoff->counts.pull_failed)) {
        handoff->counts.pull_failed[pull->reason]++;
    }
    pull->on_done(pull);
}

static void on_pull_event(struct rank *rank, const baton_event *event)
{
    struct eng_handoff *const handoff = rank->handoff;
    struct pull *const pull = find_pull(handoff, event->tag);
    const uint32_t us = event->wait_us + event->read_us + event->proof_us;

    if (pull == NULL) {
        bt_log(BT_LOG_WARN, OBJECT, "a pull ended that is not known");
        return;
    }
    pull->pending &= ~((uint64_t)1 << rank->number);
    pull->bytes += event->bytes;
    pull->ready_us = us > pull->ready_us ? us : pull->ready_us;
    if (event->type == BATON_EVENT_PULL_FAILED && !pull->failed) {
        /* One rank failed: nothing that the others get is of any use. */
        pull->failed = true;
        pull->reason = event->reason;
        bt_log(BT_LOG_WARN, OBJECT, "pull failed on rank %" PRIu32 ": %s",
               rank->number, baton_reason_text(event->reason));
        cancel_ranks(handoff, pull);
    }
    if (pull->pending == 0) {
        finish_pull(handoff, pull);
    }
}

static void on_event(struct rank *rank, const baton_event *event)
{
    switch (event->type) {
    case BATON_EVENT_PEER_READY:
        bt_log(BT_LOG_INFO, OBJECT,
               "rank %" PRIu32 ": peer %s rank %" PRIu32 " is ready over %s",
               rank->number, event->engine, event->rank, event->provider);
        break;
    case BATON_EVENT_PEER_FAILED:
        bt_log(BT_LOG_WARN, OBJECT,
               "rank %" PRIu32 ": peer %s rank %" PRIu32 " failed: %s",
               rank->number, event->engine, event->rank,
               baton_reason_text(event->reason));
        break;
    case BATON_EVENT_RELEASED:
        on_released(rank, event);
        break;
    case BATON_EVENT_PULLED:
    case BATON_EVENT_PULL_FAILED:
        on_pull_event(rank, event);
        break;
    }
}

static void on_rank_readable(void *owner)
{
    struct rank *const rank = owner;
    baton_event events[POLL_EVENTS];
    size_t count;

    do {
        count = baton_poll(rank->agent, events, POLL_EVENTS);
        for (size_t i = 0; i < count; i++) {
            on_event(rank, &events[i]);
        }
    } while (count == POLL_EVENTS);
}

/* --- pulls --- */

enum bt_status pull_start(struct eng_handoff *handoff,
                          const struct pull_ask *ask, struct pull *pull)
{
    baton_pull_request request = {
        .size = sizeof(request),
        .handoff = ask->handoff,
        .params = {ask->params.ptr, ask->params.len},
        .groups = ask->groups,
        .group_count = handoff->group_count,
        .have_tokens = ask->have_tokens,
        .tag = ++handoff->next_tag,
        .prompt = ask->prompt,
    };
    void (*const on_done)(struct pull *) = pull->on_done;

    *pull = (struct pull){.tag = request.tag, .on_done = on_done};
    for (uint32_t i = 0; i < handoff->tp; i++) {
        const baton_status status =
            baton_pull(handoff->ranks[i].agent, &request);

        if (status == BATON_OK) {
            pull->pending |= (uint64_t)1 << i;
            continue;
        }
        bt_log(BT_LOG_WARN, OBJECT, "rank %" PRIu32 " cannot pull: %s", i,
               baton_status_text(status));
        pull->failed = true;
        pull->reason = status == BATON_ERR_PARAMS ||
                               status == BATON_ERR_PROMPT ||
                               status == BATON_ERR_SEAL
                           ? BATON_REASON_MISMATCH
                           : BATON_REASON_NONE;
        break;
    }
    if (pull->pending == 0) {
        handoff->counts.pull_failed[pull->reason]++;
        return BT_ERR_PROTOCOL;
    }
    LIST_INSERT_HEAD(&handoff->pulls, pull, entry);
    handoff->counts.pulls++;
    if (pull->failed) {
        cancel_ranks(handoff, pull);
    }
    return BT_OK;
}

void pull_cancel(struct eng_handoff *handoff, struct pull *pull)
{
    if (!pull->failed) {
        pull->failed = true;
        pull->reason = BATON_REASON_CANCELLED;
    }
    cancel_ranks(handoff, pull);
}

/* --- life --- */

static void on_agent_log(void *arg, int level, const char *text)
{
    const enum bt_log_level own = level < 0 || level > BT_LOG_TRACE
                                      ? BT_LOG_DEBUG
                                      : (enum bt_log_level)level;

    (void)arg;
    bt_log(own, "agent", "%s", text);
}

static const baton_kind KINDS[] = {
    [KV_K] = BATON_KIND_K,
    [KV_V] = BATON_KIND_V,
    [KV_BOTH] = BATON_KIND_KV,
    [KV_LATENT] = BATON_KIND_LATENT,
};

/* The first region's length is the whole memory of the rank, so that this is
 * registered once and all others lie inside it. */
static baton_status add_regions(struct eng_handoff *handoff, struct rank *rank)
{
    const uint32_t count = kv_region_count(handoff->kv);

    for (uint32_t i = 0; i < count; i++) {
        const struct kv_region region = kv_region(handoff->kv, rank->number, i);
        const bool is_latent = region.kind == KV_LATENT;
        const baton_layout layout = {
            .size = sizeof(layout),
            .group = region.group,
            .layer = region.layer,
            .kind = KINDS[region.kind],
            .first_head = is_latent ? 0 : rank->number * region.heads,
            .heads = is_latent ? 0 : region.heads,
            .model_heads = is_latent ? 0 : handoff->tp * region.heads,
            .block_tokens = kv_block_tokens(handoff->kv),
            .token_bytes = region.token_bytes,
            .window_tokens = kv_model(handoff->kv)->windows[region.group],
            .blocks = kv_counts(handoff->kv).total,
        };
        const baton_region added = {
            .size = sizeof(added),
            .base = region.base,
            .length = region.length,
            .layout = &layout,
        };
        const baton_status status = baton_region_add(rank->agent, &added, NULL);

        if (status != BATON_OK) {
            return status;
        }
    }
    return BATON_OK;
}

/* The card is fixed once the agent has started: it is read here, once. */
static baton_status read_info(struct rank *rank)
{
    size_t length = PARAMS_FIRST;
    baton_status status;

    do {
        const size_t cap = length;

        if (cap > PARAMS_MAX || !bt_buf_reserve(&rank->info, cap)) {
            return BATON_ERR_MEMORY;
        }
        status = baton_agent_info(rank->agent, bt_buf_tail(&rank->info), cap,
                                  &length);
        if (status == BATON_ERR_SPACE && length <= cap) {
            length = cap * 2;
        }
    } while (status == BATON_ERR_SPACE);
    if (status == BATON_OK) {
        bt_buf_commit(&rank->info, length);
    }
    return status;
}

static baton_status open_rank(struct eng_handoff *handoff, struct rank *rank,
                              const baton_options *options)
{
    baton_status status = baton_agent_open(options, &rank->agent);

    if (status == BATON_OK) {
        status = add_regions(handoff, rank);
    }
    if (status == BATON_OK) {
        status = baton_agent_start(rank->agent);
    }
    if (status == BATON_OK) {
        status = read_info(rank);
    }
    if (status == BATON_OK &&
        bt_watch_open(handoff->loop, baton_agent_fd(rank->agent),
                      on_rank_readable, rank, &rank->watch) != BT_OK) {
        status = BATON_ERR_SYSTEM;
    }
    return status;
}

static bool alloc_handoff(struct eng_handoff *handoff, uint32_t slots)
{
    handoff->ranks = calloc(handoff->tp, sizeof(*handoff->ranks));
    handoff->slots = calloc(slots, sizeof(*handoff->slots));
    if (handoff->ranks == NULL || handoff->slots == NULL) {
        return false;
    }
    for (uint32_t i = slots; i > 0; i--) {
        handoff->slots[handoff->slot_count++] = i - 1;
    }
    return true;
}

enum bt_status handoff_open(const struct handoff_options *options,
                            const struct handoff_events *events, void *owner,
                            struct eng_handoff **handoff_p,
                            const char **error_p)
{
    struct eng_handoff *handoff = calloc(1, sizeof(*handoff));
    baton_options agent = options->agent;
    baton_status status = BATON_ERR_MEMORY;

    if (handoff == NULL) {
        *error_p = baton_status_text(BATON_ERR_MEMORY);
        return BT_ERR_NOMEM;
    }
    handoff->loop = options->loop;
    handoff->kv = options->kv;
    handoff->events = events;
    handoff->owner = owner;
    handoff->tp = options->tp;
    handoff->group_count = kv_model(options->kv)->group_count;
    handoff->has_checksum = agent.checksum != 0;
    handoff->key = agent.key;
    handoff->lease_ms = options->lease_ms == 0 && agent.proxy_count == 0
                            ? LEASE_ALONE
                            : options->lease_ms;
    if (!bt_random_id(&agent.engine_boot)) {
        agent.engine_boot = bt_clock_us();
    }
    agent.world = agent.tp = options->tp;
    agent.log = on_agent_log;
    if (alloc_handoff(handoff, agent.max_handoffs)) {
        status = BATON_OK;
    }
    for (uint32_t i = 0; i < options->tp && status == BATON_OK; i++) {
        struct rank *const rank = &handoff->ranks[i];

        rank->handoff = handoff;
        rank->number = agent.rank = i;
        status = open_rank(handoff, rank, &agent);
    }
    if (status != BATON_OK) {
        *error_p = baton_status_text(status);
        handoff_close(&handoff);
        return BT_ERR_SYSTEM;
    }
    *handoff_p = handoff;
    return BT_OK;
}

void handoff_close(struct eng_handoff **handoff)
{
    struct eng_handoff *const self = *handoff;

    *handoff = NULL;
    if (self == NULL) {
        return;
    }
    for (uint32_t i = 0; self->ranks != NULL && i < self->tp; i++) {
        bt_watch_close(&self->ranks[i].watch);
        baton_agent_close(self->ranks[i].agent);
        bt_buf_fini(&self->ranks[i].info);
    }
    while (!LIST_EMPTY(&self->holds)) {
        struct hold *const hold = LIST_FIRST(&self->holds);

        LIST_REMOVE(hold, entry);
        free_hold(hold);
    }
    free(self->slots);
    free(self->ranks);
    free(self);
}

struct handoff_counts handoff_counts(const struct eng_handoff *handoff)
{
    return handoff->counts;
}

static void handoff_stats(struct eng_handoff *handoff, uint32_t rank,
                          baton_stats *stats_p)
{
    *stats_p = (baton_stats){.size = sizeof(*stats_p)};
    (void)baton_agent_stats(handoff->ranks[rank].agent, stats_p);
}

/* --- faults --- */

static struct hold *newest_ready(const struct eng_handoff *handoff)
{
    struct hold *hold;

    LIST_FOREACH (hold, &handoff->holds, entry) {
        if (hold->is_ready && hold->block_count > 0) {
            return hold;
        }
    }
    return NULL;
}

static void say_reused(const struct hold *hold, uint32_t group,
                       const uint32_t *ids, size_t count)
{
    for (uint32_t i = 0; i < hold->handoff->tp; i++) {
        (void)baton_blocks_reused(hold->handoff->ranks[i].agent, group, ids,
                                  count);
    }
}

static void say_all_reused(const struct hold *hold)
{
    for (uint32_t i = 0; i < hold->handoff->group_count; i++) {
        say_reused(hold, i, hold->groups[i].ids, hold->groups[i].count);
    }
}

/* The group whose block `id` points to in the hold's list. */
static uint32_t group_of(const struct hold *hold, const uint32_t *id)
{
    size_t end = hold->groups[0].count;
    uint32_t group = 0;

    while ((size_t)(id - hold->blocks) >= end) {
        end += hold->groups[++group].count;
    }
    return group;
}

bool handoff_free_early(struct eng_handoff *handoff, bool with_break)
{
    struct hold *const hold = newest_ready(handoff);

    if (hold == NULL) {
        return false;
    }
    if (with_break) {
        break_ranks(hold, 0, handoff->tp);
    } else {
        say_all_reused(hold);
    }
    for (uint32_t i = 0; i < hold->block_count; i++) {
        const uint32_t id = hold->blocks[i];

        /* A block that another request shares stays as it is. */
        if (kv_refs(handoff->kv, id) == 1) {
            kv_forget(handoff->kv, id);
            kv_scribble(handoff->kv, id);
        }
        kv_unhold(handoff->kv, id);
    }
    hold->block_count = 0;
    handoff->events->on_room(handoff->owner);
    return true;
}

/* A block of the hold that nobody shares; NULL: there is none. */
static const uint32_t *own_block(const struct hold *hold, uint32_t from)
{
    for (uint32_t i = from; i < hold->block_count; i++) {
        if (kv_refs(hold->handoff->kv, hold->blocks[i]) == 1) {
            return &hold->blocks[i];
        }
    }
    return NULL;
}

bool handoff_reuse_block(struct eng_handoff *handoff, bool is_silent)
{
    struct hold *const hold = newest_ready(handoff);
    const uint32_t *const id = hold == NULL ? NULL : own_block(hold, 0);

    if (id == NULL) {
        return false;
    }
    if (!is_silent) {
        say_reused(hold, group_of(hold, id), id, 1);
    }
    kv_forget(handoff->kv, *id);
    kv_scribble(handoff->kv, *id);
    return true;
}

bool handoff_flip_bytes(struct eng_handoff *handoff, uint32_t count)
{
    struct hold *const hold = newest_ready(handoff);
    const uint32_t *id = hold == NULL ? NULL : own_block(hold, 0);

    if (id == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count && id != NULL; i++) {
        kv_forget(handoff->kv, *id);
        kv_flip(handoff->kv, *id);
        id = own_block(hold, (uint32_t)(id - hold->blocks) + 1);
    }
    return true;
}

/* --- state --- */

static void write_hold(const struct hold *hold, struct bt_buf *out)
{
    char hex[33];

    baton_id_format(hold->id, hex);
    bt_buf_printf(
        out,
        "{\"handoff\":\"%s\",\"slot\":%" PRIu32 ",\"state\":\"%s\","
        "\"tokens\":%" PRIu64 ",\"blocks\":%" PRIu32 ",\"age_ms\":%" PRIu64 "}",
        hex, hold->slot, hold->is_ready ? "ready" : "open", hold->tokens,
        hold->block_count, (bt_clock_us() - hold->since_us) / 1000);
}

static void write_agent(struct eng_handoff *handoff, uint32_t rank,
                        struct bt_buf *out)
{
    baton_stats stats;

    handoff_stats(handoff, rank, &stats);
    bt_buf_printf(out,
                  "{\"rank\":%" PRIu32 ",\"boot\":\"%016" PRIx64
                  "\",\"links_up\":%" PRIu64 ",\"peers_ready\":%" PRIu64
                  ",\"holds_live\":%" PRIu64 ",\"slots_live\":%" PRIu64
                  ",\"pulls_live\":%" PRIu64 ",\"pulls_total\":%" PRIu64
                  ",\"pulls_failed\":%" PRIu64 ",\"pulled_bytes\":%" PRIu64 "}",
                  rank, stats.boot, stats.links_up, stats.peers_ready,
                  stats.holds_live, stats.slots_live, stats.pulls_live,
                  stats.pulls_total, stats.pulls_failed, stats.pulled_bytes);
}

void handoff_write_state(struct eng_handoff *handoff, struct bt_buf *out)
{
    const struct hold *hold;
    uint32_t listed = 0;

    bt_buf_append(out, BT_STR("\"holds\":["));
    LIST_FOREACH (hold, &handoff->holds, entry) {
        if (listed == STATE_HOLDS) {
            break;
        }
        if (listed++ != 0) {
            bt_buf_append_char(out, ',');
        }
        write_hold(hold, out);
    }
    bt_buf_append(out, BT_STR("],\"agents\":["));
    for (uint32_t i = 0; i < handoff->tp; i++) {
        if (i != 0) {
            bt_buf_append_char(out, ',');
        }
        write_agent(handoff, i, out);
    }
    bt_buf_append_char(out, ']');
}
