"""Verifying a pack: whether it is as it was written, and whether its findings follow from what it holds.

What belongs here: the checks, in the order in which an expert asks for them, and their answers in words. What does not:
what a pack holds (pack.py), printing (cli/exhibit.py).

Findings are computed again by the code that computed them, from the pack's own cached statistics and without the model:
the pack is unpacked into a workspace of its own, whose models are known by their cards.
"""

from __future__ import annotations

import errno
import hashlib
import lzma
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import (
    DOCUMENT_MEMORISATION,
    EXAMPLES,
    EXTRACTION_WINDOWS,
    PLANS,
    SCORES,
    TABLES,
    TOKEN_STATISTICS,
    Pair,
    Table,
    text_sha256,
)
from audit_pipeline.catalogue.files import read_json, read_table
from audit_pipeline.catalogue.integrity import ROW_SHA256, file_sha256
from audit_pipeline.catalogue.lineage import (
    LatestRun,
    LineageEntry,
    LineageStep,
    code_digest,
    digests_by_file,
    file_of,
    find_missing_files,
    iterate_entries,
    pair_entries_with_files,
    read_latest_run,
)
from audit_pipeline.catalogue.lineage_chain import ChainRecord, follow_chain, order_chain
from audit_pipeline.catalogue.paths import DataPaths, use_workspace
from audit_pipeline.endpoints.used_endpoints import Endpoints
from audit_pipeline.errors import AuditError, DataError, ModelError, is_full_disk, to_one_line
from audit_pipeline.evidence.findings import compute_findings
from audit_pipeline.exhibit.pack import (
    PACK,
    PLANS_FOLDER,
    WORKSPACE,
    list_emptied_columns,
    plan_file_name,
    reduce_entries,
)
from audit_pipeline.exhibit.plan import RESULTS, SealedPlan, explain_late_plan, plan_from_row
from audit_pipeline.exhibit.timestamps import require_signature
from audit_pipeline.extraction.windows import encode_windows_at, read_windows, run_windows
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenizer
from audit_pipeline.operate.stages.benchmarks import read_or_assess_split
from audit_pipeline.operate.stages.evaluations import EVALUATIONS_VERSION, evaluate_pair
from audit_pipeline.operate.stages.extraction import (
    EXTRACTION_VERSION,
    documents_of,
    extract_pair,
    search_options_from_lineage,
)
from audit_pipeline.operate.stages.scores import SCORES_VERSION, score_pair
from audit_pipeline.scoring.backends import build_backend_loader
from audit_pipeline.token_statistics.backend import Backend
from audit_pipeline.token_statistics.cached_texts import Caches, read_statistics
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import EncodedText
from audit_pipeline.warehouse.build import read_lineage_chain

TOLERANCE = {"float32": 1e-4, "float16": 0.012, "bfloat16": 0.12}
"""How far the log-probabilities of a pass on another machine may be from the packed ones, the mean over all tokens in
nats, by dtype: in 16 bits twice what separates them from float32 (docs/measurements.md)."""

_NEVER = datetime.max.replace(tzinfo=UTC)
_RUN = "verify"
_GENERATED = ("log_p_near_verbatim", "given_text", "suffix_words", "words_in_common")
"""What comes of letting a model go on: it is in no cache."""
_OF_PASSES = ("dtype", "attention", "compile", "start_token", "start_token_policy", "window", "stride")
_Logprobs = Mapping[str, npt.NDArray[np.floating]]
_Item = TypeVar("_Item")
_Model = TypeVar("_Model", bound=BaseModel)

_MANIFEST, _TAG_MANIFEST = "manifest-sha256.txt", "tagmanifest-sha256.txt"
_LARGEST_MANIFEST = 1 << 28
_BROKEN_ZIP = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError),
    *(ValueError, OverflowError, NotImplementedError, RuntimeError),
)
"""All that zipfile raises of a file that is damaged, cut, locked or made up."""


