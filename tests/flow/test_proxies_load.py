"""Several proxies over the same engines: what becomes of one is nothing to the others.

    Load ──► proxy 0 (struck) ──┐
    Load ──► proxy 1 ───────────┼──► 2 P + 2 D
    Load ──► proxy 2 ───────────┘
"""
import collections
import threading

import pytest

import cluster as c
import stub
from load import PROMPTS, TOKENS, Load
from test_text import words

ORPHAN = 5


def several(one, count, flags):
    """Starts a cluster with that many proxies, each with agents of its own where the connector has any."""
    agents = ["127.0.0.1:%d" % one.hold_port() for _ in range(count - 1)]
    for e in one.prefill + one.decode:
        if isinstance(e, c.Engine):
            e.argv += [word for address in agents for word in ("--agents", address)]
    one.start()
    # The others bear a machine so busy that a link is silent for seconds.
    others = [one.add(c.Proxy(one, [*flags, "--set", "agents.dead=30s"], address)) for address in agents]
    for proxy in others:
        proxy.start().wait_ready().wait_routable()
    return [one.proxy, *others]


def linked(proxy, engines):
    """Have these engines' agents introduced themselves?"""
    urls = {e["url"] for e in proxy.engines()["engines"] if e["linked"]}
    return all(e.url in urls for e in engines)


def restart(one, proxy):
    """Where bytes are read, it comes while reads for the others are under way: prefill is stopped until it has met decode."""
    frozen = [p for p in one.prefill if isinstance(p, c.Engine)]
    proxy.kill()
    for p in frozen:
        p.pause()
    try:
        proxy.start().wait_ready()
        c.eventually(lambda: not frozen or linked(proxy, one.decode), 10, "decode is linked")
    finally:
        for p in frozen:
            p.resume()


def strike(one, unstruck):
    """The first proxy dies, hangs for longer than its links live, and restarts in a loop; each time the others go on meanwhile."""
    def others_go_on(answers=10):
        before = [load.tally.total() for load in unstruck]
        c.eventually(lambda: all(load.wrong or load.tally.total() >= b + answers for load, b in zip(unstruck, before)), 20, "the others answer")

    others_go_on()
    one.proxy.kill()
    others_go_on()
    one.proxy.start().wait_ready().wait_routable()
    one.proxy.pause()
    threading.Event().wait(4)  # longer than a link lives without an answer
    others_go_on()
    one.proxy.resume()
    for _ in range(5):
        others_go_on()
        restart(one, one.proxy)
    one.proxy.wait_routable()
    others_go_on()


def under_blows(one, proxies, *truth_and_prompts):
    """All answers are right but those of the struck proxy, which in the end dies under its load."""
    loads = [Load(proxy.port, *truth_and_prompts, clients=4, seed=i) for i, proxy in enumerate(proxies)]
    try:
        strike(one, loads[1:])
        one.proxy.kill()
    finally:
        for load in loads:
            load.over.set()
        for load in loads:
            load.end()
    assert loads[0].tally["right"], loads[0].tally
    for load in loads[1:]:
        assert set(load.tally) == {"right"}, load.tally


def is_idle(proxy):
    return all(proxy.metric(gauge) == 0 for gauge in ("baton_requests_in_flight", "baton_requests_queued", "baton_request_body_bytes"))


@pytest.mark.parametrize("count", [2, 3])
def test_the_others_see_nothing_of_a_proxy_that_dies_hangs_or_restarts(clusters, lone, count):
    """Pulls are of fresh prompts, over a path that a stopped prefill holds up, and begin late: some are always under way.

    The struck proxy's pulls are cancelled meanwhile. Their reads end only when prefill goes on, which takes a busy machine seconds; closing the
    connection because of them would fail the others' pulls too."""
    alone = lone()
    flags = ["--workers", "2"]
    one = clusters(start=False, prefill=2, decode=2, engine_flags=["--provider", "tcp", "--orphan", "%ds" % ORPHAN, "--drain", "60s"], decode_flags=["--fault", "slow-pull=50*0"], proxy_flags=flags)
    proxies = several(one, count, flags)
    under_blows(one, proxies, lambda prompt: alone.complete(prompt, TOKENS), lambda rng: words(rng, rng.randrange(1, 600)))
    one.wait_unheld(ORPHAN + 3)
    for proxy in proxies[1:]:
        assert proxy.handoffs()["live_count"] == 0 and is_idle(proxy)
        seen = [line for line in proxy.access() if line["prefill_attempts"] != 1 or line["decode_attempts"] != 1 or line.get("pull_failed")]
        assert not seen, seen[0]
        assert proxy.metric("baton_pull_failures_total") == 0
    one.proxy.start().wait_ready().wait_routable()
    assert all(proxy.complete(p, TOKENS) == alone.complete(p, TOKENS) for proxy in proxies for p in PROMPTS)


def test_stock_handoffs_of_two_proxies_are_used_once_each(stock):
    flags = ["--workers", "2"]
    one = stock(start=False, prefill=2, decode=2, proxy_flags=flags)
    for i, p in enumerate(one.prefill):
        p.script = stub.numbered_prefill("p%d" % i)
    proxies = several(one, 2, flags)
    under_blows(one, proxies, lambda prompt: "hello")
    used = collections.Counter(request.handoff() for d in one.decode for request in d.seen)
    assert len(used) > 50 and max(used.values()) == 1, used.most_common(3)
    assert is_idle(proxies[1])
