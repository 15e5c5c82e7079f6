/*
 * The other ranks that we read from: one record for each (engine, rank), with
 * its card, its reading side and the reads that wait for it.
 *
 *                boot word read           error, drain
 *     NEW -> TRYING ------------> READY --------------> TRYING ...
 *               |  unreachable: FAILED, tried again with back-off
 *               '- another boot, other geometry: FAILED for good
 *
 * By cma where the boot word can be read by process_vm_readv, else by a
 * channel of the fabric. A path whose reads failed twice gives way to the other
 * one. Who reads joins a peer with its reads and is asked for them, one after
 * the other, while the peer is READY. Native thread only.
 */
#ifndef AGENT_SRC_PEER_PEER_H
#define AGENT_SRC_PEER_PEER_H

#include "agent/src/base/event.h"
#include "agent/src/fabric/fabric.h"
#include "agent/src/geometry/card.h"
#include "agent/src/geometry/plan.h"
#include "agent/src/link/link.h"

#include <stdatomic.h>
#include <sys/queue.h>

#define BTA_PEERS_MAX 4096

struct bta_peer;
struct bta_reads;

enum bta_step {
    BTA_STEP_MORE,  /* done, and there may be more */
    BTA_STEP_LATER, /* the provider is full */
    BTA_STEP_EMPTY, /* nothing left to post; the reads left the queue */
    BTA_STEP_BROKEN,
};

struct bta_reads_ops {
    /* Posts or copies the next piece. */
    enum bta_step (*step)(struct bta_reads *reads);
    /* One posted with them as its context is complete. They may be freed. */
    void (*done)(struct bta_reads *reads, const struct bta_done *done);
    /* The peer is broken or gone, they have left it, none is in flight. */
    void (*lost)(struct bta_reads *reads, baton_reason reason);
};

/* A member of who reads. */
struct bta_reads {
    const struct bta_reads_ops *ops;
    struct bta_peer *peer; /* NULL: left */
    TAILQ_ENTRY(bta_reads) entry, queue_entry;
    bool is_queued;
    bool is_broken;       /* a post failed: lost with its channel */
    uint32_t outstanding; /* in flight */
};
TAILQ_HEAD(bta_reads_list, bta_reads);

enum bta_peer_state {
    BTA_PEER_NEW,
    BTA_PEER_TRYING,
    BTA_PEER_READY,
    BTA_PEER_FAILED,
};

/* In order of preference. */
enum bta_path {
    BTA_PATH_CMA,
    BTA_PATH_FABRIC,
    BTA_PATHS
};

struct bta_peer {
    struct bta_peers *peers;
    TAILQ_ENTRY(bta_peer) entry;
    struct bta_card card;
    char *engine;  /* the card's, with a NUL */
    uint32_t *map; /* our regions -> theirs */
    enum bta_peer_state state;
    baton_reason reason; /* of FAILED */
    bool is_final;       /* FAILED for good */
    bool is_told;        /* READY or FAILED was announced, and which: */
    bool is_told_ready, is_told_near;
    bool is_near;                                 /* READY by cma */
    const struct bta_card_endpoint *cma, *remote; /* the card's, or NULL */
    struct bta_channel *channel;
    unsigned failures[BTA_PATHS]; /* reads that failed by that path */
    char misfit[BTA_MISFIT_MAX];  /* why its geometry is not ours */
    char cma_fault[328];          /* why not by cma, logged once; empty: open */
    bool is_word_posted;          /* of TRYING */
    uint64_t since_us;            /* when TRYING began */
    uint32_t backoff_ms;
    struct bta_timer timer;  /* end of TRYING, or the next try */
    struct bta_timer linger; /* runs while nobody sponsors the peer */
    uint64_t *sponsors;      /* proxies; 0: the host; heap */
    size_t sponsor_count, sponsor_cap;
    struct bta_reads_list reads; /* all that joined */
    struct bta_reads_list queue; /* those with something to post */
};
TAILQ_HEAD(bta_peer_list, bta_peer);

struct bta_peers_options {
    struct bta_reactor *reactor;
    struct bta_fabric *fabric; /* NULL: cma alone */
    struct bta_events *events;
    const struct bta_card *own;
    struct bta_log log;
    bool has_cma;   /* may be used */
    bool is_reader; /* our role reads at all */
};

struct bta_peers {
    struct bta_peers_options options;
    struct bta_links *links; /* NULL: none */
    struct bta_peer_list list;
    size_t count;
    atomic_uint_fast64_t ready_count;
    struct bta_card_endpoint self;
    struct bta_timer repost; /* a provider said: again */
    uint32_t repost_us;
};

struct bta_peers *bta_peers_open(const struct bta_peers_options *options);
/* Closes every channel; reads are told that they are lost. */
void bta_peers_close(struct bta_peers *peers);

/* Takes the card (finished here on every path). */
void bta_peers_add(struct bta_peers *peers, struct bta_card *card,
                   uint64_t sponsor);
/*
 * boot 0: any. Sponsor 0 takes the peer away whoever else sponsors it; a proxy
 * that did not bring it cannot.
 */
void bta_peers_remove(struct bta_peers *peers, struct bt_str engine,
                      uint32_t rank, uint64_t boot, uint64_t sponsor);
/* The proxy's link is down: its peers live on for a while. */
void bta_peers_unsponsor(struct bta_peers *peers, uint64_t sponsor);
struct bta_peer *bta_peers_find(const struct bta_peers *peers,
                                struct bt_str engine, uint32_t rank);

/* Polls and posts. True when something happened. */
bool bta_peers_turn(struct bta_peers *peers);
/* Copies of cma wait for the next turn. */
bool bta_peers_copying(const struct bta_peers *peers);
/* Ends every read in flight on this peer, now; it is tried anew. */
void bta_peer_break(struct bta_peer *peer, baton_reason reason);
const char *bta_peer_provider(const struct bta_peer *peer);

void bta_reads_join(struct bta_reads *reads, struct bta_peer *peer);
void bta_reads_leave(struct bta_reads *reads);
/* A proof, or a record, is few bytes: it waits for nobody's data. */
void bta_reads_queue(struct bta_reads *reads, bool is_first);
void bta_reads_unqueue(struct bta_reads *reads);
/* What became of a post. */
enum bta_step bta_reads_posted(struct bta_reads *reads, enum bta_post post);

#endif
