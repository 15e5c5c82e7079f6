"""Forks vLLM servers from one process that has imported vLLM once.

Orders come as JSON lines on standard input, answers go to standard output:

    {"args": [...], "env": {...}, "core": 0, "polls": false, "log": "FILE"}
        ->  {"pid": N}

Each server is the head of its own process group. Two things differ from `python
-m vllm.entrypoints.openai.api_server`: engine core and worker are forked too,
and where they would poll they sleep, unless `polls`. All end when standard
input does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from typing import Any

_DEFAULTS = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


def load() -> Any:
    """Imports all that a server needs; its entry module."""
    os.environ.update(_DEFAULTS)
    import torch
    import vllm.distributed.device_communicators.shm_broadcast
    import vllm.entrypoints.launchers.api_server.entry as entry
    import vllm.entrypoints.openai.api_server
    import vllm.model_executor.models.llama
    import vllm.utils.system_utils
    import vllm.v1.attention.backends.cpu_attn
    import vllm.v1.engine.async_llm
    import vllm.v1.engine.coordinator
    import vllm.v1.engine.core
    import vllm.v1.engine.utils
    import vllm.v1.executor.multiproc_executor
    import vllm.v1.worker.cpu_model_runner
    import vllm.v1.worker.cpu_worker

    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    for module in (
        vllm.utils.system_utils,
        vllm.v1.engine.utils,
        vllm.v1.engine.coordinator,
        vllm.v1.executor.multiproc_executor,
    ):
        module.get_mp_context = lambda: context  # type: ignore[attr-defined]
    return entry


def poll_slowly() -> None:
    """A vLLM process polls its queue for a second before it waits in the kernel.
    With three engines on two cores those that poll starve those that compute."""
    import vllm.distributed.device_communicators.shm_broadcast as shm_broadcast

    shm_broadcast.sched_yield = lambda: time.sleep(0.0002)


def serve(entry: Any, order: dict[str, Any]) -> None:
    os.setsid()
    if not order["polls"]:
        poll_slowly()
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.environ.update(order["env"])
    if order.get("core") is not None:
        os.sched_setaffinity(0, {order["core"]})
    log = os.open(order["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    sys.path[:0] = [p for p in order["env"].get("PYTHONPATH", "").split(":") if p]
    sys.argv = ["vllm", *order["args"]]
    entry.main()


def end_all(pids: list[int]) -> None:
    for number, wait_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 0.0)):
        for pid in pids:
            try:
                os.killpg(pid, number)
            except ProcessLookupError:
                continue
        end = time.monotonic() + wait_s
        while time.monotonic() < end and any(os.path.exists(f"/proc/{p}") for p in pids):
            time.sleep(0.05)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is no answer
    entry = load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Whoever ends the tests closes our input, and only then the engines end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    answers.write("{}\n")
    answers.flush()
    pids = []
    while True:
        # Unbuffered: a child must not find the next order in its copy.
        line = _read_line()
        if not line:
            break
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                serve(entry, order)
            finally:
                os._exit(1)
        pids.append(pid)
        answers.write(json.dumps({"pid": pid}) + "\n")
        answers.flush()
    end_all(pids)


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


if __name__ == "__main__":
    main()
