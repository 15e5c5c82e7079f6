/*
 * Reading requests; see request.h. Members that change nothing here
 * (temperature, seed, tools and the like) are accepted and ignored; those that
 * ask for something that is not done are refused.
 */
#include "agent/engine/serve/eng_request.h"

#include "common/json/json.h"

#include <jansson.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_COUNT_MAX ((uint64_t)1 << 40)

struct eng_reader {
    const json_t *root;
    struct bt_str body;
    struct eng_request *request;
    struct request_error *error;
};

static bool BT_PRINTF(2, 3)
    refuse(struct eng_reader *reader, const char *format, ...)
{
    va_list args;

    reader->error->code = 400;
    reader->error->type = "BadRequestError";
    va_start(args, format);
    (void)vsnprintf(reader->error->text, sizeof(reader->error->text), format,
                    args);
    va_end(args);
    return false;
}

static bool no_memory(struct eng_reader *reader)
{
    reader->error->code = 503;
    reader->error->type = "ServiceUnavailableError";
    (void)snprintf(reader->error->text, sizeof(reader->error->text),
                   "out of memory");
    return false;
}

/* The member, or NULL when it is absent or null. */
static const json_t *member(const struct eng_reader *reader, const char *name)
{
    const json_t *const value = json_object_get(reader->root, name);

    return json_is_null(value) ? NULL : value;
}

static bool read_bool(struct eng_reader *reader, const char *name,
                      bool *value_p)
{
    const json_t *const value = member(reader, name);

    if (value == NULL) {
        return true;
    }
    if (!json_is_boolean(value)) {
        return refuse(reader, "%s must be true or false", name);
    }
    *value_p = json_is_true(value);
    return true;
}

static bool read_number(struct eng_reader *reader, const char *name,
                        uint64_t least, uint64_t *value_p)
{
    const json_t *const value = member(reader, name);

    if (value == NULL) {
        return true;
    }
    if (!json_is_integer(value)) {
        return refuse(reader, "%s must be an integer", name);
    }
    if (json_integer_value(value) < (json_int_t)least ||
        (uint64_t)json_integer_value(value) > TOKEN_COUNT_MAX) {
        return refuse(reader, "%s must be at least %" PRIu64 ", got %lld.",
                      name, least, (long long)json_integer_value(value));
    }
    *value_p = (uint64_t)json_integer_value(value);
    return true;
}

/* --- prompts --- */

static bool add_prompt(struct eng_reader *reader, uint32_t *tokens,
                       size_t count)
{
    struct eng_request *const request = reader->request;

    if (count == 0) {
        free(tokens);
        return refuse(reader, "the prompt is empty");
    }
    request->prompts[request->prompt_count++] =
        (struct request_prompt){tokens, count};
    return true;
}

static bool add_text(struct eng_reader *reader, struct bt_str text)
{
    const size_t count = model_token_count(text);
    uint32_t *const tokens = calloc(count + 1, sizeof(*tokens));

    if (tokens == NULL) {
        return no_memory(reader);
    }
    model_tokenize(text, tokens);
    return add_prompt(reader, tokens, count);
}

static bool add_ids(struct eng_reader *reader, const json_t *ids)
{
    const size_t count = json_array_size(ids);
    uint32_t *const tokens = calloc(count + 1, sizeof(*tokens));

    if (tokens == NULL) {
        return no_memory(reader);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *const id = json_array_get(ids, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > UINT32_MAX) {
            free(tokens);
            return refuse(reader, "a token id must be an integer from 0 to "
                                  "4294967295");
        }
        tokens[i] = (uint32_t)json_integer_value(id);
    }
    return add_prompt(reader, tokens, count);
}

static bool add_any(struct eng_reader *reader, const json_t *prompt)
{
    if (json_is_string(prompt)) {
        return add_text(reader, bt_str_span(json_string_value(prompt),
                                            json_string_length(prompt)));
    }
    if (json_is_array(prompt)) {
        return add_ids(reader, prompt);
    }
    return refuse(reader, "prompt must be a string, a list of strings, a list "
                          "of token ids or a list of such lists");
}

static bool reserve_prompts(struct eng_reader *reader, size_t count)
{
    if (count > REQUEST_PROMPTS_MAX) {
        return refuse(reader, "at most %d prompts, got %zu.",
                      REQUEST_PROMPTS_MAX, count);
    }
    reader->request->prompts =
        calloc(count + 1, sizeof(*reader->request->prompts));
    return reader->request->prompts != NULL ? true : no_memory(reader);
}

