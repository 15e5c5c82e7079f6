/*
 * Command lines of a program whose settings are a table: flags of rows, the
 * program's own options, --set, --help and --version.
 *
 *     argv -> arg (flag, value) -> --set?   -> its path
 *                               -> option?  -> the program's function
 *                               -> row?     -> its slot
 *                               -> none: a flag that is near is named
 */
#include "common/conf/conf_value.h"

#include <stdio.h>
#include <stdlib.h>

static const struct bt_conf_option built_in[] = {
    {"--set", "PATH=VALUE",
     "sets any setting by its path in the file, as often as needed"},
    {"--help", NULL, "prints this"},
    {"--version", NULL, "prints the version"},
    {0},
};

struct parse {
    const struct bt_conf_program *program;
    void *target;
    void *owner;
    int argc;
    char **argv;
    int at;
    struct bt_str flag; /* as it was written, without a value */
    int flag_at;
    const char *value; /* NULL: none yet */
    struct bt_conf_error error;
};

/* Is this argument `flag`, or `flag=value`? */
static bool is_flag(const char *arg, struct bt_str flag)
{
    return strncmp(arg, flag.ptr, flag.len) == 0 &&
           (arg[flag.len] == '\0' || arg[flag.len] == '=');
}

const char *bt_conf_arg(int argc, char **argv, const char *flag)
{
    const size_t len = strlen(flag);

    for (int i = 1; i < argc; i++) {
        if (is_flag(argv[i], bt_str_of(flag))) {
            return argv[i][len] == '='                     ? argv[i] + len + 1
                   : i + 1 < argc && argv[i + 1][0] != '-' ? argv[i + 1]
                                                           : "";
        }
    }
    return NULL;
}

bool bt_conf_asks_for_help(int argc, char **argv)
{
    return bt_conf_arg(argc, argv, "--help") != NULL ||
           bt_conf_arg(argc, argv, "-h") != NULL ||
           bt_conf_arg(argc, argv, "--version") != NULL;
}

/* The value behind a flag: after "=", or the next argument. */
static bool take_value(struct parse *parse, const char *metavar)
{
    if (parse->value == NULL && parse->at + 1 < parse->argc &&
        strncmp(parse->argv[parse->at + 1], "--", 2) != 0) {
        parse->at++;
        parse->value = parse->argv[parse->at];
    }
    return parse->value != NULL ||
           bt_conf_fail(&parse->error, "%.*s: no value; write %.*s %s",
                        BT_STR_ARG(parse->flag), BT_STR_ARG(parse->flag),
                        metavar == NULL ? "VALUE" : metavar);
}

static bool on_set(struct parse *parse)
{
    const char *equals;
    char *path;
    enum bt_status status;

    if (!take_value(parse, built_in[0].metavar)) {
        return false;
    }
    equals = strchr(parse->value, '=');
    if (equals == NULL) {
        return bt_conf_fail(&parse->error,
                            "--set: no \"=\"; write --set PATH=VALUE, for "
                            "instance --set log.level=debug");
    }
    path = strndup(parse->value, (size_t)(equals - parse->value));
    if (path == NULL) {
        return bt_conf_no_memory(&parse->error);
    }
    status = bt_conf_set(parse->program->rows, parse->target, "--set", path,
                         equals + 1, &parse->error);
    free(path);
    return status == BT_OK;
}

static bool on_option(struct parse *parse, const struct bt_conf_option *option)
{
    if (option->metavar == NULL && parse->value != NULL) {
        return bt_conf_fail(&parse->error, "%s: takes no value; leave it out",
                            option->flag);
    }
    return (option->metavar == NULL || take_value(parse, option->metavar)) &&
           parse->program->on_option(parse->owner, option->flag, parse->value,
                                     &parse->error) == BT_OK;
}

/* Is this the first flag of its kind? It replaces the list that was there. */
static bool is_first(const struct parse *parse)
{
    for (int i = 1; i < parse->flag_at; i++) {
        if (is_flag(parse->argv[i], parse->flag)) {
            return false;
        }
    }
    return true;
}

static bool set_row(struct parse *parse, const struct bt_conf_row *row,
                    void *slot)
{
    if ((row->type == BT_CONF_LIST || row->type == BT_CONF_STRINGS) &&
        is_first(parse)) {
        bt_conf_clear(row, slot);
    }
    if (row->type == BT_CONF_LIST) {
        const struct bt_conf_row *const scalar = bt_conf_short(row);
        void *const item = bt_conf_append(row, slot);

        if (item == NULL || scalar == NULL) {
            return bt_conf_no_memory(&parse->error);
        }
        row = scalar;
        slot = bt_conf_slot(scalar, item);
    }
    return bt_conf_scalar(row, slot, bt_str_of(parse->value), &parse->error);
}

