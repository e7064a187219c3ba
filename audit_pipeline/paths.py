"""Where everything produced lives under the data folder, and where the configuration is read from.

What belongs here: every path below data/ and config/, and the rules for naming folders after partitions.
What does not: reading or writing (see tables.py), and what the files hold (see contracts.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote

PROJECT_ROOT = Path(__file__).resolve().parent.parent


@lru_cache(maxsize=4096)
def segment(name: str) -> str:
    """``name`` as one path segment, reversible with :func:`unsegment` (a hub id holds slashes)."""
    quoted = quote(name, safe=" ()+,-.=@_")
    return quoted.replace(".", "%2E") if set(quoted) == {"."} else quoted


def unsegment(part: str) -> str:
    """The name that :func:`segment` made ``part`` from."""
    return unquote(part)


def config_dir() -> Path:
    """The folder of models.yaml, benchmarks.yaml and sources.yaml (``CORPUS_AUDIT_CONFIG`` moves it)."""
    return Path(os.environ.get("CORPUS_AUDIT_CONFIG") or PROJECT_ROOT / "config").expanduser().resolve()


@dataclass(frozen=True)
class DataPaths:
    """Every path under one data folder. Nothing is created by asking for a path."""

    root: Path

    @classmethod
    def from_environment(cls) -> DataPaths:
        """The data folder: ``CORPUS_AUDIT_DATA`` where set, else data/ in the project."""
        return cls(Path(os.environ.get("CORPUS_AUDIT_DATA") or PROJECT_ROOT / "data").expanduser().resolve())

    @property
    def downloads(self) -> Path:
        return self.root / "downloads"

    def documents(self, source: str) -> Path:
        return self.root / "documents" / f"source={segment(source)}" / "documents.parquet"

    def source_manifest(self, source: str) -> Path:
        return self.documents(source).with_name("manifest.json")

    def examples(self, benchmark: str) -> Path:
        return self.root / "examples" / f"benchmark={segment(benchmark)}" / "examples.parquet"

    def benchmark_manifest(self, benchmark: str) -> Path:
        return self.examples(benchmark).with_name("manifest.json")

    def split_quality(self, benchmark: str) -> Path:
        """What is known of a benchmark's two sides without any model; rewritten with every assessment."""
        return self.root / "split_quality" / f"benchmark={segment(benchmark)}" / "quality.parquet"

    def token_statistics(self, kind: str, model_fingerprint: str) -> Path:
        return self.root / "token_statistics" / f"kind={kind}" / f"model={model_fingerprint}"

    def model_card(self, model_fingerprint: str) -> Path:
        return self.root / "models" / f"{model_fingerprint}.json"

    def tokenizer_cache(self, digest: str) -> Path:
        return self.root / "models" / "tokenizers" / digest

    @property
    def digest_cache(self) -> Path:
        return self.root / "models" / "digests.json"

    def token_frequencies(self, corpus: str, tokenizer_fingerprint: str) -> Path:
        """The counts of one tokenizer's tokens in one corpus."""
        name = f"tokenizer={tokenizer_fingerprint}.parquet"
        return self.root / "token_frequencies" / f"corpus={segment(corpus)}" / name

    def control_pointer(self, control: str) -> Path:
        """Names the current version of a trained control."""
        return self.root / "controls" / segment(control) / "current.json"

    def control_version(self, control: str, version: str) -> Path:
        return self.control_pointer(control).parent / version

    def study(self, name: str) -> Path:
        return self.root / "control_studies" / f"study={segment(name)}" / "results.parquet"

    def table(self, name: str) -> Path:
        """The folder of an append-only table: scores, evaluations, lineage or outcomes."""
        return self.root / name

    def run_file(self, table: str, partition: str, run_id: str) -> Path:
        """The one file that a run adds to an append-only table for one partition."""
        return self.table(table) / f"partition={segment(partition)}" / f"run_id={segment(run_id)}.parquet"

    def file_of(self, table: str, partition: str, run_id: str) -> Path | None:
        """The file that a lineage entry explains; None for token statistics, which lie in the parts of the cache.

        Of a trained control it is the pointer to its current version.
        """
        rewritten: dict[str, Callable[[str], Path]] = {
            "documents": self.documents,
            "examples": self.examples,
            "split_quality": self.split_quality,
            "control_studies": self.study,
            "controls": self.control_pointer,
            "token_frequencies": lambda name: self.token_frequencies(*name.rsplit("|", 1)),
        }
        if table == "token_statistics":
            return None
        return rewritten[table](partition) if table in rewritten else self.run_file(table, partition, run_id)

    @property
    def warehouse(self) -> Path:
        return self.root / "audit.duckdb"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def report(self) -> Path:
        return self.reports / "contamination_report.html"

    @property
    def logs(self) -> Path:
        """What libraries printed while a command met a full disk or the like."""
        return self.root / "logs"

    @property
    def rolled_day(self) -> Path:
        return self.root / "rolled_day.json"

    @property
    def alerts(self) -> Path:
        return self.root / "alerts.jsonl"

    @property
    def findings_told(self) -> Path:
        return self.root / "findings_told.json"

    def removal(self, dimension: str, name: str) -> Path:
        return self.root / "forgetting" / f"{dimension}={segment(name)}.json"

    @property
    def dagster_home(self) -> Path:
        return self.root / "dagster_home"
