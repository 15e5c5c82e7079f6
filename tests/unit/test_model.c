/*
 * The model's pure functions.
 */
#include "agent/engine/kv/model.h"
#include "tests/support/harness.h"

#include <string.h>

static struct eng_model small_model(uint64_t seed)
{
    const struct model_options options = {
        .name = "m",
        .seed = seed,
        .layers = 2,
        .kv_heads = 2,
        .head_size = 8,
        .dtype_bytes = 2,
    };
    struct eng_model model;

    ck_assert_int_eq(model_init(&options, &model), BT_OK);
    return model;
}

static struct bt_str answer(const struct eng_model *model,
                            const uint32_t *prompt, size_t count,
                            struct bt_buf *text)
{
    const struct model_ask ask = {
        .prompt = prompt,
        .prompt_tokens = count,
        .max_tokens = 12,
        .ignore_eos = true,
    };
    struct model_result result;

    bt_buf_clear(text);
    ck_assert_int_eq(model_answer(model, &ask, text, &result), BT_OK);
    ck_assert_uint_eq(result.tokens, 12);
    return bt_buf_str(text);
}

START_TEST(refuses_a_slice_that_is_no_multiple_of_eight_bytes)
{
    struct model_options options = {.name = "m",
                                    .layers = 1,
                                    .kv_heads = 1,
                                    .head_size = 6,
                                    .dtype_bytes = 2};
    struct eng_model model;

    ck_assert_int_eq(model_init(&options, &model), BT_ERR_RANGE);
    options.head_size = 8;
    ck_assert_int_eq(model_init(&options, &model), BT_OK);
    options.layers = 0;
    ck_assert_int_eq(model_init(&options, &model), BT_ERR_RANGE);
}
END_TEST

START_TEST(makes_a_token_of_every_four_bytes_and_of_the_rest)
{
    uint32_t ids[3];
    struct bt_buf text = {0};

    ck_assert_uint_eq(model_token_count(BT_STR("")), 0);
    ck_assert_uint_eq(model_token_count(BT_STR("abcd")), 1);
    ck_assert_uint_eq(model_token_count(BT_STR("abcdefghi")), 3);
    model_tokenize(BT_STR("abcdefghi"), ids);
    for (size_t i = 0; i < 3; i++) {
        model_detokenize(ids[i], &text);
    }
    ck_assert(bt_str_eq(bt_buf_str(&text), BT_STR("abcdefghi")));
    bt_buf_fini(&text);
}
END_TEST

START_TEST(digests_what_it_writes_as_told_without_memory)
{
    const struct eng_model model = small_model(1);
    const uint64_t history = model_roll(model_roll(0, 5), 6);
    char slice[16];
    uint64_t sum = 0;

    for (uint32_t place = 0; place < 8; place++) {
        model_slice_write(&model, history, 1, place, slice);
        sum += model_slice_digest(&model, 1, place, slice);
    }
    ck_assert_uint_eq(sum, model_token_digest(&model, 0, history, 1));
}
END_TEST

START_TEST(notices_every_flipped_bit_of_a_slice)
{
    const struct eng_model model = small_model(1);
    char slice[16];
    uint64_t right;

    model_slice_write(&model, 77, 3, 2, slice);
    right = model_slice_digest(&model, 3, 2, slice);
    for (size_t bit = 0; bit < sizeof(slice) * 8; bit++) {
        const char mask = (char)(1 << (bit % 8));

        slice[bit / 8] = (char)(slice[bit / 8] ^ mask);
        ck_assert_uint_ne(model_slice_digest(&model, 3, 2, slice), right);
        slice[bit / 8] = (char)(slice[bit / 8] ^ mask);
    }
    ck_assert_uint_eq(model_slice_digest(&model, 3, 2, slice), right);
}
END_TEST

START_TEST(notices_a_slice_at_another_position_or_place)
{
    const struct eng_model model = small_model(1);
    char slice[16];

    model_slice_write(&model, 77, 3, 2, slice);
    ck_assert_uint_ne(model_slice_digest(&model, 3, 2, slice),
                      model_slice_digest(&model, 4, 2, slice));
    ck_assert_uint_ne(model_slice_digest(&model, 3, 2, slice),
                      model_slice_digest(&model, 3, 1, slice));
}
END_TEST

START_TEST(answers_the_same_to_the_same_prompt_only)
{
    const struct eng_model model = small_model(1);
    const struct eng_model other = small_model(2);
    const uint32_t prompt[] = {1, 2, 3};
    const uint32_t swapped[] = {2, 1, 3};
    struct bt_buf first = {0};
    struct bt_buf second = {0};

    (void)answer(&model, prompt, 3, &first);
    ck_assert(
        bt_str_eq(bt_buf_str(&first), answer(&model, prompt, 3, &second)));
    ck_assert(
        !bt_str_eq(bt_buf_str(&first), answer(&model, swapped, 3, &second)));
    ck_assert(
        !bt_str_eq(bt_buf_str(&first), answer(&model, prompt, 2, &second)));
    ck_assert(
        !bt_str_eq(bt_buf_str(&first), answer(&other, prompt, 3, &second)));
    bt_buf_fini(&first);
    bt_buf_fini(&second);
}
END_TEST

