/*
 * common/http_parse and the strict layer below it: every rule as a row of
 * raw bytes, each fed whole, byte by byte and at random splits.
 */
#include "common/base/buf.h"
#include "common/http/http_parse.h"
#include "tests/support/harness.h"

#define CRLF "\r\n"
#define HOST "Host: a" CRLF

static const struct bt_http_parse_limits limits = {
    .head_bytes = 32 * 1024,
    .target_bytes = 8 * 1024,
    .fields = 100,
};

/* What came out of one feeding, as text: "GET /a:body|" for each message. */
struct outcome {
    struct bt_buf text;
    unsigned code;      /* 0: no error */
    bool is_incomplete; /* a message had begun and was not whole */
    bool is_over;       /* a message ended the connection */
    bool keeps_alive;
    bool is_whole;
    bool is_stopped;
};

static bool on_head(void *owner, const struct bt_http_head *head)
{
    struct outcome *outcome = owner;

    if (head->code != 0) {
        bt_buf_printf(&outcome->text, "%u:", head->code);
    } else {
        bt_buf_append(&outcome->text, head->method);
        bt_buf_append_char(&outcome->text, ' ');
        bt_buf_append(&outcome->text, head->path);
        bt_buf_append_char(&outcome->text, ':');
    }
    outcome->keeps_alive = head->keep_alive;
    return true;
}

static bool on_body(void *owner, struct bt_str bytes)
{
    struct outcome *outcome = owner;

    bt_buf_append(&outcome->text, bytes);
    return true;
}

static bool on_end(void *owner)
{
    struct outcome *outcome = owner;

    bt_buf_append_char(&outcome->text, '|');
    outcome->is_whole = true;
    return false;
}

static const struct bt_http_parse_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
};

/* Feeds one piece, message after message; false: no more is to be fed. */
static bool feed_piece(struct bt_http_parser *parser, struct outcome *outcome,
                       struct bt_str piece, bool asked_head)
{
    do {
        size_t taken;

        if (bt_http_parser_feed(parser, piece, &taken) != BT_OK) {
            outcome->code = bt_http_parser_error(parser)->code;
            ck_assert_ptr_nonnull(bt_http_parser_error(parser)->reason);
            return false;
        }
        ck_assert_uint_le(taken, piece.len);
        piece.ptr += taken;
        piece.len -= taken;
        if (!outcome->is_whole) {
            ck_assert_uint_eq(piece.len, 0);
            return true;
        }
        outcome->is_whole = false;
        if (!outcome->keeps_alive) {
            outcome->is_over = true;
            return false;
        }
        bt_http_parser_reset(parser, asked_head);
    } while (piece.len > 0);
    return true;
}

enum split {
    SPLIT_NONE,
    SPLIT_BYTES,
    SPLIT_RANDOM,
};

static size_t piece_len(enum split split, unsigned *seed, size_t left)
{
    size_t len = left;

    if (split == SPLIT_BYTES) {
        len = 1;
    } else if (split == SPLIT_RANDOM) {
        *seed = *seed * 1103515245u + 12345u;
        len = 1 + (*seed >> 16) % (left < 40 ? left : 40);
    }
    return len < left ? len : left;
}

static void feed(struct outcome *outcome, enum bt_http_role role,
                 struct bt_str raw, enum split split, unsigned seed)
{
    struct bt_http_parser *parser =
        bt_http_parser_open(role, &limits, &events, outcome);
    bool goes_on = true;

    ck_assert_ptr_nonnull(parser);
    *outcome = (struct outcome){.code = 0};
    while (raw.len > 0 && goes_on) {
        const size_t len = piece_len(split, &seed, raw.len);
        /* A copy of its own, so that a read beyond it is seen. */
        char *copy = malloc(len);

        ck_assert_ptr_nonnull(copy);
        memcpy(copy, raw.ptr, len);
        goes_on = feed_piece(parser, outcome, bt_str_span(copy, len), false);
        free(copy);
        raw.ptr += len;
        raw.len -= len;
    }
    if (outcome->code == 0 && !outcome->is_over) {
        outcome->is_incomplete = bt_http_parser_finish(parser) != BT_OK;
    }
    bt_http_parser_close(&parser);
}

struct row {
    const char *name;
    const char *raw;
    size_t len;
    unsigned code;    /* 0: accepted */
    const char *text; /* what came out; NULL: not looked at */
};

#define ROW(name, raw, code, text)             \
    {                                          \
        name, raw, sizeof(raw) - 1, code, text \
    }

static void check_outcome(const struct row *row, const struct outcome *outcome,
                          const char *how)
{
    const struct bt_str text = bt_buf_str(&outcome->text);

    ck_assert_msg(outcome->code == row->code, "%s (%s): code %u, not %u",
                  row->name, how, outcome->code, row->code);
    if (row->text != NULL) {
        ck_assert_msg(bt_str_eq(text, bt_str_of(row->text)),
                      "%s (%s): got '%.*s', not '%s'", row->name, how,
                      BT_STR_ARG(text), row->text);
    }
}

