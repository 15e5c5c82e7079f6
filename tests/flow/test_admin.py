"""What an operator sees: metrics, engines, handoffs, the access log, signals, idle cost."""
import random
import shutil
import signal
import subprocess
import threading

import pytest

import cluster as c
from test_text import words


def test_metrics_pass_promtool(clusters):
    pair = clusters()
    pair.proxy.complete(words(random.Random(), 100))
    assert shutil.which("promtool"), "promtool is in Debian's prometheus package, which tests/run.sh installs"
    for text in (pair.proxy.metrics(), c.http_json(pair.p.port, "GET", "/metrics")[1].decode()):
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0 and not checked.stderr, checked.stderr + text


def test_handoffs_show_a_living_handoff_and_then_its_time_line(clusters):
    pair = clusters()
    pair.d.fault("slow-pull", c.window_ms(800))
    stream = c.Stream(pair.proxy.port, dict(model="baton", prompt=words(random.Random(), 600), max_tokens=5))
    live = c.eventually(lambda: [h for h in pair.proxy.handoffs()["live"] if h.get("blocks")], 5, "a live handoff with blocks")[0]
    assert len(live["handoff"]) == 32 and live["tokens"] >= 600 and live["age_ms"] >= 0
    stream.text()
    recent = c.eventually(lambda: pair.proxy.handoffs()["recent"], 3, "a finished handoff")[-1]
    assert recent["handoff"] == live["handoff"] and recent["bytes"] > 0
    assert pair.proxy.handoffs()["live"] == []


def test_engines_show_links_and_occupancy(clusters):
    pair = clusters()
    engines = pair.proxy.engines()["engines"]
    assert {e["url"] for e in engines} == {pair.p.url, pair.d.url}
    assert all(e["usable"] and e["linked"] for e in engines), engines


def test_an_unconfigured_engine_is_shown_and_gets_nothing(clusters):
    pair = clusters()
    stranger = pair.add(c.Engine(pair, "decode"))
    stranger.start().wait_ready()
    c.eventually(lambda: stranger.url in str(pair.proxy.engines()), 5, "the stranger is shown")
    for _ in range(6):
        pair.proxy.complete(words(random.Random(), 50))
    assert stranger.answered() == 0


def test_the_access_log_has_one_line_with_each_stage(clusters):
    pair = clusters()
    pair.proxy.complete(words(random.Random(), 300))
    line = c.eventually(pair.proxy.access, 3, "an access line")
    assert len(line) == 1 and line[0]["code"] == 200
    for stage in ("prefill_us", "ttft_us", "total_us", "pull_read_us"):
        assert line[0][stage] >= 0


def test_ready_says_why_not(clusters):
    pair = clusters()
    assert pair.proxy.get("/health")[0] == 200
    pair.d.kill()
    status, body, _ = c.eventually(lambda: (lambda a: a if a[0] == 503 else None)(pair.proxy.get("/ready")), 10, "not ready without D")
    assert "decode" in str(body)
    pair.d.start().wait_ready()
    pair.proxy.wait_routable()


def test_term_lets_streams_end_and_exits_0(clusters):
    pair = clusters(decode_flags=["--decode-step", 20000])
    stream = c.Stream(pair.proxy.port, dict(model="baton", prompt="a b c", max_tokens=50))
    events = stream.events()
    next(events)
    pair.proxy.signal(signal.SIGTERM)
    rest = list(events)
    assert rest[-1] == "[DONE]"
    assert pair.proxy.process.wait(5 * c.PATIENCE) == 0


def test_a_hang_up_opens_an_engines_log_anew_and_ends_nothing(lone):
    engine = lone()
    engine.log.rename(engine.log.with_suffix(".old"))
    engine.signal(signal.SIGHUP)
    c.eventually(engine.log.exists, 5, "the new file")
    assert engine.complete("still here", 4)


def test_a_second_term_ends_at_once(clusters):
    pair = clusters(decode_flags=["--decode-step", 100000])
    stream = c.Stream(pair.proxy.port, dict(model="baton", prompt="a b c", max_tokens=1000))
    next(stream.events())
    pair.proxy.signal(signal.SIGTERM)
    c.eventually(lambda: pair.proxy.alive() and "drain" in pair.proxy.text(), 5, "the drain is logged")
    pair.proxy.signal(signal.SIGTERM)
    assert pair.proxy.process.wait(3 * c.PATIENCE) is not None


def test_idle_engines_and_proxy_cost_nothing(clusters):
    """Ten seconds of silence: pings once a second are all that happens."""
    pair = clusters()
    pair.proxy.complete("warm up")
    before = [p.cpu_seconds() for p in pair.everything]
    threading.Event().wait(10)
    used = [p.cpu_seconds() - b for p, b in zip(pair.everything, before)]
    # The tick of /proc is 10 ms, so that 20 ms is the least that can be told from 10.
    assert all(u <= 0.02 * c.PATIENCE for u in used), dict(zip([p.name for p in pair.everything], used))


@pytest.mark.parametrize("key", ["wrong", "none"])
def test_an_agent_without_the_key_is_kept_out(clusters, key):
    pair = clusters(start=False)
    bad = pair.folder / "bad.key"
    bad.write_text("f" * 64 + "\n")
    bad.chmod(0o600)
    at = pair.d.argv.index("--key-file")
    if key == "wrong":
        pair.d.argv[at + 1] = str(bad)
    else:
        del pair.d.argv[at:at + 2]
    for e in pair.prefill + pair.decode:
        e.start()
    for e in pair.prefill + pair.decode:
        e.wait_ready()
    pair.proxy = pair.add(c.Proxy(pair))
    pair.proxy.start().wait_ready()
    c.eventually(lambda: any(e["url"] == pair.p.url and e["linked"] for e in pair.proxy.engines()["engines"]), 5, "P is linked")
    engine = next(e for e in pair.proxy.engines()["engines"] if e["url"] == pair.d.url)
    assert not engine["linked"] and pair.proxy.get("/ready")[0] == 503
