"""Small pools: decode engines out of blocks, preempted requests on both sides,
and both roles in one engine."""

from __future__ import annotations

import concurrent.futures
import random

import cluster
import pytest
from conftest import PairMaker, Truth
from test_faults import LEASE_S, hand_over, take_over

# Room for 24 blocks, 3,072 tokens.
SMALL = 24 * 4 * 131072


@pytest.fixture
def pair(make_pair: PairMaker) -> cluster.Pair:
    return make_pair(
        role="kv_both", kv_bytes=SMALL, transfer={"lease_s": LEASE_S}
    )


@pytest.fixture
def alone(truth: Truth) -> cluster.Engine:
    return truth.of("tiny-llama", [])


def run(url: str, prompts: list[list[int]], count: int) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        return list(
            pool.map(
                lambda prompt: cluster.text_of(cluster.complete(url, prompt, count)),
                prompts,
            )
        )


def test_a_decode_engine_out_of_blocks(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    prompts = [cluster.tokens(rng.randrange(600, 1200), rng) for _ in range(8)]
    want = [cluster.text_of(cluster.complete(alone.url, p)) for p in prompts]
    assert run(pair.proxy.url, prompts, 16) == want
    pair.settle(15)


def test_the_proxy_knows_the_free_blocks(
    pair: cluster.Pair, rng: random.Random
) -> None:
    def used(engine: cluster.Engine) -> int:
        known = pair.proxy.engine(engine.url)
        # vLLM keeps one block for itself.
        count: int = known["blocks"] - 1 - known["blocks_free"]
        return count

    pair.settle(15)
    for engine in pair.engines:
        cluster.wait_for("none is used", 5, lambda: used(engine) == 0)
    prompt = cluster.tokens(500, rng)
    params = hand_over(pair, prompt)
    cluster.wait_for("four blocks are held", 5, lambda: used(pair.p) == 4)
    assert take_over(pair, prompt, params).status_code == 200
    # No request comes after it, and yet the proxy hears of them.
    cluster.wait_for("they are free", LEASE_S + 10, lambda: used(pair.p) == 0)
    cluster.wait_for("the decode engine's too", 5, lambda: used(pair.d) == 0)


def test_preempted_decode_requests(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    before = pair.d.metric("vllm:num_preemptions_total")
    prompts = [cluster.tokens(rng.randrange(350, 380), rng) for _ in range(7)]
    want = run(alone.url, prompts, 150)
    assert run(pair.proxy.url, prompts, 150) == want
    assert pair.d.metric("vllm:num_preemptions_total") > before
    pair.settle(15)


def test_preempted_prefill_requests(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    """Requests of P's own grow while prompts for D are computed there."""
    before = pair.p.metric("vllm:num_preemptions_total")
    own = [cluster.tokens(350, rng) for _ in range(7)]
    prompts = [cluster.tokens(rng.randrange(300, 1000), rng) for _ in range(6)]
    want = [cluster.text_of(cluster.complete(alone.url, p)) for p in prompts]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        busy = pool.submit(run, pair.p.url, own, 150)
        assert run(pair.proxy.url, prompts, 16) == want
        said = busy.result()
    assert said == run(alone.url, own, 150)
    assert pair.p.metric("vllm:num_preemptions_total") > before
    pair.settle(15)


def test_roles_swapped(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    """Engines that do both, on both sides of their proxy: what was D hands over
    to what was P."""
    swapped = cluster.Pair.__new__(cluster.Pair)
    swapped.p, swapped.d = pair.d, pair.p
    one_way = pair.proxy.args
    pair.proxy.restart([*one_way, "--prefill", pair.d.url, "--decode", pair.p.url])
    try:
        for sides in (pair, swapped):
            cluster.wait_for(
                f"{sides.d.name} may read from {sides.p.name}", 30,
                lambda sides=sides: pair.proxy.may_read(sides.d.url, sides.p.url),
            )  # fmt: skip
        for sides in (pair, swapped, pair, swapped):
            prompt = cluster.tokens(rng.randrange(200, 900), rng)
            before = sides.d.metric("vllm:baton_pull_seconds_count")
            answer = take_over(sides, prompt, hand_over(sides, prompt))
            assert answer.status_code == 200, answer.text
            want = cluster.text_of(cluster.complete(alone.url, prompt))
            assert cluster.text_of(answer.json()) == want
            assert sides.d.metric("vllm:baton_pull_seconds_count") == before + 1
    finally:
        pair.proxy.restart(one_way)
    pair.settle(LEASE_S + 10)
