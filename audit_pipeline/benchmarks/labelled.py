"""Rows that somebody else has labelled, such as WikiMIA: from a hub data set or a local folder laid out like it.

What belongs here: finding and reading the rows, which of them can be used, and the examples they become. What does
not: choosing or balancing (a published benchmark is taken whole), and file formats (text_rows.py).
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.benchmarks.config import BenchmarkSpec, LabelledSettings
from audit_pipeline.benchmarks.drawn import Drawn, LabelledText, examples_table
from audit_pipeline.benchmarks.words import WordUnit, word_unit
from audit_pipeline.contracts import MEMBER, NON_MEMBER, digest, text_sha256
from audit_pipeline.errors import DataError
from audit_pipeline.text_rows import Row, RowFile, Skipped, column_names, read_rows, text_of

VERSION = 1

_GROUP_WORDS = 32
_SUFFIXES = (".jsonl", ".csv", ".parquet")


@dataclass(frozen=True)
class LabelledRows:
    """The rows of one length that can be used, in their order, and those that cannot.

    ``origin`` says where they were read; ``version`` is a digest of what they say, the same wherever they lie.
    """

    texts: tuple[LabelledText, ...]
    skipped: tuple[Skipped, ...]
    origin: str
    version: str


def draw_labelled(rows: LabelledRows, spec: BenchmarkSpec, run_id: str) -> Drawn:
    """The examples of ``spec``: every usable row once.

    Raises DataError where all labelled rows have the same label: no metric would be defined. Rows of which none is
    labelled are fine, and so are unlabelled ones among labelled ones.
    """
    labels = Counter(text.label for text in rows.texts if text.label is not None)
    if len(labels) == 1:
        ((label, count),) = labels.items()
        side = "members" if label == MEMBER else "non-members"
        raise DataError(
            f"{spec.name}: all {count} labelled rows of {rows.origin} are {side}, so no metric would be defined; "
            "add rows of the other side, or set label_column: null to have them scored without labels"
        )
    reasons = Counter(skipped.reason for skipped in rows.skipped)
    return Drawn(examples_table(rows.texts, spec, run_id), {}, dict(sorted(reasons.items())), rows.skipped)


def read_labelled(spec: BenchmarkSpec) -> LabelledRows:
    """The rows of ``spec``, from the folder that its environment variable names, else its path, else the hub.

    Raises DataError where they cannot be had, where a column is missing altogether, and where no row can be used.
    """
    settings = spec.settings
    if not isinstance(settings, LabelledSettings):
        raise TypeError(f"{spec.name} is not built from labelled rows")
    split = settings.split.replace("{words}", str(spec.words))
    folder, named_by = folder_of(settings)
    if folder is not None:
        origin, file = f"{folder}, split {split}", folder_rows(folder, split, named_by)
    elif settings.hub is not None:
        origin = f"{settings.hub}, split {split}"
        file = hub_rows(settings.hub, split, settings.revision, settings.path_variable)
    else:
        raise TypeError(f"{spec.name} has neither hub nor path")
    return usable_rows(file, origin, spec, settings)


def usable_rows(file: RowFile, origin: str, spec: BenchmarkSpec, settings: LabelledSettings) -> LabelledRows:
    """The rows with a text of exactly ``spec.words`` words and a label of 0, 1 or null; each text once.

    Texts that begin with the same 32 words are of one document, which is a group of its own: so the rows of different
    lengths that were cut from one article share it. A text that stands twice with one label is kept once, one that has
    different labels not at all.

    Raises DataError where a column is missing altogether, and where no row can be used.
    """
    columns = column_names(file.rows)
    for column in (settings.text_column, settings.label_column):
        if column is not None and column not in columns:
            raise DataError(f"{origin}: no column '{column}'; the columns are: {', '.join(columns) or 'none'}")
    unit = word_unit(settings.unit)
    read = [_labelled_text(row, spec, settings, unit) for row in file.rows]
    labels: dict[str, set[int | None]] = defaultdict(set)
    for text in read:
        if isinstance(text, LabelledText):
            labels[text.text].add(text.label)

    texts: dict[str, LabelledText] = {}
    skipped = list(file.skipped)
    for row, text in zip(file.rows, read, strict=True):
        if isinstance(text, Skipped):
            skipped.append(text)
        elif len(labels[text.text]) > 1:
            skipped.append(Skipped(row.location, row.index, "the same text stands elsewhere with another label"))
        elif text.text in texts:
            skipped.append(Skipped(row.location, row.index, "the same as an earlier row"))
        else:
            texts[text.text] = text
    skipped.sort(key=lambda entry: entry.index)
    if not texts:
        first = f"; the first, {skipped[0].location}: {skipped[0].reason}" if skipped else ""
        raise DataError(f"{origin}: none of its {len(skipped)} rows can be used{first}")
    version = digest(
        [[text.text, text.label] for text in texts.values()], [[entry.index, entry.reason] for entry in skipped]
    )
    return LabelledRows(tuple(texts.values()), tuple(skipped), origin, version)


def folder_rows(folder: Path, split: str, named_by: str) -> RowFile:
    """The rows of ``split`` in a local folder: one file `<split>.jsonl`, .csv or .parquet, or, as a clone of a hub
    data set has it, the parts `data/<split>-*.parquet` in their order.

    Raises DataError, saying what ``named_by`` should name, where there is neither.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; {named_by} must name the one that holds {split}.jsonl")
    for path in (folder / f"{split}{suffix}" for suffix in _SUFFIXES):
        if path.exists():
            return read_rows(path)
    parts = sorted(path for path in folder.glob("data/*.parquet") if path.name.startswith(f"{split}-"))
    if not parts:
        raise DataError(f"{folder} holds neither {split}.jsonl (.csv, .parquet) nor data/{split}-*.parquet")
    return _one_after_another([read_rows(part) for part in parts])


