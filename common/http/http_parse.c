/*
 * The parser: raw lines are checked as they come, and the strict layer takes a
 * head's parts from them. A whole head goes through llhttp once, and chunked
 * framing goes through it in lockstep with the strict layer: it has a veto,
 * and nothing to tell.
 *
 *     LEAD -> HEAD -> (on_head) -> LENGTH | CHUNKED | UNTIL_CLOSE -> DONE
 *                  \-> END ------------------------------------------^
 *
 * A head that arrives in one piece is parsed where it lies; else its pieces
 * are gathered in `gathered`. Callbacks are made outside of llhttp, between
 * two steps, so a callback that says false simply ends the feed.
 */
#include "common/http/http_parse.h"

#include "common/http/http_strict.h"

#include <llhttp.h>

#include <stdlib.h>

#define LEAD_MAX    4  /* empty lines before a request: two CRLF */
#define INTERIM_MAX 8  /* 1xx answers that are skipped */
#define METHOD_ROOM 32 /* of a request line beside its target */

enum parse_state {
    PARSE_LEAD, /* before the first byte, or in empty lines */
    PARSE_HEAD,
    PARSE_LENGTH,
    PARSE_CHUNKED,
    PARSE_UNTIL_CLOSE,
    PARSE_END, /* whole, on_end not called yet */
    PARSE_DONE,
    PARSE_BAD,
};

struct bt_http_parser {
    enum bt_http_role role;
    struct bt_http_parse_limits limits;
    const struct bt_http_parse_events *events;
    void *owner;

    enum parse_state state;
    bool asked_head;
    bool has_begun;
    bool is_stopped;   /* a callback said false */
    unsigned interims; /* 1xx answers before this head */
    size_t lead_bytes;
    size_t taken; /* of the bytes being fed */

    struct bt_buf gathered; /* a head in pieces */
    size_t scanned;         /* bytes of the head whose lines are checked */
    size_t lines;           /* complete ones so far */

    uint64_t body_left; /* PARSE_LENGTH */
    struct bt_http_chunks chunks;
    llhttp_t llhttp;
    llhttp_settings_t settings; /* it wants them writable */
    bool is_tokenized;          /* llhttp saw the end of the head */

    struct bt_http_head head;
    struct bt_http_parse_error error;
    struct bt_http_field fields[]; /* limits.fields of them */
};

/* ---- llhttp ---- */

static int on_headers_complete(llhttp_t *llhttp)
{
    struct bt_http_parser *const parser = llhttp->data;

    parser->is_tokenized = true;
    return 0;
}

static bool refuse(struct bt_http_parser *parser, unsigned code,
                   const char *reason)
{
    parser->error.code = code;
    parser->error.reason = reason;
    return false;
}

/* Its second opinion; what it finds behind an Upgrade is not its matter. */
static bool tokenize(struct bt_http_parser *parser, struct bt_str bytes)
{
    const llhttp_errno_t error =
        llhttp_execute(&parser->llhttp, bytes.ptr, bytes.len);

    return error == HPE_OK || error == HPE_PAUSED_UPGRADE ||
           refuse(parser, 400, "the message is malformed");
}

/* ---- heads ---- */

/* Fields with '_' are one to a CGI and another to us: dropped. */
static void drop_underscored(struct bt_http_parser *parser)
{
    size_t kept = 0;

    for (size_t i = 0; i < parser->head.field_count; i++) {
        const struct bt_str name = parser->fields[i].name;

        if (memchr(name.ptr, '_', name.len) == NULL) {
            parser->fields[kept++] = parser->fields[i];
        }
    }
    parser->head.field_count = kept;
}

