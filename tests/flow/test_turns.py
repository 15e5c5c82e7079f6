"""Whose turn it is: each pool and side has its own round robin, each worker begins elsewhere, and a failover takes no turn."""
import collections

import pytest

import stub

BODY = {"model": "m", "prompt": "hi"}
ONE_WORKER = ["--workers", "1"]


def ask(one, times, model="m"):
    """Asks one after the other, each on a connection of its own, and wants good answers."""
    for _ in range(times):
        status, body, _ = one.proxy.ask(body=dict(BODY, model=model))
        assert status == 200, (status, body)


def asked(stubs):
    return [len(s.seen) for s in stubs]


def test_every_prefill_engine_meets_every_decode_engine(stock):
    one = stock(prefill=2, decode=2, proxy_flags=ONE_WORKER)
    for i, p in enumerate(one.prefill):
        p.script = stub.numbered_prefill("p%d" % i)
    ask(one, 40)
    met = collections.Counter((request.handoff().split("-")[0], i) for i, d in enumerate(one.decode) for request in d.seen)
    assert len(met) == 4 and min(met.values()) >= 5, met


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_failing_engine_is_asked_in_its_own_turns_only(stock, side, count):
    """Else retries beat time with the turns, and the bad engine is met first by every request."""
    one = stock(**{"prefill": 2, "decode": 2, side: count}, proxy_flags=[*ONE_WORKER, "--set", "retry.budget=100%"])
    failing, other = getattr(one, side), one.decode if side == "prefill" else one.prefill
    failing[0].script = lambda request: request.whole({"error": {"message": "CUDA error", "code": 500}}, 500)
    times = 20 * count
    ask(one, times)
    assert len(failing[0].seen) <= times // count + 1, asked(failing)
    assert min(asked(failing[1:])) >= times // count - 1, asked(failing)
    assert min(asked(other)) >= times // 4, asked(other)


def test_pools_that_are_asked_by_turns_use_all_their_engines(stock):
    one = stock(start=False, prefill=0, decode=2, connector="none")
    second = [stub.Stub(stub.decode_answer) for _ in range(2)]
    one.proxy_flags += [*ONE_WORKER, "--set", "pools.0.model=a", "--set", "pools.1.model=b", "--set", "pools.1.connector=none",
                        "--set", "pools.1.decode.engines=[%s]" % ", ".join(s.url for s in second)]
    one.start()
    one.decode += second
    for _ in range(20):
        ask(one, 1, "a")
        ask(one, 1, "b")
    assert min(asked(one.decode)) >= 9, asked(one.decode)


def test_workers_begin_at_different_engines(stock):
    """Of 64 workers some 34 get one of 48 connections: were engine 0 the first of each, it had them all."""
    one = stock(prefill=4, decode=4, proxy_flags=["--workers", "64"])
    ask(one, 48)
    for side in (one.prefill, one.decode):
        assert sum(asked(side)) == 48 and max(asked(side)) <= 26, asked(side)
