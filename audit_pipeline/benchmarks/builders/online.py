"""The online setting of Zhang et al. 2025 (appendix C): member text after non-member text, judged chunk by chunk."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from audit_pipeline.benchmarks.builder_interface import (
    Builder,
    BuilderInputs,
    DrawnExamples,
    LabelledText,
    Provenance,
    ReadDocuments,
    build_examples_table,
    drop_repeated_texts,
    sort_nonzero_counts,
)
from audit_pipeline.benchmarks.labelled_rows import (
    LabelledRows,
    Reading,
    build_labelled_rows,
    build_rows_inputs,
    parse_label_column,
    refuse_single_class,
)
from audit_pipeline.benchmarks.row_settings import WORDS_PLACE, LabelColumnSettings
from audit_pipeline.benchmarks.rows_origin import read_origin
from audit_pipeline.benchmarks.settings import BenchmarkSpec, Count, DesignOfSides, Length
from audit_pipeline.benchmarks.words import WordUnit, get_word_unit
from audit_pipeline.config.validation import Distinct, Text
from audit_pipeline.errors import DataError
from audit_pipeline.readers.text_rows import read_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER, digest

_LABELS = (NON_MEMBER, MEMBER)


class OnlineSettings(LabelColumnSettings):
    """Member text after non-member text, chunk by chunk in full context (Zhang et al. 2025, appendix C)."""

    takes_any_length: ClassVar[bool] = False

    builder: Literal["online"]
    split: Text | None = Field(default=None, description="{words} is replaced by each of lengths, not for the chunk's")
    lengths: Annotated[tuple[Length, ...], Field(min_length=1), Distinct] = Field(
        description="of the texts that inputs are made of, in words"
    )
    text_column: Text = Field(default="input", description="the column that holds the text")
    label_column: Text = Field(default="label", description="the column that holds the label")
    inputs: Count | None = Field(default=None, description="at most so many; None: as many as there are pairs")
    order: Literal["member_last", "random"] = Field(
        default="member_last",
        description="the paper's, where a chunk's place reveals its side; or drawn at random by the seed",
    )
    design: DesignOfSides

    @model_validator(mode="after")
    def _require_divisible_lengths(self) -> Self:
        for words in self.words or ():
            for length in self.lengths:
                if length % words:
                    raise ValueError(f"lengths: {length} is not a multiple of {words}: a chunk would be of both sides")
        return self


@dataclass(frozen=True)
class JoinedText:
    """Two texts, one of each side, as one text; ``border`` is where the second begins."""

    group: str
    text: str
    border: int
    first: LabelledText
    second: LabelledText


def read_online_rows(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[LabelledRows]:
    """The rows of all lengths that the inputs of ``spec`` are made of; a split with {words} is read for each length.

    Raises DataError (SourceError) where they cannot be read, where a column is missing altogether, and where no row can
    be used.
    """
    settings = spec.require_settings(OnlineSettings)
    meanings = dict(settings.label_values)
    every: list[LabelledRows] = []
    provenance: list[Provenance] = []
    part, sizes = next(iter(settings.parts), None), sorted(settings.lengths)
    is_per_length = part is not None and any(WORDS_PLACE in name for name in part.names)
    for lengths in [[size] for size in sizes] if is_per_length else [sizes]:
        found = read_origin(settings, part, lengths[0], paths.downloads)
        reading = Reading(
            text=lambda row: read_text(row.values, settings.text_column),
            label=lambda row: parse_label_column(row, settings.label_column, meanings),
            columns=(settings.text_column, settings.label_column),
            lengths=lengths,
        )
        every.append(build_labelled_rows(found.file, found.origin, spec, reading))
        provenance.append(found.provenance)
    rows = LabelledRows(
        tuple(text for rows in every for text in rows.texts),
        tuple(row for rows in every for row in rows.skipped),
        "; ".join(rows.origin for rows in every),
        digest([rows.version for rows in every]),
        dict(sum((Counter(rows.left_out) for rows in every), Counter[str]())),
    )
    return build_rows_inputs(spec, rows, provenance)


def draw_online(rows: LabelledRows, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """The chunks of ``spec.words`` words of every input, each with all of its input before it.

    Every document is in one input at most, at one of the lengths that there are of it, as likely one as another.
    Non-members and members are paired in orders of the seed's, until one side is used up. Chunks do not overlap, and
    none is of both sides. A chunk that occurs twice is an example once, one that occurs on both sides none; it stays
    in the inputs all the same. The order of rows is irrelevant.

    Raises DataError if a side has no text.
    """
    settings = spec.require_settings(OnlineSettings)
    refuse_single_class(rows, spec)
    unit = get_word_unit(settings.unit)
    reasons: Counter[str] = Counter(row.reason for row in rows.skipped) + Counter(rows.left_out)
    sides = _choose_text_per_document(rows.texts, spec, reasons)
    for label, side in zip(_LABELS, ("non-member", "member"), strict=True):
        if not sides[label]:
            raise DataError(f"{spec.name}: {rows.origin} holds no {side} text, so no input can be made; add rows")
    inputs = list(_join_sides(sides, spec, settings, unit))
    reasons["no partner on the other side"] += sum(map(len, sides.values())) - 2 * len(inputs)
    if settings.inputs is not None:
        reasons["over inputs"] += 2 * (len(inputs) - settings.inputs) if len(inputs) > settings.inputs else 0
        inputs = inputs[: settings.inputs]
    chunks = [chunk for joined in inputs for chunk in split_into_chunks(joined, spec.length, unit)]
    distinct = drop_repeated_texts(
        chunks, reasons, "chunks that are on both sides", "chunks that are the same as another"
    )
    texts = [chunk for chunk in distinct if len(unit.split(chunk.text)) == spec.length]
    reasons["another number of words when taken by itself"] += len(distinct) - len(texts)
    return DrawnExamples(build_examples_table(texts, spec, run_id), {}, sort_nonzero_counts(reasons), rows.skipped)


def split_into_chunks(joined_text: JoinedText, words: int, unit: WordUnit) -> list[LabelledText]:
    """The input's chunks of ``words`` words, in order; a context and its text together are a beginning of the input."""
    chunks: list[LabelledText] = []
    before, after = joined_text.text[: joined_text.border], joined_text.text[joined_text.border :]
    parts = ((joined_text.first, 0, before), (joined_text.second, joined_text.border, after))
    for source, start, part in parts:
        spans = list(_iterate_word_spans(part, start, unit))
        for first in range(0, len(spans) - words + 1, words):
            begin, end = spans[first][0], spans[first + words - 1][1]
            chunks.append(
                LabelledText(
                    document_id=source.document_id,
                    group=joined_text.group,
                    collection=source.collection,
                    text=joined_text.text[begin:end],
                    label=source.label,
                    published=None,
                    language=source.language,
                    context=joined_text.text[:begin] or None,
                )
            )
    return chunks


