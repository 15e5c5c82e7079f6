/*
 * The endpoints, over a loopback connection and an agent library inside the
 * process.
 */
#include "agent/engine/serve/api.h"
#include "tests/support/harness.h"
#include "tests/unit/fake_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEX "00000000000000010000000000000002"

/* Made anew for each test. */
static struct {
    struct eng_options options;
    struct bt_loop *loop;
    struct eng_model model;
    struct kv *kv;
    struct faults faults;
    struct sched *sched;
    struct eng_handoff *handoff;
    struct exchange_env env;
    struct api *api;
    struct bt_addr addr;
    struct bt_buf answer; /* of the last call: head and body */
} world;

static void on_room(void *owner)
{
    (void)owner;
    sched_kick(world.sched);
}

static const struct handoff_events HANDOFF_EVENTS = {.on_room = on_room};

static void open_agents(void)
{
    struct handoff_options handoff = {.loop = world.loop,
                                      .kv = world.kv,
                                      .agent = baton_options_preset(),
                                      .tp = 1};
    const char *why = "";

    handoff.agent.engine = "e";
    ck_assert_int_eq(
        handoff_open(&handoff, &HANDOFF_EVENTS, NULL, &world.handoff, &why),
        BT_OK);
    sched_set_handoff(world.sched, world.handoff);
}

static void open_world(int argc, char **argv)
{
    struct kv_options kv = {.model = &world.model, .tp = 1};
    struct sched_options sched = {.faults = &world.faults,
                                  .step_tokens = 64,
                                  .max_running = 8,
                                  .max_waiting = 8};
    struct api_options api = {.env = &world.env};
    int listener;

    memset(&world, 0, sizeof(world));
    fake_agent_reset();
    ck_assert_int_eq(options_read(argc, argv, &world.options), BT_CONF_RUN);
    ck_assert_int_eq(bt_loop_open(&world.loop), BT_OK);
    ck_assert_int_eq(options_model(&world.options, &world.model), BT_OK);
    kv.blocks = (uint32_t)world.options.blocks;
    kv.block_tokens = (uint32_t)world.options.block_size;
    ck_assert_int_eq(kv_open(&kv, &world.kv), BT_OK);
    sched.loop = world.loop;
    sched.kv = world.kv;
    ck_assert_int_eq(sched_open(&sched, &world.sched), BT_OK);
    open_agents();
    world.env = (struct exchange_env){.loop = world.loop,
                                      .options = &world.options,
                                      .sched = world.sched,
                                      .faults = &world.faults,
                                      .context_tokens = 256,
                                      .url = "http://127.0.0.1:8000",
                                      .engine_id = "e"};
    ck_assert_int_eq(bt_addr_parse("127.0.0.1:0", &world.addr), BT_OK);
    ck_assert_int_eq(bt_listen(&world.addr, false, &listener), BT_OK);
    ck_assert_int_eq(bt_addr_of_fd(listener, &world.addr), BT_OK);
    api.kv = world.kv;
    api.handoff = world.handoff;
    api.listener = listener;
    ck_assert_int_eq(api_open(&api, &world.api), BT_OK);
}

static void set_up(void)
{
    char *args[] = {(char[]){"baton-engine"}, (char[]){"--blocks=32"},
                    (char[]){"--block-size=8"}, (char[]){"--admin-faults"},
                    NULL};

    open_world(4, args);
}

static void tear_down(void)
{
    api_close(&world.api);
    handoff_close(&world.handoff);
    sched_close(&world.sched);
    bt_loop_close(&world.loop);
    kv_close(&world.kv);
    options_fini(&world.options);
    bt_buf_fini(&world.answer);
}

/* --- a client --- */

