/*
 * The scheduler and the handoff, over an agent library inside the process.
 */
#include "agent/engine/run/sched.h"
#include "tests/support/harness.h"
#include "tests/unit/fake_agent.h"

#include <string.h>

#define TOKENS 4
#define TURNS  2000

struct side {
    struct eng_model model;
    struct kv *kv;
    struct faults faults;
    struct eng_handoff *handoff;
    struct sched *sched;
};

struct sink {
    struct bt_buf text;
    struct bt_buf params;
    size_t words;
    size_t stop_at; /* 0: never */
    struct seq *seq;
    bool cancels; /* itself, at the first word */
    bool is_over;
    uint64_t told; /* tokens of the handoff that were written at the end */
    struct seq_result result;
};

/* Made anew for each test. */
static struct {
    struct bt_loop *loop;
    struct side p, d;
} world;

static const baton_id ID = {.hi = 1, .lo = 2};

static bool on_word(void *owner, uint32_t id)
{
    struct sink *const sink = owner;
    char bytes[MODEL_WORD_MAX];

    bt_buf_append(&sink->text, model_word_text(id, sink->words == 0, bytes));
    sink->words++;
    if (sink->cancels) {
        sched_cancel(&sink->seq);
    }
    return sink->words != sink->stop_at;
}

static void on_end(void *owner, const struct seq_result *result)
{
    struct sink *const sink = owner;

    ck_assert(!sink->is_over);
    bt_buf_append(&sink->params, result->params);
    sink->result = *result;
    sink->seq = NULL;
    sink->is_over = true;
    sink->told = fake_agent_told(ID);
}

static const struct seq_events EVENTS = {.on_word = on_word, .on_end = on_end};

static void on_room(void *owner)
{
    struct side *const side = owner;

    sched_kick(side->sched);
}

static const struct handoff_events HANDOFF_EVENTS = {.on_room = on_room};

struct side_options {
    const char *engine;
    uint32_t blocks, tp;
    bool recomputes;
    uint32_t max_handoffs;
    uint32_t groups;
    uint32_t windows[MODEL_GROUPS_MAX];
};

static void open_side(struct side *side, const struct side_options *options)
{
    struct model_options model = {.name = "m",
                                  .seed = 1,
                                  .layers = 2,
                                  .kv_heads = 2,
                                  .head_size = 4,
                                  .dtype_bytes = 2,
                                  .group_count = options->groups};
    struct kv_options kv = {.model = &side->model,
                            .blocks = options->blocks,
                            .block_tokens = TOKENS,
                            .tp = options->tp};
    struct handoff_options handoff = {
        .loop = world.loop, .agent = baton_options_preset(), .tp = options->tp};
    struct sched_options sched = {.loop = world.loop,
                                  .faults = &side->faults,
                                  .step_tokens = 8,
                                  .max_running = 8,
                                  .max_waiting = 4,
                                  .recomputes = options->recomputes};
    const char *why = "";

    memcpy(model.windows, options->windows, sizeof(model.windows));
    *side = (struct side){.kv = NULL};
    ck_assert_int_eq(model_init(&model, &side->model), BT_OK);
    ck_assert_int_eq(kv_open(&kv, &side->kv), BT_OK);
    sched.kv = handoff.kv = side->kv;
    handoff.agent.engine = options->engine;
    handoff.agent.max_handoffs = options->max_handoffs;
    ck_assert_int_eq(sched_open(&sched, &side->sched), BT_OK);
    ck_assert_int_eq(
        handoff_open(&handoff, &HANDOFF_EVENTS, side, &side->handoff, &why),
        BT_OK);
    sched_set_handoff(side->sched, side->handoff);
}

static void close_side(struct side *side)
{
    handoff_close(&side->handoff);
    sched_close(&side->sched);
    kv_close(&side->kv);
}

static void set_up(void)
{
    fake_agent_reset();
    ck_assert_int_eq(bt_loop_open(&world.loop), BT_OK);
    open_side(&world.p, &(struct side_options){"p", 32, 2, false, 4, 1, {0}});
    open_side(&world.d, &(struct side_options){"d", 32, 2, false, 4, 1, {0}});
}

