"""Keep a workspace in order: doctor, forget, alerts."""
