/*
 * stub-engine: a pair's engine that computes nothing, to measure what stands
 * before it. All answers are made before the first request.
 *
 *     --role prefill   one token and kv_transfer_params of the nixl shape
 *     --role decode    64 tokens: a JSON text of about 0.7 KiB, or 64 events
 *                      with usage and [DONE], each its own chunk, all in one
 *                      write, when the body asks for a stream
 *
 * A body asks for a stream when "stream":true stands in its first 512 bytes.
 */
#include "common/base/log.h"
#include "common/http/http_parse.h"
#include "common/io/loop.h"
#include "common/io/net.h"
#include "common/io/stream.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOKENS    64
#define SIGHT_MAX 512 /* bytes of a body that are looked at */

struct stub {
    struct bt_loop *loop;
    struct bt_watch *accepting;
    struct bt_watch *terminate;
    int fd;
    bool is_prefill;
    struct bt_buf json; /* whole messages, head included */
    struct bt_buf events;
    struct bt_buf health;
    struct bt_buf models;
    LIST_HEAD(, conn) conns;
    bool is_over;
};

struct conn {
    struct stub *stub;
    struct bt_stream *stream;
    struct bt_http_parser *parser;
    struct bt_grave grave;
    LIST_ENTRY(conn) entry;
    char sight[SIGHT_MAX];
    size_t seen;
    bool is_post;
    bool is_models;
    bool is_answered;
};

/* --- answers --- */

static void add_message(struct bt_buf *out, const char *type,
                        const struct bt_buf *body)
{
    bt_buf_printf(out,
                  "HTTP/1.1 200 OK\r\nserver: stub\r\ncontent-type: %s\r\n"
                  "content-length: %zu\r\n\r\n",
                  type, body->len);
    bt_buf_append(out, bt_buf_str(body));
}

static void make_prefill(struct bt_buf *out)
{
    struct bt_buf body = {0};

    bt_buf_append(
        &body,
        BT_STR(
            "{\"id\":\"chatcmpl-stub\",\"object\":\"chat.completion\","
            "\"created\":1700000000,\"model\":\"stub\",\"choices\":[{"
            "\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
            "\"word\"},\"finish_reason\":\"length\"}],\"usage\":{"
            "\"prompt_tokens\":512,\"total_tokens\":513,"
            "\"completion_tokens\":1},\"kv_transfer_params\":{"
            "\"do_remote_prefill\":true,\"do_remote_decode\":false,"
            "\"remote_engine_id\":\"stub-prefill\",\"remote_block_ids\":[["));
    for (int block = 1000; block < 1032; block++) {
        bt_buf_printf(&body, "%s%d", block == 1000 ? "" : ",", block);
    }
    bt_buf_append(&body, BT_STR("]],\"remote_host\":\"127.0.0.1\","
                                "\"remote_port\":10001,\"tp_size\":1,"
                                "\"remote_request_id\":\"stub-1\"}}"));
    add_message(out, "application/json", &body);
    bt_buf_fini(&body);
}

static void make_json(struct bt_buf *out)
{
    struct bt_buf body = {0};

    bt_buf_append(
        &body,
        BT_STR("{\"id\":\"chatcmpl-stub\",\"object\":\"chat.completion\","
               "\"created\":1700000000,\"model\":\"stub\",\"choices\":[{"
               "\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
               "\""));
    for (int token = 0; token < TOKENS; token++) {
        bt_buf_append(&body, token == 0 ? BT_STR("some") : BT_STR(" word"));
    }
    bt_buf_append(&body,
                  BT_STR("\",\"tool_calls\":[]},\"logprobs\":null,"
                         "\"finish_reason\":\"length\",\"stop_reason\":null}],"
                         "\"usage\":{\"prompt_tokens\":512,\"total_tokens\":"
                         "576,\"completion_tokens\":64},"
                         "\"kv_transfer_params\":null}"));
    add_message(out, "application/json", &body);
    bt_buf_fini(&body);
}

static void add_chunk(struct bt_buf *out, struct bt_buf *event)
{
    bt_buf_printf(out, "%zx\r\n", event->len);
    bt_buf_append(out, bt_buf_str(event));
    bt_buf_append(out, BT_STR("\r\n"));
    bt_buf_clear(event);
}