static void check_row(enum bt_http_role role, const struct row *row)
{
    const struct bt_str raw = bt_str_span(row->raw, row->len);
    struct outcome outcome;

    feed(&outcome, role, raw, SPLIT_NONE, 0);
    check_outcome(row, &outcome, "whole");
    bt_buf_fini(&outcome.text);
    feed(&outcome, role, raw, SPLIT_BYTES, 0);
    check_outcome(row, &outcome, "byte by byte");
    bt_buf_fini(&outcome.text);
    for (unsigned seed = 1; seed <= 20; seed++) {
        feed(&outcome, role, raw, SPLIT_RANDOM, seed);
        check_outcome(row, &outcome, "at random splits");
        bt_buf_fini(&outcome.text);
    }
}

#define POST    "POST /p HTTP/1.1" CRLF HOST
#define CHUNKED POST "Transfer-Encoding: chunked" CRLF CRLF
#define NEXT    "GET /n HTTP/1.1" CRLF HOST CRLF

static const struct row request_rows[] = {
    ROW("1 no host", "GET / HTTP/1.1" CRLF CRLF, 400, ""),
    ROW("1 no host in 1.0", "GET / HTTP/1.0" CRLF CRLF, 0, "GET /:|"),
    ROW("2 two hosts", "GET / HTTP/1.1" CRLF HOST HOST CRLF, 400, ""),
    ROW("3 host with a space", "GET / HTTP/1.1" CRLF "Host: a b" CRLF CRLF, 400,
        ""),
    ROW("3 second host empty", "GET / HTTP/1.1" CRLF HOST "Host:" CRLF CRLF,
        400, ""),
    ROW("3 host with a slash", "GET / HTTP/1.1" CRLF "Host: a/b" CRLF CRLF, 400,
        ""),
    ROW("4 space before colon", "GET / HTTP/1.1" CRLF "Host : a" CRLF CRLF, 400,
        ""),
    ROW("5 space before name", "GET / HTTP/1.1" CRLF " Host: a" CRLF CRLF, 400,
        ""),
    ROW("6 folded", "GET / HTTP/1.1" CRLF HOST "X: y" CRLF " z" CRLF CRLF, 400,
        ""),
    ROW("6 folded by tab",
        "GET / HTTP/1.1" CRLF HOST "X: y" CRLF "\tz" CRLF CRLF, 400, ""),
    ROW("7 bare LF", "GET / HTTP/1.1\nHost: a\n\n", 400, ""),
    ROW("7 bare LF in fields", "GET / HTTP/1.1" CRLF "Host: a\nX: b" CRLF CRLF,
        400, ""),
    ROW("8 bare CR", "GET / HTTP/1.1\rHost: a\r\r", 400, ""),
    ROW("8 CR in a value", "GET / HTTP/1.1" CRLF HOST "X: a\rb" CRLF CRLF, 400,
        ""),
    ROW("8 CR hides a field",
        "GET / HTTP/1.1" CRLF HOST "X: a\rTransfer-Encoding: chunked" CRLF CRLF,
        400, ""),
    ROW("9 NUL in a value", "GET / HTTP/1.1" CRLF HOST "X: a\0b" CRLF CRLF, 400,
        ""),
    ROW("9 NUL in a name", "GET / HTTP/1.1" CRLF HOST "X\0: a" CRLF CRLF, 400,
        ""),
    ROW("9 DEL in a value", "GET / HTTP/1.1" CRLF HOST "X: \x7f" CRLF CRLF, 400,
        ""),
    ROW("10 no colon", "GET / HTTP/1.1" CRLF HOST "X" CRLF CRLF, 400, ""),
    ROW("10 empty name", "GET / HTTP/1.1" CRLF HOST ": x" CRLF CRLF, 400, ""),
    ROW("11 leading CRLF", CRLF "GET / HTTP/1.1" CRLF HOST CRLF, 0, "GET /:|"),
    ROW("11 many leading CRLF", CRLF CRLF CRLF "GET / HTTP/1.1" CRLF HOST CRLF,
        400, ""),
    ROW("11 leading LF", "\nGET / HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("11 leading CR", "\rGET / HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("12 two spaces", "GET  / HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("12 two spaces behind", "GET /  HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("13 HTTP/0.9", "GET /" CRLF CRLF, 400, ""),
    ROW("14 HTTP/2.0 in text", "GET / HTTP/2.0" CRLF HOST CRLF, 505, ""),
    ROW("14 HTTP/1.2", "GET / HTTP/1.2" CRLF HOST CRLF, 505, ""),
    ROW("14 HTTP/257.1", "GET / HTTP/257.1" CRLF HOST CRLF, 400, ""),
    ROW("15 preface of HTTP/2", "PRI * HTTP/2.0" CRLF CRLF "SM" CRLF CRLF, 505,
        ""),
    ROW("16 ICE", "SOURCE /x ICE/1.0" CRLF HOST CRLF, 400, ""),
    ROW("16 RTSP", "OPTIONS rtsp://x RTSP/1.0" CRLF HOST CRLF, 400, ""),
    ROW("17 length and chunked",
        POST "Content-Length: 5" CRLF "Transfer-Encoding: chunked" CRLF CRLF
             "0" CRLF CRLF,
        400, ""),
    ROW("17 chunked and length",
        POST "Transfer-Encoding: chunked" CRLF "Content-Length: 5" CRLF CRLF
             "0" CRLF CRLF,
        400, ""),
    ROW("18 two lengths",
        POST "Content-Length: 5" CRLF "Content-Length: 6" CRLF CRLF "abcdef",
        400, ""),
    ROW("18 one length twice",
        POST "Content-Length: 5" CRLF "Content-Length: 5" CRLF CRLF "abcde",
        400, ""),
    ROW("18 list of lengths", POST "Content-Length: 5, 5" CRLF CRLF "abcde",
        400, ""),
    ROW("19 +5", POST "Content-Length: +5" CRLF CRLF "abcde", 400, ""),
    ROW("19 -5", POST "Content-Length: -5" CRLF CRLF "abcde", 400, ""),
    ROW("19 0x5", POST "Content-Length: 0x5" CRLF CRLF "abcde", 400, ""),
    ROW("19 5 0", POST "Content-Length: 5 0" CRLF CRLF "abcde", 400, ""),
    ROW("19 empty", POST "Content-Length: " CRLF CRLF, 400, ""),
    ROW("19 1_0", POST "Content-Length: 1_0" CRLF CRLF "abcde", 400, ""),
    ROW("19 trailing space is fine",
        POST "Content-Length: 5 " CRLF CRLF "abcde", 0, "POST /p:abcde|"),
    ROW("20 2^64", POST "Content-Length: 18446744073709551616" CRLF CRLF, 400,
        ""),
    ROW("20 2^64-1", POST "Content-Length: 18446744073709551615" CRLF CRLF, 413,
        ""),
    ROW("21 chunked, identity",
        POST "Transfer-Encoding: chunked, identity" CRLF CRLF, 400, ""),
    ROW("21 identity", POST "Transfer-Encoding: identity" CRLF CRLF, 501, ""),
    ROW("21 xchunked", POST "Transfer-Encoding: xchunked" CRLF CRLF, 501, ""),
    ROW("21 quoted", POST "Transfer-Encoding: \"chunked\"" CRLF CRLF, 400, ""),
    ROW("21 with a parameter", POST "Transfer-Encoding: chunked;q=1" CRLF CRLF,
        400, ""),
    ROW("21 twice",
        POST "Transfer-Encoding: chunked" CRLF
             "Transfer-Encoding: chunked" CRLF CRLF "0" CRLF CRLF,
        400, ""),
    ROW("21 twice in a list",
        POST "Transfer-Encoding: chunked, chunked" CRLF CRLF "0" CRLF CRLF, 400,
        ""),
    ROW("21 VT before", POST "Transfer-Encoding: \vchunked" CRLF CRLF, 400, ""),
    ROW("22 gzip, chunked",
        POST "Transfer-Encoding: gzip, chunked" CRLF CRLF "0" CRLF CRLF, 501,
        ""),
    ROW("23 empty coding", POST "Transfer-Encoding:" CRLF CRLF "0" CRLF CRLF,
        400, ""),
    ROW("24 chunked in 1.0",
        "POST /p HTTP/1.0" CRLF HOST "Transfer-Encoding: chunked" CRLF CRLF
        "0" CRLF CRLF,
        400, ""),
    ROW("25 folded coding",
        POST "Transfer-Encoding:" CRLF " chunked" CRLF CRLF "0" CRLF CRLF, 400,
        ""),
    ROW("26 chunk 0x5", CHUNKED "0x5" CRLF "abcde" CRLF "0" CRLF CRLF, 400,
        NULL),
    ROW("26 chunk +5", CHUNKED "+5" CRLF "abcde" CRLF "0" CRLF CRLF, 400, NULL),
    ROW("26 chunk -5", CHUNKED "-5" CRLF "abcde" CRLF "0" CRLF CRLF, 400, NULL),
    ROW("26 chunk 5_", CHUNKED "5_" CRLF "abcde" CRLF "0" CRLF CRLF, 400, NULL),
    ROW("26 chunk SP 5", CHUNKED " 5" CRLF "abcde" CRLF "0" CRLF CRLF, 400,
        NULL),
    ROW("26 chunk 5 SP", CHUNKED "5 " CRLF "abcde" CRLF "0" CRLF CRLF, 400,
        NULL),
    ROW("26 chunk without size", CHUNKED CRLF "abcde", 400, NULL),
    ROW("27 chunk of 17 F", CHUNKED "FFFFFFFFFFFFFFFFF" CRLF "abcde", 400,
        NULL),
    ROW("27 chunk of 16 F", CHUNKED "FFFFFFFFFFFFFFFF" CRLF "abcde", 400, NULL),
    ROW("27 17 digits", CHUNKED "00000000000000005" CRLF "abcde", 400, NULL),
    ROW("28 data beyond its size",
        CHUNKED "5" CRLF "abcdeXX" CRLF "0" CRLF CRLF, 400, NULL),
    ROW("29 LF alone", CHUNKED "5\nabcde\n0\n\n", 400, NULL),
    ROW("29 CR alone", CHUNKED "5\rXabcde" CRLF "0" CRLF CRLF, 400, NULL),
    ROW("29 LF behind data", CHUNKED "5" CRLF "abcde\n0" CRLF CRLF, 400, NULL),
    ROW("29 LF at the end", CHUNKED "5" CRLF "abcde" CRLF "0" CRLF "\n", 400,
        NULL),
    ROW("30 extension", CHUNKED "5;a=b" CRLF "abcde" CRLF "0" CRLF CRLF NEXT, 0,
        "POST /p:abcde|GET /n:|"),
    ROW("30 extensions",
        CHUNKED "5;a;b=\"c \\\"d;\";e=f" CRLF "abcde" CRLF "0;x" CRLF CRLF NEXT,
        0, "POST /p:abcde|GET /n:|"),
    ROW("30 LF in extension",
        CHUNKED "5;a\nb=c" CRLF "abcde" CRLF "0" CRLF CRLF, 400, NULL),
    ROW("30 empty extension", CHUNKED "5;" CRLF "abcde" CRLF "0" CRLF CRLF, 400,
        NULL),
    ROW("32 trailers that frame",
        CHUNKED "5" CRLF "abcde" CRLF "0" CRLF "Content-Length: 10" CRLF
                "Transfer-Encoding: gzip" CRLF CRLF NEXT,
        0, "POST /p:abcde|GET /n:|"),
    ROW("33 trailers",
        CHUNKED "5" CRLF "abcde" CRLF "0" CRLF "Host: b" CRLF
                "Authorization: x" CRLF CRLF NEXT,
        0, "POST /p:abcde|GET /n:|"),
    ROW("33 folded trailer", CHUNKED "0" CRLF "A: b" CRLF " c" CRLF CRLF, 400,
        NULL),
    ROW("33 trailer without colon", CHUNKED "0" CRLF "Ab" CRLF CRLF, 400, NULL),
    ROW("33 trailer without name", CHUNKED "0" CRLF ": b" CRLF CRLF, 400, NULL),
    ROW("33 NUL in a trailer", CHUNKED "0" CRLF "A: \0" CRLF CRLF, 400, NULL),
    ROW("35 pipelined", NEXT NEXT, 0, "GET /n:|GET /n:|"),
    ROW("36 data behind close",
        "GET / HTTP/1.1" CRLF HOST "Connection: close" CRLF CRLF "garbage", 0,
        "GET /:|"),
    ROW("37 GET with a body",
        "GET /g HTTP/1.1" CRLF HOST "Content-Length: 5" CRLF CRLF "abcde" NEXT,
        0, "GET /g:abcde|GET /n:|"),
    ROW("38 absolute target", "GET http://evil/x?y HTTP/1.1" CRLF HOST CRLF, 0,
        "GET /x:|"),
    ROW("38 absolute, no path", "GET http://evil HTTP/1.1" CRLF HOST CRLF, 0,
        "GET /:|"),
    ROW("38 absolute, query alone", "GET http://evil?q HTTP/1.1" CRLF HOST CRLF,
        0, "GET /:|"),
    ROW("38 user information", "GET http://u@evil/ HTTP/1.1" CRLF HOST CRLF,
        400, ""),
    ROW("38 no host", "GET http:///x HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("39 fragment", "GET /a#f HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("39 asterisk", "GET * HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("39 asterisk for OPTIONS", "OPTIONS * HTTP/1.1" CRLF HOST CRLF, 0,
        "OPTIONS *:|"),
    ROW("39 no slash", "GET foo HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("39 DEL in the path", "GET /\x7f HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("39 0xFF in the path", "GET /\xff HTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("41 CR behind the empty line's CRLF",
        "GET / HTTP/1.1" CRLF HOST "\r\rGET /p HTTP/1.1" CRLF HOST CRLF, 400,
        ""),
    ROW("41 CRLF CR",
        "GET / HTTP/1.1" CRLF HOST CRLF "\rGET /p HTTP/1.1" CRLF HOST CRLF, 400,
        "GET /:|"),
    ROW("42 underscored framing",
        POST "Transfer_Encoding: chunked" CRLF CRLF NEXT, 0,
        "POST /p:|GET /n:|"),
    ROW("43 CONNECT", "CONNECT a:443 HTTP/1.1" CRLF HOST CRLF, 405, ""),
    ROW("43 upgrade to h2c",
        "GET /u HTTP/1.1" CRLF HOST "Connection: Upgrade" CRLF
        "Upgrade: h2c" CRLF CRLF NEXT,
        0, "GET /u:|GET /n:|"),
    ROW("43 upgrade with a body",
        "POST /u HTTP/1.1" CRLF HOST "Connection: Upgrade" CRLF
        "Upgrade: h2c" CRLF "Content-Length: 3" CRLF CRLF "abc" NEXT,
        0, "POST /u:abc|GET /n:|"),
    ROW("43 upgrade with chunks",
        "POST /u HTTP/1.1" CRLF HOST "Connection: Upgrade" CRLF
        "Upgrade: h2c" CRLF "Transfer-Encoding: chunked" CRLF CRLF "3" CRLF
        "abc" CRLF "0" CRLF CRLF NEXT,
        0, "POST /u:abc|GET /n:|"),
    ROW("45 unknown method", "FOO / HTTP/1.1" CRLF HOST CRLF, 501, ""),
    ROW("45 small letters", "get / HTTP/1.1" CRLF HOST CRLF, 501, ""),
    ROW("45 tab for space", "GET\t/\tHTTP/1.1" CRLF HOST CRLF, 400, ""),
    ROW("45 http in small", "GET / http/1.1" CRLF HOST CRLF, 400, ""),
    ROW("45 space behind version", "GET / HTTP/1.1 " CRLF HOST CRLF, 400, ""),
    ROW("46 nominated framing",
        POST "Connection: content-length" CRLF "Content-Length: 3" CRLF CRLF
             "abc",
        0, "POST /p:abc|"),
    ROW("chunked in capitals",
        POST "Transfer-Encoding: Chunked" CRLF CRLF "A" CRLF "0123456789" CRLF
             "000" CRLF CRLF,
        0, "POST /p:0123456789|"),
    ROW("empty body", POST "Content-Length: 0" CRLF CRLF NEXT, 0,
        "POST /p:|GET /n:|"),
    ROW("kept in 1.0",
        "GET /a HTTP/1.0" CRLF "Connection: Keep-Alive" CRLF CRLF
        "GET /b HTTP/1.0" CRLF CRLF,
        0, "GET /a:|GET /b:|"),
};

START_TEST(requests_are_refused_or_taken_by_the_rules)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(request_rows); i++) {
        check_row(BT_HTTP_REQUESTS, &request_rows[i]);
    }
}
END_TEST

#define OK200 "HTTP/1.1 200 OK" CRLF

static const struct row answer_rows[] = {
    ROW("R1 length and chunked",
        OK200 "Content-Length: 5" CRLF "Transfer-Encoding: chunked" CRLF CRLF,
        400, ""),
    ROW("R2 space before colon", OK200 "Content-Length : 5" CRLF CRLF "abcde",
        400, ""),
    ROW("R3 two lengths",
        OK200 "Content-Length: 5" CRLF "Content-Length: 6" CRLF CRLF "abcdef",
        400, ""),
    ROW("R3 list", OK200 "Content-Length: 5, 5" CRLF CRLF "abcde", 400, ""),
    ROW("R4 chunked, then identity",
        OK200 "Transfer-Encoding: chunked" CRLF
              "Transfer-Encoding: identity" CRLF CRLF "0" CRLF CRLF,
        400, ""),
    ROW("R5 gzip alone", OK200 "Transfer-Encoding: gzip" CRLF CRLF "x", 501,
        ""),
    ROW("R7 until close", OK200 CRLF "abc", 0, "200:abc|"),
    ROW("R8 204 with bytes",
        "HTTP/1.1 204 No Content" CRLF "Content-Length: 5" CRLF CRLF, 0,
        "204:|"),
    ROW("R8 304 with a length",
        "HTTP/1.1 304 Not Modified" CRLF "Content-Length: 5" CRLF CRLF, 0,
        "304:|"),
    ROW("R10 interim answers",
        "HTTP/1.1 100 Continue" CRLF CRLF "HTTP/1.1 103 Early Hints" CRLF
        "Link: x" CRLF CRLF OK200 "Content-Length: 2" CRLF CRLF "ok",
        0, "200:ok|"),
    ROW("R10 nine interim answers",
        "HTTP/1.1 100 C" CRLF CRLF "HTTP/1.1 100 C" CRLF CRLF
        "HTTP/1.1 100 C" CRLF CRLF "HTTP/1.1 100 C" CRLF CRLF
        "HTTP/1.1 100 C" CRLF CRLF "HTTP/1.1 100 C" CRLF CRLF
        "HTTP/1.1 100 C" CRLF CRLF "HTTP/1.1 100 C" CRLF CRLF
        "HTTP/1.1 100 C" CRLF CRLF OK200 "Content-Length: 0" CRLF CRLF,
        502, ""),
    ROW("R11 101",
        "HTTP/1.1 101 Switching Protocols" CRLF "Upgrade: x" CRLF
        "Connection: upgrade" CRLF CRLF,
        502, ""),
    ROW("R12 status 99", "HTTP/1.1 99 X" CRLF CRLF, 502, ""),
    ROW("R12 status 099", "HTTP/1.1 099 X" CRLF CRLF, 502, ""),
    ROW("R12 status 600", "HTTP/1.1 600 X" CRLF CRLF, 502, ""),
    ROW("R12 no reason", "HTTP/1.1 200" CRLF "Content-Length: 1" CRLF CRLF "x",
        0, "200:x|"),
    ROW("R12 empty reason",
        "HTTP/1.1 200 " CRLF "Content-Length: 1" CRLF CRLF "x", 0, "200:x|"),
    ROW("R12 ICE", "ICE/1.1 200 OK" CRLF CRLF, 502, ""),
    ROW("R12 HTTP/2.0", "HTTP/2.0 200 OK" CRLF CRLF, 505, ""),
    ROW("R13 chunked in 1.0",
        "HTTP/1.0 200 OK" CRLF "Transfer-Encoding: chunked" CRLF CRLF
        "0" CRLF CRLF,
        400, ""),
    ROW("chunked",
        OK200 "Transfer-Encoding: chunked" CRLF CRLF "3;x=\"y\"" CRLF "abc" CRLF
              "2" CRLF "de" CRLF "0" CRLF "T: v" CRLF CRLF,
        0, "200:abcde|"),
    ROW("bare LF", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", 400, ""),
    ROW("leading CRLF", CRLF OK200 "Content-Length: 0" CRLF CRLF, 400, ""),
    ROW("underscored field stays",
        OK200 "X_Y: z" CRLF "Content-Length: 0" CRLF CRLF, 0, "200:|"),
};

START_TEST(answers_are_refused_or_taken_by_the_rules)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(answer_rows); i++) {
        check_row(BT_HTTP_ANSWERS, &answer_rows[i]);
    }
}
END_TEST

