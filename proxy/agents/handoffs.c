/*
 * The table of live handoffs and the ring of ended ones.
 *
 *     by_id: id -> handoff                            (look-up)
 *     live: oldest <-> ... <-> youngest               (ages, renewals)
 *     recent: a ring of copies
 */
#include "proxy/agents/handoffs.h"

#include "common/base/log.h"
#include "proxy/metrics/control_stats.h"

#include <stdlib.h>

#define BUCKETS 16384u

TAILQ_HEAD(handoff_list, handoff);

struct handoffs {
    struct bt_metrics *stats;
    const struct handoffs_events *events;
    void *owner;
    struct handoff_list live;
    struct bt_hash by_id;
    struct handoff *recent; /* HANDOFFS_RECENT_MAX */
    size_t recent_count;    /* ever written */
};

static uint64_t rank_bit(unsigned rank)
{
    return rank < HANDOFF_RANKS_MAX ? UINT64_C(1) << rank : 0;
}

static bool place_is(const struct handoff_place *place,
                     const struct engine *engine)
{
    for (size_t i = 0; i < place->engine_count; i++) {
        if (place->engines[i] == engine) {
            return true;
        }
    }
    return false;
}

static struct bt_key key_of(struct handoff_id id)
{
    return (struct bt_key){.hi = id.hi, .lo = id.lo};
}

static struct handoff *find(const struct handoffs *handoffs,
                            struct handoff_id id)
{
    struct bt_hash_node *const node =
        bt_hash_find(&handoffs->by_id, key_of(id));

    return node == NULL ? NULL : bt_container_of(node, struct handoff, node);
}

static uint64_t now_of(const struct handoffs *handoffs)
{
    return handoffs->events->now_us(handoffs->owner);
}

/* --- news --- */

static struct control_news *news_new(const struct handoff *handoff,
                                     enum news_kind kind)
{
    struct control_news *const news = calloc(1, sizeof(*news));

    if (news == NULL) {
        bt_log(BT_LOG_ERROR, "handoffs", "out of memory, news are lost");
        return NULL;
    }
    news->kind = kind;
    news->handoff = handoff->id;
    news->engine = handoff->decode;
    news->exchange = handoff->exchange;
    return news;
}

static void tell(struct handoffs *handoffs, const struct handoff *handoff,
                 struct control_news *news)
{
    if (handoff->worker == NULL) {
        free(news);
        return;
    }
    handoffs->events->on_news(handoffs->owner, handoff->worker, news);
}

static void tell_reason(struct handoffs *handoffs,
                        const struct handoff *handoff, enum news_kind kind,
                        struct bt_str reason, bool blames_prefill)
{
    struct control_news *const news = news_new(handoff, kind);

    if (news == NULL) {
        return;
    }
    bt_str_copy(news->reason, sizeof(news->reason), reason);
    news->blames_prefill = blames_prefill;
    tell(handoffs, handoff, news);
}

static void tell_pulled(struct handoffs *handoffs,
                        const struct handoff *handoff)
{
    struct control_news *const news = news_new(handoff, NEWS_PULLED);

    if (news == NULL) {
        return;
    }
    news->bytes = handoff->bytes;
    news->blocks = handoff->read_blocks;
    news->runs = handoff->runs;
    news->wait_us = handoff->wait_us;
    news->read_us = handoff->read_us;
    news->proof_us = handoff->proof_us;
    memcpy(news->provider, handoff->provider, sizeof(news->provider));
    tell(handoffs, handoff, news);
}

/* --- occupancy of P --- */

static void count_hold(struct handoffs *handoffs, struct handoff *handoff)
{
    struct engine *const engine = handoff->prefill;

    if (handoff->counted_tokens != 0) {
        return;
    }
    /* A hold of no tokens still counts, as one. */
    handoff->counted_tokens = handoff->tokens == 0 ? 1 : handoff->tokens;
    handoff->counted_blocks = handoff->blocks;
    atomic_fetch_add(&engine->held_tokens, handoff->counted_tokens);
    atomic_fetch_add(&engine->held_count, 1);
    control_stat_add(handoffs->stats, CONTROL_STAT_HELD_TOKENS, 0,
                     (int64_t)handoff->counted_tokens);
    control_stat_add(handoffs->stats, CONTROL_STAT_HELD_BLOCKS, 0,
                     (int64_t)handoff->counted_blocks);
}