@dataclass(frozen=True)
class Check:
    """What was checked and what came of it; ``ok`` None: it neither passed nor failed, and the words say why."""

    what: str
    ok: bool | None
    words: str


@dataclass(frozen=True)
class Rerun:
    """How many texts, and how many windows, are run again, drawn by which seed, and with which weights."""

    count: int
    seed: int
    weights: ModelEntry


def verify_pack(
    file: Path, *, rerun: Rerun | None, certificates: Path | None, on_step: Callable[[str], None]
) -> Iterator[Check]:
    """Every check of the pack in ``file``, as they are made. The pack is not changed.

    ``certificates``: those of timestamp authorities that the verifier trusts (PEM). Whatever the file holds, a check
    says what is wrong with it. Raises OSError where there is no room to unpack it.
    """
    with tempfile.TemporaryDirectory(prefix="corpus-audit-") as made:
        on_step("the files")
        files = _check_files(file)
        yield files
        if not files.ok:
            yield Check("everything else", None, "not checked: files are not as they were packed")
            return
        yield from _attempt("everything else", _check_content(file, Path(made), rerun, certificates, on_step))
        yield Check("report", None, "a copy for reading, not checked: what counts are the tables")


def _check_content(
    file: Path, folder: Path, rerun: Rerun | None, certificates: Path | None, on_step: Callable[[str], None]
) -> Iterator[Check]:
    """Every check of what the files hold; ``folder``: an empty one to unpack them into."""
    payload = _unpack(file, folder) / "data"
    about = _read_description(payload / PACK, _Description)
    links = [link.model_dump() for link in about.other_rows]
    _reduce_configuration(payload / WORKSPACE / "config" / "models.yaml")
    yield from _attempt("code", _check_code(payload))
    with use_workspace(payload / WORKSPACE, own_data=True):
        paths = DataPaths.from_environment()
        on_step("the lineage")
        packed_rows = read_lineage_chain(paths)[0]
        order = order_chain([*packed_rows, *links], about.chain)
        yield _check_lineage(packed_rows, links, about.chain)
        yield from _attempt("tables against lineage", _check_tables(packed_rows, paths, payload, about))
        model = load_tokenizer(load_models().named(about.model), paths)
        verification = _Verification(model, paths, payload, about.redacted, packed_rows, order)
        for pair in (Pair(benchmark, about.model) for benchmark in about.benchmarks):
            yield from _attempt(f"plan of {pair.benchmark}", verification.check_plans(pair, certificates))
            on_step(f"the findings of {pair.benchmark}")
            yield from _attempt(f"findings of {pair.benchmark}", verification.check_findings(pair))
            if rerun is not None:
                on_step(f"{rerun.count} texts and windows of {pair.benchmark}, run again")
                again = verification.check_rerun(pair, rerun)
                yield from _attempt(f"{pair.benchmark} run again", again)


class _Link(BaseModel):
    """A row of the lineage that is in the pack as a link alone."""

    row_sha256: str
    previous_sha256: str | None


class _Description(BaseModel):
    """What pack.json says."""

    model_config = ConfigDict(extra="ignore", arbitrary_types_allowed=True)

    model: str
    benchmarks: Annotated[list[str], Field(min_length=1)]
    redacted: bool
    emptied: dict[str, str]
    chain: ChainRecord
    other_rows: list[_Link]


class _Environment(BaseModel):
    """What environment.json says."""

    code_digest: str


def _read_description(path: Path, shape: type[_Model]) -> _Model:
    """What a JSON file of the pack says, which describes the pack; raises DataError where that has another shape."""
    try:
        return shape.model_validate(read_json(path))
    except FileNotFoundError as error:
        raise DataError(f"{path.name} is missing") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path.name} cannot be used: {where + ': ' if where else ''}{first['msg']}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path.name} cannot be used: {error}") from error


