"""Connector mooncake before stub engines: both legs at once, one transfer, and what ends both."""
import json
import threading

import cluster as c
import pytest
import stub

BODY = {"model": "m", "prompt": "hi there", "max_tokens": 5}
QUERY = {"0": {"engine_id": "engine-\"1\"", "worker_addr": {"0": {"0": "tcp://127.0.0.1:5600"}}}}
FAULT = b'{"error":{"message":"bad temperature","type":"BadRequestError","param":null,"code":400}}'


def params(request):
    return request.parsed()["kv_transfer_params"]


def answer_query(request, query=QUERY):
    request.whole(query if request.path == "/query" else {"object": "list", "data": [{"id": "m", "object": "model"}]})


class Mooncake(stub.StockCluster):
    def __init__(self, folder, **more):
        super().__init__(folder, connector="mooncake", **more)
        for p in self.prefill:
            p.on_get = answer_query
            p.script = lambda request: request.whole(stub.completion("x"))


@pytest.fixture
def mooncake(tmp_path):
    ends = []

    def make(**more):
        one = Mooncake(tmp_path, **more)
        ends.append(one)
        return one.start()
    yield make
    for one in ends:
        one.end()


def meet(one):
    """P answers when D was asked, as D's engine waits for P's blocks; what is returned is set by D's request."""
    asked = threading.Event()

    def decode(request):
        asked.set()
        stub.decode_answer(request)

    for d in one.decode:
        d.script = decode
    return asked


def wait_gone(request):
    """The proxy has closed this call."""
    request.handler.connection.settimeout(10 * c.PATIENCE)
    assert request.handler.connection.recv(1) == b""
    request.cut()


def test_both_legs_are_told_one_transfer_while_prefill_computes(mooncake):
    one = mooncake()
    asked = meet(one)

    def prefill(request):
        assert asked.wait(10 * c.PATIENCE)
        request.whole(stub.completion("x"))

    one.prefill[0].script = prefill
    status, answer, _ = one.proxy.ask("/v1/completions", json.dumps(BODY).encode())
    assert status == 200 and answer["choices"][0]["text"] == "hello"
    p, d = one.prefill[0].seen[0], one.decode[0].seen[0]
    assert p.parsed()["max_tokens"] == 1 and d.parsed()["max_tokens"] == 5
    transfer = params(p)["transfer_id"]
    assert len(transfer) == 32
    assert params(p) == {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer}
    assert params(d) == {"do_remote_decode": False, "do_remote_prefill": True, "transfer_id": transfer,
                         "remote_bootstrap_addr": one.prefill[0].url, "remote_engine_id": "engine-\"1\""}
    assert p.headers["x-request-id"] == d.headers["x-request-id"]


def test_what_decode_says_is_kept_back_until_prefill_has_answered(mooncake):
    one = mooncake()
    asked = meet(one)
    answers = iter([lambda r: r.whole(stub.completion("x")), lambda r: r.whole(FAULT, 400)])

    def prefill(request):
        assert asked.wait(10 * c.PATIENCE)
        next(answers)(request)

    one.prefill[0].script = prefill
    events = list(c.Stream(one.proxy.port, dict(BODY, stream=True)).events())
    assert events[-1] == "[DONE]" and len(events) == 3
    asked.clear()
    status, answer, _ = one.proxy.ask("/v1/completions", json.dumps(BODY).encode())
    assert status == 400 and answer == json.loads(FAULT)


