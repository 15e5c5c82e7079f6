/*
 * route: turns over a list of candidates, and the admission rule of connector
 * baton.
 */
#include "proxy/fleet/route.h"

enum candidate {
    CANDIDATE_NO,   /* avoided, or not usable while others are */
    CANDIDATE_FULL, /* usable, no room now */
    CANDIDATE_YES,
};

/* One side of a pool being searched. */
struct search {
    const struct route_ask *ask;
    const struct side *side;
    enum engine_role role;
};

static uint64_t load_of(const atomic_ullong *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static bool is_avoided(const struct route_ask *ask, const struct engine *engine)
{
    for (size_t i = 0; i < ask->avoid_count; i++) {
        if (ask->avoid[i] == engine->place) {
            return true;
        }
    }
    return false;
}

/* A P leg starts while at most half of P's blocks would be held. */
static bool prefill_has_room(const struct engine *engine, uint64_t tokens)
{
    const uint64_t total =
        load_of(&engine->blocks_total) * load_of(&engine->block_tokens);
    const uint64_t held =
        load_of(&engine->held_tokens) + load_of(&engine->pending_tokens);

    return total == 0 || held == 0 || held + tokens <= total / 2;
}

static bool decode_has_room(const struct engine *engine, uint64_t tokens)
{
    const uint64_t free_blocks = load_of(&engine->blocks_free);
    const uint64_t block = load_of(&engine->block_tokens);

    if (free_blocks == UINT64_MAX || block == 0) {
        return true;
    }
    return free_blocks * block >= tokens ||
           atomic_load_explicit(&engine->in_flight, memory_order_relaxed) == 0;
}

static bool has_room(const struct search *search, const struct engine *engine)
{
    const int64_t limit = engine->conf->max_in_flight;
    const unsigned in_flight =
        atomic_load_explicit(&engine->in_flight, memory_order_relaxed);

    if (limit > 0 && in_flight >= limit) {
        return false;
    }
    if (search->ask->pool->conf->connector != CONNECTOR_BATON ||
        !search->ask->wants_prefill) {
        return true;
    }
    return search->role == ENGINE_PREFILL
               ? prefill_has_room(engine, search->ask->tokens)
               : decode_has_room(engine, search->ask->tokens);
}

static bool is_paired(const struct engine *prefill, const struct engine *decode)
{
    if (prefill == NULL) {
        return true;
    }
    if (prefill->place == decode->place) {
        return false; /* no engine hands over to itself */
    }
    if (prefill->pool->conf->connector != CONNECTOR_BATON) {
        return true;
    }
    return engine_is_paired(decode, prefill);
}

/* Failed, but there is something to be tried. */
static bool may_be_tried(const struct engine *engine)
{
    return engine_is_introduced(engine) && engine_addrs(engine) != NULL &&
           atomic_load_explicit(&engine->state, memory_order_relaxed) ==
               ENGINE_UP &&
           load_of(&engine->failed_at_ms) != 0;
}

/*
 * Is there a D for this P? With no usable one left, a failed one counts: that
 * is where the request will be tried.
 */
static bool has_pair(const struct search *search, const struct engine *prefill)
{
    const struct side *const side = pool_side(search->ask->pool, ENGINE_DECODE);
    bool has_usable = false;
    bool has_failed = false;

    for (size_t i = 0; i < side->count; i++) {
        const struct engine *const decode = side->engines[i];
        const bool is_pair =
            is_paired(prefill, decode) && !is_avoided(search->ask, decode);

        if (!engine_is_usable(decode)) {
            has_failed = has_failed || (is_pair && may_be_tried(decode));
            continue;
        }
        if (is_pair) {
            return true;
        }
        has_usable = true;
    }
    return !has_usable && has_failed;
}

static bool pairs_up(const struct search *search, const struct engine *engine)
{
    const struct route_ask *const ask = search->ask;

    if (!ask->wants_prefill) {
        return true;
    }
    return search->role == ENGINE_PREFILL ? has_pair(search, engine)
                                          : is_paired(ask->prefill, engine);
}

static enum candidate judge(const struct search *search,
                            const struct engine *engine)
{
    if (is_avoided(search->ask, engine) || !engine_is_usable(engine) ||
        !pairs_up(search, engine)) {
        return CANDIDATE_NO;
    }
    return has_room(search, engine) ? CANDIDATE_YES : CANDIDATE_FULL;
}

static bool is_usable_or_failed_longer(const struct engine *engine,
                                       const struct engine *best)
{
    return best == NULL ||
           load_of(&engine->failed_at_ms) < load_of(&best->failed_at_ms);
}

/* With no usable engine left, the one that failed longest ago is tried. */
static struct engine *last_resort(const struct search *search)
{
    struct engine *best = NULL;

    for (size_t i = 0; i < search->side->count; i++) {
        struct engine *const engine = search->side->engines[i];

        if (may_be_tried(engine) && !is_avoided(search->ask, engine) &&
            (!search->ask->wants_prefill || search->role == ENGINE_PREFILL ||
             is_paired(search->ask->prefill, engine)) &&
            is_usable_or_failed_longer(engine, best)) {
            best = engine;
        }
    }
    return best;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Near the golden ratio of a cycle, and meeting each of its points once. */
static uint64_t step_of(uint64_t cycle)
{
    uint64_t step = cycle * 618 / 1000;

    while (gcd(step, cycle) != 1) {
        step++;
    }
    return step;
}

/*
 * Whose turn it is: in a cycle as long as the sum of all weights each engine
 * has as many turns as its weight, and seldom several in a row. Each cycle of
 * D begins one place further than the last: else two sides of equal size would
 * keep step, and each P would meet the same D for ever.
 */
static size_t first_of(const struct search *search)
{
    const bool is_decode = search->role == ENGINE_DECODE;
    const uint64_t turn =
        is_decode ? search->ask->decode_turn : search->ask->prefill_turn;
    uint64_t cycle = 0; /* 0 where there is nobody */
    uint64_t point;
    size_t i = 0;

    for (size_t k = 0; k < search->side->count; k++) {
        cycle += (uint64_t)search->side->engines[k]->conf->weight;
    }
    if (cycle == 0) {
        return 0;
    }
    point = (is_decode ? turn + turn / cycle : turn) % cycle;
    if (cycle <= search->side->count) {
        return point;
    }
    point = point * step_of(cycle) % cycle;
    while (point >= (uint64_t)search->side->engines[i]->conf->weight) {
        point -= (uint64_t)search->side->engines[i]->conf->weight;
        i++;
    }
    return i;
}

/*
 * The first candidate from the one on whose turn it is; full_p: none, but one
 * lacks room only.
 */
static struct engine *find(const struct search *search, bool *full_p)
{
    const size_t first = first_of(search);
    bool is_full = false;

    for (size_t i = 0; i < search->side->count; i++) {
        struct engine *const engine =
            search->side->engines[(first + i) % search->side->count];

        switch (judge(search, engine)) {
        case CANDIDATE_YES:
            return engine;
        case CANDIDATE_FULL:
            is_full = true;
            break;
        case CANDIDATE_NO:
            break;
        }
    }
    *full_p = is_full;
    return is_full ? NULL : last_resort(search);
}

static bool may_serve(const struct search *search, const struct engine *engine)
{
    return !is_avoided(search->ask, engine) && engine_is_usable(engine);
}

static bool any_may_serve(const struct search *search, enum engine_role role)
{
    const struct side *const side = pool_side(search->ask->pool, role);

    for (size_t i = 0; i < side->count; i++) {
        if (may_serve(search, side->engines[i])) {
            return true;
        }
    }
    return false;
}

static bool has_decode(const struct search *search, uint64_t place)
{
    const struct side *const side = pool_side(search->ask->pool, ENGINE_DECODE);

    for (size_t i = 0; i < side->count; i++) {
        if (side->engines[i]->place == place &&
            may_serve(search, side->engines[i])) {
            return true;
        }
    }
    return false;
}

/* Is there an engine that would be both P and D of this request? */
static bool has_twin(const struct search *search)
{
    const struct side *const side =
        pool_side(search->ask->pool, ENGINE_PREFILL);

    for (size_t i = 0; i < side->count; i++) {
        if (may_serve(search, side->engines[i]) &&
            has_decode(search, side->engines[i]->place)) {
            return true;
        }
    }
    return false;
}

static enum route_verdict nothing_found(const struct search *search)
{
    const bool is_prefill = search->role == ENGINE_PREFILL;

    if (is_prefill && !any_may_serve(search, ENGINE_PREFILL)) {
        return ROUTE_NO_PREFILL;
    }
    if (!any_may_serve(search, ENGINE_DECODE)) {
        return ROUTE_NO_DECODE;
    }
    return is_prefill && has_twin(search) ? ROUTE_SAME_ENGINE : ROUTE_NO_PAIR;
}

static enum route_verdict pick_side(const struct search *search,
                                    struct engine **engine_p)
{
    bool is_full = false;

    *engine_p = find(search, &is_full);
    if (*engine_p != NULL) {
        return ROUTE_FOUND;
    }
    return is_full ? ROUTE_WAIT : nothing_found(search);
}

enum route_verdict route_pick(const struct route_ask *ask,
                              struct route_choice *choice_p)
{
    const struct pool *const pool = ask->pool;
    struct route_ask inner = *ask;
    struct route_choice choice = {0};
    enum route_verdict verdict;

    if (ask->wants_prefill && ask->prefill == NULL) {
        const struct search search = {
            .ask = &inner,
            .side = pool_side(pool, ENGINE_PREFILL),
            .role = ENGINE_PREFILL,
        };

        verdict = pick_side(&search, &choice.prefill);
        if (verdict != ROUTE_FOUND) {
            return verdict;
        }
        inner.prefill = choice.prefill;
    }
    const struct search search = {
        .ask = &inner,
        .side = pool_side(pool, ENGINE_DECODE),
        .role = ENGINE_DECODE,
    };

    verdict = pick_side(&search, &choice.decode);
    if (verdict != ROUTE_FOUND) {
        return verdict;
    }
    *choice_p = choice;
    return ROUTE_FOUND;
}
