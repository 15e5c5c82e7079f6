/*
 * prefill: the connector table and the reading of P's answer.
 */
#include "proxy/exchange/prefill.h"

#include "common/json/json.h"

#include <inttypes.h>

#define NIXL_ASK                                              \
    "{\"do_remote_decode\":true,\"do_remote_prefill\":false," \
    "\"remote_engine_id\":null,\"remote_block_ids\":null,"    \
    "\"remote_host\":null,\"remote_port\":null}"

#define NEEDS_MAX 4

struct connector_row {
    bool has_prefill;
    bool is_stock;
    bool is_at_once;
    const char *ask; /* NULL: made per handoff, or none */
    bool names_host; /* the last two needed, host and port, must be P's */
    const char *needs[NEEDS_MAX]; /* members that must be there */
    uint64_t lease_ms;            /* as long as its engines keep blocks */
};

static const struct connector_row ROWS[] = {
    [CONNECTOR_BATON] =
        {
            .has_prefill = true,
            .needs = {"baton"},
        },
    [CONNECTOR_NIXL] =
        {
            .has_prefill = true,
            .is_stock = true,
            .ask = NIXL_ASK,
            .names_host = true,
            .needs = {"remote_engine_id", "remote_block_ids", "remote_host",
                      "remote_port"},
            .lease_ms = 30000,
        },
    [CONNECTOR_MOONCAKE] =
        {
            .has_prefill = true,
            .is_stock = true,
            .is_at_once = true,
            .lease_ms = 480000,
        },
    [CONNECTOR_MOONCAKE_SEQ] =
        {
            .has_prefill = true,
            .is_stock = true,
            .ask = NIXL_ASK,
            .names_host = true,
            .needs = {"remote_host", "remote_port"},
            .lease_ms = 480000,
        },
    [CONNECTOR_TPU] =
        {
            .has_prefill = true,
            .is_stock = true,
            .names_host = true,
            .needs = {"uuid", "remote_block_ids", "remote_host", "remote_port"},
            .lease_ms = 120000,
        },
    [CONNECTOR_NONE] = {.is_stock = true},
};

void prefill_handoff_text(struct handoff_id id, char text[33])
{
    bt_str_hex_u64(id.hi, text);
    bt_str_hex_u64(id.lo, text + 16);
}

bool prefill_is_asked(int connector)
{
    return ROWS[connector].has_prefill;
}

bool prefill_is_stock(int connector)
{
    return ROWS[connector].is_stock;
}

bool prefill_is_at_once(int connector)
{
    return ROWS[connector].is_at_once;
}

uint64_t prefill_lease_ms(const struct pool_conf *conf)
{
    return conf->handoff.lease_ms > 0 ? conf->handoff.lease_ms
                                      : ROWS[conf->connector].lease_ms;
}

struct bt_str prefill_params(int connector, struct bt_arena *arena,
                             const char *handoff, uint64_t boot)
{
    if (connector == CONNECTOR_BATON) {
        return bt_arena_printf(
            arena,
            "{\"do_remote_decode\":true,\"do_remote_prefill\":false,"
            "\"baton\":{\"v\":1,\"handoff\":\"%s\",\"proxy\":\"%016" PRIx64
            "\"}}",
            handoff, boot);
    }
    if (ROWS[connector].is_at_once) {
        return bt_arena_printf(
            arena,
            "{\"do_remote_decode\":true,\"do_remote_prefill\":false,"
            "\"transfer_id\":\"%s\"}",
            handoff);
    }
    return bt_str_of(ROWS[connector].ask);
}

struct bt_str prefill_decode_params(const struct engine *prefill,
                                    struct bt_arena *arena, const char *handoff)
{
    const char *const id = engine_bootstrap_id(prefill);