def _reduce_configuration(path: Path) -> None:
    """Leave of the models' entries what a pack writes: an entry could name files, servers or code besides."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))["models"]
        reduced = reduce_entries(given)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, yaml.YAMLError) as error:
        raise DataError(f"the entries of models in {path.name} cannot be used: {error}") from error
    path.write_text(yaml.safe_dump({"models": reduced}), encoding="utf-8")


def _check_code(payload: Path) -> Iterator[Check]:
    """Whether the verifier's code is that which made the pack."""
    theirs, ours = _read_description(payload / "environment.json", _Environment).code_digest, code_digest()
    if theirs == ours:
        yield Check("code", True, f"the same that made the pack: {ours[:16]}")
        return
    words = f"another than made the pack ({theirs[:16]}, here {ours[:16]}): numbers may differ for that reason"
    yield Check("code", None, words)


def _attempt(what: str, checks: Iterator[Check]) -> Iterator[Check]:
    """The checks, and one that failed where an error stops them: a damaged file, statistics that are missing.

    What a pack holds was written by others, so that any error may come of it.
    """
    try:
        yield from checks
    except AuditError as error:
        yield Check(what, False, f"stopped: {error}")
    except Exception as error:
        if isinstance(error, OSError) and is_full_disk(error):
            raise
        yield Check(what, False, f"stopped by what the pack holds ({type(error).__name__}): {to_one_line(error)}")


def _check_files(file: Path) -> Check:
    """Whether the zip file holds one bag: every file that its manifests name, with its sha256, and nothing else."""
    try:
        with zipfile.ZipFile(file) as archive:
            problems, files = [*_find_problems(archive)], sum(not member.is_dir() for member in archive.infolist())
    except _BROKEN_ZIP as error:
        return Check("files", False, f"cannot be unpacked: {to_one_line(error)}")
    if problems:
        return Check("files", False, f"not as they were packed: {'; '.join(problems)}")
    return Check("files", True, f"{files:,} files are as they were packed, by their sha256, and there is nothing else")


def _find_problems(archive: zipfile.ZipFile) -> Iterator[str]:
    """In words, whatever of a zip file is not as the manifests of its bag say.

    The package bagit, which makes the bag, does not serve here: it stops at a wrong Payload-Oxum without naming a file,
    passes over lines of a manifest that it cannot read, and does not see files beside the manifests.
    """
    members = {member.filename: member for member in archive.infolist()}
    bags = [name for name in members if re.fullmatch(r"[^/]+/bagit\.txt", name)]
    if len(bags) != 1:
        yield f"it is no pack: bagit.txt is in {len(bags)} folders ({', '.join(bags) or 'none'}), and belongs in one"
        return
    folder = bags[0].removesuffix("bagit.txt")
    digests: dict[str, str | None] = {f"{folder}{_TAG_MANIFEST}": None}
    for manifest in (_TAG_MANIFEST, _MANIFEST):
        digests |= {
            f"{folder}{name}": digest for name, digest in _read_manifest(archive, f"{folder}{manifest}").items()
        }
    folders = {str(parent) for name in digests for parent in PurePosixPath(name).parents}
    for name, count in Counter(member.filename for member in archive.infolist()).items():
        member = members[name]
        is_folder = member.is_dir() and not member.file_size and name.rstrip("/") in folders
        if count > 1:
            yield f"{name} is there {count} times"
        if name not in digests and not is_folder:
            yield f"{name} is not in the manifests"
        elif stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            yield f"{name} is no file but a link or a device"
    for name, digest in digests.items():
        if name not in members:
            yield f"{name} is missing"
        elif name in folders or not _is_safe(name):
            yield f"{name} is no name of a file within the pack"
        elif digest is not None and (problem := _compare_member(archive, members[name], digest)) is not None:
            yield f"{name} {problem}"


