"""The walls: which package may import what, where paths are built, and that modules have a docstring."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "audit_pipeline"
MODULES = sorted(
    path.relative_to(ROOT)
    for top in ("audit_pipeline", "assets", "corpus_audit")
    for path in (ROOT / top).rglob("*.py")
)
TORCH = {"torch", "transformers"}
OURS = {"assets", "corpus_audit"} | {
    f"audit_pipeline.{path.stem}" for path in PACKAGE.iterdir() if path.name[:2] != "__" and path.name != "shipped"
}


def ours_but(*packages: str) -> set[str]:
    return OURS - {f"audit_pipeline.{name}" for name in packages}


def only(*packages: str) -> set[str]:
    return {f"audit_pipeline.{name}" for name in packages}


# Package -> what it must not import.
WALLS = {
    "http": {*ours_but("errors", "http"), *TORCH, "dagster"},
    "store": {*ours_but("errors", "store", "tables"), *TORCH, "dagster"},
    "tables": {*ours_but("errors", "store", "tables"), *TORCH, "dagster"},
    "readers": {*ours_but("errors", "http", "store", "tables", "readers", "config"), *TORCH, "dagster"},
    "readers.whole_files": {*ours_but("errors", "readers"), *TORCH, "dagster"},
    "sources": {*only("warehouse", "report", "pipeline"), *TORCH, "dagster"},
    "benchmarks": {*only("sources.books", "sources.patents", "sources.wikipedia", "pipeline"), "dagster"},
    "splits": {*ours_but("errors", "store", "tables", "statistics", "splits"), *TORCH, "dagster"},
    "models": {*only("token_statistics", "extras", "scoring", "pipeline", "warehouse", "report"), "dagster"},
    "token_statistics": {*only("extras", "scoring", "pipeline", "warehouse", "report", "detectors"), "dagster"},
    "detectors": {
        *only("sources", "models", "scoring", "warehouse", "report", "pipeline", "extras"),
        *TORCH,
        "dagster",
    },
    "scoring": {*only("pipeline", "warehouse", "report"), "dagster"},
    "statistics": {*ours_but("errors", "store", "tables", "readers", "splits", "statistics"), *TORCH, "dagster"},
    "warehouse": {*only("sources", "report", "pipeline", "extras"), *TORCH, "dagster"},
    "report": {*only("sources", "pipeline"), *TORCH, "dagster"},
    "extras.extraction": {*only("warehouse", "scoring"), "dagster"},
    "extras.servers": {
        *only("pipeline", "warehouse", "report", "scoring", "detectors", "sources", "benchmarks"),
        *TORCH,
        "dagster",
    },
    "extras.ray": {
        *ours_but("errors", "http", "store", "tables", "readers", "models", "token_statistics", "extras"),
        *TORCH,
        "dagster",
    },
    "extras.unlearning": {*only("pipeline", "warehouse", "report", "scoring", "sources"), *TORCH, "dagster"},
}


def imported(nodes: Iterable[ast.AST], module: Path) -> Iterator[str]:
    """Yield every module that a file imports, at its top or inside a function. Relative imports are resolved."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.with_suffix("").parts[: -node.level]
                base = ".".join([*parents, base] if base else parents)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


@pytest.fixture(scope="module", autouse=True)
def forgotten_trees() -> Iterator[None]:
    """Forget the syntax trees after this module: more than a million objects slow down every garbage collection."""
    yield
    for function in (parse, list_nodes, names_imported_by):
        function.cache_clear()


@cache
def parse(module: Path) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


@cache
def list_nodes(module: Path) -> Sequence[ast.AST]:
    return list(ast.walk(parse(module)))


@cache
def names_imported_by(module: Path) -> frozenset[str]:
    return frozenset(imported(list_nodes(module), module))


def module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def offences(modules: list[Path], forbidden: set[str]) -> set[tuple[str, str]]:
    """Pairs of a module and the module or package that it must not import, ours without their first name."""
    known = {module_name(path) for path in MODULES}
    return {
        (module_name(module).removeprefix("audit_pipeline."), name.removeprefix("audit_pipeline."))
        for module in modules
        for name in names_imported_by(module)
        if any(name == bad or name.startswith(f"{bad}.") for bad in forbidden)
        and (name in known or not name.startswith(("audit_pipeline.", "assets", "corpus_audit")))
    }


