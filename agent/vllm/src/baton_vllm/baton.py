"""libbaton for Python: the structs and calls of <baton/agent.h> by ctypes.

Nothing here knows of vLLM. `Agent` wraps one opaque agent; its methods are the
C functions of the same names, with lists for block lists and bytes for texts,
and raise `BatonError` where C returns an error status.
"""

from __future__ import annotations

import ctypes
import enum
import os
import pathlib
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from typing import Any

API_VERSION = 1

BlockLists = Sequence[Sequence[int]]


class Status(enum.IntEnum):
    OK = 0
    ERR_ARGUMENT = -1
    ERR_MEMORY = -2
    ERR_SYSTEM = -3
    ERR_FABRIC = -4
    ERR_BUSY = -5
    ERR_STATE = -6
    ERR_UNKNOWN = -7
    ERR_EXISTS = -8
    ERR_PARAMS = -9
    ERR_SPACE = -10
    ERR_UNSUPPORTED = -11
    ERR_PROMPT = -12
    ERR_SEAL = -13


class Role(enum.IntEnum):
    PREFILL = 1
    DECODE = 2
    BOTH = 3
    SCHEDULER = 4


class Kind(enum.IntEnum):
    K = 0
    V = 1
    KV = 2
    LATENT = 3
    INDEX = 4
    STATE = 5
    NAMED = 64


class Reason(enum.IntEnum):
    NONE = 0
    PULLED = 1
    CANCELLED = 2
    EXPIRED = 3
    BROKEN = 4
    LOST = 5
    CHECKSUM = 6
    TIMEOUT = 7
    UNREACHABLE = 8
    RESTARTED = 9
    MISMATCH = 10
    UNKNOWN_PEER = 11
    MEMORY = 12


class EventType(enum.IntEnum):
    PEER_READY = 1
    PEER_FAILED = 2
    RELEASED = 3
    PULLED = 4
    PULL_FAILED = 5


class Id(Structure):
    _fields_ = [("hi", c_uint64), ("lo", c_uint64)]

    @classmethod
    def parse(cls, text: object) -> Id:
        """32 hex digits; ValueError for anything else, or a zero low half."""
        if not isinstance(text, str) or len(text) != 32 or not text.isascii():
            raise ValueError("a handoff is 32 hex digits")
        raw = bytes.fromhex(text)
        if len(raw) != 16 or not any(raw[8:]):
            raise ValueError("a handoff is 32 hex digits, the low half not 0")
        return cls(int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:], "big"))

    def __str__(self) -> str:
        return f"{self.hi:016x}{self.lo:016x}"


class Bytes(Structure):
    _fields_ = [("data", c_char_p), ("length", c_size_t)]


class Blocks(Structure):
    _fields_ = [("ids", POINTER(c_uint32)), ("count", c_size_t)]




class Options(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("role", c_int),
        ("engine", c_char_p),
        ("engine_boot", c_uint64),
        ("url", c_char_p),
        ("rank", c_uint32),
        ("world", c_uint32),
        ("tp", c_uint32),
        ("pp", c_uint32),
        ("dp", c_uint32),
        ("proxies", POINTER(c_char_p)),
        ("proxy_count", c_size_t),
        ("key", Bytes),
        ("provider", c_char_p),
        ("fabric_address", c_char_p),
        ("fingerprint", c_char_p),
        ("max_handoffs", c_uint32),
        ("max_holds", c_uint32),
        ("pull_timeout_ms", c_uint32),
        ("drain_ms", c_uint32),
        ("orphan_ms", c_uint32),
        ("checksum", c_int),
        ("stage_bytes", c_uint64),
        ("log", c_void_p),
        ("log_arg", c_void_p),
    ]


class Layout(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("group", c_uint32),
        ("layer", c_uint32),
        ("kind", c_uint32),
        ("first_head", c_uint32),
        ("heads", c_uint32),
        ("model_heads", c_uint32),
        ("block_tokens", c_uint32),
        ("token_bytes", c_uint32),
        ("window_tokens", c_uint32),
        ("blocks", c_uint64),
        ("block_stride", c_uint64),
        ("token_stride", c_uint64),
        ("head_stride", c_uint64),
    ]


class Region(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("base", c_void_p),
        ("length", c_uint64),
        ("layout", POINTER(Layout)),
        ("memory", c_int),
        ("device", c_int),
    ]


class Progress(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("handoff", Id),
        ("groups", POINTER(Blocks)),
        ("group_count", c_size_t),
        ("tokens", c_uint64),
        ("event", c_void_p),
        ("digests", POINTER(c_uint64)),
        ("digest_count", c_size_t),
        ("lease_ms", c_uint32),
        ("flags", c_uint32),
    ]


