#!/usr/bin/env python3
"""CPU time of the proxy for one complete P+D request, beside nginx and HAProxy.

Every subject stands before the same two stub engines and is loaded by the same
closed loop of 16 keep-alive clients (baton-bench). Rounds are interleaved, so
that whatever else the machine does falls on all subjects alike.

    baton     client -> baton-proxy (one worker) -> stub P, then stub D
    nginx     client -> nginx -> stub P      plus     client -> nginx -> stub D
    haproxy   the same

nginx and HAProxy cannot do two legs, so theirs is the sum of proxying the P
call and the D call, each with the body that the leg would have: they do not
read the bodies, and never make a D call out of a P answer. It is a floor.

The figure is the process CPU clock (user and system, nanoseconds, all threads)
of the subject over the window, divided by the requests that were answered.

Only the standard library is needed, and Debian's nginx and haproxy.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "deploy"))

import ports  # noqa: E402

WORDS = "the prefill engine hands its blocks to a decode engine and the answer flows to the client word by word".split()
SIZES = {"2k": 2048, "512k": 524288}
KINDS = ("json", "sse64")

NGINX = """daemon off;
master_process off;
worker_processes 1;
pid {run}/nginx-{port}.pid;
error_log {run}/nginx-{port}.log crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_buffer_size 2m;
    client_max_body_size 64m;
    client_body_temp_path {run}/body-{port};
    proxy_temp_path {run}/proxy-{port};
    fastcgi_temp_path {run}/fastcgi-{port};
    uwsgi_temp_path {run}/uwsgi-{port};
    scgi_temp_path {run}/scgi-{port};
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    upstream engine {{
        server 127.0.0.1:{upstream};
        keepalive 256;
        keepalive_requests 1000000000;
        keepalive_timeout 600s;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""

HAPROXY = """global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    http-reuse always
    option http-keep-alive
frontend clients
    bind 127.0.0.1:{port}
    default_backend engine
backend engine
    server one 127.0.0.1:{upstream}
"""


def dump(value):
    return json.dumps(value, separators=(",", ":"))


def make_body(size, kind):
    """A chat request of exactly `size` bytes."""
    user = {"role": "user", "content": ""}
    body = {"model": "stub"}
    if kind == "sse64":
        body.update(stream=True, stream_options={"include_usage": True})
    body.update(max_tokens=64, temperature=0.7, messages=[user])
    room = size - len(dump(body))
    text = " ".join(WORDS)
    user["content"] = (text + " ") * (room // (len(text) + 1) + 1)
    user["content"] = user["content"][:room]
    assert len(dump(body)) == size
    return body


def prefill_body(body):
    """What the P leg of that request carries (connector nixl)."""
    leg = {key: value for key, value in body.items() if key != "stream_options"}
    leg["max_tokens"] = 1
    leg["ignore_eos"] = True
    if "stream" in leg:
        leg["stream"] = False
    leg["kv_transfer_params"] = {
        "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None,
        "remote_block_ids": None, "remote_host": None, "remote_port": None}
    return leg


def decode_body(body):
    """What the D leg carries: the params that the stub P answers with."""
    params = {
        "do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": "stub-prefill",
        "remote_block_ids": [list(range(1000, 1032))], "remote_host": "127.0.0.1", "remote_port": 10001,
        "tp_size": 1, "remote_request_id": "stub-1"}
    return {**body, "kv_transfer_params": params}


def wait_for(port, process, name, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"compare_http: {name} ended with status {process.returncode} before it listened")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"compare_http: {name} does not listen on port {port} after {seconds} s")


def cpu_ns(pid):
    """The CPU clock of another process (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns((~pid << 3) | 2)


class Fleet:
    """The processes of the comparison; all are ended with it."""

    def __init__(self, args, run):
        self.args = args
        self.run = run
        self.processes = []
        self.held = []

    def hold_port(self):
        self.held.append(ports.Held())
        return self.held[-1].port

    def start(self, name, command, port, core):
        log = open(os.path.join(self.run, f"{name}.log"), "wb")
        if core is not None:
            command = ["taskset", "-c", str(core), *command]
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        self.processes.append(process)
        wait_for(port, process, name)
        return process.pid

    def conf(self, name, text, **values):
        path = os.path.join(self.run, f"{name}.conf")
        with open(path, "w", encoding="ascii") as file:
            file.write(text.format(run=self.run, **values))
        return path

    def stub(self, role):
        port = self.hold_port()
        self.start(f"stub-{role}", [self.args.stub, "--listen", f"127.0.0.1:{port}", "--role", role], port,
                   self.args.load_core)
        return port

    def nginx(self, leg, upstream):
        port = self.hold_port()
        path = self.conf(f"nginx-{leg}", NGINX, port=port, upstream=upstream)
        return port, self.start(f"nginx-{leg}", ["nginx", "-p", self.run, "-c", path], port, self.args.subject_core)

    def haproxy(self, leg, upstream):
        port = self.hold_port()
        path = self.conf(f"haproxy-{leg}", HAPROXY, port=port, upstream=upstream)
        return port, self.start(f"haproxy-{leg}", ["haproxy", "-db", "-q", "-f", path], port, self.args.subject_core)

    def baton(self, prefill, decode):
        port = self.hold_port()
        command = [self.args.proxy, "--listen", f"127.0.0.1:{port}", "--workers", "1", "--connector", "nixl",
                   "--prefill", f"http://127.0.0.1:{prefill}", "--decode", f"http://127.0.0.1:{decode}",
                   "--set", "log.access=off", "--set", "log.level=warn"]
        return port, self.start("baton", command, port, self.args.subject_core)

    def end(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measure(args, port, pid, body, seconds):
    """One window: CPU us per answered request, and requests a second."""
    command = [args.bench, "--url", f"http://127.0.0.1:{port}", "--concurrency", str(args.clients),
               "--duration", f"{int(seconds * 1000)}ms", "--body", body, "--quiet", "--json", "-"]
    if args.load_core is not None:
        command = ["taskset", "-c", str(args.load_core), *command]
    before = cpu_ns(pid)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    used = cpu_ns(pid) - before
    if done.returncode == 2 or not done.stdout:
        sys.exit(f"compare_http: baton-bench ended with status {done.returncode}")
    report = json.loads(done.stdout)
    requests = report["requests"]
    if requests["ok"] == 0 or requests["ok"] != requests["total"]:
        sys.exit(f"compare_http: port {port}: {requests['total'] - requests['ok']} of {requests['total']} requests "
                 f"failed: {requests['first_failure']}")
    return used / 1000 / requests["ok"], report["run"]["good_rate"]


def subjects(fleet, args, prefill, decode):
    """name: list of (port, pid, leg); the CPU of the list is summed."""
    found = {}
    if args.proxy:
        found["baton"] = [(*fleet.baton(prefill, decode), "")]
    if shutil.which("nginx"):
        found["nginx"] = [(*fleet.nginx("p", prefill), "-p"), (*fleet.nginx("d", decode), "-d")]
    if shutil.which("haproxy"):
        found["haproxy"] = [(*fleet.haproxy("p", prefill), "-p"), (*fleet.haproxy("d", decode), "-d")]
    return found


def write_bodies(run, sizes):
    for size in sizes:
        for kind in KINDS:
            body = make_body(SIZES[size], kind)
            for leg, value in (("", body), ("-p", prefill_body(body)), ("-d", decode_body(body))):
                with open(os.path.join(run, f"{size}-{kind}{leg}.json"), "w", encoding="ascii") as file:
                    file.write(dump(value))


def run_rounds(args, run, found):
    """cell -> subject -> list of CPU us, one a round."""
    samples = {}
    names = list(found)
    for number in range(args.rounds + 1):
        order = names[number % len(names):] + names[:number % len(names)]
        for size in args.sizes:
            for kind in KINDS:
                for name in order:
                    total = 0.0
                    for port, pid, leg in found[name]:
                        body = os.path.join(run, f"{size}-{kind}{leg}.json")
                        total += measure(args, port, pid, body, args.seconds if number else 0.3)[0]
                    # round 0 warms caches and connections up
                    if number:
                        samples.setdefault(f"{size} {kind}", {}).setdefault(name, []).append(total)
        print(f"compare_http: round {number} of {args.rounds} done", file=sys.stderr)
    return samples


def summary(samples):
    rows = []
    for cell, by_name in samples.items():
        medians = {name: statistics.median(values) for name, values in by_name.items()}
        peers = [value for name, value in medians.items() if name != "baton"]
        row = {"case": cell, "cpu_us": {}}
        for name, values in by_name.items():
            row["cpu_us"][name] = {"min": min(values), "median": medians[name], "max": max(values)}
        row["ratio"] = medians["baton"] / min(peers) if "baton" in medians and peers else None
        rows.append(row)
    return rows


def table(rows):
    names = list(rows[0]["cpu_us"])
    lines = ["| CPU µs per request: median (min–max) | " + " | ".join(names) + " | baton / lower of the others |",
             "|---|" + "---|" * (len(names) + 1)]
    for row in rows:
        cells = []
        for name in names:
            value = row["cpu_us"][name]
            cells.append(f"{value['median']:.1f} ({value['min']:.1f}–{value['max']:.1f})")
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
        lines.append(f"| {row['case']} | " + " | ".join(cells) + f" | {ratio} |")
    return "\n".join(lines)


def parse():
    here = os.path.dirname(os.path.abspath(__file__))
    build = os.path.join(os.path.dirname(here), "build", "release")
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=build, help="build folder with the programs (default: build/release)")
    parser.add_argument("--no-proxy", action="store_true", help="measure nginx and HAProxy alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one window (default 1)")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--json", metavar="FILE", help="write the figures there as JSON")
    parser.add_argument("--no-pin", action="store_true", help="do not bind subjects and load to cores of their own")
    args = parser.parse_args()
    args.bench = os.path.join(args.build, "bench", "baton-bench")
    args.stub = os.path.join(args.build, "bench", "stub-engine")
    args.proxy = None if args.no_proxy else os.path.join(args.build, "proxy", "baton-proxy")
    for path in filter(None, (args.bench, args.stub, args.proxy)):
        if not os.access(path, os.X_OK):
            parser.error(f"{path} is not there; build it, or name the build folder with --build")
    pinned = len(cores) > 1 and not args.no_pin
    args.load_core = cores[0] if pinned else None
    args.subject_core = cores[-1] if pinned else None
    return args


def main():
    args = parse()
    with tempfile.TemporaryDirectory(prefix="compare_http-") as run:
        fleet = Fleet(args, run)
        try:
            write_bodies(run, args.sizes)
            found = subjects(fleet, args, fleet.stub("prefill"), fleet.stub("decode"))
            if not found:
                sys.exit("compare_http: nothing to measure: no proxy, no nginx, no haproxy")
            rows = summary(run_rounds(args, run, found))
        finally:
            fleet.end()
    print(table(rows))
    if args.json:
        with open(args.json, "w", encoding="ascii") as file:
            json.dump({"schema": "baton-compare-http/1", "clients": args.clients, "rounds": args.rounds,
                       "seconds": args.seconds, "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
