"""Corpus Audit from Python: was this text in that language model's pretraining data, and how sure can we be?

>>> import corpus_audit as ca
>>> scores = ca.score(["A text of mine.", "Another one."], model="smollm2-135m", detectors=["loss", "min_k"])
>>> findings = ca.audit(model="smollm2-135m", benchmark="demo")
>>> ca.warehouse().sql("SELECT detector, auroc FROM leaderboard").df()

What belongs here: the names that notebooks and scripts import. What does not: any work (audit_pipeline).

The functions use the same configuration and the same data folder as the command `corpus-audit` does, run from the same
folder: CORPUS_AUDIT_CONFIG and CORPUS_AUDIT_DATA move them. What is cached by one serves the other.
"""

from audit_pipeline.errors import AuditError
from corpus_audit.audits import AuditFindings, audit, report, warehouse
from corpus_audit.scores import evaluate, score

__all__ = ["AuditError", "AuditFindings", "audit", "evaluate", "report", "score", "warehouse"]
