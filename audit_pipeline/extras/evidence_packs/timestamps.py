"""Timestamps of an authority (RFC 3161): asking for one, reading it, and checking its signature.

A timestamp says that a digest existed at a time. Who trusts the authority need not trust the clock of the machine that
sealed the plan.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from rfc3161_client import (
    HashAlgorithm,
    PKIStatus,
    TimestampRequestBuilder,
    TimeStampResponse,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from audit_pipeline.errors import DataError, TransientError
from audit_pipeline.http.client import HttpClient
from audit_pipeline.http.faults import HttpError
from audit_pipeline.readers.regular_files import read_regular_file

_TIMEOUT = 30.0
_MOST_BYTES = 1 << 20


class AuthorityError(TransientError):
    """The timestamp authority did not answer, or refused."""


@dataclass(frozen=True)
class Timestamp:
    """What an authority signed: ``response`` is its answer (DER), ``time`` the time in it.

    ``authority``: the name of its certificate; None where the answer has no certificate.
    """

    response: bytes
    time: datetime
    authority: str | None

    def __str__(self) -> str:
        return f"timestamp of {self.authority or 'an unnamed authority'}, {self.time:%F %T} UTC"


def request_timestamp(url: str, content: bytes) -> Timestamp:
    """Request a timestamp of ``content`` from the authority at ``url``, which gets the digest alone.

    Raises AuthorityError where it does not answer or refuses, and DataError where its answer is no timestamp, or one
    of another digest.
    """
    request = TimestampRequestBuilder(content, HashAlgorithm.SHA256).build()
    try:
        with HttpClient(timeout_seconds=_TIMEOUT, max_bytes=_MOST_BYTES) as client:
            answer = client.request(
                "POST",
                url,
                content=request.as_bytes(),
                headers={"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"},
            )
    except HttpError as error:
        raise AuthorityError(f"the timestamp authority {url} cannot be reached: {error}; try again later") from error
    return read_timestamp(answer.content, content)


def read_timestamp(response: bytes, content: bytes) -> Timestamp:
    """Read the timestamp of ``content`` in an authority's answer (DER); the signature is not checked.

    Raises DataError where the bytes are no timestamp, where the authority refused, and where it stamped another digest.
    """
    decoded = _decode(response)
    stamped = decoded.tst_info.message_imprint.message
    if stamped != hashlib.sha256(content).digest():
        raise DataError(
            f"the timestamp is of another digest ({stamped.hex()[:16]}…): it was not given for this plan or file"
        )
    names = [signer.subject.rfc4514_string() for signer in _list_signers(decoded)]
    return Timestamp(response, decoded.tst_info.gen_time, names[0] if names else None)


def require_signature(response: bytes, content: bytes, certificates: Path) -> None:
    """Raise DataError unless the answer is a timestamp of ``content`` whose signature leads to one of the trusted
    ``certificates`` (PEM).
    """
    decoded = _decode(response)
    try:
        trusted = x509.load_pem_x509_certificates(read_regular_file(certificates))
    except (OSError, ValueError) as error:
        raise DataError(f"{certificates}: no certificates in PEM can be read ({error})") from error
    roots, signers = list(dict.fromkeys(trusted)), _list_signers(decoded)
    in_answer = map(x509.load_der_x509_certificate, decoded.signed_data.certificates)
    between = [found for found in in_answer if found not in (*roots, *signers)]
    try:
        verifier = VerifierBuilder(roots=roots, intermediates=between).build()
        verifier.verify(decoded, hashlib.sha256(content).digest())
    except (VerificationError, ValueError) as error:
        # What OpenSSL adds is a list of its own places.
        reason = str(error).partition(": ErrorStack")[0]
        raise DataError(f"the signature of the timestamp cannot be confirmed with {certificates}: {reason}") from error


def _decode(response: bytes) -> TimeStampResponse:
    try:
        decoded = decode_timestamp_response(response)
        status = PKIStatus(decoded.status)
    except ValueError as error:
        raise DataError(f"these bytes are no answer of a timestamp authority ({error})") from error
    if status is not PKIStatus.GRANTED:
        raise DataError(f"the timestamp authority refused ({'; '.join(decoded.status_string) or status.name.lower()})")
    return decoded


def _list_signers(response: TimeStampResponse) -> list[x509.Certificate]:
    signers = {(info.issuer, info.serial_number) for info in response.signed_data.signer_infos}
    certificates = map(x509.load_der_x509_certificate, response.signed_data.certificates)
    return [found for found in certificates if (found.issuer, found.serial_number) in signers]
