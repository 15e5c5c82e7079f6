/*
 * Ranks and the engines they make up.
 *
 *     NEVER -> LINKED <-> CUT -> DEAD -> GONE
 *                ^--------------------'   (any may be linked again)
 *
 * An engine is linked when all ranks of its world are, with one engine boot.
 * A rank whose link is down stays what it was for agents.dead_ms since its
 * last byte: then its pulls have failed; after the orphan time its holds have
 * ended. Another boot at its place, or a goodbye, says both at once.
 */
#include "common/base/log.h"
#include "proxy/agents/agents_core.h"
#include "proxy/agents/peers.h"

#include <inttypes.h>
#include <stdlib.h>

static struct handoff_place place_of(const struct agent_rank *rank)
{
    return (struct handoff_place){.engines = rank->group->engines,
                                  .engine_count = rank->group->engine_count,
                                  .rank = rank->rank};
}

static void rank_dead(struct agent_rank *rank)
{
    const struct handoff_place place = place_of(rank);
    const struct agents_options *const options = &rank->group->agents->options;

    if (rank->state != AGENT_RANK_CUT) {
        return;
    }
    rank->state = AGENT_RANK_DEAD;
    handoffs_rank_dead(rank->group->agents->handoffs, &place);
    peers_rank_down(rank);
    for (size_t i = 0; i < rank->group->engine_count; i++) {
        options->on_lost(options->owner, rank->group->engines[i]);
    }
}

static void rank_gone(struct agent_rank *rank)
{
    const struct handoff_place place = place_of(rank);

    rank_dead(rank);
    if (rank->state != AGENT_RANK_DEAD) {
        return;
    }
    rank->state = AGENT_RANK_GONE;
    bt_timer_clear(&rank->timer);
    handoffs_rank_gone(rank->group->agents->handoffs, &place);
}

static void on_due(struct bt_timer *timer)
{
    struct agent_rank *const rank =
        bt_container_of(timer, struct agent_rank, timer);
    const uint64_t dead_ms =
        rank->group->agents->options.config->agents.dead_ms;

    if (rank->state == AGENT_RANK_CUT) {
        rank_dead(rank);
        bt_timer_set(timer,
                     dead_ms < AGENT_ORPHAN_MS ? AGENT_ORPHAN_MS - dead_ms : 0);
    } else {
        rank_gone(rank);
    }
}

struct agent_group *agent_group_open(struct agents *agents, unsigned slot,
                                     const char *url)
{
    struct agent_group *group = calloc(1, sizeof(*group));

    if (group == NULL) {
        return NULL;
    }
    group->agents = agents;
    group->slot = slot;
    TAILQ_INIT(&group->as_prefill);
    for (unsigned i = 0; i < HANDOFF_RANKS_MAX; i++) {
        group->ranks[i].group = group;
        group->ranks[i].rank = i;
        bt_timer_init(&group->ranks[i].timer, agents->options.loop, on_due);
    }
    group->url = bt_str_dup(bt_str_of(url));
    group->engines = calloc(1, sizeof(struct engine *));
    if (group->url == NULL || group->engines == NULL) {
        agent_group_close(&group);
    }
    return group;
}

static void destroy(struct bt_grave *grave)
{
    struct agent_group *const group =
        bt_container_of(grave, struct agent_group, grave);

    for (unsigned i = 0; i < HANDOFF_RANKS_MAX; i++) {
        free(group->ranks[i].engine);
    }
    free(group->engines);
    free(group->url);
    free(group);
}

void agent_group_close(struct agent_group **group)
{
    struct agent_group *const dead = *group;

    *group = NULL;
    if (dead == NULL) {
        return;
    }
    for (unsigned i = 0; i < HANDOFF_RANKS_MAX; i++) {
        bt_timer_clear(&dead->ranks[i].timer);
    }
    bt_loop_bury(dead->agents->options.loop, &dead->grave, destroy);
}

void agent_group_end(struct agent_group *group)
{
    for (unsigned i = 0; i < HANDOFF_RANKS_MAX; i++) {
        rank_gone(&group->ranks[i]);
    }
    peers_forget_group(group);
}

/* The boot that all ranks share where the scheduler names their boots. */
static uint64_t boot_by_scheduler(const struct agent_group *group,
                                  unsigned world)
{
    const struct agent_hello *scheduler;

    if (group->scheduler == NULL) {
        /* A lone rank needs nobody to make it one engine. */
        return world == 1 ? group->ranks[0].boot : 0;
    }
    scheduler = &group->scheduler->hello;
    if (scheduler->boot_count != world) {
        return 0;
    }
    for (unsigned i = 0; i < world; i++) {
        if (scheduler->boots[i] != group->ranks[i].boot) {
            return 0;
        }
    }
    return scheduler->engine_boot != 0 ? scheduler->engine_boot
                                       : scheduler->boot;
}

/* The one boot of all linked ranks; 0: they do not make up an engine. */
static uint64_t boot_of(const struct agent_group *group, unsigned *world_p)
{
    const struct agent_link *const first = group->ranks[0].link;
    uint64_t engine_boot;
    unsigned world;

    if (first == NULL) {
        return 0;
    }
    world = first->hello.world;
    engine_boot = first->hello.engine_boot;
    for (unsigned i = 0; i < world; i++) {
        const struct agent_link *const link = group->ranks[i].link;

        if (link == NULL || link->hello.world != world ||
            link->hello.engine_boot != engine_boot || link->is_draining) {
            return 0;
        }
    }
    *world_p = world;
    return engine_boot != 0 ? engine_boot : boot_by_scheduler(group, world);
}

