/*
 * What the parts of the link share: link.c (the set of links and the reports),
 * link_conn.c (one connection's life), link_name.c (names to addresses),
 * link_reason.c (words).
 *
 *     links -> names -> addresses      links -> link, one per address
 *
 * Nothing here calls the core from inside a report: a link that must end
 * because of one is marked broken and ends on the reactor's next turn.
 */
#ifndef AGENT_SRC_LINK_LINK_CORE_H
#define AGENT_SRC_LINK_LINK_CORE_H

#include "agent/link/limits.h"
#include "agent/link/link_message.h"
#include "agent/src/base/reactor.h"
#include "agent/src/link/link_options.h"
#include "common/base/buf.h"
#include "common/proof.h"

#include <sys/socket.h>

#define BTA_LINK_HEAD_MAX      (8 * BT_KIB)
#define BTA_LINK_READ          (16 * BT_KIB)
#define BTA_LINK_STEP_US       2000000u /* connect, upgrade */
#define BTA_LINK_WELCOME_US    4000000u /* the proxy may ask an older link */
#define BTA_LINK_BACKOFF_MIN   50u      /* ms */
#define BTA_LINK_BACKOFF_MAX   2000u
#define BTA_LINK_BACKOFF_TWIN  30000u /* another link goes to that proxy */
#define BTA_LINK_STABLE_US     1000000u
#define BTA_LINK_LEASE_MS      30000u
#define BTA_LINK_ADDRESS_TEXT  128
#define BTA_LINK_ADDRESSES_MAX 64u /* of one name */

struct bta_resolve; /* a look-up on its own short thread */

/* One entry of options.proxies. */
struct bta_name {
    struct bta_links *links;
    char *text; /* as given */
    char *host; /* NULL: a numeric or unix address, never looked up */
    char port[6];
    struct bta_watch watch; /* the look-up's eventfd while it runs */
    struct bta_timer timer; /* the next look-up */
    struct bta_resolve *resolve;
    bool has_failed; /* logged once */
};

enum bta_link_state {
    BTA_LINK_IDLE,       /* waits for its timer, no fd */
    BTA_LINK_CONNECTING, /* waits for the kernel */
    BTA_LINK_UPGRADING,  /* GET is sent, the 101 is awaited */
    BTA_LINK_GREETING,   /* hello is sent, welcome is awaited */
    BTA_LINK_UP,
};

struct bta_link {
    struct bta_links *links;
    struct bta_name *name;
    struct bta_link *next;
    struct sockaddr_storage addr;
    socklen_t addr_len;
    char address[BTA_LINK_ADDRESS_TEXT];

    enum bta_link_state state;
    struct bta_watch watch; /* fd -1: none */
    struct bta_timer timer; /* back-off, a step's deadline, liveness */
    struct bt_buf in, out;
    size_t scanned; /* bytes of `in` known to hold no line end */
    struct bt_nonces nonces;

    uint64_t proxy; /* boot of the proxy; UP only */
    uint32_t lease_ms, ping_ms, dead_ms;
    uint64_t heard_us, up_us;
    uint32_t backoff_ms;
    uint64_t ignored;   /* messages of no use: unknown, of another proxy's */
    const char *broken; /* why it ends on the next turn; NULL: it does not */
    bool has_failed;    /* logged once until it is up again */
    bool is_unwanted;   /* its name no longer gives this address */

    struct bt_buf sync; /* the part being made */
    unsigned sync_records;
};

struct bta_links {
    struct bta_reactor *reactor;
    struct bta_links_options options; /* key and proxies point to copies */
    unsigned char *key;
    struct bta_name *names;
    size_t name_count;
    struct bta_link *first;
    struct bta_timer stats_timer;
    uint64_t blocks_free, blocks_free_sent; /* UINT64_MAX: not known */
    bool is_closing;
};

void bta_link_log(const struct bta_links *links, int level, const char *format,
                  ...) BT_PRINTF(3, 4);

/* --- link_conn.c --- */

/* Makes a link and starts it; false when memory is out. */
bool bta_link_add(struct bta_name *name, const struct sockaddr *addr,
                  socklen_t addr_len);
/* Frees an ended link, taking it off the list. */
void bta_link_remove(struct bta_link *link);
/* The link ends on the next turn; what is sent from now on is dropped. */
void bta_link_break(struct bta_link *link, const char *why);
/* Sends a whole line (the '\n' is added). Never calls the core. */
void bta_link_send(struct bta_link *link, const struct bt_buf *line);
/* Ends a line, sends and frees it. */
void bta_link_end_line(struct bta_link *link, struct bt_buf *line);
/* A line of nothing but its type. */
void bta_link_say(struct bta_link *link, enum link_type type);
void bta_link_send_stats(struct bta_link *link);
/* Begins a part of the sync. */
void bta_link_begin_sync(struct bta_link *link);
/* Tries to hand what is unsent to the kernel; false: the link is broken. */
bool bta_link_flush(struct bta_link *link);

/* --- link_name.c --- */

/* Parses one proxy's name. ERR_ARGUMENT, told to the log, or ERR_MEMORY. */
baton_status bta_name_open(struct bta_name *name, struct bta_links *links,
                           const char *text);
void bta_name_close(struct bta_name *name);
void bta_name_start(struct bta_name *name);
bool bta_address_is_local(const struct sockaddr *addr);
void bta_address_format(const struct sockaddr *addr, socklen_t addr_len,
                        char text[BTA_LINK_ADDRESS_TEXT]);

/* --- link_reason.c --- */

/* Why a hold or a pull ended, as a word of the link. */
const char *bta_reason_word(baton_reason reason);
/* NONE: no such word. */
baton_reason bta_reason_of(struct bt_str word);

#endif