static bool on_row(struct parse *parse, const struct bt_conf_row *row,
                   void *slot)
{
    if (row->type == BT_CONF_BOOL && row->metavar == NULL) {
        parse->value = parse->value == NULL ? "true" : parse->value;
    } else if (!take_value(parse, row->metavar)) {
        return false;
    }
    return set_row(parse, row, slot) ||
           bt_conf_place(&parse->error, "%.*s: ", BT_STR_ARG(parse->flag));
}

/* Is it this flag; or, when that is asked, one that could be meant by it? */
static bool matches(const char *known, struct bt_str flag, bool is_near)
{
    return known != NULL && (is_near ? bt_conf_is_near(flag, known)
                                     : bt_str_eq(bt_str_of(known), flag));
}

/* A row by its flag, in the groups too. */
static const struct bt_conf_row *find_flag(const struct bt_conf_row *rows,
                                           void *target, struct bt_str flag,
                                           bool is_near, void **slot_p)
{
    const struct bt_conf_row *found = NULL;

    for (; rows->name != NULL && found == NULL; rows++) {
        *slot_p = bt_conf_slot(rows, target);
        if (matches(rows->flag, flag, is_near)) {
            found = rows;
        } else if (rows->type == BT_CONF_GROUP) {
            found = find_flag(rows->rows, *slot_p, flag, is_near, slot_p);
        }
    }
    return found;
}

/* NULL: none. */
static const struct bt_conf_option *find_option(
    const struct bt_conf_option *options, struct bt_str flag, bool is_near)
{
    while (options != NULL && options->flag != NULL &&
           !matches(options->flag, flag, is_near)) {
        options++;
    }
    return options == NULL || options->flag == NULL ? NULL : options;
}

static bool unknown_flag(struct parse *parse)
{
    const struct bt_str shown = bt_str_cut(parse->flag, 80);
    const struct bt_conf_program *const program = parse->program;
    void *slot;
    const struct bt_conf_row *const row =
        find_flag(program->rows, parse->target, parse->flag, true, &slot);
    const struct bt_conf_option *option =
        find_option(program->options, parse->flag, true);

    if (option == NULL) {
        option = find_option(built_in, parse->flag, true);
    }
    if (row == NULL && option == NULL) {
        return bt_conf_fail(&parse->error,
                            "%.*s: unknown flag; --help lists them all",
                            BT_STR_ARG(shown));
    }
    return bt_conf_fail(&parse->error, "%.*s: unknown flag; did you mean %s?",
                        BT_STR_ARG(shown),
                        row == NULL ? option->flag : row->flag);
}

static bool parse_arg(struct parse *parse)
{
    const struct bt_str text = bt_str_of(parse->argv[parse->at]);
    const size_t len = bt_str_find(text, BT_STR("="));
    const struct bt_conf_option *option;
    const struct bt_conf_row *row;
    void *slot = NULL;

    parse->flag = bt_str_cut(text, len);
    parse->flag_at = parse->at;
    parse->value = len == text.len ? NULL : text.ptr + len + 1;
    if (!bt_str_starts(text, BT_STR("--"))) {
        return bt_conf_fail(&parse->error,
                            "%.80s: unexpected argument; every argument "
                            "belongs to a --flag, see --help",
                            text.ptr);
    }
    if (bt_str_eq(parse->flag, BT_STR("--set"))) {
        return on_set(parse);
    }
    option = find_option(parse->program->options, parse->flag, false);
    if (option != NULL) {
        return on_option(parse, option);
    }
    row = find_flag(parse->program->rows, parse->target, parse->flag, false,
                    &slot);
    return row == NULL ? unknown_flag(parse) : on_row(parse, row, slot);
}

enum bt_conf_verdict bt_conf_write(struct bt_buf *text)
{
    const struct bt_str bytes = bt_buf_str(text);
    const bool is_whole =
        !text->failed && fwrite(bytes.ptr, 1, bytes.len, stdout) == bytes.len &&
        fflush(stdout) == 0;

    bt_buf_fini(text);
    if (!is_whole) {
        (void)fputs("cannot write to standard output\n", stderr);
    }
    return is_whole ? BT_CONF_EXIT_OK : BT_CONF_EXIT_USAGE;
}

enum bt_conf_verdict bt_conf_args(const struct bt_conf_program *program,
                                  void *target, void *owner, int argc,
                                  char **argv)
{
    struct parse parse = {.program = program,
                          .target = target,
                          .owner = owner,
                          .argc = argc,
                          .argv = argv};
    struct bt_buf text = {0};

    if (bt_conf_asks_for_help(argc, argv)) {
        if (bt_conf_arg(argc, argv, "--version") == NULL) {
            bt_conf_help(program, built_in, &text);
        } else {
            bt_buf_printf(&text, "%s %s\n", program->name, BATON_VERSION);
        }
        return bt_conf_write(&text);
    }
    for (parse.at = 1; parse.at < argc; parse.at++) {
        if (!parse_arg(&parse)) {
            (void)fprintf(stderr, "%s: %s\n", program->name, parse.error.text);
            return BT_CONF_EXIT_USAGE;
        }
    }
    return BT_CONF_RUN;
}
