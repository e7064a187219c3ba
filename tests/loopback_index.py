"""A package index on the loopback interface, and small distributions for it to serve."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping

from bad_server import Answer, BadServer, Request, fault, truncated

from audit_pipeline.readers.distributions import Index


def make_archive(top: str, files: Mapping[str, str | bytes]) -> bytes:
    """Return a .tar.gz with ``files`` in the folder ``top``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


class FakeIndex(BadServer):
    """An index of ``projects`` (content by file name by project). ``faults`` are error statuses by path, in turn."""

    def __init__(self) -> None:
        super().__init__(otherwise=self._reply)
        self.index = Index(endpoint=f"{self.url}/simple/", timeout=5, attempts=3, pause=0)
        self.projects: dict[str, dict[str, bytes]] = {}
        self.faults: dict[str, list[int]] = {}
        self.yanked: set[str] = set()
        self.wrong_digest: set[str] = set()
        self.cut_short: set[str] = set()

    def downloads(self) -> list[str]:
        return [path for path in self.asked() if path.startswith("/files/")]

    def _reply(self, request: Request) -> Answer:
        if self.faults.get(request.path):
            return fault(self.faults[request.path].pop(0))
        name = request.path.strip("/").rpartition("/")[2]
        if request.path.startswith("/simple/") and name in self.projects:
            return Answer(self._list_files(name), "application/vnd.pypi.simple.v1+json")
        for files in self.projects.values():
            if name in files:
                return truncated(files[name]) if name in self.cut_short else Answer(files[name])
        return fault(404)

    def _list_files(self, project: str) -> bytes:
        files = []
        for name, data in self.projects[project].items():
            digest = "0" * 64 if name in self.wrong_digest else hashlib.sha256(data).hexdigest()
            files.append(
                {"filename": name, "url": f"/files/{name}", "hashes": {"sha256": digest}, "yanked": name in self.yanked}
            )
        return json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": files}).encode()
