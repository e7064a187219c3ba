"""Canaries: random texts of which a publisher plants one per set, and the file that keeps the others secret.

The file is JSON Lines, one canary per line: set, canary, text, published (1 or 0), sha256 of the text. Next to it is
its seal, with the file's sha256: deposited with a notary or a timestamp service before anything is published, it shows
later that the choice was made before.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.readers.formats import read_rows
from audit_pipeline.readers.rows import text_problem
from audit_pipeline.store.files import read_json, write_atomically, write_json
from audit_pipeline.tables import text_sha256

Style = Literal["words", "hex", "digits"]

SLOT = "{canary}"
BY_CHANCE = "secrets"
MIN_BITS = 40.0
MOST_TEXTS = 1_000_000
MOST_PARTS = 100_000_000
"""Words of all texts, and the characters around them."""

_KEYS = ("set", "canary", "text", "published", "sha256")
_NAMED_AT_MOST = 5

# 256 common English words: eight bits each.
_WORDS = """
    acorn after again anchor animal answer apple april arrow autumn baker balcony banner barley basket beach beaver
    begin bell bench berry bicycle birch bird blanket blue boat border bottle bread brick bridge bright brook brother
    bucket button cabin candle canvas carpet carrot castle cedar cellar chair chapel cherry chimney circle city clay
    clock cloud clover coast coffee copper corner cotton cousin cradle crane cricket crystal cup daisy dance daughter
    dawn deer desert dinner doctor dolphin donkey door dragon dream drum dust eagle early earth east echo elbow elder
    elephant ember empty engine evening fabric falcon family farmer feather fence fiddle field finger fire fish flag
    flower flute fog forest fountain fox friend frost fruit garden gate ginger glass goat gold goose grain granite
    grass gravel green guitar hammer harbour harvest hat hazel heather hedge helmet heron hill honey horse house
    hunter ice ink island ivory ivy jacket jar jewel journey juice jungle kettle key kitchen kite ladder lake lamp
    lantern lark lawn leaf lemon letter library lily linen lion lobster lucky maple marble market meadow melon mill
    mirror mist monkey moon morning moss mountain mouse music narrow needle nest night north nut oak ocean olive
    onion orange orchard otter oven owl paint palace paper parrot path pearl pebble pencil pepper piano pigeon pillow
    pine planet plum pocket poem pond poppy potato prince puzzle quarry queen quiet quill rabbit radish rain raven
    ribbon rice river road robin rocket roof rope rose saddle salt sand scarf school sea shadow sheep shell ship
    silver sister snow spider spoon summer
