"""Clients that ask without end and check every answer."""
import collections
import http.client
import json
import random
import threading

import cluster as c

TOKENS = 16
PROMPTS = ["p%d " % i + "abcdefgh " * n for i, n in enumerate([1, 5, 40, 160, 400])]
GONE = (ConnectionError, http.client.HTTPException)


class Load:
    """Clients that ask for ever and check every answer; the proxy's port stays the same when it restarts.

    prompt(rng) makes one, truth(prompt) is its right text.
    """

    def __init__(self, port, truth, prompt=lambda rng: rng.choice(PROMPTS), clients=8, seed=0):
        self.port, self.truth, self.prompt, self.seed = port, truth, prompt, seed
        self.over, self.tally, self.wrong = threading.Event(), collections.Counter(), []
        self.threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(clients)]
        for t in self.threads:
            t.start()

    def client(self, number):
        rng = random.Random("%d %d" % (self.seed, number))
        while not self.over.is_set():
            prompt = self.prompt(rng)
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
            assert body["choices"][0]["text"] == self.truth(prompt)
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
            assert self.truth(prompt).startswith(text), (text, self.truth(prompt))
            return "cut"
        finally:
            one.socket.close()
        assert events[-1] == "[DONE]" and text == self.truth(prompt), events
        return "right"

    def end(self):
        self.over.set()
        for t in self.threads:
            t.join(90 * c.PATIENCE)
        assert not any(t.is_alive() for t in self.threads), "a client hangs"
        assert not self.wrong, self.wrong[:5]
