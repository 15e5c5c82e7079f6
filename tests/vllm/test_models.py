"""Models whose KV caches lie otherwise: windows, two groups, MLA; and one that
makes sense."""

from __future__ import annotations

import random

import cluster
import pytest
from conftest import PairMaker, Truth
from test_faults import LEASE_S, hand_over, take_over


@pytest.mark.parametrize("model", ["tiny-hybrid", "tiny-sliding"])
def test_windows_and_groups(
    model: str, make_pair: PairMaker, truth: Truth, rng: random.Random, is_full: bool
) -> None:
    pair = make_pair(model, transfer={"lease_s": LEASE_S})
    alone = truth.of(model, [])
    before = pair.d.metric("vllm:baton_pull_seconds_count")
    sizes = [100, 300, 1000]
    if is_full:
        sizes += [1, 127, 128, 129, 256, 257, 1900]
    for size in sizes:
        prompt = cluster.tokens(size, rng)
        want = cluster.text_of(cluster.complete(alone.url, prompt))
        assert cluster.text_of(cluster.complete(pair.proxy.url, prompt)) == want, size
        assert cluster.text_of(cluster.complete(pair.proxy.url, prompt)) == want, size
    assert pair.d.metric("vllm:baton_pull_seconds_count") - before >= len(sizes) - 1
    pair.settle()
    # A failure of one request with several groups.
    prompt = cluster.tokens(300, rng)
    params = hand_over(pair, prompt)
    cluster.wait_for("the lease ends", LEASE_S + 10, pair.p.is_empty)
    assert take_over(pair, prompt, params).status_code == 500
    prompt = cluster.tokens(300, rng)
    want = cluster.text_of(cluster.complete(alone.url, prompt))
    assert cluster.text_of(cluster.complete(pair.proxy.url, prompt)) == want
    pair.settle(LEASE_S + 10)


def test_a_window_that_begins_a_token_before_its_blocks(
    make_pair: PairMaker, truth: Truth, rng: random.Random
) -> None:
    """With 255 tokens, a window of 128 and blocks of 128, P has dropped a
    block of which D needs the last token: D computes the prompt itself."""
    pair = make_pair("tiny-sliding", transfer={"lease_s": LEASE_S})
    alone = truth.of("tiny-sliding", [])
    for size in (254, 255, 256, 383):
        prompt = cluster.tokens(size, rng)
        want = cluster.text_of(cluster.complete(alone.url, prompt))
        assert cluster.text_of(cluster.complete(pair.proxy.url, prompt)) == want, size
    pair.settle()


def test_latent_blocks_are_equal_on_both_sides(
    make_pair: PairMaker, rng: random.Random
) -> None:
    """MLA on a CPU: local decoding and prefill differ in vLLM itself, so bytes
    are compared: what D holds after the pull is what P computed."""
    pair = make_pair(
        "tiny-mla",
        dtype="bfloat16",
        transfer={"module": "digests", "connector": "DigestConnector"},
    )
    for size in (10, 100, 333):
        prompt = cluster.tokens(size, rng)
        params = hand_over(pair, prompt)
        assert take_over(pair, prompt, params).status_code == 200
        handoff = params["baton"]["handoff"]
        lines = [
            [line for line in engine.log.read_text().splitlines() if handoff in line]
            for engine in pair.engines
        ]
        digests = [line[-1].rpartition("digest ")[2] for line in lines]
        assert len(digests[0]) == 64
        assert digests[0] == digests[1]


QUESTIONS = {
    "What is the capital of Germany?": "Berlin",
    "What is the capital of France?": "Paris",
    "What color is the sky?": "blue",
}


def test_a_model_that_makes_sense(
    make_pair: PairMaker, truth: Truth, is_full: bool
) -> None:
    pair = make_pair("smollm2", kv_bytes=512 << 20)
    alone = truth.of("smollm2", [])
    for question, word in QUESTIONS.items():
        body = {
            "model": "m", "messages": [{"role": "user", "content": question}],
            "max_tokens": 24, "temperature": 0,
        }  # fmt: skip
        said = [
            cluster.HTTP.post(f"{url}/v1/chat/completions", json=body, timeout=300).json()[
                "choices"
            ][0]["message"]["content"]
            for url in (alone.url, pair.proxy.url)
        ]
        print(question, said)
        assert said[0] == said[1]
        assert word in said[0]
    pair.settle()
