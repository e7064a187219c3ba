"""A data folder and a configuration of their own for tests of the front door: made-up dated documents, tiny models.

What belongs here: making the surroundings that a user would have. What does not: assertions.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

import dagster as dg
import made_settings
import pytest
import yaml
from click.testing import CliRunner, Result
from tiny_models import forward_of

# Read before any test moves the configuration: the partitions of controls are fixed when this module is.
from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.built_benchmark import SPLIT_VERSION, assess_split, read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec, resolve_benchmarks
from audit_pipeline.cli import main
from audit_pipeline.models import weights
from audit_pipeline.models.config import load_models
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized
from audit_pipeline.pipeline.dagster import asset_definitions, partitions
from audit_pipeline.pipeline.evaluate_pair import EVALUATIONS_VERSION, evaluate_pair
from audit_pipeline.scoring.pair_scores import SCORES_VERSION, run_passes, score_and_store_pair
from audit_pipeline.sources import release_notes
from audit_pipeline.sources.base import Document, FetchedDocuments, MissingPart
from audit_pipeline.sources.config import all_sources, load_source_settings
from audit_pipeline.sources.store import refresh_source
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair
from audit_pipeline.warehouse.query import query_warehouse

SOURCE = release_notes.NAME
temporal = made_settings.temporal
COLLECTIONS = ("alder", "birch", "cedar")
OLD, NEW = date(2020, 3, 1), date(2025, 3, 1)
WORDS = tuple(
    """
    lantern harbour gravel copper orchard winter ladder thimble marsh bellows kettle shepherd quarry ferry wicker saddle
    plough anvil barley mortar canvas timber pewter hedge spindle furrow cobble drizzle
    """.split()  # noqa: SIM905 - a list of words is read best as words
)
_ROOM = 48 << 20
# A few words that only one side knows: the sides differ, as real ones do.
_OF_A_SIDE = {OLD: ("telegram", "carriage"), NEW: ("satellite", "drone")}


def made_text(name: str, words: int, also: Iterable[str] = ()) -> str:
    """Return ``words`` words that depend only on ``name``."""
    chosen = random.Random(name).choices([*WORDS, *also], k=words)
    return " ".join(chosen)


def made_document(collection: str, name: str, published: date | None, text: str) -> Document:
    return Document(
        collection=collection,
        name=name,
        title=f"{collection} {name}",
        text=text,
        published=published,
        language="en",
        licence="CC0-1.0",
        url=f"https://example.invalid/{collection}/{name}",
    )


def made_documents(per_side: int, words: int, collections: Iterable[str] = COLLECTIONS) -> tuple[Document, ...]:
    """Return ``per_side`` documents per side in each collection."""
    return tuple(
        made_document(
            collection,
            f"{published.year}-{number}",
            published,
            made_text(f"{collection} {published} {number}", words, _OF_A_SIDE[published]),
        )
        for collection in collections
        for published in (OLD, NEW)
        for number in range(per_side)
    )


@dataclass(frozen=True)
class Workspace:
    """The workspace of a test, which the environment names."""

    root: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def paths(self) -> DataPaths:
        return DataPaths(self.root / "data")

    @property
    def config(self) -> Path:
        return self.root / "config"

    def write_config(self, name: str, content: object) -> None:
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        (self.config / f"{name}.yaml").write_text(text, encoding="utf-8")

    def write_models(self, **entries: Mapping[str, Any]) -> None:
        """Write models.yaml. Underscores in names become hyphens."""
        models = {
            name.replace("_", "-"): {
                key: str(value) if isinstance(value, Path) else value for key, value in one.items()
            }
            for name, one in entries.items()
        }
        self.write_config("models", {"models": models})

    def write_benchmarks(self, **families: Mapping[str, Any]) -> None:
        self.write_config("benchmarks", {"benchmarks": {name: dict(fields) for name, fields in families.items()}})

    def hold(self, *documents: Document, missing: Iterable[MissingPart] = ()) -> None:
        """Let every fetch of the source release_notes return these documents, without the network."""
        fetched = FetchedDocuments(tuple(documents), tuple(missing))
        made = replace(all_sources()[SOURCE], fetch=lambda settings, downloads: fetched)
        self.monkeypatch.setitem(all_sources(), SOURCE, made)  # type: ignore[arg-type]

    def fetch(self, *documents: Document) -> None:
        """Fetch documents with lineage, as the source's asset does."""
        self.hold(*documents)
        refresh_source(SOURCE, self.paths, "fetched", load_source_settings())

    def build(self, name: str) -> list[BenchmarkSpec]:
        """Build a benchmark or family, with lineage, as the asset does."""
        specs = resolve_benchmarks(name)
        for spec in specs:
            build(spec, self.paths, "built")
        return specs

    def assess(self, name: str) -> None:
        """Assess the splits of a built benchmark or family, as the job build_benchmarks does."""
        for spec in resolve_benchmarks(name):
            built = read_built(self.paths, spec.name)
            assess_split(built, self.paths, LineageStep.now("built", "split_quality", SPLIT_VERSION))

    def audit(self, model: str, benchmark: str) -> None:
        """Run a model over a benchmark or family that is built and assessed, score and conclude, as the assets do.

        Without Dagster, and so in a fraction of the time of the command audit.
        """
        tokenized = self.model(model)
        forward = cache(lambda: forward_of(tokenized))
        for spec in resolve_benchmarks(benchmark):
            pair, run = Pair(spec.name, model), f"audited-{spec.name}-{model}"
            step = partial(LineageStep.now, run)
            first = step("token_statistics", "1")
            run_passes(pair, tokenized, self.paths, forward, first, kinds=("base",), logits_budget=0)
            score_and_store_pair(pair, tokenized, self.paths, step("scores", SCORES_VERSION))
            evaluate_pair(pair, tokenized, self.paths, step("evaluations", EVALUATIONS_VERSION))

    def model(self, name: str) -> TokenizedModel:
        return load_tokenized(load_models()[name], self.paths)

    def run(self, *arguments: str | Path) -> Result:
        """Run the command line in this process."""
        return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)

    def query(self, statement: str) -> list[dict[str, Any]]:
        """Return the rows of a statement on the warehouse."""
        rows: list[dict[str, Any]] = query_warehouse(self.paths.warehouse, statement).to_pylist()
        return rows

    def parts(self, kind: str = "base") -> list[Path]:
        """Return the part files of the cache, of all models."""
        return sorted(self.paths.table("token_statistics").glob(f"kind={kind}/*/part-*.parquet"))

    def runs(self) -> list[dg.DagsterRun]:
        """Return all Dagster runs. There are none without a Dagster home."""
        if not (self.paths.dagster_home / "dagster.yaml").exists():
            return []
        with self.instance() as instance:
            return list(instance.get_runs())

    def instance(self) -> dg.DagsterInstance:
        return dg.DagsterInstance.from_config(str(self.paths.dagster_home))


