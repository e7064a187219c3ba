"""Files of named entries: from YAML to plain values and their lines, what is good in them, what is wrong with the rest.

What belongs here: reading a file, repeated keys, and loading it so that a bad entry stops itself and no other.
What does not: what an entry may hold (the config.py of each domain), its values as settings (validation.py), what must
hold between files (operate/whole_configuration.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import yaml

from audit_pipeline.catalogue.paths import config_dir, explain_path
from audit_pipeline.config.hints import did_you_mean
from audit_pipeline.config.problems import BrokenFileError, Fault, InvalidEntryError, Keys, Problem, format_problems
from audit_pipeline.errors import ConfigError, to_one_line

MOST_BYTES = 1 << 20
_TOO_DEEP = "it is nested too deep"
_LARGEST = 10**18

_MERGE = "tag:yaml.org,2002:merge"


class KeyValue(NamedTuple):
    """A key and its value, as the file has them."""

    key: yaml.Node
    value: yaml.Node

    @property
    def line(self) -> int:
        return int(self.key.start_mark.line) + 1


@dataclass(frozen=True)
class YamlFile:
    """A file whose values are made one by one, so that a fault in one of them is its own alone."""

    path: Path
    root: yaml.Node | None
    _repeated_keys: Mapping[int, yaml.Node | None]

    def value(self, node: yaml.Node) -> Any:
        """The value of ``node``; raises InvalidEntryError if it has none."""
        repeated = self._repeated_keys[id(node)]
        if repeated is not None:
            raise InvalidEntryError([Fault((), f"key '{repeated.value}' occurs twice", repeated.start_mark.line + 1)])
        try:
            return _Values().construct_object(node, deep=True)
        except yaml.MarkedYAMLError as error:
            raise InvalidEntryError([Fault((), _describe_yaml_error(error), _line_of_error(error))]) from error
        except ValueError as error:
            # A date that no calendar has, a number that no setting needs.
            raise InvalidEntryError([Fault((), f"a value cannot be read: {to_one_line(error)}")]) from error
        except RecursionError as error:
            raise InvalidEntryError([Fault((), _TOO_DEEP)]) from error


def read_yaml(path: Path, purpose: str) -> YamlFile:
    """The file at ``path``; ``purpose`` says what it is for, where it is missing.

    Raises BrokenFileError, naming the file and the line, where it is missing, cannot be read, is no YAML, or is larger
    than any configuration.
    """
    try:
        with path.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise BrokenFileError(Problem(path, None, f"is missing; {purpose}")) from error
    except OSError as error:
        raise BrokenFileError(Problem(path, None, f"cannot be read: {to_one_line(error)}")) from error
    if len(content) > MOST_BYTES:
        raise BrokenFileError(Problem(path, None, f"is larger than {MOST_BYTES:,} bytes: it must hold settings alone"))
    try:
        root = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
        # Before a value is made: that writes what is merged into the nodes.
        repeated_keys: dict[int, yaml.Node | None] = {}
        if root is not None:
            _find_repeated_keys(root, repeated_keys)
        return YamlFile(path, root, repeated_keys)
    except yaml.MarkedYAMLError as error:
        raise BrokenFileError(
            Problem(path, _line_of_error(error), f"cannot be read: {_describe_yaml_error(error)}")
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        words = f"cannot be read: it is not readable YAML: {to_one_line(error)}"
        raise BrokenFileError(Problem(path, None, words)) from error
    except RecursionError as error:
        raise BrokenFileError(Problem(path, None, f"cannot be read: {_TOO_DEEP}")) from error


def pairs_of(node: yaml.Node | None) -> list[KeyValue]:
    """The keys and values of a mapping, with those that are merged into it (<<); none of anything else.

    Raises InvalidEntryError if what is merged is no mapping.
    """
    if not isinstance(node, yaml.MappingNode):
        return []
    try:
        # Does nothing the second time.
        yaml.constructor.SafeConstructor().flatten_mapping(node)
    except yaml.MarkedYAMLError as error:
        raise InvalidEntryError([Fault((), _describe_yaml_error(error), _line_of_error(error))]) from error
    return [KeyValue(*pair) for pair in node.value]


def line_of(entry: KeyValue, keys: Keys) -> int:
    """The line of the value that ``keys`` lead to from ``entry``, or of as much of the way as there is."""
    line, node = entry.line, entry.value
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
            continue
        found = [pair for pair in pairs_of(node) if pair.key.value == str(key)]
        if not found:
            break
        # An entry's own keys come after those that are merged into it.
        line, node = found[-1].line, found[-1].value
    return line


class _Values(yaml.constructor.SafeConstructor):
    """Whole numbers are those that every library takes."""


def _parse_whole_number(values: Any, node: Any) -> int:
    number = int(values.construct_yaml_int(node))
    if abs(number) >= _LARGEST:
        raise ValueError(f"a whole number has at most 18 digits, and this one begins with {node.value[:20]}")
    return number


_Values.add_constructor("tag:yaml.org,2002:int", _parse_whole_number)


def _find_repeated_keys(node: yaml.Node, repeated_by_node: dict[int, yaml.Node | None]) -> yaml.Node | None:
    """The first key under ``node`` that is twice in its mapping; ``repeated_by_node`` gets those of all nodes below.

    A copied entry that was not renamed would vanish otherwise. What is merged belongs to the entry that it is merged
    from.
    """
    if id(node) in repeated_by_node:
        return repeated_by_node[id(node)]
    # For an alias within its own value.
    repeated_by_node[id(node)] = None
    repeated: list[yaml.Node] = []
    below: list[yaml.Node | None] = []
    if isinstance(node, yaml.SequenceNode):
        below = [_find_repeated_keys(child, repeated_by_node) for child in node.value]
    elif isinstance(node, yaml.MappingNode):
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            of_pair = [_find_repeated_keys(child, repeated_by_node) for child in (key, value)]
            if key.tag == _MERGE:
                continue
            below += of_pair
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    repeated.append(key)
                seen.add((key.tag, key.value))
    repeated_by_node[id(node)] = next((key for key in (*repeated, *below) if key is not None), None)
    return repeated_by_node[id(node)]


def _describe_yaml_error(error: yaml.MarkedYAMLError) -> str:
    parts = ", ".join(part for part in (error.context, error.problem) if part)
    return f"it is not readable YAML: {to_one_line(parts)}"


def _line_of_error(error: yaml.MarkedYAMLError) -> int | None:
    return None if error.problem_mark is None else int(error.problem_mark.line) + 1


E = TypeVar("E")

_LONGEST_NAME = 60


class Entries(Mapping[str, E]):
    """The entries of a file that can be used, by name and in the file's order; the others are ``broken``.

    A broken entry is still one of the file's ``names``: it was not taken out.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        good: Mapping[str, E],
        problems: Mapping[str, Sequence[Problem]] | None = None,
        places: Mapping[str, KeyValue] | None = None,
        given: Mapping[str, object] | None = None,
    ) -> None:
        self.path = path
        self.what = what
        self.given = dict(given or {})
        """The plain values of every entry that has any, broken ones too."""
        self._good = dict(good)
        self._problems = {name: tuple(found) for name, found in (problems or {}).items()}
        self._places = dict(places or {})

    def __getitem__(self, name: str) -> E:
        return self._good[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._good)

    def __len__(self) -> int:
        return len(self._good)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name in the file, those of broken entries among them."""
        return tuple(dict.fromkeys([*self._places, *self._good, *self._problems]))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong with the broken entries, in the file's order."""
        return tuple(problem for name in self.names for problem in self._problems.get(name, ()))

    def is_broken(self, name: str) -> bool:
        """Whether the file has an entry of that name that cannot be used."""
        return name in self._problems

    def require_not_broken(self, name: str) -> None:
        """Raise ConfigError, with all that is wrong with it, where the entry of that name cannot be used."""
        if self.is_broken(name):
            raise ConfigError(format_problems(self._problems[name]))

    def named(self, name: str) -> E:
        """The entry of that name; raises ConfigError where it is broken, or where there is none, with the nearest."""
        self.require_not_broken(name)
        if name not in self:
            hint = did_you_mean(name, self.names, "configured")
            raise ConfigError(f"there is no {self.what} '{name}' in config/{self.path.name}; {hint}")
        return self[name]

    def problem(self, name: str, fault: Fault) -> Problem:
        """A fault of the entry of that name, with its line."""
        line = fault.line
        if line is None and name in self._places:
            line = line_of(self._places[name], fault.keys)
        shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
        return Problem(self.path, line, fault.words, f"{self.what} {shown}")

    def without(self, faults: Mapping[str, Sequence[Fault]]) -> Entries[E]:
        """The entries with those broken that have ``faults``, by name."""
        problems = {**self._problems}
        for name, found in faults.items():
            problems[name] = (*problems.get(name, ()), *(self.problem(name, fault) for fault in found))
        good = {name: entry for name, entry in self._good.items() if name not in problems}
        return Entries(self.path, self.what, good, problems, self._places, self.given)


