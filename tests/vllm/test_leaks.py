"""Many handoffs: every block comes back and memory stays."""

from __future__ import annotations

import concurrent.futures
import random

import cluster
from conftest import PairMaker, Truth
from test_faults import leave_after

WARM_UP = 50
GROWTH = 16 << 20


def test_memory_after_many_handoffs(
    make_pair: PairMaker, truth: Truth, rng: random.Random, is_full: bool
) -> None:
    pair = make_pair()
    alone = truth.of("tiny-llama", [])
    before: dict[str, dict[int, int]] = {}

    def one(seed: int) -> None:
        own = random.Random(seed)
        prompt = cluster.tokens(own.randrange(1, 1000), own)
        if own.random() < 0.01:
            body = {"model": "m", "prompt": prompt, "max_tokens": 8, "stream": True}
            leave_after(pair.proxy.url, body, own.random() / 5)
            return
        want = cluster.text_of(cluster.complete(alone.url, prompt, 4))
        assert cluster.text_of(cluster.complete(pair.proxy.url, prompt, 4)) == want

    def many(count: int) -> None:
        seeds = [rng.randrange(1 << 32) for _ in range(count)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(one, seeds))
        pair.settle(15)

    many(WARM_UP)
    before = {engine.name: engine.rss() for engine in pair.engines}
    many((2000 if is_full else 200) - WARM_UP)
    for engine in pair.engines:
        after = engine.rss()
        assert after.keys() == before[engine.name].keys()
        for pid, size in after.items():
            grown = size - before[engine.name][pid]
            print(engine.name, pid, f"{grown / 1e6:.1f} MB more")
            assert grown <= GROWTH, (engine.name, pid)


def test_idle_engines_cost_nothing(make_pair: PairMaker) -> None:
    """Of a core, while nothing is held and nobody waits."""
    import time

    pair = make_pair()
    pair.settle()
    span_s = 5.0
    begin = [engine.cpu_s() for engine in pair.engines]
    time.sleep(span_s)  # what is measured is this time
    for engine, before in zip(pair.engines, begin):
        share = (engine.cpu_s() - before) / span_s
        print(engine.name, f"{100 * share:.1f} % of a core")
        assert share < 0.10
