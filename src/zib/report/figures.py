"""Saving figures: PNG, SVG and the numbers, with what made them in small print."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class FigureFiles(NamedTuple):
    """Where one figure was written."""

    png: Path
    svg: Path
    csv: Path


def small_print(provenance: Mapping[str, Any]) -> str:
    """Return one line that says what made a figure.

    Examples
    --------
    >>> small_print({"zib": "0.1.0", "seed": 3, "plan_hash": "0123456789abcdef", "numpy": "2.4"})
    'zib 0.1.0 · plan 0123456789ab · seed 3 · numpy 2.4'
    """
    parts = []
    if "zib" in provenance:
        parts.append(f"zib {provenance['zib']}")
    if "plan_hash" in provenance:
        parts.append(f"plan {str(provenance['plan_hash'])[:12]}")
    if "seed" in provenance:
        parts.append(f"seed {provenance['seed']}")
    parts.extend(
        f"{name} {provenance[name]}"
        for name in ("numpy", "numba", "scipy", "python")
        if name in provenance
    )
    return " · ".join(parts)


def save_figure(
    fig: Figure,
    folder: Path,
    stem: str,
    numbers: pd.DataFrame,
    provenance: Mapping[str, Any],
) -> FigureFiles:
    """Write `stem`.png, `stem`.svg and `stem`.csv into `folder`.

    The files hold no time stamp: the same numbers give the same bytes.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = FigureFiles(*(folder / f"{stem}.{end}" for end in ("png", "svg", "csv")))
    fig.text(
        0.995,
        0.05 / fig.get_figheight(),
        small_print(provenance),
        ha="right",
        va="bottom",
        fontsize=6.5,
        color="#777777",
    )
    fig.savefig(files.png, metadata={"Software": small_print(provenance)})
    fig.savefig(files.svg, metadata={"Date": None, "Creator": small_print(provenance)})
    numbers.to_csv(files.csv, index=False, float_format="%.10g", lineterminator="\n")
    return files
