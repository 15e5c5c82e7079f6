"""The text through P and D equals a lone engine's, whatever the length, path or prefix hit."""
import json
import random

import pytest

import cluster as c

BLOCK = 16
BLOCKS = 12288
GEOMETRY = ["--blocks", BLOCKS, "--block-size", BLOCK]
LENGTHS = [1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 8 * BLOCK, 8 * BLOCK + 5, 100 * BLOCK, 1250 * BLOCK]


def words(rng, tokens):
    """A prompt of that many tokens: the engines' rule makes one token of three letters and a space."""
    return "".join("".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3)) + " " for _ in range(tokens))


def prompts(seed, count):
    """LENGTHS, then lengths spread evenly over the orders of magnitude up to 20,000."""
    rng = random.Random(seed)
    lengths = LENGTHS + [int(10 ** rng.uniform(0, 4.301)) for _ in range(count - len(LENGTHS))]
    return [words(rng, n) for n in lengths]


@pytest.fixture(scope="module", params=["tcp", "cma"])
def pair(request, module_clusters):
    one = module_clusters(engine_flags=[*GEOMETRY, "--provider", request.param])
    one.provider = request.param
    return one


@pytest.fixture
def truth(lone):
    return lone(*GEOMETRY)


def test_the_prompt_rule_gives_the_lengths_meant(truth):
    for tokens in (1, BLOCK, 1000):
        status, body, _ = c.http_json(truth.port, "POST", "/tokenize", {"prompt": words(random.Random(tokens), tokens)})
        assert (status, body["count"]) == (200, tokens)


def test_two_hundred_prompts_give_the_lone_engines_text(pair, truth):
    pulled = pair.proxy.metric("baton_pull_seconds_count")
    for prompt in prompts(random.SystemRandom().random(), 200):
        assert pair.proxy.complete(prompt, 12) == truth.complete(prompt, 12)
    assert pair.proxy.metric("baton_pull_seconds_count") - pulled > 150
    providers = {line["provider"] for line in pair.proxy.access() if line.get("provider")}
    assert len(providers) == 1 and (pair.provider in providers.pop() or pair.provider == "tcp"), providers
    pair.wait_unheld(3)


@pytest.mark.parametrize("shared", [BLOCK, 3 * BLOCK, 40 * BLOCK, 40 * BLOCK + 7])
def test_a_prefix_that_decode_has_is_not_read_again(pair, truth, shared):
    rng = random.Random()
    head = words(rng, shared)
    first, second = head + words(rng, 50), head + words(rng, 90)
    ended = lambda: pair.proxy.handoffs()["recent"]
    before = {h["handoff"] for h in ended()}
    assert pair.proxy.complete(first, 8) == truth.complete(first, 8)
    assert pair.proxy.complete(second, 8) == truth.complete(second, 8)
    c.eventually(lambda: sum(h["handoff"] not in before for h in ended()) == 2, 3, "two handoffs have ended")
    read = ended()[0]["blocks_read"]
    assert 0 < read <= -(-(shared + 90) // BLOCK) - shared // BLOCK


def test_a_full_prefix_hit_reads_nothing_and_frees_prefill(pair, truth):
    prompt = words(random.Random(), 20 * BLOCK)
    first = pair.proxy.complete(prompt, 8)
    assert first == truth.complete(prompt, 8) == pair.proxy.complete(prompt, 8) == pair.proxy.complete(prompt, 8)
    pair.wait_unheld(3)


def test_a_stream_gives_the_same_text_as_a_whole_answer(pair, truth):
    prompt = words(random.Random(), 333)
    assert c.Stream(pair.proxy.port, dict(model="baton", prompt=prompt, max_tokens=40)).text() == truth.complete(prompt, 40)


def test_chat_goes_the_same_way(pair, truth):
    body = dict(model="baton", messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": words(random.Random(), 100)}], max_tokens=16, ignore_eos=True)
    status, mine, _ = pair.proxy.ask("/v1/chat/completions", body)
    alone = c.http_json(truth.port, "POST", "/v1/chat/completions", body)[1]
    assert status == 200 and mine["choices"] == alone["choices"]
    assert mine["usage"]["completion_tokens"] == alone["usage"]["completion_tokens"] == 16


def test_sixteen_at_once_do_not_mix(pair, truth):
    rng = random.Random()
    asked = [words(rng, rng.randrange(1, 3000)) for _ in range(16)]
    streams = [c.Stream(pair.proxy.port, dict(model="baton", prompt=p, max_tokens=20)) for p in asked]
    got = [s.text() for s in streams]
    assert got == [truth.complete(p, 20) for p in asked]
    pair.wait_unheld(3)


def test_several_ranks_hand_off_each_its_heads(clusters, lone):
    flags = [*GEOMETRY, "--tp", 2, "--kv-heads", 4]
    pair, alone = clusters(engine_flags=flags), lone(*flags)
    for tokens in (1, 17, 500, 5000):
        prompt = words(random.Random(), tokens)
        assert pair.proxy.complete(prompt, 10) == alone.complete(prompt, 10)
    pair.wait_unheld(3)


def test_a_stream_with_usage_ends_in_done(pair):
    body = dict(model="baton", prompt="hello there", max_tokens=5, stream_options={"include_usage": True})
    events = list(c.Stream(pair.proxy.port, body).events())
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"]["completion_tokens"] == 5
