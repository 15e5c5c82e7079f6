/*
 * The command line; see options.h.
 */
#include "agent/engine/options/eng_options.h"

#include "agent/engine/options/eng_fault.h"
#include "common/conf/conf_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const ROLES[] = {"prefill", "decode", "both", NULL};
static const char *const DTYPES[] = {"float16", "bfloat16", "float32", "fp8",
                                     NULL};
static const uint32_t DTYPE_BYTES[] = {2, 2, 4, 1};
static const char *const KVS[] = {"split", "packed", "latent", NULL};
static const char *const FAILURES[] = {"fail", "recompute", NULL};
static const char *const CONNECTORS[] = {"nixl", "mooncake-seq", "mooncake",
                                         "tpu",  "none",         NULL};
static const char *const LEVELS[] = {"error", "warn",  "info",
                                     "debug", "trace", NULL};

#define WINDOW_MAX (1 << 24)

#include "agent/engine/options/eng_options.def"

enum bt_conf_verdict options_read(int argc, char **argv,
                                  struct eng_options *options_p)
{
    struct bt_buf epilog = {0};
    struct bt_conf_program program = {
        .name = "baton-engine",
        .summary = "A small engine over libbaton: real KV memory, no language "
                   "model.",
        .usage = "[--listen ADDR] [--role ROLE] [--agents ADDR]... [options]",
        .rows = ROWS,
    };
    enum bt_conf_verdict verdict = BT_CONF_EXIT_USAGE;

    *options_p = (struct eng_options){0};
    bt_buf_append(&epilog, BT_STR("Faults (argument when none is given):\n"));
    fault_help(&epilog);
    bt_buf_append(&epilog,
                  BT_STR("\nExit codes: 0 ended as asked, 1 failed, 2 the "
                         "command line is wrong.\n"));
    bt_buf_append_char(&epilog, '\0');
    if (epilog.failed || bt_conf_init(ROWS, options_p) != BT_OK) {
        (void)fputs("baton-engine: out of memory\n", stderr);
    } else {
        program.epilog = bt_buf_str(&epilog).ptr;
        verdict = bt_conf_args(&program, options_p, NULL, argc, argv);
    }
    if (verdict == BT_CONF_RUN && options_p->model == NULL) {
        (void)fputs("baton-engine: --model: no name; leave it out or name "
                    "what is served\n",
                    stderr);
        verdict = BT_CONF_EXIT_USAGE;
    }
    bt_buf_fini(&epilog);
    return verdict;
}

void options_fini(struct eng_options *options)
{
    bt_conf_fini(ROWS, options);
}

const char *options_role_name(const struct eng_options *options)
{
    return ROLES[options->role];
}

baton_role options_role(const struct eng_options *options)
{
    static const baton_role ALL[] = {BATON_ROLE_PREFILL, BATON_ROLE_DECODE,
                                     BATON_ROLE_BOTH};

    return ALL[options->role];
}

/* "full" or "window:TOKENS". */
static bool read_group(struct bt_str text, uint32_t *window_p)
{
    const struct bt_str prefix = BT_STR("window:");
    uint64_t tokens = 0;

    if (bt_str_eq(text, BT_STR("full"))) {
        *window_p = 0;
        return true;
    }
    if (!bt_str_starts(text, prefix) ||
        bt_str_to_u64(bt_str_span(text.ptr + prefix.len, text.len - prefix.len),
                      &tokens) != BT_OK ||
        tokens == 0 || tokens > WINDOW_MAX) {
        return false;
    }
    *window_p = (uint32_t)tokens;
    return true;
}

/* NULL, or what is wrong; without a fault the model has the groups. */
static const char *read_groups(const struct eng_options *options,
                               struct model_options *model)
{
    struct bt_str rest = bt_str_of(options->kv_groups);
    struct bt_str item;

    model->group_count = 0;
    while (bt_str_next_item(&rest, &item)) {
        if (model->group_count == MODEL_GROUPS_MAX) {
            return "there are at most 8 groups";
        }
        if (!read_group(item, &model->windows[model->group_count])) {
            return "a group is full or window:TOKENS, with 1 to 16777216 "
                   "tokens";
        }
        model->group_count++;
    }
    if (model->group_count == 0) {
        return "at least one group is needed";
    }
    if (options->layers % model->group_count != 0) {
        return "--layers must be a multiple of the number of groups";
    }
    if (options->blocks < model->group_count) {
        return "--blocks must be at least the number of groups";
    }
    return NULL;
}

const char *options_groups_fault(const struct eng_options *options)
{
    struct model_options model;

    return read_groups(options, &model);
}

enum bt_status options_model(const struct eng_options *options,
                             struct eng_model *model_p)
{
    struct model_options model = {
        .name = options->model,
        .seed = (uint64_t)options->seed,
        .layers = (uint32_t)options->layers,
        .kv_heads = (uint32_t)options->kv_heads,
        .head_size = (uint32_t)options->head_size,
        .dtype_bytes = DTYPE_BYTES[options->dtype],
        .is_latent = options->kv == OPTIONS_KV_LATENT,
    };

    if (read_groups(options, &model) != NULL) {
        return BT_ERR_RANGE;
    }
    return model_init(&model, model_p);
}

void options_fingerprint(const struct eng_options *options, struct bt_buf *out)
{
    bt_buf_printf(out,
                  "baton-engine/1 model=%s seed=%" PRId64 " layers=%" PRId64
                  " kv_heads=%" PRId64 " head_size=%" PRId64
                  " dtype=%s block=%" PRId64 " kv=%s groups=%s",
                  options->model, options->seed, options->layers,
                  options->kv_heads, options->head_size, DTYPES[options->dtype],
                  options->block_size, KVS[options->kv], options->kv_groups);
    bt_buf_append_char(out, '\0');
}
