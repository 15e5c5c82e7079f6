"""Engines started as users start them: by spawn, in the model's own type."""

from __future__ import annotations

import pathlib
import random

import cluster
from conftest import Truth


def test_a_spawned_pair(
    tmp_path: pathlib.Path, truth: Truth, rng: random.Random
) -> None:
    alone = truth.of("tiny-llama", [], dtype="bfloat16")
    pair = cluster.Pair(tmp_path, "tiny-llama", dtype="bfloat16")
    try:
        for engine in pair.engines:
            engine.spawn()
        pair.proxy.start()
        for engine in pair.engines:
            engine.wait_ready()
        pair.proxy.wait_ready()
        # Few tokens: with more, rounding decides between words now and then.
        for size in (1, 300, 700):
            prompt = cluster.tokens(size, rng)
            want = cluster.text_of(cluster.complete(alone.url, prompt, 4))
            assert cluster.text_of(cluster.complete(pair.proxy.url, prompt, 4)) == want
        pair.settle()
        pids = [engine.pid for engine in pair.engines]
        pair.p.stop()
        pair.d.stop()
        assert not [pid for pid in pids if cluster.group_pids(pid)]
    finally:
        pair.stop()
