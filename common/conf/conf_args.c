/*
 * Command lines of a program whose settings are a table: flags of rows, the
 * program's own options, --set, --help and --version.
 *
 *     argv -> arg (flag, value) -> built in?  -> help, version, --set
 *                               -> option?    -> its function
 *                               -> row?       -> its slot
 *                               -> none: the nearest flag is named
 */
#include "common/conf/conf_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define HELP_COLUMN 24
#define HELP_WIDTH  79

static const struct bt_conf_option built_in[] = {
    {"--set", "PATH=VALUE",
     "sets any setting by its path in the file, as often as needed", NULL},
    {"--help", NULL, "prints this", NULL},
    {"--version", NULL, "prints the version", NULL},
    {0},
};

/* --- help --- */

static void print_wrapped(struct bt_str text, size_t indent, size_t at,
                          struct bt_buf *out)
{
    if (at >= indent) {
        bt_buf_append_char(out, '\n');
        at = 0;
    }
    while (text.len > 0) {
        const struct bt_str line = bt_conf_wrap(text, HELP_WIDTH - indent);

        bt_buf_printf(out, "%*s%.*s\n", (int)(indent - at), "",
                      BT_STR_ARG(line));
        text =
            bt_str_trim(bt_str_span(text.ptr + line.len, text.len - line.len));
        at = 0;
    }
}

static void print_entry(const char *name, const char *metavar,
                        struct bt_str help, struct bt_buf *out)
{
    const size_t before = out->len;

    bt_buf_printf(out, "  %s%s%s", name, metavar == NULL ? "" : " ",
                  metavar == NULL ? "" : metavar);
    print_wrapped(help, HELP_COLUMN, out->len - before, out);
}

static void print_table(const struct bt_conf_row *rows, const char *path,
                        struct bt_buf *out);

static void print_text_entry(const struct bt_conf_row *row, const char *name,
                             const char *metavar, struct bt_buf *out)
{
    struct bt_buf text = {0};

    bt_conf_describe(row, &text);
    print_entry(name, metavar, bt_buf_str(&text), out);
    bt_buf_fini(&text);
}

/* One row of the list of settings, and what is below it. */
static void print_setting(const struct bt_conf_row *row, const char *path,
                          struct bt_buf *out)
{
    struct bt_buf name = {0};

    bt_buf_printf(&name, "%s%s", path, row->name);
    bt_buf_append_char(&name, '\0');
    if (row->type != BT_CONF_GROUP && !name.failed) {
        print_text_entry(row, bt_buf_str(&name).ptr, NULL, out);
    }
    if (row->rows != NULL && !name.failed) {
        bt_buf_clear(&name);
        bt_buf_printf(&name, "%s%s%s", path, row->name,
                      row->type == BT_CONF_LIST ? ".N." : ".");
        bt_buf_append_char(&name, '\0');
    }
    if (row->rows != NULL && !name.failed) {
        print_table(row->rows, bt_buf_str(&name).ptr, out);
    }
    out->failed = out->failed || name.failed;
    bt_buf_fini(&name);
}

/* `path` is what stands before the rows' names; NULL: flags are listed. */
static void print_table(const struct bt_conf_row *rows, const char *path,
                        struct bt_buf *out)
{
    for (; rows->name != NULL; rows++) {
        if (path != NULL) {
            print_setting(rows, path, out);
            continue;
        }
        if (rows->flag != NULL) {
            print_text_entry(rows, rows->flag, rows->metavar, out);
        }
        if (rows->type == BT_CONF_GROUP) {
            print_table(rows->rows, NULL, out);
        }
    }
}

static void print_options(const struct bt_conf_option *options,
                          struct bt_buf *out)
{
    for (; options->flag != NULL; options++) {
        print_entry(options->flag, options->metavar, bt_str_of(options->help),
                    out);
    }
}

/* Whether some setting has no flag of its own. */
static bool has_more_than_flags(const struct bt_conf_row *rows)
{
    for (; rows->name != NULL; rows++) {
        if (rows->type == BT_CONF_GROUP ? has_more_than_flags(rows->rows)
                                        : rows->flag == NULL) {
            return true;
        }
    }
    return false;
}

void bt_conf_help(const struct bt_conf_program *program, struct bt_buf *out)
{
    bt_buf_printf(out, "%s: %s\n\nusage: %s %s\n\nflags:\n", program->name,
                  program->summary, program->name, program->usage);
    print_table(program->rows, NULL, out);
    if (program->options != NULL) {
        print_options(program->options, out);
    }
    print_options(built_in, out);
    if (has_more_than_flags(program->rows)) {
        bt_buf_append(out, BT_STR("\nsettings (of --set and of files):\n"));
        print_table(program->rows, "", out);
    }
    if (program->epilog != NULL) {
        bt_buf_printf(out, "\n%s\n", program->epilog);
    }
}

/* --- parsing --- */

struct parse {
    const struct bt_conf_program *program;
    void *target;
    void *owner;
    int argc;
    char **argv;
    int at;
    const struct bt_conf_row **seen; /* list rows that a flag has set */
    size_t seen_count;
    struct bt_conf_error error;
};

