"""The builders of benchmarks with verified labels: controlled and found_in_corpus.

The controlled builder uses members and held-out texts of a control. A control is a pair of models that were trained on
this machine on randomly drawn texts. The found-in-corpus builder labels the texts of another benchmark by a search of a
complete corpus.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import pyarrow as pa
from pydantic import Field, model_validator

from audit_pipeline.benchmarks import builder_interface
from audit_pipeline.benchmarks.builder_interface import (
    Builder,
    BuilderInputs,
    DrawnExamples,
    LabelledText,
    ReadDocuments,
    build_examples_table,
)
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.benchmarks.settings import BenchmarkSpec, Count, FamilySettings, LabelSource
from audit_pipeline.config.entries import EntryReference
from audit_pipeline.config.validation import Text
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.store.control_files import read_control, read_control_texts
from audit_pipeline.store.ledger import find_writing_run
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read, require_intact_partition
from audit_pipeline.tables import CORPUS_OVERLAP, MEMBER, NON_MEMBER, OverlapVerdict

_AUDITED_ROLES = ("member", "held_out")


class ControlledSettings(FamilySettings):
    """Settings of the members and held-out texts of a control (config/controls.yaml). Chance chose the members."""

    design_follows: ClassVar[bool] = True
    labels_from: ClassVar[LabelSource] = "training"
    references: ClassVar[tuple[EntryReference, ...]] = (EntryReference(("control",), "control"),)

    builder: Literal["controlled"]
    control: Text = Field(description="the control (config/controls.yaml) whose texts are used")
    on_request: bool = True
    calibration_fraction: Annotated[float, Field(ge=0, lt=1)] = 0
    design: Literal["randomised"] = "randomised"

    @model_validator(mode="after")
    def _require_single_length(self) -> Self:
        if len(self.words or ()) != 1:
            raise ValueError("words: must be one length, the length of the control's texts")
        return self


def read_controlled_texts(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[pa.Table]:
    """Read all texts of a control, each with its role in the training.

    Raises:
        DataError: If the models of the control are not trained.
        ConfigError: If the length or the word unit differs from the control's.
    """
    name = spec.require_settings(ControlledSettings).control
    manifest = read_control(name, paths)
    trained = manifest["settings"]
    if trained["words"] != spec.words or trained["unit"] != spec.settings.unit:
        raise ConfigError(
            f"{spec.name}: the control {name} was trained on texts of another length or word unit. "
            f"Set words: [{trained['words']}] and unit: {trained['unit']} in config/benchmarks.yaml."
        )
    version = str(manifest["version"])
    provenance = {
        "control": name,
        "version": version,
        "sources": manifest["source_versions"],
        "roles": manifest["roles"],
        "models": manifest["models"],
    }
    return BuilderInputs(
        read_control_texts(name, paths), {f"controls/{name}": version}, (provenance,), origin=f"the control {name}"
    )


def draw_controlled(texts: pa.Table, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Return members and held-out texts as examples. Texts of other roles are skipped."""
    audited: list[LabelledText] = []
    skipped_roles: Counter[str] = Counter()
    for row in texts.to_pylist():
        if row["role"] in _AUDITED_ROLES:
            label = MEMBER if row["exposed"] else NON_MEMBER
            audited.append(LabelledText.from_row(row, row["text"], label))
        else:
            skipped_roles[f"of the role {row['role']}"] += 1
    return DrawnExamples(build_examples_table(audited, spec, run_id), {}, dict(sorted(skipped_roles.items())))


CONTROLLED = Builder(1, ControlledSettings, read_controlled_texts, draw_controlled)


