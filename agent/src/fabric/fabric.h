/*
 * libfabric, whole: one provider's domain, the endpoint through which our
 * memory is read, and channels, through which we read from one peer rank.
 *
 *     fabric ---- serving endpoint (its CQ's fd wakes the native thread)
 *        |------- registered memory
 *        '------- channel per peer rank: endpoint, CQ, AV, its operations
 *
 * A posted read cannot be cancelled. Closing its channel is what ends it:
 * after bta_channel_close no byte is written any more.
 */
#ifndef AGENT_SRC_FABRIC_FABRIC_H
#define AGENT_SRC_FABRIC_FABRIC_H

#include "agent/src/base/message.h"
#include "agent/src/base/reactor.h"

#include "baton/agent.h"

struct bta_fabric;
struct bta_channel;
struct fid_mr;

/* One registered memory. */
struct bta_memory {
    void *base;
    uint64_t length;
    struct fid_mr *mr; /* NULL: not registered */
    uint64_t key;
    uint64_t at; /* where a peer's fi_read finds the first byte */
    void *desc;  /* for our own reads into it */
};

/*
 * `provider` is "tcp" or a libfabric provider's exact name; `address` a local
 * IP or name to listen on. ERR_FABRIC, logged, when there is none.
 */
baton_status bta_fabric_open(const char *provider, const char *address,
                             const struct bta_log *log,
                             struct bta_fabric **fabric_p);
void bta_fabric_close(struct bta_fabric *fabric);
/* The name in cards; both sides must say the same. */
const char *bta_fabric_provider(const struct bta_fabric *fabric);
/* The serving endpoint's address; 0 when it does not fit. */
size_t bta_fabric_address(const struct bta_fabric *fabric, void *out,
                          size_t cap);
uint64_t bta_fabric_max_run(const struct bta_fabric *fabric);

/* memory->base and ->length are given. The key is random where it may be. */
baton_status bta_fabric_register(struct bta_fabric *fabric,
                                 struct bta_memory *memory, bool is_readable);
void bta_fabric_unregister(struct bta_memory *memory);

/* Native thread from here on. False when epoll refused. */
bool bta_fabric_watch(struct bta_fabric *fabric, struct bta_reactor *reactor);
void bta_fabric_unwatch(struct bta_fabric *fabric);
/* Lets the provider serve its peers. */
void bta_fabric_progress(struct bta_fabric *fabric);

enum bta_rest {
    BTA_REST_SLEEP, /* an fd will tell */
    BTA_REST_NAP,   /* look again within a millisecond */
    BTA_REST_NONE,  /* there is something to do */
};
enum bta_rest bta_fabric_rest(struct bta_fabric *fabric);

enum bta_post {
    BTA_POST_DONE,
    BTA_POST_LATER,  /* full, or the provider says: again */
    BTA_POST_BROKEN, /* the channel must be closed */
};

struct bta_read {
    void *local;
    uint64_t length;
    void *desc;
    uint64_t at, key;
};

/* A completion. `word` is what bta_channel_read_word read; both are what
 * bta_channel_read_record did. */
struct bta_done {
    void *context;
    uint64_t word, ready;
};

/* NULL when the address is refused or memory is out. */
struct bta_channel *bta_channel_open(struct bta_fabric *fabric,
                                     const void *address, size_t length);
void bta_channel_close(struct bta_channel *channel);
enum bta_post bta_channel_read(struct bta_channel *channel,
                               const struct bta_read *read, void *context);
enum bta_post bta_channel_read_word(struct bta_channel *channel, uint64_t at,
                                    uint64_t key, void *context);
/* A slot's: the hold word, and the count of ready tokens behind it. */
enum bta_post bta_channel_read_record(struct bta_channel *channel, uint64_t at,
                                      uint64_t key, void *context);
/* How many of `max` completions there were; -1: a read failed, close it. */
int bta_channel_poll(struct bta_channel *channel, struct bta_done *done,
                     size_t max);
size_t bta_channel_outstanding(const struct bta_channel *channel);

#endif
