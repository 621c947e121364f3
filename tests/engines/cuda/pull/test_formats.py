"""The device pulls rows of HDF5 and Arrow files that are stored uncompressed."""

import h5py
import numpy as np
import pyarrow as pa
import pytest
from tests.engines.cuda.pull.host_comparison import assert_same_as_host, random_rows

import forebay as fb


@pytest.mark.parametrize("resident", ["never", "always"])
@pytest.mark.parametrize("chunks", [None, (7, 30)])
def test_rows_of_an_hdf5_file_equal_the_host_rows(framework, tmp_path, chunks, resident):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=random_rows(300, 30, "f4"), chunks=chunks)
        file.create_dataset("y", data=np.arange(300))
    pipeline = fb.from_files(tmp_path / "x.h5").shuffle(seed=4).batch(9)
    assert_same_as_host(pipeline, framework, resident=resident)


@pytest.mark.parametrize("resident", ["never", "always"])
def test_rows_of_an_arrow_file_equal_the_host_rows(framework, tmp_path, resident):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2100.0)), 7)
    table = pa.table({"x": lists, "y": np.arange(300)})
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=64)
    pipeline = fb.from_files(tmp_path / "x.arrow").shuffle(seed=4).batch(9)
    assert_same_as_host(pipeline, framework, resident=resident)
