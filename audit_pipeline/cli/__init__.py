"""The command `corpus-audit`: the front door.

What belongs here: one module per group of commands. What does not: any work.
"""

from audit_pipeline.cli.command_group import main

__all__ = ["main"]