class Prompt(Structure):
    """What decides a prompt's KV. Its memory lives as long as it does."""

    _fields_ = [
        ("size", c_size_t),
        ("tokens", POINTER(c_uint32)),
        ("token_count", c_size_t),
        ("items", POINTER(Bytes)),
        ("item_count", c_size_t),
        ("adapter", c_char_p),
        ("adapter_revision", c_char_p),
    ]

    @classmethod
    def of(
        cls, tokens: Sequence[int], items: Sequence[bytes] = (), adapter: str = ""
    ) -> Prompt:
        return cls(
            size=sizeof(cls),
            tokens=(c_uint32 * max(1, len(tokens)))(*tokens),
            token_count=len(tokens),
            items=(Bytes * max(1, len(items)))(
                *(Bytes(item, len(item)) for item in items)
            ),
            item_count=len(items),
            adapter=adapter.encode(),
        )


class Params(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("infos", POINTER(Bytes)),
        ("info_count", c_size_t),
        ("handoff", Id),
        ("owner", c_uint64),
        ("groups", POINTER(Blocks)),
        ("group_count", c_size_t),
        ("tokens", c_uint64),
        ("digests", POINTER(c_uint64)),
        ("digest_count", c_size_t),
        ("slot", c_uint32),
        ("flags", c_uint32),
        ("prompt", POINTER(Prompt)),
        ("key", Bytes),
    ]


class Offer(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("handoff", Id),
        ("owner", c_uint64),
        ("tokens", c_uint64),
    ]


class Event(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("type", c_int),
        ("reason", c_int),
        ("handoff", Id),
        ("tag", c_uint64),
        ("bytes", c_uint64),
        ("blocks", c_uint32),
        ("runs", c_uint32),
        ("wait_us", c_uint32),
        ("read_us", c_uint32),
        ("proof_us", c_uint32),
        ("rank", c_uint32),
        ("boot", c_uint64),
        ("engine", c_char * 256),
        ("provider", c_char * 16),
    ]


class Stats(Structure):
    _fields_ = [
        ("size", c_size_t),
        *(
            (name, c_uint64)
            for name in (
                "holds_live",
                "holds_total",
                "slots_live",
                "released_pulled",
                "released_cancelled",
                "released_expired",
                "released_broken",
                "pulls_live",
                "pulls_total",
                "pulls_failed",
                "pulled_bytes",
                "pulled_runs",
                "peers_ready",
                "links_up",
                "boot",
            )
        ),
    ]


class PullRequest(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("handoff", Id),
        ("params", Bytes),
        ("groups", POINTER(Blocks)),
        ("group_count", c_size_t),
        ("have_tokens", c_uint64),
        ("tag", c_uint64),
        ("event", c_void_p),
        ("prompt", POINTER(Prompt)),
    ]


class BatonError(Exception):
    """A call of the library failed; `status` says how."""

    def __init__(self, call: str, status: int) -> None:
        self.status = Status(status)
        text = library().baton_status_text(status).decode()
        super().__init__(f"{call}: {text}")


# ------------------------------------------------------------------ library


def library_path() -> str:
    """$BATON_LIBRARY, else the file inside the package, else the system's."""
    named = os.environ.get("BATON_LIBRARY")
    if named:
        return named
    for file in sorted(pathlib.Path(__file__).parent.glob("libbaton.so*")):
        return str(file)
    return "libbaton.so.0"


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "baton_status_text": (c_char_p, [c_int]),
    "baton_reason_text": (c_char_p, [c_int]),
    "baton_version": (c_char_p, []),
    "baton_log_stderr": (None, [c_void_p, c_int, c_char_p]),
    "baton_agent_open": (c_int, [POINTER(Options), POINTER(c_void_p)]),
    "baton_agent_close": (None, [c_void_p]),
    "baton_region_add": (c_int, [c_void_p, POINTER(Region), POINTER(c_uint32)]),
    "baton_agent_start": (c_int, [c_void_p]),
    "baton_agent_info": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)]),
    "baton_peer_add": (c_int, [c_void_p, Bytes]),
    "baton_peer_remove": (c_int, [c_void_p, c_char_p, c_uint32]),
    "baton_blocks_free": (c_int, [c_void_p, c_uint64]),
    "baton_hold_open": (c_int, [c_void_p, Id, c_uint32, c_uint64]),
    "baton_hold_ready": (c_int, [c_void_p, POINTER(Progress)]),
    "baton_hold_break": (c_int, [c_void_p, Id]),
    "baton_hold_release": (c_int, [c_void_p, Id]),
    "baton_blocks_reused": (c_int, [c_void_p, c_uint32, POINTER(c_uint32), c_size_t]),
    "baton_params_write": (
        c_int,
        [POINTER(Params), c_char_p, c_size_t, POINTER(c_size_t)],
    ),
    "baton_params_read": (
        c_int,
        [Bytes, POINTER(Prompt), Bytes, POINTER(Offer)],
    ),
    "baton_pull": (c_int, [c_void_p, POINTER(PullRequest)]),
    "baton_cancel": (c_int, [c_void_p, c_uint64]),
    "baton_poll_sized": (
        c_size_t,
        [c_void_p, POINTER(Event), c_size_t, c_size_t],
    ),
    "baton_agent_fd": (c_int, [c_void_p]),
    "baton_agent_stats": (c_int, [c_void_p, POINTER(Stats)]),
}

