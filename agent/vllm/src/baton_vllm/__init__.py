"""Makes a stock vLLM engine one of Baton's: `BatonConnector` for vLLM's
`--kv-transfer-config`, over the library libbaton.

    vllm scheduler ── BatonScheduler          slots, params, block lists
          │ Step, one each engine step
    vllm worker ───── BatonWorker ── baton.Agent ══ KV blocks ══ other engines
                                          └── link ── baton-proxy
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baton_vllm.connector import BatonConnector

__version__ = "0.1.0"
__all__ = ["BatonConnector"]


def __getattr__(name: str) -> Any:
    """vLLM looks the class up here; vLLM itself is loaded only then."""
    if name != "BatonConnector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from baton_vllm.needs import check

    check()
    from baton_vllm.connector import BatonConnector

    return BatonConnector
