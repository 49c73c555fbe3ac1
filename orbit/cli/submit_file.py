"""`orbit tasks submit --file`: one task a line, in batches, resumable: the same file is accepted once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import trio

from orbit.cli.client import call, fail, find_queue, show
from orbit.domain.limits import BATCH_MAX_ITEMS, BODY_MAX_BYTES
from orbit_sdk import BatchItem, BatchItemResult, Client, TransportError

# Room for what surrounds the payloads: names, keys, brackets.
BATCH_BYTES: Final = BODY_MAX_BYTES - 64 * 1024
AGAIN: Final = frozenset({"QUEUE_FULL", "QUOTA_EXCEEDED", "UNAVAILABLE"})
TRIES: Final = 30
PAUSE_SECONDS: Final = 1.0


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the file; what is absent comes from the command's options."""

    payload: msgspec.Raw
    handler: str | None = None
    handler_version: str | None = None
    payload_version: str | None = None
    business_key: str | None = None
    concurrency_key: str | None = None
    priority: int | None = None
    delay_ms: int | None = None
    available_at: str | None = None
    start_deadline_at: str | None = None
    timeout_ms: int | None = None
    attempt_timeout_ms: int | None = None
    retry: dict[str, Any] | None = None
    on_unknown: str | None = None
    idempotency_key: str | None = None


def submit_file(path: Path, queue: str, defaults: Mapping[str, Any], *, as_json: bool) -> None:
    """Submit every line; the exit code is 1 when a line was refused. Prints counts and the refusals."""
    lines = path.read_bytes().splitlines()
    counts: Counter[str] = Counter()
    refused: list[dict[str, Any]] = []

    async def work(client: Client) -> None:
        queue_id = await find_queue(client, queue)
        items = [
            make_item(number, line, queue_id, defaults)
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]
        with click.progressbar(length=len(items), label="submitting", hidden=as_json) as bar:
            for batch in batches(items):
                for item, result in zip(batch, await submit_batch(client, batch), strict=True):
                    counts[result.outcome] += 1
                    if result.error is not None:
                        refused.append(
                            {
                                "key": item.idempotency_key,
                                "code": result.error.code,
                                "message": result.error.message,
                            }
                        )
                bar.update(len(batch))

    call(work, as_json=as_json)
    text = (
        ", ".join(f"{count} {outcome.lower()}" for outcome, count in sorted(counts.items()))
        or "nothing to submit"
    )
    text += "".join(f"\nrefused {row['key']}: {row['code']}: {row['message']}" for row in refused)
    show({"counts": dict(counts), "refused": refused}, text, as_json=as_json)
    if refused:
        fail(
            "REFUSED",
            f"{len(refused)} of {sum(counts.values())} lines were refused; repeat to try them again",
            as_json=False,
        )


def make_item(number: int, line: bytes, queue_id: str, defaults: Mapping[str, Any]) -> BatchItem:
    """Return the submit of one line. Its key is the line's own, else made from its place and content."""
    try:
        given = msgspec.json.decode(line, type=Line)
    except msgspec.MsgspecError as error:
        raise click.UsageError(f"line {number}: {error}") from None
    fields = {**defaults, **{n: v for n in Line.__struct_fields__ if (v := getattr(given, n)) is not None}}
    if fields.get("handler") is None:
        raise click.UsageError(f"line {number}: names no handler, and neither does --handler")
    fields.setdefault(
        "idempotency_key", f"file-{number}-{hashlib.sha256(queue_id.encode() + line).hexdigest()[:40]}"
    )
    return BatchItem(queue_id=queue_id, **fields)


def batches(items: Sequence[BatchItem]) -> Iterator[list[BatchItem]]:
    """Cut the items into batches that the API takes: at most 32 items and 448 KiB of payload."""
    batch: list[BatchItem] = []
    size = 0
    for item in items:
        length = len(bytes(item.payload))
        if batch and (len(batch) == BATCH_MAX_ITEMS or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch


async def submit_batch(client: Client, batch: Sequence[BatchItem]) -> list[BatchItemResult]:
    """Submit a batch; repeat what was lost, unknown or had no room, under the same keys."""
    for attempt in range(TRIES):
        is_last = attempt == TRIES - 1
        try:
            results = await client.submit_batch(batch)
        except TransportError:
            if is_last:
                raise
        else:
            if is_last or not any(_is_worth_repeating(result) for result in results):
                return results
        await trio.sleep(PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")


def _is_worth_repeating(result: BatchItemResult) -> bool:
    return result.outcome == "UNKNOWN" or (result.error is not None and result.error.code in AGAIN)
