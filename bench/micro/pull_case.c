/*
 * What both sides of a case agree on without a word.
 */
#include "bench/micro/pull_case.h"

#include "common/base/random.h"

#include <stdio.h>
#include <sys/mman.h>

const char *pull_provider_name(enum pull_provider provider)
{
    switch (provider) {
    case PULL_TCP:
        return "tcp";
    case PULL_CMA:
        return "cma";
    }
    return "";
}

const char *pull_order_name(enum pull_order order)
{
    switch (order) {
    case PULL_CONTIGUOUS:
        return "contiguous";
    case PULL_SCATTERED:
        return "scattered";
    }
    return "";
}

baton_id pull_handoff(enum pull_order order)
{
    return (baton_id){.hi = 1, .lo = 100 + (uint64_t)order};
}

void pull_ids(enum pull_order order, bool is_target, uint32_t ids[PULL_BLOCKS])
{
    struct bt_random random;

    for (uint32_t i = 0; i < PULL_BLOCKS; i++) {
        ids[i] = order == PULL_CONTIGUOUS ? i : 2 * i;
    }
    if (order == PULL_CONTIGUOUS) {
        return;
    }
    bt_random_init(&random, 1, is_target ? 1 : 2);
    for (uint32_t i = PULL_BLOCKS - 1; i > 0; i--) {
        const uint32_t j = bt_random_below(&random, i + 1);
        const uint32_t id = ids[i];
        ids[i] = ids[j];
        ids[j] = id;
    }
}

uint64_t pull_word(uint64_t offset)
{
    return (offset + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

void *pull_memory(size_t block_bytes)
{
    void *memory = mmap(NULL, PULL_POOL * block_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static baton_status add_region(baton_agent *agent, void *memory,
                               size_t block_bytes)
{
    const baton_layout layout = {
        .size = sizeof(layout),
        .kind = BATON_KIND_KV,
        .heads = 1,
        .block_tokens = PULL_BLOCK_TOKENS,
        .token_bytes = (uint32_t)(block_bytes / PULL_BLOCK_TOKENS),
        .blocks = PULL_POOL,
    };
    const baton_region region = {
        .size = sizeof(region),
        .base = memory,
        .length = PULL_POOL * block_bytes,
        .layout = &layout,
    };

    return baton_region_add(agent, &region, NULL);
}

baton_agent *pull_agent(enum pull_provider provider, bool is_target,
                        void *memory, size_t block_bytes, char why[160])
{
    baton_options options = baton_options_preset();
    baton_agent *agent = NULL;
    baton_status status;

    options.role = is_target ? BATON_ROLE_PREFILL : BATON_ROLE_DECODE;
    options.engine = is_target ? "pull-target" : "pull-reader";
    options.engine_boot = is_target ? 1 : 2;
    options.url = "http://127.0.0.1:1";
    options.provider = pull_provider_name(provider);
    options.fabric_address = "127.0.0.1";
    options.fingerprint = "micro_pull";
    options.pull_timeout_ms = 60000;
    status = baton_agent_open(&options, &agent);
    if (status == BATON_OK) {
        status = add_region(agent, memory, block_bytes);
    }
    if (status == BATON_OK) {
        status = baton_agent_start(agent);
    }
    if (status != BATON_OK) {
        (void)snprintf(why, 160, "agent over %s: %s",
                       pull_provider_name(provider), baton_status_text(status));
        baton_agent_close(agent);
        return NULL;
    }
    return agent;
}
