/*
 * The words of a settings table: --help, and what stands beside a row.
 */
#include "common/conf/conf_value.h"

#define HELP_COLUMN 24
#define LINE_WIDTH  79

void bt_conf_describe(const struct bt_conf_row *row, struct bt_buf *out)
{
    struct bt_buf extra = {0};

    bt_conf_takes(row, true, &extra);
    if (row->preset != NULL && row->preset[0] != '\0') {
        bt_buf_printf(&extra, "%sdefault %s", extra.len > 0 ? "; " : "",
                      row->preset);
    }
    bt_buf_append(out, bt_str_of(row->help));
    if (extra.len > 0) {
        bt_buf_printf(out, " (%.*s)", BT_STR_ARG(bt_buf_str(&extra)));
    }
    out->failed = out->failed || extra.failed;
    bt_buf_fini(&extra);
}

void bt_conf_wrap(struct bt_str text, const char *before, size_t indent,
                  size_t at, struct bt_buf *out)
{
    const size_t room = LINE_WIDTH - indent - strlen(before);

    while (text.len > 0) {
        size_t len = text.len <= room ? text.len : room;

        while (len < text.len && len > 1 && text.ptr[len] != ' ') {
            len--;
        }
        len = len > 1 || text.len <= room ? len : room;
        bt_buf_printf(out, "%*s%s%.*s\n", (int)(indent - at), "", before,
                      BT_STR_ARG(bt_str_cut(text, len)));
        text = bt_str_trim(bt_str_skip(text, len));
        at = 0;
    }
}

static void print_entry(const char *name, const char *metavar,
                        struct bt_str help, struct bt_buf *out)
{
    const size_t before = out->len;
    size_t width;

    bt_buf_printf(out, "  %s%s%s", name, metavar == NULL ? "" : " ",
                  metavar == NULL ? "" : metavar);
    width = out->len - before;
    if (width >= HELP_COLUMN) {
        bt_buf_append_char(out, '\n');
        width = 0;
    }
    bt_conf_wrap(help, "", HELP_COLUMN, width, out);
}

static void print_row(const struct bt_conf_row *row, const char *name,
                      const char *metavar, struct bt_buf *out)
{
    struct bt_buf text = {0};

    bt_conf_describe(row, &text);
    print_entry(name, metavar, bt_buf_str(&text), out);
    out->failed = out->failed || text.failed;
    bt_buf_fini(&text);
}

static void print_flags(const struct bt_conf_row *rows, struct bt_buf *out)
{
    for (; rows->name != NULL; rows++) {
        if (rows->flag != NULL) {
            print_row(rows, rows->flag, rows->metavar, out);
        }
        if (rows->type == BT_CONF_GROUP) {
            print_flags(rows->rows, out);
        }
    }
}

/* Each row under its whole path; `path` is what stands before the names. */
static void print_settings(const struct bt_conf_row *rows, const char *path,
                           struct bt_buf *out)
{
    for (; rows->name != NULL; rows++) {
        struct bt_buf name = {0};

        bt_buf_printf(&name, "%s%s", path, rows->name);
        if (rows->type != BT_CONF_GROUP && !name.failed) {
            print_row(rows, name.data, NULL, out);
        }
        if (rows->rows != NULL) {
            bt_buf_printf(&name, "%s", rows->item_size > 0 ? ".N." : ".");
        }
        if (rows->rows != NULL && !name.failed) {
            print_settings(rows->rows, name.data, out);
        }
        out->failed = out->failed || name.failed;
        bt_buf_fini(&name);
    }
}

static void print_options(const struct bt_conf_option *options,
                          struct bt_buf *out)
{
    for (; options != NULL && options->flag != NULL; options++) {
        print_entry(options->flag, options->metavar, bt_str_of(options->help),
                    out);
    }
}

/* Whether some setting has no flag of its own. */
static bool has_more_than_flags(const struct bt_conf_row *rows)
{
    while (rows->name != NULL &&
           (rows->type == BT_CONF_GROUP ? !has_more_than_flags(rows->rows)
                                        : rows->flag != NULL)) {
        rows++;
    }
    return rows->name != NULL;
}

void bt_conf_help(const struct bt_conf_program *program,
                  const struct bt_conf_option *built_in, struct bt_buf *out)
{
    bt_buf_printf(out, "%s: %s\n\nusage: %s %s\n\nflags:\n", program->name,
                  program->summary, program->name, program->usage);
    print_flags(program->rows, out);
    print_options(program->options, out);
    print_options(built_in, out);
    if (has_more_than_flags(program->rows)) {
        bt_buf_append(out, BT_STR("\nsettings (of --set and of files):\n"));
        print_settings(program->rows, "", out);
    }
    if (program->epilog != NULL) {
        bt_buf_printf(out, "\n%s\n", program->epilog);
    }
}
