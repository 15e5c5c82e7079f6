"""Many handoffs: every block comes back and memory stays."""

from __future__ import annotations

import random
import time

import cluster
import pytest
from conftest import PairMaker, Truth
from test_faults import leave_after

# Of tokens. oneDNN keeps what it makes for each size of a batch, a megabyte and
# more, also in a lone vLLM: so few sizes, all of them in the warm-up, one by one.
SIZES = [1 + 41 * number for number in range(24)]
WARM_UP = 2 * len(SIZES)
GROWTH = 16 << 20
# 64 blocks: the warm-up writes to each of them, so that their pages are there.
POOL = 64 * 4 * 131072


@pytest.fixture
def pair(make_pair: PairMaker) -> cluster.Pair:
    return make_pair(kv_bytes=POOL)


def test_memory_after_many_handoffs(
    pair: cluster.Pair, truth: Truth, rng: random.Random, is_full: bool
) -> None:
    alone = truth.of("tiny-llama", [])

    def many(count: int) -> None:
        for number in range(count):
            prompt = cluster.tokens(SIZES[number % len(SIZES)], rng)
            if rng.random() < 0.01:
                body = {"model": "m", "prompt": prompt, "max_tokens": 8, "stream": True}
                leave_after(pair.proxy.url, body, rng.random() / 5)
                continue
            want = cluster.text_of(cluster.complete(alone.url, prompt, 4))
            assert cluster.text_of(cluster.complete(pair.proxy.url, prompt, 4)) == want
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


def test_idle_engines_cost_no_more_than_a_lone_one(
    pair: cluster.Pair, truth: Truth
) -> None:
    """While nothing is held and nobody waits. Some wake up all the same: eight
    threads of torch's, 100 times a second, in each vLLM."""
    engines = [truth.of("tiny-llama", []), *pair.engines]
    pair.settle()

    def is_quiet() -> bool:
        span_s = 5.0
        begin = [engine.cpu_s() for engine in engines]
        time.sleep(span_s)  # what is measured is this time
        shares = [
            (engine.cpu_s() - before) / span_s
            for engine, before in zip(engines, begin)
        ]
        print("of a core: lone, P, D:", *(f"{100 * share:.1f} %" for share in shares))
        return all(share <= shares[0] + 0.02 for share in shares)

    cluster.wait_for("P and D are as idle as a lone engine", 30, is_quiet)
