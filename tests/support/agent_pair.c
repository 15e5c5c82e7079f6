/*
 * The pair: its child's loop, and what tests ask of both sides.
 */
#include "tests/support/agent_pair.h"

#include <check.h>

#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENT_WAIT_MS 30000

struct order {
    enum pair_order order;
    baton_id id;
    uint32_t slot;
    uint32_t ids[PAIR_IDS_MAX];
    size_t count;
    uint64_t value;
};

static uint64_t stride_of(const struct pair_options *options)
{
    return options->stride == 0 ? options->block_bytes : options->stride;
}

static size_t memory_bytes(const struct pair_options *options)
{
    return (size_t)(PAIR_REGIONS * PAIR_BLOCKS * stride_of(options));
}

static unsigned char *memory_open(const struct pair_options *options)
{
    void *const memory =
        mmap(NULL, memory_bytes(options), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* The region that holds `memory` is not const: pulls write to it. */
/* NOLINTBEGIN(readability-non-const-parameter) */
static baton_status agent_open(const struct pair_options *options,
                               baton_role role, unsigned char *memory,
                               baton_agent **agent_p)
/* NOLINTEND(readability-non-const-parameter) */
{
    baton_options agent_options = baton_options_preset();
    baton_status status;

    agent_options.role = role;
    agent_options.engine = role == BATON_ROLE_PREFILL ? "p" : "d";
    agent_options.provider = options->provider;
    agent_options.fingerprint =
        options->fingerprint != NULL && role == BATON_ROLE_DECODE
            ? options->fingerprint
            : "test";
    agent_options.pull_timeout_ms =
        options->pull_timeout_ms == 0 ? 20000 : options->pull_timeout_ms;
    agent_options.drain_ms = options->drain_ms == 0 ? 50 : options->drain_ms;
    agent_options.checksum = options->checksum;
    agent_options.log = role == BATON_ROLE_DECODE ? options->log : NULL;
    status = baton_agent_open(&agent_options, agent_p);
    for (unsigned i = 0; status == BATON_OK && i < PAIR_REGIONS; i++) {
        const baton_layout layout = {
            .size = sizeof(layout),
            .kind = i == 0 ? BATON_KIND_K : BATON_KIND_V,
            .heads = 1,
            .block_tokens = PAIR_TOKENS,
            .token_bytes = (uint32_t)(options->block_bytes / PAIR_TOKENS),
            .blocks = PAIR_BLOCKS,
            .block_stride = stride_of(options),
        };
        const uint64_t length = PAIR_BLOCKS * stride_of(options);
        const baton_region region = {
            .size = sizeof(region),
            .base = memory + i * length,
            .length = length,
            .layout = &layout,
        };
        status = baton_region_add(*agent_p, &region, NULL);
    }
    return status == BATON_OK ? baton_agent_start(*agent_p) : status;
}

unsigned char pair_byte(unsigned char fill, unsigned region, uint32_t block,
                        uint64_t offset)
{
    return (unsigned char)(fill + region * 101 + block * 7 + offset % 251);
}

/* --- the child --- */

struct child {
    const struct pair_options *options;
    baton_agent *agent;
    unsigned char *memory;
    char info[PAIR_TEXT_MAX];
    size_t info_length;
};

static void fill(struct child *child, const struct order *order)
{
    const uint64_t stride = stride_of(child->options);

    for (size_t i = 0; i < order->count; i++) {
        for (unsigned region = 0; region < PAIR_REGIONS; region++) {
            unsigned char *const block =
                child->memory + (region * PAIR_BLOCKS + order->ids[i]) * stride;
            for (uint64_t at = 0; at < child->options->block_bytes; at++) {
                block[at] = pair_byte((unsigned char)order->value, region,
                                      order->ids[i], at);
            }
        }
    }
}

static baton_status early(struct child *child, const struct order *order,
                          struct pair_answer *answer)
{
    const baton_blocks group = {order->ids, order->count};
    const baton_bytes info = {child->info, child->info_length};
    const baton_params params = {
        .size = sizeof(params),
        .infos = &info,
        .info_count = 1,
        .handoff = order->id,
        .groups = &group,
        .group_count = 1,
        .tokens = order->value,
        .slot = order->slot,
        .flags = BATON_PARAMS_READY,
    };

    return baton_params_write(&params, answer->text, sizeof(answer->text),
                              &answer->length);
}

static baton_status told(struct child *child, const struct order *order)
{
    const baton_blocks group = {order->ids, order->count};
    const baton_progress progress = {
        .size = sizeof(progress),
        .handoff = order->id,
        .groups = &group,
        .group_count = 1,
        .tokens = order->value,
    };

    return baton_hold_progress(child->agent, &progress);
}

static baton_status ready(struct child *child, const struct order *order,
                          struct pair_answer *answer)
{
    const baton_blocks group = {order->ids, order->count};
    const baton_bytes info = {child->info, child->info_length};
    uint64_t digests[PAIR_IDS_MAX];
    const bool has_digests = child->options->checksum != 0;
    const baton_progress progress = {
        .size = sizeof(progress),
        .handoff = order->id,
        .groups = &group,
        .group_count = 1,
        .tokens = order->value,
        .digests = has_digests ? digests : NULL,
        .digest_count = has_digests ? order->count : 0,
    };
    const baton_params params = {
        .size = sizeof(params),
        .infos = &info,
        .info_count = 1,
        .handoff = order->id,
        .groups = &group,
        .group_count = 1,
        .tokens = order->value,
        .digests = progress.digests,
        .digest_count = progress.digest_count,
        .slot = order->slot,
    };
    const baton_status status = baton_hold_ready(child->agent, &progress);

    return status != BATON_OK
               ? status
               : baton_params_write(&params, answer->text, sizeof(answer->text),
                                    &answer->length);
}

static void obey(struct child *child, const struct order *order,
                 struct pair_answer *answer)
{
    switch (order->order) {
    case PAIR_INFO:
        answer->length = child->info_length;
        memcpy(answer->text, child->info, child->info_length);
        break;
    case PAIR_FILL:
        fill(child, order);
        break;
    case PAIR_OPEN:
        answer->status =
            baton_hold_open(child->agent, order->id, order->slot, 0);
        break;
    case PAIR_READY:
        answer->status = ready(child, order, answer);
        break;
    case PAIR_EARLY:
        answer->status = early(child, order, answer);
        break;
    case PAIR_TOLD:
        answer->status = told(child, order);
        break;
    case PAIR_BREAK:
        answer->status = baton_hold_break(child->agent, order->id);
        break;
    case PAIR_RELEASE:
        answer->status = baton_hold_release(child->agent, order->id);
        break;
    case PAIR_REUSED:
        answer->status =
            baton_blocks_reused(child->agent, 0, order->ids, order->count);
        break;
    case PAIR_FLIP:
        child->memory[order->ids[0] * stride_of(child->options)] ^= 1;
        break;
    case PAIR_EVENT:
        answer->status = pair_event(child->agent, &answer->event)
                             ? BATON_OK
                             : BATON_ERR_UNKNOWN;
        break;
    case PAIR_QUIT:
        break;
    }
}

static bool read_all(int fd, void *data, size_t length)
{
    char *at = data;

    while (length > 0) {
        const ssize_t count = read(fd, at, length);
        if (count <= 0) {
            return false;
        }
        at += count;
        length -= (size_t)count;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t length)
{
    const char *at = data;

    while (length > 0) {
        const ssize_t count = write(fd, at, length);
        if (count <= 0) {
            return false;
        }
        at += count;
        length -= (size_t)count;
    }
    return true;
}

static int child_main(const struct pair_options *options, int orders,
                      int answers)
{
    static struct child child;
    struct order order = {.order = PAIR_INFO};
    static struct pair_answer answer;

    child.options = options;
    child.memory = memory_open(options);
    if (child.memory == NULL ||
        agent_open(options, BATON_ROLE_PREFILL, child.memory, &child.agent) !=
            BATON_OK ||
        baton_agent_info(child.agent, child.info, sizeof(child.info),
                         &child.info_length) != BATON_OK) {
        return 1;
    }
    while (order.order != PAIR_QUIT &&
           read_all(orders, &order, sizeof(order))) {
        memset(&answer, 0, sizeof(answer));
        obey(&child, &order, &answer);
        if (!write_all(answers, &answer, sizeof(answer))) {
            break;
        }
    }
    baton_agent_close(child.agent);
    (void)munmap(child.memory, memory_bytes(options));
    return 0;
}

static void child_fork(struct pair *pair)
{
    int orders[2], answers[2];

    ck_assert_int_eq(pipe(orders), 0);
    ck_assert_int_eq(pipe(answers), 0);
    pair->child = fork();
    ck_assert_int_ge(pair->child, 0);
    if (pair->child == 0) {
        (void)close(orders[1]);
        (void)close(answers[0]);
        _exit(child_main(&pair->options, orders[0], answers[1]));
    }
    (void)close(orders[0]);
    (void)close(answers[1]);
    pair->orders = orders[1];
    pair->answers = answers[0];
}

/* --- the test's side --- */

void pair_tell(struct pair *pair, enum pair_order order, baton_id id,
               uint32_t slot, const uint32_t *ids, size_t count, uint64_t value,
               struct pair_answer *answer)
{
    struct order full = {
        .order = order, .id = id, .slot = slot, .count = count, .value = value};

    ck_assert_uint_le(count, PAIR_IDS_MAX);
    if (count > 0) {
        memcpy(full.ids, ids, count * sizeof(*ids));
    }
    ck_assert(write_all(pair->orders, &full, sizeof(full)));
    ck_assert(read_all(pair->answers, answer, sizeof(*answer)));
}

void pair_open(struct pair *pair, const struct pair_options *options)
{
    static struct pair_answer answer;

    memset(pair, 0, sizeof(*pair));
    pair->options = *options;
    if (pair->options.block_bytes == 0) {
        pair->options.block_bytes = 4096;
    }
    child_fork(pair);
    pair_tell(pair, PAIR_INFO, (baton_id){0, 0}, 0, NULL, 0, 0, &answer);
    memcpy(pair->info, answer.text, answer.length);
    pair->info_length = answer.length;
    pair->blocks = memory_open(&pair->options);
    ck_assert_ptr_nonnull(pair->blocks);
    ck_assert_int_eq(agent_open(&pair->options, BATON_ROLE_DECODE, pair->blocks,
                                &pair->agent),
                     BATON_OK);
}

void pair_close(struct pair *pair)
{
    int status = 0;

    baton_agent_close(pair->agent);
    (void)close(pair->orders);
    (void)close(pair->answers);
    (void)waitpid(pair->child, &status, 0);
    (void)munmap(pair->blocks, memory_bytes(&pair->options));
}

bool pair_event(baton_agent *agent, baton_event *event)
{
    struct pollfd fd = {.fd = baton_agent_fd(agent), .events = POLLIN};

    if (poll(&fd, 1, EVENT_WAIT_MS) != 1) {
        return false;
    }
    return baton_poll(agent, event, 1) == 1;
}

baton_event pair_introduce(struct pair *pair)
{
    const baton_bytes info = {pair->info, pair->info_length};
    baton_event event = {.tag = 0};

    ck_assert_int_eq(baton_peer_add(pair->agent, info), BATON_OK);
    ck_assert(pair_event(pair->agent, &event));
    return event;
}

void pair_hold(struct pair *pair, baton_id id, uint32_t slot,
               const uint32_t *ids, size_t count, unsigned char fill_byte,
               struct pair_answer *answer)
{
    pair_tell(pair, PAIR_FILL, id, slot, ids, count, fill_byte, answer);
    pair_tell(pair, PAIR_OPEN, id, slot, NULL, 0, 0, answer);
    ck_assert_int_eq(answer->status, BATON_OK);
    pair_tell(pair, PAIR_READY, id, slot, ids, count, count * PAIR_TOKENS,
              answer);
    ck_assert_int_eq(answer->status, BATON_OK);
}

baton_status pair_pull(struct pair *pair, baton_id id,
                       const struct pair_answer *params, const uint32_t *ids,
                       size_t count, uint64_t have_tokens, uint64_t tag)
{
    const baton_blocks group = {ids, count};
    const baton_pull_request request = {
        .size = sizeof(request),
        .handoff = id,
        .params = {params->text, params->length},
        .groups = &group,
        .group_count = 1,
        .have_tokens = have_tokens,
        .tag = tag,
    };

    return baton_pull(pair->agent, &request);
}

unsigned char *pair_block(struct pair *pair, unsigned region, uint32_t block)
{
    return pair->blocks +
           (region * PAIR_BLOCKS + block) * stride_of(&pair->options);
}

bool pair_block_is(struct pair *pair, uint32_t block, unsigned char fill_byte,
                   uint32_t source)
{
    for (unsigned region = 0; region < PAIR_REGIONS; region++) {
        const unsigned char *const bytes = pair_block(pair, region, block);
        for (uint64_t at = 0; at < pair->options.block_bytes; at++) {
            if (bytes[at] != pair_byte(fill_byte, region, source, at)) {
                return false;
            }
        }
    }
    return true;
}
