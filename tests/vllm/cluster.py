"""vLLM engines and baton-proxy as processes, for tests.

    Zygote ── forks ──► Engine P, Engine D, Engine alone (the truth)
    Proxy                                   all on loopback, ports of ours

A port is the kernel's choice and held for its program until the tests end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import ports  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BATON_BUILD", ROOT / "build/release"))
MODELS = pathlib.Path(os.environ.get("BATON_VLLM_MODELS", ROOT / ".cache/vllm/models"))
PATIENCE = float(os.environ.get("BATON_PATIENCE", "1"))
CACHE = MODELS.parent / "cache"
START_S = 240 * PATIENCE
# A connection a request, as engines come and go; made once, as it reads the
# certificates of the world.
HTTP = httpx.Client(
    limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
    timeout=120,
    trust_env=False,
)
# With bfloat16 a lone vLLM itself says something else when asked again: what a
# prefix hit leaves to compute is rounded otherwise (5 of 40 prompts).
EXACT = "float32"


def wait_for(what: str, seconds: float, is_true: Callable[[], Any]) -> Any:
    """The first true value; AssertionError with `what` after the time."""
    end = time.monotonic() + seconds * PATIENCE
    while True:
        value = is_true()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


_held: list[ports.Held] = []


def hold_port() -> int:
    """Ours until the tests end."""
    _held.append(ports.Held())
    return _held[-1].port


def listens(pid: int, port: int) -> bool:
    """Does a process of the group of `pid` listen on this port?"""
    inodes = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and int(fields[1].split(":")[1], 16) == port:
            inodes.add(f"socket:[{fields[9]}]")
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(fd) in inodes:
                return True
    return False


def is_alive(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def group_pids(pid: int) -> list[int]:
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == pid and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found


def end_group(pid: int, seconds: float = 10) -> None:
    """TERM, then KILL, to the group, and waits until it is gone."""
    for number, wait_s in ((signal.SIGCONT, 0.0), (signal.SIGTERM, seconds)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        end = time.monotonic() + wait_s
        while time.monotonic() < end and group_pids(pid):
            time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    wait_for("the group is gone", 10, lambda: not group_pids(pid))


def metric_of(url: str, name: str, labels: str) -> float:
    """The sum of a metric's samples; 0 where there is none."""
    total = 0.0
    for line in HTTP.get(f"{url}/metrics", timeout=20).text.splitlines():
        match = re.match(rf"{re.escape(name)}(\{{[^}}]*\}})? (\S+)", line)
        if match and labels in (match.group(1) or ""):
            total += float(match.group(2))
    return total


