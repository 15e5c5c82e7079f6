/*
 * engine: the registry of pools and engines, their health, and which names
 * an engine may go by in a handoff.
 */
#include "proxy/fleet/engine.h"

#include "common/base/log.h"
#include "common/io/key_file.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BELIEVED_MS 1000 /* after a failure, without probes */

static enum bt_status engine_init(struct engine *engine,
                                  const struct config *config,
                                  size_t engine_count)
{
    const struct engine_conf *const conf = engine->conf;
    const char *why = "";
    const char *const key_file =
        conf->key_file != NULL ? conf->key_file : config->auth.engine_key_file;
    enum bt_status status = bt_url_parse(conf->url, &engine->url, &why);

    if (status != BT_OK) {
        bt_log(BT_LOG_ERROR, conf->url, "bad URL: %s", why);
        return status;
    }
    engine->is_probed =
        config->timeouts.probe_interval != 0 && !engine->url.is_tls;
    if (!bt_url_addr(&engine->url, &engine->addrs)) {
        atomic_init(&engine->is_unresolved, true);
        atomic_init(&engine->failed_at_ms, 1);
    }
    if (key_file != NULL) {
        status = bt_key_read(key_file, &engine->key);
        if (status != BT_OK) {
            return status;
        }
    }
    atomic_init(&engine->blocks_free, UINT64_MAX);
    if (engine->role == ENGINE_DECODE) {
        engine->pair_ready = calloc(engine_count, sizeof(*engine->pair_ready));
        if (engine->pair_ready == NULL) {
            return BT_ERR_NOMEM;
        }
    }
    return BT_OK;
}

static enum bt_status side_init(struct registry *registry, struct pool *pool,
                                const struct config *config,
                                enum engine_role role, size_t total)
{
    const bool is_prefill = role == ENGINE_PREFILL;
    const struct bt_conf_list *const list =
        is_prefill ? &pool->conf->prefill.engines : &pool->conf->decode.engines;
    const struct engine_conf *const confs = list->items;
    struct engine **const engines = calloc(list->count + 1, sizeof(*engines));
    enum bt_status status = BT_OK;

    if (engines == NULL) {
        return BT_ERR_NOMEM;
    }
    if (is_prefill) {
        pool->prefill = engines;
        pool->prefill_count = list->count;
    } else {
        pool->decode = engines;
        pool->decode_count = list->count;
    }
    for (size_t i = 0; i < list->count && status == BT_OK; i++) {
        struct engine *const engine =
            &registry->engines[registry->engine_count];

        engine->id = (unsigned)registry->engine_count;
        engine->role = role;
        engine->pool = pool;
        engine->conf = &confs[i];
        engines[i] = engine;
        registry->engine_count++;
        status = engine_init(engine, config, total);
    }
    return status;
}

static void find_twin(const struct pool *pool, struct engine *prefill)
{
    for (size_t i = 0; i < pool->decode_count; i++) {
        struct engine *const decode = pool->decode[i];

        if (strcmp(prefill->url.normal, decode->url.normal) == 0) {
            prefill->twin = decode;
            decode->twin = prefill;
        }
    }
}

static void find_twins(const struct pool *pool)
{
    for (size_t i = 0; i < pool->prefill_count; i++) {
        find_twin(pool, pool->prefill[i]);
    }
}

static size_t engine_total(const struct config *config)
{
    const struct pool_conf *const pools = config->pools.items;
    size_t total = 0;

    for (size_t i = 0; i < config->pools.count; i++) {
        total += pools[i].prefill.engines.count + pools[i].decode.engines.count;
    }
    return total;
}

enum bt_status registry_open(const struct config *config,
                             struct registry **registry_p)
{
    const struct pool_conf *const confs = config->pools.items;
    const size_t total = engine_total(config);
    struct registry *registry = calloc(1, sizeof(*registry));
    enum bt_status status = BT_OK;

