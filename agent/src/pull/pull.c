/*
 * Pulls. What must hold: a hold word's read is posted only after the last data
 * byte of every part is here, and an end is told only when no read is left
 * that could write.
 */
#include "agent/src/pull/pull.h"

#include "agent/src/fabric/cma.h"

#include <stdlib.h>

#define SLICE_BYTES (4 * BT_MIB)
#define RECENT_US   UINT64_C(10000000)
#define RECENT_MAX  16384
#define LOOK_MIN_US 200u /* between two looks at a record */
#define LOOK_MAX_US 2000u

enum pull_state {
    PULL_NEW,
    PULL_WAITING,
    PULL_READING,
    PULL_PROVING,
    PULL_ENDING,
};

struct bta_pull;

/* A pull's share at one peer, which has its reads until the pull is over. */
struct part {
    struct bta_pull *pull;
    struct bta_reads reads;
    size_t next, end;     /* its runs in the plan */
    uint64_t next_offset; /* copied of the next run (cma) */
    bool is_covered;      /* its record says that the tokens are ready */
    uint64_t word;        /* as it was read to prove */
};

struct bta_pull {
    struct bt_hash_node node; /* by tag, under the lock */
    struct bta_pull *inbox_next;
    bool is_cancel_wanted; /* under the lock */
    TAILQ_ENTRY(bta_pull) entry;
    struct bta_pulls *pulls;
    enum pull_state state;
    struct bta_params params;
    baton_blocks ours[BTA_GROUPS_MAX];
    uint32_t *our_ids; /* of all groups */
    uint64_t have_tokens;
    struct bta_plan plan;
    struct part parts[BTA_SOURCES_MAX];
    size_t part_count;
    size_t pending; /* parts not covered, not read, or not proven */
    baton_reason reason;
    bool is_draining;       /* the timer is the drain's */
    struct bta_timer timer; /* deadline, then drain */
    struct bta_timer look;  /* of WAITING: the records are read again */
    uint32_t look_us;
    uint64_t asked_us, first_us, read_us;
    char provider[16];
};
TAILQ_HEAD(pull_list, bta_pull);

struct recent {
    TAILQ_ENTRY(recent) entry;
    baton_id handoff;
    uint64_t owner;
    bool is_pulled;
    baton_reason reason;
    uint64_t until_us;
};
TAILQ_HEAD(recent_list, recent);

struct bta_pulls {
    struct bta_pulls_options options;
    struct bta_links *links; /* NULL: none */
    pthread_mutex_t lock;    /* of what follows */
    struct bt_hash tags;
    struct bta_pull *inbox_first, *inbox_last;
    bool is_cancel_wanted;
    uint64_t total, failed, bytes, runs;
    /* native thread's own */
    struct pull_list live;
    struct recent_list recent;
    size_t recent_count;
    struct bta_tombs tombs;
};

/* --- ends --- */

static void recent_drop(struct bta_pulls *pulls)
{
    struct recent *const oldest = TAILQ_FIRST(&pulls->recent);

    TAILQ_REMOVE(&pulls->recent, oldest, entry);
    pulls->recent_count--;
    free(oldest);
}

static void recent_expire(struct bta_pulls *pulls, size_t max)
{
    const uint64_t now_us = bta_now_us();

    while (!TAILQ_EMPTY(&pulls->recent) &&
           (TAILQ_FIRST(&pulls->recent)->until_us <= now_us ||
            pulls->recent_count > max)) {
        recent_drop(pulls);
    }
}

static void recent_add(struct bta_pulls *pulls, const struct bta_pull *pull)
{
    struct recent *item;

    if (pulls->links == NULL || pull->params.owner == 0) {
        return;
    }
    recent_expire(pulls, RECENT_MAX - 1);
    item = calloc(1, sizeof(*item));
    if (item == NULL) {
        return;
    }
    item->handoff = pull->params.handoff;
    item->owner = pull->params.owner;
    item->is_pulled = pull->reason == BATON_REASON_PULLED;
    item->reason = pull->reason;
    item->until_us = bta_now_us() + RECENT_US;
    TAILQ_INSERT_TAIL(&pulls->recent, item, entry);
    pulls->recent_count++;
}

static struct part *part_of(struct bta_reads *reads)
{
    return bt_container_of(reads, struct part, reads);
}

static void pull_free(struct bta_pull *pull)
{
    bta_params_fini(&pull->params);
    bta_plan_fini(&pull->plan);
    free(pull->our_ids);
    free(pull);
}

