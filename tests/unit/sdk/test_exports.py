"""The public surface of the SDK, name by name."""

from __future__ import annotations

import orbit_sdk

EXPORTS = """
APIError Attempt AttemptPage BatchItem BatchItemResult Client ConfigureQueue ConnectionLost CreateQueue Dispatcher
Execution Fail Failure HandlerDeclaration LateEvidence OrbitError Outcome OutcomeUnknown ProtocolError Queue QueuePage
QueueResult Raw Refusal Request Response Retry RetryPolicy Session SessionRefused SubmitTask Task TaskFilter TaskInfo
TaskPage TaskResult TaskSummary Transport TransportError Unknown Worker decode_exact encode load_credentials
open_session repeat
"""


def test_the_exports_are_exactly_these() -> None:
    """Adding or removing a public name is a decision, not an accident."""
    assert sorted(orbit_sdk.__all__) == sorted(EXPORTS.split())
    public = {name for name in vars(orbit_sdk) if not name.startswith("_")}
    modules = {"annotations", "testing"}
    assert public - modules == set(orbit_sdk.__all__)


def test_every_module_but_testing_is_private() -> None:
    """Users import from `orbit_sdk` and `orbit_sdk.testing` only."""
    from pathlib import Path

    folder = Path(orbit_sdk.__file__).parent
    names = {path.stem for path in folder.glob("*.py")}
    assert {name for name in names if not name.startswith("_")} == {"testing"}
    assert (folder / "py.typed").exists()
