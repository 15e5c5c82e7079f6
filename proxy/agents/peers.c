/*
 * Introductions between ranks of P and D.
 */
#include "proxy/agents/peers.h"

#include "common/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WHOLE UINT32_MAX /* not a rank: the engine */

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

/* --- pairs of engines --- */

static void publish_pair(struct agents *agents, const struct engine *prefill,
                         struct engine *decode)
{
    const struct agent_group *const from = agents_group_of(agents, prefill);
    const struct agent_group *const to = agents_group_of(agents, decode);
    const bool is_ready = from != to && agent_group_serves(from, prefill) &&
                          agent_group_serves(to, decode) &&
                          to->readers[from->slot] == to->world;

    if (engine_is_paired(decode, prefill) == is_ready) {
        return;
    }
    engine_set_paired(decode, prefill, is_ready);
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

/* --- records --- */

static struct peer *peer_of(const struct agent_link *decode,
                            const struct agent_group *prefill)
{
    struct peer *peer;

    TAILQ_FOREACH (peer, &decode->as_decode, by_decode) {
        if (peer->prefill == prefill) {
            break;
        }
    }
    return peer;
}

static struct peer *peer_add(struct agent_group *prefill,
                             struct agent_link *decode)
{
    struct agents *const agents = decode->agents;
    struct peer *const peer =
        agents->peer_count < AGENTS_PEERS_MAX ? calloc(1, sizeof(*peer)) : NULL;

    if (peer == NULL) {
        bt_log_limited(BT_LOG_ERROR, prefill->url,
                       "not introduced to %s: too many pairs", decode->address);
        return NULL;
    }
    peer->prefill = prefill;
    peer->decode = decode;
    TAILQ_INSERT_TAIL(&prefill->as_prefill, peer, by_prefill);
    TAILQ_INSERT_TAIL(&decode->as_decode, peer, by_decode);
    agents->peer_count++;
    return peer;
}

static void queue(struct peer *peer)
{
    if (!peer->is_queued) {
        TAILQ_INSERT_TAIL(&peer->decode->unsent, peer, by_turn);
        peer->is_queued = true;
    }
}

static void unqueue(struct peer *peer)
{
    if (peer->is_queued) {
        TAILQ_REMOVE(&peer->decode->unsent, peer, by_turn);
        peer->is_queued = false;
    }
}

/* The one place where a state changes: readers are counted with it. */
static void enter(struct peer *peer, enum peer_state state)
{
    unsigned char *const readers =
        &peer->decode->group->readers[peer->prefill->slot];

    if (peer->state == PEER_READY) {
        (*readers)--;
    }
    if (state == PEER_READY) {
        (*readers)++;
    }
    peer->state = state;
}

static void peer_remove(struct peer *peer)
{
    enter(peer, PEER_INTRODUCED);
    unqueue(peer);
    TAILQ_REMOVE(&peer->prefill->as_prefill, peer, by_prefill);
    TAILQ_REMOVE(&peer->decode->as_decode, peer, by_decode);
    peer->decode->agents->peer_count--;
    free(peer);
}

/* --- what D is told --- */

static void send_up(const struct peer *peer)
{
    const struct agent_group *const group = peer->prefill;
    const struct agent_hello *const first = &group->ranks[0].link->hello;
    struct bt_buf line;

    link_line_begin(&line, LINK_TYPE_PEER_UP);
    link_line_text(&line, LINK_MEMBER_ENGINE, bt_str_of(first->engine));
    link_line_u64(&line, LINK_MEMBER_DP, first->dp);
    link_line_hex(&line, LINK_MEMBER_BOOT, group->boot);
    link_line_u64(&line, LINK_MEMBER_WORLD, group->world);
    link_line_u64(&line, LINK_MEMBER_TP, first->tp);
    link_line_u64(&line, LINK_MEMBER_PP, first->pp);
    link_line_text(&line, LINK_MEMBER_FINGERPRINT,
                   bt_str_of(first->fingerprint));
    link_line_name(&line, LINK_MEMBER_RANKS);
    for (unsigned i = 0; i < group->world; i++) {
        bt_buf_append(&line, i == 0 ? BT_STR("[{") : BT_STR(",{"));
        link_line_hex(&line, LINK_MEMBER_BOOT, group->ranks[i].boot);
        link_line_name(&line, LINK_MEMBER_SUMMARY);
        bt_buf_append(&line, bt_str_of(group->ranks[i].link->hello.summary));
        bt_buf_append_char(&line, '}');
    }
    bt_buf_append_char(&line, ']');
    agent_link_end_line(peer->decode, &line);
}

/*
 * The next thing that waits; a card's rank is linked with its whole group. An
 * agent that cannot ask for cards is told of its own rank, card and all.
 */
static void send_next(struct peer *peer)
{
    const struct agent_hello *const hello = &peer->decode->hello;
    struct bt_buf line;
    unsigned rank;

    if (peer->is_up_unsent) {
        peer->is_up_unsent = false;
        if (hello->has_want) {
            send_up(peer);
            return;
        }
        peer->sources = UINT64_C(1) << hello->rank;
        peer->unsent = peer->sources;
    }
    rank = (unsigned)__builtin_ctzll(peer->unsent);
    peer->unsent &= peer->unsent - 1;
    link_line_begin(&line,
                    hello->has_want ? LINK_TYPE_CARD : LINK_TYPE_PEER_UP);
    link_line_name(&line, LINK_MEMBER_PEER);
    bt_buf_append(&line,
                  bt_buf_str(&peer->prefill->ranks[rank].link->hello.peer));
    agent_link_end_line(peer->decode, &line);
}

void peers_send(struct agent_link *link)
{
    struct peer *peer;

    while (link->state == AGENT_LINK_UP && link->broken == NULL &&
           bt_stream_unsent(link->stream) <= AGENT_HIGH_WATER &&
           (peer = TAILQ_FIRST(&link->unsent)) != NULL) {
        unqueue(peer);
        if (!peer->prefill->is_linked) {
            continue; /* it is queued again when the group is */
        }
        if (peer->is_up_unsent || peer->unsent != 0) {
            send_next(peer);
        }
        if (peer->unsent != 0) {
            queue(peer);
        }
    }
}

/* --- introducing --- */

static bool may_pair(const struct agent_group *prefill,
                     const struct agent_group *decode)
{
    return prefill->is_linked && decode->is_linked &&
           role_has(prefill->ranks[0].link, AGENT_ROLE_PREFILL) &&
           role_has(decode->ranks[0].link, AGENT_ROLE_DECODE) &&
           groups_pair(prefill, decode);
}

static void introduce_rank(struct agent_group *prefill,
                           struct agent_link *decode)
{
    struct peer *peer = peer_of(decode, prefill);

