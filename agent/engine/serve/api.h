/*
 * The HTTP side of the engine: listener, connections, endpoints.
 *
 *   api --- client --- bt_http_conn
 *              '------ exchange (while a completion is in the works)
 *
 *   POST /v1/completions /v1/chat/completions /tokenize /detokenize
 *   GET  /v1/models /v1/models/NAME /health /ping /version /metrics
 *   GET  /admin/state      what the engine holds, as JSON
 *   POST /admin/fault      {"name": ..., "arg": ..., "times": ...}
 */
#ifndef AGENT_ENGINE_SERVE_API_H
#define AGENT_ENGINE_SERVE_API_H

#include "agent/engine/handoff/eng_handoff.h"
#include "agent/engine/kv/kv.h"
#include "agent/engine/serve/eng_exchange.h"
#include "common/io/net.h"

struct api;

struct api_options {
    struct exchange_env *env; /* borrowed */
    struct kv *kv;
    struct eng_handoff *handoff; /* NULL: no agents */
    int listener;                /* goes to the api on success */
};

BT_MUST_CHECK enum bt_status api_open(const struct api_options *options,
                                      struct api **api_p);
/* Closes all connections; work for them ends. */
void api_close(struct api **api);

#endif
