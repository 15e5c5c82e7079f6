/*
 * fake_leg: proxy/exchange/leg.h without connections.
 */
#include "tests/support/fake_leg.h"

#include "tests/support/splice_text.h"

struct fake_legs *fake_legs(void)
{
    static struct fake_legs legs;

    return &legs;
}

void fake_legs_reset(void)
{
    struct fake_legs *const legs = fake_legs();

    for (size_t i = 0; i < LEG_ROLE_COUNT; i++) {
        bt_buf_fini(&legs->body[i]);
        bt_buf_fini(&legs->request_id[i]);
    }
    *legs = (struct fake_legs){0};
}

void leg_init(struct leg *leg, struct local *local, enum leg_role role,
              void (*on_event)(void *owner, const struct leg_event *event),
              void *owner)
{
    *leg = (struct leg){
        .local = local, .role = role, .on_event = on_event, .owner = owner};
}

enum bt_status leg_open(struct leg *leg, const struct leg_ask *ask)
{
    struct fake_legs *const legs = fake_legs();
    struct bt_buf *const body = &legs->body[leg->role];
    union {
        struct fake_legs *legs;
        struct bt_http_call *call;
    } open = {.legs = legs};

    leg_unreserve(leg);
    if (legs->refuses) {
        return BT_ERR_NOMEM;
    }
    leg->engine = ask->engine;
    leg->number++;
    leg->call = open.call; /* only compared with NULL */
    leg->is_sent = false;
    leg->is_whole = false;
    leg->is_paused = false;
    leg->code = 0;
    leg->begun_us = 1;
    leg->end_us = 2;
    legs->opened[leg->role]++;
    legs->was_fresh = ask->fresh_only;
    bt_buf_clear(&legs->request_id[leg->role]);
    bt_buf_printf(&legs->request_id[leg->role], "%s-%u", ask->inner_id,
                  ask->call);
    if (ask->repeat > 0) {
        bt_buf_printf(&legs->request_id[leg->role], "-r%u", ask->repeat);
    }
    bt_buf_clear(body);
    splice_text(ask->body, body);
    return BT_OK;
}

void leg_reserve(struct leg *leg, struct engine *engine)
{
    leg_unreserve(leg);
    leg->reserved = engine;
    atomic_fetch_add(&engine->in_flight, 1);
}

bool leg_try_reserve(struct leg *leg, struct engine *engine)
{
    leg_reserve(leg, engine);
    return !fake_legs()->is_late;
}

void leg_unreserve(struct leg *leg)
{
    if (leg->reserved != NULL) {
        atomic_fetch_sub(&leg->reserved->in_flight, 1);
        leg->reserved = NULL;
    }
}

void leg_close(struct leg *leg, enum leg_outcome outcome)
{
    (void)outcome;
    if (leg->call != NULL) {
        leg->call = NULL;
        fake_legs()->closed[leg->role]++;
    }
}

bool leg_is_open(const struct leg *leg)
{
    return leg->call != NULL;
}

bool leg_is_sent(const struct leg *leg)
{
    return leg->is_sent;
}

void leg_pause(struct leg *leg)
{
    leg->is_paused = true;
    fake_legs()->paused++;
}

void leg_resume(struct leg *leg)
{
    if (leg->is_paused) {
        leg->is_paused = false;
        fake_legs()->resumed++;
    }
}

void leg_shut(struct leg *leg)
{
    (void)leg;
    fake_legs()->shut++;
}