static void check_cut(enum bt_http_role role, struct bt_str raw)
{
    struct outcome outcome;

    for (int split = SPLIT_NONE; split <= SPLIT_BYTES; split++) {
        feed(&outcome, role, raw, (enum split)split, 0);
        ck_assert_uint_eq(outcome.code, 0);
        ck_assert(outcome.is_incomplete);
        bt_buf_fini(&outcome.text);
    }
}

START_TEST(messages_cut_by_a_close_are_incomplete)
{
    check_cut(BT_HTTP_REQUESTS, BT_STR("GET / HT"));
    check_cut(BT_HTTP_REQUESTS,
              BT_STR(POST "Content-Length: 5" CRLF CRLF "ab"));
    check_cut(BT_HTTP_REQUESTS, BT_STR(CHUNKED "5" CRLF "abcde" CRLF));
    check_cut(BT_HTTP_ANSWERS,
              BT_STR(OK200 "Content-Length: 5" CRLF CRLF "ab"));
    check_cut(BT_HTTP_ANSWERS,
              BT_STR(OK200 "Transfer-Encoding: chunked" CRLF CRLF "3" CRLF
                           "abc" CRLF));
    check_cut(BT_HTTP_ANSWERS, BT_STR("HTTP/1.1 100 Continue" CRLF CRLF));
}
END_TEST

