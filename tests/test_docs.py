"""The documentation as a whole: links lead somewhere, the README leads to every page, citations have a bibliography."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
READ = ("audit_pipeline", "assets", "bench", "config", "docs", "README.md")
# "Shi et al. 2024", "Vovk et al., 2005", "Carlini et al., USENIX Security 2021"; line ends may stand in between.
CITED = re.compile(
    r"((?:Le |Zare )?[A-Z][\w-]+)\s+et\s+al\.[,']*s?"
    r"(?:\s+(?:ACL|CSF|EMNLP|ICLR|ICML|USENIX|Security|Findings|of))*\s+(\d{4})"
)
LINK = re.compile(r"\]\(([^)#]+)")
ENTRY = re.compile(r"^- \*\*(.+?)\.\*\*", re.MULTILINE)


def files() -> Iterator[tuple[Path, str]]:
    for top in READ:
        base = ROOT / top
        for path in [base] if base.is_file() else sorted(base.rglob("*")):
            if path.suffix in {".py", ".sql", ".j2", ".yaml", ".md"} and path.name != "bibliography.md":
                yield path.relative_to(ROOT), path.read_text()


def entries() -> list[str]:
    return ENTRY.findall((ROOT / "docs" / "bibliography.md").read_text())


def test_every_citation_stands_in_the_bibliography() -> None:
    known = set(entries())
    cited = [(path, f"{name} et al. {year}") for path, text in files() for name, year in CITED.findall(text)]
    assert {path.parts[0] for path, _ in cited} >= {"audit_pipeline", "config", "docs", "README.md"}
    assert [(str(path), one) for path, one in cited if one not in known] == []


def test_everybody_in_the_bibliography_is_cited() -> None:
    everything = "\n".join(text for _, text in files())
    authors = [re.split(r" et al\.| and |, | (?=\d)", one)[0] for one in entries()]
    assert len(authors) > 30
    # A pattern that starts with its literal is found twenty times as fast as one that starts with a word boundary.
    assert [author for author in authors if not re.search(rf"{author}(?<!\w{author})\b", everything)] == []


def test_every_link_of_the_documentation_leads_to_a_file() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    links = [(page, link) for page in pages for link in LINK.findall(page.read_text()) if "://" not in link]
    assert len(links) > 50
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    pages = {page.resolve() for page in (ROOT / "docs").rglob("*.md")}
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        found = {(page.parent / link).resolve() for link in LINK.findall(page.read_text())} & pages
        waiting += found - reached
        reached |= found
    assert sorted(str(page.relative_to(ROOT)) for page in pages - reached) == []


FILE = re.compile(r"(?<![\w/<*.-])((?:[a-z_]+/)*[a-z_0-9]+\.(?:py|sql|md|yaml))\b")
ASIDE = re.compile(r"\(([a-z_/., ]+)\)")
ROLE = re.compile(r":(?:func|class|meth|data|attr|mod|exc):`~?(?:\w+\.)*(\w+)`")


@cache
def parse_product() -> Mapping[Path, Sequence[ast.AST]]:
    """Return all nodes of each module. The two tests of names share them."""
    modules = [path for top in ("audit_pipeline", "assets", "corpus_audit") for path in (ROOT / top).rglob("*.py")]
    return {path.relative_to(ROOT): list(ast.walk(ast.parse(path.read_text()))) for path in modules}


def test_docstrings_name_only_files_and_names_that_exist() -> None:
    nodes = [(path, node) for path, of_module in parse_product().items() for node in of_module]
    names = {getattr(node, "name", getattr(node, "id", None)) for _, node in nodes}
    names |= {path.stem for path in parse_product()}
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    ends = {"/".join(path.split("/")[-depth:]) for path in kept for depth in range(1, path.count("/") + 2)}
    texts = [
        (path, node.value.value)
        for path, node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    files = {(path, file) for path, text in texts for file in FILE.findall(text)}
    folders = {"/".join(place.split("/")[start:end]) for place in kept for end in range(1, 9) for start in range(end)}
    asides = [(str(path), word.strip(",.")) for path, text in texts for word in " ".join(ASIDE.findall(text)).split()]
    assert [aside for aside in asides if aside[1][-1:] == "/" and aside[1].strip("/") not in {*folders, ""}] == []
    roles = {(path, name) for path, text in texts for name in ROLE.findall(text)}
    assert len(files) > 100
    assert len(roles) > 100
    assert [(str(path), file) for path, file in sorted(files) if not {file, f"{file}.j2"} & ends] == []
    assert [(str(path), name) for path, name in sorted(roles) if name not in names] == []


BACKTICKS = re.compile(r"``([A-Za-z_]\w*(?:\.\w+)*)``")


def test_names_in_backticks_exist_in_the_code_or_the_configuration() -> None:
    docstrings: list[tuple[Path, str]] = []
    names: set[str] = set()
    for path, nodes in parse_product().items():
        texts = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, DOCUMENTED)]
        docstrings += [(path, text) for text in texts]
        names |= {path.stem, *_list_names(nodes, set(texts))}
    for top in ("audit_pipeline", "config"):
        for path in (ROOT / top).rglob("*.*"):
            if path.suffix in {".sql", ".yaml", ".j2"}:
                names |= set(re.findall(r"\w+", path.read_text()))
    quoted = [(str(path), name) for path, text in docstrings for name in BACKTICKS.findall(text)]
    assert len(quoted) > 500
    assert [(path, name) for path, name in quoted if not set(name.split(".")) <= names] == []


DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


@cache
def _list_name_fields(kind: type[ast.AST]) -> Sequence[str]:
    return [field for field in kind._fields if field in {"name", "id", "attr", "arg", "asname", "module"}]


def _list_names(nodes: Sequence[ast.AST], docstrings: set[str]) -> Iterator[str]:
    """Yield the identifiers of a module and the words of its strings, which include columns and keys."""
    for node in nodes:
        for field in _list_name_fields(type(node)):
            value = getattr(node, field)
            if isinstance(value, str):
                yield from value.split(".")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.strip() not in docstrings:
            yield from re.findall(r"\w+", node.value)
