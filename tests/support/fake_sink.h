/*
 * A sink that records what an exchange or relay answered.
 */
#ifndef TESTS_SUPPORT_FAKE_SINK_H
#define TESTS_SUPPORT_FAKE_SINK_H

#include "common/base/buf.h"
#include "proxy/exchange/sink.h"

struct fake_sink {
    struct sink sink; /* first */
    unsigned code;
    struct bt_buf fields;
    struct bt_buf body;
    unsigned heads;   /* calls of head */
    unsigned answers; /* calls of answer */
    unsigned ends;
    unsigned cuts;
    unsigned writes; /* calls of body */
    bool is_full;    /* body says BT_AGAIN */
};

void fake_sink_init(struct fake_sink *fake);
void fake_sink_fini(struct fake_sink *fake);
/* Verdicts given: answer, end and cut together. */
unsigned fake_sink_verdicts(const struct fake_sink *fake);

#endif