class FoundInCorpusSettings(FamilySettings):
    """Settings of texts that occur word for word in a corpus, compared with texts that do not occur in it.

    Texts that occur in it only in part are skipped. The labels are valid only for models that were trained on that
    corpus.
    """

    takes_any_length: ClassVar[bool] = True
    labels_from: ClassVar[LabelSource] = "corpus"

    builder: Literal["found_in_corpus"]
    pool: Text = Field(description="the benchmark whose texts are used; its labels are ignored")
    corpus: Text = Field(description="the corpus that `corpus-audit overlap` has searched for the pool's texts")
    share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9,
        description="minimum share of a member's words that lie in passages of the corpus; shared text, such as "
        "quotations and licences, does not count",
    )
    length: Count = Field(
        default=50,
        description="minimum number of words of a member's longest passage in the corpus; a text with fewer words must "
        "be one passage",
    )
    both_labels_in: Literal["collection_and_year"] | None = Field(
        default=None,
        description="collection_and_year: use a text only if its collection and year have members and non-members; "
        "None: all texts",
    )
    on_request: bool = True
    design: Literal["temporal", "randomised", "exchangeable", "selected"] = Field(
        default="selected", description="the rule by which the corpus includes some of the texts and not the others"
    )

    @property
    def partition(self) -> str:
        """Return the partition of CORPUS_OVERLAP with the results of searching the corpus for the pool's texts."""
        return f"{self.pool}|{self.corpus}"

    @property
    def result_label(self) -> str:
        """Return a description of the search result, for messages."""
        return f"the search of {self.corpus} for the texts of {self.pool}"

    @property
    def command(self) -> str:
        """Return the command that searches the corpus for the pool's texts."""
        return f"corpus-audit overlap --benchmark {self.pool} --corpus {self.corpus}"

    @model_validator(mode="after")
    def _require_single_length(self) -> Self:
        if len(self.words or (0,)) != 1:
            raise ValueError("words: must be the length of the pool's texts, or any")
        return self


SearchedPool: TypeAlias = tuple[pa.Table, Mapping[str, Mapping[str, Any]]]
"""The texts of a benchmark (schema EXAMPLES), and the row of CORPUS_OVERLAP of each text by example id."""


