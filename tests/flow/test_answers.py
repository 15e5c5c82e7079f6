"""What engines answer, byte for byte on real connections: what is passed on, what is a failure, and what the log has of it."""
import http.client
import json
import re

import pytest

import cluster as c
import stub

SECRET = "10.66.0.1"
PRIVATE = '"kv_transfer_params":{"remote_host":"%s"}' % SECRET


def raw(status="200 OK", kind="application/json", body=b"", framing="length", pieces=None):
    """A script that answers these bytes, framed by length, chunks or the close, in pieces of some bytes."""
    body = body if isinstance(body, bytes) else body.encode()

    def script(request):
        head = "HTTP/1.%d %s\r\nContent-Type: %s\r\n" % (framing != "close", status, kind)
        head += {"length": "Content-Length: %d\r\n" % len(body), "chunked": "Transfer-Encoding: chunked\r\n", "close": ""}[framing]
        request.handler.wfile.write(head.encode() + b"\r\n")
        step = pieces or max(1, len(body))
        for at in range(0, len(body), step):
            if framing == "chunked":
                request.piece(body[at:at + step])
            else:
                request.handler.wfile.write(body[at:at + step])
        if framing == "chunked":
            request.handler.wfile.write(b"0\r\n\r\n")
        if framing == "close":
            request.cut()
    return script


