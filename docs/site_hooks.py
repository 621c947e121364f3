"""MkDocs hooks, which generate reference pages and publish linked files of the repository.

`mkdocs.yml` names this file. The hooks generate the reference of the command line and the table of the doctor's rules.
The pages in `docs/` link to files of the repository such as `../examples/README.md`. These files are outside of the
site, so the hooks add them to the site and change the links.
"""

import argparse
import ast
import importlib
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from forebay.cli.main import HELP
from forebay.doctor.rules.registry import RULES
from forebay.pipeline.options import FeedOptions

ROOT = Path(__file__).parent.parent
PAGES = {  # page of the repository: page of the site
    "AGENTS.md": "assistants.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "security-policy.md",
    "examples/README.md": "examples.md",
}
STATIC = "repository"  # folder of the site for other linked files, such as scripts
LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
SCRIPTS = re.compile(r"^\[With the fault\]\(\.\./(\S+)\), \[without it\]\(\.\./(\S+)\)$", re.MULTILINE)
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository, and all files to which a page links."""
    for source, name in PAGES.items():
        if name != "index.md":
            files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    linked = {target for file in files.documentation_pages() for target in linked_files(file)}
    for target in sorted(linked):
        files.append(File.generated(config, f"{STATIC}/{target}", abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert the generated parts of a page, and change its links to repository files."""
    for marker, generate in GENERATED.items():
        if marker in markdown:
            markdown = markdown.replace(marker, generate())
    markdown = SCRIPTS.sub(show_scripts, markdown)

    def replace(match: re.Match[str]) -> str:
        uri = site_uri(page.file.src_uri, match["target"])
        if uri is None:
            return match[0]
        if not uri:  # a folder has no page
            return match["text"].strip("[]")
        link = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{match['text']}({link}{match['anchor'] or ''})"

    return outside_of_code(markdown, lambda text: LINK.sub(replace, text))


def linked_files(file: File) -> Iterator[str]:
    """Yield the files of the repository, outside of the site, to which a page links."""
    for match in LINK.finditer(FENCE.sub("", file.content_string)):
        uri = site_uri(file.src_uri, match["target"])
        if uri and uri.startswith(f"{STATIC}/"):
            yield uri.removeprefix(f"{STATIC}/")


def site_uri(page_uri: str, target: str) -> str | None:
    """Return the URI of a link's target in the site.

    The result is "" for a folder, and None for a link that does not change.
    """
    if re.match(r"[a-z]+:", target):
        return None
    repository_page = next((source for source, name in PAGES.items() if name == page_uri), f"docs/{page_uri}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(repository_page), target))
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return ""
    return f"{STATIC}/{path}" if (ROOT / path).is_file() else None


def outside_of_code(markdown: str, change: Any) -> str:
    """Apply a function to the text between fenced code blocks."""
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


class FeedDefaults(griffe.Extension):
    """Shows the default values of `feed()`, which its signature reads from `FeedOptions`."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        for parameter in func.parameters:
            owner, _, name = str(parameter.default).partition(".")
            if owner == "FeedOptions":
                parameter.default = repr(getattr(FeedOptions, name)).replace("'", '"')


# The command line


def describe_commands() -> str:
    rows = [f"| [`forebay {name}`](#forebay-{name}) | {cell(text)} |" for name, text in HELP.items()]
    table = "\n".join(["| command | what it does |", "|---|---|", *rows])
    return "\n\n".join([table, *(command_section(name) for name in HELP)])


def command_section(name: str) -> str:
    parser = argparse.ArgumentParser(prog=f"forebay {name}", description=HELP[name])
    importlib.import_module(f"forebay.cli.{name}").add_arguments(parser)
    rows = [f"| {signature(action)} | {cell(action.help)} |" for action in parser._actions if action.help]
    parts = [
        f"## forebay {name}",
        (parser.description or "").strip(),
        f"```text\n{parser.format_usage().strip()}\n```",
        "\n".join(["| option | meaning |", "|---|---|", *rows]),
    ]
    return "\n\n".join([*parts, *([f"```text\n{parser.epilog.strip()}\n```"] if parser.epilog else [])])


def signature(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    if not action.option_strings or action.nargs == 0:
        return names
    values = (
        action.metavar or (action.choices and "{" + ",".join(map(str, action.choices)) + "}") or action.dest.upper()
    )
    return f"{names} `{' '.join(values) if isinstance(values, tuple) else values}`"


def cell(text: str | None) -> str:
    return (text or "").replace("%%", "%").replace("|", "\\|")


# The rules of the doctor


def describe_rules() -> str:
    rows = [f"| [`{name}`](#{name}) | {rule_summary(module)} |" for name, module in RULES.items()]
    return "\n".join(["| rule | what it looks for |", "|---|---|", *rows])


def rule_summary(module: str) -> str:
    """Return the first line of the docstring of a rule."""
    path = ROOT.joinpath("src", *module.split(".")).with_suffix(".py")
    summary = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
    summary = re.sub(r"^The rule (for|that warns about) ", "", summary)
    return cell(summary[:1].upper() + summary[1:])


def show_scripts(links: re.Match[str]) -> str:
    """Return the code of a faulty script and its twin, which replaces the links to both."""
    blocks = zip(("With the fault", "Without it"), links.groups(), strict=True)
    return "\n\n".join(f"**{title}:**\n\n```python\n{(ROOT / path).read_text()}```" for title, path in blocks)


GENERATED = {"<!-- generated: commands -->": describe_commands, "<!-- generated: rules -->": describe_rules}
