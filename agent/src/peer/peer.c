/*
 * Introduction, reading and breaking of peers.
 */
#include "agent/src/peer/peer.h"

#include "agent/src/fabric/cma.h"

#include <stdio.h>
#include <stdlib.h>

#define TRY_MS         2000u
#define BACKOFF_MIN_MS 100u
#define BACKOFF_MAX_MS 10000u
#define LINGER_MS      60000u
#define REPOST_MIN_US  200u
#define REPOST_MAX_US  20000u
#define DONE_BATCH     64

static void peer_try(struct bta_peer *peer);

const char *bta_peer_provider(const struct bta_peer *peer)
{
    if (peer->is_near) {
        return "cma";
    }
    return peer->channel == NULL
               ? "none"
               : bta_fabric_provider(peer->peers->options.fabric);
}

/* --- announcing --- */

static void tell_links(const struct bta_peer *peer)
{
    struct bta_links *const links = peer->peers->links;
    char why[640];

    if (links == NULL || !peer->peers->options.is_reader) {
        return;
    }
    if (peer->state == BTA_PEER_READY) {
        bta_links_peer_ready(links, peer->engine, peer->card.rank,
                             peer->card.boot, bta_peer_provider(peer),
                             (uint32_t)(bta_now_us() - peer->since_us));
    } else {
        (void)snprintf(why, sizeof(why), "%s%s%s%s%s",
                       baton_reason_text(peer->reason),
                       peer->misfit[0] == '\0' ? "" : ": ", peer->misfit,
                       peer->cma_fault[0] == '\0' ? "" : "; not by cma: ",
                       peer->cma_fault);
        bta_links_peer_failed(links, peer->engine, peer->card.rank,
                              peer->card.boot, why);
    }
}

static void tell_host(const struct bta_peer *peer)
{
    struct bta_events *const events = peer->peers->options.events;
    baton_event event = {
        .type = peer->state == BTA_PEER_READY ? BATON_EVENT_PEER_READY
                                              : BATON_EVENT_PEER_FAILED,
        .reason =
            peer->state == BTA_PEER_READY ? BATON_REASON_NONE : peer->reason,
        .rank = peer->card.rank,
        .boot = peer->card.boot,
    };

    bt_str_copy(event.engine, sizeof(event.engine), bt_str_of(peer->engine));
    bt_str_copy(event.provider, sizeof(event.provider),
                bt_str_of(bta_peer_provider(peer)));
    bta_events_news(events, &event);
}

/* Only changes are told. */
static void announce(struct bta_peer *peer)
{
    const bool is_ready = peer->state == BTA_PEER_READY;

    if (peer->is_told && peer->is_told_ready == is_ready &&
        peer->is_told_near == peer->is_near) {
        return;
    }
    peer->is_told = true;
    peer->is_told_ready = is_ready;
    peer->is_told_near = peer->is_near;
    bta_log_write(&peer->peers->options.log, is_ready ? BTA_INFO : BTA_WARN,
                  "peer %s rank %u: %s %s%s%s", peer->engine, peer->card.rank,
                  is_ready ? "ready by" : "failed,",
                  is_ready ? bta_peer_provider(peer)
                           : baton_reason_text(peer->reason),
                  peer->misfit[0] == '\0' ? "" : ": ", peer->misfit);
    tell_host(peer);
    tell_links(peer);
}

/* --- states --- */

static void enter(struct bta_peer *peer, enum bta_peer_state state)
{
    atomic_uint_fast64_t *const ready = &peer->peers->ready_count;

    if (peer->state != BTA_PEER_READY && state == BTA_PEER_READY) {
        (void)atomic_fetch_add(ready, 1);
    } else if (peer->state == BTA_PEER_READY && state != BTA_PEER_READY) {
        (void)atomic_fetch_sub(ready, 1);
    }
    peer->state = state;
}

