"""Connector nixl before stub engines: what reaches each engine, and what never may."""
import json
import threading

import pytest

import cluster as c
import stub

BODY = '{"model":"m","prompt":"hi there","max_tokens":5,"seed":9007199254740993,"temperature":0.950,"x":{"b":1e0,"a":[1, 2]}}'


def ask(one, body=BODY, path="/v1/completions"):
    return one.proxy.ask(path, body.encode() if isinstance(body, str) else body)


def test_prefill_is_asked_for_one_token_and_decode_gets_the_client_bytes(stock):
    one = stock()
    status, answer, _ = ask(one)
    assert status == 200 and answer["choices"][0]["text"] == "hello"
    at_p, at_d = one.p.seen[0].body.decode(), one.d.seen[0].body.decode()
    p = json.loads(at_p)
    assert p["max_tokens"] == 1 and p["ignore_eos"] is True
    assert p["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
                                       "remote_block_ids": None, "remote_host": None, "remote_port": None}
    assert '"seed":9007199254740993,"temperature":0.950,"x":{"b":1e0,"a":[1, 2]}' in at_p
    assert at_d == BODY[:-1] + ',"kv_transfer_params":' + stub.HANDOFF + "}"


def test_the_answer_shows_the_client_no_private_member(stock):
    one = stock()
    assert "kv_transfer_params" not in ask(one)[1]
    one.d.script = lambda r: r.events([dict(stub.completion("a"), kv_transfer_params={"remote_host": "10.0.0.1"}), "[DONE]"])
    events = list(c.Stream(one.proxy.port, {"model": "m", "prompt": "x"}).events())
    assert len(events) == 2 and "kv_transfer_params" not in events[0] and "10.0.0.1" not in events[0]


SPELLINGS = ['"kv_transfer_params"', '"kv\\u005ftransfer_params"', '"\\u006b\\u0076_transfer_params"', '"ec_transfer_params"',
             '"bootstrap_host"', '"bootstrap_port"', '"bootstrap_room"', '"disagg_prefill_resp"', '"disagg\\u005fx"']


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("place", ["first", "last", "extra_body"])
def test_a_client_sets_no_private_member_in_any_spelling(stock, name, place):
    one = stock()
    evil = name + ':{"remote_host":"6.6.6.6","do_remote_prefill":true}'
    body = {"first": "{%s,%s", "last": "%.0s{%s,", "extra_body": "%.0s{%s,"}[place] % (evil, BODY[1:] if place == "first" else BODY[1:-1])
    if place == "last":
        body += evil + "}"
    elif place == "extra_body":
        body += '"extra_body":{"keep":1,%s}}' % evil
    json.loads(body)
    status, _, _ = ask(one, body)
    assert status == 200
    for seen in one.p.seen + one.d.seen:
        assert b"6.6.6.6" not in seen.body
        if place == "extra_body":
            assert seen.parsed()["extra_body"] == {"keep": 1}


def test_refuse_answers_400_to_a_private_member(stock):
    one = stock(proxy_flags=["--set", "pools.0.handoff.client_params=refuse"])
    status, answer, _ = ask(one, '{"kv_transfer_params":null,' + BODY[1:])
    assert status == 400 and "kv_transfer_params" in answer["error"]["message"]
    assert not one.p.seen and not one.d.seen


def test_the_log_says_how_to_allow_a_foreign_host(stock):
    """vLLM's NIXL connector says "localhost" unless it is told otherwise."""
    one = stock()
    handoff = stub.HANDOFF.replace('"127.0.0.1"', '"localhost"')
    one.p.script = lambda r: r.whole(json.dumps(stub.completion("x"))[:-1] + ', "kv_transfer_params": ' + handoff + "}")
    status, answer, _ = ask(one)
    assert status == 502 and answer["error"]["code"] == "foreign_host" and not one.d.seen
    line, = (line for line in one.proxy.text().splitlines() if "localhost" in line)
    assert "handoff_hosts" in line and "VLLM_NIXL_SIDE_CHANNEL_HOST" in line


def test_a_spent_handoff_never_goes_to_a_second_decode(stock):
    """D1 took the whole request and died: D2 gets a handoff of a new prefill, never D1's."""
    one = stock(decode=2)
    one.p.script = stub.numbered_prefill()
    died, lock = [], threading.Lock()

    def decode(request):
        with lock:
            first = not died
            died.append(1)
        if first:
            request.cut()
        else:
            stub.decode_answer(request)

    for d in one.decode:
        d.script = decode
    status, answer, _ = ask(one)
    assert status == 200 and answer["choices"][0]["text"] == "hello"
    used = [s.handoff() for d in one.decode for s in d.seen if s.parsed()["max_tokens"] == 5]
    assert len(used) == len(set(used)) == 2, used


def test_a_first_event_that_is_an_error_becomes_an_http_error(stock):
    one = stock(proxy_flags=["--set", "retry.attempts=0"])
    failure = {"error": {"message": "KV load failed", "type": "InternalServerError", "param": None, "code": 500}}
    one.d.script = lambda r: r.events([failure, "[DONE]"])
    stream = c.Stream(one.proxy.port, {"model": "m", "prompt": "x"}).head()
    assert stream.status == 500
    assert stream.headers["content-type"].startswith("application/json")


def test_an_error_after_the_first_event_passes_untouched(stock):
    one = stock()
    failure = '{"error":{"message":"later","type":"InternalServerError","param":null,"code":500}}'
    one.d.script = lambda r: r.events([stub.completion("a"), failure, "[DONE]"])
    events = list(c.Stream(one.proxy.port, {"model": "m", "prompt": "x"}).events())
    assert events[1:] == [failure, "[DONE]"]


def test_a_client_error_of_an_engine_is_the_clients(stock):
    one = stock()
    body = b'{"error":{"message":"temperature must be positive","type":"BadRequestError","param":null,"code":400}}'
    one.p.script = lambda r: r.whole(body, 400)
    status, answer, _ = ask(one)
    assert status == 400 and answer == json.loads(body) and not one.d.seen and len(one.p.seen) == 1


def test_a_client_that_leaves_does_not_make_its_prefill_engine_unusable(stock):
    """P takes our FIN for a client that left and closes without an answer, as uvicorn does: that is no fault of P."""
    one = stock(proxy_flags=["--set", "timeouts.probe_interval=0s"])
    reached, closed = threading.Event(), threading.Event()

    def prefill(request):
        reached.set()
        assert request.handler.connection.recv(1) == b""
        request.cut()
        closed.set()

    one.p.script = prefill
    client = c.Stream(one.proxy.port, {"model": "m", "prompt": "x"})
    assert reached.wait(10 * c.PATIENCE)
    client.close()
    assert closed.wait(10 * c.PATIENCE)
    one.p.script = stub.prefill_answer
    status, _, _ = ask(one)
    assert status == 200
    assert "not usable" not in one.proxy.text()


def test_the_handoff_may_only_name_the_prefill_engine_itself(stock):
    one = stock(proxy_flags=["--set", "retry.attempts=0"])
    one.p.script = lambda r: r.whole(json.dumps(stub.completion("x"))[:-1] + ', "kv_transfer_params": ' + stub.HANDOFF.replace("127.0.0.1", "10.9.9.9") + "}")
    status, answer, _ = ask(one)
    assert status == 502 and not one.d.seen, answer


def test_no_prefill_means_503_unless_the_policy_says_local(stock):
    one = stock()
    one.p.end()
    one.p.script = None
    for _ in range(3):
        status, answer, headers = ask(one)
        assert status == 503 and "retry-after" in {k.lower() for k in headers}, answer
    assert not one.d.seen
