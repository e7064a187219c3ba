"""Timestamps: the request to an authority on loopback, the response, and the check against its certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from timestamp_authority import TimestampAuthority, make_authority, serve_authority

from audit_pipeline.errors import DataError
from audit_pipeline.extras.evidence_packs.timestamps import (
    AuthorityError,
    read_timestamp,
    request_timestamp,
    require_signature,
)

CONTENT = b'{"plan":1}'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimestampAuthority]:
    with serve_authority(make_authority(tmp_path_factory.mktemp("authority") / "own")) as served:
        yield served


def test_the_certificate_of_an_authority_confirms_its_timestamp(authority: TimestampAuthority) -> None:
    stamp = request_timestamp(authority.url, CONTENT)
    assert stamp.authority == "CN=Test"
    assert stamp.time.tzinfo is not None
    require_signature(stamp.response, CONTENT, authority.certificates)
    assert read_timestamp(stamp.response, CONTENT) == stamp


def test_the_certificate_of_another_authority_is_refused(authority: TimestampAuthority, tmp_path: Path) -> None:
    stranger = make_authority(tmp_path / "stranger")
    answer = authority.stamp_content(CONTENT)
    with pytest.raises(DataError, match="do not confirm the signature"):
        require_signature(answer, CONTENT, stranger.certificates)
    with pytest.raises(DataError, match="no readable certificates in PEM"):
        require_signature(answer, CONTENT, tmp_path / "missing.pem")


def test_a_changed_signature_is_refused(authority: TimestampAuthority) -> None:
    answer = bytearray(authority.stamp_content(CONTENT))
    answer[-3] ^= 1
    with pytest.raises(DataError, match="do not confirm the signature"):
        require_signature(bytes(answer), CONTENT, authority.certificates)


def test_bytes_that_are_no_timestamp_are_refused() -> None:
    with pytest.raises(DataError, match="it is no response of RFC 3161"):
        read_timestamp(b"<html>not found</html>", CONTENT)


def test_an_unreachable_authority_is_reported() -> None:
    with pytest.raises(AuthorityError, match="sent no timestamp"):
        request_timestamp("http://127.0.0.1:9/", CONTENT)
