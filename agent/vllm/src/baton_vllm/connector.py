"""vLLM's KV connector, in either process: it passes each call to the half that
is here, and lets no exception of ours into a step.

One object lives in the scheduler's process and one in each worker's. A worker's
agent is opened when its KV caches are there, long after any fork.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from baton_vllm import baton
from baton_vllm.layout import add_regions, fingerprint, groups_of
from baton_vllm.scheduler import BatonScheduler
from baton_vllm.settings import Settings
from baton_vllm.stats import BatonPromMetrics, BatonStats
from baton_vllm.step import Card, Step
from baton_vllm.worker import BatonWorker

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
        KVConnectorPromMetrics,
        KVConnectorStats,
        PromMetric,
        PromMetricT,
    )
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = logging.getLogger("vllm.baton")

_ROLES = {
    "kv_producer": baton.Role.PREFILL,
    "kv_consumer": baton.Role.DECODE,
    "kv_both": baton.Role.BOTH,
}


def _log_level() -> int:
    """The library's, from that of our logger: info, or debug and all."""
    return 4 if logger.isEnabledFor(logging.DEBUG) else 2


def _engine_boot(vllm_config: VllmConfig) -> int:
    """The same in all processes of one life of an engine."""
    transfer = vllm_config.kv_transfer_config
    engine_id = transfer.engine_id if transfer is not None else None
    text = f"{engine_id}/{vllm_config.instance_id}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") or 1


