"""The command extract."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from tiny_models import SENTENCES

from audit_pipeline.cli import main
from audit_pipeline.statistics.claims import CALIBRATED_IN_WORDS, EXTRACTION_IN_WORDS, NOT_CALIBRATED_IN_WORDS

Extract = Callable[..., Result]
TEXT = " ".join(SENTENCES)
QUOTED = {word for word in TEXT.split() if len(word) > 5} - set(
    f"{EXTRACTION_IN_WORDS['not reproduced']} {NOT_CALIBRATED_IN_WORDS} words before".split()
)


@pytest.fixture
def extract(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> Extract:
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path / "data"))
    (tmp_path / "book.txt").write_text(TEXT, encoding="utf-8")

    def run(*options: str) -> Result:
        usual = {"--model": str(tiny_folder("llama")), "--texts": str(tmp_path / "book.txt")}
        usual |= {"--prefix": "12", "--suffix": "10"}
        given = [part for name, value in usual.items() if name not in options for part in (name, value)]
        return CliRunner().invoke(main, ["extract", *given, *options])

    return run


def test_the_plan_matches_the_run_and_a_second_run_is_cached(extract: Extract, tmp_path: Path) -> None:
    planned = json.loads(extract("--dry-run", "--json", "--stride", "chars:7").stdout)
    out = tmp_path / "windows.parquet"
    result = extract("--stride", "chars:7", "--out", str(out), "--json")
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    [document] = said["documents"]
    table = pq.read_table(out)
    assert document["document"] == "book.txt"
    assert document["characters"] == len(TEXT)
    assert document["windows"] == planned["windows"] == len(table) > 10
    assert planned["tokens"] == 23 * len(table)
    assert json.loads(extract("--dry-run", "--json", "--stride", "chars:7").stdout)["tokens"] == 0
    # The strongest passage is the likeliest window, quoted where it stands.
    best = max(table.to_pylist(), key=lambda row: row["log_p"])
    first = said["passages"][0]
    assert first["log_p"] == pytest.approx(best["log_p"]) == pytest.approx(document["log_p"])
    assert first["place"] == best["place"] == "line 1"
    assert all((row["place"] is None) == (row["strength"] is None) for row in table.to_pylist())
    assert first["suffix"] == " ".join(TEXT[best["suffix_begin"] : best["suffix_end"]].split())
    assert TEXT[first["start"] : first["begin"]].split() == first["prefix"].split()
    assert (said["claim_level"], said["calibrated"]) == ("not reproduced", False)


def test_the_output_explains_the_claim_and_quotes_only_if_allowed(extract: Extract) -> None:
    for options, is_quoted in (((), True), (("--no-text",), False)):
        shown = extract(*options).stdout
        assert EXTRACTION_IN_WORDS["not reproduced"] in shown
        assert NOT_CALIBRATED_IN_WORDS in shown
        assert any(word in shown for word in QUOTED) == is_quoted


def test_generate_draws_continuations(extract: Extract) -> None:
    said = json.loads(extract("--json", "--generate", "5").stdout)
    assert said["passages"]
    assert all(row["draws"] == 5 and 0 <= row["hits"] <= 5 and row["greedy"] for row in said["passages"])
    assert "0 of 5" in extract("--generate", "5", "--no-text").stdout


def test_a_bound_of_nearly_the_same_words(extract: Extract) -> None:
    rows = json.loads(extract("--json", "--near-verbatim", "9", "--beams", "3").stdout)["passages"]
    assert rows
    for row in rows:
        word_for_word = -math.inf if row["log_p_top_40"] is None else row["log_p_top_40"]
        near = -math.inf if row["log_p_near_verbatim"] is None else row["log_p_near_verbatim"]
        assert word_for_word <= near <= 0
    assert any(row["log_p_near_verbatim"] is not None for row in rows)
    shown = extract("--near-verbatim", "9").stdout
    assert "p with up to 9 different tokens" in shown
    assert "≥ " in shown
    assert {row["log_p_near_verbatim"] for row in json.loads(extract("--json").stdout)["passages"]} == {None}


def test_a_continuation_from_the_beginning(extract: Extract, tmp_path: Path) -> None:
    # Rows without a document that is as long as a window: of these nothing is shown.
    rows = [{"id": "book", "text": TEXT}, {"id": "short", "text": "Two words."}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    said = json.loads(extract("--json", "--texts", str(tmp_path / "rows.jsonl"), "--continue", "60").stdout)
    [row] = said["long_runs"]
    assert (row["document"], row["tokens"], row["recalled"], row["recall"]) == ("book", 60, 0, 0.0)
    assert row["words"] == len(TEXT[row["begin"] : row["end"]].split()) >= 20
    assert row["left_at"] == row["begin"]
    assert "long_runs" not in json.loads(extract("--json").stdout)
    assert f"0 of {row['words']}" in extract("--continue", "60").stdout
    # A stretch without room for a block.
    [row] = json.loads(extract("--json", "--continue", "5").stdout)["long_runs"]
    assert (row["tokens"], row["recall"]) == (5, None)


def test_a_grid_is_planned_and_shown(extract: Extract) -> None:
    planned = json.loads(extract("--json", "--dry-run", "--grid").stdout)
    assert 0 < planned["grid_tokens"] < planned["tokens"]
    assert f"{planned['grid_tokens']:,} of them for the grid" in extract("--dry-run", "--grid").stdout
    said = json.loads(extract("--json", "--grid").stdout)
    [document] = said["grid_documents"]
    assert document["settings"] == len(said["grid"]) == 4 * 16
    best = max(row["log_p"] for row in said["grid"] if row["log_p"] is not None)
    assert (document["log_p"], document["settings_reached"]) == (best, sum(row["reached"] > 0 for row in said["grid"]))
    [named] = [row["log_p"] for row in said["grid"] if row["is_named"]]
    assert document["named_log_p"] == named
    assert json.loads(extract("--json", "--dry-run", "--grid").stdout)["tokens"] == 0
    shown = extract("--grid").stdout
    assert "likeliest setting" in shown
    assert "tokens after 12 tokens" in shown
    assert "grid_documents" not in json.loads(extract("--json").stdout)


def test_the_cost_of_the_draws_of_a_passage(extract: Extract) -> None:
    plain = json.loads(extract("--json").stdout)["passages"]
    assert {row["log_cost"] for row in plain} == {None}
    for row in json.loads(extract("--json", "--price", "3").stdout)["passages"]:
        # ln 2 / p draws, of 22 tokens each.
        draws = math.log(math.log(2)) - row["log_p"]
        assert row["log_cost"] == pytest.approx(draws + math.log(22 * 3 / 1e6), abs=1e-6)
    assert "cost of these draws" in extract("--price", "3").stdout
    assert "cost of these draws" not in extract().stdout


def test_held_out_documents_calibrate(extract: Extract, tmp_path: Path) -> None:
    rows = [{"id": str(number), "text": " ".join(SENTENCES[number:] + SENTENCES[:number])} for number in range(1, 5)]
    (tmp_path / "unread.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    said = json.loads(extract("--json", "--held-out", str(tmp_path / "unread.jsonl")).stdout)
    [document] = said["documents"]
    assert document["held_out_compared"] == len(rows)
    assert document["p_value"] == document["q_value"]
    assert document["p_value"] in [number / 5 for number in (1, 2, 3, 4, 5)]
    assert said["least_p_value"] == 0.2
    assert [row["documents"] for row in said["held_out"]] == [len(rows)] * 5
    assert (said["calibrated"], said["calibration"]) == (True, CALIBRATED_IN_WORDS)
    # What is held out is compared with, and no finding of its own.
    assert {row["document"] for row in said["passages"]} == {"book.txt"}
    assert CALIBRATED_IN_WORDS in extract("--held-out", str(tmp_path / "unread.jsonl")).stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--prefix", "60"), "context"),
        (("--out", "windows.csv"), r".parquet"),
        (("--texts", "nowhere.txt"), "no such file"),
        (("--near-verbatim", "10"), "must be smaller than the suffix of"),
    ],
)
def test_impossible_requests_are_one_line(extract: Extract, options: tuple[str, ...], said: str) -> None:
    result = extract(*options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_document_shorter_than_a_window(extract: Extract, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("Two words.", encoding="utf-8")
    said = json.loads(extract("--json").stdout)
    assert (said["shorter_than_a_window"], said["documents"], said["passages"]) == (["book.txt"], [], [])
    assert (said["claim_level"], said["calibrated"]) == (None, False)
    assert "shorter than a window" in extract().stdout


def test_held_out_documents_that_are_none(extract: Extract, tmp_path: Path) -> None:
    held_out = tmp_path / "unread.parquet"
    pq.write_table(pa.table({"text": [TEXT]}), held_out)
    before = held_out.read_bytes()
    same = extract("--held-out", str(held_out))
    assert "(in brackets: the name of the held-out copy): book.txt (row 0)" in same.stderr
    pq.write_table(pa.table({"text": [TEXT.upper().replace(" ", "\u00a0\n")]}), held_out)
    assert (
        "(in brackets: the name of the held-out copy): book.txt (row 0)" in extract("--held-out", str(held_out)).stderr
    )
    pq.write_table(pa.table({"text": [TEXT]}), held_out)
    pq.write_table(pa.table({"text": ["Two words."]}), held_out)
    assert (
        "All held-out documents are shorter than a window" in extract("--dry-run", "--held-out", str(held_out)).stderr
    )
    held_out.write_bytes(before)
    # The windows are not written over them.
    assert "overwrite the input" in extract("--held-out", str(held_out), "--out", str(held_out)).stderr
    assert held_out.read_bytes() == before


def test_a_damaged_part_of_the_cache_is_reported(extract: Extract, tmp_path: Path) -> None:
    first = json.loads(extract("--json").stdout)
    part = next((tmp_path / "data" / "token_statistics" / "kind=extraction").rglob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-40] + bytes(40))
    again = extract("--json")
    assert "1 corrupt part(s) of the cache were renamed" in again.stderr
    assert json.loads(again.stdout) == first


def test_a_dry_run_with_workers_says_what_is_not_known_here(extract: Extract) -> None:
    pytest.importorskip("ray")
    planned = extract("--dry-run", "--engine", "ray", "--workers", "3", "--device", "cuda")
    assert planned.exit_code == 0, planned.stderr
    assert "Estimated time: not known" in planned.stdout
    assert "on a Ray cluster, with 3 workers. It is not known how long this takes" in planned.stdout
    assert "The weights take" not in planned.stdout