static void tear_down(void)
{
    close_side(&world.p);
    close_side(&world.d);
    bt_loop_close(&world.loop);
}

/* D once more, with the other policy. */
static void reopen_recomputing(void)
{
    close_side(&world.d);
    open_side(&world.d, &(struct side_options){"d", 32, 2, true, 4, 1, {0}});
}

/* Both once more, with a group that sees all and one that sees 6 tokens. */
static void reopen_in_groups(bool recomputes)
{
    close_side(&world.p);
    close_side(&world.d);
    open_side(&world.p,
              &(struct side_options){"p", 32, 2, false, 4, 2, {0, 6}});
    open_side(&world.d,
              &(struct side_options){"d", 32, 2, recomputes, 4, 2, {0, 6}});
}

static void turn(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        bt_loop_turn(world.loop, 0);
    }
}

static void run_until_over(const struct sink *sink)
{
    for (unsigned i = 0; i < TURNS && !sink->is_over; i++) {
        bt_loop_turn(world.loop, 10);
    }
    ck_assert(sink->is_over);
    turn(4);
}

static struct seq_ask ask_of(size_t count, uint64_t max_tokens)
{
    uint32_t *const tokens = calloc(count, sizeof(*tokens));

    ck_assert_ptr_nonnull(tokens);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (uint32_t)(100 + i);
    }
    return (struct seq_ask){.tokens = tokens,
                            .token_count = count,
                            .max_tokens = max_tokens,
                            .ignore_eos = true};
}

static void submit(struct side *side, const struct seq_ask *ask,
                   struct sink *sink)
{
    ck_assert_int_eq(sched_submit(side->sched, ask, &EVENTS, sink, &sink->seq),
                     BT_OK);
}

static void fini(struct sink *sink)
{
    bt_buf_fini(&sink->text);
    bt_buf_fini(&sink->params);
}

/* The text is the one that the model's own function gives. */
static void assert_right(const struct sink *sink, size_t count, size_t words)
{
    struct seq_ask ask = ask_of(count, words);
    const struct model_ask wanted = {.prompt = ask.tokens,
                                     .prompt_tokens = count,
                                     .max_tokens = words,
                                     .ignore_eos = true};
    struct model_result result;
    struct bt_buf text = {0};

    ck_assert_int_eq(model_answer(&world.p.model, &wanted, &text, &result),
                     BT_OK);
    ck_assert_uint_eq(sink->words, words);
    ck_assert(bt_str_eq(bt_buf_str(&sink->text), bt_buf_str(&text)));
    bt_buf_fini(&text);
    free(ask.tokens);
}

static void prefill_as(size_t count, baton_id id, struct sink *sink)
{
    struct seq_ask ask = ask_of(count, 1);

    ask.handoff = SEQ_GIVES;
    ask.id = id;
    submit(&world.p, &ask, sink);
    run_until_over(sink);
}

static void start_decode(size_t count, size_t words, const struct sink *p,
                         struct sink *sink)
{
    struct seq_ask ask = ask_of(count, words);

    ask.handoff = SEQ_TAKES;
    ask.id = ID;
    ask.params = bt_buf_str(&p->params);
    submit(&world.d, &ask, sink);
}

START_TEST(answers_alone_what_the_model_says)
{
    static const size_t COUNTS[] = {1, 3, 4, 5, 8, 40, 63};

    for (size_t i = 0; i < BT_ARRAY_LEN(COUNTS); i++) {
        const struct seq_ask ask = ask_of(COUNTS[i], 9);
        struct sink sink = {.words = 0};

        submit(&world.p, &ask, &sink);
        run_until_over(&sink);
        ck_assert_int_eq(sink.result.end, SEQ_LENGTH);
        assert_right(&sink, COUNTS[i], 9);
        fini(&sink);
    }
    ck_assert_uint_eq(kv_counts(world.p.kv).free, 32);
}
END_TEST