def modules_of(package: str) -> list[Path]:
    """The modules of a package, but for its commands: those are of the command line, wherever they are."""
    within = ("audit_pipeline", *package.split("."))
    return [path for path in MODULES if path.parts[: len(within)] == within and not has_commands(path)]


def has_commands(path: Path) -> bool:
    return path.parts[1] == "cli" or (path.parts[1] == "extras" and path.stem.startswith("command"))


def test_the_rule_sees_every_form_of_import() -> None:
    source = "import dagster as d\nfrom dagster.core import x\ndef f():\n    from ..pipeline import removal\n"
    names = set(imported(ast.walk(ast.parse(source)), Path("audit_pipeline/detectors/loss.py")))
    assert {"dagster", "dagster.core", "audit_pipeline.pipeline", "audit_pipeline.pipeline.removal"} <= names


def test_every_package_with_a_wall_exists() -> None:
    assert all(modules_of(package) for package in WALLS)


def test_no_package_imports_what_it_must_not() -> None:
    found = {offence for package, forbidden in WALLS.items() for offence in offences(modules_of(package), forbidden)}
    assert sorted(found) == []


def test_no_files_of_back_ends_and_of_the_pipeline_import_each_other_in_a_circle() -> None:
    """Imports within functions and those for types alone count as well."""
    known = {module_name(path): path for path in MODULES}
    rooms = ("models", "token_statistics", "extras.servers", "extras.ray", "pipeline")
    paths = [path for room in rooms for path in modules_of(room)]
    paths += [path for path in MODULES if path.parts[0] == "assets"]
    files = {module_name(path): path for path in paths}
    graph = {name: {one for one in names_imported_by(path) if one in known} - {name} for name, path in files.items()}
    TopologicalSorter(graph).prepare()


def test_only_what_operates_imports_dagster_and_assets_do_not() -> None:
    operating = {*modules_of("pipeline"), *modules_of("extras.maintenance"), Path("audit_pipeline/definitions.py")}
    elsewhere = [
        path for path in MODULES if path.parts[0] != "corpus_audit" and path not in operating and not has_commands(path)
    ]
    assert offences(elsewhere, {"dagster", "audit_pipeline.pipeline.dagster"}) == set()
    core = [path for path in elsewhere if path.parts[0] != "assets"]
    assert offences(core, {"assets"}) == set()


def test_ray_is_imported_in_one_module() -> None:
    assert {module for module, _ in offences(MODULES, {"ray"})} == {"extras.ray.ray_backend"}


def test_one_client_sends_all_requests() -> None:
    """The other modules name types of httpx2 and requests, or set up a library that brings its own client."""
    libraries = {"httpx2", "requests", "urllib3", "http.client", "aiohttp"}
    others = [module for module in MODULES if module not in modules_of("http")]
    assert {module for module, _ in offences(others, libraries)} == {
        "models.model_proposals",
        "readers.hub_faults",
        "readers.package_downloads",
        "sources.web.polite_client",
    }


def test_where_a_model_is_run_is_asked_of_its_host_outside_the_rooms_of_back_ends() -> None:
    """An entry's endpoint is a matter of models/, extras/servers/ and what opens them: others ask ``entry.host``."""
    rooms = {*modules_of("models"), *modules_of("extras.servers"), Path("audit_pipeline/scoring/backends.py")}
    others = [module for module in MODULES if module not in rooms]
    asked = {
        f"{module}:{node.lineno}"
        for module in others
        for node in list_nodes(module)
        if isinstance(node, ast.Attribute) and node.attr == "endpoint"
        # Other things of that name: a file's path, the index of packages.
        if ast.unparse(node) not in {"paths.endpoint", "index.endpoint"}
    }
    assert sorted(asked) == []


def test_only_the_front_doors_import_the_composition_root_and_nobody_imports_them() -> None:
    elsewhere = [path for path in MODULES if path.parts[0] != "corpus_audit" and not has_commands(path)]
    assert offences(elsewhere, {"corpus_audit", "audit_pipeline.cli"}) == set()
    assert offences(elsewhere, {"audit_pipeline.definitions"}) == set()


DECIDES = re.compile(
    r"stale|is_fresh|outdated|up_to_date|is_current|is_done|done_pairs|nothing_to_do|needs_(run|build)"
)


