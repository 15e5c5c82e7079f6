/*
 * An OpenAI request as the proxy sees it: the spans of the JSON text that are
 * edited for each leg, and the few facts that routing needs. Pure: one pass
 * over the text, nothing is copied.
 *
 *                      +--> edits of the P leg (one token, no stream, ...)
 *     body text -------+
 *                      +--> edits of the D leg (private members only)
 */
#ifndef PROXY_EXCHANGE_REQUEST_H
#define PROXY_EXCHANGE_REQUEST_H

#include "common/json/json_splice.h"
#include "proxy/base/fault.h"
#include "proxy/config/config.h"
#include "proxy/metrics/stats.h"

enum endpoint {
    ENDPOINT_COMPLETIONS,
    ENDPOINT_CHAT,
};

/* The edits of one leg, open at the end of the top level. */
struct request_edit {
    struct bt_json_splice splice;
    struct bt_json_level level;
    struct bt_str members; /* added to the top level, joined by "," */
};

struct request {
    enum endpoint endpoint;
    struct bt_str body;
    const char *close;   /* the top level's '}' */
    struct bt_str model; /* decoded; empty when absent */
    bool stream;
    /* the first private member that the client sent: a.b.name, or empty */
    struct bt_str private_name;
    bool forces_tool;         /* tool_choice "required" or a named function */
    enum route_reason reason; /* ROUTE_REASON_PD, or why D alone */
    uint64_t text_bytes;      /* of strings in the prompt */
    uint64_t token_ids;       /* given as numbers */
    struct request_edit prefill;
    struct request_edit decode;
};

/*
 * Reads `body` (borrowed for the request's life; edits live in the arena). A
 * byte order mark in front is passed on: it is the engines' to take. On a
 * fault detail_p gets a text in the arena or an empty one.
 */
enum fault request_read(struct request *request, struct bt_arena *arena,
                        enum endpoint endpoint, struct bt_str body,
                        struct bt_str *detail_p);

/* Did the client send a member that is private? (client_params: refuse) */
bool request_has_private(const struct request *request);

/*
 * Closes a leg's edits with `params` as the value of kv_transfer_params
 * (empty: none is added). Called again, the new text replaces the old one.
 */
void request_close_edit(const struct request *request,
                        struct request_edit *edit, struct bt_arena *arena,
                        struct bt_str params);

/*
 * A stock release: the P leg's limits and no stream, with D's params. The P
 * leg's own edits stay as they are.
 */
void request_release_edit(const struct request *request,
                          struct request_edit *edit_p, struct bt_arena *arena,
                          struct bt_str params, bool is_invalid);

#endif
