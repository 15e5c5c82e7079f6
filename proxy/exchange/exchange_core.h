/*
 * What the parts of an exchange share; see exchange.h for the whole.
 *
 *      client, timer, news          P's leg          D's leg
 *               |                      |                |
 *        exchange_events -> exchange_prefill -> exchange_decode
 *               |                      |                |
 *               |                      '-------.--------'
 *               |                      exchange_failure
 *               |                              |
 *               '----> exchange_follow <-------'    what the table says
 *                       |           ^ |
 *                       v           | v
 *           exchange_dispatch ---> exchange_end
 *           the attempt's plan     the client's verdict
 *                       |             |
 *                       '-> exchange_state
 *
 * Each calls those below it, and the end what follows from it. The table calls
 * exchange_abort where a state cannot be.
 */
#ifndef PROXY_EXCHANGE_EXCHANGE_CORE_H
#define PROXY_EXCHANGE_EXCHANGE_CORE_H

#include "common/base/log.h"
#include "proxy/base/quota.h"
#include "proxy/exchange/blame.h"
#include "proxy/exchange/complaint.h"
#include "proxy/exchange/exchange.h"

#define LINGER_MS 250
#define REPORT_MS 250
#define WORDS_MS  1000 /* for the body of an engine's 5xx */

static inline const struct pool_conf *conf_of(const struct exchange *x)
{
    return x->attempt.pool->conf;
}

/* Of its connector; false while no pool is chosen. */
static inline bool is_baton(const struct exchange *x)
{
    return x->attempt.pool != NULL && conf_of(x)->connector == CONNECTOR_BATON;
}

static inline bool is_stock(const struct exchange *x)
{
    return x->attempt.pool != NULL && prefill_is_stock(conf_of(x)->connector);
}

static inline bool is_at_once(const struct exchange *x)
{
    return prefill_is_at_once(conf_of(x)->connector);
}

static inline uint64_t now_ms(const struct exchange *x)
{
    return bt_loop_now_ms(x->local->loop);
}

/* --- exchange_state.c --- */

/* Nobody needs it any more: freed, and no longer charged. */
void exchange_drop_body(struct exchange *x);
/*
 * One timer for all of them. It is set again only for an earlier one: when it
 * fires too soon, it looks when the next is due.
 */
void exchange_set_due(struct exchange *x, enum exchange_due which,
                      uint64_t delay);
/* What is due next; DUE_COUNT: nothing. */
enum exchange_due exchange_next_due(const struct exchange *x);
/* `fault`, or that of the whole exchange's deadline where that has passed. */
enum fault exchange_deadline_fault(const struct exchange *x, enum fault fault);
/* Enters a state of one machine and ends that machine's deadline; what it means
 * for the others is exchange_follow's. */
void exchange_set_prefill(struct exchange *x, enum prefill_state state);
void exchange_set_decode(struct exchange *x, enum decode_state state);
void exchange_set_client(struct exchange *x, enum client_state state);

/* --- exchange_end.c --- */

/* Of a leg that is closed because the client's part is over. */
enum leg_outcome exchange_late_outcome(const struct exchange *x);
/*
 * D's answer can overtake the agent's report of the pull, which takes the way
 * over the control thread. A handoff that went well waits for it a little, so
 * that its line in the access log is whole.
 */
bool exchange_lacks_report(const struct exchange *x);
/* To control, where it knows the handoff and was not told yet. */
void exchange_tell_release(struct exchange *x, enum release_reason reason,
                           bool cancel_decode);
/* All is over: buried at the end of this turn. */
void exchange_finish(struct exchange *x);
/* No other D may have it: whatever became of that call, P's blocks may be freed
 * and used again. */
bool exchange_is_spent(const struct exchange *x);
/* D got a stock handoff: a close too soon would be parsed as no request. */
bool exchange_must_linger(const struct exchange *x);
/* P may have a handoff for us on its way. */
bool exchange_must_harvest(const struct exchange *x);
/* The client has its verdict, or is gone. */
void exchange_end_client(struct exchange *x);
/* By which the client knows the request: its own id, else ours. */
struct bt_str exchange_id_text(const struct exchange *x);
/* Our own fields of an answer's head. */
void exchange_write_fields(const struct exchange *x, struct bt_buf *out);
/* An error body of ours; the exchange itself goes on. */
void exchange_send_fault(struct exchange *x, enum fault fault, unsigned status,
                         struct bt_str detail);
