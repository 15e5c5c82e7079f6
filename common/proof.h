/*
 * The proof that both ends of a link know one key, without sending it:
 *
 *     agent  -- nonce -->                       proxy
 *     agent  <-- nonce, HMAC(key, "proxy", both nonces) --
 *     agent  -- HMAC(key, "agent", both nonces) -->
 *
 * Both nonces are fresh, so a proof serves once; each side's proof names the
 * side, so that one sent back proves nothing. Below them, seals of any text.
 */
#ifndef COMMON_PROOF_H
#define COMMON_PROOF_H

#include "common/base/str.h"

#define BT_NONCE_LEN 64u /* hex digits */
#define BT_PROOF_LEN 64u /* hex digits of an HMAC-SHA256 */

enum bt_proof_side {
    BT_PROOF_AGENT,
    BT_PROOF_PROXY
};

/* Of one link; texts of BT_NONCE_LEN bytes once both are known. */
struct bt_nonces {
    char agent[BT_NONCE_LEN + 1];
    char proxy[BT_NONCE_LEN + 1];
};

/* A fresh nonce; false when the random source fails. */
BT_MUST_CHECK bool bt_nonce_make(char nonce[BT_NONCE_LEN + 1]);
/* Copies the peer's nonce; false when it has not the length of one. */
BT_MUST_CHECK bool bt_nonce_take(struct bt_str text,
                                 char nonce[BT_NONCE_LEN + 1]);
/* 64 hex digits of SHA-256, of HMAC-SHA256; false without a key, or when
 * OpenSSL fails. */
BT_MUST_CHECK bool bt_digest_make(struct bt_str text,
                                  char digest[BT_PROOF_LEN + 1]);
BT_MUST_CHECK bool bt_seal_make(struct bt_str key, struct bt_str text,
                                char seal[BT_PROOF_LEN + 1]);
/* Whether `seal` is that of the text, compared in constant time. */
BT_MUST_CHECK bool bt_seal_is_good(struct bt_str key, struct bt_str text,
                                   struct bt_str seal);
/* The proof of `side`; false without a key or when the HMAC fails. */
BT_MUST_CHECK bool bt_proof_make(struct bt_str key,
                                 const struct bt_nonces *nonces,
                                 enum bt_proof_side side,
                                 char proof[BT_PROOF_LEN + 1]);
/* Whether `proof` is that of `side`, compared in constant time. */
BT_MUST_CHECK bool bt_proof_is_good(struct bt_str key,
                                    const struct bt_nonces *nonces,
                                    enum bt_proof_side side,
                                    struct bt_str proof);

#endif