def hub_rows(hub: str, split: str, revision: str | None, path_variable: str | None) -> RowFile:
    """The rows of a split of a hub data set, downloaded or from the hub's cache.

    Raises DataError where it cannot be reached, found or read, saying what to do.
    """
    # Here and not above: importing datasets takes a second, and only this path needs it.
    from datasets import load_dataset  # noqa: PLC0415
    from datasets.exceptions import DatasetNotFoundError, DatasetsError  # noqa: PLC0415

    instead = f"set {path_variable}" if path_variable else "set path in config/benchmarks.yaml"
    instead = f"{instead} to a folder that holds {split}.jsonl"
    try:
        rows = load_dataset(hub, split=split, revision=revision)
    except DatasetNotFoundError as error:
        raise DataError(
            f"the data set {hub} cannot be had: {_one_line(error)} If it is gated, accept its terms on its page and "
            f"set HF_TOKEN to a token of yours; else correct its name or revision, or {instead}"
        ) from error
    except ConnectionError as error:
        raise DataError(
            f"the data set {hub} cannot be reached ({_one_line(error)}); go online, or {instead}"
        ) from error
    except (DatasetsError, OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"split {split} of the data set {hub} cannot be read ({_one_line(error)}); {instead}"
        ) from error
    return RowFile(tuple(Row(f"{hub}/{split}:{index + 1}", index, dict(row)) for index, row in enumerate(rows)), ())


def folder_of(settings: LabelledSettings) -> tuple[Path | None, str]:
    """The local folder of the rows, None where they come from the hub; and what names it."""
    variable = settings.path_variable
    if variable and os.environ.get(variable):
        return Path(os.environ[variable]).expanduser().resolve(), f"the environment variable {variable}"
    return settings.path, "path in config/benchmarks.yaml"


def _one_after_another(files: Sequence[RowFile]) -> RowFile:
    rows: list[Row] = []
    skipped: list[Skipped] = []
    for file in files:
        before = len(rows) + len(skipped)
        rows += [Row(row.location, row.index + before, row.values) for row in file.rows]
        skipped += [Skipped(row.location, row.index + before, row.reason) for row in file.skipped]
    return RowFile(tuple(rows), tuple(skipped))


def _labelled_text(row: Row, spec: BenchmarkSpec, settings: LabelledSettings, unit: WordUnit) -> LabelledText | Skipped:
    text, problem = text_of(row.values, settings.text_column)
    if problem is not None:
        return Skipped(row.location, row.index, problem)
    words = unit.split(text)
    if len(words) != spec.words:
        return Skipped(row.location, row.index, f"has {len(words)} words, not {spec.words}")
    label: int | None = None
    if settings.label_column is not None:
        if settings.label_column not in row.values:
            return Skipped(row.location, row.index, f"no column '{settings.label_column}'")
        label, problem = _label_of(row.values[settings.label_column])
        if problem is not None:
            return Skipped(row.location, row.index, problem)
    document_id = f"{spec.family}:{text_sha256(unit.join(words[:_GROUP_WORDS]))[:16]}"
    return LabelledText(
        document_id=document_id,
        group=document_id,
        collection=spec.family,
        text=text,
        label=label,
        published=None,
        language=settings.language,
    )


def _label_of(value: object) -> tuple[int | None, str | None]:
    """The label that ``value`` stands for and None; or any label and the reason why it stands for none.

    Files spell 0 and 1 as numbers, as floats (a column with nulls) and as strings (.csv, where an empty field is null).
    """
    if value is None:
        return None, None
    plain = value.strip() if isinstance(value, str) else value
    if plain == "":
        return None, None
    if plain in (MEMBER, str(MEMBER)):
        return MEMBER, None
    if plain in (NON_MEMBER, str(NON_MEMBER)):
        return NON_MEMBER, None
    return None, f"its label is {value!r}, not 0, 1 or null"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
