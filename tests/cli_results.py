"""Helpers of tests of commands: reading printed output and written scores, and writing input files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from click.testing import Result

from audit_pipeline.models.tokenized_model import TokenizedModel

LABELLED = {
    "builder": "labelled",
    "description": "rows of somebody else",
    "split": "Rows",
    "words": [8],
    "design": "temporal",
    "calibration_fraction": 0,
    "seed": 5,
}


def error_of(result: Result) -> str:
    """Return the error line, which follows lines of steps and progress only."""
    assert result.exit_code == 2, result.output
    *before, last = result.stderr.splitlines()
    assert all(line.startswith("• ") or "tokens, " in line for line in before), result.stderr
    assert last.startswith("Error: ")
    assert "Traceback" not in result.output
    return last.removeprefix("Error: ")


def told(result: Result) -> str:
    """Return the standard output of a successful command."""
    assert result.exit_code == 0, result.output
    return result.stdout


def length_of(model: TokenizedModel, text: str) -> int:
    """Return the number of tokens of a text, special tokens included."""
    return len(model.tokenizer.encode([text], add_special_tokens=True)[0].ids)


def texts_file(folder: Path, *texts: str, name: str = "texts.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(json.dumps({"input": text}) for text in texts), encoding="utf-8")
    return path


def scores_of(path: Path) -> dict[tuple[int, str, str], dict[str, Any]]:
    rows = pq.read_table(path).to_pylist()
    found = {(row["example_index"], row["detector"], row["parameters"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def remove_padding(table: str) -> str:
    """Reduce the blanks that align the cells of a pasted table to one, and the rules below its heads to two dashes."""
    return re.sub("-{2,}(?=[:|])", "--", re.sub(" +", " ", table))


_BESIDE_FINDINGS = re.compile(" scored |^(Headline|Also tried) *$")


def tables_of_findings(shown: str) -> dict[str, list[str]]:
    """Return the lines of the tables by benchmark, without their heads."""
    blocks = [block.splitlines() for block in shown.split("\n\n")]
    tables = {
        lines[0].partition(":")[0]: [line.rstrip() for line in lines[2:] if not _BESIDE_FINDINGS.search(line)]
        for lines in (block[1:] if not block[0] else block for block in blocks)
        if len(lines) > 1 and lines[1].startswith("detector ")
    }
    assert set(tables) == {"made_8", "made_12"}
    return tables


def answered(result: Result, code: int = 0) -> dict[str, Any]:
    """Return the JSON document. Nothing else may be on standard output."""
    assert result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def run_in_a_new_process(*commands: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run commands in a new process. Its last line lists the heavy packages that they loaded."""
    code = (
        "import sys\n"
        "from audit_pipeline.cli import main\n"
        f"for command in {[list(command) for command in commands]!r}:\n"
        "    main(command, standalone_mode=False)\n"
        "print(sorted({'torch', 'transformers', 'dagster'} & set(sys.modules)))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
