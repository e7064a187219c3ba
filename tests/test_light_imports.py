"""What is never loaded before it is needed: by the help of commands anything heavy, the parsers of documents that only
one source reads, and what counts, draws or runs a model, which would double the time that every tick takes to start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARSERS = (
    *("bs4", "datasets", "defusedxml", "docutils", "lxml", "mammoth", "protego", "pypdfium2"),
    *("pypi_simple", "requests_cache"),
)
COUNTING = ("matplotlib", "pandas", "scipy.special", "scipy.stats", "sklearn", "torch", "transformers")
EVERYTHING = """\
import {module}
from audit_pipeline.pipeline.whole_configuration import load_configuration
from audit_pipeline.sources.config import all_sources
assert load_configuration().problems == (), load_configuration().problems
assert {{"books", "patents", "wikipedia"}} <= set(all_sources())
"""


HEAVY = (
    *("dagster", "duckdb", "matplotlib", "numpy", "pandas", "pyarrow", "pydantic", "ray", "scipy", "sklearn", "torch"),
    *("transformers", "typing_extensions", "yaml"),
)
ASK = """\
import os
from click.testing import CliRunner
from audit_pipeline.cli import main
for arguments in (["--help"], ["--version"], *([name, "--help"] for name in main.commands)):
    assert CliRunner().invoke(main, arguments).exit_code == 0, arguments
words = {"COMP_WORDS": "corpus-audit audit --en", "COMP_CWORD": "2", "_CORPUS_AUDIT_COMPLETE": "bash_complete"}
done = CliRunner(env=words).invoke(main, [], prog_name="corpus-audit", complete_var="_CORPUS_AUDIT_COMPLETE")
assert done.output == "plain,--engine\\n", done.output
"""


def loaded(code: str, *names: str) -> list[str]:
    """Which of ``names`` are loaded after ``code``, in a process of its own."""
    code = f"{code}\nimport sys\nprint(sorted(set(sys.modules) & {set(names)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = eval(done.stdout.splitlines()[-1])
    return found


def test_help_version_and_completion_load_nothing_heavy() -> None:
    assert loaded(ASK, *HEAVY) == []


def test_definitions_with_every_source_load_no_parser_and_nothing_heavy() -> None:
    """Neither imported nor, which imports more, resolved. Nor do our modules call what goes with the next version."""
    no_deprecated = (
        "import warnings\nwarnings.filterwarnings('error', '', DeprecationWarning, 'audit_pipeline|assets')\n"
    )
    code = no_deprecated + EVERYTHING.format(module="audit_pipeline.definitions")
    assert loaded(f"{code}audit_pipeline.definitions.defs().get_repository_def()", *PARSERS, *COUNTING) == []


def test_the_warehouse_loads_no_parser_and_no_client() -> None:
    code = EVERYTHING.format(module="audit_pipeline.pipeline.registry")
    assert loaded(code, *PARSERS, "torch", "dagster") == []


def test_torch_is_not_loaded_to_tell_a_fault_that_may_pass() -> None:
    code = (
        "from audit_pipeline.pipeline.dagster.partition_step import is_transient\nassert is_transient(TimeoutError())"
    )
    assert loaded(code, "torch") == []


def test_torch_is_not_loaded_to_ask_an_endpoint() -> None:
    code = (
        "import audit_pipeline.extras.servers.backend\nimport audit_pipeline.extras.servers.probe\n"
        "import audit_pipeline.scoring.backends\nimport audit_pipeline.token_statistics.run"
    )
    assert loaded(code, "torch", "transformers") == []


@pytest.mark.parametrize(
    ("name", "parser"), [("books", "defusedxml"), ("patents", "lxml"), ("wikipedia", "requests_cache")]
)
def test_a_source_that_is_fetched_loads_its_own(name: str, parser: str) -> None:
    """The counterpart: what is looked for above is what would be loaded."""
    code = (
        "from pathlib import Path\nfrom audit_pipeline.errors import SourceError\n"
        "from audit_pipeline.sources.config import require_source\n"
        f"one = require_source({name!r})\n"
        "try:\n    one.fetch(one.settings(), Path('nowhere'))\nexcept SourceError as error:\n    print(error)"
    )
    assert loaded(code, parser) == [parser]
