"""Zarr stores with any metadata, valid or not."""

import json

import numpy as np

from forebay.sources.formats.zarr import open_zarr


def claim_version_2(folder, **metadata):
    """Write a store of version 2 with any metadata and no chunk."""
    store = folder / "x.zarr"
    store.mkdir()
    default = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<f4", "compressor": None, "fill_value": None}
    (store / ".zarray").write_text(json.dumps({**default, "order": "C", "filters": None, **metadata}))
    return store


def claim_version_3(folder, **metadata):
    """Write a store of version 3 with any metadata and no chunk."""
    store = folder / "x.zarr"
    (store / "c").mkdir(parents=True)
    grid = {"name": "regular", "configuration": {"chunk_shape": metadata.pop("chunk_shape", [4])}}
    default = {"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "float32", "chunk_grid": grid}
    default |= {"chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}]}
    (store / "zarr.json").write_text(json.dumps({**default, "attributes": {}, **metadata}))
    return store


def read_first(folder, **options):
    """Read the first row of a store."""
    source = open_zarr(folder, **options)
    out = [np.empty((1, *spec.shape), spec.dtype) for spec in source.specs]
    source.gather(slice(0, 1), out)
