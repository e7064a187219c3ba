"""The pack: all that a finding rests on, in one file that the other side can check.

What belongs here: what goes into a pack, how it is laid out, and its metadata. What does not: checking it (verify.py).

A pack is a BagIt bag (RFC 8493) in a zip file; its payload is an RO-Crate and holds:

- ``pack.json``: which pairs it is of, which model, whether it is redacted, and the links of the whole lineage;
- ``workspace/``: configuration and data of these pairs, from which every finding is computed again;
- ``plans/``: every sealed plan, and the answer of its timestamp authority;
- ``report/``: the report page of the model, and its JSON copy;
- ``environment.json`` and ``README.txt``: versions, and the commands.

In a redacted pack, columns that hold or quote texts are empty, and the cache, whose tokens spell them, is left out.
"""

from __future__ import annotations

import base64
import glob
import importlib.metadata
import json
import platform
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bagit
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from rocrate.rocrate import ROCrate

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.catalogue.contracts import (
    DOCUMENT_MEMORISATION,
    DOCUMENTS,
    KINDS,
    LINEAGE,
    PLANS,
    TABLES,
    Pair,
    text_sha256,
)
from audit_pipeline.catalogue.files import (
    name_full_disk,
    read_json,
    read_table,
    write_atomically,
    write_json,
    write_table,
)
from audit_pipeline.catalogue.integrity import PREVIOUS_SHA256, ROW_SHA256, file_sha256
from audit_pipeline.catalogue.lineage import code_digest, iterate_entries
from audit_pipeline.catalogue.locks import hold_lock
from audit_pipeline.catalogue.paths import DataPaths, model_page_path, to_path_segment
from audit_pipeline.catalogue.store import iterate_partitions
from audit_pipeline.catalogue.table import Table
from audit_pipeline.errors import DataError
from audit_pipeline.models.kept_files import kept_tokenizer_folder
from audit_pipeline.models.tokenized_model import TokenizedModel, load_reference_model, write_card
from audit_pipeline.operate.stages.extraction import documents_of
from audit_pipeline.operate.whole_configuration import Configuration
from audit_pipeline.references.config import load_references
from audit_pipeline.report.attempt_words import NOT_PLANNED
from audit_pipeline.report.files import SCHEMA, build_reports, json_copy_path
from audit_pipeline.report.page import read_conclusions
from audit_pipeline.scoring.needs.registry import list_derived_texts
from audit_pipeline.token_statistics.cache import list_parts, read_part, write_part
from audit_pipeline.warehouse.build import read_lineage_chain

_LOCK_SECONDS = 60.0
PACK, WORKSPACE, REPORT, PLANS_FOLDER = "pack.json", "workspace", "report", "plans"
_PREFIXED = "prefixed"
_OF_ENTRIES = (
    *("title", "backend", "endpoint", "dtype", "attention", "compile"),
    *("start_token", "start_token_policy", "window", "stride"),
    *("release_date", "training_cutoff", "reference_model", "reference_corpus", "licence"),
)
_NO_SERVER = "http://127.0.0.1:9"
_PLACES_OF_TEXTS = ("url", "places")
"""Columns of documents that name the owner's files, or quote headings."""
_README = """\
A pack of Corpus Audit: {pairs}.

To check it, with Corpus Audit {version} installed:

    corpus-audit verify {name}

With the model's weights at hand, N texts and N windows are run again, drawn by a seed that you choose:

    corpus-audit verify {name} --rerun N --seed SEED --model MODEL

What is in it: pack.json (of what it is, and the links of the lineage), workspace/ (configuration and data),
plans/ (sealed plans and timestamps), report/ (the report), environment.json (versions of what computed it).
{redacted}
Whether these were planned beforehand:

{plans}

The findings were made by these commands:

{commands}
"""


@dataclass(frozen=True)
class PackSummary:
    """The written pack: its digest, size and number of files."""

    sha256: str
    bytes: int
    files: int


