"""botocore's own client, for threads, made as s3fs makes the one on its event loop."""

from typing import Any

from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.session import Session

__all__ = ["blocking_client"]

_OF_LOOPS = ("connector_args", "http_session_cls")  # settings that only a client on an event loop has


def blocking_client(files: Any) -> tuple[Any, Any]:
    """A client with the credentials and settings of a file system of s3fs, and the credentials; None for anybody."""
    secrets = {
        "aws_access_key_id": files.key,
        "aws_secret_access_key": files.secret,
        "aws_session_token": files.token,
    }
    settings = {name: value for name, value in files.config_kwargs.items() if name not in _OF_LOOPS}
    options = {"use_ssl": files.use_ssl, "endpoint_url": files.endpoint_url, **secrets} | files.client_kwargs
    if files.anon:
        options = {name: value for name, value in options.items() if name not in secrets}
        settings["signature_version"] = UNSIGNED
    session = Session(**files.kwargs)
    client = session.create_client("s3", config=Config(**settings), **options)
    return client, None if files.anon else _credentials(session, options)


def _credentials(session: Session, options: dict[str, Any]) -> Any:
    """Those that were passed, or what the client found by itself."""
    key, secret, token = (
        options.get(f"aws_{name}") for name in ("access_key_id", "secret_access_key", "session_token")
    )
    return Credentials(key, secret, token) if key and secret else session.get_credentials()
