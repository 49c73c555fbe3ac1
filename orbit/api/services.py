"""What the endpoints call: reads, and one line of commands for each kind of write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from orbit.api.caller import Door
from orbit.domain.limits import GROUP_OTHERS_MAX, GROUP_SUBMITS_MAX
from orbit.pulse.cancel import cancel_tasks
from orbit.pulse.commands import CancelTask, ConfigureQueue, CreateQueue, SubmitTask
from orbit.pulse.queues import configure_queues, create_queues
from orbit.pulse.submit import submit_tasks
from orbit.runtime.database import Database, Groups
from orbit.runtime.hints import HintSender
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
    return Services(
        database=database,
        door=Door(database),
        submits=Groups(
            database,
            submit_tasks,
            max_operations=GROUP_SUBMITS_MAX,
            size=lambda command: len(command.payload),
        ),
        cancels=Groups(database, cancel_tasks, max_operations=GROUP_OTHERS_MAX),
        queue_creations=Groups(database, create_queues, max_operations=GROUP_OTHERS_MAX),
        queue_configurations=Groups(database, configure_queues, max_operations=GROUP_OTHERS_MAX),
        hints=HintSender(database),
    )
