/*
 * Holds. The rule that all rests on: a word is cleared, sequentially
 * consistent, before its hold's end can be seen by anyone.
 */
#include "agent/src/hold/hold.h"

#include "agent/src/base/reactor.h"

#include <stdlib.h>
#include <sys/mman.h>

enum hold_state {
    HOLD_NONE,
    HOLD_OPEN,
    HOLD_VOID, /* OPEN, released already: the word is clear */
    HOLD_READY,
    HOLD_OVER, /* out of the map; the links have yet to hear */
};

/* A hold's blocks of all groups, in one array. */
struct block_lists {
    uint32_t *ids;
    size_t counts[BTA_GROUPS_MAX];
    size_t group_count;
};

struct bta_hold {
    struct bt_hash_node node;
    enum hold_state state;
    uint32_t slot;
    uint64_t owner;
    uint64_t due_us;     /* of the lease, when READY */
    bool is_default;     /* the lease is the owner's to say */
    bool is_untold;      /* in the list for the links */
    baton_reason reason; /* of VOID and OVER */
    uint64_t told;       /* tokens that are ready */
    uint64_t tokens, bytes;
    struct block_lists blocks;
    struct bta_hold *prev, *next; /* live */
    struct bta_hold *told_next;
};

/* --- records --- */

static struct bta_hold *find(const struct bta_holds *holds, baton_id id)
{
    struct bt_hash_node *const node = bt_hash_find(&holds->map, bta_id_key(id));

    return node == NULL ? NULL : bt_container_of(node, struct bta_hold, node);
}

static size_t block_count(const struct block_lists *blocks)
{
    size_t count = 0;

    for (size_t i = 0; i < blocks->group_count; i++) {
        count += blocks->counts[i];
    }
    return count;
}

static void hold_free(struct bta_hold *hold)
{
    free(hold->blocks.ids);
    free(hold);
}

static void link_in(struct bta_holds *holds, struct bta_hold *hold)
{
    bt_hash_insert(&holds->map, &hold->node);
    holds->slots[hold->slot] = hold;
    hold->next = holds->live;
    if (hold->next != NULL) {
        hold->next->prev = hold;
    }
    holds->live = hold;
}

static void link_out(struct bta_holds *holds, struct bta_hold *hold)
{
    bt_hash_remove(&holds->map, &hold->node);
    holds->slots[hold->slot] = NULL;
    if (hold->prev != NULL) {
        hold->prev->next = hold->next;
    } else {
        holds->live = hold->next;
    }
    if (hold->next != NULL) {
        hold->next->prev = hold->prev;
    }
    hold->prev = NULL;
    hold->next = NULL;
}

/* Counts the hold's blocks in (+1) or out (-1). */
static void uses_add(struct bta_holds *holds, const struct block_lists *blocks,
                     bool is_in)
{
    size_t at = 0;

    for (size_t group = 0; group < blocks->group_count; group++) {
        for (size_t i = 0; i < blocks->counts[group]; i++) {
            uint32_t *const use = &holds->uses[group][blocks->ids[at + i]];
            *use = is_in ? *use + 1 : *use - 1;
        }
        at += blocks->counts[group];
    }
}

static void tell(struct bta_holds *holds, struct bta_hold *hold)
{
    if (hold->is_untold) {
        return;
    }
    hold->is_untold = true;
    hold->told_next = NULL;
    if (holds->told_last == NULL) {
        holds->told_first = hold;
    } else {
        holds->told_last->told_next = hold;
    }
    holds->told_last = hold;
}

static void word_store(struct bta_holds *holds, uint32_t slot, uint64_t word)
{
    struct bta_record *const record = &holds->records[slot];

    atomic_store_explicit(&record->word, word, memory_order_seq_cst);
    /*
     * The store alone lets later plain stores pass it on weakly ordered
     * machines: the host's overwrite must not be seen before the clear.
     */
    atomic_thread_fence(memory_order_seq_cst);
    if (word == 0) {
        /* The slot's next hold begins with none, before its word is set. */
        atomic_store_explicit(&record->ready, 0, memory_order_relaxed);
    }
}

/* After the blocks' bytes, which whoever reads the count may read too. */
static void ready_store(struct bta_holds *holds, struct bta_hold *hold,
                        uint64_t tokens)
{
    hold->told = tokens;
    if (hold->state == HOLD_OPEN) {
        atomic_store_explicit(&holds->records[hold->slot].ready,
                              bta_ready_word(tokens), memory_order_release);
    }
}

