"""What becomes of a request before it reaches an engine: its edits when legs repeat, private members, and what is refused."""
import email.utils
import http.client
import json
import socket

import pytest

import cluster as c
import stub

PRIVATE = {"kv_transfer_params": "", "ec_transfer_params": None, "bootstrap_room": 0, "disagg_x": {"a": 1}, "keep": 1}


def ask(one, body):
    return one.proxy.ask("/v1/completions", body if isinstance(body, bytes) else json.dumps(body).encode())


def once(then):
    """A script that fails first, then goes on as `then`."""
    asked = []

    def script(request):
        asked.append(request)
        if len(asked) == 1:
            request.whole({"error": {"message": "x", "code": 500}}, 500)
        else:
            then(request)
    return script


def test_each_prefill_leg_carries_one_handoff(stock):
    one = stock(prefill=2)
    script = once(stub.prefill_answer)
    for p in one.prefill:
        p.script = script
    assert ask(one, {"model": "m", "max_tokens": 5, "prompt": "x", "stop": ["a"]})[0] == 200
    bodies = [seen.body for p in one.prefill for seen in p.seen]
    assert [body.count(b'"kv_transfer_params"') for body in bodies] == [1, 1]


def test_decode_alone_is_sent_no_handoff_that_another_call_spent(stock):
    one = stock(decode=2)
    asked = []

    def prefill(request):
        asked.append(request)
        if len(asked) == 1:
            stub.prefill_answer(request)
        else:
            request.whole(stub.completion("x"))
    script = once(stub.decode_answer)
    one.p.script = prefill
    for d in one.decode:
        d.script = script
    assert ask(one, {"model": "m", "max_tokens": 5, "prompt": "x", "kv_transfer_params": None})[0] == 200
    assert len(asked) == 2
    bodies = [seen.body for d in one.decode for seen in d.seen]
    assert sorted(body.count(b"kv_transfer_params") for body in bodies) == [0, 1]


@pytest.mark.parametrize("alone", [{}, {"n": 2}, {"echo": True}])
def test_no_engine_finds_private_members_where_it_looks_for_more(stock, alone):
    one = stock()
    body = dict({"model": "m", "prompt": "x", "vllm_xargs": PRIVATE, "extra_body": {"vllm_xargs": PRIVATE},
                 "sampling_params": {"extra_args": PRIVATE}}, **alone)
    assert ask(one, body)[0] == 200
    for seen in one.p.seen + one.d.seen:
        got = seen.parsed()
        assert got["vllm_xargs"] == got["extra_body"]["vllm_xargs"] == got["sampling_params"]["extra_args"] == {"keep": 1}
    assert ("kv_transfer_params" in one.d.seen[-1].parsed()) == (not alone)


def test_refuse_names_the_path_of_a_private_member(stock):
    one = stock(proxy_flags=["--set", "pools.0.handoff.client_params=refuse"])
    status, answer, _ = ask(one, {"model": "m", "prompt": "x", "n": 2, "vllm_xargs": {"kv_transfer_params": ""}})
    assert status == 400 and "vllm_xargs.kv_transfer_params" in answer["error"]["message"]
    assert not one.p.seen and not one.d.seen


def test_a_pool_that_refuses_decode_alone_says_so(stock):
    one = stock(connector="tpu", proxy_flags=["--set", "pools.0.handoff.alone=refuse"])
    one.p.script = lambda request: request.whole(stub.completion("x"))
    status, answer, _ = ask(one, {"model": "m", "prompt": "x", "n": 2})
    assert status == 400 and answer["error"]["code"] == "handoff_needed" and not one.p.seen
    status, answer, _ = ask(one, {"model": "m", "prompt": "x"})
    assert status == 502 and answer["error"]["code"] == "no_handoff"
    one.p.script = lambda request: request.whole({"error": {"message": "x"}}, 500)
    chat = {"model": "m", "messages": [], "tool_choice": "required"}
    assert one.proxy.ask("/v1/chat/completions", json.dumps(chat).encode())[0] == 400
    assert not one.d.seen


def test_a_prompt_cut_to_what_the_limit_leaves_is_decoded_alone(stock):
    one = stock()
    status, _, headers = ask(one, {"model": "m", "prompt": "x", "truncate_prompt_tokens": -1})
    assert status == 200 and not one.p.seen and {k.lower(): v for k, v in headers.items()}["x-baton-route"] == "truncate_prompt_tokens"


def fetch(one, method, path, headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", one.proxy.port, timeout=10 * c.PATIENCE)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_each_answer_has_one_date_and_models_are_found_by_encoded_names(stock):
    one = stock()
    body = json.dumps({"model": "m", "prompt": "x"})
    for method, path, sent in (("GET", "/health", None), ("GET", "/nope", None), ("GET", "/v1/models/%6D", None),
                               ("POST", "/v1/completions", body), ("POST", "/v1/completions", "{")):
        status, _, headers = fetch(one, method, path, body=sent)
        assert len(headers.get_all("Date")) == 1 and email.utils.parsedate_to_datetime(headers["Date"]), (path, status)
    assert fetch(one, "GET", "/v1/models/%6D")[0] == 200 and fetch(one, "GET", "/v1/models/%6E")[0] == 404


def test_a_page_of_an_allowed_origin_may_call(stock, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("k\n")
    keys.chmod(0o600)
    one = stock(proxy_flags=["--set", "cors.origins.0=https://a.test", "--set", "auth.client_keys_file=%s" % keys])
    page, path = {"Origin": "https://a.test"}, "/v1/chat/completions"
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    status, body, headers = fetch(one, "OPTIONS", path, dict(page, **asks))
    assert (status, body, headers["Access-Control-Allow-Origin"]) == (204, b"", "https://a.test")
    assert headers["Access-Control-Allow-Headers"] == asks["Access-Control-Request-Headers"] and "POST" in headers["Access-Control-Allow-Methods"]
    assert fetch(one, "OPTIONS", path, dict(asks, Origin="https://b.test"))[0] == 405
    for stream in (False, True):
        status, _, headers = fetch(one, "POST", path, dict(page, Authorization="Bearer k"), json.dumps({"model": "m", "messages": [], "stream": stream}))
        assert status == 200 and headers.get_all("Access-Control-Allow-Origin") == ["https://a.test"] and "Origin" in headers.get_all("Vary")
    status, _, headers = fetch(one, "POST", path, page, "{}")
    assert status == 401 and headers["Access-Control-Allow-Origin"] == "https://a.test"
    status, _, headers = fetch(one, "GET", "/health", {"Origin": "https://b.test"})
    assert status == 200 and "Access-Control-Allow-Origin" not in headers and headers["Vary"] == "Origin"


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0\0\0\0", b"{"])
def test_what_begins_no_request_is_answered_and_closed_at_once(stock, first):
    one = stock(proxy_flags=["--set", "timeouts.head=0s", "--set", "timeouts.keep_alive=0s"])
    with socket.create_connection(("127.0.0.1", one.proxy.port), 10 * c.PATIENCE) as client:
        client.sendall(first)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and b"\r\nConnection: close\r\n" in answer
