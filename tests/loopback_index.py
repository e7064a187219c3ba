"""A package index on the loopback interface, and small source distributions for it to serve."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from audit_pipeline.readers.distributions import Index


def make_wheel(files: Mapping[str, str | bytes]) -> bytes:
    """A real .whl with ``files``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def make_archive(top: str, files: Mapping[str, str | bytes]) -> bytes:
    """A real .tar.gz with ``files`` under the folder ``top``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@dataclass
class FakeIndex:
    """What the server serves: project -> file name -> bytes; faults by path; the requests it got."""

    projects: dict[str, dict[str, bytes]] = field(default_factory=dict)
    yanked: set[str] = field(default_factory=set)
    wrong_digest: set[str] = field(default_factory=set)
    faults: dict[str, list[int]] = field(default_factory=dict)
    cut_short: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    endpoint: str = ""
    stop: Callable[[], None] = lambda: None

    @property
    def index(self) -> Index:
        return Index(endpoint=self.endpoint, timeout=5, attempts=3, pause=0)

    def page(self, project: str) -> bytes:
        files = [
            {
                "filename": name,
                "url": f"/files/{name}",
                "hashes": {"sha256": hashlib.sha256(data).hexdigest() if name not in self.wrong_digest else "0" * 64},
                "yanked": name in self.yanked,
            }
            for name, data in self.projects[project].items()
        ]
        return json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": files}).encode()

    def downloads(self) -> list[str]:
        return [path for path in self.requests if path.startswith("/files/")]
