"""What introductions cost: light ranks, all in one thread, count what the proxy sends them."""
import hmac
import json
import resource
import secrets
import selectors
import socket
import time

import agents
import cluster as c

RANKS = 32
CARD = {"regions": ["x" * 1000] * 20}


class Rank:
    """A rank that wants the rank of its own number and can read it."""

    def __init__(self, url, role, rank, world):
        self.url, self.role, self.rank, self.world = url, role, rank, world
        self.boot, self.buffer, self.bytes, self.got = "%x" % (secrets.randbits(62) | 1), b"", 0, {}

    def connect(self, address, key, selector):
        host, port = address.rsplit(":", 1)
        self.socket, nonce = socket.create_connection((host, int(port))), secrets.token_hex(32).encode()
        self.socket.sendall(b"GET /agent/v1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: baton-agent/1\r\nBaton-Nonce: " + nonce + b"\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.socket.recv(1)
        nonces = nonce + next(line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"Baton-Nonce"))
        self.say({"t": "hello", "v": 1, "features": ["want", "unheard_of"], "engine": self.url, "engine_boot": "77", "boot": self.boot, "rank": self.rank,
                  "world": self.world, "tp": self.world, "pp": 1, "role": self.role, "url": self.url, "blocks": 1000, "block_tokens": 16,
                  "fingerprint": "f", "summary": {"heads": 8}, "card": CARD, "proof": hmac.new(key, b"agent" + nonces, "sha256").hexdigest()})
        selector.register(self.socket, selectors.EVENT_READ, self)

    def say(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self):
        received = self.socket.recv(1 << 20)
        assert received, "the link of %s rank %d ended" % (self.url, self.rank)
        self.bytes += len(received)
        *lines, self.buffer = (self.buffer + received).split(b"\n")
        for line in lines:
            self.take(json.loads(line))

    def take(self, message):
        kind = message["t"]
        self.got[kind] = self.got.get(kind, 0) + 1
        if kind == "ping":
            self.bytes -= len('{"t":"ping"}\n')
            self.say({"t": "pong"})
        elif kind == "welcome":
            assert message["features"] == ["want"]
            self.say({"t": "sync", "records": [], "last": True})
        elif kind == "peer_up":
            assert len(message["ranks"]) == self.world and message["ranks"][0]["summary"] == {"heads": 8}
            self.say({"t": "peer_want", "engine": message["engine"], "boot": message["boot"], "ranks": [self.rank]})
        elif kind == "card":
            assert message["peer"]["rank"] == self.rank
            self.say({"t": "peer_ready", "engine": message["peer"]["engine"], "rank": self.rank, "boot": message["peer"]["boot"], "provider": "x", "us": 1})


