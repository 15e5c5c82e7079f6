"""Whatever way a prompt takes, its text is that of a lone engine."""

from __future__ import annotations

import concurrent.futures
import random
from typing import Any

import cluster
import pytest
from conftest import PairMaker, Truth

TOOL_FLAGS = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]


@pytest.fixture(scope="module", params=["tcp", "cma"])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(make_pair: PairMaker, provider: str) -> cluster.Pair:
    return make_pair(transfer={"provider": provider}, flags=TOOL_FLAGS)


@pytest.fixture
def alone(truth: Truth) -> cluster.Engine:
    return truth.of("tiny-llama", TOOL_FLAGS)


def chat(url: str, text: str, **more: Any) -> dict[str, Any]:
    body = {
        "model": "m", "messages": [{"role": "user", "content": text}],
        "max_tokens": 16, "temperature": 0, **more,
    }  # fmt: skip
    answer = cluster.HTTP.post(f"{url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def sizes(count: int, rng: random.Random) -> list[int]:
    """Around the ends of blocks, and any."""
    edges = [1, 2, 127, 128, 129, 255, 256, 257, 1024, 1900]
    if count <= len(edges):
        return sorted(rng.sample(edges, count))
    return edges + [rng.randrange(1, 1900) for _ in range(count - len(edges))]


def test_completions_of_all_sizes(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random, is_full: bool,
    provider: str,
) -> None:  # fmt: skip
    before = pair.d.metric("vllm:baton_pull_seconds_count")
    counts = sizes(40 if is_full else 10, rng)
    for count in counts:
        prompt = cluster.tokens(count, rng)
        through = cluster.text_of(cluster.complete(pair.proxy.url, prompt))
        assert through == cluster.text_of(cluster.complete(alone.url, prompt)), count
    # Of a prompt of one token nothing is worth a read.
    pulled = sum(count > 1 for count in counts)
    assert pair.d.metric("vllm:baton_pull_seconds_count") - before == pulled
    newest = pair.proxy.handoffs()["recent"][0]
    assert newest["release"] == "pulled"
    assert newest["provider"] == ("cma" if provider == "cma" else newest["provider"])
    assert newest["bytes"] > 0
    pair.settle()


def test_streams_and_chats(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random, is_full: bool
) -> None:
    for _ in range(20 if is_full else 3):
        prompt = cluster.words(rng.randrange(1, 900), rng)
        want = cluster.text_of(cluster.complete(alone.url, prompt))
        assert cluster.stream_text(pair.proxy.url, prompt) == want
        text = cluster.words(rng.randrange(1, 900), rng)
        whole = chat(alone.url, text)["choices"][0]["message"]["content"]
        assert chat(pair.proxy.url, text)["choices"][0]["message"]["content"] == whole
        body = {
            "model": "m", "messages": [{"role": "user", "content": text}],
            "max_tokens": 16, "temperature": 0, "stream": True,
        }  # fmt: skip
        deltas = [
            event["choices"][0]["delta"].get("content") or ""
            for event in cluster.events(
                pair.proxy.url, "/v1/chat/completions", body
            )
            if event["choices"]
        ]
        assert "".join(deltas) == whole


def test_partial_and_full_hits_on_the_decode_engine(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    prefix = cluster.tokens(256, rng)
    cluster.complete(pair.d.url, prefix)  # D has its two blocks
    for more in (1, 44, 128, 200):
        prompt = prefix + cluster.tokens(more, rng)
        want = cluster.text_of(cluster.complete(alone.url, prompt))
        assert cluster.text_of(cluster.complete(pair.proxy.url, prompt)) == want
        # All of it is there now, up to the last block.
        assert cluster.text_of(cluster.complete(pair.proxy.url, prompt)) == want
    read = [item["blocks_read"] for item in pair.proxy.handoffs()["recent"][:8]]
    # Newest first. 257 tokens: the last one is computed in any case.
    assert read == [1, 2, 1, 1, 1, 1, 0, 0]
    pair.settle()


def test_batches_of_eight(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    prompts = [cluster.tokens(rng.randrange(1, 700), rng) for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(
            pool.map(
                lambda prompt: cluster.text_of(
                    cluster.complete(pair.proxy.url, prompt)
                ),
                prompts,
            )
        )
    for prompt, text in zip(prompts, got):
        assert text == cluster.text_of(cluster.complete(alone.url, prompt))
    pair.settle()


def test_a_chat_with_tools_that_must_be_called(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    tools = [
        {
            "type": "function",
            "function": {
                "name": "turn",
                "parameters": {
                    "type": "object",
                    "properties": {"way": {"enum": ["left", "right"]}},
                    "required": ["way"],
                    "additionalProperties": False,
                },
            },
        }
    ]
    text = cluster.words(300, rng)
    said = []
    for url in (alone.url, pair.proxy.url):
        answer = chat(url, text, tools=tools, tool_choice="required", max_tokens=100)
        message = answer["choices"][0]["message"]
        # Only ids differ; nonsense may be cut before it is a call.
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        said.append((message["content"], calls, answer["choices"][0]["finish_reason"]))
    assert said[0] == said[1]
