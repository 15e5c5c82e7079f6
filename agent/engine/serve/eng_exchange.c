/*
 * One completion request; see exchange.h.
 */
#include "agent/engine/serve/eng_exchange.h"

#include "agent/engine/handoff/stock.h"
#include "agent/engine/serve/eng_answer.h"
#include "common/base/buf.h"
#include "common/base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ID_MAX     160
#define JSON_FIELD "Content-Type: application/json\r\n"
#define SSE_FIELD                                        \
    "Content-Type: text/event-stream; charset=utf-8\r\n" \
    "Cache-Control: no-cache\r\n"

struct choice {
    struct eng_exchange *exchange;
    uint32_t index;
    struct seq *seq; /* NULL once it ended */
    struct bt_buf text;
    size_t sent;   /* bytes of text that went out */
    uint64_t made; /* words */
    const char *stop_reason;
    const char *finish;
    bool has_role; /* the chat's first event went out */
};

struct eng_exchange {
    struct exchange_env *env;
    struct bt_http_conn *conn;
    struct bt_grave grave;
    void (*on_over)(void *owner);
    void *owner;
    struct eng_request request;
    struct eng_answer answer;
    char id[ID_MAX];
    struct choice *choices;
    uint32_t count; /* choices */
    uint32_t live;
    struct eng_answer_usage usage;
    struct bt_buf params; /* of the handoff that is given */
    struct bt_buf out;
    struct bt_timer late;
    uint64_t events;
    uint64_t dies_at; /* after so many events; 0: never */
    bool is_over;
};

/* --- ends --- */

static void destroy(struct bt_grave *grave)
{
    struct eng_exchange *const exchange =
        bt_container_of(grave, struct eng_exchange, grave);

    for (uint32_t i = 0; exchange->choices != NULL && i < exchange->count;
         i++) {
        bt_buf_fini(&exchange->choices[i].text);
    }
    free(exchange->choices);
    bt_buf_fini(&exchange->params);
    bt_buf_fini(&exchange->out);
    request_fini(&exchange->request);
    free(exchange);
}

static void cancel_all(struct eng_exchange *exchange)
{
    for (uint32_t i = 0; i < exchange->count; i++) {
        sched_cancel(&exchange->choices[i].seq);
    }
}

/* The owner forgets it; what is left is to hand over the last bytes. */
static void over(struct eng_exchange *exchange, enum exchange_outcome outcome)
{
    exchange->is_over = true;
    exchange->env->outcomes[outcome]++;
    cancel_all(exchange);
    bt_timer_clear(&exchange->late);
    if (outcome != EXCHANGE_GONE) {
        exchange->on_over(exchange->owner);
    }
    bt_loop_bury(exchange->env->loop, &exchange->grave, destroy);
}

static void refuse(struct eng_exchange *exchange, unsigned code,
                   const char *type, const char *text)
{
    struct bt_http_conn *const conn = exchange->conn;

    bt_buf_clear(&exchange->out);
    answer_error(&exchange->out, code, type, text);
    over(exchange, code == 500 ? EXCHANGE_LOAD_FAILED : EXCHANGE_REFUSED);
    bt_http_conn_answer(conn, code, BT_STR(JSON_FIELD),
                        bt_buf_str(&exchange->out));
}

/* --- streams --- */

static void pause_all(struct eng_exchange *exchange, bool paused)
{
    for (uint32_t i = 0; i < exchange->count; i++) {
        if (exchange->choices[i].seq != NULL) {
            sched_pause(exchange->choices[i].seq, paused);
        }
    }
}

/* Sends what lies in `out`. */
static void send_events(struct eng_exchange *exchange)
{
    const struct bt_str bytes = bt_buf_str(&exchange->out);
    struct iovec iov;

    if (exchange->events == 0 &&
        fault_take(exchange->env->faults, FAULT_DIE_BEFORE_ANSWER, NULL)) {
        fault_die();
    }
    memcpy(&iov.iov_base, &bytes.ptr, sizeof(iov.iov_base));
    iov.iov_len = bytes.len;
    if (bt_http_conn_answer_body(exchange->conn, &iov, 1) == BT_AGAIN) {
        pause_all(exchange, true);
    }
    bt_buf_clear(&exchange->out);
    exchange->events++;
    if (exchange->events == exchange->dies_at) {
        fault_die();
    }
}

