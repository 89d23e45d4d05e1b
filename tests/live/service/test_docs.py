"""The tables of keys in docs/serve.md are those that the program knows."""

import re
from pathlib import Path

import pytest

from zib.core.spec import REQUIRED
from zib.live.service.config import BANDIT, Limits, Server, Settings, Token

PAGE = Path(__file__).parents[3] / "docs" / "serve.md"


def table(after: str) -> dict[str, tuple[str, str]]:
    """Return what is allowed, and the default, by key."""
    text = PAGE.read_text(encoding="utf-8")
    rows = text[text.index(after) :].split("| key |", 1)[1].split("\n\n", 1)[0]
    found = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|", rows, re.MULTILINE)
    return {key: (allowed, default) for key, allowed, default in found}


def written(value: object) -> str:
    if value is REQUIRED:
        return "required"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value:.9g}`"


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        ("### `[server]`", Server),
        ("### `[limits]`", Limits),
        ("### `[bandit.NAME]`", Settings),
        ("## Tokens and roles", Token),
    ],
)
def test_the_page_has_every_key_with_what_is_allowed(after: str, kind: type) -> None:
    found = table(after)
    declared = kind.declared  # type: ignore[attr-defined]
    for key, field in declared.items():
        assert found[key] == (field.allowed, written(field.default))
    assert list(found) == list(BANDIT if kind is Settings else declared)
