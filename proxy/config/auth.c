/*
 * auth: keys are kept as SHA-256 digests and compared in constant time.
 */
#include "proxy/config/auth.h"

#include "common/base/log.h"
#include "common/io/key_file.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>

#define DIGEST_BYTES 32
#define KEYS_MAX     65536

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

/* A line of the list: a key, a comment, or nothing. */
static enum bt_status add_line(struct auth *auth,
                               const struct bt_key_file *keys,
                               struct bt_str line)
{
    enum bt_status status;

    if (line.len == 0 || line.ptr[0] == '#') {
        return BT_OK;
    }
    status = bt_key_file_check(keys, line);
    if (status == BT_OK && auth->count == KEYS_MAX) {
        bt_log(BT_LOG_ERROR, keys->path,
               "line %u: more than %d keys; so many at most would be right",
               keys->number, KEYS_MAX);
        return BT_ERR_LIMIT;
    }
    return status == BT_OK ? add_key(auth, line) : status;
}

static enum bt_status read_keys(struct auth *auth, struct bt_key_file *keys)
{
    struct bt_str line;
    enum bt_status status = bt_key_file_next(keys, &line);

    while (status == BT_OK) {
        status = add_line(auth, keys, line);
        if (status == BT_OK) {
            status = bt_key_file_next(keys, &line);
        }
    }
    return status == BT_ERR_NOT_FOUND ? BT_OK : status;
}

enum bt_status auth_open(const char *path, struct auth **auth_p)
{
    struct auth *auth = NULL;
    struct bt_key_file keys;
    enum bt_status status;

    if (path == NULL) {
        *auth_p = NULL;
        return BT_OK;
    }
    status = bt_key_file_open(&keys, path);
    if (status != BT_OK) {
        return status;
    }
    auth = calloc(1, sizeof(*auth));
    status = auth == NULL ? BT_ERR_NOMEM : read_keys(auth, &keys);
    bt_key_file_close(&keys);
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
