"""External scores: a table that a user provides (external_score_rows.py), converted into tables for findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.allocation import SplitUnit, assign_splits
from audit_pipeline.detectors.registry import is_default
from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import open_texts
from audit_pipeline.readers.text_rows import Skipped, SkippedRows
from audit_pipeline.scoring.external_score_rows import GivenRows, Setting, read_given_rows
from audit_pipeline.splits.blind_controls import is_unspaced
from audit_pipeline.splits.shared_text import MOST_COMPARED, find_texts_on_both_sides
from audit_pipeline.statistics.claims import FEW_TEXTS
from audit_pipeline.statistics.membership_decisions import ALPHAS
from audit_pipeline.statistics.thresholds import min_marginal_groups
from audit_pipeline.store.duckdb_connections import open_in_memory
from audit_pipeline.store.files import cast_to_columns
from audit_pipeline.tables import EXAMPLES, MEMBER, NON_MEMBER, SCORES, Pair, Split, digest_of_items, text_sha256
from audit_pipeline.tables.table import Table

_NAMED = 3
_BOTH_SIDES = "the text is on both sides"
_TEXT_ABSENT = "the text is not in the file of texts"
NEAR_DUPLICATE = 0.5
"""As benchmarks have it where their entry says nothing."""

# A mean gap beyond the finite scores of the detector, at least the next float; 1 and -1 where none is finite.
_PLACED = """
WITH finite AS (
    SELECT
        detector,
        parameters,
        min(score) AS low,
        max(score) AS high,
        coalesce(nullif((high - low) / count(score), 0), 1) AS gap
    FROM scores
    WHERE isfinite(score)
    GROUP BY ALL
)
SELECT scores.* REPLACE (
    CASE score
        WHEN 'inf' THEN coalesce(greatest(high + gap, nextafter(high, 'inf'::DOUBLE)), 1)
        WHEN '-inf' THEN coalesce(least(low - gap, nextafter(low, '-inf'::DOUBLE)), -1)
        ELSE score
    END AS score
)
FROM scores
LEFT JOIN finite USING (detector, parameters)
ORDER BY place
"""


@dataclass(frozen=True, eq=False)
class ExternalScores:
    """The tables (schemas SCORES and EXAMPLES), and what had to be left out or taken as given.

    ``left_out`` counts rows by the reason why they, or their scores, could not be used; ``notes`` are sentences for
    people. ``has_text``: whether a blind control can be read. ``names_splits``: whether the file says which texts
    calibrate.
    """

    scores: pa.Table
    examples: pa.Table
    skipped: tuple[Skipped, ...]
    left_out: Mapping[str, int]
    notes: tuple[str, ...]
    has_text: bool
    names_splits: bool


@dataclass(frozen=True)
class ExternallyScoredTexts:
    """The texts of the file that was scored, by their sha256; ``skipped`` are its rows without a text."""

    file: Path
    by_digest: Mapping[str, str]
    skipped: SkippedRows


def read_scored_texts(file: Path, text_column: str | None) -> ExternallyScoredTexts:
    """Every text of ``file``; raises DataError as open_texts does."""
    stream = open_texts(file, text_column)
    by_digest = {text_sha256(row.text): row.text for row in stream}
    return ExternallyScoredTexts(file, by_digest, stream.skipped)


def _join_texts(file: Path, rows: GivenRows, texts: ExternallyScoredTexts) -> tuple[GivenRows, list[int], list[str]]:
    """The rows with the texts of their digests; the places of those that have none; and what is said of both files.

    Raises DataError where the table has no digests, and where none of them is of a text.
    """
    digests = rows.texts["sha256"].to_pylist()
    if not any(digests):
        raise DataError(
            f"{file}: there is no column 'sha256', by which {texts.file} is joined: `corpus-audit score` writes it; a "
            "table of yours can have the column text instead"
        )
    given = zip(digests, rows.texts["text"].to_pylist(), strict=True)
    found = [own or texts.by_digest.get(digest, "") for digest, own in given]
    absent = [place for place, text in enumerate(found) if not text]
    if len(absent) == len(found):
        raise DataError(
            f"{texts.file}: it holds none of the {len(found):,} texts of {file}: name the file that was scored"
        )
    column = rows.texts.schema.get_field_index("text")
    joined = rows.texts.set_column(column, "text", pa.array(found, pa.string()))
    seen: dict[str, int] = {}
    repeated = [place for place, digest in enumerate(digests) if seen.setdefault(digest, place) != place]
    unscored = len(texts.by_digest.keys() - set(digests))
    notes = [f"{unscored:,} texts of {texts.file} have no score"] if unscored else []
    if repeated:
        where = _format_places(rows.texts, repeated)
        notes.append(f"{len(repeated):,} texts repeat others of the table, and count each: {where}")
    for row in texts.skipped.first[:1]:
        notes.append(f"{texts.skipped.count:,} row(s) of {texts.file} hold no text: {row.location}: {row.reason}")
    return replace(rows, texts=joined), absent, notes


def read_external_scores(
    file: Path,
    pair: Pair,
    run_id: str,
    *,
    calibration: float,
    seed: int,
    language: str,
    texts: ExternallyScoredTexts | None = None,
) -> ExternalScores:
    """Read ``file`` (of a format of readers/formats.py) as the scores of ``pair``.

    Where there is no column ``split``, about the share ``calibration`` of the labelled texts of each side, by group,
    calibrates; all of them do where none is a member. Which ones depends on the texts' ids and groups and on ``seed``,
    and on no name. An infinite score is placed beyond the largest or smallest of its detector's finite ones. Rows that
    cannot be used are returned in ``skipped``. Raises DataError for a file without the columns score and label, without
    a usable row, with a text that is scored twice by a detector, or whose rows contradict each other. Texts that stand
    on both sides, and those that ``texts`` lacks, are left out and named in ``notes``; where none is left that is a
    DataError, too.
    """
    rows = read_given_rows(file)
    absent, notes = list[int](), list[str]()
    if texts is not None:
        rows, absent, notes = _join_texts(file, rows, texts)
    content, digests, labels = (rows.texts[name].to_pylist() for name in ("text", "sha256", "label"))
    split = list if is_unspaced(language) else str.split
    contradicting = find_texts_on_both_sides(content, digests, labels, NEAR_DUPLICATE, split)
    reasons = Counter(row.reason for row in rows.skipped)
    unscored = Counter(rows.scores["unscored"].drop_null().to_pylist())
    notes += [rows.not_understood] if rows.not_understood is not None else []
    if rows.scores["score"].null_count == len(rows.scores):
        why = "".join(f"; {count:,} × {reason}" for reason, count in (reasons + unscored).items())
        raise DataError(f"{file}: no row has a score and a label{why}{''.join(f'; {note}' for note in notes)}")
    scores, placed = _place_infinite(rows.scores)
    notes += [placed] if placed else []
    if not rows.has_groups:
        notes.append("there is no column 'group': every text was taken to be independent of all others")
    has_text = pc.any(pc.not_equal(rows.texts["text"], "")).as_py()
    if not has_text:
        hint = ": name the file that was scored with --texts" if any(digests) else ""
        notes.append(f"there is no column 'text': the blind control, which needs the texts, was not computed{hint}")
    if absent and texts is not None:
        where = _format_places(rows.texts, absent)
        notes.append(
            f"{len(absent):,} texts are not in {texts.file} (missing there, or edited since they were scored), so they "
            f"are left out: {where}"
        )
    if contradicting:
        notes.append(_format_contradiction(rows.texts, contradicting))
    if has_text and len(rows.texts) > MOST_COMPARED:
        notes.append(f"near-duplicates across the sides were not looked for: more than {MOST_COMPARED:,} texts")
    if len(contradicting) == len(rows.texts):
        raise DataError(
            f"{file}: this comparison could not find anything: {_format_contradiction(rows.texts, contradicting)}"
        )
    splits, set_apart = _assign_splits(rows.texts, calibration, seed, {*contradicting, *absent})
    notes += [set_apart] if set_apart else []
    examples = _build_examples_table(rows.texts, splits, pair.benchmark, language, run_id)
    table = _build_scores_table(scores, rows.settings, pair, run_id)
    ids = examples["example_id"].combine_chunks()
    for reason, places in ((_BOTH_SIDES, contradicting), (_TEXT_ABSENT, absent)):
        if places:
            left_out, n_rows = ids.take(pa.array(places)), len(table)
            examples, table = (
                rows.filter(pc.invert(pc.is_in(rows["example_id"], left_out))) for rows in (examples, table)
            )
            reasons[reason] += n_rows - len(table)
    return ExternalScores(
        scores=table,
        examples=examples,
        skipped=rows.skipped,
        left_out=dict(sorted((reasons + unscored).items())),
        notes=tuple(notes),
        has_text=has_text,
        names_splits=rows.texts["split"].null_count < len(rows.texts),
    )


def _format_contradiction(texts: pa.Table, places: Sequence[int]) -> str:
    """How many texts are on both sides, and the first of them by where they are; a text is never quoted."""
    return (
        f"{len(places):,} texts are on both sides, as member and as non-member (equal, or near-duplicates), so they "
        f"are left out: {_format_places(texts, places)}"
    )


def _format_places(texts: pa.Table, places: Sequence[int]) -> str:
    where = ", ".join(texts["location"][place].as_py() for place in places[:_NAMED])
    return f"{where} and {len(places) - _NAMED:,} more" if len(places) > _NAMED else where


def _place_infinite(scores: pa.Table) -> tuple[pa.Table, str | None]:
    """The scores with the infinite ones beyond the finite ones of their detector, and how many there were, in words."""
    n_infinite = pc.sum(pc.is_inf(scores["score"])).as_py()
    if not n_infinite:
        return scores, None
    with open_in_memory() as connection:
        connection.register("scores", scores)
        placed = connection.sql(_PLACED).to_arrow_table()
    return placed, (
        f"{n_infinite} infinite score{'s were' if n_infinite > 1 else ' was'} placed beyond the largest or smallest "
        "finite one of the detector: their order counts, not their size"
    )


def _assign_splits(
    texts: pa.Table, calibration: float, seed: int, left_out: Collection[int]
) -> tuple[list[Split], str | None]:
    """The split of every text, and in words what was set apart. Texts of unknown label are audited, so their groups
    are never for calibration.

    It is drawn by what the texts are, not by what anything is called: the same rows have the same split. Where no text
    is audited, texts are set apart only where enough are left for both: thresholds need some groups of non-members, and
    an AUROC some groups of either side. ``left_out``: places that do not count.
    """
    groups, labels = texts["group"].to_pylist(), texts["label"].to_pylist()
    if fixed := _collect_named_splits(texts):
        return [fixed.get(group, "evaluation") for group in groups], None
    audited = {group for group, label in zip(groups, labels, strict=True) if label is None}
    known = [group not in audited for group in groups]
    if audited and not any(label == MEMBER and is_known for label, is_known in zip(labels, known, strict=True)):
        return ["calibration" if is_known else "evaluation" for is_known in known], None
    if not audited and calibration and (lacking := _explain_too_few_groups(groups, labels, calibration, left_out)):
        return ["evaluation"] * len(labels), lacking
    content = digest_of_items(sorted(zip(texts["example_id"].to_pylist(), groups, strict=True)))
    described = zip(groups, texts["collection"].to_pylist(), labels, strict=True)
    placed = (SplitUnit(*text) for text, one in zip(described, known, strict=True) if one)
    splits = assign_splits(placed, fraction=calibration, seed=seed, family=content)
    found: list[Split] = [splits.get(group, "evaluation") for group in groups]
    apart = found.count("calibration")
    words = f"{apart:,} of {len(found):,} texts are set apart for calibration, so metrics are of the others"
    return found, words if apart else None


def _explain_too_few_groups(
    groups: Sequence[str], labels: Sequence[int | None], calibration: float, left_out: Collection[int]
) -> str | None:
    """Why nothing is set apart for calibration; None where enough groups of each side are left for both."""
    sides: dict[int | None, set[str]] = {MEMBER: set(), NON_MEMBER: set()}
    for place, (group, label) in enumerate(zip(groups, labels, strict=True)):
        if place not in left_out:
            sides[label].add(group)
    members, nonmembers = len(sides[MEMBER]), len(sides[NON_MEMBER])
    thresholds = min_marginal_groups(max(ALPHAS))
    left = min(members, nonmembers) * (1 - calibration)
    if nonmembers * calibration >= thresholds and left >= FEW_TEXTS:
        return None
    return (
        f"nothing is set apart for calibration, so no threshold is chosen: of {members:,} groups of members and "
        f"{nonmembers:,} of non-members, thresholds need {thresholds} of non-members, and an AUROC {FEW_TEXTS} of "
        "either side"
    )


def _collect_named_splits(texts: pa.Table) -> dict[str, Split]:
    """The splits that the file names, by group; raises DataError where a group is in both."""
    fixed: dict[str, Split] = {}
    named = texts.select(["group", "split", "location"]).filter(pc.is_valid(texts["split"]))
    for group, split, location in zip(*(column.to_pylist() for column in named.columns), strict=True):
        if fixed.setdefault(group, split) != split:
            raise DataError(f"{location}: the group {group} is in both splits; a group must not be divided")
    return fixed


def _build_scores_table(scores: pa.Table, settings: Collection[Setting], pair: Pair, run_id: str) -> pa.Table:
    counted = Counter(detector for detector, _ in settings)
    # The only setting that a detector has is its default: there was nothing to choose from.
    defaults = {setting: counted[setting[0]] == 1 or is_default(*setting) for setting in settings}
    named = zip(scores["detector"].to_pylist(), scores["parameters"].to_pylist(), strict=True)
    return _build_table(
        SCORES,
        {
            "example_id": scores["example_id"],
            "model": pair.model,
            "benchmark": pair.benchmark,
            "detector": scores["detector"],
            "parameters": scores["parameters"],
            "is_default": pa.array([defaults[setting] for setting in named], pa.bool_()),
            "score": scores["score"],
            "status": pc.if_else(pc.is_valid(scores["score"]), "ok", "failed"),
            "reason": scores["unscored"],
            "run_id": run_id,
        },
        len(scores),
    )


def _build_examples_table(texts: pa.Table, splits: list[Split], benchmark: str, language: str, run_id: str) -> pa.Table:
    words = pc.list_value_length(pc.utf8_split_whitespace(texts["text"]))
    return _build_table(
        EXAMPLES,
        {
            "example_id": texts["example_id"],
            "benchmark": benchmark,
            "document_id": texts["example_id"],
            "text": texts["text"],
            "context": pa.nulls(len(texts), pa.string()),
            "label": texts["label"],
            "split": pa.array(splits, pa.string()),
            "published": texts["published"],
            "words": pc.if_else(pc.equal(texts["text"], ""), 0, words),
            "language": language,
            "collection": texts["collection"],
            "group": texts["group"],
            "run_id": run_id,
        },
        len(texts),
    )


def _build_table(table: Table, columns: Mapping[str, pa.Array | pa.ChunkedArray | str], n: int) -> pa.Table:
    """Columns of n rows; a string is in every row."""
    whole = {name: pa.repeat(cells, n) if isinstance(cells, str) else cells for name, cells in columns.items()}
    return cast_to_columns(pa.table(whole), table)
