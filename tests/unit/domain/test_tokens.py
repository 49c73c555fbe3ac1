"""Bearer tokens."""

from __future__ import annotations

import hashlib

import pytest

from orbit.domain import tokens


def test_a_made_token_reads_back_and_only_its_digest_need_be_kept() -> None:
    credential_id, text, digest = tokens.make_token()
    assert tokens.parse_token(text) == (credential_id, digest)
    assert digest == hashlib.sha256(text.encode()).digest()
    assert text.startswith(f"orbit_{credential_id.hex()}_")
    assert tokens.same_digest(digest, tokens.token_digest(text))


def test_secrets_of_one_credential_differ() -> None:
    texts = {tokens.new_secret(b"c" * 16) for _ in range(50)}
    assert len(texts) == 50
    digests = [parsed[1] for text in texts if (parsed := tokens.parse_token(text))]
    assert len(set(digests)) == 50
    assert not tokens.same_digest(digests[0], digests[1])


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: text.upper(),
        lambda text: text.replace("orbit_", "orbit-"),
        lambda text: text[:-1] + "é",
        lambda text: text + "x" * 100,
    ],
)
def test_a_malformed_token_is_none(change: object) -> None:
    assert callable(change)
    _, text, _ = tokens.make_token()
    assert tokens.parse_token(change(text)) is None
