"""HTTP that is seldom but right: odd clients, odd engines, and a proxy that is told to stop meanwhile."""
import contextlib
import gzip
import json
import signal
import socket
import threading

import pytest

import cluster as c
import stub

WHOLE = b'{"model":"m","prompt":"x"}'
STREAM = b'{"model":"m","prompt":"x","stream":true}'
ONE_WORKER = ["--workers", "1"]


def post(body=WHOLE, target="/v1/completions", version="1.1", more="", host="Host: a\r\n"):
    return ("POST %s HTTP/%s\r\n%sContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n" % (target, version, host, more, len(body))).encode() + body


def chunked(body, more):
    return ("POST /v1/completions HTTP/1.1\r\nHost: a\r\n%sTransfer-Encoding: chunked\r\n\r\n" % more).encode() + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"


H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
NEXT = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"

# what is sent -> the codes of the answers, whether the connection lives on
CLIENTS = {
    "CRLF behind a body": (post() + b"\r\n" + post(), [200, 200], True),
    "absolute target": (post(target="http://elsewhere.test/v1/completions"), [200], True),
    "HTTP/1.0": (post(version="1.0", host=""), [200], False),
    "HTTP/1.0 stream": (post(STREAM, version="1.0", host=""), [200], False),
    "HTTP/1.0 keep-alive": (post(version="1.0", more="Connection: keep-alive\r\n") * 2, [200, 200], True),
    "gzip body": (post(gzip.compress(WHOLE), more="Content-Encoding: gzip\r\n"), [400], True),
    "much header": (post(more="Cookie: %s\r\n" % ("c" * 30000)), [200], True),
    "too much header": (post(more="Cookie: %s\r\n" % ("c" * 40000)), [431], False),
    "Expect, body at once": (post(more="Expect: 100-continue\r\n"), [200], True),
    "Expect, HTTP/1.0": (post(version="1.0", host="", more="Expect: 100-continue\r\n"), [200], False),
    "Expect, no body": (post(b"", more="Expect: 100-continue\r\n"), [400], True),
    "TE": (post(more="TE: trailers\r\nConnection: TE\r\n"), [200], True),
    "no content type": (post().replace(b"Content-Type: application/json\r\n", b""), [200], True),
    "stream and whole, pipelined": (post(STREAM) + post(), [200, 200], True),
    "h2c offered": (post(more=H2C) * 2, [200, 200], True),
    "h2c offered, chunked": (chunked(WHOLE, H2C), [200], True),
    "byte by byte chunks": (chunked(WHOLE + b" " * 20000, ""), [200], True),
}


def codes(got):
    found = [int(part[2:5]) for part in got.split(b"HTTP/1.")[1:]]
    return [code for code in found if code >= 200]


def read_answers(s, count):
    """All bytes until `count` answers are whole, or the end."""
    f, got = s.makefile("rb"), b""
    while len(codes(got)) < count:
        head = b"".join(iter(f.readline, b"\r\n"))
        if not head:
            break
        got += head
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if length:
            got += f.read(int(length[0].split(b":")[1]))
        elif b"transfer-encoding: chunked" in head.lower():
            while (size := int(f.readline(), 16)) > 0:
                got += f.read(size + 2)
            f.readline()
        else:
            got += f.read()
    return got


def test_seldom_but_right_requests_are_served_and_the_next_one_too(stock):
    one = stock(proxy_flags=ONE_WORKER)
    for name, (data, expected, lives_on) in CLIENTS.items():
        with socket.create_connection(("127.0.0.1", one.proxy.port), 20 * c.PATIENCE) as s:
            s.sendall(data)
            assert codes(read_answers(s, len(expected))) == expected, name
            if lives_on:
                s.sendall(NEXT)
                assert codes(read_answers(s, 1)) == [200], name
            else:
                assert s.recv(1) == b"", name
    for request in one.p.seen + one.d.seen:
        assert not [name for name in request.headers if name.lower() in ("upgrade", "http2-settings", "te", "expect")]


def test_a_proxy_that_is_told_to_stop_ends_what_it_has_begun(stock):
    one = stock(prefill=0, connector="none", proxy_flags=ONE_WORKER)
    go = threading.Event()

    def script(request):
        request.start()
        request.piece("data: {}\n\n")
        go.wait(20)
        request.piece("data: [DONE]\n\n")
        request.handler.wfile.write(b"0\r\n\r\n")
    one.d.script = script
    with contextlib.ExitStack() as held:
        idle, begun, busy = (held.enter_context(socket.create_connection(("127.0.0.1", one.proxy.port), 20 * c.PATIENCE)) for _ in range(3))
        idle.sendall(NEXT)
        assert codes(read_answers(idle, 1)) == [200]
        busy.sendall(post(STREAM))
        assert busy.recv(100).startswith(b"HTTP/1.1 200 ")
        begun.sendall(post(STREAM)[:40])
        c.eventually(lambda: one.proxy.metric("baton_client_connections") == 3, 5, "all are accepted")
        one.proxy.signal(signal.SIGTERM)
        assert idle.recv(1) == b""
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", one.proxy.port), 20)
        begun.sendall(post(STREAM)[40:])
        c.eventually(lambda: len(one.d.seen) == 2, 5, "the request that had begun is served")
        go.set()
        for s in (busy, begun):
            assert b"".join(iter(lambda: s.recv(65536), b"")).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert one.proxy.process.wait(10 * c.PATIENCE) == 0


