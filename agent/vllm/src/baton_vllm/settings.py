"""The settings in `kv_connector_extra_config`, checked before use."""

from __future__ import annotations

import dataclasses
import pathlib
import urllib.parse
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Settings:
    """One per engine; the same on all its ranks."""

    agents: tuple[str, ...]
    url: str
    key_file: str | None = None
    provider: str = "auto"
    fabric_address: str | None = None
    lease_s: float = 30.0
    pull_timeout_s: float = 10.0
    orphan_s: float = 10.0
    max_handoffs: int = 1024

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Settings:
        """ValueError that says what is wrong and what would be right."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(config) - known)
        if unknown:
            raise ValueError(
                f"kv_connector_extra_config: {unknown[0]!r} is unknown; there "
                f"are {', '.join(sorted(known))}"
            )
        values = dict(config)
        values["agents"] = _agents(values.get("agents"))
        _check_url(values.get("url"))
        for name in ("lease_s", "pull_timeout_s", "orphan_s"):
            if name in values:
                values[name] = _seconds(name, values[name])
        most = values.get("max_handoffs", 1)
        if not isinstance(most, int) or not 0 < most <= 65536:
            raise ValueError("max_handoffs must be a number from 1 to 65536")
        for name in ("key_file", "provider", "fabric_address"):
            if values.get(name) is not None and not isinstance(values[name], str):
                raise ValueError(f"{name} must be a text")
        return cls(**values)

    def key(self) -> bytes:
        """The first line of the key file, without white space around it."""
        if self.key_file is None:
            return b""
        file = pathlib.Path(self.key_file)
        mode = file.stat().st_mode & 0o777
        if mode & 0o007:
            raise ValueError(
                f"key_file {file} has mode {mode:04o}, so others can get at it; "
                "chmod 640 it"
            )
        lines = file.read_bytes().splitlines()
        key = lines[0].removeprefix(b"\xef\xbb\xbf").strip() if lines else b""
        if not key:
            raise ValueError(f"key_file {self.key_file}: its first line is empty")
        return key


def _agents(value: Any) -> tuple[str, ...]:
    places = [value] if isinstance(value, str) else value
    if (
        not isinstance(places, (list, tuple))
        or not places
        or not all(isinstance(place, str) and ":" in place for place in places)
    ):
        raise ValueError(
            'agents must be the "HOST:PORT" of baton-proxy\'s agent listener, '
            "or a list of them"
        )
    return tuple(places)


def _check_url(value: Any) -> None:
    parts = urllib.parse.urlsplit(value) if isinstance(value, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            'url must be this engine\'s "http://HOST:PORT", as baton-proxy '
            "has it in its list of engines"
        )


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number of seconds")
    if not 0.01 <= value <= 86400:
        raise ValueError(f"{name} must be from 0.01 to 86400 seconds")
    return float(value)
