/*
 * The agent: what it opens, and its native thread.
 */
#include "agent/src/api/agent_options.h"
#include "agent/src/api/internal.h"
#include "agent/src/fabric/cma.h"
#include "common/base/random.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HELLO_REST    256 /* of a hello beside the card: t, v, features, proof */
#define NAP_US        1000u
#define REFUSALS_MAX  1000u
#define TURNS_MAX     16
#define LEASE_LOOK_US 5000u

/* --- the native thread --- */

static void lease_look(struct baton_agent *agent)
{
    const uint64_t now_us = bta_now_us();
    const uint64_t next_us = bta_holds_expire(&agent->holds, now_us);
    uint64_t delay_us;

    bta_control_holds(agent);
    if (next_us == UINT64_MAX) {
        bta_timer_clear(agent->reactor, &agent->lease_timer);
        return;
    }
    delay_us = next_us <= now_us ? 0 : next_us - now_us;
    (void)bta_timer_set(agent->reactor, &agent->lease_timer,
                        delay_us < LEASE_LOOK_US ? LEASE_LOOK_US : delay_us);
}

static void on_lease(struct bta_timer *timer)
{
    lease_look(bt_container_of(timer, struct baton_agent, lease_timer));
}

static void on_nap(struct bta_timer *timer)
{
    (void)timer;
}

static void shut(struct baton_agent *agent)
{
    bta_links_close(agent->links);
    agent->links = NULL;
    agent->peers->links = NULL;
    bta_pulls_set_links(agent->pulls, NULL);
    if (agent->fabric != NULL) {
        bta_fabric_unwatch(agent->fabric);
    }
    bta_timer_clear(agent->reactor, &agent->lease_timer);
    bta_timer_clear(agent->reactor, &agent->nap);
    bta_reactor_stop(agent->reactor);
}

static void occupancy_tell(struct baton_agent *agent)
{
    const uint64_t blocks = atomic_load(&agent->blocks_free);

    if (agent->links != NULL && blocks != agent->blocks_free_told) {
        agent->blocks_free_told = blocks;
        bta_links_stats(agent->links, blocks);
    }
}

static void on_wake(void *owner)
{
    struct baton_agent *const agent = owner;

    if (atomic_load(&agent->is_closing)) {
        shut(agent);
        return;
    }
    bta_inbox_drain(&agent->inbox, agent->peers);
    bta_pulls_wake(agent->pulls);
    bta_control_holds(agent);
    lease_look(agent);
    occupancy_tell(agent);
}

static bool nap(struct baton_agent *agent)
{
    return bta_timer_set(agent->reactor, &agent->nap, NAP_US);
}

/* Reads and posts until nothing moves, or long enough. */
static void progress(void *owner)
{
    struct baton_agent *const agent = owner;

    agent->is_moving = true;
    for (int i = 0; i < TURNS_MAX && agent->is_moving; i++) {
        if (agent->fabric != NULL) {
            bta_fabric_progress(agent->fabric);
        }
        agent->is_moving = bta_peers_turn(agent->peers);
    }
}

/* A provider that refuses every sleep, though nothing moves, gets naps. */
static bool arm(void *owner)
{
    struct baton_agent *const agent = owner;

    if (agent->is_moving || bta_peers_copying(agent->peers)) {
        agent->refusals = 0;
        return false;
    }
    if (agent->fabric == NULL) {
        return true;
    }
    switch (bta_fabric_rest(agent->fabric)) {
    case BTA_REST_SLEEP:
        agent->refusals = 0;
        return true;
    case BTA_REST_NAP:
        return nap(agent);
    case BTA_REST_NONE:
        agent->refusals++;
        return agent->refusals > REFUSALS_MAX && nap(agent);
    }
    return true;
}

static const struct bta_turn TURN = {.progress = progress, .arm = arm};

static void *native_main(void *arg)
{
    struct baton_agent *const agent = arg;

    bta_reactor_run(agent->reactor);
    return NULL;
}

/* --- open --- */

