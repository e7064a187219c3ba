"""Reading the configuration's YAML files: one reader, so that they all refuse the same things in the same words.

What belongs here: from a path to plain values. What does not: what may stand in a file (the config.py of each domain).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from audit_pipeline.errors import ConfigError


def read_yaml(path: Path, what: str) -> Any:
    """The value in a YAML file; ``what`` says what the file is for, where it is missing.

    Raises ConfigError, naming the file, where it is missing, cannot be read, is not YAML or names a key twice.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_EachKeyOnce)  # noqa: S506 - a SafeLoader
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is missing; {what}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: it is not readable YAML: {one_line(error)}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {one_line(error)}") from error


def read_entries(path: Path, key: str, entry: str, what: str) -> Mapping[str, object]:
    """The named entries under the one ``key`` of a YAML file, in its order; ``entry`` is what one of them is called.

    Raises ConfigError, naming the file, where it cannot be read or holds anything else.
    """
    content = read_yaml(path, what)
    entries = content.get(key) if isinstance(content, dict) else None
    if not isinstance(entries, dict) or set(content) != {key}:
        raise ConfigError(f"{path} must hold one key, '{key}', with an entry a {entry} under it")
    named = {str(name): fields for name, fields in entries.items()}
    if len(named) != len(entries):
        twice = next(str(name) for name in entries if not isinstance(name, str) and str(name) in entries)
        raise ConfigError(f"{path}: {entry} '{twice}' stands twice, once as a number and once as a text")
    return named


def one_line(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())


class _EachKeyOnce(yaml.SafeLoader):
    """YAML where a key that stands twice is an error: a copied entry that was not renamed would vanish otherwise."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        merge = "tag:yaml.org,2002:merge"
        nodes = [key for key, _ in node.value if key.tag != merge]
        keys = [self.construct_object(key, deep=True) for key in nodes]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                mark = nodes[place].start_mark
                raise yaml.constructor.ConstructorError(None, None, f"key '{key}' stands twice", mark)
        return super().construct_mapping(node, deep)
