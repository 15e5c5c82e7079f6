/*
 * A card: all that another agent must know to read from this rank, and who
 * this rank is. Written as JSON by us, read strictly from anyone.
 *
 *     {"engine":…,"engine_boot":…,"boot":…,"rank":…,"world":…,"tp":…,"pp":…,
 *      "dp":…,"role":…,"url":…,"blocks":…,"block_tokens":…,"fingerprint":…,
 *      "max_handoffs":…,
 *      "card":{"endpoints":[…],"regions":[…],"slots":{…},"boot_word":{…}},
 *      "summary":{…}}
 */
#ifndef AGENT_SRC_GEOMETRY_CARD_H
#define AGENT_SRC_GEOMETRY_CARD_H

#include "agent/link/limits.h"
#include "common/base/arena.h"
#include "common/base/buf.h"

#include "baton/agent.h"

#define BTA_CARD_ENDPOINTS_MAX 16
#define BTA_CARD_REGIONS_MAX   16384
#define BTA_ADDRESS_MAX        256
#define BTA_SLOT_BYTES         16 /* of a record, as far as we read it */

/* 1 to LINK_ENGINE_MAX printable ASCII characters: the same in every text. */
bool bta_engine_is_valid(struct bt_str engine);

struct bta_card_endpoint {
    struct bt_str provider;
    unsigned char address[BTA_ADDRESS_MAX];
    size_t address_length;
    uint64_t host_hi, host_lo; /* the kernel's boot id */
    uint64_t pidns, uid, pid;
};

/* Where one registered memory is read: by pointer (cma) or by fabric. */
struct bta_card_target {
    uint64_t base; /* address in its process */
    uint64_t at;   /* address to give to fi_read */
    uint64_t key;
};

struct bta_card_region {
    baton_layout layout;
    baton_memory memory;
    struct bta_card_target target;
};

struct bta_card {
    struct bt_arena arena; /* of all below */
    struct bt_str engine, url, fingerprint;
    uint64_t engine_boot, boot;
    uint32_t rank, world, tp, pp, dp;
    baton_role role;
    uint32_t max_handoffs;
    struct bta_card_endpoint *endpoints;
    size_t endpoint_count;
    struct bta_card_region *regions;
    size_t region_count;
    struct bta_card_target slots;   /* records of hold word and ready count */
    uint64_t slot_count, slot_step; /* bytes from one to the next */
    struct bta_card_target boot_word;
};

void bta_card_init(struct bta_card *card);
void bta_card_fini(struct bta_card *card);
/* The object's members without the braces. */
void bta_card_write(const struct bta_card *card, struct bt_buf *out);
/*
 * `card` is initialised here and must be finished in every case. ERR_PARAMS
 * and *why_p (static), or ERR_MEMORY.
 */
baton_status bta_card_read(struct bta_card *card, struct bt_str text,
                           const char **why_p);
/* The same with its zeros replaced by what they stand for. */
baton_layout bta_layout_filled(const baton_layout *layout);
/* NULL, or what is wrong with it (static); it must be filled. */
const char *bta_layout_check(const baton_layout *layout);
/* Are its blocks without gaps, [head][token] or [token][head]? */
bool bta_layout_is_dense(const baton_layout *layout);
/* Of one block; the layout must be checked. */
uint64_t bta_layout_block_bytes(const baton_layout *layout);
/* Bytes from base to the end of the last block; the layout must be checked. */
uint64_t bta_layout_length(const baton_layout *layout);
/* NULL: blocks of both hold the same in the same places; else the first member
 * that differs (static). */
const char *bta_layout_differs(const baton_layout *a, const baton_layout *b);

#endif
