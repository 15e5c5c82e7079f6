"""The seal of libbaton's params, made a second time: tests forge with it."""

from __future__ import annotations

import hmac
import json
from typing import Any


def seal(inner: dict[str, Any], key: bytes) -> str:
    """Over the members before it, in their order and without spaces."""
    rest = {name: value for name, value in inner.items() if name != "seal"}
    body = json.dumps(rest, separators=(",", ":"))[1:-1]
    text = f"baton-params/1\n{body}".encode()
    return hmac.new(key, text, "sha256").hexdigest()
