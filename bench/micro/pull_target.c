/*
 * The process that is read from: two agents and a raw endpoint over one
 * memory, one hold for each order.
 */
#include "bench/micro/pull_case.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEASE_MS 3600000u

struct target {
    struct pull_sheet *sheet;
    void *memory;
    baton_agent *agents[PULL_PROVIDERS];
    struct raw_fabric *raw;
};

static bool complain(struct target *target, const char *what,
                     baton_status status)
{
    (void)snprintf(target->sheet->why, sizeof(target->sheet->why), "%s: %s",
                   what, baton_status_text(status));
    return false;
}

static void fill_memory(const struct target *target)
{
    uint64_t *words = target->memory;
    const size_t count =
        PULL_POOL * target->sheet->block_bytes / sizeof(*words);

    for (size_t i = 0; i < count; i++) {
        words[i] = pull_word(i * sizeof(*words));
    }
}

static bool hold(struct target *target, enum pull_provider provider,
                 enum pull_order order)
{
    baton_agent *agent = target->agents[provider];
    struct pull_text *params = &target->sheet->params[provider][order];
    const struct pull_text *card = &target->sheet->cards[provider];
    const baton_bytes info = {card->text, card->length};
    const uint64_t tokens = (uint64_t)PULL_BLOCKS * PULL_BLOCK_TOKENS;
    uint32_t ids[PULL_BLOCKS];
    const baton_blocks blocks = {ids, PULL_BLOCKS};
    const baton_progress progress = {
        .size = sizeof(progress),
        .handoff = pull_handoff(order),
        .groups = &blocks,
        .group_count = 1,
        .tokens = tokens,
        .lease_ms = LEASE_MS,
    };
    const baton_params written = {
        .size = sizeof(written),
        .infos = &info,
        .info_count = 1,
        .handoff = pull_handoff(order),
        .groups = &blocks,
        .group_count = 1,
        .tokens = tokens,
        .slot = (uint32_t)order,
    };
    baton_status status;

    pull_ids(order, true, ids);
    status = baton_hold_open(agent, pull_handoff(order), (uint32_t)order, 0);
    if (status == BATON_OK) {
        status = baton_hold_ready(agent, &progress);
    }
    if (status == BATON_OK) {
        status = baton_params_write(&written, params->text,
                                    sizeof(params->text), &params->length);
    }
    return status == BATON_OK || complain(target, "hold", status);
}

static bool open_agent(struct target *target, enum pull_provider provider)
{
    struct pull_sheet *sheet = target->sheet;
    struct pull_text *card = &sheet->cards[provider];
    baton_status status;

    target->agents[provider] = pull_agent(provider, true, target->memory,
                                          sheet->block_bytes, sheet->why);
    if (target->agents[provider] == NULL) {
        return false;
    }
    status = baton_agent_info(target->agents[provider], card->text,
                              sizeof(card->text), &card->length);
    if (status != BATON_OK) {
        return complain(target, "card", status);
    }
    return hold(target, provider, PULL_CONTIGUOUS) &&
           hold(target, provider, PULL_SCATTERED);
}

static bool open_raw(struct target *target)
{
    struct pull_sheet *sheet = target->sheet;
    const char *why = "no address";

    target->raw =
        raw_fabric_open(target->memory, PULL_POOL * sheet->block_bytes, &why);
    if (target->raw == NULL || !raw_fabric_address(target->raw, &sheet->raw)) {
        (void)snprintf(sheet->why, sizeof(sheet->why), "raw endpoint: %s", why);
        return false;
    }
    return true;
}

static bool open_target(struct target *target)
{
    struct pull_sheet *sheet = target->sheet;

    target->memory = pull_memory(sheet->block_bytes);
    if (target->memory == NULL) {
        (void)snprintf(sheet->why, sizeof(sheet->why), "out of memory");
        return false;
    }
    fill_memory(target);
    sheet->pid = getpid();
    sheet->memory_at = (uint64_t)(uintptr_t)target->memory;
    return open_raw(target) && open_agent(target, PULL_TCP) &&
           open_agent(target, PULL_CMA);
}

void pull_target(struct pull_sheet *sheet, int fd)
{
    struct target target = {.sheet = sheet};
    const char ready = 'r';

    sheet->is_ready = open_target(&target);
    if (write(fd, &ready, 1) == 1 && sheet->is_ready) {
        raw_fabric_serve(target.raw, fd);
    }
    for (size_t i = 0; i < PULL_PROVIDERS; i++) {
        baton_agent_close(target.agents[i]);
    }
    if (target.raw != NULL) {
        raw_fabric_close(target.raw);
    }
    if (target.memory != NULL) {
        (void)munmap(target.memory, PULL_POOL * sheet->block_bytes);
    }
}
