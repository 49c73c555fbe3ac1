"""Results and declines: how a worker ends an attempt, once, whatever it repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from orbit.domain.digest import command_digest
from orbit.domain.errors import IdempotencyConflict, OrbitError, PermissionDenied, StaleAttempt, StateConflict
from orbit.domain.limits import LATE_EVIDENCE_MAX_ROWS
from orbit.domain.states import AttemptState, Disposition, TaskState
from orbit.pulse.commands import DeclineAttempt, Declined, FinishAttempt, Recorded
from orbit.pulse.endings import Ending, Failure, after_decline, after_result
from orbit.store.sql.attempts import HeldRow, NewEvidence, count_evidence, insert_evidence
from orbit.store.sql.fences import FenceRow
from orbit.store.transaction import Tx

Fences = dict[bytes, FenceRow]


@dataclass(slots=True)
class EndReports:
    """Judges results and declines in order and gathers what they end, and what came too late."""

    tx: Tx
    fences: Fences
    held: dict[bytes, HeldRow]
    ended: dict[bytes, Ending] = field(default_factory=dict)
    evidence: list[NewEvidence] = field(default_factory=list)

    def finish(self, command: FinishAttempt) -> Recorded | OrbitError:
        """Take a result: APPLIED once, DUPLICATE for the same again, LATE after any other end."""
        found = self._owned(command)
        if isinstance(found, OrbitError):
            return found
        digest = result_digest(command)
        if found.ended_task_state is not None:
            return self._after_end(found, command, digest)
        if found.session_id != command.session_id:
            return _stale()
        if found.attempt_state == AttemptState.LEASED:
            return StateConflict("the attempt has not been started")
        failure = _failure(command)
        attempt_state, following = after_result(
            found, command.outcome, failure, command.retry_after_ms, self.tx.now
        )
        self.ended[found.attempt_id] = Ending(
            held=found,
            attempt_state=attempt_state,
            task_state=following.state,
            failure=following.failure,
            available_at=following.available_at,
            command_id=command.command_id,
            digest=digest,
            output=command.output,
        )
        return Recorded(task_state=following.state, disposition=Disposition.APPLIED)

    def decline(self, command: DeclineAttempt) -> Declined | OrbitError:
        """Hand an unstarted attempt back; a repeat is answered alike."""
        found = self._owned(command)
        if isinstance(found, OrbitError):
            return found
        digest = command_digest("decline", [("epoch", command.epoch), ("reason", command.reason)])
        if (
            found.attempt_state == AttemptState.DECLINED
            and found.end_command_id == command.command_id.encode()
        ):
            return Declined() if found.result_digest == digest else _reused()
        if found.ended_task_state is not None or found.session_id != command.session_id:
            return _stale()
        if found.attempt_state != AttemptState.LEASED:
            return StateConflict("the attempt has been started and can't be declined")
        following = after_decline(command.reason, self.tx.now)
        self.ended[found.attempt_id] = Ending(
            held=found,
            attempt_state=AttemptState.DECLINED,
            task_state=following.state,
            available_at=following.available_at,
            command_id=command.command_id,
            digest=digest,
        )
        return Declined()

    def keep_evidence(self) -> None:
        """Store late results, at most a few an attempt."""
        if not self.evidence:
            return
        kept = count_evidence(self.tx, sorted({row.attempt_id for row in self.evidence}))
        room = {row.attempt_id: LATE_EVIDENCE_MAX_ROWS - kept.get(row.attempt_id, 0) for row in self.evidence}
        admitted = []
        for row in self.evidence:
            room[row.attempt_id] -= 1
            if room[row.attempt_id] >= 0:
                admitted.append(row)
        insert_evidence(self.tx, admitted)

    def _owned(self, command: FinishAttempt | DeclineAttempt) -> HeldRow | OrbitError:
        """Return the attempt that a message names, if its session is current and the attempt is its worker's."""
        fence = self.fences.get(command.session_id)
        if fence is None:
            return _stale()
        if not fence.valid:
            return PermissionDenied("the session's credential is no longer valid")
        row = self.held.get(command.attempt_id)
        if row is None or row.epoch != command.epoch or row.worker_ref != fence.worker_ref:
            return _stale()
        # A second message of this group about the same attempt is judged against its end.
        ending = self.ended.get(command.attempt_id)
        return row if ending is None else _as_ended(ending)

    def _after_end(self, held: HeldRow, command: FinishAttempt, digest: bytes) -> Recorded | OrbitError:
        assert held.ended_task_state is not None
        ended = TaskState(held.ended_task_state)
        if held.end_command_id == command.command_id.encode():
            if held.result_digest != digest:
                return _reused()
            # The group's first run committed without an answer: this is its own result.
            repeated = Disposition.APPLIED if self.tx.resolving else Disposition.DUPLICATE
            return Recorded(task_state=ended, disposition=repeated)
        if held.result_digest == digest:
            return Recorded(task_state=ended, disposition=Disposition.DUPLICATE)
        self.evidence.append(
            NewEvidence(
                attempt_id=held.attempt_id,
                evidence_digest=digest,
                received_at=self.tx.now,
                outcome=command.outcome,
                error_code=command.error_code,
                error_message=command.error_message,
                output=command.output,
            )
        )
        return Recorded(task_state=TaskState(held.task_state), disposition=Disposition.LATE)


def _as_ended(ending: Ending) -> HeldRow:
    return ending.held._replace(
        attempt_state=ending.attempt_state,
        ended_task_state=ending.task_state,
        end_command_id=None if ending.command_id is None else ending.command_id.encode(),
        result_digest=ending.digest,
    )


def result_digest(command: FinishAttempt) -> bytes:
    """Return the digest of a result's content; the message id and the session are not part of it."""
    return command_digest(
        "result",
        [
            ("epoch", command.epoch),
            ("outcome", command.outcome),
            ("output", command.output),
            ("error_code", command.error_code),
            ("error_message", command.error_message),
            ("retry_after_ms", command.retry_after_ms),
        ],
    )


def end_reports(
    tx: Tx, fences: Fences, held: dict[bytes, HeldRow], commands: Sequence[FinishAttempt | DeclineAttempt]
) -> tuple[EndReports, list[Recorded | Declined | OrbitError]]:
    """Judge results and declines in their order."""
    reports = EndReports(tx, fences, held)
    outcomes: list[Recorded | Declined | OrbitError] = [
        reports.finish(command) if isinstance(command, FinishAttempt) else reports.decline(command)
        for command in commands
    ]
    return reports, outcomes


def _failure(command: FinishAttempt) -> Failure | None:
    if command.error_code is None:
        return None
    return Failure(code=command.error_code, message=command.error_message or "")


def _reused() -> OrbitError:
    return IdempotencyConflict("the message id was used before with other content")


def _stale() -> OrbitError:
    return StaleAttempt("the attempt isn't this session's")
