"""All endpoints: the one table that dispatch and description are made from."""

from __future__ import annotations

from typing import Final

from orbit.api.route import Route
from orbit.api.routes import attempts, batches, dispatchers, health, queues, tasks

ROUTES: Final[tuple[Route, ...]] = (
    *queues.ROUTES,
    *tasks.ROUTES,
    *batches.ROUTES,
    *attempts.ROUTES,
    *dispatchers.ROUTES,
    *health.ROUTES,
)