static void reads_lose(struct bta_peer *peer, bool only_posted,
                       baton_reason reason)
{
    struct bta_reads *reads = TAILQ_FIRST(&peer->reads);

    while (reads != NULL) {
        struct bta_reads *const next = TAILQ_NEXT(reads, entry);
        if (!only_posted || reads->outstanding > 0 || reads->is_broken) {
            bta_reads_leave(reads);
            reads->ops->lost(reads, reason);
        }
        reads = next;
    }
}

static void channel_drop(struct bta_peer *peer)
{
    bta_channel_close(peer->channel);
    peer->channel = NULL;
    peer->is_word_posted = false;
}

static void fail(struct bta_peer *peer, baton_reason reason)
{
    struct bta_peers *const peers = peer->peers;

    channel_drop(peer);
    peer->is_near = false;
    peer->reason = reason;
    peer->is_final = reason != BATON_REASON_UNREACHABLE;
    enter(peer, BTA_PEER_FAILED);
    announce(peer);
    reads_lose(peer, false, reason);
    bta_timer_clear(peers->options.reactor, &peer->timer);
    if (peer->is_final) {
        return;
    }
    (void)bta_timer_set(peers->options.reactor, &peer->timer,
                        (uint64_t)peer->backoff_ms * 1000);
    peer->backoff_ms = peer->backoff_ms * 2 > BACKOFF_MAX_MS
                           ? BACKOFF_MAX_MS
                           : peer->backoff_ms * 2;
}

static void become_ready(struct bta_peer *peer)
{
    bta_timer_clear(peer->peers->options.reactor, &peer->timer);
    peer->backoff_ms = BACKOFF_MIN_MS;
    enter(peer, BTA_PEER_READY);
    announce(peer);
}

/* Each two failures of a path make the other one the better choice. */
static bool prefers_cma(const struct bta_peer *peer)
{
    return peer->cma != NULL &&
           (peer->remote == NULL || peer->failures[BTA_PATH_CMA] / 2 <=
                                        peer->failures[BTA_PATH_FABRIC] / 2);
}

/* Said once: an operator would else see nothing but a slower path. */
static void cma_refused(struct bta_peer *peer,
                        const struct bta_cma_fault *fault)
{
    const size_t cap = sizeof(peer->cma_fault);
    char cause[160] = "";
    char advice[160];

    bta_cma_advise(&peer->peers->self, peer->cma,
                   fault == NULL ? 0 : fault->error, advice, sizeof(advice));
    if (peer->cma_fault[0] != '\0' || (fault == NULL && advice[0] == '\0')) {
        return;
    }
    if (fault != NULL) {
        bta_cma_tell(fault, peer->cma->pid, cause, sizeof(cause));
    }
    (void)snprintf(peer->cma_fault, cap, "%s%s%s", cause,
                   cause[0] == '\0' || advice[0] == '\0' ? "" : "; ", advice);
    bta_log_write(&peer->peers->options.log,
                  fault == NULL ? BTA_INFO : BTA_WARN,
                  "peer %s rank %u: not by cma: %s", peer->engine,
                  peer->card.rank, peer->cma_fault);
}

static bool try_cma(struct bta_peer *peer)
{
    struct bta_cma_fault fault;
    uint64_t word;

    if (!prefers_cma(peer)) {
        return false;
    }
    if (!bta_cma_is_near(&peer->peers->self, peer->cma)) {
        cma_refused(peer, NULL);
        return false;
    }
    if (!bta_cma_read_words(peer->cma->pid, peer->card.boot_word.base, &word, 1,
                            &fault)) {
        cma_refused(peer, &fault);
        return false;
    }
    return word == peer->card.boot;
}

/* Posts the boot word's read, once the provider takes it. */
static bool try_post(struct bta_peer *peer)
{
    const struct bta_card_target *const target = &peer->card.boot_word;
    enum bta_post posted;

    if (peer->is_word_posted) {
        return false;
    }
    posted =
        bta_channel_read_word(peer->channel, target->at, target->key, peer);
    if (posted == BTA_POST_BROKEN) {
        fail(peer, BATON_REASON_UNREACHABLE);
        return true;
    }
    peer->is_word_posted = posted == BTA_POST_DONE;
    return peer->is_word_posted;
}

