/*
 * Starting the legs of an exchange, judging how they fail, and what is tried
 * next.
 */
#ifndef PROXY_EXCHANGE_ATTEMPT_H
#define PROXY_EXCHANGE_ATTEMPT_H

#include "proxy/exchange/exchange.h"

/* Chooses engines and starts the first leg, or waits, or refuses. */
void attempt_route(struct exchange *x);

/* The P leg's events. */
void attempt_prefill_head(struct exchange *x, const struct bt_http_head *head);
void attempt_prefill_end(struct exchange *x);
void attempt_prefill_failed(struct exchange *x,
                            const struct bt_http_failure *failure);
/* P's answer is not usable: elsewhere, or the verdict `fault`. */
void attempt_prefill_bad(struct exchange *x, enum fault fault,
                         struct bt_str why);

/* The D leg's events. */
void attempt_decode_head(struct exchange *x, const struct bt_http_head *head);
void attempt_decode_failed(struct exchange *x,
                           const struct bt_http_failure *failure);
/* The body of D's 4xx or 5xx is there, or as much of it as is wanted. */
void attempt_decode_refused(struct exchange *x);
/* D's first event is an error object: as an answer of its code would be. */
void attempt_decode_error(struct exchange *x);
/* D failed before commit: elsewhere, or the verdict `fault` (status 0: own). */
void attempt_decode_bad(struct exchange *x, enum fault fault, unsigned status,
                        enum leg_outcome outcome);

/* D died before commit: it counts as a death, too. */
void attempt_decode_lost(struct exchange *x);

/*
 * Was a stock handoff handed to a D whole? No other may have it: whatever
 * became of that call, P's blocks may be freed and used again.
 */
bool attempt_is_spent(const struct exchange *x);
/*
 * Sends a stock handoff that no D will take to a D, so that P is told to
 * free. False when that is not possible or not needed.
 */
bool attempt_release(struct exchange *x);

#endif
