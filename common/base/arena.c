/*
 * The arena's chunks:
 *
 *     arena.chunks -> [newest | used |at ... free ... end] -> [older] -> ...
 *
 * Chunks double from 4 KiB to 64 KiB. A request of more than a quarter of the
 * next chunk gets a chunk of its own, linked behind the newest one, so that
 * the free room of that one stays in use.
 */
#include "common/base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_FIRST (4 * BT_KIB)
#define CHUNK_LAST  (64 * BT_KIB)
#define ALIGNMENT   alignof(max_align_t)

struct bt_arena_chunk {
    struct bt_arena_chunk *next; /* older */
    size_t size;                 /* of data */
    alignas(max_align_t) char data[];
};

void bt_arena_init(struct bt_arena *arena)
{
    *arena = (struct bt_arena){0};
}

void bt_arena_fini(struct bt_arena *arena)
{
    struct bt_arena_chunk *chunk = arena->chunks;

    while (chunk != NULL) {
        struct bt_arena_chunk *const next = chunk->next;

        free(chunk);
        chunk = next;
    }
    *arena = (struct bt_arena){0};
}

static struct bt_arena_chunk *chunk_open(struct bt_arena *arena, size_t size)
{
    struct bt_arena_chunk *chunk = NULL;

    if (size <= SIZE_MAX / 2) {
        chunk = malloc(sizeof(*chunk) + size);
    }
    if (chunk == NULL) {
        arena->failed = true;
        return NULL;
    }
    chunk->size = size;
    return chunk;
}

/* `size` is a multiple of ALIGNMENT and does not fit the newest chunk. */
static void *alloc_slow(struct bt_arena *arena, size_t size)
{
    struct bt_arena_chunk *const newest = arena->chunks;
    const size_t wanted = newest == NULL               ? CHUNK_FIRST
                          : newest->size >= CHUNK_LAST ? CHUNK_LAST
                                                       : newest->size * 2;
    struct bt_arena_chunk *chunk;

    if (newest != NULL && size > wanted / 4) {
        chunk = chunk_open(arena, size);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = newest->next;
        newest->next = chunk;
        return chunk->data;
    }
    chunk = chunk_open(arena, size > wanted ? size : wanted);
    if (chunk == NULL) {
        return NULL;
    }
    chunk->next = newest;
    arena->chunks = chunk;
    arena->at = chunk->data + size;
    arena->end = chunk->data + chunk->size;
    return chunk->data;
}

void *bt_arena_alloc(struct bt_arena *arena, size_t size)
{
    void *block;

    if (size > SIZE_MAX / 2) {
        arena->failed = true;
        return NULL;
    }
    size = ((size == 0 ? 1 : size) + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    if (arena->chunks == NULL || size > (size_t)(arena->end - arena->at)) {
        return alloc_slow(arena, size);
    }
    block = arena->at;
    arena->at += size;
    return block;
}

void *bt_arena_zalloc(struct bt_arena *arena, size_t size)
{
    void *const block = bt_arena_alloc(arena, size);

    if (block != NULL) {
        memset(block, 0, size);
    }
    return block;
}

struct bt_str bt_arena_dup(struct bt_arena *arena, struct bt_str text)
{
    char *copy;

    if (text.len == SIZE_MAX) {
        arena->failed = true;
        return bt_str_span(NULL, 0);
    }
    copy = bt_arena_alloc(arena, text.len + 1);
    if (copy == NULL) {
        return bt_str_span(NULL, 0);
    }
    if (text.len > 0) {
        memcpy(copy, text.ptr, text.len);
    }
    copy[text.len] = '\0';
    return bt_str_span(copy, text.len);
}

struct bt_str bt_arena_printf(struct bt_arena *arena, const char *format, ...)
{
    va_list args;
    char *text;
    int len;

    va_start(args, format);
    len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0) {
        arena->failed = true;
        return bt_str_span(NULL, 0);
    }
    text = bt_arena_alloc(arena, (size_t)len + 1);
    if (text == NULL) {
        return bt_str_span(NULL, 0);
    }
    va_start(args, format);
    (void)vsnprintf(text, (size_t)len + 1, format, args);
    va_end(args);
    return bt_str_span(text, (size_t)len);
}
