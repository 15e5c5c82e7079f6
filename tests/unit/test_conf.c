/*
 * common/conf: every type, its limits and its messages; files, paths, flags
 * and printing over one small table.
 */
#include "common/conf/conf.h"
#include "tests/support/command_line.h"
#include "tests/support/harness.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

struct item {
    char *url;
    int64_t weight;
    struct bt_conf_strings tags;
};

struct side {
    struct bt_conf_list items; /* struct item */
    int policy;
};

struct settings {
    bool is_on;
    int64_t count;
    int64_t threads;
    uint64_t size;
    uint64_t wait;
    int64_t share;
    double rate;
    char *name;
    char *secret;
    int color;
    struct bt_conf_strings listen;
    struct {
        int64_t depth;
    } inner;
    struct side side;
};

static const char *const colors[] = {"red", "green", "blue", NULL};
static const char *const automatic[] = {"auto", NULL};

#define AT(owner, member) .offset = offsetof(struct owner, member)

static const struct bt_conf_row item_rows[] = {
    {.name = "url", .type = BT_CONF_STRING, AT(item, url), .help = "where"},
    {.name = "weight",
     .type = BT_CONF_INT,
     AT(item, weight),
     .preset = "1",
     .min = 1,
     .max = 9,
     .help = "how much"},
    {.name = "tags",
     .type = BT_CONF_STRINGS,
     AT(item, tags),
     .preset = "a, b",
     .help = "words"},
    {0},
};

static const struct bt_conf_row side_rows[] = {
    {.name = "items",
     .type = BT_CONF_LIST,
     AT(side, items),
     .rows = item_rows,
     .item_size = sizeof(struct item),
     .scalar = "url",
     .help = "the items",
     .flag = "--item",
     .metavar = "URL"},
    {.name = "policy",
     .type = BT_CONF_ENUM,
     AT(side, policy),
     .preset = "green",
     .names = colors,
     .help = "which"},
    {0},
};

static const struct bt_conf_row inner_rows[] = {
    {.name = "depth",
     .type = BT_CONF_INT,
     AT(settings, inner.depth),
     .preset = "7",
     .help = "how deep",
     .flag = "--depth",
     .metavar = "N"},
    {0},
};

static const struct bt_conf_row rows[] = {
    {.name = "is_on",
     .type = BT_CONF_BOOL,
     AT(settings, is_on),
     .preset = "false",
     .help = "on or off",
     .flag = "--on"},
    {.name = "count",
     .type = BT_CONF_INT,
     AT(settings, count),
     .preset = "-3",
     .min = -5,
     .max = 100,
     .help = "a number",
     .flag = "--count",
     .metavar = "N"},
    {.name = "threads",
     .type = BT_CONF_INT,
     AT(settings, threads),
     .preset = "auto",
     .min = 0,
     .max = 64,
     .names = automatic,
     .help = "threads"},
    {.name = "size",
     .type = BT_CONF_SIZE,
     AT(settings, size),
     .preset = "64MiB",
     .min = 1024,
     .max = 1073741824,
     .help = "bytes"},
    {.name = "wait",
     .type = BT_CONF_DURATION,
     AT(settings, wait),
     .preset = "250ms",
     .help = "time"},
    {.name = "share",
     .type = BT_CONF_PERCENT,
     AT(settings, share),
     .preset = "20%",
     .help = "part"},
    {.name = "rate",
     .type = BT_CONF_DECIMAL,
     AT(settings, rate),
     .preset = "0.1",
     .help = "rate"},
    {.name = "name",
     .type = BT_CONF_STRING,
     AT(settings, name),
     .help = "a name",
     .flag = "--name",
     .metavar = "TEXT"},
    {.name = "secret",
     .type = BT_CONF_STRING,
     AT(settings, secret),
     .help = "hidden",
     .is_secret = true},
    {.name = "color",
     .type = BT_CONF_ENUM,
     AT(settings, color),
     .preset = "blue",
     .names = colors,
     .help = "a color"},
    {.name = "listen",
     .type = BT_CONF_STRINGS,
     AT(settings, listen),
     .preset = "127.0.0.1:1",
     .help = "addresses",
     .flag = "--listen",
     .metavar = "ADDR"},
    {.name = "inner",
     .type = BT_CONF_GROUP,
     .rows = inner_rows,
     .help = "a group"},
    {.name = "side",
     .type = BT_CONF_GROUP,
     AT(settings, side),
     .rows = side_rows,
     .scalar = "items",
     .help = "a side"},
    {0},
};