static uint32_t span_us(uint64_t from_us, uint64_t to_us)
{
    return from_us == 0 || to_us <= from_us ? 0 : (uint32_t)(to_us - from_us);
}

static baton_event event_of(const struct bta_pull *pull)
{
    const uint64_t now_us = bta_now_us();
    const bool is_pulled = pull->reason == BATON_REASON_PULLED;
    baton_event event = {
        .type = is_pulled ? BATON_EVENT_PULLED : BATON_EVENT_PULL_FAILED,
        .reason = pull->reason,
        .handoff = pull->params.handoff,
        .tag = pull->node.key.lo,
    };

    if (is_pulled) {
        event.bytes = pull->plan.bytes;
        event.blocks = pull->plan.blocks;
        event.runs = (uint32_t)pull->plan.count;
        event.wait_us = span_us(pull->asked_us, pull->first_us);
        event.read_us = span_us(pull->first_us, pull->read_us);
        event.proof_us = span_us(pull->read_us, now_us);
        memcpy(event.provider, pull->provider, sizeof(event.provider));
    }
    return event;
}

static void report(struct bta_pulls *pulls, uint64_t owner,
                   const baton_event *event)
{
    const struct bta_pull_report text = {
        .is_pulled = event->type == BATON_EVENT_PULLED,
        .proxy = owner,
        .handoff = event->handoff,
        .bytes = event->bytes,
        .runs = event->runs,
        .blocks = event->blocks,
        .wait_us = event->wait_us,
        .read_us = event->read_us,
        .proof_us = event->proof_us,
        .reason = event->reason,
        .provider = event->provider,
    };

    if (pulls->links != NULL) {
        bta_links_pull_over(pulls->links, &text);
    }
}

/* The pull is over and nothing of it is in flight: tells, and frees it. */
static void pull_finish(struct bta_pull *pull, baton_reason reason)
{
    struct bta_pulls *const pulls = pull->pulls;
    const uint64_t owner = pull->params.owner;
    baton_event event;

    pull->reason = reason;
    event = event_of(pull);
    for (size_t i = 0; i < pull->part_count; i++) {
        bta_reads_leave(&pull->parts[i].reads);
    }
    bta_timer_clear(pulls->options.reactor, &pull->timer);
    bta_timer_clear(pulls->options.reactor, &pull->look);
    TAILQ_REMOVE(&pulls->live, pull, entry);
    (void)pthread_mutex_lock(&pulls->lock);
    bt_hash_remove(&pulls->tags, &pull->node);
    pulls->failed += reason == BATON_REASON_PULLED ? 0 : 1;
    pulls->bytes += event.bytes;
    pulls->runs += event.runs;
    (void)pthread_mutex_unlock(&pulls->lock);
    recent_add(pulls, pull);
    pull_free(pull);
    /* Before the host: its first token may not overtake the report. */
    report(pulls, owner, &event);
    bta_events_push(pulls->options.events, &event);
}

static uint32_t outstanding_of(const struct bta_pull *pull)
{
    uint32_t outstanding = 0;

    for (size_t i = 0; i < pull->part_count; i++) {
        outstanding += pull->parts[i].reads.outstanding;
    }
    return outstanding;
}

/* Posts no more. Ends now, or when the reads in flight are over. */
static void pull_end(struct bta_pull *pull, baton_reason reason)
{
    struct bta_pulls *const pulls = pull->pulls;

    if (pull->state != PULL_ENDING) {
        pull->state = PULL_ENDING;
        pull->reason = reason;
        bta_timer_clear(pulls->options.reactor, &pull->look);
    }
    for (size_t i = 0; i < pull->part_count; i++) {
        if (pull->parts[i].reads.peer != NULL) {
            bta_reads_unqueue(&pull->parts[i].reads);
        }
    }
    if (outstanding_of(pull) == 0) {
        pull_finish(pull, pull->reason);
        return;
    }
    if (!pull->is_draining) {
        pull->is_draining = true;
        (void)bta_timer_set(pulls->options.reactor, &pull->timer,
                            (uint64_t)pulls->options.drain_ms * 1000);
    }
}

/* Its reads did not end by themselves: closing the channels ends them. */
static void pull_drain(struct bta_pull *pull)
{
    struct bta_peer *peers[BTA_SOURCES_MAX];
    size_t count = 0;

    for (size_t i = 0; i < pull->part_count; i++) {
        if (pull->parts[i].reads.outstanding > 0) {
            peers[count] = pull->parts[i].reads.peer;
            count++;
        }
    }
    /* The last of these finishes and frees the pull. */
    for (size_t i = 0; i < count; i++) {
        bta_peer_break(peers[i], BATON_REASON_UNREACHABLE);
    }
}

