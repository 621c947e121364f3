"""`index()`: later pipelines read the stored results instead of the rows.

Damage, changes and folders that cannot be used are detected.
"""

import os
import subprocess
import sys
import threading
from itertools import combinations

import numpy as np
import pytest

import forebay as fb
from forebay.errors import PipelineError, SourceError

LENGTHS = np.random.default_rng(0).integers(1, 9, 300)


class Texts:
    """Texts of different length. Counts the rows that were read."""

    def __init__(self, lengths=LENGTHS):
        self.lengths, self.reads = lengths, 0

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, row):
        self.reads += 1
        return np.full(self.lengths[row], row)


class Labels(Texts):
    """Rows of one shape with a label."""

    def __getitem__(self, row):
        self.reads += 1
        return {"x": np.int64(row), "label": np.int64(self.lengths[row])}


PASSES = {
    "pack": (Texts, lambda rows: rows.pack(16).batch(4)),
    "token batches": (Texts, lambda rows: rows.batch(tokens=20, pad=0)),
    "token batches of a shuffle": (Texts, lambda rows: rows.shuffle(seed=0).batch(tokens=20, pad=0)),
    "filter": (Labels, lambda rows: rows.filter(lambda label: label < 4, fields="label").batch(4)),
    "split": (Labels, lambda rows: rows.split(0.5, 0.5, by="label")[0].batch(4)),
    "sample": (Labels, lambda rows: rows.sample(balance="label").batch(4)),
    "windows": (Labels, lambda rows: rows.window(1, within="label").batch(4)),
    "after a selection": (Texts, lambda rows: rows.select(np.arange(0, 300, 3)).pack(16).batch(4)),
}


def run(rows, make, folder, version="1"):
    """Return the number of reads before the feed, the batches, and the decisions of `index()`."""
    pipeline = make(fb.from_source(rows).index(folder, version=version))
    reads = rows.reads
    with pipeline.feed("numpy") as feed:
        found = [np.concatenate([np.ravel(leaf) for leaf in leaves_of(batch)]).tolist() for batch in feed]
        return reads, found, [decision.why for decision in feed.plan.decisions if decision.name == "index"]


def leaves_of(batch):
    return batch.values() if isinstance(batch, dict) else [batch]


@pytest.mark.parametrize(("make_rows", "make"), PASSES.values(), ids=PASSES)
def test_a_second_pipeline_reads_only_the_first_row(make_rows, make, tmp_path):
    first_reads, first, first_why = run(make_rows(), make, tmp_path)
    second_reads, second, second_why = run(make_rows(), make, tmp_path)
    assert first == second
    assert first_reads >= 100
    assert second_reads == 1  # the first row, whose shape and dtype are those of the source
    assert "stored the result in" in first_why[0]
    assert "no row was read" in second_why[0]


@pytest.mark.parametrize(("make_rows", "make"), PASSES.values(), ids=PASSES)
def test_the_rows_are_those_of_a_pipeline_without_a_folder(make_rows, make, tmp_path):
    _, found, _ = run(make_rows(), make, tmp_path)
    with make(fb.from_source(make_rows())).feed("numpy") as feed:
        assert found == [np.concatenate([np.ravel(leaf) for leaf in leaves_of(batch)]).tolist() for batch in feed]


def test_other_passes_other_orders_and_other_versions_are_stored_in_other_files(tmp_path):
    makes = [make for make_rows, make in PASSES.values() if make_rows is Texts]
    for make in makes:
        run(Texts(), make, tmp_path)
    run(Texts(), makes[0], tmp_path, version="2")
    # All texts, the selected texts, and version 2. pack() and batch(tokens=) use the same lengths.
    assert len(list(tmp_path.glob("*.index"))) == 3


