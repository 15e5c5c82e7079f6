/*
 * What the parts of the agents' side share: agents.c (listener, upgrade),
 * agents_link.c (lines), agents_hello.c (introduction), agents_group.c (ranks
 * and engines), peers.c (pairs), and admin.c, which shows them.
 */
#ifndef PROXY_AGENTS_AGENTS_CORE_H
#define PROXY_AGENTS_AGENTS_CORE_H

#include "agent/link/limits.h"
#include "agent/link/link_message.h"
#include "common/base/buf.h"
#include "common/http/http_conn.h"
#include "common/io/stream.h"
#include "common/proof.h"
#include "proxy/agents/agents_options.h"
#include "proxy/base/control_listener.h"
#include "proxy/metrics/control_stats.h"

#define AGENTS_LINKS_MAX 4096u
#define AGENTS_STRANGERS 128u /* links that are not up yet */
#define AGENTS_PEERS_MAX 65536u
#define AGENT_HIGH_WATER 65536u /* unsent; above it introductions wait */
#define AGENT_HELLO_MS   2000u
#define AGENT_RIVAL_MS   1000u
#define AGENT_ORPHAN_MS  11000u /* the agents' 10 s and some */
#define AGENT_BOOTS_MAX  HANDOFF_RANKS_MAX

enum agent_role {
    AGENT_ROLE_PREFILL = 1,
    AGENT_ROLE_DECODE = 2,
    AGENT_ROLE_BOTH = 3,
    AGENT_ROLE_SCHEDULER = 4
};

/* Who an agent says it is. */
struct agent_hello {
    char *engine;
    char *url; /* normalised */
    char *fingerprint;
    struct bt_buf peer; /* the object that its peers get, text as it came */
    uint64_t engine_boot, boot;
    uint64_t blocks, block_tokens;
    char *summary; /* of its layout: an object, text as it came */
    unsigned rank, world, tp, pp, dp;
    bool has_want; /* of the features that we know */
    enum agent_role role;
    uint64_t boots[AGENT_BOOTS_MAX]; /* scheduler: of all ranks */
    size_t boot_count;
};

enum agent_link_state {
    AGENT_LINK_HTTP,  /* the upgrade is awaited */
    AGENT_LINK_HELLO, /* hello is awaited */
    AGENT_LINK_RIVAL, /* an older link of that rank is being asked */
    AGENT_LINK_UP,
    AGENT_LINK_REFUSED, /* the error is sent, the agent's close is awaited */
    AGENT_LINK_CLOSED,
};

struct agent_group;
struct peer;
TAILQ_HEAD(peer_list, peer);

struct agent_link {
    struct bt_grave grave;
    TAILQ_ENTRY(agent_link) entry;
    struct agents *agents;
    enum agent_link_state state;
    struct bt_http_conn *conn; /* HTTP */
    struct bt_stream *stream;  /* from HELLO on */
    struct bt_timer timer;
    char address[BT_ADDR_TEXT_MAX];
    struct bt_nonces nonces;
    struct bt_buf in; /* an unfinished line */
    size_t scanned;
    uint64_t heard_ms, up_ms;
    uint64_t ping_us;     /* when the next ping is due */
    uint64_t heard;       /* reads so far */
    uint64_t rival_heard; /* the rival's, when it was asked */
    const char *broken;   /* why it ends on the next turn; NULL: it does not */
    struct agent_hello hello;
    struct agent_group *group; /* NULL: no engine of that URL is configured */
    bool is_stranger;          /* it was never up */
    bool is_draining;          /* the agent said goodbye */
    bool is_syncing;           /* until the sync's last part */
    uint64_t blocks_free;      /* UINT64_MAX: unknown */
    struct peer_list as_decode;
    struct peer_list unsent; /* of as_decode: what waits for room */
};
TAILQ_HEAD(agent_link_list, agent_link);

enum agent_rank_state {
    AGENT_RANK_NEVER,
    AGENT_RANK_LINKED,
    AGENT_RANK_CUT,  /* the link is down, it may come back */
    AGENT_RANK_DEAD, /* down for agents.dead_ms: its pulls have failed */
    AGENT_RANK_GONE, /* its holds have ended too */
};

struct agent_rank {
    struct agent_group *group;
    unsigned rank;
    enum agent_rank_state state;
    struct agent_link *link; /* LINKED */
    char *engine;            /* of the last hello */
    uint64_t boot;
    struct bt_timer timer;
};

/* All ranks at one URL, and the configured engines with it. */
struct agent_group {
    struct bt_grave grave;
    struct agents *agents;
    unsigned slot; /* of agents->groups */
    char *url;
    struct engine **engines; /* room for one more than there are */
    size_t engine_count;
    struct agent_rank ranks[HANDOFF_RANKS_MAX];
    struct agent_link *scheduler;
    unsigned world; /* as last linked; 0: never was */
    bool is_linked;
    uint64_t boot;
    struct peer_list as_prefill;
    unsigned char readers[ENGINES_MAX]; /* by the slot of a P's group: our ranks
                                           that can read from it */
};

