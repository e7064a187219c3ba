"""The groups of assets in the UI, numbered in the order of the flow: what every week runs, and then, apart,
what runs only on request: further sources, and controls with studies of them.

What belongs here: their names. What does not: which asset is in which group (assets/).
"""

SOURCES = "1_sources"
BENCHMARKS = "2_benchmarks"
MODEL_RUNS = "3_model_runs"
FINDINGS = "4_findings"
REPORTS = "5_reports"
SOURCES_ON_REQUEST = "6_sources_on_request"
CONTROLS_ON_REQUEST = "7_controls_on_request"

GROUPS = (SOURCES, BENCHMARKS, MODEL_RUNS, FINDINGS, REPORTS, SOURCES_ON_REQUEST, CONTROLS_ON_REQUEST)
