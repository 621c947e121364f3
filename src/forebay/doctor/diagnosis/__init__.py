"""The diagnosis: ordered findings, predicted gains, verification of a cure, comparison of ranks."""