def _choose_text_per_document(
    texts: Iterable[LabelledText], spec: BenchmarkSpec, left_out_counts: Counter[str]
) -> Mapping[int, list[LabelledText]]:
    """The texts of each side, one per document, in the order in which they are paired."""
    of_document: dict[str, list[LabelledText]] = defaultdict(list)
    for text in texts:
        of_document[text.document_id].append(text)
    seed = spec.settings.seed
    sides: dict[int, list[LabelledText]] = {label: [] for label in _LABELS}
    for document, found in of_document.items():
        labels = {text.label for text in found}
        (label, *others) = labels
        if others:
            left_out_counts["of a document with different labels"] += len(found)
        elif label is None:
            left_out_counts["not labelled"] += len(found)
        else:
            found.sort(key=lambda text: (len(text.text), text.text))
            chosen = found[int(digest(seed, spec.family, "length", document), 16) % len(found)]
            left_out_counts["another length of a document that is used"] += len(found) - 1
            sides[label].append(chosen)
    for side in sides.values():
        side.sort(key=lambda text: digest(seed, spec.family, "pair", text.document_id))
    return sides


def _join_sides(
    sides: Mapping[int, list[LabelledText]], spec: BenchmarkSpec, settings: OnlineSettings, unit: WordUnit
) -> Iterator[JoinedText]:
    for nonmember, member in zip(sides[NON_MEMBER], sides[MEMBER], strict=False):
        pair = digest(nonmember.document_id, member.document_id)[:16]
        turned = settings.order == "random" and int(digest(settings.seed, spec.family, "order", pair), 16) % 2
        first, second = (member, nonmember) if turned else (nonmember, member)
        whole = unit.join([first.text, second.text])
        yield JoinedText(f"{spec.family}:{pair}", whole, len(whole) - len(second.text), first, second)


def _iterate_word_spans(part: str, start: int, unit: WordUnit) -> Iterator[tuple[int, int]]:
    """First character and the one past the last of every word of ``part``, which begins at ``start``."""
    place = 0
    for word in unit.split(part):
        place = part.index(word, place)
        yield start + place, start + place + len(word)
        place += len(word)


BUILDER = Builder(1, OnlineSettings, read_online_rows, draw_online)