def _read_manifest(archive: zipfile.ZipFile, name: str) -> dict[str, str]:
    """The sha256 of every file that a manifest of a bag names (RFC 8493, 2.1.3); none where it is missing."""
    if name not in archive.namelist():
        return {}
    try:
        with archive.open(name) as file:
            content = file.read(_LARGEST_MANIFEST).decode("utf-8")
    except _BROKEN_ZIP as error:
        raise zipfile.BadZipFile(f"{name}: {error}") from error
    digests = {}
    for line in filter(None, content.split("\n")):
        entry = re.fullmatch(r"([0-9a-f]{64}) +(.+)", line)
        if entry is None:
            raise zipfile.BadZipFile(f"{name}: {line[:80]!r} is no sha256 with a name")
        digests[entry[2].replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")] = entry[1]
    return digests


def _is_safe(name: str) -> bool:
    """Whether a name unpacks to itself, below the folder."""
    return not {"", ".", ".."} & {*name.split("/")}


def _compare_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, digest: str) -> str | None:
    """What is wrong with a member; None where it has this sha256."""
    try:
        with archive.open(member) as content:
            # It has all that file_digest asks for, which its types do not say.
            found = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
            size = content.tell()
    except _BROKEN_ZIP as error:
        return f"cannot be unpacked: {to_one_line(error)}"
    return None if (found, size) == (digest, member.file_size) else "is not as it was packed"


def _unpack(file: Path, folder: Path) -> Path:
    """The folder of the bag in a zip file whose files are checked; raises OSError where there is no room for it."""
    with zipfile.ZipFile(file) as archive:
        size, free = sum(member.file_size for member in archive.infolist()), shutil.disk_usage(folder).free
        if size > free:
            words = f"{file} unpacks to {size:,} bytes, and {free:,} are free: set TMPDIR to a folder with more"
            raise OSError(errno.ENOSPC, words, str(folder))
        archive.extractall(folder)
    [bag] = folder.iterdir()
    return bag


def _check_lineage(rows: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]], record: ChainRecord) -> Check:
    """Whether every lineage row follows the one before it; rows of other pairs are in the pack as links alone."""
    what = "chain of the lineage"
    found = follow_chain([*rows, *links], record)
    if found.problems:
        return Check(what, False, "; ".join(found.problems))
    withdrawn = "".join(f"; {count:,} {reason}" for reason, count in found.withdrawn.items())
    earlier = f"; {found.earlier:,} of earlier versions have no link" if found.earlier else ""
    others = f"; {len(links):,} are links alone: what they are of cannot be seen here" if links else ""
    return Check(what, True, f"{found.linked:,} rows follow one another{withdrawn}{earlier}{others}")


def _check_tables(
    rows: Sequence[Mapping[str, Any]], paths: DataPaths, payload: Path, about: _Description
) -> Iterator[Check]:
    """Whether every table is the file that its lineage row names, none is missing, and none was put in."""
    what = "tables against lineage"
    names = [field.name for field in fields(LineageEntry)]
    entries = [LineageEntry(**{name: row[name] for name in names}) for row in rows]
    explained = pair_entries_with_files([entry for entry in entries if not _is_of_cache(entry)], paths)
    gone = [gap for gap in find_missing_files(explained, Path.is_file) if gap.run_went_on or not gap.superseded]
    problems = [f"{gap.entry.table} of {gap.entry.partition} is missing" for gap in gone]
    digests = digests_by_file(explained)
    files = {file: table for table, folder in _iterate_table_folders(paths) for file in folder.rglob("*.parquet")}
    for file in sorted(files):
        name = file.relative_to(payload).as_posix()
        digest = about.emptied.get(name)
        if digest is not None and not (about.redacted and _is_empty_of_texts(file, files[file])):
            problems.append(f"{name} is said to be emptied of texts, and is not")
        elif (digest or file_sha256(file)) not in digests.get(file, ()):
            problems.append(f"{name} is not the file that its lineage row names")
    if about.redacted and any(paths.table(TOKEN_STATISTICS.name).rglob("*.parquet")):
        problems.append("the pack says that it is redacted, and holds cached statistics")
    if problems:
        yield Check(what, False, "; ".join(problems))
        return
    without_texts = f"; {len(about.emptied)} of them without their texts" if about.emptied else ""
    yield Check(what, True, f"{len(files):,} files are those that the lineage names{without_texts}")