static void stream_text(struct choice *choice, size_t end)
{
    struct eng_exchange *const exchange = choice->exchange;
    const struct bt_str text = bt_buf_str(&choice->text);
    const struct answer_choice part = {
        .index = choice->index,
        .text = bt_str_span(text.ptr + choice->sent, end - choice->sent),
        .finish = choice->finish,
        .stop_reason = choice->stop_reason,
    };

    if (exchange->answer.is_chat && !choice->has_role) {
        choice->has_role = true;
        answer_role_event(&exchange->out, &exchange->answer, choice->index);
        send_events(exchange);
    }
    answer_event(&exchange->out, &exchange->answer, &part);
    choice->sent = end;
    send_events(exchange);
}

static void end_stream(struct eng_exchange *exchange)
{
    struct bt_http_conn *const conn = exchange->conn;

    if (exchange->request.has_usage) {
        answer_usage_event(&exchange->out, &exchange->answer, &exchange->usage);
        send_events(exchange);
    }
    answer_done_event(&exchange->out);
    send_events(exchange);
    if (!exchange->is_over) {
        over(exchange, EXCHANGE_ANSWERED);
        bt_http_conn_answer_end(conn);
    }
}

static void fail_stream(struct eng_exchange *exchange)
{
    struct bt_http_conn *const conn = exchange->conn;

    answer_error_event(&exchange->out, 500, "InternalServerError",
                       "Internal server error");
    answer_done_event(&exchange->out);
    send_events(exchange);
    if (!exchange->is_over) {
        over(exchange, EXCHANGE_LOAD_FAILED);
        bt_http_conn_answer_end(conn);
    }
}

/* --- whole answers --- */

static void write_whole(struct eng_exchange *exchange)
{
    struct bt_buf *const out = &exchange->out;

    if (fault_take(exchange->env->faults, FAULT_GARBAGE, NULL)) {
        bt_buf_append(out, BT_STR("{\"id\":\"garbage\",\"choices\":[{]"));
        return;
    }
    answer_begin(out, &exchange->answer);
    for (uint32_t i = 0; i < exchange->count; i++) {
        const struct choice *const choice = &exchange->choices[i];
        const struct answer_choice part = {
            .index = choice->index,
            .text = bt_buf_str(&choice->text),
            .finish = choice->finish,
            .stop_reason = choice->stop_reason,
        };

        answer_choice(out, &exchange->answer, &part);
    }
    answer_end(out, &exchange->answer, &exchange->usage,
               bt_buf_str(&exchange->params));
}

static void send_whole(struct eng_exchange *exchange)
{
    struct faults *const faults = exchange->env->faults;
    struct bt_http_conn *const conn = exchange->conn;
    const bool has_handoff = exchange->params.len > 0;
    uint64_t hang_ms = 0;

    if (fault_take(faults, FAULT_DIE_BEFORE_ANSWER, NULL)) {
        fault_die();
    }
    write_whole(exchange);
    if (exchange->out.failed) {
        bt_buf_fini(&exchange->out);
        refuse(exchange, 503, "ServiceUnavailableError", "out of memory");
        return;
    }
    over(exchange, EXCHANGE_ANSWERED);
    bt_http_conn_answer(conn, 200, BT_STR(JSON_FIELD),
                        bt_buf_str(&exchange->out));
    if (has_handoff && fault_take(faults, FAULT_HANG_HOST, &hang_ms)) {
        fault_hang(hang_ms);
    }
}

static void end_whole(struct eng_exchange *exchange)
{
    uint64_t late_ms = 0;

    if (fault_take(exchange->env->faults, FAULT_ANSWER_LATE, &late_ms)) {
        bt_timer_set(&exchange->late, late_ms);
        return;
    }
    send_whole(exchange);
}

