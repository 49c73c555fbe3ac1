"""How the server calls the application: over ASGI in a task for each request, or directly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.task_group import TaskGroup

from orbit.api.exchange import Direct
from orbit.runtime.logging import get_logger

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]


class Application(Protocol):
    """An ASGI application with a direct way to some endpoints, which then run in their connection's own task."""

    def direct(self, method: bytes, target: bytes) -> Direct | None: ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


class Plain(ASGIWrapper):
    """An application as hypercorn's streams call it, without their ways into threads."""

    def __init__(self, app: Application) -> None:
        super().__init__(app)
        self.direct = app.direct

    async def __call__(self, scope: Any, receive: Any, send: Any, *_: Any) -> None:
        await self.app(scope, receive, send)


class AppTasks(TaskGroup):
    """Runs the application for each request; one that ends without reading its body blocks nobody."""

    async def spawn_app(self, app: Any, config: Any, scope: Any, send: Send) -> Any:
        sender, receiver = trio.open_memory_channel[Any](config.max_app_queue_size)

        async def put(event: Any) -> None:
            try:
                await sender.send(event)
            except trio.BrokenResourceError:
                return  # the application is done with this request

        async def run() -> None:
            with receiver:
                await _run_app(app, scope, receiver.receive, send)

        assert self._nursery is not None
        self._nursery.start_soon(run)
        return put


async def _run_app(app: Any, scope: Any, receive: Receive, send: Send) -> None:
    try:
        await app(scope, receive, send)
    except Exception as error:  # noqa: BLE001 - one request's failure must not reach its connection's other tasks
        get_logger().error("request_broke", path=scope["path"], exc_info=error)
    finally:
        with trio.CancelScope(shield=True):
            await send(None)
