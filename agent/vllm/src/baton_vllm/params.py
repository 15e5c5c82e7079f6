"""What stands in kv_transfer_params, and which prompt it is of.

The hold word proves that P still holds the handoff's blocks. That these blocks
are the prompt's the params say themselves: libbaton puts a digest of the prompt
into them, and with a key a seal over all of it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from baton_vllm import baton

if TYPE_CHECKING:
    from vllm.v1.request import Request


def prompt_of(request: Request) -> baton.Prompt | None:
    """All that decides the KV of the prompt but for the engine itself. None: it
    cannot be named."""
    if request.prompt_token_ids is None:
        return None
    is_token = getattr(request, "prompt_is_token_ids", None)
    if is_token is not None and not all(is_token):
        return None  # some of it was given as embeddings
    features = request.mm_features or ()
    lora = request.lora_request
    return baton.Prompt.of(
        request.prompt_token_ids,
        [feature.identifier.encode() for feature in features],
        lora.lora_name if lora is not None else "",
    )


def asked(request: Request, wanted: str) -> dict[str, Any] | None:
    """libbaton's params of a request that wants that; None: it does not."""
    params = request.kv_transfer_params
    if not isinstance(params, dict) or not params.get(wanted):
        return None
    inner = params.get("baton")
    return inner if isinstance(inner, dict) else None


def handoff_of(inner: dict[str, Any]) -> baton.Id | None:
    try:
        return baton.Id.parse(inner.get("handoff"))
    except ValueError:
        return None


def owner_of(inner: dict[str, Any]) -> int:
    """The proxy's boot; 0 where there is none or it is malformed."""
    text = inner.get("proxy")
    try:
        owner = int(text, 16) if isinstance(text, str) else 0
    except ValueError:
        return 0
    return owner if 0 <= owner < 1 << 64 else 0


def accept(
    request: Request, inner: dict[str, Any], key: bytes
) -> tuple[baton.Id, bytes]:
    """The handoff that D may use, and its params; ValueError says why not."""
    prompt = prompt_of(request)
    if prompt is None:
        raise ValueError("its prompt cannot be named")
    text = json.dumps({"baton": inner}).encode()
    try:
        return baton.params_read(text, prompt, key).handoff, text
    except baton.BatonError as error:
        raise ValueError(str(error)) from error