static const char *listen_address(struct baton_agent *agent)
{
    const char *host;

    if (agent->options.fabric_address != NULL) {
        return agent->options.fabric_address;
    }
    host = bta_options_url_host(&agent->options, &agent->texts);
    return host == NULL ? "127.0.0.1" : host;
}

/* Which paths the provider option allows. */
static bool has_cma(const baton_options *options)
{
    return strcmp(options->provider, "auto") == 0 ||
           strcmp(options->provider, "cma") == 0;
}

static baton_status fabric_make(struct baton_agent *agent)
{
    const char *const provider = agent->options.provider;
    const char *const name = strcmp(provider, "auto") == 0 ? "tcp" : provider;
    const char *const address = listen_address(agent);
    baton_status status;

    if (agent->options.role == BATON_ROLE_SCHEDULER ||
        strcmp(provider, "cma") == 0) {
        return BATON_OK;
    }
    status = bta_fabric_open(name, address, &agent->log, &agent->fabric);
    if (status == BATON_ERR_FABRIC && agent->options.fabric_address == NULL &&
        strcmp(address, "127.0.0.1") != 0) {
        bta_log_write(&agent->log, BTA_WARN,
                      "%s is no address of this host: listening on loopback, "
                      "other hosts cannot read from here",
                      address);
        status =
            bta_fabric_open(name, "127.0.0.1", &agent->log, &agent->fabric);
    }
    return status;
}

