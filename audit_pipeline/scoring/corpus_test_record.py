"""Keeping the result of a corpus test that a user ran.

What belongs here: its row and its lineage. What does not: the tests (scoring/corpus_tests.py).
"""

from __future__ import annotations

from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import CORPUS_TESTS, Pair
from audit_pipeline.catalogue.lineage import LineageStep
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import table_from_rows
from audit_pipeline.errors import DataError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.scoring.corpus_tests import CorpusTest

CODE_VERSION = "1"


def keep_corpus_test(result: CorpusTest, model: TokenizedModel, paths: DataPaths, *, run_id: str) -> None:
    """Write the result of a test that a user ran, with its lineage row; raises DataError for a name with a bar."""
    if "|" in result.benchmark:
        raise DataError(f"{result.benchmark}: the file's name holds a bar, which divides partitions: rename it")
    step = LineageStep.now(run_id, "corpus_test", CODE_VERSION)
    pair = Pair(result.benchmark, result.model)
    table = table_from_rows([result.row(run_id)], CORPUS_TESTS)
    store.write(
        paths,
        step,
        CORPUS_TESTS,
        pair,
        table,
        upstream={},
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
    )