/* `head`, then `count` times `filler`, then `tail`. */
static struct bt_buf long_message(const char *head, const char *filler,
                                  size_t count, const char *tail)
{
    struct bt_buf raw = {.data = NULL};

    bt_buf_append(&raw, bt_str_of(head));
    for (size_t i = 0; i < count; i++) {
        bt_buf_append(&raw, bt_str_of(filler));
    }
    bt_buf_append(&raw, bt_str_of(tail));
    ck_assert(!raw.failed);
    return raw;
}

static void check_long(struct bt_buf raw, unsigned code)
{
    struct outcome outcome;

    for (int split = SPLIT_NONE; split <= SPLIT_RANDOM; split++) {
        feed(&outcome, BT_HTTP_REQUESTS, bt_buf_str(&raw), (enum split)split,
             7);
        ck_assert_uint_eq(outcome.code, code);
        bt_buf_fini(&outcome.text);
    }
    bt_buf_fini(&raw);
}

START_TEST(bytes_that_begin_no_request_are_not_waited_for)
{
    const struct bt_str others[] = {BT_STR("\x16\x03\x01\x02"),
                                    BT_STR("\0"),
                                    BT_STR("\x80\x2e\x01"),
                                    BT_STR("{"),
                                    BT_STR("GE\xc3\xa9"),
                                    BT_STR("GET\x01"),
                                    BT_STR(" GET")};
    const struct bt_str begun[] = {BT_STR("G"), BT_STR("DELETE "),
                                   BT_STR("\r\nPOST /")};
    struct outcome outcome;

    for (size_t i = 0; i < BT_ARRAY_LEN(others); i++) {
        feed(&outcome, BT_HTTP_REQUESTS, others[i], SPLIT_NONE, 0);
        ck_assert_uint_eq(outcome.code, 400);
        bt_buf_fini(&outcome.text);
        feed(&outcome, BT_HTTP_REQUESTS, others[i], SPLIT_BYTES, 0);
        ck_assert_uint_eq(outcome.code, 400);
        bt_buf_fini(&outcome.text);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(begun); i++) {
        check_cut(BT_HTTP_REQUESTS, begun[i]);
    }
}
END_TEST

