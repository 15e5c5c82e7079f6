/*
 * JSON of the engines, their ranks and pairs, and of the handoffs.
 */
#include "proxy/admin/admin_view.h"

#include "proxy/agents/agents_core.h"
#include "proxy/agents/peers.h"

#include <jansson.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LIVE_MAX 1000

/* A text of an agent may be no UTF-8, which jansson refuses. */
static json_t *text_of(const char *text)
{
    json_t *const json = text == NULL ? json_null() : json_string(text);

    return json == NULL ? json_string("(not UTF-8)") : json;
}

static json_t *hex_of(uint64_t value)
{
    return json_sprintf("%016" PRIx64, value);
}

static json_t *count_of(uint64_t value)
{
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

/* Sets a member and takes the value over. */
static void put(json_t *object, const char *name, json_t *value)
{
    (void)json_object_set_new(object, name, value);
}

static bool write_json(json_t *root, struct bt_buf *body)
{
    char *const text = json_dumps(root, JSON_INDENT(2));

    json_decref(root);
    if (text == NULL) {
        return false;
    }
    bt_buf_append(body, bt_str_of(text));
    bt_buf_append_char(body, '\n');
    free(text);
    return !body->failed;
}

/* --- engines --- */

static json_t *view_link(const struct agent_link *link, uint64_t now_ms)
{
    json_t *const json = json_object();

    put(json, "engine", text_of(link->hello.engine));
    put(json, "rank", json_integer(link->hello.rank));
    put(json, "world", json_integer(link->hello.world));
    put(json, "role", text_of(agent_role_text(link->hello.role)));
    put(json, "url", text_of(link->hello.url));
    put(json, "boot", hex_of(link->hello.boot));
    put(json, "engine_boot", hex_of(link->hello.engine_boot));
    put(json, "fingerprint", text_of(link->hello.fingerprint));
    put(json, "address", text_of(link->address));
    put(json, "blocks", count_of(link->hello.blocks));
    put(json, "up_ms", count_of(now_ms - link->up_ms));
    put(json, "silent_ms", count_of(now_ms - link->heard_ms));
    return json;
}

static json_t *view_ranks(const struct agent_group *group, uint64_t now_ms)
{
    json_t *const ranks = json_array();

    for (unsigned i = 0; i < HANDOFF_RANKS_MAX; i++) {
        if (group->ranks[i].link != NULL) {
            (void)json_array_append_new(
                ranks, view_link(group->ranks[i].link, now_ms));
        }
    }
    return ranks;
}

static json_t *view_sources(uint64_t sources)
{
    json_t *const ranks = json_array();

    for (unsigned i = 0; i < HANDOFF_RANKS_MAX; i++) {
        if ((sources >> i & 1) != 0) {
            (void)json_array_append_new(ranks, json_integer(i));
        }
    }
    return ranks;
}

/* What the ranks of a D say of each P. */
static json_t *view_peers(const struct agent_group *group)
{
    json_t *const peers = json_array();
    const struct peer *peer;

    for (unsigned i = 0; i < HANDOFF_RANKS_MAX; i++) {
        const struct agent_link *const link = group->ranks[i].link;

        if (link == NULL) {
            continue;
        }
        TAILQ_FOREACH (peer, &link->as_decode, by_decode) {
            json_t *const json = json_object();

            put(json, "prefill", text_of(peer->prefill->url));
            put(json, "prefill_ranks", view_sources(peer->sources));
            put(json, "rank", json_integer(link->hello.rank));
            put(json, "state", text_of(peer_state_text(peer->state)));
            put(json, "provider", text_of(peer->provider));
            put(json, "reason", text_of(peer->reason));
            put(json, "us", json_integer(peer->us));
            (void)json_array_append_new(peers, json);
        }
    }
    return peers;
}

static void view_baton(json_t *json, const struct engine *engine,
                       const struct agent_group *group, uint64_t now_ms)
{
    put(json, "linked", json_boolean(atomic_load(&engine->is_linked)));
    put(json, "boot", hex_of(atomic_load(&engine->boot)));
    put(json, "blocks", count_of(atomic_load(&engine->blocks_total)));
    put(json, "block_tokens", count_of(atomic_load(&engine->block_tokens)));
    put(json, "blocks_free", count_of(atomic_load(&engine->blocks_free)));
    put(json, "held_tokens", count_of(atomic_load(&engine->held_tokens)));
    put(json, "held_handoffs", json_integer(atomic_load(&engine->held_count)));
    put(json, "ranks", view_ranks(group, now_ms));
    if (engine->role == ENGINE_DECODE) {
        put(json, "peers", view_peers(group));
    }
}

static json_t *view_pairs(const struct engine *engine)
{
    const struct side *const side = pool_side(engine->pool, ENGINE_PREFILL);
    json_t *const pairs = json_array();

    for (size_t i = 0; i < side->count; i++) {
        const struct engine *const prefill = side->engines[i];

        if (engine_is_paired(engine, prefill)) {
            (void)json_array_append_new(pairs, text_of(prefill->url.normal));
        }
    }
    return pairs;
}

static json_t *view_engine(const struct admin_sources *sources,
                           const struct engine *engine, uint64_t now_ms)
{
    const struct agent_group *const group =
        agents_group_of(sources->agents, engine);
    const uint64_t failed_ms = atomic_load(&engine->failed_at_ms);
    json_t *const json = json_object();

    put(json, "id", json_integer((json_int_t)engine->id));
    put(json, "url", text_of(engine->url.normal));
    put(json, "pool", json_integer(engine->pool->id));
    put(json, "role", text_of(config_roles[engine->role]));
    put(json, "state", text_of(engine_state_text(engine)));
    put(json, "source",
        text_of(engine->own_conf == NULL ? "configuration" : "admin"));
    put(json, "weight", json_integer(engine->conf->weight));
    put(json, "usable", json_boolean(engine_is_usable(engine)));
    put(json, "failed_since_ms",
        failed_ms == 0 || failed_ms > now_ms ? json_null()
                                             : count_of(now_ms - failed_ms));
    put(json, "in_flight", json_integer(atomic_load(&engine->in_flight)));
    put(json, "pending_tokens", count_of(atomic_load(&engine->pending_tokens)));
    if (group == NULL || engine->pool->conf->connector != CONNECTOR_BATON) {
        return json;
    }
    view_baton(json, engine, group, now_ms);
    if (engine->role == ENGINE_DECODE) {
        put(json, "paired_with", view_pairs(engine));
    }
    return json;
}

bool admin_view_engine(const struct admin_sources *sources,
                       const struct engine *engine, struct bt_buf *body)
{
    return write_json(
        view_engine(sources, engine, bt_loop_now_ms(sources->loop)), body);
}

bool admin_view_engines(const struct admin_sources *sources,
                        struct bt_buf *body)
{
    const uint64_t now_ms = bt_loop_now_ms(sources->loop);
    json_t *const root = json_object();
    json_t *const engines = json_array();
    json_t *const strangers = json_array();
    const struct agent_link *link;
    const struct engine *engine;

    FLEET_FOREACH (engine, sources->fleet) {
        if (atomic_load(&engine->state) != ENGINE_GONE) {
            (void)json_array_append_new(engines,
                                        view_engine(sources, engine, now_ms));
        }
    }
    TAILQ_FOREACH (link, &sources->agents->links, entry) {
        if (link->state == AGENT_LINK_UP && link->group == NULL) {
            (void)json_array_append_new(strangers, view_link(link, now_ms));
        }
    }
    put(root, "boot", hex_of(sources->boot));
    put(root, "engines", engines);
    put(root, "unconfigured", strangers);
    return write_json(root, body);
}

/* --- handoffs --- */

static json_t *bits_of(uint64_t bits)
{
    return json_integer(__builtin_popcountll(bits));
}

/* µs from the handoff's begin; null: it has not happened. */
static json_t *since(const struct handoff *handoff, uint64_t at_us)
{
    return at_us == 0 ? json_null() : count_of(at_us - handoff->begun_us);
}

static json_t *duration_of(uint64_t us)
{
    return us == 0 ? json_null() : count_of(us);
}

static json_t *view_timeline(const struct handoff *handoff)
{
    json_t *const json = json_object();

    put(json, "held_at_us", since(handoff, handoff->held_us));
    put(json, "prefilled_at_us", since(handoff, handoff->prefilled_us));
    put(json, "decode_at_us", since(handoff, handoff->decode_us));
    put(json, "pulling_at_us", since(handoff, handoff->pulling_us));
    put(json, "pulled_at_us", since(handoff, handoff->pulled_us));
    put(json, "release_at_us", since(handoff, handoff->release_us));
    put(json, "ended_at_us", since(handoff, handoff->ended_us));
    put(json, "prefill_us", duration_of(handoff->prefill_us));
    put(json, "wait_us", json_integer(handoff->wait_us));
    put(json, "read_us", json_integer(handoff->read_us));
    put(json, "proof_us", json_integer(handoff->proof_us));
    put(json, "first_token_us", duration_of(handoff->ttft_us));
    return json;
}

static const char *reason_of(const struct handoff *handoff)
{
    static const char *const TEXTS[] = {
        [RELEASE_PULLED] = "pulled",
        [RELEASE_CANCELLED] = "cancelled",
        [RELEASE_FAILED] = "failed",
    };

    return handoff->release_us == 0 ? NULL : TEXTS[handoff->reason];
}

static json_t *view_handoff(const struct handoff *handoff, uint64_t now_us)
{
    const uint64_t until_us =
        handoff->ended_us == 0 ? now_us : handoff->ended_us;
    json_t *const json = json_object();

    put(json, "handoff",
        json_sprintf("%016" PRIx64 "%016" PRIx64, handoff->id.hi,
                     handoff->id.lo));
    put(json, "state", text_of(handoff_state_text(handoff_state(handoff))));
    put(json, "age_ms", count_of((until_us - handoff->begun_us) / 1000));
    put(json, "request", text_of(handoff->request_id));
    put(json, "exchange", hex_of(handoff->exchange));
    put(json, "prefill",
        text_of(handoff->prefill == NULL ? NULL
                                         : handoff->prefill->url.normal));
    put(json, "decode",
        text_of(handoff->decode == NULL ? NULL : handoff->decode->url.normal));
    put(json, "slot", json_integer(handoff->slot));
    put(json, "tokens", count_of(handoff->tokens));
    put(json, "blocks", json_integer(handoff->blocks));
    put(json, "blocks_read", json_integer(handoff->read_blocks));
    put(json, "bytes", count_of(handoff->bytes));
    put(json, "runs", json_integer(handoff->runs));
    put(json, "provider", text_of(handoff->provider));
    put(json, "ranks_held", bits_of(handoff->held & ~handoff->released));
    put(json, "ranks_released", bits_of(handoff->released));
    put(json, "ranks_pulled", bits_of(handoff->pulled));
    put(json, "release", text_of(reason_of(handoff)));
    put(json, "failure",
        text_of(handoff->failure[0] == '\0' ? NULL : handoff->failure));
    put(json, "timeline", view_timeline(handoff));
    return json;
}

bool admin_view_handoffs(const struct handoffs *handoffs, struct bt_buf *body)
{
    const uint64_t now_us = bt_clock_us();
    const struct handoff *handoff = handoffs_first(handoffs);
    json_t *const root = json_object();
    json_t *const live = json_array();
    json_t *const recent = json_array();
    size_t shown = 0;

    for (; handoff != NULL && shown < LIVE_MAX; shown++) {
        (void)json_array_append_new(live, view_handoff(handoff, now_us));
        handoff = handoffs_next(handoff);
    }
    for (size_t i = 0; (handoff = handoffs_recent(handoffs, i)) != NULL; i++) {
        (void)json_array_append_new(recent, view_handoff(handoff, now_us));
    }
    put(root, "live_count", json_integer((json_int_t)handoffs_live(handoffs)));
    put(root, "live", live);
    put(root, "recent", recent);
    return write_json(root, body);
}
