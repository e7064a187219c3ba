"""The texts of prefixes for ReCaLL and Con-ReCall: known members or known non-members, called shots.

A shot from the same document as a scored text reveals that text to the model. Such a text must not be scored after this
shot.
"""

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
from audit_pipeline.splits.shared_text import build_comparison_key, normalise_words
from audit_pipeline.tables import MEMBER, NON_MEMBER, digest

_BEGINNING_WORDS = 32


@dataclass(frozen=True)
class Side:
    """One of the two sides: members or non-members.

    Attributes:
        label: The label of the texts.
        name: The name of the side in messages.
        option: The command-line option for a file of known texts.
        need: The requirement of detectors that a prefix of such texts satisfies.
    """

    label: int
    name: str
    option: str
    need: Need[PrefixedLogProbs]


NON_MEMBERS = Side(NON_MEMBER, "non-members", "--prefix-texts", NONMEMBER_PREFIX)
MEMBERS = Side(MEMBER, "members", "--prefix-members", MEMBER_PREFIX)


@dataclass(frozen=True)
class Shots:
    """The shots of one side. A prefix consists of the first n shots.

    Attributes:
        texts: The shots in order.
        source: A description of the source of the shots, for messages.
        shot_of_text: The index of the shot from the same document, by text. It contains only texts whose document is
            known.
    """

    texts: Sequence[str]
    source: str
    shot_of_text: Mapping[str, int]

    @cached_property
    def _levelled_texts(self) -> Sequence[str]:
        return [normalise_words(text) for text in self.texts]

    @cached_property
    def _shot_by_key(self) -> Mapping[str, int]:
        return _index_by_value([build_comparison_key(text) for text in self.texts])

    @cached_property
    def _shot_by_beginning(self) -> Mapping[str, int]:
        return _index_by_value([_take_first_words(words) for words in self._levelled_texts])

    def find_revealing_shot(self, text: str) -> int | None:
        """Return the index of the first shot from the same document as a text, or None if there is no such shot.

        If the document of the text is unknown, a shot counts as from the same document in three cases. Both begin with
        the same 32 words, one contains the other, or both are the same text in two spellings.
        """
        words = normalise_words(text)
        shots: list[int] = []
        for index, shot in enumerate(self._levelled_texts):
            if shot in words or words in shot:
                shots.append(index)
                break
        tables = (
            (self.shot_of_text, text),
            (self._shot_by_beginning, _take_first_words(words)),
            (self._shot_by_key, build_comparison_key(text)),
        )
        for table, key in tables:
            if key in table:
                shots.append(table[key])
        return min(shots, default=None)


def _index_by_value(values: Sequence[str]) -> dict[str, int]:
    """Return the index of the first occurrence of each value, because earlier shots are in more prefixes."""
    index_by_value: dict[str, int] = {}
    for index, value in enumerate(values):
        index_by_value.setdefault(value, index)
    return index_by_value


def _take_first_words(words: str) -> str:
    return " ".join(words.split(" ")[:_BEGINNING_WORDS])


def collect_benchmark_shots(benchmark: BuiltBenchmark, side: Side, texts: Sequence[str]) -> Shots:
    """Select the shots of a side: one text per group of the calibration split, in the order of a hash.

    Args:
        benchmark: The benchmark.
        side: The side.
        texts: The text that the model reads for each example.
    """

    def hash_value(value: str) -> str:
        return digest(benchmark.name, "prefix", value)

    examples = benchmark.examples
    texts_by_group: dict[str, list[str]] = {}
    for row in examples.select(["group", "label", "split", "text"]).to_pylist():
        if row["label"] == side.label and row["split"] == "calibration":
            texts_by_group.setdefault(row["group"], []).append(row["text"])
    groups = sorted(texts_by_group, key=hash_value)
    shots = [min(texts_by_group[group], key=hash_value) for group in groups]
    shot_of_group = _index_by_value(groups)
    shot_of_text: dict[str, int] = {}
    for text, group in zip(texts, examples.column("group").to_pylist(), strict=True):
        if group in shot_of_group:
            shot_of_text[text] = shot_of_group[group]
    return Shots(shots, f"the calibration split of {benchmark.name}", shot_of_text)


