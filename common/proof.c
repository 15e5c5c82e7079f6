/*
 * Nonces and proofs of a link's key, by OpenSSL.
 */
#include "common/proof.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#define SIDE_LEN 5 /* of each side's word */

static struct bt_str side_word(enum bt_proof_side side)
{
    switch (side) {
    case BT_PROOF_AGENT:
        return BT_STR("agent");
    case BT_PROOF_PROXY:
        return BT_STR("proxy");
    }
    return BT_STR("");
}

bool bt_nonce_make(char nonce[BT_NONCE_LEN + 1])
{
    unsigned char bytes[BT_NONCE_LEN / 2];

    if (RAND_bytes(bytes, (int)sizeof(bytes)) != 1) {
        return false;
    }
    bt_str_hex(bytes, sizeof(bytes), nonce);
    return true;
}

bool bt_nonce_take(struct bt_str text, char nonce[BT_NONCE_LEN + 1])
{
    if (text.len != BT_NONCE_LEN) {
        return false;
    }
    memcpy(nonce, text.ptr, text.len);
    nonce[text.len] = '\0';
    return true;
}

bool bt_proof_make(struct bt_str key, const struct bt_nonces *nonces,
                   enum bt_proof_side side, char proof[BT_PROOF_LEN + 1])
{
    char text[SIDE_LEN + 2 * BT_NONCE_LEN];
    char *end = text;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int digest_len = 0;

    if (key.len == 0 || key.len > INT_MAX) {
        return false;
    }
    bt_str_put(&end, side_word(side));
    bt_str_put(&end, bt_str_span(nonces->agent, BT_NONCE_LEN));
    bt_str_put(&end, bt_str_span(nonces->proxy, BT_NONCE_LEN));
    if (HMAC(EVP_sha256(), key.ptr, (int)key.len, (const unsigned char *)text,
             (size_t)(end - text), digest, &digest_len) == NULL ||
        digest_len != BT_PROOF_LEN / 2) {
        return false;
    }
    bt_str_hex(digest, digest_len, proof);
    return true;
}

bool bt_proof_is_good(struct bt_str key, const struct bt_nonces *nonces,
                      enum bt_proof_side side, struct bt_str proof)
{
    char expected[BT_PROOF_LEN + 1];

    return proof.len == BT_PROOF_LEN &&
           bt_proof_make(key, nonces, side, expected) &&
           CRYPTO_memcmp(expected, proof.ptr, proof.len) == 0;
}
