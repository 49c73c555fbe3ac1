"""Strict JSON: what is taken keeps its bytes, what isn't is refused by the name of its field."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbit.domain import strictjson
from orbit.domain.errors import InvalidArgument


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    handler: str
    payload: msgspec.Raw
    priority: int = 0
    retry: Retry | msgspec.UnsetType = msgspec.UNSET
    items: list[Retry] = []


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="start"):
    id: str


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="result"):
    id: str
    output: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def body_with(payload: bytes) -> bytes:
    return b'{"handler":"h","payload":' + payload + b"}"


def refused_field(raw: bytes, type_: Any = Body) -> str:
    with pytest.raises(InvalidArgument) as caught:
        strictjson.decode(raw, type_)
    assert caught.value.details is not None
    assert caught.value.message.startswith(caught.value.details["field"])
    return caught.value.details["field"]


@pytest.mark.parametrize(
    "payload",
    [
        b"9007199254740993",
        b"18446744073709551616",
        b"1.10",
        b"1e-400",
        b"1e400",
        b"-0",
        b"1" * 5_000,
        b'{ "b" : 1 ,\n"a":\t[ ] }',
        b"null",
        b'"\\u0000\\ud83d\\ude00\\\\ud800"',
        '"\U0001f600 é e\u0301"'.encode(),
        b'"[[[[{{{{"',
        b"[" * 63 + b"]" * 63,
        b'{"a":[' * 31 + b"1" + b"]}" * 31,
        b'{"a":{"x":1},"b":{"x":1}}',
    ],
)
def test_a_payload_keeps_its_exact_bytes(payload: bytes) -> None:
    assert bytes(strictjson.decode(body_with(payload), Body).payload) == payload


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "body"),
        (b"   ", "body"),
        (b"null", "body"),
        (b"[]", "body"),
        (b'"x"', "body"),
        (b"{", "body"),
        (b'\xef\xbb\xbf{"handler":"h","payload":1}', "body"),
        ('{"handler":"h","payload":1}'.encode("utf-16"), "body"),
        (body_with(b"1") + b" x", "body"),
        (body_with(b"1") + body_with(b"1"), "body"),
        (b'{"payload":1}', "handler"),
        (b'{"handler":"h"}', "payload"),
        (b'{"handler":null,"payload":1}', "handler"),
        (b'{"handler":1,"payload":1}', "handler"),
        (b'{"Handler":"h","payload":1}', "Handler"),
        (b'{"handler":"h","payload":1,"HANDLER":"h"}', "HANDLER"),
        (b'{"handler":"h","payload":1,"extra":1}', "extra"),
        (b'{"handler":"h","payload":1,"priority":1.0}', "priority"),
        (b'{"handler":"h","payload":1,"priority":true}', "priority"),
        (b'{"handler":"h","payload":1,"priority":"1"}', "priority"),
        (b'{"handler":"h","payload":1,"priority":' + b"9" * 5_000 + b"}", "priority"),
        (b'{"handler":"h","payload":1,"priority":1e999}', "priority"),
        (b'{"handler":"h","payload":1,"retry":null}', "retry"),
        (b'{"handler":"h","payload":1,"retry":{"max_attempts":0}}', "retry.max_attempts"),
        (b'{"handler":"h","payload":1,"retry":{"max_attempts":"3"}}', "retry.max_attempts"),
        (b'{"handler":"h","payload":1,"retry":{"Max_attempts":3}}', "retry.Max_attempts"),
        (b'{"handler":"h","payload":1,"items":[{},{"max_attempts":null}]}', "items[1].max_attempts"),
        (b'{"handler":"h","payload":1,"handler":"h"}', "handler"),
        (b'{"handler":"h","payload":1,"h\\u0061ndler":"h"}', "handler"),
        (b'{"handler":"h","payload":1,"retry":{"max_attempts":1,"max_attempts":1}}', "retry.max_attempts"),
        (body_with(b'{"a":{"b":1,"b":1}}'), "payload.a.b"),
        (body_with(b'[0,[{"x":1,"\\u0078":2}]]'), "payload[1][0].x"),
        (body_with(b'{"":1,"":2}'), "payload."),
        (body_with(b"NaN"), "payload"),
        (body_with(b"[1,Infinity]"), "payload"),
        (body_with(b"-Infinity"), "payload"),
        (body_with(b"01"), "payload"),
        (body_with(b"1."), "payload"),
        (body_with(b"+1"), "payload"),
        (body_with(b"[1,]"), "payload"),
        (body_with(b"'x'"), "payload"),
        (body_with(b'"\x01"'), "payload"),
        (body_with(b'"\\x41"'), "payload"),
        (body_with(b'"\xff"'), "payload"),
        (body_with(b'"\xed\xa0\x80"'), "payload"),
        (body_with(b'"\xc0\xaf"'), "payload"),
        (body_with(b'"\\ud800"'), "payload"),
        (body_with(b'"\\udc00"'), "payload"),
        (body_with(b'{"\\uDBFF":1}'), "payload"),
        (body_with(b'"\\ud800 and more text behind it"'), "payload"),
        (body_with(b'"\\ud800\\ud800\\udc00"'), "payload"),
        (body_with(b'"\\\\\\udc00"'), "payload"),
        (b'{"handler":"\\udfff","payload":1}', "handler"),
        (body_with(b"[" * 64 + b"]" * 64), "payload"),
        (body_with(b'{"a":' * 64 + b"1" + b"}" * 64), "payload"),
        (body_with(b'["\\"[",' * 64 + b"1" + b"]" * 64), "payload"),
        (body_with(b"[" * 100_000 + b"]" * 100_000), "payload"),
        (body_with(b"[" * 200_000), "payload"),
        (b"[" * 500_000, "body"),
        (b'{"a":' * 100_000, "a"),
        (b"]" * 100, "body"),
    ],
)
def test_a_bad_body_is_refused_by_the_name_of_its_field(raw: bytes, field: str) -> None:
    assert refused_field(raw) == field


def test_the_depth_counts_the_body_itself() -> None:
    raw = body_with(b"[" * 64 + b"]" * 64)
    assert strictjson.decode(raw, Body, depth=65).handler == "h"
    strictjson.check(b"[" * 64 + b"]" * 64)
    with pytest.raises(InvalidArgument):
        strictjson.check(b"[" * 65 + b"]" * 65)


def test_wide_shallow_values_are_not_deep() -> None:
    wide = b"[" + b",".join([b'{"k":"]}\\"[","v":[{}]}'] * 1_000) + b"]"
    assert bytes(strictjson.decode(body_with(wide), Body).payload) == wide


def test_an_absurd_field_name_is_cut_in_the_answer() -> None:
    field = refused_field(b'{"handler":"h","payload":1,"' + b"x" * 100_000 + b'":1}')
    assert field.startswith("xxx")
    assert len(field) < 300


def test_a_refusal_of_digits_does_not_depend_on_the_interpreters_limit() -> None:
    limit = sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(640)
        assert bytes(strictjson.decode(body_with(b"7" * 5_000), Body).payload) == b"7" * 5_000
    finally:
        sys.set_int_max_str_digits(limit)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_every_json_value_is_taken_and_kept(value: Any, ascii_only: bool, indent: int | str | None) -> None:
    payload = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode("utf-8")
    assert bytes(strictjson.decode(body_with(payload), Body).payload) == payload


@given(st.text(alphabet='{}[]:,"\\ud8c0a1eE.-+ntrufls \t', max_size=60))
@example('"\\ud8c0\\udc8c"')
@example('"\\\\ud8c0"')
def test_any_text_is_taken_only_if_two_other_readers_agree(text: str) -> None:
    raw = text.encode()
    try:
        strictjson.check(raw)
    except InvalidArgument:
        return
    value = json.loads(text, parse_int=str, parse_float=str, parse_constant=pytest.fail)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    assert msgspec.json.decode(raw, type=msgspec.Raw) is not None


@settings(max_examples=300)
@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_refused_and_never_crash(raw: bytes) -> None:
    with pytest.raises(InvalidArgument) as caught:
        strictjson.decode(raw, Body)
    assert caught.value.details is not None


@given(st.integers(1, 90), st.booleans(), st.text(alphabet='[]{}"\\x', max_size=6))
def test_exactly_sixty_four_levels_are_taken(levels: int, objects: bool, inside: str) -> None:
    leaf = json.dumps(inside)
    opening, closing = ('{"k":', "}") if objects else ("[", "]")
    # The strings beside the nest bring brackets that don't count.
    raw = (opening * levels + leaf + closing * levels).encode()
    if levels <= 64:
        strictjson.check(raw)
    else:
        with pytest.raises(InvalidArgument, match="deeper"):
            strictjson.check(raw)


def test_a_frame_is_one_message_or_an_array_of_up_to_sixty_four() -> None:
    union = Start | Result
    assert strictjson.decode_frames('{"type":"start","id":"a"}', union) == [Start(id="a")]
    two = strictjson.decode_frames(
        b' [{"id":"a","type":"start"},{"type":"result","id":"b","output":[1.10]}]', union
    )
    assert [type(message) for message in two] == [Start, Result]
    assert bytes(two[1].output) == b"[1.10]"
    many = b"[" + b",".join([b'{"type":"start","id":"a"}'] * 64) + b"]"
    assert len(strictjson.decode_frames(many, union)) == 64


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"[]", "frame"),
        (b"[" + b",".join([b'{"type":"start","id":"a"}'] * 65) + b"]", "frame"),
        (b"3", "frame"),
        (b'[[{"type":"start","id":"a"}]]', "[0]"),
        (b'{"type":"other","id":"a"}', "type"),
        (b'{"id":"a"}', "type"),
        (b'[{"type":"start","id":"a"},{"type":"start","id":"a","x":1}]', "[1].x"),
        (b'{"type":"start","type":"start","id":"a"}', "type"),
        (b'{"type":"result","id":"a","output":{"b":1,"b":2}}', "output.b"),
        ('{"type":"start","id":"\ud800"}', "id"),
    ],
)
def test_a_bad_frame_is_refused_by_the_name_of_its_field(raw: bytes | str, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        strictjson.decode_frames(raw, Start | Result)
    assert caught.value.field == field


def test_a_message_in_an_array_may_be_as_deep_as_one_alone() -> None:
    message = b'{"type":"result","id":"a","output":' + b"[" * 63 + b"]" * 63 + b"}"
    assert len(strictjson.decode_frames(b"[" + message + b"]", Start | Result)) == 1
    assert len(strictjson.decode_frames(message, Start | Result)) == 1


def test_encode_writes_raw_fields_as_they_came() -> None:
    result = Result(id="a", output=msgspec.Raw(b"[1.10, 1e400]"))
    assert strictjson.encode(result) == b'{"type":"result","id":"a","output":[1.10, 1e400]}'
