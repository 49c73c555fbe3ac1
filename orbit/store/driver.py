"""PyMySQL with its two hot spots rewritten: rendering values into statements and reading rows out of packets.

Measured on a tick of 64 tasks, the driver's own code for both took two thirds of the process's CPU; see
docs/performance.md. Everything else (handshake, TLS, errors) stays the driver's.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pymysql.connections import Connection, MySQLResult
from pymysql.constants import CR, FIELD_TYPE, SERVER_STATUS
from pymysql.converters import escape_bytes, escape_string
from pymysql.err import OperationalError
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

Row = tuple[Any, ...]
Decoder = Callable[[bytes], Any]

_BINARY_CHARSET = 63
# Short byte strings (ids, digests) are cheapest as hexadecimal; long ones (bodies) would double in size.
_HEX_MAX_BYTES = 64
_OK, _EOF, _ERROR = 0x00, 0xFE, 0xFF
# A value's first byte is its length, or says NULL, or how many bytes of length follow.
_NULL, _LONG_LENGTH = 251, 252
_WIDTHS = {252: 2, 253: 3, 254: 8}
_EOF_MAX_BYTES = 9
_MAX_PACKET_BYTES = 0xFFFFFF


def _decode_text(data: bytes) -> str:
    return data.decode()


def _decode_time(data: bytes) -> datetime:
    return datetime.fromisoformat(data.decode("ascii"))


def _decode_decimal(data: bytes) -> Decimal:
    return Decimal(data.decode("ascii"))


_DECODERS: dict[int, Decoder] = {
    FIELD_TYPE.TINY: int,
    FIELD_TYPE.SHORT: int,
    FIELD_TYPE.LONG: int,
    FIELD_TYPE.LONGLONG: int,
    FIELD_TYPE.INT24: int,
    FIELD_TYPE.YEAR: int,
    FIELD_TYPE.FLOAT: float,
    FIELD_TYPE.DOUBLE: float,
    FIELD_TYPE.DECIMAL: _decode_decimal,
    FIELD_TYPE.NEWDECIMAL: _decode_decimal,
    FIELD_TYPE.DATETIME: _decode_time,
    FIELD_TYPE.TIMESTAMP: _decode_time,
}


if TYPE_CHECKING:
    _Base = Connection[Any]
else:
    _Base = Connection


class DriverConnection(_Base):
    """A connection whose results are read by `RowResult`."""

    answered = 0

    def connect(self, sock: socket.socket | None = None) -> None:
        """Connect; unlike the driver, leave no open socket behind when a unix socket refuses."""
        if sock is None and self.unix_socket:
            sock = _open_unix_socket(self.unix_socket, self.connect_timeout)
            self._secure = True  # nobody listens in between, so the password may be asked for as it is
        super().connect(sock)

    def _read_query_result(self, unbuffered: bool = False) -> int:  # noqa: ARG002, FBT001, FBT002 - the driver's signature
        self._result: RowResult | None = None
        result = RowResult(self)
        result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return int(result.affected_rows or 0)

    def send(self, statements: Sequence[str]) -> int:
        """Run statements in order in one round trip; keep the last one's result and return its affected rows.

        The server stops at the first that fails, and that failure is raised; `answered` says how many came before.
        """
        self.answered = 0
        affected = int(self.query(";".join(statements)))
        for self.answered in range(1, len(statements)):
            affected = self._read_query_result()
        return affected

    def send_all(self, statements: Sequence[str]) -> list[Sequence[Row]]:
        """Run statements in order in one round trip; return the rows of each."""
        self.query(";".join(statements))
        results = [self.result_rows]
        for _ in statements[1:]:
            self._read_query_result()
            results.append(self.result_rows)
        return results

    @property
    def result_rows(self) -> Sequence[Row]:
        """The rows of the last query."""
        return (self._result.rows or ()) if self._result is not None else ()

    def read_payload(self) -> bytes:
        """Read one packet's payload, without an object around it."""
        parts: list[bytes] = []
        read: Callable[[int], bytes] = self._read_bytes  # type: ignore[attr-defined]
        while True:
            header = read(4)
            size = header[0] | header[1] << 8 | header[2] << 16
            self._next_seq_id = (header[3] + 1) & 0xFF
            payload = read(size)
            if size < _MAX_PACKET_BYTES and not parts:
                return payload
            parts.append(payload)
            if size < _MAX_PACKET_BYTES:
                return b"".join(parts)