def _iterate_table_folders(paths: DataPaths) -> Iterator[tuple[Table, Path]]:
    for table in TABLES.values():
        if table.has_files and not table.is_record:
            yield from ((table, folder) for _, folder in store.iterate_partitions(paths, table))


def _is_of_cache(entry: LineageEntry) -> bool:
    return entry.table in TABLES and TABLES[entry.table].kept == "cache"


def _is_empty_of_texts(file: Path, table: Table) -> bool:
    """Whether a file could be emptied and is: every column that holds or quotes texts is without content."""
    columns = list_emptied_columns(table)
    rows = pq.read_table(file)
    held = [value for name in columns & {*rows.column_names} for value in rows[name].to_pylist()]
    return bool(columns) and not any(held)


@dataclass(frozen=True)
class _Verification:
    """The checks of single pairs: a model that is known by its card, in the unpacked workspace."""

    model: TokenizedModel
    paths: DataPaths
    payload: Path
    redacted: bool
    rows: Sequence[Mapping[str, Any]]
    order: Mapping[str, int]

    def check_plans(self, pair: Pair, certificates: Path | None) -> Iterator[Check]:
        """Whether every sealed plan is as it was sealed, and whether the findings were planned beforehand by it."""
        what = f"plan of {pair.benchmark}"
        files = self._list_run_files(PLANS, pair)
        if not files:
            yield Check(what, None, "not planned beforehand: no plan was sealed")
        sealed: dict[tuple[str, datetime], list[tuple[SealedPlan, int, str]]] = {}
        for file in files:
            [row] = read_table(file, PLANS, label=what).to_pylist()
            try:
                plan = plan_from_row(row)
                self._require_written_plan(plan, pair)
                place = self._place_plan(plan, row["run_id"], pair)
                stamp = _describe_timestamp(plan, certificates)
            except DataError as error:
                yield Check(what, False, str(error))
            else:
                sealed.setdefault((plan.sha256, plan.sealed_at), []).append((plan, place, stamp))
        # A timestamp that was added later has a row of its own: the plan is as old as its first row.
        places = {key: min(place for _, place, _ in rows) for key, rows in sealed.items()}
        for key, rows in sealed.items():
            plan, _, stamp = min(rows, key=lambda row: row[0].timestamp.time if row[0].timestamp else _NEVER)
            others = [place for other, place in places.items() if other != key]
            late = self._explain_not_planned(plan, places[key], others, pair)
            order = f"not planned beforehand: {'; '.join(late)}" if late else "by the lineage before the findings"
            words = f"{order}; sealed on {plan.sealed_at:%F %T} UTC, sha256 {plan.sha256}; {stamp}"
            yield Check(what, None if late else True, words)

    def _require_written_plan(self, plan: SealedPlan, pair: Pair) -> None:
        """Raise DataError where the files in plans/ are not the plan and its timestamp."""
        written = self.payload / PLANS_FOLDER / plan_file_name(pair.benchmark, plan.sha256)
        content, answer = written.with_suffix(".json"), written.with_suffix(".tsr")
        if not content.is_file() or content.read_text(encoding="utf-8") != plan.content:
            raise DataError(f"{content.name} is not the plan that was sealed")
        if plan.timestamp is not None and (not answer.is_file() or answer.read_bytes() != plan.timestamp.response):
            raise DataError(f"{answer.name} is not the timestamp of the plan")

    def _place_plan(self, plan: SealedPlan, run_id: str, pair: Pair) -> int:
        """Where the plan is in the lineage, whatever clocks say.

        Raises DataError where it names a lineage row that came after it, or is gone.
        """
        of_plan = self._place_of(PLANS.name, pair, run_id)
        if plan.lineage_head is not None and not self.order.get(plan.lineage_head, of_plan) < of_plan:
            raise DataError(
                "the lineage row that was the last when the plan was sealed is gone, or came after the plan"
            )
        return of_plan

    def _explain_not_planned(self, plan: SealedPlan, place: int, others: Sequence[int], pair: Pair) -> list[str]:
        """Why the current findings were not planned beforehand by ``plan``, which is at ``place`` in the lineage;
        ``others``: the places of the other plans. Empty where they were."""
        runs = {
            table.name: read_latest_run(self.paths, table.name, pair.partition)
            for table in (SCORES, DOCUMENT_MEMORISATION)
            if self._list_run_files(table, pair)
        }
        places = {name: self._place_of(name, pair, run.run_id) for name, run in runs.items()}
        late = [name for name, at in places.items() if at < place]
        is_replaced = any(place < other < at for other in others for at in places.values())
        entries = [
            entry
            for name, run in runs.items()
            for entry in iterate_entries(self.paths, name, pair.partition)
            if entry["run_id"] == run.run_id
        ]
        other = [name for name, value in plan.digests.items() if any(entry[name] != value for entry in entries)]
        has_other_texts = not self.redacted and plan.texts != self._digest_documents(pair)
        return [
            *([f"by the lineage it came AFTER the current {' and '.join(late)}"] if late else []),
            *(["another plan was sealed after it and before the findings"] if is_replaced else []),
            *([f"the findings have another {' and another '.join(other).replace('_', ' ')}"] if other else []),
            *(["its texts are others than those of the pack"] if has_other_texts else []),
            *explain_late_plan(plan, pair, self.paths),
        ]

    def _place_of(self, table: str, pair: Pair, run_id: str) -> int:
        """The place in the chain of the row of a run; of an earlier version's row, before all."""
        of_run = (table, pair.partition, run_id)
        found = [row for row in self.rows if (row["table"], row["partition"], row["run_id"]) == of_run]
        return max((self.order.get(row[ROW_SHA256], -1) for row in found), default=-1)

    def _digest_documents(self, pair: Pair) -> Mapping[str, str]:
        documents = documents_of(pair.benchmark, self.model.entry, self.paths)
        return {document.name: text_sha256(document.text) for document in documents}

    def check_findings(self, pair: Pair) -> Iterator[Check]:
        """Compute scores, findings and what extraction shows again, and compare every number."""
        runs = {
            table: read_latest_run(self.paths, table.name, pair.partition)
            for table in RESULTS
            if self._list_run_files(table, pair)
        }
        if SCORES not in runs and DOCUMENT_MEMORISATION not in runs:
            raise DataError("the pack holds neither scores nor a search, so there is no finding")
        packed = {table: self._read_run(table, pair, run.run_id) for table, run in runs.items()}
        earlier = sum(len(self._list_run_files(table, pair)) - 1 for table in runs)
        again = self._compute_redacted(pair, packed) if self.redacted else self._compute(pair, runs)
        for table, rows in packed.items():
            what = f"{table.name} of {pair.benchmark}"
            if table not in again:
                yield Check(what, None, "not computed again" + (": the pack is redacted" if self.redacted else ""))
                continue
            difference = find_difference(table, rows, again[table])
            equal = f"{len(rows):,} rows computed again are equal to the last digit"
            yield Check(what, difference is None, difference or equal)
        if earlier:
            words = f"{earlier:,} tables of earlier runs are not computed again: their files are those of the lineage"
            yield Check(f"earlier runs of {pair.benchmark}", None, words)

    def _list_run_files(self, table: Table, pair: Pair) -> list[Path]:
        return sorted(self.paths.run_file(table.name, pair.partition, "any").parent.glob("*.parquet"))

    def _read_run(self, table: Table, pair: Pair, run_id: str) -> pa.Table:
        return read_table(file_of(self.paths, table, pair.partition, run_id), table, label=table.name)

    def _compute(self, pair: Pair, runs: Mapping[Table, LatestRun]) -> dict[Table, pa.Table]:
        """The tables of a pair, computed again from the cache by the stages of an audit."""
        step = partial(LineageStep.now, _RUN)
        if SCORES in runs:
            score_pair(pair, self.model, self.paths, step("scores", SCORES_VERSION))
            evaluate_pair(pair, self.model, self.paths, step("evaluations", EVALUATIONS_VERSION))
        if DOCUMENT_MEMORISATION in runs:
            options = search_options_from_lineage(runs[DOCUMENT_MEMORISATION].settings)
            search = step("extraction", EXTRACTION_VERSION)
            extract_pair(pair, self.model, self.paths, _refuse_to_run, search, options, generate=False)
        return {
            table: self._read_run(table, pair, _RUN)
            for table in runs
            if file_of(self.paths, table, pair.partition, _RUN).is_file()
        }

    def _compute_redacted(self, pair: Pair, packed: Mapping[Table, pa.Table]) -> dict[Table, pa.Table]:
        """The findings of a pair, computed again from the packed scores."""
        label = f"the examples of {pair.benchmark}"
        examples = read_table(self.paths.examples(pair.benchmark), EXAMPLES, label=label)
        split = read_or_assess_split(read_built(self.paths, pair.benchmark), self.paths, _RUN)
        found = compute_findings(packed[SCORES], examples, pair, split.assessed, _RUN)
        return {TABLES[name]: rows for name, rows in found.tables.items()}

    def check_rerun(self, pair: Pair, rerun: Rerun) -> Iterator[Check]:
        """Run texts and windows that the verifier's seed draws, with the verifier's weights, and compare."""
        if self.redacted:
            yield Check(f"{pair.benchmark} run again", None, "the pack is redacted, so there is no text to run")
            return
        if not (self.model.entry.host.is_here and rerun.weights.host.is_here):
            yield Check(f"{pair.benchmark} run again", None, "a model behind an interface is not run again")
            return
        generator = np.random.default_rng(rerun.seed)
        with tempfile.TemporaryDirectory(prefix="corpus-audit-") as made:
            fresh = DataPaths(Path(made))
            own = load_tokenizer(_put_weights(self.model.entry, rerun.weights), fresh)
            if own.identity.model_fingerprint != self.model.identity.model_fingerprint:
                raise ModelError(f"{rerun.weights.name} is another model than the one that the pack is of")
            backend = partial(build_backend_loader(fresh, None, Endpoints()), own)
            texts = _draw(sorted(read_built(self.paths, pair.benchmark).texts), rerun.count, generator)
            compute(own, texts, fresh, backend)
            packed, again = (
                _read_logprobs(model, texts, place) for model, place in ((self.model, self.paths), (own, fresh))
            )
            yield self._compare_logprobs(f"texts of {pair.benchmark} run again", packed, again, rerun)
            windows = _draw(self._list_windows(pair), rerun.count, generator)
            if windows:
                caches = Caches(fresh)
                run_windows(own, windows, caches, backend)
                packed, again = (
                    _read_window_logprobs(model, windows, where)
                    for model, where in ((self.model, Caches(self.paths)), (own, caches))
                )
                yield self._compare_logprobs(f"windows of {pair.benchmark} run again", packed, again, rerun)

    def _list_windows(self, pair: Pair) -> list[EncodedText]:
        """Every window of the current search."""
        if not self._list_run_files(EXTRACTION_WINDOWS, pair):
            return []
        run = read_latest_run(self.paths, EXTRACTION_WINDOWS.name, pair.partition)
        options = search_options_from_lineage(run.settings)
        starts: dict[str, list[int]] = {}
        for row in self._read_run(EXTRACTION_WINDOWS, pair, run.run_id).select(["document_id", "start"]).to_pylist():
            starts.setdefault(row["document_id"], []).append(row["start"])
        texts = {
            document.name: document.text[: options.characters]
            for document in documents_of(pair.benchmark, self.model.entry, self.paths)
        }
        return [
            window
            for name, places in sorted(starts.items())
            for window in encode_windows_at(self.model, texts[name], places, options.lengths)
        ]

    def _compare_logprobs(self, what: str, packed: _Logprobs, again: _Logprobs, rerun: Rerun) -> Check:
        if {key: len(values) for key, values in packed.items()} != {key: len(values) for key, values in again.items()}:
            return Check(what, False, "the pack lacks some that were run, or their tokens are others")
        distances = np.concatenate([np.abs(packed[key] - again[key]) for key in packed])
        mean, largest = float(distances.mean()), float(distances.max())
        dtype = self.model.entry.dtype
        words = (
            f"{len(packed)}, drawn by the seed {rerun.seed}: log-probabilities differ by {mean:.2g} nat a token in the"
            f" mean, {largest:.2g} at most; the tolerance is a mean of {TOLERANCE[dtype]:g} ({dtype})"
        )
        return Check(what, mean <= TOLERANCE[dtype], words)


