"""The paths of the data folder, the configuration and the workspace, and checks of folders and names."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

import filelock
from platformdirs import user_data_path

from audit_pipeline.errors import DataError

OWNER_ONLY = 0o700
_ADVICE = (
    "Set CORPUS_AUDIT_DATA to a writable folder. The commands sql, export, report --open and doctor also work with a "
    "folder that cannot be written."
)
_RIGHTS_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents with access for the owner only, because it holds full texts.

    Existing folders are unchanged.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in [*reversed(missing), folder]:
        path.mkdir(mode=OWNER_ONLY, exist_ok=True)


def require_writable(folder: Path) -> None:
    """Create the folder if it is missing. Raises DataError if it cannot be created or written."""
    reason = explain_unwritable(folder)
    if reason is not None:
        raise DataError(f"the folder {folder} cannot be written ({reason}), so nothing was run. {_ADVICE}")
    make_private(folder)


def find_nearest_existing(path: Path) -> Path:
    """Return the path itself, or its nearest parent that exists and is visible to this user."""
    # Path.exists raises an error in the home of another user.
    return next(candidate for candidate in (path, *path.parents) if os.path.exists(candidate))


def explain_unwritable(folder: Path) -> str | None:
    """Return why nothing can be written to a folder, or to its nearest existing parent. None if it is writable."""
    nearest = find_nearest_existing(folder)
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except OSError as error:
        return f"{nearest}: {error.strerror or error}"


def is_open_to_others(folder: Path) -> bool:
    """Return True if other users can access the folder. False on systems without POSIX permissions."""
    return os.name == "posix" and bool(folder.stat().st_mode & _RIGHTS_OF_OTHERS)


def is_held(lock: Path) -> bool:
    """Return True if a process holds this lock file."""
    try:
        with filelock.FileLock(lock, timeout=0):
            return False
    except filelock.Timeout:
        return True


PROJECT_ROOT = Path(__file__).resolve().parents[2]
"""The folder that contains this package: the checkout, or the folder of installed packages."""
WORKSPACE_FILE = "workspace.yaml"
SHIPPED = Path(__file__).resolve().parents[1] / "shipped"
"""The default configuration in an installed package, as a workspace."""
DEFAULTS = SHIPPED if SHIPPED.is_dir() else PROJECT_ROOT
"""The folder of the default configuration. In a checkout it is the checkout itself."""

# The names of a control's two models, which are folders in each version of the control.
Role = Literal["exposed", "twin"]
EXPOSED: Role = "exposed"
TWIN: Role = "twin"
INSTRUMENT_CHECK = "instrument_check"
"""The control of the default configuration that checks whether detectors find known training texts."""
INSTRUMENT_CHECK_TAKES = "about 3 minutes on two cores"
"""The duration of training ``INSTRUMENT_CHECK``. Measured on one shared core: 2 minutes of CPU time, 3 in total."""
MODEL_PAGE = "model="
"""The start of the file names of models' report pages and their JSON copies."""
_CODE_LOCATION = "audit_pipeline.definitions"
# A file name may have 255 bytes. The longest name with a benchmark and a model is the folder
# partition=document_memorisation%3ABENCHMARK%7CMODEL.
_MAX_BYTES = {"benchmark": 60, "model": 158}


@lru_cache(maxsize=4096)
def to_path_segment(name: str) -> str:
    """Quote a name as one path segment, for example a hub id with slashes. See :func:`name_from_path_segment`."""
    quoted = quote(name, safe=" ()+,-.=@_")
    # The names "." and ".." would be paths to folders, so their dots are quoted.
    if set(quoted) == {"."}:
        return quoted.replace(".", "%2E")
    return quoted


def name_from_path_segment(part: str) -> str:
    """Return the name that :func:`to_path_segment` quoted."""
    return unquote(part)


def model_page_path(folder: Path, model: str) -> Path:
    """Return the path of a model's page in the folder of reports."""
    return folder / f"{MODEL_PAGE}{to_path_segment(model)}.html"


def is_text_output_allowed() -> bool:
    """Return True if warehouse and report quote audited texts by default."""
    return "CORPUS_AUDIT_NO_TEXT" not in os.environ


def explain_unusable_name(kind: str, name: str) -> str | None:
    """Return why a name cannot be used, or None if it can be used. A path to another folder is no valid name.

    Args:
        kind: The kind of thing that has the name, such as ``benchmark``.
        name: The name.
    """
    if name and ("\\" in name or not {"", ".", ".."}.isdisjoint(name.split("/"))):
        return f"{name[:80]!r} cannot be the name of a {kind}, because it is a path; choose another name"
    return None