def test_who_has_connected_before_a_proxy_stops_is_served(stock):
    one = stock(prefill=0, connector="none", proxy_flags=ONE_WORKER)
    with contextlib.ExitStack() as held:
        def connected():
            return held.enter_context(socket.create_connection(("127.0.0.1", one.proxy.port), 20 * c.PATIENCE))
        silent, mute = connected(), connected()
        c.eventually(lambda: one.proxy.metric("baton_client_connections") == 2, 5, "both are accepted")
        one.proxy.pause()
        waiting = [connected() for _ in range(300)]  # more than are accepted in one turn
        for s in waiting:
            s.sendall(post())
        one.proxy.signal(signal.SIGTERM)
        one.proxy.resume()
        silent.sendall(NEXT)
        for s in [silent, *waiting]:
            assert codes(read_answers(s, 1)) == [200] and s.recv(1) == b""
        assert mute.recv(1) == b""
    assert one.proxy.process.wait(10 * c.PATIENCE) == 0


def test_the_next_proxy_keeps_the_unix_socket_of_one_that_is_still_stopping(stock, tmp_path):
    path, admin = tmp_path / "s", tmp_path / "admin"
    one = stock(start=False, prefill=0, connector="none", proxy_flags=["--listen", "unix:%s" % path])
    go = threading.Event()
    one.d.script = lambda request: (go.wait(20), stub.decode_answer(request))

    def connected():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20 * c.PATIENCE)
        s.connect(str(path))
        return s
    old, new = (one.add(c.Proxy(one, one.proxy_flags)) for _ in range(2))
    old.argv[old.argv.index("--admin") + 1] = "unix:%s" % admin
    old.start().wait_ready()
    with connected() as busy:
        busy.sendall(post())
        c.eventually(lambda: one.d.seen, 5, "the request is at the engine")
        old.signal(signal.SIGTERM)
        c.eventually(lambda: not path.exists(), 5, "the old one gives its socket up")
        new.start().wait_ready()
        go.set()
        assert codes(read_answers(busy, 1)) == [200]
    assert old.process.wait(10 * c.PATIENCE) == 0 and not admin.exists()
    with connected() as s:
        s.sendall(NEXT)
        assert codes(read_answers(s, 1)) == [200]
    assert new.term() == 0 and not path.exists()


BODY = json.dumps(stub.completion()).encode()
LENGTH = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(BODY)
EVENT = b'data: {"choices":[{"text":"\xf0\x9f\x98\x80"}]}\r\n\r\n'

# what an engine sends, whether it then closes -> the code, the body
ENGINES = {
    "100 and 103 first": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + BODY, False, 200, BODY),
    "HTTP/1.0 with length": (b"HTTP/1.0 200 OK\r\n" + LENGTH + b"\r\n" + BODY, True, 200, BODY),
    "HTTP/1.0 until close": (b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + BODY, True, 200, BODY),
    "HTTP/1.0 kept": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + LENGTH + b"\r\n" + BODY, False, 200, BODY),
    "no reason": (b"HTTP/1.1 200\r\n" + LENGTH + b"\r\n" + BODY, False, 200, BODY),
    "trailers": (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n%x;a=b\r\n%s\r\n0\r\nX-T: 1\r\n\r\n" % (len(BODY), BODY), False, 200, BODY),
    "redirect": (b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/x\r\nContent-Length: 0\r\n\r\n", False, 502, None),
    "closes in silence": (b"HTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + BODY, True, 200, BODY),
    "too short": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + BODY, True, 502, None),
    "byte by byte": (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % b for b in EVENT + b"data: [DONE]\r\n\r\n") + b"0\r\n\r\n", False, 200, EVENT + b"data: [DONE]\r\n\r\n"),
}


def test_seldom_but_right_answers_of_engines_are_passed_on(stock):
    one = stock(prefill=0, connector="none", proxy_flags=[*ONE_WORKER, "--set", "retry.attempts=0"])
    for name, (data, closes, code, body) in ENGINES.items():
        def script(request):
            request.handler.wfile.write(data)
            request.handler.close_connection = closes
        one.d.script = script
        for _ in range(2):  # the second may meet a kept connection
            connection = c.http.client.HTTPConnection("127.0.0.1", one.proxy.port, timeout=20 * c.PATIENCE)
            connection.request("POST", "/v1/completions", WHOLE)
            answer = connection.getresponse()
            got = answer.read()
            connection.close()
            assert answer.status == code and (body is None or got == body), name
