/*
 * What proxies say, turned into calls on holds, peers and pulls; and what
 * holds have to say, turned into reports. Native thread.
 */
#include "agent/src/api/internal.h"

static void links_counted(struct baton_agent *agent)
{
    if (agent->links != NULL) {
        atomic_store(&agent->links_up, bta_links_up(agent->links));
    }
}

/* --- holds to links --- */

/*
 * Orphan rule: an owner that is not linked counts as gone. The host's own
 * holds (owner 0) have the host's lease.
 */
static struct bta_hold_lease lease_for(const struct baton_agent *agent,
                                       uint64_t owner)
{
    struct bta_hold_lease lease = {BTA_LEASE_MS, UINT32_MAX};

    if (owner == 0) {
        return lease;
    }
    if (agent->links == NULL || !bta_links_has(agent->links, owner)) {
        lease.cap_ms = agent->options.orphan_ms;
        return lease;
    }
    lease.default_ms = bta_links_lease_ms(agent->links, owner);
    return lease;
}

static struct bta_hold_report report_of(const struct bta_hold_view *view)
{
    return (struct bta_hold_report){.handoff = view->id,
                                    .slot = view->slot,
                                    .tokens = view->tokens,
                                    .blocks = view->blocks,
                                    .bytes = view->bytes,
                                    .lease_ms = view->lease_ms};
}

void bta_control_holds(struct baton_agent *agent)
{
    struct bta_hold_view view;

    while (bta_holds_next(&agent->holds, &view)) {
        if (view.is_held) {
            const struct bta_hold_lease lease = lease_for(agent, view.owner);
            view.lease_ms = bta_holds_lease(&agent->holds, view.id, &lease);
        }
        if (agent->links == NULL || view.owner == 0) {
            continue;
        }
        if (!view.is_held) {
            bta_links_released(agent->links, view.owner, view.id, view.reason);
        } else if (view.lease_ms > 0) {
            const struct bta_hold_report report = report_of(&view);
            bta_links_held(agent->links, view.owner, &report);
        }
    }
}

static void sync_hold(void *arg, const struct bta_hold_view *view)
{
    const struct bta_hold_report report = report_of(view);

    bta_link_sync_hold(arg, &report);
}

/* --- links to all --- */

static void on_sync(void *owner, struct bta_link *link, uint64_t proxy,
                    uint32_t lease_ms)
{
    struct baton_agent *const agent = owner;

    (void)lease_ms;
    bta_holds_each(&agent->holds, proxy, sync_hold, link);
    bta_pulls_sync(agent->pulls, proxy, link);
    links_counted(agent);
}

static void on_down(void *owner, uint64_t proxy, uint64_t silent_us)
{
    struct baton_agent *const agent = owner;
    const uint64_t orphan_us = (uint64_t)agent->options.orphan_ms * 1000;
    const uint64_t left_us = silent_us > orphan_us ? 0 : orphan_us - silent_us;

    bta_holds_orphan(&agent->holds, proxy, bta_now_us() + left_us);
    bta_peers_unsponsor(agent->peers, proxy);
    links_counted(agent);
    /* The leases are shorter now. */
    bta_reactor_wake(agent->reactor);
}

static bool on_release(void *owner, uint64_t proxy, baton_id handoff,
                       baton_reason reason)
{
    struct baton_agent *const agent = owner;
    const bool is_owners = bta_holds_release(&agent->holds, proxy, handoff,
                                             reason == BATON_REASON_PULLED
                                                 ? BATON_REASON_PULLED
                                                 : BATON_REASON_CANCELLED);

    bta_control_holds(agent);
    return is_owners;
}

static bool on_renew(void *owner, uint64_t proxy, baton_id handoff,
                     uint32_t lease_ms)
{
    struct baton_agent *const agent = owner;

    return bta_holds_renew(
        &agent->holds, proxy, handoff,
        lease_ms != 0 ? lease_ms : bta_links_lease_ms(agent->links, proxy));
}

static bool on_cancel(void *owner, uint64_t proxy, baton_id handoff)
{
    struct baton_agent *const agent = owner;

    return bta_pulls_cancel_handoff(agent->pulls, proxy, handoff);
}

/* Asks for the cards of our sources, or says why there are none. */
static void on_peer_up(void *owner, uint64_t proxy,
                       const struct bta_peer_up *up)
{
    struct baton_agent *const agent = owner;
    const struct bta_card *const own = &agent->card;
    struct bta_sources sources;
    char why[BTA_MISFIT_MAX];

    if (bta_plan_sources(own, up->tp, up->pp, up->world, &sources) ==
        BATON_REASON_NONE) {
        bta_links_peer_want(agent->links, proxy, up, sources.ranks,
                            sources.count);
        return;
    }
    bta_plan_misfit(own, up->tp, up->pp, up->world, why);
    bta_log_write(&agent->log, BTA_WARN, "peer %.*s: %s",
                  BT_STR_ARG(up->engine), why);
    bta_links_peer_refuse(agent->links, proxy, up, why);
}

static void on_card(void *owner, uint64_t proxy, struct bt_str card_text)
{
    struct baton_agent *const agent = owner;
    struct bta_card card;
    const char *why = "out of memory";

    if (bta_card_read(&card, card_text, &why) != BATON_OK) {
        bta_log_write(&agent->log, BTA_WARN, "a peer's card: %s", why);
        bta_card_fini(&card);
        return;
    }
    bta_peers_add(agent->peers, &card, proxy);
}

static void on_peer_down(void *owner, uint64_t proxy, struct bt_str engine,
                         uint32_t rank, uint64_t boot)
{
    struct baton_agent *const agent = owner;

    bta_peers_remove(agent->peers, engine, rank, boot, proxy);
}

const struct bta_link_events bta_control_events = {
    .on_sync = on_sync,
    .on_down = on_down,
    .on_release = on_release,
    .on_renew = on_renew,
    .on_cancel = on_cancel,
    .on_peer_up = on_peer_up,
    .on_card = on_card,
    .on_peer_down = on_peer_down,
};
