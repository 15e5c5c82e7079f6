#!/usr/bin/env python3
"""Time to the first token of real vLLM: alone, through Baton, through NIXL.

    baton:  client ─ baton-proxy ─ P, D with BatonConnector
    nixl:   client ─ baton-proxy ─ P, D with NixlConnector
    toy:    client ─ toy_proxy.py ┘

All in one run, interleaved: in each round every way gets the same number of
fresh prompts of each size. The pair that is not measured is stopped, because
idle NIXL workers spin. `direct` is the same pair's decode engine, asked without
a handoff. Run it in the environment that deploy/vllm.sh makes, with nixl:

    .cache/vllm/venv/bin/python bench/compare_vllm.py [--model tiny-llama] ...
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/vllm"))

import cluster  # noqa: E402
import httpx  # noqa: E402

WAYS = ("direct", "baton", "direct-nixl", "nixl", "toy")
STAGES = ("prefill", "decode http and queue", "pull", "first step")


class Nixl(cluster.Pair):
    """The same two engines with vLLM's own connector."""

    def __init__(self, folder: pathlib.Path, model: str, **options: Any) -> None:
        folder.mkdir()
        super().__init__(folder, model, connector="nixl", **options)
        self.toy_port = cluster.hold_port()
        self.toy: subprocess.Popen[bytes] | None = None

    def start(self, zygote: cluster.Zygote) -> None:
        super().start(zygote)
        self.toy = subprocess.Popen(
            [sys.executable, str(ROOT / "bench/toy_proxy.py"), str(self.toy_port),
             self.p.url, self.d.url],
            stderr=(self.folder / "toy.log").open("w"),
        )  # fmt: skip
        cluster.wait_for("the toy proxy listens", 60, self._toy_is_ready)

    @property
    def toy_url(self) -> str:
        return f"http://127.0.0.1:{self.toy_port}"

    def _toy_is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.toy_url}/health").status_code == 200
        return False

    def stop(self) -> None:
        if self.toy is not None:
            self.toy.terminate()
            self.toy.wait()
        super().stop()


def first_token_ms(client: httpx.Client, url: str, prompt: list[int]) -> float:
    body = {
        "model": "m", "prompt": prompt, "max_tokens": 3, "temperature": 0,
        "ignore_eos": True, "stream": True,
    }  # fmt: skip
    begin = time.perf_counter()
    first = None
    with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            raise RuntimeError(answer.read().decode())
        for line in answer.iter_lines():
            if first is None and line.startswith('data: {"id"'):
                first = time.perf_counter()
    if first is None:
        raise RuntimeError("no token came")
    return 1e3 * (first - begin)


def stages_ms(pair: cluster.Pair) -> list[float] | None:
    """Of the newest handoff, in the order of STAGES."""
    line = pair.proxy.handoffs()["recent"][0]["timeline"]
    points = [0] + [
        line[name]
        for name in ("decode_at_us", "pulling_at_us", "pulled_at_us", "first_token_us")
    ]
    if any(point is None for point in points):
        return None
    return [(b - a) / 1e3 for a, b in zip(points, points[1:])]


def stop(pair: cluster.Pair) -> None:
    for engine in pair.engines:
        engine.signal(signal.SIGSTOP)


def resume(pair: cluster.Pair) -> None:
    for engine in pair.engines:
        engine.signal(signal.SIGCONT)
    for engine in pair.engines:
        engine.wait_ready()
    pair.proxy.wait_ready()


def measure(
    pair: cluster.Pair, ways: dict[str, str], args: argparse.Namespace,
    rounds: dict[tuple[str, int], list[float]],
    stages: dict[int, list[list[float]]], rng: random.Random,
) -> None:  # fmt: skip
    """One round: adds each way's median of each size."""
    times: dict[tuple[str, int], list[float]] = {}
    with httpx.Client(timeout=300) as client:
        for size in args.sizes:
            for url in ways.values():  # connections, and what is made once
                first_token_ms(client, url, cluster.tokens(size, rng))
            for _ in range(args.count):
                for way, url in ways.items():
                    spent = first_token_ms(client, url, cluster.tokens(size, rng))
                    times.setdefault((way, size), []).append(spent)
                    split = stages_ms(pair) if way == "baton" else None
                    if split is not None:
                        stages.setdefault(size, []).append(split)
    for key, spent_ms in times.items():
        rounds.setdefault(key, []).append(statistics.median(spent_ms))