static void on_timer(struct bta_timer *timer)
{
    struct bta_pull *const pull =
        bt_container_of(timer, struct bta_pull, timer);

    if (pull->is_draining) {
        pull_drain(pull);
    } else {
        pull_end(pull, BATON_REASON_TIMEOUT);
    }
}

static void part_lost(struct bta_reads *reads, baton_reason reason)
{
    pull_end(part_of(reads)->pull, reason);
}

/* --- waiting for the blocks --- */

/* Posts or copies: every block that the pull wants is written. */
static void pull_read(struct bta_pull *pull)
{
    pull->state = PULL_READING;
    pull->pending = pull->part_count;
    /* No byte of a block may have been fetched before the counts were. */
    atomic_thread_fence(memory_order_seq_cst);
    for (size_t i = 0; i < pull->part_count; i++) {
        bta_reads_queue(&pull->parts[i].reads, false);
    }
}

static void on_look(struct bta_timer *timer)
{
    struct bta_pull *const pull = bt_container_of(timer, struct bta_pull, look);

    for (size_t i = 0; i < pull->part_count; i++) {
        struct part *const part = &pull->parts[i];
        if (!part->is_covered && part->reads.outstanding == 0) {
            bta_reads_queue(&part->reads, true);
        }
    }
}

static void look_later(struct bta_pull *pull)
{
    const uint32_t twice = pull->look_us * 2;

    if (pull->look.due.at != 0) {
        return;
    }
    if (!bta_timer_set(pull->pulls->options.reactor, &pull->look,
                       pull->look_us)) {
        pull_end(pull, BATON_REASON_MEMORY);
        return;
    }
    pull->look_us = twice > LOOK_MAX_US ? LOOK_MAX_US : twice;
}

/* The part's record as it was read. The pull may be over after this. */
static void part_look(struct part *part, const struct bta_done *record)
{
    struct bta_pull *const pull = part->pull;

    if (record->word != pull->params.handoff.lo) {
        pull_end(pull, BATON_REASON_LOST);
        return;
    }
    if (!bta_ready_covers(record->ready, pull->params.tokens)) {
        look_later(pull);
        return;
    }
    part->is_covered = true;
    pull->pending--;
    if (pull->pending == 0) {
        pull_read(pull);
    }
}

/* --- proof --- */

static bool group_matches(const struct bta_pull *pull, size_t group,
                          const uint64_t *digests)
{
    const baton_blocks *const ours = &pull->ours[group];

    for (size_t i = 0; i < ours->count; i++) {
        if (bta_regions_digest(pull->pulls->options.regions, (uint32_t)group,
                               ours->ids[i]) != digests[i]) {
            return false;
        }
    }
    return true;
}

/* P gives a digest for each of its blocks; we have the last ones of a group. */
static bool digests_match(const struct bta_pull *pull)
{
    const struct bta_pulls_options *const options = &pull->pulls->options;
    const uint64_t *digests = pull->params.digests;

    if (!options->has_checksum || digests == NULL) {
        return true;
    }
    digests += (size_t)options->own->rank * pull->params.block_count;
    for (size_t group = 0; group < pull->params.group_count; group++) {
        const size_t theirs = pull->params.groups[group].count;
        if (!group_matches(pull, group,
                           digests + theirs - pull->ours[group].count)) {
            return false;
        }
        digests += theirs;
    }
    return true;
}

static void pull_judge(struct bta_pull *pull)
{
    for (size_t i = 0; i < pull->part_count; i++) {
        if (pull->parts[i].word != pull->params.handoff.lo) {
            pull_finish(pull, BATON_REASON_LOST);
            return;
        }
    }
    pull_finish(pull, digests_match(pull) ? BATON_REASON_PULLED
                                          : BATON_REASON_CHECKSUM);
}

/* Every data byte of every part is here. */
static void pull_prove(struct bta_pull *pull)
{
    pull->state = PULL_PROVING;
    pull->read_us = bta_now_us();
    pull->pending = pull->part_count;
    atomic_thread_fence(memory_order_seq_cst);
    for (size_t i = 0; i < pull->part_count; i++) {
        bta_reads_queue(&pull->parts[i].reads, true);
    }
}

static void part_read(struct part *part)
{
    part->pull->pending--;
    if (part->pull->pending == 0) {
        pull_prove(part->pull);
    }
}

