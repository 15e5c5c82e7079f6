"""Engines and the proxy killed, ended and stopped at random under load: right text or a clean error, and nothing left behind."""
import collections
import http.client
import json
import random
import threading

import pytest

import cluster as c

CLIENTS, TOKENS = 8, 16
PROMPTS = ["p%d " % i + "abcdefgh " * n for i, n in enumerate([1, 5, 40, 160, 400])]
GONE = (ConnectionError, http.client.HTTPException)


class Load:
    """Clients that ask for ever and check every answer; the proxy's port stays the same when it restarts."""

    def __init__(self, port, truth):
        self.port, self.truth = port, truth
        self.over, self.tally, self.wrong = threading.Event(), collections.Counter(), []
        self.threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(CLIENTS)]
        for t in self.threads:
            t.start()

    def client(self, number):
        rng = random.Random(number)
        while not self.over.is_set():
            prompt = rng.choice(PROMPTS)
            try:
                self.tally[(self.stream if rng.random() < 0.5 else self.whole)(prompt)] += 1
            except GONE:
                self.tally["gone"] += 1
                self.over.wait(0.05)
            except Exception as error:  # a verdict that is none of the promised
                self.wrong.append(repr(error))

    def body(self, prompt):
        return {"model": "baton", "prompt": prompt, "max_tokens": TOKENS}

    def whole(self, prompt):
        status, body, _ = c.http_json(self.port, "POST", "/v1/completions", self.body(prompt), 60)
        if status == 200:
            assert body["choices"][0]["text"] == self.truth[prompt]
            return "right"
        assert status in (502, 503, 504) and body["error"]["message"], (status, body)
        return "refused"

    def stream(self, prompt):
        one = c.Stream(self.port, self.body(prompt)).head()
        if one.status != 200:
            assert json.loads(one.file.read(int(one.headers["content-length"])))["error"]
            one.socket.close()
            return "refused"
        text, events = "", []
        try:
            for event in one.events():
                events.append(event)
                if event != "[DONE]" and "error" not in json.loads(event):
                    text += "".join(choice["text"] for choice in json.loads(event)["choices"])
        except ConnectionError:
            assert self.truth[prompt].startswith(text), (text, self.truth[prompt])
            return "cut"
        finally:
            one.socket.close()
        assert events[-1] == "[DONE]" and text == self.truth[prompt], events
        return "right"

    def end(self):
        self.over.set()
        for t in self.threads:
            t.join(90 * c.PATIENCE)
        assert not any(t.is_alive() for t in self.threads), "a client hangs"
        assert not self.wrong, self.wrong[:5]


def strike(one, rng):
    """One blow, and what an operator does about it."""
    engine = rng.choice(one.prefill + one.decode)
    blow = rng.choice(["kill", "kill", "term", "stop", "stop", "stop proxy", "kill proxy"])
    pause = threading.Event()
    target = one.proxy if "proxy" in blow else engine
    if "stop" in blow:
        target.pause()
        pause.wait(rng.choice([0.1, 0.5, 3.5]))
        target.resume()
        return
    if blow == "term":
        target.term(20)
    else:
        target.kill()
    target.start().wait_ready(20)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_blows_leave_right_text_and_nothing_behind(clusters, lone, seed):
    engine = lone()
    truth = {p: engine.complete(p, TOKENS) for p in PROMPTS}
    one = clusters(prefill=2, decode=2, engine_flags=["--decode-step", "1000"], proxy_flags=["--workers", "2"])
    rng = random.Random(seed)
    load = Load(one.proxy.port, truth)
    try:
        for _ in range(12):
            load.over.wait(rng.uniform(0.2, 1))
            strike(one, rng)
    finally:
        load.end()
    assert load.tally["right"] > 20, load.tally
    one.proxy.wait_routable(20)
    one.wait_unheld(15)
    c.eventually(lambda: one.proxy.handoffs()["live_count"] == 0, 5, "no handoff lives")
    for gauge in ("baton_requests_in_flight", "baton_requests_queued", "baton_request_body_bytes"):
        assert one.proxy.metric(gauge) == 0, gauge
    assert all(one.proxy.complete(p, TOKENS) == truth[p] for p in PROMPTS)
