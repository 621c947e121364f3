"""Parsing of Python source in tests."""

import ast

from forebay.core.parsing import parse_with_retries

__all__ = ["parse"]


def parse(source: str) -> ast.Module:
    """Parse a source as `ast.parse` does, which may fail on Python 3.11 while another thread parses."""
    return parse_with_retries(lambda: ast.parse(source))