static struct settings settings;
static struct bt_conf_error error;

static void setup(void)
{
    error.text[0] = '\0';
    ck_assert_int_eq(bt_conf_init(rows, &settings), BT_OK);
}

static void teardown(void)
{
    bt_conf_fini(rows, &settings);
}

static enum bt_status read_yaml(const char *text)
{
    return bt_conf_read(rows, &settings, "f.yaml", bt_str_of(text), &error);
}

static enum bt_status set(const char *path, const char *value)
{
    return bt_conf_set(rows, &settings, "--set", path, value, &error);
}

static const struct item *item(size_t index)
{
    return (const struct item *)settings.side.items.items + index;
}

/* --- presets and values --- */

START_TEST(begins_with_the_presets)
{
    ck_assert(!settings.is_on);
    ck_assert_int_eq(settings.count, -3);
    ck_assert_int_eq(settings.threads, 0);
    ck_assert_uint_eq(settings.size, 64 * BT_MIB);
    ck_assert_uint_eq(settings.wait, 250);
    ck_assert_int_eq(settings.share, 20);
    ck_assert_double_eq_tol(settings.rate, 0.1, 1e-9);
    ck_assert_ptr_null(settings.name);
    ck_assert_int_eq(settings.color, 2);
    ck_assert_uint_eq(settings.listen.count, 1);
    ck_assert_str_eq(settings.listen.items[0], "127.0.0.1:1");
    ck_assert_int_eq(settings.inner.depth, 7);
    ck_assert_int_eq(settings.side.policy, 1);
    ck_assert_uint_eq(settings.side.items.count, 0);
}
END_TEST

START_TEST(reads_every_type_from_a_file)
{
    ck_assert_int_eq(
        read_yaml("is_on: true\ncount: 42\nthreads: 8\nsize: 32KiB\n"
                  "wait: 2m\nshare: 50%\nrate: 2.5e3\nname: \"a b\"\n"
                  "color: red\nlisten: [a:1, 'b:2']\ninner: {depth: 1}\n"
                  "side:\n  policy: blue\n  items:\n  - http://x\n"
                  "  - {url: http://y, weight: 3, tags: c}\n"),
        BT_OK);
    ck_assert(settings.is_on);
    ck_assert_int_eq(settings.count, 42);
    ck_assert_int_eq(settings.threads, 8);
    ck_assert_uint_eq(settings.size, 32768);
    ck_assert_uint_eq(settings.wait, 120000);
    ck_assert_int_eq(settings.share, 50);
    ck_assert_double_eq_tol(settings.rate, 2500.0, 1e-9);
    ck_assert_str_eq(settings.name, "a b");
    ck_assert_int_eq(settings.color, 0);
    ck_assert_uint_eq(settings.listen.count, 2);
    ck_assert_str_eq(settings.listen.items[1], "b:2");
    ck_assert_int_eq(settings.inner.depth, 1);
    ck_assert_int_eq(settings.side.policy, 2);
    ck_assert_uint_eq(settings.side.items.count, 2);
    ck_assert_str_eq(item(0)->url, "http://x");
    ck_assert_int_eq(item(0)->weight, 1);
    ck_assert_uint_eq(item(0)->tags.count, 2);
    ck_assert_str_eq(item(0)->tags.items[1], "b");
    ck_assert_int_eq(item(1)->weight, 3);
    ck_assert_uint_eq(item(1)->tags.count, 1);
    ck_assert_str_eq(item(1)->tags.items[0], "c");
}
END_TEST

START_TEST(takes_a_scalar_where_a_list_stands)
{
    ck_assert_int_eq(read_yaml("listen: unix:/a\nside: {items: http://x}\n"),
                     BT_OK);
    ck_assert_uint_eq(settings.listen.count, 1);
    ck_assert_str_eq(settings.listen.items[0], "unix:/a");
    ck_assert_str_eq(item(0)->url, "http://x");
}
END_TEST

