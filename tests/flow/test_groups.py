"""Every layout of a KV cache: the text through P and D is a lone engine's, and only what D needs is read."""
import concurrent.futures
import random

import pytest

import cluster as c
from test_text import words

BLOCK = 16
LAYERS, HEADS, SLICE = 4, 2, 64  # the engine's own values
# name -> (windows of the groups, 0 for one that sees all; flags)
SHAPES = {
    "packed": ([0], ["--kv", "packed"]),
    "latent": ([0], ["--kv", "latent", "--tp", 2]),
    "sliding": ([40], ["--kv-groups", "window:40"]),
    "hybrid": ([32, 0], ["--kv-groups", "window:32,full", "--kv", "packed", "--tp", 2]),
    "many": ([0, 1, 100, 17], ["--kv-groups", "full,window:1,window:100,window:17"]),
}
FLAGS = ["--blocks", 8192, "--block-size", BLOCK]


def blocks(tokens):
    return -(-tokens // BLOCK)


class Pair:
    def __init__(self, folder, shape, provider):
        self.windows, self.flags = SHAPES[shape]
        self.cluster = c.Cluster(folder, engine_flags=[*FLAGS, *self.flags, "--provider", provider], proxy_flags=["--set", "retry.attempts=0"])
        self.owner = c.Cluster(folder, connector="none", prefill=0, decode=0)
        self.truth = self.owner.add(c.Engine(self.owner, "both", [*FLAGS, *self.flags]))
        self.provider = provider
        # Two kinds of each head, or the latent once on each of two ranks.
        self.block_bytes = LAYERS // len(self.windows) * BLOCK * SLICE * (2 if shape == "latent" else 2 * HEADS)

    def start(self):
        self.cluster.start()
        self.truth.start().wait_ready()
        assert "is ready over %s" % self.provider in self.cluster.d.text()
        return self

    def end(self):
        self.cluster.end()
        self.owner.end()

    def read(self):
        return c.metric(self.cluster.d.metrics(), "baton_engine_pulled_bytes_total")

    def asked(self, prompt, max_tokens=8):
        """The text, and how many blocks of all groups D read for it."""
        before = self.read()
        text = self.cluster.proxy.complete(prompt, max_tokens, ignore_eos=True)
        return text, (self.read() - before) / self.block_bytes

    def wanted(self, tokens, had=0):
        """Blocks that D must read of a prompt whose first `had` tokens it has."""
        return sum(blocks(tokens) - max(blocks(had), max(0, tokens - w) // BLOCK if w else 0) for w in self.windows)

    def right(self, prompt, max_tokens=8):
        return self.truth.complete(prompt, max_tokens, ignore_eos=True)


@pytest.fixture(scope="module", params=[(s, p) for s in SHAPES for p in ("tcp", "cma")], ids="-".join)
def pair(request, tmp_path_factory):
    one = Pair(tmp_path_factory.mktemp("groups"), *request.param)
    try:
        yield one.start()
    finally:
        one.end()


def edges(windows):
    """Lengths at the edges of blocks and windows."""
    around = {1, BLOCK, 7 * BLOCK, 64 * BLOCK} | {w for w in windows if w} | {w + BLOCK for w in windows if w} | {w + 10 * BLOCK for w in windows}
    return sorted({n + d for n in around for d in (-1, 0, 1) if n + d > 0})


def test_prompts_at_the_edges_of_blocks_and_windows_give_the_right_text(pair):
    for tokens in edges(pair.windows):
        prompt = words(random.Random(), tokens)
        text, read = pair.asked(prompt)
        assert text == pair.right(prompt), tokens
        assert read == pair.wanted(tokens), tokens
    pair.cluster.wait_unheld(3)


def test_answers_that_move_the_windows_over_blocks_give_the_right_text(pair):
    for tokens in (5, 2 * BLOCK, 100):
        prompt = words(random.Random(), tokens)
        assert pair.asked(prompt, 150)[0] == pair.right(prompt, 150)
    pair.cluster.wait_unheld(3)


@pytest.mark.parametrize("more", [1, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
@pytest.mark.parametrize("shared", [BLOCK, 9 * BLOCK])
def test_of_a_partial_hit_only_the_rest_is_read(pair, shared, more):
    head = words(random.Random(), shared)
    assert pair.asked(head)[0] == pair.right(head)
    prompt = head + words(random.Random(), more)
    text, read = pair.asked(prompt)
    assert text == pair.right(prompt)
    assert read == pair.wanted(shared + more, shared)


def test_a_prefix_whose_window_is_gone_is_read_again(pair):
    """D has the long prompt's full blocks, but of its windows only the end."""
    rng = random.Random()
    head = words(rng, 4 * BLOCK)
    first, second = head + words(rng, 30 * BLOCK), head + words(rng, 30)
    for prompt in (first, second, first, second):
        assert pair.asked(prompt)[0] == pair.right(prompt)


def test_a_full_hit_reads_nothing(pair):
    prompt = words(random.Random(), 12 * BLOCK)
    assert pair.asked(prompt)[0] == pair.right(prompt)
    text, read = pair.asked(prompt)
    assert text == pair.right(prompt)
    assert read == 0
    pair.cluster.wait_unheld(3)


@pytest.mark.parametrize("fault", [("free-early", "break"), ("free-early", "reused"), ("reuse-block", "said")], ids="-".join)
def test_a_request_that_fails_leaves_its_neighbours_alone(pair, fault):
    prompts = [words(random.Random(), 90 + 7 * i) for i in range(8)]
    pair.cluster.d.fault("slow-pull", 50)
    pair.cluster.p.fault(*fault)
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(lambda p: pair.cluster.proxy.ask(body=dict(model="baton", prompt=p, max_tokens=8, ignore_eos=True)), prompts))
    failed = [status for status, _, _ in answers if status != 200]
    assert len(failed) == 1 and failed[0] in (500, 502, 503), answers
    for prompt, (status, body, _) in zip(prompts, answers):
        assert status != 200 or body["choices"][0]["text"] == pair.right(prompt)
    pair.cluster.wait_unheld(3)


def test_a_wrong_block_changes_the_text(pair):
    """The first block of the first group that is handed over, overwritten without a word."""
    prompt = words(random.Random(), 200)
    pair.cluster.p.fault("reuse-block", "silent")
    assert pair.asked(prompt)[0] != pair.right(prompt)


@pytest.mark.parametrize("provider", ["tcp", "cma"])
def test_digests_of_all_groups_are_given_and_checked(clusters, lone, provider):
    flags = SHAPES["hybrid"][1]
    pair = clusters(engine_flags=[*FLAGS, *flags, "--checksum", "--provider", provider], proxy_flags=["--set", "retry.attempts=0"])
    truth = lone(*FLAGS, *flags)
    for tokens in (5, 40, 333):
        prompt = words(random.Random(), tokens)
        assert pair.proxy.complete(prompt) == truth.complete(prompt)
    # A bit of each block: of the window, and of all that the other group has.
    pair.p.fault("flip-bytes", 100)
    status, _, _ = pair.proxy.ask(body=dict(model="baton", prompt=words(random.Random(), 333), max_tokens=8))
    assert status in (500, 502, 503)
    c.eventually(lambda: pair.proxy.metric("baton_pull_failures_total", reason="checksum") >= 1, 3, "a failure by checksum")
    pair.wait_unheld(3)


@pytest.mark.parametrize("provider", ["tcp", "cma"])
def test_pools_that_run_out_of_blocks_give_the_right_text(clusters, lone, provider):
    """Both preempt: P while it computes what it will hand over, D what it had pulled."""
    flags = ["--block-size", BLOCK, "--kv-groups", "full,window:48"]
    small = ["--blocks", 40, "--decode-step", 2000, "--provider", provider]
    pair = clusters(engine_flags=[*flags, *small], prefill_flags=["--step-tokens", 16, "--prefill-rate", 8000])
    truth = lone(*flags)
    prompts = [words(random.Random(), 60 + 9 * i) for i in range(10)]
    with concurrent.futures.ThreadPoolExecutor(2 * len(prompts)) as pool:
        own = [pool.submit(pair.p.complete, p, 120, ignore_eos=True) for p in prompts[:3]]
        texts = [pool.submit(pair.proxy.complete, p[::-1], 80, ignore_eos=True) for p in prompts]
    assert [t.result() for t in own] == [truth.complete(p, 120, ignore_eos=True) for p in prompts[:3]]
    assert [t.result() for t in texts] == [truth.complete(p[::-1], 80, ignore_eos=True) for p in prompts]
    for engine in (pair.p, pair.d):
        assert c.metric(engine.metrics(), "baton_engine_preempted_total") > 0, engine.name
    pair.wait_unheld(3)


def test_windows_give_their_blocks_back_while_an_answer_runs(lone):
    engine = lone("--block-size", BLOCK, "--blocks", 4096, "--kv-groups", "window:32,window:32", "--decode-step", 2000)
    stream = c.Stream(engine.port, dict(model="baton", prompt=words(random.Random(), 1000), max_tokens=20000, ignore_eos=True))
    c.eventually(lambda: engine.busy() == 1 and 0 < engine.used() <= 2 * 4, 5, "no more blocks than two windows cover")
    stream.close()
    c.eventually(lambda: engine.used() == 0, 5, "no used block")


@pytest.mark.parametrize("flags, about", [
    (["--kv-groups", "full,window:0"], "window:TOKENS"),
    (["--kv-groups", "full,half"], "window:TOKENS"),
    (["--kv-groups", ","], "at least one group"),
    (["--kv-groups", "full,full,full"], "multiple of the number of groups"),
    (["--kv-groups", ",".join(["full"] * 9), "--layers", 9], "at most 8"),
    (["--kv-groups", "full,full", "--blocks", 1], "--blocks"),
    (["--kv", "half"], "--kv"),
])
def test_a_wrong_layout_is_refused_at_start(tmp_path, flags, about):
    owner = c.Cluster(tmp_path, connector="none", prefill=0, decode=0)
    engine = owner.add(c.Engine(owner, "both", flags))
    engine.start()
    assert engine.process.wait(10 * c.PATIENCE) == 2
    assert about in engine.text(), engine.text()