static void try_done(struct bta_peer *peer, uint64_t word)
{
    peer->is_word_posted = false;
    if (word == peer->card.boot) {
        become_ready(peer);
    } else {
        fail(peer, BATON_REASON_RESTARTED);
    }
}

static void peer_try(struct bta_peer *peer)
{
    struct bta_peers *const peers = peer->peers;

    peer->since_us = bta_now_us();
    enter(peer, BTA_PEER_TRYING);
    if (!peers->options.is_reader) {
        become_ready(peer);
        return;
    }
    if (try_cma(peer)) {
        peer->is_near = true;
        become_ready(peer);
        return;
    }
    if (peer->remote != NULL) {
        peer->channel =
            bta_channel_open(peers->options.fabric, peer->remote->address,
                             peer->remote->address_length);
    }
    if (peer->channel == NULL ||
        !bta_timer_set(peers->options.reactor, &peer->timer,
                       (uint64_t)TRY_MS * 1000)) {
        fail(peer, BATON_REASON_UNREACHABLE);
        return;
    }
    (void)try_post(peer);
}

static void on_timer(struct bta_timer *timer)
{
    struct bta_peer *const peer =
        bt_container_of(timer, struct bta_peer, timer);

    if (peer->state == BTA_PEER_TRYING) {
        fail(peer, BATON_REASON_UNREACHABLE);
    } else if (peer->state == BTA_PEER_FAILED) {
        peer_try(peer);
    }
}

void bta_peer_break(struct bta_peer *peer, baton_reason reason)
{
    channel_drop(peer);
    peer->is_near = false;
    reads_lose(peer, true, reason);
    if (peer->state == BTA_PEER_READY || peer->state == BTA_PEER_TRYING) {
        bta_timer_clear(peer->peers->options.reactor, &peer->timer);
        peer_try(peer);
    }
}

/* --- records --- */

static void endpoints_choose(struct bta_peer *peer)
{
    const struct bta_peers_options *const options = &peer->peers->options;

    for (size_t i = 0; i < peer->card.endpoint_count; i++) {
        const struct bta_card_endpoint *const endpoint =
            &peer->card.endpoints[i];
        if (options->has_cma && bt_str_eq(endpoint->provider, BT_STR("cma"))) {
            peer->cma = endpoint;
        } else if (options->fabric != NULL &&
                   bt_str_eq(endpoint->provider,
                             bt_str_of(bta_fabric_provider(options->fabric)))) {
            peer->remote = endpoint;
        }
    }
}

static void peer_free(struct bta_peer *peer)
{
    bta_card_fini(&peer->card);
    free(peer->engine);
    free(peer->map);
    free(peer->sponsors);
    free(peer);
}

static void peer_close(struct bta_peer *peer, baton_reason reason)
{
    struct bta_peers *const peers = peer->peers;

    channel_drop(peer);
    reads_lose(peer, false, reason);
    enter(peer, BTA_PEER_NEW);
    bta_timer_clear(peers->options.reactor, &peer->timer);
    bta_timer_clear(peers->options.reactor, &peer->linger);
    TAILQ_REMOVE(&peers->list, peer, entry);
    peers->count--;
    peer_free(peer);
}

static void on_linger(struct bta_timer *timer)
{
    peer_close(bt_container_of(timer, struct bta_peer, linger),
               BATON_REASON_UNREACHABLE);
}

/* Takes the card. */
static struct bta_peer *peer_make(struct bta_peers *peers,
                                  struct bta_card *card)
{
    struct bta_peer *const peer = calloc(1, sizeof(*peer));

    if (peer == NULL) {
        bta_card_fini(card);
        return NULL;
    }
    peer->peers = peers;
    peer->card = *card;
    peer->engine = bt_str_dup(card->engine);
    peer->map =
        calloc(peers->options.own->region_count + 1, sizeof(*peer->map));
    peer->backoff_ms = BACKOFF_MIN_MS;
    peer->timer.on_due = on_timer;
    peer->linger.on_due = on_linger;
    TAILQ_INIT(&peer->reads);
    TAILQ_INIT(&peer->queue);
    if (peer->engine == NULL || peer->map == NULL) {
        peer_free(peer);
        return NULL;
    }
    endpoints_choose(peer);
    TAILQ_INSERT_TAIL(&peers->list, peer, entry);
    peers->count++;
    return peer;
}