def _describe_timestamp(plan: SealedPlan, certificates: Path | None) -> str:
    stamp = plan.timestamp
    if stamp is None:
        return "no timestamp, so the time is this machine's word alone"
    by = f"timestamp of {stamp.authority or 'an unnamed authority'}, {stamp.time:%F %T} UTC"
    if certificates is None:
        return f"{by}; its signature was not checked: name the authority's certificates (--certificates)"
    require_signature(stamp.response, plan.content.encode(), certificates)
    return f"{by}; its signature is confirmed"


def _refuse_to_run(model: TokenizedModel) -> Backend:
    raise ModelError(f"the pack lacks cached statistics of {model.entry.name}, which would have to be run")


def find_difference(table: Table, packed: pa.Table, again: pa.Table) -> str | None:
    """What differs between the rows of a table as packed and as computed again, whatever their order and run.

    None where nothing does.
    """
    names = [name for name in table.names if name not in ("run_id", *_GENERATED)]
    key = [(name, "ascending") for name in table.key if name in names]
    mine, theirs = (rows.select(names).sort_by(key).combine_chunks() for rows in (packed, again))
    if len(mine) != len(theirs):
        return f"{len(mine):,} rows are packed, {len(theirs):,} are computed again"
    for name in names:
        if not mine[name].equals(theirs[name]):
            return f"{name} differs{_describe_greatest_difference(mine[name], theirs[name])}"
    return None


