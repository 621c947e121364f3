"""This version reads files of version 0.1 through its public interface. make_fixtures.py made them."""

import hashlib
import importlib
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from tests.compat.commands import Done, forebay, forebay_each, python, words_of
from tests.compat.pipelines import CASES, OwnState, rest_and_next
from tests.compat.scripts import SCALE_RUNS

import forebay as fb
from forebay.errors import StateError

FIXTURES = Path(__file__).parent / "v0_1"
CAPTURES = sorted(path.name for path in FIXTURES.glob("capture_*.gz"))
CACHES = sorted(path.stem.removeprefix("cache_") for path in FIXTURES.glob("cache_*.zip"))
PROBES = sorted(path.name for path in (FIXTURES / "probe").iterdir())


def read(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text())


def assert_contains(new: Any, old: Any, where: str = "") -> None:
    """Assert that the new document has all values of the old document. Floats are equal to a millionth."""
    if isinstance(old, dict):
        assert isinstance(new, dict), f"{where} is not an object any more"
        assert old.keys() <= new.keys(), f"{where} has lost {sorted(old.keys() - new.keys())}"
        for key, value in old.items():
            assert_contains(new[key], value, f"{where}.{key}")
    elif isinstance(old, list):
        assert isinstance(new, list), f"{where} is not a list any more"
        assert len(new) == len(old), f"{where} has {len(new)} items, and had {len(old)}"
        for place, (one, other) in enumerate(zip(new, old, strict=True)):
            assert_contains(one, other, f"{where}[{place}]")
    elif isinstance(old, float):
        assert math.isclose(new, old, rel_tol=1e-6, abs_tol=1e-12), f"{where} is {new}, and was {old}"
    else:
        assert new == old, f"{where} is {new!r}, and was {old!r}"


def parse_printed_json(done: Done) -> Any:
    """Return the JSON that a command printed."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# States


STATES = read("states.json")
RANDOM_ROWS = "arrays_rows_mapped_with_random_numbers"  # a row plus a random number below 1, which differs in 0.1


def test_every_state_of_0_1_has_a_tested_pipeline() -> None:
    assert STATES.keys() == CASES.keys()


@pytest.mark.parametrize("name", sorted(STATES.keys() - {RANDOM_ROWS}))
def test_a_state_of_0_1_resumes_with_the_same_rows_as_in_0_1(name: str, tmp_path: Path) -> None:
    case, kept = CASES[name], STATES[name]
    pytest.importorskip(case.needs)
    with (case.resumed or case.make)(tmp_path).feed("numpy") as feed:
        feed.load_state_dict(kept["state"])
        assert rest_and_next(feed, feed, case.limit) == {"rest": kept["rest"], "next": kept["next"]}


def test_a_state_of_0_1_with_random_rows_resumes_with_the_same_rows_and_a_warning(tmp_path: Path) -> None:
    case, kept = CASES[RANDOM_ROWS], STATES[RANDOM_ROWS]
    with case.make(tmp_path).feed("numpy") as feed:
        with pytest.warns(UserWarning, match="draws different random numbers"):
            feed.load_state_dict(kept["state"])
        now = rest_and_next(feed, feed, case.limit)
    for part in ("rest", "next"):
        assert [[int(row) for row in batch] for batch in now[part]] == [[int(row) for row in b] for b in kept[part]]


def test_a_generator_gets_its_own_state_back(tmp_path: Path) -> None:
    case, state = CASES["generator_with_own_state"], STATES["generator_with_own_state"]["state"]
    OwnState.loaded.clear()
    with case.make(tmp_path).feed("numpy") as feed:
        feed.load_state_dict(state)
        next(feed)
    assert state["stream"]["row"] in OwnState.loaded


@pytest.mark.parametrize("name", ["arrays_at_the_start", "arrays_mid_epoch", "npy", "generator", "ready_batches"])
def test_this_version_writes_the_same_state_as_0_1(name: str, tmp_path: Path) -> None:
    """A user can then return to 0.1 with this state."""
    case = CASES[name]
    with case.make(tmp_path).feed("numpy") as feed:
        for _ in range(case.batches):
            next(feed)
        assert_contains(feed.state_dict(), STATES[name]["state"])


def test_a_state_of_0_1_is_refused_by_another_pipeline() -> None:
    with fb.from_arrays(np.arange(24)).batch(4).feed("numpy") as feed, pytest.raises(StateError):
        feed.load_state_dict(STATES["arrays_at_the_start"]["state"])


@pytest.mark.long
@pytest.mark.parametrize("framework", ["keras", "ray"])
def test_a_state_of_a_framework_feed_resumes_with_the_same_rows_as_in_0_1(framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    file = FIXTURES / f"states_{framework}.json"
    done = python("-m", "tests.compat.framework_states", framework, file, KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr
    expected = {name: {key: kept[key] for key in kept if key != "state"} for name, kept in read(file.name).items()}
    assert json.loads(done.stdout.splitlines()[-1]) == expected


# The doctor


def schema() -> Any:
    """Return the schema of the doctor's JSON, from any place in the package."""
    package = importlib.util.find_spec("forebay")
    assert package is not None
    found = [path for folder in package.submodule_search_locations or () for path in Path(folder).rglob("schema.json")]
    schemas = [json.loads(path.read_text()) for path in found]
    (ours,) = [each for each in schemas if "findings" in each.get("properties", {})]
    return ours


