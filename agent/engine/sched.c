/*
 * The scheduler; see sched.h.
 *
 * A sequence needs its prompt's blocks to begin and further ones word by
 * word. When the pool has none left, the newest running sequence gives all of
 * its own back and waits in front of the line; it then computes its KV anew,
 * which changes nothing in its text.
 */
#include "agent/engine/sched.h"

#include "common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define READ_CHUNK 4096 /* tokens whose bytes one sequence reads in a step */
#define NO_WAIT_NS 1

enum seq_state {
    SEQ_WAITING,
    SEQ_DELAYED, /* has its blocks, the pull starts later (a fault) */
    SEQ_PULLING,
    SEQ_RUNNING,
    SEQ_LEAVING, /* cancelled, a read may still write to its blocks */
};

struct seq_list {
    struct seq *first, *last;
    uint32_t count;
};

struct seq {
    struct sched *sched;
    struct seq *prev, *next;
    struct seq_list *list; /* the one it is in */
    struct bt_grave grave;
    enum seq_state state;
    const struct seq_events *events;
    void *owner;
    bool is_paused;
    bool is_planned; /* takes part in the step under way */

    uint32_t *tokens; /* prompt, then words */
    uint64_t *histories;
    uint64_t length, prompt, cap;
    uint64_t max_tokens, min_tokens, made, cached;
    uint32_t choice;
    bool ignore_eos;

    uint32_t *blocks;
    uint64_t *sums; /* digest of each block as last read */
    uint32_t block_count, block_cap;
    uint32_t check; /* block that is read again next */
    uint64_t computed, read;
    uint64_t digest; /* sum of sums */
    uint64_t chunk;  /* tokens to prefill in this step */

    enum seq_handoff handoff;
    baton_id id;
    uint64_t owner_boot;
    uint64_t params_tokens;
    struct hold *hold; /* open one, SEQ_GIVES */
    struct bt_buf params;
    struct pull pull;
    struct bt_timer delay;
};

struct sched {
    struct sched_options options;
    struct handoff *handoff;
    int timer;
    struct bt_watch *watch;
    bool is_stepping; /* the timer is armed */
    struct seq_list waiting, running;
    struct seq *cursor; /* next one of the step; moves on when it leaves */
    uint64_t due_us;
    struct sched_counts counts;
};

/* --- lists --- */

static void list_remove(struct seq *seq)
{
    struct seq_list *const list = seq->list;

    if (seq->sched->cursor == seq) {
        seq->sched->cursor = seq->next;
    }
    if (seq->prev == NULL) {
        list->first = seq->next;
    } else {
        seq->prev->next = seq->next;
    }
    if (seq->next == NULL) {
        list->last = seq->prev;
    } else {
        seq->next->prev = seq->prev;
    }
    list->count--;
    seq->list = NULL;
    seq->prev = seq->next = NULL;
}

static void list_append(struct seq_list *list, struct seq *seq)
{
    seq->prev = list->last;
    seq->next = NULL;
    if (list->last == NULL) {
        list->first = seq;
    } else {
        list->last->next = seq;
    }
    list->last = seq;
    list->count++;
    seq->list = list;
}

static void list_prepend(struct seq_list *list, struct seq *seq)
{
    seq->prev = NULL;
    seq->next = list->first;
    if (list->first == NULL) {
        list->last = seq;
    } else {
        list->first->prev = seq;
    }
    list->first = seq;
    list->count++;
    seq->list = list;
}

/* --- a sequence's memory --- */

static bool grow(void **array, uint64_t size, uint64_t count)
{
    void *const larger = realloc(*array, size * count);

    if (larger == NULL) {
        return false;
    }
    *array = larger;
    return true;
}

static bool reserve_tokens(struct seq *seq, uint64_t count)
{
    uint64_t cap = seq->cap == 0 ? count : seq->cap;

    while (cap < count) {
        cap *= 2;
    }
    if (cap == seq->cap) {
        return true;
    }
    if (!grow((void **)&seq->tokens, sizeof(*seq->tokens), cap) ||
        !grow((void **)&seq->histories, sizeof(*seq->histories), cap)) {
        return false;
    }
    seq->cap = cap;
    return true;
}

