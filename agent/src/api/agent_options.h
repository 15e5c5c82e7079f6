/*
 * The host's options, checked and copied.
 */
#ifndef AGENT_SRC_API_AGENT_OPTIONS_H
#define AGENT_SRC_API_AGENT_OPTIONS_H

#include "agent/src/pull/params.h"

/* ERR_ARGUMENT, told to the given log, or ERR_MEMORY. The copy's texts are in
 * the arena, none NULL but fabric_address. */
baton_status bta_options_copy(const baton_options *asked,
                              struct bt_arena *arena, baton_options *copy_p);
/* The host of the engine's URL, in the arena; NULL when there is none. */
const char *bta_options_url_host(const baton_options *options,
                                 struct bt_arena *arena);

#endif
