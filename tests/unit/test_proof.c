/*
 * The proof of a link's key: a known value, and all that must not pass for it.
 */
#include "common/proof.h"
#include "tests/support/harness.h"

#define KEY BT_STR("secret")

static const struct bt_nonces NONCES = {
    .agent = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    .proxy = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210",
};

static struct bt_str make(struct bt_str key, enum bt_proof_side side,
                          char proof[BT_PROOF_LEN + 1])
{
    ck_assert(bt_proof_make(key, &NONCES, side, proof));
    ck_assert_uint_eq(strlen(proof), BT_PROOF_LEN);
    return bt_str_of(proof);
}

START_TEST(proof_is_the_hmac_of_side_and_both_nonces)
{
    char proof[BT_PROOF_LEN + 1];

    make(KEY, BT_PROOF_AGENT, proof);
    ck_assert_str_eq(
        proof,
        "a277dfd2d7793f71173b796b6cd4fe0a0b87d8e4bf4dd72e609dd21316b66a6b");
    make(KEY, BT_PROOF_PROXY, proof);
    ck_assert_str_eq(
        proof,
        "25e3be7d82669a711ad30726b8542c18c98cc47851f734615705ceb35a7abf75");
}
END_TEST

START_TEST(takes_the_right_proof_of_each_side)
{
    char proof[BT_PROOF_LEN + 1];

    ck_assert(bt_proof_is_good(KEY, &NONCES, BT_PROOF_AGENT,
                               make(KEY, BT_PROOF_AGENT, proof)));
    ck_assert(bt_proof_is_good(KEY, &NONCES, BT_PROOF_PROXY,
                               make(KEY, BT_PROOF_PROXY, proof)));
}
END_TEST

START_TEST(refuses_a_proof_by_another_key)
{
    char proof[BT_PROOF_LEN + 1];
    const struct bt_str good = make(KEY, BT_PROOF_AGENT, proof);

    ck_assert(
        !bt_proof_is_good(BT_STR("secreT"), &NONCES, BT_PROOF_AGENT, good));
    ck_assert(
        !bt_proof_is_good(BT_STR("secret2"), &NONCES, BT_PROOF_AGENT, good));
    ck_assert(
        !bt_proof_is_good(BT_STR("secre"), &NONCES, BT_PROOF_AGENT, good));
}
END_TEST

START_TEST(refuses_a_proof_over_other_nonces)
{
    char proof[BT_PROOF_LEN + 1];
    const struct bt_str good = make(KEY, BT_PROOF_AGENT, proof);
    struct bt_nonces other = NONCES;

    other.agent[0] = 'f';
    ck_assert(!bt_proof_is_good(KEY, &other, BT_PROOF_AGENT, good));
    other = NONCES;
    other.proxy[BT_NONCE_LEN - 1] = 'f';
    ck_assert(!bt_proof_is_good(KEY, &other, BT_PROOF_AGENT, good));
    memcpy(other.agent, NONCES.proxy, sizeof(other.agent));
    memcpy(other.proxy, NONCES.agent, sizeof(other.proxy));
    ck_assert(!bt_proof_is_good(KEY, &other, BT_PROOF_AGENT, good));
}
END_TEST

START_TEST(refuses_what_the_other_side_sent)
{
    char proof[BT_PROOF_LEN + 1];

    ck_assert(!bt_proof_is_good(KEY, &NONCES, BT_PROOF_PROXY,
                                make(KEY, BT_PROOF_AGENT, proof)));
    ck_assert(!bt_proof_is_good(KEY, &NONCES, BT_PROOF_AGENT,
                                make(KEY, BT_PROOF_PROXY, proof)));
}
END_TEST

START_TEST(refuses_a_proof_of_another_length)
{
    char proof[BT_PROOF_LEN + 2];
    struct bt_str cut = make(KEY, BT_PROOF_AGENT, proof);

    proof[BT_PROOF_LEN] = '0';
    cut.len = BT_PROOF_LEN + 1;
    ck_assert(!bt_proof_is_good(KEY, &NONCES, BT_PROOF_AGENT, cut));
    for (cut.len = 0; cut.len < BT_PROOF_LEN; cut.len++) {
        ck_assert(!bt_proof_is_good(KEY, &NONCES, BT_PROOF_AGENT, cut));
    }
    ck_assert(bt_proof_is_good(KEY, &NONCES, BT_PROOF_AGENT, cut));
}
END_TEST

/* A comparison of strings would end at the first difference, or at a NUL. */
START_TEST(refuses_a_difference_in_any_one_byte)
{
    char proof[BT_PROOF_LEN + 1];
    const struct bt_str good = make(KEY, BT_PROOF_AGENT, proof);

    for (size_t i = 0; i < BT_PROOF_LEN; i++) {
        const char was = proof[i];

        proof[i] = was == '0' ? '1' : '0';
        ck_assert(!bt_proof_is_good(KEY, &NONCES, BT_PROOF_AGENT, good));
        proof[i] = '\0';
        ck_assert(!bt_proof_is_good(KEY, &NONCES, BT_PROOF_AGENT, good));
        proof[i] = was;
    }
    ck_assert(bt_proof_is_good(KEY, &NONCES, BT_PROOF_AGENT, good));
}
END_TEST

START_TEST(proves_nothing_without_a_key)
{
    char proof[BT_PROOF_LEN + 1] = "";

    ck_assert(!bt_proof_make(BT_STR(""), &NONCES, BT_PROOF_AGENT, proof));
    ck_assert_str_eq(proof, "");
    ck_assert(!bt_proof_is_good(BT_STR(""), &NONCES, BT_PROOF_AGENT,
                                make(KEY, BT_PROOF_AGENT, proof)));
}
END_TEST

START_TEST(nonces_are_hex_and_never_the_same)
{
    char a[BT_NONCE_LEN + 1], b[BT_NONCE_LEN + 1];

    ck_assert(bt_nonce_make(a));
    ck_assert(bt_nonce_make(b));
    ck_assert_uint_eq(strlen(a), BT_NONCE_LEN);
    ck_assert_uint_eq(strspn(a, "0123456789abcdef"), BT_NONCE_LEN);
    ck_assert_str_ne(a, b);
}
END_TEST

START_TEST(takes_a_nonce_of_the_right_length_alone)
{
    char nonce[BT_NONCE_LEN + 1] = "before";
    struct bt_str text = bt_str_of(NONCES.agent);

    text.len--;
    ck_assert(!bt_nonce_take(text, nonce));
    ck_assert(!bt_nonce_take(BT_STR(""), nonce));
    text.len += 2;
    ck_assert(!bt_nonce_take(text, nonce));
    ck_assert_str_eq(nonce, "before");
    text.len--;
    ck_assert(bt_nonce_take(text, nonce));
    ck_assert_str_eq(nonce, NONCES.agent);
}
END_TEST

HARNESS_MAIN("proof", proof_is_the_hmac_of_side_and_both_nonces,
             takes_the_right_proof_of_each_side, refuses_a_proof_by_another_key,
             refuses_a_proof_over_other_nonces,
             refuses_what_the_other_side_sent,
             refuses_a_proof_of_another_length,
             refuses_a_difference_in_any_one_byte, proves_nothing_without_a_key,
             nonces_are_hex_and_never_the_same,
             takes_a_nonce_of_the_right_length_alone)