def comparable_values(document: Any) -> Any:
    """Return the values of a diagnosis that must be those of 0.1. Wording and gains may differ."""
    numbers = ("schema_version", "script", "ended", "rank", "steps", "step_seconds", "step_quartiles")
    end = document["step_ends_at"]
    kept = {name: document[name] for name in numbers}
    kept["step_ends_at"] = {key: end[key] for key in ("file", "line", "function")}
    kept["findings"] = [
        {key: found[key] for key in ("rule", "file", "line", "function", "text")} for found in document["findings"]
    ]
    return kept


RANKS = tuple(name for name in CAPTURES if ".rank" in name)
READ = {**{name: (name,) for name in CAPTURES}, "capture_ranks.gz": RANKS}  # captures that are read together


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Done, Path]]:
    """Return the run of `forebay doctor` on every capture, and the folder of its files."""
    folders = {name: tmp_path_factory.mktemp("report") for name in READ}
    calls: list[list[str | Path]] = []
    for name, folder in folders.items():
        outputs = [f"--{kind}={folder / f'now.{kind}'}" for kind in ("json", "html", "trace")]
        calls.append(["doctor", *outputs, *(FIXTURES / file for file in READ[name])])
    return {name: (done, folders[name]) for name, done in zip(READ, forebay_each(calls), strict=True)}


@pytest.mark.parametrize("name", READ)
def test_a_capture_of_0_1_gets_the_same_diagnosis_as_in_0_1(name: str, reports: dict[str, tuple[Done, Path]]) -> None:
    done, folder = reports[name]
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    now, before = json.loads((folder / "now.json").read_text()), read(name.replace(".gz", ".json"))
    assert before["findings"]
    assert_contains(comparable_values(now), comparable_values(before))
    # The parts add up to the step. In 0.1, parts without device records added up to the mean profiled step.
    assert now["parts_seconds"].keys() >= before["parts_seconds"].keys()
    assert math.isclose(sum(now["parts_seconds"].values()), now["step_seconds"], rel_tol=1e-6)
    assert (folder / "now.html").stat().st_size > 0
    assert (folder / "now.trace").stat().st_size > 0


def test_each_rank_of_a_run_gets_a_row(reports: dict[str, tuple[Done, Path]]) -> None:
    _, folder = reports["capture_ranks.gz"]
    now, before = json.loads((folder / "now.json").read_text())["ranks"], read("capture_ranks.json")["ranks"]
    each = ("rank", "step_seconds", "input_seconds", "collective_seconds", "rule")
    assert now["slowest"] == before["slowest"]
    assert len(before["each"]) == len(RANKS)
    assert_contains(now["each"], [{key: rank[key] for key in each} for rank in before["each"]])


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.glob("capture_*.json")))
def test_a_diagnosis_of_0_1_is_valid_under_the_current_schema(name: str) -> None:
    jsonschema.validate(read(name), schema())


