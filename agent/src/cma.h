/*
 * Reads from another process on this host by process_vm_readv: no provider,
 * no help of the other process. The call returns when the bytes are there.
 */
#ifndef AGENT_SRC_CMA_H
#define AGENT_SRC_CMA_H

#include "agent/src/card.h"

#include <sys/uio.h>

#define BTA_CMA_BATCH 64

/* An address in the other process, as readv wants it. */
static inline void *bta_cma_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr) */
}

/* This process, as its endpoint in a card. False when /proc is not there. */
bool bta_cma_self(struct bta_card_endpoint *endpoint);
/* May `ours` try to read from `theirs`: the same host and pid namespace. */
bool bta_cma_is_near(const struct bta_card_endpoint *ours,
                     const struct bta_card_endpoint *theirs);
/* All bytes of all vectors (at most BTA_CMA_BATCH), or false. */
bool bta_cma_read(uint64_t pid, struct iovec *local, struct iovec *remote,
                  size_t count, uint64_t bytes);
bool bta_cma_read_word(uint64_t pid, uint64_t base, uint64_t *word_p);

#endif
