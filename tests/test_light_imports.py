"""Packages that are loaded only if they are needed, because loading them would double the start of commands and ticks.

These are heavy packages in the help, parsers of documents that one source reads, and packages that compute or draw.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
    """Return the names that are loaded after the code in a new process."""
    code = f"{code}\nimport sys\nprint(sorted(set(sys.modules) & {set(names)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = eval(done.stdout.splitlines()[-1])
    return found


def test_help_version_and_completion_load_nothing_heavy() -> None:
    assert loaded(ASK, *HEAVY) == []


# What follows the definitions in their process must not load anything heavy either: the end of a failed step, an audit
# that runs no model, and requests to an endpoint.
AFTER_DEFINITIONS = """
audit_pipeline.definitions.defs().get_repository_def()
from audit_pipeline.pipeline.dagster.partition_step import is_transient
assert is_transient(TimeoutError())
import audit_pipeline.pipeline.dagster.audit
import audit_pipeline.extras.servers.backend
import audit_pipeline.extras.servers.probe
import audit_pipeline.scoring.backends
import audit_pipeline.token_statistics.run
"""


def test_definitions_audits_and_endpoints_load_no_parser_and_nothing_heavy() -> None:
    """Our modules call nothing deprecated meanwhile."""
    no_deprecated = (
        "import warnings\nwarnings.filterwarnings('error', '', DeprecationWarning, 'audit_pipeline|assets')\n"
    )
    code = f"{no_deprecated}{EVERYTHING.format(module='audit_pipeline.definitions')}{AFTER_DEFINITIONS}"
    assert loaded(code, *PARSERS, *COUNTING) == []


def test_the_warehouse_loads_no_parser_and_no_client() -> None:
    code = EVERYTHING.format(module="audit_pipeline.pipeline.registry")
    assert loaded(code, *PARSERS, "torch", "dagster") == []


FETCH = """\
from pathlib import Path
from audit_pipeline.errors import SourceError
from audit_pipeline.sources.config import require_source
for name in {names!r}:
    source = require_source(name)
    try:
        source.fetch(source.settings(), Path("nowhere"))
    except SourceError as error:
        print(error)
"""


def test_sources_that_are_fetched_load_their_parsers() -> None:
    """The names of the parsers are those that would be loaded."""
    parsers = ("defusedxml", "lxml", "requests_cache")
    assert loaded(FETCH.format(names=("books", "patents", "wikipedia")), *parsers) == list(parsers)
