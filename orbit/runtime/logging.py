"""Structured lines on standard error, for people or as JSON, without secrets or payloads (06-operations).

`bound(request_id=…)` adds ids to every line of the block, in this trio task and in threads started from it. Lines of
other libraries that log through the standard library take the same way.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from orbit.domain.ids import ID_BYTES, id_text
from orbit.domain.wire import format_time

REMOVED: Final = "[removed]"
VALUE_MAX_CHARS: Final = 4_096
ITEMS_MAX: Final = 32

_SECRET_KEYS: Final = re.compile(
    r"(?:^|_)(?:token|secret|password|passwd|authorization|cookie|dsn|digest|proof|payload|output|evidence|body)$",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(r"orbit_[0-9a-f]{32}_[A-Za-z0-9_-]*")
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+")
# Greedy to the last @ of the word: a password may hold any of : / @.
_URL_PASSWORD: Final = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*):\S*@")
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logging(*, log_format: str, log_level: str, process: str, stream: TextIO | None = None) -> None:
    """Set up logging of the whole process: `log_format` console or json, `log_level` debug to error."""
    target = sys.stderr if stream is None else stream
    finish = _finish(log_format, is_terminal=target.isatty())
    structlog.configure(
        processors=[*_gather(process), *finish],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[log_level]),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *_gather(process)],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(_LEVELS[log_level], logging.INFO))


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """Return the logger of this process: `log.info("event_in_words", key=value)`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


def bound(**ids: str | bytes | int) -> AbstractContextManager[None]:
    """Add ids such as `request_id` or `attempt_id` to every line of a `with` block."""
    return structlog.contextvars.bound_contextvars(**ids)


def redact(text: str) -> str:
    """Return `text` without tokens, bearer values and passwords inside URLs."""
    text = _TOKEN.sub(f"orbit_{REMOVED}", text)
    text = _BEARER.sub(rf"\1 {REMOVED}", text)
    return _URL_PASSWORD.sub(r"\1:***@", text)


def _gather(process: str) -> list[Processor]:
    def add_process(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        add_process,
    ]


def _finish(log_format: str, *, is_terminal: bool) -> list[Processor]:
    if log_format == "json":
        return [
            structlog.processors.format_exc_info,
            _clean,
            structlog.processors.JSONRenderer(ensure_ascii=False),
            _redact_line,
        ]
    renderer = structlog.dev.ConsoleRenderer(
        colors=is_terminal, timestamp_key="at", exception_formatter=structlog.dev.plain_traceback
    )
    return [_clean, renderer, _redact_line]


def _clean(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    kept = {key: value for key, value in event.items() if key in {"exc_info", "stack_info"}}
    return {**_clean_mapping(event), **kept}


def _redact_line(_: WrappedLogger, __: str, line: Any) -> str:
    # Last of all, because tracebacks are rendered late and may quote anything.
    return redact(str(line))


def _clean_mapping(values: Mapping[Any, Any]) -> MutableMapping[str, Any]:
    return {
        str(key): REMOVED if _SECRET_KEYS.search(str(key)) and value else _clean_value(value)
        for key, value in values.items()
    }


def _clean_value(value: object) -> object:
    """Return what a line may show of a value: ids as text, other bytes as a size, unknown objects as their type."""
    if isinstance(value, Mapping):
        return _clean_mapping(value)
    if isinstance(value, list | tuple | set | frozenset):
        shown = [_clean_value(item) for item in list(value)[:ITEMS_MAX]]
        return [*shown, "…"] if len(value) > ITEMS_MAX else shown
    if value is None or isinstance(value, bool | int | float):
        return value
    text = _text_of(value)
    return redact(text if len(text) <= VALUE_MAX_CHARS else text[:VALUE_MAX_CHARS] + "…")


def _text_of(value: object) -> str:
    match value:
        case str() | PurePath():
            return str(value)
        case bytes():
            return id_text(value) if len(value) == ID_BYTES else f"<{len(value)} bytes>"
        case datetime():
            return format_time(value) if value.tzinfo is None else value.isoformat()
        case BaseException():
            return f"{type(value).__name__}: {value}"
        case _:
            return f"<{type(value).__name__}>"
