/*
 * Settings as YAML: what --print-config shows and what the complete example
 * file is made of. What is printed reads back as the same settings.
 */
#include "common/conf/conf_value.h"

#define INDENT     2
#define LINE_WIDTH 78

struct printer {
    struct bt_buf *out;
    size_t depth;
    bool has_help;
    bool is_inline; /* the next line goes on after "- " */
};

static void print_rows(struct printer *printer, const struct bt_conf_row *rows,
                       const void *target);

static void begin_line(struct printer *printer)
{
    if (printer->is_inline) {
        printer->is_inline = false;
        return;
    }
    for (size_t i = 0; i < printer->depth * INDENT; i++) {
        bt_buf_append_char(printer->out, ' ');
    }
}

/* Words of `text` as comment lines of at most LINE_WIDTH. */
static void print_comment(struct printer *printer, struct bt_str text)
{
    const size_t room = LINE_WIDTH - 2 - printer->depth * INDENT;

    while (text.len > 0) {
        const struct bt_str line = bt_conf_wrap(text, room);

        begin_line(printer);
        bt_buf_printf(printer->out, "# %.*s\n", BT_STR_ARG(line));
        text =
            bt_str_trim(bt_str_span(text.ptr + line.len, text.len - line.len));
    }
}

static void print_help(struct printer *printer, const struct bt_conf_row *row)
{
    struct bt_buf text = {0};

    bt_conf_describe(row, &text);
    if (text.failed) {
        printer->out->failed = true;
    }
    print_comment(printer, bt_buf_str(&text));
    bt_buf_fini(&text);
}

static void print_list(struct printer *printer, const struct bt_conf_row *row,
                       const struct bt_conf_list *list)
{
    if (list->count == 0) {
        bt_buf_append(printer->out, BT_STR(" []\n"));
        return;
    }
    bt_buf_append_char(printer->out, '\n');
    printer->depth++;
    for (size_t i = 0; i < list->count; i++) {
        begin_line(printer);
        bt_buf_append(printer->out, BT_STR("- "));
        printer->is_inline = true;
        printer->depth++;
        print_rows(printer, row->rows,
                   (const char *)list->items + i * row->item_size);
        printer->depth--;
    }
    printer->depth--;
}

static void print_row(struct printer *printer, const struct bt_conf_row *row,
                      const void *slot)
{
    if (printer->has_help) {
        print_help(printer, row);
    }
    begin_line(printer);
    bt_buf_printf(printer->out, "%s:", row->name);
    if (row->type == BT_CONF_LIST) {
        print_list(printer, row, slot);
        return;
    }
    if (row->type == BT_CONF_GROUP) {
        bt_buf_append_char(printer->out, '\n');
        printer->depth++;
        print_rows(printer, row->rows, slot);
        printer->depth--;
        return;
    }
    bt_buf_append_char(printer->out, ' ');
    bt_conf_scalar_print(row, slot, printer->out);
    bt_buf_append_char(printer->out, '\n');
}

static void print_rows(struct printer *printer, const struct bt_conf_row *rows,
                       const void *target)
{
    for (const struct bt_conf_row *row = rows; row->name != NULL; row++) {
        if (printer->has_help && printer->depth == 0 && row != rows) {
            bt_buf_append_char(printer->out, '\n');
        }
        print_row(printer, row, bt_conf_const_slot(row, target));
    }
}

void bt_conf_print(const struct bt_conf_row *rows, const void *target,
                   bool with_help, struct bt_buf *out)
{
    struct printer printer = {.out = out, .has_help = with_help};

    print_rows(&printer, rows, target);
}
