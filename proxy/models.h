/*
 * GET /v1/models and /v1/models/{id}: the lists of all engines, merged.
 */
#ifndef PROXY_MODELS_H
#define PROXY_MODELS_H

#include "proxy/sink.h"
#include "proxy/worker.h"

struct models;

/*
 * Asks every usable engine and answers the sink when all have answered or the
 * probe's time is over. `id` empty: the list. NULL when memory is out.
 */
struct models *models_open(struct worker *worker, struct sink *sink,
                           struct bt_str id);
/* The client left: the sink is not called any more. NULL is fine. */
void models_cancel(struct models **models);
/* The worker ends. */
void models_abort(struct worker *worker);

#endif
