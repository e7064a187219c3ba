"""The online builder: member text after non-member text, scored chunk by chunk (Zhang et al. 2025, appendix C)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from audit_pipeline.benchmarks import builder_interface, labelled_rows
from audit_pipeline.benchmarks.builder_interface import (
    Builder,
    BuilderInputs,
    DrawnExamples,
    LabelledText,
    Provenance,
    ReadDocuments,
)
from audit_pipeline.benchmarks.labelled_rows import LabelledRows, RowReader
from audit_pipeline.benchmarks.row_settings import LabelColumnSettings
from audit_pipeline.benchmarks.rows_origin import read_origin
from audit_pipeline.benchmarks.settings import BenchmarkSpec, Count, DesignOfSides, Length, WordUnit, get_word_unit
from audit_pipeline.config.validation import Distinct, Text
from audit_pipeline.errors import DataError
from audit_pipeline.readers.text_rows import Skipped, read_text
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER, digest

_LABELS = (NON_MEMBER, MEMBER)


class OnlineSettings(LabelColumnSettings):
    """Settings of inputs that join one member text and one non-member text.

    Every input is divided into chunks. The context of a chunk is the whole part of its input before it.
    """

    takes_any_length: ClassVar[bool] = False

    builder: Literal["online"]
    split: Text | None = Field(
        default=None,
        description="name of the split on the hub, or of the file without suffix; {words} is replaced by each value of "
        "lengths, not by the length of a chunk",
    )
    lengths: Annotated[tuple[Length, ...], Field(min_length=1), Distinct] = Field(
        description="lengths in words of the texts that are joined to inputs"
    )
    text_column: Text = Field(default="input", description="column with the text")
    label_column: Text = Field(default="label", description="column with the label")
    inputs: Count | None = Field(default=None, description="maximum number of inputs; None: all pairs of texts")
    order: Literal["member_last", "random"] = Field(
        default="member_last",
        description="order of the two texts of an input; member_last: the member text is second, as in the paper, so "
        "that the position of a chunk reveals its side; random: the seed decides",
    )
    design: DesignOfSides

    @model_validator(mode="after")
    def _require_divisible_lengths(self) -> Self:
        for words in self.words or ():
            for length in self.lengths:
                if length % words:
                    raise ValueError(
                        f"lengths: {length} is not a multiple of {words}, so a chunk of {words} words would belong to "
                        f"both sides. List multiples of {words}."
                    )
        return self


@dataclass(frozen=True)
class JoinedText:
    """An input: two texts, one of each side, as one text.

    Attributes:
        group: The group that all chunks of the input belong to.
        text: The joined text.
        border: The position in ``text`` at which the second text begins.
        first: The first text.
        second: The second text.
    """

    group: str
    text: str
    border: int
    first: LabelledText
    second: LabelledText


def read_online_rows(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[LabelledRows]:
    """Read the rows of all lengths that are joined to inputs. A split with {words} is read once per length.

    Raises:
        DataError: If rows are unreadable, a column is missing in all rows, or no row is usable.
        SourceError: If the package that holds the rows is unreadable.
    """
    settings = spec.require_settings(OnlineSettings)
    label_values = dict(settings.label_values)
    part = next(iter(settings.parts), None)
    sizes = sorted(settings.lengths)
    lengths_per_read = [sizes]
    if part is not None and part.is_per_length:
        lengths_per_read = [[size] for size in sizes]
    rows_per_read: list[LabelledRows] = []
    provenance: list[Provenance] = []
    for lengths in lengths_per_read:
        origin_rows = read_origin(settings, part, lengths[0], paths.downloads)
        reader = RowReader(
            read_text=lambda row: read_text(row.values, settings.text_column),
            read_label=lambda row: labelled_rows.parse_label_column(row, settings.label_column, label_values),
            columns=(settings.text_column, settings.label_column),
            lengths=lengths,
        )
        rows_per_read.append(labelled_rows.build_labelled_rows(origin_rows.file, origin_rows.origin, spec, reader))
        provenance.append(origin_rows.provenance)
    return labelled_rows.build_rows_inputs(spec, _concatenate_rows(rows_per_read), provenance)


def _concatenate_rows(parts: Sequence[LabelledRows]) -> LabelledRows:
    texts: list[LabelledText] = []
    skipped: list[Skipped] = []
    left_out: Counter[str] = Counter()
    for rows in parts:
        texts += rows.texts
        skipped += rows.skipped
        left_out += Counter(rows.left_out)
    origin = "; ".join(map(attrgetter("origin"), parts))
    version = digest(list(map(attrgetter("version"), parts)))
    return LabelledRows(tuple(texts), tuple(skipped), origin, version, dict(left_out))


def draw_online(rows: LabelledRows, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Return the chunks of ``spec.words`` words of every input, each with the preceding part of its input as context.

    Every document is in at most one input. If it has texts of several lengths, one of them is chosen by a hash.
    Non-members and members are paired in an order that depends on the seed, until one side is used up. The order of
    rows does not matter.

    Chunks do not overlap, and no chunk crosses the border between the two texts. A repeated chunk becomes one example,
    and a chunk that occurs on both sides becomes none. The contexts of later chunks still include such chunks.

    Raises:
        DataError: If a side has no text.
    """
    settings = spec.require_settings(OnlineSettings)
    labelled_rows.refuse_single_class(rows, spec)
    unit = get_word_unit(settings.unit)
    reasons: Counter[str] = Counter(row.reason for row in rows.skipped) + Counter(rows.left_out)
    sides = _choose_text_per_document(rows.texts, spec, reasons)
    for label, side in zip(_LABELS, ("non-member", "member"), strict=True):
        if not sides[label]:
            raise DataError(
                f"{spec.name}: {rows.origin} contains no {side} text, so no input can be joined. Add {side} rows."
            )
    inputs = list(_join_sides(sides, spec, settings, unit))
    reasons["no partner on the other side"] += sum(map(len, sides.values())) - 2 * len(inputs)
    if settings.inputs is not None and len(inputs) > settings.inputs:
        reasons["beyond the limit inputs"] += 2 * (len(inputs) - settings.inputs)
        inputs = inputs[: settings.inputs]
    chunks: list[LabelledText] = []
    for joined_text in inputs:
        chunks += split_into_chunks(joined_text, spec.length, unit)
    distinct = builder_interface.drop_repeated_texts(
        chunks, reasons, "chunks that are on both sides", "chunks that are the same as another chunk"
    )
    texts = [chunk for chunk in distinct if len(unit.split(chunk.text)) == spec.length]
    reasons["with another number of words when segmented alone"] += len(distinct) - len(texts)
    return DrawnExamples(
        builder_interface.build_examples_table(texts, spec, run_id),
        {},
        builder_interface.sort_nonzero_counts(reasons),
        rows.skipped,
    )


