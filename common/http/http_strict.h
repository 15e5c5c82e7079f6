/*
 * What RFC 9112 forbids and a tokenizer may let through. Pure functions and
 * one small state machine over bytes; http_parse.c asks them in three places:
 *
 *     raw line complete -> bt_http_strict_start / bt_http_strict_field
 *     head complete     -> bt_http_strict_take (its parts),
 *                          bt_http_strict_request / bt_http_strict_answer
 *     chunked body      -> bt_http_chunks_next, in lockstep with the tokenizer
 *
 * Together they accept less than any supported llhttp does, so that the
 * verdict does not depend on its version.
 */
#ifndef COMMON_HTTP_HTTP_STRICT_H
#define COMMON_HTTP_HTTP_STRICT_H

#include "common/http/http_head.h"

/*
 * Each check returns true, or false with *error_p set.
 *
 * The first line without its CRLF: shape, version, characters.
 */
BT_MUST_CHECK bool bt_http_strict_start(enum bt_http_role role,
                                        struct bt_str line, size_t target_limit,
                                        struct bt_http_parse_error *error_p);
/*
 * The first line of a request as far as it has come: can it become one? What
 * is none by its first bytes (TLS, another protocol) is not waited for.
 */
BT_MUST_CHECK bool bt_http_strict_begun(struct bt_str part,
                                        struct bt_http_parse_error *error_p);
/* A field or trailer line without its CRLF. */
BT_MUST_CHECK bool bt_http_strict_field(struct bt_str line,
                                        struct bt_http_parse_error *error_p);
/*
 * The parts of a whole head whose lines passed the checks above: the first
 * line's and the fields, values without blanks around them; spans of `text`.
 * There is room for as many fields as there are lines behind the first.
 */
void bt_http_strict_take(enum bt_http_role role, struct bt_str text,
                         struct bt_http_head *head,
                         struct bt_http_field *fields);
/*
 * A head with its parts: what follows from them (path, query, framing,
 * keep-alive, …) is set here.
 */
BT_MUST_CHECK bool bt_http_strict_request(struct bt_http_head *head,
                                          struct bt_http_parse_error *error_p);
BT_MUST_CHECK bool bt_http_strict_answer(struct bt_http_head *head,
                                         bool asked_head,
                                         struct bt_http_parse_error *error_p);

/* The framing of a chunked body. A zeroed struct is at its beginning. */
struct bt_http_chunks {
    unsigned state; /* enum chunk_state of http_strict.c */
    uint64_t left;  /* of the size being read, then of the data */
    unsigned digits;
    size_t line_bytes;  /* of this chunk's size line, or trailer line */
    size_t extra_bytes; /* extensions and trailers of the whole body */
    bool has_colon;     /* of this trailer line */
};

enum bt_http_chunk_run {
    BT_HTTP_CHUNK_FRAMING, /* size line, CRLF behind data, final CRLF */
    BT_HTTP_CHUNK_DATA,
    BT_HTTP_CHUNK_IGNORED, /* extensions, trailers */
    BT_HTTP_CHUNK_END,     /* framing, and the last byte of the message */
    BT_HTTP_CHUNK_BAD,
};

/*
 * The kind of the bytes at the front, and how many are of it (at least one;
 * bytes.len must not be 0).
 */
enum bt_http_chunk_run bt_http_chunks_next(struct bt_http_chunks *chunks,
                                           struct bt_str bytes, size_t *len_p);

#endif
