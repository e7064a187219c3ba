"""Texts that stand on both sides of a labelled set: what they are called contradicts itself.

What belongs here: finding them. What does not: near-duplicates in general (near_duplicates.py), checks of a built
benchmark (benchmarks/checks.py), leaving them out (scoring/given_scores.py, benchmarks/rows.py).

A text that is labelled as member and as non-member is one of the two, and nothing says which. Whatever separates its
two copies is no membership, so both are left out.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.separability.near_duplicates import near_pairs

MOST_COMPARED = 10_000
"""Texts. Among more, only equal ones are looked for: near-duplicates of 10,000 take some ten seconds."""


def on_both_sides(
    texts: Sequence[str],
    digests: Sequence[str],
    labels: Sequence[int | None],
    threshold: float,
    split: Callable[[str], list[str]] = str.split,
) -> list[int]:
    """The places of the texts that stand on the other side, too, in order.

    ``texts``, their ``digests`` and ``labels`` (1, 0, None unknown): [n] each. Two texts are one where they are equal
    after levelling case and white space, where there is no text by digest; or where they are near-duplicates: Jaccard
    similarity of 5-word sequences of at least ``threshold``, looked for among at most MOST_COMPARED texts.
    """
    level = list(map(levelled, texts))
    places = defaultdict[Hashable, list[int]](list)
    for place, (text, digest) in enumerate(zip(level, digests, strict=True)):
        if labels[place] is not None and (text or digest):
            places[text or digest].append(place)
    both = {MEMBER, NON_MEMBER}
    found = {place for same in places.values() if {labels[one] for one in same} == both for place in same}
    # Of equal texts the first stands for all: near-duplicates of one are near-duplicates of each.
    left = [same[0] for same in places.values() if same[0] not in found and level[same[0]]]
    compared = [level[place] for place in left] if len(left) <= MOST_COMPARED else []
    for pair in near_pairs(compared, threshold, split=split):
        first, second = left[pair.first], left[pair.second]
        if {labels[first], labels[second]} == both:
            for place in (first, second):
                found.update(places[level[place]])
    return sorted(found)


def levelled(text: str) -> str:
    """A text without what nobody sees of it: case, white space beyond a blank, characters of no width, and the form of
    a character that has several (NFKC)."""
    if not text.isascii():
        text = "".join(one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) != "Cf")
    return " ".join(text.casefold().split())
