"""The declarations of all tables of the pipeline and the warehouse.

Each module of this package declares the tables of one topic. ``TABLES`` contains all declared tables by name, including
the tables of plug-ins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from graphlib import TopologicalSorter

from audit_pipeline.store.stage_plugins import load_stage_plugins
from audit_pipeline.tables.chat_answers import *
from audit_pipeline.tables.common import *
from audit_pipeline.tables.examples import *
from audit_pipeline.tables.experiments import *
from audit_pipeline.tables.extraction import *
from audit_pipeline.tables.findings import *
from audit_pipeline.tables.overlap import *
from audit_pipeline.tables.sql import EXCERPT_CHARACTERS as EXCERPT_CHARACTERS
from audit_pipeline.tables.sql import EXCERPT_WORDS as EXCERPT_WORDS
from audit_pipeline.tables.table import Table as Table
from audit_pipeline.tables.table import description_of as description_of
from audit_pipeline.tables.token_statistics import *
from audit_pipeline.tables.warehouse import *

_DECLARED = {value.name: value for value in list(globals().values()) if isinstance(value, Table)}


class _Tables(Mapping[str, Table]):
    """The declared tables and the tables of stage plug-ins. The plug-ins are loaded on first use."""

    @cached_property
    def _tables(self) -> dict[str, Table]:
        tables: dict[str, Table] = {}
        for _, stage in load_stage_plugins():
            for table in getattr(stage, "tables", ()):
                if isinstance(table, Table):
                    tables[table.name] = table
        tables.update(_DECLARED)
        order = TopologicalSorter({table.name: table.made_from for table in tables.values()}).static_order()
        return {name: tables[name] for name in order if name in tables}

    def __getitem__(self, name: str) -> Table:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


TABLES: Mapping[str, Table] = _Tables()
"""All tables by name. A table comes after the tables that its rows are computed from."""