START_TEST(takes_the_short_form_of_a_group)
{
    ck_assert_int_eq(read_yaml("side: [http://x, http://y]\n"), BT_OK);
    ck_assert_uint_eq(settings.side.items.count, 2);
    ck_assert_int_eq(read_yaml("side: http://z\n"), BT_OK);
    ck_assert_uint_eq(settings.side.items.count, 1);
    ck_assert_str_eq(item(0)->url, "http://z");
}
END_TEST

START_TEST(reads_empty_files_and_empty_groups)
{
    static const char *const texts[] = {"",       "# only a comment\n",
                                        "---\n",  "null\n",
                                        "inner:", "side:\ninner: ~\n"};

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        ck_assert_msg(read_yaml(texts[i]) == BT_OK, "%s: %s", texts[i],
                      error.text);
    }
    ck_assert_int_eq(settings.inner.depth, 7);
}
END_TEST

START_TEST(skips_a_byte_order_mark)
{
    ck_assert_int_eq(read_yaml("\xef\xbb\xbf# made by an editor\ncount: 9\n"),
                     BT_OK);
    ck_assert_int_eq(settings.count, 9);
}
END_TEST

START_TEST(unsets_a_text_by_null_or_nothing)
{
    ck_assert_int_eq(read_yaml("name: x\n"), BT_OK);
    ck_assert_int_eq(read_yaml("name: null\n"), BT_OK);
    ck_assert_ptr_null(settings.name);
    ck_assert_int_eq(read_yaml("name: 'null'\n"), BT_OK);
    ck_assert_str_eq(settings.name, "null");
    ck_assert_int_eq(set("name", ""), BT_OK);
    ck_assert_ptr_null(settings.name);
}
END_TEST

START_TEST(reads_sizes_with_units)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},           {"17", 17},          {"100B", 100},
                {"3KiB", 3072},     {"3 KiB", 3072},     {"1kB", 1000},
                {"2MB", 2000000},   {"64MiB", 67108864}, {"1GiB", 1073741824},
                {"1GB", 1000000000}};
    static const char *const bad[] = {
        "",    "KiB", "-1", "1.5MiB", "1 2", "1TiBB", "99999999999999999999",
        "1kib"};
    uint64_t value;

    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        ck_assert_int_eq(bt_conf_parse_size(bt_str_of(good[i].text), &value),
                         BT_OK);
        ck_assert_uint_eq(value, good[i].value);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        ck_assert_msg(bt_conf_parse_size(bt_str_of(bad[i]), &value) != BT_OK,
                      "%s", bad[i]);
    }
    ck_assert_int_eq(
        bt_conf_parse_size(BT_STR("18446744073709551615KiB"), &value),
        BT_ERR_RANGE);
}
END_TEST

START_TEST(reads_durations_with_units_only)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"250ms", 250},
                {"30s", 30000},
                {"2m", 120000},
                {"1h", 3600000}};
    static const char *const bad[] = {"", "30", "s", "-1s", "1.5s", "1d"};

    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        ck_assert_int_eq(set("wait", good[i].text), BT_OK);
        ck_assert_uint_eq(settings.wait, good[i].value);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        ck_assert_msg(set("wait", bad[i]) != BT_OK, "%s", bad[i]);
        ck_assert_uint_eq(settings.wait, 3600000);
    }
}
END_TEST

/* --- errors --- */

