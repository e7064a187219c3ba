"""A pack: all that a finding rests on, in one zip file that the other side can check.

It is a BagIt bag (RFC 8493) that holds ``pack.json`` (model, benchmarks, versions of what made it, the links of the
whole lineage), ``workspace/`` (configuration and data of these pairs, from which every finding is computed again) and
README.txt.
"""

from __future__ import annotations

import platform
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bagit
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.config import load_references
from audit_pipeline.extras.extraction.pair_extraction import read_searched_documents
from audit_pipeline.models.converted_files import kept_tokenizer_folder
from audit_pipeline.models.tokenized_model import TokenizedModel, load_reference_model, write_card
from audit_pipeline.pipeline.whole_configuration import Configuration
from audit_pipeline.scoring.needs.registry import list_derived_texts
from audit_pipeline.store.files import add_path_to_disk_error, read_json, write_atomically, write_json
from audit_pipeline.store.ledger import copy_ledger, has_entries, read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import iterate_partitions
from audit_pipeline.store.versions import code_digest, package_versions
from audit_pipeline.tables import DOCUMENT_MEMORISATION, KINDS, SCORES, TABLES, Pair, text_sha256
from audit_pipeline.tables.table import Table
from audit_pipeline.token_statistics.cache import list_parts, read_part, write_part

PACK, WORKSPACE = "pack.json", "workspace"
_PREFIXED = "prefixed"
_ENTRY_FIELDS = (
    *("title", "backend", "endpoint", "dtype", "attention", "compile"),
    *("start_token", "start_token_policy", "window", "stride"),
    *("release_date", "training_cutoff", "reference_model", "reference_corpus", "licence"),
)
_NO_SERVER = "http://127.0.0.1:9"
_README = """\
A pack of Corpus Audit: {title}.

    corpus-audit verify {name}

checks it with the version of Corpus Audit that pack.json names. With the model's weights at hand, N texts and N windows
are run again, drawn by a seed that you choose:

    corpus-audit verify {name} --rerun N --seed SEED --model MODEL
"""


