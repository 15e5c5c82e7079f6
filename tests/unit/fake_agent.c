/*
 * The agent library of tests; see fake_agent.h.
 */
#include "tests/unit/fake_agent.h"

#include "common/base/str.h"

#include <jansson.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define AGENTS_MAX  16
#define REGIONS_MAX 64
#define EVENTS_MAX  256
#define HOLDS_MAX   64
#define PULLS_MAX   64
#define BLOCKS_MAX  4096

struct region {
    char *base;
    baton_layout layout;
};

struct fake_hold {
    baton_id id;
    bool is_ready;
    uint64_t told;
};

struct fake_pull {
    bool is_live, is_cancelled;
    uint64_t tag;
    baton_id handoff;
    baton_agent *source;
    uint32_t group[BLOCKS_MAX], from[BLOCKS_MAX], to[BLOCKS_MAX];
    size_t count;
    uint64_t tokens; /* of the handoff */
};

struct baton_agent {
    char engine[256];
    uint32_t rank;
    int fd;
    struct region regions[REGIONS_MAX];
    size_t region_count;
    struct fake_hold holds[HOLDS_MAX];
    size_t hold_count;
    struct fake_pull pulls[PULLS_MAX];
    baton_event events[EVENTS_MAX];
    size_t event_count;
};

/* The process is the fabric. */
static struct {
    baton_agent *agents[AGENTS_MAX];
    bool hold_back;
    unsigned refusals;
} fabric;

