"""What the files that people write have in common: TOML, read with errors that say where."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zib.core.validate import InvalidParameterError, shown

Table = Mapping[str, Any]


def read_text(source: Path) -> str:
    """Return the text of a file, or raise with the reason."""
    try:
        return source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidParameterError(f"{source} cannot be read: {reason}") from None


def parse(text: str, source: Path) -> dict[str, Any]:
    """Return the tables of a text that stands in the file `source`, or raise with the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = f": {text.splitlines()[int(found[1]) - 1].strip()}" if found else ""
        raise InvalidParameterError(f"{source} is not TOML: {error}{line}") from None


def changed(data: Table, changes: Table) -> dict[str, Any]:
    """Return the tables with some values replaced, nested as there."""
    out = dict(data)
    for key, value in changes.items():
        inner = isinstance(value, Mapping) and isinstance(out.get(key, {}), Mapping)
        out[key] = changed(out.get(key, {}), value) if inner else value
    return out


def joined(place: str, key: str) -> str:
    """Return the place of `key` as one writes it in the file.

    Examples
    --------
    >>> joined("policies", "ZI-TS"), joined("policies", "UCB, tuned")
    ('policies.ZI-TS', 'policies."UCB, tuned"')
    """
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", key) is not None
    name = key if bare else '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{place}.{name}" if place else name


def as_table(value: object, place: str) -> Table:
    """Return `value` if it is a table, or raise."""
    if not isinstance(value, Mapping):
        raise InvalidParameterError(f"{place} must be a table, as in [{place}]; got {shown(value)}")
    return value


def check_keys(table: Table, place: str, known: Iterable[str]) -> None:
    """Raise unless every key of the table is known there."""
    names = tuple(known)
    for key in table:
        if key not in names:
            where = f"{place}: " if place else ""
            raise InvalidParameterError(
                f"{where}{shown(key)} is not a setting{suggestion(key, names)}"
            )


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?", or the names there are when none is near.

    Examples
    --------
    >>> suggestion("sigmma", ["horizon", "sigma"])
    "; did you mean 'sigma'?"
    >>> suggestion("ZI-TS", ["UCB", "ZITS"])
    "; did you mean 'ZITS'?"
    """
    plain = {_letters(name): name for name in known}
    near = difflib.get_close_matches(_letters(word), plain, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {plain[near[0]]!r}?"
    names = sorted(plain.values())
    more = f" and {len(names) - 25} more" if len(names) > 25 else ""
    return f"; known: {', '.join(names[:25])}{more}" if names else ""


def _letters(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.lower())
