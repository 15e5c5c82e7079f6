/*
 * The agents' listener: accepts, checks the upgrade, proves the key, and hands
 * the connection to agents_link.c. Also the set of groups.
 *
 *     accept -> GET /agent/v1, nonce A -> 101, nonce B, proof -> hello ...
 *
 * The wire is described in agent/LINK.md.
 */
#include "proxy/agents/agents.h"

#include "common/base/log.h"
#include "common/io/key_file.h"
#include "common/json/json_write.h"
#include "proxy/agents/agents_core.h"
#include "proxy/agents/peers.h"

#include <stdlib.h>
#include <unistd.h>

static const struct bt_http_conn_options CONN_OPTIONS = {
    .parse = {.head_bytes = 8192, .target_bytes = 1024, .fields = 32},
    .high_water = AGENT_HIGH_WATER,
    .head_timeout_ms = AGENT_HELLO_MS,
    .body_timeout_ms = AGENT_HELLO_MS,
    .write_timeout_ms = AGENT_HELLO_MS,
    .keep_alive_ms = AGENT_HELLO_MS,
    .adds_date = true,
    .half_close_is_gone = true,
};

/* --- the upgrade --- */

static void refuse_http(struct agent_link *link, unsigned code,
                        const char *fields, const char *why)
{
    struct bt_metrics *const stats = link->agents->options.stats;
    struct bt_buf body;

    control_stat_add(
        stats, CONTROL_STAT_LINKS_REFUSED,
        control_stat_label(CONTROL_STAT_LINKS_REFUSED,
                           bt_str_of(code == 426 ? "version" : "other")),
        1);
    bt_log_limited(BT_LOG_WARN, link->address, "agent refused (%u): %s", code,
                   why);
    bt_buf_init(&body);
    bt_buf_append(&body, BT_STR("{\"error\":"));
    bt_buf_append_json(&body, bt_str_of(why));
    bt_buf_append(&body, BT_STR("}\n"));
    bt_http_conn_answer(link->conn, code, bt_str_of(fields), bt_buf_str(&body));
    bt_buf_fini(&body);
    bt_http_conn_finish(link->conn);
}

/* True when the request is an upgrade to this version of the link. */
static bool check_request(struct agent_link *link,
                          const struct bt_http_head *head)
{
    const struct bt_str upgrade = bt_http_field_get(head, BT_STR("Upgrade"));
    static const char JSON[] = "Content-Type: application/json\r\n";
    static const char VERSION[] = "Content-Type: application/json\r\n"
                                  "Upgrade: baton-agent/1\r\n";

    if (!bt_str_starts(head->path, BT_STR("/agent/"))) {
        refuse_http(link, 404, JSON, "agents connect to /agent/v1");
        return false;
    }
    if (!bt_str_eq(head->method, BT_STR("GET"))) {
        refuse_http(link, 405,
                    "Content-Type: application/json\r\nAllow: GET\r\n",
                    "agents connect by GET");
        return false;
    }
    if (!bt_str_eq(head->path, BT_STR("/agent/v1")) || !head->upgrades ||
        !bt_str_eq_nocase(upgrade, BT_STR("baton-agent/1"))) {
        refuse_http(link, 426, VERSION,
                    "this proxy speaks baton-agent/1 at /agent/v1");
        return false;
    }
    if (link->agents->key.len == 0 &&
        !bt_addr_is_local(bt_http_conn_peer(link->conn))) {
        refuse_http(link, 403, JSON,
                    "without a key only loopback and unix addresses may link");
        return false;
    }
    return true;
}

static bool take_nonce(struct agent_link *link, const struct bt_http_head *head)
{
    const struct bt_str nonce = bt_http_field_get(head, BT_STR("Baton-Nonce"));

    if (!bt_nonce_take(nonce, link->nonces.agent)) {
        refuse_http(link, 400, "Content-Type: application/json\r\n",
                    "Baton-Nonce must be 64 characters");
        return false;
    }
    return true;
}

static bool write_fields(struct agent_link *link, struct bt_buf *fields)
{
    char proof[BT_PROOF_LEN + 1];

    if (!bt_nonce_make(link->nonces.proxy)) {
        return false;
    }
    bt_buf_printf(fields,
                  "Connection: Upgrade\r\nUpgrade: baton-agent/1\r\n"
                  "Baton-Nonce: %s\r\n",
                  link->nonces.proxy);
    if (link->agents->key.len > 0) {
        if (!bt_proof_make(link->agents->key, &link->nonces, BT_PROOF_PROXY,
                           proof)) {
            return false;
        }
        bt_buf_printf(fields, "Baton-Proof: %s\r\n", proof);
    }
    return !fields->failed;
}

