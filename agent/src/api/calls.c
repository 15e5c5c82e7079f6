/*
 * The public calls: each reads what the host gives, asks whether the agent may
 * do it now, and hands it on.
 */
#include "agent/src/api/internal.h"
#include "agent/src/base/sized.h"

#define INFO_MAX   (16 * BT_MIB)
#define POLL_BATCH 8

/* Of host memory, which needs no event: what a device would wait for. */
static baton_status without_event(const struct baton_agent *agent,
                                  const char *call, const void *event)
{
    if (event == NULL) {
        return BATON_OK;
    }
    bta_log_write(&agent->log, BTA_ERROR,
                  "%s: an event is given, but all regions are host memory, "
                  "whose event is NULL",
                  call);
    return BATON_ERR_UNSUPPORTED;
}

/* --- before the start --- */

baton_status baton_region_add(baton_agent *agent, const baton_region *region,
                              uint32_t *region_p)
{
    baton_region own = {.size = sizeof(own)};
    baton_layout layout = {.size = sizeof(layout)};
    const char *why = "";
    baton_status status;

    if (agent == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (agent->is_started || agent->options.role == BATON_ROLE_SCHEDULER) {
        return BATON_ERR_STATE;
    }
    status = bta_sized_read(&own, region);
    if (status == BATON_OK) {
        status = bta_sized_read(&layout, own.layout);
    }
    if (status != BATON_OK) {
        return status;
    }
    if (own.memory != BATON_MEMORY_HOST) {
        bta_log_write(&agent->log, BTA_ERROR,
                      "a region is not in host memory, the only one that this "
                      "build reads");
        return BATON_ERR_UNSUPPORTED;
    }
    own.layout = &layout;
    status = bta_regions_add(&agent->regions, &own, &why);
    if (status == BATON_ERR_ARGUMENT || status == BATON_ERR_UNSUPPORTED) {
        bta_log_write(&agent->log, BTA_ERROR, "region of group %u layer %u: %s",
                      layout.group, layout.layer, why);
    }
    if (status == BATON_OK && region_p != NULL) {
        *region_p = (uint32_t)agent->regions.count - 1;
    }
    return status;
}

/* --- calls --- */

static bool can_hold(const baton_agent *agent)
{
    return agent->is_started && (agent->options.role == BATON_ROLE_PREFILL ||
                                 agent->options.role == BATON_ROLE_BOTH);
}

static bool can_pull(const baton_agent *agent)
{
    return agent->is_started && (agent->options.role == BATON_ROLE_DECODE ||
                                 agent->options.role == BATON_ROLE_BOTH);
}

/* What changed is the native thread's to see, and to tell. */
static baton_status told(baton_agent *agent, baton_status status)
{
    if (status == BATON_OK) {
        bta_reactor_wake(agent->reactor);
    }
    return status;
}

baton_status baton_agent_info(baton_agent *agent, char *text, size_t cap,
                              size_t *length_p)
{
    struct bt_str hello;

    if (agent == NULL || length_p == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (!agent->is_started) {
        return BATON_ERR_STATE;
    }
    hello = bt_buf_str(&agent->hello);
    *length_p = hello.len + 2;
    if (text == NULL || cap < hello.len + 2) {
        return BATON_ERR_SPACE;
    }
    text[0] = '{';
    memcpy(text + 1, hello.ptr, hello.len);
    text[hello.len + 1] = '}';
    return BATON_OK;
}

baton_status baton_peer_add(baton_agent *agent, baton_bytes info)
{
    struct bta_card card;
    const char *why = "";
    baton_status status;

    if (agent == NULL || info.data == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (!agent->is_started) {
        return BATON_ERR_STATE;
    }
    if (info.length > INFO_MAX) {
        return BATON_ERR_PARAMS;
    }
    status = bta_card_read(&card, bt_str_span(info.data, info.length), &why);
    if (status == BATON_ERR_PARAMS) {
        bta_log_write(&agent->log, BTA_WARN, "a peer's info: %s", why);
    }
    if (status == BATON_OK && !bta_inbox_add(&agent->inbox, &card)) {
        status = BATON_ERR_MEMORY;
    }
    if (status != BATON_OK) {
        bta_card_fini(&card);
        return status;
    }
    bta_reactor_wake(agent->reactor);
    return BATON_OK;
}

baton_status baton_peer_remove(baton_agent *agent, const char *engine,
                               uint32_t rank)
{
    if (agent == NULL || engine == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (!agent->is_started) {
        return BATON_ERR_STATE;
    }
    if (!bta_inbox_remove(&agent->inbox, engine, rank)) {
        return BATON_ERR_MEMORY;
    }
    bta_reactor_wake(agent->reactor);
    return BATON_OK;
}

baton_status baton_blocks_free(baton_agent *agent, uint64_t blocks)
{
    if (agent == NULL || blocks == UINT64_MAX) {
        return BATON_ERR_ARGUMENT;
    }
    if (!agent->is_started) {
        return BATON_ERR_STATE;
    }
    if (atomic_exchange(&agent->blocks_free, blocks) != blocks &&
        agent->options.proxy_count > 0) {
        bta_reactor_wake(agent->reactor);
    }
    return BATON_OK;
}

baton_status baton_hold_open(baton_agent *agent, baton_id handoff,
                             uint32_t slot, uint64_t owner)
{
    if (agent == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    return can_hold(agent) ? bta_hold_open(&agent->holds, handoff, slot, owner)
                           : BATON_ERR_STATE;
}

static size_t blocks_count(const baton_blocks *groups, size_t group_count)
{
    size_t count = 0;

    for (size_t i = 0; i < group_count; i++) {
        count += groups[i].count;
    }
    return count;
}

static void digests_fill(const baton_agent *agent, const baton_blocks *groups,
                         size_t group_count, uint64_t *digests)
{
    for (size_t group = 0; group < group_count; group++) {
        for (size_t i = 0; i < groups[group].count; i++) {
            digests[i] = bta_regions_digest(&agent->regions, (uint32_t)group,
                                            groups[group].ids[i]);
        }
        digests += groups[group].count;
    }
}

/* May the agent hold now, and are the blocks ours? Reads it. */
static baton_status progress_read(const baton_agent *agent, const char *call,
                                  const baton_progress *given,
                                  baton_progress *progress_p)
{
    baton_progress progress = {.size = sizeof(progress)};
    baton_status status;

    if (agent == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (!can_hold(agent)) {
        return BATON_ERR_STATE;
    }
    status = bta_sized_read(&progress, given);
    if (status == BATON_OK) {
        status = without_event(agent, call, progress.event);
    }
    if (status == BATON_OK && progress.flags != 0) {
        status = BATON_ERR_UNSUPPORTED;
    }
    if (status == BATON_OK &&
        !bta_blocks_valid(&agent->regions, progress.groups,
                          progress.group_count)) {
        status = BATON_ERR_ARGUMENT;
    }
    *progress_p = progress;
    return status;
}

baton_status baton_hold_progress(baton_agent *agent,
                                 const baton_progress *progress)
{
    baton_progress own;
    const baton_status status =
        progress_read(agent, "baton_hold_progress", progress, &own);

    return status == BATON_OK ? bta_hold_progress(&agent->holds, &own) : status;
}

baton_status baton_hold_ready(baton_agent *agent,
                              const baton_progress *progress)
{
    baton_progress own;
    const baton_status status =
        progress_read(agent, "baton_hold_ready", progress, &own);

    if (status != BATON_OK) {
        return status;
    }
    if (own.digests != NULL && agent->options.checksum == 0) {
        return BATON_ERR_STATE;
    }
    if (own.digests != NULL) {
        if (blocks_count(own.groups, own.group_count) != own.digest_count) {
            return BATON_ERR_ARGUMENT;
        }
        digests_fill(agent, own.groups, own.group_count, own.digests);
    }
    return told(agent, bta_hold_ready(&agent->holds, &own));
}

baton_status baton_hold_break(baton_agent *agent, baton_id handoff)
{
    if (agent == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    return can_hold(agent) ? told(agent, bta_hold_break(&agent->holds, handoff))
                           : BATON_ERR_STATE;
}

baton_status baton_hold_release(baton_agent *agent, baton_id handoff)
{
    if (agent == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    return can_hold(agent)
               ? told(agent, bta_hold_release(&agent->holds, handoff))
               : BATON_ERR_STATE;
}

baton_status baton_blocks_reused(baton_agent *agent, uint32_t group,
                                 const uint32_t *ids, size_t count)
{
    baton_status status;
    bool ended = false;

    if (agent == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (!can_hold(agent)) {
        return BATON_ERR_STATE;
    }
    status = bta_holds_reused(&agent->holds, group, ids, count, &ended);
    if (ended) {
        bta_reactor_wake(agent->reactor);
    }
    return status;
}

baton_status baton_pull(baton_agent *agent, const baton_pull_request *request)
{
    baton_pull_request own = {.size = sizeof(own)};
    baton_status status;

    if (agent == NULL || request == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    if (!can_pull(agent)) {
        return BATON_ERR_STATE;
    }
    status = bta_sized_read(&own, request);
    if (status == BATON_OK) {
        status = without_event(agent, "baton_pull", own.event);
    }
    return status == BATON_OK
               ? told(agent, bta_pulls_submit(agent->pulls, &own))
               : status;
}

baton_status baton_cancel(baton_agent *agent, uint64_t tag)
{
    if (agent == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    return can_pull(agent) ? told(agent, bta_pulls_cancel(agent->pulls, tag))
                           : BATON_ERR_STATE;
}

size_t baton_poll_sized(baton_agent *agent, baton_event *events, size_t size,
                        size_t max)
{
    baton_event batch[POLL_BATCH];
    size_t count = 0;
    size_t got = 1;

    if (agent == NULL || events == NULL || size < sizeof(size_t)) {
        return 0;
    }
    while (got > 0 && count < max) {
        const size_t room = max - count;
        got = bta_events_take(&agent->events, batch,
                              room < POLL_BATCH ? room : POLL_BATCH);
        for (size_t i = 0; i < got; i++) {
            char *const out = (char *)events + (count + i) * size;
            batch[i].size = sizeof(*batch);
            bta_sized_write(out, size, &batch[i]);
            memcpy(out, &size, sizeof(size));
        }
        count += got;
    }
    return count;
}

int baton_agent_fd(const baton_agent *agent)
{
    return agent == NULL ? -1 : agent->events.fd;
}

baton_status baton_agent_stats(baton_agent *agent, baton_stats *stats_p)
{
    baton_stats stats = {.size = sizeof(stats)};

    if (agent == NULL || stats_p == NULL || stats_p->size < sizeof(size_t)) {
        return BATON_ERR_ARGUMENT;
    }
    stats.boot = agent->boot;
    if (agent->is_started) {
        bta_holds_stats(&agent->holds, &stats);
        bta_pulls_stats(agent->pulls, &stats);
        stats.peers_ready = atomic_load(&agent->peers->ready_count);
        stats.links_up = atomic_load(&agent->links_up);
    }
    bta_sized_write(stats_p, stats_p->size, &stats);
    return BATON_OK;
}