static bool read_head(struct bt_http_parser *parser, struct bt_str text)
{
    struct bt_http_head *head = &parser->head;
    bool is_taken;

    *head = (struct bt_http_head){.fields = parser->fields};
    bt_http_strict_take(parser->role, text, head, parser->fields);
    parser->is_tokenized = false;
    llhttp_init(&parser->llhttp,
                parser->role == BT_HTTP_REQUESTS ? HTTP_REQUEST : HTTP_RESPONSE,
                &parser->settings);
    parser->llhttp.data = parser;
    is_taken = tokenize(parser, text);
    if (!parser->is_tokenized) {
        return false;
    }
    /* What llhttp finds wrong with a whole head is named better below. */
    if (parser->role == BT_HTTP_ANSWERS) {
        return bt_http_strict_answer(head, parser->asked_head,
                                     &parser->error) &&
               is_taken;
    }
    if (!bt_http_strict_request(head, &parser->error)) {
        return false;
    }
    drop_underscored(parser);
    return is_taken;
}

static enum parse_state state_of_framing(enum bt_http_framing framing)
{
    switch (framing) {
    case BT_HTTP_NO_BODY:
        break;
    case BT_HTTP_LENGTH:
        return PARSE_LENGTH;
    case BT_HTTP_CHUNKED:
        return PARSE_CHUNKED;
    case BT_HTTP_UNTIL_CLOSE:
        return PARSE_UNTIL_CLOSE;
    }
    return PARSE_END;
}

static void begin_head(struct bt_http_parser *parser)
{
    parser->state = PARSE_LEAD;
    parser->scanned = 0;
    parser->lines = 0;
    bt_buf_clear(&parser->gathered);
}

static bool head_is_whole(struct bt_http_parser *parser, struct bt_str text)
{
    if (!read_head(parser, text)) {
        return false;
    }
    if (parser->role == BT_HTTP_ANSWERS && parser->head.code < 200) {
        if (++parser->interims > INTERIM_MAX) {
            return refuse(parser, 502, "too many interim answers");
        }
        begin_head(parser);
        return true;
    }
    parser->state = state_of_framing(parser->head.framing);
    parser->body_left = parser->head.content_length;
    parser->chunks = (struct bt_http_chunks){.state = 0};
    if (!parser->events->on_head(parser->owner, &parser->head)) {
        parser->is_stopped = true;
    }
    return true;
}

/* One complete line of the head, without its CRLF. */
static bool check_line(struct bt_http_parser *parser, struct bt_str line)
{
    if (parser->lines == 0) {
        return bt_http_strict_start(
            parser->role, line, parser->limits.target_bytes, &parser->error);
    }
    if (parser->lines > parser->limits.fields) {
        return refuse(parser, 431, "too many fields");
    }
    return bt_http_strict_field(line, &parser->error);
}

/* A CR before the last byte is told first, whatever else is wrong. */
static bool check_cr(struct bt_http_parser *parser, struct bt_str part)
{
    return part.len < 2 || memchr(part.ptr, '\r', part.len - 1) == NULL ||
           refuse(parser, 400, "a bare CR");
}

/* What can be said of a line whose end has not come. */
static bool check_part(struct bt_http_parser *parser, struct bt_str part,
                       size_t total)
{
    if (parser->lines == 0 && parser->role == BT_HTTP_REQUESTS &&
        part.len > parser->limits.target_bytes + METHOD_ROOM) {
        return refuse(parser, 414, "the target is too long");
    }
    if (total > parser->limits.head_bytes) {
        return refuse(parser, 431, "the head is too large");
    }
    return parser->lines > 0 || parser->role != BT_HTTP_REQUESTS ||
           bt_http_strict_begun(part, &parser->error);
}

/* The head's length in *len_p once its empty line has come, else 0. */
static bool scan_head(struct bt_http_parser *parser, struct bt_str text,
                      size_t *len_p)
{
    *len_p = 0;
    while (parser->scanned < text.len) {
        const char *line = text.ptr + parser->scanned;
        const size_t rest = text.len - parser->scanned;
        const char *lf = memchr(line, '\n', rest);
        bool is_end;
        size_t len;

        if (lf == NULL) {
            return check_cr(parser, bt_str_span(line, rest)) &&
                   check_part(parser, bt_str_span(line, rest), text.len);
        }
        len = (size_t)(lf - line);
        if (len == 0 || line[len - 1] != '\r') {
            return refuse(parser, 400, "a bare LF");
        }
        parser->scanned += len + 1;
        is_end = len == 1 && parser->lines > 0;
        if (!check_part(parser, bt_str_span(line, len), parser->scanned) ||
            (!is_end && !check_line(parser, bt_str_span(line, len - 1)))) {
            /* No line with a bare CR is good: it need not be looked for. */
            (void)check_cr(parser, bt_str_span(line, len));
            return false;
        }
        if (is_end) {
            *len_p = parser->scanned;
            return true;
        }
        parser->lines++;
    }
    return true;
}

