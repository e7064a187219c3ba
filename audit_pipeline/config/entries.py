"""Files of named entries: read them, keep the good entries, and say what is wrong with the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import yaml
from dagster_shared.yaml_utils import parse_yamls_with_source_position
from dagster_shared.yaml_utils.source_position import SourcePositionTree

from audit_pipeline.config.problems import (
    BrokenFileError,
    Fault,
    InvalidEntryError,
    Problem,
    did_you_mean,
    format_problems,
)
from audit_pipeline.errors import ConfigError, to_one_line
from audit_pipeline.readers.regular_files import read_regular_file
from audit_pipeline.store.paths import config_dir, explain_unusable_name

_MERGE = "tag:yaml.org,2002:merge"
Repeated = tuple[tuple[str, ...], Fault]


class YamlFile(NamedTuple):
    """The value of a file, dates as texts; the lines of all its keys; and the keys that occur twice, by their path."""

    value: Any
    positions: SourcePositionTree | None
    repeated_keys: Sequence[Repeated]


def read_yaml(path: Path, purpose: str) -> YamlFile:
    """Read the file at ``path``; ``purpose`` says what it is for, where it is missing.

    Raises BrokenFileError, naming the file and the line, where it is missing, cannot be read, or is not one YAML
    document.
    """
    try:
        file = _parse_yaml(read_regular_file(path).decode("utf-8"), str(path))
    except FileNotFoundError as error:
        raise BrokenFileError(Problem(path, None, f"is missing; {purpose}")) from error
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        words = to_one_line(", ".join(part for part in (error.context, error.problem) if part))
        raise BrokenFileError(Problem(path, line, f"cannot be read: it is not readable YAML: {words}")) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BrokenFileError(Problem(path, None, f"cannot be read: {to_one_line(error)}")) from error
    return file._replace(value=deepcopy(file.value))


@lru_cache(maxsize=64)
def _parse_yaml(text: str, filename: str) -> YamlFile:
    """Parse a text once, however often its file is read."""
    documents = parse_yamls_with_source_position(text, filename)
    value, positions = documents[0] if documents else (None, None)
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return YamlFile(value, positions, tuple(_iterate_repeated_keys(root)))


def _iterate_repeated_keys(node: yaml.Node | None, path: tuple[str, ...] = ()) -> Iterator[Repeated]:
    """Yield the keys below ``node`` that are twice in their mapping: a copied entry that was not renamed would vanish.

    What is merged (<<) belongs to the entry that it is merged from.
    """
    if isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            yield from _iterate_repeated_keys(child, (*path, str(number)))
    elif isinstance(node, yaml.MappingNode):
        own = [(str(key.value), key, value) for key, value in node.value if key.tag != _MERGE]
        names: set[str] = set()
        for name, key, value in own:
            if name in names:
                yield (*path, name), Fault((), f"key '{name}' occurs twice", key.start_mark.line + 1)
            names.add(name)
            yield from _iterate_repeated_keys(value, (*path, name))


E = TypeVar("E")


@dataclass(eq=False)
class Entries(Mapping[str, E]):
    """The entries of a file that can be used, by name and in the file's order; the others are ``broken``.

    A broken entry is still one of the file's ``names``: it was not taken out. ``given`` are the plain values of every
    entry that has any, broken entries too.
    """

    path: Path
    what: str
    good: Mapping[str, E]
    broken: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    positions: SourcePositionTree | None = None
    given: Mapping[str, object] = field(default_factory=dict)

    def __getitem__(self, name: str) -> E:
        return self.good[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.good)

    def __len__(self) -> int:
        return len(self.good)

    @property
    def names(self) -> tuple[str, ...]:
        """Return every name in the file, those of broken entries among them."""
        in_file = () if self.positions is None else map(str, self.positions.children)
        return tuple(dict.fromkeys([*in_file, *self.good, *self.broken]))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return all that is wrong with the broken entries, in the file's order."""
        return tuple(problem for name in self.names for problem in self.broken.get(name, ()))

    def is_broken(self, name: str) -> bool:
        """Return whether the file has an entry of that name that cannot be used."""
        return name in self.broken

    def require_not_broken(self, name: str) -> None:
        """Raise ConfigError, with all that is wrong with it, where the entry of that name cannot be used."""
        if self.is_broken(name):
            raise ConfigError(format_problems(self.broken[name]))

    def get_entry(self, name: str) -> E:
        """Return the entry of that name; raises ConfigError where it is broken or missing, with the nearest names."""
        self.require_not_broken(name)
        if name not in self:
            hint = did_you_mean(name, self.names, "configured")
            raise ConfigError(f"there is no {self.what} '{name}' in config/{self.path.name}; {hint}")
        return self[name]

    def build_problem(self, name: str, fault: Fault) -> Problem:
        """Return a fault of the entry of that name, with its line."""
        line = fault.line
        if line is None and self.positions is not None:
            line = self.positions.lookup_closest_and_path([name, *fault.keys], None)[0].start.line
        return Problem(self.path, line, fault.words, f"{self.what} {name}")

    def with_faults(self, faults: Mapping[str, Sequence[Fault]]) -> Entries[E]:
        """Return the entries with those broken that have ``faults``, by name."""
        found = {name: [self.build_problem(name, fault) for fault in of_entry] for name, of_entry in faults.items()}
        broken = {**self.broken, **{name: [*self.broken.get(name, ()), *problems] for name, problems in found.items()}}
        good = {name: entry for name, entry in self.good.items() if name not in broken}
        return Entries(self.path, self.what, good, broken, self.positions, self.given)