static void due_set(struct bta_holds *holds, struct bta_hold *hold,
                    uint64_t due_us)
{
    hold->due_us = due_us;
    if (due_us < holds->next_due_us) {
        holds->next_due_us = due_us;
    }
}

/* A READY hold ends: word, then the event, then the links. */
static void hold_end(struct bta_holds *holds, struct bta_hold *hold,
                     baton_reason reason)
{
    const baton_event event = {
        .type = BATON_EVENT_RELEASED,
        .reason = reason,
        .handoff = bta_key_id(hold->node.key),
    };

    word_store(holds, hold->slot, 0);
    uses_add(holds, &hold->blocks, false);
    link_out(holds, hold);
    hold->state = HOLD_OVER;
    hold->reason = reason;
    bta_tombs_add(&holds->spent, bta_key_id(hold->node.key), 0, reason,
                  bta_now_us());
    if ((size_t)reason < BT_ARRAY_LEN(holds->ended)) {
        holds->ended[reason]++;
    }
    bta_events_push(holds->events, &event);
    tell(holds, hold);
}

/* --- life --- */

static baton_status uses_make(struct bta_holds *holds)
{
    for (size_t group = 0; group < holds->regions->group_count; group++) {
        const uint64_t blocks =
            bta_regions_blocks(holds->regions, (uint32_t)group);
        holds->uses[group] = calloc((size_t)blocks, sizeof(uint32_t));
        if (holds->uses[group] == NULL) {
            return BATON_ERR_MEMORY;
        }
    }
    return BATON_OK;
}

