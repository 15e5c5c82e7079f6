/*
 * key_file: lines of any length, so that the tail of a long one is never taken
 * for a key; what was read is wiped.
 */
#include "common/io/key_file.h"

#include "common/base/log.h"
#include "common/base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Larger than any key, so that none is left behind where the line grows. */
#define LINE_FIRST ((size_t)2 * BT_KEY_MAX)

enum bt_status bt_key_file_open(struct bt_key_file *keys, const char *path)
{
    *keys = (struct bt_key_file){.path = path, .cap = LINE_FIRST};
    keys->file = fopen(path, "re");
    if (keys->file == NULL) {
        bt_log(BT_LOG_ERROR, path, "key file cannot be opened: %s",
               strerrordesc_np(errno));
        return BT_ERR_SYSTEM;
    }
    keys->line = malloc(keys->cap);
    if (keys->line == NULL) {
        (void)fclose(keys->file);
        return BT_ERR_NOMEM;
    }
    return BT_OK;
}

void bt_key_file_close(struct bt_key_file *keys)
{
    explicit_bzero(keys->line, keys->cap);
    free(keys->line);
    (void)fclose(keys->file);
}

static bool has_control_byte(struct bt_str key)
{
    for (size_t i = 0; i < key.len; i++) {
        const unsigned char byte = (unsigned char)key.ptr[i];

        if ((byte < 0x20 && byte != '\t') || byte == 0x7f) {
            return true;
        }
    }
    return false;
}

/* A key that no client and no engine could be shown whole is no key. */
enum bt_status bt_key_file_check(const struct bt_key_file *keys,
                                 struct bt_str key)
{
    if (key.len > BT_KEY_MAX) {
        bt_log(BT_LOG_ERROR, keys->path,
               "line %u: a key of %zu bytes; at most %d would be right",
               keys->number, key.len, BT_KEY_MAX);
        return BT_ERR_LIMIT;
    }
    if (has_control_byte(key)) {
        bt_log(BT_LOG_ERROR, keys->path,
               "line %u: a key with a control byte in it; printable text "
               "would be right",
               keys->number);
        return BT_ERR_SYNTAX;
    }
    return BT_OK;
}

/* The next line without blanks around it; BT_ERR_NOT_FOUND at the end. */
enum bt_status bt_key_file_next(struct bt_key_file *keys, struct bt_str *line_p)
{
    const ssize_t len = getline(&keys->line, &keys->cap, keys->file);
    struct bt_str line;

    if (len < 0) {
        if (feof(keys->file) != 0) {
            return BT_ERR_NOT_FOUND;
        }
        bt_log(BT_LOG_ERROR, keys->path, "key file cannot be read: %s",
               strerrordesc_np(errno));
        return BT_ERR_SYSTEM;
    }
    line = bt_str_span(keys->line, (size_t)len);
    keys->number++;
    while (line.len > 0 &&
           (line.ptr[line.len - 1] == '\n' || line.ptr[line.len - 1] == '\r')) {
        line.len--;
    }
    if (keys->number == 1) {
        line = bt_utf8_skip_mark(line);
    }
    *line_p = bt_str_trim(line);
    return BT_OK;
}

enum bt_status bt_key_read(const char *path, struct bt_str *key_p)
{
    struct bt_key_file keys;
    struct bt_str key = {0};
    char *copy = NULL;
    enum bt_status status = bt_key_file_open(&keys, path);

    if (status != BT_OK) {
        return status;
    }
    status = bt_key_file_next(&keys, &key);
    if (status == BT_ERR_NOT_FOUND || (status == BT_OK && key.len == 0)) {
        bt_log(BT_LOG_ERROR, path, "key file has no key in its first line");
        status = BT_ERR_SYNTAX;
    }
    if (status == BT_OK) {
        status = bt_key_file_check(&keys, key);
    }
    copy = status == BT_OK ? bt_str_dup(key) : NULL;
    bt_key_file_close(&keys);
    if (status != BT_OK) {
        return status;
    }
    if (copy == NULL) {
        return BT_ERR_NOMEM;
    }
    *key_p = bt_str_of(copy);
    return BT_OK;
}

void bt_key_free(struct bt_str *key)
{
    union {
        const char *read_only;
        char *owned; /* bt_str_dup made it */
    } bytes = {.read_only = key->ptr};

    if (bytes.owned != NULL) {
        explicit_bzero(bytes.owned, key->len);
    }
    free(bytes.owned);
    *key = (struct bt_str){0};
}