@dataclass(frozen=True)
class EntryReference:
    """A key whose text, or texts, name an entry elsewhere, or a source or detector.

    ``to`` is what that is called (`EntryFile.what`). ``or_elsewhere``: of models also a hub id or a path.
    """

    keys: tuple[str, ...]
    to: str
    or_elsewhere: bool = False

    @property
    def key(self) -> str:
        """The key as messages write it."""
        return ".".join(self.keys)


@dataclass(frozen=True)
class EntryFile(Generic[E]):
    """A file of config/ and how its entries are read.

    ``key`` is the one key that holds the entries; None if they are the file's own sections, each of which may be left
    out or empty. ``what`` is what an entry is called, ``purpose`` says what a missing file would be for,
    and ``read`` makes an entry of its name, its values and the file's folder; it raises InvalidEntryError. ``leads``
    are the keys that name what must exist: operate/whole_configuration.py checks whether it does. ``may_be_paths``:
    names may be paths, because folders are named after their quoted form.
    """

    name: str
    key: str | None
    what: str
    purpose: str
    read: Callable[[str, Any, Path], E]
    is_optional: bool = False
    leads: tuple[EntryReference, ...] = ()
    may_be_paths: bool = False

    def load(self, folder: Path | None = None) -> Entries[E]:
        """The entries of the file in ``folder``, by default the configuration's; none where an optional one is missing.

        Raises BrokenFileError, naming the file, if no entry of it can be read.
        """
        path = (folder or config_dir()) / self.name
        if self.is_optional and not path.exists():
            return Entries(path, self.what, {})
        return self.read_file(path)

    def read_file(self, path: Path) -> Entries[E]:
        """The entries of one file of this form, whatever its name."""
        file = read_yaml(path, self.purpose)
        try:
            pairs = self._pairs(file)
        except InvalidEntryError as error:
            fault = error.faults[0]
            raise BrokenFileError(Problem(path, fault.line, fault.words)) from error
        places = {str(pair.key.value): pair for pair in pairs}
        empty: Entries[E] = Entries(path, self.what, {}, places=places)
        counts = Counter(str(pair.key.value) for pair in pairs)
        given: dict[str, object] = {}
        good: dict[str, E] = {}
        faults: dict[str, Sequence[Fault]] = {}
        for name, pair in places.items():
            try:
                if counts[name] > 1:
                    raise InvalidEntryError([_build_duplicate_fault(name, pairs)])
                if not self.may_be_paths and (problem := explain_path(self.what, name)) is not None:
                    raise InvalidEntryError([Fault((), problem)])
                given[name] = self._fields(file.value(pair.value))
                good[name] = self.read(name, given[name], path.parent)
            except InvalidEntryError as error:
                faults[name] = error.faults
        problems = {name: [empty.problem(name, fault) for fault in found] for name, found in faults.items()}
        return Entries(path, self.what, good, problems, places, given)

    def _pairs(self, file: YamlFile) -> Sequence[KeyValue]:
        top = pairs_of(file.root)
        if self.key is None:
            if not top and file.root is not None and file.value(file.root) not in ({}, None):
                raise InvalidEntryError([Fault((), f"must hold {self.what}s by name", 1)])
            return _require_scalar_keys(top)
        if [pair.key.value for pair in top] != [self.key] or not isinstance(top[0].value, yaml.MappingNode):
            words = f"must hold one key, '{self.key}', with an entry for each {self.what} under it"
            raise InvalidEntryError([Fault((), words)])
        return _require_scalar_keys(pairs_of(top[0].value))

    def _fields(self, value: object) -> object:
        if self.key is None:
            return {} if value is None else value
        if not isinstance(value, dict):
            raise InvalidEntryError([Fault((), "the entry holds no keys")])
        if "name" in value:
            raise InvalidEntryError([Fault(("name",), "key 'name': an entry's name is the key that it stands under")])
        return value


def _require_scalar_keys(pairs: Sequence[KeyValue]) -> Sequence[KeyValue]:
    for pair in pairs:
        if not isinstance(pair.key, yaml.ScalarNode):
            raise InvalidEntryError([Fault((), "must hold names before the colons, not lists or mappings", pair.line)])
    return pairs


def _build_duplicate_fault(name: str, pairs: Sequence[KeyValue]) -> Fault:
    own = [pair for pair in pairs if str(pair.key.value) == name]
    tags = {pair.key.tag for pair in own}
    how = ", once as a number and once as a text" if len(tags) > 1 else ""
    lines = " and ".join(str(pair.line) for pair in own[:2])
    return Fault((), f"occurs twice{how}, in lines {lines}", own[-1].line)
