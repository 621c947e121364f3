"""The documentation site: no warning, no other server, no dead link."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

import pytest
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed: it comes with the extra `docs`"),
]
MAIN_PAGES = [
    "index.html",
    "cli.html",
    "rules.html",
    "how-it-works.html",
    "architecture.html",
    "api/pipeline.html",
    "why-is-my-gpu-idle.html",
]


class Links(HTMLParser):
    """The ids of a page, the addresses to which it links, and the addresses that it loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.linked, self.loaded = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id"))
        if tag in ("img", "script", "iframe") and values.get("src"):
            self.loaded.add(values["src"])
        if tag == "link" and values.get("href") and values.get("rel") != "canonical":
            self.loaded.add(values["href"])
        if tag == "a" and values.get("href"):
            self.linked.add(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {page: Links(page.read_text()) for page in sorted(site.rglob("*.html")) if page.name != "404.html"}


def test_the_main_pages_exist(site):
    assert [page for page in MAIN_PAGES if not (site / page).is_file()] == []


def test_pages_load_nothing_from_other_servers(pages):
    loaded = {address for links in pages.values() for address in links.loaded}
    assert loaded
    assert {address for address in loaded if urlsplit(address).netloc} == set()


def test_every_internal_link_leads_to_a_file_and_an_id(pages):
    dead = [
        (page.name, address)
        for page, links in pages.items()
        for address in sorted(links.linked | links.loaded)
        if not urlsplit(address).scheme and not has_target(page, address, pages)
    ]
    assert dead == []


def has_target(page, address, pages):
    parts = urlsplit(address)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if target not in pages:
        return target.is_file()
    return not parts.fragment or unquote(parts.fragment) in pages[target].ids


def test_the_command_line_page_has_every_command_and_option(site):
    text = (site / "cli.html").read_text()
    for expected in ("forebay doctor", "forebay bench", "--fail-on", "--verify", "--quick"):
        assert expected in text


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("adapters", ["backup_and_restore", "FeedLoader", "from_dataset"]),
        ("doctor", ["watch", "Watch", "save_html", "KerasWatch"]),
        ("monitoring", ["to_tensorboard", "to_wandb", "FeedCollector", "scalars"]),
        ("testing", ["SourceTests", "EngineTests", "SimulatedEngine"]),
    ],
)
def test_the_api_pages_show_the_public_names_of_modules(pages, site, page, names):
    shown = {identifier.rpartition(".")[2] for identifier in pages[site / "api" / f"{page}.html"].ids if identifier}
    assert [name for name in names if name not in shown] == []


def test_the_page_of_rules_shows_the_code_of_a_fault_and_of_its_cure(site):
    text = (site / "rules.html").read_text()
    assert "With the fault:" in text
    assert "Without it:" in text
    assert 'id="read_back"' in text