bool agent_group_serves(const struct agent_group *group,
                        const struct engine *engine)
{
    const enum agent_role role =
        engine->role == ENGINE_PREFILL ? AGENT_ROLE_PREFILL : AGENT_ROLE_DECODE;

    if (!group->is_linked) {
        return false;
    }
    for (unsigned i = 0; i < group->world; i++) {
        const struct agent_link *const link = group->ranks[i].link;

        if (link == NULL ||
            (link->hello.role != role && link->hello.role != AGENT_ROLE_BOTH)) {
            return false;
        }
    }
    return true;
}

static uint64_t smallest(const struct agent_group *group,
                         uint64_t (*value_of)(const struct agent_link *link))
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < group->world; i++) {
        const struct agent_link *const link = group->ranks[i].link;
        const uint64_t value = link == NULL ? UINT64_MAX : value_of(link);

        least = value < least ? value : least;
    }
    return least;
}

static uint64_t blocks_of(const struct agent_link *link)
{
    return link->hello.blocks;
}

static uint64_t free_of(const struct agent_link *link)
{
    return link->blocks_free;
}

static void publish_engine(const struct agent_group *group,
                           struct engine *engine)
{
    const bool serves = agent_group_serves(group, engine);
    const bool served = atomic_load(&engine->is_linked);

    if (!serves) {
        atomic_store(&engine->is_linked, false);
        atomic_store(&engine->blocks_free, UINT64_MAX);
    } else {
        atomic_store(&engine->blocks_total, smallest(group, blocks_of));
        atomic_store(&engine->block_tokens,
                     group->ranks[0].link->hello.block_tokens);
        atomic_store(&engine->blocks_free, smallest(group, free_of));
        atomic_store(&engine->boot, group->boot);
        atomic_store(&engine->is_linked, true);
    }
    if (serves && !served) {
        /* Who waits for this engine may look again. */
        group->agents->options.on_room(group->agents->options.owner);
    }
    if (serves != served) {
        bt_log_limited(
            serves || group->agents->is_closing ? BT_LOG_INFO : BT_LOG_WARN,
            group->url, "%s",
            serves ? "linked with all its ranks" : "no longer linked");
    } else if (!serves && group->is_linked) {
        bt_log_limited(BT_LOG_WARN, group->url,
                       "its agents' role is not the one it is configured for");
    }
}

static void group_update(struct agent_group *group)
{
    unsigned world = 0;
    const uint64_t boot = boot_of(group, &world);
    const bool was_linked = group->is_linked;

    group->is_linked = boot != 0;
    if (group->is_linked) {
        group->boot = boot;
        group->world = world;
    }
    for (size_t i = 0; i < group->engine_count; i++) {
        publish_engine(group, group->engines[i]);
    }
    if (group->is_linked != was_linked) {
        peers_group_changed(group);
    }
}

enum bt_status agent_group_add(struct agent_group *group, struct engine *engine)
{
    struct engine **const more =
        reallocarray(group->engines, group->engine_count + 2, sizeof(*more));

    if (more == NULL) {
        return BT_ERR_NOMEM;
    }
    group->engines = more;
    group->engines[group->engine_count++] = engine;
    return BT_OK;
}

void agent_group_joined(struct agent_group *group, struct engine *engine)
{
    publish_engine(group, engine);
    if (group->is_linked) {
        peers_group_changed(group);
    }
}

void agent_group_remove(struct agent_group *group, struct engine *engine)
{
    size_t kept = 0;

    peers_unpair(group->agents, engine);
    for (size_t i = 0; i < group->engine_count; i++) {
        if (group->engines[i] != engine) {
            group->engines[kept++] = group->engines[i];
        }
    }
    group->engine_count = kept;
    peers_unintroduce(group);
}

void agent_group_attach(struct agent_group *group, struct agent_link *link)
{
    struct agent_rank *const rank = &group->ranks[link->hello.rank];
    const struct handoff_place place = place_of(rank);
    char *engine;

    if (!agent_link_is_rank(link)) {
        group->scheduler = link;
        group_update(group);
        return;
    }
    if (rank->boot != link->hello.boot) {
        rank_gone(rank);
    }
    engine = bt_str_dup(bt_str_of(link->hello.engine));
    free(rank->engine);
    rank->engine = engine;
    rank->link = link;
    rank->boot = link->hello.boot;
    rank->state = AGENT_RANK_LINKED;
    bt_timer_clear(&rank->timer);
    handoffs_sync_begin(group->agents->handoffs, &place);
    group_update(group);
}

void agent_group_detach(struct agent_group *group, struct agent_link *link)
{
    struct agents *const agents = group->agents;
    const uint64_t dead_ms = agents->options.config->agents.dead_ms;
    const uint64_t silent_ms =
        bt_loop_now_ms(agents->options.loop) - link->heard_ms;
    struct agent_rank *const rank = &group->ranks[link->hello.rank];

    if (group->scheduler == link) {
        group->scheduler = NULL;
    }
    if (rank->link == link) {
        rank->link = NULL;
        rank->state = AGENT_RANK_CUT;
        if (link->is_draining) {
            rank_gone(rank);
        } else {
            bt_timer_set(&rank->timer,
                         silent_ms < dead_ms ? dead_ms - silent_ms : 0);
        }
    }
    group_update(group);
}

void agent_group_occupancy(struct agent_group *group)
{
    uint64_t now;

    if (!group->is_linked) {
        return;
    }
    now = smallest(group, free_of);
    for (size_t i = 0; i < group->engine_count; i++) {
        struct engine *const engine = group->engines[i];
        const uint64_t before = atomic_exchange(&engine->blocks_free, now);

        if (now > before) {
            group->agents->options.on_room(group->agents->options.owner);
        }
    }
}
