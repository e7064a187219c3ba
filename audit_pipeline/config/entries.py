"""The loader of configuration files, which separates valid entries from broken entries.

A file of config/ is declared by an :class:`EntryFile` and read into :class:`Entries`. If an entry is broken, the other
entries can still be used.
"""

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
from audit_pipeline.readers.file_bytes import read_regular_file
from audit_pipeline.store.paths import config_dir, explain_unusable_name

_MERGE_TAG = "tag:yaml.org,2002:merge"


class RepeatedKey(NamedTuple):
    """A key that occurs twice in its mapping.

    Attributes:
        path: The keys from the top of the file to the repeated key, including the repeated key.
        fault: The message, with the line of the second occurrence.
    """

    path: tuple[str, ...]
    fault: Fault


class YamlFile(NamedTuple):
    """The content of a YAML file.

    Attributes:
        value: The parsed value. Dates are not converted, but stay strings.
        positions: The positions of all keys, or None if the file is empty.
        repeated_keys: The keys that occur twice in their mapping.
    """

    value: Any
    positions: SourcePositionTree | None
    repeated_keys: Sequence[RepeatedKey]


def read_yaml(path: Path, purpose: str) -> YamlFile:
    """Read a YAML file.

    Args:
        path: The file.
        purpose: The purpose of the file, as a sentence without a capital, such as ``it lists the models``. The error
            message about a missing file contains it.

    Raises:
        BrokenFileError: If the file is missing, unreadable, or not exactly one YAML document.
    """
    try:
        file = _parse_yaml(read_regular_file(path).decode("utf-8"), str(path))
    except FileNotFoundError as error:
        message = f"is missing; {purpose}. Restore the file, or copy it from a new workspace (corpus-audit init)"
        raise BrokenFileError(Problem(path, None, message)) from error
    except yaml.MarkedYAMLError as error:
        raise BrokenFileError(_build_syntax_problem(path, error)) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BrokenFileError(Problem(path, None, f"cannot be read: {to_one_line(error)}")) from error
    # The parsed value is cached, so every caller gets a copy that it may change.
    return file._replace(value=deepcopy(file.value))


def _build_syntax_problem(path: Path, error: yaml.MarkedYAMLError) -> Problem:
    line = None if error.problem_mark is None else error.problem_mark.line + 1
    details = [part for part in (error.context, error.problem) if part]
    return Problem(path, line, f"cannot be read: it is not valid YAML: {to_one_line(', '.join(details))}")


@lru_cache(maxsize=64)
def _parse_yaml(text: str, filename: str) -> YamlFile:
    documents = parse_yamls_with_source_position(text, filename)
    if not documents:
        return YamlFile(None, None, ())
    value, positions = documents[0]
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    return YamlFile(value, positions, tuple(_iterate_repeated_keys(root)))


def _iterate_repeated_keys(node: yaml.Node | None, path: tuple[str, ...] = ()) -> Iterator[RepeatedKey]:
    """Yield the keys below a node that occur twice in their mapping.

    The YAML parser would silently use the last value of such a key. For example, a user could copy an entry and forget
    to rename the copy. The first entry would then be lost without an error.
    """
    if isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            yield from _iterate_repeated_keys(child, (*path, str(number)))
    elif isinstance(node, yaml.MappingNode):
        seen_names: set[str] = set()
        for key, child in node.value:
            # Keys that are merged from another entry (<<) are checked in the entry that declares them.
            if key.tag == _MERGE_TAG:
                continue
            name = str(key.value)
            if name in seen_names:
                fault = Fault((), f"key '{name}' occurs twice; rename or remove one of them", key.start_mark.line + 1)
                yield RepeatedKey((*path, name), fault)
            seen_names.add(name)
            yield from _iterate_repeated_keys(child, (*path, name))


E = TypeVar("E")