static void uncount_hold(struct handoffs *handoffs, struct handoff *handoff)
{
    struct engine *const engine = handoff->prefill;

    if (handoff->counted_tokens == 0) {
        return;
    }
    atomic_fetch_sub(&engine->held_tokens, handoff->counted_tokens);
    atomic_fetch_sub(&engine->held_count, 1);
    control_stat_add(handoffs->stats, CONTROL_STAT_HELD_TOKENS, 0,
                     -(int64_t)handoff->counted_tokens);
    control_stat_add(handoffs->stats, CONTROL_STAT_HELD_BLOCKS, 0,
                     -(int64_t)handoff->counted_blocks);
    handoff->counted_tokens = 0;
    handoff->counted_blocks = 0;
    handoffs->events->on_room(handoffs->owner);
}

/* --- leaving --- */

static void unlink_handoff(struct handoffs *handoffs, struct handoff *handoff)
{
    bt_hash_remove(&handoffs->by_id, &handoff->node);
    TAILQ_REMOVE(&handoffs->live, handoff, by_age);
    control_stat_add(handoffs->stats, CONTROL_STAT_HANDOFFS, 0, -1);
}

/*
 * Looks what is left of a hold. Frees the handoff when it was released and no
 * rank of P holds it; true then.
 */
static bool settle(struct handoffs *handoffs, struct handoff *handoff)
{
    struct handoff *slot;

    if ((handoff->held & ~handoff->released) != 0) {
        return false;
    }
    uncount_hold(handoffs, handoff);
    if (handoff->release_us == 0) {
        return false;
    }
    handoff->ended_us = now_of(handoffs);
    unlink_handoff(handoffs, handoff);
    slot = &handoffs->recent[handoffs->recent_count % HANDOFFS_RECENT_MAX];
    handoffs->recent_count++;
    *slot = *handoff;
    slot->worker = NULL;
    free(handoff);
    return true;
}

static void release(struct handoffs *handoffs, struct handoff *handoff,
                    enum release_reason reason)
{
    handoff->release_us = now_of(handoffs);
    handoff->reason = reason;
    control_stat_add(handoffs->stats, CONTROL_STAT_RELEASES, (size_t)reason, 1);
    handoffs->events->on_order(handoffs->owner, handoff->prefill,
                               HANDOFF_ORDER_RELEASE, handoff->id, reason);
}

/* --- workers' messages --- */

void handoffs_begin(struct handoffs *handoffs,
                    const struct handoff_begin *begin)
{
    struct handoff *handoff = NULL;

    if (find(handoffs, begin->id) != NULL) {
        bt_log(BT_LOG_ERROR, "handoffs", "a worker begins a handoff twice");
        return;
    }
    if (handoffs->by_id.count < HANDOFFS_LIVE_MAX) {
        handoff = calloc(1, sizeof(*handoff));
    }
    if (handoff == NULL) {
        struct handoff refused = {.id = begin->id, .exchange = begin->exchange};

        /* P's hold is unknown then, and released at once. */
        refused.worker = begin->worker;
        control_stat_add(handoffs->stats, CONTROL_STAT_HANDOFFS_REFUSED, 0, 1);
        tell_reason(handoffs, &refused, NEWS_HOLD_ENDED, BT_STR("busy"), false);
        return;
    }
    handoff->id = begin->id;
    handoff->exchange = begin->exchange;
    handoff->worker = begin->worker;
    handoff->prefill = begin->prefill;
    handoff->tokens = begin->tokens;
    memcpy(handoff->request_id, begin->request_id,
           sizeof(handoff->request_id) - 1);
    handoff->begun_us = now_of(handoffs);
    handoff->node.key = key_of(begin->id);
    bt_hash_insert(&handoffs->by_id, &handoff->node);
    TAILQ_INSERT_TAIL(&handoffs->live, handoff, by_age);
    control_stat_add(handoffs->stats, CONTROL_STAT_HANDOFFS, 0, 1);
}

