/*
 * What the host is told: events of any thread, taken by baton_poll. Room for
 * an event is reserved when the thing starts that will end with it, so no end
 * is ever lost for want of memory. News of peers end nothing and come as often
 * as peers change: of those that wait, the oldest gives way.
 */
#ifndef AGENT_SRC_BASE_EVENT_H
#define AGENT_SRC_BASE_EVENT_H

#include "common/base/base.h"

#include <pthread.h>
#include <sys/queue.h>

#include "baton/agent.h"

#define BTA_EVENTS_NEWS_MAX 4096

struct bta_event_node;
TAILQ_HEAD(bta_event_list, bta_event_node);

struct bta_events {
    pthread_mutex_t lock;
    int fd; /* an eventfd, readable while the list is not empty */
    struct bta_event_list waiting, spare; /* spare: reserved */
    size_t news_count;                    /* PEER_* that wait */
};

/* False when memory or fds are out. */
bool bta_events_init(struct bta_events *events);
void bta_events_fini(struct bta_events *events);

/* Room for one event; false when memory is out. */
bool bta_events_reserve(struct bta_events *events);
void bta_events_unreserve(struct bta_events *events);
/* Uses up one reservation. */
void bta_events_push(struct bta_events *events, const baton_event *event);
/* PEER_*: without a reservation. Lost when memory is out. */
void bta_events_news(struct bta_events *events, const baton_event *event);
size_t bta_events_take(struct bta_events *events, baton_event *out, size_t max);

#endif