/* A flag as it was written. */
struct arg {
    struct bt_str flag;
    const char *value; /* after "=", or NULL */
};

static enum bt_status usage(struct parse *parse, struct bt_str flag,
                            const char *why)
{
    bt_conf_tell(&parse->error, "%.*s: %s",
                 (int)(flag.len < 80 ? flag.len : 80), flag.ptr, why);
    return BT_ERR_SYNTAX;
}

/* The value behind a flag: after "=", or the next argument. */
static enum bt_status take_value(struct parse *parse, struct arg *arg,
                                 const char *metavar)
{
    struct bt_conf_why why;

    if (arg->value != NULL) {
        return BT_OK;
    }
    if (parse->at + 1 < parse->argc &&
        strncmp(parse->argv[parse->at + 1], "--", 2) != 0) {
        parse->at++;
        arg->value = parse->argv[parse->at];
        return BT_OK;
    }
    bt_conf_because(&why, "no value; write %.*s %s",
                    (int)(arg->flag.len < 40 ? arg->flag.len : 40),
                    arg->flag.ptr, metavar);
    return usage(parse, arg->flag, why.text);
}

static enum bt_status on_set(struct parse *parse, struct arg *arg)
{
    const char *equals;
    char *path;
    enum bt_status status = take_value(parse, arg, "PATH=VALUE");

    if (status != BT_OK) {
        return status;
    }
    equals = strchr(arg->value, '=');
    if (equals == NULL) {
        return usage(parse, arg->flag,
                     "no \"=\"; write --set PATH=VALUE, for instance --set "
                     "log.level=debug");
    }
    path = strndup(arg->value, (size_t)(equals - arg->value));
    if (path == NULL) {
        (void)usage(parse, arg->flag, "out of memory; nothing was set");
        return BT_ERR_NOMEM;
    }
    status = bt_conf_set(parse->program->rows, parse->target, "--set", path,
                         equals + 1, &parse->error);
    free(path);
    return status;
}

static enum bt_status on_option(struct parse *parse, struct arg *arg,
                                const struct bt_conf_option *option)
{
    enum bt_status status;

    if (option->metavar == NULL && arg->value != NULL) {
        return usage(parse, arg->flag, "takes no value; leave it out");
    }
    if (option->metavar != NULL) {
        status = take_value(parse, arg, option->metavar);
        if (status != BT_OK) {
            return status;
        }
    }
    parse->error.text[0] = '\0';
    status = option->on_option(parse->owner, arg->value, &parse->error);
    if (status != BT_OK && parse->error.text[0] == '\0') {
        (void)usage(parse, arg->flag, bt_status_text(status));
    }
    return status;
}

/* Whether this is the first flag of a list row: it replaces what was there. */
static bool is_first(struct parse *parse, const struct bt_conf_row *row)
{
    for (size_t i = 0; i < parse->seen_count; i++) {
        if (parse->seen[i] == row) {
            return false;
        }
    }
    parse->seen[parse->seen_count] = row;
    parse->seen_count++;
    return true;
}

static enum bt_status append_item(struct parse *parse, const struct arg *arg,
                                  const struct bt_conf_row *row, void *slot,
                                  struct bt_conf_why *why)
{
    const struct bt_conf_row *scalar = NULL;
    void *item;

    if (is_first(parse, row)) {
        bt_conf_list_clear(row, slot);
    }
    if (row->scalar != NULL) {
        scalar = bt_conf_find(row->rows, bt_str_of(row->scalar));
    }
    if (scalar == NULL) {
        bt_conf_because(why, "takes no single value; use --set");
        return BT_ERR_SYNTAX;
    }
    if (bt_conf_list_append(row, slot, &item) != BT_OK) {
        bt_conf_because(why, "out of memory; nothing was set");
        return BT_ERR_NOMEM;
    }
    return bt_conf_scalar(scalar, bt_conf_slot(scalar, item),
                          bt_str_of(arg->value), why);
}

static enum bt_status on_row(struct parse *parse, struct arg *arg,
                             const struct bt_conf_row *row, void *slot)
{
    struct bt_conf_why why = {{0}};
    enum bt_status status = BT_OK;

    if (row->type == BT_CONF_BOOL && row->metavar == NULL) {
        arg->value = arg->value == NULL ? "true" : arg->value;
    } else {
        status = take_value(parse, arg,
                            row->metavar == NULL ? "VALUE" : row->metavar);
    }
    if (status != BT_OK) {
        return status;
    }
    if (row->type == BT_CONF_LIST) {
        status = append_item(parse, arg, row, slot, &why);
    } else {
        if (row->type == BT_CONF_STRINGS && is_first(parse, row)) {
            bt_conf_strings_clear(slot);
        }
        status = bt_conf_scalar(row, slot, bt_str_of(arg->value), &why);
    }
    if (status != BT_OK) {
        (void)usage(parse, arg->flag, why.text);
    }
    return status;
}

