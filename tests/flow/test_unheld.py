"""No stranded blocks: after any single failure P's held blocks return to zero, in the promised time."""
import random
import time

import pytest

import cluster as c
from test_text import words

SLOW_STEP = ["--decode-step", 20000]
ORPHAN = 10.0


def ask(pair, tokens=600, max_tokens=200):
    return c.Stream(pair.proxy.port, dict(model="baton", prompt=words(random.Random(), tokens), max_tokens=max_tokens, ignore_eos=True))


def still_serves(pair):
    prompt = words(random.Random(), 200)
    assert pair.proxy.complete(prompt, 4, ignore_eos=True)


@pytest.mark.parametrize("leave", ["close", "reset", "half_close"])
def test_client_gone_while_prefill_works(clusters, leave):
    pair = clusters(prefill_flags=["--prefill-rate", 2000])
    stream = ask(pair, 4000)
    c.eventually(lambda: pair.p.busy() > 0, 5, "P works")
    getattr(stream, leave)()
    pair.wait_unheld(3)
    still_serves(pair)


@pytest.mark.parametrize("leave", ["close", "reset", "half_close"])
def test_client_gone_between_the_answer_of_prefill_and_the_pull(clusters, leave):
    pair = clusters()
    pair.d.fault("slow-pull", 60000)
    stream = ask(pair)
    c.eventually(lambda: pair.held() > 0, 5, "P holds blocks")
    getattr(stream, leave)()
    c.eventually(lambda: pair.held() == 0, 1.5, "P's blocks are back within a second and a step")
    pair.wait_unheld(6)
    still_serves(pair)


@pytest.mark.parametrize("leave", ["close", "reset", "half_close"])
def test_client_gone_while_decode_streams(clusters, leave):
    pair = clusters(decode_flags=SLOW_STEP)
    stream = ask(pair)
    next(stream.events())
    getattr(stream, leave)()
    pair.wait_unheld(3)
    still_serves(pair)


def test_decode_killed_before_the_pull(clusters):
    pair = clusters(decode=2, proxy_flags=["--set", "retry.attempts=0"])
    for d in pair.decode:
        d.fault("slow-pull", 60000)
    stream = ask(pair)
    c.eventually(lambda: pair.held() > 0, 5, "P holds blocks")
    busy = c.eventually(lambda: next((d for d in pair.decode if d.busy() > 0), None), 5, "a D has the request")
    busy.kill()
    with pytest.raises((c.AnswerError, ConnectionError)):
        stream.text()
    c.eventually(lambda: pair.held() == 0, 1.5, "P's blocks are back within a second and a step")


def test_a_baton_handoff_moves_to_another_decode(clusters, lone):
    """The hold word proves the bytes, so a dead D costs no second prefill."""
    pair, truth = clusters(decode=2), lone()
    for d in pair.decode:
        d.fault("slow-pull", c.window_ms(1500))
    prompt = words(random.Random(), 600)
    stream = c.Stream(pair.proxy.port, dict(model="baton", prompt=prompt, max_tokens=8))
    busy = c.eventually(lambda: next((d for d in pair.decode if d.busy() > 0), None), 5, "a D has the request")
    busy.kill()
    assert stream.text() == truth.complete(prompt, 8)
    assert pair.p.answered() == 1
    c.eventually(lambda: pair.held() == 0, 1.5, "P's blocks are back")


def test_decode_killed_in_mid_stream(clusters):
    pair = clusters(decode_flags=SLOW_STEP)
    stream = ask(pair)
    events = stream.events()
    next(events)
    pair.d.kill()
    rest = []
    with pytest.raises(ConnectionError):
        for event in events:
            rest.append(event)
    assert '"error"' in rest[-1] and "[DONE]" not in rest
    c.eventually(lambda: pair.held() == 0, 1.5, "P's blocks are back")


def test_prefill_killed_before_the_pull(clusters):
    pair = clusters(proxy_flags=["--set", "retry.attempts=0"])
    pair.d.fault("slow-pull", c.window_ms(1000))
    stream = ask(pair)
    c.eventually(lambda: pair.held() > 0, 5, "P holds blocks")
    pair.p.kill()
    with pytest.raises((c.AnswerError, ConnectionError)):
        stream.text()
    c.eventually(lambda: pair.d.used() == 0, 15, "D's blocks are back")
    pair.p.start().wait_ready()
    pair.proxy.wait_routable()
    still_serves(pair)