def write_pack(
    out: Path,
    pairs: Sequence[Pair],
    model: TokenizedModel,
    configuration: Configuration,
    paths: DataPaths,
    *,
    redacted: bool,
    on_step: Callable[[str], None],
) -> PackSummary:
    """Write the pack of ``pairs``, all of one ``model``, to ``out`` (.zip), whole or not at all.

    Raises DataError where a benchmark is not built or is a control's, and where the report has no page of the model.
    """
    content = _PackContent(pairs, model, paths)
    with (
        hold_lock(paths.root / ".pack.lock", _LOCK_SECONDS),
        name_full_disk(out.parent),
        _make_folder_beside(out) as made,
    ):
        bag = Path(made) / out.stem
        workspace = bag / WORKSPACE
        on_step("copying configuration and data")
        _write_configuration(workspace / "config", content, configuration)
        emptied = _copy_tables(workspace, content, redacted=redacted)
        _copy_models(workspace, content)
        if not redacted:
            on_step("copying cached statistics")
            _copy_statistics(workspace, content)
        on_step("writing the report")
        _write_report(bag / REPORT, content, include_text=not redacted)
        _write_plans(bag / PLANS_FOLDER, content)
        _write_description(bag, out.name, content, emptied, redacted=redacted)
        on_step("computing digests")
        _write_crate(bag, content)
        bagit.make_bag(str(bag), {"Source-Organization": "Corpus Audit", **content.info}, checksums=["sha256"])
        files = sorted(path for path in bag.rglob("*") if path.is_file())
        with write_atomically(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, file.relative_to(bag.parent))
    return PackSummary(file_sha256(out), out.stat().st_size, len(files))