def explain_invalid_partition(dimension: str, name: str) -> str | None:
    """Return why a benchmark or model (``dimension``) cannot have this name, or None if the name is valid."""
    if "|" in name or "..." in name or not name.isprintable() or not name.strip():
        return (
            f"{name[:80]!r} cannot be the name of a {dimension}. Choose a name that is not empty and contains no '|', "
            "no '...' and no control characters."
        )
    length = len(to_path_segment(name))
    max_bytes = _MAX_BYTES[dimension]
    if length > max_bytes:
        return (
            f"{name[:40]}… cannot be the name of a {dimension}: in a folder name it takes {length} bytes, but only "
            f"{max_bytes} bytes are possible. A slash or a non-English letter takes three bytes or more. Choose a "
            "shorter name."
        )
    return None


def find_workspace() -> Path | None:
    """Return the workspace, whose config/ and data/ are used.

    Returns:
        The nearest workspace among the current folder and its parents, else the checkout that this package runs from.
        None if the package is installed and the current folder is in no workspace.
    """
    current = Path.cwd()
    for folder in (current, *current.parents, PROJECT_ROOT):
        if is_workspace(folder):
            return folder
    return None


def is_workspace(folder: Path) -> bool:
    """Return True if a folder has a config/ and a workspace.yaml with this project's code location."""
    try:
        has_code_location = _CODE_LOCATION in (folder / WORKSPACE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return has_code_location and (folder / "config").is_dir()


def config_dir() -> Path:
    """Return the folder of the configuration files.

    It is ``CORPUS_AUDIT_CONFIG`` if set, else config/ of the workspace (:func:`find_workspace`), else the configuration
    in the package.
    """
    configured = os.environ.get("CORPUS_AUDIT_CONFIG")
    folder = Path(configured) if configured else (find_workspace() or SHIPPED) / "config"
    return folder.expanduser().resolve()


def workspace_file() -> Path:
    """Return the path of the workspace.yaml for Dagster: in the workspace, else in the package."""
    return (find_workspace() or SHIPPED) / WORKSPACE_FILE


@contextmanager
def use_workspace(folder: Path, *, own_data: bool = False) -> Iterator[None]:
    """Use the configuration and the data of a workspace within the block.

    Args:
        folder: The folder of the workspace.
        own_data: Use the workspace's data folder even if ``CORPUS_AUDIT_DATA`` is set.
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


OWN_CONFIGURATION = (
    "config/ belongs to the installed package. Run 'corpus-audit init' to create a workspace with its own config/"
)


def is_shipped(path: Path) -> bool:
    """Return True if a path is part of the installed package, which users do not edit."""
    return path.is_relative_to(SHIPPED)


class _FixedPath:
    """An attribute of DataPaths: a path below the data folder that has no parameters."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: DataPaths, _: object) -> Path:
        return paths.root / self._name


@dataclass(frozen=True)
class DataPaths:
    """The paths below a data folder. No method creates a file or folder."""

    root: Path

    downloads = _FixedPath("downloads")
    digest_cache = _FixedPath("models/digests.json")
    ledger = _FixedPath("ledger")
    """The folder of the ledger and its lock."""
    ledger_file = _FixedPath("ledger/000001.jsonl")
    """The lines of the ledger (store/ledger.py)."""
    warehouse = _FixedPath("audit.duckdb")
    reports = _FixedPath("reports")
    report = _FixedPath("reports/contamination_report.html")
    logs = _FixedPath("logs")
    """The output of libraries during errors such as a full disk."""
    rolled_day = _FixedPath("rolled_day.json")
    """The reference day, from which relative cutoffs of benchmarks are computed."""
    reported_findings = _FixedPath("reported_findings.json")
    """The findings that the sensor of alerts saw at its last tick."""
    published = _FixedPath("published.json")
    """The inputs of the current warehouse and report (pipeline/publication_state.py)."""
    claims = _FixedPath("claims")
    """The lock files of running audits (pipeline/dagster/locks.py)."""
    dagster_home = _FixedPath("dagster_home")

    @classmethod
    def of_workspace(cls, folder: Path) -> DataPaths:
        """Return the data folder of a workspace."""
        return cls(folder / "data")

    @classmethod
    def from_environment(cls) -> DataPaths:
        """Return the data folder of this process.

        It is ``CORPUS_AUDIT_DATA`` if set, else data/ of the workspace (:func:`find_workspace`), else the user's folder
        for data of programs, such as ~/.local/share/corpus-audit.

        Raises:
            DataError: If ``CORPUS_AUDIT_DATA`` is a URL.
        """
        configured = os.environ.get("CORPUS_AUDIT_DATA")
        if configured:
            if "://" in configured:
                raise DataError(
                    f"CORPUS_AUDIT_DATA={configured} is a URL. Set it to a folder, such as a mounted volume."
                )
            return cls(Path(configured).expanduser().resolve())
        workspace = find_workspace()
        if workspace is not None:
            return cls.of_workspace(workspace)
        return cls(user_data_path("corpus-audit", appauthor=False))

    def documents(self, source: str) -> Path:
        """Return the file of a source's documents."""
        return self.rewritten_file("documents", "source", source)

    def source_manifest(self, source: str) -> Path:
        """Return the manifest of a source's documents."""
        return self.documents(source).with_name("manifest.json")

    def examples(self, benchmark: str) -> Path:
        """Return the file of a benchmark's examples."""
        return self.rewritten_file("examples", "benchmark", benchmark)

    def benchmark_manifest(self, benchmark: str) -> Path:
        """Return the manifest of a benchmark's examples."""
        return self.examples(benchmark).with_name("manifest.json")

    def split_quality(self, benchmark: str) -> Path:
        """Return the file of a benchmark's split quality."""
        return self.root / "split_quality" / f"benchmark={to_path_segment(benchmark)}" / "quality.parquet"

    def token_statistics(self, kind: str, model_fingerprint: str) -> Path:
        """Return the folder of a model's cached token statistics of one kind."""
        return self.root / "token_statistics" / f"kind={kind}" / f"model={model_fingerprint}"

    def model_card(self, model_fingerprint: str) -> Path:
        """Return the file of a model's card."""
        return self.root / "models" / f"{model_fingerprint}.json"

    def stored_tokenizers(self, tokenizer_fingerprint: str) -> Path:
        """Return the folder of a tokenizer in a format that loads fast. It has one subfolder per format version."""
        return self.root / "models" / "tokenizers" / tokenizer_fingerprint

    def converted_models(self, weights_digest: str) -> Path:
        """Return the folder of a .gguf file's weights as safetensors, one subfolder per dtype and converter version."""
        return self.root / "models" / "converted" / weights_digest

    def endpoint(self, digest_of_entry: str) -> Path:
        """Return the file with the probed properties of one model of an endpoint."""
        return self.root / "models" / "endpoints" / f"{digest_of_entry}.json"

    def load_check(self, model_fingerprint: str, devices: str | None = None) -> Path:
        """Return the file with the load check of a model's forward pass on this machine.

        Args:
            model_fingerprint: The fingerprint of the model.
            devices: The value of ``devices`` in the model's entry.
        """
        name = model_fingerprint if devices is None else f"{model_fingerprint}.{devices}"
        return self.root / "models" / "checks" / f"{name}.json"

    def load_checks(self, model_fingerprint: str) -> list[Path]:
        """Return the files of a model's existing load checks, on one device and on several devices."""
        return sorted(self.load_check(model_fingerprint).parent.glob(f"{model_fingerprint}.*json"))

    def token_frequencies(self, corpus: str, tokenizer_fingerprint: str) -> Path:
        """Return the file with the counts of a tokenizer's tokens in a corpus."""
        name = f"tokenizer={tokenizer_fingerprint}.parquet"
        return self.root / "token_frequencies" / f"corpus={to_path_segment(corpus)}" / name

    def token_frequencies_of(self, partition: str) -> Path:
        """Return the file with token counts for a partition name, ``corpus|tokenizer``."""
        return self.token_frequencies(*partition.rsplit("|", 1))

    def control_pointer(self, control: str) -> Path:
        """Return the file that contains the current version of a trained control."""
        return self.root / "controls" / to_path_segment(control) / "current.json"

    def control_version(self, control: str, version: str) -> Path:
        """Return the folder of a version of a control."""
        return self.control_pointer(control).parent / version

    def study(self, name: str) -> Path:
        """Return the file with the results of a study."""
        return self.root / "control_studies" / f"study={to_path_segment(name)}" / "results.parquet"

    def table(self, name: str) -> Path:
        """Return the folder of a table, which has one subfolder per partition."""
        return self.root / name

    def run_file(self, table: str, partition: str, run_id: str) -> Path:
        """Return the file that a run adds to a partition of an append-only table."""
        folder = self.table(table) / f"partition={to_path_segment(partition)}"
        return folder / f"run_id={to_path_segment(run_id)}.parquet"

    def rewritten_file(self, table: str, partitioned_by: str, partition: str) -> Path:
        """Return the file of a partition that every run replaces."""
        return self.table(table) / f"{partitioned_by}={to_path_segment(partition)}" / f"{table}.parquet"
