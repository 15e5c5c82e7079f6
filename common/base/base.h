/*
 * Attributes and small macros that every file may use.
 */
#ifndef COMMON_BASE_BASE_H
#define COMMON_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BT_MUST_CHECK        __attribute__((warn_unused_result))
#define BT_UNUSED            __attribute__((unused))
#define BT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#define BT_ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))

/* The struct of `type` whose `member` is at `ptr`. */
#define bt_container_of(ptr, type, member) \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define BT_KIB ((size_t)1024)
#define BT_MIB (BT_KIB * 1024)

#endif
