"""The tables that the stages hand to each other and that the warehouse holds, each declared once, and canonical forms.

What belongs here: the modules that declare tables, by stage, and the list of all that they declare: a table that one of
them declares is known everywhere. What does not: any declaration (its stage's module), what is made of them (sql.py,
store.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from graphlib import TopologicalSorter

from audit_pipeline.store.stage_plugins import load_stage_plugins
from audit_pipeline.tables.chat_answers import *
from audit_pipeline.tables.common import *
from audit_pipeline.tables.controls import *
from audit_pipeline.tables.documents import *
from audit_pipeline.tables.examples import *
from audit_pipeline.tables.extraction import *
from audit_pipeline.tables.findings import *
from audit_pipeline.tables.lineage import *
from audit_pipeline.tables.overlap import *
from audit_pipeline.tables.scores import *
from audit_pipeline.tables.sql import EXCERPT_CHARACTERS as EXCERPT_CHARACTERS
from audit_pipeline.tables.sql import EXCERPT_WORDS as EXCERPT_WORDS
from audit_pipeline.tables.table import Table as Table
from audit_pipeline.tables.table import description_of as description_of
from audit_pipeline.tables.token_statistics import *
from audit_pipeline.tables.unlearning import *
from audit_pipeline.tables.warehouse import *

_DECLARED = {value.name: value for value in list(globals().values()) if isinstance(value, Table)}


class _Tables(Mapping[str, Table]):
    """The declared tables, and those of stages that installed packages bring, which are loaded at the first look."""

    @cached_property
    def _tables(self) -> dict[str, Table]:
        brought = (table for _, stage in load_stage_plugins() for table in getattr(stage, "tables", ()))
        every = {**{table.name: table for table in brought if isinstance(table, Table)}, **_DECLARED}
        order = TopologicalSorter({table.name: table.made_from for table in every.values()}).static_order()
        return {name: every[name] for name in order if name in every}

    def __getitem__(self, name: str) -> Table:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


TABLES: Mapping[str, Table] = _Tables()
"""Every table by its name, each after those that it is made from."""
