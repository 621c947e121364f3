"""The made-up data, in the layouts that public scripts read."""

import numpy as np
from PIL import Image
from tests.wild.made_up import write_photograph, write_series, write_transactions


def test_transactions_have_30_numbers_and_a_rare_class_in_quotes(tmp_path):
    write_transactions(tmp_path / "rows.csv", 1000, distinct=600)
    header, *rows = (tmp_path / "rows.csv").read_text().splitlines()
    fields = [row.split(",") for row in rows]
    assert len(rows) == 1000
    assert {len(row) for row in (header.split(","), *fields)} == {31}
    assert sum(row[-1] == '"1"' for row in fields) == 3
    assert rows[600] == rows[0] != rows[1]


def test_a_series_has_one_row_for_each_hour(tmp_path):
    write_series(tmp_path / "data" / "hours.csv", 50, 7)
    header, *rows = (tmp_path / "data" / "hours.csv").read_text().splitlines()
    assert header.split(",")[0] == "date"
    assert header.split(",")[-1] == "OT"
    assert len({row.split(",")[0] for row in rows}) == 50
    assert np.array([row.split(",")[1:] for row in rows], float).shape == (50, 7)


def test_a_photograph_compresses_better_than_noise(tmp_path):
    write_photograph(tmp_path / "class" / "photograph.jpg", 100, 80, seed=1)
    noise = np.random.default_rng(1).integers(0, 256, (80, 100, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.jpg")
    with Image.open(tmp_path / "class" / "photograph.jpg") as image:
        assert image.size == (100, 80)
    assert (tmp_path / "class" / "photograph.jpg").stat().st_size < 0.7 * (tmp_path / "noise.jpg").stat().st_size
