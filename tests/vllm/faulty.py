"""A connector that breaks vLLM's promise on demand: when the file named by
BATON_FAULT exists, the blocks of all handoffs that are held go back to the
pool, so that the next prompts write to them."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from baton_vllm import BatonConnector


class FaultyConnector(BatonConnector):  # type: ignore[misc]
    _requests: dict[str, Any]

    def request_finished_all_groups(
        self, request: Any, block_ids: Any
    ) -> tuple[bool, dict[str, Any] | None]:
        is_held, params = super().request_finished_all_groups(request, block_ids)
        if is_held:
            self.__dict__.setdefault("_requests", {})[request.request_id] = request
        return is_held, params

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        fault = pathlib.Path(os.environ["BATON_FAULT"])
        if fault.exists():
            for request in self.__dict__.pop("_requests", {}).values():
                self._kv_cache_manager.free(request)
            self._kv_cache_manager.reset_prefix_cache()
            fault.unlink()
        return super().build_connector_meta(scheduler_output)
