"""Engines and the proxy killed, ended and stopped at random under load: right text or a clean error, and nothing left behind."""
import random
import threading

import pytest

import cluster as c
from load import PROMPTS, TOKENS, Load


def strike(one, rng):
    """One blow, and what an operator does about it."""
    engine = rng.choice(one.prefill + one.decode)
    blow = rng.choice(["kill", "kill", "term", "stop", "stop", "stop proxy", "kill proxy"])
    pause = threading.Event()
    target = one.proxy if "proxy" in blow else engine
    if "stop" in blow:
        target.pause()
        pause.wait(rng.choice([0.1, 0.5, 3.5]))
        target.resume()
        return
    if blow == "term":
        target.term(20)
    else:
        target.kill()
    target.start().wait_ready(20)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_blows_leave_right_text_and_nothing_behind(clusters, lone, seed):
    engine = lone()
    truth = {p: engine.complete(p, TOKENS) for p in PROMPTS}
    one = clusters(prefill=2, decode=2, engine_flags=["--decode-step", "1000"], proxy_flags=["--workers", "2"])
    rng = random.Random(seed)
    load = Load(one.proxy.port, truth.get)
    try:
        for _ in range(12):
            load.over.wait(rng.uniform(0.2, 1))
            strike(one, rng)
    finally:
        load.end()
    assert load.tally["right"] > 20, load.tally
    one.proxy.wait_routable(20)
    one.wait_unheld(15)
    c.eventually(lambda: one.proxy.handoffs()["live_count"] == 0, 5, "no handoff lives")
    for gauge in ("baton_requests_in_flight", "baton_requests_queued", "baton_request_body_bytes"):
        assert one.proxy.metric(gauge) == 0, gauge
    assert all(one.proxy.complete(p, TOKENS) == truth[p] for p in PROMPTS)
