"""Removal of credentials from URLs and from error messages of other libraries."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Redactor", "redact_url"]

# Names of storage options whose values are secrets.
_SECRET_NAME = re.compile(r"key|secret|token|passw|credential|sas|auth|cookie", re.IGNORECASE)
# Query parameters with secrets: "X-Amz-Signature=...".
_SECRET_PARAMETER = re.compile(
    r"(?i)((?:[\w-]*(?:sig|signature|token|credential|secret|password|key|key-?id))=)[^&\s'\"]+"
)
# User and password before the host: "https://user:password@".
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
# Values of an Authorization header: "Bearer ...".
_AUTHORIZATION = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}")
_MASK = "***"
_MIN_SECRET_LENGTH = 4  # characters; shorter values also occur in ordinary words


class Redactor:
    """Replaces secrets in a text by `***`.

    Secrets are the secret values of storage options, and credentials in URLs and headers.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        # Longest first, because one secret may contain another.
        self._secrets = sorted(set(_find_secrets(options)), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return redact_url(text)

    def is_clean(self, error: BaseException) -> bool:
        """Return whether neither the error nor any of its causes contains a secret."""
        seen: set[int] = set()
        current: BaseException | None = error
        while current is not None and id(current) not in seen:
            seen.add(id(current))
            if self(str(current)) != str(current):
                return False
            current = current.__cause__ or current.__context__
        return True


def redact_url(text: str) -> str:
    """Replace user names, passwords, signatures and tokens in a text with URLs or headers.

    >>> redact_url("https://me:pw@host/a.npy?X-Amz-Signature=abc&part=1")
    'https://***@host/a.npy?X-Amz-Signature=***&part=1'
    """
    text = _USER_INFO.sub(f"{_MASK}@", text)
    text = _SECRET_PARAMETER.sub(rf"\1{_MASK}", text)
    return _AUTHORIZATION.sub(rf"\1{_MASK}", text)


def _find_secrets(options: Mapping[str, Any], *, is_inside_secret: bool = False) -> Iterator[str]:
    for name, value in options.items():
        is_secret = is_inside_secret or _SECRET_NAME.search(str(name)) is not None
        if isinstance(value, Mapping):
            yield from _find_secrets(value, is_inside_secret=is_secret)
        elif is_secret and isinstance(value, str) and len(value) >= _MIN_SECRET_LENGTH:
            yield value