START_TEST(finds_its_prefix_in_the_cache_and_says_so)
{
    const struct seq_ask first = ask_of(10, 2);
    const struct seq_ask second = ask_of(14, 5);
    struct sink sink = {.words = 0};
    struct sink again = {.words = 0};

    submit(&world.p, &first, &sink);
    run_until_over(&sink);
    ck_assert_uint_eq(sink.result.cached, 0);
    submit(&world.p, &second, &again);
    run_until_over(&again);
    ck_assert_uint_eq(again.result.cached, 8);
    assert_right(&again, 14, 5);
    fini(&sink);
    fini(&again);
}
END_TEST

START_TEST(stops_when_its_reader_has_enough)
{
    const struct seq_ask ask = ask_of(6, 20);
    struct sink sink = {.stop_at = 3};

    submit(&world.p, &ask, &sink);
    run_until_over(&sink);
    ck_assert_int_eq(sink.result.end, SEQ_STOP);
    assert_right(&sink, 6, 3);
    fini(&sink);
}
END_TEST

START_TEST(preempts_the_newest_when_blocks_run_out_and_keeps_its_text)
{
    struct sink sinks[3] = {{.words = 0}};

    for (size_t i = 0; i < 3; i++) {
        const struct seq_ask ask = ask_of(30 + 7 * i, 50);

        submit(&world.p, &ask, &sinks[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        run_until_over(&sinks[i]);
        assert_right(&sinks[i], 30 + 7 * i, 50);
        fini(&sinks[i]);
    }
    ck_assert_uint_gt(sched_counts(world.p.sched).preempted, 0);
    ck_assert_uint_eq(kv_counts(world.p.kv).free, 32);
}
END_TEST

START_TEST(refuses_what_can_never_fit_and_a_full_line)
{
    struct seq_ask ask = ask_of(100, 29);
    struct seq *seq;
    struct seq *line[4];

    ck_assert_int_eq(sched_submit(world.p.sched, &ask, &EVENTS, NULL, &seq),
                     BT_ERR_RANGE);
    free(ask.tokens);
    for (size_t i = 0; i < 4; i++) {
        ask = ask_of(4, 1);
        ck_assert_int_eq(
            sched_submit(world.p.sched, &ask, &EVENTS, NULL, &line[i]), BT_OK);
    }
    ask = ask_of(4, 1);
    ck_assert_int_eq(sched_submit(world.p.sched, &ask, &EVENTS, NULL, &seq),
                     BT_ERR_LIMIT);
    free(ask.tokens);
    for (size_t i = 0; i < 4; i++) {
        sched_cancel(&line[i]);
    }
}
END_TEST

START_TEST(may_be_cancelled_from_inside_a_word)
{
    const struct seq_ask ask = ask_of(6, 20);
    struct sink sink = {.cancels = true};

    submit(&world.p, &ask, &sink);
    turn(20);
    ck_assert_uint_eq(sink.words, 1);
    ck_assert(!sink.is_over);
    ck_assert_uint_eq(kv_counts(world.p.kv).free, 32);
    fini(&sink);
}
END_TEST

START_TEST(makes_no_word_while_paused)
{
    const struct seq_ask ask = ask_of(6, 3);
    struct sink sink = {.words = 0};

    submit(&world.p, &ask, &sink);
    sched_pause(sink.seq, true);
    turn(20);
    ck_assert_uint_eq(sink.words, 0);
    sched_pause(sink.seq, false);
    run_until_over(&sink);
    assert_right(&sink, 6, 3);
    fini(&sink);
}
END_TEST

START_TEST(hands_over_and_answers_as_one_engine_would)
{
    static const size_t COUNTS[] = {1, 4, 7, 16, 50};

    for (size_t i = 0; i < BT_ARRAY_LEN(COUNTS); i++) {
        struct sink p = {.words = 0};
        struct sink d = {.words = 0};

        prefill_as(COUNTS[i], ID, &p);
        ck_assert_uint_gt(p.params.len, 0);
        ck_assert_uint_eq(kv_counts(world.p.kv).held,
                          kv_blocks_for(world.p.kv, COUNTS[i]));
        start_decode(COUNTS[i], 9, &p, &d);
        run_until_over(&d);
        assert_right(&d, COUNTS[i], 9);
        fake_agent_release(ID, BATON_REASON_PULLED);
        turn(4);
        ck_assert_uint_eq(kv_counts(world.p.kv).held, 0);
        fini(&p);
        fini(&d);
    }
    ck_assert_uint_eq(sched_counts(world.d.sched).prefill_tokens, 0);
    ck_assert_uint_eq(handoff_counts(world.p.handoff).released[1], 5);
}
END_TEST

/* Of each group what it sees is held: all of one, of the other 6 tokens. */
START_TEST(holds_and_takes_of_each_group_what_it_sees)
{
    static const size_t COUNTS[] = {1, 4, 6, 7, 9, 12, 13, 35};
    static const uint32_t HELD[] = {2, 2, 4, 4, 6, 5, 7, 11};

    reopen_in_groups(false);
    for (size_t i = 0; i < BT_ARRAY_LEN(COUNTS); i++) {
        struct sink p = {.words = 0};
        struct sink d = {.words = 0};

        prefill_as(COUNTS[i], ID, &p);
        ck_assert_uint_eq(kv_counts(world.p.kv).held, HELD[i]);
        start_decode(COUNTS[i], 21, &p, &d);
        run_until_over(&d);
        assert_right(&d, COUNTS[i], 21);
        fake_agent_release(ID, BATON_REASON_PULLED);
        turn(4);
        ck_assert_uint_eq(kv_counts(world.p.kv).free, 32);
        ck_assert_uint_eq(kv_counts(world.d.kv).free, 32);
        fini(&p);
        fini(&d);
    }
    ck_assert_uint_eq(sched_counts(world.d.sched).prefill_tokens, 0);
}
END_TEST

START_TEST(recomputes_in_groups_what_it_could_not_pull)
{
    struct sink p = {.words = 0};
    struct sink d = {.words = 0};

    reopen_in_groups(true);
    prefill_as(30, ID, &p);
    fake_agent_release(ID, BATON_REASON_EXPIRED);
    start_decode(30, 12, &p, &d);
    run_until_over(&d);
    assert_right(&d, 30, 12);
    ck_assert_uint_eq(sched_counts(world.d.sched).recomputed, 1);
    ck_assert_uint_eq(kv_counts(world.d.kv).free, 32);
    fini(&p);
    fini(&d);
}
END_TEST

START_TEST(preempts_in_groups_and_keeps_the_text)
{
    struct sink sinks[3] = {{.words = 0}};

    reopen_in_groups(false);
    for (size_t i = 0; i < 3; i++) {
        const struct seq_ask ask = ask_of(14 + 5 * i, 36);

        submit(&world.p, &ask, &sinks[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        run_until_over(&sinks[i]);
        assert_right(&sinks[i], 14 + 5 * i, 36);
        fini(&sinks[i]);
    }
    ck_assert_uint_gt(sched_counts(world.p.sched).preempted, 0);
    ck_assert_uint_eq(kv_counts(world.p.kv).free, 32);
}
END_TEST

START_TEST(keeps_held_blocks_until_every_rank_released)
{
    struct sink p = {.words = 0};

    prefill_as(9, ID, &p);
    ck_assert_uint_eq(fake_agent_holds(), 2);
    ck_assert_uint_eq(kv_counts(world.p.kv).held, 3);
    ck_assert_uint_eq(kv_counts(world.p.kv).free, 29);
    fake_agent_release(ID, BATON_REASON_CANCELLED);
    turn(4);
    ck_assert_uint_eq(kv_counts(world.p.kv).free, 32);
    ck_assert_uint_eq(handoff_counts(world.p.handoff).holds_ready, 0);
    fini(&p);
}
END_TEST

START_TEST(answers_without_a_handoff_when_an_agent_is_busy)
{
    struct sink p = {.words = 0};

    fake_agent_refuse_holds(1);
    prefill_as(9, ID, &p);
    ck_assert_uint_eq(p.params.len, 0);
    ck_assert_int_eq(p.result.end, SEQ_LENGTH);
    ck_assert_uint_eq(kv_counts(world.p.kv).held, 0);
    ck_assert_uint_eq(handoff_counts(world.p.handoff).holds_refused, 1);
    fini(&p);
}
END_TEST

START_TEST(answers_without_a_handoff_when_slots_are_out)
{
    struct sink sinks[5] = {{.words = 0}};

    for (size_t i = 0; i < 5; i++) {
        prefill_as(4, (baton_id){.hi = i, .lo = i + 1}, &sinks[i]);
        ck_assert((sinks[i].params.len > 0) == (i < 4));
        fini(&sinks[i]);
    }
}
END_TEST

START_TEST(answers_without_a_handoff_to_an_id_that_is_live)
{
    struct sink first = {.words = 0};
    struct sink second = {.words = 0};

    prefill_as(4, ID, &first);
    prefill_as(4, ID, &second);
    ck_assert_uint_gt(first.params.len, 0);
    ck_assert_uint_eq(second.params.len, 0);
    fini(&first);
    fini(&second);
}
END_TEST

START_TEST(fails_the_answer_when_the_pull_fails)
{
    struct sink p = {.words = 0};
    struct sink d = {.words = 0};

    prefill_as(9, ID, &p);
    fake_agent_release(ID, BATON_REASON_EXPIRED);
    start_decode(9, 5, &p, &d);
    run_until_over(&d);
    ck_assert_int_eq(d.result.end, SEQ_LOAD_FAILED);
    ck_assert_uint_eq(d.words, 0);
    ck_assert_uint_eq(kv_counts(world.d.kv).free, 32);
    fini(&p);
    fini(&d);
}
END_TEST

START_TEST(recomputes_the_right_text_when_the_policy_says_so)
{
    struct sink p = {.words = 0};
    struct sink d = {.words = 0};

    reopen_recomputing();
    ck_assert_int_eq(fault_arm(&world.p.faults, "free-early=break", NULL, 0),
                     BT_OK);
    prefill_as(9, ID, &p);
    ck_assert_uint_gt(p.params.len, 0);
    start_decode(9, 5, &p, &d);
    run_until_over(&d);
    assert_right(&d, 9, 5);
    ck_assert_uint_eq(sched_counts(world.d.sched).recomputed, 1);
    fini(&p);
    fini(&d);
}
END_TEST

START_TEST(recomputes_what_is_behind_its_own_prefix)
{
    const struct seq_ask own = ask_of(10, 1);
    struct sink alone = {.words = 0};
    struct sink p = {.words = 0};
    struct sink d = {.words = 0};

    reopen_recomputing();
    submit(&world.d, &own, &alone);
    run_until_over(&alone);
    prefill_as(18, ID, &p);
    fake_agent_release(ID, BATON_REASON_EXPIRED);
    start_decode(18, 5, &p, &d);
    run_until_over(&d);
    assert_right(&d, 18, 5);
    ck_assert_uint_eq(d.result.cached, 8);
    fini(&alone);
    fini(&p);
    fini(&d);
}
END_TEST

START_TEST(pulls_only_what_its_cache_lacks)
{
    const struct seq_ask own = ask_of(10, 1);
    struct sink alone = {.words = 0};
    struct sink p = {.words = 0};
    struct sink d = {.words = 0};
    struct sink full = {.words = 0};

    submit(&world.d, &own, &alone);
    run_until_over(&alone);
    prefill_as(16, ID, &p);
    start_decode(16, 5, &p, &d);
    run_until_over(&d);
    assert_right(&d, 16, 5);
    ck_assert_uint_eq(d.result.cached, 8);
    start_decode(16, 5, &p, &full);
    run_until_over(&full);
    assert_right(&full, 16, 5);
    ck_assert_uint_eq(full.result.cached, 16);
    fini(&alone);
    fini(&p);
    fini(&d);
    fini(&full);
}
END_TEST

START_TEST(does_not_read_a_handoff_of_another_length)
{
    struct sink p = {.words = 0};
    struct sink d = {.words = 0};
    struct seq_ask ask = ask_of(9, 5);

    prefill_as(8, ID, &p);
    ask.handoff = SEQ_TAKES;
    ask.id = ID;
    ask.params = bt_buf_str(&p.params);
    submit(&world.d, &ask, &d);
    run_until_over(&d);
    ck_assert_int_eq(d.result.end, SEQ_LOAD_FAILED);
    fini(&p);
    fini(&d);
}
END_TEST

/* The blocks of a cancelled pull come back when no read can write to them. */
START_TEST(keeps_blocks_under_a_read_after_a_cancel)
{
    struct sink p = {.words = 0};
    struct sink d = {.words = 0};

    fake_agent_hold_back(true);
    prefill_as(9, ID, &p);
    start_decode(9, 5, &p, &d);
    turn(10);
    ck_assert_uint_eq(sched_counts(world.d.sched).pulling, 1);
    sched_cancel(&d.seq);
    turn(10);
    ck_assert_uint_eq(kv_counts(world.d.kv).free, 29);
    fake_agent_run();
    turn(10);
    ck_assert_uint_eq(kv_counts(world.d.kv).free, 32);
    ck_assert_uint_eq(sched_counts(world.d.sched).pulling, 0);
    ck_assert(!d.is_over);
    fini(&p);
    fini(&d);
}
END_TEST

START_TEST(breaks_an_open_hold_when_the_client_leaves)
{
    struct seq_ask ask = ask_of(40, 1);
    struct sink p = {.words = 0};

    ask.handoff = SEQ_GIVES;
    ask.id = ID;
    submit(&world.p, &ask, &p);
    sched_pause(p.seq, true);
    turn(4);
    ck_assert_uint_eq(fake_agent_holds(), 2);
    sched_cancel(&p.seq);
    turn(4);
    ck_assert_uint_eq(fake_agent_holds(), 0);
    ck_assert_uint_eq(kv_counts(world.p.kv).free, 32);
    fini(&p);
}
END_TEST

/* The params are out before a token is computed; the chunks are told. */
START_TEST(answers_early_and_tells_what_is_written)
{
    struct seq_ask ask = ask_of(40, 1);
    struct sink p = {.words = 0};
    char why[100];

    ck_assert_int_eq(
        fault_arm(&world.p.faults, "answer-early", why, sizeof(why)), BT_OK);
    ask.handoff = SEQ_GIVES;
    ask.id = ID;
    submit(&world.p, &ask, &p);
    run_until_over(&p);
    ck_assert_uint_eq(p.words, 0);
    ck_assert_uint_gt(p.params.len, 0);
    ck_assert_uint_eq(p.told, 0);
    while (fake_agent_told(ID) < 40) {
        turn(1);
    }
    turn(4);
    ck_assert_uint_lt(kv_counts(world.p.kv).free, 32);
    fake_agent_release(ID, BATON_REASON_PULLED);
    turn(4);
    ck_assert_uint_eq(kv_counts(world.p.kv).free, 32);
    fini(&p);
}
END_TEST

/* Bytes that change without a word go into the text: that is what tests of
 * checksums stand on. */
START_TEST(answers_another_text_from_flipped_bytes)
{
    static const char *const FAULTS[] = {"flip-bytes=2", "reuse-block=silent"};

    for (size_t i = 0; i < BT_ARRAY_LEN(FAULTS); i++) {
        struct sink right = {.words = 0};
        struct sink p = {.words = 0};
        struct sink d = {.words = 0};
        const struct seq_ask ask = ask_of(9 + i, 9);

        ck_assert_int_eq(fault_arm(&world.p.faults, FAULTS[i], NULL, 0), BT_OK);
        prefill_as(9 + i, ID, &p);
        start_decode(9 + i, 9, &p, &d);
        run_until_over(&d);
        submit(&world.p, &ask, &right);
        run_until_over(&right);
        assert_right(&right, 9 + i, 9);
        ck_assert(!bt_str_eq(bt_buf_str(&d.text), bt_buf_str(&right.text)));
        fake_agent_release(ID, BATON_REASON_PULLED);
        turn(4);
        fini(&right);
        fini(&p);
        fini(&d);
    }
}
END_TEST

START_TEST(never_lets_a_reused_block_through_once_it_was_said)
{
    static const char *const FAULTS[] = {
        "reuse-block=said", "free-early=reused", "free-early=break"};

    for (size_t i = 0; i < BT_ARRAY_LEN(FAULTS); i++) {
        struct sink p = {.words = 0};
        struct sink d = {.words = 0};

        ck_assert_int_eq(fault_arm(&world.p.faults, FAULTS[i], NULL, 0), BT_OK);
        prefill_as(9, ID, &p);
        start_decode(9, 9, &p, &d);
        run_until_over(&d);
        ck_assert_int_eq(d.result.end, SEQ_LOAD_FAILED);
        ck_assert_uint_eq(kv_counts(world.p.kv).held, 0);
        ck_assert_uint_eq(kv_counts(world.p.kv).free, 32);
        fini(&p);
        fini(&d);
    }
}
END_TEST

START_TEST(takes_the_time_that_its_model_says)
{
    struct sched_options options = {.loop = world.loop,
                                    .kv = world.p.kv,
                                    .faults = &world.p.faults,
                                    .prefill_rate = 1000,
                                    .decode_step_us = 2000,
                                    .step_tokens = 8,
                                    .max_running = 8,
                                    .max_waiting = 8};
    struct sched *sched;
    struct sink sink = {.words = 0};
    const struct seq_ask ask = ask_of(20, 6);
    const uint64_t begin = bt_clock_us();

    ck_assert_int_eq(sched_open(&options, &sched), BT_OK);
    ck_assert_int_eq(sched_submit(sched, &ask, &EVENTS, &sink, &sink.seq),
                     BT_OK);
    run_until_over(&sink);
    /* 20 tokens at 1,000 a second, then five words after the first one. */
    ck_assert_uint_ge(bt_clock_us() - begin, 30000);
    assert_right(&sink, 20, 6);
    sched_close(&sched);
    fini(&sink);
}
END_TEST

HARNESS_MAIN_WITH("sched", set_up, tear_down, answers_alone_what_the_model_says,
                  finds_its_prefix_in_the_cache_and_says_so,
                  stops_when_its_reader_has_enough,
                  preempts_the_newest_when_blocks_run_out_and_keeps_its_text,
                  refuses_what_can_never_fit_and_a_full_line,
                  may_be_cancelled_from_inside_a_word,
                  makes_no_word_while_paused,
                  hands_over_and_answers_as_one_engine_would,
                  holds_and_takes_of_each_group_what_it_sees,
                  recomputes_in_groups_what_it_could_not_pull,
                  preempts_in_groups_and_keeps_the_text,
                  keeps_held_blocks_until_every_rank_released,
                  answers_without_a_handoff_when_an_agent_is_busy,
                  answers_without_a_handoff_when_slots_are_out,
                  answers_without_a_handoff_to_an_id_that_is_live,
                  fails_the_answer_when_the_pull_fails,
                  recomputes_the_right_text_when_the_policy_says_so,
                  recomputes_what_is_behind_its_own_prefix,
                  pulls_only_what_its_cache_lacks,
                  does_not_read_a_handoff_of_another_length,
                  keeps_blocks_under_a_read_after_a_cancel,
                  breaks_an_open_hold_when_the_client_leaves,
                  answers_early_and_tells_what_is_written,
                  answers_another_text_from_flipped_bytes,
                  never_lets_a_reused_block_through_once_it_was_said,
                  takes_the_time_that_its_model_says)
