"""The scripts and the output on the pages of the documentation are real."""

import re
import textwrap
from importlib.util import find_spec

import pytest
from tests.support.paths import ROOT
from tests.support.run_python import check_python
from tests.test_surface import PAGES_WITHOUT_A_FRAMEWORK

from forebay import from_arrays

DOCS = ROOT / "docs"
# The examples of each page run as one script. The page of CuPy is not listed, because all its examples need a GPU.
PAGES = ["devices", "get-started/jax", "get-started/keras", "get-started/pytorch", "monitoring", "ranks"]
ELSEWHERE = {  # pages whose examples other tests run, with the file or folder of these tests
    "questions": "tests/docs/test_parts_of_pages.py",
    "recipes": "tests/docs/test_recipes.py",
    "ray": "tests/transforms/workers/on_ray/test_page.py",
    "remote": "tests/sources/objects/test_page.py",
    "tour": "tests/test_surface.py",
    "trainers": "tests/adapters/trainers, and tests/docs/test_recipes.py",
    "why-is-my-gpu-idle": "the tests of the tutorial below",
}
COMING_FROM = sorted(page.stem for page in (DOCS / "coming-from").glob("*.md"))
TUTORIAL = DOCS / "why-is-my-gpu-idle.md"
SETTINGS = {"TF_CPP_MIN_LOG_LEVEL": "3", "COLUMNS": "80"}


def blocks_of(page, language):
    """Return the code blocks of a page in a language. Blocks marked `python gpu` do not count as Python."""
    pattern = rf"^```{language}(?: title=\S+)?\n(.*?)^```"
    return re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)


def run_script(text, folder):
    """Run a script in a folder, and return its output."""
    (folder / "train.py").write_text(text)
    return check_python("train.py", cwd=folder, **SETTINGS)


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_with_a_framework_run(page, tmp_path):
    blocks = blocks_of(DOCS / f"{page}.md", "python")
    assert blocks
    run_script("\n".join(blocks), tmp_path)


def test_every_page_with_examples_is_in_one_of_the_lists():
    pages = [page for page in DOCS.rglob("*.md") if blocks_of(page, "python")]
    found = {page.relative_to(DOCS).with_suffix("").as_posix() for page in pages}
    of_other_loaders = {f"coming-from/{page}" for page in COMING_FROM}
    assert found == {*PAGES, *PAGES_WITHOUT_A_FRAMEWORK, *ELSEWHERE, *of_other_loaders}


@pytest.mark.long
@pytest.mark.parametrize("page", COMING_FROM)
def test_the_script_of_the_other_loader_and_the_script_of_forebay_print_the_same(page, tmp_path):
    if page == "hf-datasets" and find_spec("datasets") is None:
        pytest.skip("datasets is not installed: it comes with the extra `docs`")
    outputs = [run_script(script, tmp_path) for script in blocks_of(DOCS / "coming-from" / f"{page}.md", "python")]
    assert len(outputs) == (1 if page == "dali" else 2)  # the script with DALI needs a GPU
    assert len(set(outputs)) == 1
    assert outputs[0].strip()


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 1])
def test_the_scripts_of_the_tutorial_run(number, tmp_path):
    assert run_script(blocks_of(TUTORIAL, "python")[number], tmp_path).startswith("loss ")


def test_the_script_in_agents_md_prints_the_main_cure(tmp_path):
    recording, diagnosis = DOCS / "tutorial" / "slow.gz", tmp_path / "before.json"
    check_python("-m", "forebay", "doctor", "--json", diagnosis, recording, **SETTINGS)
    (script,) = re.findall(r"^    ```python\n(.*?)^    ```", (ROOT / "AGENTS.md").read_text(), re.DOTALL | re.MULTILINE)
    assert "fb.from_arrays" in run_script(textwrap.dedent(script), tmp_path)


def commands_of_the_tutorial():
    shown = [block.partition("\n") for block in blocks_of(TUTORIAL, "text")]
    return [(command.removeprefix("$ forebay "), output) for command, _, output in shown]


@pytest.mark.parametrize(("command", "output"), commands_of_the_tutorial(), ids=lambda text: text[:40])
def test_the_tutorial_shows_what_the_doctor_prints(command, output):
    """If the wording of the report changed, run the command and paste its output into the page."""
    shown = check_python("-m", "forebay", *command.split(), cwd=ROOT, **SETTINGS)
    assert shown.rstrip() == output.rstrip()


def test_the_page_of_the_doctor_shows_a_part_of_what_the_doctor_prints():
    (shown,) = re.findall(
        r"^```\n\$ forebay doctor read_back_replay.py\n(.*?)^```", (DOCS / "doctor.md").read_text(), re.S | re.M
    )
    recording = ROOT / "tests" / "doctor" / "recorded" / "tensorflow" / "read_back_replay.gz"
    printed = check_python("-m", "forebay", "doctor", str(recording), **SETTINGS).splitlines()
    assert [line for line in shown.splitlines() if line.rstrip() not in printed] == ["  ..."]


def test_the_api_page_of_the_pipeline_shows_every_public_method():
    (members,) = re.findall(r"^      members: \[(.*)\]", (DOCS / "api" / "pipeline.md").read_text(), re.MULTILINE)
    public = {name for name in dir(from_arrays([1, 2])) if not name.startswith("_")}
    assert set(members.split(", ")) == public
