"""What exists is documented, what is documented exists, and the examples run.

A setting, command, option, public name, verb, error or export field that docs/ does not mention
fails here, and so does a link that leads nowhere or a code block that raises.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import scrubjay
from scrubjay import errors
from scrubjay.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
PAGES = (*READMES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
OTHER_VARIABLES = {"SCRUBJAY_CONFIG", "SCRUBJAY_SOAK"}
"""Variables that are no settings: the settings' own file, and the switch of `make soak`."""


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def code(text: str) -> set[str]:
    """Everything that stands between single backticks."""
    return set(re.findall(r"`([^`\n]+)`", FENCE.sub("", text)))


def missing(names: Iterator[str] | list[str] | set[str], text: str) -> list[str]:
    """The names that do not begin some code span of the text."""
    words = {word for span in code(text) for word in re.findall(r"[\w.$-]+", span)}
    return sorted(name for name in names if name not in words)


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_setting_is_documented(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| `SCRUBJAY_{name.upper()}`.*$", page("settings.md"), re.M)
    assert row, f"docs/settings.md has no row for {name} / SCRUBJAY_{name.upper()}"
    default = Settings.model_fields[name].default
    if isinstance(default, bool):
        default = str(default).lower()
    if isinstance(default, (str, int, float)) and default != "":
        assert f"`{default}`" in row[0], f"docs/settings.md: the default of {name} is {default}"


def test_documented_variables_exist() -> None:
    known = {f"SCRUBJAY_{name.upper()}" for name in Settings.model_fields} | OTHER_VARIABLES
    for path in PAGES:
        named = set(re.findall(r"SCRUBJAY_[A-Z][A-Z_]*[A-Z]", path.read_text("utf-8")))
        assert named <= known, f"{path.name} names {sorted(named - known)}, which do not exist"


def test_recall_policy_is_documented() -> None:
    names = [f.name for f in dataclasses.fields(scrubjay.RecallPolicy)]
    assert not missing(names, page("settings.md"))
    for field in dataclasses.fields(scrubjay.RecallPolicy):
        assert f"| `{field.name}` | {field.default} |" in page("settings.md"), field.name


# -- Python ------------------------------------------------------------------------------------


def verbs(cls: type) -> list[str]:
    return [n for n, f in inspect.getmembers(cls, inspect.isfunction) if not n.startswith("_")]


def test_public_names_are_documented() -> None:
    assert not missing(list(scrubjay.__all__), page("python.md"))


@pytest.mark.parametrize("verb", verbs(scrubjay.Memory))
def test_verb_is_documented(verb: str) -> None:
    text = page("python.md")
    heading = re.search(rf"^### `{verb}`\n(.*?)(?=^##)", text, re.M | re.S)
    assert heading, f"docs/python.md has no section ### `{verb}`"
    assert f"memory.{verb}(" in heading[1], f"docs/python.md shows no example of {verb}"


@pytest.mark.parametrize("verb", ["add", "search", "context"])
def test_keywords_are_documented(verb: str) -> None:
    keywords = [
        name
        for name, p in inspect.signature(getattr(scrubjay.Memory, verb)).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert not missing(keywords, page("python.md"))


@pytest.mark.parametrize(
    "value", ["Receipt", "Result", "Hit", "Context", "Page", "Version", "Erasure", "Health",
              "Source"],
)  # fmt: skip
def test_fields_of_values_are_documented(value: str) -> None:
    row = re.search(rf"^\| `{value}` \|.*$", page("python.md"), re.M)
    assert row
    names = [f.name for f in dataclasses.fields(getattr(scrubjay, value))]
    assert not missing(names, row[0])


@pytest.mark.parametrize(
    "enum", ["Role", "Kind", "Tier", "State", "SourceClass", "Visibility", "Right"]
)
def test_members_of_enums_are_documented(enum: str) -> None:
    row = re.search(rf"^\| `{enum}` \|.*$", page("python.md"), re.M)
    assert row
    assert not missing([m.value for m in getattr(scrubjay, enum)], row[0])


# -- errors ------------------------------------------------------------------------------------

ERRORS = [e for _, e in inspect.getmembers(errors, inspect.isclass)
          if issubclass(e, errors.ScrubjayError)]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.__name__)
def test_error_is_documented(error: type[errors.ScrubjayError]) -> None:
    text = page("errors.md")
    assert f"| `{error.__name__}` | `{error.code}` |" in text
    assert error.__doc__
    assert re.search(rf"^[│ ├└─]*{error.__name__}\b", text, re.M), "it is not in the tree"


# -- the export format -------------------------------------------------------------------------


def test_export_fields_are_documented(tmp_path: Path) -> None:
    import json

    with scrubjay.Memory(tmp_path / "store", embedder="none") as memory:
        memory.add("tea", user_id="u", session_id="s")
        memory.export(tmp_path / "u.jsonl", user_id="u")
    lines = [json.loads(x) for x in (tmp_path / "u.jsonl").read_text("utf-8").splitlines()]
    names: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            names.update(value)
        for child in value.values() if isinstance(value, dict) else value:
            if isinstance(child, (dict, list)):
                collect(child)

    collect(lines)
    assert {"private_to", "sources", "turn_id", "sha256"} <= names
    assert not missing(names, page("export-format.md"))


# -- the command line --------------------------------------------------------------------------


@cache
def command_line() -> Any:
    """The click command behind `scrubjay`, or None while there is none."""
    if importlib.util.find_spec("scrubjay.surfaces.cli") is None:
        return None
    module = importlib.import_module("scrubjay.surfaces.cli")
    app = getattr(module, "app", None)
    if app is None:
        return None
    import typer.main

    return typer.main.get_command(app)


def walk(command: Any, path: tuple[str, ...] = ("scrubjay",)) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), command
    for name, child in sorted(getattr(command, "commands", {}).items()):
        if not child.hidden:
            yield from walk(child, (*path, name))


