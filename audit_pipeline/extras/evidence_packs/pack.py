"""The writer of packs. A pack is a zip file with the evidence of findings, which the other side can verify.

A pack is a BagIt bag (RFC 8493) with three parts:

- pack.json: the model, the benchmarks, and the versions of code and packages
- workspace/: configuration, ledger and data of the pairs, from which all findings can be computed again
- README.txt: the commands that verify the pack
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
from audit_pipeline.models.chat_template import read_chat_template
from audit_pipeline.models.converted_files import stored_tokenizer_folder
from audit_pipeline.models.tokenized_model import TokenizedModel, load_reference_model, write_card
from audit_pipeline.pipeline.whole_configuration import Configuration
from audit_pipeline.scoring.needs.provider import list_derived_texts
from audit_pipeline.store.files import add_path_to_disk_error, read_json, write_atomically, write_json
from audit_pipeline.store.integrity import code_digest, package_versions
from audit_pipeline.store.ledger import copy_ledger, has_entries, read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import iterate_partitions
from audit_pipeline.tables import DOCUMENT_MEMORISATION, KINDS, SCORES, TABLES, Pair, text_sha256
from audit_pipeline.tables.table import Table
from audit_pipeline.token_statistics.cache import list_parts, read_part, write_part

PACK = "pack.json"
WORKSPACE = "workspace"
_PREFIXED = "prefixed"
# The fields that a packed entry of a model keeps, because they affect or describe results.
_ENTRY_FIELDS = (
    *("title", "backend", "endpoint", "dtype", "attention", "compile"),
    *("start_token", "start_token_policy", "window", "stride"),
    *("release_date", "training_cutoff", "base", "reference_model", "reference_corpus", "licence"),
)
# The address in a packed entry, at which no server listens.
_NO_SERVER = "http://127.0.0.1:9"
_README = """\
A pack of Corpus Audit: {title}.

To check it, install the version of Corpus Audit that pack.json names, and run:

    corpus-audit verify {name}

