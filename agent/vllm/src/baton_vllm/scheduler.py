"""The half in vLLM's scheduler: which request holds, which pulls, and what the
workers shall do in the next step. It moves no byte.

    P   first allocation     slot, Open          preempted, aborted: break
        finished             params, Ready       finished_sending: slot is free
    D   asked for a match    tokens of the params, once for each request
        allocated            Pull                aborted: cancel
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vllm.v1.request import RequestStatus

from baton_vllm import baton, params
from baton_vllm.layout import Group
from baton_vllm.settings import Settings
from baton_vllm.step import Card, Groups, Open, Pull, Ready, Step

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

logger = logging.getLogger("vllm.baton")

NULL_BLOCK = 0


@dataclasses.dataclass
class _Hold:
    request: str
    handoff: baton.Id
    slot: int
    owner: int  # the proxy's boot, whose lease counts; 0: none
    is_ready: bool = False


@dataclasses.dataclass
class _Take:
    """A D request's handoff."""

    handoff: baton.Id
    text: bytes  # libbaton's params
    have_tokens: int = 0
    tag: int | None = None  # of its pull


class BatonScheduler:
    def __init__(
        self, settings: Settings, groups: Sequence[Group], part: baton.Role
    ) -> None:
        self._settings = settings
        self._may_hold = part in (baton.Role.PREFILL, baton.Role.BOTH)
        self._may_pull = part in (baton.Role.DECODE, baton.Role.BOTH)
        self._key = settings.key()
        self._groups = groups
        self._infos: list[bytes] = []
        self._free_slots = list(range(settings.max_handoffs))
        self._holds: dict[str, _Hold] = {}  # by request
        self._handoffs: set[str] = set()  # of the holds
        self._takes: dict[str, _Take] = {}  # by request
        self._asked: set[str] = set()  # D requests that may not pull (again)
        self._tags = itertools.count(1)
        self._step = Step()
        self._no_counts()

    def _no_counts(self) -> None:
        self.counts = {"offers": 0, "no_slot": 0, "no_offer": 0, "refused": 0}

    def meet_workers(self, cards: dict[int, Card]) -> None:
        self._infos = [cards[rank].info for rank in sorted(cards)]

    # ----------------------------------------------------------------- P

    def _open_hold(self, request: Request, inner: dict[str, Any]) -> None:
        handoff = params.handoff_of(inner)
        if not self._may_hold or handoff is None or str(handoff) in self._handoffs:
            self.counts["refused"] += 1
            return
        if not self._free_slots or not self._infos:
            self.counts["no_slot"] += 1
            return
        self._add_hold(request.request_id, handoff, params.owner_of(inner))

    def _add_hold(self, request_id: str, handoff: baton.Id, owner: int) -> None:
        slot = self._free_slots.pop()
        self._holds[request_id] = _Hold(request_id, handoff, slot, owner)
        self._handoffs.add(str(handoff))
        self._step.opens.append(Open(str(handoff), slot, owner))

    def _forget_hold(self, hold: _Hold) -> None:
        del self._holds[hold.request]
        self._handoffs.discard(str(hold.handoff))
        self._free_slots.append(hold.slot)

    def _break_open(self, request_id: str) -> None:
        """An OPEN hold ends silently: its slot is free when the next step
        begins, as the workers break before they open."""
        hold = self._holds.get(request_id)
        if hold is None or hold.is_ready:
            return
        handoff = str(hold.handoff)
        unsent = [item for item in self._step.opens if item.handoff == handoff]
        if unsent:
            self._step.opens.remove(unsent[0])
        else:
            self._step.breaks.append(handoff)
        self._forget_hold(hold)

    def _offer(
        self, request: Request, hold: _Hold, block_ids: Sequence[Sequence[int]]
    ) -> dict[str, Any] | None:
        """The params; None when the blocks are not all there."""
        tokens = request.num_prompt_tokens
        prompt = params.prompt_of(request)
        groups = [
            group.needed(ids, tokens) for group, ids in zip(self._groups, block_ids)
        ]
        if (
            prompt is None
            or request.num_computed_tokens < tokens
            or any(NULL_BLOCK in ids for ids in groups)
            or any(
                len(ids) != group.needed_count(tokens)
                for group, ids in zip(self._groups, groups)
            )
        ):
            return None
        text = baton.params_write(
            self._infos, hold.handoff, hold.slot, hold.owner, groups, prompt, self._key
        )
        answer: dict[str, Any] = json.loads(text)
        lease_ms = 0 if hold.owner != 0 else int(self._settings.lease_s * 1000)
        self._step.readies.append(
            Ready(request.request_id, str(hold.handoff), groups, tokens, lease_ms)
        )
        hold.is_ready = True
        return answer

    def _finish_hold(
        self, request: Request, hold: _Hold, block_ids: Sequence[Sequence[int]]
    ) -> tuple[bool, dict[str, Any] | None]:
        answer = None
        if request.status in (
            RequestStatus.FINISHED_LENGTH_CAPPED,
            RequestStatus.FINISHED_STOPPED,
        ):
            try:
                answer = self._offer(request, hold, block_ids)
            except Exception:
                logger.exception("baton: no handoff %s", hold.handoff)
        if answer is None:
            self.counts["no_offer"] += 1
            self._break_open(request.request_id)
            return False, None
        self.counts["offers"] += 1
        return True, answer

    def _preempted(self, request_id: str, output: SchedulerOutput) -> None:
        hold = self._holds.get(request_id)
        if hold is None or hold.is_ready:
            return
        self._break_open(request_id)
        # When all requests are preempted at once (reset_prefix_cache) they
        # start again in this very step, in other blocks.
        if request_id in output.scheduled_cached_reqs.resumed_req_ids:
            self._add_hold(request_id, hold.handoff, hold.owner)

    # ----------------------------------------------------------------- D

    def matched_tokens(self, request: Request, have_tokens: int) -> tuple[int, bool]:
        """How many tokens a pull would bring beyond `have_tokens`."""
        request_id = request.request_id
        if request_id in self._asked:
            return 0, False
        inner = params.asked(request, "do_remote_prefill")
        if inner is None:
            return 0, False
        take = self._takes.get(request_id)
        if take is None:
            take = self._accept(request, inner)
        if take is None:
            self._asked.add(request_id)
            return 0, False
        take.have_tokens = have_tokens
        missing = request.num_prompt_tokens - have_tokens
        # The last token of a prompt is computed here in any case.
        return (missing, True) if missing > 1 else (0, False)

    def _accept(self, request: Request, inner: dict[str, Any]) -> _Take | None:
        try:
            if not self._may_pull:
                raise ValueError("a kv_producer pulls nothing")
            handoff, text = params.accept(request, inner, self._key)
        except ValueError as why:
            # At debug, as a client may send as many as it likes.
            logger.debug("baton: a handoff is not used: %s", why)
            self.counts["refused"] += 1
            return None
        take = _Take(handoff, text)
        self._takes[request.request_id] = take
        return take

    def _start_pull(
        self, request: Request, blocks: KVCacheBlocks, tokens: int
    ) -> None:
        """tokens 0: all that counts is here already, P is only told so."""
        take = self._takes[request.request_id]
        total = request.num_prompt_tokens
        groups: Groups = [[] for _ in self._groups]
        have = total
        if tokens > 0:
            have = take.have_tokens
            groups = [
                group.wanted(ids, total, have)
                for group, ids in zip(self._groups, blocks.get_block_ids())
            ]
        take.tag = next(self._tags)
        self._step.pulls.append(
            Pull(
                request=request.request_id if tokens > 0 else None,
                handoff=str(take.handoff),
                tag=take.tag,
                params=take.text,
                groups=groups,
                have_tokens=have,
            )
        )

    # -------------------------------------------------------- both, by vLLM

    def allocated(self, request: Request, blocks: KVCacheBlocks, tokens: int) -> None:
        request_id = request.request_id
        inner = params.asked(request, "do_remote_decode")
        if inner is not None and request_id not in self._holds:
            self._open_hold(request, inner)
        if request_id in self._takes and request_id not in self._asked:
            self._asked.add(request_id)
            self._start_pull(request, blocks, tokens)

    def finished(
        self, request: Request, block_ids: Sequence[Sequence[int]]
    ) -> tuple[bool, dict[str, Any] | None]:
        request_id = request.request_id
        self._asked.discard(request_id)
        take = self._takes.pop(request_id, None)
        if take is not None and take.tag is not None:
            if request.status == RequestStatus.FINISHED_ABORTED:
                self._step.cancels.append(take.tag)
        hold = self._holds.get(request_id)
        if hold is None:
            return False, None
        return self._finish_hold(request, hold, block_ids)

    def next_step(self, output: SchedulerOutput) -> Step:
        for request_id in output.preempted_req_ids or ():
            self._preempted(request_id, output)
        step, self._step = self._step, Step()
        step.is_empty = output.total_num_scheduled_tokens == 0
        if any(hold.is_ready for hold in self._holds.values()):
            try:
                step.reused = self._written(output, step)
            except Exception:
                logger.exception("baton: which blocks are written to is unknown")
        return step

    def _written(self, output: SchedulerOutput, step: Step) -> Groups:
        """The blocks that this step may write to. vLLM keeps a hold's blocks
        out of them; saying so all the same makes a mistake harmless."""
        written: list[set[int]] = [set() for _ in self._groups]

        def note(lists: Sequence[Sequence[int]] | None, computed: int) -> None:
            for group, seen, ids in zip(self._groups, written, lists or ()):
                seen.update(ids[computed // group.block_tokens :])

        for new in output.scheduled_new_reqs:
            note(new.block_ids, new.num_computed_tokens)
        cached = output.scheduled_cached_reqs
        for request_id, lists, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens
        ):
            # Blocks are new ones, but for a resumed request all that it has,
            # with those that it found in the prefix cache and only reads.
            note(lists, computed if request_id in cached.resumed_req_ids else 0)
        for pull in step.pulls:
            for seen, ids in zip(written, pull.groups):
                seen.update(ids)
        return [sorted(seen - {NULL_BLOCK}) for seen in written]

    def fail(self, request: Request) -> None:
        """Something went wrong here: a request that waits for its pull fails."""
        self._step.failures.append(request.request_id)

    def reset(self) -> None:
        """The weights changed: what was computed with them before is no longer
        handed over."""
        for hold in list(self._holds.values()):
            if hold.is_ready:
                self._step.breaks.append(str(hold.handoff))
            else:
                self._break_open(hold.request)

    def update(self, output: KVConnectorOutput) -> None:
        for request_id in output.finished_sending or ():
            hold = self._holds.get(request_id)
            if hold is not None:
                self._forget_hold(hold)

    def take_counts(self) -> dict[str, int]:
        counts = self.counts
        self._no_counts()
        return counts