/* --- what the sequences say --- */

/* Looks for a stop string in the bytes that a new word may have completed;
 * cuts the text in front of the first one. */
static bool meets_stop(struct choice *choice, size_t before)
{
    const struct eng_request *const request = &choice->exchange->request;
    size_t cut = SIZE_MAX;

    for (size_t i = 0; i < request->stop_count; i++) {
        const struct bt_str stop = bt_str_of(request->stops[i]);
        const size_t from = before < stop.len ? 0 : before - stop.len + 1;
        const struct bt_str text = bt_buf_str(&choice->text);
        const size_t at =
            from +
            bt_str_find(bt_str_span(text.ptr + from, text.len - from), stop);

        if (at < text.len && at < cut) {
            cut = at;
            choice->stop_reason = request->stops[i];
        }
    }
    if (cut == SIZE_MAX) {
        return false;
    }
    choice->text.len = cut;
    return true;
}

/* How much of the text may go out: what no stop string can begin in. */
static size_t sendable(const struct choice *choice)
{
    const struct eng_request *const request = &choice->exchange->request;
    size_t longest = 1;

    for (size_t i = 0; i < request->stop_count; i++) {
        const size_t length = strlen(request->stops[i]);

        longest = length > longest ? length : longest;
    }
    return choice->text.len < longest ? 0 : choice->text.len - longest + 1;
}

static bool on_word(void *owner, uint32_t id)
{
    struct choice *const choice = owner;
    struct eng_exchange *const exchange = choice->exchange;
    const size_t before = choice->text.len;
    char word[MODEL_WORD_MAX];
    size_t end;

    bt_buf_append(&choice->text, model_word_text(id, choice->made == 0, word));
    choice->made++;
    if (choice->text.failed || meets_stop(choice, before)) {
        return false;
    }
    /* The last word waits: its event says why it is the last. */
    if (exchange->request.is_stream &&
        choice->made < exchange->request.max_tokens) {
        end = sendable(choice);
        if (end > choice->sent) {
            stream_text(choice, end);
        }
    }
    return true;
}

static void on_seq_end(void *owner, const struct seq_result *result)
{
    struct choice *const choice = owner;
    struct eng_exchange *const exchange = choice->exchange;
    const bool is_stream = exchange->request.is_stream;

    choice->seq = NULL;
    if (result->end == SEQ_LOAD_FAILED || result->end == SEQ_NO_MEMORY) {
        if (is_stream) {
            fail_stream(exchange);
        } else {
            refuse(exchange, 500, "InternalServerError",
                   "Internal server error");
        }
        return;
    }
    choice->finish = result->end == SEQ_STOP ? "stop" : "length";
    exchange->usage.completion_tokens += result->tokens;
    if (choice->index % exchange->request.n == 0) {
        exchange->usage.cached_tokens += result->cached;
    }
    if (result->params.len > 0) {
        bt_buf_append(&exchange->params, result->params);
    }
    if (fault_take(exchange->env->faults, FAULT_NEVER_ANSWER, NULL)) {
        return; /* stays live until the client leaves */
    }
    exchange->live--;
    if (is_stream) {
        stream_text(choice, choice->text.len);
    }
    if (exchange->live > 0 || exchange->is_over) {
        return;
    }
    if (is_stream) {
        end_stream(exchange);
    } else {
        end_whole(exchange);
    }
}

static const struct seq_events SEQ_EVENTS = {
    .on_word = on_word,
    .on_end = on_seq_end,
};

/* --- start --- */

/* The tokens of a prompt: its own for the last choice, else a copy. */
static uint32_t *tokens_for(struct eng_request *request, uint32_t index)
{
    struct request_prompt *const prompt = &request->prompts[index / request->n];
    const size_t size = prompt->count * sizeof(*prompt->tokens);
    uint32_t *tokens;

    if (index % request->n == request->n - 1) {
        tokens = prompt->tokens;
        prompt->tokens = NULL;
        return tokens;
    }
    tokens = calloc(prompt->count, sizeof(*tokens));
    if (tokens != NULL) {
        memcpy(tokens, prompt->tokens, size);
    }
    return tokens;
}