def _describe_greatest_difference(packed: pa.ChunkedArray, again: pa.ChunkedArray) -> str:
    if not pa.types.is_floating(packed.type):
        return ""
    mine, theirs = (values.to_numpy(zero_copy_only=False).astype(float) for values in (packed, again))
    return f", by up to {np.nanmax(np.abs(mine - theirs), initial=0.0):.3g}"


def _put_weights(packed: ModelEntry, weights: ModelEntry) -> ModelEntry:
    """The verifier's entry, run as the packed one says: what decides numbers."""
    return weights.model_copy(update={name: getattr(packed, name) for name in _OF_PASSES})


def _draw(items: Sequence[_Item], count: int, generator: np.random.Generator) -> list[_Item]:
    return [items[number] for number in generator.permutation(len(items))[:count]]


def _read_logprobs(model: TokenizedModel, texts: Sequence[str], paths: DataPaths) -> _Logprobs:
    """The cached log-probabilities of every text's tokens, by its sha256."""
    rows = read_statistics(model, texts, paths)
    values = map(np.asarray, rows["logprob"].to_pylist())
    return dict(zip(rows["text_sha256"].to_pylist(), values, strict=True))


def _read_window_logprobs(model: TokenizedModel, windows: Sequence[EncodedText], caches: Caches) -> _Logprobs:
    """The cached log-probabilities of every window's suffix, by its document and beginning."""
    rows = read_windows(model, windows, caches)
    keys = zip(rows["text_sha256"].to_pylist(), rows["start"].to_pylist(), strict=True)
    values = map(np.asarray, rows["logprob"].to_pylist())
    return {f"{sha256} {start}": value for (sha256, start), value in zip(keys, values, strict=True)}