class Zygote:
    """The process that forks engines; see launcher.py."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/vllm/launcher.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "zygote.log").open("w"),
            env={**os.environ, "VLLM_CACHE_ROOT": str(CACHE)},
        )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "vLLM cannot be imported; see zygote.log"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def fork(self, order: dict[str, Any]) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        pid: int = self._answer()["pid"]
        return pid

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclasses.dataclass
class Engine:
    """One vLLM server."""

    name: str
    model: str
    port: int
    log: pathlib.Path
    transfer: dict[str, Any] | None = None
    core: int | None = None
    flags: list[str] = dataclasses.field(default_factory=list)
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    kv_bytes: int = 134217728
    dtype: str = EXACT
    polls: bool = False  # as a stock vLLM, to be measured; see launcher.py
    pid: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def args(self) -> list[str]:
        args = [
            "--model", str(MODELS / self.model), "--served-model-name", "m",
            "--host", "127.0.0.1", "--port", str(self.port),
            "--max-model-len", "2048", "--enforce-eager",
            "--kv-cache-memory-bytes", str(self.kv_bytes), "--dtype", self.dtype,
            "--enable-prompt-tokens-details", *self.flags,
        ]  # fmt: skip
        if self.transfer is not None:
            args += ["--kv-transfer-config", json.dumps(self.transfer)]
        return args

    def order(self) -> dict[str, Any]:
        env = {
            "PYTHONPATH": f"{ROOT / 'agent/vllm/src'}:{ROOT / 'tests/vllm'}",
            "BATON_LIBRARY": str(BUILD / "agent/libbaton.so"),
            "VLLM_CACHE_ROOT": str(CACHE),
            **self.env,
        }
        return {
            "args": self.args(),
            "env": env,
            "core": self.core,
            "polls": self.polls,
            "log": str(self.log),
        }

    def start(self, zygote: Zygote) -> None:
        self.pid = zygote.fork(self.order())

    def spawn(self) -> None:
        """Starts it as a user does."""
        order = self.order()
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *self.args()],
            stdin=subprocess.DEVNULL,
            stdout=self.log.open("a"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                **order["env"],
            },
        )
        self.pid = process.pid
        self._process = process  # reaped when it goes

    def is_ready(self) -> bool:
        assert is_alive(self.pid), f"{self.name} ended:\n{self.tail()}"
        with contextlib.suppress(httpx.HTTPError, OSError):
            return (
                HTTP.get(f"{self.url}/health", timeout=5).status_code == 200
                and listens(self.pid, self.port)
            )
        return False

    def wait_ready(self) -> None:
        wait_for(f"{self.name} is ready", START_S, self.is_ready)

    def tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        if self.pid:
            end_group(self.pid)
            with contextlib.suppress(AttributeError):
                self._process.wait()
            self.pid = 0

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        wait_for(f"{self.name} is gone", 10, lambda: not group_pids(self.pid))
        self.pid = 0

    def signal(self, number: int) -> None:
        os.killpg(self.pid, number)

    def metric(self, name: str, labels: str = "") -> float:
        return metric_of(self.url, name, labels)

    def is_empty(self) -> bool:
        """No block is used and no request is there."""
        return (
            self.metric("vllm:kv_cache_usage_perc") == 0
            and self.metric("vllm:num_requests_running") == 0
            and self.metric("vllm:num_requests_waiting") == 0
        )

    def rss(self) -> dict[int, int]:
        """Bytes in memory of each process."""
        sizes = {}
        for pid in group_pids(self.pid):
            with contextlib.suppress(OSError):
                pages = pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]
                sizes[pid] = int(pages) * os.sysconf("SC_PAGESIZE")
        return sizes

    def cpu_s(self) -> float:
        ticks = 0
        for pid in group_pids(self.pid):
            with contextlib.suppress(OSError):
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
                fields = stat.rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


class Proxy:
    """baton-proxy before one P and one D."""

    def __init__(
        self,
        folder: pathlib.Path,
        prefill: list[str],
        decode: list[str],
        connector: str = "baton",
        settings: tuple[str, ...] = (),
        agents: int = 0,
        key_file: pathlib.Path | None = None,
    ) -> None:
        self.log = folder / "proxy.log"
        self.port, self.admin_port = hold_port(), hold_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin = f"http://127.0.0.1:{self.admin_port}"
        self.args = [
            str(BUILD / "proxy/baton-proxy"),
            "--listen", f"127.0.0.1:{self.port}",
            "--admin", f"127.0.0.1:{self.admin_port}",
            "--workers", "1", "--connector", connector,
        ]  # fmt: skip
        if connector == "baton":
            self.args += ["--agents", f"127.0.0.1:{agents}"]
            if key_file is not None:
                self.args += ["--agent-key", str(key_file)]
        for setting in settings:
            self.args += ["--set", setting]
        for url in prefill:
            self.args += ["--prefill", url]
        for url in decode:
            self.args += ["--decode", url]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.args,
            stdin=subprocess.DEVNULL,
            stdout=self.log.open("a"),
            stderr=subprocess.STDOUT,
        )
        wait_for("the proxy listens", 20, self._listens)

    def _listens(self) -> bool:
        text = self.log.read_text()
        assert self.process is not None and self.process.poll() is None, text[-3000:]
        return "ready on" in text

    def is_ready(self) -> bool:
        assert self._listens()
        with contextlib.suppress(httpx.HTTPError):
            return HTTP.get(f"{self.url}/ready", timeout=5).status_code == 200
        return False

    def wait_ready(self) -> None:
        wait_for("the proxy has a pair of engines", 60, self.is_ready)

    def handoffs(self) -> dict[str, Any]:
        answer: dict[str, Any] = HTTP.get(f"{self.admin}/handoffs", timeout=10).json()
        return answer

    def engine(self, url: str) -> dict[str, Any]:
        """What /engines says of one."""
        answer = HTTP.get(f"{self.admin}/engines", timeout=10).json()
        found: dict[str, Any]
        (found,) = (item for item in answer["engines"] if item["url"] == url)
        return found

    def metric(self, name: str, labels: str = "") -> float:
        return metric_of(self.admin, name, labels)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.log.write_text("")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def restart(self, args: list[str]) -> None:
        self.stop()
        self.log.write_text("")
        self.args = args
        self.start()
        self.wait_ready()

    def may_read(self, reader: str, source: str) -> bool:
        """Has the decode engine at one URL met the prefill engine at the other?"""
        answer = HTTP.get(f"{self.admin}/engines", timeout=10).json()
        return any(
            item["url"] == reader and source in item.get("paired_with", [])
            for item in answer["engines"]
        )


def baton_transfer(role: str, agents: int, url: str, **extra: Any) -> dict[str, Any]:
    """What a user types after --kv-transfer-config."""
    return {
        "kv_connector": extra.pop("connector", "BatonConnector"),
        "kv_connector_module_path": extra.pop("module", "baton_vllm"),
        "kv_role": role,
        "kv_connector_extra_config": {
            "agents": f"127.0.0.1:{agents}",
            "url": url,
            **extra,
        },
    }


def nixl_env() -> dict[str, str]:
    """Where the engines of vLLM's own connector meet."""
    return {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(hold_port()),
    }


