"""The declaration, planning and execution of audits."""