void handoffs_prefilled(struct handoffs *handoffs, struct handoff_id id,
                        uint64_t prefill_us)
{
    struct handoff *const handoff = find(handoffs, id);

    if (handoff == NULL) {
        return;
    }
    handoff->prefilled_us = now_of(handoffs);
    handoff->prefill_us = prefill_us;
}

void handoffs_decode(struct handoffs *handoffs, struct handoff_id id,
                     const struct engine *decode)
{
    struct handoff *const handoff = find(handoffs, id);

    if (handoff == NULL || handoff->decode == decode) {
        return;
    }
    handoff->decode = decode;
    handoff->decode_us = now_of(handoffs);
    handoff->pulling = handoff->pulled = 0;
    handoff->pulling_us = 0;
    handoff->bytes = 0;
    handoff->read_blocks = handoff->runs = 0;
    handoff->wait_us = handoff->read_us = handoff->proof_us = 0;
    handoff->told_decode_lost = handoff->told_pull_failed = false;
}

void handoffs_release(struct handoffs *handoffs, struct handoff_id id,
                      enum release_reason reason, bool cancel_decode)
{
    struct handoff *const handoff = find(handoffs, id);

    if (handoff == NULL) {
        return;
    }
    if (cancel_decode && handoff->decode != NULL && handoff->pulled_us == 0) {
        handoffs->events->on_order(handoffs->owner, handoff->decode,
                                   HANDOFF_ORDER_CANCEL, handoff->id, reason);
    }
    if (handoff->release_us == 0) {
        release(handoffs, handoff, reason);
    }
    (void)settle(handoffs, handoff);
}

/* The one of that id among those that ended last. */
static struct handoff *find_ended(const struct handoffs *handoffs,
                                  struct handoff_id id)
{
    for (size_t i = 0; i < HANDOFFS_RECENT_MAX && i < handoffs->recent_count;
         i++) {
        struct handoff *const handoff = &handoffs->recent[i];

        if (handoff->id.lo == id.lo && handoff->id.hi == id.hi) {
            return handoff;
        }
    }
    return NULL;
}

void handoffs_first_token(struct handoffs *handoffs, struct handoff_id id,
                          uint64_t ttft_us)
{
    struct handoff *handoff = find(handoffs, id);

    /* Most have ended by then: D's first token comes after its pull. */
    if (handoff == NULL) {
        handoff = find_ended(handoffs, id);
    }
    if (handoff != NULL) {
        handoff->ttft_us = ttft_us;
    }
}

void handoffs_release_engine(struct handoffs *handoffs,
                             const struct engine *prefill)
{
    struct handoff *handoff = TAILQ_FIRST(&handoffs->live);

    while (handoff != NULL) {
        struct handoff *const next = TAILQ_NEXT(handoff, by_age);

        if (handoff->prefill == prefill) {
            handoffs_release(handoffs, handoff->id, RELEASE_CANCELLED, true);
        }
        handoff = next;
    }
}

/* Its P left: whatever it held is gone. */
static void end_orphan(struct handoffs *handoffs, struct handoff *handoff)
{
    handoff->released = handoff->held;
    if (handoff->release_us == 0) {
        release(handoffs, handoff, RELEASE_CANCELLED);
    }
    (void)settle(handoffs, handoff);
}

static void forget_engine(struct handoff *handoff, const struct engine *engine)
{
    if (handoff->prefill == engine) {
        handoff->prefill = NULL;
    }
    if (handoff->decode == engine) {
        handoff->decode = NULL;
    }
}

