/*
 * The proxy's metrics: one row per metric in metrics.def, one instance per
 * worker.
 */
#ifndef PROXY_METRICS_STATS_H
#define PROXY_METRICS_STATS_H

#include "common/metrics.h"

enum stat_id {
#define METRIC(name, text, type, help, label, values, label2, values2) \
    STAT_##name,
#include "proxy/metrics/metrics.def"
#undef METRIC
    STAT_COUNT
};

/* Why a request took its route; the label of STAT_ROUTES. */
enum route_reason {
    ROUTE_REASON_PD, /* prefill and decode */
    ROUTE_REASON_NO_PREFILL_POOL,
    ROUTE_REASON_N,
    ROUTE_REASON_BEST_OF,
    ROUTE_REASON_BATCH,
    ROUTE_REASON_ECHO,
    ROUTE_REASON_PROMPT_LOGPROBS,
    ROUTE_REASON_BEAM,
    ROUTE_REASON_PROMPT_EMBEDS,
    ROUTE_REASON_TRUNCATE,
    ROUTE_REASON_SHORT,
    ROUTE_REASON_TOOL_CHOICE,
    ROUTE_REASON_NO_HANDOFF,
    ROUTE_REASON_LOCAL,       /* handoff.on_failure: local */
    ROUTE_REASON_SAME_ENGINE, /* one engine is P and D */
    ROUTE_REASON_COUNT
};
extern const char *const route_reason_names[ROUTE_REASON_COUNT];

enum leg_role {
    LEG_PREFILL,
    LEG_DECODE,
    LEG_RELEASE,
    LEG_ROLE_COUNT
};
extern const char *const leg_role_names[LEG_ROLE_COUNT];

enum leg_outcome {
    LEG_OK,
    LEG_CLIENT_ERROR, /* 4xx */
    LEG_SERVER_ERROR, /* 5xx */
    LEG_BUSY,         /* 429, 503 */
    LEG_BAD_ANSWER,
    LEG_REFUSED,
    LEG_LOST,
    LEG_TIMED_OUT,
    LEG_CANCELLED,
    LEG_OUTCOME_COUNT
};

enum release_result {
    RELEASE_RESULT_SENT,
    RELEASE_RESULT_TOO_MANY,
    RELEASE_RESULT_TOO_LATE,
    RELEASE_RESULT_NO_DECODE,
    RELEASE_RESULT_COUNT
};

/* Why a connection was turned away. */
enum shortage {
    SHORTAGE_CONNECTIONS, /* limits.connections */
    SHORTAGE_ADDRESS,     /* limits.client_connections */
    SHORTAGE_DESCRIPTORS,
    SHORTAGE_COUNT
};

/* NULL when memory is out. */
struct bt_metrics *stats_open(void);

void stats_add(struct bt_metrics *metrics, enum stat_id stat, int64_t delta);
void stats_count(struct bt_metrics *metrics, enum stat_id stat, size_t label);
void stats_code(struct bt_metrics *metrics, unsigned code);
void stats_leg(struct bt_metrics *metrics, enum leg_role role,
               enum leg_outcome outcome);
void stats_time(struct bt_metrics *metrics, enum stat_id stat, uint64_t us);

#endif
