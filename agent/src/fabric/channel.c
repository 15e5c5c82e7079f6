/*
 * The reading side of one peer rank: an endpoint of its own, so that closing
 * it ends this peer's reads and no one else's.
 *
 * Each operation has the context space that providers ask for and two words in
 * registered memory, where a boot word, a hold word or a record lands.
 */
#include "agent/src/fabric/fabric.h"
#include "agent/src/fabric/fabric_core.h"

#include <stdlib.h>

#define DEPTH_MAX  512
#define POLL_BATCH 64
#define WORDS      2 /* that an operation lands at most */

struct bta_op {
    struct fi_context2 space;
    void *context;
    uint64_t *landing; /* this operation's words */
    struct bta_op *next;
};

struct bta_channel {
    struct bta_fabric *fabric;
    LIST_ENTRY(bta_channel) entry;
    struct bta_endpoint endpoint;
    fi_addr_t peer;
    size_t depth;
    size_t outstanding;
    struct bta_op *ops;
    struct bta_op *idle;
    uint64_t *landings;
    struct bta_memory landing_memory;
};

static size_t depth_of(const struct bta_fabric *fabric)
{
    const size_t size = fabric->info->tx_attr->size;

    if (size == 0) {
        return 1;
    }
    return size > DEPTH_MAX ? DEPTH_MAX : size;
}

static bool ops_make(struct bta_channel *channel)
{
    channel->ops = calloc(channel->depth, sizeof(*channel->ops));
    channel->landings =
        calloc(channel->depth, WORDS * sizeof(*channel->landings));
    if (channel->ops == NULL || channel->landings == NULL) {
        return false;
    }
    for (size_t i = 0; i < channel->depth; i++) {
        channel->ops[i].landing = &channel->landings[WORDS * i];
        channel->ops[i].next = channel->idle;
        channel->idle = &channel->ops[i];
    }
    channel->landing_memory.base = channel->landings;
    channel->landing_memory.length =
        channel->depth * WORDS * sizeof(*channel->landings);
    return true;
}

struct bta_channel *bta_channel_open(struct bta_fabric *fabric,
                                     const void *address, size_t length)
{
    struct bta_channel *const channel = calloc(1, sizeof(*channel));

    if (channel == NULL) {
        return NULL;
    }
    channel->fabric = fabric;
    channel->depth = depth_of(fabric);
    channel->endpoint.watch.fd = -1;
    LIST_INSERT_HEAD(&fabric->channels, channel, entry);
    if (length < fabric->info->src_addrlen || !ops_make(channel) ||
        bta_fabric_register(fabric, &channel->landing_memory, false) !=
            BATON_OK ||
        !bta_endpoint_open(fabric, !fabric->shares_progress, channel->depth,
                           &channel->endpoint) ||
        fi_av_insert(channel->endpoint.av, address, 1, &channel->peer, 0,
                     NULL) != 1) {
        bta_channel_close(channel);
        return NULL;
    }
    return channel;
}

static void outstanding_add(struct bta_channel *channel, bool is_more)
{
    if (is_more) {
        channel->outstanding++;
        channel->fabric->busy_channels += channel->outstanding == 1 ? 1 : 0;
    } else {
        channel->outstanding--;
        channel->fabric->busy_channels -= channel->outstanding == 0 ? 1 : 0;
    }
}

void bta_channel_close(struct bta_channel *channel)
{
    if (channel == NULL) {
        return;
    }
    LIST_REMOVE(channel, entry);
    while (channel->outstanding > 0) {
        outstanding_add(channel, false);
    }
    bta_endpoint_close(channel->fabric, &channel->endpoint);
    bta_fabric_unregister(&channel->landing_memory);
    free(channel->landings);
    free(channel->ops);
    free(channel);
}

static enum bta_post post(struct bta_channel *channel,
                          const struct bta_read *read, struct bta_op *op)
{
    const ssize_t rc =
        fi_read(channel->endpoint.ep, read->local, (size_t)read->length,
                read->desc, channel->peer, read->at, read->key, &op->space);

    if (rc == -FI_EAGAIN) {
        return BTA_POST_LATER;
    }
    if (rc != 0) {
        bta_log_write(&channel->fabric->log, BTA_DEBUG, "posting a read: %s",
                      fi_strerror((int)-rc));
        return BTA_POST_BROKEN;
    }
    channel->idle = op->next;
    outstanding_add(channel, true);
    return BTA_POST_DONE;
}

enum bta_post bta_channel_read(struct bta_channel *channel,
                               const struct bta_read *read, void *context)
{
    struct bta_op *const op = channel->idle;

    if (op == NULL) {
        return BTA_POST_LATER;
    }
    op->context = context;
    return post(channel, read, op);
}

static enum bta_post read_words(struct bta_channel *channel, size_t count,
                                uint64_t at, uint64_t key, void *context)
{
    struct bta_op *const op = channel->idle;
    struct bta_read read = {
        .length = count * sizeof(uint64_t),
        .desc = channel->landing_memory.desc,
        .at = at,
        .key = key,
    };

    if (op == NULL) {
        return BTA_POST_LATER;
    }
    op->context = context;
    op->landing[0] = 0;
    op->landing[1] = 0;
    read.local = op->landing;
    return post(channel, &read, op);
}

enum bta_post bta_channel_read_word(struct bta_channel *channel, uint64_t at,
                                    uint64_t key, void *context)
{
    return read_words(channel, 1, at, key, context);
}

enum bta_post bta_channel_read_record(struct bta_channel *channel, uint64_t at,
                                      uint64_t key, void *context)
{
    return read_words(channel, WORDS, at, key, context);
}

static void log_error(struct bta_channel *channel)
{
    struct fi_cq_err_entry error = {0};
    char data[128];

    error.err_data = data;
    error.err_data_size = sizeof(data);
    if (fi_cq_readerr(channel->endpoint.cq, &error, 0) == 1) {
        bta_log_write(&channel->fabric->log, BTA_DEBUG, "a read failed: %s",
                      fi_strerror(error.err < 0 ? -error.err : error.err));
    }
}

int bta_channel_poll(struct bta_channel *channel, struct bta_done *done,
                     size_t max)
{
    struct fi_cq_entry entries[POLL_BATCH];
    const ssize_t count = fi_cq_read(channel->endpoint.cq, entries,
                                     max > POLL_BATCH ? POLL_BATCH : max);

    if (count == -FI_EAGAIN) {
        return 0;
    }
    if (count < 0) {
        log_error(channel);
        return -1;
    }
    for (ssize_t i = 0; i < count; i++) {
        struct bta_op *const op =
            bt_container_of(entries[i].op_context, struct bta_op, space);
        done[i].context = op->context;
        done[i].word = op->landing[0];
        done[i].ready = op->landing[1];
        op->next = channel->idle;
        channel->idle = op;
        outstanding_add(channel, false);
    }
    return (int)count;
}

size_t bta_channel_outstanding(const struct bta_channel *channel)
{
    return channel->outstanding;
}

struct bta_channel *bta_channel_next(const struct bta_channel *channel)
{
    return LIST_NEXT(channel, entry);
}

int bta_channel_trywait(struct bta_fabric *fabric, struct bta_channel *channel)
{
    return channel->endpoint.watch.fd < 0
               ? FI_SUCCESS
               : bta_endpoint_trywait(fabric, &channel->endpoint);
}
