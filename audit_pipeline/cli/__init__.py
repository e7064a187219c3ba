"""The command `corpus-audit`. Each module holds a group of commands.

A command parses its options, calls functions of other packages, and prints their results. It imports heavy packages
only when it runs, so that `--help` prints at once.
"""

from audit_pipeline.cli.main_command import main

__all__ = ["main"]
