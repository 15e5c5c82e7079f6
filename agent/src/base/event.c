/*
 * The event queue: a list under a lock, and an eventfd that tells of it.
 */
#include "agent/src/base/event.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct bta_event_node {
    TAILQ_ENTRY(bta_event_node) entry;
    baton_event event;
};

bool bta_events_init(struct bta_events *events)
{
    TAILQ_INIT(&events->waiting);
    TAILQ_INIT(&events->spare);
    events->news_count = 0;
    events->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (events->fd < 0) {
        return false;
    }
    if (pthread_mutex_init(&events->lock, NULL) != 0) {
        (void)close(events->fd);
        return false;
    }
    return true;
}

static void list_free(struct bta_event_list *list)
{
    struct bta_event_node *node;

    while ((node = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, node, entry);
        free(node);
    }
}

void bta_events_fini(struct bta_events *events)
{
    list_free(&events->waiting);
    list_free(&events->spare);
    (void)pthread_mutex_destroy(&events->lock);
    (void)close(events->fd);
}

bool bta_events_reserve(struct bta_events *events)
{
    struct bta_event_node *const node = calloc(1, sizeof(*node));

    if (node == NULL) {
        return false;
    }
    (void)pthread_mutex_lock(&events->lock);
    TAILQ_INSERT_HEAD(&events->spare, node, entry);
    (void)pthread_mutex_unlock(&events->lock);
    return true;
}

static struct bta_event_node *spare_take(struct bta_events *events)
{
    struct bta_event_node *const node = TAILQ_FIRST(&events->spare);

    TAILQ_REMOVE(&events->spare, node, entry);
    return node;
}

void bta_events_unreserve(struct bta_events *events)
{
    (void)pthread_mutex_lock(&events->lock);
    free(spare_take(events));
    (void)pthread_mutex_unlock(&events->lock);
}

static bool is_news(const baton_event *event)
{
    return event->type == BATON_EVENT_PEER_READY ||
           event->type == BATON_EVENT_PEER_FAILED;
}

static void append(struct bta_events *events, struct bta_event_node *node,
                   const baton_event *event)
{
    const uint64_t one = 1;

    node->event = *event;
    events->news_count += is_news(event) ? 1 : 0;
    if (TAILQ_EMPTY(&events->waiting)) {
        (void)!write(events->fd, &one, sizeof(one));
    }
    TAILQ_INSERT_TAIL(&events->waiting, node, entry);
}

void bta_events_push(struct bta_events *events, const baton_event *event)
{
    (void)pthread_mutex_lock(&events->lock);
    append(events, spare_take(events), event);
    (void)pthread_mutex_unlock(&events->lock);
}

/* Takes the oldest news out of the list; there are some. */
static struct bta_event_node *news_take(struct bta_events *events)
{
    struct bta_event_node *node = TAILQ_FIRST(&events->waiting);

    while (!is_news(&node->event)) {
        node = TAILQ_NEXT(node, entry);
    }
    TAILQ_REMOVE(&events->waiting, node, entry);
    events->news_count--;
    return node;
}

void bta_events_news(struct bta_events *events, const baton_event *event)
{
    struct bta_event_node *node = NULL;

    (void)pthread_mutex_lock(&events->lock);
    node = events->news_count < BTA_EVENTS_NEWS_MAX ? calloc(1, sizeof(*node))
                                                    : news_take(events);
    if (node != NULL) {
        append(events, node, event);
    }
    (void)pthread_mutex_unlock(&events->lock);
}

size_t bta_events_take(struct bta_events *events, baton_event *out, size_t max)
{
    struct bta_event_list taken = TAILQ_HEAD_INITIALIZER(taken);
    struct bta_event_node *node;
    uint64_t ignored;
    size_t count = 0;

    (void)pthread_mutex_lock(&events->lock);
    while (count < max && (node = TAILQ_FIRST(&events->waiting)) != NULL) {
        TAILQ_REMOVE(&events->waiting, node, entry);
        out[count] = node->event;
        events->news_count -= is_news(&node->event) ? 1 : 0;
        count++;
        TAILQ_INSERT_HEAD(&taken, node, entry);
    }
    if (count > 0 && TAILQ_EMPTY(&events->waiting)) {
        (void)!read(events->fd, &ignored, sizeof(ignored));
    }
    (void)pthread_mutex_unlock(&events->lock);
    list_free(&taken);
    return count;
}
