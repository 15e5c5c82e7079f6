/*
 * The bytes of one request.
 */
#include "bench/load/load_request.h"
#include "common/json/json.h"
#include "tests/support/harness.h"

#include <stdio.h>
#include <string.h>

static const struct workload_plan plan = {.seed = 3};
static const struct workload_item item = {
    .index = 7, .input_tokens = 5, .output_tokens = 9};
static struct request_form form;
static struct client_message message;
static char prompt[5 * WORKLOAD_TOKEN_BYTES + 1];

static void set_up(void)
{
    struct bt_buf words = {0};

    form = (struct request_form){.endpoint = OPTIONS_CHAT,
                                 .wants_stream = true,
                                 .model = "m",
                                 .authority = "h:1"};
    workload_prompt(&plan, &item, &words);
    bt_str_copy(prompt, sizeof(prompt), bt_buf_str(&words));
    bt_buf_fini(&words);
}

static void tear_down(void)
{
    client_message_fini(&message);
}

static void write_message(void)
{
    client_message_fini(&message);
    ck_assert(request_write(&form, &plan, &item, &message));
}

/* The body is this, the prompt, that. */
static void expect_body(const char *before, const char *after)
{
    char wanted[400];

    (void)snprintf(wanted, sizeof(wanted), "%s%s%s", before, prompt, after);
    write_message();
    ck_assert_msg(bt_str_eq(bt_buf_str(&message.body), bt_str_of(wanted)),
                  "%.*s", BT_STR_ARG(bt_buf_str(&message.body)));
    ck_assert_int_eq(bt_json_check(bt_buf_str(&message.body),
                                   &(struct bt_json_value){0}, NULL),
                     BT_OK);
}

/* The head is this and the length of the body. */
static void expect_head(const char *before)
{
    char wanted[400];

    write_message();
    (void)snprintf(wanted, sizeof(wanted), "%sContent-Length: %zu\r\n\r\n",
                   before, message.body.len);
    ck_assert_msg(bt_str_eq(bt_buf_str(&message.head), bt_str_of(wanted)),
                  "%.*s", BT_STR_ARG(bt_buf_str(&message.head)));
}

START_TEST(a_streamed_chat_asks_for_its_usage)
{
    expect_head("POST /v1/chat/completions HTTP/1.1\r\nHost: h:1\r\n"
                "Content-Type: application/json\r\n"
                "Accept: text/event-stream\r\n");
    expect_body("{\"model\":\"m\",\"stream\":true,\"stream_options\":"
                "{\"include_usage\":true},\"messages\":[{\"role\":\"user\","
                "\"content\":\"",
                "\"}],\"max_tokens\":9,\"temperature\":0}");
}
END_TEST

START_TEST(a_completion_that_is_not_streamed_asks_for_json)
{
    form.endpoint = OPTIONS_COMPLETIONS;
    form.wants_stream = false;
    form.ignore_eos = true;
    expect_head("POST /v1/completions HTTP/1.1\r\nHost: h:1\r\n"
                "Content-Type: application/json\r\n"
                "Accept: application/json\r\n");
    expect_body("{\"model\":\"m\",\"prompt\":\"",
                "\",\"max_tokens\":9,"
                "\"temperature\":0,\"ignore_eos\":true}");
}
END_TEST

START_TEST(a_key_is_sent_as_a_bearer)
{
    form.bearer = "secret";
    expect_head("POST /v1/chat/completions HTTP/1.1\r\nHost: h:1\r\n"
                "Authorization: Bearer secret\r\n"
                "Content-Type: application/json\r\n"
                "Accept: text/event-stream\r\n");
}
END_TEST

START_TEST(a_name_of_a_model_needs_no_care)
{
    form.model = "a \"b\"\\";
    write_message();
    ck_assert(bt_str_starts(bt_buf_str(&message.body),
                            BT_STR("{\"model\":\"a \\\"b\\\"\\\\\",")));
}
END_TEST

START_TEST(a_given_body_is_sent_byte_for_byte)
{
    form.body = BT_STR("{ \"prompt\" : \"x\" }\n");
    write_message();
    ck_assert(bt_str_eq(bt_buf_str(&message.body), form.body));
    ck_assert_uint_lt(bt_str_find(bt_buf_str(&message.head),
                                  BT_STR("\r\nContent-Length: 19\r\n")),
                      message.head.len);
}
END_TEST

HARNESS_MAIN_WITH("load_request", set_up, tear_down,
                  a_streamed_chat_asks_for_its_usage,
                  a_completion_that_is_not_streamed_asks_for_json,
                  a_key_is_sent_as_a_bearer, a_name_of_a_model_needs_no_care,
                  a_given_body_is_sent_byte_for_byte)
