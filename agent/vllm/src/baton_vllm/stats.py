"""Counts of one interval, on their way to vLLM's log and /metrics."""

from __future__ import annotations

import dataclasses
from typing import Any

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    PromMetric,
    PromMetricT,
)
from vllm.v1.metrics.utils import create_metric_per_engine

from baton_vllm import baton

_LISTS = ("pull_seconds", "pull_bytes")
_COUNTS = ("offers", "no_slot", "no_offer", "refused")
_RELEASED = ("pulled", "cancelled", "expired", "broken")
_FAILED = tuple(
    reason.name.lower()
    for reason in baton.Reason
    if reason not in (baton.Reason.NONE, baton.Reason.PULLED)
)
_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


def _empty() -> dict[str, Any]:
    data: dict[str, Any] = {name: [] for name in _LISTS}
    data.update({name: 0 for name in _COUNTS})
    data.update({f"released_{name}": 0 for name in _RELEASED})
    data.update({f"failed_{name}": 0 for name in _FAILED})
    return data


def _name(reason: int) -> str:
    return baton.Reason(reason).name.lower()


@dataclasses.dataclass
class BatonStats(KVConnectorStats):
    def __post_init__(self) -> None:
        self.data = {**_empty(), **self.data}

    def reset(self) -> None:
        self.data = _empty()

    def pulled(self, event: baton.Event) -> None:
        micros = event.wait_us + event.read_us + event.proof_us
        self.data["pull_seconds"].append(micros / 1e6)
        self.data["pull_bytes"].append(event.bytes)

    def pull_failed(self, reason: int) -> None:
        self.data[f"failed_{_name(reason)}"] += 1

    def released(self, reason: int) -> None:
        self.data[f"released_{_name(reason)}"] += 1

    def count(self, counts: dict[str, int]) -> None:
        for name, value in counts.items():
            self.data[name] += value

    def is_empty(self) -> bool:
        return not any(self.data.values())

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, value in other.data.items():
            self.data[name] = self.data[name] + value
        return self

    def reduce(self) -> dict[str, int | float]:
        seconds, size = self.data["pull_seconds"], self.data["pull_bytes"]
        count = len(seconds)
        return {
            "Pulls": count,
            "Failed pulls": sum(self.data[f"failed_{name}"] for name in _FAILED),
            "Avg pull (ms)": round(1e3 * sum(seconds) / count, 3) if count else 0,
            "Avg MB": round(sum(size) / count / 1e6, 3) if count else 0,
            "Offers": self.data["offers"],
            "Released": sum(self.data[f"released_{name}"] for name in _RELEASED),
        }


class BatonPromMetrics(KVConnectorPromMetrics):
    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            **{
                name: self._counter(f"handoffs_{name}", text)
                for name, text in (
                    ("offers", "Handoffs given to a decode engine."),
                    ("no_slot", "Requests served without one: no slot was free."),
                    ("no_offer", "Requests that ended without a handoff."),
                    ("refused", "Handoffs that were not of the request's prompt."),
                )
            },
            **{
                f"released_{name}": self._counter(
                    f"holds_{name}", f"Blocks given back: {name}."
                )
                for name in _RELEASED
            },
            **{
                f"failed_{name}": self._counter(
                    f"pulls_failed_{name}", f"Pulls that failed: {name}."
                )
                for name in _FAILED
            },
        }
        histogram: Any = self._histogram_cls
        self._seconds = self._per_engine(
            histogram(
                name="vllm:baton_pull_seconds",
                documentation="Time from the request for a pull to its proof.",
                buckets=_BUCKETS,
                labelnames=labelnames,
            )
        )
        self._bytes = self._counter("pulled_bytes", "Bytes read from others.")

    def _per_engine(self, metric: Any) -> Any:
        return create_metric_per_engine(metric, self.per_engine_labelvalues)

    def _counter(self, name: str, text: str) -> Any:
        return self._per_engine(
            self._counter_cls(
                name=f"vllm:baton_{name}",
                documentation=text,
                labelnames=self._labelnames,
            )
        )

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, counter in self._counters.items():
            value = transfer_stats_data.get(name, 0)
            if value:
                counter[engine_idx].inc(value)
        for seconds in transfer_stats_data.get("pull_seconds", ()):
            self._seconds[engine_idx].observe(seconds)
        size = sum(transfer_stats_data.get("pull_bytes", ()))
        if size:
            self._bytes[engine_idx].inc(size)