def idle(pair: cluster.Pair, span_s: float = 5.0) -> float:
    """Percent of a core."""
    begin = sum(engine.cpu_s() for engine in pair.engines)
    time.sleep(span_s)
    return 100 * (sum(engine.cpu_s() for engine in pair.engines) - begin) / span_s


def differences(these: list[float], those: list[float]) -> list[float]:
    """Round by round."""
    return [a - b for a, b in zip(these, those)]


def spread(values: list[float], digits: int = 1) -> str:
    points = (min(values), statistics.median(values), max(values))
    return " / ".join(f"{value:.{digits}f}" for value in points)


def report(
    args: argparse.Namespace, rounds: dict[tuple[str, int], list[float]],
    stages: dict[int, list[list[float]]], idles: dict[str, float],
) -> dict[str, Any]:  # fmt: skip
    result: dict[str, Any] = {"model": args.model, "idle": idles, "sizes": {}}
    print(f"\n{args.model}: time to the first token, ms: median over {args.rounds} "
          f"rounds of each round's median of {args.count}; added and its ratio: "
          "min / median / max over the rounds")  # fmt: skip
    print("| tokens | direct (Baton's D) | through Baton | added | direct (NIXL's D) "
          "| NIXL, baton-proxy | NIXL, Python proxy | added | added: Baton/NIXL |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for size in args.sizes:
        by_way = {way: rounds[way, size] for way in WAYS}
        mid = {way: statistics.median(values) for way, values in by_way.items()}
        added = differences(by_way["baton"], by_way["direct"])
        added_toy = differences(by_way["toy"], by_way["direct-nixl"])
        ratios = [a / b for a, b in zip(added, added_toy)]
        print(f"| {size} | {mid['direct']:.1f} | {mid['baton']:.1f} | {spread(added)} "
              f"| {mid['direct-nixl']:.1f} | {mid['nixl']:.1f} | {mid['toy']:.1f} "
              f"| {spread(added_toy)} | {spread(ratios, 2)} |")  # fmt: skip
        result["sizes"][size] = {**by_way, "added": added, "added_toy": added_toy,
                                 "ratio": ratios}  # fmt: skip
    print("\n| tokens | " + " | ".join(STAGES) + " |\n|---|---|---|---|---|")
    for size, rows in sorted(stages.items()):
        medians = [statistics.median(column) for column in zip(*rows)]
        print(f"| {size} | " + " | ".join(f"{value:.1f}" for value in medians) + " |")
        result["sizes"][size]["stages"] = dict(zip(STAGES, medians))
    print("\nidle, percent of a core, both engines: "
          + ", ".join(f"{name} {value:.1f}" for name, value in idles.items()))  # fmt: skip
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="tiny-llama")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 512, 1500])
    parser.add_argument("--count", type=int, default=5, help="prompts a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=pathlib.Path, help="the numbers, to a file")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rng = random.Random()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="compare-vllm-"))
    dtype = "float32" if args.model == "smollm2" else "bfloat16"
    options: dict[str, Any] = {"kv_bytes": 268435456, "dtype": dtype, "polls": True}
    ends = contextlib.ExitStack()  # all of them, even if one fails to end
    zygote = cluster.Zygote(folder)
    ends.callback(zygote.close)
    baton = cluster.Pair(folder, args.model, **dict(options))
    nixl = Nixl(folder / "nixl", args.model, **dict(options))
    rounds: dict[tuple[str, int], list[float]] = {}
    stages: dict[int, list[list[float]]] = {}
    idles: dict[str, float] = {}
    ways = (
        (baton, {"direct": baton.d.url, "baton": baton.proxy.url}),
        (nixl, {"direct-nixl": nixl.d.url, "nixl": nixl.proxy.url,
                "toy": nixl.toy_url}),
    )  # fmt: skip
    with ends:
        ends.callback(baton.stop)
        ends.callback(nixl.stop)
        baton.start(zygote)
        stop(baton)
        nixl.start(zygote)
        stop(nixl)
        for number in range(args.rounds):
            for pair, urls in ways:
                resume(pair)
                if number == 0:
                    name = "NIXL" if pair is nixl else "Baton"
                    pair.settle()
                    idles[name] = idle(pair)
                measure(pair, urls, args, rounds, stages, rng)
                stop(pair)
                print(f"round {number + 1}: {', '.join(urls)}", flush=True)
        result = report(args, rounds, stages, idles)
        if args.json is not None:
            args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