static void part_prove(struct part *part, uint64_t word)
{
    part->word = word;
    part->pull->pending--;
    if (part->pull->pending == 0) {
        pull_judge(part->pull);
    }
}

static void part_done(struct bta_reads *reads, const struct bta_done *done)
{
    struct part *const part = part_of(reads);
    struct bta_pull *const pull = part->pull;

    if (pull->state == PULL_ENDING) {
        pull_end(pull, pull->reason);
    } else if (pull->state == PULL_WAITING) {
        part_look(part, done);
    } else if (pull->state == PULL_PROVING) {
        part_prove(part, done->word);
    } else if (part->reads.outstanding == 0 && part->next == part->end) {
        part_read(part);
    }
}

/* --- posting --- */

static struct bta_read read_of(const struct part *part,
                               const struct bta_run *run)
{
    const struct bta_pulls_options *const options = &part->pull->pulls->options;
    const struct bta_region *const ours = &options->regions->items[run->ours];
    const struct bta_card_target *const theirs =
        &part->reads.peer->card.regions[run->theirs].target;

    return (struct bta_read){
        .local = ours->base + run->our_offset,
        .length = run->length,
        .desc = ours->registered->desc,
        .at = theirs->at + run->their_offset,
        .key = theirs->key,
    };
}

/* Where the record of the handoff is: the hold word, then the count. */
static struct bta_card_target record_of(const struct part *part)
{
    struct bta_card_target target = part->reads.peer->card.slots;
    const uint64_t offset =
        part->pull->params.slot * part->reads.peer->card.slot_step;

    target.base += offset;
    target.at += offset;
    return target;
}

static enum bta_step post_word(struct part *part)
{
    const struct bta_card_target target = record_of(part);
    struct bta_channel *const channel = part->reads.peer->channel;
    const enum bta_post post =
        part->pull->state == PULL_WAITING
            ? bta_channel_read_record(channel, target.at, target.key,
                                      &part->reads)
            : bta_channel_read_word(channel, target.at, target.key,
                                    &part->reads);
    const enum bta_step step = bta_reads_posted(&part->reads, post);

    if (step == BTA_STEP_MORE) {
        bta_reads_unqueue(&part->reads);
    }
    return step;
}

static enum bta_step post_run(struct part *part)
{
    const struct bta_read read =
        read_of(part, &part->pull->plan.runs[part->next]);
    const enum bta_step step = bta_reads_posted(
        &part->reads,
        bta_channel_read(part->reads.peer->channel, &read, &part->reads));

    if (step != BTA_STEP_MORE) {
        return step;
    }
    part->next++;
    if (part->next < part->end) {
        return BTA_STEP_MORE;
    }
    bta_reads_unqueue(&part->reads);
    return BTA_STEP_EMPTY;
}

/* --- copying (cma) --- */

/* The next vectors of the part, up to a slice; how many, and their bytes. */
static size_t slice_make(struct part *part, struct iovec *local,
                         struct iovec *remote, uint64_t *bytes_p)
{
    uint64_t bytes = 0;
    size_t count = 0;

    while (count < BTA_CMA_BATCH && bytes < SLICE_BYTES &&
           part->next < part->end) {
        const struct bta_run *const run = &part->pull->plan.runs[part->next];
        const struct bta_read read = read_of(part, run);
        const uint64_t left = run->length - part->next_offset;
        const uint64_t length =
            left > SLICE_BYTES - bytes ? SLICE_BYTES - bytes : left;
        local[count].iov_base = (char *)read.local + part->next_offset;
        local[count].iov_len = (size_t)length;
        remote[count].iov_base = bta_cma_pointer(
            part->reads.peer->card.regions[run->theirs].target.base +
            run->their_offset + part->next_offset);
        remote[count].iov_len = (size_t)length;
        count++;
        bytes += length;
        part->next_offset = length == left ? 0 : part->next_offset + length;
        part->next += length == left ? 1 : 0;
    }
    *bytes_p = bytes;
    return count;
}

static enum bta_step copy_failed(struct part *part,
                                 const struct bta_cma_fault *fault)
{
    char text[160];

    bta_cma_tell(fault, part->reads.peer->cma->pid, text, sizeof(text));
    bta_log_write(&part->pull->pulls->options.log, BTA_WARN,
                  "a pull from %s rank %u: %s", part->reads.peer->engine,
                  part->reads.peer->card.rank, text);
    bta_reads_leave(&part->reads);
    pull_end(part->pull, BATON_REASON_UNREACHABLE);
    return BTA_STEP_BROKEN;
}

