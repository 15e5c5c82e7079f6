"""Several proxies over the same engines: none of them sees anything of what becomes of another."""
import random
import threading

import pytest

import agents
import cluster as c
from test_text import words


class Shared(c.Cluster):
    """Engines that link to two addresses; the first proxy is that of the cluster."""

    def __init__(self, folder, second=None, **options):
        self.other_agents = second
        super().__init__(folder, **options)

    def agent_flags(self):
        self.other_agents = self.other_agents or "127.0.0.1:%d" % self.hold_port()
        return [*super().agent_flags(), "--agents", self.other_agents]

    def second(self, *flags):
        """Another proxy over the same engines."""
        return self.add(c.Proxy(self, flags, self.other_agents)).start()


@pytest.fixture
def shared(tmp_path):
    made = []

    def make(**options):
        made.append(Shared(tmp_path, **options))
        return made[-1].start()

    yield make
    for one in made:
        one.end()


def pulling(proxy):
    return [h for h in proxy.handoffs()["live"] if h["state"] == "pulling"]


def pulls_that_last(one):
    """A request of the first proxy whose pull is under way and cannot end: P is stopped."""
    one.d.fault("slow-pull", 300)
    answer = []
    prompt = words(random.Random(3), 600)
    asking = threading.Thread(target=lambda: answer.append(one.proxy.ask(body=dict(model="baton", prompt=prompt, max_tokens=8))))
    asking.start()
    c.eventually(lambda: one.held() > 0 and one.d.busy() > 0, 10, "P holds blocks for D")
    one.p.pause()
    c.eventually(lambda: pulling(one.proxy), 10, "D pulls")
    return prompt, asking, answer


def test_a_proxy_that_starts_leaves_the_pulls_of_another_alone(shared, lone):
    one = shared(decode_flags=["--provider", "tcp"], prefill_flags=["--provider", "tcp"], proxy_flags=["--set", "retry.attempts=0", "--set", "agents.dead=30s"])
    prompt, asking, answer = pulls_that_last(one)
    other = one.second().wait_ready()
    linked = lambda: [e for e in other.engines()["engines"] if e["role"] == "decode" and e["linked"]]
    c.eventually(linked, 10, "D is linked to the second proxy")
    other.term()  # its links have said all that they had to say
    one.p.resume()
    asking.join()
    assert answer[0][0] == 200 and answer[0][1]["choices"][0]["text"] == lone().complete(prompt, 8)
    assert one.proxy.handoffs()["recent"][0]["failure"] is None


def test_a_failed_pull_is_counted_by_its_owner_alone(shared):
    one = shared(proxy_flags=["--set", "retry.attempts=0"])
    other = one.second().wait_ready().wait_routable()
    one.p.fault("free-early", "break")
    one.d.fault("slow-pull", 300)
    assert one.proxy.ask(body=dict(model="baton", prompt=words(random.Random(1), 300), max_tokens=8))[0] == 502
    c.eventually(lambda: one.proxy.metric("baton_pull_failures_total") == 1, 5, "the owner counts the failure")
    # An answer to the second proxy's own request comes behind whatever its links were told.
    assert other.complete(words(random.Random(2), 300))
    assert other.metric("baton_pull_failures_total") == 0
    assert other.metric("baton_agent_messages_ignored_total") == 0


def test_orders_of_a_stranger_change_nothing(tmp_path, lone):
    """A proxy that is none of ours says release, renew and cancel of a handoff that it cannot own."""
    key = b"0123456789abcdef" * 4
    stranger = agents.Listener(key)
    one = Shared(tmp_path, stranger.address, engine_flags=["--provider", "tcp"], proxy_flags=["--set", "retry.attempts=0", "--set", "agents.dead=30s"])
    try:
        one.key_file.write_bytes(key + b"\n")
        one.start()
        c.eventually(lambda: len(stranger.agents) == 2, 10, "both engines are linked to the stranger")
        prompt, asking, answer = pulls_that_last(one)
        handoff = pulling(one.proxy)[0]["handoff"]
        for order in ({"t": "release", "reason": "cancelled"}, {"t": "renew", "lease_ms": 1}, {"t": "cancel"}):
            stranger.tell(dict(order, handoff=handoff))
        stranger.tell({"t": "ping"})
        reader = next(a for a in stranger.agents if a.role == "decode")
        c.eventually(lambda: reader.got("pong"), 10, "D has read the orders")
        one.p.resume()
        c.eventually(lambda: all(a.got("pong") for a in stranger.agents), 10, "P has read them too")
        asking.join()
        assert answer[0][0] == 200 and answer[0][1]["choices"][0]["text"] == lone().complete(prompt, 8)
        told = {m["t"] for a in stranger.agents for m in a.lines}
        assert not told & {"held", "released", "pulling", "pulled", "pull_failed"}, told
        assert all(m["records"] == [] for m in stranger.got("sync"))
    finally:
        stranger.close()
        one.end()


def test_many_large_cards_are_introduced_as_the_link_takes_them(tmp_path):
    """More than the link's whole queue may hold, and each rank meets its own sources alone."""
    urls = ["http://127.0.0.1:%d" % port for port in range(20001, 20013)]
    owner = c.Cluster(tmp_path, prefill=0, decode=0)
    owner.prefill, owner.decode = urls, ["http://127.0.0.1:20000"]
    key, fakes = owner.key_file.read_bytes().strip(), []
    try:
        proxy = owner.add(c.Proxy(owner, ["--set", "timeouts.probe_interval=0"])).start().wait_ready()
        card = {"regions": ["x" * 1000] * 450}
        for url in urls:
            fakes += [agents.Agent(owner.agents, key, url, "prefill", rank, 2, card).start() for rank in (0, 1)]
        c.eventually(lambda: all(a.got("welcome") for a in fakes), 20, "every prefill rank is welcome")
        readers = [agents.Agent(owner.agents, key, owner.decode[0], "decode", rank, 2, receive=4096).start() for rank in (0, 1)]
        fakes += readers
        for rank, reader in enumerate(readers):
            c.eventually(lambda: len(reader.got("card")) == len(urls) or reader.ended, 20, "all cards came")
            assert not reader.ended
            assert {m["peer"]["rank"] for m in reader.got("card")} == {rank}
            assert [len(m["ranks"]) for m in reader.got("peer_up")] == [2] * len(urls)
        paired = lambda: [e["paired_with"] for e in proxy.engines()["engines"] if e["role"] == "decode"]
        c.eventually(lambda: len(paired()[0]) == len(urls), 20, "all are paired")
        assert not [a for a in fakes[:-2] if a.got("peer_up")]
    finally:
        for fake in fakes:
            fake.close()
        owner.prefill, owner.decode = [], []
        owner.end()
