"""The walls: which package may import what, where paths are built, and that modules say what belongs in them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "audit_pipeline"
FRONT_DOOR = {"definitions.py", "cli"}
MODULES = sorted(path.relative_to(ROOT) for top in ("audit_pipeline", "assets") for path in (ROOT / top).rglob("*.py"))
DOMAIN = [
    path
    for path in MODULES
    if path.parts[0] == "audit_pipeline" and path.parts[1] != "orchestration" and path.parts[1] not in FRONT_DOOR
]
PURE = [path for path in DOMAIN if path.parts[1] in {"detectors", "evaluation"}]
DATA_FOLDERS = {
    "audit.duckdb",
    "contamination_report.html",
    "dagster_home",
    "documents.parquet",
    "evaluations.parquet",
    "examples.parquet",
    "token_statistics",
}


def imported(tree: ast.Module, module: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or inside a function, relative imports resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.with_suffix("").parts[: -node.level]
                base = ".".join([*parents, base] if base else parents)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def parse(module: Path) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def offenders(modules: list[Path], forbidden: set[str]) -> list[str]:
    return [
        f"{module} imports {name}"
        for module in modules
        for name in imported(parse(module), module)
        if any(name == bad or name.startswith(f"{bad}.") for bad in forbidden)
    ]


def test_the_rule_sees_every_form_of_import() -> None:
    source = "import dagster as d\nfrom dagster.core import x\ndef f():\n    from ..orchestration import jobs\n"
    names = set(imported(ast.parse(source), Path("audit_pipeline/detectors/loss.py")))
    assert {"dagster", "dagster.core", "audit_pipeline.orchestration", "audit_pipeline.orchestration.jobs"} <= names


def test_domain_packages_import_neither_dagster_nor_assets_nor_orchestration() -> None:
    assert DOMAIN
    assert not offenders(DOMAIN, {"dagster", "assets", "audit_pipeline.orchestration", "audit_pipeline.definitions"})


def test_detectors_and_evaluation_import_neither_torch_nor_transformers() -> None:
    assert not offenders(PURE, {"torch", "transformers"})


@pytest.mark.skipif(not PURE, reason="audit_pipeline/detectors and audit_pipeline/evaluation are not there yet")
def test_nor_do_they_at_run_time() -> None:
    names = sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in PURE)
    code = (
        f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\n"
        "print(sorted({'torch', 'transformers', 'dagster'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_paths_under_data_are_built_in_one_module() -> None:
    built_elsewhere = [
        f"{module}:{node.lineno}: {node.value!r}"
        for module in MODULES
        if module != Path("audit_pipeline/paths.py")
        for node in ast.walk(parse(module))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant)
        for node in [node.right]
        if node.value in DATA_FOLDERS or str(node.value).startswith(("kind=", "model=", "run_id=", "partition="))
    ]
    reads_the_variable = [
        str(module)
        for module in MODULES
        if module != Path("audit_pipeline/paths.py")
        for node in ast.walk(parse(module))
        if isinstance(node, ast.Subscript | ast.Call)
        and "environ" in ast.unparse(node)
        and "'CORPUS_AUDIT_DATA'" in ast.unparse(node)
        and not isinstance(getattr(node, "ctx", None), ast.Store)
    ]
    assert not built_elsewhere
    assert not reads_the_variable


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_says_what_belongs_in_it(module: Path) -> None:
    docstring = ast.get_docstring(parse(module))
    assert docstring
    if module.name not in {"__init__.py", *FRONT_DOOR}:
        assert "belong" in docstring, "a module's docstring says what belongs in it and what does not"
