"""The directory of one private instance: its layout, what is recorded about it, its password and its lock."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from orbit.localdb.bundle import Flavour, Server
from orbit.localdb.errors import HomeMismatch, LocalDatabaseError

# A socket's path may take 107 bytes; MySQL adds ".lock" to it.
MAX_SOCKET_BYTES = 100


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What `instance.json` says: who made the data directory and how the server is reached and set."""

    flavour: Flavour
    version: tuple[int, ...]
    port: int
    is_port_fixed: bool
    socket: str
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Home:
    """The files of one instance under `root` (mode 0700)."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def pid_file(self) -> Path:
        return self.root / "server.pid"

    @property
    def process_file(self) -> Path:
        return self.root / "process.json"

    @property
    def record_file(self) -> Path:
        return self.root / "instance.json"

    @property
    def password_file(self) -> Path:
        return self.root / "password"

    @property
    def is_made(self) -> bool:
        """Whether an instance was made here."""
        return self.record_file.is_file()

    def make(self) -> None:
        """Make the directory and its password; repeat freely."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o700)
        self.temporary.mkdir(mode=0o700, exist_ok=True)
        if not self.password_file.exists():
            write_private(self.password_file, secrets.token_urlsafe(24))

    def password(self) -> str:
        """Read the password of the user `orbit`."""
        return self.password_file.read_text(encoding="ascii").strip()

    def read(self) -> Record:
        """Read the record.

        Raises:
            LocalDatabaseError: there is no instance here, or its record is damaged.
        """
        try:
            return msgspec.json.decode(self.record_file.read_bytes(), type=Record)
        except FileNotFoundError:
            raise LocalDatabaseError(f"{self.root} holds no database instance") from None
        except msgspec.MsgspecError as error:
            raise LocalDatabaseError(f"{self.record_file} is damaged: {error}") from None

    def write(self, record: Record) -> None:
        """Replace the record."""
        write_private(self.record_file, msgspec.json.encode(record).decode())

    def clear_traces(self, socket: str) -> None:
        """Remove what a killed server left: MySQL refuses to start while the process id in them is in use again."""
        for file in (Path(socket), Path(socket + ".lock"), self.pid_file):
            file.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold this home alone among all processes while its server is made, started or removed."""
        with (self.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def remove(self) -> None:
        """Remove the instance's directory and its socket's, data included."""
        if self.is_made:
            folder = Path(self.read().socket).parent
            if folder != self.root and is_private(folder):
                shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)


def check_server(record: Record, server: Server, root: Path) -> None:
    """Refuse a server that can't read this data directory.

    Raises:
        HomeMismatch: it is of the other flavour or of an earlier release series.
    """
    made_by = f"{record.flavour.value} {'.'.join(map(str, record.version))}"
    if server.flavour is not record.flavour:
        raise HomeMismatch(f"{root} was made by {made_by}; {server.flavour.value} can't open it")
    if server.version[:2] < record.version[:2]:
        raise HomeMismatch(f"{root} was made by {made_by}; the older {server.version_text} can't open it")


def socket_path(root: Path, recorded: str = "") -> str:
    """Return where the server's socket goes: in the home, or in a short private directory when its path is too long.

    A recorded directory is kept while it is still private to this user.
    """
    inside = root / "server.sock"
    if len(os.fsencode(inside)) <= MAX_SOCKET_BYTES:
        return str(inside)
    if recorded and Path(recorded).parent != root and is_private(Path(recorded).parent):
        return recorded
    # The system's own temporary directory may be configured to a long path too.
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > MAX_SOCKET_BYTES - 40:
        parent = "/tmp"  # noqa: S108 - mkdtemp makes a directory of mode 0700 in it
    return str(Path(tempfile.mkdtemp(prefix="orbit-", dir=parent)) / "server.sock")


def is_private(folder: Path) -> bool:
    """Whether this directory exists, is ours and closed to others."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def write_private(file: Path, text: str) -> None:
    """Write a file of mode 0600 in one step: readers see the old or the new content."""
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
