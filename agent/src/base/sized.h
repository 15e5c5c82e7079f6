/*
 * Public structs of any age: each begins with a size_t, its size as the host's
 * compiler knew it. `own` is ours, its size filled in and its members defaults.
 */
#ifndef AGENT_SRC_BASE_SIZED_H
#define AGENT_SRC_BASE_SIZED_H

#include "common/base/base.h"

#include "baton/types.h"

/*
 * Lays over the defaults what `given` has. ERR_ARGUMENT: it is NULL or its size
 * absurd; ERR_UNSUPPORTED: it is longer than ours, and the rest is not zero.
 */
baton_status bta_sized_read(void *own, const void *given);
/* Fills the `size` bytes at `out` but its size member; what is longer than ours
 * becomes zero. */
void bta_sized_write(void *out, size_t size, const void *own);

#endif
