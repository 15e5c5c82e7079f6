"""Bad flags and files: what the program says, and that it ends with 2."""
import re
import socket
import subprocess

import pytest

import cluster as c

LONE = ["--connector", "none", "--decode", "http://127.0.0.1:9"]


def run(*argv, program=None):
    """(status, stdout, stderr) of a program that must end by itself."""
    done = subprocess.run([str(program or c.PROXY), *map(str, argv)], capture_output=True, text=True, timeout=20 * c.PATIENCE)
    assert not c.SANITIZER.search(done.stderr), done.stderr
    return done.returncode, done.stdout, done.stderr


def refused(*argv):
    """The one line on stderr of a run that must be refused."""
    status, out, err = run(*argv)
    assert (status, out) == (2, ""), (status, out, err)
    lines = err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("baton-proxy: "), err
    return lines[0][len("baton-proxy: "):]


@pytest.fixture
def file(tmp_path):
    def write(text, name="b.yaml", mode=0o600):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


@pytest.mark.parametrize(
    "argv, said",
    [
        (["--no-such-flag"], "--no-such-flag: unknown flag"),
        (["--lisen", "x"], "--lisen: unknown flag; did you mean --listen?"),
        (["word"], "word: unexpected argument; "),
        (["--listen"], "--listen: no value; write --listen ADDR"),
        (["--check=yes", *LONE], "--check: takes no value; "),
        (["--workers", "many", *LONE], '--workers: bad value "many" for workers; it takes a whole number from 0 to 1024, or auto'),
        (["--workers", "9999", *LONE], '--workers: out of range: "9999"'),
        (["--connector", "nosuch"], '--connector pools.0.connector: bad value "nosuch" for connector; it takes baton, nixl'),
        (["--set", "no.such.key=1"], '--set no.such.key: unknown setting "no"; '),
        (["--set", "limits.boddy=1MiB"], '--set limits.boddy: unknown setting "boddy"; did you mean "body"?'),
        (["--set", "limits"], '--set: no "="; '),
        (["--set", "timeouts.idle=30"], '--set timeouts.idle: bad value "30" for idle; it takes a duration such as 30s'),
        (["--config", "/no/such/file"], "/no/such/file: cannot read the file (No such file or directory); "),
        (["--config", "/"], "/: cannot read the file (Is a directory); "),
        ([], "pools: no engines; "),
        (["--prefill", "http://127.0.0.1:9"], "pools.0.decode.engines: no decode engine; "),
        (["--decode", "http://127.0.0.1:9"], "pools.0.connector: baton needs prefill engines; "),
        ([*LONE, "--decode", "ftp://x"], 'pools.0.decode.engines.1: bad URL "ftp://x"'),
        ([*LONE, "--decode", "https://127.0.0.1:9"], "pools.0.decode.engines.1: https://127.0.0.1:9: TLS towards engines is not built yet; "),
        ([*LONE, "--listen", "nonsense"], 'listen.0: bad address "nonsense"; write host:port'),
        ([*LONE, "--admin", "127.0.0.1:66000"], 'admin: bad address "127.0.0.1:66000"; '),
        ([*LONE, "--set", "names.servers=10.0.0.2:99999"], 'names.servers: bad DNS servers "10.0.0.2:99999"; write addresses'),
        ([*LONE, "--set", "names.servers=10.0.0.2,dns.test"], 'names.servers: bad DNS servers "10.0.0.2,dns.test"; '),
        ([*LONE, "--with-help"], "--with-help: belongs to --print-config; "),
        (["--prefill", "http://127.0.0.1:9", "--decode", "http://127.0.0.1:9"], "agents.listen: connector baton needs an address"),
    ],
)
def test_a_bad_command_line_is_explained(argv, said):
    line = refused(*argv)
    assert line.startswith(said), line


@pytest.mark.parametrize(
    "text, said",
    [
        ("lisen: x\n", '1:1: unknown setting "lisen"; did you mean "listen"?'),
        ("listen: [\n", "2:1: this is not YAML"),
        ("log: {level: info}\nlog: {level: warn}\n", "2:1: log is set twice here; "),
        ("limits:\n  body: &b 1MiB\n", "2:9: anchors (&name) are not read; "),
        ("limits:\n  <<: {body: 1MiB}\n", "2:3: merge keys (<<) are not read; "),
        ("log: {level: loud}\n", '1:14: bad value "loud" for level; it takes error, warn, info, debug or trace'),
        ("pools:\n  - decode: {engines: [http://a:1]}\n    prefil: x\n", '3:5: unknown setting "prefil"; did you mean "prefill"?'),
        ("a: b\n---\nc: d\n", '1:1: unknown setting "a"; known here: listen, admin, '),
        ("listen: 127.0.0.1:0\n---\nlisten: x\n", "2:1: a second document; "),
    ],
)
def test_a_bad_file_is_explained_with_its_place(file, text, said):
    path = file(text)
    line = refused("--config", path)
    assert line.startswith("%s:%s" % (path, said)), line


def test_a_file_that_is_too_large_is_refused(file):
    path = file("# " + "x" * (1 << 20) + "\n")
    assert refused("--config", path, *LONE).startswith("%s: larger than 1 MiB; " % path)


