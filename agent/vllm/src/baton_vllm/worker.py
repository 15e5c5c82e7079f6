"""The half in a vLLM worker: one agent, told what to do at the beginning of
each step, asked for its events at the end. Nothing here raises into the step:
what fails is a failed request."""

from __future__ import annotations

import logging
import select

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorTransferResults,
)

from baton_vllm import baton
from baton_vllm.stats import BatonStats
from baton_vllm.step import Groups, Open, Pull, Ready, Step

logger = logging.getLogger("vllm.baton")

# How long a step that computes nothing may wait for an event.
NAP_MS = 2


class BatonWorker:
    def __init__(self, agent: baton.Agent) -> None:
        self._agent: baton.Agent | None = agent
        self._poll = select.poll()
        self._poll.register(agent.fd(), select.POLLIN)
        self._held: dict[str, str] = {}  # handoff to request
        self._pulled: dict[int, str | None] = {}  # tag to request
        self._results = KVConnectorTransferResults()
        self._stats = BatonStats()
        self._may_nap = False

    # ------------------------------------------------------------ the step

    def begin_step(self, step: Step) -> None:
        if self._agent is None:
            return
        for handoff in step.breaks:
            self._break(self._agent, handoff)
        self._say_reused(self._agent, step.reused)
        for item in step.opens:
            self._open(self._agent, item)
        for ready in step.readies:
            self._ready(self._agent, ready)
        for pull in step.pulls:
            self._pull(self._agent, pull)
        for tag in step.cancels:
            self._agent.cancel(tag)
        self._results.finished_recving.update(step.failures)
        self._results.failed_recving.update(step.failures)
        if step.blocks_free is not None:
            self._agent.blocks_free(step.blocks_free)
        self._may_nap = step.is_empty

    def _break(self, agent: baton.Agent, handoff: str) -> None:
        try:
            agent.hold_break(baton.Id.parse(handoff))
        except baton.BatonError as error:
            logger.error("baton: handoff %s: %s", handoff, error)

    def _say_reused(self, agent: baton.Agent, groups: Groups) -> None:
        for group, ids in enumerate(groups):
            if not ids:
                continue
            try:
                agent.blocks_reused(group, ids)
            except baton.BatonError as error:
                logger.error("baton: reused blocks of group %d: %s", group, error)

    def _open(self, agent: baton.Agent, item: Open) -> None:
        try:
            agent.hold_open(baton.Id.parse(item.handoff), item.slot, item.owner)
        except baton.BatonError as error:
            # Its word stays clear, so nobody can prove a read of it.
            logger.warning("baton: handoff %s: %s", item.handoff, error)

    def _ready(self, agent: baton.Agent, ready: Ready) -> None:
        self._held[ready.handoff] = ready.request
        try:
            agent.hold_ready(
                baton.Id.parse(ready.handoff),
                ready.groups,
                ready.tokens,
                ready.lease_ms,
            )
        except baton.BatonError as error:
            logger.warning("baton: handoff %s: %s", ready.handoff, error)
            self._break(agent, ready.handoff)  # before its blocks are free
            self._end_hold(ready.handoff)
            self._stats.released(baton.Reason.BROKEN)

    def _pull(self, agent: baton.Agent, pull: Pull) -> None:
        self._pulled[pull.tag] = pull.request
        try:
            agent.pull(
                baton.Id.parse(pull.handoff),
                pull.params,
                pull.groups,
                pull.have_tokens,
                pull.tag,
            )
        except baton.BatonError as error:
            logger.warning("baton: handoff %s: %s", pull.handoff, error)
            self._end_pull(pull.tag, is_pulled=False)
            self._stats.pull_failed(baton.Reason.MISMATCH)

    def end_step(self) -> KVConnectorTransferResults:
        """Each request once, in the step after its end came."""
        if self._agent is not None:
            if self._may_nap and self._waits() and not self._has_results():
                self._poll.poll(NAP_MS)
            for event in self._agent.poll():
                self._on_event(event)
        results, self._results = self._results, KVConnectorTransferResults()
        return results

    def _waits(self) -> bool:
        return bool(self._held or self._pulled)

    def _has_results(self) -> bool:
        results = self._results
        return bool(results.finished_sending or results.finished_recving)

    # -------------------------------------------------------------- events

    def _on_event(self, event: baton.Event) -> None:
        if event.type == baton.EventType.RELEASED:
            self._end_hold(str(event.handoff))
            self._stats.released(event.reason)
        elif event.type == baton.EventType.PULLED:
            if self._end_pull(event.tag, is_pulled=True):
                self._stats.pulled(event)
        elif event.type == baton.EventType.PULL_FAILED:
            if self._end_pull(event.tag, is_pulled=False):
                self._stats.pull_failed(event.reason)
                logger.warning(
                    "baton: handoff %s: pull failed: %s",
                    event.handoff,
                    baton.reason_text(event.reason),
                )

    def _end_hold(self, handoff: str) -> None:
        request = self._held.pop(handoff, None)
        if request is not None:
            self._results.finished_sending.add(request)

    def _end_pull(self, tag: int, *, is_pulled: bool) -> bool:
        """Whether a request waited for it."""
        request = self._pulled.pop(tag, None)
        if request is None:
            return False
        self._results.finished_recving.add(request)
        if not is_pulled:
            self._results.failed_recving.add(request)
        return True

    # ---------------------------------------------------------------- life

    def info(self) -> bytes:
        return self._agent.info() if self._agent is not None else b""

    def take_stats(self) -> BatonStats | None:
        if self._stats.is_empty():
            return None
        stats, self._stats = self._stats, BatonStats()
        return stats

    def close(self) -> None:
        """Says goodbye to the proxies: holds and pulls are over."""
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.close()