static bool read_prompts(struct eng_reader *reader)
{
    const json_t *const prompt = member(reader, "prompt");
    const json_t *const first = json_array_get(prompt, 0);

    if (prompt == NULL) {
        return refuse(reader, "prompt is missing");
    }
    if (first == NULL || json_is_integer(first)) {
        return reserve_prompts(reader, 1) && add_any(reader, prompt);
    }
    if (!reserve_prompts(reader, json_array_size(prompt))) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        if (!add_any(reader, json_array_get(prompt, i))) {
            return false;
        }
    }
    return true;
}

/* --- chat --- */

static bool append_parts(struct eng_reader *reader, const json_t *parts,
                         struct bt_buf *text)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *const part = json_array_get(parts, i);
        const json_t *const piece = json_object_get(part, "text");

        if (!json_is_string(piece)) {
            return refuse(reader, "a content part must be a text part");
        }
        bt_buf_append(text, bt_str_span(json_string_value(piece),
                                        json_string_length(piece)));
    }
    return true;
}

static bool append_message(struct eng_reader *reader, const json_t *message,
                           struct bt_buf *prompt)
{
    const json_t *const role = json_object_get(message, "role");
    const json_t *const content = json_object_get(message, "content");
    struct bt_buf text = {0};
    bool is_fine = true;

    if (!json_is_string(role)) {
        return refuse(reader, "a message must be an object with a role");
    }
    if (json_is_string(content)) {
        bt_buf_append(&text, bt_str_span(json_string_value(content),
                                         json_string_length(content)));
    } else if (json_is_array(content)) {
        is_fine = append_parts(reader, content, &text);
    } else if (content != NULL && !json_is_null(content)) {
        is_fine = refuse(reader, "content must be a string or a list of parts");
    }
    model_chat_message(
        prompt, bt_str_span(json_string_value(role), json_string_length(role)),
        bt_buf_str(&text));
    prompt->failed = prompt->failed || text.failed;
    bt_buf_fini(&text);
    return is_fine;
}

static bool read_messages(struct eng_reader *reader)
{
    const json_t *const messages = member(reader, "messages");
    struct bt_buf prompt = {0};
    bool is_fine = true;

    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        return refuse(reader, "messages must be a list with a message");
    }
    for (size_t i = 0; i < json_array_size(messages) && is_fine; i++) {
        is_fine = append_message(reader, json_array_get(messages, i), &prompt);
    }
    if (is_fine) {
        model_chat_end(&prompt);
        is_fine = prompt.failed ? no_memory(reader)
                                : reserve_prompts(reader, 1) &&
                                      add_text(reader, bt_buf_str(&prompt));
    }
    bt_buf_fini(&prompt);
    return is_fine;
}

/* --- what is not done --- */

static bool check_undone(struct eng_reader *reader)
{
    static const char *const NAMES[] = {"echo", "use_beam_search", "logprobs"};
    static const char *const ANY[] = {"prompt_logprobs", "prompt_embeds",
                                      "suffix"};
    const json_t *const best_of = member(reader, "best_of");

    for (size_t i = 0; i < BT_ARRAY_LEN(NAMES); i++) {
        const json_t *const value = member(reader, NAMES[i]);

        if (value != NULL && !json_is_false(value)) {
            return refuse(reader, "%s is not supported by this model",
                          NAMES[i]);
        }
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(ANY); i++) {
        if (member(reader, ANY[i]) != NULL) {
            return refuse(reader, "%s is not supported by this model", ANY[i]);
        }
    }
    if (json_integer_value(best_of) > 1) {
        return refuse(reader, "best_of is not supported by this model");
    }
    return true;
}

/* --- limits, stops, streaming --- */

static bool read_limits(struct eng_reader *reader)
{
    struct eng_request *const request = reader->request;
    const bool is_chat = request->kind == REQUEST_CHAT;
    const bool has_new =
        is_chat && member(reader, "max_completion_tokens") != NULL;
    const char *const name = has_new ? "max_completion_tokens" : "max_tokens";

    request->has_max_tokens = member(reader, name) != NULL;
    request->max_tokens = 16;
    if (!read_number(reader, name, 1, &request->max_tokens) ||
        !read_number(reader, "min_tokens", 0, &request->min_tokens) ||
        !read_bool(reader, "ignore_eos", &request->ignore_eos)) {
        return false;
    }
    request->has_max_tokens = request->has_max_tokens || !is_chat;
    if (request->has_max_tokens && request->min_tokens > request->max_tokens) {
        return refuse(
            reader,
            "min_tokens must be less than or equal to max_tokens=%" PRIu64
            ", got %" PRIu64 ".",
            request->max_tokens, request->min_tokens);
    }
    return true;
}

