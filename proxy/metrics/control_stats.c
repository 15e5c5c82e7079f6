/*
 * The table of the control thread's metrics.
 */
#include "proxy/metrics/control_stats.h"

static const char *const REFUSALS[] = {
    "version",   "proof",          "bad_hello",   "late",
    "duplicate", "too_many_links", "bad_message", "other",
};

static const char *const PULL_FAILURES[] = {
    "lost",      "cancelled", "checksum",     "timeout", "unreachable",
    "restarted", "mismatch",  "unknown_peer", "memory",  "other",
};

static const char *const RELEASES[] = {"pulled", "cancelled", "failed",
                                       "other"};

static const char *const HOLD_ENDS[] = {"expired", "broken", "gone", "other"};

static const char *const PROBES[] = {
    [CONTROL_PROBE_GOOD] = "good",
    [CONTROL_PROBE_BAD_STATUS] = "bad_status",
    [CONTROL_PROBE_LATE] = "late",
    [CONTROL_PROBE_LOST] = "lost",
};

#define LABEL(name, list) \
    .label = (name), .values = (list), .value_count = BT_ARRAY_LEN(list)

const struct bt_metric_row control_stat_rows[CONTROL_STATS] = {
    [CONTROL_STAT_LINKS] = {.name = "baton_agent_links",
                            .type = BT_METRIC_GAUGE,
                            .help = "agents' links that are up"},
    [CONTROL_STAT_LINKS_LOST] = {.name = "baton_agent_links_lost_total",
                                 .type = BT_METRIC_COUNTER,
                                 .help = "agents' links that ended"},
    [CONTROL_STAT_LINKS_REFUSED] = {.name = "baton_agent_links_refused_total",
                                    .type = BT_METRIC_COUNTER,
                                    .help = "agents' links that were refused",
                                    LABEL("reason", REFUSALS)},
    [CONTROL_STAT_PING_LATE] = {.name = "baton_agent_ping_late_seconds",
                                .type = BT_METRIC_HISTOGRAM,
                                .help = "how late a ping was sent: what keeps "
                                        "the control thread"},
    [CONTROL_STAT_MESSAGES_IGNORED] =
        {.name = "baton_agent_messages_ignored_total",
         .type = BT_METRIC_COUNTER,
         .help = "agents' messages of an unknown type or about an unknown "
                 "thing"},
    [CONTROL_STAT_HANDOFFS] = {.name = "baton_handoffs_live",
                               .type = BT_METRIC_GAUGE,
                               .help = "handoffs in the table"},
    [CONTROL_STAT_HANDOFFS_REFUSED] = {.name = "baton_handoffs_refused_total",
                                       .type = BT_METRIC_COUNTER,
                                       .help = "handoffs that found the table "
                                               "full"},
    [CONTROL_STAT_HELD_BLOCKS] = {.name = "baton_held_blocks",
                                  .type = BT_METRIC_GAUGE,
                                  .help = "blocks that prefill engines hold "
                                          "for handoffs"},
    [CONTROL_STAT_HELD_TOKENS] = {.name = "baton_held_tokens",
                                  .type = BT_METRIC_GAUGE,
                                  .help = "tokens that prefill engines hold "
                                          "for handoffs"},
    [CONTROL_STAT_RELEASES] = {.name = "baton_releases_total",
                               .type = BT_METRIC_COUNTER,
                               .help = "handoffs that the proxy released",
                               LABEL("reason", RELEASES)},
    [CONTROL_STAT_STRAY_HOLDS] = {.name = "baton_stray_holds_total",
                                  .type = BT_METRIC_COUNTER,
                                  .help = "holds of unknown handoffs, released "
                                          "at once"},
    [CONTROL_STAT_HOLDS_ENDED] = {.name = "baton_holds_ended_total",
                                  .type = BT_METRIC_COUNTER,
                                  .help = "holds that ended before their "
                                          "release",
                                  LABEL("reason", HOLD_ENDS)},
    [CONTROL_STAT_PULLED_BYTES] = {.name = "baton_pulled_bytes_total",
                                   .type = BT_METRIC_COUNTER,
                                   .help = "bytes that decode engines read and "
                                           "proved"},
    [CONTROL_STAT_PULL_SECONDS] = {.name = "baton_pull_seconds",
                                   .type = BT_METRIC_HISTOGRAM,
                                   .help = "time of a pull, wait, reads and "
                                           "proof together"},
    [CONTROL_STAT_PULL_FAILURES] = {.name = "baton_pull_failures_total",
                                    .type = BT_METRIC_COUNTER,
                                    .help = "pulls that failed",
                                    LABEL("reason", PULL_FAILURES)},
    [CONTROL_STAT_DECODES_LOST] = {.name = "baton_decodes_lost_total",
                                   .type = BT_METRIC_COUNTER,
                                   .help = "decode engines whose link died "
                                           "before their pull"},
    [CONTROL_STAT_ENGINES] = {.name = "baton_engines",
                              .type = BT_METRIC_GAUGE,
                              .help = "engines in memory, with those that "
                                      "left and are still named by a request"},
    [CONTROL_STAT_PROBES] = {.name = "baton_probes_total",
                             .type = BT_METRIC_COUNTER,
                             .help = "health probes of engines by their end",
                             LABEL("result", PROBES)},
    [CONTROL_STAT_ADMIN_REFUSED] =
        {.name = "baton_admin_connections_refused_total",
         .type = BT_METRIC_COUNTER,
         .help = "connections to the admin address for which there was no "
                 "room"},
};

size_t control_stat_label(enum control_stat stat, struct bt_str word)
{
    const struct bt_metric_row *const row = &control_stat_rows[stat];

    for (size_t i = 0; i < row->value_count; i++) {
        if (bt_str_eq(word, bt_str_of(row->values[i]))) {
            return i;
        }
    }
    return row->value_count == 0 ? 0 : row->value_count - 1;
}
