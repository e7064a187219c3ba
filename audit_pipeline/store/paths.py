"""Where everything produced lives, whether that folder can be used, and where the configuration is read from."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote

import filelock
from platformdirs import user_data_path

from audit_pipeline.errors import DataError

OWNER_ONLY = 0o700
_WHAT_TO_DO = "set CORPUS_AUDIT_DATA to a folder that can; sql, export, report --open and doctor read this as it is"
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(folder: Path) -> None:
    """Make ``folder``, and those above it that are missing, for their owner only: it holds full texts.

    A folder that exists is left as it is.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in [*reversed(missing), folder]:
        path.mkdir(mode=OWNER_ONLY, exist_ok=True)


def require_writable(folder: Path) -> None:
    """Make ``folder`` if it does not exist; raises DataError, in one line, if it cannot be made or written."""
    if (reason := explain_unwritable(folder)) is not None:
        raise DataError(f"the folder {folder} cannot be written ({reason}), so nothing was run: {_WHAT_TO_DO}")
    make_private(folder)


def find_nearest_existing(path: Path) -> Path:
    """``path``, or the nearest of the folders that it would be made in, that exists as far as this user can see."""
    # Not Path.exists, which raises in the home of another user.
    return next(place for place in (path, *path.parents) if os.path.exists(place))


def explain_unwritable(folder: Path) -> str | None:
    """Why nothing can be written there, or in the folder that it would be made in, as trying shows; None: it can."""
    nearest = find_nearest_existing(folder)
    if not nearest.is_dir():
        return f"{nearest} is no folder"
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except OSError as error:
        return f"{nearest}: {error.strerror or error}"


def is_open_to_others(folder: Path) -> bool:
    """Whether others than its owner may read it; never on a system without such rights."""
    return os.name == "posix" and bool(folder.stat().st_mode & _OF_OTHERS)


def is_held(lock: Path) -> bool:
    """Whether a living process holds the lock of this file."""
    try:
        with filelock.FileLock(lock, timeout=0):
            return False
    except filelock.Timeout:
        return True


PROJECT_ROOT = Path(__file__).resolve().parents[2]
"""The folder that this package lies in: the checkout, or where packages are installed."""
WORKSPACE_FILE = "workspace.yaml"
SHIPPED = Path(__file__).resolve().parents[1] / "shipped"
"""In an installed package: the default configuration, laid out as a workspace."""
DEFAULTS = SHIPPED if SHIPPED.is_dir() else PROJECT_ROOT
"""Where the default configuration lies: of the checkout it is the checkout's own."""

MODEL_PAGE = "model="
"""What the names of models' pages and their JSON copies begin with."""
_CODE_LOCATION = "audit_pipeline.definitions"
# A file system allows 255 bytes; partition=document_memorisation%3ABENCHMARK%7CMODEL, a folder of the lineage, is the
# longest of all names that are made of these.
_LONGEST = {"benchmark": 60, "model": 158}


@lru_cache(maxsize=4096)
def to_path_segment(name: str) -> str:
    """``name`` as one path segment, reversible with :func:`name_from_path_segment` (a hub id holds slashes)."""
    quoted = quote(name, safe=" ()+,-.=@_")
    return quoted.replace(".", "%2E") if set(quoted) == {"."} else quoted


def name_from_path_segment(part: str) -> str:
    """The name that :func:`to_path_segment` made ``part`` from."""
    return unquote(part)


def model_page_path(folder: Path, model: str) -> Path:
    """The page of a model's report in the folder of reports."""
    return folder / f"{MODEL_PAGE}{to_path_segment(model)}.html"


def is_text_output_allowed() -> bool:
    """Whether warehouse and report quote audited texts unless the command line says otherwise."""
    return "CORPUS_AUDIT_NO_TEXT" not in os.environ


def explain_unusable_name(what: str, name: str) -> str | None:
    """Why ``name``, which leads to another folder, cannot name a ``what``; None where it leads nowhere."""
    if name and ("\\" in name or not {"", ".", ".."}.isdisjoint(name.split("/"))):
        return f"{name[:80]!r} cannot name a {what}: it is a path"
    return None


