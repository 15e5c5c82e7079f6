/*
 * proxy/cors: whom an answer names, and what a preflight is told.
 */
#include "proxy/front/cors.h"
#include "tests/support/harness.h"

static struct cors_conf cors;
static char a_test[] = "https://a.test", b_test[] = "http://b.test:8080";
static char star[] = "*", get[] = "GET", post[] = "POST";
static char authorization[] = "Authorization", x_a[] = "X-A";
static char *origins[] = {a_test, b_test};
static char *any[] = {star};
static char *methods[] = {get, post};
static char *headers[] = {authorization, x_a};
static struct bt_http_field fields[4];
static struct bt_http_head head;

static void setup(void)
{
    cors = (struct cors_conf){
        .origins = {origins, 2}, .methods = {methods, 2}, .headers = {any, 1}};
    head = (struct bt_http_head){.method = BT_STR("OPTIONS"), .fields = fields};
}

static void teardown(void)
{
}

static void add(const char *name, const char *value)
{
    fields[head.field_count].name = bt_str_of(name);
    fields[head.field_count].value = bt_str_of(value);
    head.field_count++;
}

static void expect(struct bt_buf *out, const char *want)
{
    ck_assert_msg(bt_str_eq(bt_buf_str(out), bt_str_of(want)), "%.*s",
                  BT_STR_ARG(bt_buf_str(out)));
    bt_buf_fini(out);
}

START_TEST(only_whole_origins_of_the_list_match)
{
    static const char *const foreign[] = {
        "https://a.test.evil", "http://a.test", "https://A.test", "null", ""};

    ck_assert_ptr_null(cors_origin(&cors, &head));
    add("Origin", "http://b.test:8080");
    ck_assert_str_eq(cors_origin(&cors, &head), "http://b.test:8080");
    for (size_t i = 0; i < BT_ARRAY_LEN(foreign); i++) {
        fields[0].value = bt_str_of(foreign[i]);
        ck_assert_ptr_null(cors_origin(&cors, &head));
    }
    cors.origins = (struct bt_conf_strings){any, 1};
    ck_assert_str_eq(cors_origin(&cors, &head), "*");
    cors.origins.count = 0;
    ck_assert(!cors_is_on(&cors));
    ck_assert_ptr_null(cors_origin(&cors, &head));
}
END_TEST

START_TEST(an_answer_names_one_origin)
{
    const struct bt_str lines = BT_STR("A: b\r\nC: d\r\n");
    struct bt_buf out = {0};

    cors_write_answer(&cors, origins[0], lines, &out);
    expect(&out, "A: b\r\nC: d\r\n"
                 "Access-Control-Allow-Origin: https://a.test\r\n"
                 "Vary: Origin\r\nAccess-Control-Expose-Headers: *\r\n");
    cors_write_answer(&cors, NULL, lines, &out);
    expect(&out, "A: b\r\nC: d\r\nVary: Origin\r\n");
    cors.origins = (struct bt_conf_strings){any, 1};
    cors_write_answer(&cors, "*", BT_STR(""), &out);
    expect(&out, "Access-Control-Allow-Origin: *\r\n"
                 "Access-Control-Expose-Headers: *\r\n");
}
END_TEST

START_TEST(a_preflight_is_told_what_is_allowed)
{
    struct bt_buf out = {0};

    add("Origin", "https://a.test");
    ck_assert(!cors_is_preflight(&head));
    add("Access-Control-Request-Method", "POST");
    ck_assert(cors_is_preflight(&head));
    cors_write_preflight(&cors, origins[0], &head, &out);
    expect(&out, "Access-Control-Allow-Origin: https://a.test\r\n"
                 "Vary: Origin\r\nAccess-Control-Allow-Methods: GET, POST\r\n");
    add("Access-Control-Request-Headers", "authorization,x-b");
    cors.max_age_ms = 60000;
    cors_write_preflight(&cors, origins[0], &head, &out);
    expect(&out, "Access-Control-Allow-Origin: https://a.test\r\n"
                 "Vary: Origin\r\nAccess-Control-Allow-Methods: GET, POST\r\n"
                 "Access-Control-Allow-Headers: authorization,x-b\r\n"
                 "Vary: Access-Control-Request-Headers\r\n"
                 "Access-Control-Max-Age: 60\r\n");
    cors.headers = (struct bt_conf_strings){headers, 2};
    cors_write_preflight(&cors, origins[0], &head, &out);
    expect(&out, "Access-Control-Allow-Origin: https://a.test\r\n"
                 "Vary: Origin\r\nAccess-Control-Allow-Methods: GET, POST\r\n"
                 "Access-Control-Allow-Headers: Authorization, X-A\r\n"
                 "Access-Control-Max-Age: 60\r\n");
    head.method = BT_STR("POST");
    ck_assert(!cors_is_preflight(&head));
}
END_TEST

HARNESS_MAIN_WITH("cors", setup, teardown, only_whole_origins_of_the_list_match,
                  an_answer_names_one_origin,
                  a_preflight_is_told_what_is_allowed)
