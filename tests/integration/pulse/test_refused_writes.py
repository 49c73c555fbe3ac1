"""C03: a write that the server refuses in the packet of the COMMIT leaves no doubt: nothing was committed."""

from __future__ import annotations

import pytest

from orbit.domain.errors import Unavailable
from orbit.store.dsn import Dsn
from orbit.store.session import Session
from orbit.store.transaction import Tx

READ_ONLY = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only'"


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_read_only_server_is_unavailable_and_its_outcome_known(dsn: Dsn, before: int) -> None:
    session = Session(dsn)

    def work(tx: Tx) -> None:
        for _ in range(before):
            tx.write("DO 1")
        tx.write(READ_ONLY)
        tx.write("DO 1")

    try:
        with pytest.raises(Unavailable):
            session.run(work)
        assert session.stats.unknown_commits == 0
    finally:
        session.close()
