/*
 * The hold word's rule under threads: what is accepted was never overwritten.
 *
 *     child P: main thread opens, fills, readies, publishes each lane's hold;
 *              one overwriter a lane breaks it (the word is clear), and only
 *              then writes a stranger's bytes over its blocks
 *     test D:  pulls whatever is published, and looks at every byte
 *
 * A second mode overwrites first and breaks afterwards: the test must see it.
 * BATON_STRESS_ROUNDS sets the number of pulls.
 */
#include "common/base/base.h"
#include "tests/support/harness.h"
#include <baton/agent.h>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LANES        4
#define LANE_BLOCKS  8
#define BLOCKS       (LANES * LANE_BLOCKS)
#define BLOCK_WORDS  512
#define BLOCK_BYTES  (BLOCK_WORDS * sizeof(uint64_t))
#define ROUNDS       10000
#define ROUNDS_WRONG 400000
#define TEXT_MAX     4096
#define STRANGER     UINT64_C(0xbadbadbadbadbadb)

struct lane {
    _Alignas(64) _Atomic uint64_t published; /* its id's low half; 0: none */
};

/* Between the two processes. */
struct board {
    struct lane lanes[LANES];
    _Atomic bool is_over;
    bool is_wrong; /* overwrites before the break */
    const char *provider;
    size_t info_length;
    char info[TEXT_MAX];
    char params[LANES][TEXT_MAX]; /* for id 0…01; D puts in the current id */
    size_t params_length[LANES];
};

struct side {
    struct board *board;
    baton_agent *agent;
    uint64_t *memory;
};

struct overwriter {
    struct side *side;
    unsigned lane;
    pthread_t thread;
    _Atomic uint64_t live; /* the hold to break; 0: it is main's turn */
};

struct outcome {
    uint64_t accepted, lost, foreign;
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x7fb5d329728ea185);
    x ^= x >> 27;
    x *= UINT64_C(0x81dadef4bc2dd44d);
    x ^= x >> 33;
    return x == 0 ? 1 : x;
}

static uint64_t *block_of(const struct side *side, unsigned lane, unsigned i)
{
    return side->memory + (size_t)(lane * LANE_BLOCKS + i) * BLOCK_WORDS;
}

/* The bytes are data races by design: the reader is another process. */
static void lane_fill(const struct side *side, unsigned lane, uint64_t id)
{
    for (unsigned i = 0; i < LANE_BLOCKS; i++) {
        uint64_t *const block = block_of(side, lane, i);
        for (unsigned word = 0; word < BLOCK_WORDS; word++) {
            block[word] = id + word;
        }
    }
}

static bool lane_is(const struct side *side, unsigned lane, uint64_t id)
{
    for (unsigned i = 0; i < LANE_BLOCKS; i++) {
        const uint64_t *const block = block_of(side, lane, i);
        for (unsigned word = 0; word < BLOCK_WORDS; word++) {
            if (block[word] != id + word) {
                return false;
            }
        }
    }
    return true;
}

static void lane_ids(unsigned lane, uint32_t *ids)
{
    for (unsigned i = 0; i < LANE_BLOCKS; i++) {
        ids[i] = lane * LANE_BLOCKS + i;
    }
}

static baton_id id_of(unsigned lane, uint64_t low)
{
    return (baton_id){lane + 1, low};
}

static bool side_open(struct side *side, struct board *board, baton_role role)
{
    const baton_layout layout = {
        .size = sizeof(layout),
        .kind = BATON_KIND_KV,
        .heads = 1,
        .block_tokens = 1,
        .token_bytes = BLOCK_BYTES,
        .blocks = BLOCKS,
    };
    baton_region region = {
        .size = sizeof(region),
        .length = BLOCKS * BLOCK_BYTES,
        .layout = &layout,
    };
    baton_options options = baton_options_preset();

    side->board = board;
    side->memory = calloc(BLOCKS, BLOCK_BYTES);
    region.base = side->memory;
    options.role = role;
    options.engine = role == BATON_ROLE_PREFILL ? "p" : "d";
    options.provider = board->provider;
    options.pull_timeout_ms = 60000;
    return side->memory != NULL &&
           baton_agent_open(&options, &side->agent) == BATON_OK &&
           baton_region_add(side->agent, &region, NULL) == BATON_OK &&
           baton_agent_start(side->agent) == BATON_OK;
}

