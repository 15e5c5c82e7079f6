"""The scheduler's half alone, with steps that a real engine takes too seldom."""

from __future__ import annotations

import secrets
import types
from collections.abc import Iterable
from typing import Any

from baton_vllm import baton
from baton_vllm.layout import Group
from baton_vllm.scheduler import BatonScheduler
from baton_vllm.settings import Settings
from baton_vllm.step import Card

GOOD = {"agents": "127.0.0.1:9400", "url": "http://127.0.0.1:8100", "max_handoffs": 1}


def output(preempted: Iterable[str] = (), resumed: Iterable[str] = ()) -> Any:
    """What vLLM's schedule() says of a step."""
    cached = types.SimpleNamespace(
        req_ids=[], new_block_ids=[], num_computed_tokens=[],
        resumed_req_ids=set(resumed),
    )  # fmt: skip
    return types.SimpleNamespace(
        preempted_req_ids=set(preempted),
        scheduled_new_reqs=[],
        scheduled_cached_reqs=cached,
        total_num_scheduled_tokens=1,
    )


def started(
    handoff: str, part: baton.Role = baton.Role.PREFILL
) -> tuple[BatonScheduler, Any]:
    """A request of P's whose hold is open."""
    scheduler = BatonScheduler(Settings.read(GOOD), [Group(16, None)], part)
    scheduler.meet_workers({0: Card(b"{}")})
    request = types.SimpleNamespace(
        request_id="r",
        kv_transfer_params={
            "do_remote_decode": True,
            "baton": {"handoff": handoff, "proxy": "2a"},
        },
    )
    scheduler.allocated(request, None, 0)
    return scheduler, request


def test_preempted_and_resumed_later_the_request_holds_again() -> None:
    handoff = secrets.token_hex(16)
    scheduler, request = started(handoff)
    first = scheduler.next_step(output())
    assert [item.handoff for item in first.opens] == [handoff]

    gone = scheduler.next_step(output(preempted=["r"]))
    assert (gone.breaks, gone.opens) == ([handoff], [])

    scheduler.allocated(request, None, 0)
    again = scheduler.next_step(output(resumed=["r"]))
    assert (again.breaks, again.opens) == ([], first.opens)


def test_preempted_and_resumed_in_one_step_the_request_holds_again() -> None:
    """As reset_prefix_cache does it: all running requests begin anew."""
    handoff = secrets.token_hex(16)
    scheduler, request = started(handoff)
    first = scheduler.next_step(output())

    scheduler.allocated(request, None, 0)
    step = scheduler.next_step(output(preempted=["r"], resumed=["r"]))
    assert (step.breaks, step.opens) == ([handoff], first.opens)
    # Broken once more it is forgotten: the one slot is free for the next.
    scheduler.next_step(output(preempted=["r"]))
    other = secrets.token_hex(16)
    request.request_id = "s"
    request.kv_transfer_params["baton"]["handoff"] = other
    scheduler.allocated(request, None, 0)
    assert [item.handoff for item in scheduler.next_step(output()).opens] == [other]


def test_preempted_before_its_first_step_nothing_is_told() -> None:
    scheduler, _ = started(secrets.token_hex(16))
    step = scheduler.next_step(output(preempted=["r"]))
    assert (step.breaks, step.opens) == ([], [])


def test_a_decode_engine_holds_nothing() -> None:
    scheduler, _ = started(secrets.token_hex(16), baton.Role.DECODE)
    assert scheduler.next_step(output()).opens == []
    assert scheduler.take_counts()["refused"] == 1


def test_a_prefill_engine_pulls_nothing() -> None:
    scheduler, request = started(secrets.token_hex(16))
    request.num_prompt_tokens = 300
    request.kv_transfer_params["do_remote_prefill"] = True
    assert scheduler.matched_tokens(request, 0) == (0, False)
    assert scheduler.take_counts()["refused"] == 1