START_TEST(a_target_beyond_its_limit_is_414)
{
    check_long(long_message("GET /", "a", 100000, " HTTP/1.1" CRLF HOST CRLF),
               414);
    check_long(long_message("GET /", "a", 100000, ""), 414);
    check_long(long_message("GET /", "a", 8 * 1024, " HTTP/1.1" CRLF HOST CRLF),
               414);
    check_long(
        long_message("GET /", "a", 8 * 1024 - 1, " HTTP/1.1" CRLF HOST CRLF),
        0);
}
END_TEST

START_TEST(a_head_beyond_its_limits_is_431)
{
    check_long(long_message(POST "X: ", "v", 200000, CRLF CRLF), 431);
    check_long(long_message(POST "X: ", "v", 200000, ""), 431);
    check_long(long_message(POST, "X", 100000, ": v" CRLF CRLF), 431);
    check_long(long_message(POST, "X: v" CRLF, 100, CRLF), 431);
    check_long(long_message(POST, "X: v" CRLF, 99, CRLF), 0);
}
END_TEST

START_TEST(chunk_extensions_are_bounded)
{
    check_long(long_message(CHUNKED "5;a=", "b", 20000,
                            CRLF "abcde" CRLF "0" CRLF CRLF),
               400);
    check_long(long_message(CHUNKED "5;a=", "b", 1000,
                            CRLF "abcde" CRLF "0" CRLF CRLF),
               0);
    check_long(long_message(CHUNKED, "1;abcdefghijklmnopqrst" CRLF "x" CRLF,
                            10000, "0" CRLF CRLF),
               400);
}
END_TEST