class Pair:
    """P, D and a proxy of one model; `alone` is the truth."""

    def __init__(self, folder: pathlib.Path, model: str, **options: Any) -> None:
        self.folder = folder
        self.model = model
        self.agents = hold_port()
        self.key_file = folder / "agent.key"
        self.key_file.touch(mode=0o600)
        self.key_file.write_text(secrets.token_hex(16) + "\n")
        role = options.pop("role", None)
        settings = options.pop("settings", ())
        flags = options.pop("flags", [])
        transfer = options.pop("transfer", {})
        connector = options.pop("connector", "baton")
        self.engines = []
        for number, (name, kv_role) in enumerate(
            (("p", "kv_producer"), ("d", "kv_consumer"))
        ):
            port = hold_port()
            own = {"core": number % (os.cpu_count() or 1), **options}
            if connector == "nixl":
                config = {"kv_connector": "NixlConnector", "kv_role": role or kv_role}
                own["env"] = {**own.get("env", {}), **nixl_env()}
            else:
                config = baton_transfer(
                    role or kv_role,
                    self.agents,
                    f"http://127.0.0.1:{port}",
                    key_file=str(self.key_file),
                    **transfer,
                )
            log = folder / f"{name}.log"
            self.engines.append(
                Engine(name, model, port, log, config, flags=[*flags], **own)
            )
        self.p, self.d = self.engines
        self.proxy = Proxy(
            folder,
            [self.p.url],
            [self.d.url],
            connector,
            settings,
            agents=self.agents,
            key_file=self.key_file,
        )

    def start(self, zygote: Zygote) -> None:
        for engine in self.engines:
            engine.start(zygote)
        self.proxy.start()
        for engine in self.engines:
            engine.wait_ready()
        self.proxy.wait_ready()

    def settle(self, seconds: float = 10) -> None:
        """Both engines give all blocks back."""
        for engine in self.engines:
            wait_for(f"{engine.name} is empty", seconds, engine.is_empty)

    def stop(self) -> None:
        for engine in self.engines:
            engine.stop()
        self.proxy.stop()


_WORDS = (
    "stone river night paper green seven window salt winter copper garden "
    "letter bridge number island yellow engine market silver thunder"
).split()


def words(count: int, rng: random.Random) -> str:
    """Fresh text of about `count` tokens."""
    return " ".join(rng.choice(_WORDS) for _ in range(count))


def tokens(count: int, rng: random.Random) -> list[int]:
    """A fresh prompt as token ids, none of them special."""
    return [rng.randrange(1000, 40000) for _ in range(count)]


def complete(url: str, prompt: Any, count: int = 16, **more: Any) -> dict[str, Any]:
    """A greedy completion, whole."""
    body = {
        "model": "m", "prompt": prompt, "max_tokens": count, "temperature": 0,
        "ignore_eos": True, **more,
    }  # fmt: skip
    answer = HTTP.post(f"{url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["text"]
    return text


def events(url: str, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The JSON events of a stream; asserts that it ends with [DONE]."""
    with HTTP.stream("POST", f"{url}{path}", json=body, timeout=120) as answer:
        assert answer.status_code == 200, answer.read()
        last = ""
        for line in answer.iter_lines():
            if line.startswith("data: "):
                last = line[6:]
                if last != "[DONE]":
                    yield json.loads(last)
        assert last == "[DONE]"


def stream_text(url: str, prompt: Any, count: int = 16) -> str:
    body = {
        "model": "m", "prompt": prompt, "max_tokens": count, "temperature": 0,
        "ignore_eos": True, "stream": True,
    }  # fmt: skip
    return "".join(
        event["choices"][0]["text"]
        for event in events(url, "/v1/completions", body)
        if event["choices"]
    )