def read_searched_pool(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[SearchedPool]:
    """Read the texts of the pool (the benchmark whose texts are used) and the search result of each text.

    Raises:
        DataError: If the pool is not built, or if the search is missing, is stale or did not read the whole corpus.
        ConfigError: If the pool's texts have another length than the entry requests.
    """
    settings = spec.require_settings(FoundInCorpusSettings)
    versions = read_versions(spec, paths)
    pool = read_built(paths, settings.pool)
    _require_same_words(spec, pool)
    rows = read(paths, CORPUS_OVERLAP, settings.partition, label=settings.result_label).to_pylist()
    findings = dict(zip(map(itemgetter("example_id"), rows), rows, strict=True))
    if not rows or findings.keys() != set(pool.examples.column("example_id").to_pylist()):
        raise DataError(
            f"{settings.pool} was rebuilt after the corpus {settings.corpus} was searched for its texts. "
            f"Search again: {settings.command}"
        )
    _require_complete(settings, rows[0])
    return BuilderInputs(
        (pool.examples, findings),
        versions,
        tuple(pool.manifest["provenance"]),
        origin=f"the texts of {settings.pool}, searched for in the corpus {settings.corpus}",
    )


def read_versions(spec: BenchmarkSpec, paths: DataPaths) -> Mapping[str, str]:
    """Return the versions of the pool and of its search, without reading texts or rows.

    Raises:
        DataError: If the pool is not built, or if the corpus was not searched for its texts.
    """
    settings = spec.require_settings(FoundInCorpusSettings)
    pool = read_built(paths, settings.pool)
    partition = settings.partition
    run = find_writing_run(paths, CORPUS_OVERLAP, partition)
    if run is None:
        require_intact_partition(paths, CORPUS_OVERLAP, partition, label=settings.result_label)
        raise DataError(
            f"the corpus {settings.corpus} has not been searched for the texts of {settings.pool}. "
            f"Run: {settings.command}"
        )
    return {f"examples/{settings.pool}": pool.digest, f"{CORPUS_OVERLAP.name}/{partition}": run.data_version}


def draw_found_in_corpus(pool: SearchedPool, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Return members and non-members as examples, in the pool's order. Skipped texts are counted by reason.

    Raises:
        DataError: If a side is empty.
    """
    settings = spec.require_settings(FoundInCorpusSettings)
    examples, findings = pool
    left_out: Counter[str] = Counter()
    texts = []
    for row in examples.to_pylist():
        label, reason = label_text(findings[row["example_id"]], settings)
        if reason is None:
            text = LabelledText.from_row(row, row["text"], label)
            texts.append(
                replace(text, context=row["context"], messages=row["messages"], scored_part=row["scored_part"])
            )
        else:
            left_out[reason] += 1
    if settings.both_labels_in is not None:
        texts = list(_select_mixed_strata(texts, left_out))
    sides = Counter(text.label for text in texts)
    if not (sides[MEMBER] and sides[NON_MEMBER]):
        reasons = builder_interface.format_left_out(left_out)
        raise DataError(
            f"{spec.name}: {sides[MEMBER]} members and {sides[NON_MEMBER]} non-members remain "
            f"(skipped: {reasons or 'none'}), but both sides are required. Use a larger pool or a lower share."
        )
    search = next(iter(findings.values()))
    notes = {"searched": {name: search[name] for name in ("corpus", "n", "shards")}}
    return DrawnExamples(
        builder_interface.build_examples_table(texts, spec, run_id),
        {},
        builder_interface.sort_nonzero_counts(left_out),
        notes=notes,
    )


_REASONS: Mapping[OverlapVerdict, str] = {
    "found": "in the corpus in part",
    "shared text": "in the corpus as shared text alone",
    "too short to tell": "too short to tell",
}


def label_text(finding: Mapping[str, Any], settings: FoundInCorpusSettings) -> tuple[int | None, str | None]:
    """Return the label of a text by its row of CORPUS_OVERLAP.

    Returns:
        The label and None, or None and the reason why the text has no label.
    """
    verdict: OverlapVerdict = finding["verdict"]
    if verdict == "not found" and finding["templates"]:
        # The search omits phrases that many texts of the pool share. So the corpus may contain those of this text.
        return None, "with phrases that were not searched for"
    if verdict == "not found":
        return NON_MEMBER, None
    is_long_enough = finding["longest"] >= min(settings.length, finding["words"])
    if verdict == "found" and finding["covered_by_copies"] >= settings.share and is_long_enough:
        return MEMBER, None
    return None, _REASONS[verdict]


def _select_mixed_strata(texts: list[LabelledText], left_out: Counter[str]) -> Iterator[LabelledText]:
    """Yield the texts whose collection and year of publication have both members and non-members."""
    labels: dict[tuple[str, int], set[int | None]] = defaultdict(set)
    for text in texts:
        if text.published is not None:
            labels[text.collection, text.published.year].add(text.label)
    for text in texts:
        if text.published is None:
            left_out["without a date"] += 1
        elif len(labels[text.collection, text.published.year]) == 1:
            left_out["from a collection and year with only members or only non-members"] += 1
        else:
            yield text


def _require_same_words(spec: BenchmarkSpec, pool: BuiltBenchmark) -> None:
    lengths = set(pool.examples.column("words").to_pylist())
    if pool.spec["unit"] != spec.settings.unit:
        raise ConfigError(
            f"{spec.name}: the texts of {pool.name} have another word unit. "
            f"Set unit: {pool.spec['unit']} in config/benchmarks.yaml."
        )
    if spec.words is not None and lengths != {spec.words}:
        raise ConfigError(
            f"{spec.name}: some texts of {pool.name} do not have {spec.words} words. "
            "Set words in config/benchmarks.yaml to their length, or to any."
        )


def _require_complete(settings: FoundInCorpusSettings, finding: Mapping[str, Any]) -> None:
    if finding["is_complete"]:
        return
    problem = "some of its rows or files could not be used"
    if finding["shards_read"] != finding["shards"]:
        problem = f"{finding['shards_read']:,} of its {finding['shards']:,} shards were read"
    raise DataError(
        f"the corpus {settings.corpus} was not read completely ({problem}), so a text that was not found may still be "
        f"in it, and no text is a certain non-member. Search the whole corpus: {settings.command}"
    )


FOUND_IN_CORPUS = Builder(1, FoundInCorpusSettings, read_searched_pool, draw_found_in_corpus, read_versions)