static bool read_n(struct eng_reader *reader)
{
    const json_t *const temperature = member(reader, "temperature");
    uint64_t n = 1;

    if (!read_number(reader, "n", 1, &n)) {
        return false;
    }
    if (n > REQUEST_CHOICES_MAX) {
        return refuse(reader, "n must be at most %d, got %" PRIu64 ".",
                      REQUEST_CHOICES_MAX, n);
    }
    if (n > 1 && json_is_number(temperature) &&
        json_number_value(temperature) <= 0.0) {
        return refuse(
            reader, "n must be 1 when using greedy sampling, got %" PRIu64 ".",
            n);
    }
    reader->request->n = (uint32_t)n;
    return true;
}

static bool add_stop(struct eng_reader *reader, const json_t *stop)
{
    struct eng_request *const request = reader->request;
    const struct bt_str text =
        bt_str_span(json_string_value(stop), json_string_length(stop));

    if (!json_is_string(stop) || text.len == 0) {
        return refuse(reader, "stop must be a string that is not empty or a "
                              "list of such");
    }
    if (request->stop_count == REQUEST_STOPS_MAX ||
        text.len > REQUEST_STOP_MAX) {
        return refuse(reader, "at most %d stop strings of %d bytes",
                      REQUEST_STOPS_MAX, REQUEST_STOP_MAX);
    }
    if (memchr(text.ptr, '\0', text.len) != NULL) {
        return true; /* the model writes no such byte: it never stops there */
    }
    request->stops[request->stop_count] = bt_str_dup(text);
    if (request->stops[request->stop_count] == NULL) {
        return no_memory(reader);
    }
    request->stop_count++;
    return true;
}

static bool read_stops(struct eng_reader *reader)
{
    const json_t *const stop = member(reader, "stop");

    if (stop == NULL) {
        return true;
    }
    if (!json_is_array(stop)) {
        return add_stop(reader, stop);
    }
    for (size_t i = 0; i < json_array_size(stop); i++) {
        if (!add_stop(reader, json_array_get(stop, i))) {
            return false;
        }
    }
    return true;
}

static bool read_stream(struct eng_reader *reader)
{
    struct eng_request *const request = reader->request;
    const json_t *const options = member(reader, "stream_options");

    if (!read_bool(reader, "stream", &request->is_stream)) {
        return false;
    }
    if (options == NULL) {
        return true;
    }
    if (!json_is_object(options)) {
        return refuse(reader, "stream_options must be an object");
    }
    if (!request->is_stream) {
        return refuse(reader,
                      "Stream options can only be defined when `stream=True`.");
    }
    request->has_usage =
        json_is_true(json_object_get(options, "include_usage"));
    return true;
}

/* --- handoff --- */

static bool read_id(struct eng_reader *reader, const json_t *baton,
                    baton_id *id_p)
{
    const json_t *const handoff = json_object_get(baton, "handoff");

    if (!json_is_string(handoff) ||
        baton_id_parse(json_string_value(handoff), json_string_length(handoff),
                       id_p) != BATON_OK) {
        return refuse(reader, "kv_transfer_params.baton.handoff must be 32 "
                              "hex digits, the last 16 not all zero");
    }
    return true;
}

static bool read_gives(struct eng_reader *reader, const json_t *baton)
{
    struct request_handoff *const handoff = &reader->request->handoff;
    const json_t *const proxy = json_object_get(baton, "proxy");

    handoff->kind = SEQ_GIVES;
    handoff->is_stock = baton == NULL;
    if (baton == NULL) {
        return true;
    }
    if (proxy != NULL && !json_is_null(proxy) &&
        (!json_is_string(proxy) ||
         bt_str_hex_to_u64(bt_str_of(json_string_value(proxy)),
                           &handoff->owner_boot) != BT_OK)) {
        return refuse(reader, "kv_transfer_params.baton.proxy must be 1 to 16 "
                              "hex digits");
    }
    return read_id(reader, baton, &handoff->id);
}

static bool read_takes(struct eng_reader *reader, const json_t *baton)
{
    struct request_handoff *const handoff = &reader->request->handoff;
    const json_t *const tokens = json_object_get(baton, "tokens");
    struct bt_json_value params;

    handoff->kind = SEQ_TAKES;
    if (!json_is_integer(tokens) || json_integer_value(tokens) < 1) {
        return refuse(reader, "kv_transfer_params.baton.tokens must be a "
                              "positive integer");
    }
    if (!bt_json_find(reader->body, BT_STR("kv_transfer_params"), &params)) {
        return refuse(reader, "kv_transfer_params cannot be found");
    }
    handoff->params = params.text;
    return read_id(reader, baton, &handoff->id);
}