    if (registry == NULL) {
        return BT_ERR_NOMEM;
    }
    registry->engines = calloc(total + 1, sizeof(*registry->engines));
    registry->pools = calloc(config->pools.count + 1, sizeof(*registry->pools));
    if (registry->engines == NULL || registry->pools == NULL) {
        registry_close(&registry);
        return BT_ERR_NOMEM;
    }
    registry->pool_count = config->pools.count;
    for (size_t i = 0; i < config->pools.count && status == BT_OK; i++) {
        struct pool *const pool = &registry->pools[i];

        pool->id = (unsigned)i;
        pool->conf = &confs[i];
        status = side_init(registry, pool, config, ENGINE_PREFILL, total);
        if (status == BT_OK) {
            status = side_init(registry, pool, config, ENGINE_DECODE, total);
        }
        if (status == BT_OK) {
            find_twins(pool);
        }
    }
    if (status != BT_OK) {
        registry_close(&registry);
        return status;
    }
    *registry_p = registry;
    return BT_OK;
}

void registry_close(struct registry **registry)
{
    struct registry *const dead = *registry;

    if (dead == NULL) {
        return;
    }
    *registry = NULL;
    for (size_t i = 0; i < dead->engine_count; i++) {
        free(dead->engines[i].pair_ready);
        bt_key_free(&dead->engines[i].key);
    }
    for (size_t i = 0; i < dead->pool_count && dead->pools != NULL; i++) {
        free(dead->pools[i].prefill);
        free(dead->pools[i].decode);
    }
    free(dead->engines);
    free(dead->pools);
    free(dead);
}

static bool pool_serves(const struct pool *pool, const char *model)
{
    const struct bt_conf_strings *const models = &pool->conf->models;

    if (models->count == 0) {
        return true;
    }
    for (size_t i = 0; i < models->count; i++) {
        if (fnmatch(models->items[i], model, 0) == 0) {
            return true;
        }
    }
    return false;
}

const struct pool *registry_pool(const struct registry *registry,
                                 struct bt_str model)
{
    char text[512];

    /* A NUL would hide the rest of the name from the comparison. */
    if (model.len >= sizeof(text) ||
        (model.len > 0 && memchr(model.ptr, '\0', model.len) != NULL)) {
        return NULL;
    }
    bt_str_copy(text, sizeof(text), model);
    for (size_t i = 0; i < registry->pool_count; i++) {
        if (pool_serves(&registry->pools[i], text)) {
            return &registry->pools[i];
        }
    }
    return NULL;
}

const char *engine_bootstrap_id(const struct engine *engine)
{
    return atomic_load_explicit(&engine->bootstrap_id, memory_order_acquire);
}

static inline bool is_introduced(const struct engine *engine)
{
    const int connector = engine->pool->conf->connector;

    if (connector == CONNECTOR_BATON) {
        return atomic_load_explicit(&engine->is_linked, memory_order_relaxed);
    }
    return connector != CONNECTOR_MOONCAKE || engine->role != ENGINE_PREFILL ||
           engine_bootstrap_id(engine) != NULL;
}

bool engine_is_introduced(const struct engine *engine)
{
    return is_introduced(engine);
}

bool engine_is_usable(const struct engine *engine)
{
    if (atomic_load_explicit(&engine->failed_at_ms, memory_order_relaxed) !=
        0) {
        return false;
    }
    return is_introduced(engine);
}

const char *engine_bootstrap(const struct engine *engine)
{
    return engine->conf->bootstrap != NULL ? engine->conf->bootstrap
                                           : engine->url.authority;
}

static bool any_usable(struct engine *const *engines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (engine_is_usable(engines[i])) {
            return true;
        }
    }
    return false;
}

