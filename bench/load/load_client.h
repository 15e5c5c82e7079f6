/*
 * One request on the wire: sends it, stamps what comes, ends it by a verdict.
 *
 *     run -- client_open(message) --> client -- bt_http_call --> server
 *     run <-- on_finished(client) --  client <-- answer bytes --
 *
 * A client frees itself after on_finished; the loop empties its grave.
 */
#ifndef BENCH_LOAD_LOAD_CLIENT_H
#define BENCH_LOAD_LOAD_CLIENT_H

#include "bench/load/load_answer.h"
#include "bench/load/record.h"
#include "common/http/http_call.h"

#include <sys/queue.h>

struct load_client;

/* What is the same for all requests of a run. */
struct client_setup {
    struct bt_loop *loop;
    struct bt_http_origin *origin;
    uint64_t start_us; /* of the run: stamps are told since then */
    uint64_t ttft_ms;  /* 0: no limit */
    uint64_t idle_ms;  /* 0: no limit */
    bool wants_stream;
    void (*on_finished)(void *owner, struct load_client *client);
    void *owner;
};

struct client_message {
    struct bt_buf head;
    struct bt_buf body;
};

struct load_client {
    const struct client_setup *setup;
    struct bt_http_call *call;
    struct client_message message;
    struct iovec iov[2];
    struct load_answer answer;
    struct record_row row;
    struct bt_timer timer;
    struct bt_grave grave;
    bool cancels; /* leaves after its first content */
    bool is_finished;
    LIST_ENTRY(load_client) entry; /* in the run's list of those in flight */
};

/*
 * Sends now. The message moves into the client. BT_ERR_NOMEM: nothing was
 * sent, the message is still the caller's.
 */
BT_MUST_CHECK enum bt_status client_open(const struct client_setup *setup,
                                         struct client_message *message,
                                         const struct workload_item *item,
                                         bool cancels,
                                         struct load_client **client_p);
/* Gives it up; on_finished is called with `cancelled`. */
void client_cancel(struct load_client *client);

void client_message_fini(struct client_message *message);

#endif
