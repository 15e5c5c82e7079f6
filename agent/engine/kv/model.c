/*
 * The model's pure functions; see model.h. The two mixers are plain
 * multiply-and-shift steps: both are bijective in each word they take, so one
 * changed byte always changes a slice's digest.
 */
#include "agent/engine/kv/model.h"

#include <stdlib.h>
#include <string.h>

#define GOLDEN 0x9e3779b97f4a7c15U
#define PRIME1 0xbf58476d1ce4e5b9U
#define PRIME2 0x94d049bb133111ebU
#define PRIME3 0xd6e8feb86659fd93U

#define SLICE_MAX ((uint32_t)BT_MIB)

static const char *const WORDS[] = {
#define W(text) text,
#include "agent/engine/kv/words.def"
#undef W
};

#define WORD_COUNT   ((uint32_t)BT_ARRAY_LEN(WORDS))
#define SUFFIX_COUNT (MODEL_VOCABULARY / WORD_COUNT)
#define END_ONE_OF   128U

static uint64_t mix(uint64_t value)
{
    value ^= value >> 30;
    value *= PRIME1;
    value ^= value >> 27;
    value *= PRIME2;
    return value ^ (value >> 31);
}

enum bt_status model_init(const struct model_options *options,
                          struct eng_model *model_p)
{
    const uint64_t slice = (uint64_t)options->head_size * options->dtype_bytes;
    const uint32_t groups =
        options->group_count == 0 ? 1 : options->group_count;
    uint64_t key = mix(options->seed + GOLDEN);

    if (options->layers == 0 || options->kv_heads == 0 || slice == 0 ||
        slice % 8 != 0 || slice > SLICE_MAX || groups > MODEL_GROUPS_MAX ||
        options->layers % groups != 0) {
        return BT_ERR_RANGE;
    }
    for (const char *at = options->name; *at != '\0'; at++) {
        key = mix(key ^ (unsigned char)*at);
    }
    *model_p = (struct eng_model){
        .key = key,
        .layers = options->layers,
        .kinds = options->is_latent ? 1 : 2,
        .heads = options->is_latent ? 1 : options->kv_heads,
        .slice_bytes = (uint32_t)slice,
        .is_latent = options->is_latent,
        .group_count = groups,
    };
    memcpy(model_p->windows, options->windows,
           options->group_count * sizeof(*model_p->windows));
    return BT_OK;
}

size_t model_token_count(struct bt_str text)
{
    return text.len / MODEL_TOKEN_TEXT + (text.len % MODEL_TOKEN_TEXT != 0);
}

void model_tokenize(struct bt_str text, uint32_t *ids)
{
    const size_t count = model_token_count(text);

    for (size_t i = 0; i < count; i++) {
        const size_t at = i * MODEL_TOKEN_TEXT;
        const size_t left = text.len - at;
        const size_t size = left < MODEL_TOKEN_TEXT ? left : MODEL_TOKEN_TEXT;
        uint32_t id = 0;

        for (size_t j = 0; j < size; j++) {
            id |= (uint32_t)(unsigned char)text.ptr[at + j] << (8 * j);
        }
        ids[i] = id;
    }
}

void model_detokenize(uint32_t id, struct bt_buf *out)
{
    for (; id != 0; id >>= 8) {
        bt_buf_append_char(out, (char)(id & 0xff));
    }
}

void model_chat_message(struct bt_buf *out, struct bt_str role,
                        struct bt_str content)
{
    bt_buf_append(out, BT_STR("<|"));
    bt_buf_append(out, role);
    bt_buf_append(out, BT_STR("|>\n"));
    bt_buf_append(out, content);
    bt_buf_append_char(out, '\n');
}

void model_chat_end(struct bt_buf *out)
{
    bt_buf_append(out, BT_STR("<|assistant|>\n"));
}

uint64_t model_roll(uint64_t history, uint32_t token)
{
    return mix(history * PRIME3 + token + 1);
}

uint32_t model_place(const struct eng_model *model, uint32_t layer,
                     uint32_t kind, uint32_t head)
{
    return (layer * model->kinds + kind) * model->heads + head;
}

static uint64_t slice_key(const struct eng_model *model, uint64_t history,
                          uint64_t position, uint32_t place)
{
    return mix(model->key ^ (history + position * PRIME3)) +
           (place + 1) * PRIME2;
}

/* Number i of the slice with that key. */
static uint64_t slice_word(uint64_t key, uint32_t i)
{
    uint64_t word = key + i * GOLDEN;

    word ^= word >> 32;
    word *= PRIME1;
    return word ^ (word >> 29);
}

static uint64_t digest_begin(uint64_t position, uint32_t place)
{
    return position * PRIME1 + (place + 1) * GOLDEN;
}

static uint64_t digest_word(uint64_t digest, uint64_t word)
{
    digest = (digest ^ word) * PRIME3;
    return digest ^ (digest >> 32);
}

void model_slice_write(const struct eng_model *model, uint64_t history,
                       uint64_t position, uint32_t place, void *dst)
{
    const uint64_t key = slice_key(model, history, position, place);
    const uint32_t words = model->slice_bytes / 8;
    char *const bytes = dst;

    for (uint32_t i = 0; i < words; i++) {
        const uint64_t word = slice_word(key, i);

        memcpy(bytes + (size_t)i * 8, &word, 8);
    }
}

