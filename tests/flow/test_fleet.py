"""Engines that come and go while the proxy serves: POST, DELETE and drain on the admin address."""
import json
import os
import random
import threading

import pytest

import cluster as c
import load
import stub
from test_text import words

# Changes of the fleet under load: more by hand (BATON_CHANGES=10000).
ONE = ["--workers", "1"]  # its turns alone decide who gets what
CHANGES = int(os.environ.get("BATON_CHANGES", "400"))


class Fleet:
    """What an operator does to one proxy's fleet."""

    def __init__(self, proxy, headers=None):
        self.proxy, self.headers = proxy, headers or {}

    def ask(self, method, path, body=None, headers=None):
        return c.http_json(self.proxy.admin, method, path, body, headers=dict(self.headers, **(headers or {})))[:2]

    def add(self, url, role, **more):
        status, body = self.ask("POST", "/engines", dict({"url": url, "role": role}, **more))
        assert status == 201 and body["url"] == url and body["role"] == role, (status, body)
        return body["id"]

    def remove(self, engine):
        status, body = self.ask("DELETE", "/engines/%d" % engine)
        assert status == 202 and body["state"] in ("leaving", "gone"), (status, body)

    def drain(self, engine):
        status, body = self.ask("POST", "/engines/%d/drain" % engine)
        assert status == 202 and body["state"] in ("draining", "drained"), (status, body)

    def state(self, engine):
        """None: it is gone."""
        status, body = self.ask("GET", "/engines/%d" % engine)
        return body["state"] if status == 200 else None

    def wait(self, engine, state, within=10):
        c.eventually(lambda: self.state(engine) == state, within, "engine %d is %s, not %s" % (engine, state, self.state(engine)))

    def known(self):
        return {e["url"]: e for e in self.proxy.engines()["engines"]}


def completed(pair, count):
    for _ in range(count):
        assert pair.proxy.ask(body={"model": "m", "prompt": "hello"})[0] == 200


@pytest.fixture
def extra():
    made = []

    def make(script=stub.decode_answer):
        made.append(stub.Stub(script))
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_an_added_engine_gets_its_share_and_a_removed_one_nothing(stock, extra):
    pair, more = stock(proxy_flags=ONE), extra()
    fleet = Fleet(pair.proxy)
    engine = fleet.add(more.url, "decode", weight=3)
    assert fleet.known()[more.url]["source"] == "admin" and fleet.known()[pair.d.url]["source"] == "configuration"
    completed(pair, 40)
    assert 28 <= len(more.seen) <= 32 and len(more.seen) + len(pair.d.seen) == 40
    before = len(more.seen)
    fleet.remove(engine)
    completed(pair, 10)
    assert len(more.seen) == before
    fleet.wait(engine, None)
    assert set(fleet.known()) == {pair.p.url, pair.d.url}


def test_an_engine_comes_again_under_another_id(stock, extra):
    pair, more = stock(proxy_flags=ONE), extra()
    fleet = Fleet(pair.proxy)
    first = fleet.add(more.url, "decode")
    fleet.remove(first)
    second = fleet.add(more.url, "decode")
    assert second > first
    fleet.wait(first, None)
    completed(pair, 10)
    assert 4 <= len(more.seen) <= 6


def test_an_added_prefill_engine_hands_over(stock, extra):
    pair, more = stock(proxy_flags=ONE), extra(stub.numbered_prefill("added"))
    Fleet(pair.proxy).add(more.url, "prefill")
    completed(pair, 6)
    assert sorted(r.handoff().rsplit("-", 1)[0] for r in pair.d.seen) == ["added"] * 3 + ["e"] * 3


BAD = {
    "": "role", "{": "body:", "[]": "body:", '{"role": "decode"}': "no url", '{"url": "http://127.0.0.1:1"}': "role",
    '{"url": "ftp://x", "role": "decode"}': "ftp://x", '{"url": "http://127.0.0.1:1", "role": "both"}': "role",
    '{"url": "http://127.0.0.1:1", "role": "decode", "pool": 1}': "there are 1", '{"url": "http://127.0.0.1:1", "role": "decode", "weight": 0}': "weight",
    '{"url": "http://127.0.0.1:1", "role": "decode", "color": "red"}': "color", '{"url": "http://127.0.0.1:1", "role": "decode", "key_file": "/etc/passwd"}': "key_file",
    '{"url": "http://127.0.0.1:1", "role": "decode", "pool": -1}': "pool",
}


