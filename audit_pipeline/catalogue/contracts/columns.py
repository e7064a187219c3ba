"""The columns that several tables have.

What belongs here: a column that means the same in each, columns that go together. What does not: tables.
"""

from __future__ import annotations

import pyarrow as pa

from audit_pipeline.catalogue.integrity import ROW_SHA256
from audit_pipeline.catalogue.table import Column

RUN_ID = Column("run_id", pa.string(), "the run that wrote the row; joins to lineage.run_id")
MODEL = Column("model", pa.string(), "the model")
BENCHMARK = Column("benchmark", pa.string(), "the benchmark")
DETECTOR = Column("detector", pa.string(), "the detector")
PARAMETERS = Column("parameters", pa.string(), "canonical JSON of the detector's parameters")
IS_DEFAULT = Column(
    "is_default", pa.bool_(), "whether these are the detector's default parameters (the headline finding)"
)
CI_LOW = Column("ci_low", pa.float64(), "lower end of the 95% interval", null=True)
CI_HIGH = Column("ci_high", pa.float64(), "upper end of the 95% interval", null=True)
CLAIM_LEVEL = Column("claim_level", pa.string(), "screening only | statistical evidence | sound test")
COLLECTION = Column("collection", pa.string(), "the project, series or folder within the source")
GROUP = Column("group", pa.string(), "the unit of resampling, calibration and cross-validation")
LANGUAGE = Column("language", pa.string(), "ISO 639-1 code")
SHA256 = Column("sha256", pa.string(), "sha256 of the UTF-8 text")
ROW_DIGEST = Column(
    ROW_SHA256,
    pa.string(),
    "sha256 of the row's other columns (catalogue/integrity.py); null where an earlier version wrote the row",
    later=True,
)


def rate(name: str, description: str, *, null: bool = True) -> tuple[Column, Column, Column]:
    """A rate and both ends of its 95% interval, NAME_low and NAME_high; ``null``: there may be no rate."""
    return (
        Column(name, pa.float64(), description, null=null),
        Column(f"{name}_low", pa.float64(), "lower end of its 95% interval", null=True),
        Column(f"{name}_high", pa.float64(), "upper end of its 95% interval", null=True),
    )