def read_known_texts(
    files: Mapping[Side, Path],
    needs: Collection[Need[Any]],
    scored_file: Path,
    text_column: str | None,
    label_column: str,
) -> dict[Side, list[str]]:
    """Read a user's files of known texts.

    Args:
        files: The files by side.
        needs: The requirements (``Need``) of the selected detectors.
        scored_file: The file of the scored texts.
        text_column: Name of the text column, or None to detect it.
        label_column: Name of the label column.

    Raises:
        ConfigError: If a file has no effect on the selected detectors, if two options read standard input, or if a text
            is in both files.
        DataError: If read_texts_of_side raises it.
    """
    for side in files:
        if side.need not in needs:
            detectors = [name for name, detector in REGISTRY.items() if side.need in detector.needs]
            raise ConfigError(
                f"{side.option} has no effect, because no selected detector uses a {side.need.summary}. Select "
                f"{' or '.join(detectors)} with --detectors, or remove the option."
            )
    if MEMBERS in files and NON_MEMBERS not in files:
        raise ConfigError(f"{MEMBERS.option} without {NON_MEMBERS.option} has no effect. Use both options.")
    paths = {"--texts": scored_file, **{side.option: path for side, path in files.items()}}
    from_standard_input = [option for option, path in paths.items() if path == STANDARD_INPUT]
    if len(from_standard_input) > 1:
        options = " and ".join(from_standard_input)
        raise ConfigError(f"{options} all read standard input, but only one option can. Name files for the others.")
    texts = {side: read_texts_of_side(path, side, text_column, label_column) for side, path in files.items()}
    nonmember_keys = {build_comparison_key(text) for text in texts.get(NON_MEMBERS, [])}
    member_keys = {build_comparison_key(text) for text in texts.get(MEMBERS, [])}
    on_both_sides = nonmember_keys & member_keys
    if on_both_sides:
        raise ConfigError(
            f"{len(on_both_sides):,} text(s) are in the files of both {NON_MEMBERS.option} and {MEMBERS.option}. "
            "Remove each text from one of the files."
        )
    return texts


def read_texts_of_side(path: Path, side: Side, text_column: str | None, label_column: str) -> list[str]:
    """Return the texts of a user's file of known members or known non-members, in file order.

    If several rows have the same text in different spellings, only the first spelling is returned.

    All rows must be usable, because the first texts form the prefix. A skipped row would change it.

    Raises:
        DataError: If a row is unusable, or if its label is not understood or is that of the other side.
    """
    labels = LabelReader()
    texts: list[str] = []
    unknown_label_location: str | None = None
    rows = open_texts(path, text_column, [label_column])
    for row in rows:
        label = labels.read(row.values.get(label_column))
        if labels.not_understood and unknown_label_location is None:
            unknown_label_location = row.location
        if label is not None and label != side.label:
            raise DataError(
                f"{path}: row {row.index} has the label {label}, but {side.option} expects known {side.name} "
                f"(label {side.label}). Delete such rows."
            )
        texts.append(row.text)
    if rows.skipped.count:
        unusable = rows.skipped.first[0]
        raise DataError(
            f"{path}: {rows.skipped.count:,} row(s) are unusable. The first is {unusable.location}: {unusable.reason}. "
            f"Correct or delete these rows, because the first texts of {side.option} form the prefix."
        )
    not_understood = labels.describe_unknown_spellings(f"the first in {unknown_label_location}")
    if not_understood is not None:
        raise DataError(f"{path}: {not_understood}")
    first_spellings: dict[str, str] = {}
    for text in texts:
        first_spellings.setdefault(build_comparison_key(text), text)
    return list(first_spellings.values())
