"""Stock engines in a few lines: they record what reaches them and answer by script.

    stub.script = lambda request: request.json({...})      # or .events([...]), .raw(b"…"), .cut()
"""
import contextlib
import http.server
import itertools
import json
import threading

import cluster as c

HANDOFF = ('{"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[3, 4, 12345678901234567890123]],'
           ' "remote_engine_id": "e-1", "remote_request_id": "cmpl-1", "remote_host": "127.0.0.1", "remote_port": 5600,'
           ' "tp_size": 1, "remote_blocks_expiry_time": 12.50}')


class Request:
    def __init__(self, handler, body):
        self.handler, self.body = handler, body
        self.path, self.headers = handler.path, handler.headers

    def parsed(self):
        return json.loads(self.body)

    def handoff(self):
        """The engine id of the handoff that reached a decode engine."""
        return self.parsed()["kv_transfer_params"]["remote_engine_id"]

    def whole(self, body, status=200):
        data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.handler.send_response(status)
        self.handler.send_header("Content-Type", "application/json")
        self.handler.send_header("Content-Length", str(len(data)))
        self.handler.end_headers()
        self.handler.wfile.write(data)

    def start(self):
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.handler.send_header("Transfer-Encoding", "chunked")
        self.handler.end_headers()

    def piece(self, data):
        data = data if isinstance(data, bytes) else data.encode()
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.handler.wfile.flush()

    def events(self, events):
        self.start()
        for event in events:
            self.piece("data: %s\n\n" % (event if isinstance(event, str) else json.dumps(event)))
        self.handler.wfile.write(b"0\r\n\r\n")

    def cut(self):
        self.handler.close_connection = True
        with contextlib.suppress(OSError):
            self.handler.connection.shutdown(2)


def completion(text="hello", **more):
    return dict({"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m",
                 "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": "length", "stop_reason": None}],
                 "usage": {"prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1, "prompt_tokens_details": None}}, **more)


def prefill_answer(request):
    request.whole(json.dumps(completion("x"))[:-1] + ', "kv_transfer_params": ' + HANDOFF + "}")


def numbered_prefill(name="e"):
    """A prefill script whose handoffs differ: their engine ids end in 0, 1, …"""
    numbers = itertools.count()

    def script(request):
        handoff = HANDOFF.replace("e-1", "%s-%d" % (name, next(numbers)))
        request.whole(json.dumps(completion("x"))[:-1] + ', "kv_transfer_params": ' + handoff + "}")
    return script


def decode_answer(request):
    if request.parsed().get("stream"):
        request.events([completion("he"), completion("llo"), "[DONE]"])
    else:
        request.whole(dict(completion(), kv_transfer_params=None))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # a SYN that finds no room comes again a second later


class Stub:
    def __init__(self, script, address=("127.0.0.1", 0)):
        self.script, self.seen, self.lock = script, [], threading.Lock()
        self.health = lambda request: request.whole({})
        self.on_get = lambda request: request.whole({"object": "list", "data": [{"id": "m", "object": "model"}]})
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def do_GET(self):
                request = Request(self, b"")
                with contextlib.suppress(ConnectionError):
                    (stub.health if self.path == "/health" else stub.on_get)(request)

            def do_POST(self):
                request = Request(self, self.rfile.read(int(self.headers.get("content-length", 0))))
                with stub.lock:
                    stub.seen.append(request)
                with contextlib.suppress(ConnectionError):
                    stub.script(request)

        self.server = Server(address, Handler)
        self.port = self.server.server_address[1]
        self.url = "http://%s:%d" % (address[0], self.port)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


class StockCluster(c.Cluster):
    """A proxy with connector nixl (or another) before stubs."""

    def __init__(self, folder, prefill=1, decode=1, proxy_flags=(), connector="nixl"):
        super().__init__(folder, connector=connector, prefill=0, decode=0, proxy_flags=proxy_flags)
        self.prefill = [Stub(prefill_answer) for _ in range(prefill)]
        self.decode = [Stub(decode_answer) for _ in range(decode)]

    def start(self):
        self.proxy = self.add(c.Proxy(self, self.proxy_flags))
        self.proxy.start().wait_ready().wait_routable()
        return self

    def end(self):
        super().end()
        for stub in self.prefill + self.decode:
            stub.end()