class RowResult(MySQLResult):
    """A result set read in one tight loop."""

    _descriptions: Sequence[bytes] = ()

    @property
    def description(self) -> tuple[Any, ...] | None:
        """The columns as the DB-API describes them; only cursors ask, our own statements know theirs."""
        columns = (FieldDescriptorPacket(description, "utf8") for description in self._descriptions)
        return tuple(column.description() for column in columns) or None  # type: ignore[no-untyped-call]

    @description.setter
    def description(self, value: object) -> None:
        """The driver's constructor clears it."""

    def read(self) -> None:
        """Read an OK, an error or a result set; anything else is the driver's to read."""
        connection: Any = self.connection
        payload = connection.read_payload()
        if payload[0] == _OK:
            self._read_ok(payload)
        elif payload[0] == _ERROR:
            MysqlPacket(payload, connection.encoding).raise_for_error()
        else:
            self._read_rows(connection, payload)
        self.connection = None

    def _read_ok(self, payload: bytes) -> None:
        self.affected_rows, position = read_length(payload, 1)
        self.insert_id, position = read_length(payload, position)
        self.server_status = int.from_bytes(payload[position : position + 2], "little")
        self.has_next = bool(self.server_status & SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS)

    def _read_rows(self, connection: Any, first: bytes) -> None:
        self.field_count, _ = read_length(first, 0)
        columns = self.field_count
        self._descriptions = [connection.read_payload() for _ in range(columns)]
        decoders = [_column_decoder(description) for description in self._descriptions]
        connection.read_payload()  # the end of the column descriptions
        rows = []
        while True:
            payload = connection.read_payload()
            if payload[0] == _EOF and len(payload) < _EOF_MAX_BYTES:
                break
            if payload[0] == _ERROR:
                MysqlPacket(payload, connection.encoding).raise_for_error()
            rows.append(_parse_row(payload, decoders))
        self.has_next = bool(payload[3] & SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS)
        self.affected_rows = len(rows)
        self.rows = rows


def _open_unix_socket(path: Any, timeout: float | None) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    opened.settimeout(timeout)
    try:
        opened.connect(path)
    except OSError as error:
        opened.close()
        raise OperationalError(CR.CR_CONN_HOST_ERROR, f"Can't connect to {path} ({error})") from error
    return opened


def _column_decoder(description: bytes) -> Decoder | None:
    """Choose a decoder by a description's fixed tail: charset 2, length 4, type 1, flags 2, decimals 1, filler 2."""
    kind = description[-6]
    if kind in _DECODERS:
        return _DECODERS[kind]
    charset = int.from_bytes(description[-12:-10], "little")
    return None if charset == _BINARY_CHARSET else _decode_text


def read_length(payload: bytes, position: int) -> tuple[int, int]:
    """Read a length-encoded number; return it and where it ends."""
    value = payload[position]
    if value < _LONG_LENGTH:
        return value, position + 1
    end = position + 1 + _WIDTHS[value]
    return int.from_bytes(payload[position + 1 : end], "little"), end


def _parse_row(payload: bytes, decoders: Sequence[Decoder | None]) -> Row:
    row: list[Any] = []
    position = 0
    for decoder in decoders:
        size = payload[position]
        position += 1
        if size >= _NULL:
            if size == _NULL:
                row.append(None)
                continue
            width = _WIDTHS[size]
            size = int.from_bytes(payload[position : position + width], "little")
            position += width
        data = payload[position : position + size]
        position += size
        row.append(data if decoder is None else decoder(data))
    return tuple(row)


def literal(value: Any) -> str:
    """Render a value as SQL text; a list or tuple as `(a, b, c)`."""
    kind = type(value)
    if kind is bytes:
        return f"x'{value.hex()}'" if len(value) <= _HEX_MAX_BYTES else escape_bytes(value)
    if kind is int:
        return str(value)
    if value is None:
        return "NULL"
    if kind is datetime:
        return f"'{value.isoformat(' ')}'"
    if isinstance(value, str):
        return f"'{escape_string(value)}'"
    if kind is list or isinstance(value, tuple):
        return f"({','.join([literal(item) for item in value])})"
    if isinstance(value, int):
        return str(int(value))
    raise TypeError(f"no SQL literal for {kind.__name__}")
