/*
 * The event queue: a list under a lock, and an eventfd that tells of it.
 */
#include "agent/src/event.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct bta_event_node {
    struct bta_event_node *next;
    baton_event event;
};

bool bta_events_init(struct bta_events *events)
{
    events->first = NULL;
    events->last = NULL;
    events->spare = NULL;
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

static void list_free(struct bta_event_node *node)
{
    while (node != NULL) {
        struct bta_event_node *const next = node->next;
        free(node);
        node = next;
    }
}

void bta_events_fini(struct bta_events *events)
{
    list_free(events->first);
    list_free(events->spare);
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
    node->next = events->spare;
    events->spare = node;
    (void)pthread_mutex_unlock(&events->lock);
    return true;
}

static struct bta_event_node *spare_take(struct bta_events *events)
{
    struct bta_event_node *const node = events->spare;

    events->spare = node->next;
    node->next = NULL;
    return node;
}

void bta_events_unreserve(struct bta_events *events)
{
    (void)pthread_mutex_lock(&events->lock);
    free(spare_take(events));
    (void)pthread_mutex_unlock(&events->lock);
}

void bta_events_push(struct bta_events *events, const baton_event *event)
{
    const uint64_t one = 1;
    struct bta_event_node *node;

    (void)pthread_mutex_lock(&events->lock);
    node = spare_take(events);
    node->event = *event;
    if (events->first == NULL) {
        events->first = node;
        (void)!write(events->fd, &one, sizeof(one));
    } else {
        events->last->next = node;
    }
    events->last = node;
    (void)pthread_mutex_unlock(&events->lock);
}

size_t bta_events_take(struct bta_events *events, baton_event *out, size_t max)
{
    struct bta_event_node *taken = NULL;
    uint64_t ignored;
    size_t count = 0;

    (void)pthread_mutex_lock(&events->lock);
    while (count < max && events->first != NULL) {
        struct bta_event_node *const node = events->first;
        events->first = node->next;
        out[count] = node->event;
        count++;
        node->next = taken;
        taken = node;
    }
    if (count > 0 && events->first == NULL) {
        (void)!read(events->fd, &ignored, sizeof(ignored));
    }
    (void)pthread_mutex_unlock(&events->lock);
    list_free(taken);
    return count;
}
