"""Known texts of members or non-members: those that prefixes are made of, and the texts that they reveal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.detectors.detector_inputs import Need
from audit_pipeline.detectors.recall import MEMBER_PREFIX, NONMEMBER_PREFIX, PrefixedLogProbs
from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.readers.file_bytes import STANDARD_INPUT
from audit_pipeline.readers.formats import open_texts
from audit_pipeline.readers.labels import LabelReader
from audit_pipeline.splits.shared_text import build_comparison_key, level_words
from audit_pipeline.tables import MEMBER, NON_MEMBER, build_model_inputs, digest

_BEGINNING_WORDS = 32


@dataclass(frozen=True)
class Side:
    """Members or non-members: their label, what they are called, the option that names a file of them, and the need
    that a prefix of them meets."""

    label: int
    name: str
    option: str
    need: Need[PrefixedLogProbs]


NON_MEMBERS = Side(NON_MEMBER, "non-members", "--prefix-texts", NONMEMBER_PREFIX)
MEMBERS = Side(MEMBER, "members", "--prefix-members", MEMBER_PREFIX)


@dataclass(frozen=True)
class Shots:
    """The texts that prefixes of one side are made of, the first n in their order; ``source`` says where they are from.

    ``of_document``: the shot whose document a text is of, by the text, as far as it is known: its place in ``texts``.
    """

    texts: Sequence[str]
    source: str
    of_document: Mapping[str, int]

    @cached_property
    def _levelled_texts(self) -> Sequence[str]:
        return [level_words(text) for text in self.texts]

    @cached_property
    def _keys(self) -> Mapping[str, int]:
        # The first of equal texts counts, since it is in more prefixes.
        return {build_comparison_key(text): place for place, text in reversed(list(enumerate(self.texts)))}

    @cached_property
    def _beginnings(self) -> Mapping[str, int]:
        return {_take_first_words(words): place for place, words in reversed(list(enumerate(self._levelled_texts)))}

    def find_revealing_shot(self, text: str) -> int | None:
        """Return the place of the first shot that is of the document of ``text``, or None.

        Apart from what is known of documents, texts are of one document if they begin with the same 32 words, if one
        is in the other, or if they are one text in two spellings.
        """
        words = level_words(text)
        found = [place for place, shot in enumerate(self._levelled_texts) if shot in words or words in shot]
        tables = (
            (self.of_document, text),
            (self._beginnings, _take_first_words(words)),
            (self._keys, build_comparison_key(text)),
        )
        found += [table[key] for table, key in tables if key in table]
        return min(found, default=None)


def _take_first_words(words: str) -> str:
    return " ".join(words.split(" ")[:_BEGINNING_WORDS])


def collect_benchmark_shots(benchmark: BuiltBenchmark, side: Side) -> Shots:
    """The labelled texts of the calibration split, one a group, in the order of a hash of the benchmark's name."""
    examples = benchmark.examples
    by_group: dict[str, list[str]] = {}
    for row in examples.select(["group", "label", "split", "text"]).to_pylist():
        if row["label"] == side.label and row["split"] == "calibration":
            by_group.setdefault(row["group"], []).append(row["text"])
    groups = sorted(by_group, key=lambda group: digest(benchmark.name, "prefix", group))
    places = {group: place for place, group in enumerate(groups)}
    whose = zip(build_model_inputs(examples), examples.column("group").to_pylist(), strict=True)
    return Shots(
        [min(by_group[group], key=lambda text: digest(benchmark.name, "prefix", text)) for group in groups],
        f"the calibration split of {benchmark.name}",
        {text: places[group] for text, group in whose if group in places},
    )


def read_known_texts(
    files: Mapping[Side, Path],
    needs: Collection[Need[Any]],
    scored_file: Path,
    text_column: str | None,
    label_column: str,
) -> dict[Side, list[str]]:
    """The texts of a user's ``files`` of sides, for detectors with these ``needs`` over the texts of ``scored_file``.

    Raises ConfigError where a file is without effect or serves twice, DataError as :func:`read_texts_of_side` does.
    """
    for side in files:
        if side.need not in needs:
            having = [name for name, detector in REGISTRY.items() if side.need in detector.needs]
            raise ConfigError(
                f"{side.option} has no effect: none of the chosen detectors takes a {side.need.summary}; choose "
                f"{' or '.join(having)} with --detectors, or leave the option out"
            )
    if MEMBERS in files and NON_MEMBERS not in files:
        raise ConfigError(f"{MEMBERS.option} without {NON_MEMBERS.option} has no effect: give both")
    named = {"--texts": scored_file, **{side.option: path for side, path in files.items()}}
    from_input = [option for option, path in named.items() if path == STANDARD_INPUT]
    if len(from_input) > 1:
        raise ConfigError(f"{' and '.join(from_input)} cannot all read standard input: name a file for all but one")
    texts = {side: read_texts_of_side(path, side, text_column, label_column) for side, path in files.items()}
    keys = {side: {build_comparison_key(text) for text in of_side} for side, of_side in texts.items()}
    both = keys.get(NON_MEMBERS, set()) & keys.get(MEMBERS, set())
    if both:
        raise ConfigError(
            f"{len(both):,} text(s) of {NON_MEMBERS.option} are in the file of {MEMBERS.option}, too: "
            "a text is of one side"
        )
    return texts


def read_texts_of_side(path: Path, side: Side, text_column: str | None, label_column: str) -> list[str]:
    """Return the texts of a user's file of one side, in file order. Each text is returned once, in its first spelling.

    Raises DataError where a row cannot be read, and where its label says that its text is of the other side or is not
    understood: the first texts make the prefix, so one that is left out changes it.
    """
    labels, texts, strange = LabelReader(), [], None
    rows = open_texts(path, text_column, [label_column])
    for row in rows:
        label = labels.read(row.values.get(label_column))
        if labels.not_understood and strange is None:
            strange = row.location
        if label is not None and label != side.label:
            raise DataError(
                f"{path}: row {row.index} is labelled {label}, and {side.option} takes known {side.name} "
                f"(label {side.label}): take such rows out"
            )
        texts.append(row.text)
    if rows.skipped.count:
        first = rows.skipped.first[0]
        raise DataError(
            f"{path}: {rows.skipped.count:,} row(s) cannot be used, the first is {first.location}: {first.reason}; "
            f"mend them or take them out, since the first texts of {side.option} make the prefix"
        )
    not_understood = labels.describe_not_understood(f"the first in {strange}")
    if not_understood is not None:
        raise DataError(f"{path}: {not_understood}")
    first_spellings: dict[str, str] = {}
    for text in texts:
        first_spellings.setdefault(build_comparison_key(text), text)
    return list(first_spellings.values())