def section(command: str) -> str:
    """What docs/cli.md says under a command's heading; "" without one."""
    found = re.search(rf"^### `{command}`\n(.*?)(?=^##|\Z)", page("cli.md"), re.M | re.S)
    return found[1] if found else ""


def commands() -> list[tuple[str, Any]]:
    if command_line() is None:
        pytest.skip("there is no command line yet")
    return list(walk(command_line()))


def test_commands_are_documented() -> None:
    unknown = [
        path
        for path, _ in commands()[1:]
        if not section(path) and f"`{path}`" not in page("cli.md")
    ]
    assert not unknown, f"docs/cli.md does not mention {unknown}"


def test_options_are_documented() -> None:
    """Under the command's own heading, or, for those that many have, before the commands."""
    common = page("cli.md").split("### `scrubjay", 1)[0]
    unknown = []
    for path, command in commands():
        known = set(re.findall(r"--[\w-]+", common + section(path)))
        unknown += [
            f"{path} {option}"
            for parameter in command.params
            if not getattr(parameter, "hidden", False)
            for option in (*parameter.opts, *parameter.secondary_opts)
            if option.startswith("--") and option not in known
        ]
    assert not unknown, f"docs/cli.md does not mention {unknown}"


def test_documented_commands_exist() -> None:
    there = {path for path, _ in commands()}
    for path in PAGES:
        text = path.read_text("utf-8")
        spans = code(text) | {line for body in blocks(path, "sh") for line in body.splitlines()}
        for span in spans:
            words = re.match(r"(?:\w+=\S+ )*(scrubjay(?: [a-z]+)*)", span)
            if words and " " in words[1]:
                named = words[1].split()
                known = [" ".join(named[:n]) in there for n in range(2, min(len(named), 3) + 1)]
                assert any(known), f"{path.name} names `{span}`, which does not exist"


# -- the pages themselves ----------------------------------------------------------------------


def blocks(path: Path, language: str) -> list[str]:
    return [body for lang, body in FENCE.findall(path.read_text("utf-8")) if lang == language]


@pytest.mark.parametrize(
    "path", [p for p in PAGES if blocks(p, "python")], ids=lambda p: str(p.relative_to(ROOT))
)
def test_python_examples_run(path: Path, tmp_path: Path) -> None:
    """All blocks of a page, one after another, as a reader would, in a directory of their own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCRUBJAY_")}
    environment |= {"SCRUBJAY_EMBEDDER": "none", "PYTHONWARNINGS": "error", "PYTHONUTF8": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks(path, "python"))],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr, ran.stderr


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = FENCE.sub("", path.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{path.name}: {target} leads nowhere"
        assert there.is_relative_to(ROOT), f"{path.name}: {target} leads out of the repository"
        if anchor:
            assert anchor in anchors(there), f"{path.name}: {target} has no such heading"


def test_every_page_is_linked() -> None:
    linked = {
        (path.parent / target.partition("#")[0]).resolve()
        for path in PAGES
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8"))
        if "://" not in target
    }
    linked |= {p for d in linked if d.is_dir() for p in d.glob("*.md")}
    lost = [p.name for p in PAGES if p.resolve() not in linked and p not in READMES]
    assert not lost, f"no page links to {lost}"


def shape(path: Path) -> list[str]:
    """A page's skeleton: heading levels, code blocks by language, rows of tables, list items."""
    text = path.read_text("utf-8")
    skeleton = FENCE.sub(lambda m: f"```{m[1]}\n", text)
    marks = (re.match(r"#+ |```\w*|\||- ", line) for line in skeleton.splitlines())
    return [mark[0].strip() for mark in marks if mark]


def test_readmes_have_one_structure() -> None:
    english, chinese = map(shape, READMES)
    assert english == chinese
    ours, theirs = (set(re.findall(r"\]\(([^)\s]+)\)", p.read_text("utf-8"))) for p in READMES)
    assert ours - {"README.zh-CN.md"} == theirs - {"README.md"}


def test_the_picture_of_the_rooms_is_the_one_that_is_checked() -> None:
    linter = (ROOT / ".importlinter").read_text("utf-8")
    layers = re.search(r"^layers =\n((?:    .+\n)+)", linter, re.M)
    assert layers
    picture = next(b for lang, b in FENCE.findall(page("architecture.md")) if "wiring" in b)
    drawn = [re.split(r"\s{2,}", line)[0] for line in picture.splitlines()]
    built = [
        re.sub(r"\(\w+\) \| | \| \(\w+\)", "", line.strip()) for line in layers[1].splitlines()
    ]
    assert drawn == built


def test_readme_commands_are_those_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for path in PAGES:
        named = set(re.findall(r"(?:^|`)make ([a-z]+)", path.read_text("utf-8"), re.M))
        assert named <= targets, f"{path.name} names `make {sorted(named - targets)}`"
    assert "make test" in (ROOT / "README.md").read_text("utf-8")
    assert "make" in (ROOT / ".ci" / "run").read_text("utf-8")