def _check_supported(vllm_config: VllmConfig) -> None:
    if vllm_config.use_v2_model_runner:
        # It copies and clears blocks before it calls handle_preemptions.
        raise NotImplementedError(
            "baton_vllm needs vLLM's V1 model runner: set VLLM_USE_V2_MODEL_RUNNER=0"
        )
    parallel = vllm_config.parallel_config
    for name in (
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        if getattr(parallel, name, 1) > 1:
            raise NotImplementedError(f"baton_vllm does not support {name} above 1")
    if getattr(parallel, "data_parallel_index", 0) > 0:
        # Of a dense model each rank believes to be alone, with the same URL.
        raise NotImplementedError(
            "baton_vllm does not support data_parallel_size above 1: start each "
            "engine by itself, with a port of its own"
        )


class BatonConnector(KVConnectorBase_V1, SupportsHMA):
    _cache_hit_source = CacheHitSource.P2P

    def __init__(
        self,
        vllm_config: VllmConfig,
        role: KVConnectorRole,
        kv_cache_config: KVCacheConfig,
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _check_supported(vllm_config)
        self._settings = Settings.read(
            self._kv_transfer_config.kv_connector_extra_config
        )
        self._part = _ROLES[str(self._kv_transfer_config.kv_role)]
        self._groups = groups_of(kv_cache_config)
        self._scheduler: BatonScheduler | None = None
        self._worker: BatonWorker | None = None
        self._link: baton.Agent | None = None  # of the scheduler
        self._block_pool: BlockPool | None = None  # of the scheduler
        self._told_free: int | None = None  # blocks, by the newest step
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = BatonScheduler(self._settings, self._groups, self._part)
        atexit.register(self.shutdown)

    def _open_agent(self, role: baton.Role, rank: int, mark: str) -> baton.Agent:
        parallel = self._vllm_config.parallel_config
        return baton.Agent(
            role=role,
            engine=str(self._kv_transfer_config.engine_id),
            engine_boot=_engine_boot(self._vllm_config),
            url=self._settings.url,
            rank=rank,
            world=parallel.tensor_parallel_size,
            tp=parallel.tensor_parallel_size,
            proxies=self._settings.agents,
            key=self._settings.key(),
            provider=self._settings.provider,
            fabric_address=self._settings.fabric_address,
            fingerprint=mark,
            max_handoffs=self._settings.max_handoffs,
            pull_timeout_ms=int(self._settings.pull_timeout_s * 1000),
            orphan_ms=int(self._settings.orphan_s * 1000),
            log_level=_log_level(),
        )

    # ---------------------------------------------------------- worker side

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        mark = fingerprint(self._vllm_config, self._kv_cache_config, kv_caches)
        rank = self._vllm_config.parallel_config.rank
        agent = self._open_agent(self._part, rank, mark)
        try:
            add_regions(agent, self._vllm_config, self._kv_cache_config, kv_caches)
            agent.start()
        except BaseException:
            agent.close()
            raise
        self._worker = BatonWorker(agent)
        logger.info("baton %s: %s, %s", baton.version(), self._part.name.lower(), mark)

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        return Card(self._worker.info()) if self._worker is not None else None

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        if self._worker is None or not isinstance(kv_connector_metadata, Step):
            return
        try:
            self._worker.begin_step(kv_connector_metadata)
        except Exception:
            logger.exception("baton: a step's orders were not all done")

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        """Pulls began before the forward; see handle_preemptions."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Requests wait in the scheduler for the whole of their pull."""

    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: torch.Tensor,
        attn_metadata: AttentionMetadata,
        **kwargs: Any,
    ) -> None:
        """Decode engines read the blocks themselves."""

    def wait_for_save(self) -> None:
        """Nothing is saved."""

    def get_transfer_results(
        self, finished_req_ids: set[str]
    ) -> KVConnectorTransferResults:
        if self._worker is None:
            return KVConnectorTransferResults()
        try:
            return self._worker.end_step()
        except Exception:
            logger.exception("baton: events were not read")
            return KVConnectorTransferResults()

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        if self._worker is not None:
            return self._worker.take_stats()
        if self._scheduler is None:
            return None
        stats = BatonStats()
        stats.count(self._scheduler.take_counts())
        return None if stats.is_empty() else stats

    # ------------------------------------------------------- scheduler side

    def bind_gpu_block_pool(self, gpu_block_pool: BlockPool) -> None:
        self._block_pool = gpu_block_pool

    def set_xfer_handshake_metadata(
        self, metadata: dict[int, KVConnectorHandshakeMetadata]
    ) -> None:
        if self._scheduler is None:
            return
        cards = {r: card for r, card in metadata.items() if isinstance(card, Card)}
        self._scheduler.meet_workers(cards)
        self._link = self._open_agent(baton.Role.SCHEDULER, 0, "")
        self._link.start()

    def _blocks_free(self) -> int | None:
        """For one group: all take their blocks from the one pool."""
        if self._block_pool is None:
            return None
        return self._block_pool.get_num_free_blocks() // len(self._groups)

    def get_loaded_kv_cache_group_ids(self, request: Request) -> tuple[int, ...]:
        return tuple(range(len(self._groups)))

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        assert self._scheduler is not None
        try:
            return self._scheduler.matched_tokens(request, num_computed_tokens)
        except Exception:
            logger.exception("baton: the prompt is computed here")
            return 0, False

    def update_state_after_alloc(
        self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int
    ) -> None:
        assert self._scheduler is not None
        try:
            self._scheduler.allocated(request, blocks, num_external_tokens)
        except Exception:
            logger.exception("baton: no handoff")
            if num_external_tokens > 0:
                self._scheduler.fail(request)

    def build_connector_meta(
        self, scheduler_output: SchedulerOutput
    ) -> KVConnectorMetadata:
        assert self._scheduler is not None
        step = self._scheduler.next_step(scheduler_output)
        step.blocks_free = self._told_free = self._blocks_free()
        return step

    def has_pending_push_work(self) -> bool:
        """One more step when blocks came back after the last one, so that the
        proxies hear of them."""
        return self._told_free != self._blocks_free()

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        assert self._scheduler is not None
        self._scheduler.update(connector_output)

    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        assert self._scheduler is not None
        try:
            return self._scheduler.finished(request, block_ids)
        except Exception:
            logger.exception("baton: no handoff")
            return False, None

    def reset_cache(self) -> bool | None:
        if self._scheduler is not None:
            self._scheduler.reset()
        return True

    # ------------------------------------------------------------------ both

    def shutdown(self) -> None:
        """Says goodbye; may be called twice."""
        atexit.unregister(self.shutdown)
        if self._worker is not None:
            self._worker.close()
        link, self._link = self._link, None
        if link is not None:
            link.close()

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> KVConnectorStats | None:
        return BatonStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVConnectorPromMetrics:
        return BatonPromMetrics(
            vllm_config, metric_types, labelnames, per_engine_labelvalues
        )