static bool feed_head(struct bt_http_parser *parser, struct bt_str bytes)
{
    const size_t before = parser->gathered.len;
    struct bt_str text = bytes;
    size_t len;

    if (before > 0) {
        /* No more than a head may have: the rest is taken in later turns. */
        const size_t room = parser->limits.head_bytes + 2 > before
                                ? parser->limits.head_bytes + 2 - before
                                : 1;

        bt_buf_append(
            &parser->gathered,
            bt_str_span(bytes.ptr, bytes.len < room ? bytes.len : room));
        text = bt_buf_str(&parser->gathered);
    }
    if (parser->gathered.failed) {
        return refuse(parser, 503, "out of memory");
    }
    if (!scan_head(parser, text, &len)) {
        return false;
    }
    if (len > 0) {
        parser->taken += len - before;
        return head_is_whole(parser, bt_str_span(text.ptr, len));
    }
    if (before == 0) {
        bt_buf_append(&parser->gathered, bytes);
        text.len = bytes.len;
    }
    parser->taken += text.len - before;
    return !parser->gathered.failed || refuse(parser, 503, "out of memory");
}

/* ---- bodies ---- */

static void tell_body(struct bt_http_parser *parser, struct bt_str bytes)
{
    parser->taken += bytes.len;
    if (!parser->events->on_body(parser->owner, bytes)) {
        parser->is_stopped = true;
    }
}

static bool feed_length(struct bt_http_parser *parser, struct bt_str bytes)
{
    if (bytes.len > parser->body_left) {
        bytes.len = (size_t)parser->body_left;
    }
    parser->body_left -= bytes.len;
    if (parser->body_left == 0) {
        parser->state = PARSE_END;
    }
    tell_body(parser, bytes);
    return true;
}

static bool feed_chunked(struct bt_http_parser *parser, struct bt_str bytes)
{
    size_t len;
    const enum bt_http_chunk_run run =
        bt_http_chunks_next(&parser->chunks, bytes, &len);

    if (run == BT_HTTP_CHUNK_BAD) {
        return refuse(parser, 400, "the chunked body is malformed");
    }
    bytes.len = len;
    if (run == BT_HTTP_CHUNK_IGNORED) {
        parser->taken += len;
        return true;
    }
    if (!tokenize(parser, bytes)) {
        return false;
    }
    if (run == BT_HTTP_CHUNK_DATA) {
        tell_body(parser, bytes);
        return true;
    }
    parser->taken += len;
    if (run == BT_HTTP_CHUNK_END) {
        parser->state = PARSE_END;
    }
    return true;
}

/* ---- the feed ---- */

/* Empty lines before a request; the first other byte begins the message. */
static bool feed_lead(struct bt_http_parser *parser, struct bt_str bytes)
{
    for (size_t i = 0; i < bytes.len; i++) {
        const bool wants_lf = parser->lead_bytes % 2 == 1;

        if (bytes.ptr[i] != '\r' && bytes.ptr[i] != '\n' && !wants_lf) {
            parser->state = PARSE_HEAD;
            parser->has_begun = true;
            return true;
        }
        if (parser->role == BT_HTTP_ANSWERS ||
            bytes.ptr[i] != (wants_lf ? '\n' : '\r') ||
            parser->lead_bytes == LEAD_MAX) {
            return refuse(parser, 400, "line ends before the message");
        }
        parser->lead_bytes++;
        parser->taken++;
    }
    return true;
}

