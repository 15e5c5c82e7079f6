"""Private members that a client hides where a stock engine would find them:
vLLM with NIXL ends at some of their values, so none may reach it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import cluster
import pytest
from conftest import PairMaker, Truth

NAMES = (
    "kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_port",
    "bootstrap_room", "disagg_prefill_resp",
)  # fmt: skip
VALUES = (
    None, "", 0, 7, [], {},
    {"do_remote_prefill": True, "remote_engine_id": "e", "remote_block_ids": [1]},
)  # fmt: skip
# Where they hide.
DOORS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (
    lambda private: {"vllm_xargs": {"keep": 1, **private}},
    lambda private: {"extra_body": {"vllm_xargs": private}},
    lambda private: {"extra_body": private},
    lambda private: {"sampling_params": {"extra_args": private}},
    lambda private: private,
)
# Requests that a decode engine answers alone: nothing of ours hides the client's.
SHAPES: dict[str, dict[str, Any]] = {
    "several": {"prompt": "a stone", "n": 2},
    "echo": {"prompt": "a river", "echo": True},
    "list": {"prompt": ["a night", "a paper"]},
    "plain": {"prompt": "a window"},
}


@pytest.fixture
def pair(make_pair: PairMaker) -> cluster.Pair:
    return make_pair(connector="nixl")


@pytest.mark.parametrize("shape", SHAPES)
def test_no_hidden_member_ends_an_engine(
    pair: cluster.Pair, truth: Truth, rng: random.Random, shape: str
) -> None:
    pids = [engine.pid for engine in pair.engines]
    for door, name, value in itertools.product(DOORS, NAMES, VALUES):
        body = {"model": "m", "max_tokens": 1, **SHAPES[shape], **door({name: value})}
        url = f"{pair.proxy.url}/v1/completions"
        status = cluster.HTTP.post(url, json=body).status_code
        assert status in (200, 400), (status, body, pair.d.tail(20))
    assert all(cluster.is_alive(pid) for pid in pids)
    assert all(engine.is_ready() for engine in pair.engines)
    prompt = cluster.tokens(200, rng)
    alone = truth.of("tiny-llama", [])
    want = cluster.text_of(cluster.complete(alone.url, prompt))
    assert cluster.text_of(cluster.complete(pair.proxy.url, prompt)) == want
