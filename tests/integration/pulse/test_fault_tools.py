"""The fault tools do what they say: proven on the server itself, by other connections."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from functools import partial

import pytest

from orbit.domain.ids import new_id
from orbit.localdb.instance import Instance
from orbit.store.connection import connect, drop
from orbit.store.dsn import Dsn
from orbit.store.failures import DriverError, error_number
from orbit.store.session import Session
from orbit.store.transaction import Tx
from tests.support.commitproxy import CommitProxy, Loss
from tests.support.eventually import eventually
from tests.support.faketime import frozen_at
from tests.support.lockwait import (
    Background,
    await_no_waiter,
    await_waiter,
    holding_application,
    locked_rows,
)
from tests.support.pulse import Pulse
from tests.support.rows import database_now
from tests.support.tcpproxy import Direction, TcpProxy


@pytest.mark.parametrize("loss", Loss)
def test_the_client_sees_the_same_loss_whatever_the_server_did(
    loss: Loss, dsn: Dsn, session: Session
) -> None:
    """BEFORE: the row isn't there. AFTER and HANG: it is, confirmed by the server's OK. Always error 2013 or 2006."""
    resource = new_id()
    insert = (
        "INSERT INTO receipts (receipt_id, application_id, request_digest, resource_id, body, created_at)"
        " VALUES (%s, %s, %s, %s, 'x', UTC_TIMESTAMP(6))"
    )
    with CommitProxy(dsn) as proxy:
        connection = connect(proxy.dsn, read_timeout=0.3)
        proxy.arm(loss)
        Tx(connection).execute(insert, (new_id() * 2, resource, bytes(32), resource))
        with pytest.raises(DriverError) as failed:
            connection.commit()
        assert error_number(failed.value) in (2006, 2013)
        (lost,) = proxy.await_losses()
        assert lost.statements[-1].startswith("INSERT INTO receipts")
        drop(connection)
    # Nothing waits for the lock of a lost transaction: it ended with its connection.
    count = "SELECT COUNT(*) FROM receipts WHERE application_id = %s"
    assert session.run(lambda tx: tx.value(count, (resource,))) == (0 if loss is Loss.BEFORE else 1)
    session.run(lambda tx: tx.execute("DELETE FROM receipts WHERE application_id = %s", (resource,)))


def test_a_lock_wait_is_observed_not_guessed(instance: Instance, dsn: Dsn, pulse: Pulse) -> None:
    """A command that waits for the application's lock is seen waiting, for that holder, and goes on after it."""
    with holding_application(dsn, pulse.tenant.application_id) as holder:
        command = pulse.command()
        waiting = Background(dsn, lambda session: Pulse(session, pulse.tenant).submit_each([command]))
        await_waiter(instance, waiting.connection, holder=holder)
        assert waiting.is_running
        assert locked_rows(instance, holder)
    assert len(waiting.result()) == 1
    await_no_waiter(instance, waiting.connection)


def test_a_frozen_clock_stands_still_to_the_microsecond(dsn: Dsn, session: Session) -> None:
    """UTC_TIMESTAMP(6) of a frozen connection is exactly the moment asked for, in every statement."""
    start = database_now(session)
    for offset in (0, 1, 499_999, 500_001, 999_999):
        moment = start.replace(microsecond=offset) + timedelta(days=3)
        with_frozen = Session(dsn, connector=frozen_at(moment))
        assert database_now(with_frozen) == database_now(with_frozen) == moment
        with_frozen.close()


class _Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(client,), daemon=True).start()

    def _echo(self, client: socket.socket) -> None:
        with client:
            while True:
                try:
                    data = client.recv(1024)
                except OSError:
                    data = b""
                if not data:
                    self.ended.set()
                    return
                client.sendall(data)


def test_the_tcp_proxy_delays_drops_cuts_and_refuses() -> None:
    """Each fault of the generic proxy, seen from the client."""
    echo = _Echo()
    with TcpProxy(echo.port) as proxy:
        dial = partial(socket.create_connection, ("127.0.0.1", proxy.port), timeout=5)
        with dial() as client:
            client.sendall(b"a")
            assert client.recv(9) == b"a"
            proxy.black_hole(Direction.DOWN)
            client.sendall(b"b")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(9)
            proxy.pass_again()
            client.sendall(b"c")
            assert client.recv(9) == b"c", "what was dropped stays lost"
            assert proxy.cut() == 1
            with pytest.raises(ConnectionResetError):
                eventually(lambda: client.recv(9), within=1)
        assert echo.ended.wait(5)
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            dial()
        proxy.accept()
        with dial() as client:
            client.sendall(b"d")
            assert client.recv(9) == b"d"
    echo.listener.close()