static baton_status boot_make(struct baton_agent *agent)
{
    const long page = sysconf(_SC_PAGESIZE);
    const size_t length = page > 0 ? (size_t)page : 4096;
    void *const word = mmap(NULL, length, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (word == MAP_FAILED) {
        return BATON_ERR_MEMORY;
    }
    agent->boot_word = word;
    agent->boot_memory.base = word;
    agent->boot_memory.length = length;
    if (!bt_random_id(&agent->boot)) {
        return BATON_ERR_SYSTEM;
    }
    *agent->boot_word = agent->boot;
    if (agent->fabric == NULL) {
        return BATON_OK;
    }
    return bta_fabric_register(agent->fabric, &agent->boot_memory,
                               agent->regions.is_readable);
}

static baton_status open_parts(struct baton_agent *agent,
                               const baton_options *options)
{
    baton_status status =
        bta_options_copy(options, &agent->texts, &agent->options);

    if (status != BATON_OK) {
        return status;
    }
    agent->log = (struct bta_log){agent->options.log, agent->options.log_arg};
    status = fabric_make(agent);
    if (status != BATON_OK) {
        return status;
    }
    agent->regions.fabric = agent->fabric;
    agent->regions.is_readable = agent->options.role != BATON_ROLE_DECODE;
    status = boot_make(agent);
    if (status != BATON_OK) {
        return status;
    }
    agent->reactor = bta_reactor_open();
    return agent->reactor == NULL ? BATON_ERR_SYSTEM : BATON_OK;
}

baton_status baton_agent_open(const baton_options *options,
                              baton_agent **agent_p)
{
    baton_agent *agent;
    baton_status status;

    if (agent_p == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    agent = calloc(1, sizeof(*agent));
    if (agent == NULL) {
        return BATON_ERR_MEMORY;
    }
    agent->process = getpid();
    bt_arena_init(&agent->texts);
    bt_buf_init(&agent->hello);
    bta_card_init(&agent->card);
    atomic_init(&agent->is_closing, false);
    atomic_init(&agent->links_up, 0);
    atomic_init(&agent->blocks_free, UINT64_MAX);
    agent->blocks_free_told = UINT64_MAX;
    agent->lease_timer.on_due = on_lease;
    agent->nap.on_due = on_nap;
    if (!bta_events_init(&agent->events)) {
        free(agent);
        return BATON_ERR_SYSTEM;
    }
    if (!bta_inbox_init(&agent->inbox)) {
        bta_events_fini(&agent->events);
        free(agent);
        return BATON_ERR_SYSTEM;
    }
    status = open_parts(agent, options);
    if (status != BATON_OK) {
        baton_agent_close(agent);
        return status;
    }
    *agent_p = agent;
    return BATON_OK;
}

void baton_agent_close(baton_agent *agent)
{
    /* A fork's child has a copy without the thread, and shares its epoll. */
    if (agent == NULL || agent->process != getpid()) {
        return;
    }
    if (agent->is_started) {
        atomic_store(&agent->is_closing, true);
        bta_reactor_wake(agent->reactor);
        (void)pthread_join(agent->thread, NULL);
    } else if (agent->links != NULL) {
        bta_links_close(agent->links);
    }
    bta_inbox_fini(&agent->inbox);
    bta_peers_close(agent->peers);
    bta_pulls_close(agent->pulls);
    bta_holds_fini(&agent->holds);
    bta_regions_fini(&agent->regions);
    bta_fabric_unregister(&agent->boot_memory);
    if (agent->boot_word != NULL) {
        (void)munmap(agent->boot_word, (size_t)agent->boot_memory.length);
    }
    bta_fabric_close(agent->fabric);
    bta_reactor_close(agent->reactor);
    bta_events_fini(&agent->events);
    bta_card_fini(&agent->card);
    bt_buf_fini(&agent->hello);
    bt_arena_fini(&agent->texts);
    free(agent);
}

/* --- start --- */

static baton_status card_endpoints(struct baton_agent *agent)
{
    struct bta_card *const card = &agent->card;
    struct bta_card_endpoint self = {.provider = BT_STR("cma")};

    card->endpoints = bt_arena_zalloc(&card->arena, 2 * sizeof(self));
    if (card->endpoints == NULL) {
        return BATON_ERR_MEMORY;
    }
    if (bta_cma_self(&self) && has_cma(&agent->options) &&
        agent->options.role != BATON_ROLE_SCHEDULER) {
        card->endpoints[card->endpoint_count] = self;
        card->endpoint_count++;
    }
    if (agent->fabric != NULL) {
        self.provider = bt_str_of(bta_fabric_provider(agent->fabric));
        self.address_length = bta_fabric_address(agent->fabric, self.address,
                                                 sizeof(self.address));
        if (self.address_length == 0) {
            return BATON_ERR_FABRIC;
        }
        card->endpoints[card->endpoint_count] = self;
        card->endpoint_count++;
    }
    return BATON_OK;
}

static baton_status card_regions(struct baton_agent *agent)
{
    struct bta_card *const card = &agent->card;
    const struct bta_regions *const regions = &agent->regions;

    card->regions = bt_arena_zalloc(&card->arena, (regions->count + 1) *
                                                      sizeof(*card->regions));
    if (card->regions == NULL) {
        return BATON_ERR_MEMORY;
    }
    for (size_t i = 0; i < regions->count; i++) {
        card->regions[i] = (struct bta_card_region){
            .layout = regions->items[i].layout,
            .memory = regions->items[i].memory,
            .target = bta_region_target(&regions->items[i]),
        };
    }
    card->region_count = regions->count;
    return BATON_OK;
}

static baton_status card_make(struct baton_agent *agent)
{
    const baton_options *const options = &agent->options;
    struct bta_card *const card = &agent->card;
    baton_status status;

    card->engine = bt_str_of(options->engine);
    card->url = bt_str_of(options->url);
    card->fingerprint = bt_str_of(options->fingerprint);
    card->engine_boot = options->engine_boot;
    card->boot = agent->boot;
    card->rank = options->rank;
    card->world = options->world;
    card->tp = options->tp;
    card->pp = options->pp;
    card->dp = options->dp;
    card->role = options->role;
    card->max_handoffs = options->max_handoffs;
    card->slots = bta_memory_target(&agent->holds.records_memory);
    card->slot_count = options->max_holds;
    card->slot_step = sizeof(struct bta_record);
    card->boot_word = bta_memory_target(&agent->boot_memory);
    status = card_endpoints(agent);
    if (status == BATON_OK) {
        status = card_regions(agent);
    }
    if (status == BATON_OK) {
        bta_card_write(card, &agent->hello);
        status = agent->hello.failed ? BATON_ERR_MEMORY : BATON_OK;
    }
    return status;
}

static baton_status modules_make(struct baton_agent *agent)
{
    const baton_options *const options = &agent->options;
    const struct bta_holds_limits limits = {options->max_handoffs,
                                            options->max_holds};
    const struct bta_peers_options peers = {
        .reactor = agent->reactor,
        .fabric = agent->fabric,
        .events = &agent->events,
        .own = &agent->card,
        .log = agent->log,
        .has_cma = has_cma(options),
        .is_reader = options->role == BATON_ROLE_DECODE ||
                     options->role == BATON_ROLE_BOTH,
    };
    struct bta_pulls_options pulls = {
        .reactor = agent->reactor,
        .fabric = agent->fabric,
        .events = &agent->events,
        .regions = &agent->regions,
        .own = &agent->card,
        .key = bt_str_span(options->key.data, options->key.length),
        .log = agent->log,
        .max_handoffs = options->max_handoffs,
        .timeout_ms = options->pull_timeout_ms,
        .drain_ms = options->drain_ms,
        .has_checksum = options->checksum != 0,
    };
    baton_status status =
        bta_holds_init(&agent->holds, &limits, &agent->regions, &agent->events);

    if (status == BATON_OK) {
        status = card_make(agent);
    }
    if (status != BATON_OK) {
        return status;
    }
    agent->peers = bta_peers_open(&peers);
    pulls.peers = agent->peers;
    agent->pulls = agent->peers == NULL ? NULL : bta_pulls_open(&pulls);
    return agent->pulls == NULL ? BATON_ERR_MEMORY : BATON_OK;
}

static baton_status links_make(struct baton_agent *agent)
{
    const struct bta_links_options options = {
        .proxies = agent->options.proxies,
        .proxy_count = agent->options.proxy_count,
        .key = agent->options.key,
        .hello = bt_buf_str(&agent->hello),
        .events = &bta_control_events,
        .owner = agent,
        .log = agent->log.write,
        .log_arg = agent->log.arg,
    };

    if (options.proxy_count == 0) {
        return BATON_OK;
    }
    if (options.hello.len + HELLO_REST >= LINK_LINE_MAX) {
        bta_log_write(&agent->log, BTA_ERROR,
                      "%zu regions make a card of %zu bytes; proxies take less "
                      "than 1 MiB",
                      agent->regions.count, options.hello.len);
        return BATON_ERR_ARGUMENT;
    }
    const baton_status status =
        bta_links_open(agent->reactor, &options, &agent->links);
    agent->peers->links = agent->links;
    bta_pulls_set_links(agent->pulls, agent->links);
    return status;
}

/* No signal of the host's is handled on the native thread. */
static bool create_thread(struct baton_agent *agent)
{
    sigset_t all, before;
    int rc;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&agent->thread, NULL, native_main, agent);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) {
        (void)pthread_setname_np(agent->thread, "baton-agent");
    }
    return rc == 0;
}

static baton_status start_thread(struct baton_agent *agent)
{
    bta_reactor_on_wake(agent->reactor, on_wake, agent);
    bta_reactor_on_turn(agent->reactor, &TURN, agent);
    if (agent->fabric != NULL &&
        !bta_fabric_watch(agent->fabric, agent->reactor)) {
        return BATON_ERR_SYSTEM;
    }
    if (!create_thread(agent)) {
        return BATON_ERR_SYSTEM;
    }
    agent->is_started = true;
    return BATON_OK;
}

baton_status baton_agent_start(baton_agent *agent)
{
    baton_status status;

    if (agent == NULL) {
        return BATON_ERR_ARGUMENT;
    }
    /* A failed start cannot be repeated: the agent can only be closed. */
    if (agent->is_started || agent->holds.regions != NULL ||
        !bta_regions_whole(&agent->regions)) {
        return BATON_ERR_STATE;
    }
    status = modules_make(agent);
    if (status == BATON_OK) {
        status = links_make(agent);
    }
    if (status == BATON_OK) {
        status = start_thread(agent);
    }
    return status;
}
