/*
 * Settings: one table of rows describes a program's configuration. From it
 * come the YAML reader, the command line, --help, --print-config and the
 * complete example file, so that they can never disagree.
 *
 *     file text  \                        / struct (immutable after load)
 *     flags       >-  struct bt_conf_row  -  --help, --print-config
 *     --set p=v  /                        \ errors with file:line:column
 *
 * A row's value lies at `offset` of the struct it belongs to. Lists of
 * structs (pools, engines) have a sub-table. A setting that takes a list
 * takes a scalar too.
 */
#ifndef COMMON_CONF_CONF_H
#define COMMON_CONF_CONF_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/status.h"
#include "common/base/str.h"

enum bt_conf_type {
    BT_CONF_BOOL,     /* bool: true, false */
    BT_CONF_INT,      /* int64_t within min..max */
    BT_CONF_SIZE,     /* uint64_t bytes: 64MiB, 32KiB, 1GiB, 100B, plain */
    BT_CONF_DURATION, /* uint64_t ms: 30s, 2m, 250ms, 1h; 0 = never */
    BT_CONF_PERCENT,  /* int64_t 0..100: "20%" */
    BT_CONF_DECIMAL,  /* double */
    BT_CONF_STRING,   /* char *, heap, NULL when unset */
    BT_CONF_ENUM,     /* int, index into `names` */
    BT_CONF_STRINGS,  /* struct bt_conf_strings */
    BT_CONF_GROUP,    /* a mapping of rows in the same struct's storage */
    BT_CONF_LIST,     /* struct bt_conf_list of structs with `rows` */
};

struct bt_conf_strings {
    char **items;
    size_t count;
};

struct bt_conf_list {
    void *items; /* array of structs of row->item_size */
    size_t count;
};

struct bt_conf_row {
    const char *name; /* key in the file */
    enum bt_conf_type type;
    size_t offset;      /* a group's rows count from the group's own place */
    const char *preset; /* default as text; NULL: unset, "" for an empty list */
    const char *help;   /* one sentence, lower case, no full stop */
    int64_t min, max;   /* INT, SIZE, DURATION; both 0: not checked */
    /* ENUM: names of 0, 1, …; INT, DURATION: words for 0, 1, … ("auto") */
    const char *const *names;       /* NULL-terminated */
    const struct bt_conf_row *rows; /* GROUP and LIST; ends with name NULL */
    size_t item_size;               /* LIST */
    const char *scalar;  /* LIST, GROUP: the key that a bare value sets */
    const char *flag;    /* "--listen"; NULL: file and --set only */
    const char *metavar; /* "ADDR" */
    bool is_secret;      /* masked by --print-config */
};

struct bt_conf_error {
    char text[512]; /* "file:line:column: what is wrong; what would be right" */
};

/* Writes the text; always false. */
bool bt_conf_fail(struct bt_conf_error *error, const char *format, ...)
    BT_PRINTF(2, 3);
/* Puts the place before the text that is there; always false. */
bool bt_conf_place(struct bt_conf_error *error, const char *format, ...)
    BT_PRINTF(2, 3);

/* Sets every row to its preset. BT_ERR_NOMEM or a bad preset (a bug). */
BT_MUST_CHECK enum bt_status bt_conf_init(const struct bt_conf_row *rows,
                                          void *target);
void bt_conf_fini(const struct bt_conf_row *rows, void *target);

/* Reads YAML text; `name` is for messages. Nothing is half applied on error
 * that the caller may not just bt_conf_fini away. */
BT_MUST_CHECK enum bt_status bt_conf_read(const struct bt_conf_row *rows,
                                          void *target, const char *name,
                                          struct bt_str text,
                                          struct bt_conf_error *error_p);
/* path: "pools.0.handoff.on_failure"; origin for messages: "--set". */
BT_MUST_CHECK enum bt_status bt_conf_set(const struct bt_conf_row *rows,
                                         void *target, const char *origin,
                                         const char *path, const char *value,
                                         struct bt_conf_error *error_p);

/* YAML of the effective values, secrets masked; with help as comments. */
void bt_conf_print(const struct bt_conf_row *rows, const void *target,
                   bool with_help, struct bt_buf *out);

/* --- command lines --- */

/* A flag that is no setting (--config, --check …). */
struct bt_conf_option {
    const char *flag;
    const char *metavar; /* NULL: takes no value */
    const char *help;
};

struct bt_conf_program {
    const char *name;    /* "baton-proxy" */
    const char *summary; /* one line for --help */
    const char *usage;   /* "[--config FILE] …" */
    const char *epilog;  /* examples, exit codes; may be NULL */
    const struct bt_conf_row *rows;
    const struct bt_conf_option *options; /* ends with flag NULL; may be NULL */
    /* One of the options; BT_OK, else an error text was written. */
    enum bt_status (*on_option)(void *owner, const char *flag,
                                const char *value,
                                struct bt_conf_error *error_p);
};

enum bt_conf_verdict {
    BT_CONF_RUN,       /* go on */
    BT_CONF_EXIT_OK,   /* --help or --version was printed: exit 0 */
    BT_CONF_EXIT_USAGE /* an error was printed to stderr: exit 2 */
};

/*
 * Parses argv: `--flag value` and `--flag=value`; rows' flags apply to target
 * in order, list flags append (the first one replaces the preset). --help,
 * --version and --set PATH=VALUE are built in.
 */
enum bt_conf_verdict bt_conf_args(const struct bt_conf_program *program,
                                  void *target, void *owner, int argc,
                                  char **argv);
/* What follows the first such flag in argv, "" for nothing; NULL: not there. */
const char *bt_conf_arg(int argc, char **argv, const char *flag);
/* Is only --help or --version asked for, which win over all else? */
bool bt_conf_asks_for_help(int argc, char **argv);
/* Writes a text to stdout and frees it. */
enum bt_conf_verdict bt_conf_write(struct bt_buf *text);

/* A size with its unit, for other users: "64MiB". */
BT_MUST_CHECK enum bt_status bt_conf_parse_size(struct bt_str text,
                                                uint64_t *bytes_p);

#endif