static void make_events(struct bt_buf *out)
{
    struct bt_buf event = {0};

    bt_buf_append(out,
                  BT_STR("HTTP/1.1 200 OK\r\nserver: stub\r\ncontent-type: "
                         "text/event-stream; charset=utf-8\r\n"
                         "transfer-encoding: chunked\r\n\r\n"));
    for (int token = 0; token < TOKENS; token++) {
        bt_buf_printf(&event,
                      "data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":"
                      "\"chat.completion.chunk\",\"created\":1700000000,"
                      "\"model\":\"stub\",\"choices\":[{\"index\":0,\"delta\":{"
                      "\"content\":\" word%d\"},\"logprobs\":null,"
                      "\"finish_reason\":%s,\"token_ids\":null}]}\n\n",
                      token, token == TOKENS - 1 ? "\"length\"" : "null");
        add_chunk(out, &event);
    }
    bt_buf_append(&event,
                  BT_STR("data: {\"id\":\"chatcmpl-0123456789abcdef\","
                         "\"object\":\"chat.completion.chunk\",\"created\":"
                         "1700000000,\"model\":\"stub\",\"choices\":[],"
                         "\"usage\":{\"prompt_tokens\":512,\"total_tokens\":"
                         "576,\"completion_tokens\":64}}\n\n"));
    add_chunk(out, &event);
    bt_buf_append(&event, BT_STR("data: [DONE]\n\n"));
    add_chunk(out, &event);
    bt_buf_append(out, BT_STR("0\r\n\r\n"));
    bt_buf_fini(&event);
}

static bool make_answers(struct stub *stub)
{
    struct bt_buf body = {0};

    add_message(&stub->health, "text/plain", &body);
    bt_buf_append(&body, BT_STR("{\"object\":\"list\",\"data\":[{\"id\":"
                                "\"stub\",\"object\":\"model\"}]}"));
    add_message(&stub->models, "application/json", &body);
    bt_buf_fini(&body);
    if (stub->is_prefill) {
        make_prefill(&stub->json);
    } else {
        make_json(&stub->json);
        make_events(&stub->events);
    }
    return !stub->health.failed && !stub->models.failed && !stub->json.failed &&
           !stub->events.failed;
}

/* --- connections --- */

static void destroy(struct bt_grave *grave)
{
    struct conn *conn = bt_container_of(grave, struct conn, grave);

    bt_http_parser_close(&conn->parser);
    free(conn);
}

static void close_conn(struct conn *conn)
{
    LIST_REMOVE(conn, entry);
    bt_stream_close(&conn->stream);
    bt_loop_bury(conn->stub->loop, &conn->grave, destroy);
}

static const struct bt_buf *answer_of(const struct conn *conn)
{
    const struct stub *stub = conn->stub;
    const struct bt_str sight = bt_str_span(conn->sight, conn->seen);

    if (!conn->is_post) {
        return conn->is_models ? &stub->models : &stub->health;
    }
    if (!stub->is_prefill &&
        bt_str_find(sight, BT_STR("\"stream\":true")) < sight.len) {
        return &stub->events;
    }
    return &stub->json;
}

static bool on_head(void *owner, const struct bt_http_head *head)
{
    struct conn *conn = owner;

    conn->is_post = bt_str_eq(head->method, BT_STR("POST"));
    conn->is_models = bt_str_eq(head->path, BT_STR("/v1/models"));
    conn->seen = 0;
    return true;
}

static bool on_body(void *owner, struct bt_str bytes)
{
    struct conn *conn = owner;
    const size_t room = SIGHT_MAX - conn->seen;
    const size_t size = bytes.len < room ? bytes.len : room;

    memcpy(conn->sight + conn->seen, bytes.ptr, size);
    conn->seen += size;
    return true;
}

static bool on_end(void *owner)
{
    struct conn *conn = owner;

    conn->is_answered = true;
    return true;
}

static const struct bt_http_parse_events parse_events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
};

static void on_bytes(void *owner, struct bt_str bytes)
{
    struct conn *conn = owner;
    size_t taken = 0;

    while (bytes.len > 0) {
        if (bt_http_parser_feed(conn->parser, bytes, &taken) != BT_OK) {
            close_conn(conn);
            return;
        }
        bytes = bt_str_span(bytes.ptr + taken, bytes.len - taken);
        if (!conn->is_answered) {
            continue;
        }
        conn->is_answered = false;
        bt_http_parser_reset(conn->parser, false);
        (void)bt_stream_write(conn->stream, bt_buf_str(answer_of(conn)));
    }
}

static void on_eof(void *owner)
{
    close_conn(owner);
}

static void on_failed(void *owner, enum bt_status status, int error)
{
    (void)status;
    (void)error;
    close_conn(owner);
}

