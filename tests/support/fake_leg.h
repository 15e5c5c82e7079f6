/*
 * Scripted upstream: takes the place of proxy/exchange/leg.c at link time. A
 * leg that is opened stays open until the test tells the exchange what became
 * of it.
 */
#ifndef TESTS_SUPPORT_FAKE_LEG_H
#define TESTS_SUPPORT_FAKE_LEG_H

#include "common/base/buf.h"
#include "proxy/exchange/leg.h"

struct fake_legs {
    unsigned opened[LEG_ROLE_COUNT];
    unsigned closed[LEG_ROLE_COUNT];
    unsigned shut;
    unsigned paused;
    unsigned resumed;
    bool was_fresh; /* the last leg asked for a fresh connection */
    bool refuses;   /* leg_open fails */
    bool is_late;   /* others take the last place */
    /* Of the last leg of that role: */
    struct bt_buf body[LEG_ROLE_COUNT];
    struct bt_buf request_id[LEG_ROLE_COUNT];
};

/* The one set that leg_open and the others record in. */
struct fake_legs *fake_legs(void);
void fake_legs_reset(void);

#endif
