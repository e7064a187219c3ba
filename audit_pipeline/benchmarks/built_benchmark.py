"""A benchmark as it was built: read once by a stage, and handed on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from audit_pipeline.benchmarks.builder_interface import MATCHED
from audit_pipeline.benchmarks.labelled_rows import parse_name
from audit_pipeline.detectors import combined, dc_pdd, infilling
from audit_pipeline.errors import DataError, NotApplicableError
from audit_pipeline.store.files import read_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read
from audit_pipeline.tables import (
    EXAMPLES,
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
"""The key of the manifest."""

SAID = ("text", "context", "label", "split", "published", "language", "collection")
"""The columns of EXAMPLES that the digest reads unchanged."""
PLACED = ("document_id", "group")
"""Those of which it reads only which texts share them, whatever their names are."""


def to_export_names(names: Iterable[str], family: str) -> list[str]:
    """The names of documents or groups as they are handed on, in order: a builder of rows reads them back as they are.

    Builders of rows put the family in front of each name (``family:name``): where all have it, it is taken away. A name
    that such a builder could not read unchanged (empty, white space around it, very long) is replaced by 16 digits
    of its sha256.
    """
    given, front = list(names), f"{family}:"
    if all(name.startswith(front) for name in given):
        given = [name.removeprefix(front) for name in given]
    return [name if parse_name(name) == name else text_sha256(name)[:16] for name in given]


def compute_content_digest(examples: pa.Table) -> str:
    """sha256 (hex) of what ``examples`` (schema EXAMPLES) say: texts, contexts, labels, splits, days, languages,
    collections, and which of them are of one document and of one group.

    It is that of a JSON list whose one item is a list with one list per example, in the order of their own JSON; the
    card of a benchmark that is handed on says the same in words. The order of rows and the names of benchmark, family,
    documents and groups change nothing.
    """
    columns: dict[str, list[object]] = {name: examples.column(name).to_pylist() for name in (*SAID, *PLACED)}
    texts = [digest(*both) for both in zip(columns["context"], columns["text"], strict=True)]
    for name in PLACED:
        first: dict[object, str] = {}
        for place, text in zip(columns[name], texts, strict=True):
            first[place] = min(first.get(place, text), text)
        columns[name] = [first[place] for place in columns[name]]
    rows = ([None if value is None else str(value) for value in row] for row in zip(*columns.values(), strict=True))
    return digest_of_items(sorted(rows, key=canonical_json))


@dataclass(frozen=True, eq=False)
class BuiltBenchmark:
    """One benchmark as it lies in the data folder. Its examples are read on first use."""

    name: str
    manifest: Mapping[str, Any]
    paths: DataPaths

    @cached_property
    def examples(self) -> pa.Table:
        """The examples (schema EXAMPLES); raises DataError where they are missing, damaged or cannot be read."""
        what = f"the benchmark {self.name}"
        return read(self.paths, EXAMPLES, self.name, label=what)

    @property
    def spec(self) -> Mapping[str, Any]:
        """The entry of config/benchmarks.yaml that it was built from."""
        spec: Mapping[str, Any] = self.manifest["spec"]
        return spec

    @property
    def digest(self) -> str:
        """What it was built from; see :func:`audit_pipeline.benchmarks.build.compute_benchmark_digest`."""
        return str(self.manifest["digest"])

    @property
    def design(self) -> str:
        """How members and non-members came about (statistics/claims.py)."""
        return str(self.manifest["design"])

    @property
    def control(self) -> str | None:
        """The control whose texts these are, where they are a control's."""
        return self.spec.get("control")

    @property
    def matched(self) -> Mapping[str, Any] | None:
        """What matching achieved, where members and non-members were chosen to be hard to separate; empty where
        others chose them."""
        return self.manifest.get(MATCHED)

    @cached_property
    def language(self) -> str:
        """The language of most examples (ISO 639-1)."""
        counted: Counter[str] = Counter(self.examples.column("language").to_pylist())
        return max(sorted(counted), key=lambda language: counted[language])

    @property
    def overrides(self) -> Overrides:
        """What it fixes of detectors: infilling's m, by its length or as its entry says, DC-PDD's a, and the
        detectors that are combined."""
        steps = self.spec.get("infilling_m") or infilling.choose_future_token_count(self.manifest["words"])
        fixed: dict[str, Settings] = {infilling.NAME: {"m": steps}}
        if (bound := self.spec.get("dc_pdd_a")) is not None:
            fixed[dc_pdd.NAME] = {"a": float(bound)}
        if (names := self.spec.get("combined")) is not None:
            fixed[combined.NAME] = {"of": combined.join_detector_names(names)}
        return fixed

    @property
    def contexts(self) -> list[str | None]:
        """The context before each example's text, in the examples' order."""
        contexts: list[str | None] = self.examples.column("context").to_pylist()
        return contexts

    @property
    def model_inputs(self) -> list[str]:
        """The distinct texts that a model reads, in order; contexts are part of them."""
        return list(dict.fromkeys(build_model_inputs(self.examples)))

    def require_passed_checks(self) -> None:
        """Raise DataError where a check of the built benchmark says that numbers on it would be wrong."""
        failed = [check for check in self.manifest["checks"] if check["blocking"] and not check["passed"]]
        if failed:
            raise DataError(
                f"the benchmark {self.name} is not fit to be audited: {failed[0]['what']}: {failed[0]['counts']}; "
                "mend its entry in config/benchmarks.yaml or its source and build it again"
            )

    def require_matching_control(self, model: str, control: str | None) -> None:
        """Raise NotApplicableError if benchmark and model are not of the same control.

        Args:
            model: The model's name.
            control: The control that the model was trained for, or None if it was not trained here.
        """
        require_matching_control(self.name, self.control, model, control)


def require_matching_control(benchmark: str, benchmark_control: str | None, model: str, control: str | None) -> None:
    """Raise NotApplicableError if a benchmark and a model are not of the same control; None stands for no control."""
    if benchmark_control == control:
        return
    if benchmark_control is not None:
        raise NotApplicableError(
            f"the labels of {benchmark} say what the models of the control {benchmark_control} were trained on, and "
            f"nothing of {model}"
        )
    raise NotApplicableError(f"{model} was trained here on the texts of the control {control}: audit it on those")


def read_built(paths: DataPaths, name: str) -> BuiltBenchmark:
    """The benchmark of that name; raises DataError where it is not built or its manifest cannot be read."""
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
            f"the manifest of {name} cannot be read ({path}): {error}; delete it and build it again"
        ) from error
    if not isinstance(manifest, dict):
        raise DataError(f"the manifest of {name} is not a JSON object ({path}); build it again")
    return BuiltBenchmark(name, manifest, paths)
