"""Drawing twins: the items' versions, the draw of what to publish, and the secret file that the test needs later.

The draw is HMAC-SHA256 of the item's name under a random key, taken modulo the number of its versions. Who has the
secret file, key and versions, draws the same again: that chance alone drew can be checked, as far as the key is known
to be random. A timestamp of the file, obtained before anything is published, shows that neither was chosen later.

Canaries are twins whose versions are random words, to be planted in texts before these are published.
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
from pathlib import Path

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.readers.formats import read_rows
from audit_pipeline.readers.regular_files import read_regular_file
from audit_pipeline.readers.text_rows import Row, explain_unusable_text, find_column
from audit_pipeline.store.files import read_json, write_atomically
from audit_pipeline.store.integrity import add_json_digest, format_json

ITEM_COLUMNS = ("item", "id", "item_id")
VERSIONS_COLUMN, NUMBERED_COLUMNS, GROUP_COLUMN = "versions", "version_", "group"


@dataclass(frozen=True)
class TwinItem:
    """An item and its ``versions``, two texts or more; ``group``: what it belongs to, by default itself.

    ``rest``: the row's other columns, which are published as they are.
    """

    item: str
    group: str
    versions: tuple[str, ...]
    rest: Mapping[str, object] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Twins:
    """Items and the places of their published versions, as a secret file has them.

    ``origin``: when they were drawn and what shows it, in words.
    """

    items: Sequence[TwinItem]
    published: Sequence[int]
    sha256: str
    origin: str

    @property
    def published_texts(self) -> list[str]:
        """The published version of each item."""
        return [item.versions[place] for item, place in zip(self.items, self.published, strict=True)]

    def require_published(self, texts: Collection[str], label: object) -> None:
        """Raise DataError unless the published version of every item is among ``texts``, which ``label`` names."""
        known = set(texts)
        lacking = [item.item for item, text in zip(self.items, self.published_texts, strict=True) if text not in known]
        if lacking:
            raise DataError(
                f"{label} lacks the published version of {len(lacking):,} of {len(self.items):,} items (the first: "
                f"{lacking[0]}): the secret file is of other items; take the file that was written with them"
            )


def read_items(path: Path) -> list[TwinItem]:
    """Read the items of a file of rows: a name in ``item`` or ``id``, texts in ``versions`` (a list) or in columns
    ``version_1``, ``version_2`` … (blank: the item has fewer), and, if it has one, a ``group``.

    Raises DataError, naming the rows, where one cannot be read, an item has no name or that of another, a version is no
    text, or the same as another of any item (a version that is published elsewhere is no secret), or there is only one.
    """
    file = read_rows(path)
    problems = [(skipped.location, skipped.reason) for skipped in file.skipped]
    items: list[TwinItem] = []
    seen: dict[tuple[str, str], str] = {}
    for row in file.rows:
        item, problem = _parse_item(row)
        for what, value in (("name", item.item), *(("version", text) for text in dict.fromkeys(item.versions))):
            if problem is None and (what, value) in seen:
                problem = f"has a {what} that {seen[what, value]} has too"
            seen.setdefault((what, value), row.location)
        if problem is None:
            items.append(item)
        else:
            problems.append((row.location, problem))
    if problems:
        named = "; ".join(f"{location} {why}" for location, why in problems[:5])
        raise DataError(f"{path}: {len(problems):,} row(s) cannot be used: {named}; nothing was drawn")
    return items


def _parse_item(row: Row) -> tuple[TwinItem, str | None]:
    """Return the item of a row, as far as it has one, and what is wrong with it."""
    columns = list(row.values)
    name_column = next((found for name in ITEM_COLUMNS if (found := find_column(columns, name))), None)
    listed, grouped = find_column(columns, VERSIONS_COLUMN), find_column(columns, GROUP_COLUMN)
    numbered = [column for column in columns if column.casefold().startswith(NUMBERED_COLUMNS)]
    given = row.values[listed] if listed else [row.values[column] for column in numbered]
    versions = list(given) if isinstance(given, list | tuple) else []
    if not listed:
        versions = [text for text in versions if text is not None and str(text).strip()]
    name, group = (row.values.get(column) if column else None for column in (name_column, grouped))
    taken = {name_column, listed, grouped, *numbered}
    rest = {column: value for column, value in row.values.items() if column not in taken}
    label = "" if name is None else str(name).strip()
    item = TwinItem(label, label if group is None else str(group), tuple(map(str, versions)), rest)
    faults = [reason for text in versions if (reason := explain_unusable_text(text)) is not None]
    if not label:
        return item, f"has no name in a column {', '.join(ITEM_COLUMNS)}"
    if faults:
        return item, f"has a version that {faults[0]}"
    if len(versions) < 2:
        place = f"{VERSIONS_COLUMN} (a list) or {NUMBERED_COLUMNS}1, {NUMBERED_COLUMNS}2 …"
        return item, f"has {len(versions)} version(s) in {place}; two are needed"
    return item, "has the same version twice" if len(set(versions)) < len(versions) else None


def draw_places(items: Sequence[TwinItem], key: str) -> list[int]:
    """Return the place of the version of each item that ``key`` (hex) draws: each with the same chance, but for a
    deviation below k / 2^256.
    """
    places = []
    for item in items:
        drawn = hmac.new(bytes.fromhex(key), item.item.encode(), hashlib.sha256).digest()
        places.append(int.from_bytes(drawn) % len(item.versions))
    return places


def draw_twins(items: Sequence[TwinItem], secret: Path, authority: str | None = None) -> Twins:
    """Draw the published versions of ``items``, and write the ``secret`` file, readable by its owner alone.

    The timestamp of the ``authority`` at a URL, which gets the file's digest alone, is written next to it. Raises
    DataError where the file exists (versions that were published cannot be tested without the key that drew them), and
    AuthorityError where the authority does not answer; nothing is written then.
    """
    for file in (secret, build_stamp_path(secret)):
        require_new(file)
    document = {
        "drawn_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "key": secrets.token_hex(32),
        "items": [{name: value for name, value in vars(item).items() if name != "rest"} for item in items],
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


def require_new(file: Path) -> None:
    """Raise DataError where there is such a file."""
    if file.exists():
        raise DataError(
            f"{file}: exists already; published versions cannot be tested without the file of their draw, so take "
            "another name"
        )


def build_stamp_path(secret: Path) -> Path:
    """Return the path of the timestamp of a secret file."""
    return secret.with_name(f"{secret.name}.tsr")


def write_published(path: Path, twins: Twins) -> None:
    """Write what to publish, a JSON line an item: its name, the drawn version as ``text``, and its other columns."""
    lines = [
        {ITEM_COLUMNS[0]: item.item, "text": text, **({} if item.group == item.item else {GROUP_COLUMN: item.group})}
        | {name: value for name, value in item.rest.items() if name not in (ITEM_COLUMNS[0], "text")}
        for item, text in zip(twins.items, twins.published_texts, strict=True)
    ]
    with write_atomically(path) as temporary:
        encoded = (json.dumps(line, ensure_ascii=False, default=str) for line in lines)
        temporary.write_text("".join(f"{line}\n" for line in encoded), encoding="utf-8")


def read_twins(secret: Path) -> Twins:
    """Read a secret file, draw from its key again, and compare it with its timestamp, where that is next to it.

    Raises DataError where it cannot be read, is not as it was written, or its timestamp is of another file.
    """
    try:
        content, document = read_regular_file(secret), read_json(secret)
        items = [TwinItem(row["item"], row["group"], tuple(row["versions"])) for row in document["items"]]
        places, drawn_at = draw_places(items, document["key"]), document["drawn_at"]
    except FileNotFoundError as error:
        raise DataError(f"{secret}: no such file") from error
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{secret}: no secret file of twins ({error}); take the file as it was written") from error
    stamp: object = "without a timestamp"
    if (file := build_stamp_path(secret)).exists():
        from audit_pipeline.extras.evidence_packs.timestamps import read_timestamp  # noqa: PLC0415 - heavy

        stamp = read_timestamp(file.read_bytes(), content)
    return Twins(items, places, hashlib.sha256(content).hexdigest(), f"drawn {drawn_at}, {stamp}")


SLOT = "{canary}"
N_WORDS = 12
MOST_TEXTS = 1_000_000

WORDS: tuple[str, ...] = tuple((files(__package__) / "canary_words.txt").read_text(encoding="utf-8").split())
"""256 common English words: eight bits each."""


def make_canaries(n_sets: int, alternatives: int, template: str = SLOT) -> list[TwinItem]:
    """Make ``n_sets`` items of 1 + ``alternatives`` random texts each.

    The random part of a text is 12 draws from the list of common words (96 random bits), by the operating system's
    source of random numbers; ``template`` is the text around it, with ``{canary}`` in its place. Texts are distinct
    over all sets.

    Raises ConfigError for a number below 1, or far above what is of use, and for a template without exactly one
    ``{canary}``.
    """
    if min(n_sets, alternatives) < 1:
        raise ConfigError(f"canaries need at least one set and one alternative: {n_sets}, {alternatives}")
    size = alternatives + 1
    if n_sets * size > MOST_TEXTS:
        raise ConfigError(
            f"{n_sets:,} sets of {size:,} canaries are too many: at most {MOST_TEXTS:,} canaries are drawn"
        )
    if template.count(SLOT) != 1:
        raise ConfigError(f"the template must hold {SLOT} exactly once, where the random part goes")
    texts: dict[str, None] = {}
    while len(texts) < n_sets * size:
        texts[template.replace(SLOT, " ".join(secrets.choice(WORDS) for _ in range(N_WORDS)))] = None
    every = list(texts)
    names = [f"{number:04d}" for number in range(1, n_sets + 1)]
    return [TwinItem(name, name, tuple(every[place * size : (place + 1) * size])) for place, name in enumerate(names)]
