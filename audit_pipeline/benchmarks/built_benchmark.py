"""A built benchmark in the data folder, and the stored assessment of its split.

The assessment measures the differences of members and non-members without any model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from audit_pipeline.benchmarks.builder_interface import MATCHED
from audit_pipeline.benchmarks.labelled_rows import parse_name
from audit_pipeline.benchmarks.settings import get_word_unit
from audit_pipeline.detectors import combined, dc_pdd, infilling
from audit_pipeline.errors import DataError, NotApplicableError
from audit_pipeline.readers.conversations import ScoredPart
from audit_pipeline.splits.evaluation_split import (
    AssessedSplit,
    build_assessed_split_from_tables,
    compute_assessed_split,
    select_evaluation_texts,
)
from audit_pipeline.splits.split_quality import MAX_PER_SIDE, measure_split_quality
from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.store import store
from audit_pipeline.store.files import read_json
from audit_pipeline.store.ledger import LineageStep, find_writing_run
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read
from audit_pipeline.tables import (
    BLIND_SCORES,
    EXAMPLES,
    SPLIT_QUALITY,
    build_model_inputs,
    canonical_json,
    digest,
    digest_of_items,
    text_sha256,
)

if TYPE_CHECKING:
    from audit_pipeline.detectors.detector import Settings
    from audit_pipeline.detectors.registry import Overrides


CONTENT_DIGEST = "content_digest"
"""The manifest key of the content digest."""

VALUE_COLUMNS = ("text", "context", "label", "split", "published", "language", "collection")
"""The columns of EXAMPLES whose values are part of the content digest."""
GROUPING_COLUMNS = ("document_id", "group")
"""The columns of EXAMPLES with arbitrary names. The content digest only includes which texts share a name."""


def build_export_names(names: Iterable[str], family: str) -> list[str]:
    """Convert names of documents or groups to names that stay the same when an export is read, in order.

    Builders that read rows put the family before each name (``family:name``). If all names have this prefix already, it
    is removed. Builders change names that are empty, very long or have white space around them. Such a name is replaced
    by 16 digits of its sha256.
    """
    export_names = list(names)
    prefix = f"{family}:"
    without_prefix = [name.removeprefix(prefix) for name in export_names if name.startswith(prefix)]
    if len(without_prefix) == len(export_names):
        export_names = without_prefix
    return list(map(_replace_unreadable_name, export_names))


def _replace_unreadable_name(name: str) -> str:
    if parse_name(name) == name:
        return name
    return text_sha256(name)[:16]


def compute_content_digest(examples: pa.Table) -> str:
    """Compute the sha256 (hex) of the content of ``examples`` (schema EXAMPLES).

    The content is texts, contexts, labels, splits, dates, languages, collections, and which texts share a document or a
    group. For conversations it also includes the messages and the scored part. The order of rows and the names of
    benchmark, family, documents and groups do not matter. The digest is that of a JSON list whose only item is a list
    with one list per example, sorted by their JSON. The card of an exported benchmark documents it.
    """
    columns: dict[str, list[object]] = {}
    for name in (*VALUE_COLUMNS, *GROUPING_COLUMNS):
        columns[name] = examples.column(name).to_pylist()
    text_digests = list(map(digest, columns["context"], columns["text"]))
    for name in GROUPING_COLUMNS:
        # The smallest digest of the texts that share a value stands for the value.
        smallest: dict[object, str] = {}
        for value, text_digest in zip(columns[name], text_digests, strict=True):
            smallest[value] = min(smallest.get(value, text_digest), text_digest)
        columns[name] = [smallest[value] for value in columns[name]]
    rows = [list(map(_to_string_or_none, row)) for row in zip(*columns.values(), strict=True)]
    for row, messages, part in zip(
        rows, examples["messages"].to_pylist(), examples["scored_part"].to_pylist(), strict=True
    ):
        if messages is not None:
            row += [messages, part]
    return digest_of_items(sorted(rows, key=canonical_json))


def _to_string_or_none(value: object) -> str | None:
    return None if value is None else str(value)


@dataclass(frozen=True, eq=False)
class BuiltBenchmark:
    """A built benchmark in the data folder. The first access to ``examples`` reads them from the disk."""

    name: str
    manifest: Mapping[str, Any]
    paths: DataPaths

    @cached_property
    def examples(self) -> pa.Table:
        """Return the examples (schema EXAMPLES).

        Raises:
            DataError: If they are missing, corrupt or unreadable.
        """
        return read(self.paths, EXAMPLES, self.name, label=f"the benchmark {self.name}")

    @property
    def spec(self) -> Mapping[str, Any]:
        """Return the entry of config/benchmarks.yaml that the benchmark was built from."""
        spec: Mapping[str, Any] = self.manifest["spec"]
        return spec

    @property
    def digest(self) -> str:
        """Return the digest of the inputs (``compute_benchmark_digest`` of benchmarks/build.py)."""
        return str(self.manifest["digest"])

    @property
    def design(self) -> str:
        """Return the design: the way in which members and non-members were obtained (statistics/claims.py)."""
        return str(self.manifest["design"])

    @property
    def control(self) -> str | None:
        """Return the control that the texts belong to, or None."""
        return self.spec.get("control")

    @property
    def matched(self) -> Mapping[str, Any] | None:
        """Return the effect of matching, or None if the sides were not chosen to be hard to separate.

        The result is empty if the publisher of the rows matched the sides.
        """
        return self.manifest.get(MATCHED)

    @cached_property
    def language(self) -> str:
        """Return the most frequent language of the examples (ISO 639-1)."""
        counted: Counter[str] = Counter(self.examples.column("language").to_pylist())
        return max(sorted(counted), key=lambda language: counted[language])

    @property
    def overrides(self) -> Overrides:
        """Return the parameters of detectors that the benchmark fixes.

        These are m of `infilling`, a of `dc_pdd`, and the list of detectors of `combined`.
        """
        n_future_tokens = self.spec.get("infilling_m")
        if not n_future_tokens:
            n_future_tokens = infilling.choose_future_token_count(self.manifest["words"])
        overrides: dict[str, Settings] = {infilling.NAME: {"m": n_future_tokens}}
        bound = self.spec.get("dc_pdd_a")
        if bound is not None:
            overrides[dc_pdd.NAME] = {"a": float(bound)}
        names = self.spec.get("combined")
        if names is not None:
            overrides[combined.NAME] = {"of": combined.join_detector_names(names)}
        return overrides

    @cached_property
    def scored_part(self) -> ScoredPart | None:
        """Return the scored part of the conversations, or None if the examples are plain texts."""
        parts: set[ScoredPart] = set(self.examples["scored_part"].drop_null().to_pylist())
        return next(iter(parts), None)

    @property
    def scores_parts(self) -> bool:
        """Return True if only a part of what a model reads is scored, for at least one example."""
        return self.scored_part not in (None, "all") or any(self.contexts)

    @property
    def contexts(self) -> list[str | None]:
        """Return the context of each example, in the order of the examples."""
        contexts: list[str | None] = self.examples.column("context").to_pylist()
        return contexts

    @property
    def plain_texts(self) -> list[str]:
        """Return the distinct texts with their contexts, in order. Conversations are in their plain form."""
        return list(dict.fromkeys(build_model_inputs(self.examples)))

    def require_passed_checks(self) -> None:
        """Check that no blocking check of the benchmark failed.

        Raises:
            DataError: If a blocking check failed, so that numbers on the benchmark would be wrong.
        """
        for check in self.manifest["checks"]:
            if check["blocking"] and not check["passed"]:
                raise DataError(
                    f"the benchmark {self.name} failed a check ({check['what']}; counts: {check['counts']}), so an "
                    "audit would be wrong. Correct its entry in config/benchmarks.yaml or its source, and build it "
                    "again."
                )

    def require_matching_control(self, model: str, control: str | None) -> None:
        """Check that the benchmark and a model belong to the same control.

        Args:
            model: The name of the model.
            control: The control that the model was trained for, or None if it was not trained here.

        Raises:
            NotApplicableError: If the controls differ.
        """
        require_matching_control(self.name, self.control, model, control)


def require_matching_control(benchmark: str, benchmark_control: str | None, model: str, control: str | None) -> None:
    """Check that a benchmark and a model belong to the same control. None means no control.

    Raises:
        NotApplicableError: If the controls differ.
    """
    if benchmark_control == control:
        return
    if benchmark_control is not None:
        raise NotApplicableError(
            f"the labels of {benchmark} are valid only for the models of the control {benchmark_control}, and not for "
            f"{model}"
        )
    raise NotApplicableError(
        f"{model} was trained on this machine on the texts of the control {control}. Audit it on these texts."
    )


def read_built(paths: DataPaths, name: str) -> BuiltBenchmark:
    """Read the manifest of the built benchmark with this name. The examples are read later.

    Raises:
        DataError: If the benchmark is not built or its manifest is unreadable.
    """
    path = paths.benchmark_manifest(name)
    try:
        manifest = read_json(path)
    except FileNotFoundError as error:
        raise DataError(
            f"the benchmark {name} has not been built yet: {path} is missing. Build it: "
            f"corpus-audit benchmarks --build {name}"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"the manifest of the benchmark {name} cannot be read ({path}): {error}. Delete the file and "
            "build the benchmark again."
        ) from error
    if not isinstance(manifest, dict):
        raise DataError(
            f"the manifest of the benchmark {name} is not a JSON object ({path}). Build the benchmark again."
        )
    return BuiltBenchmark(name, manifest, paths)


SPLIT_VERSION = "3"
"""The version of the assessment code. If it is raised, splits are assessed again before the next evaluation."""
_ASSESSMENT_TABLES = (BLIND_SCORES, SPLIT_QUALITY)
"""The tables of an assessment, in the order of writing. If the second exists, the first exists, too."""


@dataclass(frozen=True, eq=False)
class SplitAssessment:
    """The assessment of a benchmark's split.

    Attributes:
        assessed: The blind control and the verdict.
        quality: The table SPLIT_QUALITY.
        versions: The data versions of the stored tables, by table and benchmark.
    """

    assessed: AssessedSplit
    quality: pa.Table
    versions: Mapping[str, str]


def assess_split(
    benchmark: BuiltBenchmark,
    paths: DataPaths,
    step: LineageStep,
    *,
    most_per_side: int = MAX_PER_SIDE,
    assessed: AssessedSplit | None = None,
) -> SplitAssessment:
    """Measure a benchmark's split without any model, and write split_quality and blind_scores.

    Args:
        benchmark: The benchmark.
        paths: The data folder.
        step: The step that is recorded in the ledger.
        most_per_side: Maximum number of texts per side for all measures except the control of words.
        assessed: The control of words on all texts, if it is already computed.
    """
    examples = relabel_for_comparison(benchmark.examples)
    if assessed is None:
        is_matched = benchmark.matched is not None
        assessed = compute_assessed_split(examples, benchmark.design, benchmark.language, matched=is_matched)
    quality = measure_split_quality(
        select_evaluation_texts(examples, get_word_unit(benchmark.spec["unit"]).split),
        assessed,
        benchmark.language,
        near_duplicate_threshold=benchmark.spec["near_duplicate_threshold"],
        run_id=step.run_id,
        most_per_side=most_per_side,
    )
    versions = {}
    for table, rows in (
        (BLIND_SCORES, assessed.build_scores_table(benchmark.name, step.run_id)),
        (SPLIT_QUALITY, quality),
    ):
        versions[f"{table.name}/{benchmark.name}"] = store.write(
            paths,
            step,
            table,
            benchmark.name,
            rows,
            upstream={f"examples/{benchmark.name}": benchmark.digest},
            benchmark_digest=benchmark.digest,
        )
    return SplitAssessment(assessed, quality, versions)


def read_split_versions(name: str, paths: DataPaths) -> dict[str, str | None] | None:
    """Read the versions of a benchmark's last assessment: the build, the code and the tables.

    The result is None if a table is missing or corrupt, or if the tables belong to different assessments.
    """
    entries = {}
    for table in _ASSESSMENT_TABLES:
        entry = find_writing_run(paths, table, name)
        if entry is None:
            return None
        entries[table.name] = entry
    origins = set(map(attrgetter("benchmark_digest", "code_version", "run_id"), entries.values()))
    if len(origins) > 1:
        return None
    ((benchmark_digest, code_version, _),) = origins
    versions = {f"examples/{name}": benchmark_digest, "code": code_version}
    for table_name, entry in entries.items():
        versions[f"{table_name}/{name}"] = entry.data_version
    return versions


def read_split_assessment(benchmark: BuiltBenchmark, paths: DataPaths) -> SplitAssessment | None:
    """Read the assessment of this build by the current code, or return None if there is none.

    Raises:
        DataError: If a table is corrupt.
    """
    name = benchmark.name
    for table in _ASSESSMENT_TABLES:
        store.require_intact_partition(paths, table, name, label=f"the {table.name} of {name}")
    stored = read_split_versions(name, paths)
    if stored is None or (stored[f"examples/{name}"], stored["code"]) != (benchmark.digest, SPLIT_VERSION):
        return None
    scores = store.read(paths, BLIND_SCORES, name, label=f"the {BLIND_SCORES.name} of {name}")
    quality = store.read(paths, SPLIT_QUALITY, name, label=f"the {SPLIT_QUALITY.name} of {name}")
    assessed = build_assessed_split_from_tables(benchmark.design, benchmark.matched is not None, quality, scores)
    versions = {f"{table.name}/{name}": str(stored[f"{table.name}/{name}"]) for table in _ASSESSMENT_TABLES}
    return SplitAssessment(assessed, quality, versions)


def read_or_assess_split(benchmark: BuiltBenchmark, paths: DataPaths, run_id: str) -> SplitAssessment:
    """Read the assessment of this build. If there is none, assess the split and write the result."""
    known = read_split_assessment(benchmark, paths)
    if known is not None:
        return known
    return assess_split(benchmark, paths, LineageStep.now(run_id, "split_quality", SPLIT_VERSION))