START_TEST(trailers_are_bounded)
{
    check_long(long_message(CHUNKED "0" CRLF, "A: bcdefghijklmnopqrst" CRLF,
                            10000, CRLF),
               400);
    check_long(long_message(CHUNKED "0" CRLF "A: ", "b", 100000, CRLF CRLF),
               400);
}
END_TEST

/* ---- details of a head ---- */

struct seen {
    struct bt_http_head head;
    bool had_underscore;
    bool has_connection;
    char path[64];
    char query[64];
    char value[64];
    unsigned heads;
    unsigned ends;
    bool answer; /* what the callbacks say */
};

static void copy(char *to, size_t size, struct bt_str from)
{
    ck_assert_uint_lt(from.len, size);
    memcpy(to, from.ptr == NULL ? "" : from.ptr, from.len);
    to[from.len] = '\0';
}

static bool see_head(void *owner, const struct bt_http_head *head)
{
    struct seen *seen = owner;

    seen->heads++;
    seen->head = *head;
    seen->had_underscore = bt_http_field_find(head, BT_STR("x_under")) != NULL;
    if (head->code == 0) {
        copy(seen->path, sizeof(seen->path), head->path);
        copy(seen->query, sizeof(seen->query), head->query);
    }
    copy(seen->value, sizeof(seen->value),
         bt_http_field_get(head, BT_STR("x-value")));
    return seen->answer;
}