/* exchange_refuse with the fault's own status and words. */
void exchange_fail(struct exchange *x, enum fault fault);
/* Passes on an engine's answer as a whole. */
void exchange_pass_answer(struct exchange *x, unsigned code,
                          struct bt_str fields, struct bt_str body);
/* An answer that was begun cannot be ended well. */
void exchange_break_off(struct exchange *x, enum fault fault, unsigned status);

/* --- exchange_dispatch.c --- */

/* False: memory is out, or the engine has no address. */
bool exchange_open_leg(struct exchange *x, struct leg *leg,
                       struct engine *engine, const struct bt_json_splice *body,
                       bool is_fresh);
/* Open the legs that were planned; is_fresh: on no kept connection. */
void exchange_start_decode(struct exchange *x, bool is_fresh);
void exchange_start_prefill(struct exchange *x, bool is_fresh);
/* May this handoff still go to another D? */
bool exchange_handoff_is_good(const struct exchange *x);
/* D alone from now on. */
void exchange_go_alone(struct exchange *x, enum route_reason reason);
/*
 * What comes next, after a failure or at the start. False: nothing does, and
 * the engine's own answer is to be passed on.
 */
bool exchange_go_next(struct exchange *x, bool passes_on);
/* Looks for engines, as for a new request. */
void exchange_begin(struct exchange *x);
/* Its turn in the queue; see admission_wait. */
bool exchange_on_turn(struct admission_wait *wait);

/* --- exchange_follow.c --- */

/* Does what the table says of the present states. */
void exchange_follow(struct exchange *x);

/* --- exchange_failure.c --- */

/* The leg is closed with that outcome, and the next plan carried out. */
void exchange_leg_fails(struct exchange *x, struct leg *leg,
                        enum leg_outcome outcome, enum fault fault,
                        unsigned status);
/* As it, of a call that could not be made or broke off. */
void exchange_call_fails(struct exchange *x, struct leg *leg,
                         const struct bt_http_failure *failure);
/* As it, of a D that died under the request. */
void exchange_decode_is_lost(struct exchange *x);
/* The log has an engine's words, the client what it may know of them. */
void exchange_complain(struct exchange *x, struct engine *engine,
                       struct bt_str why, struct bt_str words);
/* "it answered 500", in the arena. */
struct bt_str exchange_answered_text(struct exchange *x, unsigned code);
/* Its answer cannot be used. */
void exchange_prefill_is_bad(struct exchange *x, enum fault fault,
                             struct bt_str why);
/* Whose fault a head is: blame.h, with what the exchange knows. */
enum blame exchange_blame_head(const struct exchange *x, const struct leg *leg,
                               const struct bt_http_head *head);
/*
 * What both legs do alike about an engine's code: its refusal of our key is
 * told to the operator, one that is busy is left for another (a 429: once).
 * False: it is the leg's own to answer, a 429 as what else is the client's.
 */
bool exchange_settles(struct exchange *x, struct leg *leg, enum blame blame,
                      unsigned code);
/* As it, of a head; a compressed 4xx, whose words cannot be looked into, is
 * told in ours. */
bool exchange_settles_head(struct exchange *x, struct leg *leg,
                           enum blame blame, const struct bt_http_head *head);
/*
 * Passes an engine's 4xx on as it is. Private members are taken out; where its
 * words tell what is private even so, they stay in the log.
 */
void exchange_pass_error(struct exchange *x, struct leg *leg, unsigned code,
                         struct bt_str fields, struct bt_str body);
/* An engine's 5xx is another attempt: its words are waited for, shortly. */
bool exchange_leg_has_failed(const struct leg *leg);

/* --- exchange_prefill.c, exchange_decode.c --- */

/* What a leg tells: of the request, or of one whose client is gone. */
void exchange_on_prefill(void *owner, const struct leg_event *event);
void exchange_on_decode(void *owner, const struct leg_event *event);
/* The leg's deadline. */
void exchange_prefill_due(struct exchange *x);
void exchange_decode_due(struct exchange *x);
/* The deadline of an answer that was begun: D's, or that of all. */
void exchange_stream_due(struct exchange *x, enum fault fault);

#endif
