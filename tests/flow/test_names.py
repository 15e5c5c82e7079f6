"""Engines that are named: what their names stand for, and when that changes."""
import contextlib
import socket
import struct
import threading

import pytest

import cluster as c
import stub

HELLO = {"model": "m", "prompt": "hello"}


class Dns:
    """Says of every name the addresses in .v4 (of none: that there is no such name), for a second; .silent: nothing."""

    def __init__(self):
        self.v4, self.silent, self.asked = [], False, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.servers = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                self.answer(*self.socket.recvfrom(512))

    def answer(self, packet, sender):
        if self.silent:
            return
        end = packet.index(b"\0", 12) + 5
        kind, v4 = struct.unpack(">H", packet[end - 4:end - 2])[0], list(self.v4)
        records = [b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(a) for a in v4] if kind == 1 else []
        self.socket.sendto(packet[:2] + struct.pack(">HHHHH", 0x8180 if v4 else 0x8183, 1, len(records), 0, 0) + packet[12:end] + b"".join(records), sender)
        self.asked += 1


@pytest.fixture
def dns():
    one = Dns()
    yield one
    one.socket.close()


@pytest.fixture
def twins():
    """Two decode engines of one port, on 127.0.0.1 and 127.0.0.2."""
    first = stub.Stub(stub.decode_answer)
    both = [first, stub.Stub(stub.decode_answer, ("127.0.0.2", first.port))]
    yield both
    for one in both:
        one.end()


def named(stock, dns, port, *flags):
    """A proxy of one D, which is named; not started."""
    pair = stock(start=False, prefill=0, decode=0, connector="none", proxy_flags=["--set", "names.servers=%s" % dns.servers, "--set", "timeouts.probe_interval=100ms"])
    pair.proxy = pair.add(c.Proxy(pair, [*pair.proxy_flags, *flags, "--decode", "http://engine.test:%d" % port]))
    pair.proxy.start().wait_ready()
    return pair


def test_a_name_that_moves_takes_its_requests_along_and_loses_none(stock, dns, twins):
    dns.v4 = ["127.0.0.1"]
    pair = named(stock, dns, twins[0].port)
    pair.proxy.wait_routable()
    over, bad = threading.Event(), []

    def ask():
        while not over.is_set():
            status = pair.proxy.ask(body=HELLO)[0]
            bad.extend([status] if status != 200 else [])

    clients = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        c.eventually(lambda: len(twins[0].seen) > 20, 10, "the first address is asked")
        dns.v4 = ["127.0.0.2"]
        c.eventually(lambda: len(twins[1].seen) > 20, 10, "the second address is asked")
        before = len(twins[0].seen)
        c.eventually(lambda: len(twins[1].seen) > 100, 10, "the second address is asked on")
        assert len(twins[0].seen) <= before
    finally:
        over.set()
        for client in clients:
            client.join(20 * c.PATIENCE)
    assert not bad and "stands for others now: 127.0.0.2:%d" % twins[0].port in pair.proxy.text()


def test_a_name_that_gets_one_more_address_keeps_its_connections(stock, dns, twins):
    dns.v4 = ["127.0.0.1"]
    pair = named(stock, dns, twins[0].port, "--workers", "1", "--set", "timeouts.engine_keep_alive=60s")
    pair.proxy.wait_routable()
    assert pair.proxy.ask(body=HELLO)[0] == 200
    dns.v4 = ["127.0.0.2", "127.0.0.1"]
    c.eventually(lambda: "stands for others now" in pair.proxy.text(), 10, "the new address is known")
    assert pair.proxy.ask(body=HELLO)[0] == 200 and not twins[1].seen
    assert len(twins[0].seen) == 2 and len({r.handler.client_address for r in twins[0].seen}) == 1
    dns.v4 = ["127.0.0.2"]
    c.eventually(lambda: pair.proxy.text().count("stands for others now") == 2, 10, "the old address has left")
    assert pair.proxy.ask(body=HELLO)[0] == 200 and len(twins[0].seen) == 2 and len(twins[1].seen) == 1


def test_a_name_that_resolves_late_becomes_usable(stock, dns, twins):
    pair = named(stock, dns, twins[0].port)
    assert pair.proxy.ask(body=HELLO)[0] == 503 and pair.proxy.get("/ready")[0] == 503
    dns.v4 = ["127.0.0.1"]
    pair.proxy.wait_routable()
    assert pair.proxy.ask(body=HELLO)[0] == 200


def test_servers_that_say_nothing_or_no_keep_the_last_good_address(stock, dns, twins):
    dns.v4 = ["127.0.0.1"]
    pair = named(stock, dns, twins[0].port)
    pair.proxy.wait_routable()
    dns.v4 = []
    c.eventually(lambda: "what it stood for is kept" in pair.proxy.text(), 10, "the failure is logged")
    assert pair.proxy.ask(body=HELLO)[0] == 200
    dns.silent, dns.v4 = True, ["127.0.0.2"]
    assert pair.proxy.ask(body=HELLO)[0] == 200 and not twins[1].seen
    dns.silent = False
    c.eventually(lambda: pair.proxy.ask(body=HELLO)[0] == 200 and twins[1].seen, 20, "the new address is asked")


def test_an_added_engine_may_be_named(stock, dns):
    pair = stock(proxy_flags=["--workers", "1", "--set", "names.servers=%s" % dns.servers])
    more = stub.Stub(stub.decode_answer)
    try:
        status, engine, _ = c.http_json(pair.proxy.admin, "POST", "/engines", {"url": "http://engine.test:%d" % more.port, "role": "decode"})
        assert status == 201 and engine["state"] == "down"
        assert pair.proxy.ask(body=HELLO)[0] == 200 and not more.seen
        dns.v4 = ["127.0.0.1"]
        c.eventually(lambda: pair.proxy.ask(body=HELLO)[0] == 200 and more.seen, 10, "it is asked when its name resolves")
    finally:
        more.end()
