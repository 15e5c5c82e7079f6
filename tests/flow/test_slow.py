"""Slow, silent and greedy clients: each ends by its deadline, and none keeps others out."""
import contextlib
import json
import socket
import threading

import pytest

import cluster as c
import stub

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


def has_grown(proxy, before, by):
    """Never so under a sanitizer, which keeps what was freed."""
    program = c.PROXY.read_bytes()
    return proxy.rss() - before > by and b"__asan_" not in program and b"__tsan_" not in program


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
            head, _, body = answer(s).partition(b"\r\n\r\n")
            error = json.loads(body)["error"]
            assert head.startswith(b"HTTP/1.1 503 ") and set(error) == {"message", "type", "param", "code", "status"}
            assert (error["code"], error["status"]) == ("too_many_connections", 503)
    assert one.proxy.metric("baton_connections_refused_total", reason="connections") == 10
    for s in kept + new + busy:
        s.close()


def test_one_address_has_its_limits_where_they_are_set(none):
    one = none("--listen", "127.0.0.1:0", limits__client_connections=3, limits__client_body_memory="64KiB")
    held = [connect(one.proxy.port, HEALTH) for _ in range(3)]
    assert all(answer(s).startswith(b"HTTP/1.1 200 ") for s in held)
    with connect(one.proxy.port, HEALTH) as s:
        refused = answer(s)
    assert refused.startswith(b"HTTP/1.1 429 ") and b"Retry-After: 1" in refused and b"\r\nDate: " in refused and b'"code":"client_limit","status":429' in refused
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


def test_nobody_gives_way_to_an_address_that_has_too_many(none):
    one = none("--listen", "127.0.0.1:0", limits__connections=4, limits__client_connections=2)
    with contextlib.ExitStack() as held:
        def idle(address):
            s = held.enter_context(socket.create_connection(("127.0.0.1", one.proxy.port), 20 * c.PATIENCE, (address, 0)))
            s.sendall(HEALTH)
            assert answer(s).startswith(b"HTTP/1.1 200 ")
            return s
        others = [idle(address) for address in ("127.0.0.2", "127.0.0.2", "127.0.0.1", "127.0.0.1")]
        for _ in range(4):
            with connect(one.proxy.port, HEALTH) as s:
                assert answer(s).startswith(b"HTTP/1.1 429 ")
        assert one.proxy.metric("baton_idle_connections_closed_total") == 0
        for s in others:
            s.sendall(HEALTH)
            assert answer(s).startswith(b"HTTP/1.1 200 ")
        idle("127.0.0.3")
        assert one.proxy.metric("baton_idle_connections_closed_total") == 1


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
        assert not has_grown(one.proxy, before, 64 * 4 * size)
        busy = [held.enter_context(connect(one.proxy.admin, b"GET /he")) for _ in range(3)]
        assert answer(idle) == b"" and answer(busy[-1]).startswith(b"HTTP/1.1 503 ")
    c.eventually(lambda: one.proxy.metric("baton_admin_connections_refused_total") == 1, 5, "it is counted")


def test_a_client_whose_host_vanishes_is_looked_for(none):
    one = none()
    with connect(one.proxy.port, HEALTH) as s:
        assert answer(s).startswith(b"HTTP/1.1 200 ")
        mine = "0100007F:%04X" % one.proxy.port, "0100007F:%04X" % s.getsockname()[1]
        with open("/proc/net/tcp") as f:
            lines = [line.split() for line in f]
        assert [line[5][:2] for line in lines if (line[1], line[2]) == mine] == ["02"]  # its keep-alive timer runs


class Models:
    """What a stub's GET /v1/models does: counts, and waits at the gate."""

    def __init__(self, stub, name):
        self.count, self.name, self.gate = 0, name, threading.Event()
        stub.on_get = self.on_get

    def on_get(self, request):
        if request.path == "/v1/models":
            self.count += 1
            self.gate.wait(10)
        request.whole({"object": "list", "data": [{"id": self.name, "object": "model"}, {"id": "shared"}]})


def in_threads(count, call):
    """Starts count calls at once; the function waits for all and gives what they returned."""
    got = []
    threads = [threading.Thread(target=lambda: got.append(call())) for _ in range(count)]
    for t in threads:
        t.start()

    def wait():
        for t in threads:
            t.join()
        return got
    return wait