/* Pages of their own: nothing but records is readable beside them. */
static baton_status records_make(struct bta_holds *holds)
{
    const size_t length = holds->limits.max_holds * sizeof(struct bta_record);
    void *const records = mmap(NULL, length, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (records == MAP_FAILED) {
        return BATON_ERR_MEMORY;
    }
    holds->records = records;
    holds->records_memory.base = records;
    holds->records_memory.length = length;
    if (holds->regions->fabric == NULL) {
        return BATON_OK;
    }
    return bta_fabric_register(holds->regions->fabric, &holds->records_memory,
                               holds->regions->is_readable);
}

baton_status bta_holds_init(struct bta_holds *holds,
                            const struct bta_holds_limits *limits,
                            const struct bta_regions *regions,
                            struct bta_events *events)
{
    baton_status status;

    *holds = (struct bta_holds){
        .events = events,
        .regions = regions,
        .limits = *limits,
        .next_due_us = UINT64_MAX,
    };
    if (pthread_mutex_init(&holds->lock, NULL) != 0) {
        return BATON_ERR_SYSTEM;
    }
    holds->slots = calloc(limits->max_holds, sizeof(struct bta_hold *));
    status =
        holds->slots != NULL && bt_hash_init(&holds->map, limits->max_handoffs)
            ? records_make(holds)
            : BATON_ERR_MEMORY;
    if (status == BATON_OK) {
        status = uses_make(holds);
    }
    if (status != BATON_OK) {
        bta_holds_fini(holds);
    }
    return status;
}

void bta_holds_fini(struct bta_holds *holds)
{
    if (holds->regions == NULL) {
        return;
    }
    while (holds->told_first != NULL) {
        struct bta_hold *const hold = holds->told_first;
        holds->told_first = hold->told_next;
        if (hold->state == HOLD_OVER) {
            hold_free(hold);
        }
    }
    while (holds->live != NULL) {
        struct bta_hold *const hold = holds->live;
        word_store(holds, hold->slot, 0);
        link_out(holds, hold);
        bta_events_unreserve(holds->events);
        hold_free(hold);
    }
    bta_fabric_unregister(&holds->records_memory);
    if (holds->records != NULL) {
        (void)munmap(holds->records_memory.base,
                     (size_t)holds->records_memory.length);
    }
    for (size_t i = 0; i < BTA_GROUPS_MAX; i++) {
        free(holds->uses[i]);
    }
    bt_hash_fini(&holds->map);
    bta_tombs_fini(&holds->tombs);
    bta_tombs_fini(&holds->spent);
    free(holds->slots);
    (void)pthread_mutex_destroy(&holds->lock);
    *holds = (struct bta_holds){0};
}

/* --- the host's calls --- */

static baton_status open_locked(struct bta_holds *holds, baton_id id,
                                uint32_t slot, uint64_t owner)
{
    struct bta_hold *hold;

    if (find(holds, id) != NULL || holds->slots[slot] != NULL ||
        bta_tombs_has(&holds->spent, id, 0, bta_now_us())) {
        return BATON_ERR_EXISTS;
    }
    if (holds->map.count >= holds->limits.max_handoffs) {
        return BATON_ERR_BUSY;
    }
    hold = calloc(1, sizeof(*hold));
    if (hold == NULL) {
        return BATON_ERR_MEMORY;
    }
    if (!bta_events_reserve(holds->events)) {
        free(hold);
        return BATON_ERR_MEMORY;
    }
    hold->node.key = bta_id_key(id);
    hold->slot = slot;
    hold->owner = owner;
    hold->reason = bta_tombs_take(&holds->tombs, id, owner, bta_now_us());
    hold->state = hold->reason == BATON_REASON_NONE ? HOLD_OPEN : HOLD_VOID;
    link_in(holds, hold);
    holds->total++;
    word_store(holds, slot, hold->state == HOLD_OPEN ? id.lo : 0);
    return BATON_OK;
}

baton_status bta_hold_open(struct bta_holds *holds, baton_id id, uint32_t slot,
                           uint64_t owner)
{
    baton_status status;

    if (id.lo == 0 || slot >= holds->limits.max_holds) {
        return BATON_ERR_ARGUMENT;
    }
    (void)pthread_mutex_lock(&holds->lock);
    status = open_locked(holds, id, slot, owner);
    (void)pthread_mutex_unlock(&holds->lock);
    return status;
}

static bool ids_below(const baton_blocks *group, uint64_t blocks)
{
    if (group->count > 0 && group->ids == NULL) {
        return false;
    }
    for (size_t i = 0; i < group->count; i++) {
        if (group->ids[i] >= blocks) {
            return false;
        }
    }
    return true;
}

bool bta_blocks_valid(const struct bta_regions *regions,
                      const baton_blocks *groups, size_t group_count)
{
    if (group_count != regions->group_count ||
        (groups == NULL && group_count > 0)) {
        return false;
    }
    for (size_t i = 0; i < group_count; i++) {
        if (!ids_below(&groups[i], bta_regions_blocks(regions, (uint32_t)i))) {
            return false;
        }
    }
    return true;
}

static baton_status lists_copy(const baton_progress *ready,
                               struct block_lists *lists)
{
    size_t at = 0;

    lists->group_count = ready->group_count;
    for (size_t i = 0; i < ready->group_count; i++) {
        lists->counts[i] = ready->groups[i].count;
    }
    lists->ids = calloc(block_count(lists) + 1, sizeof(uint32_t));
    if (lists->ids == NULL) {
        return BATON_ERR_MEMORY;
    }
    for (size_t i = 0; i < ready->group_count; i++) {
        if (lists->counts[i] > 0) {
            memcpy(lists->ids + at, ready->groups[i].ids,
                   lists->counts[i] * sizeof(uint32_t));
        }
        at += lists->counts[i];
    }
    return BATON_OK;
}

static uint64_t bytes_of(const struct bta_holds *holds,
                         const struct block_lists *lists)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < lists->group_count; i++) {
        bytes += lists->counts[i] *
                 bta_regions_block_bytes(holds->regions, (uint32_t)i);
    }
    return bytes;
}

static baton_status progress_locked(struct bta_holds *holds,
                                    const baton_progress *progress)
{
    struct bta_hold *const hold = find(holds, progress->handoff);

    if (hold == NULL) {
        return BATON_ERR_UNKNOWN;
    }
    if (hold->state == HOLD_READY) {
        return BATON_ERR_STATE;
    }
    if (progress->tokens < hold->told) {
        return BATON_ERR_ARGUMENT;
    }
    ready_store(holds, hold, progress->tokens);
    return BATON_OK;
}

static bool progress_checked(const struct bta_holds *holds,
                             const baton_progress *progress)
{
    return progress->tokens <= UINT32_MAX &&
           bta_blocks_valid(holds->regions, progress->groups,
                            progress->group_count);
}

baton_status bta_hold_progress(struct bta_holds *holds,
                               const baton_progress *progress)
{
    baton_status status;

    if (!progress_checked(holds, progress)) {
        return BATON_ERR_ARGUMENT;
    }
    (void)pthread_mutex_lock(&holds->lock);
    status = progress_locked(holds, progress);
    (void)pthread_mutex_unlock(&holds->lock);
    return status;
}

