"""The documentation is true: its code runs, its output is what it says, its names and links exist.

Python blocks of a page run in order in one namespace and one temporary folder. A block that starts
with a comment such as ``# my_policy.py`` is written to that file instead. A ``text`` block right
after a Python block is what it prints (``...`` stands for anything).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import subprocess
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
SLOW = ("README.md", "contextual.md", "live.md", "logs.md", "pricing.md", "serve.md")
RUN = [page for page in PAGES if "```python\n" in page.read_text(encoding="utf-8")]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")


def blocks(page: Path) -> list[tuple[str, str, int, str | None]]:
    """Return (language, code, line, expected output) of every fenced block."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    out = []
    for i, match in enumerate(found):
        expected = None
        if i + 1 < len(found) and found[i + 1][1] == "text":
            between = text[match.end() : found[i + 1].start()]
            expected = found[i + 1][2] if not between.strip() else None
        line = text[: match.start()].count("\n") + 1
        out.append((match[1], match[2], line, expected))
    return out


def matches(printed: str, expected: str) -> bool:
    pattern = r".*?".join(re.escape(part) for part in " ".join(expected.split()).split("..."))
    return re.fullmatch(pattern, " ".join(printed.split()), re.DOTALL) is not None


@pytest.mark.parametrize(
    "page",
    [  # these pages play contextual policies, which takes long to compile
        pytest.param(page, marks=[pytest.mark.slow] if page.name in SLOW else []) for page in RUN
    ],
    ids=lambda page: page.name,
)
def test_code_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace: dict[str, object] = {"__name__": "__page__"}
    try:
        run(page, tmp_path, namespace)
    finally:  # a page that fails does not get to where it stops what it has started
        for found in namespace.values():
            if isinstance(found, subprocess.Popen):
                found.kill()
                found.wait()


def run(page: Path, folder: Path, namespace: dict[str, object]) -> None:
    for language, code, line, expected in blocks(page):
        if language != "python":
            continue
        file = FILE.match(code)
        if file:
            (folder / file[1]).write_text(code, encoding="utf-8")
            continue
        printed = io.StringIO()
        # line numbers in a traceback are those of the page
        program = compile("\n" * line + code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(program, namespace)
        if expected is not None:
            assert matches(printed.getvalue(), expected), (
                f"{page.name}, line {line}: printed\n{printed.getvalue()}"
            )


def test_the_examples_of_the_readme_are_ten_lines_each() -> None:
    code = [code for language, code, _, _ in blocks(README) if language == "python"]
    assert len(code) == 4
    for example in code:
        assert len([line for line in example.splitlines() if line.strip()]) <= 10, example


def code_spans(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return set(re.findall(r"`([^`\n]+)`", text))


def resolve(name: str) -> object:
    """Return the object a dotted name stands for; the longest importable prefix is the module."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_of_the_library_exists(page) -> None:
    names = {
        match[1]
        for span in code_spans(page)
        if (match := re.match(r"(zib(?:\.[A-Za-z_]\w*)+)(?:$|\()", span))
    }
    directives = re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    missing = []
    for name in sorted(names | set(directives)):
        try:
            resolve(name)
        except AttributeError:
            missing.append(name)
    assert not missing


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, made as Python-Markdown makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    kept = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", title) for title in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), target


def test_every_policy_in_the_table_of_the_readme_exists() -> None:
    import zib

    rows = re.findall(r"^\| (`.+?) \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 25
    assert named <= set(zib.mab.__all__) | set(zib.contextual.__all__)


def test_every_experiment_is_on_the_page_about_the_paper() -> None:
    from zib.experiments import EXPERIMENTS

    spans = code_spans(ROOT / "docs" / "paper.md")
    assert {f"zib.experiments.{name}" for name in EXPERIMENTS} <= spans
