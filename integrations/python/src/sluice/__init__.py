"""Run steps on a Sluice cluster."""