def introduce(folder, prefill, decode, world):
    """All ranks of so many engines, linked until every pair is ready and each rank answered two more pings."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    owner, ranks, selector = c.Cluster(folder, prefill=0, decode=0), [], selectors.DefaultSelector()
    owner.prefill = ["http://127.0.0.1:%d" % (20001 + i) for i in range(prefill)]
    owner.decode = ["http://127.0.0.1:%d" % (21001 + i) for i in range(decode)]
    key = owner.key_file.read_bytes().strip()

    def serve(until, what, within=60 * c.PATIENCE):
        end = time.monotonic() + within
        while not until():
            assert time.monotonic() < end, what
            for ready, _ in selector.select(0.05):
                ready.data.read()

    try:
        proxy = owner.add(c.Proxy(owner, ["--set", "timeouts.probe_interval=0"])).start().wait_ready()
        for role, urls in (("decode", owner.decode), ("prefill", owner.prefill)):
            for url in urls:
                for rank in range(world):
                    ranks.append(Rank(url, role, rank, world))
                    ranks[-1].connect(owner.agents, key, selector)
                serve(lambda: all("welcome" in r.got for r in ranks[-world:]), "all ranks of %s are welcome" % url)
        readers = [r for r in ranks if r.role == "decode"]
        serve(lambda: all(r.got.get("card", 0) == prefill for r in readers), "every card came")
        pings = {r: r.got.get("ping", 0) for r in ranks}
        serve(lambda: all(r.got.get("ping", 0) >= pings[r] + 2 for r in ranks), "every rank is asked two more times")
        paired = [e["paired_with"] for e in proxy.engines()["engines"] if e["role"] == "decode"]
        assert [len(p) for p in paired] == [prefill] * decode
        for r in ranks:
            r.got.pop("ping")
        text = proxy.metrics()
        sent, in_time = (c.metric(text, "baton_agent_ping_late_seconds_" + name, **labels) for name, labels in (("count", {}), ("bucket", {"le": "1"})))
        assert sent == in_time >= 2 * len(ranks), (sent, in_time)
        assert proxy.metric("baton_agent_links_lost_total") == 0
        return ranks
    finally:
        for r in ranks:
            r.socket.close()
        owner.prefill, owner.decode = [], []
        owner.end()


def test_the_cost_of_a_rank_is_the_same_among_64_and_among_1024(tmp_path):
    costs = []
    for engines in (2, 32):
        folder = tmp_path / str(engines)
        folder.mkdir()
        ranks = introduce(folder, 1, engines - 1, RANKS)
        assert len(ranks) == engines * RANKS
        assert all(r.got == {"welcome": 1} for r in ranks if r.role == "prefill")
        assert all(r.got == {"welcome": 1, "peer_up": 1, "card": 1} for r in ranks if r.role == "decode")
        costs.append(max(r.bytes for r in ranks))
    assert costs[1] <= costs[0] + 64, costs


def test_32_prefill_and_32_decode_engines_of_8_ranks_are_all_introduced(tmp_path):
    ranks = introduce(tmp_path, 32, 32, 8)
    assert all(r.got == {"welcome": 1, "peer_up": 32, "card": 32} for r in ranks if r.role == "decode")
    assert all(r.got == {"welcome": 1} for r in ranks if r.role == "prefill")


def test_a_rank_that_cannot_ask_for_cards_gets_that_of_its_own_number_unasked(tmp_path):
    """As agents did before there were features."""
    owner = c.Cluster(tmp_path, prefill=0, decode=0)
    owner.prefill, owner.decode = ["http://127.0.0.1:20001"], ["http://127.0.0.1:21001", "http://127.0.0.1:21002"]
    ranks = []

    def link(url, role, rank, **more):
        agent = agents.Agent(owner.agents, owner.key_file.read_bytes().strip(), url, role, rank, world=2, card=CARD, boot="%x" % (1 + len(ranks)))
        ranks.append(agent)
        agent.hello.update(more)
        return agent.start()

    try:
        proxy = owner.add(c.Proxy(owner, ["--set", "timeouts.probe_interval=0"])).start().wait_ready()
        for rank in range(2):
            link(owner.prefill[0], "prefill", rank)
        older = [link(owner.decode[0], "decode", rank, features=[]) for rank in range(2)]
        newer = [link(owner.decode[1], "decode", rank) for rank in range(2)]
        for rank in range(2):
            c.eventually(lambda: older[rank].got("peer_up") and newer[rank].got("card"), 5, "both are introduced")
            up, = older[rank].got("peer_up")
            card, = newer[rank].got("card")
            assert up["peer"] == card["peer"] and up["peer"]["rank"] == rank and up["peer"]["card"] == CARD
        paired = lambda: [len(e["paired_with"]) for e in proxy.engines()["engines"] if e["role"] == "decode"]
        c.eventually(lambda: paired() == [1, 1], 5, "both are paired")
        assert not any(r.got("card") for r in older)
    finally:
        for r in ranks:
            r.close()
        owner.prefill, owner.decode = [], []
        owner.end()
