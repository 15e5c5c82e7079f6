/*
 * The HTTP message of one request.
 */
#ifndef BENCH_LOAD_LOAD_REQUEST_H
#define BENCH_LOAD_LOAD_REQUEST_H

#include "bench/load/load_client.h"
#include "bench/load/load_options.h"
#include "bench/load/workload.h"

struct request_form {
    enum options_endpoint endpoint;
    bool wants_stream;
    bool ignore_eos;
    const char *model;
    const char *authority; /* of the Host field */
    const char *bearer;    /* NULL: none */
    struct bt_str body;    /* sent as it is; empty: made of the item */
};

/* False when memory is out; the message is empty then. */
bool request_write(const struct request_form *form,
                   const struct workload_plan *plan,
                   const struct workload_item *item,
                   struct client_message *message_p);

#endif