def test_a_failed_prefill_closes_decode_and_both_are_asked_anew(mooncake):
    one = mooncake(prefill=2, decode=2)
    closed, lock, calls = threading.Event(), threading.Lock(), []
    asked = threading.Event()

    def prefill(request):
        with lock:
            calls.append(request)
            first = len(calls) == 1
        assert asked.wait(10 * c.PATIENCE)
        request.whole({"error": {"message": "boom", "code": 500}}, 500) if first else request.whole(stub.completion("x"))

    def decode(request):
        with lock:
            first = not asked.is_set()
            asked.set()
        if first:
            wait_gone(request)
            closed.set()
        else:
            stub.decode_answer(request)

    for p in one.prefill:
        p.script = prefill
    for d in one.decode:
        d.script = decode
    status, answer, _ = one.proxy.ask("/v1/completions", json.dumps(BODY).encode())
    assert status == 200 and answer["choices"][0]["text"] == "hello"
    assert closed.wait(10 * c.PATIENCE)
    used = [params(r)["transfer_id"] for e in one.decode for r in e.seen]
    assert len(used) == len(set(used)) == 2, used
    assert sorted(used) == sorted(params(r)["transfer_id"] for r in calls)


def test_a_failed_decode_closes_prefill_and_both_are_asked_anew(mooncake):
    one = mooncake(prefill=2, decode=2)
    closed, lock = threading.Event(), threading.Lock()
    prefills, decodes = [], []

    def prefill(request):
        with lock:
            prefills.append(request)
            first = len(prefills) == 1
        if first:
            wait_gone(request)
            closed.set()
        else:
            request.whole(stub.completion("x"))

    def decode(request):
        with lock:
            decodes.append(request)
            first = len(decodes) == 1
        request.cut() if first else stub.decode_answer(request)

    for p in one.prefill:
        p.script = prefill
    for d in one.decode:
        d.script = decode
    status, answer, _ = one.proxy.ask("/v1/completions", json.dumps(BODY).encode())
    assert status == 200 and answer["choices"][0]["text"] == "hello"
    assert closed.wait(10 * c.PATIENCE)
    assert params(decodes[0])["transfer_id"] != params(decodes[1])["transfer_id"]


def test_a_refusal_of_prefill_is_the_clients_and_closes_decode(mooncake):
    one = mooncake()
    asked, closed = threading.Event(), threading.Event()

    def prefill(request):
        assert asked.wait(10 * c.PATIENCE)
        request.whole(FAULT, 400)

    def decode(request):
        asked.set()
        wait_gone(request)
        closed.set()

    one.prefill[0].script, one.decode[0].script = prefill, decode
    status, answer, _ = one.proxy.ask("/v1/completions", json.dumps(BODY).encode())
    assert status == 400 and answer == json.loads(FAULT)
    assert closed.wait(10 * c.PATIENCE)
    assert len(one.prefill[0].seen) == 1


def test_a_client_that_leaves_closes_both_legs(mooncake):
    one = mooncake()
    closed = threading.Semaphore(0)
    asked = threading.Semaphore(0)

    def engine(request):
        asked.release()
        wait_gone(request)
        closed.release()

    one.prefill[0].script = one.decode[0].script = engine
    client = c.Stream(one.proxy.port, dict(BODY, stream=True))
    for _ in range(2):
        assert asked.acquire(timeout=10 * c.PATIENCE)
    client.close()
    for _ in range(2):
        assert closed.acquire(timeout=10 * c.PATIENCE)


def test_an_engine_without_a_bootstrap_server_is_not_asked(tmp_path):
    one = stub.StockCluster(tmp_path, connector="mooncake")
    try:
        one.prefill[0].on_get = lambda request: request.whole({"detail": "Not Found"}, 404)
        one.proxy = one.add(c.Proxy(one, one.proxy_flags))
        one.proxy.start().wait_ready()
        status, answer, headers = one.proxy.ask("/v1/completions", json.dumps(BODY).encode())
        assert status == 503 and "retry-after" in {k.lower() for k in headers}, answer
        assert not one.prefill[0].seen and not one.decode[0].seen
        c.eventually(lambda: "VLLM_MOONCAKE_BOOTSTRAP_PORT" in one.proxy.text(), 10, "the log says what to set")
        one.prefill[0].on_get = answer_query
        one.prefill[0].script = lambda request: request.whole(stub.completion("x"))
        one.proxy.wait_routable()
        assert one.proxy.ask("/v1/completions", json.dumps(BODY).encode())[0] == 200
    finally:
        one.end()
