/*
 * Introductions between ranks of P and D.
 */
#include "proxy/agents/peers.h"

#include "common/base/log.h"
#include "common/json/json_write.h"

#include <inttypes.h>
#include <stdlib.h>

static bool role_has(const struct agent_link *link, enum agent_role role)
{
    return link->hello.role == role || link->hello.role == AGENT_ROLE_BOTH;
}

/* Does this group decode in that pool? */
static bool decodes_in(const struct agent_group *group, const struct pool *pool)
{
    for (size_t i = 0; i < group->engine_count; i++) {
        if (group->engines[i]->role == ENGINE_DECODE &&
            group->engines[i]->pool == pool) {
            return true;
        }
    }
    return false;
}

/* Is there a pool in which `a` prefills for `b`? */
static bool groups_pair(const struct agent_group *a,
                        const struct agent_group *b)
{
    if (a == b) {
        return false;
    }
    for (size_t i = 0; i < a->engine_count; i++) {
        const struct engine *const engine = a->engines[i];

        if (engine->role == ENGINE_PREFILL &&
            engine->pool->conf->connector == CONNECTOR_BATON &&
            decodes_in(b, engine->pool)) {
            return true;
        }
    }
    return false;
}

static bool links_pair(const struct agent_link *prefill,
                       const struct agent_link *decode)
{
    return role_has(prefill, AGENT_ROLE_PREFILL) &&
           role_has(decode, AGENT_ROLE_DECODE) &&
           groups_pair(prefill->group, decode->group);
}

static void peer_add(struct agents *agents, struct agent_link *prefill,
                     struct agent_link *decode)
{
    struct peer *const peer =
        agents->peer_count < AGENTS_PEERS_MAX ? calloc(1, sizeof(*peer)) : NULL;

    if (peer == NULL) {
        bt_log_limited(BT_LOG_ERROR, prefill->address,
                       "not introduced to %s: too many pairs", decode->address);
        return;
    }
    peer->prefill = prefill;
    peer->decode = decode;
    peer->is_unsent = true;
    TAILQ_INSERT_TAIL(&prefill->as_prefill, peer, by_prefill);
    TAILQ_INSERT_TAIL(&decode->as_decode, peer, by_decode);
    TAILQ_INSERT_TAIL(&decode->unsent, peer, by_turn);
    agents->peer_count++;
}

static void peer_sent(struct peer *peer)
{
    if (peer->is_unsent) {
        TAILQ_REMOVE(&peer->decode->unsent, peer, by_turn);
        peer->is_unsent = false;
    }
}

static void peer_remove(struct agents *agents, struct peer *peer)
{
    peer_sent(peer);
    TAILQ_REMOVE(&peer->prefill->as_prefill, peer, by_prefill);
    TAILQ_REMOVE(&peer->decode->as_decode, peer, by_decode);
    agents->peer_count--;
    free(peer);
}

void peers_send(struct agent_link *link)
{
    struct peer *peer;

    while (link->state == AGENT_LINK_UP && link->broken == NULL &&
           bt_stream_unsent(link->stream) <= AGENT_HIGH_WATER &&
           (peer = TAILQ_FIRST(&link->unsent)) != NULL) {
        peer_sent(peer);
        agent_link_printf(link, "{\"t\":\"peer_up\",\"peer\":%.*s}",
                          BT_STR_ARG(bt_buf_str(&peer->prefill->hello.peer)));
    }
}

static void introduce(struct agents *agents, struct agent_link *prefill,
                      struct agent_link *decode)
{
    if (!links_pair(prefill, decode)) {
        return;
    }
    if (strcmp(prefill->hello.fingerprint, decode->hello.fingerprint) != 0) {
        bt_log_limited(
            BT_LOG_WARN, decode->group->url,
            "not paired with %s: their fingerprints differ, so do the "
            "bytes of their blocks",
            prefill->group->url);
        return;
    }
    peer_add(agents, prefill, decode);
    peers_send(decode);
}

void peers_introduce(struct agents *agents, struct agent_link *link)
{
    if (link->group == NULL || !agent_link_is_rank(link)) {
        return;
    }
    for (size_t i = 0; i < agents->group_count; i++) {
        const struct agent_group *const group = &agents->groups[i];
        struct agent_link *const other = group->ranks[link->hello.rank].link;

        if (group != link->group && other != NULL) {
            introduce(agents, link, other);
            introduce(agents, other, link);
        }
    }
}

void peers_forget(struct agents *agents, struct agent_link *link)
{
    struct peer *next;

    for (struct peer *peer = TAILQ_FIRST(&link->as_prefill); peer != NULL;
         peer = next) {
        next = TAILQ_NEXT(peer, by_prefill);
        peer_remove(agents, peer);
    }
    for (struct peer *peer = TAILQ_FIRST(&link->as_decode); peer != NULL;
         peer = next) {
        next = TAILQ_NEXT(peer, by_decode);
        peer_remove(agents, peer);
    }
}

void peers_rank_down(struct agents *agents, const struct agent_rank *rank)
{
    struct bt_buf line;

    if (rank->engine == NULL) {
        return;
    }
    bt_buf_init(&line);
    bt_buf_append(&line, BT_STR("{\"t\":\"peer_down\",\"engine\":"));
    bt_buf_append_json(&line, bt_str_of(rank->engine));
    bt_buf_printf(&line, ",\"rank\":%u,\"boot\":\"%016" PRIx64 "\"}",
                  rank->rank, rank->boot);
    for (size_t i = 0; i < agents->group_count && !line.failed; i++) {
        struct agent_group *const group = &agents->groups[i];
        struct agent_link *const reader = group->ranks[rank->rank].link;

        if (reader != NULL && groups_pair(rank->group, group)) {
            agent_link_send(reader, bt_buf_str(&line));
        }
    }
    bt_buf_fini(&line);
}