static void on_ready(void *owner)
{
    (void)owner;
}

static const struct bt_stream_events stream_events = {
    .on_connected = on_ready,
    .on_bytes = on_bytes,
    .on_eof = on_eof,
    .on_room = on_ready,
    .on_flushed = on_ready,
    .on_failed = on_failed,
};

static void open_conn(struct stub *stub, int fd)
{
    static const struct bt_http_parse_limits limits = {
        .head_bytes = 32 * BT_KIB, .target_bytes = 8192, .fields = 100};
    static const struct bt_stream_options options = {.high_water = 64 * BT_MIB};
    struct conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        (void)close(fd);
        return;
    }
    conn->stub = stub;
    conn->parser =
        bt_http_parser_open(BT_HTTP_REQUESTS, &limits, &parse_events, conn);
    if (conn->parser == NULL) {
        (void)close(fd);
        free(conn);
        return;
    }
    if (bt_stream_open(stub->loop, fd, &options, &stream_events, conn,
                       &conn->stream) != BT_OK) {
        bt_http_parser_close(&conn->parser);
        free(conn);
        return;
    }
    LIST_INSERT_HEAD(&stub->conns, conn, entry);
}

static void on_acceptable(void *owner)
{
    struct stub *stub = owner;

    for (;;) {
        const int fd =
            accept4(stub->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            return;
        }
        open_conn(stub, fd);
    }
}

static void on_signal(void *owner, int signal_number)
{
    struct stub *stub = owner;

    (void)signal_number;
    stub->is_over = true;
}

/* --- program --- */

static int complain(const char *what, const char *why)
{
    (void)fprintf(stderr, "stub-engine: %s: %s\n", what, why);
    return 1;
}

static bool open_listener(struct stub *stub, const char *address,
                          struct bt_addr *bound_p)
{
    struct bt_addr addr;

    return bt_addr_parse(address, &addr) == BT_OK &&
           bt_loop_open(&stub->loop) == BT_OK &&
           bt_listen(&addr, false, &stub->fd) == BT_OK &&
           bt_addr_of_fd(stub->fd, bound_p) == BT_OK &&
           bt_watch_open(stub->loop, stub->fd, on_acceptable, stub,
                         &stub->accepting) == BT_OK &&
           bt_signal_open(stub->loop, SIGTERM, on_signal, stub,
                          &stub->terminate) == BT_OK;
}

static void fini(struct stub *stub)
{
    while (!LIST_EMPTY(&stub->conns)) {
        close_conn(LIST_FIRST(&stub->conns));
    }
    if (stub->loop != NULL) {
        bt_loop_turn(stub->loop, 0);
    }
    bt_watch_close(&stub->accepting);
    bt_watch_close(&stub->terminate);
    bt_loop_close(&stub->loop);
    if (stub->fd >= 0) {
        (void)close(stub->fd);
    }
    bt_buf_fini(&stub->json);
    bt_buf_fini(&stub->events);
    bt_buf_fini(&stub->health);
    bt_buf_fini(&stub->models);
}

static int serve(struct stub *stub, const char *address)
{
    struct bt_addr bound;
    char text[BT_ADDR_TEXT_MAX];

    if (!make_answers(stub)) {
        return complain("start", "out of memory");
    }
    if (!open_listener(stub, address, &bound)) {
        return complain(address, "cannot listen there");
    }
    bt_addr_format(&bound, text);
    (void)fprintf(stderr, "stub-engine: ready on %s\n", text);
    while (!stub->is_over) {
        bt_loop_turn(stub->loop, -1);
    }
    return 0;
}

static int usage(void)
{
    (void)fputs("usage: stub-engine --listen ADDR --role prefill|decode\n",
                stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct stub stub;
    const char *address = NULL;
    const char *role = NULL;
    int code;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--listen") == 0) {
            address = argv[i + 1];
        } else if (strcmp(argv[i], "--role") == 0) {
            role = argv[i + 1];
        } else {
            return usage();
        }
    }
    if (argc != 5 || address == NULL || role == NULL ||
        (strcmp(role, "prefill") != 0 && strcmp(role, "decode") != 0)) {
        return usage();
    }
    memset(&stub, 0, sizeof(stub));
    stub.fd = -1;
    stub.is_prefill = strcmp(role, "prefill") == 0;
    (void)signal(SIGPIPE, SIG_IGN);
    code = serve(&stub, address);
    fini(&stub);
    return code;
}
