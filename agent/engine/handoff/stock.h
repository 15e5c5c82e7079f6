/*
 * The handoffs of other connectors, in form only: the text that a prefill
 * engine of theirs answers. Nothing is held for it and nothing can be read.
 */
#ifndef AGENT_ENGINE_HANDOFF_STOCK_H
#define AGENT_ENGINE_HANDOFF_STOCK_H

#include "agent/engine/options/eng_options.h"
#include "common/base/buf.h"

struct stock_place {
    enum options_connector connector;
    const char *url; /* of this engine: its host and port are named */
    const char *engine_id;
    const char *request_id;
    uint64_t block_tokens, tp;
    uint64_t tokens; /* of the prompt */
};

/* Appends the kv_transfer_params; nothing where the connector has none. */
void stock_write_params(const struct stock_place *place, struct bt_buf *out);

#endif