static int dial(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(
        connect(fd, (const struct sockaddr *)&world.addr.sa, world.addr.len),
        0);
    ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static void post(int fd, const char *path, const char *body)
{
    char request[4096];
    const int length =
        snprintf(request, sizeof(request),
                 "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                 "X-Request-Id: r1\r\nContent-Length: %zu\r\n\r\n%s",
                 path, strlen(body), body);

    ck_assert_int_eq(send(fd, request, (size_t)length, 0), length);
}

static bool read_some(int fd)
{
    char bytes[4096];
    const ssize_t size = recv(fd, bytes, sizeof(bytes), 0);

    if (size > 0) {
        bt_buf_append(&world.answer, bt_str_span(bytes, (size_t)size));
    }
    return size > 0 || (size < 0 && errno == EAGAIN);
}

/* Until the engine closes; the whole answer. */
static const char *finish(int fd)
{
    bt_buf_clear(&world.answer);
    for (unsigned i = 0; i < 5000 && read_some(fd); i++) {
        bt_loop_turn(world.loop, 1);
    }
    ck_assert(!read_some(fd));
    (void)close(fd);
    bt_buf_append_char(&world.answer, '\0');
    return bt_buf_str(&world.answer).ptr;
}

static const char *call(const char *path, const char *body)
{
    const int fd = dial();

    post(fd, path, body);
    return finish(fd);
}

static const char *get(const char *path)
{
    const int fd = dial();
    char request[256];
    const int length = snprintf(request, sizeof(request),
                                "GET %s HTTP/1.1\r\nHost: x\r\n"
                                "Connection: close\r\n\r\n",
                                path);

    ck_assert_int_eq(send(fd, request, (size_t)length, 0), length);
    return finish(fd);
}

static void turn(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        bt_loop_turn(world.loop, 1);
    }
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        ck_abort_msg("no %s in: %s", part, text);
    }
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;

    for (; (text = strstr(text, part)) != NULL; text++) {
        count++;
    }
    return count;
}

/* "text":"…" as the model's own function says, for a completion. */
static void expect_text(const char *prompt, size_t words, char *out, size_t cap)
{
    uint32_t ids[64];
    struct model_ask ask = {.prompt = ids,
                            .prompt_tokens =
                                model_token_count(bt_str_of(prompt)),
                            .max_tokens = words,
                            .ignore_eos = true};
    struct model_result result;
    struct bt_buf text = {0};

    model_tokenize(bt_str_of(prompt), ids);
    bt_buf_append(&text, BT_STR("\"text\":\""));
    ck_assert_int_eq(model_answer(&world.model, &ask, &text, &result), BT_OK);
    bt_buf_append(&text, BT_STR("\"\0"));
    ck_assert_uint_le(text.len, cap);
    memcpy(out, bt_buf_str(&text).ptr, text.len);
    bt_buf_fini(&text);
}

/* --- tests --- */

START_TEST(answers_a_completion_with_the_models_text_and_usage)
{
    char text[512];
    const char *answer;

    expect_text("Hello, world!", 7, text, sizeof(text));
    answer = call("/v1/completions", "{\"model\":\"baton\",\"prompt\":\"Hello, "
                                     "world!\",\"max_tokens\":7,"
                                     "\"ignore_eos\":true}");
    assert_has(answer, "HTTP/1.1 200 OK");
    assert_has(answer, "\"id\":\"cmpl-r1\"");
    assert_has(answer, text);
    assert_has(answer, "\"finish_reason\":\"length\"");
    assert_has(answer, "\"prompt_tokens\":4,\"total_tokens\":11,"
                       "\"completion_tokens\":7");
    assert_has(answer, "\"kv_transfer_params\":null");
}
END_TEST