static bool see_body(void *owner, struct bt_str bytes)
{
    struct seen *seen = owner;

    (void)bytes;
    return seen->answer;
}

static bool see_end(void *owner)
{
    struct seen *seen = owner;

    seen->ends++;
    return seen->answer;
}

static const struct bt_http_parse_events see = {
    .on_head = see_head,
    .on_body = see_body,
    .on_end = see_end,
};

static struct seen look(enum bt_http_role role, struct bt_str raw,
                        bool asked_head)
{
    struct seen seen = {.answer = true};
    struct bt_http_parser *parser =
        bt_http_parser_open(role, &limits, &see, &seen);
    size_t taken;

    ck_assert_ptr_nonnull(parser);
    bt_http_parser_reset(parser, asked_head);
    ck_assert_int_eq(bt_http_parser_feed(parser, raw, &taken), BT_OK);
    bt_http_parser_close(&parser);
    return seen;
}

START_TEST(a_request_head_tells_path_query_and_wishes)
{
    const struct seen seen = look(
        BT_HTTP_REQUESTS,
        BT_STR("POST /a/b?c=d&e HTTP/1.1" CRLF HOST "X-Value: \t a b \t" CRLF
               "x_under: 1" CRLF "Expect: 100-Continue" CRLF
               "Connection: Foo, close" CRLF "Content-Length: 12" CRLF CRLF),
        false);

    ck_assert_str_eq(seen.path, "/a/b");
    ck_assert_str_eq(seen.query, "c=d&e");
    ck_assert_str_eq(seen.value, "a b");
    ck_assert(!seen.had_underscore);
    ck_assert(seen.head.expects_continue);
    ck_assert(!seen.head.keep_alive);
    ck_assert(!seen.head.upgrades);
    ck_assert_int_eq(seen.head.framing, BT_HTTP_LENGTH);
    ck_assert_uint_eq(seen.head.content_length, 12);
    ck_assert_uint_eq(seen.head.minor, 1);
}
END_TEST

