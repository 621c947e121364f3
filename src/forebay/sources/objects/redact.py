"""Credentials out of everything that is told: options, addresses, and errors of other people's code."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Scrubber", "scrub_url"]

_SECRET_NAME = re.compile(r"key|secret|token|passw|credential|sas|auth|cookie", re.IGNORECASE)
_SIGNED = re.compile(r"(?i)((?:[\w-]*(?:sig|signature|token|credential|secret|password|key|key-?id))=)[^&\s'\"]+")
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_BEARER = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}")
_HIDDEN = "***"
_SHORTEST = 4  # a shorter secret is no secret, and taking it out would mangle the words around it


class Scrubber:
    """Takes the secrets of some options out of a text."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        # The longest first: one may be a part of another.
        self._secrets = sorted(set(_secrets(options)), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return scrub_url(text)

    def is_clean(self, error: BaseException) -> bool:
        """Whether a traceback would show an error, and all it came of, without a secret."""
        seen: set[int] = set()
        current: BaseException | None = error
        while current is not None and id(current) not in seen:
            seen.add(id(current))
            if self(str(current)) != str(current):
                return False
            current = current.__cause__ or current.__context__
        return True


def scrub_url(text: str) -> str:
    """Without names and passwords in front of hosts, signatures and tokens.

    >>> scrub_url("https://me:pw@host/a.npy?X-Amz-Signature=abc&part=1")
    'https://***@host/a.npy?X-Amz-Signature=***&part=1'
    """
    text = _USER.sub(f"{_HIDDEN}@", text)
    text = _SIGNED.sub(rf"\1{_HIDDEN}", text)
    return _BEARER.sub(rf"\1{_HIDDEN}", text)


def _secrets(options: Mapping[str, Any], *, inside: bool = False) -> Iterator[str]:
    for name, value in options.items():
        secret = inside or _SECRET_NAME.search(str(name)) is not None
        if isinstance(value, Mapping):
            yield from _secrets(value, inside=secret)
        elif secret and isinstance(value, str) and len(value) >= _SHORTEST:
            yield value