/* A row by its flag, in the groups too. */
static const struct bt_conf_row *find_flag(const struct bt_conf_row *rows,
                                           void *target, struct bt_str flag,
                                           void **slot_p)
{
    for (; rows->name != NULL; rows++) {
        void *const slot = bt_conf_slot(rows, target);
        const struct bt_conf_row *found = NULL;

        if (rows->flag != NULL && bt_str_eq(bt_str_of(rows->flag), flag)) {
            *slot_p = slot;
            return rows;
        }
        if (rows->type == BT_CONF_GROUP) {
            found = find_flag(rows->rows, slot, flag, slot_p);
        }
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

static const struct bt_conf_option *find_option(
    const struct bt_conf_option *options, struct bt_str flag)
{
    for (; options != NULL && options->flag != NULL; options++) {
        if (bt_str_eq(bt_str_of(options->flag), flag)) {
            return options;
        }
    }
    return NULL;
}

struct nearest {
    struct bt_str wanted;
    const char *flag;
    size_t distance;
};

static void consider(struct nearest *nearest, const char *flag)
{
    size_t distance;

    if (flag == NULL) {
        return;
    }
    distance = bt_conf_distance(nearest->wanted, bt_str_of(flag));
    if (distance < nearest->distance) {
        nearest->distance = distance;
        nearest->flag = flag;
    }
}

static void consider_rows(struct nearest *nearest,
                          const struct bt_conf_row *rows)
{
    for (; rows->name != NULL; rows++) {
        consider(nearest, rows->flag);
        if (rows->type == BT_CONF_GROUP) {
            consider_rows(nearest, rows->rows);
        }
    }
}

static void consider_options(struct nearest *nearest,
                             const struct bt_conf_option *options)
{
    for (; options != NULL && options->flag != NULL; options++) {
        consider(nearest, options->flag);
    }
}

static enum bt_status unknown_flag(struct parse *parse, struct bt_str flag)
{
    struct nearest nearest = {flag, NULL, SIZE_MAX};
    struct bt_conf_why why;

    consider_rows(&nearest, parse->program->rows);
    consider_options(&nearest, parse->program->options);
    consider_options(&nearest, built_in);
    if (nearest.flag == NULL ||
        !bt_conf_is_near(bt_str_of(nearest.flag), nearest.distance)) {
        return usage(parse, flag, "unknown flag; --help lists them all");
    }
    bt_conf_because(&why, "unknown flag; did you mean %s?", nearest.flag);
    return usage(parse, flag, why.text);
}

static enum bt_status parse_arg(struct parse *parse)
{
    const char *const text = parse->argv[parse->at];
    const char *const equals = strchr(text, '=');
    struct arg arg = {
        .flag = equals == NULL ? bt_str_of(text)
                               : bt_str_span(text, (size_t)(equals - text)),
        .value = equals == NULL ? NULL : equals + 1,
    };
    const struct bt_conf_option *option;
    const struct bt_conf_row *row;
    void *slot = NULL;

    if (strncmp(text, "--", 2) != 0) {
        return usage(parse, bt_str_of(text),
                     "unexpected argument; every argument belongs to a "
                     "--flag, see --help");
    }
    if (bt_str_eq(arg.flag, BT_STR("--set"))) {
        return on_set(parse, &arg);
    }
    option = find_option(parse->program->options, arg.flag);
    if (option != NULL) {
        return on_option(parse, &arg, option);
    }
    row = find_flag(parse->program->rows, parse->target, arg.flag, &slot);
    if (row != NULL) {
        return on_row(parse, &arg, row, slot);
    }
    return unknown_flag(parse, arg.flag);
}

static enum bt_conf_verdict print_and_exit(struct bt_buf *text)
{
    const struct bt_str bytes = bt_buf_str(text);
    const bool is_whole =
        !text->failed && fwrite(bytes.ptr, 1, bytes.len, stdout) == bytes.len &&
        fflush(stdout) == 0;

    bt_buf_fini(text);
    return is_whole ? BT_CONF_EXIT_OK : BT_CONF_EXIT_USAGE;
}

/* --help and --version win, wherever they stand. */
static bool is_asked(const struct parse *parse, const char *flag)
{
    for (int i = 1; i < parse->argc; i++) {
        if (strcmp(parse->argv[i], flag) == 0) {
            return true;
        }
    }
    return false;
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
    enum bt_status status = BT_OK;

    if (is_asked(&parse, "--help") || is_asked(&parse, "-h")) {
        bt_conf_help(program, &text);
        return print_and_exit(&text);
    }
    if (is_asked(&parse, "--version")) {
        bt_buf_printf(&text, "%s %s\n", program->name, BATON_VERSION);
        return print_and_exit(&text);
    }
    parse.seen = calloc((size_t)argc + 1, sizeof(*parse.seen));
    if (parse.seen == NULL) {
        (void)fprintf(stderr, "%s: out of memory\n", program->name);
        return BT_CONF_EXIT_USAGE;
    }
    for (parse.at = 1; parse.at < argc && status == BT_OK; parse.at++) {
        status = parse_arg(&parse);
    }
    free(parse.seen);
    if (status != BT_OK) {
        (void)fprintf(stderr, "%s: %s\n", program->name, parse.error.text);
        return BT_CONF_EXIT_USAGE;
    }
    return BT_CONF_RUN;
}
