"""Engines, proxies and clients that die, stop, lie and leave: the next answer
is right, both engines live, and every block comes back."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import pathlib
import random
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import cluster
import httpx
import pytest
from conftest import PairMaker, Truth
from sealing import seal

LEASE_S = 4 * cluster.PATIENCE
TIMEOUT_S = 3 * cluster.PATIENCE
# Reads that hang are given up after the time-out, and drained for a second.
PULL_END_S = TIMEOUT_S + 6


@pytest.fixture(scope="module")
def fault_file(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("fault") / "free"


@pytest.fixture
def pair(
    make_pair: PairMaker, fault_file: pathlib.Path, zygote: cluster.Zygote
) -> Iterator[cluster.Pair]:
    pair = make_pair(
        transfer={
            "provider": "tcp", "module": "faulty", "connector": "FaultyConnector",
            "lease_s": LEASE_S, "orphan_s": 3, "pull_timeout_s": TIMEOUT_S,
        },
        env={"BATON_FAULT": str(fault_file)},
    )  # fmt: skip
    yield pair
    for engine in pair.engines:
        if not engine.pid:
            engine.start(zygote)
            engine.wait_ready()
    if pair.proxy.process is None:
        pair.proxy.start()
    pair.proxy.wait_ready()
    pair.settle(20)


@pytest.fixture
def alone(truth: Truth) -> cluster.Engine:
    return truth.of("tiny-llama", [])


def hand_over(pair: cluster.Pair, prompt: list[int]) -> dict[str, Any]:
    """P's leg, as a proxy sends it but without one: the params."""
    ask = {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "baton": {"v": 1, "handoff": secrets.token_hex(16)},
    }
    answer = cluster.complete(pair.p.url, prompt, 1, kv_transfer_params=ask)
    params: dict[str, Any] = answer["kv_transfer_params"]
    assert params["baton"]["handoff"] == ask["baton"]["handoff"]
    return params


def take_over(pair: cluster.Pair, prompt: list[int], params: Any) -> httpx.Response:
    """D's leg, directly."""
    body = {
        "model": "m", "prompt": prompt, "max_tokens": 16, "temperature": 0,
        "ignore_eos": True, "kv_transfer_params": params,
    }  # fmt: skip
    return cluster.HTTP.post(f"{pair.d.url}/v1/completions", json=body, timeout=120)


def is_right(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random, size: int = 300
) -> None:
    prompt = cluster.tokens(size, rng)
    want = cluster.text_of(cluster.complete(alone.url, prompt))
    assert cluster.text_of(cluster.complete(pair.proxy.url, prompt)) == want


def leave_after(url: str, body: dict[str, Any], seconds: float) -> None:
    """Sends a request and closes the connection after the time."""
    host, port = url.removeprefix("http://").split(":")
    text = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}"
        "\r\nContent-Type: application/json\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as client:
        client.sendall(head.encode() + text)
        client.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            while client.recv(65536):
                pass


@pytest.mark.parametrize("seconds", [0.01, 0.03, 0.08, 0.15, 0.3])
def test_the_client_leaves(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random, seconds: float
) -> None:
    body = {"model": "m", "prompt": cluster.tokens(1900, rng), "max_tokens": 64,
            "temperature": 0, "ignore_eos": True, "stream": True}  # fmt: skip
    leave_after(pair.proxy.url, body, seconds)
    pair.settle()
    is_right(pair, alone, rng)


