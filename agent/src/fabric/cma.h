/*
 * Reads from another process on this host by process_vm_readv: no provider,
 * no help of the other process. The call returns when the bytes are there.
 */
#ifndef AGENT_SRC_FABRIC_CMA_H
#define AGENT_SRC_FABRIC_CMA_H

#include "agent/src/geometry/card.h"

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
/* What came of a read that failed. */
struct bta_cma_fault {
    int error; /* errno; 0: fewer bytes came than were asked for */
    uint64_t got, wanted;
    size_t vectors;
};

/* All bytes of all vectors (at most BTA_CMA_BATCH), or false. */
bool bta_cma_read(uint64_t pid, struct iovec *local, struct iovec *remote,
                  size_t count, uint64_t bytes, struct bta_cma_fault *fault_p);
/* So many words that lie side by side. */
bool bta_cma_read_words(uint64_t pid, uint64_t base, uint64_t *words,
                        size_t count, struct bta_cma_fault *fault_p);
/* The cause in words without a quote: call, pid, errno or counts. */
void bta_cma_tell(const struct bta_cma_fault *fault, uint64_t pid, char *text,
                  size_t cap);
/*
 * What keeps `ours` from reading from `theirs` on one host, and the remedy: the
 * pid namespace; after errno EPERM the user, the ptrace scope, seccomp. Empty
 * when nothing is known. error 0: it was not tried.
 */
void bta_cma_advise(const struct bta_card_endpoint *ours,
                    const struct bta_card_endpoint *theirs, int error,
                    char *text, size_t cap);

#endif
