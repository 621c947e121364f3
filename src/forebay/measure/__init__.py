"""Measurements: this machine (probe), Forebay against its peers (bench), and simulated clusters (simulate)."""
