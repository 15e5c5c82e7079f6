/*
 * A request to a completion endpoint, read from its JSON text. jansson stays
 * inside request.c; what comes out is plain.
 */
#ifndef AGENT_ENGINE_SERVE_ENG_REQUEST_H
#define AGENT_ENGINE_SERVE_ENG_REQUEST_H

#include "agent/engine/run/sched.h"
#include "common/base/base.h"
#include "common/base/str.h"

#define REQUEST_PROMPTS_MAX 256
#define REQUEST_CHOICES_MAX 128 /* n */
#define REQUEST_STOPS_MAX   16
#define REQUEST_STOP_MAX    256 /* bytes of one stop string */

enum request_kind {
    REQUEST_COMPLETION,
    REQUEST_CHAT,
    REQUEST_TOKENIZE,
    REQUEST_DETOKENIZE,
};

struct request_prompt {
    uint32_t *tokens; /* heap; NULL once a sequence has taken them */
    size_t count;
};

/* What the request says about a handoff. */
struct request_handoff {
    enum seq_handoff kind;
    bool is_stock; /* another connector's shape: nothing is moved */
    baton_id id;
    uint64_t owner_boot;
    struct bt_str params; /* SEQ_TAKES: as received, inside the body */
};

struct eng_request {
    enum request_kind kind;
    struct request_prompt *prompts;
    size_t prompt_count;
    uint32_t n;
    bool has_max_tokens;
    uint64_t max_tokens, min_tokens;
    bool ignore_eos;
    bool is_stream, has_usage;
    char *stops[REQUEST_STOPS_MAX];
    size_t stop_count;
    struct request_handoff handoff;
};

/* A refusal, in the words and the shape of the OpenAI API. */
struct request_error {
    unsigned code;
    const char *type;
    char text[256];
};

/*
 * Reads the body; the request's spans point into it. False: error_p is set,
 * and nothing is left to free. `model` is the name that is served.
 */
bool request_read(enum request_kind kind, struct bt_str body, const char *model,
                  struct eng_request *request_p, struct request_error *error_p);
void request_fini(struct eng_request *request);

#endif
