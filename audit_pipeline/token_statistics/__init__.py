"""Token statistics: the numbers that all detectors read, from one forward pass per text.

This package contains the tokens and windows of texts, the cache of statistics, and the runs of models over texts that
the cache lacks. It does not contain a model's files (models/), servers (extras/servers/), or the choice of the
statistics that a detector needs (scoring/).
"""