def test_the_list_of_models_costs_one_round_of_calls_for_all_who_ask(stock):
    one = stock(prefill=0, decode=2, connector="none", proxy_flags=["--workers", "2", *flags(limits__in_flight=10, pools__0__decode__engines__0__max_in_flight=1)])
    a, b = Models(one.decode[0], "a"), Models(one.decode[1], "b")
    wait = in_threads(10, lambda: one.proxy.get("/v1/models"))
    c.eventually(lambda: one.proxy.metric("baton_requests_in_flight") == 10, 5, "all ask, and are counted")
    c.eventually(lambda: sum(e["in_flight"] for e in one.proxy.engines()["engines"]) == 2, 5, "one call at each engine, counted")
    a.gate.set()
    b.gate.set()
    answers = wait()
    assert all(status == 200 and [m["id"] for m in body["data"]] == ["a", "shared", "b"] for status, body, _ in answers)
    assert (a.count, b.count) == (1, 1)

    release = threading.Event()
    one.decode[0].script = one.decode[1].script = lambda request: (release.wait(20), stub.decode_answer(request))
    waits = []
    while one.proxy.engines()["engines"][0]["in_flight"] == 0:  # until the first engine is full
        assert len(waits) < 9
        waits.append(in_threads(1, lambda: one.proxy.ask(body={"model": "m", "prompt": "x"})))
        c.eventually(lambda: sum(e["in_flight"] for e in one.proxy.engines()["engines"]) == len(waits), 5, "it is at an engine")

    def asked_anew():
        status, body, _ = one.proxy.get("/v1/models")
        assert status == 200 and [m["id"] for m in body["data"]] == ["a", "shared", "b"]
        return b.count == 2
    c.eventually(asked_anew, 5, "the list grows old and is asked anew")
    assert a.count == 1  # full: its last list stands
    status, body, _ = one.proxy.get("/v1/models/a")
    assert (status, body["id"]) == (200, "a") and one.proxy.get("/v1/models/none")[0] == 404
    release.set()
    assert all(wait()[0][0] == 200 for wait in waits)
    for e in one.decode:
        e.on_get = lambda request: request.cut()
    c.eventually(lambda: one.proxy.get("/v1/models")[0] == 503, 5, "no engine answers")
    Models(one.decode[1], "again").gate.set()
    c.eventually(lambda: one.proxy.get("/v1/models")[0] == 200, 0.9, "an error is not told for long")


def test_a_list_of_models_that_is_too_long_is_left_out_and_the_log_says_so(stock):
    one = stock()
    one.d.on_get = lambda request: request.whole({"object": "list", "data": [{"id": "long", "about": "x" * (1 << 20)}]})
    one.p.on_get = lambda request: request.whole({"object": "list", "data": [{"id": "short"}]})
    status, body, _ = one.proxy.get("/v1/models")
    assert status == 200 and [m["id"] for m in body["data"]] == ["short"]
    c.eventually(lambda: "list of models has more than 1 MiB" in one.proxy.text(), 5, "the log names it")


def test_thousands_of_models_at_each_engine_are_merged_at_once(stock):
    one = stock(prefill=0, decode=4, connector="none", proxy_flags=ONE_WORKER)
    for i, e in enumerate(one.decode):
        models = [{"id": "adapter-%d" % n, "root": "/models/adapter-%d" % n, "of": i} for n in range(i, 3000 + i)]
        e.on_get = lambda request, models=models: request.whole({"object": "list", "data": models})
    before = one.proxy.cpu_seconds()
    status, body, _ = one.proxy.get("/v1/models")
    assert status == 200 and [(m["id"], m["of"]) for m in body["data"]] == [("adapter-%d" % n, max(0, n - 2999)) for n in range(3003)]
    assert one.proxy.cpu_seconds() - before < c.PATIENCE


def test_a_stale_connection_takes_no_models_from_the_list(stock):
    one = stock(prefill=0, decode=1, connector="none", proxy_flags=["--workers", "1"])
    used, good = set(), one.d.on_get

    def answer(request):
        used.add(request.handler)
        stub.decode_answer(request)

    one.d.script = answer
    one.d.on_get = lambda request: request.cut() if request.handler in used else good(request)
    assert one.proxy.ask(body={"model": "m", "prompt": "hi"})[0] == 200
    status, body, _ = one.proxy.get("/v1/models")
    assert status == 200 and [m["id"] for m in body["data"]] == ["m"]


def test_who_asks_for_models_takes_a_place_like_any_request(stock):
    one = stock(prefill=0, connector="none", proxy_flags=[*ONE_WORKER, *flags(limits__in_flight=2)])
    models = Models(one.d, "a")
    wait = in_threads(2, lambda: one.proxy.get("/v1/models"))
    c.eventually(lambda: one.proxy.metric("baton_requests_in_flight") == 2, 5, "both wait")
    status, body, _ = one.proxy.get("/v1/models")
    assert (status, body["error"]["code"]) == (503, "too_many_requests")
    assert one.proxy.ask(body={"model": "m", "prompt": "x"})[0] == 503
    models.gate.set()
    assert all(status == 200 for status, _, _ in wait())
    c.eventually(lambda: one.proxy.metric("baton_requests_in_flight") == 0, 5, "their places are free")