@dataclass(frozen=True)
class EntryReference:
    """A key whose text, or texts, name an entry elsewhere, or a source or detector.

    ``to`` is what that is called (`EntryFile.what`). ``allow_external``: of models also a hub id or a path.
    """

    keys: tuple[str, ...]
    to: str
    allow_external: bool = False

    @property
    def key(self) -> str:
        """Return the key as messages write it."""
        return ".".join(self.keys)


@dataclass(frozen=True)
class EntryFile(Generic[E]):
    """A file of config/ and how its entries are read.

    ``key`` is the one key that holds the entries; None if they are the file's own sections, each of which may be left
    out or empty. ``what`` is what an entry is called, ``purpose`` says what a missing file would be for,
    and ``read`` makes an entry of its name, its values and the file's folder; it raises InvalidEntryError.
    ``references`` are the keys that name what must exist: pipeline/whole_configuration.py checks whether it does. ``may_be_paths``:
    names may be paths, because folders are named after their quoted form.

    ``affects_audits``: audits depend on it without naming it. ``dimension``: what products are of that are made of an
    entry each, of ``always`` whether there is an entry or not. ``compare`` finds what is wrong with entries beside
    those of other files, by entry: it gets the entries and all files by name, of one that cannot be read its error.
    """

    name: str
    key: str | None
    what: str
    purpose: str
    read: Callable[[str, Any, Path], E]
    is_optional: bool = False
    references: tuple[EntryReference, ...] = ()
    may_be_paths: bool = False
    affects_audits: bool = False
    dimension: str | None = None
    always: tuple[str, ...] = ()
    compare: Callable[[Entries[E], Mapping[str, object]], Mapping[str, Sequence[Fault]]] | None = None

    def load(self, folder: Path | None = None) -> Entries[E]:
        """Load the file in ``folder``, by default the configuration's; no entries where an optional file is missing.

        Raises BrokenFileError, naming the file, if no entry of it can be read.
        """
        path = (folder or config_dir()) / self.name
        if self.is_optional and not path.exists():
            return Entries(path, self.what, {})
        return self.read_file(path)

    def read_file(self, path: Path) -> Entries[E]:
        """Read the entries of one file of this form, whatever its name."""
        file = read_yaml(path, self.purpose)
        content, positions = self._find_entries(path, file)
        repeated: dict[str, list[Fault]] = defaultdict(list)
        depth = 0 if self.key is None else 1
        for keys, fault in file.repeated_keys:
            if len(keys) <= depth:
                raise BrokenFileError(Problem(path, fault.line, fault.words))
            repeated[keys[depth]].append(fault)
        given: dict[str, object] = {}
        good: dict[str, E] = {}
        faults: dict[str, Sequence[Fault]] = {}
        for name, value in content.items():
            try:
                if name in repeated:
                    raise InvalidEntryError(repeated[name])
                if not self.may_be_paths and (problem := explain_unusable_name(self.what, name)) is not None:
                    raise InvalidEntryError([Fault((), problem)])
                given[name] = self._require_fields(value)
                good[name] = self.read(name, given[name], path.parent)
            except InvalidEntryError as error:
                faults[name] = error.faults
        return Entries(path, self.what, {**good}, {}, positions, given).with_faults(faults)

    def _find_entries(self, path: Path, file: YamlFile) -> tuple[dict[str, Any], SourcePositionTree | None]:
        """Find the values of the entries by name, and their positions."""
        content, positions = file.value, file.positions
        if self.key is not None:
            if not isinstance(content, dict) or list(content) != [self.key] or not isinstance(content[self.key], dict):
                words = f"must hold one key, '{self.key}', with an entry for each {self.what} under it"
                raise BrokenFileError(Problem(path, None, words))
            content = content[self.key]
            positions = None if positions is None else positions.children[self.key]
        elif content is not None and not isinstance(content, dict):
            raise BrokenFileError(Problem(path, 1, f"must hold {self.what}s by name"))
        return {str(name): value for name, value in (content or {}).items()}, positions

    def _require_fields(self, value: object) -> object:
        if self.key is None:
            return {} if value is None else value
        if not isinstance(value, dict):
            raise InvalidEntryError([Fault((), "the entry holds no keys")])
        if "name" in value:
            raise InvalidEntryError([Fault(("name",), "key 'name': an entry's name is its key")])
        return value