/* Two groups of two layers: what each of them has sums up to the whole. */
START_TEST(each_group_has_its_own_layers)
{
    struct model_options options = {.name = "m",
                                    .seed = 1,
                                    .layers = 4,
                                    .kv_heads = 2,
                                    .head_size = 8,
                                    .dtype_bytes = 2};
    struct eng_model one, two;

    ck_assert_int_eq(model_init(&options, &one), BT_OK);
    options.group_count = 2;
    options.windows[1] = 5;
    ck_assert_int_eq(model_init(&options, &two), BT_OK);
    ck_assert_uint_eq(model_token_digest(&two, 0, 77, 3) +
                          model_token_digest(&two, 1, 77, 3),
                      model_token_digest(&one, 0, 77, 3));
    ck_assert_uint_eq(model_first_seen(&two, 0, 100), 0);
    ck_assert_uint_eq(model_first_seen(&two, 1, 5), 0);
    ck_assert_uint_eq(model_first_seen(&two, 1, 6), 1);
    options.group_count = 3;
    ck_assert_int_eq(model_init(&options, &two), BT_ERR_RANGE);
    options.group_count = MODEL_GROUPS_MAX + 1;
    ck_assert_int_eq(model_init(&options, &two), BT_ERR_RANGE);
}
END_TEST

/* The definition, token by token, against the answer's running sum. */
START_TEST(words_depend_on_what_each_window_sees)
{
    const uint32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const struct model_options options = {.name = "m",
                                          .layers = 4,
                                          .kv_heads = 1,
                                          .head_size = 8,
                                          .dtype_bytes = 2,
                                          .group_count = 2,
                                          .windows = {0, 3}};
    struct eng_model model;
    uint64_t histories[BT_ARRAY_LEN(prompt)];
    uint64_t history = 0;
    struct bt_buf text = {0};

    ck_assert_int_eq(model_init(&options, &model), BT_OK);
    for (size_t i = 0; i < BT_ARRAY_LEN(prompt); i++) {
        histories[i] = history = model_roll(history, prompt[i]);
    }
    for (size_t length = 1; length <= BT_ARRAY_LEN(prompt); length++) {
        const struct model_ask ask = {.prompt = prompt,
                                      .prompt_tokens = length,
                                      .max_tokens = 1,
                                      .ignore_eos = true};
        struct model_result result;
        char bytes[MODEL_WORD_MAX];
        uint64_t digest = 0;

        for (size_t at = 0; at < length; at++) {
            digest += model_token_digest(&model, 0, histories[at], at);
            if (at + 3 >= length) {
                digest += model_token_digest(&model, 1, histories[at], at);
            }
        }
        bt_buf_clear(&text);
        ck_assert_int_eq(model_answer(&model, &ask, &text, &result), BT_OK);
        ck_assert(bt_str_eq(
            bt_buf_str(&text),
            model_word_text(model_next(digest, length, 0).id, true, bytes)));
    }
    bt_buf_fini(&text);
}
END_TEST

START_TEST(ends_by_itself_but_not_before_min_tokens)
{
    const struct eng_model model = small_model(1);
    const uint32_t prompt[] = {9};
    struct model_ask ask = {
        .prompt = prompt, .prompt_tokens = 1, .max_tokens = 5000};
    struct model_result result;
    struct bt_buf text = {0};
    size_t first;

    ck_assert_int_eq(model_answer(&model, &ask, &text, &result), BT_OK);
    ck_assert(result.is_stop);
    first = result.tokens;
    ask.min_tokens = first;
    ck_assert_int_eq(model_answer(&model, &ask, &text, &result), BT_OK);
    ck_assert_uint_gt(result.tokens, first);
    bt_buf_fini(&text);
}
END_TEST

START_TEST(every_word_fits_its_buffer_and_is_plain_text)
{
    char bytes[MODEL_WORD_MAX];

    for (uint32_t id = 0; id < MODEL_VOCABULARY; id++) {
        const struct bt_str word = model_word_text(id, false, bytes);

        ck_assert_uint_lt(word.len, MODEL_WORD_MAX);
        ck_assert_int_eq(word.ptr[0], ' ');
        ck_assert_uint_eq(word.len, 1 + model_word_text(id, true, bytes).len);
    }
}
END_TEST

START_TEST(renders_a_chat_by_its_template)
{
    struct bt_buf text = {0};

    model_chat_message(&text, BT_STR("user"), BT_STR("hi"));
    model_chat_end(&text);
    ck_assert(
        bt_str_eq(bt_buf_str(&text), BT_STR("<|user|>\nhi\n<|assistant|>\n")));
    bt_buf_fini(&text);
}
END_TEST

HARNESS_MAIN("model", refuses_a_slice_that_is_no_multiple_of_eight_bytes,
             makes_a_token_of_every_four_bytes_and_of_the_rest,
             digests_what_it_writes_as_told_without_memory,
             notices_every_flipped_bit_of_a_slice,
             notices_a_slice_at_another_position_or_place,
             answers_the_same_to_the_same_prompt_only,
             each_group_has_its_own_layers,
             words_depend_on_what_each_window_sees,
             ends_by_itself_but_not_before_min_tokens,
             every_word_fits_its_buffer_and_is_plain_text,
             renders_a_chat_by_its_template)
