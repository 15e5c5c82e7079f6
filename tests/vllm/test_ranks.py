"""Engines of two workers each: every rank of D reads from its rank of P, and a
handoff ends when all have ended."""

from __future__ import annotations

import random

import cluster
import pytest
from conftest import PairMaker
from test_faults import LEASE_S, hand_over, take_over

# Four layers; a rank has one of the two heads, and so half of it.
BLOCK_BYTES = 4 * 131072


@pytest.fixture
def pair(make_pair: PairMaker) -> cluster.Pair:
    return make_pair(
        flags=["--tensor-parallel-size", "2"],
        transfer={"lease_s": LEASE_S},
        core=None,  # ranks on one core would wait for each other's turn
    )


def test_both_ranks_hand_over(pair: cluster.Pair, rng: random.Random) -> None:
    for engine in pair.engines:
        assert len(pair.proxy.engine(engine.url)["ranks"]) == 2
    for size in (2, 300, 1000):
        prompt = cluster.tokens(size, rng)
        through = cluster.text_of(cluster.complete(pair.proxy.url, prompt))
        # The truth is an engine of two ranks too: P, when it is asked alone.
        assert through == cluster.text_of(cluster.complete(pair.p.url, prompt)), size
        newest = pair.proxy.handoffs()["recent"][0]
        assert newest["release"] == "pulled"
        blocks = -(-size // 128)
        assert newest["blocks_read"] == blocks
        assert newest["bytes"] == blocks * BLOCK_BYTES
    pair.settle()


def test_a_lease_that_runs_out_ends_on_both_ranks(
    pair: cluster.Pair, rng: random.Random
) -> None:
    prompt = cluster.tokens(300, rng)
    params = hand_over(pair, prompt)
    cluster.wait_for("the lease ends", LEASE_S + 10, pair.p.is_empty)
    assert take_over(pair, prompt, params).status_code == 500
    prompt = cluster.tokens(300, rng)
    through = cluster.text_of(cluster.complete(pair.proxy.url, prompt))
    assert through == cluster.text_of(cluster.complete(pair.p.url, prompt))
    pair.settle()
