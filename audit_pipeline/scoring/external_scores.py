"""Conversion of a user's table of scores (external_score_rows.py) to the tables SCORES and EXAMPLES."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.builder_interface import SplitUnit, assign_splits
from audit_pipeline.detectors.registry import is_default
from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import open_scored_texts
from audit_pipeline.readers.text_rows import Skipped, SkippedRows
from audit_pipeline.scoring.external_score_rows import ScoreRows, Setting, read_score_rows
from audit_pipeline.splits.blind_controls import is_unspaced
from audit_pipeline.splits.shared_text import MAX_COMPARED, find_texts_on_both_sides
from audit_pipeline.statistics.claims import MIN_TEXTS_PER_SIDE
from audit_pipeline.statistics.membership_decisions import ALPHAS
from audit_pipeline.statistics.thresholds import min_marginal_groups
from audit_pipeline.store.duckdb_connections import open_in_memory
from audit_pipeline.store.files import cast_to_columns
from audit_pipeline.tables import EXAMPLES, MEMBER, NON_MEMBER, SCORES, Pair, Split, digest_of_items, text_sha256
from audit_pipeline.tables.table import Table

_MAX_LOCATIONS = 3
_BOTH_SIDES = "the text is both member and non-member"
_TEXT_ABSENT = "the text is not in the file of texts"
NEAR_DUPLICATE = 0.5
"""The similarity from which two texts count as near-duplicates. It equals the default of benchmark entries."""

# An infinite score becomes a finite number beyond the finite scores of its detector. The distance is the mean gap
# between scores, or at least one step of floating point. If a detector has no finite score, infinity becomes 1 or -1.
_REPLACE_INFINITE = """
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
ORDER BY row_index
"""


@dataclass(frozen=True, eq=False)
class ExternalScores:
    """The tables of a user's scores, with information about rows of the file that are missing in them.

    Attributes:
        scores: The scores (schema SCORES).
        examples: The scored texts (schema EXAMPLES).
        skipped: The unusable rows.
        unused_counts: Number of rows that have no usable score, by reason.
        notes: Sentences for the user about skipped texts and assumptions.
        has_text: True if texts are available, which the blind control needs.
        names_splits: True if the file has a column that assigns texts to splits.
    """

    scores: pa.Table
    examples: pa.Table
    skipped: tuple[Skipped, ...]
    unused_counts: Mapping[str, int]
    notes: tuple[str, ...]
    has_text: bool
    names_splits: bool


@dataclass(frozen=True)
class ExternallyScoredTexts:
    """The texts of the file that was scored.

    Attributes:
        file: The file.
        by_digest: The texts by their sha256.
        skipped: The rows without a text.
    """

    file: Path
    by_digest: Mapping[str, str]
    skipped: SkippedRows


def read_scored_texts(file: Path, text_column: str | None) -> ExternallyScoredTexts:
    """Read all texts of a file.

    Raises:
        DataError: If ``open_texts`` raises it.
    """
    # Conversations are read without a template, so their texts are the same for every model.
    stream = open_scored_texts(file, text_column, None)
    by_digest = {text_sha256(row.text): row.text for row in stream}
    return ExternallyScoredTexts(file, by_digest, stream.skipped)


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
    """Read a user's table of scores as the scores of a pair.

    Infinite scores are replaced by values beyond the finite scores of their detector. Texts that are both member and
    non-member, and texts that ``texts`` lacks, are removed. Notes report them.

    Args:
        file: The table, in a format of readers/formats.py.
        pair: The pair of benchmark and model.
        run_id: The id of the run, written to the tables.
        calibration: The share of labelled texts for calibration, if the file has no column split.
        seed: The seed of the calibration split. The split also depends on the ids and groups of the texts.
        language: The language of the texts.
        texts: The file that was scored, if its texts are to be joined by digest.

    Raises:
        DataError: If read_score_rows raises it, if no row is usable, if no digest matches ``texts``, or if every text
            is both member and non-member.
    """
    rows = read_score_rows(file)
    absent: list[int] = []
    notes: list[str] = []
    if texts is not None:
        rows, absent, notes = _join_texts(file, rows, texts)
    labels = rows.texts["label"].to_pylist()
    contents = rows.texts["text"].to_pylist()
    digests = rows.texts["sha256"].to_pylist()
    split_words = list if is_unspaced(language) else str.split
    contradicting = find_texts_on_both_sides(contents, digests, labels, NEAR_DUPLICATE, split_words)
    if rows.not_understood is not None:
        notes.append(rows.not_understood)
    skipped_counts = Counter(row.reason for row in rows.skipped)
    unscored_counts = Counter(rows.scores["unscored"].drop_null().to_pylist())
    if rows.scores["score"].null_count == len(rows.scores):
        raise DataError(_format_no_scores(file, skipped_counts + unscored_counts, notes))
    scores, n_infinite = _replace_infinite(rows.scores)
    if n_infinite:
        notes.append(
            f"{n_infinite} infinite score(s) were replaced by finite scores beyond the largest or smallest score of "
            "their detector, because only the order of scores counts"
        )
    has_text = any(contents)
    notes += _list_text_notes(rows, texts, absent, contradicting)
    if len(contradicting) == len(rows.texts):
        raise DataError(f"{file}: there is nothing to compare: {_format_contradiction(rows.texts, contradicting)}")
    splits, split_note = _assign_splits(rows.texts, calibration, seed, {*contradicting, *absent})
    if split_note is not None:
        notes.append(split_note)
    examples = _build_examples_table(rows.texts, splits, pair.benchmark, language, run_id)
    table = _build_scores_table(scores, rows.settings, pair, run_id)
    ids = examples["example_id"].combine_chunks()
    for reason, positions in ((_BOTH_SIDES, contradicting), (_TEXT_ABSENT, absent)):
        if positions:
            removed_ids = ids.take(pa.array(positions))
            n_rows = len(table)
            examples = _remove_rows(examples, removed_ids)
            table = _remove_rows(table, removed_ids)
            skipped_counts[reason] += n_rows - len(table)
    return ExternalScores(
        scores=table,
        examples=examples,
        skipped=rows.skipped,
        unused_counts=dict(sorted((skipped_counts + unscored_counts).items())),
        notes=tuple(notes),
        has_text=has_text,
        names_splits=rows.texts["split"].null_count < len(rows.texts),
    )


def _join_texts(file: Path, rows: ScoreRows, texts: ExternallyScoredTexts) -> tuple[ScoreRows, list[int], list[str]]:
    """Add the texts of the scored file to the rows. Texts are matched by their sha256.

    Returns:
        The rows with texts, the positions of the rows whose texts are not in the file, and notes about both files.

    Raises:
        DataError: If the table has no digests, or if no digest matches a text of the file.
    """
    digests = rows.texts["sha256"].to_pylist()
    if not any(digests):
        raise DataError(
            f"{file}: there is no column 'sha256', which identifies the texts of {texts.file}. Use a table that "
            "`corpus-audit score` wrote, or add a column 'text'."
        )
    contents: list[str] = []
    absent: list[int] = []
    for position, (digest, text) in enumerate(zip(digests, rows.texts["text"].to_pylist(), strict=True)):
        content = text or texts.by_digest.get(digest, "")
        contents.append(content)
        if not content:
            absent.append(position)
    if len(absent) == len(contents):
        raise DataError(
            f"{texts.file}: the file contains none of the {len(contents):,} texts of {file}. Name the file that "
            "was scored."
        )
    column = rows.texts.schema.get_field_index("text")
    joined = rows.texts.set_column(column, "text", pa.array(contents, pa.string()))
    notes: list[str] = []
    n_unscored = len(texts.by_digest.keys() - set(digests))
    if n_unscored:
        notes.append(f"{n_unscored:,} texts of {texts.file} have no score")
    first_positions = {digest: position for position, digest in reversed(list(enumerate(digests)))}
    repeated = [position for position, digest in enumerate(digests) if first_positions[digest] != position]
    if repeated:
        locations = _format_locations(rows.texts, repeated)
        notes.append(
            f"{len(repeated):,} texts repeat other texts of the table. Each repetition counts as a text: {locations}"
        )
    if texts.skipped.first:
        row = texts.skipped.first[0]
        notes.append(
            f"{texts.skipped.count:,} row(s) of {texts.file} have no usable text. The first is {row.location}: "
            f"{row.reason}"
        )
    return replace(rows, texts=joined), absent, notes


def _list_text_notes(
    rows: ScoreRows, texts: ExternallyScoredTexts | None, absent: Sequence[int], contradicting: Sequence[int]
) -> list[str]:
    """Return the notes on missing columns and texts, contradicting labels and a skipped search for near-duplicates."""
    notes: list[str] = []
    if not rows.has_groups:
        notes.append("there is no column 'group', so each text counts as independent of all other texts")
    has_text = any(rows.texts["text"].to_pylist())
    if not has_text:
        hint = ". Name the scored file with --texts" if any(rows.texts["sha256"].to_pylist()) else ""
        notes.append(f"there is no column 'text', so the blind control was not computed{hint}")
    if absent and texts is not None:
        notes.append(
            f"{len(absent):,} texts are not in {texts.file} (missing there, or edited since they were scored), so they "
            f"are skipped: {_format_locations(rows.texts, absent)}"
        )
    if contradicting:
        notes.append(_format_contradiction(rows.texts, contradicting))
    if has_text and len(rows.texts) > MAX_COMPARED:
        notes.append(
            f"the search for near-duplicates on the other side was skipped, because {len(rows.texts):,} texts are more "
            f"than the maximum of {MAX_COMPARED:,}"
        )
    return notes


def _format_no_scores(file: Path, counts: Mapping[str, int], notes: Sequence[str]) -> str:
    reasons = [f"{count:,} × {reason}" for reason, count in counts.items()]
    return "; ".join([f"{file}: no row has a score and a label", *reasons, *notes])


def _format_contradiction(texts: pa.Table, positions: Sequence[int]) -> str:
    """Format the number and locations of texts that are both member and non-member, without quoting them."""
    return (
        f"{len(positions):,} texts are both member and non-member (equal texts or near-duplicates), so they are "
        "skipped: "
        f"{_format_locations(texts, positions)}"
    )


def _format_locations(texts: pa.Table, positions: Sequence[int]) -> str:
    locations = ", ".join(texts["location"][position].as_py() for position in positions[:_MAX_LOCATIONS])
    n_more = len(positions) - _MAX_LOCATIONS
    return f"{locations} and {n_more:,} more" if n_more > 0 else locations


def _replace_infinite(scores: pa.Table) -> tuple[pa.Table, int]:
    """Replace infinite scores by finite scores beyond those of their detector.

    Returns:
        The scores and the number of replaced scores.
    """
    n_infinite = pc.sum(pc.is_inf(scores["score"])).as_py()
    if not n_infinite:
        return scores, 0
    with open_in_memory() as connection:
        connection.register("scores", scores)
        return connection.sql(_REPLACE_INFINITE).to_arrow_table(), n_infinite


def _assign_splits(
    texts: pa.Table, calibration: float, seed: int, removed: Collection[int]
) -> tuple[list[Split], str | None]:
    """Assign each text to a split.

    If the file names splits, these are used. Otherwise groups are drawn at random for calibration. The draw depends on
    the content of the table and not on the names of files. Texts with an unknown label are audited, so their groups are
    never in the calibration split.

    Args:
        texts: The texts of the table.
        calibration: The share of labelled texts for calibration.
        seed: The seed of the split.
        removed: Positions of the texts that were removed from the comparison.

    Returns:
        The split of each text, and a note for the user if the calibration split was drawn or is empty.
    """
    groups = texts["group"].to_pylist()
    labels = texts["label"].to_pylist()
    named_splits = _map_groups_to_splits(texts)
    if named_splits:
        return [named_splits.get(group, "evaluation") for group in groups], None
    audited_groups = {group for group, label in zip(groups, labels, strict=True) if label is None}
    is_known = [group not in audited_groups for group in groups]
    if audited_groups:
        has_known_member = any(label == MEMBER and known for label, known in zip(labels, is_known, strict=True))
        if not has_known_member:
            by_known: dict[bool, Split] = {True: "calibration", False: "evaluation"}
            return [by_known[known] for known in is_known], None
    elif calibration:
        problem = _explain_too_few_groups(groups, labels, calibration, removed)
        if problem is not None:
            return ["evaluation"] * len(labels), problem
    content_digest = digest_of_items(sorted(zip(texts["example_id"].to_pylist(), groups, strict=True)))
    units: list[SplitUnit] = []
    for group, collection, label in zip(groups, texts["collection"].to_pylist(), labels, strict=True):
        if group not in audited_groups:
            units.append(SplitUnit(group, collection, label))
    split_by_group = assign_splits(units, fraction=calibration, seed=seed, family=content_digest)
    splits: list[Split] = [split_by_group.get(group, "evaluation") for group in groups]
    n_calibration = splits.count("calibration")
    if not n_calibration:
        return splits, None
    note = (
        f"{n_calibration:,} of {len(splits):,} texts are used for calibration, so metrics are computed on "
        "the other texts"
    )
    return splits, note


def _explain_too_few_groups(
    groups: Sequence[str], labels: Sequence[int | None], calibration: float, removed: Collection[int]
) -> str | None:
    """Return the reason why the calibration split must stay empty, or None if there are enough groups for both splits.

    Thresholds need a minimum of non-member groups in the calibration split. An AUROC needs a minimum of groups of
    members and of non-members in the evaluation split.
    """
    groups_by_label: dict[int | None, set[str]] = {MEMBER: set(), NON_MEMBER: set()}
    for position, (group, label) in enumerate(zip(groups, labels, strict=True)):
        if position not in removed:
            groups_by_label[label].add(group)
    n_members = len(groups_by_label[MEMBER])
    n_nonmembers = len(groups_by_label[NON_MEMBER])
    n_required = min_marginal_groups(max(ALPHAS))
    n_evaluated = min(n_members, n_nonmembers) * (1 - calibration)
    if n_nonmembers * calibration >= n_required and n_evaluated >= MIN_TEXTS_PER_SIDE:
        return None
    return (
        f"no text is used for calibration, so no threshold is chosen: there are {n_members:,} groups of members and "
        f"{n_nonmembers:,} groups of non-members. Thresholds require {n_required} groups of non-members for "
        f"calibration, and an AUROC requires {MIN_TEXTS_PER_SIDE} further groups per side"
    )


def _map_groups_to_splits(texts: pa.Table) -> dict[str, Split]:
    """Return the splits that the file names, by group.

    Raises:
        DataError: If a group is in both splits.
    """
    split_by_group: dict[str, Split] = {}
    named = texts.select(["group", "split", "location"]).filter(pc.is_valid(texts["split"]))
    columns = [column.to_pylist() for column in named.columns]
    for group, split, location in zip(*columns, strict=True):
        if split_by_group.setdefault(group, split) != split:
            raise DataError(
                f"{location}: the group {group} is in both splits. Name the same split in all rows of a group."
            )
    return split_by_group


def _remove_rows(table: pa.Table, example_ids: pa.Array) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["example_id"], example_ids)))


def _build_scores_table(scores: pa.Table, settings: Collection[Setting], pair: Pair, run_id: str) -> pa.Table:
    n_settings = Counter(detector for detector, _ in settings)
    # If the file has a single setting of a detector, this setting counts as the default.
    is_default_setting = {
        (detector, parameters): n_settings[detector] == 1 or is_default(detector, parameters)
        for detector, parameters in settings
    }
    settings_of_rows = zip(scores["detector"].to_pylist(), scores["parameters"].to_pylist(), strict=True)
    defaults = [is_default_setting[setting] for setting in settings_of_rows]
    return _build_table(
        SCORES,
        {
            "example_id": scores["example_id"],
            "model": pair.model,
            "benchmark": pair.benchmark,
            "detector": scores["detector"],
            "parameters": scores["parameters"],
            "is_default": pa.array(defaults, pa.bool_()),
            "score": scores["score"],
            "status": pc.if_else(pc.is_valid(scores["score"]), "ok", "failed"),
            "reason": scores["unscored"],
            "run_id": run_id,
        },
        len(scores),
    )


def _build_examples_table(texts: pa.Table, splits: list[Split], benchmark: str, language: str, run_id: str) -> pa.Table:
    n_words = pc.list_value_length(pc.utf8_split_whitespace(texts["text"]))
    return _build_table(
        EXAMPLES,
        {
            "example_id": texts["example_id"],
            "benchmark": benchmark,
            "document_id": texts["example_id"],
            "text": texts["text"],
            "context": pa.nulls(len(texts), pa.string()),
            "messages": pa.nulls(len(texts), pa.string()),
            "scored_part": pa.nulls(len(texts), pa.string()),
            "label": texts["label"],
            "split": pa.array(splits, pa.string()),
            "published": texts["published"],
            "words": pc.if_else(pc.equal(texts["text"], ""), 0, n_words),
            "language": language,
            "collection": texts["collection"],
            "group": texts["group"],
            "run_id": run_id,
        },
        len(texts),
    )


def _build_table(table: Table, columns: Mapping[str, pa.Array | pa.ChunkedArray | str], n_rows: int) -> pa.Table:
    """Build a table. A string fills its column in every row."""
    filled: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, cells in columns.items():
        filled[name] = pa.repeat(cells, n_rows) if isinstance(cells, str) else cells
    return cast_to_columns(pa.table(filled), table)