def tiny_control(**changes: Any) -> dict[str, Any]:
    """Return the entry of a control in controls.yaml that is trained in a second."""
    return {
        "description": "made up",
        "sources": [SOURCE],
        "words": 12,
        "members": 24,
        "held_out": 24,
        "epochs": 20,
        "learning_rate": 0.01,
        "batch_size": 8,
        "architecture": {
            **{"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64},
            **{"context": 64, "vocabulary": 320},
        },
        "seed": 5,
        **changes,
    }


def controlled(control: str, words: int = 12, **changes: Any) -> dict[str, Any]:
    """Return the entry of a control's texts in benchmarks.yaml."""
    return {
        **{"builder": "controlled", "description": "made up", "control": control, "words": [words], "seed": 5},
        **changes,
    }


@contextmanager
def partitions_of_controls() -> Iterator[None]:
    """Use the partitions of the workspace's controls and studies within the block, as a new process would."""
    reload_assets()
    try:
        yield
    finally:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("CORPUS_AUDIT_CONFIG")
            reload_assets()


def reload_assets() -> None:
    """Build the assets again from the current configuration."""
    partitions.read_static_names.cache_clear()
    partitions.partitions_of.cache_clear()
    asset_definitions.build_assets.cache_clear()


@contextmanager
def quick_folder(otherwise: Path) -> Iterator[Path]:
    """An empty folder in memory where the machine has room there, else ``otherwise``.

    An audit has Dagster's databases flushed to disk hundreds of times, which is most of its time where a model is tiny.
    """
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="corpus-audit-test-", dir=memory) as folder:
        yield Path(folder)


def make_workspace(root: Path, monkeypatch: pytest.MonkeyPatch, **models: Path) -> Workspace:
    """Empty folders that the environment names until the test ends; DAGSTER_HOME is the data folder's own.

    ``models`` are names and folders for models.yaml.
    """
    made = Workspace(root, monkeypatch)
    made.config.mkdir(parents=True)
    made.paths.root.mkdir()
    enter_workspace(root, monkeypatch)
    made.write_config("sources", {})
    made.write_models(**{name: {"path": path} for name, path in models.items()})
    return made


def enter_workspace(root: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Return an existing workspace. The environment names it until the test ends."""
    made = Workspace(root, monkeypatch)
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(made.paths.root))
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(made.config))
    # Set, not deleted: the command line exports what it made, and the end of the test must take that back.
    monkeypatch.setenv("DAGSTER_HOME", "")
    for name in ("TQDM_DISABLE", "PYTHONWARNINGS"):
        monkeypatch.setenv(name, os.environ.get(name, "1" if name == "TQDM_DISABLE" else "ignore"))
    return made


def copy_workspace(made: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Copy a workspace that several tests share, and enter the copy."""
    shutil.copytree(made, root)
    return enter_workspace(root, monkeypatch)


def count_loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives the name of each model whose weights are loaded."""
    loaded: list[str] = []
    load: Callable[..., Any] = weights.load_weights

    def counted(model: TokenizedModel, device: str, notify: Callable[[str], None]) -> Any:
        loaded.append(model.entry.name)
        return load(model, device, notify)

    monkeypatch.setattr(weights, "load_weights", counted)
    return loaded
