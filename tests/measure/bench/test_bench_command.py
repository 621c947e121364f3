"""The command `forebay bench`."""

import argparse
import json

import pytest

from forebay.cli import bench
from forebay.measure.bench.contenders import CONTENDERS, Contender
from forebay.measure.bench.model import Entry
from forebay.measure.bench.results_file import to_json


def call(*words: str) -> int:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return bench.run(parser.parse_args(words))


@pytest.fixture
def tiny(tiny_case, monkeypatch):
    monkeypatch.setattr(
        bench, "CASES", (tiny_case(Entry("np.take loop", "floor"), Entry("loop into an array", "row_loop")),)
    )


def test_the_printed_json_equals_the_saved_json(tiny, tmp_path, capsys):
    assert call("--quick", "--repeats", "1", "--json", "--save", str(tmp_path / "results.json")) == 0
    printed, saved = json.loads(capsys.readouterr().out), json.loads((tmp_path / "results.json").read_text())
    assert printed["schema_version"] == saved["schema_version"]
    assert printed["cases"] == saved["cases"]
    assert call("--show", str(tmp_path / "results.json")) == 0
    assert "loop into an array" in capsys.readouterr().out


def test_the_command_fails_if_no_entry_could_run(tiny_case, monkeypatch, capsys):
    monkeypatch.setitem(
        CONTENDERS, "absent", Contender("absent", "absent:contender", ("no_such_framework",), "pip install it")
    )
    monkeypatch.setattr(bench, "CASES", (tiny_case(Entry("absent", "absent")),))
    assert call("--quick") == 2
    assert "pip install it" in capsys.readouterr().out


def test_list_prints_the_entries_without_measuring(capsys):
    assert call("--list", "--case", "images") == 0
    assert "Keras array adapter (keras_adapter)" in capsys.readouterr().out


def test_an_unknown_case_is_refused_on_stderr(capsys):
    assert call("--case", "nonsense") == 2
    assert "no case is called 'nonsense'" in capsys.readouterr().err


def test_a_file_without_results_is_refused(tmp_path, capsys):
    (tmp_path / "other.json").write_text("{}")
    assert call("--show", str(tmp_path / "other.json")) == 2
    assert "schema_version None" in capsys.readouterr().err


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: None,
        lambda data: data | {"cases": [{}]},
        lambda data: data | {"pace": {"hours": 1}},
        lambda data: data | {"cases": [data["cases"][0] | {"taken_share": "much"}]},
    ],
    ids=["no document", "a case without fields", "an unknown setting", "a text instead of a number"],
)
def test_a_damaged_file_is_refused_with_advice(fixed_results, tmp_path, capsys, damage):
    (tmp_path / "damaged.json").write_text(json.dumps(damage(to_json(fixed_results))))
    assert call("--show", str(tmp_path / "damaged.json")) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "is not a file of bench results: " in message
    assert message.endswith("Run `forebay bench --save` again.")


@pytest.mark.parametrize("content", ["", "[NaN]"])
def test_a_file_that_is_not_json_is_refused_with_advice(tmp_path, capsys, content):
    (tmp_path / "damaged.json").write_text(content)
    assert call("--show", str(tmp_path / "damaged.json")) == 2
    assert "Pass a file that `forebay bench --save` wrote." in " ".join(capsys.readouterr().err.split())


def test_an_interrupted_run_leaves_no_new_file_and_keeps_an_existing_one(tiny, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "run_cases", interrupted)
    (tmp_path / "before.json").write_text("{}")
    for name in ("new.json", "before.json"):
        with pytest.raises(KeyboardInterrupt):
            call("--quick", "--save", str(tmp_path / name))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("before.json", "{}")]


def test_gpu_cases_are_listed_with_device_cuda(capsys):
    assert call("--device", "cuda", "--list", "--case", "gpu-images", "--only", "grain") == 0
    assert capsys.readouterr().out.splitlines() == [
        "gpu-images: 4 GiB of 224x224x3 uint8, batch 256, shuffled, streamed",
        "  page-locked DMA peak (gpu_dma_peak)",
        "  Grain 16 threads + device_put (gpu_grain)",
    ]


def test_gpu_cases_are_unknown_without_device_cuda(capsys):
    assert call("--case", "gpu-images") == 2
    assert "no case is called 'gpu-images'" in capsys.readouterr().err


def test_without_a_gpu_the_command_fails_before_it_measures(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bench, "gpu_facts", dict)
    assert call("--device", "cuda", "--save", str(tmp_path / "results.json")) == 2
    assert "CUDA finds no usable GPU" in capsys.readouterr().err
    assert not (tmp_path / "results.json").exists()


def test_gpu_results_are_shown_on_a_machine_without_a_gpu(fixed_gpu_results, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bench, "gpu_facts", dict)
    (tmp_path / "results.json").write_text(json.dumps(to_json(fixed_gpu_results)))
    assert call("--show", str(tmp_path / "results.json"), "--targets") == 0
    assert "forebay to torch" in capsys.readouterr().out
