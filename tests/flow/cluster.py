"""Real processes for the flow tests: engines, a proxy, and what one may do to them.

    cluster ── owns ──► Proxy, Engine…   (each a Process with its log)

Every process binds 127.0.0.1, is started by the test and ended by it, by pid.
Its ports are the kernel's choice and held for it from before its first start to
the cluster's end, so that no neighbour takes one between choosing and binding,
or while a program is down. Links may name them before anybody listens there.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import ports  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BATON_BUILD", ROOT / "build" / "release"))
if not BUILD.is_absolute():
    BUILD = ROOT / BUILD
PROXY = BUILD / "proxy" / "baton-proxy"
ENGINE = BUILD / "agent" / "engine" / "baton-engine"
# Sanitizers and valgrind slow everything; deadlines stretch with this.
PATIENCE = float(os.environ.get("BATON_PATIENCE", "1"))
# Workers of each proxy, where its test does not say; the program's default if empty.
WORKERS = os.environ.get("BATON_WORKERS", "")
SANITIZER = re.compile(r"(AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:|UndefinedBehaviorSanitizer)")


def tolerant_of_libfabric():
    """Environment of a sanitized process that opens libfabric: its own reports are not ours."""
    def with_file(variable, name):
        return ":".join(filter(None, [os.environ.get(variable), "suppressions=%s" % (ROOT / "agent" / name), "print_suppressions=0"]))
    return {"LSAN_OPTIONS": with_file("LSAN_OPTIONS", "libfabric.supp"), "TSAN_OPTIONS": with_file("TSAN_OPTIONS", "libfabric.tsan")}


held_ports = []


def free_port():
    """A port that stays the tests' until they end; a cluster's own are given back with it."""
    held_ports.append(ports.Held())
    return held_ports[-1].port


def eventually(check, within, what):
    """The first true value of check(); fails when `within` seconds passed."""
    pause = threading.Event()
    end = time.monotonic() + within * PATIENCE
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end, "not within %.1f s: %s" % (within * PATIENCE, what)
        pause.wait(0.02)


def window_ms(quiet):
    """A delay in which the test must act: it stretches as deadlines do."""
    return int(quiet * PATIENCE)


class Process:
    """One program, its ready line, its log."""

    def __init__(self, name, argv, log, env=None):
        self.name, self.argv, self.log = name, [str(a) for a in argv], log
        self.env = dict(os.environ, **(env or {}))
        self.process = None

    def start(self):
        self.log_at = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env)
        return self

    def text(self):
        return self.log.read_bytes()[self.log_at:].decode("utf-8", "replace")

    def wait_ready(self, within=30):
        def ready():
            assert self.process.poll() is None, "%s ended with %s:\n%s" % (self.name, self.process.returncode, self.text()[-4000:])
            return "ready on " in self.text()
        eventually(ready, within, "%s ready; log:\n%s" % (self.name, self.text()[-2000:]))
        return self

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.alive():
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def term(self, within=10):
        if self.alive():
            self.process.terminate()
        return self.process.wait(within * PATIENCE)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def cpu_seconds(self):
        with open("/proc/%d/stat" % self.process.pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self):
        with open("/proc/%d/statm" % self.process.pid) as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self):
        """Ends it; says what a sanitizer printed."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(8 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return "%s did not end within 8 s of TERM" % self.name
        found = SANITIZER.search(self.log.read_text("utf-8", "replace")) if self.log.exists() else None
        return "%s: sanitizer report in %s:\n%s" % (self.name, self.log, self.log.read_text("utf-8", "replace")[found.start() - 200:][:6000]) if found else None


