"""Timestamps of an authority (RFC 3161): the request, the reader, and the verification of the signature.

A timestamp proves that a digest existed at a time. A reader who trusts the authority does not need to trust the clock
of the machine that sealed the plan.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import rfc3161_client as rfc3161
from cryptography import x509

from audit_pipeline.errors import DataError, TransientError
from audit_pipeline.http.client import HttpClient
from audit_pipeline.http.faults import HttpError
from audit_pipeline.readers.file_bytes import read_regular_file

_TIMEOUT_SECONDS = 30.0
_MAX_BYTES = 1 << 20


class AuthorityError(TransientError):
    """The error for a timestamp authority that did not respond, or refused the request."""


@dataclass(frozen=True)
class Timestamp:
    """The signed statement of a timestamp authority that a content existed at a time.

    Attributes:
        response: The response of the authority, in DER.
        time: The time that the authority signed.
        authority: The subject of the authority's certificate, or None if the response has no certificate.
    """

    response: bytes
    time: datetime
    authority: str | None

    def __str__(self) -> str:
        return f"timestamp of {self.authority or 'an unnamed authority'}, {self.time:%F %T} UTC"


def request_timestamp(url: str, content: bytes) -> Timestamp:
    """Request a timestamp of a content. The authority receives only the digest of the content.

    Raises:
        AuthorityError: If the authority does not respond, or refuses the request.
        DataError: If the response is no timestamp of the content.
    """
    request = rfc3161.TimestampRequestBuilder(content, rfc3161.HashAlgorithm.SHA256).build()
    try:
        with HttpClient(timeout_seconds=_TIMEOUT_SECONDS, max_bytes=_MAX_BYTES) as client:
            response = client.request(
                "POST",
                url,
                content=request.as_bytes(),
                headers={"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"},
            )
    except HttpError as error:
        raise AuthorityError(f"The timestamp authority {url} sent no timestamp: {error}. Try again later.") from error
    return read_timestamp(response.content, content)


def read_timestamp(response: bytes, content: bytes) -> Timestamp:
    """Read an authority's response (DER), and check that it is a timestamp of a content.

    The signature is not verified.

    Raises:
        DataError: If the bytes are no timestamp, the authority refused, or the timestamp is of another content.
    """
    decoded = _decode(response)
    digest = decoded.tst_info.message_imprint.message
    if digest != hashlib.sha256(content).digest():
        raise DataError(
            f"The timestamp is of another digest ({digest.hex()[:16]}…), so the stamped content was changed, or the "
            "timestamp belongs to other content."
        )
    signers = _list_signers(decoded)
    authority = signers[0].subject.rfc4514_string() if signers else None
    return Timestamp(response, decoded.tst_info.gen_time, authority)


def require_signature(response: bytes, content: bytes, certificates: Path) -> None:
    """Verify that an authority's response is a timestamp of a content with a trusted signature.

    Args:
        response: The response, in DER.
        content: The content that the timestamp must be of.
        certificates: A PEM file with the trusted certificates.

    Raises:
        DataError: If the verification fails, or the certificates are unreadable.
    """
    decoded = _decode(response)
    try:
        trusted = x509.load_pem_x509_certificates(read_regular_file(certificates))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{certificates} contains no readable certificates in PEM format ({error}). Get the certificates from the "
            "timestamp authority."
        ) from error
    roots = list(dict.fromkeys(trusted))
    known = [*roots, *_list_signers(decoded)]
    certificates_of_response = map(x509.load_der_x509_certificate, decoded.signed_data.certificates)
    intermediates = [certificate for certificate in certificates_of_response if certificate not in known]
    try:
        verifier = rfc3161.VerifierBuilder(roots=roots, intermediates=intermediates).build()
        verifier.verify(decoded, hashlib.sha256(content).digest())
    except (rfc3161.VerificationError, ValueError) as error:
        # The rest of the message is a stack trace of OpenSSL.
        reason = str(error).partition(": ErrorStack")[0]
        raise DataError(
            f"The certificates in {certificates} do not confirm the signature of the timestamp: {reason}. Check that "
            "the file has the certificates of the authority that signed the timestamp."
        ) from error


def _decode(response: bytes) -> rfc3161.TimeStampResponse:
    try:
        decoded = rfc3161.decode_timestamp_response(response)
        status = rfc3161.PKIStatus(decoded.status)
    except ValueError as error:
        raise DataError(f"The timestamp is unreadable, because it is no response of RFC 3161 ({error}).") from error
    if status is not rfc3161.PKIStatus.GRANTED:
        reason = "; ".join(decoded.status_string) or status.name.lower()
        raise DataError(f"The timestamp authority refused the request for a timestamp ({reason}).")
    return decoded


def _list_signers(response: rfc3161.TimeStampResponse) -> list[x509.Certificate]:
    signers = {(info.issuer, info.serial_number) for info in response.signed_data.signer_infos}
    certificates = map(x509.load_der_x509_certificate, response.signed_data.certificates)
    return [certificate for certificate in certificates if (certificate.issuer, certificate.serial_number) in signers]
