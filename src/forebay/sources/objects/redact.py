"""Removal of credentials from options, URLs and error messages of other libraries."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Redactor", "redact_url"]

_SECRET_NAME = re.compile(r"key|secret|token|passw|credential|sas|auth|cookie", re.IGNORECASE)
_SIGNED = re.compile(r"(?i)((?:[\w-]*(?:sig|signature|token|credential|secret|password|key|key-?id))=)[^&\s'\"]+")
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_BEARER = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}")
_MASK = "***"
_MIN_SECRET_LENGTH = 4  # removing shorter values would garble the text around them


class Redactor:
    """Replaces the secrets of some storage options in a text."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        # Longest first, because one secret may contain another.
        self._secrets = sorted(set(_secrets(options)), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return redact_url(text)

    def is_clean(self, error: BaseException) -> bool:
        """Return whether the traceback of an error and its causes shows no secret."""
        seen: set[int] = set()
        current: BaseException | None = error
        while current is not None and id(current) not in seen:
            seen.add(id(current))
            if self(str(current)) != str(current):
                return False
            current = current.__cause__ or current.__context__
        return True


def redact_url(text: str) -> str:
    """Replace user names, passwords, signatures and tokens.

    >>> redact_url("https://me:pw@host/a.npy?X-Amz-Signature=abc&part=1")
    'https://***@host/a.npy?X-Amz-Signature=***&part=1'
    """
    text = _USER.sub(f"{_MASK}@", text)
    text = _SIGNED.sub(rf"\1{_MASK}", text)
    return _BEARER.sub(rf"\1{_MASK}", text)


def _secrets(options: Mapping[str, Any], *, is_inside_secret: bool = False) -> Iterator[str]:
    for name, value in options.items():
        is_secret = is_inside_secret or _SECRET_NAME.search(str(name)) is not None
        if isinstance(value, Mapping):
            yield from _secrets(value, is_inside_secret=is_secret)
        elif is_secret and isinstance(value, str) and len(value) >= _MIN_SECRET_LENGTH:
            yield value
