/*
 * auth: keys are kept as SHA-256 digests and compared in constant time.
 */
#include "proxy/config/auth.h"

#include "common/base/log.h"
#include "common/base/utf8.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGEST_BYTES  32
#define KEYS_MAX      65536
#define KEY_MAX_BYTES 4096
#define LINE_BYTES    8192 /* at first: a line may be longer */

struct auth {
    unsigned char (*digests)[DIGEST_BYTES];
    size_t count;
    size_t cap;
};

static bool digest_of(struct bt_str text, unsigned char digest[DIGEST_BYTES])
{
    unsigned size = 0;

    return EVP_Digest(text.ptr, text.len, digest, &size, EVP_sha256(), NULL) ==
               1 &&
           size == DIGEST_BYTES;
}

static enum bt_status add_key(struct auth *auth, struct bt_str key)
{
    if (auth->count == auth->cap) {
        const size_t cap = auth->cap == 0 ? 16 : auth->cap * 2;
        void *const grown =
            realloc(auth->digests, cap * sizeof(*auth->digests));

        if (grown == NULL) {
            return BT_ERR_NOMEM;
        }
        auth->digests = grown;
        auth->cap = cap;
    }
    if (!digest_of(key, auth->digests[auth->count])) {
        return BT_ERR_NOMEM;
    }
    auth->count++;
    return BT_OK;
}

/* A file of keys, read by whole lines. */
struct key_file {
    const char *path;
    FILE *file;
    char *line;
    size_t cap;
    unsigned number; /* of the line */
};

static enum bt_status key_file_open(struct key_file *keys, const char *path)
{
    *keys = (struct key_file){.path = path, .cap = LINE_BYTES};
    keys->file = fopen(path, "re");
    if (keys->file == NULL) {
        bt_log(BT_LOG_ERROR, path, "key file cannot be opened: errno %d",
               errno);
        return BT_ERR_SYSTEM;
    }
    /* Larger than any key, so that none is left behind where it grows. */
    keys->line = malloc(keys->cap);
    if (keys->line == NULL) {
        (void)fclose(keys->file);
        return BT_ERR_NOMEM;
    }
    return BT_OK;
}

static void key_file_close(struct key_file *keys)
{
    OPENSSL_cleanse(keys->line, keys->cap);
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
static enum bt_status check_key(const struct key_file *keys, struct bt_str key)
{
    if (key.len > KEY_MAX_BYTES) {
        bt_log(BT_LOG_ERROR, keys->path,
               "line %u: a key of %zu bytes; at most %d would be right",
               keys->number, key.len, KEY_MAX_BYTES);
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
static enum bt_status next_line(struct key_file *keys, struct bt_str *line_p)
{
    const ssize_t len = getline(&keys->line, &keys->cap, keys->file);
    struct bt_str line;

    if (len < 0) {
        if (feof(keys->file) != 0) {
            return BT_ERR_NOT_FOUND;
        }
        bt_log(BT_LOG_ERROR, keys->path, "key file cannot be read: errno %d",
               errno);
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

/* A line of the list: a key, a comment, or nothing. */
static enum bt_status add_line(struct auth *auth, const struct key_file *keys,
                               struct bt_str line)
{
    enum bt_status status;

    if (line.len == 0 || line.ptr[0] == '#') {
        return BT_OK;
    }
    status = check_key(keys, line);
    if (status == BT_OK && auth->count == KEYS_MAX) {
        bt_log(BT_LOG_ERROR, keys->path,
               "line %u: more than %d keys; so many at most would be right",
               keys->number, KEYS_MAX);
        return BT_ERR_LIMIT;
    }
    return status == BT_OK ? add_key(auth, line) : status;
}

static enum bt_status read_keys(struct auth *auth, struct key_file *keys)
{
    struct bt_str line;
    enum bt_status status = next_line(keys, &line);

    while (status == BT_OK) {
        status = add_line(auth, keys, line);
        if (status == BT_OK) {
            status = next_line(keys, &line);
        }
    }
    return status == BT_ERR_NOT_FOUND ? BT_OK : status;
}

enum bt_status auth_open(const char *path, struct auth **auth_p)
{
    struct auth *auth = NULL;
    struct key_file keys;
    enum bt_status status;

    if (path == NULL) {
        *auth_p = NULL;
        return BT_OK;
    }
    status = key_file_open(&keys, path);
    if (status != BT_OK) {
        return status;
    }
    auth = calloc(1, sizeof(*auth));
    status = auth == NULL ? BT_ERR_NOMEM : read_keys(auth, &keys);
    key_file_close(&keys);
    if (status == BT_OK && auth->count == 0) {
        bt_log(BT_LOG_ERROR, path, "holds no client key");
        status = BT_ERR_SYNTAX;
    }
    if (status != BT_OK) {
        auth_close(&auth);
        return status;
    }
    *auth_p = auth;
    return BT_OK;
}

void auth_close(struct auth **auth)
{
    struct auth *const dead = *auth;

    *auth = NULL;
    if (dead != NULL) {
        free(dead->digests);
        free(dead);
    }
}

bool auth_is_needed(const struct auth *auth)
{
    return auth != NULL;
}

bool auth_allows(const struct auth *auth, struct bt_str authorization)
{
    const struct bt_str scheme = BT_STR("Bearer ");
    unsigned char digest[DIGEST_BYTES];
    bool is_allowed = false;

    if (authorization.len <= scheme.len ||
        !bt_str_starts_nocase(authorization, scheme)) {
        return false;
    }
    if (!digest_of(bt_str_trim(bt_str_span(authorization.ptr + scheme.len,
                                           authorization.len - scheme.len)),
                   digest)) {
        return false;
    }
    for (size_t i = 0; i < auth->count; i++) {
        is_allowed |=
            CRYPTO_memcmp(digest, auth->digests[i], DIGEST_BYTES) == 0;
    }
    return is_allowed;
}

enum bt_status auth_key_read(const char *path, struct bt_str *key_p)
{
    struct key_file keys;
    struct bt_str key = {0};
    char *copy = NULL;
    enum bt_status status = key_file_open(&keys, path);

    if (status != BT_OK) {
        return status;
    }
    status = next_line(&keys, &key);
    if (status == BT_ERR_NOT_FOUND || (status == BT_OK && key.len == 0)) {
        bt_log(BT_LOG_ERROR, path, "key file has no key in its first line");
        status = BT_ERR_SYNTAX;
    }
    if (status == BT_OK) {
        status = check_key(&keys, key);
    }
    copy = status == BT_OK ? bt_str_dup(key) : NULL;
    key_file_close(&keys);
    if (status != BT_OK) {
        return status;
    }
    if (copy == NULL) {
        return BT_ERR_NOMEM;
    }
    *key_p = bt_str_of(copy);
    return BT_OK;
}

void auth_key_free(struct bt_str *key)
{
    union {
        const char *read_only;
        char *owned; /* bt_str_dup made it */
    } bytes = {.read_only = key->ptr};

    if (bytes.owned != NULL) {
        OPENSSL_cleanse(bytes.owned, key->len);
    }
    free(bytes.owned);
    *key = (struct bt_str){0};
}