@dataclass(eq=False)
class Entries(Mapping[str, E]):
    """The valid entries of a file, by name and in the file's order.

    Attributes:
        path: The file.
        entry_kind: The name of an entry's kind in messages, such as ``model``.
        good: The valid entries by name.
        broken: The problems of the invalid entries by name.
        positions: The positions of the entries' keys in the file.
        raw_values: The values of all entries as parsed from YAML, by name. Broken entries are included. Entries without
            a value are missing.
    """

    path: Path
    entry_kind: str
    good: Mapping[str, E]
    broken: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    positions: SourcePositionTree | None = None
    raw_values: Mapping[str, object] = field(default_factory=dict)

    def __getitem__(self, name: str) -> E:
        return self.good[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.good)

    def __len__(self) -> int:
        return len(self.good)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all valid and broken entries, in the file's order."""
        names: dict[str, None] = {}
        if self.positions is not None:
            names.update((str(key), None) for key in self.positions.children)
        names.update(dict.fromkeys(self.good))
        names.update(dict.fromkeys(self.broken))
        return tuple(names)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problems of all broken entries, in the file's order."""
        return tuple(problem for name in self.names for problem in self.broken.get(name, ()))

    def is_broken(self, name: str) -> bool:
        """Return True if the file has an entry with this name that cannot be used, because it has problems."""
        return name in self.broken

    def require_not_broken(self, name: str) -> None:
        """Raise ConfigError with all problems of the entry if it is broken."""
        if self.is_broken(name):
            raise ConfigError(format_problems(self.broken[name]))

    def get_entry(self, name: str) -> E:
        """Return the entry with this name.

        Raises:
            ConfigError: If the entry is broken or missing. For a missing entry the message suggests similar names.
        """
        self.require_not_broken(name)
        if name not in self:
            hint = did_you_mean(name, self.names, "configured")
            raise ConfigError(f"there is no {self.entry_kind} '{name}' in config/{self.path.name}; {hint}")
        return self[name]

    def build_problem(self, name: str, fault: Fault) -> Problem:
        """Convert a fault of an entry to a problem, which also has the file, the line and the entry's name."""
        line = fault.line
        if line is None and self.positions is not None:
            span, _ = self.positions.lookup_closest_and_path([name, *fault.keys], None)
            line = span.start.line
        return Problem(self.path, line, fault.message, f"{self.entry_kind} {name}")

    def with_faults(self, faults: Mapping[str, Sequence[Fault]]) -> Entries[E]:
        """Return a copy in which the entries with faults are broken.

        Args:
            faults: The faults by entry name. They are added to the problems that an entry already has.
        """
        broken = {name: list(problems) for name, problems in self.broken.items()}
        for name, entry_faults in faults.items():
            problems = [self.build_problem(name, fault) for fault in entry_faults]
            broken.setdefault(name, []).extend(problems)
        good = {name: entry for name, entry in self.good.items() if name not in broken}
        return Entries(self.path, self.entry_kind, good, broken, self.positions, self.raw_values)


@dataclass(frozen=True)
class EntryReference:
    """A key whose value names one or several other entries, sources or detectors.

    Attributes:
        keys: The keys that lead to the value.
        target_kind: The kind of the referenced objects: an ``EntryFile.entry_kind``, ``source`` or a kind of detector.
        allow_external: True if the value may also be a hub id or a path without an entry.
    """

    keys: tuple[str, ...]
    target_kind: str
    allow_external: bool = False

    @property
    def key(self) -> str:
        """Return the keys joined by dots for messages, such as ``members.sources``."""
        return ".".join(self.keys)