def test_the_client_leaves_during_the_pull(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    prompt = cluster.tokens(1000, rng)
    params = hand_over(pair, prompt)
    pair.p.signal(signal.SIGSTOP)
    try:
        body = {"model": "m", "prompt": prompt, "max_tokens": 4,
                "kv_transfer_params": params}  # fmt: skip
        leave_after(pair.d.url, body, 0.5)
        cluster.wait_for("D is empty", PULL_END_S, pair.d.is_empty)
    finally:
        pair.p.signal(signal.SIGCONT)
    cluster.wait_for("P is empty", LEASE_S + 10, pair.p.is_empty)
    pair.proxy.wait_ready()
    is_right(pair, alone, rng)


def test_a_stopped_prefill_engine(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    prompt = cluster.tokens(1000, rng)
    params = hand_over(pair, prompt)
    pair.p.signal(signal.SIGSTOP)
    try:
        answer = take_over(pair, prompt, params)
        assert answer.status_code == 500
        cluster.wait_for("D is empty", PULL_END_S, pair.d.is_empty)
    finally:
        pair.p.signal(signal.SIGCONT)
    pair.proxy.wait_ready()
    pair.settle(LEASE_S + 10)
    is_right(pair, alone, rng)


def test_a_prefill_engine_killed_before_the_pull(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random,
    zygote: cluster.Zygote,
) -> None:  # fmt: skip
    prompt = cluster.tokens(700, rng)
    params = hand_over(pair, prompt)
    pair.p.kill()
    answer = take_over(pair, prompt, params)
    assert answer.status_code == 500
    cluster.wait_for("D is empty", PULL_END_S, pair.d.is_empty)
    pair.p.start(zygote)
    pair.p.wait_ready()
    pair.proxy.wait_ready()
    # The old life's params prove nothing of the new one's blocks.
    assert take_over(pair, prompt, params).status_code == 500
    is_right(pair, alone, rng)


def test_a_prefill_engine_killed_during_the_pull(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random,
    zygote: cluster.Zygote,
) -> None:  # fmt: skip
    prompt = cluster.tokens(1900, rng)
    params = hand_over(pair, prompt)
    pair.p.signal(signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(take_over, pair, prompt, params)
        cluster.wait_for(
            "D waits for the pull",
            10,
            lambda: pair.d.metric("vllm:kv_cache_usage_perc") > 0,
        )
        pair.p.kill()
        assert answer.result().status_code == 500
    cluster.wait_for("D is empty", PULL_END_S, pair.d.is_empty)
    pair.p.start(zygote)
    pair.p.wait_ready()
    pair.proxy.wait_ready()
    is_right(pair, alone, rng)


def test_a_decode_engine_killed(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random,
    zygote: cluster.Zygote,
) -> None:  # fmt: skip
    body = {"model": "m", "prompt": cluster.tokens(1000, rng), "max_tokens": 500,
            "ignore_eos": True, "stream": True}  # fmt: skip
    with cluster.HTTP.stream(
        "POST", f"{pair.proxy.url}/v1/completions", json=body, timeout=60
    ) as answer:
        lines = answer.iter_lines()
        next(lines)
        pair.d.kill()
        with contextlib.suppress(httpx.HTTPError):
            rest = list(lines)
            assert any("error" in line for line in rest)
    cluster.wait_for("P is empty", 10, pair.p.is_empty)
    pair.d.start(zygote)
    pair.d.wait_ready()
    pair.proxy.wait_ready()
    is_right(pair, alone, rng)


def test_a_proxy_killed_and_restarted(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    body = {"model": "m", "prompt": cluster.tokens(1500, rng), "max_tokens": 300,
            "ignore_eos": True, "stream": True}  # fmt: skip
    with contextlib.suppress(httpx.HTTPError), cluster.HTTP.stream(
        "POST", f"{pair.proxy.url}/v1/completions", json=body, timeout=60
    ) as answer:
        next(answer.iter_lines())
        pair.proxy.kill()
    pair.settle(15)
    pair.proxy.start()
    pair.proxy.wait_ready()
    is_right(pair, alone, rng)


def test_a_lease_that_runs_out(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    prompt = cluster.tokens(300, rng)
    begin = time.monotonic()
    params = hand_over(pair, prompt)
    cluster.wait_for("the lease ends", LEASE_S + 3, pair.p.is_empty)
    assert time.monotonic() - begin > LEASE_S - 1
    assert take_over(pair, prompt, params).status_code == 500
    assert pair.p.metric("vllm:baton_holds_expired_total") >= 1
    is_right(pair, alone, rng)


def test_blocks_reused_under_a_hold_are_never_taken_for_the_prompts(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random,
    fault_file: pathlib.Path,
) -> None:  # fmt: skip
    broken = pair.p.metric("vllm:baton_holds_broken_total")
    prompts = [cluster.tokens(500, rng) for _ in range(3)]
    offers = [hand_over(pair, prompt) for prompt in prompts]
    fault_file.touch()
    cluster.wait_for("the blocks are free", 10, lambda: not fault_file.exists())
    # Twice the pool: each block is written to by another prompt.
    for _ in range(20):
        cluster.complete(pair.p.url, cluster.tokens(1900, rng), 1)
    for prompt, params in zip(prompts, offers):
        answer = take_over(pair, prompt, params)
        if answer.status_code == 200:
            want = cluster.text_of(cluster.complete(alone.url, prompt))
            assert cluster.text_of(answer.json()) == want
        else:
            assert answer.status_code == 500
    assert pair.p.metric("vllm:baton_holds_broken_total") - broken >= 1
    pair.settle()
    is_right(pair, alone, rng)


def test_a_handoff_is_of_one_prompt_only(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    prompt, other = cluster.tokens(400, rng), cluster.tokens(400, rng)
    params = hand_over(pair, prompt)
    answer = take_over(pair, other, params)
    want = cluster.text_of(cluster.complete(alone.url, other))
    assert answer.status_code == 200
    assert cluster.text_of(answer.json()) == want
    assert pair.d.metric("vllm:baton_handoffs_refused_total") >= 1
    # The prompt itself may use it, and again as long as it is held.
    params = hand_over(pair, prompt)
    answer = take_over(pair, prompt, params)
    assert answer.status_code == 200
    want = cluster.text_of(cluster.complete(alone.url, prompt))
    assert cluster.text_of(answer.json()) == want
    answer = take_over(pair, prompt, params)
    if answer.status_code == 200:
        assert cluster.text_of(answer.json()) == want


SPELLINGS = [
    '"kv_transfer_params": {"do_remote_prefill": true}',
    '"kv_transfer_params": {"do_remote_prefill": true, "baton": {}}',
    '"kv_transfer_params": {"do_remote_prefill": true, "baton": 1}',
    '"kv_transfer_params": {"do_remote_decode": true, "baton": {"handoff": 1}}',
    *(
        f'"kv_transfer_params": {{"{wanted}": true, "baton": {{"handoff": {odd}}}}}'
        for wanted in ("do_remote_decode", "do_remote_prefill")
        for odd in (
            json.dumps([0] * 32),
            json.dumps({str(key): 0 for key in range(32)}),
            '"' + "0" * 32 + '"',
        )
    ),
    '"kv_\\u0074ransfer_params": {"do_remote_prefill": true}',
    '"\\u006bv_transfer_params" : {"do_remote_prefill": true}',
    '"kv_transfer_params": {"do_remote_prefill": true, "remote_block_ids": [[1]], '
    '"remote_engine_id": "x", "remote_host": "h", "remote_port": 1}',
    '"extra_body": {"kv_transfer_params": {"do_remote_prefill": true}}',
    '"kv_transfer_params": null',
]


@pytest.mark.parametrize("way", ["proxy", "d", "p"])
def test_params_of_a_clients_own(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random, way: str
) -> None:
    url = {"proxy": pair.proxy.url, "d": pair.d.url, "p": pair.p.url}[way]
    for spelling in SPELLINGS:
        prompt = cluster.tokens(200, rng)
        body = (
            f'{{"model": "m", "prompt": {prompt}, "max_tokens": 16, '
            f'"temperature": 0, "ignore_eos": true, {spelling}}}'
        )
        answer = cluster.HTTP.post(
            f"{url}/v1/completions",
            content=body,
            headers={"Content-Type": "application/json"},
            timeout=60,
        )
        if answer.status_code == 200:
            want = cluster.text_of(cluster.complete(alone.url, prompt))
            assert cluster.text_of(answer.json()) == want, spelling
        else:
            assert answer.status_code == 400, (spelling, answer.text)
    is_right(pair, alone, rng)


def test_params_with_nonsense_inside(
    pair: cluster.Pair, alone: cluster.Engine, rng: random.Random
) -> None:
    """Changed without the key they are not used. With it they are refused, or
    name what is proven to be held."""
    key = pair.key_file.read_text().strip().encode()
    changes: list[dict[str, Any]] = [
        {"slot": 9999999}, {"groups": []}, {"groups": ["5-1"]}, {"groups": ["0-99"]},
        {"groups": [7]}, {"boots": []}, {"boots": ["0"]}, {"engine": "nobody"},
        {"v": 2}, {"handoff": "x"}, {"handoff": None}, {"tokens": -1},
        {"groups": ["250-252"]}, {"groups": ["4294967295"]},
    ]  # fmt: skip
    for change in changes:
        prompt = cluster.tokens(300, rng)
        params = hand_over(pair, prompt)
        params["baton"].update(change)
        want = cluster.text_of(cluster.complete(alone.url, prompt))
        answer = take_over(pair, prompt, params)
        assert answer.status_code == 200, answer.text
        assert cluster.text_of(answer.json()) == want, change

        prompt = cluster.tokens(300, rng)
        params = hand_over(pair, prompt)
        params["baton"].update(change)
        params["baton"]["seal"] = seal(params["baton"], key)
        answer = take_over(pair, prompt, params)
        if answer.status_code == 200:
            want = cluster.text_of(cluster.complete(alone.url, prompt))
            # Other blocks of P's: only an engine with the key can say so.
            if change not in ({"groups": ["250-252"]},):
                assert cluster.text_of(answer.json()) == want, change
        else:
            assert answer.status_code == 500, (change, answer.text)
    pair.settle(LEASE_S + 10)
    is_right(pair, alone, rng)
