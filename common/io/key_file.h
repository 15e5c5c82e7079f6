/*
 * Files of secret keys, one key a line. Blanks around a line, its end (LF or
 * CR LF) and a byte order mark before the first are no part of a key. A key has
 * BT_KEY_MAX bytes at most and no control byte. What is wrong is logged with
 * the file and the line, never with the key.
 */
#ifndef COMMON_IO_KEY_FILE_H
#define COMMON_IO_KEY_FILE_H

#include "common/base/str.h"

#include <stdio.h>

#define BT_KEY_MAX 4096

struct bt_key_file {
    const char *path;
    FILE *file;
    char *line;
    size_t cap;
    unsigned number; /* of the line */
};

BT_MUST_CHECK enum bt_status bt_key_file_open(struct bt_key_file *keys,
                                              const char *path);
void bt_key_file_close(struct bt_key_file *keys);
/*
 * The next line, empty ones too; valid until the next call.
 * BT_ERR_NOT_FOUND: the file's end.
 */
BT_MUST_CHECK enum bt_status bt_key_file_next(struct bt_key_file *keys,
                                              struct bt_str *line_p);
/* May the line that was read last be a key? BT_ERR_LIMIT, BT_ERR_SYNTAX. */
BT_MUST_CHECK enum bt_status bt_key_file_check(const struct bt_key_file *keys,
                                               struct bt_str key);

/* The key in a file's first line; the caller frees it by bt_key_free. */
BT_MUST_CHECK enum bt_status bt_key_read(const char *path,
                                         struct bt_str *key_p);
/* Wipes and frees a key that was read; nothing where there is none. */
void bt_key_free(struct bt_str *key);

#endif
