/*
 * The proxy's table of live handoffs, as its admin listener tells it.
 */
#ifndef BENCH_HANDOFFS_H
#define BENCH_HANDOFFS_H

#include "common/str.h"

struct handoffs {
    uint64_t live;
    uint64_t blocks; /* that they hold, where the proxy knows */
};

/* False when the text is not such a table. */
bool handoffs_read(struct bt_str json, struct handoffs *handoffs_p);

#endif
