/*
 * Asks the model for the text that belongs to an item's prompt.
 */
#include "bench/load/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX (256 * BT_MIB)

enum bt_status check_init(struct load_check *check,
                          const struct check_options *options,
                          const struct workload_plan *plan)
{
    memset(check, 0, sizeof(*check));
    check->options = *options;
    check->plan = *plan;
    return model_init(&options->model, &check->model);
}

void check_fini(struct load_check *check)
{
    for (size_t i = 0; i < check->count; i++) {
        free(check->texts[i].text);
    }
    free(check->texts);
    memset(check, 0, sizeof(*check));
}

/* The text that the engine makes its tokens of. */
static void write_context(const struct load_check *check,
                          const struct workload_item *item, struct bt_buf *out)
{
    struct bt_buf prompt = {0};

    if (!check->options.is_chat) {
        workload_prompt(&check->plan, item, out);
        return;
    }
    workload_prompt(&check->plan, item, &prompt);
    model_chat_message(out, BT_STR("user"), bt_buf_str(&prompt));
    model_chat_end(out);
    out->failed = out->failed || prompt.failed;
    bt_buf_fini(&prompt);
}

static enum bt_status ask_model(const struct load_check *check,
                                const struct workload_item *item,
                                struct bt_str context, struct bt_buf *text,
                                size_t *tokens_p)
{
    struct model_ask ask = {
        .prompt_tokens = model_token_count(context),
        .max_tokens = item->output_tokens,
        .ignore_eos = check->options.ignore_eos,
    };
    struct model_result result = {0};
    uint32_t *ids = calloc(ask.prompt_tokens + 1, sizeof(*ids));
    enum bt_status status;

    if (ids == NULL) {
        return BT_ERR_NOMEM;
    }
    model_tokenize(context, ids);
    ask.prompt = ids;
    status = model_answer(&check->model, &ask, text, &result);
    free(ids);
    if (status == BT_OK) {
        *tokens_p = result.tokens;
    }
    return status;
}

/* The known text of an item, appended to `text`. */
static enum bt_status compute(const struct load_check *check,
                              const struct workload_item *item,
                              struct bt_buf *text, size_t *tokens_p)
{
    struct bt_buf context = {0};
    enum bt_status status = BT_ERR_NOMEM;

    write_context(check, item, &context);
    if (!context.failed) {
        status = ask_model(check, item, bt_buf_str(&context), text, tokens_p);
    }
    bt_buf_fini(&context);
    return status;
}

enum bt_status check_add(struct load_check *check,
                         const struct workload_item *item)
{
    struct bt_buf text = {0};
    size_t tokens = 0;
    struct check_text *texts;
    enum bt_status status;

    if (check->bytes > TEXTS_MAX) {
        return BT_OK;
    }
    status = compute(check, item, &text, &tokens);
    if (status != BT_OK) {
        bt_buf_fini(&text);
        return status;
    }
    texts = reallocarray(check->texts, check->count + 1, sizeof(*texts));
    if (texts == NULL) {
        bt_buf_fini(&text);
        return BT_ERR_NOMEM;
    }
    check->texts = texts;
    texts[check->count] = (struct check_text){
        .text = bt_str_dup(bt_buf_str(&text)),
        .len = text.len,
        .tokens = tokens,
    };
    bt_buf_fini(&text);
    if (texts[check->count].text == NULL) {
        return BT_ERR_NOMEM;
    }
    check->bytes += texts[check->count].len;
    check->count++;
    return BT_OK;
}

static size_t common_length(struct bt_str a, struct bt_str b)
{
    const size_t len = a.len < b.len ? a.len : b.len;

    for (size_t i = 0; i < len; i++) {
        if (a.ptr[i] != b.ptr[i]) {
            return i;
        }
    }
    return len;
}

static enum bt_status compare(struct load_answer *answer, uint64_t index,
                              struct bt_str known, size_t tokens)
{
    const struct bt_str text = bt_buf_str(&answer->text);

    if (!bt_str_eq(text, known)) {
        (void)snprintf(answer->why, sizeof(answer->why),
                       "request %llu: text differs from byte %zu on "
                       "(%zu bytes, %zu known)",
                       (unsigned long long)index, common_length(text, known),
                       text.len, known.len);
        return BT_ERR_PROTOCOL;
    }
    if (answer->usage.is_known && answer->usage.completion_tokens != tokens) {
        (void)snprintf(answer->why, sizeof(answer->why),
                       "request %llu: usage tells %llu tokens, %zu known",
                       (unsigned long long)index,
                       (unsigned long long)answer->usage.completion_tokens,
                       tokens);
        return BT_ERR_PROTOCOL;
    }
    return BT_OK;
}

enum bt_status check_answer(const struct load_check *check,
                            const struct workload_item *item,
                            struct load_answer *answer)
{
    struct bt_buf text = {0};
    size_t tokens = 0;
    enum bt_status status;

    if (item->index < check->count) {
        const struct check_text *known = &check->texts[item->index];
        return compare(answer, item->index,
                       bt_str_span(known->text, known->len), known->tokens);
    }
    status = compute(check, item, &text, &tokens);
    if (status == BT_OK) {
        status = compare(answer, item->index, bt_buf_str(&text), tokens);
    }
    bt_buf_fini(&text);
    return status;
}
