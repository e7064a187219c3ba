"""A timestamp authority on loopback: openssl stamps what is asked for, with certificates made for the test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

_CONFIG = """\
[ tsa ]
default_tsa = one
[ one ]
serial = ./serial
signer_cert = ./signer.pem
signer_key = ./signer.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
[ extensions ]
basicConstraints = CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
"""


@dataclass(frozen=True)
class TimestampAuthority:
    """Its address, the folder of its files, and the certificate that a verifier trusts."""

    folder: Path
    url: str = ""

    @property
    def certificates(self) -> Path:
        return self.folder / "root.pem"

    def stamp(self, request: bytes) -> bytes:
        """The answer to a request."""
        (self.folder / "request.tsq").write_bytes(request)
        self.openssl("ts", "-reply", "-config", "tsa.cnf", "-queryfile", "request.tsq", "-out", "answer.tsr")
        return (self.folder / "answer.tsr").read_bytes()

    def stamp_content(self, content: bytes) -> bytes:
        """The answer to a request for a timestamp of this content."""
        return self.stamp(TimestampRequestBuilder(content, HashAlgorithm.SHA256).build().as_bytes())

    def openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


def make_authority(folder: Path) -> TimestampAuthority:
    """An authority with a root certificate and a signer of its own in ``folder``."""
    folder.mkdir()
    made = TimestampAuthority(folder)
    (folder / "tsa.cnf").write_text(_CONFIG)
    (folder / "serial").write_text("01\n")
    new_key = ("-newkey", "rsa:2048", "-nodes")
    made.openssl("req", "-x509", *new_key, "-keyout", "root.key", "-out", "root.pem", "-days", "9", "-subj", "/CN=Root")
    made.openssl("req", *new_key, "-keyout", "signer.key", "-out", "signer.csr", "-subj", "/CN=Test authority")
    signed = ("-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-days", "9")
    extensions = ("-extfile", "tsa.cnf", "-extensions", "extensions")
    made.openssl("x509", "-req", "-in", "signer.csr", *signed, "-out", "signer.pem", *extensions)
    return made


@contextmanager
def serve_authority(made: TimestampAuthority) -> Iterator[TimestampAuthority]:
    """The authority at an address on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = made.stamp(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield TimestampAuthority(made.folder, f"http://127.0.0.1:{server.server_port}/")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
