/*
 * Bytes as HTTP messages, in either role. The first byte chooses role and
 * splitting. Whatever the splits, the parser must give the same verdict and
 * the same bytes; and it must never use more than it was given.
 */
#include "common/base/buf.h"
#include "common/http/http_parse.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    struct bt_buf text;
    bool is_whole;
    bool keeps_alive;
    bool is_bad;
};

static void check(bool fact)
{
    if (!fact) {
        abort();
    }
}

static bool on_head(void *owner, const struct bt_http_head *head)
{
    struct run *run = owner;

    bt_buf_printf(&run->text, "%u %.*s %.*s %d\n", head->code,
                  BT_STR_ARG(head->method), BT_STR_ARG(head->path),
                  (int)head->framing);
    for (size_t i = 0; i < head->field_count; i++) {
        bt_buf_append(&run->text, head->fields[i].name);
        bt_buf_append(&run->text, BT_STR("="));
        bt_buf_append(&run->text, head->fields[i].value);
        bt_buf_append(&run->text, BT_STR("\n"));
    }
    run->keeps_alive = head->keep_alive;
    return true;
}

static bool on_body(void *owner, struct bt_str bytes)
{
    struct run *run = owner;

    bt_buf_append(&run->text, bytes);
    return true;
}

static bool on_end(void *owner)
{
    struct run *run = owner;

    run->is_whole = true;
    bt_buf_append(&run->text, BT_STR("|"));
    return false;
}

static const struct bt_http_parse_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
};

static bool feed_piece(struct bt_http_parser *parser, struct run *run,
                       struct bt_str piece)
{
    while (piece.len > 0) {
        size_t taken;

        if (bt_http_parser_feed(parser, piece, &taken) != BT_OK) {
            run->is_bad = true;
            return false;
        }
        check(taken <= piece.len);
        piece.ptr += taken;
        piece.len -= taken;
        if (!run->is_whole) {
            check(piece.len == 0);
            return true;
        }
        run->is_whole = false;
        if (!run->keeps_alive) {
            return false;
        }
        bt_http_parser_reset(parser, false);
    }
    return true;
}

static struct run feed(enum bt_http_role role, struct bt_str raw, size_t step)
{
    static const struct bt_http_parse_limits limits = {
        .head_bytes = 2048, .target_bytes = 256, .fields = 16};
    struct run run = {.is_bad = false};
    struct bt_http_parser *parser =
        bt_http_parser_open(role, &limits, &events, &run);
    bool goes_on = true;

    check(parser != NULL);
    while (raw.len > 0 && goes_on) {
        const size_t len = raw.len < step ? raw.len : step;
        char *copy = malloc(len); /* reads beyond it are seen */

        check(copy != NULL);
        memcpy(copy, raw.ptr, len);
        goes_on = feed_piece(parser, &run, bt_str_span(copy, len));
        free(copy);
        raw.ptr += len;
        raw.len -= len;
    }
    if (goes_on && bt_http_parser_finish(parser) != BT_OK) {
        bt_buf_append(&run.text, BT_STR("cut"));
    }
    bt_http_parser_close(&parser);
    return run;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum bt_http_role role;
    struct bt_str raw;
    struct run whole, parts;

    if (size < 1) {
        return 0;
    }
    role = (data[0] & 1) != 0 ? BT_HTTP_ANSWERS : BT_HTTP_REQUESTS;
    raw = bt_str_span((const char *)data + 1, size - 1);
    whole = feed(role, raw, size);
    parts = feed(role, raw, 1 + data[0] / 2 % 16);
    check(whole.is_bad == parts.is_bad);
    check(bt_str_eq(bt_buf_str(&whole.text), bt_buf_str(&parts.text)));
    bt_buf_fini(&whole.text);
    bt_buf_fini(&parts.text);
    return 0;
}
