/*
 * The model: what stands in for a language model, as pure functions.
 *
 *   text --tokenize--> token ids --roll--> one 64-bit history per position
 *   history --slice_write--> the bytes that prefill puts into a KV block
 *   bytes read back --slice_digest--> numbers whose sum is the context digest
 *   context digest --next--> the next word
 *
 * A slice is what one head keeps of one token in one layer and kind. Its bytes
 * are a function of the model's key, its place (layer, kind, head), its
 * position and all token ids up to there. The context digest is the sum of
 * the digests of all slices, each mixed with its place and position: so it
 * does not matter how tokens lie in blocks, which rank holds a head, or which
 * prefix came from a cache, while any wrong, missing, stale, shifted or
 * swapped byte gives another sum, and with it another text.
 *
 * Layers form groups: layer i is of group i modulo their number. A group sees
 * all tokens, or only the last ones, its window: what is not seen any more
 * leaves the sum.
 *
 * model_answer computes the same words without a pool: it is what a lone
 * engine answers, for whoever checks answers.
 */
#ifndef AGENT_ENGINE_KV_MODEL_H
#define AGENT_ENGINE_KV_MODEL_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/status.h"
#include "common/base/str.h"

/* Bytes of text in one token (the last one of a prompt may have fewer). */
#define MODEL_TOKEN_TEXT 4
/* Ids of decoded words are below this. */
#define MODEL_VOCABULARY 4096
/* Groups of layers, each with block lists of its own. */
#define MODEL_GROUPS_MAX 8
/* Longest text of one word, with its space and punctuation. */
#define MODEL_WORD_MAX 16

struct model_options {
    const char *name;
    uint64_t seed;
    uint32_t layers;
    uint32_t kv_heads;
    uint32_t head_size;   /* numbers in one head */
    uint32_t dtype_bytes; /* 1, 2 or 4 */
    bool is_latent;       /* one latent for all heads, as MLA keeps it */
    uint32_t group_count; /* divides the layers; 0: one that sees all */
    uint32_t windows[MODEL_GROUPS_MAX]; /* tokens seen of a group; 0: all */
};

struct eng_model {
    uint64_t key; /* of name and seed */
    uint32_t layers;
    uint32_t kinds;       /* 2 (K and V) or 1 (latent) */
    uint32_t heads;       /* 1 for a latent */
    uint32_t slice_bytes; /* a multiple of 8 */
    bool is_latent;
    uint32_t group_count; /* at least 1 */
    uint32_t windows[MODEL_GROUPS_MAX];
};

/* BT_ERR_RANGE: a number is 0 or too large, a slice is no multiple of 8
 * bytes, or the layers no multiple of the groups. */
BT_MUST_CHECK enum bt_status model_init(const struct model_options *options,
                                        struct eng_model *model_p);

/* --- text and tokens --- */

/* How many tokens `text` has: one for each 4 bytes, and one for the rest. */
size_t model_token_count(struct bt_str text);
/* Writes model_token_count(text) ids. An id is its bytes, lowest first. */
void model_tokenize(struct bt_str text, uint32_t *ids);
/* Appends the bytes of one id, as model_tokenize made it. */
void model_detokenize(uint32_t id, struct bt_buf *out);
/* The template of a chat: each message in order, then the end. */
void model_chat_message(struct bt_buf *out, struct bt_str role,
                        struct bt_str content);
void model_chat_end(struct bt_buf *out);

/* --- KV bytes --- */

/* The history after one more token; the first one starts from 0. */
uint64_t model_roll(uint64_t history, uint32_t token);
/* Number of a slice within its token. */
uint32_t model_place(const struct eng_model *model, uint32_t layer,
                     uint32_t kind, uint32_t head);
/* Writes the slice_bytes of one slice. */
void model_slice_write(const struct eng_model *model, uint64_t history,
                       uint64_t position, uint32_t place, void *dst);
/* The digest of a slice's bytes as they lie in memory. */
uint64_t model_slice_digest(const struct eng_model *model, uint64_t position,
                            uint32_t place, const void *src);
/* The sum of a group's slices of a token that was written right. */
uint64_t model_token_digest(const struct eng_model *model, uint32_t group,
                            uint64_t history, uint64_t position);
/* The first of `length` tokens that the group sees behind them. */
uint64_t model_first_seen(const struct eng_model *model, uint32_t group,
                          uint64_t length);

/* --- words --- */

struct model_word {
    uint32_t id;
    bool is_end; /* the answer would end here by itself */
};

/*
 * The word behind `length` tokens whose slices sum up to `digest`. `choice`
 * tells the answers to one request apart.
 */
struct model_word model_next(uint64_t digest, uint64_t length, uint32_t choice);
/* The word's text; the first one of an answer has no space before it. */
struct bt_str model_word_text(uint32_t id, bool is_first,
                              char text[MODEL_WORD_MAX]);

struct model_ask {
    const uint32_t *prompt;
    size_t prompt_tokens;
    size_t max_tokens;
    size_t min_tokens; /* the end is not looked for in the first ones */
    bool ignore_eos;
    uint32_t choice;
};

struct model_result {
    size_t tokens; /* as usage counts them: the end counts too */
    bool is_stop;  /* ended by itself, else by length */
};

/* Appends the answer's text to `text`. BT_ERR_NOMEM. */
BT_MUST_CHECK enum bt_status model_answer(const struct eng_model *model,
                                          const struct model_ask *ask,
                                          struct bt_buf *text,
                                          struct model_result *result_p);

#endif