def damage_content(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "other bytes": damage_content,
    "a shorter file": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a longer file": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "an empty file": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_the_result_in_a_damaged_file_is_computed_again_and_explain_says_so(damage, tmp_path):
    make = PASSES["pack"][1]
    _, first, _ = run(Texts(), make, tmp_path)
    (path,) = tmp_path.glob("*.index")
    damage(path)
    reads, second, why = run(Texts(), make, tmp_path)
    assert (reads, second) == (301, first)
    assert "is damaged" in why[0]
    assert run(Texts(), make, tmp_path)[0] == 1


def test_a_file_with_the_content_of_another_file_is_damaged(tmp_path):
    for name, version in (("pack", "1"), ("pack", "2")):
        run(Texts(), PASSES[name][1], tmp_path, version=version)
    first, second = tmp_path.glob("*.index")
    first.write_bytes(second.read_bytes())
    whys = [run(Texts(), PASSES["pack"][1], tmp_path, version=version)[2][0] for version in ("1", "2")]
    assert sum("its checksum differs" in why for why in whys) == 1


def test_changed_files_are_read_again(tmp_path):
    def count():
        pipeline = fb.from_files(tmp_path / "x.npy").index(tmp_path / "index").filter(lambda x: x > 3).batch(1)
        with pipeline.feed("numpy") as feed:
            return len(feed), next(decision.why for decision in feed.plan.decisions if decision.name == "index")

    np.save(tmp_path / "x.npy", np.arange(8))
    assert "stored the result" in count()[1]
    assert "no row was read" in count()[1]
    np.save(tmp_path / "x.npy", np.arange(2, 10))
    os.utime(tmp_path / "x.npy", ns=(1, 1))
    batches, why = count()
    assert batches == 6
    assert "stored the result" in why


def test_a_changed_function_is_called_again(tmp_path):
    rows = fb.from_arrays(np.arange(10)).index(tmp_path)
    kept = [len(rows.filter(function).batch(1).feed("numpy")) for function in (lambda x: x < 3, lambda x: x < 4)]
    assert kept == [3, 4]


def test_two_functions_do_not_share_a_result_under_one_version(tmp_path):
    rows = fb.from_arrays({"x": np.arange(8)}).index(tmp_path, version="1")
    kept = [rows.filter(function, fields="x").batch(8) for function in (lambda x: x % 2 == 0, lambda x: x % 2 == 1)]
    assert [next(pipeline.feed("numpy"))["x"].tolist() for pipeline in kept] == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_functions_without_a_hash_are_distinguished_by_their_code(tmp_path):
    rows, lock = fb.from_arrays({"x": np.arange(8)}).index(tmp_path, version="1"), threading.Lock()
    functions = (lambda x: lock.locked() | (x < 3), lambda x: lock.locked() | (x > 5))
    assert [len(rows.filter(function, fields="x").batch(1).feed("numpy")) for function in functions] == [3, 2]


@pytest.mark.slow
def test_code_without_a_hash_has_the_same_key_in_another_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, threading, numpy as np, forebay as fb\n"
        "lock = threading.Lock()\n"
        "def keep(x): return lock.locked() | np.array([str(each) in {'1', '3', '5', '7'} for each in x])\n"
        "fb.from_arrays(np.arange(8)).index(sys.argv[1], version='1').filter(keep)\n"
    )
    for seed in "123":
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, script, tmp_path / "index"], check=True, env=environment)
    assert len(list((tmp_path / "index").glob("*.index"))) == 1


def test_rows_without_a_hash_need_a_version(tmp_path):
    with pytest.raises(PipelineError, match=r"pack\(\) after index\(\) needs a hash .* Pass index\(..., version='1'\)"):
        fb.from_source(Texts()).index(tmp_path).pack(16)


def test_known_lengths_need_no_file(tmp_path):
    fb.from_ragged(np.arange(9), [0, 3, 4, 9]).index(tmp_path / "index").pack(5)
    assert not (tmp_path / "index").exists()


def test_combined_pipelines_keep_a_common_folder(tmp_path):
    pipelines = [fb.from_source(Texts()).index(folder, version="1") for folder in (tmp_path, tmp_path, tmp_path / "b")]
    folders = {fb.concat(*pair).index_folder for pair in combinations(pipelines, 2)}
    assert folders == {None, pipelines[0].index_folder}
    reads = [(run_twice := fb.concat(*pipelines[:2]).pack(16)).index_folder.decisions[0].why for _ in range(2)]
    assert "no row was read" in reads[1]
    assert len(run_twice.index_folder.decisions) == 1


def test_a_folder_that_cannot_be_used_is_an_error_before_the_pass(tmp_path):
    (tmp_path / "file").write_text("")
    rows = Texts()
    with pytest.raises(SourceError, match="cannot use the folder"):
        fb.from_source(rows).index(tmp_path / "file", version="1").pack(16)
    assert rows.reads == 1


def test_symbolic_links_are_not_followed(tmp_path):
    run(Texts(), PASSES["pack"][1], tmp_path)
    (path,) = tmp_path.glob("*.index")
    path.rename(tmp_path / "other")
    path.symlink_to(tmp_path / "other")
    with pytest.raises(SourceError, match="symbolic link"):
        run(Texts(), PASSES["pack"][1], tmp_path)


def test_a_result_that_cannot_be_written_is_still_used(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", fail_as_a_full_disk)
    reads, _, why = run(Texts(), PASSES["pack"][1], tmp_path)
    assert reads == 301
    assert "did not store the result" in why[0]
    assert "No space left" in why[0]
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def fail_as_a_full_disk(descriptor):
    raise OSError(28, "No space left on device")


def test_only_the_owner_can_read_the_files(tmp_path):
    run(Texts(), PASSES["pack"][1], tmp_path / "index")
    assert (tmp_path / "index").stat().st_mode & 0o77 == 0
    assert all(path.stat().st_mode & 0o77 == 0 for path in (tmp_path / "index").iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folder": 3}, "pass the path of a folder"),
        ({"folder": " "}, "pass the path of a folder"),
        ({"folder": "s3://bucket/index"}, "pass the path of a folder"),
        ({"folder": "index", "version": 1}, "pass a text"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(PipelineError, match=message):
        fb.from_arrays(np.arange(3)).index(**options)


def test_a_stream_is_refused():
    with pytest.raises(PipelineError, match=r"index\(\) needs rows that can be indexed"):
        fb.from_generator(lambda: iter(range(3))).index("index")


def test_a_state_resumes_with_the_stored_result(tmp_path):
    make = PASSES["token batches of a shuffle"][1]
    with make(fb.from_source(Texts()).index(tmp_path, version="1")).feed("numpy") as feed:
        batches = iter(feed)
        for _ in range(5):
            next(batches)
        state, rest = feed.state_dict(), [batch.tolist() for batch in batches]
    rows = Texts()
    pipeline = make(fb.from_source(rows).index(tmp_path, version="1"))
    assert rows.reads == 1
    with pipeline.feed("numpy") as feed:
        feed.load_state_dict(state)
        assert [batch.tolist() for batch in feed] == rest != []