static bool reserve_blocks(struct seq *seq, uint32_t count)
{
    uint32_t cap = seq->block_cap == 0 ? count : seq->block_cap;

    while (cap < count) {
        cap *= 2;
    }
    if (cap == seq->block_cap) {
        return true;
    }
    if (!grow((void **)&seq->blocks, sizeof(*seq->blocks), cap) ||
        !grow((void **)&seq->sums, sizeof(*seq->sums), cap)) {
        return false;
    }
    seq->block_cap = cap;
    return true;
}

static void append_token(struct seq *seq, uint32_t token)
{
    const uint64_t before =
        seq->length == 0 ? 0 : seq->histories[seq->length - 1];

    seq->tokens[seq->length] = token;
    seq->histories[seq->length] = model_roll(before, token);
    seq->length++;
}

static void destroy_seq(struct bt_grave *grave)
{
    struct seq *const seq = bt_container_of(grave, struct seq, grave);

    bt_buf_fini(&seq->params);
    free(seq->tokens);
    free(seq->histories);
    free(seq->blocks);
    free(seq->sums);
    free(seq);
}

static void give_blocks_back(struct seq *seq)
{
    /* From the end, so that a prefix lives longest in the cache. */
    for (uint32_t i = seq->block_count; i > 0; i--) {
        kv_unref(seq->sched->options.kv, seq->blocks[i - 1]);
    }
    seq->block_count = 0;
    seq->computed = seq->read = seq->digest = 0;
    seq->check = 0;
}

/* Takes it out of everything; nothing may be reading into its blocks. */
static void bury(struct seq *seq)
{
    struct sched *const sched = seq->sched;

    bt_timer_clear(&seq->delay);
    hold_break(&seq->hold);
    if (seq->list != NULL) {
        list_remove(seq);
    }
    give_blocks_back(seq);
    bt_loop_bury(sched->options.loop, &seq->grave, destroy_seq);
    sched_kick(sched);
}

static void finish(struct seq *seq, enum seq_end end)
{
    const struct seq_result result = {
        .end = end,
        .tokens = seq->made,
        .cached = seq->cached,
        .params = bt_buf_str(&seq->params),
    };

    bury(seq);
    seq->events->on_end(seq->owner, &result);
}

/* --- P: offering --- */

static void do_hold_faults(struct sched *sched)
{
    struct faults *const faults = sched->options.faults;
    uint64_t arg = 0;

    if (fault_take(faults, FAULT_FREE_EARLY, &arg)) {
        (void)handoff_free_early(sched->handoff, arg == 0);
    }
    if (fault_take(faults, FAULT_REUSE_BLOCK, &arg)) {
        (void)handoff_reuse_block(sched->handoff, arg == 1);
    }
    if (fault_take(faults, FAULT_FLIP_BYTES, &arg)) {
        (void)handoff_flip_bytes(sched->handoff, (uint32_t)arg);
    }
}

static void offer(struct seq *seq)
{
    bt_buf_clear(&seq->params);
    if (hold_offer(&seq->hold, seq->blocks, seq->prompt, &seq->params) !=
        BT_OK) {
        bt_buf_clear(&seq->params);
        return;
    }
    /* The hold has its own references: the sequence's go first, so that a
     * fault finds blocks that nobody else uses. */
    give_blocks_back(seq);
    do_hold_faults(seq->sched);
}

static void open_hold(struct seq *seq)
{
    struct sched *const sched = seq->sched;

    if (seq->handoff != SEQ_GIVES || seq->hold != NULL ||
        sched->handoff == NULL) {
        return;
    }
    if (fault_take(sched->options.faults, FAULT_NO_HANDOFF, NULL) ||
        hold_open(sched->handoff, seq->id, seq->owner_boot, &seq->hold) !=
            BT_OK) {
        /* The answer goes without a handoff. */
        seq->handoff = SEQ_ALONE;
    }
}

/* --- D: pulling --- */