_library: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """The loaded library; OSError with its path when it cannot be."""
    global _library
    if _library is None:
        # A library below libfabric would take SIGTERM and others for itself.
        os.environ.setdefault("IPATH_NO_BACKTRACE", "1")
        loaded = ctypes.CDLL(library_path())
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype = result
            function.argtypes = arguments
        _library = loaded
    return _library


def version() -> str:
    text: bytes = library().baton_version()
    return text.decode()


def reason_text(reason: int) -> str:
    text: bytes = library().baton_reason_text(reason)
    return text.decode()


def _check(call: str, status: int) -> None:
    if status != Status.OK:
        raise BatonError(call, status)


# ---------------------------------------------------------------- arguments


def _block_lists(groups: BlockLists) -> Any:
    """An array of baton_blocks; the ids live as long as the array."""
    array: Any = (Blocks * max(1, len(groups)))()
    keep = []
    for blocks, ids in zip(array, groups):
        numbers = (c_uint32 * max(1, len(ids)))(*ids)
        keep.append(numbers)
        blocks.ids = ctypes.cast(numbers, POINTER(c_uint32))
        blocks.count = len(ids)
    array.keep = keep
    return array


def _text_out(call: str, write: Callable[[Any, int, Any], int], cap: int) -> bytes:
    """Calls `write(buffer, cap, length_p)`, again when the buffer is small."""
    length = c_size_t(0)
    while True:
        buffer = ctypes.create_string_buffer(cap)
        status = write(buffer, cap, byref(length))
        if status != Status.ERR_SPACE:
            _check(call, status)
            return buffer.raw[: length.value]
        cap = max(2 * cap, length.value)


def params_write(
    infos: Sequence[bytes],
    handoff: Id,
    slot: int,
    owner: int,
    groups: BlockLists,
    prompt: Prompt,
    key: bytes = b"",
) -> bytes:
    """The kv_transfer_params for D, from the infos of all ranks in order."""
    params = Params(
        size=sizeof(Params),
        infos=(Bytes * len(infos))(*(Bytes(info, len(info)) for info in infos)),
        info_count=len(infos),
        handoff=handoff,
        owner=owner,
        groups=_block_lists(groups),
        group_count=len(groups),
        tokens=prompt.token_count,
        slot=slot,
        prompt=ctypes.pointer(prompt),
        key=Bytes(key, len(key)),
    )

    def write(*out: Any) -> int:
        status: int = library().baton_params_write(byref(params), *out)
        return status

    return _text_out("baton_params_write", write, 2048)


def params_read(text: bytes, prompt: Prompt, key: bytes = b"") -> Offer:
    """What kv_transfer_params offer; BatonError where they are malformed, of
    another prompt or not sealed with the key."""
    offer = Offer(size=sizeof(Offer))
    status = library().baton_params_read(
        Bytes(text, len(text)), byref(prompt), Bytes(key, len(key)), byref(offer)
    )
    _check("baton_params_read", status)
    return offer


# -------------------------------------------------------------------- agent