START_TEST(says_where_and_what_is_wrong)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"is_on: yes\n", "f.yaml:1:8: bad value \"yes\" for is_on; it takes "
                         "true or false"},
        {"count: 101\n", "f.yaml:1:8: out of range: \"101\" for count; it "
                         "takes a whole number from -5 to 100"},
        {"threads: many\n", "f.yaml:1:10: bad value \"many\" for threads; it "
                            "takes a whole number from 0 to 64, or auto"},
        {"size: 1\n", "f.yaml:1:7: out of range: \"1\" for size; it takes a "
                      "size such as 64MiB, 32KiB or 512 from 1KiB to 1GiB"},
        {"wait: 30\n", "f.yaml:1:7: bad value \"30\" for wait; it takes a "
                       "duration such as 30s, 250ms or 2m"},
        {"share: 120%\n", "f.yaml:1:8: out of range: \"120%\" for share; it "
                          "takes a percentage from 0% to 100%"},
        {"share: 20\n", "f.yaml:1:8: bad value \"20\" for share; it takes a "
                        "percentage from 0% to 100%"},
        {"rate: nan\n", "f.yaml:1:7: bad value \"nan\" for rate; it takes a "
                        "number such as 0.5"},
        {"color: pink\n", "f.yaml:1:8: bad value \"pink\" for color; it takes "
                          "red, green or blue"},
        {"name: [a]\n", "f.yaml:1:7: a list for name; it takes a text"},
        {"count:\n", "f.yaml:1:7: nothing for count; it takes a whole number "
                     "from -5 to 100"},
        {"inner: 3\n", "f.yaml:1:8: a single value for inner; it takes a "
                       "mapping of settings"},
        {"name: \"a\\0b\"\n",
         "f.yaml:1:7: bad value \"a\" for name; it takes a text"},
        {"listen: [a, {b: c}]\n", "f.yaml:1:13: a mapping for listen; it "
                                  "takes a text or a list of texts"},
        {"listen: ['']\n", "f.yaml:1:10: bad value \"\" for listen; it takes "
                           "a text or a list of texts"},
        {"side: {items: [[x]]}\n",
         "f.yaml:1:16: a list within a list; one list is enough"},
        {"inner:\n  dept: 3\n", "f.yaml:2:3: unknown setting \"dept\"; did "
                                "you mean \"depth\"?"},
        {"inner:\n  zzzzzz: 3\n",
         "f.yaml:2:3: unknown setting \"zzzzzz\"; known here: depth"},
        {"is-on: true\n", "f.yaml:1:1: unknown setting \"is-on\"; did you "
                          "mean \"is_on\"?"},
        {"count: 1\nname: x\ncount: 2\n",
         "f.yaml:3:1: count is set twice here; keep one of them"},
        {"- a\n", "f.yaml:1:1: the file is no mapping; write \"setting: "
                  "value\" lines"},
        {"[a]: b\n",
         "f.yaml:1:1: a key that is no text; write \"name: value\""},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        ck_assert_msg(read_yaml(cases[i].text) != BT_OK, "%s", cases[i].text);
        ck_assert_str_eq(error.text, cases[i].message);
    }
}
END_TEST

