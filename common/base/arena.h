/*
 * A bump allocator: everything in it dies with it. An exchange owns one.
 */
#ifndef COMMON_BASE_ARENA_H
#define COMMON_BASE_ARENA_H

#include "common/base/base.h"
#include "common/base/str.h"

struct bt_arena_chunk;

struct bt_arena {
    struct bt_arena_chunk *chunks; /* newest first */
    char *at;                      /* next free byte of the newest chunk */
    char *end;
    bool failed; /* sticky: an allocation could not be had */
};

void bt_arena_init(struct bt_arena *arena);
void bt_arena_fini(struct bt_arena *arena);

/* Aligned for any type; NULL (and `failed`) when memory is out. */
void *bt_arena_alloc(struct bt_arena *arena, size_t size);
void *bt_arena_zalloc(struct bt_arena *arena, size_t size);
/* A copy with a NUL behind it; {NULL, 0} when memory is out. */
struct bt_str bt_arena_dup(struct bt_arena *arena, struct bt_str text);
struct bt_str bt_arena_printf(struct bt_arena *arena, const char *format, ...)
    BT_PRINTF(2, 3);

#endif
