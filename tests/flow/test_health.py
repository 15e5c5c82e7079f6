"""Which engines are asked: health, failures, and the names that engines go by."""
import concurrent.futures
import json
import random
import re
import socket
import threading

import pytest

import cluster as c
import stub
from test_text import words

BODY = {"model": "m", "prompt": "hi", "max_tokens": 5}
NO_PROBES = ["--set", "timeouts.probe_interval=0s"]
MANY_PROBES = ["--set", "timeouts.probe_interval=100ms"]


def usable(one, engine):
    return next(e["usable"] for e in one.proxy.engines()["engines"] if e["url"] == engine.url)


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_an_engine_whose_health_is_503_gets_no_request_until_it_is_good(stock, side):
    """A server whose engine died answers everything: /health by 503, requests by 500."""
    one = stock(prefill=2, decode=2, proxy_flags=MANY_PROBES)
    ill = getattr(one, side)[0]
    script, ill.script = ill.script, lambda r: r.whole({"error": {"message": "EngineCore is dead"}}, 500)
    good, ill.health = ill.health, lambda r: r.whole({}, 503)
    c.eventually(lambda: not usable(one, ill), 5, "the ill one is not usable")
    assert [one.proxy.ask(body=BODY)[0] for _ in range(8)] == [200] * 8 and not ill.seen
    ill.script, ill.health = script, good
    c.eventually(lambda: usable(one, ill), 5, "it is usable again")
    c.eventually(lambda: one.proxy.ask(body=BODY)[0] == 200 and ill.seen, 5, "it gets requests")
    said = [line for line in one.proxy.text().splitlines() if ill.url in line]
    assert len([s for s in said if "answered 503" in s]) == 1 and len([s for s in said if "usable again" in s]) == 1, said


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_requests_leave_an_engine_that_hangs(stock, side):
    """Three probes without an answer: what waits for the first byte there goes elsewhere, long before its deadline."""
    one = stock(prefill=2, decode=2, proxy_flags=MANY_PROBES + ["--set", "timeouts.probe=500ms"])
    hung, over = getattr(one, side)[0], threading.Event()
    hung.script = lambda r: over.wait(60)
    hung.health = hung.script
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda _: one.proxy.ask(body=BODY)[0], range(4)))
        assert got == [200] * 4 and hung.seen
    finally:
        over.set()
    assert any("does it hang?" in line for line in one.proxy.text().splitlines())


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_requests_leave_an_engine_that_hangs_when_another_is_usable_again(stock, side):
    """It hung when nobody could take its requests: they are not forgotten there."""
    one = stock(prefill=2, decode=2, proxy_flags=MANY_PROBES + ["--set", "timeouts.probe=500ms"])
    (ill, hung), over = getattr(one, side), threading.Event()
    good, ill.health = ill.health, lambda r: r.whole({}, 503)
    c.eventually(lambda: not usable(one, ill), 5, "the ill one is not usable")
    hung.script = hung.health = lambda r: over.wait(60)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        try:
            asked = [pool.submit(one.proxy.ask, body=BODY) for _ in range(4)]
            c.eventually(lambda: not usable(one, hung), 10, "none is usable")
            ill.health = good
            c.eventually(lambda: all(a.done() for a in asked), 10, "all are answered")
        finally:
            over.set()
    assert [a.result()[0] for a in asked] == [200] * 4


def test_a_request_leaves_a_frozen_prefill_engine_when_its_agent_is_dead(clusters):
    pair = clusters(prefill=2, engine_flags=["--prefill-rate", "500"], proxy_flags=["--workers", "1", "--set", "agents.ping=300ms", "--set", "agents.dead=1s"])
    c.eventually(lambda: any(len(e.get("paired_with", ())) == 2 for e in pair.proxy.engines()["engines"]), 10, "D is paired with both")
    prompts = [words(random.Random(n), 300) for n in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(pair.proxy.complete, p) for p in prompts]
        c.eventually(lambda: all(e.busy() for e in pair.prefill), 10, "both prefill engines compute")
        pair.p.pause()
        texts = [a.result(30 * c.PATIENCE) for a in asked]
        pair.p.resume()
    assert all(texts)
    pair.wait_unheld(15)


