"""Canaries: twins whose versions are random words, to be planted in texts before these are published."""

from __future__ import annotations

import math
import secrets

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.twins.drawing import Item

SLOT = "{canary}"
MIN_BITS = 40.0
MOST_TEXTS = 1_000_000
MOST_PARTS = 100_000_000
"""Words of all texts, and the characters around them."""

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


def make_canaries(n_sets: int, alternatives: int, *, words: int = 12, template: str = SLOT) -> list[Item]:
    """Make ``n_sets`` items of 1 + ``alternatives`` random texts each.

    The random part of a text is ``words`` draws from the list of common words, by the operating system's source of
    random numbers; ``template`` is the text around it, with ``{canary}`` in its place. Texts are distinct over all
    sets.

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
    bits = words * math.log2(len(WORDS))
    if bits < MIN_BITS:
        raise ConfigError(
            f"{words} draws from {len(WORDS)} words are {bits:.0f} random bits, a canary needs {MIN_BITS:.0f}: "
            "take more words"
        )
    texts: dict[str, None] = {}
    while len(texts) < n_canaries:
        texts[template.replace(SLOT, " ".join(secrets.choice(WORDS) for _ in range(words)))] = None
    every = list(texts)
    size = alternatives + 1
    return [
        Item(f"{number:04d}", f"{number:04d}", tuple(every[(number - 1) * size : number * size]))
        for number in range(1, n_sets + 1)
    ]
