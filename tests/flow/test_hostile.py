"""Hostile clients, broken engines and unlucky days: the proxy answers cleanly and lives on."""
import json
import os
import resource
import select
import signal
import socket
import subprocess

import pytest

import cluster as c
import stub

ONE_WORKER = ["--workers", "1"]


def bare(tmp_path, flags=ONE_WORKER):
    """A cluster before stubs whose proxy the test starts by itself, in its own surroundings."""
    one = stub.StockCluster(tmp_path, proxy_flags=flags)
    one.proxy = one.add(c.Proxy(one, flags))
    return one


def popen(one, argv=None, **more):
    """Starts the proxy with given descriptors; its log gets what is not given."""
    with open(one.proxy.log, "ab") as log:
        one.proxy.log_at = 0
        one.proxy.process = subprocess.Popen(argv or one.proxy.argv, **dict({"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}, **more))

    def answers():
        try:
            return one.proxy.get("/ready")[0] == 200
        except OSError:
            assert one.proxy.alive(), one.proxy.text()
            return False
    c.eventually(answers, 10, "ready")
    return one.proxy


def asks(proxy, times=1):
    for _ in range(times):
        status, body, _ = proxy.ask(body={"model": "m", "prompt": "hi"}, timeout=20)
        assert status == 200, (status, body)


@pytest.fixture
def bare_proxy(tmp_path):
    one = bare(tmp_path)
    yield one
    one.end()


def test_closed_standard_descriptors_are_given_to_nobody(bare_proxy):
    proxy = popen(bare_proxy, ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", *bare_proxy.proxy.argv])
    asks(proxy, 3)
    for fd in range(3):
        assert os.readlink("/proc/%d/fd/%d" % (proxy.process.pid, fd)) == "/dev/null"


def test_a_log_that_nobody_reads_stops_nothing(bare_proxy):
    reading, writing = os.pipe()
    proxy = popen(bare_proxy, [*bare_proxy.proxy.argv, "--set", "log.level=debug"], stderr=writing)
    os.close(writing)
    asks(proxy, 600)
    assert select.select([reading], [], [], 0)[0]
    proxy.process.terminate()
    assert proxy.process.wait(10 * c.PATIENCE) == 0
    os.close(reading)


def test_an_access_log_whose_reader_is_stuck_or_gone_stops_nothing(bare_proxy):
    reading, writing = os.pipe()
    proxy = popen(bare_proxy, stdout=writing)
    asks(proxy, 400)  # more than a pipe holds
    lines = os.read(reading, 1 << 20).split(b"\n")
    assert len(lines) > 50 and all(json.loads(line)["code"] == 200 for line in lines[:-1])
    asks(proxy)
    os.close(reading)
    asks(proxy, 2)
    os.close(writing)
    c.eventually(lambda: proxy.metric("baton_access_log_dropped_total") > 0, 5, "dropped lines are counted")


def test_a_full_disk_stops_nothing(bare_proxy):
    with open("/dev/full", "wb") as full:
        proxy = popen(bare_proxy, stdout=full)
    asks(proxy, 3)
    c.eventually(lambda: proxy.metric("baton_access_log_dropped_total") >= 3, 5, "dropped lines are counted")


def test_a_line_that_a_full_disk_cut_spoils_no_other(bare_proxy, tmp_path):
    access = tmp_path / "access"
    argv = ["prlimit", "--fsize=4000:unlimited", *bare_proxy.proxy.argv, "--set", "log.access=%s" % access]
    proxy = popen(bare_proxy, argv, stderr=subprocess.DEVNULL)  # its own log would be cut too
    asks(proxy, 20)
    told = lambda: (proxy.metric("baton_access_log_dropped_total"), access.read_bytes().count(b"\n"))
    c.eventually(lambda: sum(told()) == 20, 5, "the disk is full, and every line was tried")
    assert told()[0] > 5
    cut = access.read_bytes()
    assert len(cut) == 4000 and not cut.endswith(b"\n")
    resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    asks(proxy, 3)
    lines = lambda: access.read_bytes()[len(cut):].split(b"\n")
    c.eventually(lambda: len(lines()) == 5, 5, "there is room again")
    assert lines()[0] == lines()[-1] == b"" and [json.loads(line)["code"] for line in lines()[1:-1]] == [200] * 3


def test_signals_meant_for_other_servers_end_nothing(bare_proxy):
    proxy = popen(bare_proxy)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        proxy.signal(number)
        c.eventually(lambda: " %s: " % number.name[3:] in proxy.text(), 5, "%s is logged" % number.name)
    asks(proxy)


def test_signals_that_come_before_the_proxy_is_ready_end_nothing(bare_proxy, tmp_path):
    fifo = tmp_path / "config"
    os.mkfifo(fifo)
    proxy = bare_proxy.proxy
    proxy.argv += ["--config", str(fifo)]
    proxy.start()
    with open(fifo, "w"):  # from here on the program reads
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
            proxy.signal(number)
    asks(proxy.wait_ready())


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_renamed_logs_are_opened_anew_and_no_line_is_lost(bare_proxy, tmp_path, number):
    access, old, program = tmp_path / "access", tmp_path / "access.1", tmp_path / "program"
    proxy = popen(bare_proxy, [*bare_proxy.proxy.argv, "--set", "log.access=%s" % access], stderr=open(program, "wb"))
    lines = lambda path: path.read_text().count("\n") if path.exists() else 0
    asks(proxy, 2)
    c.eventually(lambda: lines(access) == 2, 5, "two lines")
    access.rename(old)
    program.rename(tmp_path / "program.1")
    asks(proxy)
    c.eventually(lambda: lines(old) == 3, 5, "the old file is written until the signal")
    proxy.signal(number)
    c.eventually(lambda: "2 log files were opened anew" in program.read_text() if program.exists() else False, 5, "the new file")
    asks(proxy, 2)
    c.eventually(lambda: lines(access) == 2, 5, "two lines in the new file")
    assert lines(old) == 3
    access.rename(old)
    access.mkdir()
    proxy.signal(number)
    c.eventually(lambda: "cannot be opened anew: Is a directory" in program.read_text(), 5, "the reason")
    asks(proxy)
    c.eventually(lambda: lines(old) == 3, 5, "the old file is kept")


def test_clients_that_only_connect_leave_descriptors_for_work(bare_proxy):
    proxy = popen(bare_proxy, ["prlimit", "--nofile=160:160", *bare_proxy.proxy.argv])
    proxy.ask(body={"model": "m", "prompt": "hi"})
    crowd = []
    try:
        first = socket.create_connection(("127.0.0.1", proxy.port), 20)
        for _ in range(300):
            crowd.append(socket.create_connection(("127.0.0.1", proxy.port), 20))
        body = b'{"model":"m","prompt":"hi"}'
        crowd[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert crowd[-1].recv(4096).startswith(b"HTTP/1.1 200 ")
        assert first.recv(4096) == b""  # idle longest, it gave way
        assert proxy.metric("baton_client_connections") < 160
        assert all(e["usable"] for e in proxy.engines()["engines"])
        first.close()
    finally:
        for one in crowd:
            one.close()
    c.eventually(lambda: proxy.metric("baton_client_connections") <= 1, 5, "the crowd is gone")
    asks(proxy)


# An engine that closes where its answer ends: a dying one does the same.
def by_close(body):
    def script(request):
        request.handler.close_connection = True
        request.handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body)
    return script


@pytest.mark.parametrize("body", [b'{"choices":[{"text":"hel', b"", b'{"choices":[{"text":"' + b"x" * 200000], ids=["short", "empty", "long"])
def test_half_a_json_answer_is_never_taken_for_a_whole_one(stock, body):
    one = stock(proxy_flags=["--set", "retry.attempts=0"])
    one.d.script = by_close(body)
    try:
        status, answer, _ = one.proxy.ask(body={"model": "m", "prompt": "hi"})
        assert status == 502 and answer["error"]["code"] == "decode_bad_answer"
    except c.http.client.IncompleteRead:
        assert len(body) > 65536
    one.d.script = by_close(b'{"choices":[{"text":"hello"}]}')
    assert one.proxy.ask(body={"model": "m", "prompt": "hi"})[0] == 200


def test_a_coded_answer_cannot_carry_private_members_past_the_proxy(stock):
    one = stock(proxy_flags=["--set", "retry.attempts=0"])

    def script(request):
        request.handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde")
    one.d.script = script
    status, answer, _ = one.proxy.ask(body={"model": "m", "prompt": "hi"})
    assert status == 502 and answer["error"]["code"] == "decode_bad_answer"
    assert one.d.seen[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("text", [b"\xff\xfe\"\\{}", b"\xc3" * 300, "\u00e9".encode() * 200], ids=["invalid", "cut", "long"])
def test_whatever_a_client_sends_the_access_log_is_lines_of_json(stock, text):
    one = stock()
    body = b'{"model":"m","prompt":"hi"}'
    with socket.create_connection(("127.0.0.1", one.proxy.port), 20) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Request-Id: " + text + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
        while s.recv(65536):
            pass
    lines = c.eventually(lambda: [line for line in one.proxy.log.read_bytes().split(b"\n") if line.startswith(b"{")], 5, "a line")
    assert json.loads(lines[-1].decode("utf-8", "strict"))["code"] == 200
