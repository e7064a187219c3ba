"""The draw of twins: the versions of items, the published versions, and the secret file for the later test.

The draw is HMAC-SHA256 of the item's name under a random key, modulo the number of its versions. The secret file
contains the key and the versions, so its owner can repeat the draw. Others can verify the draw if they trust that the
key is random. A timestamp of the file before the publication proves that key and versions were not chosen later.

Canaries are twins whose versions are random words. An author adds them to texts before the publication.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files
from itertools import islice
from pathlib import Path

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.readers.file_bytes import read_regular_file
from audit_pipeline.readers.formats import read_rows
from audit_pipeline.readers.text_rows import Row, explain_unusable_text, find_column
from audit_pipeline.store.files import read_json, write_atomically
from audit_pipeline.store.integrity import add_json_digest, format_json

ITEM_COLUMNS = ("item", "id", "item_id")
VERSIONS_COLUMN = "versions"
NUMBERED_COLUMNS = "version_"
GROUP_COLUMN = "group"
# Maximum number of unusable rows that an error message quotes.
_MAX_QUOTED_ROWS = 5


@dataclass(frozen=True)
class TwinItem:
    """An item with its versions.

    Attributes:
        item: Name of the item.
        group: Name of the group of dependent items, by default the name of the item.
        versions: At least two texts.
        other_columns: The other columns of the item's row, which are published unchanged.
    """

    item: str
    group: str
    versions: tuple[str, ...]
    other_columns: Mapping[str, object] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Twins:
    """The content of a secret file.

    Attributes:
        items: The items.
        published: Index of the published version of each item.
        sha256: Digest of the secret file.
        origin: A description of the time of the draw and its timestamp.
    """

    items: Sequence[TwinItem]
    published: Sequence[int]
    sha256: str
    origin: str

    @property
    def published_texts(self) -> list[str]:
        """Return the published version of each item."""
        return [item.versions[index] for item, index in zip(self.items, self.published, strict=True)]

    def require_published(self, texts: Collection[str], label: object) -> None:
        """Check that the texts contain the published version of each item.

        Args:
            texts: The published texts.
            label: Name of the texts in the error message.

        Raises:
            DataError: If a published version is missing.
        """
        known = set(texts)
        missing = [item.item for item, text in zip(self.items, self.published_texts, strict=True) if text not in known]
        if missing:
            raise DataError(
                f"{label} lacks the published version of {len(missing):,} of {len(self.items):,} items (the first: "
                f"{missing[0]}). The secret file belongs to another draw, or the published texts were changed. Use the "
                "secret file and the published file of one draw."
            )


def read_items(path: Path) -> list[TwinItem]:
    """Read the items of a file with one row per item.

    The columns are ``item`` or ``id`` (name), ``versions`` (a list), and ``group`` (optional). Instead of ``versions``
    a file may have columns ``version_1``, ``version_2`` and so on. An empty cell is no version.

    Raises:
        DataError: If a row is unusable. All names and all versions must differ. Otherwise one item could publish a
            version that another item keeps secret.
    """
    file = read_rows(path)
    problems = [(skipped.location, skipped.reason) for skipped in file.skipped]
    items: list[TwinItem] = []
    # The first row with each name, and the first row with each version.
    row_of_name: dict[str, str] = {}
    row_of_version: dict[str, str] = {}
    for row in file.rows:
        item, problem = _parse_item(row)
        if problem is None and item.item in row_of_name:
            problem = f"has the same name as {row_of_name[item.item]}"
        shared = [text for text in item.versions if text in row_of_version]
        if problem is None and shared:
            problem = f"has the same version as {row_of_version[shared[0]]}"
        row_of_name.setdefault(item.item, row.location)
        for text in item.versions:
            row_of_version.setdefault(text, row.location)
        if problem is None:
            items.append(item)
        else:
            problems.append((row.location, problem))
    if problems:
        listing = "; ".join(f"{location} {problem}" for location, problem in problems[:_MAX_QUOTED_ROWS])
        raise DataError(
            f"{path}: {len(problems):,} row(s) are unusable: {listing}. Correct the file. Nothing was drawn."
        )
    return items


def _parse_item(row: Row) -> tuple[TwinItem, str | None]:
    """Return the item of a row and its problem. An item with a problem may be incomplete."""
    columns = list(row.values)
    name_columns = list(filter(None, (find_column(columns, name) for name in ITEM_COLUMNS)))
    versions_column = find_column(columns, VERSIONS_COLUMN)
    group_column = find_column(columns, GROUP_COLUMN)
    numbered_columns = [column for column in columns if column.casefold().startswith(NUMBERED_COLUMNS)]
    versions: list[object] = []
    if versions_column is None:
        cells = [row.values[column] for column in numbered_columns]
        versions = [text for text in cells if text is not None and str(text).strip()]
    else:
        cell = row.values[versions_column]
        if isinstance(cell, list | tuple):
            versions = list(cell)
    name = row.values.get(name_columns[0]) if name_columns else None
    label = "" if name is None else str(name).strip()
    group = row.values.get(group_column) if group_column else None
    used_columns = {*name_columns[:1], versions_column, group_column, *numbered_columns}
    other_columns = {column: value for column, value in row.values.items() if column not in used_columns}
    item = TwinItem(label, label if group is None else str(group), tuple(map(str, versions)), other_columns)
    if not label:
        return item, f"has no name in one of the columns {', '.join(ITEM_COLUMNS)}"
    for text in versions:
        reason = explain_unusable_text(text)
        if reason is not None:
            return item, f"has a version that {reason}"
    if len(versions) < 2:
        expected = f"{VERSIONS_COLUMN} (a list) or {NUMBERED_COLUMNS}1, {NUMBERED_COLUMNS}2 …"
        return item, f"has {len(versions)} version(s) in {expected}, but needs at least two"
    if len(set(versions)) < len(versions):
        return item, "contains the same version twice"
    return item, None


def draw_version_indices(items: Sequence[TwinItem], key: str) -> list[int]:
    """Return the index of the drawn version of each item.

    The probabilities of k versions are equal up to k / 2^256.

    Args:
        items: The items.
        key: The key as hexadecimal digits.
    """
    indices: list[int] = []
    for item in items:
        number = hmac.new(bytes.fromhex(key), item.item.encode(), hashlib.sha256).digest()
        indices.append(int.from_bytes(number) % len(item.versions))
    return indices


def draw_twins(items: Sequence[TwinItem], secret: Path, authority: str | None = None) -> Twins:
    """Draw the published versions of items, and write the secret file. Only its owner may read it.

    Args:
        items: The items.
        secret: The secret file.
        authority: The URL of a timestamp authority, or None. It receives only the digest of the secret file. Its
            timestamp is written next to the secret file.

    Raises:
        DataError: If the secret file or its timestamp exists.
        AuthorityError: If the authority does not respond. Nothing is written.
    """
    require_new_file(secret)
    require_new_file(build_stamp_path(secret))
    document = {
        "drawn_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "key": secrets.token_hex(32),
        "items": [{"item": item.item, "group": item.group, "versions": item.versions} for item in items],
    }
    content = format_json(add_json_digest(document)).encode()
    if authority is not None:
        from audit_pipeline.extras.evidence_packs.timestamps import request_timestamp  # noqa: PLC0415 - heavy

        stamp = request_timestamp(authority, content).response
        with write_atomically(build_stamp_path(secret)) as temporary:
            temporary.write_bytes(stamp)
    with write_atomically(secret) as temporary:
        temporary.write_bytes(content)
    secret.chmod(0o600)
    return replace(read_twins(secret), items=items)


def require_new_file(file: Path) -> None:
    """Check that a file does not exist.

    Raises:
        DataError: If the file exists.
    """
    if file.exists():
        raise DataError(
            f"{file} exists already. It is not overwritten, because published versions cannot be tested without the "
            "secret file of their draw. Choose another name."
        )


def build_stamp_path(secret: Path) -> Path:
    """Return the path of the timestamp of a secret file."""
    return secret.with_name(f"{secret.name}.tsr")


def write_published(path: Path, twins: Twins) -> None:
    """Write a JSON line per item to publish: its name, the drawn version as ``text``, and its other columns."""
    lines: list[str] = []
    for item, text in zip(twins.items, twins.published_texts, strict=True):
        fields: dict[str, object] = {ITEM_COLUMNS[0]: item.item, "text": text}
        if item.group != item.item:
            fields[GROUP_COLUMN] = item.group
        for name, value in item.other_columns.items():
            if name not in (ITEM_COLUMNS[0], "text"):
                fields[name] = value
        lines.append(json.dumps(fields, ensure_ascii=False, default=str) + "\n")
    with write_atomically(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")


def read_twins(secret: Path) -> Twins:
    """Read a secret file, repeat its draw, and compare it with its timestamp if the timestamp exists.

    Raises:
        DataError: If the file is missing, unreadable or changed, or the timestamp belongs to another file.
    """
    try:
        content = read_regular_file(secret)
        document = read_json(secret)
        items = [TwinItem(row["item"], row["group"], tuple(row["versions"])) for row in document["items"]]
        published = draw_version_indices(items, document["key"])
        drawn_at = document["drawn_at"]
    except FileNotFoundError as error:
        raise DataError(f"{secret} does not exist. Check the path of the secret file.") from error
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{secret} is no secret file of twins, or was changed ({error}). Use the file that `corpus-audit twins "
            "draw` or `corpus-audit canaries` wrote."
        ) from error
    stamp: object = "without a timestamp"
    stamp_path = build_stamp_path(secret)
    if stamp_path.exists():
        from audit_pipeline.extras.evidence_packs.timestamps import read_timestamp  # noqa: PLC0415 - heavy

        stamp = read_timestamp(stamp_path.read_bytes(), content)
    return Twins(items, published, hashlib.sha256(content).hexdigest(), f"drawn {drawn_at}, {stamp}")


SLOT = "{canary}"
CANARY_WORDS = 12
MAX_CANARIES = 1_000_000

WORDS: tuple[str, ...] = tuple((files(__package__) / "canary_words.txt").read_text(encoding="utf-8").split())
"""256 common English words. A random word has eight bits of entropy."""


def make_canaries(n_sets: int, alternatives: int, template: str = SLOT) -> list[TwinItem]:
    """Make items whose versions are random texts. No two texts are equal.

    A text has 12 random words, which are 96 random bits from the operating system.

    Args:
        n_sets: Number of items.
        alternatives: Number of unpublished versions per item.
        template: The text around the random words, which replace ``{canary}``.

    Raises:
        ConfigError: If a number is below 1, there would be too many texts, or the template does not contain
            ``{canary}`` exactly once.
    """
    if min(n_sets, alternatives) < 1:
        raise ConfigError(
            f"--sets and --alternatives must be at least 1, but are {n_sets} and {alternatives}. Increase the numbers."
        )
    n_versions = alternatives + 1
    if n_sets * n_versions > MAX_CANARIES:
        raise ConfigError(
            f"{n_sets:,} sets of {n_versions:,} canaries are more than {MAX_CANARIES:,} canaries, the maximum. Reduce "
            "--sets or --alternatives."
        )
    if template.count(SLOT) != 1:
        raise ConfigError(
            f"--template contains {SLOT} {template.count(SLOT)} times. Write {SLOT} exactly once, at the position of "
            "the random words."
        )
    # A dictionary removes equal texts and keeps their order.
    texts: dict[str, None] = {}
    while len(texts) < n_sets * n_versions:
        words = " ".join(secrets.choice(WORDS) for _ in range(CANARY_WORDS))
        texts[template.replace(SLOT, words)] = None
    remaining_texts = iter(texts)
    items: list[TwinItem] = []
    for number in range(1, n_sets + 1):
        name = f"{number:04d}"
        items.append(TwinItem(name, name, tuple(islice(remaining_texts, n_versions))))
    return items
