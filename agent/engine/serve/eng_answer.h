/*
 * The texts of answers, as vLLM's OpenAI server writes them. Pure: each
 * function appends to a buffer.
 */
#ifndef AGENT_ENGINE_SERVE_ENG_ANSWER_H
#define AGENT_ENGINE_SERVE_ENG_ANSWER_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/str.h"

/* What all parts of one answer share. */
struct eng_answer {
    bool is_chat;
    const char *id;
    const char *model;
    uint64_t created; /* seconds since 1970 */
};

struct answer_choice {
    uint32_t index;
    struct bt_str text;
    const char *finish;      /* NULL: it goes on */
    const char *stop_reason; /* the stop string that was met, or NULL */
};

struct eng_answer_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
};

void answer_error(struct bt_buf *out, unsigned code, const char *type,
                  const char *text);

/* A whole answer: begin, each choice in order, end. */
void answer_begin(struct bt_buf *out, const struct eng_answer *answer);
void answer_choice(struct bt_buf *out, const struct eng_answer *answer,
                   const struct answer_choice *choice);
/* params: kv_transfer_params as JSON text; empty: null. */
void answer_end(struct bt_buf *out, const struct eng_answer *answer,
                const struct eng_answer_usage *usage, struct bt_str params);

/* Events of a stream, each with its "data: " and empty line. */
void answer_role_event(struct bt_buf *out, const struct eng_answer *answer,
                       uint32_t index);
void answer_event(struct bt_buf *out, const struct eng_answer *answer,
                  const struct answer_choice *choice);
void answer_usage_event(struct bt_buf *out, const struct eng_answer *answer,
                        const struct eng_answer_usage *usage);
void answer_error_event(struct bt_buf *out, unsigned code, const char *type,
                        const char *text);
void answer_done_event(struct bt_buf *out);

#endif