class Agent:
    """One agent. Open it after any fork; one host thread at a time."""

    def __init__(
        self,
        *,
        role: Role,
        engine: str,
        engine_boot: int = 0,
        url: str = "",
        rank: int = 0,
        world: int = 1,
        tp: int = 1,
        pp: int = 1,
        proxies: Sequence[str] = (),
        key: bytes = b"",
        provider: str = "auto",
        fabric_address: str | None = None,
        fingerprint: str = "",
        max_handoffs: int = 16384,
        max_holds: int = 65536,
        pull_timeout_ms: int = 10000,
        drain_ms: int = 1000,
        orphan_ms: int = 10000,
        log_level: int = 1,
    ) -> None:
        """log_level: 0 errors … 4 all, written to stderr by the library itself:
        a callback into Python would make the agent's thread wait for the
        interpreter, and its proxies and peers with it."""
        self._agent = c_void_p()
        self._lib = library()
        self._log_level = c_int(log_level)
        options = Options(
            size=sizeof(Options),
            role=role,
            engine=engine.encode(),
            engine_boot=engine_boot,
            url=url.encode(),
            rank=rank,
            world=world,
            tp=tp,
            pp=pp,
            proxies=(c_char_p * max(1, len(proxies)))(*(p.encode() for p in proxies)),
            proxy_count=len(proxies),
            key=Bytes(key, len(key)),
            provider=provider.encode(),
            fabric_address=fabric_address.encode() if fabric_address else None,
            fingerprint=fingerprint.encode(),
            max_handoffs=max_handoffs,
            max_holds=max_holds,
            pull_timeout_ms=pull_timeout_ms,
            drain_ms=drain_ms,
            orphan_ms=orphan_ms,
            checksum=0,
            log=ctypes.cast(self._lib.baton_log_stderr, c_void_p),
            log_arg=ctypes.addressof(self._log_level),
        )
        _check(
            "baton_agent_open",
            self._lib.baton_agent_open(byref(options), byref(self._agent)),
        )

    def region_add(self, base: int, length: int, layout: Layout) -> None:
        """Registers host memory; it must outlive the agent."""
        layout.size = sizeof(Layout)
        region = Region(
            size=sizeof(Region),
            base=base,
            length=length,
            layout=ctypes.pointer(layout),
        )
        _check(
            "baton_region_add",
            self._lib.baton_region_add(self._agent, byref(region), None),
        )

    def start(self) -> None:
        _check("baton_agent_start", self._lib.baton_agent_start(self._agent))

    def close(self) -> None:
        """Says goodbye and frees all; further calls are errors."""
        agent, self._agent = self._agent, c_void_p()
        self._lib.baton_agent_close(agent)

    def info(self) -> bytes:
        return _text_out(
            "baton_agent_info",
            lambda *out: self._lib.baton_agent_info(self._agent, *out),
            4096,
        )

    def peer_add(self, info: bytes) -> None:
        _check(
            "baton_peer_add",
            self._lib.baton_peer_add(self._agent, Bytes(info, len(info))),
        )

    def blocks_free(self, blocks: int) -> None:
        """Tells the proxies how many blocks are free now."""
        _check("baton_blocks_free", self._lib.baton_blocks_free(self._agent, blocks))

    def hold_open(self, handoff: Id, slot: int, owner: int) -> None:
        _check(
            "baton_hold_open",
            self._lib.baton_hold_open(self._agent, handoff, slot, owner),
        )

    def hold_ready(
        self, handoff: Id, groups: BlockLists, tokens: int, lease_ms: int
    ) -> None:
        progress = Progress(
            size=sizeof(Progress),
            handoff=handoff,
            groups=_block_lists(groups),
            group_count=len(groups),
            tokens=tokens,
            lease_ms=lease_ms,
        )
        _check(
            "baton_hold_ready",
            self._lib.baton_hold_ready(self._agent, byref(progress)),
        )

    def hold_break(self, handoff: Id) -> bool:
        """False: no such hold."""
        status = self._lib.baton_hold_break(self._agent, handoff)
        if status == Status.ERR_UNKNOWN:
            return False
        _check("baton_hold_break", status)
        return True

    def hold_release(self, handoff: Id) -> None:
        _check(
            "baton_hold_release", self._lib.baton_hold_release(self._agent, handoff)
        )

    def blocks_reused(self, group: int, ids: Sequence[int]) -> None:
        _check(
            "baton_blocks_reused",
            self._lib.baton_blocks_reused(
                self._agent, group, (c_uint32 * max(1, len(ids)))(*ids), len(ids)
            ),
        )

    def pull(
        self,
        handoff: Id,
        params: bytes,
        groups: BlockLists,
        have_tokens: int,
        tag: int,
    ) -> None:
        request = PullRequest(
            size=sizeof(PullRequest),
            handoff=handoff,
            params=Bytes(params, len(params)),
            groups=_block_lists(groups),
            group_count=len(groups),
            have_tokens=have_tokens,
            tag=tag,
        )
        _check("baton_pull", self._lib.baton_pull(self._agent, byref(request)))

    def cancel(self, tag: int) -> bool:
        """False: no such pull (it may have ended already)."""
        status = self._lib.baton_cancel(self._agent, tag)
        if status == Status.ERR_UNKNOWN:
            return False
        _check("baton_cancel", status)
        return True

    def poll(self, most: int = 64) -> list[Event]:
        """All events that wait. Never blocks."""
        events: list[Event] = []
        while True:
            array = (Event * most)()
            count = self._lib.baton_poll_sized(
                self._agent, array, sizeof(Event), most
            )
            events.extend(array[:count])
            if count < most:
                return events

    def fd(self) -> int:
        """Readable while events wait."""
        number: int = self._lib.baton_agent_fd(self._agent)
        return number

    def stats(self) -> Stats:
        stats = Stats(size=sizeof(Stats))
        _check(
            "baton_agent_stats",
            self._lib.baton_agent_stats(self._agent, byref(stats)),
        )
        return stats
