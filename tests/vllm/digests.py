"""A connector that logs what lies in the blocks of a handoff: on P when it is
offered, on D when it is pulled."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from baton_vllm import BatonConnector

logger = logging.getLogger("vllm.baton")


class DigestConnector(BatonConnector):  # type: ignore[misc]
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        super().register_kv_caches(kv_caches)
        self._caches = kv_caches
        self._waiting: dict[str, tuple[str, Any]] = {}

    def _log(self, handoff: str, groups: Any) -> None:
        digest = hashlib.sha256()
        for number, group in enumerate(self._kv_cache_config.kv_cache_groups):
            for name in group.layer_names:
                for block in groups[number]:
                    tensor = self._caches[name][block].contiguous()
                    raw = tensor.view(-1).view(dtype=_byte()).numpy().tobytes()
                    digest.update(raw)
        logger.info("handoff %s digest %s", handoff, digest.hexdigest())

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        for ready in kv_connector_metadata.readies:
            self._log(ready.handoff, ready.groups)
        for pull in kv_connector_metadata.pulls:
            if pull.request is not None:
                self._waiting[pull.request] = (pull.handoff, pull.groups)
        super().handle_preemptions(kv_connector_metadata)

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        results = super().get_transfer_results(finished_req_ids)
        for request in results.finished_recving:
            self._log(*self._waiting.pop(request))
        return results


def _byte() -> Any:
    import torch

    return torch.uint8
