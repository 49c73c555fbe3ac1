"""What the endpoints call: reads, and one line of commands for each kind of write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from orbit.api.caller import Door
from orbit.domain.errors import OrbitError
from orbit.domain.limits import GROUP_OTHERS_MAX, GROUP_SUBMITS_MAX
from orbit.pulse.cancel import cancel_tasks
from orbit.pulse.commands import CancelTask, ConfigureQueue, CreateQueue, SubmitTask, TaskAnswer
from orbit.pulse.queues import configure_queues, create_queues
from orbit.pulse.submit import submit_tasks
from orbit.runtime.database import Database, Groups
from orbit.runtime.hints import HintKind, HintSender
from orbit.store.transaction import Tx

T = TypeVar("T")

WRITERS: Final = 3
READERS: Final = 4


@dataclass(frozen=True, slots=True)
class Services:
    """The API's way to the database; `read` runs on an autocommitting connection."""

    database: Database
    door: Door
    submits: Groups[SubmitTask]
    cancels: Groups[CancelTask]
    queue_creations: Groups[CreateQueue]
    queue_configurations: Groups[ConfigureQueue]
    hints: HintSender

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self.database.read(work)


def open_services(database: Database) -> Services:
    """Assemble the services over an open database; `hints.run` must run beside them."""
    hints = HintSender(database)
    return Services(
        database=database,
        door=Door(database),
        submits=Groups(
            database,
            partial(_submit_and_tell, hints),
            max_operations=GROUP_SUBMITS_MAX,
            size=lambda command: len(command.payload),
        ),
        cancels=Groups(database, cancel_tasks, max_operations=GROUP_OTHERS_MAX),
        queue_creations=Groups(database, create_queues, max_operations=GROUP_OTHERS_MAX),
        queue_configurations=Groups(database, configure_queues, max_operations=GROUP_OTHERS_MAX),
        hints=hints,
    )


def _submit_and_tell(
    hints: HintSender, tx: Tx, application_id: bytes, commands: Sequence[SubmitTask]
) -> list[TaskAnswer | OrbitError]:
    """Accept tasks, and tell the dispatchers before the COMMIT.

    Their claim then waits for the application's lock instead of for the answer to the COMMIT and the way of the hint.
    """
    outcomes = submit_tasks(tx, application_id, commands)
    queue_ids = {
        outcome.task.queue_id
        for outcome in outcomes
        if isinstance(outcome, TaskAnswer) and _is_ready(outcome)
    }
    if queue_ids:
        hints.send_now(HintKind.SUBMIT, application_id, queue_ids)
    return outcomes


def _is_ready(answer: TaskAnswer) -> bool:
    """Tell whether a dispatcher could claim the task at once."""
    return not answer.deduplicated and answer.task.available_at <= answer.task.created_at
