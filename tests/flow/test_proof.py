"""No wrong bytes: what happens to P's blocks under a live handoff never becomes different text."""
import random

import pytest

import cluster as c
from test_text import words

PROVIDERS = pytest.mark.parametrize("provider", ["tcp", "cma"])
# A slow pull leaves time for the fault between P's answer and D's read.
FEW = ["--blocks", 2048]


def fresh():
    return words(random.Random(), 600)


def verdict(proxy, prompt, max_tokens=12):
    """The text, or the HTTP status of an error."""
    status, body, _ = proxy.ask(body=dict(model="baton", prompt=prompt, max_tokens=max_tokens))
    return body["choices"][0]["text"] if status == 200 else status


@PROVIDERS
@pytest.mark.parametrize("fault", ["free-early", "reuse-block"])
@pytest.mark.parametrize("policy", ["fail", "recompute"])
def test_blocks_that_the_engine_took_back_never_become_text(clusters, lone, provider, fault, policy):
    pair = clusters(engine_flags=[*FEW, "--provider", provider], decode_flags=["--on-load-failure", policy],
                    proxy_flags=["--set", "retry.attempts=0"])
    truth = lone(*FEW)
    for _ in range(5):
        prompt = fresh()
        pair.p.fault(fault)
        got = verdict(pair.proxy, prompt)
        if policy == "fail":
            assert got in (500, 502, 503), got
        else:
            assert got == truth.complete(prompt, 12)
        prompt = fresh()
        assert verdict(pair.proxy, prompt) == truth.complete(prompt, 12)
    assert pair.proxy.metric("baton_pull_failures_total", reason="lost") >= 5
    pair.wait_unheld(3)


def test_a_retry_after_a_broken_hold_gives_the_right_text(clusters, lone):
    pair, truth = clusters(engine_flags=FEW), lone(*FEW)
    prompt = fresh()
    pair.p.fault("free-early")
    assert verdict(pair.proxy, prompt) == truth.complete(prompt, 12)


@PROVIDERS
def test_blocks_that_are_not_written_yet_are_waited_for(clusters, lone, provider):
    """P answers when its work begins. Params that say so make D wait for P's count; without it, D reads what lies there."""
    flags = [*FEW, "--provider", provider]
    slow = ["--prefill-rate", 2000, "--step-tokens", 64]
    truth = lone(*FEW)
    pair = clusters(prefill_flags=[*flags, *slow], decode_flags=flags, proxy_flags=["--set", "retry.attempts=0"])
    for say in ("ready", "unsaid"):
        for _ in range(3):
            prompt = fresh()
            pair.p.fault("answer-early", say)
            got = verdict(pair.proxy, prompt)
            assert isinstance(got, str) and (got == truth.complete(prompt, 12)) == (say == "ready"), (say, got)
    prompt = fresh()
    assert verdict(pair.proxy, prompt) == truth.complete(prompt, 12)
    pair.wait_unheld(3)


@PROVIDERS
@pytest.mark.parametrize("fault", ["flip-bytes", "reuse-block=silent"])
def test_silent_corruption_is_caught_with_checksums_only(clusters, lone, provider, fault):
    """Without a word from the engine the hold word cannot know: that is what --checksum is for."""
    name, _, arg = fault.partition("=")
    truth = lone(*FEW)
    for checksum in (True, False):
        pair = clusters(engine_flags=[*FEW, "--provider", provider, *(["--checksum"] if checksum else [])], proxy_flags=["--set", "retry.attempts=0"])
        prompt = fresh()
        pair.p.fault(name, arg or None)
        got = verdict(pair.proxy, prompt)
        if checksum:
            assert got in (500, 502, 503), got
            assert pair.proxy.metric("baton_pull_failures_total", reason="checksum") >= 1
        else:
            assert isinstance(got, str) and got != truth.complete(prompt, 12)
        prompt = fresh()
        assert verdict(pair.proxy, prompt) == truth.complete(prompt, 12)


@PROVIDERS
def test_a_lapsed_lease_is_an_error_and_not_a_read(clusters, lone, provider):
    """D's read starts long after P's lease ended and P's blocks went to others."""
    pair = clusters(engine_flags=[*FEW, "--provider", provider, "--lease", "%dms" % c.window_ms(500)], proxy_flags=["--set", "retry.attempts=0"])
    truth = lone(*FEW)
    pair.d.fault("slow-pull", c.window_ms(1500))
    prompt = fresh()
    got = verdict(pair.proxy, prompt)
    assert got in (500, 502, 503) or got == truth.complete(prompt, 12), got
    prompt = fresh()
    assert verdict(pair.proxy, prompt) == truth.complete(prompt, 12)
    pair.wait_unheld(3)


@PROVIDERS
def test_a_restarted_prefill_at_the_old_address_is_never_trusted(clusters, lone, provider):
    pair = clusters(engine_flags=[*FEW, "--provider", provider], proxy_flags=["--set", "retry.attempts=0"])
    truth = lone(*FEW)
    prompt = fresh()
    assert verdict(pair.proxy, prompt) == truth.complete(prompt, 12)
    pair.d.fault("slow-pull", c.window_ms(1500))
    stream = c.Stream(pair.proxy.port, dict(model="baton", prompt=fresh(), max_tokens=4))
    c.eventually(lambda: pair.held() > 0, 5, "P holds blocks")
    pair.p.kill()
    pair.p.start().wait_ready()
    with pytest.raises((c.AnswerError, ConnectionError)):
        stream.text()
    pair.proxy.wait_routable()
    for _ in range(10):
        prompt = fresh()
        assert verdict(pair.proxy, prompt) == truth.complete(prompt, 12)
