"""Verifying a pack: whether it is as it was written, and whether its findings follow from what it holds.

Findings are computed again by the code that computed them, from the pack's own cached statistics and without the model:
the pack is unpacked into a workspace of its own, whose models are known by their cards. A pack was written by others:
whatever it holds, a check says what is wrong with it.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import yaml

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.errors import DataError, ModelError, escape_unprintable, is_full_disk, to_one_line
from audit_pipeline.extras.evidence_packs.pack import PACK, WORKSPACE, reduce_entries
from audit_pipeline.extras.evidence_packs.sealed_plan import (
    DIGESTS,
    RESULTS,
    SealedPlan,
    explain_late_plan,
    plan_from_row,
)
from audit_pipeline.extras.evidence_packs.timestamps import require_signature
from audit_pipeline.extras.extraction.pair_extraction import EXTRACTION_VERSION, extract_pair, read_searched_documents
from audit_pipeline.extras.extraction.window_probabilities import encode_windows_at, read_windows, run_windows
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized
from audit_pipeline.pipeline.evaluate_pair import EVALUATIONS_VERSION, evaluate_pair
from audit_pipeline.scoring.backends import build_backend_loader
from audit_pipeline.scoring.pair_scores import SCORES_VERSION, score_and_store_pair
from audit_pipeline.scoring.used_endpoints import Endpoints
from audit_pipeline.store.files import read_json, read_table
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.store.ledger import LineageStep, file_of, read_latest_run, read_ledger
from audit_pipeline.store.ledger_records import Entry, Ledger
from audit_pipeline.store.paths import DataPaths, use_workspace
from audit_pipeline.store.versions import code_digest
from audit_pipeline.tables import DOCUMENT_MEMORISATION, EXTRACTION_WINDOWS, PLANS, SCORES, Pair, Table, text_sha256
from audit_pipeline.token_statistics.backend import Backend
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import EncodedText
from audit_pipeline.warehouse.verified_files import verify_files

TOLERANCE = {"float32": 1e-4, "float16": 0.012, "bfloat16": 0.12}
"""How far the log-probabilities of a pass on another machine may be from the packed ones, the mean over all tokens in
nats, by dtype: in 16 bits twice what separates them from float32 (docs/measurements.md)."""

_RUN = "verify"
_GENERATED = ("log_p_near_verbatim", "given_text", "suffix_words", "words_in_common")
"""What comes of letting a model go on: it is in no cache."""
_RUN_BY_MODEL = (SCORES, DOCUMENT_MEMORISATION)
_PASS_SETTINGS = ("dtype", "attention", "compile", "start_token", "start_token_policy", "window", "stride")
_MANIFEST, _TAG_MANIFEST = "manifest-sha256.txt", "tagmanifest-sha256.txt"
_LARGEST_RATIO = 200


@dataclass(frozen=True)
class PackCheck:
    """What was checked and what came of it; ``ok`` None: it neither passed nor failed, and the words say why."""

    what: str
    ok: bool | None
    words: str


@dataclass(frozen=True)
class PackRerun:
    """How many texts, and how many windows, are run again, drawn by which seed, and with which weights."""

    count: int
    seed: int
    weights: ModelEntry


def verify_pack(
    file: Path, *, rerun: PackRerun | None, certificates: Path | None, on_step: Callable[[str], None]
) -> Iterator[PackCheck]:
    """Yield every check of the pack in ``file``, as it is made. The pack is not changed.

    ``certificates``: those of timestamp authorities that the verifier trusts (PEM). Raises OSError where the disk is
    full.
    """
    with tempfile.TemporaryDirectory(prefix="corpus-audit-") as folder:
        on_step("the files")
        unpacked = list(_attempt("files", _unpack(file, Path(folder))))
        yield from unpacked
        if not all(check.ok for check in unpacked):
            yield PackCheck("everything else", None, "not checked: files are not as they were packed")
            return
        [tags] = Path(folder).glob(f"*/{_TAG_MANIFEST}")
        checks = _check_payload(tags.parent / "data", rerun, certificates, on_step)
        yield from _attempt("everything else", checks)


def _attempt(what: str, checks: Iterator[PackCheck]) -> Iterator[PackCheck]:
    """Yield the checks, and a failed one where an error stops them: any error may come of what others wrote."""
    try:
        yield from checks
    except Exception as error:
        if isinstance(error, OSError) and is_full_disk(error):
            raise
        yield PackCheck(what, False, f"stopped by {type(error).__name__}: {to_one_line(error)}")


def _unpack(file: Path, folder: Path) -> Iterator[PackCheck]:
    """Unpack the bag in a zip file; check that it holds every file that its manifests name, as it was, and no other.

    The package bagit does not serve here: it passes over lines of a manifest that it cannot read, and does not see
    files that no manifest names.
    """
    with zipfile.ZipFile(file) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        size = sum(member.file_size for member in members)
        if size > _LARGEST_RATIO * file.stat().st_size:
            raise DataError(f"it unpacks to {size:,} bytes, more than {_LARGEST_RATIO} times its size: no pack does")
        archive.extractall(folder)
    bags = {path.parent for name in ("bagit.txt", _TAG_MANIFEST) for path in folder.glob(f"*/{name}")}
    found = {path: file_sha256(path) for path in folder.rglob("*") if path.is_file()}
    named: dict[Path, str] = {}
    for bag in bags:
        tags = bag / _TAG_MANIFEST
        named |= {tags: found.get(tags, ""), **_read_manifest(tags), **_read_manifest(bag / _MANIFEST)}
    wrong = sorted(path for path in found.keys() | named.keys() if found.get(path) != named.get(path))
    if wrong or len(bags) != 1 or len(members) != len(found):
        names = ", ".join(escape_unprintable(path.relative_to(folder).as_posix()) for path in wrong)
        words = f"{len(members)} files in {len(bags)} bags; changed, missing, or in no manifest: {names or 'none'}"
        yield PackCheck("files", False, words)
        return
    yield PackCheck(
        "files", True, f"{len(found):,} files are as they were packed, by their sha256, and there is no other"
    )


def _read_manifest(path: Path) -> dict[Path, str]:
    """Read the sha256 of every file that a manifest of a bag names (RFC 8493, 2.1.3)."""
    lines = (line.partition(" ") for line in path.read_text(encoding="utf-8").split("\n") if line)
    return {path.parent / name.strip(): digest for digest, _, name in lines}


def _check_payload(
    payload: Path, rerun: PackRerun | None, certificates: Path | None, on_step: Callable[[str], None]
) -> Iterator[PackCheck]:
    about = read_json(payload / PACK)
    # An entry could name files, servers or code apart from what a pack writes.
    config = payload / WORKSPACE / "config" / "models.yaml"
    reduced = reduce_entries(yaml.safe_load(config.read_text(encoding="utf-8"))["models"])
    config.write_text(yaml.safe_dump({"models": reduced}), encoding="utf-8")
    pairs = [Pair(benchmark, about["model"]) for benchmark in about["benchmarks"]]
    if not pairs:
        raise DataError(f"{PACK} names no benchmark")
    theirs, ours = about["code_digest"], code_digest()
    differs = f"another than made the pack ({theirs[:16]}, here {ours[:16]}): numbers may differ for that reason"
    yield PackCheck(
        "code", theirs == ours or None, f"the same that made the pack: {ours[:16]}" if theirs == ours else differs
    )
    with use_workspace(payload / WORKSPACE, own_data=True):
        paths = DataPaths.from_environment()
        on_step("the lineage")
        ledger = read_ledger(paths)
        yield from _attempt("tables against lineage", _check_ledger_and_tables(paths, ledger))
        verification = _Verification(load_tokenized(load_models().get_entry(about["model"]), paths), paths, ledger)
        for pair in pairs:
            yield from _attempt(f"plan of {pair.benchmark}", verification.check_plans(pair, certificates))
            on_step(f"the findings of {pair.benchmark}")
            yield from _attempt(f"findings of {pair.benchmark}", verification.check_findings(pair))
            if rerun is not None:
                on_step(f"{rerun.count} texts and windows of {pair.benchmark}, run again")
                yield from _attempt(f"{pair.benchmark} run again", verification.check_rerun(pair, rerun))


def _check_ledger_and_tables(paths: DataPaths, ledger: Ledger) -> Iterator[PackCheck]:
    """Check that the lines of the pairs and the links of all others follow each other, and that every table is the file
    that its line names, none is missing, and none was put in.
    """
    words = f"{len(ledger.lines):,} lines follow one another"
    if ledger.forgotten_count:
        words += f"; {ledger.forgotten_count:,} are links alone: what they are of cannot be seen here"
    yield PackCheck("chain of the lineage", not ledger.problems, "; ".join(ledger.problems) or words)
    files = verify_files(paths, ledger)
    problems = [f"{file.path.relative_to(paths.root).as_posix()}: {file.reason}" for file in files.left_out]
    for entry in files.missing:
        later = [other for other in ledger.entries if other.line_number > entry.line_number]
        # Its file was there where its step wrote more after it, or no later run replaced it.
        wrote_more = any((other.run_id, other.asset_key) == (entry.run_id, entry.asset_key) for other in later)
        if wrote_more or not any((other.table, other.partition) == (entry.table, entry.partition) for other in later):
            problems.append(f"{entry.table} of {entry.partition} is missing")
    count = sum(map(len, files.by_table.values()))
    yield PackCheck(
        "tables against lineage", not problems, "; ".join(problems) or f"{count:,} files are those that it names"
    )


@dataclass(frozen=True)
class _Verification:
    """The checks of single pairs: a model that is known by its card, in the unpacked workspace."""

    model: TokenizedModel
    paths: DataPaths
    ledger: Ledger

    def _list_entries(self, table: Table, pair: Pair, run_id: str) -> list[Entry]:
        return [entry for entry in self.ledger.list_entries(table.name, pair.partition) if entry.run_id == run_id]

    def check_plans(self, pair: Pair, certificates: Path | None) -> Iterator[PackCheck]:
        """Check that every sealed plan is as it was sealed, and whether the findings were planned beforehand by it."""
        what = f"plan of {pair.benchmark}"
        # By their places in the ledger, whatever clocks say.
        rows = {
            self._list_entries(PLANS, pair, row["run_id"])[-1].line_number: row
            for file in self._list_run_files(PLANS, pair)
            for row in read_table(file, PLANS, label=what).to_pylist()
        }
        if not rows:
            yield PackCheck(what, None, "not planned beforehand: no plan was sealed")
        heads = [line.digest for line in self.ledger.lines]
        for place, row in sorted(rows.items()):
            plan = plan_from_row(row)
            stamp = _describe_timestamp(plan, certificates)
            if plan.fields["lineage_head"] not in (None, *heads[: place - 1]):
                raise DataError("the last line of the ledger when the plan was sealed is gone, or came after it")
            reasons = self._explain_not_planned(plan, place, rows, pair)
            order = f"not planned beforehand: {'; '.join(reasons)}" if reasons else "by the lineage before the findings"
            words = f"{order}; sealed on {plan.sealed_at:%F %T} UTC, sha256 {plan.sha256}; {stamp}"
            yield PackCheck(what, None if reasons else True, words)

    def _explain_not_planned(self, plan: SealedPlan, place: int, places: Iterable[int], pair: Pair) -> list[str]:
        """Say why ``plan``, which is at ``place`` in the lineage, does not show that the current findings were planned;
        empty where it does. ``places``: those of all plans.
        """
        runs = self._read_runs(pair).items()
        of_runs = [self._list_entries(table, pair, run.run_id) for table, run in runs if table in _RUN_BY_MODEL]
        made, entries = [own[-1].line_number for own in of_runs], [entry for own in of_runs for entry in own]
        differing = [name for name in DIGESTS if any(getattr(entry, name) != plan.fields[name] for entry in entries)]
        documents = read_searched_documents(pair.benchmark, self.model.entry, self.paths)
        planned = {row["document_id"]: row["sha256"] for side in ("texts", "held_out") for row in plan.fields[side]}
        has_other_texts = planned != {document.name: text_sha256(document.text) for document in documents}
        reasons = [
            (place > min(made), "by the lineage it came after current findings"),
            (
                any(place < other < max(made) for other in places),
                "another plan was sealed after it and before the findings",
            ),
            (bool(differing), f"the findings have another {' and another '.join(differing).replace('_', ' ')}"),
            (has_other_texts, "its texts are others than those of the pack"),
        ]
        found = [words for holds, words in reasons if holds]
        return [*found, *explain_late_plan(plan, pair, self.paths)]

    def _read_runs(self, pair: Pair) -> dict[Table, Entry]:
        """Read the current run of every table; raise DataError where there is no finding."""
        runs = {
            table: read_latest_run(self.paths, table.name, pair.partition)
            for table in RESULTS
            if self._list_run_files(table, pair)
        }
        if not any(table in runs for table in _RUN_BY_MODEL):
            raise DataError("the pack holds neither scores nor a search, so there is no finding")
        return runs

    def _list_run_files(self, table: Table, pair: Pair) -> list[Path]:
        return sorted(self.paths.run_file(table.name, pair.partition, "any").parent.glob("*.parquet"))

    def _read_run(self, table: Table, pair: Pair, run_id: str) -> pa.Table:
        return read_table(file_of(self.paths, table, pair.partition, run_id), table, label=table.name)

    def check_findings(self, pair: Pair) -> Iterator[PackCheck]:
        """Compute scores, findings and what extraction shows again, and compare every number."""
        runs = self._read_runs(pair)
        packed = {table: self._read_run(table, pair, run.run_id) for table, run in runs.items()}
        earlier = sum(len(self._list_run_files(table, pair)) - 1 for table in runs)
        # From the cache, by the stages of an audit.
        step = partial(LineageStep.now, _RUN)
        if SCORES in runs:
            score_and_store_pair(pair, self.model, self.paths, step("scores", SCORES_VERSION))
            evaluate_pair(pair, self.model, self.paths, step("evaluations", EVALUATIONS_VERSION))
        if DOCUMENT_MEMORISATION in runs:
            options = ExtractionSettings.model_validate(runs[DOCUMENT_MEMORISATION].settings)
            search = step("extraction", EXTRACTION_VERSION)
            extract_pair(pair, self.model, self.paths, _refuse_to_run, search, options, generate=False)
        for table, rows in packed.items():
            what = f"{table.name} of {pair.benchmark}"
            if not file_of(self.paths, table, pair.partition, _RUN).is_file():
                yield PackCheck(what, None, "not computed again")
                continue
            difference = find_difference(table, rows, self._read_run(table, pair, _RUN))
            equal = f"{len(rows):,} rows computed again are equal to the last digit"
            yield PackCheck(what, difference is None, difference or equal)
        if earlier:
            words = f"{earlier:,} tables of earlier runs are not computed again: their files are those of the lineage"
            yield PackCheck(f"earlier runs of {pair.benchmark}", None, words)

    def check_rerun(self, pair: Pair, rerun: PackRerun) -> Iterator[PackCheck]:
        """Run texts and windows that the verifier's seed draws, with the verifier's weights, and compare."""
        if not (self.model.entry.host.is_here and rerun.weights.host.is_here):
            yield PackCheck(f"{pair.benchmark} run again", None, "a model on a server is not run again")
            return
        generator = np.random.default_rng(rerun.seed)
        entry = rerun.weights.model_copy(update={name: getattr(self.model.entry, name) for name in _PASS_SETTINGS})
        with tempfile.TemporaryDirectory(prefix="corpus-audit-") as folder:
            fresh = DataPaths(Path(folder))
            own = load_tokenized(entry, fresh)
            if own.identity.model_fingerprint != self.model.identity.model_fingerprint:
                raise ModelError(f"{rerun.weights.name} is another model than that of the pack")
            backend = partial(build_backend_loader(fresh, None, Endpoints()), own)
            texts = sorted(read_built(self.paths, pair.benchmark).model_inputs)
            texts = [texts[number] for number in generator.permutation(len(texts))[: rerun.count]]
            compute(own, texts, fresh, backend)
            packed, again = read_statistics(self.model, texts, self.paths), read_statistics(own, texts, fresh)
            yield self._compare_logprobs(f"texts of {pair.benchmark} run again", packed, again, rerun)
            windows = self._list_windows(pair)
            windows = [windows[number] for number in generator.permutation(len(windows))[: rerun.count]]
            if windows:
                run_windows(own, windows, fresh, backend)
                packed, again = read_windows(self.model, windows, self.paths), read_windows(own, windows, fresh)
                yield self._compare_logprobs(f"windows of {pair.benchmark} run again", packed, again, rerun)

    def _list_windows(self, pair: Pair) -> list[EncodedText]:
        """List every window of the current search."""
        if not self._list_run_files(EXTRACTION_WINDOWS, pair):
            return []
        run = read_latest_run(self.paths, EXTRACTION_WINDOWS.name, pair.partition)
        options = ExtractionSettings.model_validate(run.settings)
        starts: dict[str, list[int]] = {}
        for row in self._read_run(EXTRACTION_WINDOWS, pair, run.run_id).select(["document_id", "start"]).to_pylist():
            starts.setdefault(row["document_id"], []).append(row["start"])
        documents = read_searched_documents(pair.benchmark, self.model.entry, self.paths)
        texts = {document.name: document.text[: options.characters] for document in documents}
        return [
            window
            for name, places in sorted(starts.items())
            for window in encode_windows_at(self.model, texts[name], places, options.lengths)
        ]

    def _compare_logprobs(self, what: str, packed: pa.Table, again: pa.Table, rerun: PackRerun) -> PackCheck:
        mine, theirs = map(_index_logprobs_by_text, (packed, again))
        if {key: len(values) for key, values in mine.items()} != {key: len(values) for key, values in theirs.items()}:
            return PackCheck(what, False, "the pack lacks some that were run, or their tokens are others")
        distances = np.concatenate([np.abs(mine[key] - theirs[key]) for key in mine])
        mean, dtype = float(distances.mean()), self.model.entry.dtype
        words = (
            f"{len(mine)}, drawn by the seed {rerun.seed}: log-probabilities differ by {mean:.2g} nat a token in the"
            f" mean, {distances.max():.2g} at most; the tolerance is a mean of {TOLERANCE[dtype]:g} ({dtype})"
        )
        return PackCheck(what, mean <= TOLERANCE[dtype], words)


def _index_logprobs_by_text(rows: pa.Table) -> dict[tuple[str, ...], npt.NDArray[np.floating]]:
    """Return the log-probabilities of every text, or window of a text, by its sha256 and beginning."""
    names = [name for name in ("text_sha256", "start") if name in rows.column_names]
    keys = zip(*(map(str, rows[name].to_pylist()) for name in names), strict=True)
    return dict(zip(keys, map(np.asarray, rows["logprob"].to_pylist()), strict=True))


def _describe_timestamp(plan: SealedPlan, certificates: Path | None) -> str:
    stamp = plan.timestamp
    if stamp is None:
        return "no timestamp, so the time is this machine's word alone"
    if certificates is None:
        return f"{stamp}; its signature was not checked: name the authority's certificates (--certificates)"
    require_signature(stamp.response, plan.content.encode(), certificates)
    return f"{stamp}; its signature is confirmed"


def _refuse_to_run(model: TokenizedModel) -> Backend:
    raise ModelError(f"the pack lacks cached statistics of {model.entry.name}, which would have to be run")


def find_difference(table: Table, packed: pa.Table, again: pa.Table) -> str | None:
    """Say what differs between the rows of a table as packed and as computed again, whatever their order and run;
    None where nothing does.
    """
    names = [name for name in table.names if name not in ("run_id", *_GENERATED)]
    key = [(name, "ascending") for name in table.key if name in names]
    mine, theirs = (rows.select(names).sort_by(key).combine_chunks() for rows in (packed, again))
    if len(mine) != len(theirs):
        return f"{len(mine):,} rows are packed, {len(theirs):,} are computed again"
    for name in names:
        if not mine[name].equals(theirs[name]):
            if not pa.types.is_floating(mine[name].type):
                return f"{name} differs"
            ours, others = (rows[name].to_numpy(zero_copy_only=False).astype(float) for rows in (mine, theirs))
            return f"{name} differs, by up to {np.nanmax(np.abs(ours - others), initial=0.0):.3g}"
    return None
