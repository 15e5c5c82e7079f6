/*
 * engine: its health, and which names it may go by in a handoff.
 */
#include "proxy/fleet/engine.h"

#include "common/base/log.h"
#include "common/io/key_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Workers may be reading an id that was replaced: it stays. */
struct engine_name {
    SLIST_ENTRY(engine_name) entry;
    char text[];
};

#define BELIEVED_MS 1000 /* after a failure, without probes */

static enum bt_status engine_read(struct engine *engine,
                                  const struct config *config)
{
    const struct engine_conf *const conf = engine->conf;
    struct engine_place *none = NULL;
    struct bt_addrs addrs;
    const char *why = "";
    const char *const key_file =
        conf->key_file != NULL ? conf->key_file : config->auth.engine_key_file;
    const enum bt_status status = bt_url_parse(conf->url, &engine->url, &why);

    if (status != BT_OK) {
        bt_log(BT_LOG_ERROR, conf->url, "bad URL: %s", why);
        return status;
    }
    engine->is_probed =
        config->timeouts.probe_interval != 0 && !engine->url.is_tls;
    atomic_init(&engine->failed_at_ms, 1);
    atomic_init(&engine->blocks_free, UINT64_MAX);
    if (bt_url_addr(&engine->url, &addrs) &&
        engine_set_addrs(engine, &addrs, &none) != BT_OK) {
        return BT_ERR_NOMEM;
    }
    return key_file == NULL ? BT_OK : bt_key_read(key_file, &engine->key);
}

enum bt_status engine_open(const struct config *config, const struct pool *pool,
                           enum engine_role role,
                           const struct engine_conf *conf,
                           struct engine **engine_p)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    enum bt_status status;

    if (engine == NULL) {
        return BT_ERR_NOMEM;
    }
    engine->role = role;
    engine->pool = pool;
    engine->conf = conf;
    status = engine_read(engine, config);
    if (status != BT_OK) {
        engine_close(&engine);
        return status;
    }
    *engine_p = engine;
    return BT_OK;
}

static void free_names(struct engine *engine)
{
    struct engine_name *name = SLIST_FIRST(&engine->names);

    while (name != NULL) {
        struct engine_name *const next = SLIST_NEXT(name, entry);

        free(name);
        name = next;
    }
}

void engine_close(struct engine **engine)
{
    struct engine *const dead = *engine;

    *engine = NULL;
    if (dead != NULL) {
        free_names(dead);
        free(atomic_load(&dead->where));
        bt_key_free(&dead->key);
        config_engine_free(dead->own_conf);
        free(dead);
    }
}

const char *engine_state_text(const struct engine *engine)
{
    switch (atomic_load(&engine->state)) {
    case ENGINE_UP:
        return engine_is_alive(engine) ? "up" : "down";
    case ENGINE_DRAINING:
        return "draining";
    case ENGINE_DRAINED:
        return "drained";
    case ENGINE_LEAVING:
        return "leaving";
    case ENGINE_GONE:
        break;
    }
    return "gone";
}

void engine_set_paired(struct engine *decode, const struct engine *prefill,
                       bool is_paired)
{
    const unsigned long long bit = 1ULL << prefill->slot % 64;
    atomic_ullong *const word = &decode->paired[prefill->slot / 64];

    if (is_paired) {
        (void)atomic_fetch_or(word, bit);
    } else {
        (void)atomic_fetch_and(word, ~bit);
    }
}

bool engine_set_bootstrap_id(struct engine *engine, struct bt_str id)
{
    struct engine_name *const name = malloc(sizeof(*name) + id.len + 1);

    if (name == NULL) {
        return false;
    }
    bt_str_copy(name->text, id.len + 1, id);
    SLIST_INSERT_HEAD(&engine->names, name, entry);
    atomic_store_explicit(&engine->bootstrap_id, name->text,
                          memory_order_release);
    return true;
}

const char *engine_bootstrap(const struct engine *engine)
{
    return engine->conf->bootstrap != NULL ? engine->conf->bootstrap
                                           : engine->url.authority;
}

const struct bt_addrs *engine_addrs(const struct engine *engine)
{
    uint64_t version;

    return engine_addrs_at(engine, &version);
}

const struct bt_addrs *engine_addrs_at(const struct engine *engine,
                                       uint64_t *version_p)
{
    const struct engine_place *const where =
        atomic_load_explicit(&engine->where, memory_order_acquire);

    if (where == NULL) {
        return NULL;
    }
    *version_p = where->version;
    return &where->addrs;
}

enum bt_status engine_set_addrs(struct engine *engine,
                                const struct bt_addrs *addrs,
                                struct engine_place **old_p)
{
    const struct engine_place *const before = atomic_load(&engine->where);
    struct engine_place *const where = malloc(sizeof(*where));

    if (where == NULL) {
        return BT_ERR_NOMEM;
    }
    where->version = before == NULL ? 1 : before->version + 1;
    where->addrs = *addrs;
    *old_p = atomic_exchange(&engine->where, where);
    if (before == NULL || !engine->is_probed) {
        atomic_store(&engine->failed_at_ms, 0);
    }
    return BT_OK;
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

    /* An address that its name has left says nothing of it. */
    if (atomic_load_explicit(&engine->failed_at_ms, memory_order_relaxed) !=
            0 ||
        !bt_addrs_has(engine_addrs(engine), failure->addr)) {
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
