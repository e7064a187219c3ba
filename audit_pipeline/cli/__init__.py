"""The command `corpus-audit`: one module per group of commands, which parse options, call, and print.

Work belongs elsewhere. Heavy packages are imported by the command that needs them, so that `--help` answers at once.
"""

from audit_pipeline.cli.main_command import main

__all__ = ["main"]
