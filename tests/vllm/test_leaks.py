"""Many handoffs: every block comes back and memory stays."""

from __future__ import annotations

import concurrent.futures
import random
import time

import cluster
import pytest
from conftest import PairMaker, Truth
from test_faults import leave_after

WARM_UP = 50
GROWTH = 16 << 20
# 64 blocks: the warm-up writes to each of them, so that their pages are there.
POOL = 64 * 4 * 65536
# In float32 a lone vLLM grows by a megabyte a request, as oneDNN keeps what it
# made for each size of prompt.
DTYPE = "bfloat16"
# Logits are bfloat16 too: this far apart, rounding decides between two words.
TIE = 0.13


@pytest.fixture
def pair(make_pair: PairMaker) -> cluster.Pair:
    return make_pair(kv_bytes=POOL, dtype=DTYPE)


def is_tie(alone: cluster.Engine, prompt: list[int], token: int) -> bool:
    """Whether the lone engine finds it as good as the token that it chose."""
    answer = cluster.complete(
        alone.url, prompt, 1, logprobs=5, return_tokens_as_token_ids=True
    )
    best: dict[str, float] = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    return max(best.values()) - best.get(f"token_id:{token}", -1e9) <= TIE


def test_memory_after_many_handoffs(
    pair: cluster.Pair, truth: Truth, rng: random.Random, is_full: bool
) -> None:
    alone = truth.of("tiny-llama", [], DTYPE)
    before: dict[str, dict[int, int]] = {}

    def one(seed: int) -> None:
        own = random.Random(seed)
        prompt = cluster.tokens(own.randrange(1, 1000), own)
        if own.random() < 0.01:
            body = {"model": "m", "prompt": prompt, "max_tokens": 8, "stream": True}
            leave_after(pair.proxy.url, body, own.random() / 5)
            return
        want = cluster.complete(alone.url, prompt, 1, return_token_ids=True)
        got = cluster.complete(pair.proxy.url, prompt, 1, return_token_ids=True)
        first, other = (answer["choices"][0]["token_ids"][0] for answer in (want, got))
        assert first == other or is_tie(alone, prompt, other), len(prompt)

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


def test_idle_engines_cost_no_more_than_a_lone_one(
    pair: cluster.Pair, truth: Truth
) -> None:
    """While nothing is held and nobody waits. Some wake up all the same: eight
    threads of torch's, 100 times a second, in each vLLM."""
    engines = [truth.of("tiny-llama", [], DTYPE), *pair.engines]
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
