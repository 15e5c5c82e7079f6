/*
 * The options: checked, and copied into memory of the agent's own.
 */
#include "agent/src/api/agent_options.h"

#include "agent/src/base/message.h"
#include "agent/src/base/sized.h"
#include "agent/src/geometry/card.h"
#include "common/base/utf8.h"

#include <stdlib.h>

#define PROXIES_MAX     64
#define MAX_HOLDS_LIMIT (1u << 24)
#define TIME_MS_MAX     86400000u

static const char *ranks_fault(const baton_options *options)
{
    if (options->world == 0 || options->rank >= options->world ||
        options->world > BTA_WORLD_MAX) {
        return "rank and world are not 0 <= rank < world <= 4096";
    }
    if (options->proxy_count > 0 && options->world > LINK_WORLD_MAX) {
        return "world is above 64, which is the most that proxies take";
    }
    return options->tp == 0 || options->pp == 0 ? "tp or pp is 0" : NULL;
}

static const char *sizes_fault(const baton_options *options)
{
    if (options->max_handoffs == 0 || options->max_handoffs > MAX_HOLDS_LIMIT ||
        options->max_holds == 0 || options->max_holds > MAX_HOLDS_LIMIT) {
        return "max_handoffs or max_holds is not from 1 to 2^24";
    }
    if (options->pull_timeout_ms == 0 ||
        options->pull_timeout_ms > TIME_MS_MAX ||
        options->drain_ms > TIME_MS_MAX || options->orphan_ms > TIME_MS_MAX) {
        return "pull_timeout_ms is 0, or a time is above a day";
    }
    return NULL;
}

/* A text that a card can carry: absent, or UTF-8 of at most max bytes. */
static bool text_checked(const char *text, size_t max)
{
    const struct bt_str bytes =
        bt_str_span(text, text == NULL ? 0 : strnlen(text, max + 1));

    return bytes.len <= max && bt_utf8_is_valid(bytes);
}

static const char *proxies_fault(const baton_options *options)
{
    if (options->proxy_count > PROXIES_MAX) {
        return "there are more than 64 proxies";
    }
    if (options->proxies == NULL && options->proxy_count > 0) {
        return "proxies is NULL";
    }
    for (size_t i = 0; i < options->proxy_count; i++) {
        if (options->proxies[i] == NULL) {
            return "a proxy is NULL";
        }
    }
    if (options->proxy_count > 0 &&
        (options->url == NULL || options->url[0] == '\0')) {
        return "url is empty: proxies know an engine by its URL";
    }
    return NULL;
}

static const char *texts_fault(const baton_options *options)
{
    if (!bta_engine_is_valid(bt_str_of(options->engine))) {
        return "engine is not 1 to 255 printable ASCII characters";
    }
    if (!text_checked(options->url, LINK_URL_MAX)) {
        return "url is no UTF-8 of at most 1024 bytes";
    }
    if (!text_checked(options->fingerprint, LINK_FINGERPRINT_MAX)) {
        return "fingerprint is no UTF-8 of at most 4096 bytes";
    }
    if (options->key.length > LINK_KEY_MAX ||
        (options->key.data == NULL && options->key.length > 0)) {
        return "key is NULL or longer than 4096 bytes";
    }
    return NULL;
}

static bool role_checked(baton_role role)
{
    switch (role) {
    case BATON_ROLE_PREFILL:
    case BATON_ROLE_DECODE:
    case BATON_ROLE_BOTH:
    case BATON_ROLE_SCHEDULER:
        return true;
    }
    return false;
}

static const char *text_copy(struct bt_arena *arena, const char *text,
                             const char *absent)
{
    return bt_arena_dup(arena, bt_str_of(text == NULL ? absent : text)).ptr;
}

static void proxies_copy(struct bt_arena *arena, baton_options *options)
{
    const char **const proxies =
        bt_arena_zalloc(arena, (options->proxy_count + 1) * sizeof(char *));

    for (size_t i = 0; proxies != NULL && i < options->proxy_count; i++) {
        proxies[i] = text_copy(arena, options->proxies[i], "");
    }
    options->proxies = proxies;
}

/* NULL, or what is wrong (static). */
static const char *options_fault(const baton_options *options)
{
    static const char *(*const CHECKS[])(const baton_options *options) = {
        ranks_fault, sizes_fault, proxies_fault, texts_fault};
    const char *fault = role_checked(options->role) ? NULL : "no such role";

    for (size_t i = 0; i < BT_ARRAY_LEN(CHECKS) && fault == NULL; i++) {
        fault = CHECKS[i](options);
    }
    return fault;
}

/* Reads and checks them; a fault is told to their log. */
static baton_status options_read(const baton_options *given,
                                 baton_options *options)
{
    const baton_status status = bta_sized_read(options, given);
    const struct bta_log log = {options->log, options->log_arg};
    const char *fault;

    if (status != BATON_OK) {
        return status;
    }
    fault = options_fault(options);
    if (fault != NULL) {
        bta_log_write(&log, BTA_ERROR, "options: %s", fault);
        return BATON_ERR_ARGUMENT;
    }
    if (options->stage_bytes != 0) {
        bta_log_write(&log, BTA_ERROR,
                      "options: stage_bytes is not 0, but this build copies "
                      "nothing through a stage");
        return BATON_ERR_UNSUPPORTED;
    }
    return BATON_OK;
}

baton_status bta_options_copy(const baton_options *asked,
                              struct bt_arena *arena, baton_options *copy_p)
{
    baton_options options = baton_options_preset();
    const baton_options *const given = &options;
    const baton_status status = options_read(asked, &options);

    if (status != BATON_OK) {
        return status;
    }
    options.engine = text_copy(arena, given->engine, "");
    options.url = text_copy(arena, given->url, "");
    options.provider = text_copy(arena, given->provider, "auto");
    options.fingerprint = text_copy(arena, given->fingerprint, "");
    if (given->fabric_address != NULL) {
        options.fabric_address = text_copy(arena, given->fabric_address, "");
    }
    options.key.data =
        bt_arena_dup(arena,
                     bt_str_span(given->key.length == 0 ? "" : given->key.data,
                                 given->key.length))
            .ptr;
    proxies_copy(arena, &options);
    if (arena->failed) {
        return BATON_ERR_MEMORY;
    }
    *copy_p = options;
    return BATON_OK;
}

/* http://HOST:PORT/…, http://[V6]:PORT/… */
const char *bta_options_url_host(const baton_options *options,
                                 struct bt_arena *arena)
{
    const char *host = strstr(options->url, "://");
    size_t length;

    if (host == NULL) {
        return NULL;
    }
    host += strlen("://");
    if (*host == '[') {
        host++;
        length = strcspn(host, "]");
    } else {
        length = strcspn(host, ":/?#");
    }
    return length == 0 ? NULL
                       : bt_arena_dup(arena, bt_str_span(host, length)).ptr;
}