@contextmanager
def _make_folder_beside(out: Path) -> Iterator[str]:
    """A folder to lay the pack out in; what a killed command left of an earlier one is removed."""
    prefix = f".{out.name}."
    for left in out.parent.glob(f"{glob.escape(prefix)}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=out.parent) as made:
        yield made


class _PackContent:
    """Which partitions, models and texts belong to the pairs."""

    def __init__(self, pairs: Sequence[Pair], model: TokenizedModel, paths: DataPaths) -> None:
        self.pairs, self.model, self.paths = pairs, model, paths
        built = [read_built(paths, pair.benchmark) for pair in pairs]
        if controlled := [benchmark.name for benchmark in built if benchmark.control is not None]:
            raise DataError(f"{', '.join(controlled)}: a control is trained again by its command, and is not packed")
        self.families = sorted({str(benchmark.manifest["family"]) for benchmark in built})
        self.sources = {source for benchmark in built for source in benchmark.manifest["source_versions"]}
        self.texts = {text for benchmark in built for text in benchmark.texts}
        self.reference = load_reference_model(model, paths)
        self.models = [model] if self.reference is None else [model, self.reference]

    @property
    def info(self) -> Mapping[str, str]:
        """What the bag says of itself (bag-info.txt)."""
        return {"External-Description": f"Corpus Audit of {self.in_words}"}

    @property
    def in_words(self) -> str:
        return f"{self.model.entry.name} on {', '.join(pair.benchmark for pair in self.pairs)}"

    def holds(self, table: Table, partition: str) -> bool:
        """Whether a partition of a table belongs to the pairs."""
        benchmarks = {pair.benchmark for pair in self.pairs}
        match table.per:
            case "pair":
                return partition in {pair.partition for pair in self.pairs}
            case "benchmark" | "overlap":
                return partition.partition("|")[0] in benchmarks
            case "source":
                return partition in self.sources
            case "corpus":
                return partition.partition("|")[0] == self.model.entry.reference_corpus
        return False

    def list_text_digests(self) -> pa.Array:
        """The sha256 of all that the models were run on for the pairs."""
        documents = {text for pair in self.pairs for text in self._list_searched_texts(pair)}
        return pa.array(sorted(map(text_sha256, {*self.texts, *list_derived_texts(sorted(self.texts)), *documents})))

    def _list_searched_texts(self, pair: Pair) -> Iterator[str]:
        """The documents as far as they were searched."""
        entries = [*iterate_entries(self.paths, DOCUMENT_MEMORISATION.name, pair.partition)]
        lengths = {json.loads(entry["settings"] or "{}").get("characters") for entry in entries}
        for document in documents_of(pair.benchmark, self.model.entry, self.paths):
            yield from (document.text[:length] for length in lengths)


def _write_configuration(folder: Path, content: _PackContent, configuration: Configuration) -> None:
    """The entries that the pairs are of; a model's entry says that its card takes the place of its files."""
    models = reduce_entries(
        {
            model.entry.name: {
                **model.entry.model_dump(mode="json", exclude_unset=True),
                "card": model.identity.model_fingerprint,
            }
            for model in content.models
        }
    )
    families = {name: configuration.benchmarks.given[name] for name in content.families}
    known = load_references(configuration.folder).given
    corpora = {name: known[name] for name in [content.model.entry.reference_corpus] if name in known}
    files: Mapping[str, Mapping[str, Any]] = {
        "models": {"models": models},
        "benchmarks": {"benchmarks": families},
        "sources": {},
        "references": {"references": corpora},
    }
    folder.mkdir(parents=True)
    for name, value in files.items():
        text = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def reduce_entries(models: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The models' entries with what decides numbers, and their cards: no files, no server, no key, no code of theirs.

    A reference model that is not among them is left out, so that nothing is looked for elsewhere. Raises DataError
    where an entry has no card.
    """
    reduced: dict[str, dict[str, Any]] = {}
    for name, fields in models.items():
        if not isinstance(fields.get("card"), str):
            raise DataError(f"the pack names the model {name} without its card")
        entry = {key: fields[key] for key in _OF_ENTRIES if fields.get(key) is not None}
        if entry.get("reference_model") not in models:
            entry.pop("reference_model", None)
        if "endpoint" in entry:
            entry["endpoint"] = {**entry["endpoint"], "url": _NO_SERVER, "key_env": None}
        reduced[name] = {**entry, "card": fields["card"]}
    return reduced


def plan_file_name(benchmark: str, plan_sha256: str) -> str:
    """The name of a plan's file in a pack, without its ending."""
    return f"{to_path_segment(benchmark)}-{plan_sha256[:16]}"


def list_emptied_columns(table: Table) -> set[str]:
    """The columns of a table's files that a redacted pack has without content: they hold or quote texts."""
    quoting = {column.name for column in table.columns if column.quotes_text and not column.sql}
    return {*quoting, *table.holds_text, *(_PLACES_OF_TEXTS if table is DOCUMENTS else ())}


def _copy_tables(workspace: Path, content: _PackContent, *, redacted: bool) -> dict[str, str]:
    """Copy every table of the pairs with its lineage; of the files that are emptied of texts the digest that they had,
    by their path in the pack."""
    root = DataPaths.of_workspace(workspace).root
    emptied: dict[str, str] = {}
    for table in (table for table in TABLES.values() if table.has_files and not table.is_record):
        for partition, folder in iterate_partitions(content.paths, table):
            if content.holds(table, partition):
                copy = root / folder.relative_to(content.paths.root)
                shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(".*"))
                if redacted:
                    emptied |= _empty_texts(copy, table, workspace.parent)
    for partition, folder in iterate_partitions(content.paths, LINEAGE):
        name, _, of_table = partition.partition(":")
        if name in TABLES and content.holds(TABLES[name], of_table):
            shutil.copytree(folder, root / folder.relative_to(content.paths.root))
    return emptied


def _empty_texts(folder: Path, table: Table, pack: Path) -> dict[str, str]:
    """Empty the columns of a table's files that hold or quote texts; the digests that the files had."""
    emptied = {}
    columns = list_emptied_columns(table)
    for file in sorted(folder.rglob("*.parquet")) if columns else []:
        digest, rows = file_sha256(file), pq.read_table(file)
        for name in columns & {*rows.column_names}:
            place, field = rows.schema.get_field_index(name), rows.schema.field(name)
            rows = rows.set_column(place, field, _build_empty_column(field, len(rows)))
        write_table(file, rows)
        emptied[file.relative_to(pack).as_posix()] = digest
    return emptied


def _build_empty_column(field: pa.Field, rows: int) -> pa.Array:
    if field.nullable:
        return pa.nulls(rows, field.type)
    return pa.array([[] if pa.types.is_list(field.type) else ""] * rows, field.type)


def _copy_models(workspace: Path, content: _PackContent) -> None:
    """Copy the card and the tokenizer of every model; its weights are not packed."""
    root = DataPaths.of_workspace(workspace)
    for model in content.models:
        identity = model.identity
        write_card(model, content.paths)
        card = content.paths.model_card(identity.model_fingerprint)
        write_json(root.model_card(identity.model_fingerprint), read_json(card))
        kept = kept_tokenizer_folder(identity, content.paths)
        if not kept.is_dir():
            raise DataError(f"no tokenizer is kept of {model.entry.name}, so its pack could not be checked")
        shutil.copytree(kept, root.kept_tokenizers(identity.tokenizer_fingerprint) / kept.name, dirs_exist_ok=True)


def _copy_statistics(workspace: Path, content: _PackContent) -> None:
    """Copy the cached rows of the pairs' texts; of those after prefixes, which spell no text, all."""
    root, texts = DataPaths.of_workspace(workspace), content.list_text_digests()
    for model in content.models:
        for kind in KINDS:
            folder = content.paths.token_statistics(kind, model.identity.model_fingerprint)
            for number, part in enumerate(list_parts(folder)):
                rows = read_part(part)
                if kind != _PREFIXED:
                    rows = rows.filter(pc.is_in(rows["text_sha256"], value_set=texts))
                if len(rows):
                    write_part(root.token_statistics(kind, model.identity.model_fingerprint), rows, number)


def _write_report(folder: Path, content: _PackContent, *, include_text: bool) -> None:
    """The report page of the model with its copy and schema."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        build_reports(content.paths.warehouse, Path(made), include_text=include_text)
        page = model_page_path(Path(made), content.model.entry.name)
        if not page.is_file():
            raise DataError(f"the report has no page of {content.model.entry.name}: audit it first")
        folder.mkdir()
        for file in (page, json_copy_path(page), Path(made) / SCHEMA):
            shutil.copy(file, folder)


def _write_plans(folder: Path, content: _PackContent) -> None:
    """Every sealed plan as JSON, and beside it the answer of its timestamp authority."""
    folder.mkdir()
    for pair in content.pairs:
        for file in sorted(content.paths.run_file(PLANS.name, pair.partition, "any").parent.glob("*.parquet")):
            for row in read_table(file, PLANS, label=f"a plan of {pair.partition}").to_pylist():
                name = plan_file_name(pair.benchmark, row["plan_sha256"])
                (folder / f"{name}.json").write_text(row["plan"], encoding="utf-8")
                if row["timestamp"] is not None:
                    (folder / f"{name}.tsr").write_bytes(base64.b64decode(row["timestamp"]))


def _write_description(
    bag: Path, name: str, content: _PackContent, emptied: Mapping[str, str], *, redacted: bool
) -> None:
    """pack.json, environment.json and README.txt."""
    rows, record = read_lineage_chain(content.paths)
    packed = {row[ROW_SHA256] for row in read_lineage_chain(DataPaths.of_workspace(bag / WORKSPACE))[0]}
    others = [row for row in rows if row[ROW_SHA256] not in packed]
    write_json(
        bag / PACK,
        {
            "packed_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "model": content.model.entry.name,
            "benchmarks": [pair.benchmark for pair in content.pairs],
            "redacted": redacted,
            "emptied": dict(emptied),
            "chain": asdict(record),
            "other_rows": [{name: row[name] for name in (ROW_SHA256, PREVIOUS_SHA256)} for row in others],
        },
    )
    packages = {package.name: package.version for package in importlib.metadata.distributions()}
    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "code_digest": code_digest(),
        "packages": dict(sorted(packages.items())),
    }
    write_json(bag / "environment.json", environment)
    commands = [f"    corpus-audit audit --model {pair.model} --benchmark {pair.benchmark}" for pair in content.pairs]
    conclusions = read_conclusions(content.paths.warehouse, content.model.entry.name)
    plans = [
        f"    {of} of {pair.benchmark}: {found[pair.benchmark]['planned'] or NOT_PLANNED}"
        for pair in content.pairs
        for of, found in (("scores", conclusions.answers), ("search", conclusions.word_for_word))
        if pair.benchmark in found
    ]
    words = _README.format(
        pairs=content.in_words,
        version=importlib.metadata.version("corpus-audit"),
        name=name,
        redacted="It is redacted: it holds no texts, and its scores cannot be computed again.\n" if redacted else "",
        commands="\n".join(commands),
        plans="\n".join(plans),
    )
    (bag / "README.txt").write_text(words, encoding="utf-8")


def _write_crate(bag: Path, content: _PackContent) -> None:
    """The RO-Crate metadata of every file."""
    crate = ROCrate(str(bag), init=True)
    crate.name = f"Corpus Audit of {content.in_words}"
    crate.description = "What the findings of an audit rest on, to be checked by `corpus-audit verify`."
    crate.datePublished = datetime.now(UTC)
    crate.metadata.write(str(bag))
