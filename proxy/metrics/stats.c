/*
 * stats: the rows of metrics.def with their label values.
 */
#include "proxy/metrics/stats.h"

#include "proxy/base/fault.h"

static const char *const CODES[] = {
    "200", "400", "401", "404", "405", "408", "413", "414", "417", "422",
    "429", "431", "499", "500", "501", "502", "503", "504", "505", "other"};

const char *const route_reason_names[ROUTE_REASON_COUNT] = {
    [ROUTE_REASON_PD] = "pd",
    [ROUTE_REASON_NO_PREFILL_POOL] = "no_prefill_pool",
    [ROUTE_REASON_N] = "n",
    [ROUTE_REASON_BEST_OF] = "best_of",
    [ROUTE_REASON_BATCH] = "batch",
    [ROUTE_REASON_ECHO] = "echo",
    [ROUTE_REASON_PROMPT_LOGPROBS] = "prompt_logprobs",
    [ROUTE_REASON_BEAM] = "beam_search",
    [ROUTE_REASON_PROMPT_EMBEDS] = "prompt_embeds",
    [ROUTE_REASON_TRUNCATE] = "truncate_prompt_tokens",
    [ROUTE_REASON_SHORT] = "short_prompt",
    [ROUTE_REASON_TOOL_CHOICE] = "p_tool_choice",
    [ROUTE_REASON_NO_HANDOFF] = "no_handoff",
    [ROUTE_REASON_LOCAL] = "p_failed",
    [ROUTE_REASON_SAME_ENGINE] = "same_engine",
};

const char *const leg_role_names[LEG_ROLE_COUNT] = {
    [LEG_PREFILL] = "prefill",
    [LEG_DECODE] = "decode",
    [LEG_RELEASE] = "release",
};

static const char *const OUTCOMES[LEG_OUTCOME_COUNT] = {
    [LEG_OK] = "ok",
    [LEG_CLIENT_ERROR] = "client_error",
    [LEG_SERVER_ERROR] = "server_error",
    [LEG_BUSY] = "busy",
    [LEG_BAD_ANSWER] = "bad_answer",
    [LEG_REFUSED] = "refused",
    [LEG_LOST] = "lost",
    [LEG_TIMED_OUT] = "timed_out",
    [LEG_CANCELLED] = "cancelled",
};

static const char *const RELEASES[RELEASE_RESULT_COUNT] = {
    [RELEASE_RESULT_SENT] = "sent",
    [RELEASE_RESULT_TOO_MANY] = "too_many",
    [RELEASE_RESULT_TOO_LATE] = "too_late",
    [RELEASE_RESULT_NO_DECODE] = "no_decode",
};

static const char *const SHORTAGES[SHORTAGE_COUNT] = {
    [SHORTAGE_CONNECTIONS] = "connections",
    [SHORTAGE_ADDRESS] = "address",
    [SHORTAGE_DESCRIPTORS] = "descriptors",
};

#define LABEL_NONE       NULL
#define VALUES_NONE      NULL, 0
#define VALUES_CODES     CODES, BT_ARRAY_LEN(CODES)
#define VALUES_ROUTES    route_reason_names, ROUTE_REASON_COUNT
#define VALUES_FAULTS    fault_names, FAULT_COUNT
#define VALUES_ROLES     leg_role_names, LEG_ROLE_COUNT
#define VALUES_OUTCOMES  OUTCOMES, LEG_OUTCOME_COUNT
#define VALUES_RELEASES  RELEASES, RELEASE_RESULT_COUNT
#define VALUES_SHORTAGES SHORTAGES, SHORTAGE_COUNT
#define NONE             NULL

static const struct bt_metric_row ROWS[STAT_COUNT] = {
#define METRIC(id, text, kind, words, label_, values_, label2_, values2_)      \
    [STAT_##id] = {text,    BT_METRIC_##kind, words, label_, VALUES_##values_, \
                   label2_, VALUES_##values2_},
#include "proxy/metrics/metrics.def"
#undef METRIC
};

struct bt_metrics *stats_open(void)
{
    return bt_metrics_open(ROWS, STAT_COUNT);
}

void stats_add(struct bt_metrics *metrics, enum stat_id stat, int64_t delta)
{
    bt_metrics_add(metrics, stat, 0, 0, delta);
}

void stats_count(struct bt_metrics *metrics, enum stat_id stat, size_t label)
{
    bt_metrics_add(metrics, stat, label, 0, 1);
}

void stats_code(struct bt_metrics *metrics, unsigned code)
{
    const size_t last = BT_ARRAY_LEN(CODES) - 1;
    size_t label = last;

    for (size_t i = 0; i < last && label == last; i++) {
        const unsigned known = (unsigned)(CODES[i][0] - '0') * 100 +
                               (unsigned)(CODES[i][1] - '0') * 10 +
                               (unsigned)(CODES[i][2] - '0');
        label = known == code ? i : last;
    }
    bt_metrics_add(metrics, STAT_REQUESTS, label, 0, 1);
}

void stats_leg(struct bt_metrics *metrics, enum leg_role role,
               enum leg_outcome outcome)
{
    bt_metrics_add(metrics, STAT_LEGS, role, outcome, 1);
}

void stats_time(struct bt_metrics *metrics, enum stat_id stat, uint64_t us)
{
    bt_metrics_observe_us(metrics, stat, 0, us);
}
