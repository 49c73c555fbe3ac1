"""Operation files: an operation's identity and secret, on disk (0600) before it is committed, never overwritten."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from orbit.domain.errors import StateConflict

FILE_MAX_BYTES: Final = 64 * 1024

T = TypeVar("T")


def read_operation_file(path: Path, kind: type[T]) -> T | None:
    """Return what the file says, None where there is no file.

    Raises:
        StateConflict: the file holds something else, or is none; it is left alone.
    """
    try:
        data = _read_regular(path)
    except FileNotFoundError:
        if path.is_symlink():
            raise StateConflict(f"{path} is a link to a file that doesn't exist") from None
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
    except FileExistsError:
        raise
    except OSError as error:
        raise StateConflict(f"{path} can't be written: {error.strerror}") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def _read_regular(path: Path) -> bytes:
    """Read a file that has an end: a FIFO would keep its reader waiting, a device feed it for ever."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StateConflict(f"{path} is not a regular file")
        return file.read(FILE_MAX_BYTES)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
