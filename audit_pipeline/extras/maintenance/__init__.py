"""The upkeep of a workspace: its checks (doctor), removals (forget), and alerts about changed findings."""