def write_pack(
    out: Path,
    pairs: Sequence[Pair],
    model: TokenizedModel,
    configuration: Configuration,
    paths: DataPaths,
    *,
    on_step: Callable[[str], None],
) -> int:
    """Write the pack of ``pairs``, all of one ``model``, to ``out`` (.zip), whole or not at all; return its files.

    It is laid out in a hidden folder next to ``out``. Raises DataError where a benchmark is not built or is a
    control's.
    """
    content = _PackContent(pairs, model, paths)
    folder = out.with_name(f".{out.name}.tmp")
    bag, workspace = folder / out.stem, folder / out.stem / WORKSPACE
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with add_path_to_disk_error(out.parent):
            on_step("copying configuration and data")
            _write_configuration(workspace / "config", content, configuration)
            root = DataPaths.of_workspace(workspace).root
            for table in (table for table in TABLES.values() if table.has_files):
                for partition, source in iterate_partitions(paths, table):
                    if content.has_partition(table, partition):
                        copy = root / source.relative_to(paths.root)
                        shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".*"))
            # Of lines of other tables digests and links alone.
            copy_ledger(paths, DataPaths.of_workspace(workspace), content.has_line)
            _copy_models(workspace, content)
            on_step("copying cached statistics")
            _copy_statistics(workspace, content)
            description = {
                "model": model.entry.name,
                "benchmarks": [pair.benchmark for pair in pairs],
                "packed_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "code_digest": code_digest(),
                "package_versions": dict(package_versions()),
                "platform": platform.platform(),
            }
            write_json(bag / PACK, description)
            (bag / "README.txt").write_text(_README.format(title=content.title, name=out.name), encoding="utf-8")
            on_step("computing digests")
            bagit.make_bag(str(bag), {"External-Description": content.title}, checksums=["sha256"])
            files = sorted(path for path in bag.rglob("*") if path.is_file())
            with write_atomically(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in files:
                    archive.write(file, file.relative_to(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return len(files)


class _PackContent:
    """The partitions, models and texts that belong to the pairs."""

    def __init__(self, pairs: Sequence[Pair], model: TokenizedModel, paths: DataPaths) -> None:
        self.pairs, self.model, self.paths = pairs, model, paths
        self.title = f"{model.entry.name} on {', '.join(pair.benchmark for pair in pairs)}"
        built = [read_built(paths, pair.benchmark) for pair in pairs]
        if controlled := [benchmark.name for benchmark in built if benchmark.control is not None]:
            raise DataError(f"{', '.join(controlled)}: a control is trained again by its command, and is not packed")
        for pair in pairs:
            if not any(has_entries(paths, table, pair) for table in (SCORES, DOCUMENT_MEMORISATION)):
                raise DataError(f"there are no findings of {pair.benchmark} yet: audit it first")
        self.families = sorted({str(benchmark.manifest["family"]) for benchmark in built})
        self.sources = {source for benchmark in built for source in benchmark.manifest["source_versions"]}
        self.texts = {text for benchmark in built for text in benchmark.model_inputs}
        reference = load_reference_model(model, paths)
        self.models = [model] if reference is None else [model, reference]

    def has_partition(self, table: Table, partition: str) -> bool:
        """Return whether a partition of a table belongs to the pairs."""
        first = partition.partition("|")[0]
        match table.partitioned_by:
            case "pair":
                return partition in {pair.partition for pair in self.pairs}
            case "benchmark" | "overlap":
                return first in {pair.benchmark for pair in self.pairs}
            case "source":
                return partition in self.sources
            case "corpus":
                return first == self.model.entry.reference_corpus
        return False

    def has_line(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a line of the ledger is of a partition that belongs to the pairs."""
        table = TABLES.get(fields.get("table", ""))
        return table is not None and self.has_partition(table, fields["partition"])

    def list_text_digests(self) -> pa.Array:
        """List the sha256 of all that the models were run on for the pairs."""
        texts = {*self.texts, *list_derived_texts(sorted(self.texts))}
        for pair in self.pairs:
            searches = read_ledger(self.paths).list_entries(DOCUMENT_MEMORISATION.name, pair.partition)
            lengths = {search.settings.get("characters") for search in searches}
            for document in read_searched_documents(pair.benchmark, self.model.entry, self.paths):
                texts |= {document.text[:length] for length in lengths}
        return pa.array(sorted(map(text_sha256, texts)))


def _write_configuration(folder: Path, content: _PackContent, configuration: Configuration) -> None:
    """Write the entries that the pairs are of; a model's entry says that its card takes the place of its files."""
    entries = {
        model.entry.name: {
            **model.entry.model_dump(mode="json", exclude_unset=True),
            "card": model.identity.model_fingerprint,
        }
        for model in content.models
    }
    corpora, corpus = load_references(configuration.folder).raw_values, content.model.entry.reference_corpus
    files: Mapping[str, Mapping[str, Any]] = {
        "models": {"models": reduce_entries(entries)},
        "benchmarks": {"benchmarks": {name: configuration.benchmarks.raw_values[name] for name in content.families}},
        "sources": {},
        "references": {"references": {name: entry for name, entry in corpora.items() if name == corpus}},
    }
    folder.mkdir(parents=True)
    for name, value in files.items():
        text = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def reduce_entries(models: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Reduce the models' entries to what decides numbers, and their cards: no files, no server, no key, no code.

    A reference model that is not among them is left out, so that nothing is looked for elsewhere. Raises DataError
    where an entry has no card.
    """
    reduced: dict[str, dict[str, Any]] = {}
    for name, fields in models.items():
        if not isinstance(fields.get("card"), str):
            raise DataError(f"the pack names the model {name} without its card")
        entry = {key: fields[key] for key in _ENTRY_FIELDS if fields.get(key) is not None}
        if entry.get("reference_model") not in models:
            entry.pop("reference_model", None)
        if "endpoint" in entry:
            entry["endpoint"] = {**entry["endpoint"], "url": _NO_SERVER, "key_env": None}
        reduced[name] = {**entry, "card": fields["card"]}
    return reduced


def _copy_models(workspace: Path, content: _PackContent) -> None:
    """Copy the card and the tokenizer of every model; its weights are not packed."""
    packed = DataPaths.of_workspace(workspace)
    for model in content.models:
        identity = model.identity
        write_card(model, content.paths)
        card = read_json(content.paths.model_card(identity.model_fingerprint))
        write_json(packed.model_card(identity.model_fingerprint), card)
        kept = kept_tokenizer_folder(identity, content.paths)
        if not kept.is_dir():
            raise DataError(f"no tokenizer is kept of {model.entry.name}, so its pack could not be checked")
        shutil.copytree(kept, packed.kept_tokenizers(identity.tokenizer_fingerprint) / kept.name, dirs_exist_ok=True)


def _copy_statistics(workspace: Path, content: _PackContent) -> None:
    """Copy the cached rows of the pairs' texts; of those after prefixes, which spell no text, all."""
    packed, texts = DataPaths.of_workspace(workspace), content.list_text_digests()
    for fingerprint in (model.identity.model_fingerprint for model in content.models):
        for kind in KINDS:
            for number, part in enumerate(list_parts(content.paths.token_statistics(kind, fingerprint))):
                rows = read_part(part)
                if kind != _PREFIXED:
                    rows = rows.filter(pc.is_in(rows["text_sha256"], value_set=texts))
                if len(rows):
                    write_part(packed.token_statistics(kind, fingerprint), rows, number)