static void publish(struct seq *seq)
{
    struct kv *const kv = seq->sched->options.kv;
    const uint32_t tokens = kv_block_tokens(kv);
    const uint64_t known =
        seq->computed < seq->prompt ? seq->computed : seq->prompt;

    for (uint64_t i = 0; i < known / tokens; i++) {
        kv_publish(kv, seq->blocks[i], seq->histories[(i + 1) * tokens - 1]);
    }
}

static void load_failed(struct seq *seq)
{
    struct sched *const sched = seq->sched;

    if (!sched->options.recomputes) {
        finish(seq, SEQ_LOAD_FAILED);
        return;
    }
    sched->counts.recomputed++;
    seq->handoff = SEQ_ALONE;
    seq->state = SEQ_RUNNING;
    sched_kick(sched);
}

static void on_pull_done(struct pull *pull)
{
    struct seq *const seq = bt_container_of(pull, struct seq, pull);

    seq->sched->counts.pulling--;
    if (seq->state == SEQ_LEAVING) {
        bury(seq);
        return;
    }
    if (pull->failed) {
        load_failed(seq);
        return;
    }
    seq->handoff = SEQ_ALONE;
    seq->computed = seq->length;
    seq->state = SEQ_RUNNING;
    publish(seq);
    sched_kick(seq->sched);
}

static void start_pull(struct seq *seq)
{
    struct sched *const sched = seq->sched;
    const uint32_t have = kv_blocks_for(sched->options.kv, seq->computed);
    const struct pull_ask ask = {
        .handoff = seq->id,
        .params = bt_buf_str(&seq->params),
        .blocks = seq->blocks + have,
        .block_count = seq->block_count - have,
        .have_tokens = seq->computed,
    };
    uint64_t hang_ms = 0;

    seq->state = SEQ_PULLING;
    seq->pull.on_done = on_pull_done;
    /* A handoff of another length is not this prompt's: it is not read. */
    if (sched->handoff == NULL || seq->params_tokens != seq->prompt ||
        pull_start(sched->handoff, &ask, &seq->pull) != BT_OK) {
        load_failed(seq);
        return;
    }
    sched->counts.pulling++;
    if (fault_take(sched->options.faults, FAULT_HANG_HOST, &hang_ms)) {
        fault_hang(hang_ms);
    }
}

static void on_delay(struct bt_timer *timer)
{
    start_pull(bt_container_of(timer, struct seq, delay));
}

/* Either now or, with a fault, later; never from inside the admission. */
static void prepare_pull(struct seq *seq)
{
    uint64_t delay_ms = 0;

    (void)fault_take(seq->sched->options.faults, FAULT_SLOW_PULL, &delay_ms);
    seq->state = SEQ_DELAYED;
    if (delay_ms == 0) {
        start_pull(seq);
    } else {
        bt_timer_set(&seq->delay, delay_ms);
    }
}

/* --- admission --- */

/* Blocks for all of its tokens, from the cache as far as it goes. */
static bool take_blocks(struct seq *seq)
{
    struct kv *const kv = seq->sched->options.kv;
    const uint32_t tokens = kv_block_tokens(kv);
    const uint32_t want = kv_blocks_for(kv, seq->length);
    uint32_t have;

    if (!reserve_blocks(seq, want)) {
        return false;
    }
    have = kv_match(kv, seq->histories, (uint32_t)(seq->prompt / tokens),
                    seq->blocks);
    seq->block_count = have;
    if (!kv_take(kv, want - have, seq->blocks + have)) {
        give_blocks_back(seq);
        return false;
    }
    memset(seq->sums, 0, want * sizeof(*seq->sums));
    seq->block_count = want;
    seq->computed = (uint64_t)have * tokens;
    if (seq->made == 0) {
        seq->cached = seq->computed;
        seq->sched->counts.cached_tokens += seq->computed;
    }
    return true;
}

