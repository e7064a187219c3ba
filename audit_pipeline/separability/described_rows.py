"""Rows that describe the members and the non-members each by themselves: counts, dates, lengths, languages.

What belongs here: putting into rows what is counted and measured of one side at a time. What does not: measuring it
(histograms.py, dates_in_text.py, languages.py), and what needs both sides at once (compared_rows.py).
"""

from __future__ import annotations

from audit_pipeline.separability import histograms
from audit_pipeline.separability.blind_controls import LENGTH_UNITS, text_lengths
from audit_pipeline.separability.dates_in_text import dates_in
from audit_pipeline.separability.languages import MOST_CHARACTERS, detected_languages, same_language
from audit_pipeline.separability.quality_row import BOTH, QualityRow
from audit_pipeline.separability.split_texts import MEMBERS, NONMEMBERS, SplitTexts


def balance_rows(texts: SplitTexts) -> list[QualityRow]:
    """How many texts, groups and texts of each collection a side has, and how many collections are uneven."""
    rows = []
    counts = {}
    for side, places in texts.sides.items():
        n = len(places)
        rows.append(QualityRow("texts", "all", side, n, n, "counted"))
        rows.append(QualityRow("groups", "all", side, len(set(texts.strings("group", places))), n, "counted"))
        counts[side] = histograms.shares(texts.strings("collection", places))
        rows += [
            QualityRow("texts_of_collection", name, side, count, n, f"counted; {share:.1%} of the side")
            for name, (count, share) in counts[side].items()
        ]
    collections = {name for side in (MEMBERS, NONMEMBERS) for name in counts.get(side, {})}
    none = (0, 0.0)
    uneven = sum(
        counts.get(MEMBERS, {}).get(name, none)[0] != counts.get(NONMEMBERS, {}).get(name, none)[0]
        for name in collections
    )
    compared = None if texts.missing else uneven
    method = texts.missing or f"of {len(collections)} collections"
    return [*rows, QualityRow("uneven_collections", "all", BOTH, compared, len(texts.labelled), method)]


def published_rows(texts: SplitTexts) -> list[QualityRow]:
    """How many texts of each side are of documents of a month or year."""
    published = texts.columns["published"]
    unit = histograms.date_unit(published)  # type: ignore[arg-type]
    bins = histograms.date_bins(published, unit)  # type: ignore[arg-type]
    return [
        QualityRow(
            "texts_published",
            name,
            side,
            count,
            len(places),
            f"by {unit} of the document's date; {share:.1%} of the side",
        )
        for side, places in texts.sides.items()
        for name, (count, share) in histograms.shares(bins[place] for place in places).items()
    ]


def mention_rows(texts: SplitTexts) -> list[QualityRow]:
    """Which years the texts of each side mention."""
    rows = []
    for side, places in texts.sides.items():
        n = len(places)
        mentioned = [dates_in(text).years for text in texts.strings("text", places)]
        latest = [max(years) for years in mentioned if years]
        read = "numbers of four digits from 1500 to 2099 in the text"
        rows += [
            QualityRow("texts_with_year", "all", side, len(latest) / n, n, read),
            QualityRow("years_mentioned", "all", side, sum(map(len, mentioned)) / n, n, read),
            QualityRow(
                "latest_year_mentioned",
                "all",
                side,
                sum(latest) / len(latest) if latest else None,
                len(latest),
                read if latest else "not defined: no text mentions a year",
            ),
        ]
    return rows


def length_rows(texts: SplitTexts) -> list[QualityRow]:
    """How long the texts of each side are, in each unit of length."""
    rows = []
    for side, places in texts.sides.items():
        sizes = text_lengths(texts.strings("text", places), texts.word_counts(places))
        for unit, column in zip(LENGTH_UNITS, sizes.T, strict=True):
            found = histograms.lengths(column.tolist())
            values = {"mean": found.mean, "std": found.std, "min": found.least, "max": found.most}
            rows += [
                QualityRow(f"length_{name}", unit, side, value, len(places), f"in {unit.replace('_', ' ')}")
                for name, value in values.items()
            ]
    return rows


def language_rows(texts: SplitTexts) -> list[QualityRow]:
    """The languages that are detected in the texts of each side, and the share that is not in the declared one."""
    method = (
        f"detected by py3langid in the first {MOST_CHARACTERS} characters, often wrong on short texts, lists and code"
    )
    rows = []
    for side, places in texts.sides.items():
        n = len(places)
        detected = detected_languages(texts.strings("text", places))
        declared = texts.strings("language", places)
        other = sum(not same_language(one, two) for one, two in zip(declared, detected, strict=True))
        rows.append(QualityRow("language_mismatch", "all", side, other / n, n, method))
        rows += [
            QualityRow("language_share", name, side, share, n, f"{count} texts; {method}")
            for name, (count, share) in histograms.shares(detected).items()
        ]
    return rows
