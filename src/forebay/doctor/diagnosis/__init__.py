"""The diagnosis: ordered findings, predicted gains, verification of cures, comparison of ranks."""
