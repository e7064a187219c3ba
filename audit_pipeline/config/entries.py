"""Files of named entries: what is good in them, and what is wrong with the rest.

What belongs here: loading a file so that a bad entry stops itself and no other. What does not: what an entry may hold
(the config.py of each domain), what must hold between files (operate/configuration.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml

from audit_pipeline.catalogue.paths import config_dir
from audit_pipeline.config.hints import did_you_mean
from audit_pipeline.config.problems import BrokenFileError, Fault, InvalidEntryError, Problem, in_one_line
from audit_pipeline.config.reading import KeyValue, YamlFile, line_of, pairs_of, read_yaml
from audit_pipeline.errors import ConfigError

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
            raise ConfigError(in_one_line(self._problems[name]))

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

    ``key`` is the one key that the entries stand under; None where they are the file's own sections, of which every one
    may be left out or empty. ``what`` is what an entry is called, ``purpose`` says what a missing file would be for,
    and ``read`` makes an entry of its name, its values and the file's folder; it raises InvalidEntryError. ``leads``
    are the keys that name what must be there: operate/configuration.py looks whether it is.
    """

    name: str
    key: str | None
    what: str
    purpose: str
    read: Callable[[str, Any, Path], E]
    is_optional: bool = False
    leads: tuple[EntryReference, ...] = ()

    def load(self, folder: Path | None = None) -> Entries[E]:
        """The entries of the file in ``folder``, by default the configuration's; none where an optional one is missing.

        Raises BrokenFileError, naming the file, where no entry of it can be told.
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
            return _named(top)
        if [pair.key.value for pair in top] != [self.key] or not isinstance(top[0].value, yaml.MappingNode):
            words = f"must hold one key, '{self.key}', with an entry for each {self.what} under it"
            raise InvalidEntryError([Fault((), words)])
        return _named(pairs_of(top[0].value))

    def _fields(self, value: object) -> object:
        if self.key is None:
            return {} if value is None else value
        if not isinstance(value, dict):
            raise InvalidEntryError([Fault((), "the entry holds no keys")])
        if "name" in value:
            raise InvalidEntryError([Fault(("name",), "key 'name': an entry's name is the key that it stands under")])
        return value


def _named(pairs: Sequence[KeyValue]) -> Sequence[KeyValue]:
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
