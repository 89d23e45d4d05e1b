"""One look for every figure: a policy has the same colour, line and marker wherever it appears.

The colours are those of Okabe and Ito, extended by a few of Tol's muted set; they stay apart for
the common kinds of colour blindness, and marker and line tell the curves apart without colour.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
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
            "markersize": 5.0,
            "markeredgecolor": "white",
            "markeredgewidth": 0.6,
        }


_DASH = (0, (5, 2))
_DOT = (0, (1, 1))
_DASHDOT = (0, (6, 2, 1, 2))

POLICY_STYLES: dict[str, Style] = {
    # made for zero inflation
    "ZI-UCB": Style("#009E73", "o", "-", 2.2),
    "ZI-UCB printed": Style("#117733", "o", _DASH, 2.2),
    "ZI-TS": Style("#0072B2", "s", "-", 2.2),
    "ZI-TS exponential": Style("#332288", "D", "-", 2.2),
    "ZI-TS stable": Style("#56B4E9", "s", _DASH, 2.2),
    "ZI-KL-UCB": Style("#44AA99", "h", _DASHDOT, 2.2),
    "ZI posterior": Style("#6699CC", "d", _DASHDOT, 2.2),
    "ZI posterior learned": Style("#0072B2", "d", "-", 2.2),
    "ZI adaptive": Style("#000000", "*", "-", 2.4),
    "ZI-IMED": Style("#AA4499", "^", _DASHDOT, 2.2),
    "ZI posterior, discounted": Style("#0072B2", "s", _DASHDOT, 2.2),
    "ZI posterior, window": Style("#009E73", "o", _DASHDOT, 2.2),
    "ZI-IMED, discounted": Style("#882255", "D", _DASH, 2.2),
    "ZI-IMED, window": Style("#CC6677", "v", _DASH, 2.2),
    "ZI-TS printed": Style("#56B4E9", "p", _DASH, 2.2),
    # both parts in one number
    "Joint-UCB": Style("#882255", "h", "-", 2.2),
    "Laplace-TS": Style("#332288", "D", _DASHDOT, 2.2),
    # the paper's baselines
    "UCB component size": Style("#E69F00", "^", "-"),
    "UCB variance size": Style("#CC79A7", "v", "-"),
    "UCB estimated size": Style("#999933", "P", _DASHDOT),
    "UCB true size (strong)": Style("#D55E00", "X", "-"),
    "MOTS": Style("#661100", "*", _DASHDOT),
    "naive UCB": Style("#E69F00", "^", _DASH),
    "naive TS": Style("#999933", "v", _DASHDOT),
    "integrated UCB": Style("#D55E00", "P", "-"),
    "integrated TS": Style("#CC79A7", "X", _DASHDOT),
    # what a user would pick without knowing of zero inflation
    "UCB1": Style("#8C8C8C", "<", _DOT, 1.3, 0.9),
    "UCB1, discounted": Style("#8C8C8C", "<", "-", 1.3, 0.9),
    "UCB-V": Style("#8C8C8C", "p", _DASHDOT, 1.3, 0.9),
    "kl-UCB": Style("#8C8C8C", ">", _DASH, 1.3, 0.9),
    "Normal TS": Style("#B0A070", "H", _DOT, 1.3, 0.9),
    "Beta TS": Style("#B0A070", "8", _DASHDOT, 1.3, 0.9),
    "ε-greedy": Style("#B0A070", "d", _DASH, 1.3, 0.9),
    # not policies
    "asymptotic bound": Style("#000000", "", _DOT, 1.5),
    "Monte Carlo": Style("#000000", "", "-", 2.0),
}

_FALLBACK_COLORS = ("#AA4499", "#882255", "#CC6677", "#DDCC77", "#88CCEE", "#555555")
_FALLBACK_MARKERS = ("o", "s", "^", "v", "D", "P", "X", "h")
_FALLBACK_LINES: tuple[str | tuple[int, tuple[int, ...]], ...] = ("-", _DASH, _DASHDOT)


def style_of(label: str) -> Style:
    """Return the style of a label; labels without a fixed one get a style made from their text.

    Examples
    --------
    >>> style_of("ZI-UCB").color
    '#009E73'
    >>> style_of("my policy") == style_of("my policy")
    True
    """
    fixed = POLICY_STYLES.get(label)
    if fixed is not None:
        return fixed
    digest = hashlib.sha256(label.encode()).digest()
    return Style(
        _FALLBACK_COLORS[digest[0] % len(_FALLBACK_COLORS)],
        _FALLBACK_MARKERS[digest[1] % len(_FALLBACK_MARKERS)],
        _FALLBACK_LINES[digest[2] % len(_FALLBACK_LINES)],
    )


def styles_of(labels: Sequence[str]) -> dict[str, Style]:
    """Return a style per label, no two alike in one figure, of different colours if possible.

    Labels with a fixed style keep it; the others give way, the later ones to the earlier.

    Examples
    --------
    >>> names = [f"policy {i}" for i in range(30)]
    >>> len({style_of(name) for name in names}), len(set(styles_of(names).values()))
    (27, 30)
    """
    found = {label: POLICY_STYLES[label] for label in labels if label in POLICY_STYLES}
    for label in labels:
        if label in found:
            continue
        wish = style_of(label)
        colors = {style.color for style in found.values()}
        looks = {style[:3] for style in found.values()}
        recoloured = [wish._replace(color=color) for color in _FALLBACK_COLORS]
        every = itertools.product(_FALLBACK_COLORS, _FALLBACK_MARKERS, _FALLBACK_LINES)
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
