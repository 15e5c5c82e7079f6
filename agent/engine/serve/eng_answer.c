/*
 * The texts of answers; see answer.h.
 */
#include "agent/engine/serve/eng_answer.h"

#include "common/json/json_write.h"

#include <inttypes.h>
#include <string.h>

#define FINGERPRINT "baton-engine-1"

static void append(struct bt_buf *out, const char *text)
{
    bt_buf_append(out, bt_str_of(text));
}

static void append_or_null(struct bt_buf *out, const char *text)
{
    if (text == NULL) {
        append(out, "null");
    } else {
        bt_buf_append_json(out, bt_str_of(text));
    }
}

void answer_error(struct bt_buf *out, unsigned code, const char *type,
                  const char *text)
{
    append(out, "{\"error\":{\"message\":");
    append_or_null(out, text);
    append(out, ",\"type\":");
    append_or_null(out, type);
    bt_buf_printf(out, ",\"param\":null,\"code\":%u}}", code);
}

static void append_head(struct bt_buf *out, const struct eng_answer *answer,
                        const char *object)
{
    append(out, "{\"id\":");
    append_or_null(out, answer->id);
    bt_buf_printf(out, ",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":",
                  object, answer->created);
    append_or_null(out, answer->model);
    append(out, ",\"choices\":[");
}

static void append_usage(struct bt_buf *out,
                         const struct eng_answer_usage *usage)
{
    bt_buf_printf(out,
                  "\"usage\":{\"prompt_tokens\":%" PRIu64
                  ",\"total_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                  ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64
                  "},\"completion_tokens_details\":null}",
                  usage->prompt_tokens,
                  usage->prompt_tokens + usage->completion_tokens,
                  usage->completion_tokens, usage->cached_tokens);
}

static void append_finish(struct bt_buf *out,
                          const struct answer_choice *choice)
{
    append(out, ",\"logprobs\":null,\"finish_reason\":");
    append_or_null(out, choice->finish);
    append(out, ",\"stop_reason\":");
    append_or_null(out, choice->stop_reason);
}

void answer_begin(struct bt_buf *out, const struct eng_answer *answer)
{
    append_head(out, answer,
                answer->is_chat ? "chat.completion" : "text_completion");
}

void answer_choice(struct bt_buf *out, const struct eng_answer *answer,
                   const struct answer_choice *choice)
{
    bt_buf_printf(out, "%s{\"index\":%" PRIu32, choice->index == 0 ? "" : ",",
                  choice->index);
    if (answer->is_chat) {
        append(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
        bt_buf_append_json(out, choice->text);
        append(out, ",\"refusal\":null,\"annotations\":null,\"audio\":null,"
                    "\"function_call\":null,\"reasoning\":null}");
        append_finish(out, choice);
        append(out, ",\"token_ids\":null}");
        return;
    }
    append(out, ",\"text\":");
    bt_buf_append_json(out, choice->text);
    append_finish(out, choice);
    append(out, ",\"token_ids\":null,\"prompt_logprobs\":null,"
                "\"prompt_token_ids\":null}");
}

void answer_end(struct bt_buf *out, const struct eng_answer *answer,
                const struct eng_answer_usage *usage, struct bt_str params)
{
    append(out, "],\"service_tier\":null,\"system_fingerprint\":\"" FINGERPRINT
                "\",");
    append_usage(out, usage);
    if (answer->is_chat) {
        append(out, ",\"prompt_logprobs\":null,\"prompt_token_ids\":null,"
                    "\"prompt_text\":null");
    }
    append(out, ",\"kv_transfer_params\":");
    bt_buf_append(out, params.len == 0 ? BT_STR("null") : params);
    append(out, ",\"ec_transfer_params\":null,\"metrics\":null}");
}

static void begin_event(struct bt_buf *out, const struct eng_answer *answer)
{
    append(out, "data: ");
    append_head(out, answer,
                answer->is_chat ? "chat.completion.chunk" : "text_completion");
}

void answer_role_event(struct bt_buf *out, const struct eng_answer *answer,
                       uint32_t index)
{
    begin_event(out, answer);
    bt_buf_printf(out,
                  "{\"index\":%" PRIu32
                  ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                  "\"logprobs\":null,\"finish_reason\":null}],"
                  "\"prompt_token_ids\":null}\n\n",
                  index);
}

void answer_event(struct bt_buf *out, const struct eng_answer *answer,
                  const struct answer_choice *choice)
{
    begin_event(out, answer);
    bt_buf_printf(out, "{\"index\":%" PRIu32 ",%s", choice->index,
                  answer->is_chat ? "\"delta\":{\"content\":" : "\"text\":");
    bt_buf_append_json(out, choice->text);
    if (answer->is_chat) {
        bt_buf_append_char(out, '}');
    }
    append_finish(out, choice);
    append(out, ",\"token_ids\":null}]}\n\n");
}

void answer_usage_event(struct bt_buf *out, const struct eng_answer *answer,
                        const struct eng_answer_usage *usage)
{
    begin_event(out, answer);
    append(out, "],");
    append_usage(out, usage);
    append(out, ",\"system_fingerprint\":\"" FINGERPRINT "\"}\n\n");
}

void answer_error_event(struct bt_buf *out, unsigned code, const char *type,
                        const char *text)
{
    append(out, "data: ");
    answer_error(out, code, type, text);
    append(out, "\n\n");
}

void answer_done_event(struct bt_buf *out)
{
    append(out, "data: [DONE]\n\n");
}
