#include "tests/support/sides.h"

#include "tests/support/harness.h"

static struct engine_conf *conf_of(struct sides *sides, size_t i)
{
    sides->confs[i] = (struct engine_conf){.weight = 1};
    return &sides->confs[i];
}

void sides_init(struct sides *sides)
{
    memset(sides, 0, sizeof(*sides));
    sides->pool_conf.connector = CONNECTOR_NIXL;
    sides->pool.conf = &sides->pool_conf;
    for (int role = 0; role < ENGINE_ROLES; role++) {
        sides->of[role] = calloc(
            1, sizeof(struct side) + SIDES_ENGINES * sizeof(struct engine *));
        ck_assert_ptr_nonnull(sides->of[role]);
        sides->of[role]->count = SIDES_ENGINES;
        atomic_store(&sides->pool.sides[role], sides->of[role]);
    }
    for (unsigned i = 0; i < 2 * SIDES_ENGINES; i++) {
        struct engine *const engine = &sides->engines[i];
        const bool is_prefill = i < SIDES_ENGINES;

        engine->id = i;
        engine->slot = i;
        engine->place = 1 + i;
        engine->conf = conf_of(sides, i);
        engine->pool = &sides->pool;
        engine->role = is_prefill ? ENGINE_PREFILL : ENGINE_DECODE;
        atomic_store(&engine->blocks_free, UINT64_MAX);
        atomic_store(&engine->where, &sides->place);
        (is_prefill ? sides->prefills : sides->decodes)[i % SIDES_ENGINES] =
            engine;
        sides->of[engine->role]->engines[i % SIDES_ENGINES] = engine;
    }
}

void sides_fini(struct sides *sides)
{
    free(sides->of[ENGINE_PREFILL]);
    free(sides->of[ENGINE_DECODE]);
}

void sides_use_baton(struct sides *sides)
{
    sides->pool_conf.connector = CONNECTOR_BATON;
    for (size_t i = 0; i < 2 * SIDES_ENGINES; i++) {
        atomic_store(&sides->engines[i].is_linked, true);
    }
    for (size_t d = 0; d < SIDES_ENGINES; d++) {
        for (size_t p = 0; p < SIDES_ENGINES; p++) {
            engine_set_paired(sides->decodes[d], sides->prefills[p], true);
        }
    }
}

void sides_break(struct engine *engine, uint64_t when_ms)
{
    atomic_store(&engine->failed_at_ms, when_ms);
}

void sides_fill(struct sides *sides, struct engine *engine)
{
    sides->confs[engine->id].max_in_flight = 1;
    atomic_store(&engine->in_flight, 1);
}