static bool same(baton_id a, baton_id b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

static void push(baton_agent *agent, const baton_event *event)
{
    const uint64_t one = 1;

    if (agent->event_count == EVENTS_MAX) {
        abort();
    }
    agent->events[agent->event_count++] = *event;
    if (write(agent->fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        abort();
    }
}

static struct fake_hold *find_hold(baton_agent *agent, baton_id id)
{
    for (size_t i = 0; i < agent->hold_count; i++) {
        if (same(agent->holds[i].id, id)) {
            return &agent->holds[i];
        }
    }
    return NULL;
}

static void end_hold(baton_agent *agent, struct fake_hold *hold,
                     baton_reason reason)
{
    const baton_event event = {
        .type = BATON_EVENT_RELEASED, .reason = reason, .handoff = hold->id};
    const bool is_ready = hold->is_ready;

    *hold = agent->holds[--agent->hold_count];
    if (is_ready) {
        push(agent, &event);
    }
}

/* --- pulls --- */

static void copy_block(const struct region *to, const struct region *from,
                       const struct fake_pull *pull, size_t block)
{
    memcpy(to->base + pull->to[block] * to->layout.block_stride,
           from->base + pull->from[block] * from->layout.block_stride,
           to->layout.block_stride);
}

static void copy_blocks(baton_agent *agent, const struct fake_pull *pull)
{
    for (size_t i = 0; i < agent->region_count; i++) {
        const struct region *const to = &agent->regions[i];

        for (size_t j = 0; j < pull->count; j++) {
            if (pull->group[j] == to->layout.group) {
                copy_block(to, &pull->source->regions[i], pull, j);
            }
        }
    }
}

static void run_pull(baton_agent *agent, struct fake_pull *pull)
{
    baton_event event = {
        .type = BATON_EVENT_PULLED, .handoff = pull->handoff, .tag = pull->tag};
    const bool is_proven =
        pull->source != NULL && find_hold(pull->source, pull->handoff) != NULL;

    if (pull->is_cancelled || !is_proven) {
        event.type = BATON_EVENT_PULL_FAILED;
        event.reason =
            pull->is_cancelled ? BATON_REASON_CANCELLED : BATON_REASON_LOST;
    } else {
        copy_blocks(agent, pull);
        event.blocks = (uint32_t)pull->count;
    }
    pull->is_live = false;
    push(agent, &event);
}

static void run_agent(baton_agent *agent)
{
    for (size_t i = 0; i < PULLS_MAX; i++) {
        if (agent->pulls[i].is_live) {
            run_pull(agent, &agent->pulls[i]);
        }
    }
}

void fake_agent_run(void)
{
    for (size_t i = 0; i < AGENTS_MAX; i++) {
        baton_agent *const agent = fabric.agents[i];

        if (agent != NULL) {
            run_agent(agent);
        }
    }
}

static baton_agent *find_agent(const char *engine, uint32_t rank)
{
    for (size_t i = 0; i < AGENTS_MAX; i++) {
        baton_agent *const agent = fabric.agents[i];

        if (agent != NULL && agent->rank == rank &&
            strcmp(agent->engine, engine) == 0) {
            return agent;
        }
    }
    return NULL;
}

/* The last ones of a group's list, as many as are wanted. */
static bool read_group(const json_t *list, const baton_blocks *wanted,
                       uint32_t group, struct fake_pull *pull)
{
    const size_t count = json_array_size(list);

    if (count < wanted->count) {
        return false;
    }
    for (size_t i = 0; i < wanted->count; i++) {
        pull->group[pull->count] = group;
        pull->from[pull->count] = (uint32_t)json_integer_value(
            json_array_get(list, count - wanted->count + i));
        pull->to[pull->count++] = wanted->ids[i];
    }
    return true;
}

static bool read_params(const baton_pull_request *request, baton_agent *agent,
                        struct fake_pull *pull)
{
    json_t *const root =
        json_loadb(request->params.data, request->params.length, 0, NULL);
    const json_t *const baton = json_object_get(root, "baton");
    const json_t *const blocks = json_object_get(baton, "blocks");
    const char *const engine =
        json_string_value(json_object_get(baton, "engine"));
    bool fits =
        engine != NULL && json_array_size(blocks) == request->group_count;

    pull->count = 0;
    pull->tokens =
        (uint64_t)json_integer_value(json_object_get(baton, "tokens"));
    for (uint32_t i = 0; fits && i < request->group_count; i++) {
        fits =
            read_group(json_array_get(blocks, i), &request->groups[i], i, pull);
    }
    if (fits) {
        pull->source = find_agent(engine, agent->rank);
    }
    json_decref(root);
    return fits;
}

baton_status baton_pull(baton_agent *agent, const baton_pull_request *request)
{
    struct fake_pull *pull = agent->pulls;

    while (pull->is_live) {
        pull++;
    }
    if (!read_params(request, agent, pull)) {
        return BATON_ERR_PARAMS;
    }
    if (pull->tokens != request->prompt->token_count) {
        return BATON_ERR_PROMPT;
    }
    pull->is_live = true;
    pull->is_cancelled = false;
    pull->tag = request->tag;
    pull->handoff = request->handoff;
    if (!fabric.hold_back) {
        run_pull(agent, pull);
    }
    return BATON_OK;
}

baton_status baton_cancel(baton_agent *agent, uint64_t tag)
{
    for (size_t i = 0; i < PULLS_MAX; i++) {
        if (agent->pulls[i].is_live && agent->pulls[i].tag == tag) {
            agent->pulls[i].is_cancelled = true;
            return BATON_OK;
        }
    }
    return BATON_ERR_UNKNOWN;
}

/* --- holds --- */

baton_status baton_hold_open(baton_agent *agent, baton_id handoff,
                             uint32_t slot, uint64_t owner)
{
    (void)slot;
    (void)owner;
    if (fabric.refusals > 0) {
        fabric.refusals--;
        return BATON_ERR_BUSY;
    }
    if (find_hold(agent, handoff) != NULL) {
        return BATON_ERR_EXISTS;
    }
    agent->holds[agent->hold_count++] = (struct fake_hold){handoff, false, 0};
    return BATON_OK;
}

baton_status baton_hold_ready(baton_agent *agent,
                              const baton_progress *progress)
{
    struct fake_hold *const hold = find_hold(agent, progress->handoff);

    for (size_t i = 0; i < progress->digest_count; i++) {
        progress->digests[i] = i;
    }
    if (hold == NULL) {
        return BATON_ERR_UNKNOWN;
    }
    hold->is_ready = true;
    return BATON_OK;
}

baton_status baton_hold_progress(baton_agent *agent,
                                 const baton_progress *progress)
{
    struct fake_hold *const hold = find_hold(agent, progress->handoff);

    if (hold == NULL || progress->tokens < hold->told) {
        return BATON_ERR_ARGUMENT;
    }
    hold->told = progress->tokens;
    return BATON_OK;
}

baton_status baton_hold_break(baton_agent *agent, baton_id handoff)
{
    struct fake_hold *const hold = find_hold(agent, handoff);

    if (hold == NULL) {
        return BATON_ERR_UNKNOWN;
    }
    end_hold(agent, hold, BATON_REASON_BROKEN);
    return BATON_OK;
}

baton_status baton_blocks_reused(baton_agent *agent, uint32_t group,
                                 const uint32_t *ids, size_t count)
{
    (void)group;
    (void)ids;
    (void)count;
    while (agent->hold_count > 0) {
        end_hold(agent, &agent->holds[0], BATON_REASON_BROKEN);
    }
    return BATON_OK;
}

static size_t write_group(const baton_blocks *group, bool is_first, char *text,
                          size_t cap)
{
    size_t length = (size_t)snprintf(text, cap, "%s", is_first ? "[" : ",[");

    for (size_t i = 0; i < group->count; i++) {
        length +=
            (size_t)snprintf(length < cap ? text + length : NULL,
                             length < cap ? cap - length : 0, "%s%" PRIu32,
                             i == 0 ? "" : ",", group->ids[i]);
    }
    length += (size_t)snprintf(length < cap ? text + length : NULL,
                               length < cap ? cap - length : 0, "]");
    return length;
}

baton_status baton_params_write(const baton_params *params, char *text,
                                size_t cap, size_t *length_p)
{
    char hex[33];
    size_t length;

    baton_id_format(params->handoff, hex);
    length = (size_t)snprintf(
        text, cap,
        "{\"do_remote_prefill\":true,\"do_remote_decode\":false,\"baton\":"
        "{\"v\":1,\"handoff\":\"%s\",\"engine\":\"%.*s\",\"slot\":%" PRIu32
        ",\"tokens\":%" PRIu64 ",\"blocks\":[",
        hex, (int)params->infos[0].length, (const char *)params->infos[0].data,
        params->slot, params->tokens);
    for (size_t i = 0; i < params->group_count; i++) {
        length += write_group(&params->groups[i], i == 0,
                              length < cap ? text + length : NULL,
                              length < cap ? cap - length : 0);
    }
    length += (size_t)snprintf(length < cap ? text + length : NULL,
                               length < cap ? cap - length : 0, "]}}");
    *length_p = length + 1;
    if (length >= cap) {
        return BATON_ERR_SPACE;
    }
    *length_p = length;
    return BATON_OK;
}

void fake_agent_release(baton_id id, baton_reason reason)
{
    for (size_t i = 0; i < AGENTS_MAX; i++) {
        baton_agent *const agent = fabric.agents[i];
        struct fake_hold *const hold =
            agent == NULL ? NULL : find_hold(agent, id);

        if (hold != NULL) {
            end_hold(agent, hold, reason);
        }
    }
}

/* --- life --- */

baton_status baton_agent_open(const baton_options *options,
                              baton_agent **agent_p)
{
    size_t at = 0;
    baton_agent *agent;

    while (fabric.agents[at] != NULL) {
        at++;
    }
    agent = calloc(1, sizeof(*agent));
    if (agent == NULL) {
        return BATON_ERR_MEMORY;
    }
    (void)snprintf(agent->engine, sizeof(agent->engine), "%s", options->engine);
    agent->rank = options->rank;
    agent->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fabric.agents[at] = agent;
    *agent_p = agent;
    return BATON_OK;
}

void baton_agent_close(baton_agent *agent)
{
    for (size_t i = 0; i < AGENTS_MAX && agent != NULL; i++) {
        if (fabric.agents[i] == agent) {
            fabric.agents[i] = NULL;
            (void)close(agent->fd);
            free(agent);
            return;
        }
    }
}

/* Only what the engine gives: blocks without gaps, all strides unsaid. */
baton_status baton_region_add(baton_agent *agent, const baton_region *region,
                              uint32_t *region_p)
{
    baton_layout layout = *region->layout;

    layout.block_stride = (uint64_t)(layout.heads == 0 ? 1 : layout.heads) *
                          layout.block_tokens * layout.token_bytes;
    if (agent->region_count == REGIONS_MAX ||
        layout.blocks * layout.block_stride > region->length) {
        return BATON_ERR_ARGUMENT;
    }
    if (region_p != NULL) {
        *region_p = (uint32_t)agent->region_count;
    }
    agent->regions[agent->region_count++] =
        (struct region){region->base, layout};
    return BATON_OK;
}

baton_status baton_agent_start(baton_agent *agent)
{
    return agent->region_count > 0 ? BATON_OK : BATON_ERR_STATE;
}

baton_status baton_agent_info(baton_agent *agent, char *text, size_t cap,
                              size_t *length_p)
{
    *length_p = strlen(agent->engine);
    if (*length_p > cap) {
        return BATON_ERR_SPACE;
    }
    memcpy(text, agent->engine, *length_p);
    return BATON_OK;
}

size_t baton_poll_sized(baton_agent *agent, baton_event *events, size_t size,
                        size_t max)
{
    const size_t count = agent->event_count < max ? agent->event_count : max;
    uint64_t ticks;

    (void)size;
    if (read(agent->fd, &ticks, sizeof(ticks)) < 0 && count == 0) {
        return 0;
    }
    memcpy(events, agent->events, count * sizeof(*events));
    agent->event_count -= count;
    memmove(agent->events, agent->events + count,
            agent->event_count * sizeof(*events));
    return count;
}

int baton_agent_fd(const baton_agent *agent)
{
    return agent->fd;
}

baton_status baton_agent_stats(baton_agent *agent, baton_stats *stats_p)
{
    stats_p->holds_live = agent->hold_count;
    return BATON_OK;
}

/* --- texts --- */

const char *baton_status_text(baton_status status)
{
    return status == BATON_OK ? "ok" : "not ok";
}

const char *baton_reason_text(baton_reason reason)
{
    return reason == BATON_REASON_NONE ? "none" : "some reason";
}

baton_status baton_id_parse(const char *hex, size_t length, baton_id *id_p)
{
    baton_id id;

    if (length != 32 ||
        bt_str_hex_to_u64(bt_str_span(hex, 16), &id.hi) != BT_OK ||
        bt_str_hex_to_u64(bt_str_span(hex + 16, 16), &id.lo) != BT_OK ||
        id.lo == 0) {
        return BATON_ERR_PARAMS;
    }
    *id_p = id;
    return BATON_OK;
}

void baton_id_format(baton_id id, char hex[33])
{
    (void)snprintf(hex, 33, "%016" PRIx64 "%016" PRIx64, id.hi, id.lo);
}

/* --- switches --- */

void fake_agent_hold_back(bool hold_back)
{
    fabric.hold_back = hold_back;
}

void fake_agent_refuse_holds(unsigned count)
{
    fabric.refusals = count;
}

size_t fake_agent_holds(void)
{
    size_t count = 0;

    for (size_t i = 0; i < AGENTS_MAX; i++) {
        count += fabric.agents[i] == NULL ? 0 : fabric.agents[i]->hold_count;
    }
    return count;
}

uint64_t fake_agent_told(baton_id id)
{
    uint64_t told = UINT64_MAX;

    for (size_t i = 0; i < AGENTS_MAX; i++) {
        const struct fake_hold *const hold =
            fabric.agents[i] == NULL ? NULL : find_hold(fabric.agents[i], id);

        if (hold != NULL && hold->told < told) {
            told = hold->told;
        }
    }
    return told;
}

void fake_agent_reset(void)
{
    fabric.hold_back = false;
    fabric.refusals = 0;
}