/* --- sponsors --- */

static bool sponsors_grow(struct bta_peer *peer)
{
    const size_t cap = peer->sponsor_cap + 4;
    uint64_t *const sponsors =
        realloc(peer->sponsors, cap * sizeof(*peer->sponsors));

    if (sponsors == NULL) {
        return false;
    }
    peer->sponsors = sponsors;
    peer->sponsor_cap = cap;
    return true;
}

static void sponsor_add(struct bta_peer *peer, uint64_t sponsor)
{
    bta_timer_clear(peer->peers->options.reactor, &peer->linger);
    for (size_t i = 0; i < peer->sponsor_count; i++) {
        if (peer->sponsors[i] == sponsor) {
            return;
        }
    }
    if (peer->sponsor_count == peer->sponsor_cap && !sponsors_grow(peer)) {
        bta_log_write(&peer->peers->options.log, BTA_ERROR,
                      "no memory to note who named a peer");
        return;
    }
    peer->sponsors[peer->sponsor_count] = sponsor;
    peer->sponsor_count++;
}

static bool sponsor_drop(struct bta_peer *peer, uint64_t sponsor)
{
    for (size_t i = 0; i < peer->sponsor_count; i++) {
        if (peer->sponsors[i] == sponsor) {
            peer->sponsor_count--;
            peer->sponsors[i] = peer->sponsors[peer->sponsor_count];
            return true;
        }
    }
    return false;
}

void bta_peers_unsponsor(struct bta_peers *peers, uint64_t sponsor)
{
    struct bta_peer *peer;

    TAILQ_FOREACH (peer, &peers->list, entry) {
        if (sponsor_drop(peer, sponsor) && peer->sponsor_count == 0) {
            (void)bta_timer_set(peers->options.reactor, &peer->linger,
                                (uint64_t)LINGER_MS * 1000);
        }
    }
}

/* --- the set --- */

struct bta_peer *bta_peers_find(const struct bta_peers *peers,
                                struct bt_str engine, uint32_t rank)
{
    struct bta_peer *peer;

    TAILQ_FOREACH (peer, &peers->list, entry) {
        if (peer->card.rank == rank && bt_str_eq(peer->card.engine, engine)) {
            return peer;
        }
    }
    return NULL;
}

static bool reads_from(const struct bta_peers *peers,
                       const struct bta_card *card)
{
    return peers->options.is_reader &&
           (card->role == BATON_ROLE_PREFILL || card->role == BATON_ROLE_BOTH);
}

static void introduce(struct bta_peer *peer)
{
    const struct bta_card *const own = peer->peers->options.own;
    struct bta_sources sources;
    baton_reason reason;

    if (!reads_from(peer->peers, &peer->card)) {
        peer->since_us = bta_now_us();
        become_ready(peer);
        return;
    }
    reason = bta_plan_sources(own, peer->card.tp, peer->card.pp,
                              peer->card.world, &sources);
    if (reason != BATON_REASON_NONE) {
        bta_plan_misfit(own, peer->card.tp, peer->card.pp, peer->card.world,
                        peer->misfit);
    } else {
        reason = bta_plan_map(own, &peer->card, peer->map, peer->misfit);
    }
    if (reason != BATON_REASON_NONE) {
        peer->since_us = bta_now_us();
        fail(peer, reason);
        return;
    }
    peer_try(peer);
}