def test_a_diagnosis_of_0_1_can_be_compared_with_a_capture_and_with_another_diagnosis() -> None:
    """The same run has no new finding; the run of another script has one."""
    compare = ("doctor", "--fail-on", "moderate", "--compare", FIXTURES / "capture_torch.json")
    done = forebay_each([(*compare, FIXTURES / after) for after in ("capture_torch.gz", "capture_jax.json")])
    assert [each.returncode for each in done] == [0, 1], done


# The bench


BENCHES = ("bench", "bench_gpu")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Done, Path]]:
    """Return the runs of `forebay bench --show` on saved results, and the files that they save."""
    again = {name: tmp_path_factory.mktemp("bench") / "again.json" for name in BENCHES}
    calls = [("bench", "--show", FIXTURES / f"{name}.json", "--save", again[name]) for name in BENCHES]
    return {name: (done, again[name]) for name, done in zip(BENCHES, forebay_each(calls), strict=True)}


@pytest.mark.parametrize("name", BENCHES)
def test_saved_results_of_0_1_are_shown_with_the_same_rows_as_in_0_1(
    name: str, shown: dict[str, tuple[Done, Path]]
) -> None:
    done, _ = shown[name]
    assert done.returncode == 0, done.stderr
    labels = [row["label"].split() for case in read(f"{name}.json")["cases"] for row in case["rows"]]
    before = [line for line in words_of((FIXTURES / f"{name}.txt").read_text()) if _begins_with_label(line, labels)]
    assert len(before) >= len(labels)
    assert [line for line in words_of(done.stdout) if _begins_with_label(line, labels)] == before


def _begins_with_label(line: list[str], labels: list[list[str]]) -> bool:
    return any(line[: len(label)] == label for label in labels)


@pytest.mark.parametrize("name", BENCHES)
def test_saved_results_of_0_1_are_saved_again_unchanged(name: str, shown: dict[str, tuple[Done, Path]]) -> None:
    _, again = shown[name]
    assert_contains(json.loads(again.read_text()), read(f"{name}.json"))


# The probe


def fingerprint(hardware: Any) -> str:
    """Return the hash of a machine that 0.1 writes into the name of its probe file."""
    memory = round(hardware["memory_nbytes"] / 2**30)
    facts = (hardware["cpu"], hardware["cores"], memory, *hardware["gpus"], hardware["driver_version"])
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@pytest.fixture(scope="module")
def hardware() -> Any:
    """Return this machine without its GPUs, with the keys of 0.1."""
    machine = parse_printed_json(forebay("info", "--json"))["machine"]
    named = {key: machine[key] for key in ("cpu", "cores", "memory_nbytes", "gpus")}
    return named | {"driver_version": machine["driver"]}


def write_probe(name: str, hardware: Any, folder: Path) -> Any:
    """Write a probe as if 0.1 had measured this machine; a probe of another machine is ignored."""
    document = read(f"probe/{name}") | {"hardware": hardware}
    (folder / "forebay").mkdir()
    (folder / "forebay" / f"probe-{fingerprint(hardware)}.json").write_text(json.dumps(document, indent=1) + "\n")
    return document


@pytest.mark.parametrize("name", PROBES)
def test_probe_files_have_the_same_names_as_in_0_1(name: str) -> None:
    assert name == f"probe-{fingerprint(read(f'probe/{name}')['hardware'])}.json"


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_stored_by_0_1_is_shown_and_not_measured_again(name: str, tmp_path: Path, hardware: Any) -> None:
    kept = write_probe(name, hardware, tmp_path)
    done = forebay("probe", "--json", XDG_CACHE_HOME=str(tmp_path))
    assert_contains(parse_printed_json(done), kept)
    assert done.stderr == ""
    assert [path.name for path in (tmp_path / "forebay").iterdir()] == [f"probe-{fingerprint(hardware)}.json"]


