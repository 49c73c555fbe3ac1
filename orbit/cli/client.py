"""The HTTP API from the command line: which server and credential, how answers and refusals look."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

import click
import msgspec
import trio

from orbit.cli.places import home_of, server_url
from orbit.domain.wire import format_time
from orbit_sdk import APIError, Client, OrbitError, OutcomeUnknown, decode_exact, encode

T = TypeVar("T")

# The API's 64-bit numbers are decimal strings, so that no reader rounds them.
WIDE_NUMBERS: Final = frozenset({"revision", "epoch", "unfinished_tasks", "concurrency_token"})


def call(work: Callable[[Client], Awaitable[T]], *, as_json: bool) -> T:
    """Run `work` with a client; a refusal or a network failure ends the command with one line and exit code 1."""
    try:
        return trio.run(partial(_with_client, work))
    except OutcomeUnknown as error:
        fail("OUTCOME_UNKNOWN", f"{error}; repeat with the same --idempotency-key", as_json=as_json)
    except APIError as error:
        fail(error.code, error.message, as_json=as_json)
    except UnicodeEncodeError:
        fail("INVALID_ARGUMENT", "an argument isn't valid UTF-8", as_json=as_json)
    except ValueError as error:  # what the SDK refuses before anything is sent
        fail("INVALID_ARGUMENT", str(error), as_json=as_json)
    except OrbitError as error:
        fail("TRANSPORT", f"{server_url(os.environ)} can't be reached: {error}", as_json=as_json)


async def _with_client(work: Callable[[Client], Awaitable[T]]) -> T:
    async with make_client(os.environ) as client:
        return await work(client)


def make_client(environ: Mapping[str, str]) -> Client:
    """Return a client for ORBIT_URL and the credential at hand, else for what `orbit up` left in ORBIT_HOME."""
    known = dict(environ)
    if not known.get("ORBIT_TOKEN") and not known.get("ORBIT_CREDENTIALS_FILE"):
        left_by_up = home_of(environ) / "credentials.json"
        if not left_by_up.exists():
            raise click.UsageError(
                "no credential: set ORBIT_TOKEN or ORBIT_CREDENTIALS_FILE, or start `orbit up` here"
            )
        known["ORBIT_CREDENTIALS_FILE"] = str(left_by_up)
    known["ORBIT_URL"] = server_url(environ)
    try:
        return Client.from_env(known)
    except OSError as error:
        raise click.UsageError(f"{error.filename} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None


async def find_queue(client: Client, name_or_id: str) -> str:
    """Return a queue's id from its name or id."""
    if len(name_or_id) == 32 and set(name_or_id) <= set("0123456789abcdef"):
        return name_or_id
    page = await client.list_queues(name=name_or_id)
    if not page.queues:
        raise APIError("NOT_FOUND", 404, f"there is no queue {name_or_id}")
    return page.queues[0].id


def wire(value: Any) -> Any:
    """Return a record of the SDK as the API writes it; what is absent is left out."""
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return {name: _wire_field(name, field) for name, field in fields.items() if not _is_absent(field)}


def show(data: Any, text: str, *, as_json: bool) -> None:
    """Print an answer."""
    click.echo(encode(data).decode() if as_json else text)


def fail(code: str, message: str, *, as_json: bool) -> NoReturn:
    """Report a failure and end the command with exit code 1."""
    if as_json:
        click.echo(json.dumps({"error": {"code": code, "message": message}}, ensure_ascii=False))
    else:
        click.echo(f"error: {code}: {message}", err=True)
    sys.exit(1)


def _wire_field(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return format_time(value.replace(tzinfo=None))
    if isinstance(value, msgspec.Struct):
        return wire(value)
    if isinstance(value, list):
        return [_wire_field("", item) for item in value]
    return str(value) if name in WIDE_NUMBERS else value


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, msgspec.Raw) and not bytes(value))


def exact_json(text: str, what: str) -> msgspec.Raw:
    """Return JSON text that is sent byte for byte; something else is wrong usage."""
    try:
        decode_exact(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise click.UsageError(f"{what} isn't JSON: {error}") from None
    return msgspec.Raw(text.encode())
