/*
 * One completion request: its sequences, and the answer on the connection.
 *
 *   exchange --- choice 0 --- seq        each choice is one answer to one
 *            --- choice 1 --- seq        prompt; all end, then the exchange
 *            --- ...
 *
 * It lives from the whole request to the end of its answer, or until the
 * client is gone, and tells its owner when it is over, before the answer's
 * last byte is handed on.
 */
#ifndef AGENT_ENGINE_SERVE_ENG_EXCHANGE_H
#define AGENT_ENGINE_SERVE_ENG_EXCHANGE_H

#include "agent/engine/options/eng_options.h"
#include "agent/engine/run/sched.h"
#include "agent/engine/serve/eng_request.h"
#include "common/http/http_conn.h"

struct eng_exchange;

enum exchange_outcome {
    EXCHANGE_ANSWERED,
    EXCHANGE_REFUSED,
    EXCHANGE_LOAD_FAILED,
    EXCHANGE_GONE,
};

/* What all exchanges share; borrowed. */
struct exchange_env {
    struct bt_loop *loop;
    const struct eng_options *options;
    struct sched *sched;
    struct faults *faults;
    uint64_t context_tokens; /* longest prompt and answer together */
    const char *url;         /* of this engine */
    const char *engine_id;
    uint64_t outcomes[EXCHANGE_GONE + 1];
    uint64_t prompt_tokens;
};

/*
 * Starts the work; the request is moved in. `id` is the client's name for it
 * (X-Request-Id), empty: one is made. on_over tells the owner to forget the
 * exchange. False: out of memory, nothing was started or answered.
 */
bool exchange_open(struct exchange_env *env, struct bt_http_conn *conn,
                   struct eng_request *request, struct bt_str id,
                   struct eng_exchange **exchange_p);
/*
 * Starts it; may already answer, and then tells on_over before that.
 */
void exchange_start(struct eng_exchange *exchange, void (*on_over)(void *owner),
                    void *owner);
/* The client is gone: all work for it ends. NULL is fine. */
void exchange_close(struct eng_exchange **exchange);
/* The connection takes bytes again. */
void exchange_room(struct eng_exchange *exchange);

#endif
