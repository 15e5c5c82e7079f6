/*
 * Peers that the host adds and removes, on their way to the native thread.
 */
#ifndef AGENT_SRC_PEER_INBOX_H
#define AGENT_SRC_PEER_INBOX_H

#include "agent/src/peer/peer.h"

#include <pthread.h>

struct bta_inbox_item;

struct bta_inbox {
    pthread_mutex_t lock;
    struct bta_inbox_item *first, *last;
};

bool bta_inbox_init(struct bta_inbox *inbox);
void bta_inbox_fini(struct bta_inbox *inbox);
/* Any thread. Takes the card when true; false: memory is out. */
bool bta_inbox_add(struct bta_inbox *inbox, const struct bta_card *card);
/* Any thread. Copies the name. */
bool bta_inbox_remove(struct bta_inbox *inbox, const char *engine,
                      uint32_t rank);
/* Native thread: does all of it, in order. */
void bta_inbox_drain(struct bta_inbox *inbox, struct bta_peers *peers);

#endif
