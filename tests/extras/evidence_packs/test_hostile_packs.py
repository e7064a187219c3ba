"""Whatever a broken or hostile pack holds, `verify` ends with named checks: nothing is ok that was not packed."""

from __future__ import annotations

import hashlib
import json
import random
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner
from profiles import FULL

from audit_pipeline.cli.main_command import main
from audit_pipeline.extras.evidence_packs.verify import PackCheck, verify_pack

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")
Members = list[tuple[zipfile.ZipInfo | str, bytes]]


def checks_of(file: Path) -> Iterator[PackCheck]:
    return verify_pack(file, rerun=None, certificates=None, on_step=lambda words: None)


def read_members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {member.filename: archive.read(member) for member in archive.infolist()}


def write_members(file: Path, members: Iterable[tuple[zipfile.ZipInfo | str, bytes]]) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file


def write_manifests(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members with manifests that name them, as somebody writes them who changed a pack."""
    folder = next(iter(members)).partition("/")[0]
    rest = {name: content for name, content in members.items() if "manifest-sha256" not in name}
    for manifest, chosen in (("manifest", True), ("tagmanifest", False)):
        lines = [
            f"{hashlib.sha256(content).hexdigest()}  {name.partition('/')[2]}\n"
            for name, content in rest.items()
            if name.startswith(f"{folder}/data/") == chosen
        ]
        rest[f"{folder}/{manifest}-sha256.txt"] = "".join(lines).encode()
    return rest


def mutate(members: dict[str, bytes], kind: str, draw: random.Random) -> tuple[Members, str]:
    """A pack that is changed in one way, and what has to be named."""
    name = draw.choice(sorted(members))
    folder, content = name.partition("/")[0], members[name]
    rest: Members = [(known, value) for known, value in members.items() if known != name]
    whole: Members = [*members.items()]
    match kind:
        case "removed":
            return rest, name
        case "truncated":
            return [*rest, (name, content[: draw.randrange(len(content))])], name
        case "flipped":
            at = draw.randrange(8 * len(content))
            changed = bytearray(content)
            changed[at // 8] ^= 1 << at % 8
            return [*rest, (name, bytes(changed))], name
        case "twice":
            return [*whole, (name, content)], "files in 1 bags"
    added, named = {
        "beside data": (f"{folder}/notes.txt", f"{folder}/notes.txt"),
        "in data": (f"{folder}/data/notes.txt", f"{folder}/data/notes.txt"),
        "absolute": ("/tmp/evil.txt", "tmp/evil.txt"),
        "above": (f"{folder}/data/../../../evil.txt", f"{folder}/data/evil.txt"),
        "long": (f"{folder}/data/{'n' * 3000}.txt", "OSError"),
        "to be fetched": (f"{folder}/fetch.txt", f"{folder}/fetch.txt"),
        "hidden": (f"{folder}/data/.hidden", f"{folder}/data/.hidden"),
        "forged line": (f"{folder}/a\nfindings: yes", f"{folder}/a\\nfindings: yes"),
    }[kind]
    return [*whole, (added, b"words")], named


KINDS = [
    *("removed", "truncated", "flipped", "twice", "beside data", "in data"),
    *("absolute", "above", "long", "to be fetched", "hidden", "forged line"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_packed_is_named(packed: Path, tmp_path: Path, kind: str) -> None:
    members, draw = read_members(packed), random.Random(kind)
    for _ in range(40 if FULL else 2):
        changed, named = mutate(members, kind, draw)
        with pytest.warns(UserWarning, match="Duplicate name") if kind == "twice" else nullcontext():
            file = write_members(tmp_path / "changed.zip", changed)
        files, *others = checks_of(file)
        assert (files.what, files.ok) == ("files", False)
        # What a changed manifest of manifests names is what it no longer names rightly.
        assert named in files.message or named.endswith("tagmanifest-sha256.txt")
        assert [check.ok for check in others] == [None]


def test_a_flipped_bit_of_the_zip_file_is_named_or_changes_nothing(packed: Path, tmp_path: Path) -> None:
    whole, members, draw = packed.read_bytes(), read_members(packed), random.Random(5)
    directory = whole.rindex(b"PK\x05\x06")
    begin = int.from_bytes(whole[directory + 16 : directory + 20], "little")
    places = [draw.randrange(8 * first, 8 * len(whole)) for first in (0, begin) for _ in range(400 if FULL else 20)]
    outcomes = set()
    for at in places:
        changed = bytearray(whole)
        changed[at // 8] ^= 1 << at % 8
        file = tmp_path / "changed.zip"
        file.write_bytes(changed)
        files = next(checks_of(file))
        outcomes.add(files.ok)
        if files.ok:
            assert read_members(file) == members
    assert outcomes == {True, False}


def test_what_is_no_pack_is_a_failed_check(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "words.zip").write_bytes(b"no zip")
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pack/bagit.txt", bytes(10**8))
    (tmp_path / "cut.zip").write_bytes(packed.read_bytes()[:-1000])
    members = read_members(packed).items()
    two = [(f"{top}/{name.partition('/')[2]}", content) for top in "ab" for name, content in members]
    undeclared = [(name, content) for name, content in members if not name.endswith("/bagit.txt")]
    for file, words in (
        (tmp_path / "words.zip", "not a zip file"),
        (tmp_path / "cut.zip", "not a zip file"),
        (tmp_path / "bomb.zip", "more than 200 times its size"),
        (write_members(tmp_path / "other.zip", [("folder/some.txt", b"words")]), "1 files in 0 bags"),
        (write_members(tmp_path / "empty.zip", []), "0 files in 0 bags"),
        (write_members(tmp_path / "two.zip", two), "files in 2 bags"),
        (write_members(tmp_path / "undeclared.zip", undeclared), "in no manifest: pack/bagit.txt"),
    ):
        result = CliRunner().invoke(main, ["verify", str(file), "--json"])
        assert result.exit_code == 1
        assert words in json.loads(result.stdout)["checks"][0]["words"]


def test_a_pack_that_was_unpacked_and_zipped_again_is_as_it_was(packed: Path, tmp_path: Path) -> None:
    members = read_members(packed)
    folders = {f"{parent}/" for name in members for parent in Path(name).parents if str(parent) != "."}
    again = [*((folder, b"") for folder in sorted(folders)), *random.Random(1).sample([*members.items()], len(members))]
    assert next(checks_of(write_members(tmp_path / "again.zip", again))).ok is True


@pytest.mark.parametrize(
    "content", [b"[]", b"null", b"{}", b"[" * 200_000, b""], ids=["list", "null", "object", "nested", "empty"]
)
@pytest.mark.parametrize("name", ["pack.json", "workspace/config/models.yaml"])
def test_descriptions_of_another_shape_fail(packed: Path, tmp_path: Path, name: str, content: bytes) -> None:
    members = read_members(packed)
    [full] = [known for known in members if known.endswith(f"/data/{name}")]
    file = write_members(tmp_path / "changed.zip", write_manifests({**members, full: content}).items())
    assert [check.what for check in checks_of(file) if check.ok is False] == ["everything else"]