static enum bt_status submit(struct eng_exchange *exchange, uint32_t index)
{
    struct eng_request *const request = &exchange->request;
    struct choice *const choice = &exchange->choices[index];
    struct seq_ask ask = {
        .token_count = request->prompts[index / request->n].count,
        .max_tokens = request->max_tokens,
        .min_tokens = request->min_tokens,
        .ignore_eos = request->ignore_eos,
        .choice = index % request->n,
    };
    enum bt_status status;

    if (index == 0 && !request->handoff.is_stock &&
        !(request->is_stream && request->handoff.kind == SEQ_GIVES)) {
        ask.handoff = request->handoff.kind;
        ask.id = request->handoff.id;
        ask.owner_boot = request->handoff.owner_boot;
        ask.params = request->handoff.params;
    }
    ask.tokens = tokens_for(request, index);
    if (ask.tokens == NULL) {
        return BT_ERR_NOMEM;
    }
    status = sched_submit(exchange->env->sched, &ask, &SEQ_EVENTS, choice,
                          &choice->seq);
    if (status != BT_OK) {
        free(ask.tokens);
    }
    return status;
}

static void submit_all(struct eng_exchange *exchange)
{
    enum bt_status status = BT_OK;

    for (uint32_t i = 0; i < exchange->count && status == BT_OK; i++) {
        status = submit(exchange, i);
    }
    if (status == BT_ERR_LIMIT) {
        refuse(exchange, 503, "ServiceUnavailableError",
               "the waiting line is full");
        return;
    }
    if (status != BT_OK) {
        refuse(exchange, 503, "ServiceUnavailableError",
               bt_status_text(status));
        return;
    }
    if (exchange->request.is_stream) {
        bt_http_conn_answer_head(exchange->conn, 200, BT_STR(SSE_FIELD),
                                 BT_HTTP_CHUNKED, 0);
    }
}

static void on_late(struct bt_timer *timer)
{
    struct eng_exchange *const exchange =
        bt_container_of(timer, struct eng_exchange, late);

    if (exchange->request.is_stream) {
        submit_all(exchange);
    } else {
        send_whole(exchange);
    }
}

/* Sets max_tokens where it was left open; false: a prompt is too long. */
static bool fits(struct eng_exchange *exchange, char *why, size_t cap)
{
    struct eng_request *const request = &exchange->request;
    const uint64_t limit = exchange->env->context_tokens;
    uint64_t longest = 0;

    for (size_t i = 0; i < request->prompt_count; i++) {
        const uint64_t count = request->prompts[i].count;

        longest = count > longest ? count : longest;
        exchange->usage.prompt_tokens += count;
    }
    if (!request->has_max_tokens && longest < limit) {
        request->max_tokens = limit - longest;
    }
    if (longest < limit && request->max_tokens <= limit - longest) {
        return true;
    }
    (void)snprintf(why, cap,
                   "This model's maximum context length is %" PRIu64
                   " tokens. However, you requested %" PRIu64
                   " output tokens and your prompt contains %" PRIu64
                   " input tokens. Please reduce the length of the input "
                   "prompt or the number of requested output tokens.",
                   limit, request->max_tokens, longest);
    return false;
}

static void make_id(struct eng_exchange *exchange, struct bt_str id)
{
    const char *const prefix =
        exchange->request.kind == REQUEST_CHAT ? "chatcmpl-" : "cmpl-";
    const size_t length = strlen(prefix);
    uint64_t number = 0;

    memcpy(exchange->id, prefix, length);
    if (id.len > 0 && id.len < ID_MAX - length) {
        memcpy(exchange->id + length, id.ptr, id.len);
        return; /* the rest is zero */
    }
    if (!bt_random_bytes(&number, sizeof(number))) {
        number = bt_clock_us();
    }
    (void)snprintf(exchange->id + length, ID_MAX - length, "%016" PRIx64,
                   number);
}