def test_a_probe_stored_by_0_1_is_used_by_a_simulated_cluster(tmp_path: Path, hardware: Any) -> None:
    name = next(name for name in PROBES if read(f"probe/{name}")["device"])
    kept = write_probe(name, hardware, tmp_path)
    done = forebay("scale", "tables", "--steps", "20", "--probed", "--json", XDG_CACHE_HOME=str(tmp_path))
    speeds = parse_printed_json(done)["probed"]
    assert speeds["disk_bytes_per_second"] == kept["disk"]["disk_bytes_per_second"]
    assert speeds["link_bytes_per_second"] == kept["device"]["host_to_device_bytes_per_second"]


# Caches of remote stores


@pytest.mark.parametrize("name", sorted({*CACHES} - {"csv_fetched_whole"}))
def test_rows_are_read_from_a_cache_that_0_1_filled(name: str, tmp_path: Path) -> None:
    """The store has the same listing and headers but zeros as rows, so correct rows come from the cache."""
    from tests.compat import store  # imported here, because it imports fsspec

    cached = store.CACHES[name]()
    cache = store.unpack(FIXTURES / f"cache_{name}.zip", tmp_path / "cache")
    files = sorted(path for path in cache.rglob("*"))
    store.FixedStore.hold(cached.without_rows)
    with cached.pipeline(cache).feed("numpy") as feed:
        received = list(feed)
        assert_rows(received, cached.rows)
        counts = feed.stats().get("source")
    assert sorted(path for path in cache.rglob("*")) == files
    assert counts["cached_nbytes"] >= sum(leaf.nbytes for leaf in leaves(cached.rows))


def test_a_whole_object_that_0_1_cached_is_downloaded_again_because_it_has_no_checksum(tmp_path: Path) -> None:
    from tests.compat import store

    cached = store.CACHES["csv_fetched_whole"]()
    cache = store.unpack(FIXTURES / "cache_csv_fetched_whole.zip", tmp_path / "cache")
    (copy_of_0_1,) = cache.glob("whole/*/*")
    store.FixedStore.hold(cached.objects)
    reads = []
    for _ in range(2):
        with cached.pipeline(cache).feed("numpy") as feed:
            assert_rows(list(feed), cached.rows)
        reads.append(len(store.FixedStore.reads))
    assert not copy_of_0_1.exists()
    assert reads == [1, 1]  # the second pipeline uses the new copy


def leaves(tree: Any) -> list[Any]:
    return list(tree.values()) if isinstance(tree, dict) else [tree]


def assert_rows(batches: list[Any], rows: Any) -> None:
    received = [np.concatenate(parts) for parts in zip(*map(leaves, batches), strict=True)]
    for leaf, expected in zip(received, leaves(rows), strict=True):
        np.testing.assert_array_equal(leaf, expected)


def test_every_option_of_remote_files_is_accepted(tmp_path: Path) -> None:
    from tests.compat import store

    cached = store.CACHES["npy"]()
    store.FixedStore.hold(cached.objects)
    options = {"cache": tmp_path, "cache_bytes": "1MB", "ram_bytes": "1MB", "ahead_bytes": "1MB", "connections": 2}
    options |= {"attempts": 2, "storage_options": {}, "max_open_files": 8, "max_held_bytes": "1MB"}
    with fb.from_files("compat://bucket/rows.npy", **options).batch(8).feed("numpy") as feed:
        assert_rows(list(feed), cached.rows)


# The simulator


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Done]:
    done = forebay_each([("scale", *arguments, "--json") for arguments in SCALE_RUNS.values()], cwd=FIXTURES)
    return dict(zip(SCALE_RUNS, done, strict=True))


@pytest.mark.parametrize("name", SCALE_RUNS)
def test_a_scenario_has_the_same_outcome_as_in_0_1(name: str, outcomes: dict[str, Done]) -> None:
    assert_contains(parse_printed_json(outcomes[name]), read("scale.json")[name])
