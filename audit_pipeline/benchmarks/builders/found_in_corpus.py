"""Texts of another benchmark, labelled by what a search of a whole corpus found of them: labels that are facts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import pyarrow as pa
from pydantic import Field, model_validator

from audit_pipeline.benchmarks.builder_interface import (
    Builder,
    BuilderInputs,
    DrawnExamples,
    LabelledText,
    ReadDocuments,
    build_examples_table,
    format_left_out,
    sort_nonzero_counts,
)
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.benchmarks.settings import BenchmarkSpec, Count, FamilySettings, LabelSource
from audit_pipeline.config.validation import Text
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.store.ledger import find_writing_run
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read, require_intact_partition
from audit_pipeline.tables import CORPUS_OVERLAP, MEMBER, NON_MEMBER, OverlapVerdict


class FoundInCorpusSettings(FamilySettings):
    """Texts of a benchmark that are in a corpus, word for word, against those of which it holds nothing.

    Texts between the two are left out. The labels are true of models that were trained on that corpus, and of no other.
    """

    takes_any_length: ClassVar[bool] = True
    labels_from: ClassVar[LabelSource] = "corpus"

    builder: Literal["found_in_corpus"]
    pool: Text = Field(description="a benchmark, whose texts these are; labels of its own play no part")
    corpus: Text = Field(description="the corpus that `corpus-audit overlap` has searched for them, by its name there")
    share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9, description="least share of a member's words in passages of the corpus that are no shared text"
    )
    length: Count = Field(
        default=50, description="fewest words of a member's longest such passage; of a shorter text, all of its words"
    )
    both_labels_in: Literal["collection_and_year"] | None = Field(
        default=None,
        description="collection_and_year: only texts of a collection and a year that has members and non-members; "
        "None: all texts",
    )
    on_request: bool = True
    design: Literal["temporal", "randomised", "exchangeable", "selected"] = Field(
        default="selected", description="how the corpus came to hold some of the texts and not the others"
    )

    @property
    def partition(self) -> str:
        """Of CORPUS_OVERLAP: what the corpus holds of the pool."""
        return f"{self.pool}|{self.corpus}"

    @property
    def search_description(self) -> str:
        return f"what {self.corpus} holds of {self.pool}"

    @property
    def command(self) -> str:
        """What searches the corpus for the pool's texts."""
        return f"corpus-audit overlap --benchmark {self.pool} --corpus {self.corpus}"

    @model_validator(mode="after")
    def _require_single_length(self) -> Self:
        if len(self.words or (0,)) != 1:
            raise ValueError("words: the length of the pool's texts, or any")
        return self


SearchedPool: TypeAlias = tuple[pa.Table, Mapping[str, Mapping[str, Any]]]
"""The texts of a benchmark (schema EXAMPLES), and the row of CORPUS_OVERLAP of each by its example id."""


