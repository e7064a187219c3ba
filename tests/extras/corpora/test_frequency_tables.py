"""Tables of token frequencies: built once, found by corpus and tokenizer, and refused for other tokenizers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledger_lines import lineage_rows

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.extras.corpora import token_count
from audit_pipeline.extras.corpora.config import ReferenceEntry, load_references
from audit_pipeline.extras.corpora.frequency_need import build_frequencies, read_frequencies, read_reference_frequencies
from audit_pipeline.extras.corpora.token_count import build_frequency_table, count_corpus
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.files import write_table
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass

ROOT = Path(__file__).parents[3]
CONFIG = """
references:
  mine:
    path: texts
    language: en
    licence: none
"""


@pytest.fixture(scope="module")
def model(tiny: Callable[[str], tuple[TokenizedModel, ForwardPass]]) -> TokenizedModel:
    """Return a model with a reference corpus."""
    made = tiny("llama")[0]
    entry = made.entry.model_copy(update={"reference_corpus": "mine"})
    return dataclasses.replace(made, located=dataclasses.replace(made.located, entry=entry))


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataPaths:
    """Return a data folder next to a configuration with a corpus of two texts."""
    folder = tmp_path / "config"
    (folder / "texts").mkdir(parents=True)
    (folder / "references.yaml").write_text(CONFIG)
    (folder / "texts" / "a.txt").write_text("the nets\nthe boats\n")
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(folder))
    return DataPaths(tmp_path / "data")


def step(run_id: str = "run") -> LineageStep:
    return LineageStep.now(run_id, "token_frequencies", "1")


def with_tokenizer(model: TokenizedModel, fingerprint: str) -> TokenizedModel:
    return dataclasses.replace(model, identity=dataclasses.replace(model.identity, tokenizer_fingerprint=fingerprint))


def test_a_built_table_is_found_by_its_corpus_and_has_lineage(
    model: TokenizedModel, paths: DataPaths, tmp_path: Path
) -> None:
    entry = load_references()["mine"]
    with pytest.raises(DataError, match=r"materialise the asset token_frequencies for mine\|"):
        read_reference_frequencies(model, paths)
    report = build_frequencies(entry, model, paths, step())
    fingerprint = model.identity.tokenizer_fingerprint
    assert report.path == tmp_path / "data" / "token_frequencies" / "corpus=mine" / f"tokenizer={fingerprint}.parquet"
    assert (report.read_number("documents"), report.read_number("skipped_rows")) == (2, 0)
    found, upstream = read_reference_frequencies(model, paths)
    assert upstream == {f"token_frequencies/mine|{fingerprint}": report.data_version}
    counts = found.counts
    assert counts.sum() == report.read_number("tokens") > 0
    token = model.tokenizer.encode(["the"], add_special_tokens=False)[0].ids[0]
    wanted = math.log((counts[token] + 1) / (counts.sum() + model.vocab_size))
    assert found.log_frequency[token] == pytest.approx(wanted)
    [row] = lineage_rows(paths)
    assert (row["table"], row["partition"], row["run_id"]) == ("token_frequencies", f"mine|{fingerprint}", "run")
    assert (row["data_version"], row["tokenizer_fingerprint"]) == (report.data_version, fingerprint)
    assert report.metadata["run_id"] == "run"


def test_only_a_stale_table_is_counted_again(
    model: TokenizedModel, paths: DataPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    original = token_count.count_documents
    monkeypatch.setattr(
        token_count, "count_documents", lambda *given, **more: counted.append(1) or original(*given, **more)
    )
    entry = load_references()["mine"]
    first = build_frequencies(entry, model, paths, step("a"))
    again = build_frequencies(entry, model, paths, step("b"))
    assert again.count is None
    assert (again.read_number("tokens"), again.data_version, len(counted), len(list(lineage_rows(paths)))) == (
        first.read_number("tokens"),
        first.data_version,
        1,
        1,
    )
    # Notes do not make a table stale. A limit, other texts, another tokenizer and a damaged table do.
    build_frequencies(entry.model_copy(update={"notes": "n"}), model, paths, step("c"))
    assert len(counted) == 1
    cut = build_frequencies(entry.model_copy(update={"max_documents": 1}), model, paths, step("d"))
    assert (cut.read_number("documents"), len(counted)) == (1, 2)
    with pytest.raises(DataError, match="with other settings"):
        read_reference_frequencies(model, paths)
    (tmp_path / "config" / "texts" / "b.txt").write_text("a third text")
    assert build_frequencies(entry, model, paths, step("e")).read_number("documents") == 3
    build_frequencies(entry, with_tokenizer(model, "another"), paths, step("f"))
    first.path.write_bytes(b"cut short")
    assert build_frequencies(entry, model, paths, step("g")).read_number("documents") == 3
    assert len(counted) == 5
    # No checksum of Parquet covers the footer.
    content = bytearray(first.path.read_bytes())
    content[content.index(b"parquet-cpp")] ^= 1
    first.path.write_bytes(content)
    with pytest.raises(DataError, match="the token frequencies of mine is damaged"):
        read_reference_frequencies(model, paths)
    assert build_frequencies(entry, model, paths, step("h")).read_number("documents") == 3
    assert len(counted) == 6
    assert read_reference_frequencies(model, paths)


def test_a_table_of_another_tokenizer_is_refused(model: TokenizedModel, paths: DataPaths, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    write_table(out, build_frequency_table(count_corpus(model, tmp_path / "config" / "texts"), model))
    assert read_frequencies(out, model).counts.sum() > 0
    ours = model.identity.tokenizer_fingerprint
    with pytest.raises(DataError, match=rf"with the tokenizer {ours}, but .* has the tokenizer theirs: count"):
        read_frequencies(out, with_tokenizer(model, "theirs"))


def test_a_model_with_a_larger_vocabulary_shares_the_table(
    model: TokenizedModel, paths: DataPaths, tmp_path: Path
) -> None:
    out = tmp_path / "table.parquet"
    write_table(out, build_frequency_table(count_corpus(model, tmp_path / "config" / "texts"), model))
    small = read_frequencies(out, model)
    padded = read_frequencies(out, dataclasses.replace(model, vocab_size=len(small.counts) + 5))
    assert padded.counts[: len(small.counts)].tolist() == small.counts.tolist()
    assert padded.counts[len(small.counts) :].tolist() == [0] * 5
    assert padded.vocab_size == len(small.counts) + 5
    assert np.isfinite(padded.log_frequency).all()


def test_damaged_tables_are_refused(model: TokenizedModel, paths: DataPaths, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    write_table(out, build_frequency_table(count_corpus(model, tmp_path / "config" / "texts"), model))
    table = pq.read_table(out)
    metadata = table.schema.metadata
    counts = table.column("count").to_numpy()
    moved = counts.copy()
    first, second = np.flatnonzero(counts)[:2]
    moved[[first, second]] += [1, -1]
    cases = {
        "this table of token frequencies does not exist": None,
        "is not a readable table": b"PAR1",
        "lacks the metadata tokens, tokenizer_fingerprint, corpus_digest": table.replace_schema_metadata(None),
        "its rows are not the ids": table.slice(1).replace_schema_metadata(metadata),
        "the sum of its counts is": table.set_column(2, "count", pa.array(counts * 2)).replace_schema_metadata(
            metadata
        ),
        "the checksum of its counts does not match": table.set_column(
            2, "count", pa.array(moved)
        ).replace_schema_metadata(metadata),
        "columns are missing: count": table.drop_columns("count"),
    }
    for message, content in cases.items():
        out.unlink(missing_ok=True)
        if isinstance(content, bytes):
            out.write_bytes(content)
        elif content is not None:
            pq.write_table(content, out)
        with pytest.raises(DataError, match=message):
            read_frequencies(out, model)


def test_the_start_token_policy_must_score_the_first_token(model: TokenizedModel, paths: DataPaths) -> None:
    build_frequencies(load_references()["mine"], model, paths, step())
    entry = model.entry.model_copy(update={"start_token_policy": "tokenizer"})
    other = dataclasses.replace(model, located=dataclasses.replace(model.located, entry=entry))
    with pytest.raises(DataError, match="so it requires a start token before each text"):
        read_reference_frequencies(other, paths)


def test_the_shipped_configuration_has_these_corpora() -> None:
    shipped = load_references(ROOT / "config")
    assert list(shipped) == ["sotu", "c4_en", "chinesewebtext", "debian_reference_zh"]
    assert (shipped["c4_en"].hub, shipped["chinesewebtext"].hub) == ("allenai/c4", "CASIA-LM/ChineseWebText")
    assert all(entry.max_tokens_per_document is None for entry in shipped.values())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("{path: x, language: en, licence: l, pth: y}", "corpus c: unknown key 'pth'"),
        ("{language: en, licence: l}", "exactly one of hub, path and package"),
        ("{path: x, package: sotu, language: en, licence: l}", "exactly one of hub, path and package"),
        ("{hub: a/b, language: en, licence: l}", "hub requires files"),
        ("{path: x, files: [a], language: en, licence: l}", "files requires hub"),
        ("{path: x, revision: main, language: en, licence: l}", "revision requires hub"),
        ("{path: x, language: en, licence: l, max_bytes: 0}", "max_bytes: "),
        ("{package: torch, language: en, licence: l}", "package: "),
        ("5", "corpus c: the entry has no keys"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, fields: str, message: str) -> None:
    file = tmp_path / "references.yaml"
    file.write_text(f"references:\n  c: {fields}\n")
    assert any(message in str(problem) for problem in load_references(tmp_path).problems)
    with pytest.raises(ConfigError, match=r"references\.yaml:2: corpus c: "):
        load_references(tmp_path).get_entry("c")


def test_names_and_paths_of_corpora(tmp_path: Path) -> None:
    file = tmp_path / "references.yaml"
    file.write_text("references:\n  a|b: {path: x, language: en, licence: l}\n")
    with pytest.raises(ConfigError, match="name: "):
        load_references(tmp_path).get_entry("a|b")
    assert load_references(tmp_path / "elsewhere").names == ()
    file.write_text("references:\n  books: {path: x, language: en, licence: l}\n")
    entries = load_references(tmp_path)
    assert entries["books"].path == (tmp_path / "x").resolve()
    assert isinstance(entries.get_entry("books"), ReferenceEntry)
    with pytest.raises(ConfigError, match=r"no corpus 'book' in config/references.yaml; did you mean books\?"):
        entries.get_entry("book")