static enum bta_step copy_word(struct part *part)
{
    const struct bta_card_target target = record_of(part);
    const bool is_waiting = part->pull->state == PULL_WAITING;
    struct bta_cma_fault fault;
    uint64_t words[2] = {0, 0};

    if (!bta_cma_read_words(part->reads.peer->cma->pid, target.base, words,
                            is_waiting ? 2 : 1, &fault)) {
        return copy_failed(part, &fault);
    }
    bta_reads_unqueue(&part->reads);
    if (is_waiting) {
        part_look(part,
                  &(struct bta_done){.word = words[0], .ready = words[1]});
    } else {
        part_prove(part, words[0]);
    }
    return BTA_STEP_EMPTY;
}

static enum bta_step copy_slice(struct part *part)
{
    struct iovec local[BTA_CMA_BATCH];
    struct iovec remote[BTA_CMA_BATCH];
    uint64_t bytes;
    const size_t count = slice_make(part, local, remote, &bytes);
    struct bta_cma_fault fault;

    if (!bta_cma_read(part->reads.peer->cma->pid, local, remote, count, bytes,
                      &fault)) {
        return copy_failed(part, &fault);
    }
    if (part->next < part->end) {
        return BTA_STEP_MORE;
    }
    bta_reads_unqueue(&part->reads);
    part_read(part);
    return BTA_STEP_EMPTY;
}

static enum bta_step part_step(struct bta_reads *reads)
{
    struct part *const part = part_of(reads);
    struct bta_pull *const pull = part->pull;

    if (pull->state == PULL_WAITING) {
        return part->reads.peer->is_near ? copy_word(part) : post_word(part);
    }
    if (pull->first_us == 0) {
        const char *const provider = bta_peer_provider(part->reads.peer);
        pull->first_us = bta_now_us();
        memcpy(pull->provider, provider,
               strnlen(provider, sizeof(pull->provider) - 1));
    }
    if (pull->state == PULL_PROVING) {
        return part->reads.peer->is_near ? copy_word(part) : post_word(part);
    }
    return part->reads.peer->is_near ? copy_slice(part) : post_run(part);
}

static const struct bta_reads_ops PART_OPS = {
    .step = part_step,
    .done = part_done,
    .lost = part_lost,
};

/* --- start --- */

/* The peers that the pull reads from, and what they are for each part. */
static baton_reason find_peers(struct bta_pull *pull,
                               struct bta_sources *sources,
                               struct bta_peer **peers)
{
    const struct bta_pulls_options *const options = &pull->pulls->options;
    const struct bta_params *const params = &pull->params;
    const struct bta_peer *first =
        bta_peers_find(options->peers, params->engine, 0);
    baton_reason reason;

    if (params->world != options->own->world) {
        return BATON_REASON_MISMATCH;
    }
    if (first == NULL) {
        first =
            bta_peers_find(options->peers, params->engine, options->own->rank);
    }
    if (first == NULL) {
        return BATON_REASON_UNKNOWN_PEER;
    }
    reason = bta_plan_sources(options->own, first->card.tp, first->card.pp,
                              params->world, sources);
    for (size_t i = 0; i < sources->count && reason == BATON_REASON_NONE; i++) {
        const uint32_t rank = sources->ranks[i];
        peers[i] = bta_peers_find(options->peers, params->engine, rank);
        if (peers[i] == NULL) {
            reason = BATON_REASON_UNKNOWN_PEER;
        } else if (peers[i]->card.boot != params->boots[rank]) {
            reason = BATON_REASON_RESTARTED;
        } else if (peers[i]->state == BTA_PEER_FAILED) {
            reason = peers[i]->reason;
        } else if (params->slot >= peers[i]->card.slot_count) {
            reason = BATON_REASON_MISMATCH;
        }
    }
    return reason;
}

static baton_reason plan(struct bta_pull *pull, size_t count,
                         struct bta_peer *const *peers)
{
    const struct bta_pulls_options *const options = &pull->pulls->options;
    const struct bta_card *cards[BTA_SOURCES_MAX];
    const uint32_t *maps[BTA_SOURCES_MAX];
    const struct bta_plan_input input = {
        .own = options->own,
        .cards = cards,
        .maps = maps,
        .source_count = count,
        .theirs = pull->params.groups,
        .ours = pull->ours,
        .group_count = pull->params.group_count,
        .tokens = pull->params.tokens,
        .have_tokens = pull->have_tokens,
        .max_run = options->fabric == NULL
                       ? UINT64_MAX
                       : bta_fabric_max_run(options->fabric),
    };
    baton_reason reason = BATON_REASON_MEMORY;