static struct peer *find_peer(struct agent_link *decode, const char *engine,
                              uint32_t rank, uint64_t boot)
{
    struct peer *peer;

    TAILQ_FOREACH (peer, &decode->as_decode, by_decode) {
        if (peer->prefill->hello.boot == boot &&
            peer->prefill->hello.rank == rank &&
            strcmp(peer->prefill->hello.engine, engine) == 0) {
            break;
        }
    }
    return peer;
}

static void take_report(struct peer *peer, const struct agent_message *message,
                        bool is_ready)
{
    peer->state = is_ready ? PEER_READY : PEER_FAILED;
    peer->us = agent_message_u32(message, AGENT_MEMBER_US, 0);
    bt_str_copy(peer->provider, sizeof(peer->provider),
                agent_message_text(message, AGENT_MEMBER_PROVIDER));
    bt_str_copy(peer->reason, sizeof(peer->reason),
                agent_message_text(message, AGENT_MEMBER_REASON));
    bt_log_limited(is_ready ? BT_LOG_DEBUG : BT_LOG_WARN,
                   peer->decode->hello.url, "rank %u %s rank %u of %s%s%s",
                   peer->decode->hello.rank,
                   is_ready ? "can read from" : "cannot read from",
                   peer->prefill->hello.rank, peer->prefill->hello.url,
                   peer->reason[0] == '\0' ? "" : ": ", peer->reason);
}

static bool link_can_read(const struct agent_link *decode,
                          const struct agent_link *prefill)
{
    const struct peer *peer;

    TAILQ_FOREACH (peer, &decode->as_decode, by_decode) {
        if (peer->prefill == prefill) {
            return peer->state == PEER_READY;
        }
    }
    return false;
}

/* Can every rank of D read from the rank of P that is its source? */
static bool group_can_read(const struct agent_group *decode,
                           const struct agent_group *prefill)
{
    if (!decode->is_linked || !prefill->is_linked ||
        decode->world != prefill->world) {
        return false;
    }
    for (unsigned i = 0; i < decode->world; i++) {
        if (decode->ranks[i].link == NULL || prefill->ranks[i].link == NULL ||
            !link_can_read(decode->ranks[i].link, prefill->ranks[i].link)) {
            return false;
        }
    }
    return true;
}

static void publish_pair(struct agents *agents, const struct engine *prefill,
                         struct engine *decode)
{
    const struct agent_group *const from = agents->by_engine[prefill->id];
    const struct agent_group *const to = agents->by_engine[decode->id];
    const bool is_ready = from != to && agent_group_serves(from, prefill) &&
                          agent_group_serves(to, decode) &&
                          group_can_read(to, from);

    if (decode->pair_ready == NULL ||
        atomic_load(&decode->pair_ready[prefill->id]) == is_ready) {
        return;
    }
    atomic_store(&decode->pair_ready[prefill->id], is_ready);
    if (is_ready) {
        agents->options.on_room(agents->options.owner);
    }
    bt_log_limited(BT_LOG_INFO, decode->url.normal, "%s %s",
                   is_ready ? "is paired with" : "is no longer paired with",
                   prefill->url.normal);
}

/* All pairs of one P with the engines of a group. */
static void publish_engine(struct agents *agents, const struct engine *prefill,
                           const struct agent_group *decode)
{
    for (size_t i = 0; i < decode->engine_count; i++) {
        struct engine *const to = decode->engines[i];

        if (to->role == ENGINE_DECODE && to->pool == prefill->pool) {
            publish_pair(agents, prefill, to);
        }
    }
}

static void publish_groups(struct agents *agents,
                           const struct agent_group *prefill,
                           const struct agent_group *decode)
{
    for (size_t i = 0; i < prefill->engine_count; i++) {
        const struct engine *const from = prefill->engines[i];

        if (from->role == ENGINE_PREFILL &&
            from->pool->conf->connector == CONNECTOR_BATON) {
            publish_engine(agents, from, decode);
        }
    }
}

bool peers_report(struct agents *agents, struct agent_link *decode,
                  const struct agent_message *message, bool is_ready)
{
    char *const engine = agent_message_dup(message, AGENT_MEMBER_ENGINE, 255);
    struct peer *peer = NULL;
    uint64_t boot = 0;

    if (engine != NULL &&
        agent_message_hex(message, AGENT_MEMBER_BOOT, &boot)) {
        peer = find_peer(
            decode, engine,
            agent_message_u32(message, AGENT_MEMBER_RANK, UINT32_MAX), boot);
    }
    free(engine);
    if (peer == NULL) {
        return false;
    }
    take_report(peer, message, is_ready);
    publish_groups(agents, peer->prefill->group, decode->group);
    return true;
}

void peers_publish(struct agents *agents, const struct agent_group *group)
{
    for (size_t i = 0; i < agents->group_count; i++) {
        publish_groups(agents, group, &agents->groups[i]);
        publish_groups(agents, &agents->groups[i], group);
    }
}

const char *peer_state_text(enum peer_state state)
{
    static const char *const TEXTS[] = {
        [PEER_INTRODUCED] = "introduced",
        [PEER_READY] = "ready",
        [PEER_FAILED] = "failed",
    };

    return TEXTS[state];
}