static void admit(struct sched *sched)
{
    while (sched->waiting.first != NULL &&
           sched->running.count < sched->options.max_running) {
        struct seq *const seq = sched->waiting.first;

        if (!take_blocks(seq)) {
            return;
        }
        list_remove(seq);
        list_append(&sched->running, seq);
        if (seq->handoff == SEQ_TAKES) {
            prepare_pull(seq);
        } else {
            seq->state = SEQ_RUNNING;
            open_hold(seq);
        }
    }
}

static void preempt(struct seq *seq)
{
    struct sched *const sched = seq->sched;

    sched->counts.preempted++;
    hold_break(&seq->hold);
    list_remove(seq);
    give_blocks_back(seq);
    seq->state = SEQ_WAITING;
    seq->is_planned = false;
    list_prepend(&sched->waiting, seq);
}

/* Room for one token more, if need be at the cost of the newest sequence.
 * False: that was this one. */
static bool extend(struct seq *seq)
{
    struct sched *const sched = seq->sched;
    struct kv *const kv = sched->options.kv;

    if (kv_blocks_for(kv, seq->length + 1) <= seq->block_count) {
        return true;
    }
    while (!kv_take(kv, 1, seq->blocks + seq->block_count)) {
        struct seq *victim = sched->running.last;

        while (victim != seq && victim->state != SEQ_RUNNING) {
            victim = victim->prev;
        }
        preempt(victim);
        if (victim == seq) {
            return false;
        }
    }
    seq->sums[seq->block_count++] = 0;
    return true;
}

/* --- work --- */

static void compute(struct seq *seq)
{
    struct kv *const kv = seq->sched->options.kv;
    const uint32_t tokens = kv_block_tokens(kv);
    const uint64_t end = seq->computed + seq->chunk;

    for (uint64_t at = seq->computed; at < end; at++) {
        kv_write(kv, seq->blocks[at / tokens], at, seq->histories[at]);
    }
    seq->sched->counts.prefill_tokens += seq->chunk;
    seq->computed = end;
    publish(seq);
}

static void read_token(struct seq *seq, uint64_t at)
{
    struct kv *const kv = seq->sched->options.kv;
    const uint64_t block = at / kv_block_tokens(kv);
    const uint64_t sum = kv_read(kv, seq->blocks[block], at);

    seq->sums[block] += sum;
    seq->digest += sum;
}

static void read_context(struct seq *seq)
{
    const uint64_t left = seq->computed - seq->read;
    const uint64_t end = seq->read + (left < READ_CHUNK ? left : READ_CHUNK);

    for (; seq->read < end; seq->read++) {
        read_token(seq, seq->read);
    }
}

/* Reads one block again: what changed since the last time counts. */
static void check_block(struct seq *seq)
{
    struct kv *const kv = seq->sched->options.kv;
    const uint32_t tokens = kv_block_tokens(kv);
    const uint64_t first = (uint64_t)seq->check * tokens;
    const uint64_t end =
        first + tokens < seq->read ? first + tokens : seq->read;
    uint64_t sum = 0;

    for (uint64_t at = first; at < end; at++) {
        sum += kv_read(kv, seq->blocks[seq->check], at);
    }
    seq->digest += sum - seq->sums[seq->check];
    seq->sums[seq->check] = sum;
    seq->check = (seq->check + 1) % kv_blocks_for(kv, seq->read);
}

/* The word becomes part of the context. False: no memory. */
static bool add_word(struct seq *seq, uint32_t id)
{
    struct kv *const kv = seq->sched->options.kv;
    const uint64_t at = seq->length;

    if (!reserve_tokens(seq, at + 1) ||
        !reserve_blocks(seq, kv_blocks_for(kv, at + 1))) {
        return false;
    }
    if (!extend(seq)) {
        append_token(seq, id); /* preempted: computed when it is back */
        return true;
    }
    append_token(seq, id);
    kv_write(kv, seq->blocks[at / kv_block_tokens(kv)], at, seq->histories[at]);
    read_token(seq, at);
    seq->computed = seq->read = seq->length;
    check_block(seq);
    return true;
}

static void end_seq(struct seq *seq, enum seq_end end)
{
    if (seq->hold != NULL) {
        offer(seq);
    }
    finish(seq, end);
}