static void end_message(struct bt_http_parser *parser)
{
    parser->state = PARSE_DONE;
    if (!parser->events->on_end(parser->owner)) {
        parser->is_stopped = true;
    }
}

/* One step with the bytes at the front; false when refused. */
static bool step(struct bt_http_parser *parser, struct bt_str bytes)
{
    switch (parser->state) {
    case PARSE_LEAD:
        return feed_lead(parser, bytes);
    case PARSE_HEAD:
        return feed_head(parser, bytes);
    case PARSE_LENGTH:
        return feed_length(parser, bytes);
    case PARSE_CHUNKED:
        return feed_chunked(parser, bytes);
    case PARSE_UNTIL_CLOSE:
        tell_body(parser, bytes);
        return true;
    case PARSE_END:
        end_message(parser);
        return true;
    case PARSE_DONE:
    case PARSE_BAD:
        break;
    }
    return false;
}

static bool wants_step(const struct bt_http_parser *parser, size_t left)
{
    if (parser->is_stopped || parser->state == PARSE_DONE ||
        parser->state == PARSE_BAD) {
        return false;
    }
    return left > 0 || parser->state == PARSE_END;
}

enum bt_status bt_http_parser_feed(struct bt_http_parser *parser,
                                   struct bt_str bytes, size_t *taken_p)
{
    parser->taken = 0;
    parser->is_stopped = false;
    while (wants_step(parser, bytes.len - parser->taken)) {
        const struct bt_str rest =
            bt_str_span(bytes.ptr + parser->taken, bytes.len - parser->taken);

        if (!step(parser, rest)) {
            parser->state = PARSE_BAD;
        }
    }
    *taken_p = parser->taken;
    return parser->state == PARSE_BAD ? BT_ERR_PROTOCOL : BT_OK;
}

enum bt_status bt_http_parser_finish(struct bt_http_parser *parser)
{
    if (parser->state == PARSE_LEAD && parser->interims == 0) {
        return BT_OK;
    }
    if (parser->state == PARSE_UNTIL_CLOSE || parser->state == PARSE_END) {
        end_message(parser);
        return BT_OK;
    }
    return parser->state == PARSE_DONE ? BT_OK : BT_ERR_CLOSED;
}

void bt_http_parser_skip_body(struct bt_http_parser *parser)
{
    if (parser->state == PARSE_LENGTH || parser->state == PARSE_END) {
        parser->body_left = 0;
        end_message(parser);
    }
}

size_t bt_http_parser_taken(const struct bt_http_parser *parser)
{
    return parser->taken;
}

const struct bt_http_parse_error *bt_http_parser_error(
    const struct bt_http_parser *parser)
{
    return &parser->error;
}

bool bt_http_parser_has_begun(const struct bt_http_parser *parser)
{
    return parser->has_begun;
}

/* ---- life ---- */

void bt_http_parser_reset(struct bt_http_parser *parser, bool asked_head)
{
    begin_head(parser);
    parser->asked_head = asked_head;
    parser->has_begun = false;
    parser->interims = 0;
    parser->lead_bytes = 0;
    parser->error = (struct bt_http_parse_error){0, NULL};
}

struct bt_http_parser *bt_http_parser_open(
    enum bt_http_role role, const struct bt_http_parse_limits *limits,
    const struct bt_http_parse_events *events, void *owner)
{
    struct bt_http_parser *parser = calloc(
        1, sizeof(*parser) + limits->fields * sizeof(struct bt_http_field));

    if (parser == NULL) {
        return NULL;
    }
    parser->role = role;
    parser->limits = *limits;
    parser->events = events;
    parser->owner = owner;
    parser->settings.on_headers_complete = on_headers_complete;
    bt_http_parser_reset(parser, false);
    return parser;
}

void bt_http_parser_close(struct bt_http_parser **parser_p)
{
    struct bt_http_parser *parser = *parser_p;

    if (parser == NULL) {
        return;
    }
    *parser_p = NULL;
    bt_buf_fini(&parser->gathered);
    free(parser);
}