def answers_of(size):
    """(stream, JSON) whose text is of that size and differs everywhere."""
    text = "".join("%08d " % i for i in range(size // 9))
    pieces = b"".join(b'data: {"choices":[{"index":0,"text":"%s"}]}\n\n' % text[at:at + 900].encode() for at in range(0, len(text), 900))
    return pieces + b"data: [DONE]\n\n", json.dumps(stub.completion(text)).encode()


def answers_with(head, data, closes=False):
    def script(request):
        request.handler.wfile.write(head + data)
        request.handler.close_connection = closes
    return script


JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n"


def test_a_reader_is_cut_only_when_it_takes_nothing_at_all_and_the_log_says_so(none):
    one = none(timeouts__write="%ds" % (2 * c.PATIENCE))
    events, whole = answers_of(6 << 20)
    got = {}

    def read(name, s, size, pause=threading.Event()):
        """As slowly as that the kernel has no room for more within timeouts.write; faster towards the end."""
        count = 0
        with contextlib.suppress(ConnectionError):
            while (more := len(s.recv(size))) > 0:
                count += more
                if count < 1 << 20:
                    pause.wait(0.1)
        got[name] = count

    with contextlib.ExitStack() as held:
        for name, head, data in (("json", JSON % len(whole), whole), ("sse", SSE % len(events), events + b"\r\n0\r\n\r\n")):
            one.d.script = answers_with(head, data)
            for kind in ("steady", "stuck"):
                s = held.enter_context(connect(one.proxy.port, ASK.replace(b"Host", b"Connection: close\r\nHost"), rcvbuf=1 << 20 if kind == "steady" else 4096))
                assert s.recv(100).startswith(b"HTTP/1.1 200 ")
                if kind == "steady":
                    threading.Thread(target=read, args=(name, s, 40000), daemon=True).start()
            c.eventually(lambda: len(one.d.seen) == 2 * (1 + (name == "sse")), 5, "both are at the engine")
        c.eventually(lambda: len(one.proxy.access()) == 4 and len(got) == 2, 20, "all have ended")
    lines = [(line["code"], line.get("fault")) for line in one.proxy.access()]
    assert sorted(lines, key=str) == [(200, "client_stalled")] * 2 + [(200, None)] * 2
    assert got["json"] > len(whole) and got["sse"] > len(events)


def test_a_json_answer_that_is_all_written_but_not_taken_has_its_fault_in_the_log(none):
    one = none(timeouts__write="500ms", limits__stream_buffer="64MiB")
    whole = json.dumps(stub.completion("x" * (24 << 20))).encode()
    one.d.script = answers_with(JSON % len(whole), whole)
    with connect(one.proxy.port, ASK, rcvbuf=4096):
        line = c.eventually(one.proxy.access, 20, "the line")[0]
        assert (line["code"], line["fault"]) == (200, "client_stalled")
        assert one.proxy.metric("baton_requests_in_flight") == 0
    c.eventually(lambda: one.proxy.metric("baton_requests_ending") == 0, 5, "it is over")
    assert one.proxy.metric("baton_faults_total", fault="client_stalled") == 1


def test_clients_that_do_not_read_hold_no_more_than_their_buffer(none):
    one = none(timeouts__write="500ms")
    one.d.script = lambda request: request.events([stub.completion("x" * 1000)] * 20000)
    before = one.proxy.rss()
    with contextlib.ExitStack() as held:
        for _ in range(10):
            held.enter_context(connect(one.proxy.port, ASK.replace(b'"hi"}', b'""}  '), rcvbuf=4096))
        c.eventually(lambda: one.proxy.metric("baton_requests_in_flight") == 10, 5, "all stream")
        assert not has_grown(one.proxy, before, 10 << 20)
        c.eventually(lambda: one.proxy.metric("baton_requests_in_flight") == 0, 10, "all are given up")
        assert not has_grown(one.proxy, before, 10 << 20)


WAYS = {
    "chunked, kept": (SSE, b"\r\n0\r\n\r\n", False),
    "chunked, closed": (SSE.replace(b"Transfer", b"Connection: close\r\nTransfer"), b"\r\n0\r\n\r\n", True),
    "until close": (b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b"", True),
    "length": (JSON, b"", False),
    "json until close": (b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n", b"", True),
}


def test_an_engine_that_is_faster_than_its_client_loses_nothing_however_it_ends(none):
    one = none()
    events, whole = answers_of(2 << 20)
    for name, (head, tail, closes) in WAYS.items():
        data = whole if "json" in head.decode() else events
        one.d.script = answers_with(head % len(data) if b"%" in head else head, data + tail, closes)
        with connect(one.proxy.port, ASK, rcvbuf=16384) as s:
            f, pause = s.makefile("rb"), threading.Event()
            fields = list(iter(f.readline, b"\r\n"))
            assert fields[0] == b"HTTP/1.1 200 OK\r\n" and b"Transfer-Encoding: chunked\r\n" in fields, name
            got, count = b"", 0
            while (size := int(f.readline(), 16)) > 0:
                got += f.read(size)
                f.readline()
                count += 1
                if count % 16 == 0:
                    pause.wait(0.01)
            assert got == data, name
    c.eventually(lambda: len(one.proxy.access()) == len(WAYS), 5, "all are logged")
    assert all(line["code"] == 200 and "fault" not in line for line in one.proxy.access())
