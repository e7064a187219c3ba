"""The conversations of a benchmark as the chat templates of its models rendered them, for the command forget."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.model_inputs import build_example_inputs
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.scoring.needs.provider import list_derived_texts
from audit_pipeline.store.ledger_records import Ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read
from audit_pipeline.tables import EXAMPLES, TOKEN_STATISTICS, parse_pair, text_sha256


class RenderedConversations(NamedTuple):
    """The rendered conversations of a benchmark.

    Attributes:
        digests: The digests of the rendered texts, and of the texts that detectors derive from them.
        problems: One message per model whose chat template cannot be read.
    """

    digests: set[str]
    problems: list[str]


def render_conversations(
    benchmark: str, retained: Collection[str], ledger: Ledger, paths: DataPaths
) -> RenderedConversations:
    """Render the conversations of a benchmark for all models that were run on it.

    Args:
        benchmark: The name of the benchmark.
        retained: The digests of texts that another benchmark contains, too. Their conversations are skipped.
        ledger: The ledger.
        paths: The data folder.

    Raises:
        DataError: If the examples are unreadable.
    """
    rendered = RenderedConversations(set(), [])
    if not paths.examples(benchmark).exists():
        return rendered
    # The manifest is not needed. A removal that was killed may have deleted it.
    examples = read(paths, EXAMPLES, benchmark, label=f"the benchmark {benchmark}")
    is_retained = pa.array([text_sha256(text) in retained for text in EXAMPLES.texts(examples)], pa.bool_())
    conversations = examples.filter(pc.and_(examples["messages"].is_valid(), pc.invert(is_retained)))
    if not conversations.num_rows:
        return rendered
    pairs = {parse_pair(entry.partition) for entry in ledger.entries if entry.table == TOKEN_STATISTICS.name}
    for name in sorted(pair.model for pair in pairs if pair.benchmark == benchmark):
        try:
            model = load_tokenized(resolve_model(name, load_models()), paths)
            texts = build_example_inputs(conversations, model).distinct_texts
        except AuditError as error:
            rendered.problems.append(
                f"token statistics of {name} on the conversations of {benchmark}, because the chat template of the "
                f"model cannot be read ({error}). To remove them: corpus-audit forget --model {name}"
            )
            continue
        rendered.digests.update(map(text_sha256, [*texts, *list_derived_texts(texts)]))
    return rendered