    for (size_t i = 0; i < count; i++) {
        cards[i] = &peers[i]->card;
        maps[i] = peers[i]->map;
    }
    if (bta_plan_make(&input, &pull->plan, &reason) != BATON_OK) {
        bta_log_write(&options->log, BTA_ERROR, "no memory to plan a pull");
    }
    return reason;
}

static void parts_make(struct bta_pull *pull, size_t count,
                       struct bta_peer *const *peers)
{
    size_t run = 0;

    for (size_t i = 0; i < count; i++) {
        struct part *const part = &pull->parts[i];
        part->pull = pull;
        part->reads.ops = &PART_OPS;
        part->next = run;
        while (run < pull->plan.count && pull->plan.runs[run].source == i) {
            run++;
        }
        part->end = run;
        bta_reads_join(&part->reads, peers[i]);
    }
    pull->part_count = count;
}

/* Reads the blocks, or first whether they are written. */
static void pull_begin(struct bta_pull *pull)
{
    if (!pull->params.is_early) {
        pull_read(pull);
        return;
    }
    pull->state = PULL_WAITING;
    pull->look_us = LOOK_MIN_US;
    pull->pending = pull->part_count;
    for (size_t i = 0; i < pull->part_count; i++) {
        bta_reads_queue(&pull->parts[i].reads, true);
    }
}

static size_t wanted_of(const struct bta_pull *pull)
{
    size_t wanted = 0;

    for (size_t i = 0; i < pull->params.group_count; i++) {
        wanted += pull->ours[i].count;
    }
    return wanted;
}

static void pull_start(struct bta_pull *pull)
{
    struct bta_pulls *const pulls = pull->pulls;
    struct bta_sources sources = {.count = 0};
    struct bta_peer *peers[BTA_SOURCES_MAX];
    baton_reason reason;

    TAILQ_INSERT_TAIL(&pulls->live, pull, entry);
    if (bta_tombs_take(&pulls->tombs, pull->params.handoff, pull->params.owner,
                       bta_now_us()) != BATON_REASON_NONE) {
        pull_finish(pull, BATON_REASON_CANCELLED);
        return;
    }
    if (pulls->links != NULL) {
        bta_links_pulling(pulls->links, pull->params.owner,
                          pull->params.handoff);
    }
    if (wanted_of(pull) == 0) {
        pull_finish(pull, BATON_REASON_PULLED);
        return;
    }
    reason = find_peers(pull, &sources, peers);
    if (reason == BATON_REASON_NONE) {
        reason = plan(pull, sources.count, peers);
    }
    if (reason == BATON_REASON_NONE &&
        !bta_timer_set(pulls->options.reactor, &pull->timer,
                       (uint64_t)pulls->options.timeout_ms * 1000)) {
        reason = BATON_REASON_MEMORY;
    }
    if (reason != BATON_REASON_NONE) {
        pull_finish(pull, reason);
        return;
    }
    parts_make(pull, sources.count, peers);
    pull_begin(pull);
}

/* --- the host's calls --- */

static baton_status copy_ours(struct bta_pull *pull,
                              const baton_pull_request *request)
{
    size_t count = 0;
    size_t at = 0;

    for (size_t i = 0; i < request->group_count; i++) {
        count += request->groups[i].count;
    }
    pull->our_ids = calloc(count + 1, sizeof(*pull->our_ids));
    if (pull->our_ids == NULL) {
        return BATON_ERR_MEMORY;
    }
    for (size_t i = 0; i < request->group_count; i++) {
        const baton_blocks *const group = &request->groups[i];
        if (group->count > 0) {
            memcpy(pull->our_ids + at, group->ids,
                   group->count * sizeof(uint32_t));
        }
        pull->ours[i] = (baton_blocks){pull->our_ids + at, group->count};
        at += group->count;
    }
    return BATON_OK;
}

static baton_status read_params(struct bta_pull *pull,
                                const baton_pull_request *request)
{
    const char *why = "";
    const baton_status status = bta_params_read(
        &pull->params,
        bt_str_span(request->params.data, request->params.length), &why);

    if (status == BATON_ERR_PARAMS) {
        bta_log_write(&pull->pulls->options.log, BTA_WARN,
                      "kv_transfer_params: %s", why);
        return status;
    }
    if (status != BATON_OK) {
        return status;
    }
    return bta_id_eq(pull->params.handoff, request->handoff) &&
                   pull->params.group_count == request->group_count
               ? bta_params_check(&pull->params, request->prompt,
                                  pull->pulls->options.key)
               : BATON_ERR_PARAMS;
}

