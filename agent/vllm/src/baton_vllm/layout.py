"""From vLLM's KV caches to what libbaton must know of them: groups with their
windows, one region for each layer, and the fingerprint of the bytes inside."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from baton_vllm import baton
from baton_vllm.needs import vllm_version

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@dataclasses.dataclass(frozen=True)
class Group:
    """A KV cache group. A prompt's first token that is still needed when the
    last one is computed decides which blocks are handed over."""

    block_tokens: int
    window: int | None  # None: all tokens count

    def _first(self, tokens: int) -> int:
        skipped = 0 if self.window is None else max(0, tokens - self.window)
        return skipped // self.block_tokens

    def _end(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def needed_count(self, tokens: int) -> int:
        return self._end(tokens) - self._first(tokens)

    def needed(self, ids: Sequence[int], tokens: int) -> list[int]:
        """Of a request's blocks those that a decode engine needs."""
        return list(ids[self._first(tokens) : self._end(tokens)])

    def wanted(self, ids: Sequence[int], tokens: int, have: int) -> list[int]:
        """The needed blocks without those of the first `have` tokens."""
        first = max(self._first(tokens), have // self.block_tokens)
        return list(ids[first : self._end(tokens)])


def _window(spec: KVCacheSpec) -> int | None:
    if isinstance(spec, UniformTypeKVCacheSpecs):
        windows = {_window(inner) for inner in spec.kv_cache_specs.values()}
        return None if None in windows else max(w for w in windows if w is not None)
    if isinstance(spec, SlidingWindowSpec):
        return spec.sliding_window
    if isinstance(spec, FullAttentionSpec):
        return None
    raise NotImplementedError(
        f"baton_vllm hands over full and sliding attention, not {type(spec).__name__}"
    )


def groups_of(config: KVCacheConfig) -> list[Group]:
    """NotImplementedError for kinds of state that are not tokens in blocks."""
    return [
        Group(group.kv_cache_spec.block_size, _window(group.kv_cache_spec))
        for group in config.kv_cache_groups
    ]


def _spec_of(spec: KVCacheSpec, layer: str) -> KVCacheSpec:
    """A group's spec, or the layer's own where they differ."""
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return spec.kv_cache_specs[layer]
    return spec


def _first_head(vllm_config: VllmConfig, total: int) -> int:
    """Of this rank; with fewer heads than ranks, several have the same one."""
    parallel = vllm_config.parallel_config
    return parallel.rank * total // parallel.tensor_parallel_size


def _layout(
    tensor: torch.Tensor,
    group: int,
    layer: int,
    block_tokens: int,
    spec: KVCacheSpec,
    vllm_config: VllmConfig,
) -> baton.Layout:
    """A block is (head, token, K and V side by side), dense."""
    if tensor.device.type != "cpu":
        raise NotImplementedError(
            f"baton_vllm moves KV caches in host memory, not on {tensor.device}"
        )
    shape, stride, size = tuple(tensor.shape), tensor.stride(), tensor.element_size()
    if len(shape) != 4 or shape[2] != block_tokens:
        raise NotImplementedError(
            f"a KV cache of shape {shape} is not (blocks, heads, "
            f"{block_tokens} tokens, values)"
        )
    blocks, heads, tokens, values = shape
    dense = (tokens * values, values, 1)
    if any(
        count > 1 and found != wanted
        for count, found, wanted in zip(shape[1:], stride[1:], dense)
    ):
        raise NotImplementedError(
            f"a KV cache of shape {shape} and strides {stride} has blocks that "
            "are not dense; layout LBHNC is needed"
        )
    is_latent = isinstance(spec, MLAAttentionSpec)
    if is_latent and heads != 1:
        raise NotImplementedError(f"a latent KV cache with {heads} heads")
    total = vllm_config.model_config.get_total_num_kv_heads()
    first = _first_head(vllm_config, total)
    if first + heads > total:  # a layer with heads of its own count
        first, total = 0, heads
    return baton.Layout(
        group=group,
        layer=layer,
        kind=baton.Kind.LATENT if is_latent else baton.Kind.KV,
        first_head=0 if is_latent else first,
        heads=0 if is_latent else heads,
        model_heads=0 if is_latent else total,
        block_tokens=tokens,
        token_bytes=values * size,
        window_tokens=_window(spec) or 0,
        blocks=blocks,
        block_stride=stride[0] * size,
    )


def add_regions(
    agent: baton.Agent,
    vllm_config: VllmConfig,
    config: KVCacheConfig,
    caches: dict[str, torch.Tensor],
) -> None:
    """One region for each layer of each group. Layers of different groups may
    lie in the same memory.

    vLLM allocates many layers at once. The lowest of an allocation comes first
    and with all that lies behind it, so that one registration serves them all.
    """
    regions = []
    for number, group in enumerate(config.kv_cache_groups):
        spec = group.kv_cache_spec
        for name in group.layer_names:
            layout = _layout(
                caches[name],
                number,
                len(regions),
                spec.block_size,
                _spec_of(spec, name),
                vllm_config,
            )
            regions.append((caches[name], layout))
    for tensor, layout in sorted(regions, key=lambda region: region[0].data_ptr()):
        storage = tensor.untyped_storage()
        end = storage.data_ptr() + storage.nbytes()
        agent.region_add(tensor.data_ptr(), end - tensor.data_ptr(), layout)


def _isa(dtype: torch.dtype, block_tokens: int, cache_dtype: str) -> str:
    """Which CPU kernels write the blocks: each has its own order of bytes."""
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    try:
        return _get_attn_isa(dtype, block_tokens, None, cache_dtype)
    except (TypeError, NotImplementedError) as error:
        return f"unknown ({error})"


def fingerprint(
    vllm_config: VllmConfig, config: KVCacheConfig, caches: dict[str, torch.Tensor]
) -> str:
    """All that decides the bytes inside a block; engines with different ones
    never read from each other."""
    model = vllm_config.model_config
    hf_config = json.dumps(model.hf_config.to_dict(), sort_keys=True, default=str)
    first = next(iter(caches.values()))
    facts: dict[str, Any] = {
        "vllm": vllm_version(),
        "model": str(model.model).rstrip("/").rsplit("/", 1)[-1],
        "revision": model.revision,
        "config": hashlib.sha256(hf_config.encode()).hexdigest()[:16],
        # LongRoPE turns keys by other factors where the length is above the
        # original one; which, vLLM decides once for an engine.
        "longrope": model.max_model_len if '"longrope"' in hf_config else None,
        "quantization": model.quantization,
        "dtype": str(model.dtype),
        "cache_dtype": str(first.dtype),
        "layout": config.kv_cache_layout,
        "groups": [
            f"{type(group.kv_cache_spec).__name__}/{group.kv_cache_spec.block_size}"
            for group in config.kv_cache_groups
        ],
        "layers": hashlib.sha256(
            json.dumps([g.layer_names for g in config.kv_cache_groups]).encode()
        ).hexdigest()[:16],
        "isa": [
            _isa(
                model.dtype,
                group.kv_cache_spec.block_size,
                str(vllm_config.cache_config.cache_dtype),
            )
            for group in config.kv_cache_groups
        ],
        "speculative": str(
            getattr(vllm_config.speculative_config, "method", None)
        ),
    }
    return json.dumps(facts, sort_keys=True)
