"""The bounds that clients are told are those of the specification."""

from __future__ import annotations

from orbit.domain import limits


def test_told_limits_carry_the_specified_values() -> None:
    told = limits.told()
    assert told["body_bytes"] == 524_288
    assert told["payload_bytes"] == told["output_bytes"] == 262_144
    assert told["delay_ms"] == 2_592_000_000
    assert told["retry_after_ms"] == 86_400_000
    assert told["frame_split_bytes"] == 786_432


def test_one_message_of_the_largest_kind_always_fits_into_a_frame() -> None:
    assert limits.OUTPUT_MAX_BYTES + limits.ERROR_MESSAGE_MAX_BYTES * 6 < limits.FRAME_SPLIT_BYTES
    assert limits.FRAME_SPLIT_BYTES < limits.FRAME_MAX_BYTES