# Package of extras -> the modules of the core that import it by name, and why. All else is found by its place, or has
# its asset in assets/.
DOORS = {
    # A check of a user's own files is an audit, a search of them, and the sealed plan of both.
    "evidence_packs": {"cli.check"},
    # Besides: the settings of a benchmark's entry have the defaults of the search.
    "extraction": {"cli.check", "benchmarks.settings"},
    # What opens the back end of a model, which differs in kind and not only by name.
    "ray": {"scoring.backends"},
    "servers": {"scoring.backends"},
}


@pytest.mark.parametrize(
    "package", [path.name for path in sorted((PACKAGE / "extras").iterdir()) if (path / "__init__.py").exists()]
)
def test_the_core_imports_extras_through_these_doors_alone(package: str) -> None:
    core = [path for path in MODULES if path.parts[0] != "assets" and path.parts[:2] != ("audit_pipeline", "extras")]
    assert {module for module, _ in offences(core, {f"audit_pipeline.extras.{package}"})} == DOORS.get(package, set())


def test_what_is_up_to_date_is_what_the_plan_says() -> None:
    """Whoever tells it asks the one rule (pipeline/plan.py) and compares nothing."""

    def calls_in(node: ast.AST) -> Iterator[ast.Call]:
        return (one for one in ast.walk(node) if isinstance(one, ast.Call))

    by_themselves = {
        (module.as_posix(), node.name)
        for module in MODULES
        for node in list_nodes(module)
        if isinstance(node, ast.FunctionDef) and DECIDES.search(node.name)
        if not {"plan", "plan_quickly"} & {ast.unparse(one.func).rpartition(".")[2] for one in calls_in(node)}
    }
    assert by_themselves == set()


def test_the_root_holds_three_modules() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "errors.py", "definitions.py"}


def test_pure_packages_load_no_heavy_library_at_run_time() -> None:
    pure = ("store", "statistics", "detectors", "splits", "statistics")
    names = sorted(module_name(path) for package in pure for path in modules_of(package))
    assert loaded_by(f"import importlib\nfor name in {names!r}: importlib.import_module(name)") == "[]"


def loaded_by(code: str) -> str:
    """Which heavy libraries a new process has loaded after ``code``."""
    code += "\nimport sys\nprint(sorted({'torch', 'transformers', 'dagster'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


COMPUTES = {"numpy", "pyarrow", "torch", "duckdb", "sklearn", "scipy", "transformers", "tokenizers", "datasets"}


def test_assets_import_nothing_to_compute_with() -> None:
    assert offences([path for path in MODULES if path.parts[0] == "assets"], COMPUTES) == set()


MOST_LINES_OF_AN_ASSET = 40


def test_no_asset_computes_so_none_is_long() -> None:
    """Assets are wiring: what they wire together is computed in the packages that they call."""
    long = {
        (module.stem, node.name)
        for module in MODULES
        if module.parts[0] == "assets"
        for node in list_nodes(module)
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
        if node.end_lineno - node.lineno + 1 > MOST_LINES_OF_AN_ASSET
    }
    assert sorted(long) == []


DATA_FOLDERS = {
    "audit.duckdb",
    "contamination_report.html",
    "dagster_home",
    "documents.parquet",
    "evaluations.parquet",
    "examples.parquet",
    "token_statistics",
}


def test_paths_under_data_are_built_in_one_module() -> None:
    elsewhere = [module for module in MODULES if module != Path("audit_pipeline/store/paths.py")]
    built = [
        f"{module}:{node.lineno}: {node.value!r}"
        for module in elsewhere
        for node in list_nodes(module)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant)
        for node in [node.right]
        if node.value in DATA_FOLDERS or str(node.value).startswith(("kind=", "model=", "run_id=", "partition="))
    ]
    reads_the_variable = [
        str(module)
        for module in elsewhere
        for node in list_nodes(module)
        if isinstance(node, ast.Subscript | ast.Call)
        and "environ" in ast.unparse(node)
        and "'CORPUS_AUDIT_DATA'" in ast.unparse(node)
        and not isinstance(getattr(node, "ctx", None), ast.Store)
    ]
    assert not built
    assert not reads_the_variable


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_has_a_docstring(module: Path) -> None:
    assert ast.get_docstring(parse(module))
