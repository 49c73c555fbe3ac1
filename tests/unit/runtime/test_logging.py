"""Log lines: complete enough to follow a request, and never with a secret or a payload."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import structlog

from orbit.domain.tokens import make_token
from orbit.runtime.logging import bound, configure_logging, get_logger, redact


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def start(log_format: str, log_level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(log_format=log_format, log_level=log_level, process="orbit-test", stream=stream)
    return stream


def fail(token: str) -> None:
    raise RuntimeError(f"mysql://orbit:hunter2@db failed for {token}")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_carries_process_level_time_and_bound_ids() -> None:
    stream = start("json")
    with bound(request_id=b"\x01" * 16):
        get_logger().info("task_accepted", queue="images", count=3)
    get_logger().warning("later")
    first, second = lines(stream)
    assert first["event"] == "task_accepted"
    assert first["request_id"] == "01" * 16
    assert (first["process"], first["level"], first["queue"], first["count"]) == (
        "orbit-test",
        "info",
        "images",
        3,
    )
    assert first["at"].endswith("Z")
    assert "request_id" not in second


def test_levels_below_the_setting_are_silent() -> None:
    stream = start("json", "warning")
    get_logger().info("quiet")
    get_logger().error("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_secret_reaches_a_line_by_any_way(log_format: str) -> None:
    stream = start(log_format)
    _, token, digest = make_token()
    log = get_logger()
    log.info("direct", token=token, note=f"saw {token} here", header=f"Bearer {token[:40]}")
    log.info("in the event %s", token, nested={"password": "hunter2", "list": [token, {"secret": "hunter2"}]})
    log.info(
        "address", url='mysql://orbit:hunter2/:@"x@db:3306/orbit', where="mysql://orbit:hunter2@db/orbit"
    )
    log.info("bytes", digest=digest, raw=b"hunter2", error=ValueError(f"bad {token}"))
    log.info("bodies", payload='{"card":"hunter2"}', output="hunter2", evidence="hunter2")
    try:
        fail(token)
    except RuntimeError:
        log.exception("failed")
    logging.getLogger("hypercorn.error").warning("Authorization: Bearer %s", token)
    text = stream.getvalue()
    assert "hunter2" not in text
    assert token not in text
    assert token[-20:] not in text
    assert digest.hex() not in text
    assert "RuntimeError" in text
    assert text.count("[removed]") >= 8


def test_lines_of_other_libraries_take_the_same_form() -> None:
    stream = start("json")
    logging.getLogger("hypercorn.error").info("Running on %s", "http://127.0.0.1:8080")
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["process"], line["level"]) == (
        "Running on http://127.0.0.1:8080",
        "hypercorn.error",
        "orbit-test",
        "info",
    )


def test_values_are_shown_in_their_wire_form_and_bounded() -> None:
    stream = start("json")
    get_logger().info(
        "values",
        at_time=datetime(2026, 1, 31, 8),
        ids=[b"\x02" * 16],
        many=list(range(100)),
        long="x" * 9_000,
        other=object(),
    )
    (line,) = lines(stream)
    assert line["at_time"] == "2026-01-31T08:00:00.000000Z"
    assert line["ids"] == ["02" * 16]
    assert len(line["many"]) == 33
    assert len(line["long"]) < 5_000
    assert line["other"] == "<object>"


def test_a_console_line_is_one_readable_line() -> None:
    stream = start("console")
    get_logger().info("task_accepted", queue="images")
    (line,) = stream.getvalue().splitlines()
    assert "task_accepted" in line
    assert "queue=images" in line
    assert "\x1b[" not in line


def test_ordinary_addresses_are_left_alone() -> None:
    assert (
        redact("ws://127.0.0.1:8081 and mysql://db:3306/orbit")
        == "ws://127.0.0.1:8081 and mysql://db:3306/orbit"
    )
