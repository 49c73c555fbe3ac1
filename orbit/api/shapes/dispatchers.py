"""Live dispatchers over HTTP (docs/http.md)."""

from __future__ import annotations

from collections.abc import Iterable

from orbit.api.shapes.fields import Answer, Id, Time
from orbit.domain.ids import id_text
from orbit.domain.wire import format_time
from orbit.pulse.queries import DispatcherView


class Dispatcher(Answer, frozen=True, kw_only=True):
    id: Id
    url: str
    sessions: int
    heartbeat_at: Time


class DispatcherList(Answer, frozen=True, kw_only=True):
    """The least busy first."""

    dispatchers: list[Dispatcher]


def render_list(views: Iterable[DispatcherView]) -> DispatcherList:
    return DispatcherList(
        dispatchers=[
            Dispatcher(
                id=id_text(view.dispatcher_id),
                url=view.url,
                sessions=view.sessions,
                heartbeat_at=format_time(view.heartbeat_at),
            )
            for view in views
        ]
    )
