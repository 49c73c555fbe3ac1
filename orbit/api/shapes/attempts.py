"""Attempts over HTTP (docs/http.md)."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType

from orbit.api.shapes.fields import (
    Answer,
    ErrorPair,
    Id,
    Json,
    Time,
    Uint64,
    error_or_unset,
    id_or_unset,
    some,
    time_or_unset,
    uint64_or_unset,
)
from orbit.domain.ids import id_text
from orbit.domain.states import AttemptState, Outcome
from orbit.domain.wire import format_time, uint64_text
from orbit.pulse.paging import Page
from orbit.pulse.views import AttemptView, EvidenceView


class Evidence(Answer, frozen=True, kw_only=True):
    """A result that came after the attempt had ended; it changed nothing."""

    received_at: Time
    outcome: Outcome
    error: ErrorPair | UnsetType = UNSET


class Attempt(Answer, frozen=True, kw_only=True):
    """`n` is the attempt's number, equal to its epoch; `output` only when it is read by number."""

    attempt_id: Id
    n: int
    epoch: Uint64
    state: AttemptState
    queue_id: Id
    leased_at: Time
    worker_id: Id | UnsetType = UNSET
    worker_name: str | UnsetType = UNSET
    concurrency_token: Uint64 | UnsetType = UNSET
    started_at: Time | UnsetType = UNSET
    deadline_at: Time | UnsetType = UNSET
    lease_expires_at: Time | UnsetType = UNSET
    ended_at: Time | UnsetType = UNSET
    error: ErrorPair | UnsetType = UNSET
    output: Json | UnsetType = UNSET
    late_evidence: list[Evidence] | UnsetType = UNSET


class AttemptList(Answer, frozen=True, kw_only=True):
    attempts: list[Attempt]
    next_cursor: str | UnsetType = UNSET


def render_attempt(view: AttemptView) -> Attempt:
    return Attempt(
        attempt_id=id_text(view.attempt_id),
        n=view.epoch,
        epoch=uint64_text(view.epoch),
        state=view.state,
        queue_id=id_text(view.queue_id),
        leased_at=format_time(view.leased_at),
        worker_id=id_or_unset(view.worker_id),
        worker_name=some(view.worker_name),
        concurrency_token=uint64_or_unset(view.concurrency_token),
        started_at=time_or_unset(view.started_at),
        deadline_at=time_or_unset(view.deadline_at),
        lease_expires_at=time_or_unset(view.lease_expires_at),
        ended_at=time_or_unset(view.ended_at),
        error=error_or_unset(view.error_code, view.error_message),
        output=UNSET if view.output is None else Raw(view.output),
        late_evidence=[_render_evidence(item) for item in view.evidence] or UNSET,
    )


def render_list(page: Page[AttemptView]) -> AttemptList:
    return AttemptList(
        attempts=[render_attempt(view) for view in page.items], next_cursor=some(page.next_cursor)
    )


def _render_evidence(item: EvidenceView) -> Evidence:
    return Evidence(
        received_at=format_time(item.received_at),
        outcome=Outcome(item.outcome),
        error=error_or_unset(item.error_code, item.error_message),
    )