bool engine_has_stand_in(const struct engine *engine)
{
    const struct pool *const pool = engine->pool;
    const bool is_prefill = engine->role == ENGINE_PREFILL;
    struct engine *const *const engines =
        is_prefill ? pool->prefill : pool->decode;
    const size_t count = is_prefill ? pool->prefill_count : pool->decode_count;

    for (size_t i = 0; i < count; i++) {
        if (engines[i] != engine && engine_is_usable(engines[i])) {
            return true;
        }
    }
    return is_prefill && pool->conf->handoff.on_failure == ON_FAILURE_LOCAL &&
           any_usable(pool->decode, pool->decode_count);
}

const struct bt_addrs *engine_addrs(const struct engine *engine)
{
    return atomic_load_explicit(&engine->is_unresolved, memory_order_acquire)
               ? NULL
               : &engine->addrs;
}

void engine_set_addrs(struct engine *engine, const struct bt_addrs *addrs)
{
    engine->addrs = *addrs;
    atomic_store(&engine->is_unresolved, false);
    atomic_store(&engine->failed_at_ms, 0);
}

void engine_mark_failed(struct engine *engine, uint64_t now_ms, const char *why)
{
    unsigned long long was = 0;

    if (atomic_compare_exchange_strong(&engine->failed_at_ms, &was,
                                       now_ms == 0 ? 1 : now_ms)) {
        bt_log(BT_LOG_WARN, engine->url.normal, "not usable: %s", why);
    }
}

static const char *remedy_of(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return "is it running, and does it listen there?";
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return "look at its host, the network and what filters it";
    case EADDRNOTAVAIL:
        return "this host has no address or no free port to reach it from "
               "(net.ipv4.ip_local_port_range)";
    default:
        return "did it end? its own log says why";
    }
}

void engine_mark_lost(struct engine *engine, uint64_t now_ms,
                      const struct bt_http_failure *failure)
{
    const char *const cause =
        failure->error == 0 ? "" : strerrordesc_np(failure->error);
    char address[BT_ADDR_TEXT_MAX];
    char tries[48] = "";
    char why[512];

    if (atomic_load_explicit(&engine->failed_at_ms, memory_order_relaxed) !=
        0) {
        return;
    }
    bt_addr_format(failure->addr, address);
    if (failure->tried > 1) {
        (void)snprintf(tries, sizeof(tries), ", the last of %zu addresses",
                       failure->tried);
    }
    (void)snprintf(why, sizeof(why), "%s (%s%s)%s%s; %s", failure->reason,
                   address, failure->connecting ? tries : "",
                   cause == NULL || cause[0] == '\0' ? "" : ": ",
                   cause == NULL ? "" : cause, remedy_of(failure->error));
    engine_mark_failed(engine, now_ms, why);
}

void engine_mark_good(struct engine *engine)
{
    if (atomic_load_explicit(&engine->failed_at_ms, memory_order_relaxed) ==
        0) {
        return;
    }
    if (atomic_exchange(&engine->failed_at_ms, 0) != 0) {
        bt_log(BT_LOG_INFO, engine->url.normal, "usable again");
    }
}

void engine_answered(struct engine *engine, uint64_t now_ms)
{
    const unsigned long long failed_at_ms =
        atomic_load_explicit(&engine->failed_at_ms, memory_order_relaxed);

    if (failed_at_ms != 0 && !engine->is_probed &&
        now_ms >= failed_at_ms + BELIEVED_MS) {
        engine_mark_good(engine);
    }
}

