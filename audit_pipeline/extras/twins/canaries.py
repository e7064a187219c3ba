"""Canaries: twins whose versions are random words, to be planted in texts before these are published."""

from __future__ import annotations

import secrets
from importlib.resources import files

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.twins.drawing import Item

SLOT = "{canary}"
N_WORDS = 12
MOST_TEXTS = 1_000_000

WORDS: tuple[str, ...] = tuple((files(__package__) / "canary_words.txt").read_text(encoding="utf-8").split())
"""256 common English words: eight bits each."""


def make_canaries(n_sets: int, alternatives: int, template: str = SLOT) -> list[Item]:
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
    return [Item(name, name, tuple(every[place * size : (place + 1) * size])) for place, name in enumerate(names)]
