/*
 * The command line; see options.h.
 */
#include "agent/engine/options/eng_options.h"

#include "agent/engine/options/eng_fault.h"

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

#define AT(member) offsetof(struct eng_options, member)
#define TEXT(name_, member, preset_, metavar_, help_)                  \
    {                                                                  \
        .name = (name_), .type = BT_CONF_STRING, .offset = AT(member), \
        .preset = (preset_), .help = (help_), .flag = "--" name_,      \
        .metavar = (metavar_)                                          \
    }
#define NUMBER(name_, member, preset_, min_, max_, metavar_, help_)         \
    {                                                                       \
        .name = (name_), .type = BT_CONF_INT, .offset = AT(member),         \
        .preset = (preset_), .help = (help_), .min = (min_), .max = (max_), \
        .flag = "--" name_, .metavar = (metavar_)                           \
    }
#define CHOICE(name_, member, preset_, names_, metavar_, help_)      \
    {                                                                \
        .name = (name_), .type = BT_CONF_ENUM, .offset = AT(member), \
        .preset = (preset_), .help = (help_), .names = (names_),     \
        .flag = "--" name_, .metavar = (metavar_)                    \
    }
#define SWITCH(name_, member, help_)                                 \
    {                                                                \
        .name = (name_), .type = BT_CONF_BOOL, .offset = AT(member), \
        .preset = "false", .help = (help_), .flag = "--" name_       \
    }
#define LIST(name_, member, metavar_, help_)                            \
    {                                                                   \
        .name = (name_), .type = BT_CONF_STRINGS, .offset = AT(member), \
        .preset = "", .help = (help_), .flag = "--" name_,              \
        .metavar = (metavar_)                                           \
    }
#define TIME(name_, member, preset_, help_)                              \
    {                                                                    \
        .name = (name_), .type = BT_CONF_DURATION, .offset = AT(member), \
        .preset = (preset_), .help = (help_), .flag = "--" name_,        \
        .metavar = "TIME", .max = 86400000                               \
    }

static const struct bt_conf_row ROWS[] = {
    TEXT("listen", listen, "127.0.0.1:0", "ADDR",
         "where the API is served; port 0 lets the system choose"),
    CHOICE("role", role, "both", ROLES, "ROLE",
           "what this engine is to its agents and proxies"),
    TEXT("url", url, NULL, "URL",
         "this engine's URL as the proxies know it; unset: from the address"),
    LIST("agents", agents, "ADDR",
         "agents' listener of a proxy; may be given several times"),
    TEXT("key-file", key_file, NULL, "FILE",
         "file with the key that agents and proxies prove to each other"),
    SWITCH("checksum", has_checksum,
           "prove every block by a digest, on both sides"),
    TEXT("model", model, "baton", "NAME", "name that is served"),
    NUMBER("seed", seed, "1", 0, INT64_MAX, "N",
           "with the name, decides every byte and word"),
    TEXT("engine-id", engine_id, NULL, "ID",
         "name of this engine; unset: its URL"),
    NUMBER("blocks", blocks, "4096", 1, 1 << 24, "N", "blocks of the pool"),
    NUMBER("block-size", block_size, "16", 1, 4096, "TOKENS",
           "tokens in a block"),
    NUMBER("layers", layers, "4", 1, 1024, "N", "layers"),
    NUMBER("kv-heads", kv_heads, "2", 1, 1024, "N",
           "KV heads of all ranks together"),
    NUMBER("head-size", head_size, "32", 1, 65536, "N", "numbers in a head"),
    CHOICE("dtype", dtype, "float16", DTYPES, "TYPE",
           "type of a number in a head"),
    NUMBER("tp", tp, "1", 1, 64, "N",
           "emulated ranks, each with an agent and its share of the heads"),
    CHOICE("kv", kv, "split", KVS, "LAYOUT",
           "K and V in regions of their own, a token's both side by side, or "
           "(MLA) one latent for all heads, whole on every rank"),
    TEXT("kv-groups", kv_groups, "full", "LIST",
         "groups of layers with block lists of their own, layer i in group i "
         "modulo their number: full, or window:TOKENS, commas between"),
    NUMBER("prefill-rate", prefill_rate, "0", 0, 1000000000, "TOK/S",
           "tokens computed in a second; 0: as fast as it can"),
    NUMBER("decode-step", decode_step_us, "0", 0, 60000000, "US",
           "time of one word of all running answers; 0: as fast as it can"),
    NUMBER("step-tokens", step_tokens, "2048", 1, 1 << 20, "N",
           "most tokens of prompts that are computed in one step"),
    NUMBER("max-model-len", max_model_len, "32768", 2, 1 << 24, "TOKENS",
           "longest prompt and answer together"),
    NUMBER("max-running", max_running, "256", 1, 65536, "N",
           "answers in the works at once"),
    NUMBER("max-waiting", max_waiting, "4096", 1, 1 << 20, "N",
           "answers that wait for room; beyond it 503"),
    TEXT("provider", provider, "auto", "NAME",
         "fabric: auto, tcp, cma or a libfabric provider"),
    TEXT("fabric-address", fabric_address, NULL, "IP",
         "local address of the fabric; unset: by the URL's host"),
    NUMBER("max-handoffs", max_handoffs, "16384", 1, 65536, "N",
           "handoffs that live at once; beyond it answers go without"),
    TIME("lease", lease_ms, "0s",
         "life of a hold that nobody renews; 0: the proxy's value"),
    TIME("pull-timeout", pull_timeout_ms, "10s", "deadline of a pull"),
    TIME("orphan", orphan_ms, "10s", "life of a hold whose proxy is gone"),
    TIME("drain", drain_ms, "1s",
         "time for the reads of a pull that ended to end by themselves; then "
         "the connection is closed, and with it whatever else it reads"),
    TIME("keep-alive", keep_alive_ms, "5s",
         "how long an idle connection is kept"),
    CHOICE("on-load-failure", on_load_failure, "fail", FAILURES, "POLICY",
           "when a pull fails: fail the answer or recompute it here"),
    CHOICE("connector", connector, "nixl", CONNECTORS, "NAME",
           "shape of the handoff where connector baton is not asked for"),
    LIST("fault", faults, "NAME[=ARG][*TIMES]",
         "do a named thing wrong; see the list below"),
    SWITCH("admin-faults", has_admin,
           "take faults by POST /admin/fault (--fault implies it)"),
    CHOICE("log-level", log_level, "info", LEVELS, "LEVEL",
           "what is logged to stderr"),
    {.name = NULL},
};

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