def http_json(port, method, path, body=None, timeout=30, headers=None):
    """(status, parsed body or bytes, headers)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout * PATIENCE)
    try:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, dict({"Content-Type": "application/json"} if data is not None else {}, **(headers or {})))
        answer = connection.getresponse()
        raw = answer.read()
        try:
            parsed = json.loads(raw)
        except ValueError:
            parsed = raw
        return answer.status, parsed, dict(answer.getheaders())
    finally:
        connection.close()


def metric(text, name, **labels):
    """The sum of the samples of that name whose labels match."""
    total = 0.0
    for line in text.splitlines():
        match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", line)
        if match and match[1] == name:
            have = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
            if all(have.get(k) == v for k, v in labels.items()):
                total += float(match[3])
    return total


class Engine(Process):
    def __init__(self, cluster, role, extra=()):
        self.port = cluster.hold_port()
        self.role = role
        self.url = "http://127.0.0.1:%d" % self.port
        argv = [ENGINE, "--listen", "127.0.0.1:%d" % self.port, "--role", role, *cluster.agent_flags(), *cluster.engine_flags, *extra]
        super().__init__("%s-%d" % (role, self.port), argv, cluster.folder / ("%s-%d.log" % (role, self.port)), tolerant_of_libfabric())

    def state(self):
        status, body, _ = http_json(self.port, "GET", "/admin/state")
        assert status == 200, (status, body)
        return body

    def used(self):
        """Blocks of its pool that are not free (cached ones are)."""
        blocks = self.state()["blocks"]
        return blocks["total"] - blocks["free"]

    def busy(self):
        """Answers in the works, in any phase."""
        return sum(self.state()["answers"].values())

    def answered(self):
        """Completion requests that ended in an answer."""
        return metric(self.metrics(), "baton_engine_requests_total", outcome="answered")

    def metrics(self):
        return http_json(self.port, "GET", "/metrics")[1].decode()

    def fault(self, name, arg=None):
        status, body, _ = http_json(self.port, "POST", "/admin/fault", {"name": name} if arg is None else {"name": name, "arg": str(arg)})
        assert status == 200, (status, body)

    def complete(self, prompt, max_tokens=8, **more):
        """What this engine answers when asked directly."""
        status, body, _ = http_json(self.port, "POST", "/v1/completions", dict(model=more.pop("model", "baton"), prompt=prompt, max_tokens=max_tokens, **more), timeout=60)
        assert status == 200, (status, body)
        return body["choices"][0]["text"]


class Proxy(Process):
    def __init__(self, cluster, extra=(), agents=None):
        self.cluster = cluster
        self.port, self.admin = cluster.hold_port(), cluster.hold_port()
        self.extra = list(extra)
        argv = [PROXY, "--listen", "127.0.0.1:%d" % self.port, "--admin", "127.0.0.1:%d" % self.admin, "--connector", cluster.connector]
        if cluster.connector == "baton":
            argv += ["--agents", agents or cluster.agents, "--agent-key", cluster.key_file]
        for e in cluster.prefill:
            argv += ["--prefill", e if isinstance(e, str) else e.url]
        for e in cluster.decode:
            argv += ["--decode", e if isinstance(e, str) else e.url]
        argv += ["--workers", WORKERS] if WORKERS and "--workers" not in self.extra else []
        super().__init__("proxy-%d" % self.port, argv + self.extra, cluster.folder / ("proxy-%d.log" % self.port))

    def wait_routable(self, within=20):
        """Ready: a P and a D are usable together."""
        eventually(lambda: self.get("/ready")[0] == 200, within, "GET /ready is 200; %s\n%s" % (self.get("/ready"), self.text()[-2000:]))
        return self

    def get(self, path):
        return http_json(self.port, "GET", path)

    def ask(self, path="/v1/completions", body=None, timeout=60, headers=None):
        return http_json(self.port, "POST", path, body, timeout, headers)

    def complete(self, prompt, max_tokens=8, **more):
        status, body, _ = self.ask(body=dict(model="baton", prompt=prompt, max_tokens=max_tokens, **more))
        assert status == 200, (status, body)
        return body["choices"][0]["text"]

    def handoffs(self):
        return http_json(self.admin, "GET", "/handoffs")[1]

    def engines(self):
        return http_json(self.admin, "GET", "/engines")[1]

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10 * PATIENCE)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def metric(self, name, **labels):
        return metric(self.metrics(), name, **labels)

    def access(self):
        """The access log's lines, parsed."""
        lines = []
        for line in self.text().splitlines():
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    lines.append(json.loads(line))
        return lines