def test_pools_by_flag_beside_pools_in_the_file_are_refused(file):
    path = file("pools: [{connector: none, decode: 'http://127.0.0.1:9'}]\n")
    assert run("--config", path, "--check")[0] == 0
    for flags in (["--prefill", "http://127.0.0.1:8"], ["--decode", "http://127.0.0.1:8"], ["--connector", "nixl"]):
        line = refused("--config", path, *flags)
        assert line.startswith(flags[0] + ": the file has pools already; "), line


@pytest.mark.parametrize("where", ["agents.key_file", "auth.client_keys_file", "auth.admin_keys_file", "auth.engine_key_file", "pools.0.decode.engines.0.key_file"])
def test_a_secret_that_others_can_read_is_refused(file, where):
    path = file("secret\n", "key", 0o644)
    line = refused(*LONE, "--set", "%s=%s" % (where, path), "--check")
    assert "%s has mode 0644, so others can get at it; chmod 600 it" % path in line, line
    path.chmod(0o640)
    assert run(*LONE, "--set", "%s=%s" % (where, path), "--check")[0] == 0


def test_a_file_of_too_many_keys_is_refused_with_a_reason(file):
    path = file("# keys\n" + "".join("key-%d\n" % i for i in range(65537)), "keys")
    status, _, err = run(*LONE, "--listen", "127.0.0.1:0", "--set", "auth.client_keys_file=%s" % path)
    assert status == 1 and "line 65538: more than 65536 keys; " in err, err


def test_check_says_that_a_good_configuration_is_good():
    assert run(*LONE, "--check") == (0, "the configuration is good\n", "")


def test_check_says_what_engines_need_that_match_handoffs_by_request_ids():
    pair = ["--prefill", "http://127.0.0.1:9", "--decode", "http://127.0.0.1:10", "--check"]
    for connector, needs in (("tpu", True), ("mooncake-seq", True), ("nixl", False)):
        status, out, err = run("--connector", connector, *pair)
        assert (status, err, "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION=1" in out) == (0, "", needs), out


def test_the_printed_configuration_reads_back_as_itself(file):
    flags = ["--prefill", "http://127.0.0.1:8", "--decode", "http://127.0.0.1:9", "--connector", "nixl", "--set", "limits.body=3MiB"]
    status, printed, err = run(*flags, "--print-config")
    assert (status, err) == (0, "") and "body: 3MiB" in printed
    assert run("--config", file(printed), "--print-config")[1] == printed
    commented = run(*flags, "--print-config", "--with-help")[1]
    assert [l for l in commented.splitlines() if l.lstrip(" -")[:1] not in ("", "#")] != []
    assert run("--config", file(commented), "--print-config")[1] == printed


def test_flags_win_over_the_file(file):
    path = file("log: {level: error}\nworkers: 7\n")
    printed = run("--config", path, "--workers", "3", "--set", "log.level=debug", "--print-config")[1]
    assert re.search(r"^workers: 3$", printed, re.M) and re.search(r"^  level: debug$", printed, re.M)


@pytest.mark.parametrize("program", [c.PROXY, c.ENGINE], ids=["proxy", "engine"])
def test_help_and_version_end_with_0(program):
    status, out, err = run("--help", program=program)
    assert (status, err) == (0, "") and "usage: " in out and "--listen ADDR" in out
    status, out, err = run("--version", program=program)
    assert (status, err) == (0, "") and re.fullmatch(r"%s \d+\.\d+\.\d+\n" % program.name, out)


def test_the_ready_line_names_the_ports_that_the_system_chose(tmp_path):
    log = tmp_path / "proxy.log"
    proxy = c.Process("proxy", [c.PROXY, *LONE, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"], log)
    proxy.start()
    try:
        proxy.wait_ready()
        found = re.search(r"^baton-proxy: ready on 127\.0\.0\.1:(\d+) \(admin 127\.0\.0\.1:(\d+)", proxy.text(), re.M)
        assert found, proxy.text()
        assert c.http_json(int(found[1]), "GET", "/health")[0] == 200
        assert c.http_json(int(found[2]), "GET", "/handoffs")[0] == 200
    finally:
        said = proxy.end()
    assert said is None, said


@pytest.mark.parametrize("flag, setting", [("--listen", "[listen]"), ("--admin", "[admin]"), ("--agents", "[agents.listen]")])
def test_a_port_that_is_served_is_an_error_that_names_it(flag, setting):
    ports = [] if flag == "--listen" else ["--listen", "127.0.0.1:0"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        status, _, err = run(*LONE, *ports, flag, address)
    assert status == 1 and setting + " cannot listen on %s: address already in use; " % address in err, (status, err)


def test_a_port_that_another_proxy_serves_is_taken_though_its_workers_share_it(tmp_path):
    proxy = c.Process("proxy", [c.PROXY, *LONE, "--listen", "127.0.0.1:0", "--workers", "3"], tmp_path / "proxy.log")
    proxy.start()
    try:
        proxy.wait_ready()
        address = re.search(r"ready on (\S+)", proxy.text())[1]
        status, _, err = run(*LONE, "--listen", address, "--workers", "2")
        assert status == 1 and address in err, (status, err)
    finally:
        said = proxy.end()
    assert said is None, said


def test_a_port_of_the_tests_is_no_neighbours_while_its_program_is_down(lone):
    engine = lone()
    engine.kill()
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as neighbour, pytest.raises(OSError):
            neighbour.bind((address, engine.port))
    engine.start().wait_ready()
    assert engine.complete("hello")