@pytest.mark.parametrize("provider", ["tcp", "cma"])
def test_prefill_stopped_in_mid_read(clusters, provider):
    """D's blocks are not handed back while a read may still write to them; then P wakes, and nothing is written late."""
    pair = clusters(engine_flags=["--provider", provider, "--blocks", 8192, "--layers", 8],
                    proxy_flags=["--set", "retry.attempts=0"], decode_flags=["--pull-timeout", "%dms" % c.window_ms(1000)])
    still_serves(pair)
    pair.d.fault("slow-pull", c.window_ms(700))
    stream = ask(pair, 16000, 4)
    c.eventually(lambda: pair.held() > 0, 10, "P holds blocks")
    pair.p.pause()
    try:
        if provider == "tcp":
            with pytest.raises((c.AnswerError, ConnectionError)):
                stream.text()
        else:
            stream.text()  # process_vm_readv needs nothing of the stopped process
        c.eventually(lambda: pair.d.used() == 0, 15, "D's blocks are back")
    finally:
        pair.p.resume()
    pair.proxy.wait_routable(20)
    pair.wait_unheld(ORPHAN + 3)
    still_serves(pair)


def test_proxy_killed_and_restarted(clusters):
    pair = clusters(decode_flags=SLOW_STEP)
    for d in pair.decode:
        d.fault("slow-pull", 60000)
    stream = ask(pair)
    c.eventually(lambda: pair.held() > 0, 5, "P holds blocks")
    c.eventually(lambda: pair.d.used() > 0, 5, "D has blocks for the request, and has met its fault")
    began = time.monotonic()
    pair.proxy.kill()
    with pytest.raises((c.AnswerError, ConnectionError)):
        stream.text()
    pair.proxy.start().wait_ready().wait_routable()
    c.eventually(lambda: pair.held() == 0, ORPHAN + 2, "the orphaned hold ended")
    assert time.monotonic() - began < (ORPHAN + 2) * c.PATIENCE
    pair.wait_unheld(3)
    still_serves(pair)


def test_link_cut_leaves_the_lease_to_the_orphan_time_and_heals(clusters):
    pair = clusters(start=False)
    relay = c.Relay(int(pair.agents.rsplit(":", 1)[1]))
    for e in pair.prefill + pair.decode:
        e.argv[e.argv.index("--agents") + 1] = "127.0.0.1:%d" % relay.port
    pair.start()
    still_serves(pair)
    pair.d.fault("slow-pull", 60000)
    stream = ask(pair)
    c.eventually(lambda: pair.held() > 0, 5, "P holds blocks")
    c.eventually(lambda: pair.d.used() > 0, 5, "D has blocks for the request, and has met its fault")
    relay.cut()
    c.eventually(lambda: pair.held() == 0, ORPHAN + 2, "the orphaned hold ended")
    relay.heal()
    stream.close()
    pair.proxy.wait_routable(10)
    pair.wait_unheld(5)
    still_serves(pair)


def test_a_short_cut_of_the_link_loses_no_handoff(clusters, lone):
    """State is synchronised after a reconnect: the running handoff ends as if nothing had been."""
    pair = clusters(start=False)
    relay = c.Relay(int(pair.agents.rsplit(":", 1)[1]))
    for e in pair.prefill + pair.decode:
        e.argv[e.argv.index("--agents") + 1] = "127.0.0.1:%d" % relay.port
    pair.start()
    truth = lone()
    pair.d.fault("slow-pull", c.window_ms(1200))
    prompt = words(random.Random(), 600)
    stream = c.Stream(pair.proxy.port, dict(model="baton", prompt=prompt, max_tokens=8))
    c.eventually(lambda: pair.held() > 0, 5, "P holds blocks")
    relay.cut()
    relay.heal()
    assert stream.text() == truth.complete(prompt, 8)
    c.eventually(lambda: pair.held() == 0, 3, "P's blocks are back")


def test_a_hundred_handoffs_with_cancels_leave_nothing(clusters):
    pair = clusters(prefill=2, decode=2)
    rng = random.Random()
    for round_ in range(25):
        streams = [ask(pair, rng.randrange(1, 2000), 30) for _ in range(4)]
        for s in streams[1:]:
            s.text()
        getattr(streams[0], rng.choice(["close", "reset", "half_close"]))()
    pair.wait_unheld(3)
    assert pair.proxy.handoffs()["live"] == []
