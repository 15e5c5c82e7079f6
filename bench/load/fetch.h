/*
 * One small GET, waited for: the model list before a run, the proxy's table
 * of handoffs after it.
 */
#ifndef BENCH_LOAD_FETCH_H
#define BENCH_LOAD_FETCH_H

#include "common/base/buf.h"
#include "common/http/http_call.h"

struct fetch {
    struct bt_loop *loop;
    struct bt_http_origin *origin;
    const char *authority; /* of the Host field */
    const char *bearer;    /* NULL: none */
};

/*
 * Appends the body of a 200 (at most 16 MiB) to `body`. BT_ERR_TIMEOUT,
 * BT_ERR_UNSUPPORTED (another status, see *code_p), or the call's failure.
 */
BT_MUST_CHECK enum bt_status fetch_text(const struct fetch *fetch,
                                        const char *path, uint64_t timeout_ms,
                                        struct bt_buf *body, unsigned *code_p);

#endif
