/*
 * auth: keys are kept as SHA-256 digests and compared in constant time.
 */
#include "proxy/auth.h"

#include "common/log.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGEST_BYTES   32
#define KEYS_MAX       65536
#define LINE_MAX_BYTES 1024
#define KEY_MAX_BYTES  4096

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
    if (auth->count == KEYS_MAX) {
        return BT_ERR_LIMIT;
    }
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

static enum bt_status read_keys(struct auth *auth, FILE *file)
{
    char line[LINE_MAX_BYTES];
    enum bt_status status = BT_OK;

    while (status == BT_OK && fgets(line, sizeof(line), file) != NULL) {
        const struct bt_str key =
            bt_str_trim(bt_str_span(line, strcspn(line, "\r\n")));

        if (key.len > 0 && key.ptr[0] != '#') {
            status = add_key(auth, key);
        }
    }
    OPENSSL_cleanse(line, sizeof(line));
    return status;
}

enum bt_status auth_open(const char *path, struct auth **auth_p)
{
    struct auth *auth = NULL;
    enum bt_status status;
    FILE *file;

    if (path == NULL) {
        *auth_p = NULL;
        return BT_OK;
    }
    file = fopen(path, "re");
    if (file == NULL) {
        bt_log(BT_LOG_ERROR, path, "client keys cannot be opened: errno %d",
               errno);
        return BT_ERR_SYSTEM;
    }
    auth = calloc(1, sizeof(*auth));
    status = auth == NULL ? BT_ERR_NOMEM : read_keys(auth, file);
    (void)fclose(file);
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
        !bt_str_eq_nocase(bt_str_span(authorization.ptr, scheme.len), scheme)) {
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
    char text[KEY_MAX_BYTES] = "";
    FILE *const file = fopen(path, "re");
    struct bt_str key;
    char *copy;

    if (file == NULL) {
        bt_log(BT_LOG_ERROR, path, "key file cannot be opened: errno %d",
               errno);
        return BT_ERR_SYSTEM;
    }
    if (fgets(text, sizeof(text), file) == NULL) {
        text[0] = '\0';
    }
    (void)fclose(file);
    if (strlen(text) == sizeof(text) - 1) {
        bt_log(BT_LOG_ERROR, path,
               "the key file's first line is longer than %zu bytes",
               sizeof(text) - 2);
        return BT_ERR_SYNTAX;
    }
    key = bt_str_trim(bt_str_span(text, strcspn(text, "\r\n")));
    if (key.len == 0) {
        bt_log(BT_LOG_ERROR, path, "key file has no key in its first line");
        return BT_ERR_SYNTAX;
    }
    copy = bt_str_dup(key);
    OPENSSL_cleanse(text, sizeof(text));
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
