"""Where one part of the proxy meets another: queue and failover, log and attempt, an early answer and the handoff under it."""
import random
import threading
import time

import cluster as c
import stub
from test_text import words

BODY = {"model": "m", "prompt": "hi"}
ONE_WORKER = ["--workers", "1"]


class Asks:
    """Requests at the same time, each in a thread of its own; their answers as they come."""

    def __init__(self, proxy, times):
        self.answers = []
        self.threads = [threading.Thread(target=lambda: self.answers.append(proxy.ask(body=BODY)), daemon=True) for _ in range(times)]
        for t in self.threads:
            t.start()

    def statuses(self):
        for t in self.threads:
            t.join(60 * c.PATIENCE)
        return sorted(status for status, _, _ in self.answers)


def waits(one):
    return one.proxy.metric("baton_requests_queued") == 1


def count_calls(engine):
    """Makes its calls long enough to meet each other; how many did, at each call."""
    length, lock, calls, most = threading.Event(), threading.Lock(), [], []

    def counted(request):
        with lock:
            calls.append(request)
            most.append(len(calls))
        length.wait(0.02)
        with lock:
            calls.remove(request)
        stub.decode_answer(request)

    engine.script = counted
    return most


def test_a_failover_waits_in_the_queue_for_an_engine_that_is_only_full(stock):
    one = stock(prefill=2, proxy_flags=[*ONE_WORKER, "--set", "pools.0.prefill.engines.1.max_in_flight=1", "--set", "retry.budget=100%"])
    full, room = threading.Event(), threading.Event()

    def dying(request):
        full.wait(30 * c.PATIENCE)
        request.cut()

    def filled(request):
        full.set()
        room.wait(30 * c.PATIENCE)
        stub.prefill_answer(request)

    one.prefill[0].script, one.prefill[1].script = dying, filled
    asks = Asks(one.proxy, 2)
    c.eventually(lambda: waits(one) or asks.answers, 10, "the failover waits")
    room.set()
    assert asks.statuses() == [200, 200], asks.answers


def test_the_log_has_the_time_that_a_request_spent_in_the_queue(stock):
    one = stock(prefill=0, connector="none", proxy_flags=[*ONE_WORKER, "--set", "pools.0.decode.engines.0.max_in_flight=1",
                                                          "--set", "timeouts.queue=300ms"])
    room = threading.Event()

    def filled(request):
        room.wait(30 * c.PATIENCE)
        stub.decode_answer(request)

    one.d.script = filled
    first = Asks(one.proxy, 1)
    c.eventually(lambda: one.d.seen, 10, "the engine is full")
    assert one.proxy.ask(body=BODY)[0] == 503
    room.set()
    assert first.statuses() == [200]
    line, = c.eventually(lambda: [l for l in one.proxy.access() if l["code"] == 503], 5, "the log's line")
    assert 290_000 <= line["queue_us"] <= line["total_us"], line


def test_a_queued_request_starts_when_a_leg_closes(stock):
    """Not at a tick of 20 ms: of 40 one after the other the quickest shows it, however busy the machine."""
    one = stock(prefill=0, connector="none", proxy_flags=[*ONE_WORKER, "--set", "pools.0.decode.engines.0.max_in_flight=1"])
    begins, ends = [], []

    def closing(request):
        begins.append(time.monotonic())
        request.handler.close_connection = True
        stub.decode_answer(request)
        request.handler.connection.shutdown(2)
        ends.append(time.monotonic())

    one.d.script = closing
    assert Asks(one.proxy, 40).statuses() == [200] * 40
    idle = [begin - end for end, begin in zip(sorted(ends), sorted(begins)[1:])]
    assert min(idle) < 0.01, sorted(idle)