def read_searched_pool(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[SearchedPool]:
    """The pool's texts, and what the search found of each.

    Raises DataError where the pool is not built, was not searched for as it is built now, or not in all of the corpus;
    ConfigError where its texts have not the length that the entry says.
    """
    settings = spec.require_settings(FoundInCorpusSettings)
    versions = read_versions(spec, paths)
    pool = read_built(paths, settings.pool)
    _require_same_words(spec, pool)
    rows = read(paths, CORPUS_OVERLAP, settings.partition, label=settings.search_description).to_pylist()
    findings = {row["example_id"]: row for row in rows}
    if not rows or findings.keys() != set(pool.examples.column("example_id").to_pylist()):
        raise DataError(
            f"{settings.pool} has been built anew since {settings.corpus} was searched for its texts; "
            f"search again: {settings.command}"
        )
    _require_complete(settings, rows[0])
    return BuilderInputs(
        (pool.examples, findings),
        versions,
        tuple(pool.manifest["provenance"]),
        origin=f"the texts of {settings.pool}, searched for in the corpus {settings.corpus}",
    )


def read_versions(spec: BenchmarkSpec, paths: DataPaths) -> Mapping[str, str]:
    """The versions of the pool and of what was found of it; no text and no row is read.

    Raises DataError where the pool is not built or was not searched for.
    """
    settings = spec.require_settings(FoundInCorpusSettings)
    pool, partition = read_built(paths, settings.pool), settings.partition
    run = find_writing_run(paths, CORPUS_OVERLAP, partition)
    if run is None:
        require_intact_partition(paths, CORPUS_OVERLAP, partition, label=settings.search_description)
        raise DataError(
            f"the corpus {settings.corpus} has not been searched for the texts of {settings.pool}; "
            f"run: {settings.command}"
        )
    return {f"examples/{settings.pool}": pool.digest, f"{CORPUS_OVERLAP.name}/{partition}": run.data_version}


def draw_found_in_corpus(pool: SearchedPool, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Members and non-members as examples, in the pool's order; the texts between are counted by reason.

    Raises DataError where either side is empty.
    """
    settings = spec.require_settings(FoundInCorpusSettings)
    examples, findings = pool
    left_out: Counter[str] = Counter()
    texts = []
    for row in examples.to_pylist():
        label, reason = label_text(findings[row["example_id"]], settings)
        if reason is None:
            texts.append(LabelledText(**{name: row[name] for name in _KEPT}, label=label))
        else:
            left_out[reason] += 1
    if settings.both_labels_in is not None:
        texts = list(_keep_shared_strata(texts, left_out))
    sides = Counter(text.label for text in texts)
    if not (sides[MEMBER] and sides[NON_MEMBER]):
        reasons = format_left_out(left_out)
        raise DataError(
            f"{spec.name}: {sides[MEMBER]} members and {sides[NON_MEMBER]} non-members remain "
            f"(left out: {reasons or 'none'}); both sides are needed: take a larger pool or a lower share"
        )
    searched = next(iter(findings.values()))
    notes = {"searched": {name: searched[name] for name in ("corpus", "n", "shards")}}
    return DrawnExamples(build_examples_table(texts, spec, run_id), {}, sort_nonzero_counts(left_out), notes=notes)


_KEPT = ("document_id", "group", "collection", "text", "published", "language", "context")
_REASONS: Mapping[OverlapVerdict, str] = {
    "found": "in the corpus in part",
    "shared text": "in the corpus as shared text alone",
    "too short to tell": "too short to tell",
}


def label_text(finding: Mapping[str, Any], settings: FoundInCorpusSettings) -> tuple[int | None, str | None]:
    """The label that a row of CORPUS_OVERLAP gives its text, and None; or None and why it gives none."""
    verdict: OverlapVerdict = finding["verdict"]
    if verdict == "not found":
        # Phrases that are all over the pool are not searched for: they may be in the corpus.
        return (None, "with phrases that were not searched for") if finding["templates"] else (NON_MEMBER, None)
    if (
        verdict == "found"
        and finding["covered_by_copies"] >= settings.share
        and finding["longest"] >= min(settings.length, finding["words"])
    ):
        return MEMBER, None
    return None, _REASONS[verdict]


def _keep_shared_strata(texts: list[LabelledText], left_out: Counter[str]) -> Iterator[LabelledText]:
    """The texts of every collection and year of publication that has both labels."""
    labels: dict[tuple[str, int], set[int | None]] = defaultdict(set)
    for text in texts:
        if text.published is not None:
            labels[text.collection, text.published.year].add(text.label)
    for text in texts:
        if text.published is None:
            left_out["without a date"] += 1
        elif len(labels[text.collection, text.published.year]) == 1:
            left_out["of a collection and year with one label alone"] += 1
        else:
            yield text


def _require_same_words(spec: BenchmarkSpec, pool: BuiltBenchmark) -> None:
    lengths = set(pool.examples.column("words").to_pylist())
    if pool.spec["unit"] != spec.settings.unit:
        raise ConfigError(f"{spec.name}: the words of {pool.name} are counted by {pool.spec['unit']}: set unit to that")
    if spec.words is not None and lengths != {spec.words}:
        raise ConfigError(
            f"{spec.name}: the texts of {pool.name} have not all {spec.words} words; "
            "set words in config/benchmarks.yaml to their length, or to any"
        )


def _require_complete(settings: FoundInCorpusSettings, finding: Mapping[str, Any]) -> None:
    if finding["is_complete"]:
        return
    unread = (
        "some of its rows or files could not be used"
        if finding["shards_read"] == finding["shards"]
        else f"{finding['shards_read']:,} of its {finding['shards']:,} shards were read"
    )
    raise DataError(
        f"the corpus {settings.corpus} was not read completely ({unread}), so 'not found' does not say 'not there', "
        f"and no text is known to be a non-member; search all of it: {settings.command}"
    )


BUILDER = Builder(1, FoundInCorpusSettings, read_searched_pool, draw_found_in_corpus, read_versions)
