/*
 * The host's peers: a list under a lock.
 */
#include "agent/src/peer/inbox.h"

#include <stdlib.h>

struct bta_inbox_item {
    struct bta_inbox_item *next;
    char *engine; /* to remove; NULL: a card to add */
    uint32_t rank;
    struct bta_card card;
};

bool bta_inbox_init(struct bta_inbox *inbox)
{
    inbox->first = NULL;
    inbox->last = NULL;
    return pthread_mutex_init(&inbox->lock, NULL) == 0;
}

static struct bta_inbox_item *take_all(struct bta_inbox *inbox)
{
    struct bta_inbox_item *first;

    (void)pthread_mutex_lock(&inbox->lock);
    first = inbox->first;
    inbox->first = NULL;
    inbox->last = NULL;
    (void)pthread_mutex_unlock(&inbox->lock);
    return first;
}

static void put(struct bta_inbox *inbox, struct bta_inbox_item *item)
{
    (void)pthread_mutex_lock(&inbox->lock);
    if (inbox->last == NULL) {
        inbox->first = item;
    } else {
        inbox->last->next = item;
    }
    inbox->last = item;
    (void)pthread_mutex_unlock(&inbox->lock);
}

void bta_inbox_fini(struct bta_inbox *inbox)
{
    struct bta_inbox_item *item = take_all(inbox);

    while (item != NULL) {
        struct bta_inbox_item *const next = item->next;
        if (item->engine == NULL) {
            bta_card_fini(&item->card);
        }
        free(item->engine);
        free(item);
        item = next;
    }
    (void)pthread_mutex_destroy(&inbox->lock);
}

bool bta_inbox_add(struct bta_inbox *inbox, const struct bta_card *card)
{
    struct bta_inbox_item *const item = calloc(1, sizeof(*item));

    if (item == NULL) {
        return false;
    }
    item->card = *card;
    put(inbox, item);
    return true;
}

bool bta_inbox_remove(struct bta_inbox *inbox, const char *engine,
                      uint32_t rank)
{
    struct bta_inbox_item *const item = calloc(1, sizeof(*item));

    if (item == NULL) {
        return false;
    }
    item->engine = bt_str_dup(bt_str_of(engine));
    item->rank = rank;
    if (item->engine == NULL) {
        free(item);
        return false;
    }
    put(inbox, item);
    return true;
}

void bta_inbox_drain(struct bta_inbox *inbox, struct bta_peers *peers)
{
    struct bta_inbox_item *item = take_all(inbox);

    while (item != NULL) {
        struct bta_inbox_item *const next = item->next;
        if (item->engine != NULL) {
            bta_peers_remove(peers, bt_str_of(item->engine), item->rank, 0, 0);
        } else {
            bta_peers_add(peers, &item->card, 0);
        }
        free(item->engine);
        free(item);
        item = next;
    }
}