static void make_word(struct seq *seq)
{
    const struct model_word word =
        model_next(seq->digest, seq->length, seq->choice);
    bool goes_on;

    if (word.is_end && !seq->ignore_eos && seq->made >= seq->min_tokens) {
        seq->made++;
        end_seq(seq, SEQ_STOP);
        return;
    }
    seq->made++;
    seq->sched->counts.words++;
    goes_on = seq->events->on_word(seq->owner, word.id);
    if (seq->state != SEQ_RUNNING) {
        return; /* cancelled by its owner */
    }
    if (!goes_on) {
        end_seq(seq, SEQ_STOP);
    } else if (seq->made == seq->max_tokens) {
        end_seq(seq, SEQ_LENGTH);
    } else if (!add_word(seq, word.id)) {
        finish(seq, SEQ_NO_MEMORY);
    }
}

static void work(struct seq *seq)
{
    seq->is_planned = false;
    if (seq->chunk > 0) {
        compute(seq);
    }
    if (seq->computed < seq->length) {
        return;
    }
    read_context(seq);
    if (seq->read == seq->length) {
        make_word(seq);
    }
}

/* --- steps --- */

static bool is_ready(const struct seq *seq)
{
    return seq->state == SEQ_RUNNING && !seq->is_paused;
}

/* Chooses the work of the next step; returns its µs in *cost_p. */
static bool plan(struct sched *sched, uint64_t *cost_p)
{
    const uint64_t rate = sched->options.prefill_rate;
    uint64_t budget = sched->options.step_tokens;
    bool has_work = false;
    bool has_words = false;

    for (struct seq *seq = sched->running.first; seq != NULL; seq = seq->next) {
        const uint64_t left = seq->length - seq->computed;

        seq->chunk = 0;
        seq->is_planned = is_ready(seq) && (left == 0 || budget > 0);
        if (!seq->is_planned) {
            continue;
        }
        has_work = true;
        has_words = has_words || left == 0;
        seq->chunk = left < budget ? left : budget;
        budget -= seq->chunk;
    }
    *cost_p = has_words ? sched->options.decode_step_us : 0;
    if (rate != 0) {
        *cost_p += (sched->options.step_tokens - budget) * 1000000 / rate;
    }
    return has_work;
}

static void arm(struct sched *sched, uint64_t wait_us)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(wait_us / 1000000),
                     .tv_nsec = (long)(wait_us % 1000000) * 1000}};

    if (wait_us == 0) {
        when.it_value.tv_nsec = NO_WAIT_NS;
    }
    if (timerfd_settime(sched->timer, 0, &when, NULL) != 0) {
        bt_log(BT_LOG_ERROR, "sched", "timer: %s", strerrordesc_np(errno));
    }
}

static void begin_step(struct sched *sched)
{
    const uint64_t now = bt_clock_us();
    uint64_t cost = 0;

    admit(sched);
    if (!plan(sched, &cost)) {
        sched->is_stepping = false;
        return;
    }
    /* A step that came late does not delay the next one, but time that
     * passed idle cannot be used either. */
    sched->due_us =
        (cost != 0 && sched->due_us + cost > now ? sched->due_us : now) + cost;
    arm(sched, sched->due_us > now ? sched->due_us - now : 0);
}

static void on_step(void *owner)
{
    struct sched *const sched = owner;
    uint64_t ticks;

    if (read(sched->timer, &ticks, sizeof(ticks)) < 0) {
        return;
    }
    sched->cursor = sched->running.first;
    while (sched->cursor != NULL) {
        struct seq *const seq = sched->cursor;

        sched->cursor = seq->next;
        if (seq->is_planned && is_ready(seq)) {
            work(seq);
        }
    }
    begin_step(sched);
}

void sched_kick(struct sched *sched)
{
    if (sched->is_stepping ||
        (sched->running.first == NULL && sched->waiting.first == NULL)) {
        return;
    }
    sched->is_stepping = true;
    arm(sched, 0);
}

/* --- API --- */

enum bt_status sched_open(const struct sched_options *options,
                          struct sched **sched_p)
{
    struct sched *sched = calloc(1, sizeof(*sched));
    enum bt_status status = BT_ERR_SYSTEM;

