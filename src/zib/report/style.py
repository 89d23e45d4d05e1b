"""One look for every figure: a policy has the same colour, line and marker wherever it appears.

The colours are those of Okabe and Ito, extended by a few of Tol's muted set; they stay apart for
the common kinds of colour blindness, and marker and line tell the curves apart without colour.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple


class Style(NamedTuple):
    """How one curve is drawn."""

    color: str
    marker: str
    line: str | tuple[int, tuple[int, ...]]
    width: float = 1.8
    alpha: float = 1.0

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments for ``Axes.plot``."""
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.line,
            "linewidth": self.width,
            "alpha": self.alpha,
            "markersize": 8.0 if self.marker == "*" else 5.0,
            "markeredgecolor": "white",
            "markeredgewidth": 0.6,
        }


LINES: dict[str, str | tuple[int, tuple[int, ...]]] = {
    "solid": "-",
    "dashed": (0, (5, 2)),
    "dashdot": (0, (6, 2, 1, 2)),
    "dotted": (0, (1, 1)),
}
MARKERS = ("o", "s", "^", "v", "D", "P", "X", "h", "p", "H", "d", "<", ">", "8")
COLORS = ("#AA4499", "#882255", "#CC6677", "#DDCC77", "#88CCEE", "#555555")
WEIGHTS = {"heavy": (2.2, 1.0), "normal": (1.8, 1.0), "thin": (1.3, 0.9)}  # width and opacity

REFERENCES = {  # curves that are not policies
    "asymptotic bound": Style("#000000", "", LINES["dotted"], 1.5),
    "Monte Carlo": Style("#000000", "", "-", 2.0),
}


def declared_styles() -> dict[str, Style]:
    """Return the styles that policies declare, by label.

    A spec declares how its curves look: ``looks = {"ZI-UCB": "#009E73 o heavy"}`` gives colour and
    marker, then optionally a line (`LINES`) and a weight (`WEIGHTS`).
    """
    from zib.core.spec import KNOWN

    found = dict(REFERENCES)
    for kind in KNOWN.values():
        for label, look in vars(kind).get("looks", {}).items():
            found.setdefault(label, _parsed(look))
    return found


def _parsed(look: str) -> Style:
    color, marker, *words = look.split()
    line = next((LINES[word] for word in words if word in LINES), "-")
    width, alpha = next((WEIGHTS[word] for word in words if word in WEIGHTS), WEIGHTS["normal"])
    return Style(color, marker, line, width, alpha)


def style_of(label: str) -> Style:
    """Return the style of a label.

    A label that a policy declares has its style. One that starts with such a label ("ZI-UCB, last
    500") has its colour with another marker and line, and any other a style made from its text.

    Examples
    --------
    >>> style_of("ZI-UCB").color, style_of("ZI-UCB, last 500").color
    ('#009E73', '#009E73')
    >>> style_of("my policy") == style_of("my policy")
    True
    """
    return _style(label, declared_styles())


def _style(label: str, declared: Mapping[str, Style]) -> Style:
    if label in declared:
        return declared[label]
    bases = [base for base in declared if label.startswith((f"{base} ", f"{base},"))]
    if bases:
        base = declared[max(bases, key=len)]
        others = [
            (marker, line)
            for marker, line in itertools.product(MARKERS, LINES.values())
            if marker != base.marker and line != base.line
        ]
        marker, line = others[_digest(label)[0] % len(others)]
        return base._replace(marker=marker, line=line)
    digest = _digest(label)
    return Style(
        COLORS[digest[0] % len(COLORS)],
        MARKERS[digest[1] % 8],
        tuple(LINES.values())[digest[2] % 3],  # dotted lines are for curves in the background
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """Return a style per label, no two alike in one figure, of different colours if possible.

    Labels with a declared style keep it; the others give way, the later ones to the earlier.

    Examples
    --------
    >>> names = [f"policy {i}" for i in range(30)]
    >>> len({style_of(name) for name in names}), len(set(styles_of(names).values()))
    (27, 30)
    """
    declared = declared_styles()
    found = {label: declared[label] for label in labels if label in declared}
    for label in labels:
        if label in found:
            continue
        wish = _style(label, declared)
        colors = {style.color for style in found.values()}
        looks = {style[:3] for style in found.values()}
        recoloured = [wish._replace(color=color) for color in COLORS]
        every = itertools.product(COLORS, MARKERS[:8], tuple(LINES.values())[:3])
        free = [style for style in (wish, *recoloured) if style.color not in colors]
        free += [
            style for style in (wish, *itertools.starmap(Style, every)) if style[:3] not in looks
        ]
        found[label] = free[0] if free else wish
    return {label: found[label] for label in labels}


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw with the sizes and defaults all figures share; the caller's settings come back after."""
    import matplotlib as mpl

    with mpl.rc_context(
        {
            "figure.dpi": 110,
            "savefig.dpi": 160,
            "font.family": "DejaVu Sans",
            "font.size": 10.5,
            "axes.titlesize": 11.5,
            "axes.labelsize": 10.5,
            "xtick.labelsize": 9.5,
            "ytick.labelsize": 9.5,
            "legend.fontsize": 9.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#E3E3E3",
            "grid.linewidth": 0.7,
            "axes.axisbelow": True,
            "axes.edgecolor": "#555555",
            "figure.facecolor": "white",
            "svg.fonttype": "path",
            "svg.hashsalt": "zib",
        }
    ):
        yield