uint64_t model_slice_digest(const struct eng_model *model, uint64_t position,
                            uint32_t place, const void *src)
{
    const uint32_t words = model->slice_bytes / 8;
    const char *const bytes = src;
    uint64_t digest = digest_begin(position, place);

    for (uint32_t i = 0; i < words; i++) {
        uint64_t word;

        memcpy(&word, bytes + (size_t)i * 8, 8);
        digest = digest_word(digest, word);
    }
    return mix(digest);
}

static uint64_t place_digest(const struct eng_model *model, uint64_t history,
                             uint64_t position, uint32_t place)
{
    const uint64_t key = slice_key(model, history, position, place);
    const uint32_t words = model->slice_bytes / 8;
    uint64_t digest = digest_begin(position, place);

    for (uint32_t i = 0; i < words; i++) {
        digest = digest_word(digest, slice_word(key, i));
    }
    return mix(digest);
}

uint64_t model_token_digest(const struct eng_model *model, uint32_t group,
                            uint64_t history, uint64_t position)
{
    const uint32_t per_layer = model->kinds * model->heads;
    uint64_t sum = 0;

    for (uint32_t layer = group; layer < model->layers;
         layer += model->group_count) {
        for (uint32_t i = 0; i < per_layer; i++) {
            sum +=
                place_digest(model, history, position, layer * per_layer + i);
        }
    }
    return sum;
}

uint64_t model_first_seen(const struct eng_model *model, uint32_t group,
                          uint64_t length)
{
    const uint64_t window = model->windows[group];

    return window != 0 && length > window ? length - window : 0;
}

struct model_word model_next(uint64_t digest, uint64_t length, uint32_t choice)
{
    const uint64_t number =
        mix(digest ^ mix(length * GOLDEN + (uint64_t)choice * PRIME2));

    return (struct model_word){
        .id = (uint32_t)(number % MODEL_VOCABULARY),
        .is_end = (number >> 40) % END_ONE_OF == 0,
    };
}

struct bt_str model_word_text(uint32_t id, bool is_first,
                              char text[MODEL_WORD_MAX])
{
    const char *word = WORDS[id % WORD_COUNT];
    const uint32_t suffix = id / WORD_COUNT % SUFFIX_COUNT;
    size_t length = 0;

    if (!is_first) {
        text[length++] = ' ';
    }
    while (*word != '\0') {
        text[length++] = *word++;
    }
    if (suffix >= SUFFIX_COUNT - 2) {
        text[length++] = suffix == SUFFIX_COUNT - 1 ? '.' : ',';
    }
    return bt_str_span(text, length);
}

/* A context as an engine would see it, without its bytes. */
struct sight {
    const struct eng_model *model;
    uint64_t history, length, digest;
    uint64_t *ring; /* histories of at least what the largest window sees */
    uint64_t mask;  /* of a position: its place in the ring */
};

static bool sight_open(struct sight *sight, const struct eng_model *model)
{
    uint64_t size = 1;

    for (uint32_t i = 0; i < model->group_count; i++) {
        while (size < model->windows[i]) {
            size *= 2;
        }
    }
    *sight = (struct sight){.model = model, .mask = size - 1};
    sight->ring = calloc(size, sizeof(*sight->ring));
    return sight->ring != NULL;
}

static void sight_add(struct sight *sight, uint32_t token)
{
    const struct eng_model *const model = sight->model;
    const uint64_t at = sight->length++;

    sight->history = model_roll(sight->history, token);
    for (uint32_t i = 0; i < model->group_count; i++) {
        const uint64_t window = model->windows[i];

        sight->digest += model_token_digest(model, i, sight->history, at);
        if (window != 0 && at >= window) {
            sight->digest -= model_token_digest(
                model, i, sight->ring[(at - window) & sight->mask],
                at - window);
        }
    }
    sight->ring[at & sight->mask] = sight->history;
}

enum bt_status model_answer(const struct eng_model *model,
                            const struct model_ask *ask, struct bt_buf *text,
                            struct model_result *result_p)
{
    struct model_result result = {0, false};
    struct sight sight;

    if (!sight_open(&sight, model)) {
        return BT_ERR_NOMEM;
    }
    for (size_t i = 0; i < ask->prompt_tokens; i++) {
        sight_add(&sight, ask->prompt[i]);
    }
    while (result.tokens < ask->max_tokens && !result.is_stop) {
        const struct model_word word =
            model_next(sight.digest, sight.length, ask->choice);
        char bytes[MODEL_WORD_MAX];

        if (word.is_end && !ask->ignore_eos &&
            result.tokens >= ask->min_tokens) {
            result.is_stop = true;
        } else {
            bt_buf_append(text,
                          model_word_text(word.id, result.tokens == 0, bytes));
            sight_add(&sight, word.id);
        }
        result.tokens++;
    }
    free(sight.ring);
    if (text->failed) {
        return BT_ERR_NOMEM;
    }
    *result_p = result;
    return BT_OK;
}
