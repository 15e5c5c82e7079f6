"""Slow, silent and greedy clients: each ends by its deadline, and none keeps others out."""
import contextlib
import json
import socket
import threading

import pytest

import cluster as c

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
BODY = b'{"model":"m","prompt":"hi"}'
ASK = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
ONE_WORKER = ("--workers", "1")


def flags(**settings):
    return [f for name, value in settings.items() for f in ("--set", "%s=%s" % (name.replace("__", "."), value))]


def connect(port, data=b"", rcvbuf=None):
    s = socket.socket()
    if rcvbuf:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    s.settimeout(20 * c.PATIENCE)
    s.connect(("127.0.0.1", port))
    s.sendall(data)
    return s


def answer(s):
    """The head of what comes, or what is left of it when the connection ends."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n\r\n" not in got and (more := s.recv(65536)):
            got += more
    return got


def drip(s, piece, pause=threading.Event()):
    """Sends piece after piece until an answer comes; its head."""
    s.settimeout(0.05)
    while True:
        with contextlib.suppress(TimeoutError):
            return answer(s)
        with contextlib.suppress(ConnectionError):
            s.sendall(piece)


def ask_all(proxy, times):
    for _ in range(times):
        assert proxy.ask(body={"model": "m", "prompt": "hi"})[0] == 200


@pytest.fixture
def none(stock):
    """none(flags): one worker before one decode engine."""
    def make(*more, **settings):
        return stock(prefill=0, connector="none", proxy_flags=[*ONE_WORKER, *more, *flags(**settings)])
    return make


def test_what_comes_byte_by_byte_has_a_deadline_as_a_whole(none):
    one = none(timeouts__head="1s", timeouts__body="1s")
    first = {"head": (b"POST /v1", b"a"), "body": (HEAD + b"Content-Length: 99999\r\n\r\n{", b" "),
             "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n \r\n")}
    for start, piece in first.values():
        with connect(one.proxy.port, start) as s:
            assert drip(s, piece).startswith(b"HTTP/1.1 408 ")
    assert one.proxy.metric("baton_faults_total", fault="request_timeout") == 3


def test_bodies_that_are_announced_and_do_not_come_cost_nobody_anything(none):
    one = none(limits__body_memory="1500KiB", limits__body="1MiB")
    slow = [connect(one.proxy.port, HEAD + b"Content-Length: 1048576\r\n\r\n{") for _ in range(30)]
    c.eventually(lambda: one.proxy.metric("baton_requests_in_flight") == 30, 5, "all are being read")
    assert one.proxy.metric("baton_request_body_bytes") <= 30 * 16384
    ask_all(one.proxy, 5)
    slow[0].sendall(b" " * 600000)
    c.eventually(lambda: one.proxy.metric("baton_request_body_bytes") > 600000, 5, "it is charged as it comes")
    slow[1].sendall(b" " * 600000)
    assert answer(slow[1]).startswith(b"HTTP/1.1 503 ")
    for s in slow:
        s.close()
    c.eventually(lambda: one.proxy.metric("baton_request_body_bytes") == 0, 5, "all is returned")


def test_idle_connections_give_way_the_one_idle_longest_first(none):
    one = none(limits__connections=4)
    kept = []
    for _ in range(4):
        kept.append(connect(one.proxy.port, HEALTH))
        assert answer(kept[-1]).startswith(b"HTTP/1.1 200 ")
    for i in (0, 1):  # no longer the ones idle longest
        kept[i].sendall(HEALTH)
        assert answer(kept[i]).startswith(b"HTTP/1.1 200 ")
    new = [connect(one.proxy.port, HEALTH) for _ in range(2)]
    assert all(answer(s).startswith(b"HTTP/1.1 200 ") for s in new)
    assert [answer(s) for s in kept[2:]] == [b"", b""]
    kept[0].sendall(HEALTH)
    assert answer(kept[0]).startswith(b"HTTP/1.1 200 ")
    assert one.proxy.metric("baton_idle_connections_closed_total") == 2
    busy = [connect(one.proxy.port, b"GET /he") for _ in range(4)]
    c.eventually(lambda: one.proxy.metric("baton_idle_connections_closed_total") == 6, 5, "those at work took the place of all")
    for _ in range(10):  # nobody is idle: each is told so
        with connect(one.proxy.port, HEAD + b"Content-Length: 20000\r\n\r\n") as s:
            with contextlib.suppress(ConnectionError):
                s.sendall(b"x" * 20000)
            assert answer(s).startswith(b"HTTP/1.1 503 ")
    assert one.proxy.metric("baton_connections_refused_total", reason="connections") == 10
    for s in kept + new + busy:
        s.close()


def test_one_address_has_its_limits_where_they_are_set(none):
    one = none("--listen", "127.0.0.1:0", limits__client_connections=3, limits__client_body_memory="64KiB")
    held = [connect(one.proxy.port, HEALTH) for _ in range(3)]
    assert all(answer(s).startswith(b"HTTP/1.1 200 ") for s in held)
    with connect(one.proxy.port, HEALTH) as s:
        refused = answer(s)
    assert refused.startswith(b"HTTP/1.1 429 ") and b"Retry-After: 1" in refused
    with socket.create_connection(("127.0.0.1", one.proxy.port), 20, ("127.0.0.2", 0)) as other:
        other.sendall(ASK)
        assert answer(other).startswith(b"HTTP/1.1 200 ")
    held[0].sendall(HEAD + b"Content-Length: 100000\r\n\r\n" + b" " * 50000)
    c.eventually(lambda: one.proxy.metric("baton_request_body_bytes") >= 50000, 5, "half of it is here")
    held[1].sendall(HEAD + b"Content-Length: 100000\r\n\r\n" + b" " * 50000)
    assert answer(held[1]).startswith(b"HTTP/1.1 429 ")
    held[0].close()
    c.eventually(lambda: one.proxy.metric("baton_client_connections") < 3, 5, "one is closed")
    with connect(one.proxy.port, ASK) as s:
        assert answer(s).startswith(b"HTTP/1.1 200 ")
    assert one.proxy.metric("baton_connections_refused_total", reason="address") == 1
    assert one.proxy.metric("baton_faults_total", fault="client_limit") == 1
    for s in held:
        s.close()


def test_admin_clients_that_do_not_read_keep_neither_links_nor_other_admin_clients_waiting(clusters):
    one = clusters(proxy_flags=flags(agents__ping="100ms", agents__dead="1s"))
    with contextlib.ExitStack() as held:
        for i in range(128):  # so that /handoffs has its full length
            one.proxy.complete("x%d " % i, max_tokens=1)
        before, ask = one.proxy.rss(), b"GET /handoffs HTTP/1.1\r\nHost: a\r\n\r\n"
        idle = held.enter_context(connect(one.proxy.admin, HEALTH))
        assert answer(idle).startswith(b"HTTP/1.1 200 ")
        size = len(json.dumps(one.proxy.handoffs()))
        for _ in range(62):
            s = held.enter_context(connect(one.proxy.admin, rcvbuf=4096))
            s.setblocking(False)
            s.send(ask * 500)
        c.eventually(lambda: one.proxy.handoffs()["recent"], 5, "another client gets its answer")
        c.eventually(lambda: one.proxy.cpu_seconds() > 1, 30, "the proxy was at work")
        assert one.proxy.metric("baton_agent_links_lost_total") == 0
        assert one.proxy.rss() - before < 64 * 4 * size
        busy = [held.enter_context(connect(one.proxy.admin, b"GET /he")) for _ in range(3)]
        assert answer(idle) == b"" and answer(busy[-1]).startswith(b"HTTP/1.1 503 ")
    c.eventually(lambda: one.proxy.metric("baton_admin_connections_refused_total") == 1, 5, "it is counted")