bool exchange_open(struct exchange_env *env, struct bt_http_conn *conn,
                   struct eng_request *request, struct bt_str id,
                   struct eng_exchange **exchange_p)
{
    const size_t count = request->prompt_count * request->n;
    struct eng_exchange *const exchange = calloc(1, sizeof(*exchange));

    if (exchange == NULL) {
        return false;
    }
    exchange->choices = calloc(count, sizeof(*exchange->choices));
    if (exchange->choices == NULL) {
        free(exchange);
        return false;
    }
    exchange->env = env;
    exchange->conn = conn;
    exchange->request = *request;
    *request = (struct eng_request){0};
    exchange->count = exchange->live = (uint32_t)count;
    for (uint32_t i = 0; i < count; i++) {
        exchange->choices[i].exchange = exchange;
        exchange->choices[i].index = i;
    }
    make_id(exchange, id);
    exchange->answer = (struct eng_answer){
        .is_chat = exchange->request.kind == REQUEST_CHAT,
        .id = exchange->id,
        .model = env->options->model,
        .created = (uint64_t)time(NULL),
    };
    bt_timer_init(&exchange->late, env->loop, on_late);
    *exchange_p = exchange;
    return true;
}

static void write_stock_params(struct eng_exchange *exchange)
{
    const struct exchange_env *const env = exchange->env;
    const struct stock_place place = {
        .connector = (enum options_connector)env->options->connector,
        .url = env->url,
        .engine_id = env->engine_id,
        .request_id = exchange->id,
        .block_tokens = (uint64_t)env->options->block_size,
        .tp = (uint64_t)env->options->tp,
        .tokens = exchange->request.prompts[0].count,
    };
    const bool is_asked = exchange->request.handoff.kind == SEQ_GIVES &&
                          exchange->request.handoff.is_stock;
    /* That connector's prefill engines are not asked: they always answer. */
    const bool is_given = env->options->connector == CONNECTOR_TPU &&
                          exchange->request.handoff.kind == SEQ_ALONE &&
                          exchange->request.max_tokens == 1;

    if (!exchange->request.is_stream && (is_asked || is_given)) {
        stock_write_params(&place, &exchange->params);
    }
}

void exchange_start(struct eng_exchange *exchange, void (*on_over)(void *owner),
                    void *owner)
{
    struct faults *const faults = exchange->env->faults;
    uint64_t code = 500;
    uint64_t late_ms = 0;
    char why[320];

    exchange->on_over = on_over;
    exchange->owner = owner;
    if (!fits(exchange, why, sizeof(why))) {
        refuse(exchange, 400, "BadRequestError", why);
        return;
    }
    if (fault_take(faults, FAULT_REFUSE, NULL)) {
        refuse(exchange, 503, "ServiceUnavailableError", "refused by a fault");
        return;
    }
    if (fault_take(faults, FAULT_ERROR, &code)) {
        refuse(exchange, code >= 400 && code <= 599 ? (unsigned)code : 500,
               "InternalServerError", "failed by a fault");
        return;
    }
    exchange->env->prompt_tokens += exchange->usage.prompt_tokens;
    write_stock_params(exchange);
    if (exchange->request.is_stream) {
        (void)fault_take(faults, FAULT_DIE_MID_STREAM, &exchange->dies_at);
        if (fault_take(faults, FAULT_ANSWER_LATE, &late_ms)) {
            bt_timer_set(&exchange->late, late_ms);
            return;
        }
    }
    submit_all(exchange);
}

void exchange_close(struct eng_exchange **exchange)
{
    struct eng_exchange *const self = *exchange;

    *exchange = NULL;
    if (self != NULL) {
        over(self, EXCHANGE_GONE);
    }
}

void exchange_room(struct eng_exchange *exchange)
{
    pause_all(exchange, false);
}