START_TEST(streams_one_event_a_word_then_usage_and_the_end_marker)
{
    const char *const answer =
        call("/v1/chat/completions",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
             "\"max_tokens\":5,\"ignore_eos\":true,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true}}");

    assert_has(answer, "Content-Type: text/event-stream");
    assert_has(answer, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    ck_assert_uint_eq(count_of(answer, "\"delta\":{\"content\":"), 5);
    ck_assert_uint_eq(count_of(answer, "\"finish_reason\":\"length\""), 1);
    assert_has(answer, "\"choices\":[],\"usage\":{\"prompt_tokens\":7");
    assert_has(answer, "data: [DONE]\n\n");
}
END_TEST

START_TEST(gives_each_choice_a_text_of_its_own)
{
    const char *const answer =
        call("/v1/completions",
             "{\"prompt\":[\"aaaa\",\"bbbb\"],\"n\":2,\"max_tokens\":3}");

    assert_has(answer, "\"index\":0");
    assert_has(answer, "\"index\":3");
    ck_assert_uint_eq(count_of(answer, "\"text\":"), 4);
    assert_has(answer, "\"prompt_tokens\":2,");
}
END_TEST

/* The stop string is a piece of the right text that spans two words. */
START_TEST(cuts_the_text_before_a_stop_string)
{
    char text[512];
    char body[256];
    char stop[4] = {0};
    const char *blank;
    const char *answer;

    expect_text("abcd", 9, text, sizeof(text));
    blank = strchr(text, ' ');
    ck_assert_ptr_nonnull(blank);
    memcpy(stop, blank - 1, 3);
    for (int is_stream = 0; is_stream < 2; is_stream++) {
        (void)snprintf(body, sizeof(body),
                       "{\"prompt\":\"abcd\",\"max_tokens\":9,\"stop\":\"%s\","
                       "\"ignore_eos\":true,\"stream\":%s}",
                       stop, is_stream ? "true" : "false");
        answer = call("/v1/completions", body);
        assert_has(answer, "\"finish_reason\":\"stop\"");
        ck_assert_uint_eq(count_of(answer, stop), 1);
        ck_assert_ptr_nonnull(strstr(answer, "\"stop_reason\":\""));
    }
}
END_TEST

START_TEST(refuses_in_the_shape_of_the_api)
{
    assert_has(get("/nothing"), "HTTP/1.1 404");
    assert_has(get("/v1/completions"), "HTTP/1.1 405");
    assert_has(call("/v1/completions", "{"), "HTTP/1.1 400");
    assert_has(call("/v1/completions", "{"),
               "\"type\":\"BadRequestError\",\"param\":null,\"code\":400}}");
    assert_has(call("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":300}"),
               "This model's maximum context length is 256 tokens.");
}
END_TEST

START_TEST(lists_its_model_and_its_health)
{
    assert_has(get("/v1/models"), "\"id\":\"baton\"");
    assert_has(get("/v1/models/baton"), "\"max_model_len\":256");
    assert_has(get("/v1/models/other"), "HTTP/1.1 404");
    assert_has(get("/health"), "HTTP/1.1 200");
    assert_has(get("/metrics"), "baton_engine_blocks{state=\"free\"} 32\n");
    assert_has(get("/admin/state"), "\"blocks\":{\"total\":32");
}
END_TEST

START_TEST(turns_text_into_tokens_and_back)
{
    assert_has(call("/tokenize", "{\"prompt\":\"abcdefghi\"}"),
               "{\"count\":3,\"max_model_len\":256,\"tokens\":[1684234849,");
    assert_has(call("/detokenize", "{\"tokens\":[1684234849,105]}"),
               "{\"prompt\":\"abcdi\"}");
}
END_TEST

/* Takes the kv_transfer_params out of the last answer. */
static void copy_params(char *out, size_t cap)
{
    const char *const begin =
        strstr(world.answer.data, "\"kv_transfer_params\":");
    const char *const end =
        strstr(world.answer.data, ",\"ec_transfer_params\"");

    ck_assert_ptr_nonnull(begin);
    ck_assert_ptr_nonnull(end);
    ck_assert_uint_lt((size_t)(end - begin), cap);
    memcpy(out, begin, (size_t)(end - begin));
    out[end - begin] = '\0';
}

START_TEST(hands_a_prompt_over_and_answers_as_alone)
{
    char text[512];
    char params[1024];
    char body[2048];

    expect_text("a prompt of several blocks, not just one of them", 6, text,
                sizeof(text));
    assert_has(call("/v1/completions",
                    "{\"prompt\":\"a prompt of several blocks, not just one of "
                    "them\",\"max_tokens\":1,\"kv_transfer_params\":"
                    "{\"do_remote_decode\":true,\"do_remote_prefill\":false,"
                    "\"baton\":{\"v\":1,\"handoff\":\"" HEX
                    "\",\"proxy\":\"1\"}}}"),
               "\"baton\":{\"v\":1,\"handoff\":\"" HEX "\"");
    copy_params(params, sizeof(params));
    ck_assert_uint_eq(kv_counts(world.kv).held, 2);
    (void)snprintf(body, sizeof(body),
                   "{\"prompt\":\"a prompt of several blocks, not just one of "
                   "them\",\"max_tokens\":6,\"ignore_eos\":true,%s}",
                   params);
    assert_has(call("/v1/completions", body), text);
    fake_agent_release((baton_id){.hi = 1, .lo = 2}, BATON_REASON_PULLED);
    turn(5);
    ck_assert_uint_eq(kv_counts(world.kv).held, 0);
}
END_TEST

static const char LOST[] =
    "\"kv_transfer_params\":{\"do_remote_prefill\":true,\"baton\":{\"v\":1,"
    "\"handoff\":\"" HEX "\",\"engine\":\"e\",\"tokens\":1,\"blocks\":[[3]]}}";

START_TEST(tells_a_failed_load_as_500_and_in_a_stream_as_an_error_event)
{
    char body[1024];
    const char *answer;

    (void)snprintf(body, sizeof(body), "{\"prompt\":\"a\",%s}", LOST);
    answer = call("/v1/completions", body);
    assert_has(answer, "HTTP/1.1 500");
    assert_has(answer, "\"type\":\"InternalServerError\"");
    (void)snprintf(body, sizeof(body), "{\"prompt\":\"a\",\"stream\":true,%s}",
                   LOST);
    answer = call("/v1/completions", body);
    assert_has(answer, "HTTP/1.1 200");
    assert_has(answer, "data: {\"error\":{\"message\":\"Internal server "
                       "error\",\"type\":\"InternalServerError\",\"param\":"
                       "null,\"code\":500}}\n\ndata: [DONE]\n\n");
    ck_assert_uint_eq(count_of(answer, "\"choices\""), 0);
}
END_TEST

START_TEST(answers_other_connectors_in_form_and_holds_nothing)
{
    assert_has(call("/v1/completions",
                    "{\"prompt\":\"abcd\",\"max_tokens\":1,"
                    "\"kv_transfer_params\":{\"do_remote_decode\":true}}"),
               "\"remote_block_ids\":[[1]],\"remote_engine_id\":\"e\"");
    assert_has(world.answer.data, "\"remote_port\":8000");
    ck_assert_uint_eq(kv_counts(world.kv).held, 0);
}
END_TEST

START_TEST(stops_working_when_its_client_leaves)
{
    const int fd = dial();

    ck_assert_int_eq(fault_arm(&world.faults, "never-answer", NULL, 0), BT_OK);
    post(fd, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2}");
    turn(20);
    (void)close(fd);
    turn(20);
    ck_assert_uint_eq(world.env.outcomes[EXCHANGE_GONE], 1);
    ck_assert_uint_eq(kv_counts(world.kv).free, 32);
}
END_TEST

START_TEST(gives_blocks_back_when_a_streams_client_leaves)
{
    const int fd = dial();

    post(fd, "/v1/completions",
         "{\"prompt\":\"a\",\"max_tokens\":200,\"ignore_eos\":true,"
         "\"stream\":true}");
    for (unsigned i = 0; i < 50 && sched_counts(world.sched).running == 0;
         i++) {
        turn(1);
    }
    (void)close(fd);
    turn(300);
    ck_assert_uint_eq(sched_counts(world.sched).running, 0);
    ck_assert_uint_eq(kv_counts(world.kv).free, 32);
}
END_TEST

START_TEST(takes_faults_by_an_admin_call)
{
    static const char BODY[] = "{\"prompt\":\"a\",\"max_tokens\":1}";

    assert_has(call("/admin/fault", "{\"name\":\"refuse\",\"times\":2}"),
               "\"name\":\"refuse\",\"armed\":true,\"arg\":0,\"left\":2");
    assert_has(call("/v1/completions", BODY), "HTTP/1.1 503");
    assert_has(call("/v1/completions", BODY), "HTTP/1.1 503");
    assert_has(call("/v1/completions", BODY), "HTTP/1.1 200");
    assert_has(call("/admin/fault", "{\"name\":\"error\",\"arg\":429}"),
               "\"arg\":429");
    assert_has(call("/v1/completions", BODY), "HTTP/1.1 429");
    assert_has(call("/admin/fault", "{\"name\":\"no such\"}"), "HTTP/1.1 400");
    assert_has(call("/admin/fault", "[]"), "HTTP/1.1 400");
    world.options.has_admin = false;
    assert_has(call("/admin/fault", "{\"name\":\"refuse\"}"), "HTTP/1.1 403");
}
END_TEST

START_TEST(answers_garbage_and_late_on_demand)
{
    static const char BODY[] = "{\"prompt\":\"a\",\"max_tokens\":1}";

    ck_assert_int_eq(fault_arm(&world.faults, "garbage", NULL, 0), BT_OK);
    assert_has(call("/v1/completions", BODY), "\"choices\":[{]");
    ck_assert_int_eq(fault_arm(&world.faults, "answer-late=5*2", NULL, 0),
                     BT_OK);
    assert_has(call("/v1/completions", BODY), "HTTP/1.1 200");
    assert_has(call("/v1/completions", "{\"prompt\":\"a\",\"stream\":true}"),
               "data: [DONE]");
}
END_TEST

HARNESS_MAIN_WITH(
    "api", set_up, tear_down,
    answers_a_completion_with_the_models_text_and_usage,
    streams_one_event_a_word_then_usage_and_the_end_marker,
    gives_each_choice_a_text_of_its_own, cuts_the_text_before_a_stop_string,
    refuses_in_the_shape_of_the_api, lists_its_model_and_its_health,
    turns_text_into_tokens_and_back, hands_a_prompt_over_and_answers_as_alone,
    tells_a_failed_load_as_500_and_in_a_stream_as_an_error_event,
    answers_other_connectors_in_form_and_holds_nothing,
    stops_working_when_its_client_leaves,
    gives_blocks_back_when_a_streams_client_leaves,
    takes_faults_by_an_admin_call, answers_garbage_and_late_on_demand)
