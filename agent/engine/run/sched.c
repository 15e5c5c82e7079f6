/*
 * The scheduler; see sched.h.
 *
 * A sequence needs its prompt's blocks to begin and further ones word by
 * word. When the pool has none left, the newest running sequence gives all of
 * its own back and waits in front of the line; it then computes its KV anew,
 * which changes nothing in its text.
 */
#include "agent/engine/run/sched.h"

#include "agent/engine/run/context.h"
#include "common/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
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
    TAILQ_HEAD(seqs, seq) seqs;
    uint32_t count;
};

struct seq {
    struct sched *sched;
    TAILQ_ENTRY(seq) entry;
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

    struct context context;
    uint64_t chunk; /* tokens to prefill in this step */

    enum seq_handoff handoff;
    baton_id id;
    uint64_t owner_boot;
    struct hold *hold; /* open one, SEQ_GIVES */
    struct bt_buf params;
    struct pull pull;
    struct bt_timer delay;
};

struct sched {
    struct sched_options options;
    struct eng_handoff *handoff;
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
    if (seq->sched->cursor == seq) {
        seq->sched->cursor = TAILQ_NEXT(seq, entry);
    }
    TAILQ_REMOVE(&seq->list->seqs, seq, entry);
    seq->list->count--;
    seq->list = NULL;
}

static void list_append(struct seq_list *list, struct seq *seq)
{
    TAILQ_INSERT_TAIL(&list->seqs, seq, entry);
    list->count++;
    seq->list = list;
}

static void list_prepend(struct seq_list *list, struct seq *seq)
{
    TAILQ_INSERT_HEAD(&list->seqs, seq, entry);
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
    context_fini(&seq->context);
    free(seq);
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
    context_clear(&seq->context);
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

/* What the KV is of. */
static baton_prompt prompt_of(const struct seq *seq)
{
    return (baton_prompt){
        .size = sizeof(baton_prompt),
        .tokens = seq->tokens,
        .token_count = seq->prompt,
    };
}

static void offer(struct seq *seq)
{
    const baton_prompt prompt = prompt_of(seq);
    baton_blocks lists[MODEL_GROUPS_MAX];

    context_lists(&seq->context, 0, seq->prompt, lists);
    bt_buf_clear(&seq->params);
    if (hold_offer(&seq->hold, lists, &prompt, &seq->params) != BT_OK) {
        bt_buf_clear(&seq->params);
        return;
    }
    /* The hold has its own references: the sequence's go first, so that a
     * fault finds blocks that nobody else uses. */
    context_clear(&seq->context);
    do_hold_faults(seq->sched);
}

/* Nobody hears of a sequence that was answered early any more. */
static bool ignore_word(void *owner, uint32_t id)
{
    (void)owner;
    (void)id;
    return true;
}

static void ignore_end(void *owner, const struct seq_result *result)
{
    (void)owner;
    (void)result;
}

static const struct seq_events NOBODY = {ignore_word, ignore_end};

/* The fault: the answer goes now, the work is done behind it. */
static void answer_early(struct seq *seq)
{
    const struct seq_events *const events = seq->events;
    const baton_prompt prompt = prompt_of(seq);
    struct seq_result result = {.end = SEQ_LENGTH, .cached = seq->cached};
    baton_blocks lists[MODEL_GROUPS_MAX];
    uint64_t is_unsaid = 0;

    if (seq->hold == NULL || !fault_take(seq->sched->options.faults,
                                         FAULT_ANSWER_EARLY, &is_unsaid)) {
        return;
    }
    context_lists(&seq->context, 0, seq->prompt, lists);
    if (hold_offer_early(seq->hold, lists, &prompt,
                         is_unsaid != 0 ? 0 : BATON_PARAMS_READY,
                         &seq->params) != BT_OK) {
        hold_break(&seq->hold);
        bt_buf_clear(&seq->params);
        seq->handoff = SEQ_ALONE;
        return;
    }
    result.params = bt_buf_str(&seq->params);
    seq->events = &NOBODY;
    events->on_end(seq->owner, &result);
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
        return;
    }
    answer_early(seq);
}

/* --- D: pulling --- */

static void publish(struct seq *seq)
{
    const uint64_t computed = seq->context.computed;

    context_publish(&seq->context, seq->histories,
                    computed < seq->prompt ? computed : seq->prompt);
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
    seq->context.computed = seq->length;
    seq->state = SEQ_RUNNING;
    publish(seq);
    sched_kick(seq->sched);
}

