/*
 * The plainest use of libfabric that reads another process's memory: what
 * the agent's pulls over the same provider are measured against. The bench's
 * own door to libfabric; the agent has another.
 */
#ifndef BENCH_MICRO_RAW_FABRIC_H
#define BENCH_MICRO_RAW_FABRIC_H

#include "common/base/base.h"

#define RAW_NAME_MAX 256

struct raw_fabric;

/* Where the memory of the other side is. */
struct raw_address {
    char name[RAW_NAME_MAX]; /* of the endpoint */
    size_t name_len;
    uint64_t key;
    uint64_t at; /* of the first byte, as reads name it */
};

struct raw_span {
    uint64_t local; /* offsets into both memories */
    uint64_t remote;
    size_t length;
};

/*
 * Opens the tcp provider's reliable datagrams (`net` in libfabric 1.17) on
 * loopback and registers the memory. NULL, and *why_p says why (static).
 */
struct raw_fabric *raw_fabric_open(void *memory, size_t length,
                                   const char **why_p);
void raw_fabric_close(struct raw_fabric *raw);
const char *raw_fabric_provider(const struct raw_fabric *raw);
bool raw_fabric_address(struct raw_fabric *raw, struct raw_address *address_p);

/* The reading side names the one it reads from. */
bool raw_fabric_connect(struct raw_fabric *raw,
                        const struct raw_address *address);
/*
 * Posts all spans, as many at once as the provider takes; spins, then sleeps
 * for their completions.
 */
bool raw_fabric_read(struct raw_fabric *raw, const struct raw_span *spans,
                     size_t count);
/* The side that is read: serves until `fd` is readable. */
void raw_fabric_serve(struct raw_fabric *raw, int fd);

#endif