def split_into_chunks(joined_text: JoinedText, words: int, unit: WordUnit) -> list[LabelledText]:
    """Return the chunks of ``words`` words of an input, in order.

    The context of a chunk is the part of the input before it.
    """
    chunks: list[LabelledText] = []
    border = joined_text.border
    parts = (
        (joined_text.first, 0, joined_text.text[:border]),
        (joined_text.second, border, joined_text.text[border:]),
    )
    for source, offset, part in parts:
        spans = list(_iterate_word_spans(part, offset, unit))
        for index in range(0, len(spans) - words + 1, words):
            start, _ = spans[index]
            _, end = spans[index + words - 1]
            chunks.append(
                LabelledText(
                    document_id=source.document_id,
                    group=joined_text.group,
                    collection=source.collection,
                    text=joined_text.text[start:end],
                    label=source.label,
                    published=None,
                    language=source.language,
                    context=joined_text.text[:start] or None,
                )
            )
    return chunks


def _choose_text_per_document(
    texts: Iterable[LabelledText], spec: BenchmarkSpec, left_out_counts: Counter[str]
) -> Mapping[int, list[LabelledText]]:
    """Return one text per document, by label, in the order in which members and non-members are paired."""
    by_document: dict[str, list[LabelledText]] = defaultdict(list)
    for text in texts:
        by_document[text.document_id].append(text)
    seed = spec.settings.seed
    sides: dict[int, list[LabelledText]] = {NON_MEMBER: [], MEMBER: []}
    for document, candidates in by_document.items():
        labels = {text.label for text in candidates}
        (label, *other_labels) = labels
        if other_labels:
            left_out_counts["of a document with different labels"] += len(candidates)
        elif label is None:
            left_out_counts["not labelled"] += len(candidates)
        else:
            candidates.sort(key=lambda text: (len(text.text), text.text))
            chosen = int(digest(seed, spec.family, "length", document), 16) % len(candidates)
            left_out_counts["another length of a document that is used"] += len(candidates) - 1
            sides[label].append(candidates[chosen])
    for side in sides.values():
        side.sort(key=lambda text: digest(seed, spec.family, "pair", text.document_id))
    return sides


def _join_sides(
    sides: Mapping[int, list[LabelledText]], spec: BenchmarkSpec, settings: OnlineSettings, unit: WordUnit
) -> Iterator[JoinedText]:
    for nonmember, member in zip(sides[NON_MEMBER], sides[MEMBER], strict=False):
        pair = digest(nonmember.document_id, member.document_id)[:16]
        pair_texts = (nonmember, member)
        if settings.order == "random" and int(digest(settings.seed, spec.family, "order", pair), 16) % 2:
            pair_texts = (member, nonmember)
        text = unit.join([part.text for part in pair_texts])
        border = len(text) - len(pair_texts[1].text)
        yield JoinedText(f"{spec.family}:{pair}", text, border, *pair_texts)


def _iterate_word_spans(part: str, offset: int, unit: WordUnit) -> Iterator[tuple[int, int]]:
    """Yield the first position of every word of ``part`` and the position after it, both increased by ``offset``."""
    position = 0
    for word in unit.split(part):
        position = part.index(word, position)
        yield offset + position, offset + position + len(word)
        position += len(word)


BUILDER = Builder(1, OnlineSettings, read_online_rows, draw_online)