    if (id == NULL) {
        return (struct bt_str){0};
    }
    return bt_arena_printf(
        arena,
        "{\"do_remote_decode\":false,\"do_remote_prefill\":true,"
        "\"remote_bootstrap_addr\":\"http://%s\",\"remote_engine_id\":%s,"
        "\"transfer_id\":\"%s\"}",
        engine_bootstrap(prefill), id, handoff);
}

/* 0: it is none. */
static uint64_t number_of(const struct bt_json_value *value)
{
    uint64_t number = 0;

    return bt_json_to_u64(value, &number) == BT_OK ? number : 0;
}

static void read_usage(struct bt_str usage, struct prefill_answer *answer)
{
    struct bt_json_iter it;
    struct bt_json_member member;
    struct bt_json_value cached;

    bt_json_iter_object(&it, usage);
    while (bt_json_next_member(&it, &member)) {
        if (bt_json_name_is(member.name, BT_STR("prompt_tokens"))) {
            answer->prompt_tokens = number_of(&member.value);
        } else if (bt_json_name_is(member.name,
                                   BT_STR("prompt_tokens_details")) &&
                   bt_json_find(member.value.text, BT_STR("cached_tokens"),
                                &cached) &&
                   cached.type == BT_JSON_NUMBER) {
            answer->cached = cached.text;
        }
    }
}

/* Without the quotes of a string. */
static struct bt_str bare(const struct bt_json_value *value)
{
    if (value->type == BT_JSON_STRING) {
        return bt_str_span(value->text.ptr + 1, value->text.len - 2);
    }
    return value->text;
}

static bool is_port(const struct bt_json_value *value)
{
    uint64_t port = 0;

    return (value->type == BT_JSON_NUMBER || value->type == BT_JSON_STRING) &&
           bt_str_to_u64(bare(value), &port) == BT_OK && port <= 65535;
}

/* May it be asked for the blocks at this host? A foreign one is given back. */
static enum prefill_verdict check_place(const struct engine *engine,
                                        const struct bt_json_value *host,
                                        const struct bt_json_value *port,
                                        struct bt_str *foreign_p)
{
    if (host->type != BT_JSON_STRING || !is_port(port)) {
        return PREFILL_BAD;
    }
    if (engine_owns_host(engine, bare(host), bare(port))) {
        return PREFILL_HANDOFF;
    }
    *foreign_p = bare(host);
    return PREFILL_FOREIGN;
}

/* Hosts and ports are scalars, or lists of the same length (one per rank). */
static enum prefill_verdict check_lists(const struct engine *engine,
                                        struct bt_str hosts,
                                        struct bt_str ports,
                                        struct bt_str *foreign_p)
{
    struct bt_json_iter host_it;
    struct bt_json_iter port_it;
    struct bt_json_value host;
    struct bt_json_value port;

    bt_json_iter_array(&host_it, hosts);
    bt_json_iter_array(&port_it, ports);
    while (bt_json_next_element(&host_it, &host)) {
        enum prefill_verdict verdict;

        if (!bt_json_next_element(&port_it, &port)) {
            return PREFILL_BAD;
        }
        verdict = check_place(engine, &host, &port, foreign_p);
        if (verdict != PREFILL_HANDOFF) {
            return verdict;
        }
    }
    return bt_json_next_element(&port_it, &port) ? PREFILL_BAD
                                                 : PREFILL_HANDOFF;
}

static enum prefill_verdict check_host(const struct engine *engine,
                                       const struct bt_json_value *host,
                                       const struct bt_json_value *port,
                                       struct bt_str *foreign_p)
{
    return host->type == BT_JSON_ARRAY && port->type == BT_JSON_ARRAY
               ? check_lists(engine, host->text, port->text, foreign_p)
               : check_place(engine, host, port, foreign_p);
}

static enum prefill_verdict check_baton(const struct bt_json_value *baton,
                                        const char *handoff)
{
    struct bt_json_value id;

    if (baton->type != BT_JSON_OBJECT ||
        !bt_json_find(baton->text, BT_STR("handoff"), &id) ||
        id.type != BT_JSON_STRING ||
        !bt_str_eq_nocase(bare(&id), bt_str_of(handoff))) {
        return PREFILL_BAD;
    }
    return PREFILL_HANDOFF;
}

