/*
 * One downstream connection: which requests are let in, and the sink through
 * which an exchange answers.
 *
 *   http_conn --> client --> exchange
 *   http_conn <-- sink   <--
 */
#ifndef PROXY_FRONT_CLIENT_H
#define PROXY_FRONT_CLIENT_H

#include "proxy/front/front.h"

struct client;
struct quota;

/* Takes over an accepted fd (closed on failure too) and its place in the quota
 * of its address (NULL: not limited). */
void client_open(struct front *front, int fd, struct quota *quota);
/* No further request after the current one. */
void client_finish(struct client *client);
/* Ends it at once. */
void client_abort(struct client *client);
struct client *client_next(const struct client *client);

#endif
