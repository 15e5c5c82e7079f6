/*
 * The proxy's table of live handoffs, as its admin listener tells it.
 */
#ifndef BENCH_LOAD_LOAD_HANDOFFS_H
#define BENCH_LOAD_LOAD_HANDOFFS_H

#include "common/base/str.h"

struct load_handoffs {
    uint64_t live;
    uint64_t blocks; /* that they hold, where the proxy knows */
};

/* False when the text is not such a table. */
bool handoffs_read(struct bt_str json, struct load_handoffs *handoffs_p);

#endif