class Cluster:
    """Engines behind one proxy, in a folder of their own."""

    def __init__(self, folder, connector="baton", prefill=1, decode=1, engine_flags=(), proxy_flags=(), prefill_flags=(), decode_flags=()):
        self.folder, self.connector = folder, connector
        self.engine_flags = ["--admin-faults", *engine_flags]
        self.held_ports = []
        self.agents = "127.0.0.1:%d" % self.hold_port()
        self.key_file = folder / "agent.key"
        self.key_file.write_text(secrets.token_hex(32) + "\n")
        self.key_file.chmod(0o600)
        self.everything = []
        self.prefill = [self.add(Engine(self, "prefill", prefill_flags)) for _ in range(prefill)]
        self.decode = [self.add(Engine(self, "decode", decode_flags)) for _ in range(decode)]
        self.proxy_flags = list(proxy_flags)
        self.proxy = None

    def hold_port(self):
        self.held_ports.append(ports.Held())
        return self.held_ports[-1].port

    def add(self, process):
        self.everything.append(process)
        return process

    def agent_flags(self):
        return ["--agents", self.agents, "--key-file", self.key_file] if self.connector == "baton" else []

    @property
    def p(self):
        return self.prefill[0]

    @property
    def d(self):
        return self.decode[0]

    def start(self):
        for e in self.prefill + self.decode:
            e.start()
        for e in self.prefill + self.decode:
            e.wait_ready()
        self.proxy = self.add(Proxy(self, self.proxy_flags))
        self.proxy.start().wait_ready().wait_routable()
        return self

    def held(self):
        """Blocks that handoffs hold on all living prefill engines."""
        return sum(e.state()["blocks"]["held"] for e in self.prefill if e.alive())

    def used(self):
        """Blocks that requests use on all living engines."""
        return sum(e.used() for e in self.prefill + self.decode if e.alive())

    def wait_unheld(self, within):
        eventually(lambda: self.held() == 0 and self.used() == 0, within, "no held or used block; held %d, used %d" % (self.held(), self.used()))

    def end(self):
        said = [s for s in (p.end() for p in reversed(self.everything)) if s]
        for held in self.held_ports:
            held.close()
        assert not said, "\n".join(said)


class Relay:
    """A TCP relay that can be cut: new connections are refused, old ones reset."""

    def __init__(self, to_port):
        self.to_port = to_port
        self.pairs, self.listener, self.lock = [], None, threading.Lock()
        self.port = free_port()
        self.heal()

    def heal(self):
        listener = socket.create_server(("127.0.0.1", self.port))
        self.listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to_port), 2)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self.lock:
                self.pairs.append((near, far))
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    @staticmethod
    def _copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for s in (source, sink):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def cut(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for s in pair:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
                    s.close()


class Stream:
    """A raw streaming client: sees each event as it comes, and may leave in any way."""

    def __init__(self, port, body, path="/v1/completions", timeout=60):
        payload = json.dumps(dict(body, stream=True)).encode()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout * PATIENCE)
        self.socket.sendall(b"POST %s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(payload)) + payload)
        self.file = self.socket.makefile("rb")
        self.status, self.headers = None, {}

    def head(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("closed before an answer")
        self.status = int(line.split()[1])
        while (line := self.file.readline().strip()):
            name, _, value = line.partition(b":")
            self.headers[name.decode().lower()] = value.strip().decode()
        return self

    def _chunks(self):
        """Chunk payloads; ConnectionError when the stream is cut."""
        while True:
            size = self.file.readline()
            if not size:
                raise ConnectionError("cut")
            count = int(size.split(b";")[0], 16)
            if count == 0:
                self.file.readline()
                return
            data = self.file.read(count)
            self.file.readline()
            if len(data) < count:
                raise ConnectionError("cut inside a chunk")
            yield data

    def events(self):
        """The data of each event, as text."""
        if self.status is None:
            self.head()
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            yield self.file.read(int(self.headers.get("content-length", -1))).decode()
            return
        pending = b""
        for data in self._chunks():
            pending += data
            while b"\n\n" in pending:
                event, pending = pending.split(b"\n\n", 1)
                for line in event.split(b"\n"):
                    if line.startswith(b"data: "):
                        yield line[6:].decode()

    def text(self):
        """The whole answer's text; raises on an error event, a cut or a missing [DONE]."""
        out = ""
        for data in self.events():
            if data == "[DONE]":
                return out
            event = json.loads(data)
            if self.status != 200 or "error" in event:
                raise AnswerError(self.status, event)
            for choice in event.get("choices", ()):
                out += choice.get("text") or (choice.get("delta") or {}).get("content") or ""
        raise ConnectionError("the stream ended without [DONE]")

    def close(self):
        self.file.close()
        self.socket.close()

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.close()

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)


class AnswerError(Exception):
    def __init__(self, status, body):
        super().__init__("status %s: %s" % (status, body))
        self.status, self.body = status, body
