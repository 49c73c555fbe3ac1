"""Queue routes of the HTTP API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from orbit_sdk._calls import Calls, segment
from orbit_sdk._json import encode
from orbit_sdk._models import ConfigureQueue, CreateQueue, Envelope, Queue, QueuePage, QueueResult

_QUEUE: Final = msgspec.json.Decoder(Envelope[Queue], strict=False)
_PAGE: Final = msgspec.json.Decoder(Envelope[QueuePage], strict=False)
_RESULT: Final = msgspec.json.Decoder(Envelope[QueueResult], strict=False)


class QueueCalls:
    """Create, read and configure queues."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create_queue(self, command: CreateQueue, *, idempotency_key: str) -> QueueResult:
        """Create a queue; its name is unique in the namespace."""
        answer = await self._calls.write("/v1/queues", encode(command), _RESULT, key=idempotency_key)
        return answer.data

    async def configure_queue(
        self, queue_id: str, command: ConfigureQueue, *, idempotency_key: str
    ) -> QueueResult:
        """Replace all control values of a queue, if it still has the expected revision."""
        fields = msgspec.structs.asdict(command) | {"expected_revision": str(command.expected_revision)}
        path = f"/v1/queues/{segment(queue_id)}:configure"
        return (await self._calls.write(path, encode(fields), _RESULT, key=idempotency_key)).data

    async def get_queue(self, queue_id: str) -> Queue:
        """One queue with its live usage."""
        return (await self._calls.read(f"/v1/queues/{segment(queue_id)}", _QUEUE)).data

    async def list_queues(
        self, *, name: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> QueuePage:
        """One page of queues, by name where one is given."""
        query: dict[str, str] = {}
        if name is not None:
            query["name"] = name
        if limit is not None:
            query["limit"] = str(limit)
        if cursor is not None:
            query["cursor"] = cursor
        return (await self._calls.read("/v1/queues", _PAGE, query)).data

    async def iterate_queues(
        self, *, name: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Queue]:
        """All queues, page by page under the same filter; an error ends the iteration, nothing is skipped."""
        cursor: str | None = None
        while True:
            page = await self.list_queues(name=name, limit=limit, cursor=cursor)
            for queue in page.queues:
                yield queue
            cursor = page.next_cursor
            if cursor is None:
                return