static bool bits_equal(const unsigned char a[16], const unsigned char b[16],
                       unsigned bits)
{
    const unsigned whole = bits / 8;
    const unsigned rest = bits % 8;

    if (memcmp(a, b, whole) != 0) {
        return false;
    }
    return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

/* "10.1.0.2", "10.1.0.0/16", "fd00::/8" or a name. */
static bool rule_allows(const char *rule, struct bt_str host, bool is_numeric,
                        const unsigned char bytes[16])
{
    const struct bt_str text = bt_str_of(rule);
    const size_t slash = bt_str_find(text, BT_STR("/"));
    unsigned char base[16];
    uint64_t bits = 128;

    if (!is_numeric) {
        return bt_str_eq_nocase(text, host);
    }
    if (!bt_host_bytes(bt_str_span(text.ptr, slash), base)) {
        return false;
    }
    if (slash < text.len) {
        const bool is_v4 = bt_str_find(text, BT_STR(":")) == text.len;
        const struct bt_str tail =
            bt_str_span(text.ptr + slash + 1, text.len - slash - 1);

        if (bt_str_to_u64(tail, &bits) != BT_OK || bits > (is_v4 ? 32 : 128)) {
            return false;
        }
        bits += is_v4 ? 96 : 0;
    }
    return bits_equal(base, bytes, (unsigned)bits);
}

static bool port_allowed(const struct engine *engine, struct bt_str port)
{
    const struct bt_conf_strings *const ports = &engine->conf->handoff_ports;

    if (ports->count == 0 || port.len == 0) {
        return true;
    }
    for (size_t i = 0; i < ports->count; i++) {
        if (bt_str_eq(bt_str_of(ports->items[i]), port)) {
            return true;
        }
    }
    return false;
}

bool engine_owns_host(const struct engine *engine, struct bt_str host,
                      struct bt_str port)
{
    const struct bt_conf_strings *const rules = &engine->conf->handoff_hosts;
    const struct bt_addrs *const addrs = engine_addrs(engine);
    unsigned char bytes[16];
    unsigned char own[16];
    const bool is_numeric = bt_host_bytes(host, bytes);

    if (!port_allowed(engine, port)) {
        return false;
    }
    if (bt_str_eq_nocase(host, bt_str_of(engine->url.host))) {
        return true;
    }
    for (size_t i = 0; is_numeric && addrs != NULL && i < addrs->count; i++) {
        if (bt_addr_bytes(&addrs->items[i], own) &&
            memcmp(bytes, own, sizeof(own)) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < rules->count; i++) {
        if (rule_allows(rules->items[i], host, is_numeric, bytes)) {
            return true;
        }
    }
    return false;
}

static bool has_pair(const struct engine *decode, const struct pool *pool)
{
    for (size_t i = 0; i < pool->prefill_count; i++) {
        const struct engine *const prefill = pool->prefill[i];

        if (engine_is_usable(prefill) && atomic_load(&prefill->is_linked) &&
            atomic_load(&decode->pair_ready[prefill->id])) {
            return true;
        }
    }
    return false;
}

/* Connector baton: a usable D can read from a usable P. */
static bool any_pair(const struct pool *pool)
{
    for (size_t i = 0; i < pool->decode_count; i++) {
        const struct engine *const decode = pool->decode[i];

        if (engine_is_usable(decode) && atomic_load(&decode->is_linked) &&
            has_pair(decode, pool)) {
            return true;
        }
    }
    return false;
}

bool registry_is_ready(const struct registry *registry, const char **why_p)
{
    for (size_t i = 0; i < registry->pool_count; i++) {
        const struct pool *const pool = &registry->pools[i];
        const bool needs_prefill =
            pool->conf->connector != CONNECTOR_NONE && pool->prefill_count > 0;

        if (!any_usable(pool->decode, pool->decode_count)) {
            *why_p = "no decode engine is usable";
            return false;
        }
        if (needs_prefill &&
            pool->conf->handoff.on_failure != ON_FAILURE_LOCAL &&
            !any_usable(pool->prefill, pool->prefill_count)) {
            *why_p = "no prefill engine is usable";
            return false;
        }
        if (needs_prefill && pool->conf->connector == CONNECTOR_BATON &&
            pool->conf->handoff.on_failure != ON_FAILURE_LOCAL &&
            !any_pair(pool)) {
            *why_p = "no prefill and decode engine are connected to each "
                     "other yet";
            return false;
        }
    }
    return true;
}
