/*
 * GET /v1/models and /v1/models/{id}: the lists of all engines, merged.
 */
#ifndef PROXY_FRONT_MODELS_H
#define PROXY_FRONT_MODELS_H

#include "proxy/exchange/sink.h"
#include "proxy/front/front.h"

struct models;

/*
 * Answers the sink, never from inside: from the list that was made within the
 * last second by any worker, else when all engines have answered or 2 s are
 * over. `id` empty: the list. NULL when memory is out.
 */
struct models *models_open(struct front *front, struct sink *sink,
                           struct bt_str id);
/* The client left: the sink is not called any more. NULL is fine. */
void models_cancel(struct models **models);
/* Requests of this worker that wait for the list. */
size_t models_count(const struct front *front);
/* The worker ends, and its clients have. */
void models_close(struct front *front);

/* Is it being asked by this worker? */
bool models_ask(const struct front *front, const struct engine *engine);

/* What all workers share; NULL when memory is out. */
struct models_book *models_book_open(void);
void models_book_close(struct models_book **book);

#endif
