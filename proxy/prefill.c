/*
 * prefill: the connector table and the reading of P's answer.
 */
#include "proxy/prefill.h"

#include "common/json.h"

#include <inttypes.h>
#include <stdio.h>

#define NIXL_ASK                                              \
    "{\"do_remote_decode\":true,\"do_remote_prefill\":false," \
    "\"remote_engine_id\":null,\"remote_block_ids\":null,"    \
    "\"remote_host\":null,\"remote_port\":null}"

struct connector_row {
    bool has_prefill;
    bool is_stock;
    const char *ask;      /* NULL: made per handoff, or none */
    bool names_host;      /* remote_host and remote_port must be P's */
    const char *needs[4]; /* members that must be there */
};

static const struct connector_row ROWS[] = {
    [CONNECTOR_BATON] = {true, false, NULL, false, {"baton"}},
    [CONNECTOR_NIXL] = {true,
                        true,
                        NIXL_ASK,
                        true,
                        {"remote_engine_id", "remote_block_ids", "remote_host",
                         "remote_port"}},
    [CONNECTOR_MOONCAKE] =
        {true, true, NIXL_ASK, true, {"remote_host", "remote_port"}},
    [CONNECTOR_MOONCAKE_SEQ] =
        {true, true, NIXL_ASK, true, {"remote_host", "remote_port"}},
    [CONNECTOR_TPU] = {true,
                       true,
                       NULL,
                       true,
                       {"uuid", "remote_block_ids", "remote_host",
                        "remote_port"}},
    [CONNECTOR_NONE] = {false, true, NULL, false, {NULL}},
};

void prefill_handoff_text(struct handoff_id id, char text[33])
{
    (void)snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, id.hi, id.lo);
}

bool prefill_is_asked(int connector)
{
    return ROWS[connector].has_prefill;
}

bool prefill_is_stock(int connector)
{
    return ROWS[connector].is_stock;
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
    return bt_str_of(ROWS[connector].ask);
}

static void read_usage(struct bt_str usage, struct prefill_answer *answer)
{
    struct bt_json_value details;
    struct bt_json_value value;

    if (bt_json_find(usage, BT_STR("prompt_tokens"), &value) &&
        bt_json_to_u64(&value, &answer->prompt_tokens) != BT_OK) {
        answer->prompt_tokens = 0;
    }
    if (bt_json_find(usage, BT_STR("prompt_tokens_details"), &details) &&
        details.type == BT_JSON_OBJECT &&
        bt_json_find(details.text, BT_STR("cached_tokens"), &value) &&
        value.type == BT_JSON_NUMBER) {
        answer->cached = value.text;
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

/* Hosts and ports are scalars, or lists of the same length (one per rank). */
static enum prefill_verdict check_lists(const struct engine *engine,
                                        struct bt_str hosts,
                                        struct bt_str ports)
{
    struct bt_json_iter host_it;
    struct bt_json_iter port_it;
    struct bt_json_value host;
    struct bt_json_value port;

    bt_json_iter_array(&host_it, hosts);
    bt_json_iter_array(&port_it, ports);
    while (bt_json_next_element(&host_it, &host)) {
        if (!bt_json_next_element(&port_it, &port) || !is_port(&port) ||
            host.type != BT_JSON_STRING) {
            return PREFILL_BAD;
        }
        if (!engine_owns_host(engine, bare(&host), bare(&port))) {
            return PREFILL_FOREIGN;
        }
    }
    return bt_json_next_element(&port_it, &port) ? PREFILL_BAD
                                                 : PREFILL_HANDOFF;
}

static enum prefill_verdict check_host(const struct engine *engine,
                                       struct bt_str params)
{
    struct bt_json_value host;
    struct bt_json_value port;

    if (!bt_json_find(params, BT_STR("remote_host"), &host) ||
        !bt_json_find(params, BT_STR("remote_port"), &port)) {
        return PREFILL_BAD;
    }
    if (host.type == BT_JSON_ARRAY && port.type == BT_JSON_ARRAY) {
        return check_lists(engine, host.text, port.text);
    }
    if (host.type != BT_JSON_STRING || !is_port(&port)) {
        return PREFILL_BAD;
    }
    return engine_owns_host(engine, bare(&host), bare(&port)) ? PREFILL_HANDOFF
                                                              : PREFILL_FOREIGN;
}

/* One private name may not stand twice: the reader and we could differ. */
static size_t count_members(struct bt_str object, struct bt_str name,
                            bool *is_empty_p)
{
    struct bt_json_iter it;
    struct bt_json_member member;
    size_t count = 0;

    *is_empty_p = true;
    bt_json_iter_object(&it, object);
    while (bt_json_next_member(&it, &member)) {
        *is_empty_p = false;
        count += bt_json_name_is(member.name, name) ? 1 : 0;
    }
    return count;
}

static enum prefill_verdict check_baton(struct bt_str params,
                                        const char *handoff)
{
    struct bt_json_value baton;
    struct bt_json_value id;

    if (!bt_json_find(params, BT_STR("baton"), &baton) ||
        baton.type != BT_JSON_OBJECT ||
        !bt_json_find(baton.text, BT_STR("handoff"), &id) ||
        id.type != BT_JSON_STRING ||
        !bt_str_eq_nocase(bare(&id), bt_str_of(handoff))) {
        return PREFILL_BAD;
    }
    return PREFILL_HANDOFF;
}

static enum prefill_verdict check_params(const struct engine *engine,
                                         const char *handoff,
                                         struct bt_str params)
{
    const struct connector_row *const row =
        &ROWS[engine->pool->conf->connector];
    bool is_empty = true;

    (void)count_members(params, BT_STR(""), &is_empty);
    if (is_empty) {
        return PREFILL_NO_HANDOFF;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(row->needs) && row->needs[i] != NULL;
         i++) {
        struct bt_json_value value;

        if (!bt_json_find(params, bt_str_of(row->needs[i]), &value)) {
            return PREFILL_BAD;
        }
    }
    if (engine->pool->conf->connector == CONNECTOR_BATON) {
        return check_baton(params, handoff);
    }
    if (!row->names_host) {
        return PREFILL_HANDOFF;
    }
    for (size_t i = 0; i < 2; i++) {
        bool unused = false;
        const struct bt_str name =
            i == 0 ? BT_STR("remote_host") : BT_STR("remote_port");

        if (count_members(params, name, &unused) > 1) {
            return PREFILL_BAD;
        }
    }
    return check_host(engine, params);
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
    if (bt_json_iter_end(&it) != BT_OK || count > 1) {
        return PREFILL_BAD;
    }
    *answer_p = found;
    if (count == 0 || params.type == BT_JSON_NULL) {
        return PREFILL_NO_HANDOFF;
    }
    if (params.type != BT_JSON_OBJECT) {
        return PREFILL_BAD;
    }
    answer_p->params = params.text;
    return check_params(engine, handoff, params.text);
}
