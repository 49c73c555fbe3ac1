"""The reference pages say what the code does: routes, fields, codes, frames, command lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

from orbit.api.openapi import describe
from orbit.api.routes.table import ROUTES
from orbit.domain import errors
from orbit.domain.strictjson import encode
from orbit.pulse import endings
from orbit.scheduler import messages
from tests.architecture.cli_reference import render
from tests.architecture.markdown import read, table

HTTP = "docs/http.md"
ERRORS = "docs/errors.md"
PROTOCOL = "docs/worker-protocol.md"
FRAMES_ONLY = (errors.RateLimited, errors.StartRefused, errors.OwnershipError)


def words(page: str) -> set[str]:
    """All words of a page, dots and underscores inside of them kept."""
    return set(re.findall(r"[\w.]*\w", read(page)))


def kinds(root: type[errors.OrbitError]) -> Iterator[type[errors.OrbitError]]:
    """Every class of the error tree."""
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


def frame_kinds() -> Iterator[type[msgspec.Struct]]:
    """Every record of the worker protocol."""
    for value in vars(messages).values():
        if isinstance(value, type) and issubclass(value, messages.Received | messages.Sent):
            yield value


def test_every_route_has_its_row() -> None:
    """Method, path and action of each row are those of the routing table; nothing else is listed."""
    rows = {row[0]: row[1] for row in table(HTTP, "| route | action | data |")}
    told = {f"`{route.method} {route.path}`": route.action or "—" for route in ROUTES}
    assert rows == {**told, "`GET /openapi.json`": "—"}


def test_every_list_names_its_parameters() -> None:
    rows = {row[0]: row[1] for row in table(HTTP, "| list | parameters |")}
    told = {
        f"`{route.method} {route.path}`": [parameter.name for parameter in route.query]
        for route in ROUTES
        if route.query
    }
    assert {name: re.findall(r"`(\w+)`", text) for name, text in rows.items()} == told


def test_every_field_is_named() -> None:
    """Each field that the API's description knows stands in the page."""
    document = json.loads(encode(describe(ROUTES)))
    fields = {
        name for schema in document["components"]["schemas"].values() for name in schema.get("properties", {})
    }
    assert len(fields) > 40
    assert fields - words(HTTP) == set()


def test_every_field_of_a_submit_has_its_row() -> None:
    document = json.loads(encode(describe(ROUTES)))
    listed = {
        name for row in table(HTTP, "| field | value | left out |") for name in re.findall(r"`(\w+)`", row[0])
    }
    assert listed == set(document["components"]["schemas"]["SubmitBody"]["properties"]) - {"queue_id"}


def test_every_http_code_has_its_row() -> None:
    """Codes and statuses are those of the error tree, frames aside."""
    rows = {
        (row[0].strip("`"), int(row[1]))
        for row in table(ERRORS, "| code | status | what it says | what to do |")
    }
    assert rows == {
        (kind.code, kind.status) for kind in kinds(errors.OrbitError) if not issubclass(kind, FRAMES_ONLY)
    }


def test_every_frame_code_has_its_row() -> None:
    rows = {row[0].strip("`") for row in table(ERRORS, "| code | in | what it says | what a worker does |")}
    abstract = {errors.StartRefused}
    assert rows == {kind.code for base in FRAMES_ONLY for kind in kinds(base) if kind not in abstract}


def test_every_code_that_the_server_writes_into_a_task_has_its_row() -> None:
    rows = {
        row[0].strip("`") for row in table(ERRORS, "| code | from | what it says |") if row[1] == "server"
    }
    assert rows == {endings.DEADLINE_EXCEEDED, endings.START_DEADLINE_EXCEEDED, endings.LEASE_EXPIRED}


def test_every_message_and_field_is_named() -> None:
    """Each message type and each field of the worker protocol stands in the page."""
    named, missing = words(PROTOCOL), set()
    for kind in frame_kinds():
        tag = kind.__struct_config__.tag
        missing |= ({str(tag)} if tag else set()) - named
        missing |= set(kind.__struct_fields__) - named
    assert missing == set()
    assert len(list(frame_kinds())) > 20


def test_the_command_lines_are_described_by_their_own_help() -> None:
    """docs/cli.md is what `python -m tests.architecture.cli_reference` writes."""
    assert read("docs/cli.md") == render()
