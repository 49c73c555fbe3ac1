"""Batches of submits: each item has its own identity and is judged alone (02-pulse "Tasks")."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from orbit.api.shapes.fields import Answer, Shape
from orbit.api.shapes.task_views import Task, render_task
from orbit.api.shapes.tasks import SubmitBody, build_submit
from orbit.domain import jsonfaults, limits
from orbit.domain.errors import InvalidArgument, OrbitError, StoreError
from orbit.domain.keys import check_idempotency_key
from orbit.domain.strictjson import decode
from orbit.kernel.caller import Token
from orbit.pulse.commands import SubmitTask, TaskAnswer

IdempotencyKey = Annotated[
    str,
    Meta(
        description="1 to 191 visible ASCII characters",
        extra_json_schema={
            "minLength": 1,
            "maxLength": limits.IDEMPOTENCY_KEY_MAX_BYTES,
            "pattern": "^[!-~]+$",
        },
    ),
]


class BatchItem(SubmitBody, frozen=True, kw_only=True):
    """A submit with its identity."""

    idempotency_key: IdempotencyKey


class BatchBody(Shape, frozen=True, kw_only=True):
    items: Annotated[list[BatchItem], Meta(min_length=1, max_length=limits.BATCH_MAX_ITEMS)]


class _Items(Shape, frozen=True, kw_only=True):
    """The batch before its items are looked into: the fault of one must not refuse the others."""

    items: Annotated[list[Raw], Meta(min_length=1, max_length=limits.BATCH_MAX_ITEMS)]


class ItemOutcome(StrEnum):
    """UNKNOWN: repeat with the same idempotency key."""

    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    REFUSED = "REFUSED"
    UNKNOWN = "UNKNOWN"


class ItemError(Answer, frozen=True, kw_only=True):
    code: str
    message: str
    details: dict[str, str] | UnsetType = UNSET


class BatchAnswerItem(Answer, frozen=True, kw_only=True):
    outcome: ItemOutcome
    task: Task | UnsetType = UNSET
    error: ItemError | UnsetType = UNSET


class BatchAnswer(Answer, frozen=True, kw_only=True):
    """Items in the order of the request."""

    items: list[BatchAnswerItem]


class _Keyed(msgspec.Struct, frozen=True):
    """As much of a malformed item as tells whether another one has its key."""

    idempotency_key: str


_item_decoder = msgspec.json.Decoder(BatchItem)
_key_decoder = msgspec.json.Decoder(_Keyed)


def parse_batch(token: Token, body: bytes) -> list[SubmitTask | OrbitError]:
    """Parse the body of `POST /v1/tasks:batch`: for each item its command or its refusal.

    Raises: InvalidArgument for a body that isn't strict JSON, holds no or too many items, or a key twice.
    """
    raw_items = decode(body, _Items, around=3).items
    items = [_decode_item(raw) for raw in raw_items]
    _refuse_repeated_keys(map(_key_of, raw_items, items))
    return [_build(token, item) if isinstance(item, BatchItem) else item for item in items]


def render_batch(outcomes: Sequence[TaskAnswer | OrbitError]) -> BatchAnswer:
    return BatchAnswer(items=[_render_item(outcome) for outcome in outcomes])


def _decode_item(raw: Raw) -> BatchItem | InvalidArgument:
    # The whole body was scanned strictly before, so that only types and names are left to check.
    try:
        item = _item_decoder.decode(raw)
        check_idempotency_key(item.idempotency_key, "idempotency_key")
    except msgspec.ValidationError as error:
        return jsonfaults.type_refusal(str(error), "item")
    except InvalidArgument as refusal:
        return refusal
    return item


def _key_of(raw: Raw, item: BatchItem | InvalidArgument) -> str | None:
    """Return an item's key, also that of one which is refused for something else."""
    if isinstance(item, BatchItem):
        return item.idempotency_key
    try:
        return _key_decoder.decode(raw).idempotency_key
    except msgspec.ValidationError:
        return None


def _refuse_repeated_keys(keys: Iterable[str | None]) -> None:
    seen: set[str] = set()
    for index, key in enumerate(keys):
        if key in seen:
            raise InvalidArgument("appears twice in the batch", field=f"items[{index}].idempotency_key")
        if key is not None:
            seen.add(key)


def _build(token: Token, item: BatchItem) -> SubmitTask | OrbitError:
    try:
        return build_submit(token, item.idempotency_key, item)
    except OrbitError as refusal:
        return refusal


def _render_item(outcome: TaskAnswer | OrbitError) -> BatchAnswerItem:
    if isinstance(outcome, TaskAnswer):
        kind = ItemOutcome.DUPLICATE if outcome.deduplicated else ItemOutcome.ACCEPTED
        return BatchAnswerItem(outcome=kind, task=render_task(outcome.task))
    kind = ItemOutcome.UNKNOWN if isinstance(outcome, StoreError) else ItemOutcome.REFUSED
    return BatchAnswerItem(outcome=kind, error=_error(outcome))


def _error(error: OrbitError) -> ItemError:
    message = "internal error" if error.status == 500 else error.message
    return ItemError(code=error.code, message=message, details=error.details or UNSET)