void handoffs_forget_engine(struct handoffs *handoffs,
                            const struct engine *engine)
{
    struct handoff *handoff = TAILQ_FIRST(&handoffs->live);

    while (handoff != NULL) {
        struct handoff *const next = TAILQ_NEXT(handoff, by_age);

        if (handoff->prefill == engine) {
            end_orphan(handoffs, handoff);
        } else {
            forget_engine(handoff, engine);
        }
        handoff = next;
    }
    for (size_t i = 0; i < HANDOFFS_RECENT_MAX; i++) {
        forget_engine(&handoffs->recent[i], engine);
    }
}

void handoffs_forget_worker(struct handoffs *handoffs,
                            const struct bt_mailbox *worker)
{
    struct handoff *handoff = TAILQ_FIRST(&handoffs->live);

    while (handoff != NULL) {
        struct handoff *const next = TAILQ_NEXT(handoff, by_age);

        if (handoff->worker == worker) {
            handoff->worker = NULL;
            handoffs_release(handoffs, handoff->id, RELEASE_CANCELLED, true);
        }
        handoff = next;
    }
}

/* --- agents' reports: P --- */

/*
 * A hold of no live handoff. One that was released before it began is no
 * stray: it ends for the reason that was given then.
 */
static enum release_reason stray_hold(struct handoffs *handoffs,
                                      const struct handoff_place *from,
                                      struct handoff_id id)
{
    const struct handoff *const ended = find_ended(handoffs, id);

    if (ended != NULL && place_is(from, ended->prefill)) {
        return ended->reason;
    }
    control_stat_add(handoffs->stats, CONTROL_STAT_STRAY_HOLDS, 0, 1);
    return RELEASE_CANCELLED;
}

enum handoff_answer handoffs_held(struct handoffs *handoffs,
                                  const struct handoff_place *from,
                                  const struct handoff_report *report,
                                  enum release_reason *reason_p)
{
    struct handoff *const handoff = find(handoffs, report->id);
    const uint64_t bit = rank_bit(from->rank);

    if (handoff == NULL || !place_is(from, handoff->prefill)) {
        *reason_p = stray_hold(handoffs, from, report->id);
        return HANDOFF_ANSWER_RELEASE;
    }
    handoff->synced |= bit;
    if (handoff->held == 0) {
        handoff->held_us = now_of(handoffs);
        handoff->renewed_us = handoff->held_us;
        handoff->slot = report->slot;
        handoff->tokens = report->tokens;
        handoff->blocks = report->blocks;
    }
    handoff->held |= bit;
    handoff->released &= ~bit;
    count_hold(handoffs, handoff);
    if (handoff->release_us != 0) {
        *reason_p = handoff->reason;
        return HANDOFF_ANSWER_RELEASE;
    }
    return HANDOFF_ANSWER_RENEW;
}

static void hold_ended(struct handoffs *handoffs, struct handoff *handoff,
                       unsigned rank, struct bt_str reason)
{
    const uint64_t bit = rank_bit(rank);

    if ((handoff->released & bit) != 0) {
        return;
    }
    handoff->held |= bit;
    handoff->released |= bit;
    if (handoff->release_us == 0) {
        control_stat_add(handoffs->stats, CONTROL_STAT_HOLDS_ENDED,
                         control_stat_label(CONTROL_STAT_HOLDS_ENDED, reason),
                         1);
        bt_str_copy(handoff->failure, sizeof(handoff->failure), reason);
        if (!handoff->told_hold_ended) {
            handoff->told_hold_ended = true;
            tell_reason(handoffs, handoff, NEWS_HOLD_ENDED, reason, true);
        }
    }
    (void)settle(handoffs, handoff);
}

void handoffs_released(struct handoffs *handoffs,
                       const struct handoff_place *from,
                       const struct handoff_report *report)
{
    struct handoff *const handoff = find(handoffs, report->id);

    if (handoff == NULL || !place_is(from, handoff->prefill)) {
        return;
    }
    hold_ended(handoffs, handoff, from->rank, report->reason);
}

void handoffs_sync_begin(struct handoffs *handoffs,
                         const struct handoff_place *from)
{
    struct handoff *handoff;

    TAILQ_FOREACH (handoff, &handoffs->live, by_age) {
        if (place_is(from, handoff->prefill)) {
            handoff->synced &= ~rank_bit(from->rank);
        }
    }
}

