"""The codecs of Zarr arrays that Forebay reads.

The metadata of a store names the codecs that decode its chunks. A codec such as pickle runs code from the store. So
Forebay reads only codecs that are known to be safe, and codecs that the user names.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from numcodecs.abc import Codec

from forebay.errors import SourceError

__all__ = ["COMPRESSORS", "describe_codecs", "names_in_document", "plain_name", "validate_codecs"]

COMPRESSORS = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"})
_FILTERS = {"astype", "bitround", "categorize", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"}
_CHECKSUMS = {"adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"}
_LAYOUTS = {"base64", "bytes", "endian", "sharding_indexed", "transpose"}
_SAFE_CODECS = COMPRESSORS | _FILTERS | _CHECKSUMS | _LAYOUTS
_UNSAFE_WORDS = ("pickle", "dill", "joblib", "marshal", "shelve")  # the name of a codec that runs code has such a word
_NUMCODECS_PREFIX = "numcodecs."  # of the codecs of numcodecs in Zarr format 3


def validate_codecs(name: str, codecs: Collection[str], trusted: Collection[str]) -> None:
    """Raise SourceError if a codec is neither known to be safe nor `trusted`.

    `trusted` are the codecs that the user names. `name` names the array and its store in the error.
    """
    allowed = _SAFE_CODECS | {plain_name(codec) for codec in trusted}
    for codec in codecs:
        if plain_name(codec) in allowed:
            continue
        if any(word in codec.lower() for word in _UNSAFE_WORDS):
            raise SourceError(
                f"{name} uses the codec {codec!r}, which is dangerous: it runs code from the store when it decodes a "
                f"chunk. Write the store with another codec. Only if you wrote it yourself, pass codecs=[{codec!r}]."
            )
        raise SourceError(
            f"{name} uses the codec {codec!r}, which is not known to be safe. If you trust both the store and the "
            f"codec, pass codecs=[{codec!r}]. Otherwise write the store with a standard codec, such as zstd."
        )


def plain_name(codec: str) -> str:
    """Return the name of a codec without the prefix of numcodecs."""
    return codec.removeprefix(_NUMCODECS_PREFIX)


def describe_codecs(metadata: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (name, parameters) of each codec of an opened array, also inside shards."""
    if metadata.zarr_format == 2:
        codecs: list[Codec] = [codec for codec in (*(metadata.filters or ()), metadata.compressor) if codec]
        return [(codec.codec_id, codec.get_config()) for codec in codecs]
    return list(_walk_codecs([codec.to_dict() for codec in metadata.codecs]))


def names_in_document(document: Mapping[str, Any]) -> list[str]:
    """Return the names of all codecs in the metadata document of an array."""
    if document.get("zarr_format") == 2:
        codecs = [*_as_list(document.get("filters")), document.get("compressor")]
        return [str(codec["id"]) for codec in codecs if isinstance(codec, dict) and "id" in codec]
    return [name for name, _ in _walk_codecs(_as_list(document.get("codecs")))]


def _walk_codecs(codecs: Sequence[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for codec in codecs:
        description = codec if isinstance(codec, dict) else {"name": codec}
        config = description.get("configuration")
        config = config if isinstance(config, dict) else {}
        yield str(description.get("name")), config
        if description.get("name") == "sharding_indexed":
            yield from _walk_codecs([*_as_list(config.get("codecs")), *_as_list(config.get("index_codecs"))])


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
