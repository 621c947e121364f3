"""A short seeded run of the fuzzer, and the laws of its parts. `python -m tests.fuzz` makes a long run."""

import gzip
import json
import zipfile
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import remote
from tests.fuzz.__main__ import share_files
from tests.fuzz.attacks import CANARY_TEXT
from tests.fuzz.bombs import gzip_bomb, zip_bomb, zlib_bomb
from tests.fuzz.case import Case, make_case
from tests.fuzz.corpus import FORMATS, load_samples
from tests.fuzz.driver import FuzzedCase, FuzzPlan, run_cases
from tests.fuzz.frames import example, join_records, split_records
from tests.fuzz.mutate import damage_bytes
from tests.fuzz.readers import ReadRows
from tests.fuzz.sample import Sample, array_rows
from tests.fuzz.structures import change_json, damages_for
from tests.fuzz.verdict import Kind, judge

from forebay.errors import SourceError

FILES = 250  # over all formats; about five seconds on two cores
PLAIN_FORMATS = [name for name in FORMATS if name not in ("attacks", "capture")]
SAMPLE = Sample("sample", {"x.tar": bytes(2048)}, "x.tar", checked={"x.tar": ((512, 1024),)})


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> list[FuzzedCase]:
    """The cases of all formats and every attack. One run makes all, because its processes start slowly."""
    attacks = {"attacks": len(load_samples("attacks"))}
    counts = dict(share_files(FILES, [*FORMATS, remote.FORMAT])) | attacks
    cases: list[FuzzedCase] = []
    run_cases(FuzzPlan(counts, seed=0, jobs=2, folder=tmp_path_factory.mktemp("fuzz")), cases.append)
    assert Counter(case.format for case in cases) == counts
    return cases


@pytest.mark.slow
def test_damaged_files_and_faulty_stores_are_read_or_refused(cases):
    assert [case for case in cases if case.format != "attacks" and case.verdict.kind.is_failure] == []


@pytest.mark.slow
def test_no_attack_succeeds(cases):
    failed = [case.index for case in cases if case.format == "attacks" and case.verdict.kind.is_failure]
    assert [load_samples("attacks")[index].name for index in failed] == []


@pytest.mark.parametrize("name", PLAIN_FORMATS)
def test_a_seed_and_a_number_determine_a_case(name):
    cases = [make_case(name, 0, 100).files for _ in range(2)]
    assert cases[0] == cases[1]
    assert len({tuple(make_case(name, seed, 100).files.values()) for seed in range(10)}) > 1


@given(data=st.binary(max_size=300), seed=st.integers())
def test_any_bytes_can_be_damaged(data, seed):
    assert isinstance(damage_bytes(Random(seed), data), bytes)


@pytest.mark.parametrize("name", [*PLAIN_FORMATS, "capture"])
@given(seed=st.integers())
def test_every_structure_damage_accepts_its_own_results(name, seed):
    rng = Random(seed)
    sample = rng.choice(load_samples(name))
    path, data = rng.choice(sorted(sample.files.items()))
    for _ in range(3):
        damages = damages_for(path, data)
        data = (rng.choice(damages).apply(rng, data) if damages else None) or data
        assert isinstance(data, bytes)


@given(numbers=st.lists(st.floats(width=32), max_size=40), content=st.binary(max_size=300))
def test_frames_can_be_split_again(numbers, content):
    records = [example(numbers, 1, content), content]
    assert split_records(join_records(records)) == records


def test_a_bomb_inflates_to_its_bytes(tmp_path):
    assert gzip.decompress(gzip_bomb(b"head", 2, b"a")) == b"head" + b"a" * 2**21
    assert len(zlib_bomb(2)) < 5000
    (tmp_path / "x.zip").write_bytes(zip_bomb(b"x", b"head", 2))
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.read("x") == b"head" + bytes(2**21)


@pytest.mark.parametrize(
    ("content", "covered"),
    [
        (bytes(2048), False),  # nothing changed
        (bytes(600) + b"x" + bytes(1447), True),
        (bytes(100) + b"x" + bytes(1947), False),  # before the covered range
        (bytes(1500) + b"x" + bytes(547), False),  # after the covered range
        (bytes(600) + b"x" + bytes(1448), False),  # another length
    ],
)
def test_damage_is_under_a_checksum_if_only_covered_bytes_differ(content, covered):
    assert Case(SAMPLE, {"x.tar": content}).is_under_checksum is covered


def test_forged_damage_is_not_under_a_checksum():
    assert not Case(SAMPLE, {"x.tar": bytes(600) + b"x" + bytes(1447)}, forged=True).is_under_checksum


ROWS = ReadRows([array_rows()])
COVERED = Case(SAMPLE, {"x.tar": bytes(600) + b"x" + bytes(1447)})


def make_failing_read(error):
    def read():
        raise error

    return read


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (lambda: ReadRows([array_rows()]), Kind.SAME),
        (lambda: ReadRows([-array_rows()]), Kind.WRONG),
        (lambda: ReadRows([array_rows()[:3]]), Kind.WRONG),
        (make_failing_read(SourceError("x")), Kind.REFUSED),
        (make_failing_read(ValueError("x")), Kind.UNTYPED),
        (make_failing_read(MemoryError("x")), Kind.MEMORY),
        (lambda: ReadRows([bytes_as_rows(CANARY_TEXT)]), Kind.HARM),
    ],
)
def test_the_verdict_names_what_happened(read, kind):
    assert judge(COVERED, ROWS, read).kind is kind


def bytes_as_rows(data):
    return np.frombuffer(data, "u1")


def test_other_rows_are_no_failure_without_a_checksum():
    case = Case(SAMPLE, {"x.tar": b""})
    assert judge(case, ROWS, lambda: ReadRows([-array_rows()])).kind is Kind.OTHER


def test_captures_are_damaged_inside_their_compression():
    packed = load_samples("capture")[0].files["capture.gz"]
    (change_packed, _) = damages_for("capture.gz", packed)
    assert all(json.loads(gzip.decompress(change_packed.apply(Random(seed), packed))) for seed in range(5))


def test_a_document_that_is_too_deep_to_parse_is_not_changed():
    assert change_json(Random(0), b"[" * 100_000) is None