/* Takes the lists on success. */
static baton_status ready_locked(struct bta_holds *holds,
                                 const baton_progress *ready,
                                 struct block_lists *lists)
{
    struct bta_hold *const hold = find(holds, ready->handoff);
    const uint32_t lease_ms =
        ready->lease_ms == 0 ? BTA_LEASE_MS : ready->lease_ms;
    bool is_void;

    if (hold == NULL) {
        return BATON_ERR_UNKNOWN;
    }
    if (hold->state == HOLD_READY) {
        return BATON_ERR_STATE;
    }
    if (ready->tokens < hold->told) {
        return BATON_ERR_ARGUMENT;
    }
    is_void = hold->state == HOLD_VOID;
    ready_store(holds, hold, ready->tokens);
    hold->state = HOLD_READY;
    hold->blocks = *lists;
    lists->ids = NULL;
    hold->tokens = ready->tokens;
    hold->bytes = bytes_of(holds, &hold->blocks);
    hold->is_default = ready->lease_ms == 0;
    due_set(holds, hold, bta_now_us() + (uint64_t)lease_ms * 1000);
    uses_add(holds, &hold->blocks, true);
    if (is_void) {
        hold_end(holds, hold, hold->reason);
    } else {
        tell(holds, hold);
    }
    return BATON_OK;
}

baton_status bta_hold_ready(struct bta_holds *holds,
                            const baton_progress *ready)
{
    struct block_lists lists = {0};
    baton_status status;

    if (!progress_checked(holds, ready)) {
        return BATON_ERR_ARGUMENT;
    }
    status = lists_copy(ready, &lists);
    if (status != BATON_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&holds->lock);
    status = ready_locked(holds, ready, &lists);
    (void)pthread_mutex_unlock(&holds->lock);
    free(lists.ids);
    return status;
}

/* Silent: nothing was promised for an OPEN hold. What its owner said of it
 * stays said: the host may open it again. */
static void open_drop(struct bta_holds *holds, struct bta_hold *hold)
{
    word_store(holds, hold->slot, 0);
    if (hold->state == HOLD_VOID) {
        bta_tombs_add(&holds->tombs, bta_key_id(hold->node.key), hold->owner,
                      hold->reason, bta_now_us());
    }
    link_out(holds, hold);
    bta_events_unreserve(holds->events);
    hold_free(hold);
}

baton_status bta_hold_break(struct bta_holds *holds, baton_id id)
{
    struct bta_hold *hold;

    (void)pthread_mutex_lock(&holds->lock);
    hold = find(holds, id);
    if (hold != NULL && hold->state == HOLD_READY) {
        hold_end(holds, hold, BATON_REASON_BROKEN);
    } else if (hold != NULL) {
        open_drop(holds, hold);
    }
    (void)pthread_mutex_unlock(&holds->lock);
    return hold == NULL ? BATON_ERR_UNKNOWN : BATON_OK;
}

baton_status bta_hold_release(struct bta_holds *holds, baton_id id)
{
    baton_status status = BATON_OK;
    struct bta_hold *hold;

    (void)pthread_mutex_lock(&holds->lock);
    hold = find(holds, id);
    if (hold == NULL) {
        status = BATON_ERR_UNKNOWN;
    } else if (hold->state != HOLD_READY) {
        status = BATON_ERR_STATE;
    } else {
        hold_end(holds, hold, BATON_REASON_PULLED);
    }
    (void)pthread_mutex_unlock(&holds->lock);
    return status;
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a;
    const uint32_t right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

static bool has_any(const struct bta_hold *hold, uint32_t group,
                    const uint32_t *sorted, size_t count)
{
    size_t at = 0;

    for (size_t i = 0; i < group; i++) {
        at += hold->blocks.counts[i];
    }
    for (size_t i = 0; i < hold->blocks.counts[group]; i++) {
        if (bsearch(&hold->blocks.ids[at + i], sorted, count, sizeof(*sorted),
                    compare_ids) != NULL) {
            return true;
        }
    }
    return false;
}

static void break_with(struct bta_holds *holds, uint32_t group,
                       const uint32_t *sorted, size_t count)
{
    struct bta_hold *hold = holds->live;

    while (hold != NULL) {
        struct bta_hold *const next = hold->next;
        if (hold->state == HOLD_READY && has_any(hold, group, sorted, count)) {
            hold_end(holds, hold, BATON_REASON_BROKEN);
        }
        hold = next;
    }
}

/* Ends holds one block at a time: slower, but needs no memory. */
static void break_each(struct bta_holds *holds, uint32_t group,
                       const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (holds->uses[group][ids[i]] > 0) {
            break_with(holds, group, &ids[i], 1);
        }
    }
}