START_TEST(an_answer_to_head_has_no_body)
{
    const struct seen seen = look(
        BT_HTTP_ANSWERS, BT_STR(OK200 "Content-Length: 5" CRLF CRLF), true);

    ck_assert_int_eq(seen.head.framing, BT_HTTP_NO_BODY);
    ck_assert_uint_eq(seen.head.content_length, 5);
    ck_assert_uint_eq(seen.ends, 1);
    ck_assert(seen.head.keep_alive);
}
END_TEST

START_TEST(upgrade_needs_both_fields)
{
    const struct seen both =
        look(BT_HTTP_REQUESTS,
             BT_STR("GET / HTTP/1.1" CRLF HOST "Connection: Upgrade" CRLF
                    "Upgrade: x" CRLF CRLF),
             false);
    const struct seen one =
        look(BT_HTTP_REQUESTS,
             BT_STR("GET / HTTP/1.1" CRLF HOST "Upgrade: x" CRLF CRLF), false);

    ck_assert(both.head.upgrades);
    ck_assert(!one.head.upgrades);
}
END_TEST

START_TEST(a_feed_stops_where_a_callback_says_so)
{
    const struct bt_str raw =
        BT_STR(POST "Content-Length: 4" CRLF CRLF "abcd" NEXT);
    struct seen seen = {.answer = false};
    struct bt_http_parser *parser =
        bt_http_parser_open(BT_HTTP_REQUESTS, &limits, &see, &seen);
    const size_t head = bt_str_find(raw, BT_STR("abcd"));
    size_t taken;

    ck_assert_ptr_nonnull(parser);
    ck_assert(!bt_http_parser_has_begun(parser));
    ck_assert_int_eq(bt_http_parser_feed(parser, raw, &taken), BT_OK);
    ck_assert_uint_eq(taken, head);
    ck_assert_uint_eq(seen.heads, 1);
    ck_assert(bt_http_parser_has_begun(parser));
    ck_assert_int_eq(
        bt_http_parser_feed(parser, bt_str_span(raw.ptr + head, 4), &taken),
        BT_OK);
    ck_assert_uint_eq(taken, 4);
    ck_assert_uint_eq(seen.ends, 0);
    ck_assert_int_eq(bt_http_parser_feed(parser, BT_STR(NEXT), &taken), BT_OK);
    ck_assert_uint_eq(taken, 0);
    ck_assert_uint_eq(seen.ends, 1);
    bt_http_parser_reset(parser, false);
    ck_assert_int_eq(bt_http_parser_feed(parser, BT_STR(NEXT), &taken), BT_OK);
    ck_assert_uint_eq(seen.heads, 2);
    bt_http_parser_close(&parser);
}
END_TEST

START_TEST(a_body_read_by_the_caller_ends_the_message)
{
    struct seen seen = {.answer = true};
    struct bt_http_parser *parser =
        bt_http_parser_open(BT_HTTP_REQUESTS, &limits, &see, &seen);
    size_t taken;

    ck_assert_ptr_nonnull(parser);
    ck_assert_int_eq(
        bt_http_parser_feed(
            parser, BT_STR(POST "Content-Length: 9" CRLF CRLF "ab"), &taken),
        BT_OK);
    ck_assert_uint_eq(seen.ends, 0);
    bt_http_parser_skip_body(parser);
    ck_assert_uint_eq(seen.ends, 1);
    ck_assert_int_eq(bt_http_parser_finish(parser), BT_OK);
    bt_http_parser_close(&parser);
}
END_TEST

START_TEST(a_second_answer_is_never_touched)
{
    const struct bt_str one = BT_STR(OK200 "Content-Length: 1" CRLF CRLF "x");
    const struct bt_str both =
        BT_STR(OK200 "Content-Length: 1" CRLF CRLF "x" OK200
                     "Content-Length: 1" CRLF CRLF "y");
    struct seen seen = {.answer = true};
    struct bt_http_parser *parser =
        bt_http_parser_open(BT_HTTP_ANSWERS, &limits, &see, &seen);
    size_t taken;

    ck_assert_ptr_nonnull(parser);
    ck_assert_int_eq(bt_http_parser_feed(parser, both, &taken), BT_OK);
    ck_assert_uint_eq(taken, one.len);
    ck_assert_uint_eq(seen.heads, 1);
    bt_http_parser_close(&parser);
}
END_TEST

HARNESS_MAIN("http_parse", requests_are_refused_or_taken_by_the_rules,
             answers_are_refused_or_taken_by_the_rules,
             messages_cut_by_a_close_are_incomplete,
             bytes_that_begin_no_request_are_not_waited_for,
             a_target_beyond_its_limit_is_414, a_head_beyond_its_limits_is_431,
             chunk_extensions_are_bounded, trailers_are_bounded,
             a_request_head_tells_path_query_and_wishes,
             an_answer_to_head_has_no_body, upgrade_needs_both_fields,
             a_feed_stops_where_a_callback_says_so,
             a_body_read_by_the_caller_ends_the_message,
             a_second_answer_is_never_touched)
