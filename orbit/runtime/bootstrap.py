"""`bootstrap` as a whole: one transaction, with the operation file written before its commit (06-operations)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from orbit.domain.ids import id_text, parse_id
from orbit.kernel import provision
from orbit.runtime.operation_file import read_operation_file, write_operation_file
from orbit.store.session import Session
from orbit.store.transaction import Tx


class BootstrapFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file's content; ids are 32 lower-case hex digits."""

    operation_id: str
    credential_id: str
    token: str
    application_id: str
    namespace_id: str
    queue_id: str


def run_bootstrap(session: Session, command: provision.Bootstrap, path: Path) -> tuple[BootstrapFile, bool]:
    """Make or find everything, and return the file's content and whether its credential was made now.

    Repeat freely, also after an unknown outcome: an existing file is replayed, never overwritten.

    Raises:
        OrbitError: see `provision.bootstrap`; StateConflict for a file that holds something else.
    """
    command.check()

    def work(tx: Tx) -> tuple[BootstrapFile, bool]:
        saved = read_operation_file(path, BootstrapFile)
        operation, made = provision.bootstrap(tx, command, None if saved is None else _operation(saved))
        content = _file(operation)
        if saved is None:
            write_operation_file(path, content)
        return content, made

    try:
        return session.run(work)
    except FileExistsError:
        # Another bootstrap with the same file was quicker; its file decides.
        return session.run(work)


def _operation(saved: BootstrapFile) -> provision.Operation:
    ids = {name: parse_id(getattr(saved, name), name) for name in saved.__struct_fields__ if name != "token"}
    return provision.Operation(token=saved.token, **ids)


def _file(operation: provision.Operation) -> BootstrapFile:
    return BootstrapFile(
        operation_id=id_text(operation.operation_id),
        credential_id=id_text(operation.credential_id),
        token=operation.token,
        application_id=id_text(operation.application_id),
        namespace_id=id_text(operation.namespace_id),
        queue_id=id_text(operation.queue_id),
    )
