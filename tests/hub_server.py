"""A local hub that answers the requests of huggingface_hub, `datasets` and HfFileSystem to HF_ENDPOINT.

    with HubServer() as hub:
        one = hub.add("model", "maker/small", {"config.json": b"{}", "model.safetensors": weights})
        hub.fail("/resolve/", fault(429, retry_after=0))               # answers the next request with this path
        hub.cut("model.safetensors", after=1000)                       # breaks the next download after 1000 bytes
        run(env=hub.environment(home))
        assert hub.unknown == []

Files of large-file storage (weights, Parquet, .gz) are redirected to a second server on another port, like the CDN of
the real hub. The redirection has X-Linked-Size and X-Linked-Etag. The second server answers in ranges and must not get
the token. No answer has a Xet header, so clients use plain HTTP.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from bad_server import Answer, BadServer, Request, fault, json_answer

TOKEN = "hf_made_up_token"
STRANGER = "hf_token_of_a_stranger"
_LARGE = (".safetensors", ".parquet", ".gz", ".bin")
_API = re.compile(r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.+))?)?")
_WRITTEN = re.compile(r"/api/dataset(s)/([^/]+/[^/]+)/(preupload|commit)/main")
_RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/(refs/[^/]+/[^/]+|[^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass
class Repository:
    """A model or a data set: the files of each commit, and the commits of branches and tags."""

    kind: str
    name: str
    gated: bool = False
    described: dict[str, Any] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes], *refs: str) -> str:
        """Add a commit with these files, and point ``refs`` (by default the branch main) to it."""
        names = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        made = hashlib.sha1(json.dumps([self.name, len(self.commits), names]).encode()).hexdigest()
        self.commits[made] = dict(files)
        self.refs.update(dict.fromkeys(refs or ("main",), made))
        return made

    def resolved(self, revision: str) -> str | None:
        """Return the commit of a branch, a tag or a commit, or None."""
        return self.refs.get(revision) or (revision if revision in self.commits else None)


class _Fault(NamedTuple):
    path: str
    method: str | None
    replace_answer: Callable[[Answer], Answer | None]


class HubServer:
    """The hub and its storage on two free ports of 127.0.0.1, as a context manager."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        """Requests that this hub cannot answer."""
        self.leaked: list[str] = []
        """Requests to the storage with the token, which only the hub may receive."""
        self._repositories: dict[tuple[str, str], Repository] = {}
        self._faults: list[_Fault] = []
        self._blobs: dict[str, bytes] = {}
        self._hub = BadServer(lambda request: self._faulty(request, self._right(request)))
        self.url = self._hub.url
        self._storage = BadServer(self._stored)

    @property
    def requests(self) -> list[Request]:
        """Return the requests to the hub and its storage in order."""
        return sorted([*self._hub.requests, *self._storage.requests], key=lambda request: request.at)

    def environment(self, home: Path, **changes: str) -> dict[str, str]:
        """Return the environment variables of a process that uses this hub, with ``home`` as its cache."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        own = {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        return {**kept, **own, **changes}

    def add(
        self, kind: str, name: str, files: Mapping[str, bytes], *, gated: bool = False, **described: Any
    ) -> Repository:
        """Add a repository with one commit. ``described`` holds additional fields of its description."""
        made = self._repositories[kind, name] = Repository(kind, name, gated, described)
        made.commit(files)
        return made

    def fail(self, path: str, answer: Answer, *, method: str | None = None) -> None:
        """Answer the next request whose path (without host) contains ``path`` with ``answer``."""
        self._faults.append(_Fault(path, method, lambda right: answer))

    def cut(self, path: str, *, after: int, reset: bool = False) -> None:
        """End the next answer for that file after ``after`` bytes, and close the connection."""

        def cut_answer(right: Answer) -> Answer | None:
            return replace(right, sent=after, reset=reset) if len(right.body) > after else None

        self._faults.append(_Fault(path, "GET", cut_answer))

    def asked(self, path: str, method: str = "GET") -> list[Request]:
        """Return the requests by ``method`` whose path contains ``path``."""
        return [request for request in self.requests if path in unquote(request.path) and request.method == method]

    def __enter__(self) -> Self:
        self._hub.__enter__()
        self._storage.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuse connections from now on."""
        self._hub.stop()
        self._storage.stop()

    def _faulty(self, request: Request, right: Answer) -> Answer:
        for fault_of_path in self._faults:
            if fault_of_path.path in unquote(request.path) and fault_of_path.method in (None, request.method):
                wrong = fault_of_path.replace_answer(right)
                if wrong is not None:
                    self._faults.remove(fault_of_path)
                    return wrong
        return right

    # --- the hub -----------------------------------------------------------------------------------------------------

    def _right(self, request: Request) -> Answer:
        path = urlsplit(request.path).path
        if path == "/api/agent-harnesses":
            # A client requests this list to find the program that it runs in, for its user agent.
            return json_answer({"standardEnvVars": [], "harnesses": {}})
        if path == "/api/models":
            owner = f"{request.query.get('author', '')}/"
            models = [one for (kind, name), one in self._repositories.items() if name.startswith(owner)]
            infos = [_info(one, one.refs["main"]) for one in models]
            return json_answer(sorted(infos, key=lambda info: str(info["createdAt"]), reverse=True))
        if request.method == "POST" and path == "/api/repos/create":
            return self._made(request)
        if request.method == "POST" and path == "/api/validate-yaml":
            return json_answer({"errors": [], "warnings": []})
        for pattern, answer in ((_WRITTEN, self._written), (_API, self._described), (_RESOLVE, self._file)):
            if match := pattern.fullmatch(path):
                return answer(request, *match.groups())
        self.unknown.append(f"{request.method} {request.path}")
        return fault(501)

    def _opened(self, request: Request, kind: str, name: str, *, reading: bool) -> Repository | Answer:
        """Return the repository, or the refusal. The description of a gated repository is public, its files are not."""
        token = (request.header("Authorization") or "").removeprefix("Bearer ")
        found = self._repositories.get((kind, name))
        if found is None:
            # Without a token, the hub answers the same for missing and private repositories.
            if not token:
                return _refusal(401, None, "Invalid username or password.")
            return _refusal(404, "RepoNotFound", "Repository not found")
        if found.gated and reading and token != TOKEN:
            said = f"Access to {kind} {name} is restricted."
            return _refusal(403 if token else 401, "GatedRepo", said)
        return found

    def _described(
        self, request: Request, kind: str, name: str, what: str | None, revision: str | None, path: str | None
    ) -> Answer:
        found = self._opened(request, kind, name, reading=False)
        if isinstance(found, Answer):
            return found
        commit = found.resolved(unquote(revision or "main"))
        if commit is None:
            return _refusal(404, "RevisionNotFound", f"Invalid rev id: {unquote(revision or '')}")
        files = found.commits[commit]
        if what in (None, "revision"):
            return json_answer(_info(found, commit))
        if what == "tree":
            return self._tree(request, files, unquote(path or ""))
        asked = parse_qs(request.body.decode()).get("paths", [])
        return json_answer([_entry(path, content) for path, content in files.items() if path in asked])

    def _tree(self, request: Request, files: Mapping[str, bytes], folder: str) -> Answer:
        prefix = f"{folder}/" if folder else ""
        inside = {path: content for path, content in sorted(files.items()) if path.startswith(prefix)}
        if folder and not inside:
            return _refusal(404, "EntryNotFound", f"{folder} does not exist")
        folders: dict[str, None] = {}
        for path in inside:
            parts = path.removeprefix(prefix).split("/")
            folders.update(dict.fromkeys(prefix + "/".join(parts[:depth]) for depth in range(1, len(parts))))
        entries = [{"type": "directory", "oid": _oid(path.encode()), "size": 0, "path": path} for path in folders]
        entries += [_entry(path, content) for path, content in inside.items()]
        if request.query.get("recursive", "").lower() != "true":
            entries = [entry for entry in entries if "/" not in str(entry["path"]).removeprefix(prefix)]
        return json_answer(entries)

    def _file(self, request: Request, data_set: str | None, name: str, revision: str, path: str) -> Answer:
        found = self._opened(request, "dataset" if data_set else "model", name, reading=True)
        if isinstance(found, Answer):
            return found
        commit = found.resolved(unquote(revision))
        if commit is None:
            return _refusal(404, "RevisionNotFound", f"Invalid rev id: {unquote(revision)}")
        content = found.commits[commit].get(unquote(path))
        headers = {"X-Repo-Commit": commit}
        if content is None:
            return _refusal(404, "EntryNotFound", "Entry not found", headers)
        if not path.endswith(_LARGE):
            return _ranged(request, content, {**headers, "ETag": f'"{_oid(content)}"'})
        digest = hashlib.sha256(content).hexdigest()
        self._blobs[digest] = content
        linked = {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{digest}"', "ETag": f'"{digest}"'}
        # The address contains the name of the file, so that faults can match it.
        of_file = quote(f"{name}/{unquote(path)}")
        address = f"{self._storage.url}/{digest}?response-content-disposition={of_file}"
        return Answer(b"", status=302, headers={**headers, **linked, "Location": address})

    # --- writing of small files of data sets to the branch main -----------------------------------------

    def _made(self, request: Request) -> Answer:
        asked = json.loads(request.body)
        if (request.header("Authorization") or "") != f"Bearer {TOKEN}":
            return _refusal(401, None, "Invalid username or password.")
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else f"maker/{asked['name']}"
        there = (asked["type"], name) in self._repositories
        if not there:
            self.add(asked["type"], name, {".gitattributes": b""}, private=asked.get("visibility") == "private")
        address = {"url": f"{self.url}/datasets/{name}", "name": name}
        return replace(json_answer(address), status=409) if there else json_answer(address)

    def _written(self, request: Request, kinds: str, name: str, what: str) -> Answer:
        found = self._opened(request, "dataset", name, reading=False)
        if isinstance(found, Answer):
            return found
        if (request.header("Authorization") or "") != f"Bearer {TOKEN}":
            return _refusal(403, None, "You do not have write access to this repository.")
        if what == "preupload":
            files = json.loads(request.body)["files"]
            plain = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in files]
            return json_answer({"files": plain})
        files = dict(found.commits[found.refs["main"]])
        for line in map(json.loads, request.body.decode().splitlines()):
            value = line["value"]
            if line["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
            else:
                assert line["key"] == "header", f"a line of another kind: {line['key']}"
        commit = found.commit(files)
        address = f"{self.url}/datasets/{name}/commit/{commit}"
        return json_answer({"success": True, "commitOid": commit, "commitUrl": address, "hookOutput": ""})

    # --- its storage -------------------------------------------------------------------------------------------------

    def _stored(self, request: Request) -> Answer:
        if request.header("Authorization") is not None:
            self.leaked.append(request.path)
            return fault(400)
        digest = urlsplit(request.path).path.strip("/")
        return self._faulty(request, _ranged(request, self._blobs[digest], {"ETag": f'"{digest}"'}))


def _ranged(request: Request, content: bytes, headers: Mapping[str, str]) -> Answer:
    headers = {**headers, "Accept-Ranges": "bytes"}
    kind = "application/octet-stream"
    asked = request.header("Range")
    if asked is None:
        return Answer(content, kind, headers=headers)
    match = _RANGE.fullmatch(asked)
    assert match is not None, f"a range of another form: {asked}"
    first, last = int(match[1]), min(int(match[2] or len(content) - 1), len(content) - 1)
    if first > last:
        return Answer(b"", kind, 416, {**headers, "Content-Range": f"bytes */{len(content)}"})
    part = f"bytes {first}-{last}/{len(content)}"
    return Answer(content[first : last + 1], kind, 206, {**headers, "Content-Range": part})


def _refusal(status: int, code: str | None, said: str, headers: Mapping[str, str] | None = None) -> Answer:
    told = {"X-Error-Message": said, **(headers or {})}
    if code:
        told["X-Error-Code"] = code
    return json_answer({"error": said}, status, told)


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "oid": _oid(content), "size": len(content), "path": path}
    if path.endswith(_LARGE):
        digest = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 130}
    return entry


def _info(found: Repository, commit: str) -> dict[str, Any]:
    return {
        "_id": "0123456789abcdef01234567",
        "id": found.name,
        "author": found.name.partition("/")[0],
        "sha": commit,
        "createdAt": "2026-10-01T08:00:00.000Z",
        "lastModified": "2026-11-02T09:30:00.000Z",
        "private": False,
        "disabled": False,
        "gated": "manual" if found.gated else False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "siblings": [{"rfilename": path} for path in sorted(found.commits[commit])],
        **found.described,
    }
