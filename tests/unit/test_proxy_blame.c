/*
 * proxy/blame: who is at fault, and whose words the client may see.
 */
#include "proxy/exchange/blame.h"
#include "proxy/exchange/relay.h"
#include "tests/support/harness.h"

static struct engine engine;
static struct blame_facts facts;

static void setup(void)
{
    engine.key = (struct bt_str){0};
    facts = (struct blame_facts){.role = LEG_DECODE, .engine = &engine};
}

static void expect(unsigned code, enum blame blame)
{
    facts.code = code;
    ck_assert_int_eq(blame_of(&facts), blame);
}

START_TEST(a_good_answer_is_nobodys_fault)
{
    expect(200, BLAME_NOBODY);
    expect(299, BLAME_NOBODY);
    facts.role = LEG_PREFILL;
    expect(200, BLAME_NOBODY);
}
END_TEST

START_TEST(a_prefill_answers_with_200_or_with_nothing_of_use)
{
    facts.role = LEG_PREFILL;
    expect(201, BLAME_GARBAGE);
    expect(204, BLAME_GARBAGE);
}
END_TEST

START_TEST(what_is_neither_an_answer_nor_an_error_is_garbage)
{
    expect(199, BLAME_GARBAGE);
    expect(302, BLAME_GARBAGE);
    facts.is_coded = true; /* nobody can read on in a compressed answer */
    expect(200, BLAME_GARBAGE);
}
END_TEST

START_TEST(a_client_error_is_the_clients_unless_nobody_can_read_it)
{
    expect(400, BLAME_CLIENT);
    expect(422, BLAME_CLIENT);
    facts.is_coded = true;
    expect(400, BLAME_CODED);
}
END_TEST

START_TEST(a_refused_key_is_the_proxys_only_where_it_put_one_in)
{
    expect(401, BLAME_CLIENT);
    expect(403, BLAME_CLIENT);
    engine.key = BT_STR("k");
    expect(401, BLAME_KEY);
    expect(403, BLAME_KEY);
    expect(404, BLAME_CLIENT);
}
END_TEST

START_TEST(busy_is_told_from_limited_and_from_broken)
{
    expect(429, BLAME_LIMIT);
    expect(500, BLAME_ENGINE);
    expect(502, BLAME_ENGINE);
    expect(503, BLAME_LOAD);
}
END_TEST

START_TEST(a_forced_tool_call_that_prefill_cuts_is_nobodys_error)
{
    facts.forces_tool = true;
    expect(400, BLAME_CLIENT);
    expect(500, BLAME_ENGINE);
    facts.role = LEG_PREFILL;
    expect(400, BLAME_TOOLS);
    expect(500, BLAME_TOOLS);
    expect(422, BLAME_CLIENT);
    expect(503, BLAME_LOAD);
    facts.forces_tool = false;
    expect(400, BLAME_CLIENT);
}
END_TEST

START_TEST(a_body_is_coded_unless_it_says_identity_or_nothing)
{
    static const struct {
        const char *coding;
        bool is_coded;
    } rows[] = {{"gzip", true}, {"Identity", false}, {"", false}};
    struct bt_http_field field = {.name = BT_STR("Content-Encoding")};
    struct bt_http_head head = {.fields = &field};

    ck_assert(!blame_is_coded(&head));
    head.field_count = 1;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        field.value = bt_str_of(rows[i].coding);
        ck_assert(blame_is_coded(&head) == rows[i].is_coded);
    }
}
END_TEST

#define PARAMS "kv_transfer_params"

START_TEST(a_decode_that_names_the_params_refuses_them)
{
    ck_assert(blame_refuses_params(400, BT_STR(PARAMS " are stale")));
    ck_assert(blame_refuses_params(422, BT_STR("{\"" PARAMS "\": 1}")));
    ck_assert(!blame_refuses_params(400, BT_STR("too many tokens")));
    ck_assert(!blame_refuses_params(404, BT_STR(PARAMS " are stale")));
    ck_assert(!blame_refuses_params(500, BT_STR(PARAMS " are stale")));
}
END_TEST

START_TEST(a_decode_that_repeats_the_whole_body_does_not_mean_the_params)
{
    static const char *const bodies[] = {
        PARAMS " {\"prompt\": 1}",
        PARAMS " {'messages': []}",
        PARAMS " {\\\"prompt\\\": 1}",
        PARAMS " a prompt, the prompt, then \"prompt\": 1",
    };
    static const char *const words[] = {
        PARAMS " do not fit the prompt",
        PARAMS " prompt",
        PARAMS " \"prompts\" ",
        PARAMS " (messages)",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(bodies); i++) {
        ck_assert_msg(!blame_refuses_params(400, bt_str_of(bodies[i])), "%s",
                      bodies[i]);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        ck_assert_msg(blame_refuses_params(400, bt_str_of(words[i])), "%s",
                      words[i]);
    }
}
END_TEST

START_TEST(what_stands_before_the_words_is_not_looked_at)
{
    const struct bt_str text = BT_STR("\"prompt\" " PARAMS);

    ck_assert(!blame_refuses_params(400, text));
    ck_assert(blame_refuses_params(400, bt_str_skip(text, 1)));
}
END_TEST

START_TEST(words_that_name_what_is_private_are_kept_from_the_client)
{
    ck_assert(blame_is_public(BT_STR("")));
    ck_assert(blame_is_public(BT_STR("too many tokens")));
    ck_assert(!blame_is_public(BT_STR("bad " PARAMS)));
}
END_TEST

START_TEST(words_that_are_no_text_or_too_long_are_kept_from_the_client)
{
    static char many[RELAY_ERROR_MAX + 1];

    ck_assert(!blame_is_public(bt_str_span("a\0b", 3)));
    memset(many, 'a', sizeof(many));
    ck_assert(blame_is_public(bt_str_span(many, RELAY_ERROR_MAX)));
    ck_assert(!blame_is_public(bt_str_span(many, RELAY_ERROR_MAX + 1)));
}
END_TEST

HARNESS_MAIN_WITH("blame", setup, NULL, a_good_answer_is_nobodys_fault,
                  a_prefill_answers_with_200_or_with_nothing_of_use,
                  what_is_neither_an_answer_nor_an_error_is_garbage,
                  a_client_error_is_the_clients_unless_nobody_can_read_it,
                  a_refused_key_is_the_proxys_only_where_it_put_one_in,
                  busy_is_told_from_limited_and_from_broken,
                  a_forced_tool_call_that_prefill_cuts_is_nobodys_error,
                  a_body_is_coded_unless_it_says_identity_or_nothing,
                  a_decode_that_names_the_params_refuses_them,
                  a_decode_that_repeats_the_whole_body_does_not_mean_the_params,
                  what_stands_before_the_words_is_not_looked_at,
                  words_that_name_what_is_private_are_kept_from_the_client,
                  words_that_are_no_text_or_too_long_are_kept_from_the_client)
