"""The content of a data folder, for comparisons before and after a command."""

from __future__ import annotations

import pyarrow.parquet as pq

from audit_pipeline.store.paths import DataPaths


def read_tree(paths: DataPaths) -> dict[str, object]:
    """Return the content of each file and folder by its path, except locks and Dagster's files.

    Parts of a cache are one entry with the keys of their rows.
    """
    tree: dict[str, object] = {}
    keys: dict[str, set[str]] = {}
    for path in sorted(paths.root.rglob("*")):
        name = str(path.relative_to(paths.root))
        if path.name.startswith("part-"):
            table = pq.read_table(path, columns=["key"], partitioning=None)
            keys.setdefault(f"{name.rpartition('/')[0]}/part-*", set()).update(table["key"].to_pylist())
        elif path.suffix != ".lock" and not [*path.glob("*.lock")] and paths.dagster_home not in (path, *path.parents):
            tree[name] = path.read_bytes() if path.is_file() else None
    return tree | keys