/* Ends this rank's holds; with `only_unsynced` those the sync named stay. */
static void end_holds(struct handoffs *handoffs,
                      const struct handoff_place *from, bool only_unsynced)
{
    const uint64_t bit = rank_bit(from->rank);
    struct handoff *handoff = TAILQ_FIRST(&handoffs->live);

    while (handoff != NULL) {
        struct handoff *const next = TAILQ_NEXT(handoff, by_age);

        if (place_is(from, handoff->prefill) && (handoff->held & bit) != 0 &&
            !(only_unsynced && (handoff->synced & bit) != 0)) {
            hold_ended(handoffs, handoff, from->rank, BT_STR("gone"));
        }
        handoff = next;
    }
}

void handoffs_sync_end(struct handoffs *handoffs,
                       const struct handoff_place *from)
{
    end_holds(handoffs, from, true);
}

void handoffs_rank_gone(struct handoffs *handoffs,
                        const struct handoff_place *from)
{
    end_holds(handoffs, from, false);
}

/* --- agents' reports: D --- */

/* The handoff whose current D this rank belongs to; NULL: ignore it. */
static struct handoff *find_decode(struct handoffs *handoffs,
                                   const struct handoff_place *from,
                                   struct handoff_id id)
{
    struct handoff *const handoff = find(handoffs, id);

    if (handoff == NULL || handoff->decode == NULL ||
        !place_is(from, handoff->decode)) {
        return NULL;
    }
    return handoff;
}

/* A report about no handoff of ours. */
static void count_stray(struct handoffs *handoffs)
{
    control_stat_add(handoffs->stats, CONTROL_STAT_MESSAGES_IGNORED, 0, 1);
}

/* Is it a handoff of this proxy, alive or ended lately? */
static bool is_known(const struct handoffs *handoffs, struct handoff_id id)
{
    return find(handoffs, id) != NULL || find_ended(handoffs, id) != NULL;
}