    if (sched == NULL) {
        return BT_ERR_NOMEM;
    }
    sched->options = *options;
    sched->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (sched->timer >= 0) {
        status = bt_watch_open(options->loop, sched->timer, on_step, sched,
                               &sched->watch);
    }
    if (status != BT_OK) {
        sched_close(&sched);
        return status;
    }
    *sched_p = sched;
    return BT_OK;
}

static void close_list(struct seq_list *list)
{
    struct seq *seq = list->first;

    while (seq != NULL) {
        struct seq *const next = seq->next;

        bt_timer_clear(&seq->delay);
        give_blocks_back(seq);
        destroy_seq(&seq->grave);
        seq = next;
    }
}

void sched_close(struct sched **sched)
{
    struct sched *const self = *sched;

    *sched = NULL;
    if (self == NULL) {
        return;
    }
    close_list(&self->waiting);
    close_list(&self->running);
    bt_watch_close(&self->watch);
    if (self->timer >= 0) {
        (void)close(self->timer);
    }
    free(self);
}

void sched_set_handoff(struct sched *sched, struct handoff *handoff)
{
    sched->handoff = handoff;
}

struct sched_counts sched_counts(const struct sched *sched)
{
    struct sched_counts counts = sched->counts;

    counts.waiting = sched->waiting.count;
    counts.running = sched->running.count;
    return counts;
}

static struct seq *new_seq(struct sched *sched, const struct seq_ask *ask)
{
    struct seq *const seq = calloc(1, sizeof(*seq));

    if (seq == NULL) {
        return NULL;
    }
    seq->sched = sched;
    seq->cap = ask->token_count;
    seq->prompt = ask->token_count;
    seq->max_tokens = ask->max_tokens;
    seq->min_tokens = ask->min_tokens;
    seq->choice = ask->choice;
    seq->ignore_eos = ask->ignore_eos;
    seq->handoff = ask->handoff;
    seq->id = ask->id;
    seq->owner_boot = ask->owner_boot;
    seq->params_tokens = ask->params_tokens;
    bt_timer_init(&seq->delay, sched->options.loop, on_delay);
    bt_buf_append(&seq->params, ask->params);
    seq->histories = calloc(ask->token_count, sizeof(*seq->histories));
    if (seq->histories == NULL || seq->params.failed) {
        destroy_seq(&seq->grave);
        return NULL;
    }
    seq->tokens = ask->tokens;
    for (uint64_t i = 0; i < ask->token_count; i++) {
        append_token(seq, ask->tokens[i]);
    }
    return seq;
}

enum bt_status sched_submit(struct sched *sched, const struct seq_ask *ask,
                            const struct seq_events *events, void *owner,
                            struct seq **seq_p)
{
    struct kv *const kv = sched->options.kv;
    struct seq *seq;

    if (ask->token_count == 0 ||
        ask->token_count + ask->max_tokens >
            (uint64_t)kv_counts(kv).total * kv_block_tokens(kv)) {
        return BT_ERR_RANGE;
    }
    if (sched->waiting.count >= sched->options.max_waiting) {
        return BT_ERR_LIMIT;
    }
    seq = new_seq(sched, ask);
    if (seq == NULL) {
        return BT_ERR_NOMEM;
    }
    seq->events = events;
    seq->owner = owner;
    list_append(&sched->waiting, seq);
    sched_kick(sched);
    *seq_p = seq;
    return BT_OK;
}

void sched_cancel(struct seq **seq)
{
    struct seq *const self = *seq;

    *seq = NULL;
    if (self == NULL) {
        return;
    }
    if (self->state == SEQ_PULLING) {
        self->state = SEQ_LEAVING;
        pull_cancel(self->sched->handoff, &self->pull);
        return;
    }
    self->state = SEQ_LEAVING;
    bury(self);
}

void sched_pause(struct seq *seq, bool paused)
{
    seq->is_paused = paused;
    if (!paused) {
        sched_kick(seq->sched);
    }
}
