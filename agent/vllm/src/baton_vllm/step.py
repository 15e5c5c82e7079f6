"""What the two halves tell each other; all of it is pickled."""

from __future__ import annotations

import dataclasses

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
)

Groups = list[list[int]]


@dataclasses.dataclass
class Card(KVConnectorHandshakeMetadata):
    """A worker's agent, for the scheduler: its info text."""

    info: bytes


@dataclasses.dataclass(frozen=True)
class Open:
    handoff: str
    slot: int
    owner: int


@dataclasses.dataclass(frozen=True)
class Ready:
    request: str
    handoff: str
    groups: Groups
    tokens: int
    lease_ms: int


@dataclasses.dataclass(frozen=True)
class Pull:
    request: str | None  # None: nobody waits, P is only told
    handoff: str
    tag: int
    params: bytes
    groups: Groups
    have_tokens: int


@dataclasses.dataclass
class Step(KVConnectorMetadata):
    """One engine step, scheduler to workers. Done in the order of the fields,
    before anything is computed."""

    breaks: list[str] = dataclasses.field(default_factory=list)
    reused: Groups = dataclasses.field(default_factory=list)  # by group
    opens: list[Open] = dataclasses.field(default_factory=list)
    readies: list[Ready] = dataclasses.field(default_factory=list)
    pulls: list[Pull] = dataclasses.field(default_factory=list)
    cancels: list[int] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)  # D requests
    blocks_free: int | None = None  # for the proxies
    is_empty: bool = False  # nothing is computed in this step
