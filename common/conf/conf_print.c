/*
 * Settings as YAML: what --print-config shows and what the complete example
 * file is made of. What is printed reads back as the same settings.
 */
#include "common/conf/conf_value.h"

struct printer {
    struct bt_buf *out;
    size_t indent;
    bool has_help;
    bool is_inline; /* the next line goes on after "- " */
};

static void print_rows(struct printer *printer, const struct bt_conf_row *rows,
                       const void *target);

/* Columns of the line that are there already; it is a line of its own then. */
static size_t begin_line(struct printer *printer)
{
    const size_t at = printer->is_inline ? printer->indent : 0;

    printer->is_inline = false;
    return at;
}

static void print_help(struct printer *printer, const struct bt_conf_row *row)
{
    struct bt_buf text = {0};

    bt_conf_describe(row, &text);
    printer->out->failed = printer->out->failed || text.failed;
    bt_conf_wrap(bt_buf_str(&text), "# ", printer->indent, begin_line(printer),
                 printer->out);
    bt_buf_fini(&text);
}

static void print_list(struct printer *printer, const struct bt_conf_row *row,
                       const struct bt_conf_list *list)
{
    bt_buf_append(printer->out,
                  list->count == 0 ? BT_STR(" []\n") : BT_STR("\n"));
    printer->indent += 4;
    for (size_t i = 0; i < list->count; i++) {
        bt_buf_printf(printer->out, "%*s", (int)printer->indent, "- ");
        printer->is_inline = true;
        print_rows(printer, row->rows,
                   (const char *)list->items + i * row->item_size);
    }
    printer->indent -= 4;
}

static void print_row(struct printer *printer, const struct bt_conf_row *row,
                      const void *slot)
{
    if (printer->has_help) {
        print_help(printer, row);
    }
    bt_buf_printf(printer->out,
                  "%*s%s:", (int)(printer->indent - begin_line(printer)), "",
                  row->name);
    if (row->type == BT_CONF_LIST) {
        print_list(printer, row, slot);
    } else if (row->type == BT_CONF_GROUP) {
        bt_buf_append_char(printer->out, '\n');
        printer->indent += 2;
        print_rows(printer, row->rows, slot);
        printer->indent -= 2;
    } else {
        bt_buf_append_char(printer->out, ' ');
        bt_conf_scalar_print(row, slot, printer->out);
        bt_buf_append_char(printer->out, '\n');
    }
}

static void print_rows(struct printer *printer, const struct bt_conf_row *rows,
                       const void *target)
{
    for (const struct bt_conf_row *row = rows; row->name != NULL; row++) {
        if (printer->has_help && printer->indent == 0 && row != rows) {
            bt_buf_append_char(printer->out, '\n');
        }
        print_row(printer, row, (const char *)target + row->offset);
    }
}

void bt_conf_print(const struct bt_conf_row *rows, const void *target,
                   bool with_help, struct bt_buf *out)
{
    struct printer printer = {.out = out, .has_help = with_help};

    print_rows(&printer, rows, target);
}