static void side_close(struct side *side)
{
    baton_agent_close(side->agent);
    free(side->memory);
}

/* --- P --- */

static void *overwrite(void *arg)
{
    struct overwriter *const self = arg;
    struct board *const board = self->side->board;
    uint64_t pause = self->lane + 1;

    while (!atomic_load(&board->is_over)) {
        const uint64_t id = atomic_load(&self->live);
        if (id == 0) {
            (void)sched_yield();
            continue;
        }
        pause = mix(pause);
        for (uint64_t i = 0; i < pause % 16; i++) {
            (void)sched_yield();
        }
        if (board->is_wrong) {
            lane_fill(self->side, self->lane, STRANGER);
            (void)sched_yield();
        }
        (void)baton_hold_break(self->side->agent, id_of(self->lane, id));
        lane_fill(self->side, self->lane, STRANGER);
        atomic_store(&board->lanes[self->lane].published, 0);
        atomic_store(&self->live, 0);
    }
    return NULL;
}

/* Gives a lane its next hold. */
static void lane_start(struct overwriter *overwriter, uint64_t low)
{
    struct side *const side = overwriter->side;
    const unsigned lane = overwriter->lane;
    uint32_t ids[LANE_BLOCKS];
    const baton_blocks group = {ids, LANE_BLOCKS};
    const baton_progress progress = {
        .size = sizeof(progress),
        .handoff = id_of(lane, low),
        .groups = &group,
        .group_count = 1,
        .tokens = LANE_BLOCKS,
    };

    lane_ids(lane, ids);
    if (baton_hold_open(side->agent, id_of(lane, low), lane, 0) != BATON_OK) {
        return; /* its RELEASED has yet to come */
    }
    lane_fill(side, lane, low);
    if (baton_hold_ready(side->agent, &progress) == BATON_OK) {
        atomic_store(&side->board->lanes[lane].published, low);
        atomic_store(&overwriter->live, low);
    }
}

static bool publish_texts(struct side *side)
{
    struct board *const board = side->board;
    uint32_t ids[LANE_BLOCKS];
    const baton_blocks group = {ids, LANE_BLOCKS};

    if (baton_agent_info(side->agent, board->info, sizeof(board->info),
                         &board->info_length) != BATON_OK) {
        return false;
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        const baton_bytes info = {board->info, board->info_length};
        lane_ids(lane, ids);
        const baton_params params = {
            .size = sizeof(params),
            .infos = &info,
            .info_count = 1,
            .handoff = id_of(lane, 1),
            .groups = &group,
            .group_count = 1,
            .tokens = LANE_BLOCKS,
            .slot = lane,
        };
        if (baton_params_write(&params, board->params[lane], TEXT_MAX,
                               &board->params_length[lane]) != BATON_OK) {
            return false;
        }
    }
    return true;
}

static int p_main(struct board *board, int ready)
{
    static struct overwriter overwriters[LANES];
    struct side side;
    baton_event events[16];
    uint64_t low = 1;

    if (!side_open(&side, board, BATON_ROLE_PREFILL) || !publish_texts(&side) ||
        write(ready, "x", 1) != 1) {
        return 1;
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        overwriters[lane].side = &side;
        overwriters[lane].lane = lane;
        (void)pthread_create(&overwriters[lane].thread, NULL, overwrite,
                             &overwriters[lane]);
    }
    while (!atomic_load(&board->is_over)) {
        for (unsigned lane = 0; lane < LANES; lane++) {
            if (atomic_load(&overwriters[lane].live) == 0) {
                low = mix(low);
                lane_start(&overwriters[lane], low);
            }
        }
        (void)baton_poll(side.agent, events, BT_ARRAY_LEN(events));
        (void)sched_yield();
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        (void)pthread_join(overwriters[lane].thread, NULL);
    }
    side_close(&side);
    return 0;
}

/* --- D --- */

static void set_id(struct board *board, unsigned lane, uint64_t low,
                   baton_bytes *params)
{
    char hex[33];
    char *const at = strstr(board->params[lane], "\"handoff\":\"");

    baton_id_format(id_of(lane, low), hex);
    ck_assert_ptr_nonnull(at);
    memcpy(at + strlen("\"handoff\":\""), hex, 32);
    params->data = board->params[lane];
    params->length = board->params_length[lane];
}