/* What one walk over P's params finds of the members that are needed. */
struct params {
    struct bt_json_value needed[NEEDS_MAX];
    bool is_empty;
    /* A needed name that stands twice: the reader and we could differ. */
    bool is_twice;
};

static void take_member(struct params *params, const char *const *needs,
                        size_t count, const struct bt_json_member *member)
{
    for (size_t i = 0; i < count; i++) {
        if (bt_json_name_is(member->name, bt_str_of(needs[i]))) {
            params->is_twice =
                params->is_twice || params->needed[i].type != BT_JSON_NONE;
            params->needed[i] = member->value;
        }
    }
}

static void read_params(const char *const *needs, size_t count,
                        struct bt_str text, struct params *params)
{
    struct bt_json_iter it;
    struct bt_json_member member;

    params->is_empty = true;
    bt_json_iter_object(&it, text);
    while (bt_json_next_member(&it, &member)) {
        params->is_empty = false;
        take_member(params, needs, count, &member);
    }
}

static size_t count_needs(const struct connector_row *row)
{
    size_t count = 0;

    while (count < NEEDS_MAX && row->needs[count] != NULL) {
        count++;
    }
    return count;
}

static enum prefill_verdict check_params(const struct engine *engine,
                                         const char *handoff,
                                         struct bt_str text,
                                         struct bt_str *foreign_p)
{
    const int connector = engine->pool->conf->connector;
    const struct connector_row *const row = &ROWS[connector];
    const size_t count = count_needs(row);
    struct params params = {0};

    read_params(row->needs, count, text, &params);
    if (params.is_empty) {
        return PREFILL_NO_HANDOFF;
    }
    for (size_t i = 0; i < count; i++) {
        if (params.needed[i].type == BT_JSON_NONE) {
            return PREFILL_BAD;
        }
    }
    if (params.is_twice) {
        return PREFILL_BAD;
    }
    if (connector == CONNECTOR_BATON) {
        return check_baton(&params.needed[0], handoff);
    }
    return row->names_host && count >= 2
               ? check_host(engine, &params.needed[count - 2],
                            &params.needed[count - 1], foreign_p)
               : PREFILL_HANDOFF;
}

enum prefill_verdict prefill_read(const struct engine *engine,
                                  const char *handoff, struct bt_str answer,
                                  struct prefill_answer *answer_p)
{
    struct bt_json_iter it;
    struct bt_json_member member;
    struct bt_json_value params = {0};
    struct prefill_answer found = {0};
    size_t count = 0;

    bt_json_iter_object(&it, answer);
    while (bt_json_next_member(&it, &member)) {
        if (bt_json_name_is(member.name, BT_STR("kv_transfer_params"))) {
            params = member.value;
            count++;
        } else if (bt_json_name_is(member.name, BT_STR("usage")) &&
                   member.value.type == BT_JSON_OBJECT) {
            read_usage(member.value.text, &found);
        }
    }
    if (bt_json_iter_end(&it) != BT_OK) {
        answer_p->why = BT_STR("its answer is not one JSON object");
        return PREFILL_BAD;
    }
    if (count > 1) {
        answer_p->why = BT_STR("kv_transfer_params stands twice in its answer");
        return PREFILL_BAD;
    }
    *answer_p = found;
    if (count == 0 || params.type == BT_JSON_NULL) {
        return PREFILL_NO_HANDOFF;
    }
    answer_p->why = BT_STR("its kv_transfer_params are not what the connector "
                           "needs");
    if (params.type != BT_JSON_OBJECT) {
        return PREFILL_BAD;
    }
    answer_p->params = params.text;
    return check_params(engine, handoff, params.text, &answer_p->foreign);
}