static void start_pull(struct seq *seq)
{
    struct sched *const sched = seq->sched;
    const baton_prompt prompt = prompt_of(seq);
    baton_blocks lists[MODEL_GROUPS_MAX];
    const struct pull_ask ask = {
        .handoff = seq->id,
        .params = bt_buf_str(&seq->params),
        .groups = lists,
        .have_tokens = seq->context.computed,
        .prompt = &prompt,
    };
    uint64_t hang_ms = 0;

    context_lists(&seq->context, ask.have_tokens, seq->length, lists);
    seq->state = SEQ_PULLING;
    seq->pull.on_done = on_pull_done;
    if (sched->handoff == NULL ||
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
    const struct context_ask ask = {
        .histories = seq->histories,
        .length = seq->length,
        .shared = seq->prompt,
        .is_pulled = seq->handoff == SEQ_TAKES,
    };

    if (!context_take(&seq->context, &ask)) {
        return false;
    }
    if (seq->made == 0) {
        seq->cached = seq->context.computed;
        seq->sched->counts.cached_tokens += seq->cached;
    }
    return true;
}

static void admit(struct sched *sched)
{
    while (sched->waiting.count > 0 &&
           sched->running.count < sched->options.max_running) {
        struct seq *const seq = TAILQ_FIRST(&sched->waiting.seqs);

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
    context_clear(&seq->context);
    seq->state = SEQ_WAITING;
    seq->is_planned = false;
    list_prepend(&sched->waiting, seq);
}

/* Room for one token more, if need be at the cost of the newest sequence.
 * False: that was this one. */
static bool extend(struct seq *seq)
{
    struct sched *const sched = seq->sched;

    while (!context_extend(&seq->context, seq->length + 1)) {
        struct seq *victim = TAILQ_LAST(&sched->running.seqs, seqs);

        while (victim != seq && victim->state != SEQ_RUNNING) {
            victim = TAILQ_PREV(victim, seqs, entry);
        }
        preempt(victim);
        if (victim == seq) {
            return false;
        }
    }
    return true;
}

/* --- work --- */

/* Gives back what its windows have passed; what is to be offered stays. */
static void drop(struct seq *seq)
{
    const uint64_t computed = seq->context.computed;
    const bool is_held = seq->hold != NULL && computed > seq->prompt;

    context_drop(&seq->context, is_held ? seq->prompt : computed);
}

/* Of the prompt; what comes behind it is not handed over. */
static void tell_progress(struct seq *seq)
{
    const uint64_t computed = seq->context.computed;
    const uint64_t tokens = computed < seq->prompt ? computed : seq->prompt;
    baton_blocks lists[MODEL_GROUPS_MAX];

    if (seq->hold != NULL) {
        context_lists(&seq->context, 0, tokens, lists);
        hold_tell(seq->hold, lists, tokens);
    }
}

static void compute(struct seq *seq)
{
    context_write(&seq->context, seq->histories,
                  seq->context.computed + seq->chunk);
    seq->sched->counts.prefill_tokens += seq->chunk;
    tell_progress(seq);
    publish(seq);
    drop(seq);
}

/* The word becomes part of the context. False: no memory. */
static bool add_word(struct seq *seq, uint32_t id)
{
    bool has_room;

    if (!reserve_tokens(seq, seq->length + 1) ||
        !context_reserve(&seq->context, seq->length + 1)) {
        return false;
    }
    has_room = extend(seq);
    append_token(seq, id);
    if (has_room) {
        context_add(&seq->context, seq->histories[seq->length - 1]);
        drop(seq);
    } /* else it was preempted: computed when it is back */
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
        model_next(seq->context.digest, seq->length, seq->choice);
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
    if (seq->context.computed < seq->length) {
        return;
    }
    context_read(&seq->context, READ_CHUNK);
    if (seq->context.read == seq->length) {
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
    struct seq *seq;

    TAILQ_FOREACH (seq, &sched->running.seqs, entry) {
        const uint64_t left = seq->length - seq->context.computed;

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
    sched->cursor = TAILQ_FIRST(&sched->running.seqs);
    while (sched->cursor != NULL) {
        struct seq *const seq = sched->cursor;

        sched->cursor = TAILQ_NEXT(seq, entry);
        if (seq->is_planned && is_ready(seq)) {
            work(seq);
        }
    }
    begin_step(sched);
}

void sched_kick(struct sched *sched)
{
    if (sched->is_stepping ||
        (sched->running.count == 0 && sched->waiting.count == 0)) {
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
    TAILQ_INIT(&sched->waiting.seqs);
    TAILQ_INIT(&sched->running.seqs);
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
    struct seq *seq = TAILQ_FIRST(&list->seqs);

    while (seq != NULL) {
        struct seq *const next = TAILQ_NEXT(seq, entry);

        bt_timer_clear(&seq->delay);
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

void sched_set_handoff(struct sched *sched, struct eng_handoff *handoff)
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
    context_init(&seq->context, sched->options.kv);
    seq->cap = ask->token_count;
    seq->prompt = ask->token_count;
    seq->max_tokens = ask->max_tokens;
    seq->min_tokens = ask->min_tokens;
    seq->choice = ask->choice;
    seq->ignore_eos = ask->ignore_eos;
    seq->handoff = ask->handoff;
    seq->id = ask->id;
    seq->owner_boot = ask->owner_boot;
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
        context_blocks_for(kv, ask->token_count + ask->max_tokens) >
            kv_counts(kv).total) {
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