static baton_status pull_make(struct bta_pulls *pulls,
                              const baton_pull_request *request,
                              struct bta_pull **pull_p)
{
    struct bta_pull *const pull = calloc(1, sizeof(*pull));
    baton_status status;

    if (pull == NULL) {
        return BATON_ERR_MEMORY;
    }
    pull->pulls = pulls;
    pull->node.key.lo = request->tag;
    pull->have_tokens = request->have_tokens;
    pull->timer.on_due = on_timer;
    pull->look.on_due = on_look;
    pull->asked_us = bta_now_us();
    status = read_params(pull, request);
    if (status == BATON_OK) {
        status = copy_ours(pull, request);
    }
    if (status == BATON_OK && !bta_events_reserve(pulls->options.events)) {
        status = BATON_ERR_MEMORY;
    }
    if (status != BATON_OK) {
        pull_free(pull);
        return status;
    }
    *pull_p = pull;
    return BATON_OK;
}

static baton_status inbox_put(struct bta_pulls *pulls, struct bta_pull *pull)
{
    if (bt_hash_find(&pulls->tags, pull->node.key) != NULL) {
        return BATON_ERR_EXISTS;
    }
    if (pulls->tags.count >= pulls->options.max_handoffs) {
        return BATON_ERR_BUSY;
    }
    bt_hash_insert(&pulls->tags, &pull->node);
    if (pulls->inbox_last == NULL) {
        pulls->inbox_first = pull;
    } else {
        pulls->inbox_last->inbox_next = pull;
    }
    pulls->inbox_last = pull;
    pulls->total++;
    return BATON_OK;
}

baton_status bta_pulls_submit(struct bta_pulls *pulls,
                              const baton_pull_request *request)
{
    struct bta_pull *pull;
    baton_status status;

    if (request->params.data == NULL || request->handoff.lo == 0 ||
        !bta_blocks_valid(pulls->options.regions, request->groups,
                          request->group_count)) {
        return BATON_ERR_ARGUMENT;
    }
    status = pull_make(pulls, request, &pull);
    if (status != BATON_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&pulls->lock);
    status = inbox_put(pulls, pull);
    (void)pthread_mutex_unlock(&pulls->lock);
    if (status != BATON_OK) {
        bta_events_unreserve(pulls->options.events);
        pull_free(pull);
    }
    return status;
}

baton_status bta_pulls_cancel(struct bta_pulls *pulls, uint64_t tag)
{
    const struct bt_key key = {.lo = tag};
    struct bt_hash_node *node;

    (void)pthread_mutex_lock(&pulls->lock);
    node = bt_hash_find(&pulls->tags, key);
    if (node != NULL) {
        bt_container_of(node, struct bta_pull, node)->is_cancel_wanted = true;
        pulls->is_cancel_wanted = true;
    }
    (void)pthread_mutex_unlock(&pulls->lock);
    return node == NULL ? BATON_ERR_UNKNOWN : BATON_OK;
}

void bta_pulls_stats(struct bta_pulls *pulls, baton_stats *stats)
{
    (void)pthread_mutex_lock(&pulls->lock);
    stats->pulls_live = pulls->tags.count;
    stats->pulls_total = pulls->total;
    stats->pulls_failed = pulls->failed;
    stats->pulled_bytes = pulls->bytes;
    stats->pulled_runs = pulls->runs;
    (void)pthread_mutex_unlock(&pulls->lock);
}

/* --- the native thread --- */

static bool wants_cancel(struct bta_pulls *pulls, const struct bta_pull *pull)
{
    bool wanted;

    (void)pthread_mutex_lock(&pulls->lock);
    wanted = pull->is_cancel_wanted;
    (void)pthread_mutex_unlock(&pulls->lock);
    return wanted && pull->state != PULL_ENDING;
}

static void cancel_wanted(struct bta_pulls *pulls)
{
    struct bta_pull *pull = TAILQ_FIRST(&pulls->live);

    while (pull != NULL) {
        struct bta_pull *const next = TAILQ_NEXT(pull, entry);
        if (wants_cancel(pulls, pull)) {
            pull_end(pull, BATON_REASON_CANCELLED);
        }
        pull = next;
    }
}

/* Under the lock. */
static struct bta_pull *take_inbox(struct bta_pulls *pulls)
{
    struct bta_pull *const first = pulls->inbox_first;

    pulls->inbox_first = NULL;
    pulls->inbox_last = NULL;
    return first;
}