START_TEST(refuses_what_the_subset_leaves_out)
{
    static const struct {
        const char *text;
        const char *part;
    } cases[] = {
        {"name: &a x\n", "f.yaml:1:7: anchors"},
        {"name: &a x\nsecret: *a\n", "anchors"},
        {"name: *a\n", "f.yaml:1:7: aliases"},
        {"name: !!str x\n", "f.yaml:1:7: tags"},
        {"listen: !x [a]\n", "tags"},
        {"inner: !x {depth: 1}\n", "tags"},
        {"<<: {name: x}\n", "f.yaml:1:1: merge keys"},
        {"name: x\n---\nname: y\n", "f.yaml:2:1: a second document"},
        {"name: 'x\n", "this is not YAML"},
        {"name: x: y\n", "f.yaml:1:8: this is not YAML"},
        {"\tname: x\n", "this is not YAML"},
        {"name: x\nsecret: \xff\n", "f.yaml:2:9: not a text in UTF-8"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        ck_assert_msg(read_yaml(cases[i].text) != BT_OK, "%s", cases[i].text);
        ck_assert_msg(strstr(error.text, cases[i].part) != NULL, "%s",
                      error.text);
    }
}
END_TEST

START_TEST(survives_deep_nesting)
{
    char text[5000];

    memset(text, '[', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_ne(read_yaml(text), BT_OK);
    ck_assert_str_ne(error.text, "");
}
END_TEST

START_TEST(cuts_long_messages_in_bounds)
{
    char text[3000];

    memset(text, 'k', sizeof(text) - 4);
    memcpy(text + sizeof(text) - 4, ": 1", 4);
    ck_assert_int_ne(read_yaml(text), BT_OK);
    ck_assert_uint_lt(strlen(error.text), sizeof(error.text));
}
END_TEST

/* --- by path --- */

START_TEST(sets_any_setting_by_its_path)
{
    ck_assert_int_eq(set("inner.depth", "3"), BT_OK);
    ck_assert_int_eq(settings.inner.depth, 3);
    ck_assert_int_eq(set("side.items.0", "http://x"), BT_OK);
    ck_assert_int_eq(set("side.items.0.weight", "4"), BT_OK);
    ck_assert_int_eq(set("side.items.1.url", "http://y"), BT_OK);
    ck_assert_uint_eq(settings.side.items.count, 2);
    ck_assert_str_eq(item(0)->url, "http://x");
    ck_assert_int_eq(item(0)->weight, 4);
    ck_assert_str_eq(item(1)->url, "http://y");
}
END_TEST

START_TEST(sets_lists_as_a_whole_and_by_item)
{
    ck_assert_int_eq(set("listen", "[::1]:80"), BT_OK);
    ck_assert_uint_eq(settings.listen.count, 1);
    ck_assert_str_eq(settings.listen.items[0], "[::1]:80");
    ck_assert_int_eq(set("listen", "[a, b]"), BT_OK);
    ck_assert_int_eq(set("listen.0", "c"), BT_OK);
    ck_assert_int_eq(set("listen.2", "d"), BT_OK);
    ck_assert_uint_eq(settings.listen.count, 3);
    ck_assert_str_eq(settings.listen.items[0], "c");
    ck_assert_str_eq(settings.listen.items[1], "b");
    ck_assert_str_eq(settings.listen.items[2], "d");
    ck_assert_int_eq(set("side.items", "[http://x, {url: http://y}]"), BT_OK);
    ck_assert_uint_eq(settings.side.items.count, 2);
    ck_assert_int_eq(set("inner", "{depth: 9}"), BT_OK);
    ck_assert_int_eq(settings.inner.depth, 9);
    ck_assert_int_eq(set("listen", ""), BT_OK);
    ck_assert_uint_eq(settings.listen.count, 0);
}
END_TEST

START_TEST(explains_a_bad_path)
{
    static const struct {
        const char *path;
        const char *value;
        const char *message;
    } cases[] = {
        {"inner.dept", "1",
         "--set inner.dept: unknown setting \"dept\"; did you mean \"depth\"?"},
        {"", "1", "--set : unknown setting \"\"; known here: is_on"},
        {"count.x", "1",
         "--set count.x: count is a single value; the path "
         "must end there"},
        {"side.items.2.url", "x",
         "--set side.items.2.url: no item \"2\"; the list has 0, so an index "
         "from 0 to 0 (the last one appends)"},
        {"side.items.x", "1", "--set side.items.x: no item \"x\""},
        {"listen.7", "1", "--set listen.7: no item \"7\""},
        {"color", "pink",
         "--set color: bad value \"pink\" for color; it "
         "takes red, green or blue"},
        {"inner", "{depth: x}", "--set:1:9: bad value \"x\""},
        {"count", "", "--set count: bad value \"\" for count"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        ck_assert_int_ne(set(cases[i].path, cases[i].value), BT_OK);
        ck_assert_msg(strncmp(error.text, cases[i].message,
                              strlen(cases[i].message)) == 0,
                      "%s", error.text);
    }
}
END_TEST

/* --- printing --- */

static void check_round_trip(bool with_help)
{
    struct settings again;
    struct bt_buf first = {0};
    struct bt_buf second = {0};

    bt_conf_print(rows, &settings, with_help, &first);
    ck_assert(!first.failed);
    ck_assert_int_eq(bt_conf_init(rows, &again), BT_OK);
    ck_assert_msg(bt_conf_read(rows, &again, "p.yaml", bt_buf_str(&first),
                               &error) == BT_OK,
                  "%s\n%.*s", error.text, BT_STR_ARG(bt_buf_str(&first)));
    bt_conf_print(rows, &again, with_help, &second);
    ck_assert(bt_str_eq(bt_buf_str(&first), bt_buf_str(&second)));
    bt_conf_fini(rows, &again);
    bt_buf_fini(&first);
    bt_buf_fini(&second);
}

START_TEST(prints_what_it_reads_back)
{
    check_round_trip(false);
    check_round_trip(true);
    ck_assert_int_eq(
        read_yaml("name: 'a: # \"b\" \\ é'\nlisten: ['[::1]:80', '*', 'no', "
                  "unix:/x, '-', 'x:']\nrate: 0.30000000000000004\n"
                  "size: 1025\nwait: 1s\nthreads: auto\n"
                  "side: [http://x, {url: http://y, tags: []}]\n"),
        BT_OK);
    check_round_trip(false);
    check_round_trip(true);
}
END_TEST

START_TEST(prints_characters_that_yaml_forbids_as_escapes)
{
    ck_assert_int_eq(
        read_yaml(
            "name: \"\\x7f\\x80\\x85\\x9f\\u2028\\u2029\\ufeff\\uffff é\"\n"),
        BT_OK);
    ck_assert_str_eq(settings.name, "\x7f\xc2\x80\xc2\x85\xc2\x9f\xe2\x80\xa8"
                                    "\xe2\x80\xa9\xef\xbb\xbf\xef\xbf\xbf é");
    check_round_trip(false);
}
END_TEST

START_TEST(masks_secrets)
{
    struct bt_buf out = {0};

    ck_assert_int_eq(set("secret", "hunter2"), BT_OK);
    bt_conf_print(rows, &settings, true, &out);
    ck_assert_uint_eq(bt_str_find(bt_buf_str(&out), BT_STR("hunter2")),
                      out.len);
    ck_assert_uint_lt(bt_str_find(bt_buf_str(&out), BT_STR("***")), out.len);
    bt_buf_fini(&out);
}
END_TEST

/* --- command lines --- */

static char last_option[32];

static enum bt_status on_option(void *owner, const char *flag,
                                const char *value,
                                struct bt_conf_error *error_p)
{
    if (strcmp(flag, "--check") == 0) {
        ck_assert_ptr_null(value);
        return BT_OK;
    }
    ck_assert_str_eq(flag, "--fault");
    (void)snprintf(last_option, sizeof(last_option), "%s", value);
    (*(int *)owner)++;
    if (strcmp(value, "bad") == 0) {
        (void)bt_conf_fail(error_p, "--fault: no such fault");
        return BT_ERR_NOT_FOUND;
    }
    return BT_OK;
}

static const struct bt_conf_option options[] = {
    {"--fault", "NAME", "breaks something"},
    {"--check", NULL, "looks only"},
    {0},
};

static const struct bt_conf_program program = {
    .name = "prog",
    .summary = "does things",
    .usage = "[--on]",
    .epilog = "the end",
    .rows = rows,
    .options = options,
    .on_option = on_option,
};

static enum bt_conf_verdict reads(void *owner, int argc, char **argv)
{
    return bt_conf_args(&program, &settings, owner, argc, argv);
}

static int faults; /* that on_option was told */
static struct command_line line = {.reader = reads, .owner = &faults};

#define RUN(...)                     \
    command_line_read(&line, stderr, \
                      (const char *const[]){"prog", __VA_ARGS__, NULL})

START_TEST(applies_flags_in_order)
{
    ck_assert_int_eq(RUN("--on", "--count", "5", "--name=a=b", "--depth=2",
                         "--set", "rate=3"),
                     BT_CONF_RUN);
    ck_assert_str_eq(line.text, "");
    ck_assert(settings.is_on);
    ck_assert_int_eq(settings.count, 5);
    ck_assert_str_eq(settings.name, "a=b");
    ck_assert_int_eq(settings.inner.depth, 2);
    ck_assert_double_eq_tol(settings.rate, 3.0, 1e-9);
    ck_assert_int_eq(RUN("--on=false", "--count", "-4"), BT_CONF_RUN);
    ck_assert(!settings.is_on);
    ck_assert_int_eq(settings.count, -4);
}
END_TEST

START_TEST(lets_the_first_list_flag_replace_the_preset)
{
    ck_assert_int_eq(
        RUN("--listen", "[::1]:1", "--listen", "b", "--item=u", "--item=v"),
        BT_CONF_RUN);
    ck_assert_uint_eq(settings.listen.count, 2);
    ck_assert_str_eq(settings.listen.items[0], "[::1]:1");
    ck_assert_str_eq(settings.listen.items[1], "b");
    ck_assert_uint_eq(settings.side.items.count, 2);
    ck_assert_str_eq(item(1)->url, "v");
}
END_TEST

START_TEST(hands_options_to_the_program)
{
    faults = 0;
    ck_assert_int_eq(RUN("--fault", "a", "--fault=b", "--check"), BT_CONF_RUN);
    ck_assert_int_eq(faults, 2);
    ck_assert_str_eq(last_option, "b");
    ck_assert_int_eq(RUN("--fault", "bad"), BT_CONF_EXIT_USAGE);
    ck_assert_str_eq(line.text, "prog: --fault: no such fault\n");
}
END_TEST

START_TEST(explains_a_bad_command_line)
{
    static const struct {
        const char *words[3];
        const char *message;
    } cases[] = {
        {{"--cuont"}, "prog: --cuont: unknown flag; did you mean --count?\n"},
        {{"--faul"}, "prog: --faul: unknown flag; did you mean --fault?\n"},
        {{"--zzzzzzzz"},
         "prog: --zzzzzzzz: unknown flag; --help lists them all\n"},
        {{"word"},
         "prog: word: unexpected argument; every argument belongs "
         "to a --flag, see --help\n"},
        {{"--count"}, "prog: --count: no value; write --count N\n"},
        {{"--count", "--on"}, "prog: --count: no value; write --count N\n"},
        {{"--count", "x"},
         "prog: --count: bad value \"x\" for count; it takes "
         "a whole number from -5 to 100\n"},
        {{"--check=1"}, "prog: --check: takes no value; leave it out\n"},
        {{"--set", "count"},
         "prog: --set: no \"=\"; write --set PATH=VALUE, for instance --set "
         "log.level=debug\n"},
        {{"--set", "cuont=1"},
         "prog: --set cuont: unknown setting \"cuont\"; "
         "did you mean \"count\"?\n"},
        {{"--listen="},
         "prog: --listen: bad value \"\" for listen; it takes "
         "a text or a list of texts\n"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const char *const words[] = {"prog", cases[i].words[0],
                                     cases[i].words[1], NULL};

        ck_assert_int_eq(command_line_read(&line, stderr, words),
                         BT_CONF_EXIT_USAGE);
        ck_assert_str_eq(line.text, cases[i].message);
    }
}
END_TEST

START_TEST(prints_help_and_version)
{
    static const char *const parts[] = {
        "prog: does things",   "usage: prog [--on]",
        "--count N",           "--item URL",
        "--fault NAME",        "--set PATH=VALUE",
        "side.items.N.weight", "inner.depth",
        "default 64MiB",       "the end"};

    ck_assert_int_eq(command_line_read(&line, stdout,
                                       (const char *const[]){"prog", "--bad",
                                                             "--help", NULL}),
                     BT_CONF_EXIT_OK);
    for (size_t i = 0; i < BT_ARRAY_LEN(parts); i++) {
        ck_assert_msg(strstr(line.text, parts[i]) != NULL, "%s", parts[i]);
    }
    ck_assert_int_eq(
        command_line_read(&line, stdout,
                          (const char *const[]){"prog", "--version", NULL}),
        BT_CONF_EXIT_OK);
    ck_assert_int_eq(strncmp(line.text, "prog ", 5), 0);
}
END_TEST

HARNESS_MAIN_WITH("conf", setup, teardown, begins_with_the_presets,
                  reads_every_type_from_a_file,
                  takes_a_scalar_where_a_list_stands,
                  takes_the_short_form_of_a_group,
                  reads_empty_files_and_empty_groups, skips_a_byte_order_mark,
                  unsets_a_text_by_null_or_nothing, reads_sizes_with_units,
                  reads_durations_with_units_only, says_where_and_what_is_wrong,
                  refuses_what_the_subset_leaves_out, survives_deep_nesting,
                  cuts_long_messages_in_bounds, sets_any_setting_by_its_path,
                  sets_lists_as_a_whole_and_by_item, explains_a_bad_path,
                  prints_what_it_reads_back,
                  prints_characters_that_yaml_forbids_as_escapes, masks_secrets,
                  applies_flags_in_order,
                  lets_the_first_list_flag_replace_the_preset,
                  hands_options_to_the_program, explains_a_bad_command_line,
                  prints_help_and_version)