def test_what_prefill_works_for_counts_at_its_decode_engine(stock):
    """Else all that wait for prefill come to decode at once, whatever its limit says."""
    one = stock(proxy_flags=[*ONE_WORKER, "--set", "pools.0.decode.engines.0.max_in_flight=2"])
    room, most = threading.Event(), count_calls(one.d)

    def slow(request):
        room.wait(30 * c.PATIENCE)
        stub.prefill_answer(request)

    one.p.script = slow
    asks = Asks(one.proxy, 8)
    c.eventually(lambda: one.proxy.metric("baton_requests_queued") == 6 or len(one.p.seen) == 8, 10, "all are on their way")
    room.set()
    assert asks.statuses() == [200] * 8
    assert max(most) <= 2, most


def test_the_limit_of_an_engine_holds_for_all_workers_together(stock):
    one = stock(prefill=0, connector="none", proxy_flags=["--workers", "8", "--set", "pools.0.decode.engines.0.max_in_flight=2"])
    most = count_calls(one.d)
    for _ in range(4):
        assert Asks(one.proxy, 24).statuses() == [200] * 24
    assert max(most) <= 2, most


def test_the_log_of_a_second_attempt_has_no_pull_of_the_first(clusters):
    """The first handoff's pull fails; the second attempt gets no handoff, so D computes by itself."""
    pair = clusters(proxy_flags=[*ONE_WORKER, "--set", "retry.budget=100%"])
    pair.d.fault("slow-pull", c.window_ms(500))
    pair.p.fault("free-early")
    stream = c.Stream(pair.proxy.port, dict(model="baton", prompt=words(random.Random(), 600), max_tokens=8))
    c.eventually(lambda: pair.p.answered() == 1, 10, "prefill has answered")
    pair.p.fault("no-handoff")
    assert stream.text()
    line, = c.eventually(pair.proxy.access, 5, "the log's line")
    assert pair.proxy.metric("baton_pull_failures_total", reason="lost") == 1
    assert line["code"] == 200 and not line.get("pull_failed") and not line.get("pull_blocks"), line


def test_both_legs_of_a_stock_handoff_have_the_same_request_id(stock):
    """Several stock connectors find the handoff by it."""
    one = stock()
    for _ in range(3):
        assert one.proxy.ask(body=BODY)[0] == 200
    ids = [[request.headers["x-request-id"] for request in side.seen] for side in (one.p, one.d)]
    assert ids[0] == ids[1] and len(set(ids[0])) == 3 and all(ids[0]), ids


def test_a_second_prefill_has_a_request_id_of_its_own(stock):
    one = stock(prefill=2, proxy_flags=[*ONE_WORKER, "--set", "retry.budget=100%"])
    bad, good = one.prefill
    bad.script = lambda request: request.whole({"error": {"message": "no"}}, 500)
    for _ in range(2):
        assert one.proxy.ask(body=BODY)[0] == 200
    failed, passed, decoded = ([request.headers["x-request-id"] for request in side.seen] for side in (bad, good, one.d))
    assert failed and passed == decoded and not set(failed) & set(passed), (failed, passed, decoded)


def test_a_handoff_that_an_engine_read_whole_is_spent_although_it_answered_early(stock):
    """A kept connection's unasked 503 comes with prefill's answer: the decode leg is sent whole, and then meets the 503."""
    one = stock(decode=2, proxy_flags=[*ONE_WORKER, "--set", "retry.budget=100%", "--set", "timeouts.probe_interval=0s",
                                       "--set", "pools.0.decode.engines.0.weight=1000"])
    early, late = one.decode
    answer = stub.numbered_prefill()

    def at_once(request):
        """Both are there when the proxy looks again, prefill's answer first."""
        one.proxy.pause()
        try:
            answer(request)
            early.seen[-1].handler.wfile.write(b"HTTP/1.1 503 Unavailable\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        finally:
            one.proxy.resume()

    for _ in range(5):
        one.p.script = answer
        c.eventually(lambda: one.proxy.ask(body=BODY)[0] == 200 and early.seen, 10, "a kept connection")
        one.p.script = at_once
        one.proxy.ask(body=BODY)
    twice = {request.handoff() for request in early.seen} & {request.handoff() for request in late.seen}
    assert not twice, twice
