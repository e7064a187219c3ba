"""The tables that the stages hand to each other and that the warehouse holds, each declared once, and canonical forms.

What belongs here: the modules that declare tables, by stage, and the list of all that they declare: a table that one of
them declares is known everywhere. What does not: any declaration (its stage's module), what is made of them (sql.py,
store.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter

from audit_pipeline.catalogue.contracts.asking import *
from audit_pipeline.catalogue.contracts.common import *
from audit_pipeline.catalogue.contracts.controls import *
from audit_pipeline.catalogue.contracts.documents import *
from audit_pipeline.catalogue.contracts.examples import *
from audit_pipeline.catalogue.contracts.extraction import *
from audit_pipeline.catalogue.contracts.findings import *
from audit_pipeline.catalogue.contracts.overlap import *
from audit_pipeline.catalogue.contracts.plans import *
from audit_pipeline.catalogue.contracts.record import *
from audit_pipeline.catalogue.contracts.scores import *
from audit_pipeline.catalogue.contracts.statistics import *
from audit_pipeline.catalogue.contracts.unlearning import *
from audit_pipeline.catalogue.contracts.warehouse import *
from audit_pipeline.catalogue.sql import EXCERPT_CHARACTERS as EXCERPT_CHARACTERS
from audit_pipeline.catalogue.sql import EXCERPT_WORDS as EXCERPT_WORDS
from audit_pipeline.catalogue.table import Table as Table
from audit_pipeline.catalogue.table import description_of as description_of

_DECLARED = {value.name: value for value in list(globals().values()) if isinstance(value, Table)}

TABLES: Mapping[str, Table] = {
    name: _DECLARED[name]
    for name in TopologicalSorter({table.name: table.made_from for table in _DECLARED.values()}).static_order()
}
"""Every table by its name, each after those that it is made from."""

RUN_TABLES = tuple(table.name for table in TABLES.values() if table.append_only)
"""A run adds one file for a benchmark and model to each, and every row of it joins to one lineage entry."""