void bta_peers_add(struct bta_peers *peers, struct bta_card *card,
                   uint64_t sponsor)
{
    struct bta_peer *peer = bta_peers_find(peers, card->engine, card->rank);

    if (peer != NULL && peer->card.boot == card->boot) {
        bta_card_fini(card);
        sponsor_add(peer, sponsor);
        if (peer->is_told && sponsor == 0) {
            tell_host(peer);
        } else if (peer->is_told) {
            tell_links(peer);
        }
        return;
    }
    if (peer != NULL) {
        peer_close(peer, BATON_REASON_RESTARTED);
    }
    if (peers->count >= BTA_PEERS_MAX) {
        bta_log_write(&peers->options.log, BTA_ERROR,
                      "more than %d peers: one is not taken", BTA_PEERS_MAX);
        bta_card_fini(card);
        return;
    }
    peer = peer_make(peers, card);
    if (peer == NULL) {
        bta_log_write(&peers->options.log, BTA_ERROR,
                      "no memory for another peer");
        return;
    }
    sponsor_add(peer, sponsor);
    introduce(peer);
}

void bta_peers_remove(struct bta_peers *peers, struct bt_str engine,
                      uint32_t rank, uint64_t boot, uint64_t sponsor)
{
    struct bta_peer *const peer = bta_peers_find(peers, engine, rank);

    if (peer == NULL || (boot != 0 && peer->card.boot != boot)) {
        return;
    }
    if (!sponsor_drop(peer, sponsor) && sponsor != 0) {
        return;
    }
    if (sponsor == 0 || peer->sponsor_count == 0) {
        peer_close(peer, BATON_REASON_UNREACHABLE);
    }
}

/* --- reading --- */

void bta_reads_queue(struct bta_reads *reads, bool is_first)
{
    if (reads->is_queued) {
        return;
    }
    reads->is_queued = true;
    if (is_first) {
        TAILQ_INSERT_HEAD(&reads->peer->queue, reads, queue_entry);
    } else {
        TAILQ_INSERT_TAIL(&reads->peer->queue, reads, queue_entry);
    }
}

void bta_reads_unqueue(struct bta_reads *reads)
{
    if (reads->is_queued) {
        TAILQ_REMOVE(&reads->peer->queue, reads, queue_entry);
        reads->is_queued = false;
    }
}

void bta_reads_join(struct bta_reads *reads, struct bta_peer *peer)
{
    reads->peer = peer;
    TAILQ_INSERT_TAIL(&peer->reads, reads, entry);
}

void bta_reads_leave(struct bta_reads *reads)
{
    if (reads->peer == NULL) {
        return;
    }
    bta_reads_unqueue(reads);
    TAILQ_REMOVE(&reads->peer->reads, reads, entry);
    reads->peer = NULL;
    reads->outstanding = 0;
}

enum bta_step bta_reads_posted(struct bta_reads *reads, enum bta_post post)
{
    switch (post) {
    case BTA_POST_DONE:
        reads->outstanding++;
        return BTA_STEP_MORE;
    case BTA_POST_LATER:
        return BTA_STEP_LATER;
    case BTA_POST_BROKEN:
        reads->is_broken = true;
        break;
    }
    return BTA_STEP_BROKEN;
}

/* A read failed that was under way: by this path for the how-manyth time? */
static void path_failed(struct bta_peer *peer)
{
    const bool was_cma = peer->is_near;

    peer->failures[was_cma ? BTA_PATH_CMA : BTA_PATH_FABRIC]++;
    if (peer->cma != NULL && peer->remote != NULL &&
        prefers_cma(peer) != was_cma) {
        bta_log_write(&peer->peers->options.log, BTA_WARN,
                      "peer %s rank %u: reads by %s failed twice, from now on "
                      "by %s",
                      peer->engine, peer->card.rank, bta_peer_provider(peer),
                      was_cma ? bta_fabric_provider(peer->peers->options.fabric)
                              : "cma");
    }
    bta_peer_break(peer, BATON_REASON_UNREACHABLE);
}

/* True when something was complete. */
static bool poll_channel(struct bta_peer *peer)
{
    struct bta_done done[DONE_BATCH];
    const int count = bta_channel_poll(peer->channel, done, DONE_BATCH);

    if (count < 0) {
        if (peer->state == BTA_PEER_TRYING) {
            fail(peer, BATON_REASON_UNREACHABLE);
        } else {
            path_failed(peer);
        }
        return true;
    }
    for (int i = 0; i < count; i++) {
        if (done[i].context == peer) {
            try_done(peer, done[i].word);
        } else {
            struct bta_reads *const reads = done[i].context;
            reads->outstanding--;
            reads->ops->done(reads, &done[i]);
        }
    }
    return count > 0;
}