static void on_head(void *owner, const struct bt_http_head *head)
{
    struct agent_link *const link = owner;
    struct bt_stream *stream = NULL;
    struct bt_str rest = {"", 0};
    struct bt_buf fields;

    if (!check_request(link, head) || !take_nonce(link, head)) {
        return;
    }
    bt_buf_init(&fields);
    if (!write_fields(link, &fields)) {
        refuse_http(link, 500, "", "no random bytes or memory");
    } else if (bt_http_conn_upgrade(&link->conn, bt_buf_str(&fields), &stream,
                                    &rest) != BT_OK) {
        refuse_http(link, 400, "", "the upgrade may have no body");
    } else {
        agent_link_start(link, stream, rest);
    }
    bt_buf_fini(&fields);
}

static void on_body(void *owner, struct bt_str bytes)
{
    (void)owner;
    (void)bytes;
}

static void on_unused(void *owner)
{
    (void)owner;
}

static void on_bad(void *owner, unsigned code, const char *reason)
{
    refuse_http(owner, code, "Content-Type: application/json\r\n", reason);
}

static void on_closed(void *owner)
{
    struct agent_link *const link = owner;

    link->conn = NULL;
    agent_link_end(link, "it did not become a link");
}

static const struct bt_http_conn_events CONN_EVENTS = {
    .on_head = on_head,
    .on_body = on_body,
    .on_request = on_unused,
    .on_room = on_unused,
    .on_gone = on_unused,
    .on_bad = on_bad,
    .on_closed = on_closed,
};

/*
 * At the limit an agent must still get in: of those that only hold a
 * connection, the one that has shown least, and of these the oldest, goes.
 */
static bool make_room(struct agents *agents)
{
    struct agent_link *idlest;

    if (agents->link_count < AGENTS_LINKS_MAX &&
        agents->stranger_count < AGENTS_STRANGERS) {
        return true;
    }
    control_stat_add(agents->options.stats, CONTROL_STAT_LINKS_REFUSED,
                     control_stat_label(CONTROL_STAT_LINKS_REFUSED,
                                        BT_STR("too_many_links")),
                     1);
    idlest = agent_link_idlest(agents);
    if (idlest != NULL) {
        agent_link_end(idlest, "it gave way to a newer one");
    }
    return idlest != NULL;
}

static void on_accept(void *owner, int fd)
{
    struct agents *const agents = owner;
    struct agent_link *link;

    if (!make_room(agents)) {
        close(fd);
        return;
    }
    link = calloc(1, sizeof(*link));
    if (link == NULL) {
        close(fd);
        return;
    }
    agent_link_init(link, agents);
    if (bt_http_conn_open(agents->options.loop, fd, &CONN_OPTIONS, &CONN_EVENTS,
                          link, &link->conn) != BT_OK) {
        free(link);
        return;
    }
    bt_addr_format(bt_http_conn_peer(link->conn), link->address);
    link->is_stranger = true;
    TAILQ_INSERT_TAIL(&agents->strangers, link, entry);
    agents->link_count++;
    agents->stranger_count++;
}

/* --- groups --- */

struct agent_group *agents_find_group(const struct agents *agents,
                                      const char *url)
{
    for (size_t i = 0; i < agents->group_count; i++) {
        if (agents->groups[i] != NULL &&
            strcmp(agents->groups[i]->url, url) == 0) {
            return agents->groups[i];
        }
    }
    return NULL;
}

/* There are no more groups than engines, so that a slot is free. */
static struct agent_group *group_open(struct agents *agents, const char *url)
{
    size_t slot = 0;

    while (slot < ENGINES_MAX - 1 && agents->groups[slot] != NULL) {
        slot++;
    }
    agents->groups[slot] = agent_group_open(agents, (unsigned)slot, url);
    if (slot >= agents->group_count) {
        agents->group_count = slot + 1;
    }
    return agents->groups[slot];
}

static void group_close(struct agent_group *group)
{
    group->agents->groups[group->slot] = NULL;
    agent_group_close(&group);
}