def test_the_only_decode_engine_is_tried_again_after_it_failed(stock):
    one = stock(proxy_flags=NO_PROBES + ["--set", "retry.attempts=0"])
    one.d.script = lambda r: r.cut()
    assert one.proxy.ask(body=BODY)[1]["error"]["code"] == "decode_failed"
    one.d.script = stub.decode_answer
    assert one.proxy.ask(body=BODY)[0] == 200
    one.d.script = lambda r: r.cut()  # ends what is kept
    one.d.end()
    for _ in range(2):
        status, body, headers = one.proxy.ask(body=BODY)
        assert (status, body["error"]["code"]) == (503, "no_decode") and "Retry-After" in headers
    one.decode = []


def test_the_log_says_once_which_address_failed_why_and_what_to_do(stock):
    one = stock(proxy_flags=NO_PROBES)
    one.p.end()
    for _ in range(3):
        assert one.proxy.ask(body=BODY)[1]["error"]["code"] == "no_prefill"
    line, = (line for line in one.proxy.text().splitlines() if "not usable" in line)
    assert "(127.0.0.1:%d): Connection refused; is it running" % one.p.port in line, line
    one.prefill = []


def by_name(one, host):
    """The cluster's engines by a name, which one of them is said to own."""
    one.prefill[0].url = "http://%s:%d" % (host, one.p.port)
    one.decode[0].url = "HTTP://%s:%d" % (host, one.d.port)


def test_engines_by_a_name_are_reached_at_any_of_its_addresses(tmp_path):
    """localhost may be ::1 too, where nobody listens."""
    one = stub.StockCluster(tmp_path)
    by_name(one, "LocalHost")
    try:
        one.start()
        assert one.proxy.ask(body=BODY)[0] == 200
        assert "not usable" not in one.proxy.text()
    finally:
        one.end()


def listens(family, address):
    with socket.socket(family) as s:
        try:
            s.bind((address, 0))
        except OSError:
            return False
    return True


def test_a_name_is_listened_on_at_all_its_addresses(tmp_path):
    found = {(info[0], info[4][0]) for info in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)}
    found = {f for f in found if listens(*f)}
    if len(found) < 2:
        pytest.skip("localhost has one address here")
    one = stub.StockCluster(tmp_path)
    try:
        proxy = c.Proxy(one)
        for option in ("--listen", "--admin"):
            proxy.argv[proxy.argv.index(option) + 1] = "localhost:0"
        one.add(proxy).start().wait_ready()
        places = re.findall(r"(?:\[(\S+?)\]|(127\.0\.0\.1)):(\d+)", re.search("ready on .*", proxy.text())[0])
        assert len(places) == 2 * len(found), places
        for v6, v4, port in places:
            with socket.create_connection((v6 or v4, int(port)), 10) as s:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert s.recv(12) == b"HTTP/1.1 200"
    finally:
        one.end()


def test_a_name_that_does_not_resolve_keeps_its_engine_out_and_nothing_else(tmp_path):
    one = stub.StockCluster(tmp_path)
    lost = "http://%s.invalid:1" % ("x" * 70)  # no resolver takes such a label
    one.prefill.append(lost)
    try:
        one.start()
        assert [one.proxy.ask(body=BODY)[0] for _ in range(4)] == [200] * 4
        assert [e["usable"] for e in one.proxy.engines()["engines"] if e["url"] == lost] == [False]
        line, = (line for line in one.proxy.text().splitlines() if lost in line)
        assert "not resolved" in line, line
    finally:
        one.prefill.remove(lost)
        one.end()


def test_a_handoff_may_name_a_host_of_handoff_hosts_by_its_name(stock):
    """Compared as text, never resolved: this one has no address."""
    one = stock(proxy_flags=["--set", "pools.0.prefill.engines.0.handoff_hosts=prefill-0.invalid"])
    handoff = stub.HANDOFF.replace('"127.0.0.1"', '"Prefill-0.invalid"')
    one.p.script = lambda r: r.whole(json.dumps(stub.completion("x"))[:-1] + ', "kv_transfer_params": ' + handoff + "}")
    assert one.proxy.ask(body=BODY)[0] == 200