If you have the model's weights, you can also run N texts and N windows again. Choose the seed that selects them:

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
    """Write a pack. If an error occurs, no file is written.

    Args:
        out: The .zip file. Until it is complete, a hidden folder next to it contains the files.
        pairs: The pairs of benchmark and model.
        model: The model of all pairs.
        configuration: The whole configuration.
        paths: The data folder.
        on_step: Receives a description of each step.

    Returns:
        The number of files in the pack.

    Raises:
        DataError: If a benchmark is not built, belongs to a control, or has no findings.
    """
    content = _PackContent(pairs, model, paths)
    folder = out.with_name(f".{out.name}.tmp")
    bag = folder / out.stem
    workspace = bag / WORKSPACE
    packed = DataPaths.of_workspace(workspace)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with add_path_to_disk_error(out.parent):
            on_step("copying configuration and data")
            _write_configuration(workspace / "config", content, configuration)
            _copy_tables(packed, content)
            # In the copy, ledger lines about other partitions keep only their digests and the link to the previous
            # line.
            copy_ledger(paths, packed, content.has_line)
            _copy_models(packed, content)
            on_step("copying cached statistics")
            _copy_statistics(packed, content)
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
    """The partitions, models and texts that belong in the pack of some pairs of benchmark and model."""

    def __init__(self, pairs: Sequence[Pair], model: TokenizedModel, paths: DataPaths) -> None:
        self.pairs = pairs
        self.model = model
        self.paths = paths
        self.title = f"{model.entry.name} on {', '.join(pair.benchmark for pair in pairs)}"
        self.families: set[str] = set()
        self.sources: set[str] = set()
        self.texts: set[str] = set()
        for pair in pairs:
            benchmark = read_built(paths, pair.benchmark)
            if benchmark.control is not None:
                raise DataError(
                    f"The benchmark {benchmark.name} belongs to a control, and controls cannot be packed. Others can "
                    "train the control themselves with `corpus-audit control`."
                )
            if not any(has_entries(paths, table, pair) for table in (SCORES, DOCUMENT_MEMORISATION)):
                raise DataError(
                    f"There are no findings of {pair.model} on {pair.benchmark} yet. Run `corpus-audit audit --model "
                    f"{pair.model} --benchmark {pair.benchmark}` first."
                )
            if benchmark.scored_part is not None and read_chat_template(model.located) is not None:
                raise DataError(
                    f"{pair.benchmark} cannot be packed with {pair.model}: the model's chat template renders its "
                    "conversations, and a pack does not contain the template."
                )
            self.families.add(str(benchmark.manifest["family"]))
            self.sources |= set(benchmark.manifest["source_versions"])
            self.texts |= set(benchmark.plain_texts)
        reference = load_reference_model(model, paths)
        self.models = [model] if reference is None else [model, reference]

    def selects_partition(self, table: Table, partition: str) -> bool:
        """Return whether a partition of a table belongs in the pack."""
        first_key = partition.partition("|")[0]
        match table.partitioned_by:
            case "pair":
                return partition in {pair.partition for pair in self.pairs}
            case "benchmark" | "overlap":
                return first_key in {pair.benchmark for pair in self.pairs}
            case "source":
                return partition in self.sources
            case "corpus":
                return first_key == self.model.entry.reference_corpus
        return False

    def has_line(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a line of the ledger is about a partition that belongs in the pack.

        Args:
            fields: The fields of the line by name.
        """
        table = TABLES.get(fields.get("table", ""))
        return table is not None and self.selects_partition(table, fields["partition"])

    def list_text_digests(self) -> pa.Array:
        """Return the sorted sha256 digests of all texts that the models were run on for the pack's pairs."""
        texts = {*self.texts, *list_derived_texts(sorted(self.texts))}
        for pair in self.pairs:
            searches = read_ledger(self.paths).list_entries(DOCUMENT_MEMORISATION.name, pair.partition)
            lengths = {search.settings.get("characters") for search in searches}
            for document in read_searched_documents(pair.benchmark, self.model, self.paths):
                texts |= {document.limit_characters(length).text for length in lengths}
        return pa.array(sorted(map(text_sha256, texts)))


def _write_configuration(folder: Path, content: _PackContent, configuration: Configuration) -> None:
    """Write the entries of the packed models and benchmarks. A model's fingerprint (``card``) replaces its files."""
    models: dict[str, dict[str, Any]] = {}
    for model in content.models:
        fields = model.entry.model_dump(mode="json", exclude_unset=True)
        # The packed entry has no adapter and is in no series, so it has to name the default reference model.
        fields["base"] = model.entry.default_reference
        models[model.entry.name] = {**fields, "card": model.identity.model_fingerprint}
    benchmarks = {name: configuration.benchmarks.raw_values[name] for name in sorted(content.families)}
    corpora = load_references(configuration.folder).raw_values
    references = {name: entry for name, entry in corpora.items() if name == content.model.entry.reference_corpus}
    files: Mapping[str, Mapping[str, Any]] = {
        "models": {"models": reduce_model_entries(models)},
        "benchmarks": {"benchmarks": benchmarks},
        "sources": {},
        "references": {"references": references},
    }
    folder.mkdir(parents=True)
    for name, value in files.items():
        text = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def reduce_model_entries(models: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the models' entries with their fingerprints (``card``) and the fields that affect or describe results.

    The result names no file, server, key or code. The fields ``base`` and ``reference_model`` are removed if ``models``
    lacks that model, so that no program searches for it elsewhere.

    Raises:
        DataError: If an entry has no card.
    """
    reduced: dict[str, dict[str, Any]] = {}
    for name, fields in models.items():
        if not isinstance(fields.get("card"), str):
            raise DataError(
                f"The pack contains no fingerprint ('card') of the model {name}, so its findings cannot be checked."
            )
        entry = {key: fields[key] for key in _ENTRY_FIELDS if fields.get(key) is not None}
        for key in ("base", "reference_model"):
            if entry.get(key) not in models:
                entry.pop(key, None)
        if "endpoint" in entry:
            entry["endpoint"] = {**entry["endpoint"], "url": _NO_SERVER, "key_env": None}
        reduced[name] = {**entry, "card": fields["card"]}
    return reduced


def _copy_tables(packed: DataPaths, content: _PackContent) -> None:
    for table in TABLES.values():
        if not table.has_files:
            continue
        for partition, source in iterate_partitions(content.paths, table):
            if content.selects_partition(table, partition):
                copy = packed.root / source.relative_to(content.paths.root)
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".*"))


def _copy_models(packed: DataPaths, content: _PackContent) -> None:
    """Copy the card (a JSON file with the fingerprints) and the tokenizer of each model, but not its weights."""
    for model in content.models:
        identity = model.identity
        write_card(model, content.paths)
        card = read_json(content.paths.model_card(identity.model_fingerprint))
        write_json(packed.model_card(identity.model_fingerprint), card)
        tokenizer = stored_tokenizer_folder(identity, content.paths)
        if not tokenizer.is_dir():
            raise DataError(
                f"The tokenizer of {model.entry.name} is not stored, so nobody could verify the pack. Run "
                f"`corpus-audit audit --model {model.entry.name}` again, which stores the tokenizer."
            )
        copy = packed.stored_tokenizers(identity.tokenizer_fingerprint) / tokenizer.name
        shutil.copytree(tokenizer, copy, dirs_exist_ok=True)


def _copy_statistics(packed: DataPaths, content: _PackContent) -> None:
    """Copy the token statistics of the packed texts.

    Statistics of texts after prefixes are copied for all texts, because they contain no text.
    """
    texts = content.list_text_digests()
    for model in content.models:
        fingerprint = model.identity.model_fingerprint
        for kind in KINDS:
            for number, part in enumerate(list_parts(content.paths.token_statistics(kind, fingerprint))):
                rows = read_part(part)
                if kind != _PREFIXED:
                    rows = rows.filter(pc.is_in(rows["text_sha256"], value_set=texts))
                if len(rows):
                    write_part(packed.token_statistics(kind, fingerprint), rows, number)
