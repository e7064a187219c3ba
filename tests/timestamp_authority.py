"""A timestamp authority on loopback: openssl answers requests with certificates that are made for the test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_httpserver import HTTPServer
from rfc3161_client import HashAlgorithm, TimestampRequestBuilder
from werkzeug import Response

_CONFIG = """\
[tsa]
default_tsa = one
[one]
serial = ./serial
signer_cert = ./signer.pem
signer_key = ./signer.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
[extensions]
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
"""
_KEY = "-newkey rsa:2048 -nodes"
_COMMANDS = (
    f"req -x509 {_KEY} -keyout root.key -out root.pem -days 9 -subj /CN=Root",
    f"req {_KEY} -keyout signer.key -out signer.csr -subj /CN=Test",
    "x509 -req -in signer.csr -CA root.pem -CAkey root.key -CAcreateserial -days 9 -out signer.pem"
    " -extfile tsa.cnf -extensions extensions",
)


@dataclass(frozen=True)
class TimestampAuthority:
    """An authority with the folder of its files and, if it is served, its address."""

    folder: Path
    url: str = ""

    @property
    def certificates(self) -> Path:
        return self.folder / "root.pem"

    def openssl(self, command: str) -> None:
        subprocess.run(["openssl", *command.split()], cwd=self.folder, check=True, capture_output=True)

    def stamp(self, request: bytes) -> bytes:
        (self.folder / "request.tsq").write_bytes(request)
        self.openssl("ts -reply -config tsa.cnf -queryfile request.tsq -out answer.tsr")
        return (self.folder / "answer.tsr").read_bytes()

    def stamp_content(self, content: bytes) -> bytes:
        return self.stamp(TimestampRequestBuilder(content, HashAlgorithm.SHA256).build().as_bytes())


def make_authority(folder: Path) -> TimestampAuthority:
    """Make an authority with a root certificate and a signer."""
    folder.mkdir()
    (folder / "tsa.cnf").write_text(_CONFIG)
    (folder / "serial").write_text("01\n")
    authority = TimestampAuthority(folder)
    for command in _COMMANDS:
        authority.openssl(command)
    return authority


@contextmanager
def serve_authority(authority: TimestampAuthority) -> Iterator[TimestampAuthority]:
    """Serve an authority on loopback."""
    with HTTPServer() as server:
        server.expect_request("/").respond_with_handler(
            lambda request: Response(authority.stamp(request.data), content_type="application/timestamp-reply")
        )
        yield replace(authority, url=server.url_for("/"))