def ask(one, **more):
    """Status, body, and whether the answer's end was there."""
    connection = http.client.HTTPConnection("127.0.0.1", one.proxy.port, timeout=20 * c.PATIENCE)
    try:
        connection.request("POST", "/v1/completions", json.dumps(dict(model="m", prompt="hi", **more)), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        try:
            return answer.status, answer.read().decode("utf-8", "replace"), True
        except http.client.IncompleteRead as cut:
            return answer.status, cut.partial.decode("utf-8", "replace"), False
    finally:
        connection.close()


def last_line(one, count):
    return c.eventually(lambda: one.proxy.access()[count - 1:], 5, "line %d of the access log" % count)[0]


BAD = {"cut": '{"choices":[{"text":"the answer sto', "empty": "", "second text": '{"a":1}{%s}' % PRIVATE, "mark": "\ufeff{%s}" % PRIVATE,
       "utf-16": ("{%s}" % PRIVATE).encode("utf-16"), "no JSON": "Internal error at " + SECRET, "list": "[{%s}]" % PRIVATE,
       "too deep": '{"a":' + 200 * "[" + 200 * "]" + "}"}


def test_a_json_answer_that_is_not_one_whole_object_is_an_error_and_logged(stock):
    one = stock(proxy_flags=["--set", "retry.attempts=0"])
    asked = 0
    for name, body in BAD.items():
        for framing in ("length", "chunked", "close"):
            one.d.script = raw(body=body, framing=framing)
            status, text, _ = ask(one)
            asked += 1
            assert (status, json.loads(text)["error"]["code"]) == (502, "decode_bad_answer"), (name, framing, text)
            assert SECRET not in text
            line = last_line(one, asked)
            assert (line["code"], line["fault"]) == (502, "decode_bad_answer")


def test_a_large_json_answer_that_is_cut_has_no_end_and_a_fault_in_the_log(stock):
    one = stock()
    big = '{"text":"%s",%s' % (300000 * "x", PRIVATE)
    for i, framing in enumerate(("length", "chunked", "close")):
        one.d.script = raw(body=big, framing=framing)
        status, text, is_whole = ask(one)
        assert status == 200 and not is_whole and SECRET not in text
        line = last_line(one, 2 * i + 1)
        assert (line["code"], line["fault"]) == (200, "decode_bad_answer")
        one.d.script = raw(body=big + "}", framing=framing)
        status, text, is_whole = ask(one)
        assert status == 200 and is_whole and json.loads(text) == {"text": 300000 * "x"}
        assert "fault" not in last_line(one, 2 * i + 2) or not last_line(one, 2 * i + 2)["fault"]


EVENTS = ("\ufeffdata: {\"n\":1,\r\ndata: %s}\r\n\r\n: ping\rdata: {\"n\":2,\"t\":\"data: [DONE]\"}\r\revent: e\ndata:{\"kv\\u005ftransfer_params\":"
          "\"%s\",\"n\":3}\n\ndata: [DONE]\n\n" % (PRIVATE, SECRET)).encode()
SEEN = b"\xef\xbb\xbfdata: {\"n\":1}\r\n\r\n: ping\rdata: {\"n\":2,\"t\":\"data: [DONE]\"}\r\revent: e\ndata:{\"n\":3}\n\ndata: [DONE]\n\n".decode()


def test_events_pass_in_whatever_pieces_and_line_ends_they_come(stock):
    one = stock()
    for pieces in (1, 2, 7, 50, None):
        for framing in ("chunked", "close"):
            one.d.script = raw(kind="text/event-stream", body=EVENTS, framing=framing, pieces=pieces)
            status, text, is_whole = ask(one, stream=True)
            assert (status, text, is_whole) == (200, SEEN, True), (pieces, framing)


def test_a_stream_that_closes_behind_a_text_like_the_end_marker_is_lost(stock):
    one = stock()
    one.d.script = raw(kind="text/event-stream", framing="close", body=EVENTS[:EVENTS.rindex(b"data: [DONE]")])
    status, text, is_whole = ask(one, stream=True)
    assert status == 200 and not is_whole and '"error"' in text.split("\n\n")[-2] and SECRET not in text
    assert last_line(one, 1)["fault"] == "stream_lost"


@pytest.mark.parametrize("event", ['data: [{%s}]\n\n' % PRIVATE, 'data: {%s\n\n' % PRIVATE,
                                   "data: {\"error\":{\"message\":\"{'remote_host': '%s'}\",\"code\":400}}\n\n" % SECRET])
def test_an_event_that_hides_what_is_private_ends_the_stream(stock, event):
    one = stock()
    one.d.script = raw(kind="text/event-stream", framing="chunked", body='data: {"n":1}\n\n' + event + "data: [DONE]\n\n")
    status, text, is_whole = ask(one, stream=True)
    assert status == 200 and not is_whole and SECRET not in text
    assert text.startswith('data: {"n":1}\n\ndata: {"error":') and "[DONE]" not in text
    assert last_line(one, 1)["fault"] in ("decode_bad_answer", "decode_failed")


def echo(status="400 Bad Request"):
    def script(request):
        raw(status, body=json.dumps({"error": {"message": "1 validation error: %s" % request.parsed(), "code": 400}}))(request)
    return script


def test_an_error_that_repeats_what_is_private_becomes_one_of_ours(stock):
    one = stock()
    for side in (one.d, one.p):
        side.script = echo()
        status, text, _ = ask(one)
        assert (status, json.loads(text)["error"]["code"]) == (400, "engine_refused")
        assert "remote" not in text and "transfer_params" not in text
        assert c.eventually(lambda: "validation error" in one.proxy.text(), 5, "the engine's words in the log")
    one.p.script = stub.prefill_answer
    for kind, body in (("text/plain", "no such adapter"), ("text/html", "<h1>no</h1>"), ("application/json", '{"error": {"n": 1.0}}')):
        one.d.script = raw("422 X", kind, body)
        assert ask(one)[:2] == (422, body)


def test_the_words_of_a_failed_engine_are_logged_once_a_second(stock):
    one = stock(prefill=2, proxy_flags=["--set", "retry.budget=100%", "--set", "retry.attempts=1"])
    words = json.dumps({"error": {"message": "response_format \x1b[31m is wrong\n" + 1000 * "w", "code": 500}})
    for p in one.prefill:
        p.script = raw("500 Internal Server Error", body=words, pieces=9)
    for _ in range(10):
        status, text, _ = ask(one)
        assert status == 502 and "the prefill engine failed: it answered 500" in text and "response_format" not in text
    lines = [line for line in one.proxy.text().splitlines() if "it answered 500" in line and line.startswith("20")]
    assert lines and "response_format" in lines[0] and "\x1b" not in lines[0] and len(lines[0]) < 800
    assert len(lines) < 20
    c.eventually(lambda: ask(one) and re.search(r"\(\d+ more since", one.proxy.text()), 10, "a count of what was left out")


def test_an_engine_that_says_500_and_then_nothing_is_left_within_seconds(stock):
    one = stock(prefill=2)
    hang = stub.threading.Event()

    def script(request):
        request.handler.wfile.write(b"HTTP/1.1 500 X\r\nContent-Length: 100\r\n\r\nhalf")
        hang.wait(60)
    one.prefill[0].script = script
    try:
        assert [ask(one)[0] for _ in range(2)] == [200, 200]
    finally:
        hang.set()


def test_params_that_decode_refuses_are_the_fault_of_prefill(stock):
    one = stock(prefill=2)
    one.prefill[0].script = lambda r: r.whole('{"kv_transfer_params": %s}' % stub.HANDOFF.replace("e-1", "broken"))

    def decode(request):
        if request.handoff() == "broken":
            request.whole({"error": {"message": "kv_transfer_params: unknown engine 'broken'", "code": 400}}, 400)
        else:
            stub.decode_answer(request)
    one.d.script = decode
    assert [ask(one)[0] for _ in range(4)] == [200] * 4
    one.prefill[1].script = one.prefill[0].script
    status, text, _ = ask(one)
    assert (status, json.loads(text)["error"]["code"]) == (502, "prefill_bad_answer") and "broken" not in text