@dataclass(frozen=True)
class EntryFile(Generic[E]):
    """The declaration of a file of config/.

    Attributes:
        name: The file name.
        key: The only top-level key of the file, which contains the entries. None if the top-level keys are the names of
            entries. In this case an entry may be missing or empty.
        entry_kind: The name of an entry's kind in messages, such as ``model``.
        purpose: The purpose of the file, as :func:`read_yaml` requires it.
        read: A function that builds an entry from its name, its values and the folder of the file. It raises
            InvalidEntryError if the entry is invalid.
        is_optional: True if a missing file counts as a file without entries.
        references: The keys whose values name other entries. pipeline/whole_configuration.py checks that these exist.
        may_be_paths: True if entry names may be paths. Folders that are named after an entry use the quoted name.
        affects_audits: True if audits depend on the entries although no benchmark or model names them.
        dimension: The Dagster partition dimension of the products that are built per entry, or None.
        permanent_partitions: The partitions of ``dimension`` that exist without an entry.
        find_conflicts: A function that returns contradictions between entries of this file and other files, as faults
            by entry name. Its arguments are the entries and all files by name. The value of an unreadable file is its
            error.
    """

    name: str
    key: str | None
    entry_kind: str
    purpose: str
    read: Callable[[str, Any, Path], E]
    is_optional: bool = False
    references: tuple[EntryReference, ...] = ()
    may_be_paths: bool = False
    affects_audits: bool = False
    dimension: str | None = None
    permanent_partitions: tuple[str, ...] = ()
    find_conflicts: Callable[[Entries[E], Mapping[str, object]], Mapping[str, Sequence[Fault]]] | None = None

    def load(self, folder: Path | None = None) -> Entries[E]:
        """Read the entries of the configuration.

        Args:
            folder: The folder of the file. By default the folder of the configuration.

        Returns:
            The entries. Empty if the file is optional and missing.

        Raises:
            BrokenFileError: If no entry can be read.
        """
        path = (folder or config_dir()) / self.name
        if self.is_optional and not path.exists():
            return Entries(path, self.entry_kind, {})
        return self.read_file(path)

    def read_file(self, path: Path) -> Entries[E]:
        """Read the entries of a file with any name.

        Raises:
            BrokenFileError: If no entry can be read.
        """
        file = read_yaml(path, self.purpose)
        values, positions = self._find_entries(path, file)
        repeated = self._group_repeated_keys(path, file)
        raw_values: dict[str, object] = {}
        good: dict[str, E] = {}
        faults: dict[str, Sequence[Fault]] = {}
        for name, value in values.items():
            try:
                if name in repeated:
                    raise InvalidEntryError(repeated[name])
                self._require_usable_name(name)
                raw_values[name] = self._require_fields(value)
                good[name] = self.read(name, raw_values[name], path.parent)
            except InvalidEntryError as error:
                faults[name] = error.faults
        entries = Entries(path, self.entry_kind, good, positions=positions, raw_values=raw_values)
        return entries.with_faults(faults)

    def _find_entries(self, path: Path, file: YamlFile) -> tuple[dict[str, Any], SourcePositionTree | None]:
        """Return the values of the entries by name, and the positions of their keys."""
        if self.key is None:
            values = {} if file.value is None else file.value
            if not isinstance(values, dict):
                message = f"the file must have one key per {self.entry_kind}: the {self.entry_kind}'s name"
                raise BrokenFileError(Problem(path, 1, message))
            positions = file.positions
        else:
            values = self._get_only_mapping(path, file.value)
            positions = None if file.positions is None else file.positions.children[self.key]
        return {str(name): value for name, value in values.items()}, positions

    def _get_only_mapping(self, path: Path, content: object) -> dict[Any, Any]:
        """Return the mapping under the file's only key."""
        if isinstance(content, dict) and list(content) == [self.key]:
            values = content[self.key]
            if isinstance(values, dict):
                return values
        message = f"must have exactly one key, '{self.key}', with one entry per {self.entry_kind} under it"
        raise BrokenFileError(Problem(path, None, message))

    def _group_repeated_keys(self, path: Path, file: YamlFile) -> Mapping[str, Sequence[Fault]]:
        """Return the faults of repeated keys by the name of the entry that contains the keys.

        Raises:
            BrokenFileError: If a repeated key is in no entry.
        """
        depth = 0 if self.key is None else 1
        by_entry: dict[str, list[Fault]] = defaultdict(list)
        for repeated in file.repeated_keys:
            if len(repeated.path) <= depth:
                raise BrokenFileError(Problem(path, repeated.fault.line, repeated.fault.message))
            by_entry[repeated.path[depth]].append(repeated.fault)
        return by_entry

    def _require_usable_name(self, name: str) -> None:
        if self.may_be_paths:
            return
        reason = explain_unusable_name(self.entry_kind, name)
        if reason is not None:
            raise InvalidEntryError([Fault((), reason)])

    def _require_fields(self, value: object) -> object:
        if self.key is None:
            return {} if value is None else value
        if not isinstance(value, dict):
            raise InvalidEntryError([Fault((), "the entry has no keys; add its keys below its name")])
        if "name" in value:
            message = "key 'name' is not allowed: the name of an entry is its key. Remove 'name'."
            raise InvalidEntryError([Fault(("name",), message)])
        return value
