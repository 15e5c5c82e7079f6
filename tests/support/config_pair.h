/*
 * The smallest configuration: one pool of one prefill and one decode engine,
 * which fleet_open makes engines 0 and 1.
 */
#ifndef TESTS_SUPPORT_CONFIG_PAIR_H
#define TESTS_SUPPORT_CONFIG_PAIR_H

#include "common/io/net.h"
#include "proxy/config/config.h"

#include <stdio.h>

struct config_pair {
    char urls[2][BT_ADDR_TEXT_MAX + 8];
    struct engine_conf engines[2];
    struct pool_conf pool;
};

/* Puts the pool into `config`, which needs the pair as long as it lives. */
static inline void config_pair_set(struct config_pair *pair,
                                   struct config *config, int connector,
                                   const char *const urls[2])
{
    for (int i = 0; i < 2; i++) {
        (void)snprintf(pair->urls[i], sizeof(pair->urls[i]), "%s", urls[i]);
        pair->engines[i] =
            (struct engine_conf){.url = pair->urls[i], .weight = 1};
    }
    pair->pool = (struct pool_conf){
        .connector = connector,
        .prefill = {.engines = {&pair->engines[0], 1}},
        .decode = {.engines = {&pair->engines[1], 1}},
    };
    config->pools.items = &pair->pool;
    config->pools.count = 1;
}

#endif
