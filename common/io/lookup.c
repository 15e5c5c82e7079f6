/*
 * Look-ups: getaddrinfo may block for long, so each runs on a short thread of
 * its own. The thread and the owner share one object: who goes last frees it.
 */
#include "common/io/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bt_lookup {
    atomic_int references;
    atomic_bool is_done; /* what follows is there */
    int code;
    struct addrinfo *found;
    sem_t done; /* is_done, to be waited for */
    char host[sizeof(((struct bt_url *)0)->host)];
    char service[8];
};

static void lookup_unref(struct bt_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->references, 1) != 1) {
        return;
    }
    if (lookup->found != NULL) {
        freeaddrinfo(lookup->found);
    }
    (void)sem_destroy(&lookup->done);
    free(lookup);
}

static void *run(void *arg)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV};
    struct bt_lookup *const lookup = arg;

    lookup->code =
        getaddrinfo(lookup->host, lookup->service, &hints, &lookup->found);
    atomic_store(&lookup->is_done, true);
    (void)sem_post(&lookup->done);
    lookup_unref(lookup);
    return NULL;
}

/* The thread takes no signals: they are the program's. */
static int start(struct bt_lookup *lookup)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int error = pthread_attr_init(&attr);

    if (error != 0) {
        return error;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attr, run, lookup);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return error;
}

enum bt_status bt_lookup_open(const struct bt_url *url,
                              struct bt_lookup **lookup_p)
{
    struct bt_lookup *lookup = calloc(1, sizeof(*lookup));

    if (lookup == NULL) {
        return BT_ERR_NOMEM;
    }
    memcpy(lookup->host, url->host, sizeof(lookup->host));
    (void)snprintf(lookup->service, sizeof(lookup->service), "%u",
                   (unsigned)url->port);
    (void)sem_init(&lookup->done, 0, 0);
    atomic_init(&lookup->references, 2);
    if (start(lookup) != 0) {
        atomic_store(&lookup->references, 1);
        lookup_unref(lookup);
        return BT_ERR_SYSTEM;
    }
    *lookup_p = lookup;
    return BT_OK;
}

void bt_lookup_wait(struct bt_lookup *lookup, uint64_t wait_ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(wait_ms / 1000);
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (!atomic_load(&lookup->is_done) &&
           sem_clockwait(&lookup->done, CLOCK_MONOTONIC, &until) != 0 &&
           errno == EINTR) {
    }
}

enum bt_status bt_lookup_take(const struct bt_lookup *lookup,
                              struct bt_addrs *addrs_p, const char **why_p)
{
    if (!atomic_load(&lookup->is_done)) {
        return BT_AGAIN;
    }
    if (lookup->code != 0) {
        *why_p = gai_strerror(lookup->code);
        return BT_ERR_NOT_FOUND;
    }
    bt_addrs_take(addrs_p, lookup->found);
    return BT_OK;
}

void bt_lookup_close(struct bt_lookup **lookup_p)
{
    struct bt_lookup *const lookup = *lookup_p;

    *lookup_p = NULL;
    if (lookup != NULL) {
        lookup_unref(lookup);
    }
}