    if (!decode->hello.has_want && decode->hello.rank >= prefill->world) {
        bt_log_limited(BT_LOG_WARN, decode->hello.url,
                       "rank %u cannot ask for cards, and %s has no such rank: "
                       "not introduced to it",
                       decode->hello.rank, prefill->url);
        return;
    }
    if (peer == NULL) {
        peer = peer_add(prefill, decode);
        if (peer == NULL) {
            return;
        }
        peer->is_up_unsent = true;
    }
    queue(peer);
    peers_send(decode);
}

/* Ranks that know it already get what they lack. */
static void introduce(struct agent_group *prefill, struct agent_group *decode)
{
    if (!may_pair(prefill, decode)) {
        return;
    }
    if (strcmp(prefill->ranks[0].link->hello.fingerprint,
               decode->ranks[0].link->hello.fingerprint) != 0) {
        bt_log_limited(
            BT_LOG_WARN, decode->url,
            "not paired with %s: their fingerprints differ, so do the "
            "bytes of their blocks",
            prefill->url);
        return;
    }
    for (unsigned i = 0; i < decode->world; i++) {
        introduce_rank(prefill, decode->ranks[i].link);
    }
}

void peers_forget(struct agent_link *link)
{
    struct peer *peer = TAILQ_FIRST(&link->as_decode);

    while (peer != NULL) {
        struct peer *const next = TAILQ_NEXT(peer, by_decode);

        peer_remove(peer);
        peer = next;
    }
}

static void say_down(const struct peer *peer, const struct agent_rank *rank)
{
    struct bt_buf line;

    link_line_begin(&line, LINK_TYPE_PEER_DOWN);
    link_line_text(&line, LINK_MEMBER_ENGINE, bt_str_of(rank->engine));
    link_line_u64(&line, LINK_MEMBER_RANK, rank->rank);
    link_line_hex(&line, LINK_MEMBER_BOOT, rank->boot);
    agent_link_end_line(peer->decode, &line);
}

void peers_rank_down(const struct agent_rank *rank)
{
    const uint64_t bit = UINT64_C(1) << rank->rank;
    struct peer *peer;

    TAILQ_FOREACH (peer, &rank->group->as_prefill, by_prefill) {
        if ((peer->sources & bit) != 0 && rank->engine != NULL) {
            say_down(peer, rank);
        }
        if (peer->sources == 0 || (peer->sources & bit) != 0) {
            enter(peer, PEER_INTRODUCED);
            peer->is_up_unsent = true; /* once the group is linked again */
            peer->sources &= ~bit;
            peer->unsent = 0;
        }
    }
}

static void drop_unpaired(struct peer *peer)
{
    const struct agent_group *const prefill = peer->prefill;

    if (groups_pair(prefill, peer->decode->group)) {
        return;
    }
    for (unsigned i = 0; i < prefill->world; i++) {
        if ((peer->sources >> i & 1) != 0 && prefill->ranks[i].engine != NULL) {
            say_down(peer, &prefill->ranks[i]);
        }
    }
    peer_remove(peer);
}

static void drop_unpaired_of(struct agent_link *decode)
{
    struct peer *peer = TAILQ_FIRST(&decode->as_decode);

    while (peer != NULL) {
        struct peer *const next = TAILQ_NEXT(peer, by_decode);

        drop_unpaired(peer);
        peer = next;
    }
}

void peers_unintroduce(struct agent_group *group)
{
    struct peer *peer = TAILQ_FIRST(&group->as_prefill);

    while (peer != NULL) {
        struct peer *const next = TAILQ_NEXT(peer, by_prefill);

        drop_unpaired(peer);
        peer = next;
    }
    for (unsigned i = 0; i < HANDOFF_RANKS_MAX; i++) {
        if (group->ranks[i].link != NULL) {
            drop_unpaired_of(group->ranks[i].link);
        }
    }
}

/* --- what D says --- */

/* D's record of the engine that, or whose rank, has this name and boot. */
static struct peer *find_peer(const struct agent_link *decode,
                              const struct link_message *message, uint32_t rank)
{
    char *const engine =
        link_message_dup(message, LINK_MEMBER_ENGINE, LINK_ENGINE_MAX);
    struct peer *peer = NULL;
    uint64_t boot = 0;

    if (engine == NULL || (rank >= HANDOFF_RANKS_MAX && rank != WHOLE) ||
        !link_message_hex(message, LINK_MEMBER_BOOT, &boot)) {
        free(engine);
        return NULL;
    }
    TAILQ_FOREACH (peer, &decode->as_decode, by_decode) {
        const struct agent_group *const group = peer->prefill;
        const struct agent_rank *const told =
            &group->ranks[rank == WHOLE ? 0 : rank];

        if ((rank == WHOLE ? group->boot : told->boot) == boot &&
            told->engine != NULL && strcmp(told->engine, engine) == 0) {
            break;
        }
    }
    free(engine);
    return peer;
}

/* False: it is no list of ranks of that world. */
static bool read_ranks(const struct link_message *message, unsigned world,
                       uint64_t *ranks_p)
{
    struct bt_json_iter it;
    struct bt_json_value item;
    uint64_t ranks = 0;

    bt_json_iter_array(&it, message->members[LINK_MEMBER_RANKS].text);
    while (bt_json_next_element(&it, &item)) {
        uint64_t rank = 0;

        if (item.type != BT_JSON_NUMBER ||
            bt_json_to_u64(&item, &rank) != BT_OK || rank >= world) {
            return false;
        }
        ranks |= UINT64_C(1) << rank;
    }
    *ranks_p = ranks;
    return bt_json_iter_end(&it) == BT_OK && ranks != 0;
}

bool peers_want(struct agent_link *decode, const struct link_message *message)
{
    struct peer *const peer = find_peer(decode, message, WHOLE);
    uint64_t ranks = 0;

    if (peer == NULL || peer->is_up_unsent ||
        !read_ranks(message, peer->prefill->world, &ranks)) {
        return false;
    }
    enter(peer, PEER_INTRODUCED);
    peer->sources = ranks;
    peer->unsent = ranks;
    peer->ready = 0;
    publish_groups(decode->agents, peer->prefill, decode->group);
    queue(peer);
    peers_send(decode);
    return true;
}

static void take_report(struct peer *peer, const struct link_message *message,
                        const char *rank, bool is_ready)
{
    peer->us = link_message_u32(message, LINK_MEMBER_US, 0);
    bt_str_copy(peer->provider, sizeof(peer->provider),
                link_message_text(message, LINK_MEMBER_PROVIDER));
    bt_str_copy(peer->reason, sizeof(peer->reason),
                link_message_text(message, LINK_MEMBER_REASON));
    bt_log_limited(
        is_ready ? BT_LOG_DEBUG : BT_LOG_WARN, peer->decode->hello.url,
        "rank %u %s %s of %s%s%s", peer->decode->hello.rank,
        is_ready ? "can read from" : "cannot read from", rank,
        peer->prefill->url, peer->reason[0] == '\0' ? "" : ": ", peer->reason);
}

/* The engine as a whole is none that D's rank could read from. */
static bool take_refusal(struct agent_link *decode,
                         const struct link_message *message)
{
    struct peer *const peer = find_peer(decode, message, WHOLE);

    if (peer == NULL) {
        return false;
    }
    take_report(peer, message, "any rank", false);
    enter(peer, PEER_FAILED);
    peer->sources = 0;
    peer->unsent = 0;
    peer->ready = 0;
    publish_groups(decode->agents, peer->prefill, decode->group);
    return true;
}

bool peers_report(struct agent_link *decode, const struct link_message *message,
                  bool is_ready)
{
    const uint32_t rank =
        link_message_u32(message, LINK_MEMBER_RANK, UINT32_MAX);
    struct peer *peer;
    uint64_t bit;
    char text[32];

    if (rank == WHOLE && is_ready) {
        return false;
    }
    if (rank == WHOLE) {
        return take_refusal(decode, message);
    }
    peer = find_peer(decode, message, rank);
    bit = peer == NULL ? 0 : UINT64_C(1) << rank;
    if (peer == NULL || (peer->sources & bit) == 0) {
        return false;
    }
    (void)snprintf(text, sizeof(text), "rank %u", rank);
    take_report(peer, message, text, is_ready);
    peer->ready = is_ready ? peer->ready | bit : peer->ready & ~bit;
    if (!is_ready) {
        enter(peer, PEER_FAILED);
    } else if (peer->ready == peer->sources && !peer->is_up_unsent) {
        enter(peer, PEER_READY);
    }
    publish_groups(decode->agents, peer->prefill, decode->group);
    return true;
}

void peers_forget_group(struct agent_group *group)
{
    struct peer *peer = TAILQ_FIRST(&group->as_prefill);

    while (peer != NULL) {
        struct peer *const next = TAILQ_NEXT(peer, by_prefill);

        peer_remove(peer);
        peer = next;
    }
}

void peers_unpair(struct agents *agents, const struct engine *prefill)
{
    for (size_t i = 0; i < agents->group_count; i++) {
        const struct agent_group *const group = agents->groups[i];

        for (size_t e = 0; group != NULL && e < group->engine_count; e++) {
            engine_set_paired(group->engines[e], prefill, false);
        }
    }
}

void peers_group_changed(struct agent_group *group)
{
    struct agents *const agents = group->agents;

    for (size_t i = 0; i < agents->group_count; i++) {
        struct agent_group *const other = agents->groups[i];

        if (other == NULL) {
            continue;
        }
        introduce(group, other);
        introduce(other, group);
        publish_groups(agents, group, other);
        publish_groups(agents, other, group);
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