/* Posts until the provider is full or nothing is left. */
static bool post_reads(struct bta_peer *peer)
{
    bool did = false;

    while (peer->state == BTA_PEER_READY && !TAILQ_EMPTY(&peer->queue)) {
        struct bta_reads *const reads = TAILQ_FIRST(&peer->queue);
        const enum bta_step step = reads->ops->step(reads);
        if (step == BTA_STEP_BROKEN) {
            path_failed(peer);
            return true;
        }
        if (step == BTA_STEP_LATER) {
            return did;
        }
        did = true;
        if (peer->is_near) {
            break; /* one slice a turn: the thread serves others too */
        }
    }
    return did;
}

static bool peer_turn(struct bta_peer *peer)
{
    bool did = false;

    if (peer->channel != NULL && bta_channel_outstanding(peer->channel) > 0) {
        did = poll_channel(peer);
    }
    if (peer->state == BTA_PEER_TRYING && peer->channel != NULL) {
        did = try_post(peer) || did;
    }
    return post_reads(peer) || did;
}

/* Waits for a provider that takes nothing, though no read is in flight. */
static bool is_stuck(const struct bta_peer *peer)
{
    if (peer->channel == NULL || bta_channel_outstanding(peer->channel) > 0) {
        return false;
    }
    return peer->state == BTA_PEER_TRYING || !TAILQ_EMPTY(&peer->queue);
}

/*
 * A connection that comes up wakes us by its fd. This is for those that never
 * do, and it slows down: each post to a dead peer costs the provider a socket.
 */
static void repost_later(struct bta_peers *peers, bool stuck)
{
    if (!stuck) {
        peers->repost_us = REPOST_MIN_US;
        return;
    }
    if (peers->repost.due.at != 0) {
        return;
    }
    (void)bta_timer_set(peers->options.reactor, &peers->repost,
                        peers->repost_us);
    peers->repost_us = peers->repost_us * 2 > REPOST_MAX_US
                           ? REPOST_MAX_US
                           : peers->repost_us * 2;
}

bool bta_peers_turn(struct bta_peers *peers)
{
    struct bta_peer *peer = TAILQ_FIRST(&peers->list);
    bool did = false;
    bool stuck = false;

    while (peer != NULL) {
        struct bta_peer *const next = TAILQ_NEXT(peer, entry);
        did = peer_turn(peer) || did;
        stuck = is_stuck(peer) || stuck;
        peer = next;
    }
    repost_later(peers, stuck);
    return did;
}

bool bta_peers_copying(const struct bta_peers *peers)
{
    struct bta_peer *peer;

    TAILQ_FOREACH (peer, &peers->list, entry) {
        if (peer->is_near && !TAILQ_EMPTY(&peer->queue)) {
            return true;
        }
    }
    return false;
}

/* --- life --- */

/* The turn after it posts again. */
static void on_repost(struct bta_timer *timer)
{
    (void)timer;
}

struct bta_peers *bta_peers_open(const struct bta_peers_options *options)
{
    struct bta_peers *const peers = calloc(1, sizeof(*peers));

    if (peers == NULL) {
        return NULL;
    }
    peers->options = *options;
    TAILQ_INIT(&peers->list);
    atomic_init(&peers->ready_count, 0);
    peers->repost.on_due = on_repost;
    peers->repost_us = REPOST_MIN_US;
    if (!bta_cma_self(&peers->self)) {
        peers->options.has_cma = false;
    }
    return peers;
}

void bta_peers_close(struct bta_peers *peers)
{
    if (peers == NULL) {
        return;
    }
    while (!TAILQ_EMPTY(&peers->list)) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): taken from the list. */
        peer_close(TAILQ_FIRST(&peers->list), BATON_REASON_UNREACHABLE);
    }
    bta_timer_clear(peers->options.reactor, &peers->repost);
    free(peers);
}
