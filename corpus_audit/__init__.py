"""The Python interface of Corpus Audit, which finds out whether texts were in a language model's pretraining data.

>>> import corpus_audit as ca
>>> scores = ca.score(["A text of mine.", "Another one."], model="smollm2-135m", detectors=["loss", "min_k"])
>>> findings = ca.audit(model="smollm2-135m", benchmark="demo")
>>> ca.warehouse().sql("SELECT detector, auroc FROM leaderboard").df()

Notebooks and scripts import these names. The work is done in audit_pipeline.

The functions use the same configuration, data folder and cache as the command `corpus-audit` in the same folder. Set
the environment variables CORPUS_AUDIT_CONFIG and CORPUS_AUDIT_DATA to use other folders.
"""

from audit_pipeline.errors import AuditError
from corpus_audit.audits import AuditFindings, audit, report, warehouse
from corpus_audit.scores import evaluate, score

__all__ = ["AuditError", "AuditFindings", "audit", "evaluate", "report", "score", "warehouse"]