static void reused_locked(struct bta_holds *holds, uint32_t group,
                          const uint32_t *ids, size_t count)
{
    uint32_t *sorted;
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        used += holds->uses[group][ids[i]] > 0 ? 1 : 0;
    }
    if (used == 0) {
        return;
    }
    sorted = calloc(count, sizeof(*sorted));
    if (sorted == NULL) {
        break_each(holds, group, ids, count);
        return;
    }
    memcpy(sorted, ids, count * sizeof(*ids));
    qsort(sorted, count, sizeof(*sorted), compare_ids);
    break_with(holds, group, sorted, count);
    free(sorted);
}

baton_status bta_holds_reused(struct bta_holds *holds, uint32_t group,
                              const uint32_t *ids, size_t count, bool *ended_p)
{
    const baton_blocks blocks = {ids, count};

    if (group >= holds->regions->group_count ||
        !ids_below(&blocks, bta_regions_blocks(holds->regions, group))) {
        return BATON_ERR_ARGUMENT;
    }
    (void)pthread_mutex_lock(&holds->lock);
    reused_locked(holds, group, ids, count);
    *ended_p = holds->told_first != NULL;
    (void)pthread_mutex_unlock(&holds->lock);
    return BATON_OK;
}

void bta_holds_stats(struct bta_holds *holds, baton_stats *stats)
{
    (void)pthread_mutex_lock(&holds->lock);
    stats->holds_live = holds->map.count;
    stats->slots_live = holds->map.count;
    stats->holds_total = holds->total;
    stats->released_pulled = holds->ended[BATON_REASON_PULLED];
    stats->released_cancelled = holds->ended[BATON_REASON_CANCELLED];
    stats->released_expired = holds->ended[BATON_REASON_EXPIRED];
    stats->released_broken = holds->ended[BATON_REASON_BROKEN];
    (void)pthread_mutex_unlock(&holds->lock);
}

/* --- the native thread's calls --- */

static uint32_t remaining_ms(const struct bta_hold *hold, uint64_t now_us)
{
    if (hold->state != HOLD_READY || hold->due_us <= now_us) {
        return 0;
    }
    return (uint32_t)((hold->due_us - now_us + 999) / 1000);
}

static struct bta_hold_view view_of(const struct bta_hold *hold,
                                    uint64_t now_us)
{
    return (struct bta_hold_view){
        .id = bta_key_id(hold->node.key),
        .owner = hold->owner,
        .slot = hold->slot,
        .tokens = hold->tokens,
        .bytes = hold->bytes,
        .blocks = (uint32_t)block_count(&hold->blocks),
        .lease_ms = remaining_ms(hold, now_us),
        .is_held = hold->state == HOLD_READY,
        .reason = hold->reason,
    };
}

bool bta_holds_next(struct bta_holds *holds, struct bta_hold_view *view_p)
{
    struct bta_hold *hold;

    (void)pthread_mutex_lock(&holds->lock);
    hold = holds->told_first;
    if (hold != NULL) {
        holds->told_first = hold->told_next;
        if (holds->told_first == NULL) {
            holds->told_last = NULL;
        }
        hold->is_untold = false;
        *view_p = view_of(hold, bta_now_us());
        if (hold->state == HOLD_OVER) {
            hold_free(hold);
        }
    }
    (void)pthread_mutex_unlock(&holds->lock);
    return hold != NULL;
}

uint32_t bta_holds_lease(struct bta_holds *holds, baton_id id,
                         const struct bta_hold_lease *lease)
{
    const uint64_t now_us = bta_now_us();
    const uint64_t cap_us = now_us + (uint64_t)lease->cap_ms * 1000;
    struct bta_hold *hold;
    uint32_t lease_ms = 0;

    (void)pthread_mutex_lock(&holds->lock);
    hold = find(holds, id);
    if (hold != NULL && hold->state == HOLD_READY) {
        const uint64_t due_us =
            hold->is_default ? now_us + (uint64_t)lease->default_ms * 1000
                             : hold->due_us;
        due_set(holds, hold, due_us > cap_us ? cap_us : due_us);
        lease_ms = remaining_ms(hold, now_us);
    }
    (void)pthread_mutex_unlock(&holds->lock);
    return lease_ms;
}

