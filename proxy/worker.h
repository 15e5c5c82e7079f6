/*
 * One worker: a thread, its loop, and everything that lives and dies on it.
 *
 *   worker 0..N-1
 *      front  listeners -> clients
 *      local  exchanges -> legs -> kept connections
 *      mailboxes <- news of the control thread, orders of the main thread
 */
#ifndef PROXY_WORKER_H
#define PROXY_WORKER_H

#include "proxy/front/front.h"

#include <pthread.h>

struct worker {
    struct local local;
    struct front front;
    unsigned id;
    pthread_t thread;
    bool is_started;
    bool is_draining;
    struct bt_mailbox *orders; /* of the main thread */
    struct bt_timer drain_timer;
};

/*
 * A worker with its own loop; nothing listens yet. `fds` are listening
 * sockets, taken over. Errors are logged.
 */
BT_MUST_CHECK enum bt_status worker_open(struct program *program, unsigned id,
                                         const int *fds, size_t fd_count,
                                         struct bt_metrics *metrics,
                                         struct worker **worker_p);
BT_MUST_CHECK enum bt_status worker_start(struct worker *worker);
/* Any thread: stop accepting, finish what is open, end. */
void worker_drain(struct worker *worker);
/* Any thread: end at once. */
void worker_stop(struct worker *worker);
/* After its thread ended (or never began). */
void worker_join(struct worker *worker);
void worker_close(struct worker **worker);

#endif
