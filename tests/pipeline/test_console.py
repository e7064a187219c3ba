"""Output of commands: the same facts as text and tables, or as one JSON document."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit_pipeline.errors import escape_unprintable, to_one_line
from audit_pipeline.pipeline.console import (
    Columns,
    collect_output,
    escape_control_characters,
    is_json_output,
    print_message,
    print_result,
    show_table,
)

ROWS: list[dict[str, Any]] = [
    {"name": "loss", "auroc": 0.51234, "n": 1200, "since": None},
    {"name": "red \x1b[31m [bold]", "auroc": None, "n": 7, "since": date(2024, 5, 31)},
]
COLUMNS: Columns = (("detector", "name"), ("AUROC", "auroc"), ("texts", lambda row: f"{row['n']:,}"), ("", "since"))


def said(as_json: bool) -> None:
    with collect_output(as_json=as_json):
        print_result("Before.")
        show_table("found", ROWS, COLUMNS)
        print_result("\nReport: /tmp/r.html", report=Path("/tmp/r.html"))


def test_words_and_a_table_whose_cells_no_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    said(as_json=False)
    shown = capsys.readouterr()
    lines = [line.rstrip() for line in shown.out.splitlines()]
    assert lines[0] == "Before."
    assert lines[1].split() == ["detector", "AUROC", "texts"]
    assert lines[2].split() == ["loss", "0.5123", "1,200"]
    assert lines[3].split() == ["red", "\\x1b[31m", "[bold]", "7", "2024-05-31"]
    assert lines[-1] == "Report: /tmp/r.html"
    assert shown.err == ""


def test_the_same_as_one_document_with_numbers_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    said(as_json=True)
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {
        "found": [{**ROWS[0]}, {**ROWS[1], "since": "2024-05-31"}],
        "report": "/tmp/r.html",
    }
    assert "\x1b" not in shown.out
    assert shown.err == "Before.\n", "words that are no fact are said, and not on standard output"
    assert not is_json_output()


def test_json_has_text_for_infinite_numbers_and_keeps_every_digit(capsys: pytest.CaptureFixture[str]) -> None:
    values: list[Any] = [math.nan, math.inf, {"low": -math.inf, "all": [Decimal("-Infinity"), np.float64("nan")]}]
    values += [Decimal("1.5"), Decimal("0.1"), Decimal("12345678901234567890.125"), np.float64(0.1), Decimal(2**100)]
    values += [True, 3, (1, "é\ud800"), {1: date(2024, 1, 2)}, b"\x00\xaa"]
    with collect_output(as_json=True):
        show_table("rows", [{"value": value} for value in values], [("value", "value")])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["value"] for row in rows] == [
        *("NaN", "Infinity", {"low": "-Infinity", "all": ["-Infinity", "NaN"]}),
        *(1.5, 0.1, "12345678901234567890.125", 0.1, 2**100),
        *(True, 3, [1, "é\ud800"], {"1": "2024-01-02"}, "00aa"),
    ]


def test_tables_of_one_name_are_one_list_and_other_facts_are_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    with collect_output(as_json=True):
        for number in (1, 2):
            show_table("rows", [{"n": number}], [("n", "n")])
            print_result("", last=number, each=[number])
    assert json.loads(capsys.readouterr().out) == {"rows": [{"n": 1}, {"n": 2}], "last": 2, "each": [1, 2]}


def test_json_without_results_is_an_empty_document_and_an_early_error_prints_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with collect_output(as_json=True):
        pass
    assert json.loads(capsys.readouterr().out) == {}

    def fail(**facts: object) -> None:
        with collect_output(as_json=True):
            print_result("words", **facts)
            raise RuntimeError("in mid command")

    with pytest.raises(RuntimeError, match="in mid command"):
        fail()
    assert capsys.readouterr().out == ""
    with pytest.raises(RuntimeError, match="in mid command"):
        fail(done=3)
    assert json.loads(capsys.readouterr().out) == {"done": 3}, "what was found before the error is not lost"
    assert not is_json_output()


def test_a_name_in_a_line_or_a_cell_forges_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\nError: forged\x1b[2J\u202e\udcff"
    print_message(f"Error: {to_one_line(f'no such file {name}')}")
    print_result(f"one {escape_unprintable(name)}\ntwo \x1b[2J")
    show_table("files", [{"file": name}], (("file", "file"),))
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [r"Error: no such file a Error: forged\x1b[2J\u202e\udcff"]
    spelled = r"a\nError: forged\x1b[2J\u202e\udcff"
    assert [line.rstrip() for line in shown.out.splitlines()] == [f"one {spelled}", r"two \x1b[2J", "file", spelled]


def test_blanks_of_any_width_are_shown_as_they_are() -> None:
    assert escape_control_characters("1\u202f020 texts\u00a0\u2009\x1b") == "1\u202f020 texts\u00a0\u2009\\x1b"
