"""The ctypes module: its structs are those of the C header, and two agents of
it hand blocks over."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import select
import subprocess

import pytest
from cluster import BUILD, ROOT
from sealing import seal

os.environ.setdefault("BATON_LIBRARY", str(BUILD / "agent/libbaton.so"))

from baton_vllm import baton  # noqa: E402

STRUCTS = {
    "baton_id": baton.Id,
    "baton_bytes": baton.Bytes,
    "baton_blocks": baton.Blocks,
    "baton_options": baton.Options,
    "baton_layout": baton.Layout,
    "baton_region": baton.Region,
    "baton_progress": baton.Progress,
    "baton_prompt": baton.Prompt,
    "baton_params": baton.Params,
    "baton_offer": baton.Offer,
    "baton_event": baton.Event,
    "baton_stats": baton.Stats,
    "baton_pull_request": baton.PullRequest,
}
ENUMS = {
    "BATON_": baton.Status,
    "BATON_ROLE_": baton.Role,
    "BATON_KIND_": baton.Kind,
    "BATON_REASON_": baton.Reason,
    "BATON_EVENT_": baton.EventType,
}


def _facts() -> dict[str, int]:
    """What Python believes."""
    facts = {"API_VERSION": baton.API_VERSION}
    for name, struct in STRUCTS.items():
        facts[f"sizeof({name})"] = ctypes.sizeof(struct)
        for field in struct._fields_:
            offset = getattr(struct, field[0]).offset
            facts[f"offsetof({name}, {field[0]})"] = offset
    for prefix, enum in ENUMS.items():
        for member in enum:
            facts[f"{prefix}{member.name}"] = member.value
    return facts


def test_the_structs_and_enums_are_those_of_the_header(tmp_path: pathlib.Path) -> None:
    facts = _facts()
    names = [name.replace("API_VERSION", "BATON_API_VERSION") for name in facts]
    lines = "\n".join(f'printf("%lld\\n", (long long)({name}));' for name in names)
    source = tmp_path / "facts.c"
    source.write_text(
        "#include <baton/agent.h>\n#include <stdio.h>\n#include <stddef.h>\n"
        f"int main(void) {{\n{lines}\nreturn 0;\n}}\n"
    )
    program = tmp_path / "facts"
    subprocess.run(
        ["cc", "-std=c11", f"-I{ROOT / 'agent/include'}", "-o", program, source],
        check=True,
    )
    printed = subprocess.run(program, check=True, capture_output=True, text=True)
    values = [int(line) for line in printed.stdout.split()]
    assert dict(zip(facts, values)) == facts


def test_every_function_of_the_header_is_there() -> None:
    header = (ROOT / "agent/include/baton/agent.h").read_text()
    for name in baton._SIGNATURES:
        assert f"{name}(" in header
    assert baton.version()


def test_loading_the_library_leaves_signals_alone() -> None:
    def caught() -> str:
        status = pathlib.Path("/proc/self/status").read_text()
        return next(line for line in status.splitlines() if line.startswith("SigCgt"))

    program = (
        "import pathlib\nfrom baton_vllm import baton\n"
        "g = lambda: [l for l in open('/proc/self/status') if 'SigCgt' in l]\n"
        "before = g()\nbaton.library()\nassert g() == before, (before, g())\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "agent/vllm/src")}
    env.pop("IPATH_NO_BACKTRACE", None)
    subprocess.run(["/usr/bin/env", "python3", "-c", program], check=True, env=env)
    assert caught()


class Side:
    """An agent over 64 blocks of 4 KiB."""

    def __init__(self, role: baton.Role, engine: str) -> None:
        self.memory = ctypes.create_string_buffer(64 * 4096)
        self.agent = baton.Agent(role=role, engine=engine, fingerprint="same")
        self.agent.region_add(
            ctypes.addressof(self.memory),
            64 * 4096,
            baton.Layout(
                kind=baton.Kind.KV,
                heads=2,
                block_tokens=16,
                token_bytes=128,
                blocks=64,
                block_stride=4096,
            ),
        )
        self.agent.start()

    def event(self) -> baton.Event:
        readable, _, _ = select.select([self.agent.fd()], [], [], 20)
        assert readable
        events = self.agent.poll()
        assert len(events) == 1
        return events[0]


@pytest.fixture
def sides() -> object:
    p, d = Side(baton.Role.PREFILL, "p"), Side(baton.Role.DECODE, "d")
    d.agent.peer_add(p.agent.info())
    assert d.event().type == baton.EventType.PEER_READY
    yield p, d
    p.agent.close()
    d.agent.close()


HANDOFF = baton.Id.parse("0123456789abcdef0123456789abcdef")


PROMPT = baton.Prompt.of(range(30), [b"picture"], "lora")


def test_params_are_bound_to_prompt_and_key(sides: tuple[Side, Side]) -> None:
    info = [sides[0].agent.info()]
    text = baton.params_write(info, HANDOFF, 5, 7, [[3, 4]], PROMPT, b"key")
    inner = json.loads(text)["baton"]
    assert inner["seal"] == seal(inner, b"key")
    printed = json.dumps({"baton": inner}, indent=1).encode()
    offer = baton.params_read(printed, PROMPT, b"key")
    assert (str(offer.handoff), offer.owner, offer.tokens) == (str(HANDOFF), 7, 30)
    for prompt, key, status in (
        (baton.Prompt.of(range(30), [b"picture"]), b"key", baton.Status.ERR_PROMPT),
        (baton.Prompt.of([*range(29), 9], [b"picture"], "lora"), b"key",
         baton.Status.ERR_PROMPT),
        (PROMPT, b"yek", baton.Status.ERR_SEAL),
    ):  # fmt: skip
        with pytest.raises(baton.BatonError) as caught:
            baton.params_read(text, prompt, key)
        assert caught.value.status == status


def test_blocks_are_handed_over(sides: tuple[Side, Side]) -> None:
    p, d = sides
    p.memory[3 * 4096 : 5 * 4096] = b"x" * 4096 + b"y" * 4096
    p.agent.hold_open(HANDOFF, 5, 0)
    params = baton.params_write([p.agent.info()], HANDOFF, 5, 0, [[3, 4]], PROMPT)
    p.agent.hold_ready(HANDOFF, [[3, 4]], 30, 20000)
    d.agent.pull(HANDOFF, params, [[7, 9]], 0, 1)
    event = d.event()
    assert (event.type, event.tag, event.bytes) == (baton.EventType.PULLED, 1, 8192)
    assert d.memory[7 * 4096 : 8 * 4096] == b"x" * 4096
    assert d.memory[9 * 4096 : 10 * 4096] == b"y" * 4096
    p.agent.hold_release(HANDOFF)
    event = p.event()
    assert event.type == baton.EventType.RELEASED
    assert event.reason == baton.Reason.PULLED
    assert str(event.handoff) == str(HANDOFF)


def test_reused_blocks_are_no_proof(sides: tuple[Side, Side]) -> None:
    p, d = sides
    p.agent.hold_open(HANDOFF, 5, 0)
    prompt = baton.Prompt.of(range(16))
    params = baton.params_write([p.agent.info()], HANDOFF, 5, 0, [[3]], prompt)
    p.agent.hold_ready(HANDOFF, [[3]], 16, 20000)
    p.agent.blocks_reused(0, [2, 3])
    assert p.event().reason == baton.Reason.BROKEN
    d.agent.pull(HANDOFF, params, [[7]], 0, 1)
    event = d.event()
    assert event.type == baton.EventType.PULL_FAILED
    assert event.reason == baton.Reason.LOST


def test_errors_are_exceptions_that_say_which(sides: tuple[Side, Side]) -> None:
    p, d = sides
    with pytest.raises(baton.BatonError, match="baton_hold_open") as caught:
        d.agent.hold_open(HANDOFF, 5, 0)
    assert caught.value.status == baton.Status.ERR_STATE
    assert p.agent.hold_break(HANDOFF) is False
    assert d.agent.cancel(99) is False
    with pytest.raises(baton.BatonError):
        d.agent.pull(HANDOFF, b'{"baton":1}', [[1]], 0, 1)


@pytest.mark.parametrize(
    "text", ["", "12", "g" * 32, "0123456789abcdef" + "0" * 16, " " * 32, "1" * 33]
)
def test_a_malformed_handoff_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"hex"):
        baton.Id.parse(text)