/* Links of this URL that are up as `group`'s, or as no configured engine's. */
static void end_links(struct agents *agents, const struct agent_group *group,
                      const char *url, const char *why)
{
    struct agent_link *link = TAILQ_FIRST(&agents->links);

    while (link != NULL) {
        struct agent_link *const next = TAILQ_NEXT(link, entry);

        if (link->group == group && strcmp(link->hello.url, url) == 0) {
            agent_link_end(link, why);
        }
        link = next;
    }
}

enum bt_status agents_add(struct agents *agents, struct engine *engine)
{
    struct agent_group *group = agents_find_group(agents, engine->url.normal);
    enum bt_status status;

    if (group == NULL) {
        group = group_open(agents, engine->url.normal);
        end_links(agents, NULL, engine->url.normal,
                  "its engine is configured now");
    }
    if (group == NULL) {
        return BT_ERR_NOMEM;
    }
    status = agent_group_add(group, engine);
    if (status == BT_OK) {
        agents->by_engine[engine->slot] = group;
        agent_group_joined(group, engine);
    } else if (group->engine_count == 0) {
        group_close(group);
    }
    return status;
}

void agents_remove(struct agents *agents, struct engine *engine)
{
    struct agent_group *const group = agents->by_engine[engine->slot];

    if (group == NULL) {
        return;
    }
    if (group->engine_count <= 1) {
        end_links(agents, group, group->url, "its engine is removed");
        agent_group_end(group);
    }
    agent_group_remove(group, engine);
    agents->by_engine[engine->slot] = NULL;
    if (group->engine_count == 0) {
        group_close(group);
    }
}

/* --- public --- */

static enum bt_status open_listener(struct agents *agents)
{
    const struct config *const config = agents->options.config;
    enum bt_status status = BT_OK;

    if (config->agents.listen == NULL) {
        return BT_OK;
    }
    if (config->agents.key_file != NULL) {
        status = bt_key_read(config->agents.key_file, &agents->key);
    }
    if (status != BT_OK) {
        return status;
    }
    agents->listener.on_accept = on_accept;
    agents->listener.owner = agents;
    return control_listener_open(&agents->listener, agents->options.loop,
                                 config->agents.listen, "agents.listen");
}

enum bt_status agents_open(const struct agents_options *options,
                           struct agents **agents_p)
{
    struct agents *agents = calloc(1, sizeof(*agents));
    enum bt_status status;

    if (agents == NULL) {
        return BT_ERR_NOMEM;
    }
    agents->options = *options;
    TAILQ_INIT(&agents->links);
    TAILQ_INIT(&agents->strangers);
    status = open_listener(agents);
    if (status != BT_OK) {
        agents_close(&agents);
        return status;
    }
    *agents_p = agents;
    return BT_OK;
}

void agents_set_handoffs(struct agents *agents, struct handoffs *handoffs)
{
    agents->handoffs = handoffs;
}

void agents_close(struct agents **agents_p)
{
    struct agents *const agents = *agents_p;
    struct agent_link *link;

    *agents_p = NULL;
    if (agents == NULL) {
        return;
    }
    agents->is_closing = true;
    control_listener_close(&agents->listener);
    while ((link = TAILQ_FIRST(&agents->strangers)) != NULL) {
        agent_link_end(link, "the proxy ends");
    }
    while ((link = TAILQ_FIRST(&agents->links)) != NULL) {
        if (link->state == AGENT_LINK_UP) {
            agent_link_say(link, LINK_TYPE_DRAIN);
        }
        agent_link_end(link, "the proxy ends");
    }
    for (size_t i = 0; i < agents->group_count; i++) {
        agent_group_close(&agents->groups[i]);
    }
    bt_key_free(&agents->key);
    free(agents);
}

const char *agents_address(const struct agents *agents)
{
    return agents->listener.address;
}

void agents_order(struct agents *agents, const struct engine *engine,
                  enum handoff_order order, struct handoff_id id,
                  enum release_reason reason)
{
    const struct agent_group *const group = agents_group_of(agents, engine);

    for (unsigned i = 0; group != NULL && i < HANDOFF_RANKS_MAX; i++) {
        if (group->ranks[i].link != NULL) {
            agent_link_order(group->ranks[i].link, order, id, reason);
        }
    }
}

unsigned agents_ranks(const struct agents *agents, const struct engine *engine)
{
    const struct agent_group *const group = agents_group_of(agents, engine);

    return group == NULL ? 0 : group->world;
}