enum peer_state {
    PEER_INTRODUCED,
    PEER_READY,
    PEER_FAILED
};

/* An engine of P and a rank of D that reads from it. Sets of P's ranks. */
struct peer {
    TAILQ_ENTRY(peer) by_prefill, by_decode, by_turn;
    struct agent_group *prefill;
    struct agent_link *decode;
    bool is_queued;    /* in decode->unsent */
    bool is_up_unsent; /* the peer_up itself; before its cards */
    uint64_t sources;  /* that D wants; 0: not known yet, or refused */
    uint64_t unsent;   /* of sources: their cards */
    uint64_t ready;    /* of sources: D can read from them */
    enum peer_state state;
    char provider[16];
    char reason[384];
    uint32_t us;
};

_Static_assert(HANDOFF_RANKS_MAX <= 64, "struct peer has sets of ranks");

struct agents {
    struct agents_options options;
    struct handoffs *handoffs;
    struct control_listener listener;
    struct bt_str key;                /* heap; empty: none */
    struct agent_link_list links;     /* that are or were up */
    struct agent_link_list strangers; /* the others, the oldest first */
    size_t link_count;                /* of both */
    size_t stranger_count, peer_count;
    struct agent_group *groups[ENGINES_MAX];    /* by slot; NULL: free */
    size_t group_count;                         /* above all that are used */
    struct agent_group *by_engine[ENGINES_MAX]; /* by an engine's slot */
    bool is_closing;
};

/* --- agents.c --- */
struct agent_group *agents_find_group(const struct agents *agents,
                                      const char *url);
/* NULL where no agents belong to it: it was removed. */
static inline struct agent_group *agents_group_of(const struct agents *agents,
                                                  const struct engine *engine)
{
    return agents->by_engine[engine->slot];
}

/* --- agents_link.c --- */
/* Zeroed storage in; the link waits for its upgrade then. */
void agent_link_init(struct agent_link *link, struct agents *agents);
/* The upgraded connection; `rest` was read behind the head. */
void agent_link_start(struct agent_link *link, struct bt_stream *stream,
                      struct bt_str rest);
/* Sends a line; '\n' is added. Never calls back. */
void agent_link_send(struct agent_link *link, const struct bt_buf *line);
/* Ends a line, sends and frees it. */
void agent_link_end_line(struct agent_link *link, struct bt_buf *line);
/* A line of nothing but its type. */
void agent_link_say(struct agent_link *link, enum link_type type);
void agent_link_order(struct agent_link *link, enum handoff_order order,
                      struct handoff_id id, enum release_reason reason);
/* Tells the agent what is wrong and waits for its close. */
void agent_link_refuse(struct agent_link *link, const char *code,
                       const char *text);
void agent_link_end(struct agent_link *link, const char *why);
/* Of the strangers the one that is least worth waiting for; NULL: none is. */
struct agent_link *agent_link_idlest(const struct agents *agents);
void agent_link_ignore(struct agent_link *link);
bool agent_link_is_rank(const struct agent_link *link); /* no scheduler */

/* --- agents_hello.c --- */
/* False with *code_p and *why_p (static) when it is refused. */
BT_MUST_CHECK bool agent_hello_read(const struct agent_link *link,
                                    struct bt_str line,
                                    const struct link_message *message,
                                    struct agent_hello *hello,
                                    const char **code_p, const char **why_p);
void agent_hello_fini(struct agent_hello *hello);
const char *agent_role_text(enum agent_role role);

/* --- agents_group.c --- */
/* NULL when memory is out. */
struct agent_group *agent_group_open(struct agents *agents, unsigned slot,
                                     const char *url);
/* Its links have ended. */
void agent_group_close(struct agent_group **group);
/* An engine of the same URL. */
BT_MUST_CHECK enum bt_status agent_group_add(struct agent_group *group,
                                             struct engine *engine);
/* It is known as this group's now: the ranks that are linked serve it. */
void agent_group_joined(struct agent_group *group, struct engine *engine);
void agent_group_remove(struct agent_group *group, struct engine *engine);
/* All its ranks are dead and their holds have ended. */
void agent_group_end(struct agent_group *group);
/* A link of this group came up, or went down. */
void agent_group_attach(struct agent_group *group, struct agent_link *link);
void agent_group_detach(struct agent_group *group, struct agent_link *link);
/* A rank's free blocks changed. */
void agent_group_occupancy(struct agent_group *group);
/* Is this configured engine served by ranks that are all linked? */
bool agent_group_serves(const struct agent_group *group,
                        const struct engine *engine);

/* --- peers.c --- see peers.h --- */

#endif