void bta_pulls_wake(struct bta_pulls *pulls)
{
    struct bta_pull *pull;
    bool has_cancel;

    (void)pthread_mutex_lock(&pulls->lock);
    pull = take_inbox(pulls);
    has_cancel = pulls->is_cancel_wanted;
    pulls->is_cancel_wanted = false;
    (void)pthread_mutex_unlock(&pulls->lock);
    while (pull != NULL) {
        struct bta_pull *const next = pull->inbox_next;
        pull_start(pull);
        pull = next;
    }
    if (has_cancel) {
        cancel_wanted(pulls);
    }
}

/* Ended lately? Then a cancel has come too late, and says nothing. */
static const struct recent *recent_find(const struct bta_pulls *pulls,
                                        baton_id handoff)
{
    const struct recent *recent;

    TAILQ_FOREACH (recent, &pulls->recent, entry) {
        if (bta_id_eq(recent->handoff, handoff)) {
            break;
        }
    }
    return recent;
}

bool bta_pulls_cancel_handoff(struct bta_pulls *pulls, uint64_t proxy,
                              baton_id handoff)
{
    struct bta_pull *pull = TAILQ_FIRST(&pulls->live);
    const struct recent *recent;
    bool found = false;
    bool is_owners = true;

    while (pull != NULL) {
        struct bta_pull *const next = TAILQ_NEXT(pull, entry);
        const bool is_it = bta_id_eq(pull->params.handoff, handoff);

        found = found || is_it;
        if (is_it && pull->params.owner != proxy) {
            is_owners = false;
        } else if (is_it) {
            pull_end(pull, BATON_REASON_CANCELLED);
        }
        pull = next;
    }
    if (found) {
        return is_owners;
    }
    recent = recent_find(pulls, handoff);
    if (recent != NULL) {
        return recent->owner == proxy;
    }
    bta_tombs_add(&pulls->tombs, handoff, proxy, BATON_REASON_CANCELLED,
                  bta_now_us());
    return true;
}

void bta_pulls_sync(struct bta_pulls *pulls, uint64_t proxy,
                    struct bta_link *link)
{
    const struct bta_pull *pull;
    const struct recent *recent;

    recent_expire(pulls, RECENT_MAX);
    TAILQ_FOREACH (recent, &pulls->recent, entry) {
        if (recent->owner == proxy) {
            bta_link_sync_pull(link, recent->handoff,
                               recent->is_pulled ? LINK_TYPE_PULLED
                                                 : LINK_TYPE_PULL_FAILED,
                               recent->reason);
        }
    }
    TAILQ_FOREACH (pull, &pulls->live, entry) {
        if (pull->params.owner == proxy) {
            bta_link_sync_pull(link, pull->params.handoff, LINK_TYPE_PULLING,
                               BATON_REASON_NONE);
        }
    }
}

/* --- life --- */

struct bta_pulls *bta_pulls_open(const struct bta_pulls_options *options)
{
    struct bta_pulls *const pulls = calloc(1, sizeof(*pulls));

    if (pulls == NULL) {
        return NULL;
    }
    pulls->options = *options;
    TAILQ_INIT(&pulls->live);
    TAILQ_INIT(&pulls->recent);
    if (pthread_mutex_init(&pulls->lock, NULL) != 0) {
        free(pulls);
        return NULL;
    }
    if (!bt_hash_init(&pulls->tags, options->max_handoffs)) {
        (void)pthread_mutex_destroy(&pulls->lock);
        free(pulls);
        return NULL;
    }
    return pulls;
}

void bta_pulls_close(struct bta_pulls *pulls)
{
    struct bta_pull *waiting;

    if (pulls == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&pulls->lock);
    waiting = take_inbox(pulls);
    (void)pthread_mutex_unlock(&pulls->lock);
    /* Not started any more: the peers that they would read from are gone. */
    while (waiting != NULL) {
        TAILQ_INSERT_TAIL(&pulls->live, waiting, entry);
        waiting = waiting->inbox_next;
    }
    while (!TAILQ_EMPTY(&pulls->live)) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): taken from the list. */
        pull_finish(TAILQ_FIRST(&pulls->live), BATON_REASON_CANCELLED);
    }
    while (!TAILQ_EMPTY(&pulls->recent)) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): taken from the list. */
        recent_drop(pulls);
    }
    bta_tombs_fini(&pulls->tombs);
    bt_hash_fini(&pulls->tags);
    (void)pthread_mutex_destroy(&pulls->lock);
    free(pulls);
}

void bta_pulls_set_links(struct bta_pulls *pulls, struct bta_links *links)
{
    pulls->links = links;
}