def explain_invalid_partition(dimension: str, name: str) -> str | None:
    """Why a benchmark or model (``dimension``) cannot have this name, which partitions and folders carry; or None."""
    if "|" in name or "..." in name or not name.isprintable() or not name.strip():
        return f"{name[:80]!r} cannot name a {dimension}: no '|', no '...', no control characters, not empty"
    length, longest = len(to_path_segment(name)), _LONGEST[dimension]
    if length > longest:
        return (
            f"{name[:40]}… cannot name a {dimension}: folders are named after it, so it may take {longest} bytes, of "
            f"which a slash or a letter that is not of English takes three or more; this name takes {length}"
        )
    return None


def find_workspace() -> Path | None:
    """The folder whose config/ and data/ are used: the nearest around the current folder that is a workspace, else the
    checkout that this package is run from; None for an installed package outside of any workspace.

    A workspace holds a workspace.yaml that names this project's code location, and a config/ next to it.
    """
    current = Path.cwd()
    return next((folder for folder in (current, *current.parents, PROJECT_ROOT) if is_workspace(folder)), None)


def is_workspace(folder: Path) -> bool:
    """Whether ``folder`` holds a workspace.yaml that names this project's code location, and a config/ next to it."""
    try:
        named = _CODE_LOCATION in (folder / WORKSPACE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return named and (folder / "config").is_dir()


def config_dir() -> Path:
    """The folder of models.yaml, benchmarks.yaml and the others.

    ``CORPUS_AUDIT_CONFIG`` where set, else config/ of the workspace (:func:`find_workspace`), else the
    configuration in the package.
    """
    given = os.environ.get("CORPUS_AUDIT_CONFIG")
    return Path(given or (find_workspace() or SHIPPED) / "config").expanduser().resolve()


def workspace_file() -> Path:
    """The workspace.yaml that Dagster is given: that of :func:`find_workspace`, else the one in the package."""
    return (find_workspace() or SHIPPED) / WORKSPACE_FILE


@contextmanager
def use_workspace(folder: Path, *, own_data: bool = False) -> Iterator[None]:
    """Within the block the configuration and data of the workspace in ``folder`` are used, wherever the process runs.

    A data folder that the environment names is used all the same, but with ``own_data``. In the end the environment is
    as it was.
    """
    before = dict(os.environ)
    os.environ["CORPUS_AUDIT_CONFIG"] = str(folder / "config")
    if own_data or "CORPUS_AUDIT_DATA" not in os.environ:
        os.environ["CORPUS_AUDIT_DATA"] = str(DataPaths.of_workspace(folder).root)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


OWN_CONFIGURATION = "config/ is that of the installed package here: `corpus-audit init` lays out a folder of your own"


def is_shipped(path: Path) -> bool:
    """Whether ``path`` is a part of the installed package, which users do not edit."""
    return path.is_relative_to(SHIPPED)


class _Below:
    """A path below the data folder that always has the same name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: DataPaths, _: object) -> Path:
        return paths.root / self._name


@dataclass(frozen=True)
class DataPaths:
    """Every path under one data folder. Nothing is created by asking for a path."""

    root: Path

    downloads = _Below("downloads")
    digest_cache = _Below("models/digests.json")
    ledger = _Below("ledger")
    """The folder of the ledger and its lock."""
    ledger_file = _Below("ledger/000001.jsonl")
    """The lines of the ledger (store/ledger.py)."""
    warehouse = _Below("audit.duckdb")
    reports = _Below("reports")
    report = _Below("reports/contamination_report.html")
    logs = _Below("logs")
    """What libraries printed while a command met a full disk or the like."""
    rolled_day = _Below("rolled_day.json")
    alerts = _Below("alerts.jsonl")
    reported_findings = _Below("reported_findings.json")
    published = _Below("published.json")
    """What warehouse and report were made with (pipeline/publication_state.py)."""
    claims = _Below("claims")
    """The lock files of running audits (pipeline/dagster/locks.py)."""
    dagster_home = _Below("dagster_home")

    @classmethod
    def of_workspace(cls, folder: Path) -> DataPaths:
        """The data folder of a workspace."""
        return cls(folder / "data")

    @classmethod
    def from_environment(cls) -> DataPaths:
        """The data folder: ``CORPUS_AUDIT_DATA`` where set, else data/ of :func:`find_workspace`, else the user's own.

        The user's own is what the system has for data of programs, such as ~/.local/share/corpus-audit.
        Raises DataError if CORPUS_AUDIT_DATA is a URL.
        """
        if given := os.environ.get("CORPUS_AUDIT_DATA"):
            if "://" in given:
                raise DataError(f"CORPUS_AUDIT_DATA={given} is a URL. Set it to a folder, such as a mounted volume.")
            return cls(Path(given).expanduser().resolve())
        root = find_workspace()
        return cls.of_workspace(root) if root is not None else cls(user_data_path("corpus-audit", appauthor=False))

    def documents(self, source: str) -> Path:
        return self.rewritten_file("documents", "source", source)

    def source_manifest(self, source: str) -> Path:
        return self.documents(source).with_name("manifest.json")

    def examples(self, benchmark: str) -> Path:
        return self.rewritten_file("examples", "benchmark", benchmark)

    def benchmark_manifest(self, benchmark: str) -> Path:
        return self.examples(benchmark).with_name("manifest.json")

    def split_quality(self, benchmark: str) -> Path:
        """What is known of a benchmark's two sides without any model."""
        return self.root / "split_quality" / f"benchmark={to_path_segment(benchmark)}" / "quality.parquet"

    def token_statistics(self, kind: str, model_fingerprint: str) -> Path:
        return self.root / "token_statistics" / f"kind={kind}" / f"model={model_fingerprint}"

    def model_card(self, model_fingerprint: str) -> Path:
        return self.root / "models" / f"{model_fingerprint}.json"

    def kept_tokenizers(self, tokenizer_fingerprint: str) -> Path:
        """The tokenizers of one fingerprint in the form that loads at once, a folder a version that wrote it."""
        return self.root / "models" / "tokenizers" / tokenizer_fingerprint

    def converted_models(self, weights_digest: str) -> Path:
        """The weights of one .gguf as safetensors, a folder a dtype and version that converted it."""
        return self.root / "models" / "converted" / weights_digest

    def endpoint(self, digest_of_entry: str) -> Path:
        """What probes found out about one model of an endpoint."""
        return self.root / "models" / "endpoints" / f"{digest_of_entry}.json"

    def load_check(self, model_fingerprint: str, devices: str | None = None) -> Path:
        """What the check at loading found out about a model's forward pass on this machine; ``devices`` as in the
        model's entry."""
        name = model_fingerprint if devices is None else f"{model_fingerprint}.{devices}"
        return self.root / "models" / "checks" / f"{name}.json"

    def load_checks(self, model_fingerprint: str) -> list[Path]:
        """The load checks of a model that exist, on one device and on several."""
        return sorted(self.load_check(model_fingerprint).parent.glob(f"{model_fingerprint}.*json"))

    def token_frequencies(self, corpus: str, tokenizer_fingerprint: str) -> Path:
        """The counts of one tokenizer's tokens in one corpus."""
        name = f"tokenizer={tokenizer_fingerprint}.parquet"
        return self.root / "token_frequencies" / f"corpus={to_path_segment(corpus)}" / name

    def token_frequencies_of(self, partition: str) -> Path:
        """The same, of the partition of the lineage: corpus|tokenizer."""
        return self.token_frequencies(*partition.rsplit("|", 1))

    def control_pointer(self, control: str) -> Path:
        """Names the current version of a trained control."""
        return self.root / "controls" / to_path_segment(control) / "current.json"

    def control_version(self, control: str, version: str) -> Path:
        return self.control_pointer(control).parent / version

    def study(self, name: str) -> Path:
        return self.root / "control_studies" / f"study={to_path_segment(name)}" / "results.parquet"

    def table(self, name: str) -> Path:
        """The folder of a table, with a folder for every partition."""
        return self.root / name

    def run_file(self, table: str, partition: str, run_id: str) -> Path:
        """The one file that a run adds to an append-only table for one partition."""
        return (
            self.table(table) / f"partition={to_path_segment(partition)}" / f"run_id={to_path_segment(run_id)}.parquet"
        )

    def rewritten_file(self, table: str, per: str, partition: str) -> Path:
        """The one file of a partition of a table that every run writes anew; ``per``: what a partition is of."""
        return self.table(table) / f"{per}={to_path_segment(partition)}" / f"{table}.parquet"
