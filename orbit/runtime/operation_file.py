"""Operation files: an operation's identity and secret, on disk (0600) before it is committed, never overwritten."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from orbit.domain.errors import StateConflict

T = TypeVar("T")


def read_operation_file(path: Path, kind: type[T]) -> T | None:
    """Return what the file says, None where there is no file.

    Raises:
        StateConflict: the file holds something else; it is left alone.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateConflict(f"{path} can't be read: {error.strerror}") from None
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise StateConflict(f"{path} is not a file of this operation: {error}") from None


def write_operation_file(path: Path, operation: msgspec.Struct) -> None:
    """Write the file durably in one step; a reader sees all of it or nothing.

    Raises:
        FileExistsError: somebody else made it meanwhile; it is left alone.
        StateConflict: the directory can't be written.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    except OSError as error:
        raise StateConflict(f"{path} can't be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(operation)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
        _sync_directory(path.parent)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
