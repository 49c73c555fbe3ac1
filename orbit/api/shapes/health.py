"""Health over HTTP."""

from __future__ import annotations

from orbit.api.shapes.fields import Answer


class Health(Answer, frozen=True, kw_only=True):
    status: str
