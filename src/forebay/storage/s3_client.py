"""botocore's own client, for threads, made as s3fs makes the one on its event loop."""

from typing import Any

from botocore import UNSIGNED
from botocore.config import Config
from botocore.session import Session

__all__ = ["blocking_client"]

_OF_LOOPS = ("connector_args", "http_session_cls")  # settings that only a client on an event loop has


def blocking_client(files: Any) -> Any:
    """A client with the credentials and settings of a file system of s3fs."""
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
    return Session(**files.kwargs).create_client("s3", config=Config(**settings), **options)