"""
WORDS: tuple[str, ...] = tuple(_WORDS.split())


@dataclass(frozen=True)
class Canary:
    """One text: of the set ``set`` (from 1), named ``name`` within the file, and whether it is published."""

    set: int
    name: str
    text: str
    published: bool


@dataclass(frozen=True)
class CanarySet:
    """One published canary and the alternatives that it might have been."""

    number: int
    published: Canary
    alternatives: tuple[Canary, ...]

    @property
    def canaries(self) -> list[Canary]:
        """All of the set, by name: which is published does not show in the order."""
        return sorted([self.published, *self.alternatives], key=lambda canary: canary.name)


@dataclass(frozen=True)
class Canaries:
    """Sets as they were drawn; ``drawn_by`` says by what."""

    sets: tuple[CanarySet, ...]
    drawn_by: str
    recipe: str

    @property
    def to_publish(self) -> list[str]:
        """The texts to plant, one per set."""
        return [canary_set.published.text for canary_set in self.sets]


@dataclass(frozen=True)
class Seal:
    """The seal next to the file: its name, sha256 and when it was made, and how the canaries were drawn."""

    file: str
    sha256: str
    made_at: str
    sets: int
    alternatives: int
    recipe: str
    drawn_by: str


def make_canaries(
    n_sets: int,
    alternatives: int,
    *,
    seed: int | None = None,
    words: int = 12,
    style: Style = "words",
    template: str = SLOT,
) -> Canaries:
    """Draw ``n_sets`` sets of 1 + ``alternatives`` random texts, and which of each set is to be published.

    The random part of a text is ``words`` draws, with blanks between, from the list of common words, or from blocks of
    four hexadecimal or decimal digits (``style``); ``template`` is the text around it, with ``{canary}`` in its place.
    Texts are distinct over all sets. Both draws are from the operating system's source of random numbers; ``seed`` is
    for tests only, and the seal says that it was given.

    Raises ConfigError for a number below 1, or far above what is of use, for a template without exactly one
    ``{canary}``, and fewer than 40 random bits per text: somebody else might then have written the same.
    """
    if min(n_sets, alternatives, words) < 1:
        raise ConfigError(
            f"canaries need at least one set, one alternative and one word: {n_sets}, {alternatives}, {words}"
        )
    n_canaries = n_sets * (alternatives + 1)
    if n_canaries > MOST_TEXTS or n_canaries * (words + len(template)) > MOST_PARTS:
        raise ConfigError(
            f"{n_sets:,} sets of {alternatives + 1:,} canaries with {words:,} words are too many: at most "
            f"{MOST_TEXTS:,} canaries are drawn, and {MOST_PARTS:,} words in all of them; ask for fewer"
        )
    if template.count(SLOT) != 1:
        raise ConfigError(f"the template must hold {SLOT} exactly once, where the random part goes")
    parts: Sequence[str] = WORDS
    if style != "words":
        parts = [f"{number:04x}" for number in range(16**4)] if style == "hex" else [f"{n:04d}" for n in range(10**4)]
    bits = words * math.log2(len(parts))
    if bits < MIN_BITS:
        raise ConfigError(
            f"{words} draws from {len(parts)} words are {bits:.0f} random bits, a canary needs {MIN_BITS:.0f}: "
            "take more words"
        )
    source: random.Random = secrets.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311 # for tests
    taken: set[str] = set()
    sets = []
    for number in range(1, n_sets + 1):
        texts: list[str] = []
        while len(texts) <= alternatives:
            text = template.replace(SLOT, " ".join(source.choice(parts) for _ in range(words)))
            if text not in taken:
                taken.add(text)
                texts.append(text)
        chosen = source.randrange(alternatives + 1)
        canaries = [Canary(number, f"{number:04d}-{n + 1:04d}", text, n == chosen) for n, text in enumerate(texts)]
        sets.append(_build_canary_set(number, canaries))
    drawn_by = BY_CHANCE if seed is None else f"seed {seed} (for tests only: anyone who knows it can draw them again)"
    return Canaries(tuple(sets), drawn_by, f"{words} draws from {style}, in the template {template!r}")


def write_canaries(path: Path, canaries: Canaries) -> Seal:
    """Write the file (readable by its owner alone) and its seal next to it.

    Raises DataError where the name does not end in .jsonl, and where either file exists already: without the file that
    was made first, canaries that are planted cannot be tested any more.
    """
    if path.suffix != ".jsonl":
        raise DataError(f"{path}: canaries are written as JSON Lines, so the name must end in .jsonl")
    for file in (path, seal_path(path)):
        if file.exists():
            raise DataError(
                f"{file}: exists already; planted canaries cannot be tested without it, so take another name"
            )
    lines = []
    for canary in (canary for canary_set in canaries.sets for canary in canary_set.canaries):
        values = (canary.set, canary.name, canary.text, int(canary.published), text_sha256(canary.text))
        lines.append(json.dumps(dict(zip(_KEYS, values, strict=True)), ensure_ascii=False))
    content = ("\n".join(lines) + "\n").encode()
    with write_atomically(path) as temporary:
        temporary.write_bytes(content)
    path.chmod(0o600)
    seal = Seal(
        file=path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        sets=len(canaries.sets),
        alternatives=len(canaries.sets[0].alternatives),
        recipe=canaries.recipe,
        drawn_by=canaries.drawn_by,
    )
    write_json(seal_path(path), vars(seal))
    return seal


def read_canaries(path: Path) -> list[CanarySet]:
    """Return the sets of a file, by number.

    Raises DataError, naming the lines, where one cannot be read, its text is blank, is not the one of its sha256 or
    is there twice; and, naming the sets, where not exactly one canary is published, or there is no alternative. Nothing
    is skipped: a lost canary would change the odds.
    """
    file = read_rows(path)
    problems = [(skipped.location, skipped.reason) for skipped in file.skipped]
    found: dict[int, list[Canary]] = {}
    names: dict[str, str] = {}
    texts: dict[str, str] = {}
    for row in file.rows:
        canary = _parse_canary(row.values)
        if isinstance(canary, str):
            problems.append((row.location, canary))
            continue
        for what, value, names_or_texts in (("name", canary.name, names), ("text", canary.text, texts)):
            if value in names_or_texts:
                problems.append((row.location, f"its {what} is that of {names_or_texts[value]} too"))
            names_or_texts.setdefault(value, row.location)
        found.setdefault(canary.set, []).append(canary)
    # Of a file with bad lines a set may be short for that reason alone.
    for number, canaries in sorted(found.items()) if not problems else ():
        published = sum(canary.published for canary in canaries)
        if published != 1:
            problems.append((f"set {number}", f"has {published} published canaries, not one"))
        elif len(canaries) < 2:
            problems.append((f"set {number}", "has no alternative"))
    if problems:
        named = "; ".join(f"{location}: {why}" for location, why in problems[:_NAMED_AT_MOST])
        more = f" (and {len(problems) - _NAMED_AT_MOST} more)" if len(problems) > _NAMED_AT_MOST else ""
        raise DataError(f"{path}: is not a whole file of canaries: {named}{more}; take the file as it was written")
    return [_build_canary_set(number, canaries) for number, canaries in sorted(found.items())]


def seal_path(path: Path) -> Path:
    """Return the path of the seal of the file at ``path``."""
    return path.with_suffix(".seal.json")


def read_seal(path: Path) -> Seal | None:
    """Return the seal of the file of canaries at ``path``; None where there is none next to it.

    Raises DataError where it cannot be read or the file is not the one that was sealed.
    """
    place = seal_path(path)
    if not place.exists():
        return None
    try:
        seal = Seal(**read_json(place))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{place}: is not a seal of canaries ({error}); take the file as it was written") from error
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != seal.sha256:
        raise DataError(
            f"{path}: is not the file that was sealed: its sha256 is {digest[:16]}…, in {place.name} it is "
            f"{seal.sha256[:16]}…; take the file as it was written"
        )
    return seal


def _build_canary_set(number: int, canaries: Sequence[Canary]) -> CanarySet:
    [published] = [canary for canary in canaries if canary.published]
    return CanarySet(number, published, tuple(canary for canary in canaries if not canary.published))


def _parse_canary(values: Mapping[str, object]) -> Canary | str:
    """Return the canary of one line, or what is wrong with it."""
    missing = [key for key in _KEYS if key not in values]
    if missing:
        return f"has no {', '.join(missing)}"
    number, name, text, published, sha256 = (values[key] for key in _KEYS)
    problem = None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        problem = "set is not a number from 1"
    elif not isinstance(name, str) or not name:
        problem = "canary is not a name"
    elif published not in (0, 1):
        problem = "published is neither 1 nor 0"
    elif text_problem(text) is not None or not isinstance(text, str):
        problem = f"text {text_problem(text)}"
    elif text_sha256(text) != sha256:
        problem = "the text does not match its sha256"
    else:
        return Canary(number, name, text, bool(published))
    return problem
