"""Removal of credentials from URLs and from messages of other libraries.

Forebay calls this module before it shows, logs or stores a URL or a message of another library.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

__all__ = ["Redactor", "redact_text", "redact_url"]

# Names of storage options whose values are secrets.
_SECRET_NAME = re.compile(
    r"key|secret|token|passw|passphrase|pwd|credential|sas|auth|cookie|connection_string", re.IGNORECASE
)
# Names of parameters with secrets: "X-Amz-Signature", "sig", "access_token".
# Each repetition in these patterns has an upper limit. Otherwise a long text of a hostile server would take quadratic
# time to search.
_PARAMETER_NAME = r"[\w.-]{0,40}(?:sig|signature|token|credential|secret|passw(?:or)?d|pwd|auth|jwt|sas|key|key-?id)"
# A parameter of a query or of a connection string: "X-Amz-Signature=...".
_SECRET_PARAMETER = re.compile(rf"(?i)({_PARAMETER_NAME}=)([^&;\s'\"<>]+)")
# An item of a dict or of JSON: "'token': '...'".
_SECRET_ITEM = re.compile(rf"(?i)(['\"]{_PARAMETER_NAME}['\"]\s?:\s?b?['\"])([^'\"]+)")
# User and password before the host: "https://user:password@". The last "@" before the path ends them.
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]{0,500}@")
# User and password of any URL in a text. Here the password may contain "/", although this makes the URL invalid.
_ANY_USER_INFO = re.compile(r"(?<=://)(?:[^/?#\s]{0,500}|[^/\s@]{0,200}:[^\s@]{0,300})@")
# Values of an Authorization header: "Bearer ...".
_AUTHORIZATION = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{4,}")
_AWS_KEY_ID = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}")
_MASK = "***"
# Characters. `Redactor` replaces a shorter secret only where it is a whole word, and never a single character.
_MIN_SECRET_LENGTH = 4


class Redactor:
    """Replaces secrets in a text by `***`.

    Secrets are values of storage options with names such as "token", the secrets in URLs, and everything that
    `redact_text` recognises.
    """

    def __init__(self, options: Mapping[str, Any], urls: Iterable[str] = ()) -> None:
        option_secrets = set(_find_secrets(options))
        url_secrets = {secret for url in urls for secret in _find_url_secrets(url)}
        self._option_secrets = _compile_secrets(option_secrets)
        self._all_secrets = _compile_secrets(option_secrets | url_secrets)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        return redact_text(self._all_secrets.sub(_MASK, text))

    def url(self, url: str) -> str:
        """Return one URL without secrets.

        The path of the URL changes only where it contains a secret of the storage options.
        """
        return redact_url(self._option_secrets.sub(_MASK, url))

    def is_clean(self, error: BaseException) -> bool:
        """Return whether the error and all exceptions that caused it contain no secret."""
        seen: set[int] = set()
        pending: list[BaseException | None] = [error]
        while pending:
            current = pending.pop()
            if current is None or id(current) in seen:
                continue
            seen.add(id(current))
            text = "\n".join([str(current), repr(current), *getattr(current, "__notes__", ())])
            if self(text) != text:
                return False
            pending += [current.__cause__, current.__context__]
        return True


def redact_url(url: str) -> str:
    """Return one URL with `***` in place of user, password and secret query parameters.

    The path stays as it is, because it identifies the object: `key=1/a.npy` and `key=2/a.npy` are two objects.

    >>> redact_url("https://me:pw@host/key=1/a.npy?X-Amz-Signature=abc&part=1")
    'https://***@host/key=1/a.npy?X-Amz-Signature=***&part=1'
    """
    path, mark, query = re.fullmatch(r"([^?#]*)([?#]?)(.*)", url, re.DOTALL).groups()  # type: ignore[union-attr]
    return _USER_INFO.sub(f"{_MASK}@", path, count=1) + mark + _SECRET_PARAMETER.sub(rf"\1{_MASK}", query)


def redact_text(text: str) -> str:
    """Return a text with `***` in place of credentials in its URLs, headers and options.

    >>> redact_text("GET https://me:pw@host/a.npy failed: {'token': 'abc'}")
    "GET https://***@host/a.npy failed: {'token': '***'}"
    """
    text = _ANY_USER_INFO.sub(f"{_MASK}@", text)
    for pattern in (_SECRET_PARAMETER, _SECRET_ITEM, _AUTHORIZATION):
        text = pattern.sub(rf"\1{_MASK}", text)
    return _AWS_KEY_ID.sub(_MASK, text)


def _compile_secrets(secrets: set[str]) -> re.Pattern[str]:
    """Return a pattern that matches each secret: as it is, URL-quoted, and escaped by `repr`."""
    variants = secrets | {quote(secret, safe="") for secret in secrets} | {repr(secret)[1:-1] for secret in secrets}
    # Longest first: if one secret contains another, the pattern must match the longer secret.
    patterns = [_secret_pattern(secret) for secret in sorted(variants, key=len, reverse=True) if len(secret) > 1]
    return re.compile("|".join(patterns) or r"(?!)")  # "(?!)" matches nothing


def _secret_pattern(secret: str) -> str:
    pattern = re.escape(secret)
    return pattern if len(secret) >= _MIN_SECRET_LENGTH else rf"(?<!\w){pattern}(?!\w)"


def _find_secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if _SECRET_NAME.search(str(name)) is not None:
            yield from _find_texts(value)
        elif isinstance(value, Mapping):
            yield from _find_secrets(value)
        elif isinstance(value, str):
            yield from _find_url_secrets(value)  # the value may be the URL of a proxy, with a password


def _find_texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value: text, bytes, or a collection of texts."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        yield from filter(None, [value])
    elif isinstance(value, Mapping | list | tuple | set):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _find_texts(item)


def _find_url_secrets(url: str) -> Iterator[str]:
    user_info = _ANY_USER_INFO.search(url)
    if user_info is not None:
        text = user_info[0].removesuffix("@")
        yield text
        yield from filter(None, (unquote(part) for part in text.split(":", 1)))
    for parameter in _SECRET_PARAMETER.finditer(url.partition("?")[2]):
        yield from {parameter[2], unquote(parameter[2])}