def test_what_cannot_be_added_is_named(stock):
    pair = stock()
    fleet = Fleet(pair.proxy)
    for body, word in BAD.items():
        status, answer = fleet.ask("POST", "/engines", body.encode())
        assert status == 400 and word in answer["error"], (body, status, answer)
    assert fleet.ask("POST", "/engines", {"url": pair.d.url, "role": "decode"})[0] == 409
    assert fleet.ask("POST", "/engines", b"x" * 70000)[0] == 413
    assert len(fleet.known()) == 2
    completed(pair, 2)


def test_what_is_not_there_or_not_allowed_is_said(stock):
    pair = stock()
    fleet = Fleet(pair.proxy)
    configured = fleet.known()[pair.d.url]["id"]
    for method, path, status in [("DELETE", "/engines/999", 404), ("GET", "/engines/999", 404), ("POST", "/engines/999/drain", 404),
                                 ("PUT", "/engines/1", 405), ("GET", "/engines/1/drain", 405), ("GET", "/engines/x", 404),
                                 ("GET", "/engines/1/other", 404), ("DELETE", "/engines", 405), ("GET", "/engines/99999999999999999999", 404)]:
        assert fleet.ask(method, path)[0] == status, (method, path)
    status, answer = fleet.ask("DELETE", "/engines/%d" % configured)
    assert status == 409 and "drain" in answer["error"]
    completed(pair, 1)


def test_a_page_or_another_name_may_not_change_engines(stock):
    pair = stock()
    fleet, more = Fleet(pair.proxy), {"url": "http://127.0.0.1:1", "role": "decode"}
    for headers in [{"Origin": "http://evil.test"}, {"Host": "evil.test:9090"}, {"Origin": "null"}, {"X-Forwarded-For": "10.0.0.1"}, {"Via": "1.1 front"}]:
        status, answer = fleet.ask("POST", "/engines", more, headers)
        assert status == 403 and answer["error"], (headers, status)
        assert fleet.ask("GET", "/engines", headers=headers)[0] == 200
    assert fleet.ask("POST", "/engines", more, {"Host": "localhost:1"})[0] == 201


def test_an_added_engine_has_a_place_and_paths_say_what_they_allow(stock):
    pair = stock()
    _, engine, headers = c.http_json(pair.proxy.admin, "POST", "/engines", {"url": "http://127.0.0.1:1", "role": "decode"})
    assert headers["Location"] == "/engines/%d" % engine["id"]
    for path, allow in [("/engines", "GET, HEAD, POST"), ("/metrics", "GET, HEAD"), (headers["Location"], "GET, HEAD, DELETE"), (headers["Location"] + "/drain", "POST, DELETE")]:
        status, _, headers_of = c.http_json(pair.proxy.admin, "PUT", path)
        assert status == 405 and headers_of["Allow"] == allow, (path, headers_of)


def test_a_key_file_of_the_configuration_may_be_used_for_an_added_engine(stock, extra, tmp_path):
    key = tmp_path / "engine.key"
    key.write_text("an-engine-key-0123456789\n")
    key.chmod(0o600)
    pair, more = stock(proxy_flags=[*ONE, "--set", "auth.engine_key_file=%s" % key]), extra()
    Fleet(pair.proxy).add(more.url, "decode", key_file=str(key))
    completed(pair, 4)
    assert more.seen and more.seen[0].headers["Authorization"] == "Bearer an-engine-key-0123456789"


def test_with_keys_a_change_needs_one(stock, tmp_path):
    keys = tmp_path / "admin.keys"
    keys.write_text("a-long-key-for-the-admin-0123456789\n")
    keys.chmod(0o600)
    pair = stock(proxy_flags=["--set", "auth.admin_keys_file=%s" % keys])
    fleet, more = Fleet(pair.proxy), {"url": "http://127.0.0.1:1", "role": "decode"}
    assert fleet.ask("POST", "/engines", more)[0] == 401
    assert fleet.ask("POST", "/engines", more, {"Authorization": "Bearer wrong"})[0] == 401
    assert fleet.ask("GET", "/engines")[0] == 200
    key = {"Authorization": "Bearer a-long-key-for-the-admin-0123456789", "Host": "admin.test"}
    status, answer = fleet.ask("POST", "/engines", more, key)
    assert status == 201 and fleet.ask("DELETE", "/engines/%d" % answer["id"])[0] == 401


def slow_stream(entered, go_on):
    """A D that says one event, and the rest when it may."""
    def script(request):
        if not request.parsed().get("stream"):
            return stub.decode_answer(request)
        request.start()
        request.piece("data: %s\n\n" % json.dumps(stub.completion("he")))
        entered.set()
        go_on.wait(30 * c.PATIENCE)
        request.piece("data: %s\n\ndata: [DONE]\n\n" % json.dumps(stub.completion("llo")))
        request.handler.wfile.write(b"0\r\n\r\n")
        return None
    return script


