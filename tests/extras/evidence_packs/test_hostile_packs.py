"""Broken and hostile packs: `verify` always ends with named checks, and no check passes on files of others."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable, Iterable, Iterator
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


@pytest.mark.parametrize("kind", ["removed", "truncated", "flipped", "twice"])
def test_a_changed_file_of_a_pack_is_named(packed: Path, tmp_path: Path, kind: str) -> None:
    members = read_members(packed)
    draw = random.Random(kind)
    for _ in range(40 if FULL else 2):
        name = draw.choice(sorted(members))
        content = bytearray(members[name])
        changed: Members = [member for member in members.items() if member[0] != name]
        named = name
        if kind == "truncated":
            changed.append((name, bytes(content[: draw.randrange(len(content))])))
        elif kind == "flipped":
            at = draw.randrange(8 * len(content))
            content[at // 8] ^= 1 << at % 8
            changed.append((name, bytes(content)))
        elif kind == "twice":
            changed += [(name, bytes(content))] * 2
            named = "different names are in 1 bag(s)"
        with pytest.warns(UserWarning, match="Duplicate name") if kind == "twice" else nullcontext():
            require_named(write_members(tmp_path / "changed.zip", changed), named)


@pytest.mark.parametrize(
    ("added", "named"),
    [
        ("pack/notes.txt", "pack/notes.txt"),
        ("pack/data/notes.txt", "pack/data/notes.txt"),
        ("pack/data/.hidden", "pack/data/.hidden"),
        ("pack/fetch.txt", "pack/fetch.txt"),
        ("/tmp/evil.txt", "tmp/evil.txt"),
        ("pack/data/../../../evil.txt", "pack/data/evil.txt"),
        (f"pack/data/{'n' * 3000}.txt", "OSError"),
        ("pack/a\nfindings: yes", "pack/a\\nfindings: yes"),
    ],
    ids=["beside data", "in data", "hidden", "to be fetched", "absolute", "above", "long", "forged line"],
)
def test_an_added_file_is_named(packed: Path, tmp_path: Path, added: str, named: str) -> None:
    members: Members = [*read_members(packed).items(), (added, b"words")]
    require_named(write_members(tmp_path / "changed.zip", members), named)


def require_named(file: Path, named: str) -> None:
    """Check that the check of the files fails and names a file, and that nothing else is checked."""
    files, *others = checks_of(file)
    assert (files.what, files.ok) == ("files", False)
    # A changed manifest of the manifests no longer has the right digests of other files, so these are named instead.
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


def test_a_file_that_is_no_pack_fails_a_check(packed: Path, tmp_path: Path) -> None:
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
        (tmp_path / "bomb.zip", "more than 200 times the size of bomb.zip"),
        (write_members(tmp_path / "other.zip", [("folder/some.txt", b"words")]), "1 different names are in 0 bag(s)"),
        (write_members(tmp_path / "empty.zip", []), "0 different names are in 0 bag(s)"),
        (write_members(tmp_path / "two.zip", two), "names are in 2 bag(s)"),
        (write_members(tmp_path / "undeclared.zip", undeclared), "in no manifest: pack/bagit.txt"),
    ):
        result = CliRunner().invoke(main, ["verify", str(file), "--json"])
        assert result.exit_code == 1
        assert words in json.loads(result.stdout)["checks"][0]["words"]


def test_a_pack_that_was_unpacked_and_zipped_again_is_valid(packed: Path, tmp_path: Path) -> None:
    members = read_members(packed)
    folders = {f"{parent}/" for name in members for parent in Path(name).parents if str(parent) != "."}
    again = [*((folder, b"") for folder in sorted(folders)), *random.Random(1).sample([*members.items()], len(members))]
    assert next(checks_of(write_members(tmp_path / "again.zip", again))).ok is True


@pytest.mark.parametrize(
    "content", [b"[]", b"null", b"{}", b"[" * 200_000, b""], ids=["list", "null", "object", "nested", "empty"]
)
@pytest.mark.parametrize("name", ["pack.json", "workspace/config/models.yaml"])
def test_a_description_of_another_shape_fails(
    change_pack: Callable[[Callable[[Path], object]], Path], name: str, content: bytes
) -> None:
    file = change_pack(lambda payload: (payload / name).write_bytes(content))
    assert [check.what for check in checks_of(file) if check.ok is False] == ["everything else"]
