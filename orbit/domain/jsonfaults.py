"""Which field of a refused JSON text is at fault; only refusals pay for this."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from orbit.domain.errors import InvalidArgument

FIELD_MAX_CHARS: Final = 200

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\],:]', re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_BYTE = re.compile(r"\(byte (\d+)\)")
_AT: Final = " - at `$"


class _Pairs(list[tuple[str, Any]]):
    """One decoded object with all of its pairs, repeated names included."""


def _clip(text: str) -> str:
    return text if len(text) <= FIELD_MAX_CHARS else text[:FIELD_MAX_CHARS] + "…"


def refusal(path: str, problem: str, root: str) -> InvalidArgument:
    """Return the refusal of the field at `path` (`root` where the path is empty)."""
    return InvalidArgument(_clip(problem), field=_clip(path.removeprefix(".")) or root)


def type_refusal(message: str, root: str) -> InvalidArgument:
    """Turn msgspec's words about a type into a refusal that names the field's path."""
    problem, path = message, ""
    cut = message.rfind(_AT)
    if cut >= 0 and message.endswith("`"):
        problem, path = message[:cut], message[cut + len(_AT) : -1]
    for pattern, words in ((_UNKNOWN, "unknown field"), (_MISSING, "is required")):
        found = pattern.fullmatch(problem)
        if found is not None:
            return refusal(f"{path}.{found[1]}", words, root)
    return refusal(path, problem.replace("`", "").replace("Expected", "expected", 1), root)


def syntax_refusal(raw: bytes, message: str, root: str) -> InvalidArgument:
    """Turn msgspec's words about malformed JSON into a refusal of the top-level field around the bad byte."""
    found = _BYTE.search(message)
    at = int(found[1]) if found is not None else len(raw)
    return refusal(top_field(raw, at), f"not valid JSON: {message.removeprefix('JSON is malformed: ')}", root)


def top_field(raw: bytes, at: int) -> str:
    """Return the name of the top-level object's field whose value holds byte `at` or ends there, or ""."""
    field, named, level = b"", b"", 0
    for token in _TOKEN.finditer(raw):
        if token.start() >= at:
            break
        mark = token[0]
        if mark in b"{[":
            level += 1
        elif mark in b"}]":
            level -= 1
            field = field if level else b""
        elif level == 1 and mark == b":":
            field = named
        elif level == 1 and mark == b",":
            field = b""
        elif level == 1:
            named = mark[1:-1]
    return field.decode("utf-8", "replace")


def too_deep_at(raw: bytes, depth: int) -> int:
    """Return the offset of the first bracket that opens level `depth` + 1 (the end if none does)."""
    level = 0
    for token in _TOKEN.finditer(raw):
        if token[0] in b"{[":
            level += 1
            if level > depth:
                return token.start()
        elif token[0] in b"}]":
            level -= 1
    return len(raw)


def duplicate_path(text: str) -> str:
    """Return the dotted path of the first repeated name of a valid JSON text, or ""."""
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    return _find_duplicate(decoder.decode(text), "")


def _find_duplicate(value: Any, path: str) -> str:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, inner in value:
            if name in seen:
                return f"{path}.{name}"
            seen.add(name)
            found = _find_duplicate(inner, f"{path}.{name}")
            if found:
                return found
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found = _find_duplicate(inner, f"{path}[{index}]")
            if found:
                return found
    return ""


def surrogate_refusal(raw: bytes, at: int, root: str) -> InvalidArgument:
    """Return the refusal of a `\\u` escape at byte `at` that is half of a surrogate pair."""
    return refusal(top_field(raw, at), "holds a lone surrogate", root)
