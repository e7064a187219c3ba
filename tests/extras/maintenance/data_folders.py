"""The content of a data folder, for comparisons before and after a command."""

from __future__ import annotations

import pyarrow.parquet as pq

from audit_pipeline.store.paths import DataPaths


def read_tree(paths: DataPaths) -> dict[str, object]:
    """Return the content of each file by its path, and the keys of the rows of each cache folder.

    Locks and Dagster's files are left out.
    """
    tree: dict[str, object] = {}
    for path in sorted(paths.root.rglob("*")):
        name = str(path.relative_to(paths.root))
        if path.suffix == ".lock" or paths.dagster_home in (path, *path.parents):
            continue
        if path.name.startswith("part-"):
            keys = pq.read_table(path, columns=["key"], partitioning=None)["key"].to_pylist()
            folder = str(path.parent.relative_to(paths.root))
            tree[folder] = {*keys, *tree.get(folder, ())}  # type: ignore[misc]
        else:
            tree[name] = path.read_bytes() if path.is_file() else None
    return tree
