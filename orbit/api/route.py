"""The record of one endpoint: what dispatches it and what describes it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from orbit.api.envelope import Reply
from orbit.api.exchange import Exchange
from orbit.api.services import Services

Endpoint = Callable[[Services, Exchange], Awaitable[Reply]]

_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One query parameter for the API's description."""

    name: str
    description: str
    required: bool = False
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path. `{n}` in the path is an attempt's number, every other parameter an id.

    `answer` is the type of `data`, by success status; `is_keyed` says that an Idempotency-Key is required;
    `is_hot` endpoints take no path parameters and are dispatched ahead of the framework's own machinery; `is_plain`
    ones need no credential and answer without an envelope.
    """

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    action: str
    answers: dict[int, Any]
    body: Any = None
    is_body_optional: bool = False
    query: tuple[Parameter, ...] = ()
    is_keyed: bool = False
    is_hot: bool = False
    is_plain: bool = False
    refusals: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The operation's name, unique in the API."""
        return getattr(self.endpoint, "__name__", self.path)

    @property
    def rule(self) -> str:
        """The path in the framework's spelling."""
        return _PARAMETER.sub(
            lambda found: f"<{'number' if found[1] == 'n' else 'id'}:{found[1]}>", self.path
        )

    @property
    def path_parameters(self) -> tuple[str, ...]:
        return tuple(_PARAMETER.findall(self.path))
