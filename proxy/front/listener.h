/*
 * Accepting connections on one listening socket of a worker.
 */
#ifndef PROXY_FRONT_LISTENER_H
#define PROXY_FRONT_LISTENER_H

#include "proxy/front/front.h"

struct listener;

/* Takes over the fd. The worker's list gets the listener. */
BT_MUST_CHECK enum bt_status listener_open(struct front *front, int fd);
/* Accepts those who wait already, before the listeners are closed. */
void listener_take_waiting(struct front *front);
/* Closes all of the worker's listeners. */
void listener_close_all(struct front *front);

#endif
