/*
 * proxy/fleet/bootstrap: what the answer of a bootstrap server says.
 */
#include "proxy/fleet/bootstrap.h"
#include "tests/support/harness.h"

START_TEST(the_id_is_taken_as_it_stands)
{
    struct bt_str id = {0};
    const char *why = "";

    ck_assert(bootstrap_read(BT_STR("{\"0\":{\"engine_id\":\"a\\\"b\","
                                    "\"worker_addr\":{\"0\":{\"0\":\"tcp://"
                                    "127.0.0.1:1\"}}}}"),
                             &id, &why));
    ck_assert(bt_str_eq(id, BT_STR("\"a\\\"b\"")));
}
END_TEST

START_TEST(what_names_no_single_engine_is_refused_with_the_reason)
{
    static const struct {
        const char *answer, *why;
    } rows[] = {
        {"", "not one JSON object"},
        {"[]", "not one JSON object"},
        {"{\"0\":{\"engine_id\":\"a\"}", "not one JSON object"},
        {"{}", "has registered yet"},
        {"{\"0\":1}", "not a string"},
        {"{\"0\":{}}", "not a string"},
        {"{\"0\":{\"engine_id\":7}}", "not a string"},
        {"{\"0\":{\"engine_id\":\"\"}}", "not a string"},
        {"{\"0\":{\"engine_id\":\"a\"},\"1\":{\"engine_id\":\"b\"}}",
         "several data-parallel ranks"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        struct bt_str id = {0};
        const char *why = "";

        ck_assert(!bootstrap_read(bt_str_of(rows[i].answer), &id, &why));
        ck_assert_msg(bt_str_find(bt_str_of(why), bt_str_of(rows[i].why)) <
                          strlen(why),
                      "%s: %s", rows[i].answer, why);
    }
}
END_TEST

HARNESS_MAIN("bootstrap", the_id_is_taken_as_it_stands,
             what_names_no_single_engine_is_refused_with_the_reason)