enum handoff_answer handoffs_pulling(struct handoffs *handoffs,
                                     const struct handoff_place *from,
                                     const struct handoff_report *report)
{
    struct handoff *const handoff = find_decode(handoffs, from, report->id);

    if (handoff == NULL) {
        if (!is_known(handoffs, report->id)) {
            count_stray(handoffs);
        }
        return HANDOFF_ANSWER_ACK;
    }
    handoff->pulling |= rank_bit(from->rank);
    if (handoff->pulling_us == 0) {
        handoff->pulling_us = now_of(handoffs);
    }
    return HANDOFF_ANSWER_NONE;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Bytes and reads add up over the ranks; they work side by side in time. */
static void add_pull(struct handoffs *handoffs, struct handoff *handoff,
                     const struct handoff_report *report)
{
    handoff->bytes += report->bytes;
    handoff->runs += report->runs;
    handoff->read_blocks = larger(handoff->read_blocks, report->blocks);
    handoff->wait_us = larger(handoff->wait_us, report->wait_us);
    handoff->read_us = larger(handoff->read_us, report->read_us);
    handoff->proof_us = larger(handoff->proof_us, report->proof_us);
    bt_str_copy(handoff->provider, sizeof(handoff->provider), report->provider);
    control_stat_add(handoffs->stats, CONTROL_STAT_PULLED_BYTES, 0,
                     report->bytes > INT64_MAX ? 0 : (int64_t)report->bytes);
    bt_metrics_observe_us(handoffs->stats, CONTROL_STAT_PULL_SECONDS, 0,
                          (uint64_t)report->wait_us + report->read_us +
                              report->proof_us);
}

/*
 * D's first token can be quicker than its agent's report: the handoff was
 * released by it, and has ended. The time line still shows the pull. The pull
 * of a D that was given up is none of ours any more.
 */
static void note_late_pull(struct handoffs *handoffs,
                           const struct handoff_place *from,
                           const struct handoff_report *report)
{
    struct handoff *handoff;
    const uint64_t bit = rank_bit(from->rank);

    if (find(handoffs, report->id) != NULL) {
        return;
    }
    handoff = find_ended(handoffs, report->id);
    if (handoff == NULL) {
        count_stray(handoffs);
        return;
    }
    if (handoff->decode == NULL || !place_is(from, handoff->decode) ||
        (handoff->pulled & bit) != 0) {
        return;
    }
    handoff->pulled |= bit;
    handoff->pulled_us = now_of(handoffs);
    add_pull(handoffs, handoff, report);
}

static bool all_pulled(const struct handoffs *handoffs,
                       const struct handoff *handoff)
{
    const unsigned ranks =
        handoffs->events->ranks(handoffs->owner, handoff->decode);
    const uint64_t all =
        ranks >= HANDOFF_RANKS_MAX ? UINT64_MAX : rank_bit(ranks) - 1;

    return ranks > 0 && (handoff->pulled & all) == all;
}

enum handoff_answer handoffs_pulled(struct handoffs *handoffs,
                                    const struct handoff_place *from,
                                    const struct handoff_report *report)
{
    struct handoff *const handoff = find_decode(handoffs, from, report->id);
    const uint64_t bit = rank_bit(from->rank);

    if (handoff == NULL) {
        note_late_pull(handoffs, from, report);
        return HANDOFF_ANSWER_ACK;
    }
    if ((handoff->pulled & bit) != 0) {
        return HANDOFF_ANSWER_ACK;
    }
    handoff->pulling |= bit;
    handoff->pulled |= bit;
    add_pull(handoffs, handoff, report);
    if (handoff->pulled_us != 0 || !all_pulled(handoffs, handoff)) {
        return HANDOFF_ANSWER_NONE;
    }
    handoff->pulled_us = now_of(handoffs);
    tell_pulled(handoffs, handoff);
    if (handoff->release_us == 0) {
        release(handoffs, handoff, RELEASE_PULLED);
        (void)settle(handoffs, handoff);
    }
    return HANDOFF_ANSWER_NONE;
}

/* Is it P that a pull's failure speaks against? */
static bool blames_prefill(struct bt_str reason)
{
    static const char *const WORDS[] = {"lost", "checksum", "timeout",
                                        "unreachable", "restarted"};

    for (size_t i = 0; i < BT_ARRAY_LEN(WORDS); i++) {
        if (bt_str_eq(reason, bt_str_of(WORDS[i]))) {
            return true;
        }
    }
    return false;
}

enum handoff_answer handoffs_pull_failed(struct handoffs *handoffs,
                                         const struct handoff_place *from,
                                         const struct handoff_report *report)
{
    struct handoff *const handoff = find_decode(handoffs, from, report->id);

    if (handoff == NULL && !is_known(handoffs, report->id)) {
        count_stray(handoffs);
        return HANDOFF_ANSWER_ACK;
    }
    control_stat_add(
        handoffs->stats, CONTROL_STAT_PULL_FAILURES,
        control_stat_label(CONTROL_STAT_PULL_FAILURES, report->reason), 1);
    if (handoff == NULL) {
        return HANDOFF_ANSWER_ACK;
    }
    bt_str_copy(handoff->failure, sizeof(handoff->failure), report->reason);
    if (!handoff->told_pull_failed) {
        handoff->told_pull_failed = true;
        tell_reason(handoffs, handoff, NEWS_PULL_FAILED, report->reason,
                    blames_prefill(report->reason));
    }
    return HANDOFF_ANSWER_NONE;
}

void handoffs_rank_dead(struct handoffs *handoffs,
                        const struct handoff_place *from)
{
    struct handoff *handoff;

    TAILQ_FOREACH (handoff, &handoffs->live, by_age) {
        if (handoff->decode == NULL || !place_is(from, handoff->decode) ||
            (handoff->pulled & rank_bit(from->rank)) != 0 ||
            handoff->release_us != 0 || handoff->told_decode_lost) {
            continue;
        }
        handoff->told_decode_lost = true;
        control_stat_add(handoffs->stats, CONTROL_STAT_DECODES_LOST, 0, 1);
        tell_reason(handoffs, handoff, NEWS_D_LOST, BT_STR("link_dead"), false);
    }
}

void handoffs_renew(struct handoffs *handoffs)
{
    const uint64_t now = now_of(handoffs);
    struct handoff *handoff;

    TAILQ_FOREACH (handoff, &handoffs->live, by_age) {
        if (handoff->release_us != 0 ||
            (handoff->held & ~handoff->released) == 0 ||
            now - handoff->renewed_us < HANDOFF_RENEW_US) {
            continue;
        }
        handoff->renewed_us = now;
        handoffs->events->on_order(handoffs->owner, handoff->prefill,
                                   HANDOFF_ORDER_RENEW, handoff->id,
                                   RELEASE_CANCELLED);
    }
}

/* --- to show --- */

size_t handoffs_live(const struct handoffs *handoffs)
{
    return handoffs->by_id.count;
}

const struct handoff *handoffs_first(const struct handoffs *handoffs)
{
    return TAILQ_FIRST(&handoffs->live);
}

const struct handoff *handoffs_next(const struct handoff *handoff)
{
    return TAILQ_NEXT(handoff, by_age);
}

const struct handoff *handoffs_recent(const struct handoffs *handoffs,
                                      size_t index)
{
    if (index >= HANDOFFS_RECENT_MAX || index >= handoffs->recent_count) {
        return NULL;
    }
    return &handoffs->recent[(handoffs->recent_count - 1 - index) %
                             HANDOFFS_RECENT_MAX];
}

const struct handoff *handoffs_find(const struct handoffs *handoffs,
                                    struct handoff_id id)
{
    return find(handoffs, id);
}

enum handoff_state handoff_state(const struct handoff *handoff)
{
    if (handoff->ended_us != 0) {
        return HANDOFF_ENDED;
    }
    if (handoff->release_us != 0) {
        return HANDOFF_RELEASING;
    }
    if (handoff->pulling != 0) {
        return HANDOFF_PULLING;
    }
    if (handoff->decode != NULL) {
        return HANDOFF_DECODE;
    }
    if (handoff->prefilled_us != 0) {
        return HANDOFF_READY;
    }
    return handoff->held != 0 ? HANDOFF_HELD : HANDOFF_PREFILL;
}

const char *handoff_state_text(enum handoff_state state)
{
    static const char *const TEXTS[] = {
        [HANDOFF_PREFILL] = "prefill", [HANDOFF_HELD] = "held",
        [HANDOFF_READY] = "ready",     [HANDOFF_DECODE] = "decode",
        [HANDOFF_PULLING] = "pulling", [HANDOFF_RELEASING] = "releasing",
        [HANDOFF_ENDED] = "ended",
    };

    return TEXTS[state];
}

const char *handoff_reason_word(enum release_reason reason)
{
    return reason == RELEASE_PULLED ? "pulled" : "cancelled";
}

struct handoffs *handoffs_open(struct bt_metrics *stats,
                               const struct handoffs_events *events,
                               void *owner)
{
    struct handoffs *handoffs = calloc(1, sizeof(*handoffs));

    if (handoffs == NULL) {
        return NULL;
    }
    handoffs->stats = stats;
    handoffs->events = events;
    handoffs->owner = owner;
    TAILQ_INIT(&handoffs->live);
    handoffs->recent = calloc(HANDOFFS_RECENT_MAX, sizeof(struct handoff));
    if (!bt_hash_init(&handoffs->by_id, BUCKETS) || handoffs->recent == NULL) {
        handoffs_close(&handoffs);
    }
    return handoffs;
}

void handoffs_close(struct handoffs **handoffs)
{
    struct handoffs *const dead = *handoffs;
    struct handoff *handoff;

    *handoffs = NULL;
    if (dead == NULL) {
        return;
    }
    while ((handoff = TAILQ_FIRST(&dead->live)) != NULL) {
        TAILQ_REMOVE(&dead->live, handoff, by_age);
        free(handoff);
    }
    bt_hash_fini(&dead->by_id);
    free(dead->recent);
    free(dead);
}
