/*
 * Nonces, proofs of a link's key, and seals, by OpenSSL.
 */
#include "common/proof.h"

#include "common/base/random.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

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

    if (!bt_random_bytes(bytes, sizeof(bytes))) {
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

bool bt_digest_make(struct bt_str text, char digest[BT_PROOF_LEN + 1])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int count = 0;

    if (EVP_Digest(text.ptr, text.len, bytes, &count, EVP_sha256(), NULL) !=
            1 ||
        count != BT_PROOF_LEN / 2) {
        return false;
    }
    bt_str_hex(bytes, count, digest);
    return true;
}

bool bt_seal_make(struct bt_str key, struct bt_str text,
                  char seal[BT_PROOF_LEN + 1])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int count = 0;

    if (key.len == 0 || key.len > INT_MAX ||
        HMAC(EVP_sha256(), key.ptr, (int)key.len,
             (const unsigned char *)text.ptr, text.len, bytes,
             &count) == NULL ||
        count != BT_PROOF_LEN / 2) {
        return false;
    }
    bt_str_hex(bytes, count, seal);
    return true;
}

bool bt_seal_is_good(struct bt_str key, struct bt_str text, struct bt_str seal)
{
    char expected[BT_PROOF_LEN + 1];

    return seal.len == BT_PROOF_LEN && bt_seal_make(key, text, expected) &&
           CRYPTO_memcmp(expected, seal.ptr, seal.len) == 0;
}

/* What is sealed for a side; `text` has room for it. */
static struct bt_str proven_text(const struct bt_nonces *nonces,
                                 enum bt_proof_side side,
                                 char text[SIDE_LEN + 2 * BT_NONCE_LEN])
{
    char *end = text;

    bt_str_put(&end, side_word(side));
    bt_str_put(&end, bt_str_span(nonces->agent, BT_NONCE_LEN));
    bt_str_put(&end, bt_str_span(nonces->proxy, BT_NONCE_LEN));
    return bt_str_span(text, (size_t)(end - text));
}

bool bt_proof_make(struct bt_str key, const struct bt_nonces *nonces,
                   enum bt_proof_side side, char proof[BT_PROOF_LEN + 1])
{
    char text[SIDE_LEN + 2 * BT_NONCE_LEN];

    return bt_seal_make(key, proven_text(nonces, side, text), proof);
}

bool bt_proof_is_good(struct bt_str key, const struct bt_nonces *nonces,
                      enum bt_proof_side side, struct bt_str proof)
{
    char text[SIDE_LEN + 2 * BT_NONCE_LEN];

    return bt_seal_is_good(key, proven_text(nonces, side, text), proof);
}