static baton_event wait_event(baton_agent *agent)
{
    struct pollfd fd = {.fd = baton_agent_fd(agent), .events = POLLIN};
    baton_event event = {.tag = 0};

    while (baton_poll(agent, &event, 1) == 0) {
        ck_assert_int_eq(poll(&fd, 1, 30000), 1);
    }
    return event;
}

/* One pull of what the lane publishes; false when it publishes nothing. */
static bool pull_lane(struct side *side, unsigned lane, struct outcome *outcome)
{
    const uint64_t low = atomic_load(&side->board->lanes[lane].published);
    uint32_t ids[LANE_BLOCKS];
    const baton_blocks group = {ids, LANE_BLOCKS};
    baton_pull_request request = {
        .size = sizeof(request), .groups = &group, .group_count = 1};
    baton_event event;

    if (low == 0) {
        (void)sched_yield();
        return false;
    }
    lane_ids(lane, ids);
    request.handoff = id_of(lane, low);
    set_id(side->board, lane, low, &request.params);
    ck_assert_int_eq(baton_pull(side->agent, &request), BATON_OK);
    event = wait_event(side->agent);
    if (event.type == BATON_EVENT_PULLED) {
        outcome->accepted++;
        outcome->foreign += lane_is(side, lane, low) ? 0 : 1;
    } else {
        ck_assert_int_eq(event.reason, BATON_REASON_LOST);
        outcome->lost++;
    }
    return true;
}

static uint64_t rounds_wanted(void)
{
    const char *const text = getenv("BATON_STRESS_ROUNDS");

    return text == NULL ? ROUNDS : strtoull(text, NULL, 10);
}

static struct outcome race(const char *provider, bool is_wrong)
{
    const uint64_t rounds = is_wrong ? ROUNDS_WRONG : rounds_wanted();
    struct board *const board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct outcome outcome = {0};
    struct side side;
    int ready[2], status = 1;
    char byte;
    pid_t child;

    ck_assert_ptr_ne(board, MAP_FAILED);
    board->provider = provider;
    board->is_wrong = is_wrong;
    ck_assert_int_eq(pipe(ready), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        _exit(p_main(board, ready[1]));
    }
    (void)close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    ck_assert(side_open(&side, board, BATON_ROLE_DECODE));
    ck_assert_int_eq(
        baton_peer_add(side.agent,
                       (baton_bytes){board->info, board->info_length}),
        BATON_OK);
    ck_assert_int_eq(wait_event(side.agent).type, BATON_EVENT_PEER_READY);
    for (uint64_t round = 0;
         round < rounds && !(is_wrong && outcome.foreign > 0);) {
        round += pull_lane(&side, (unsigned)(round % LANES), &outcome) ? 1 : 0;
    }
    atomic_store(&board->is_over, true);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    side_close(&side);
    (void)munmap(board, sizeof(*board));
    (void)fprintf(
        stderr, "%s%s: %llu accepted, %llu lost, %llu foreign\n", provider,
        is_wrong ? " (wrong order)" : "", (unsigned long long)outcome.accepted,
        (unsigned long long)outcome.lost, (unsigned long long)outcome.foreign);
    return outcome;
}

static void check_right(const char *provider)
{
    const struct outcome outcome = race(provider, false);

    ck_assert_uint_eq(outcome.foreign, 0);
    ck_assert_uint_gt(outcome.accepted, 0);
    ck_assert_uint_gt(outcome.lost, 0);
}

START_TEST(no_foreign_byte_is_accepted_over_cma)
{
    check_right("cma");
}
END_TEST

START_TEST(no_foreign_byte_is_accepted_over_tcp)
{
    check_right("tcp");
}
END_TEST

START_TEST(a_clear_after_the_overwrite_is_seen_over_cma)
{
    ck_assert_uint_gt(race("cma", true).foreign, 0);
}
END_TEST

START_TEST(a_clear_after_the_overwrite_is_seen_over_tcp)
{
    ck_assert_uint_gt(race("tcp", true).foreign, 0);
}
END_TEST

HARNESS_MAIN("hold_stress", no_foreign_byte_is_accepted_over_cma,
             no_foreign_byte_is_accepted_over_tcp,
             a_clear_after_the_overwrite_is_seen_over_cma,
             a_clear_after_the_overwrite_is_seen_over_tcp)