/* The shapes of other connectors: what a decode engine of theirs needs. */
static bool check_stock(struct eng_reader *reader, const json_t *params)
{
    const json_t *const ids = json_object_get(params, "remote_block_ids");
    const json_t *const host = json_object_get(params, "remote_host");
    const json_t *const port = json_object_get(params, "remote_port");
    const json_t *const boot = json_object_get(params, "remote_bootstrap_addr");

    reader->request->handoff.is_stock = true;
    reader->request->handoff.kind = SEQ_TAKES;
    if (json_is_string(boot)) {
        return json_object_get(params, "transfer_id") != NULL
                   ? true
                   : refuse(reader, "kv_transfer_params has no transfer_id");
    }
    if (!json_is_string(host) && !json_is_array(host)) {
        return refuse(reader, "kv_transfer_params.remote_host must be a "
                              "string or a list");
    }
    if (!json_is_integer(port) && !json_is_array(port)) {
        return refuse(reader, "kv_transfer_params.remote_port must be a "
                              "number or a list");
    }
    if (ids != NULL && !json_is_null(ids) && !json_is_array(ids)) {
        return refuse(reader, "kv_transfer_params.remote_block_ids must be a "
                              "list");
    }
    return true;
}

static bool read_handoff(struct eng_reader *reader)
{
    const json_t *const params = member(reader, "kv_transfer_params");
    const json_t *const baton = json_object_get(params, "baton");

    if (params == NULL) {
        return true;
    }
    if (!json_is_object(params)) {
        return refuse(reader, "kv_transfer_params must be an object");
    }
    if (baton != NULL && !json_is_object(baton)) {
        return refuse(reader, "kv_transfer_params.baton must be an object");
    }
    if (json_is_true(json_object_get(params, "do_remote_decode"))) {
        return read_gives(reader, baton);
    }
    if (!json_is_true(json_object_get(params, "do_remote_prefill")) &&
        json_object_get(params, "uuid") == NULL) {
        return true;
    }
    return baton != NULL ? read_takes(reader, baton)
                         : check_stock(reader, params);
}

/* --- the whole --- */

static bool check_model(struct eng_reader *reader, const char *model)
{
    const json_t *const name = member(reader, "model");

    if (name == NULL) {
        return true;
    }
    if (!json_is_string(name)) {
        return refuse(reader, "model must be a string");
    }
    if (strcmp(json_string_value(name), model) != 0) {
        (void)refuse(reader, "The model `%.100s` does not exist.",
                     json_string_value(name));
        reader->error->code = 404;
        reader->error->type = "NotFoundError";
        return false;
    }
    return true;
}

static bool read_text(struct eng_reader *reader)
{
    if (reader->request->kind == REQUEST_DETOKENIZE) {
        const json_t *const ids = member(reader, "tokens");

        return json_is_array(ids)
                   ? reserve_prompts(reader, 1) && add_ids(reader, ids)
                   : refuse(reader, "tokens must be a list of token ids");
    }
    if (reader->request->kind == REQUEST_CHAT ||
        (reader->request->kind == REQUEST_TOKENIZE &&
         member(reader, "messages") != NULL)) {
        return read_messages(reader);
    }
    return read_prompts(reader);
}

static bool read_all(struct eng_reader *reader, const char *model)
{
    if (!json_is_object(reader->root)) {
        return refuse(reader, "the body must be a JSON object");
    }
    if (!check_model(reader, model) || !read_text(reader)) {
        return false;
    }
    if (reader->request->kind == REQUEST_TOKENIZE ||
        reader->request->kind == REQUEST_DETOKENIZE) {
        return true;
    }
    return check_undone(reader) && read_limits(reader) && read_n(reader) &&
           read_stops(reader) && read_stream(reader) && read_handoff(reader);
}

bool request_read(enum request_kind kind, struct bt_str body, const char *model,
                  struct eng_request *request_p, struct request_error *error_p)
{
    struct eng_request request = {.kind = kind, .n = 1};
    struct eng_reader reader = {
        .body = body, .request = &request, .error = error_p};
    json_error_t error;
    json_t *const root = json_loadb(body.ptr, body.len, JSON_ALLOW_NUL, &error);
    bool is_fine;

    if (root == NULL) {
        return refuse(&reader, "the body is no JSON: %s at byte %d", error.text,
                      error.position);
    }
    reader.root = root;
    is_fine = read_all(&reader, model);
    json_decref(root);
    if (!is_fine) {
        request_fini(&request);
        return false;
    }
    *request_p = request;
    return true;
}

void request_fini(struct eng_request *request)
{
    for (size_t i = 0; i < request->prompt_count; i++) {
        free(request->prompts[i].tokens);
    }
    for (size_t i = 0; i < request->stop_count; i++) {
        free(request->stops[i]);
    }
    free(request->prompts);
    *request = (struct eng_request){0};
}
