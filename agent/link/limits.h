/*
 * Limits of the link between agents and proxies (agent/LINK.md): what one side
 * may send is what the other takes.
 */
#ifndef AGENT_LINK_LIMITS_H
#define AGENT_LINK_LIMITS_H

#include "common/base/base.h"

#define LINK_VERSION 1u

/* What one side may offer in `features`, and both then do. */
#define LINK_FEATURE_WANT "want" /* cards are asked for by peer_want */

#define LINK_LINE_MAX        BT_MIB       /* bytes of a line, and its '\n' */
#define LINK_QUEUE_MAX       (4 * BT_MIB) /* unsent bytes; beyond: closed */
#define LINK_SYNC_RECORDS    1000u        /* of one part */
#define LINK_ENGINE_MAX      255u         /* bytes of texts in hello */
#define LINK_URL_MAX         1024u
#define LINK_FINGERPRINT_MAX 4096u
#define LINK_SUMMARY_MAX     1024u
#define LINK_KEY_MAX         4096u
#define LINK_WORLD_MAX       64u /* ranks of an engine */

#endif