/* Ends what is due; when the next one is. */
static uint64_t expire_locked(struct bta_holds *holds, uint64_t now_us)
{
    uint64_t next_us = UINT64_MAX;
    struct bta_hold *hold = holds->live;

    while (hold != NULL) {
        struct bta_hold *const next = hold->next;
        if (hold->state == HOLD_READY && hold->due_us <= now_us) {
            hold_end(holds, hold, BATON_REASON_EXPIRED);
        } else if (hold->state == HOLD_READY && hold->due_us < next_us) {
            next_us = hold->due_us;
        }
        hold = next;
    }
    return next_us;
}

uint64_t bta_holds_expire(struct bta_holds *holds, uint64_t now_us)
{
    uint64_t next_us;

    (void)pthread_mutex_lock(&holds->lock);
    if (holds->next_due_us <= now_us) {
        holds->next_due_us = expire_locked(holds, now_us);
    }
    next_us = holds->next_due_us;
    (void)pthread_mutex_unlock(&holds->lock);
    return next_us;
}

bool bta_holds_release(struct bta_holds *holds, uint64_t owner, baton_id id,
                       baton_reason reason)
{
    struct bta_hold *hold;
    bool is_owners;

    (void)pthread_mutex_lock(&holds->lock);
    hold = find(holds, id);
    is_owners = hold == NULL || hold->owner == owner;
    if (hold == NULL) {
        bta_tombs_add(&holds->tombs, id, owner, reason, bta_now_us());
    } else if (is_owners && hold->state == HOLD_READY) {
        hold_end(holds, hold, reason);
    } else if (is_owners && hold->state == HOLD_OPEN) {
        word_store(holds, hold->slot, 0);
        hold->state = HOLD_VOID;
        hold->reason = reason;
    }
    (void)pthread_mutex_unlock(&holds->lock);
    return is_owners;
}

bool bta_holds_renew(struct bta_holds *holds, uint64_t owner, baton_id id,
                     uint32_t lease_ms)
{
    struct bta_hold *hold;
    bool is_owners;

    (void)pthread_mutex_lock(&holds->lock);
    hold = find(holds, id);
    is_owners = hold == NULL || hold->owner == owner;
    if (hold != NULL && is_owners && hold->state == HOLD_READY) {
        due_set(holds, hold, bta_now_us() + (uint64_t)lease_ms * 1000);
    }
    (void)pthread_mutex_unlock(&holds->lock);
    return is_owners;
}

void bta_holds_orphan(struct bta_holds *holds, uint64_t owner,
                      uint64_t until_us)
{
    (void)pthread_mutex_lock(&holds->lock);
    for (struct bta_hold *hold = holds->live; hold != NULL; hold = hold->next) {
        if (hold->owner == owner && hold->state == HOLD_READY &&
            hold->due_us > until_us) {
            due_set(holds, hold, until_us);
        }
    }
    (void)pthread_mutex_unlock(&holds->lock);
}

/* The owner's READY holds, copied; NULL when there is none, or no memory. */
static struct bta_hold_view *views_copy(struct bta_holds *holds, uint64_t owner,
                                        size_t *count_p)
{
    const uint64_t now_us = bta_now_us();
    struct bta_hold_view *const views =
        calloc(holds->map.count + 1, sizeof(*views));
    size_t count = 0;

    for (const struct bta_hold *hold = holds->live;
         views != NULL && hold != NULL; hold = hold->next) {
        if (hold->owner == owner && hold->state == HOLD_READY) {
            views[count] = view_of(hold, now_us);
            count++;
        }
    }
    *count_p = count;
    return views;
}

void bta_holds_each(struct bta_holds *holds, uint64_t owner,
                    void (*each)(void *arg, const struct bta_hold_view *view),
                    void *arg)
{
    struct bta_hold_view *views;
    size_t count;

    (void)pthread_mutex_lock(&holds->lock);
    views = views_copy(holds, owner, &count);
    (void)pthread_mutex_unlock(&holds->lock);
    for (size_t i = 0; i < count; i++) {
        each(arg, &views[i]);
    }
    free(views);
}