def stream_at(pair, fleet, extra):
    """A stream that has begun at an added engine: (the stream, the engine's id, what lets it go on)."""
    entered, go_on = threading.Event(), threading.Event()
    more = extra(slow_stream(entered, go_on))
    configured = fleet.known()[pair.d.url]["id"]
    fleet.drain(configured)
    engine = fleet.add(more.url, "decode")
    stream = c.Stream(pair.proxy.port, {"model": "m", "prompt": "x"}).head()
    assert entered.wait(10 * c.PATIENCE)
    assert fleet.ask("DELETE", "/engines/%d/drain" % configured)[0] == 200
    return stream, engine, go_on


def test_a_drained_engine_ends_its_streams_and_comes_back(stock, extra):
    pair = stock()
    fleet = Fleet(pair.proxy)
    stream, engine, go_on = stream_at(pair, fleet, extra)
    fleet.drain(engine)
    completed(pair, 4)
    assert len(pair.d.seen) == 4 and fleet.state(engine) == "draining"
    go_on.set()
    assert stream.text() == "hello"
    fleet.wait(engine, "drained")
    assert fleet.ask("DELETE", "/engines/%d/drain" % engine) [1]["state"] == "up"
    completed(pair, 8)
    assert len(pair.d.seen) < 12


def test_a_removed_engine_ends_its_streams_first(stock, extra):
    pair = stock()
    fleet = Fleet(pair.proxy)
    stream, engine, go_on = stream_at(pair, fleet, extra)
    fleet.remove(engine)
    fleet.remove(engine)  # twice is once
    assert fleet.ask("POST", "/engines/%d/drain" % engine)[0] == 409
    completed(pair, 4)
    assert len(pair.d.seen) == 4 and fleet.state(engine) == "leaving"
    go_on.set()
    assert stream.text() == "hello"
    fleet.wait(engine, None)


def test_who_waits_for_a_removed_engine_is_told_so_at_once(stock, extra):
    entered, go_on, answers = threading.Event(), threading.Event(), []
    pair, more = stock(proxy_flags=ONE), extra(slow_stream(entered, go_on))
    fleet = Fleet(pair.proxy)
    engine = fleet.add(more.url, "decode", max_in_flight=1)
    fleet.drain(fleet.known()[pair.d.url]["id"])
    stream = c.Stream(pair.proxy.port, {"model": "m", "prompt": "x"}).head()
    assert entered.wait(10 * c.PATIENCE)
    waiting = threading.Thread(target=lambda: answers.append(pair.proxy.ask(body={"model": "m", "prompt": "x"})[0]), daemon=True)
    waiting.start()
    c.eventually(lambda: pair.proxy.metric("baton_requests_queued") == 1, 10, "one request waits for a place")
    fleet.remove(engine)
    waiting.join(10 * c.PATIENCE)
    assert answers == [503]
    go_on.set()
    assert stream.text() == "hello"


def test_a_removed_engine_is_cut_when_its_time_is_over(stock, extra):
    pair = stock(proxy_flags=["--set", "timeouts.drain=1s"])
    fleet = Fleet(pair.proxy)
    stream, engine, go_on = stream_at(pair, fleet, extra)
    fleet.remove(engine)
    with pytest.raises(c.AnswerError) as cut:
        stream.text()
    assert cut.value.status == 200 and cut.value.body["error"]["code"] == 502
    fleet.wait(engine, None)
    go_on.set()
    completed(pair, 2)


def test_a_removed_prefill_engine_is_used_until_decode_has_answered(stock, extra):
    entered, go_on = threading.Event(), threading.Event()
    pair, more = stock(), extra(stub.prefill_answer)
    fleet = Fleet(pair.proxy)

    def late(request):
        entered.set()
        go_on.wait(30 * c.PATIENCE)
        stub.decode_answer(request)

    pair.d.script = late
    fleet.drain(fleet.known()[pair.p.url]["id"])
    engine = fleet.add(more.url, "prefill")
    asked = threading.Thread(target=completed, args=(pair, 1), daemon=True)
    asked.start()
    assert entered.wait(10 * c.PATIENCE)  # D reads P's blocks now
    fleet.remove(engine)
    c.eventually(lambda: "leaves" in pair.proxy.text(), 5, "it leaves")
    assert fleet.state(engine) == "leaving" and pair.proxy.ask(body={"model": "m", "prompt": "x"})[0] == 503
    go_on.set()
    asked.join(10 * c.PATIENCE)
    fleet.wait(engine, None)


