/*
 * micro-json: nanoseconds a byte for editing one chat body, three ways:
 *
 *     copy      memcpy of the body: the least that touching it costs
 *     splice    one validating pass, three members changed, written as spans
 *     jansson   parsed to a tree, three members changed, printed again
 *
 * The body is a chat request with one long text, or with many short messages.
 */
#include "common/base/str.h"
#include "common/json/json_splice.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS      9
#define ROUND_BYTES (64 * BT_MIB)
#define ADDED       "\"kv_transfer_params\":{\"do_remote_decode\":true}"

enum json_way {
    WAY_COPY,
    WAY_SPLICE,
    WAY_JANSSON,
};
#define WAYS 3

static const char *const way_names[WAYS] = {"copy", "splice", "jansson"};

struct body {
    const char *name;
    struct bt_buf text;
    char *room; /* as long as the text */
};

static void make_long(struct bt_buf *out, size_t bytes)
{
    bt_buf_append(out, BT_STR("{\"model\":\"m\",\"stream\":true,\"max_tokens\":"
                              "64,\"messages\":[{\"role\":\"user\","
                              "\"content\":\""));
    while (out->len + 16 < bytes) {
        bt_buf_append(out, BT_STR("all of the words "));
    }
    bt_buf_append(out, BT_STR("\"}]}"));
}

static void make_many(struct bt_buf *out, size_t bytes)
{
    bt_buf_append(out, BT_STR("{\"model\":\"m\",\"stream\":true,\"max_tokens\":"
                              "64,\"messages\":[{\"role\":\"system\","
                              "\"content\":\"be \\\"kind\\\"\"}"));
    while (out->len + 96 < bytes) {
        bt_buf_append(out, BT_STR(",{\"role\":\"user\",\"content\":\"a line\\n"
                                  "and \\u00e9\",\"n\":[1,2.5e3,null,true]}"));
    }
    bt_buf_append(out, BT_STR("]}"));
}

/* Each way says how long its result is: 0 is a failure. */

static size_t edit_copy(struct body *body)
{
    memcpy(body->room, bt_buf_str(&body->text).ptr, body->text.len);
    return body->text.len + (size_t)(body->room[body->text.len / 2] == 0);
}

static void edit_member(struct bt_json_level *level,
                        struct bt_json_splice *splice,
                        const struct bt_json_member *member)
{
    if (bt_json_name_is(member->name, BT_STR("stream"))) {
        bt_json_level_set(level, splice, member, BT_STR("false"));
    } else if (bt_json_name_is(member->name, BT_STR("max_tokens"))) {
        bt_json_level_set(level, splice, member, BT_STR("1"));
    } else {
        bt_json_level_keep(level, splice, member);
    }
}

static size_t edit_splice(struct body *body)
{
    const struct bt_str text = bt_buf_str(&body->text);
    struct bt_arena arena;
    struct bt_json_splice splice;
    struct bt_json_level level;
    struct bt_json_iter it;
    struct bt_json_member member;
    size_t length = 0;

    bt_arena_init(&arena);
    bt_json_splice_init(&splice, &arena, text);
    bt_json_level_open(&level, text);
    bt_json_iter_object(&it, text);
    while (bt_json_next_member(&it, &member)) {
        edit_member(&level, &splice, &member);
    }
    if (bt_json_iter_end(&it) == BT_OK) {
        bt_json_level_close(&level, &splice, text.ptr + text.len - 1,
                            BT_STR(ADDED));
        length = splice.failed ? 0 : bt_json_splice_len(&splice);
    }
    bt_arena_fini(&arena);
    return length;
}

static size_t edit_jansson(struct body *body)
{
    const struct bt_str text = bt_buf_str(&body->text);
    json_t *root = json_loadb(text.ptr, text.len, 0, NULL);
    char *printed;
    size_t length;

    if (root == NULL) {
        return 0;
    }
    (void)json_object_set_new(root, "stream", json_false());
    (void)json_object_set_new(root, "max_tokens", json_integer(1));
    (void)json_object_set_new(root, "kv_transfer_params",
                              json_pack("{s:b}", "do_remote_decode", 1));
    printed = json_dumps(root, JSON_COMPACT);
    length = printed == NULL ? 0 : strlen(printed);
    free(printed);
    json_decref(root);
    return length;
}

static size_t edit_by(struct body *body, enum json_way way)
{
    switch (way) {
    case WAY_COPY:
        return edit_copy(body);
    case WAY_SPLICE:
        return edit_splice(body);
    case WAY_JANSSON:
        return edit_jansson(body);
    }
    return 0;
}

static double now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ns a byte of one round; negative when the edit fails. */
static double time_way(struct body *body, enum json_way way)
{
    const size_t repeats =
        ROUND_BYTES / body->text.len / (way == WAY_JANSSON ? 8 : 1) + 1;
    const double from_ns = now_ns();

    for (size_t i = 0; i < repeats; i++) {
        if (edit_by(body, way) == 0) {
            return -1.0;
        }
    }
    return (now_ns() - from_ns) / (double)repeats / (double)body->text.len;
}

static int by_value(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* One figure for each way, in turn. */
static bool run_round(struct body *body, double ns[WAYS][ROUNDS], size_t round)
{
    for (unsigned way = 0; way < WAYS; way++) {
        ns[way][round] = time_way(body, (enum json_way)way);
        if (ns[way][round] < 0.0) {
            return false;
        }
    }
    return true;
}

static bool run_body(struct body *body)
{
    double ns[WAYS][ROUNDS];

    for (size_t round = 0; round < ROUNDS; round++) {
        if (!run_round(body, ns, round)) {
            return false;
        }
    }
    printf("| %s, %zu bytes |", body->name, body->text.len);
    for (unsigned way = 0; way < WAYS; way++) {
        qsort(ns[way], ROUNDS, sizeof(ns[way][0]), by_value);
        printf(" %.3f (%.3f–%.3f) |", ns[way][ROUNDS / 2], ns[way][0],
               ns[way][ROUNDS - 1]);
    }
    printf(" %.0f |\n",
           ns[WAY_JANSSON][ROUNDS / 2] / ns[WAY_SPLICE][ROUNDS / 2]);
    return true;
}

static bool run_one(const char *name, void (*make)(struct bt_buf *, size_t),
                    size_t bytes)
{
    struct body body = {.name = name};
    bool done = false;

    make(&body.text, bytes);
    body.room = calloc(1, body.text.len + 1);
    if (!body.text.failed && body.room != NULL) {
        done = run_body(&body);
    }
    free(body.room);
    bt_buf_fini(&body.text);
    return done;
}

int main(void)
{
    printf("| CPU ns/byte: median (min–max) |");
    for (unsigned way = 0; way < WAYS; way++) {
        printf(" %s |", way_names[way]);
    }
    printf(" jansson / splice |\n|---|---|---|---|---|\n");
    if (!run_one("one long text", make_long, 2 * BT_KIB) ||
        !run_one("one long text", make_long, 512 * BT_KIB) ||
        !run_one("many short messages", make_many, 512 * BT_KIB)) {
        (void)fputs("micro-json: an edit failed\n", stderr);
        return 1;
    }
    return 0;
}
