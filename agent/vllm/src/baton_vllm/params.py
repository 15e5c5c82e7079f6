"""What stands in kv_transfer_params, written by P and read by D:

    {"do_remote_prefill": true, "baton": {libbaton's params},
     "baton_prompt": "…", "baton_seal": "…"}

The hold word proves that P still holds the handoff's blocks. That these blocks
are the prompt's is said here: a digest names the prompt, and with a key a seal
binds the digest and all of libbaton's params, so that nobody but an engine of
the same key can send a decode engine to other blocks.
"""

from __future__ import annotations

import array
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

from baton_vllm import baton

if TYPE_CHECKING:
    from vllm.v1.request import Request

PROMPT_KEY = "baton_prompt"
SEAL_KEY = "baton_seal"


def prompt_digest(request: Request) -> str | None:
    """Names all that decides the KV of the prompt but for the engine itself.
    None: it cannot be named."""
    if request.prompt_token_ids is None:
        return None
    is_token = getattr(request, "prompt_is_token_ids", None)
    if is_token is not None and not all(is_token):
        return None  # some of it was given as embeddings
    digest = hashlib.sha256(array.array("q", request.prompt_token_ids).tobytes())
    for feature in request.mm_features or ():
        digest.update(f"\0{feature.identifier}".encode())
    if request.lora_request is not None:
        digest.update(f"\0{request.lora_request.lora_name}".encode())
    return digest.hexdigest()[:32]


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


def seal(inner: dict[str, Any], digest: str, key: bytes) -> str:
    text = json.dumps([inner, digest], sort_keys=True, separators=(",", ":"))
    return hmac.new(key, b"baton_vllm\0" + text.encode(), "sha256").hexdigest()


def offer(text: bytes, digest: str, key: bytes) -> dict[str, Any]:
    """P's answer, from libbaton's params as text."""
    params: dict[str, Any] = json.loads(text)
    params[PROMPT_KEY] = digest
    if key:
        params[SEAL_KEY] = seal(params["baton"], digest, key)
    return params


def accept(request: Request, inner: dict[str, Any], key: bytes) -> baton.Id:
    """The handoff that D may use; ValueError says why not."""
    params = request.kv_transfer_params or {}
    digest = prompt_digest(request)
    handoff = handoff_of(inner)
    if handoff is None:
        raise ValueError("its handoff is malformed")
    if digest is None or params.get(PROMPT_KEY) != digest:
        raise ValueError("it is of another prompt")
    if inner.get("tokens") != request.num_prompt_tokens:
        raise ValueError("its tokens are not the prompt's")
    if key:
        found = params.get(SEAL_KEY)
        right = seal(inner, digest, key)
        if not isinstance(found, str) or not hmac.compare_digest(
            found.encode("utf-8", "replace"), right.encode()
        ):
            raise ValueError("it is not sealed with this engine's key")
    return handoff