def test_agents_of_added_engines_link_and_their_holds_end_with_them(clusters):
    pair = clusters(proxy_flags=ONE)
    fleet = Fleet(pair.proxy)
    p, d = (pair.add(c.Engine(pair, role)).start().wait_ready() for role in ("prefill", "decode"))
    pair.prefill.append(p)
    pair.decode.append(d)
    ids = [fleet.add(p.url, "prefill"), fleet.add(d.url, "decode")]
    c.eventually(lambda: len(fleet.known()[d.url].get("paired_with", [])) == 2, 15, "the added D is paired with both")
    c.eventually(lambda: len(fleet.known()[pair.d.url]["paired_with"]) == 2, 15, "the first D is paired with both")
    prompts = [words(random.Random(i), 200) for i in range(12)]
    texts = [pair.proxy.complete(p) for p in prompts]
    shares = p.answered(), d.answered()
    assert all(4 <= share <= 8 for share in shares), shares
    for engine in ids:
        fleet.remove(engine)
        fleet.wait(engine, None)
    assert [pair.proxy.complete(p) for p in prompts] == texts
    assert (p.answered(), d.answered()) == shares
    assert {e["url"] for e in c.eventually(lambda: len(pair.proxy.engines()["unconfigured"]) == 2 and pair.proxy.engines()["unconfigured"], 15, "their agents are known as nobody's")} == {p.url, d.url}
    pair.wait_unheld(10)


def test_an_engine_that_only_decodes_from_now_on_is_read_from_by_nobody(clusters):
    pair = clusters(proxy_flags=ONE)
    fleet, both = Fleet(pair.proxy), pair.add(c.Engine(pair, "both")).start().wait_ready()
    prefill = fleet.add(both.url, "prefill")
    fleet.add(both.url, "decode")

    def readers():
        return {e["url"] for e in pair.proxy.engines()["engines"] for peer in e.get("peers", ()) if peer["prefill"] == both.url and peer["state"] == "ready"}

    def of_decode(url):
        return next(e for e in pair.proxy.engines()["engines"] if e["url"] == url and e["role"] == "decode")

    c.eventually(lambda: readers() == {pair.d.url} and of_decode(both.url)["paired_with"] == [pair.p.url], 15, "both roles are introduced")
    fleet.remove(prefill)
    fleet.wait(prefill, None)
    assert readers() == set() and of_decode(pair.d.url)["paired_with"] == [pair.p.url] == of_decode(both.url)["paired_with"]
    prompts = [words(random.Random(i), 100) for i in range(8)]
    assert [pair.proxy.complete(prompt) for prompt in prompts] == [pair.d.complete(prompt) for prompt in prompts]
    assert both.answered() > 0
    pair.wait_unheld(10)


def churn(fleet, urls, changes, seed):
    """Adds and removes engines in any order; ends with none of them there."""
    rng, there = random.Random(seed), {}
    for _ in range(changes):
        url, role = rng.choice(urls)
        if (url, role) in there:
            fleet.remove(there.pop((url, role)))
        else:
            there[(url, role)] = fleet.add(url, role, weight=rng.randint(1, 3))
    for engine in there.values():
        fleet.remove(engine)
        fleet.wait(engine, None, 60)


@pytest.mark.parametrize("connector", ["none", "baton"])
def test_a_fleet_that_changes_all_the_time_loses_no_request(clusters, lone, connector):
    truths, base = {}, clusters(connector=connector, prefill=0 if connector == "none" else 1, proxy_flags=["--workers", "8"])
    reference = lone()
    urls = [(base.add(c.Engine(base, role)).start().wait_ready().url, role)
            for role in ["decode", "decode", "decode"] + (["prefill", "prefill"] if connector == "baton" else [])]
    for prompt in load.PROMPTS:
        truths[prompt] = reference.complete(prompt, load.TOKENS)
    fleet, clients = Fleet(base.proxy), load.Load(base.proxy.port, truths.get, clients=6)
    try:
        churn(fleet, urls, CHANGES // 8, 1)
        before = base.proxy.rss()
        churn(fleet, urls, CHANGES, 2)
        after = base.proxy.rss()
    finally:
        clients.end()
    assert set(clients.tally) == {"right"} and clients.tally["right"] > 50, clients.tally
    if c.BUILD.name not in ("asan", "tsan"):  # they keep what is freed
        assert after - before < (8 << 20), (before, after)
    c.eventually(lambda: base.proxy.metric("baton_engines") == len(base.prefill) + len(base.decode), 30, "no engine is left in memory")
    assert len(fleet.known()) == len(base.prefill) + len(base.decode)
