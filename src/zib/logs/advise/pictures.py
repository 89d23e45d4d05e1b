"""The figures of an advice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zib.report import paper_style, save_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from zib.logs.advise.advice import Advice

MOST_DRAWN = 20  # arms


class Picture(NamedTuple):
    """A figure by its file stem, with what stands under it."""

    stem: str
    caption: str
    alternative: str
    half: bool = False


def draw_all(advice: Advice, folder: Path) -> list[Picture]:
    """Draw what there is to draw; return what was drawn."""
    import pandas as pd

    from zib.report import advice as draw

    pictures: list[Picture] = []

    def save(fig: Figure, numbers: pd.DataFrame, picture: Picture) -> None:
        import matplotlib.pyplot as plt

        save_figure(fig, folder, picture.stem, numbers, advice.provenance)
        plt.close(fig)
        pictures.append(picture)

    law = advice.law
    with paper_style():
        save(*_arms_picture(advice))
        if law.sample.size:
            fitted = {fit.name: fit.distribution() for fit in law.fits[:3]}
            fig = draw.magnitudes_figure(
                law.sample, zero_share=advice.overall.zero_share, laws=fitted,
                unit="reward" if law.sign > 0 else "loss",
            )  # fmt: skip
            levels = np.linspace(0.0, 1.0, 201)
            numbers = pd.DataFrame({"level": levels, "quantile": np.quantile(law.sample, levels)})
            save(fig, numbers, Picture(
                "magnitudes",
                "Left: share of rewards that are zero. Right: the others, with the three laws that "
                "fit best.",
                "Histogram of the non-zero rewards with fitted densities",
            ))  # fmt: skip
        if law.best is not None:
            fig = draw.quantile_figure(
                law.sample, law=law.best.distribution(), name=law.best.name, level=advice.level
            )
            levels = (np.arange(1, 201) - 0.5) / 200
            numbers = pd.DataFrame(
                {
                    "level": levels,
                    "law": law.best.distribution().ppf(levels),
                    "observed": np.quantile(law.sample, levels),
                }
            )
            save(fig, numbers, Picture(
                "quantiles",
                f"Quantiles of the non-zero rewards against the {law.best.name} law. Points inside "
                "the band are what chance alone would do, one by one.",
                f"Quantile-quantile plot against the {law.best.name} law",
                half=True,
            ))  # fmt: skip
        if advice.simulation is not None:
            save(*_earnings_picture(advice))
    return pictures


def _arms_picture(advice: Advice) -> tuple[Figure, Any, Picture]:
    import pandas as pd

    from zib.report import advice as draw

    ranked = advice.ranking
    shown = ranked
    if len(ranked) > MOST_DRAWN:
        shown = (*ranked[: MOST_DRAWN - 5], *ranked[-5:])
    parts = np.array([[list(e) for e in arm.compared] for arm in shown], dtype=np.float64)
    labels = [str(arm.label) for arm in shown]
    fig = draw.arms_figure(labels, p=parts[:, 0], mu=parts[:, 1], r=parts[:, 2], level=advice.level)
    numbers = pd.DataFrame({"arm": labels})
    for j, name in enumerate(("p", "mu", "r")):
        for i, end in enumerate(("", " low", " high")):
            numbers[name + end] = parts[:, j, i]
    more = "" if len(shown) == len(ranked) else (
        f" The best {MOST_DRAWN - 5} and the last 5 of {len(ranked)} arms."
    )  # fmt: skip
    weighted = any(arm.weighted is not None for arm in advice.arms)
    how = " Rows count 1/propensity." if weighted else ""
    caption = (
        f"How often and how much each arm pays, with {100 * advice.level:.3g} % intervals; "
        f"triangles mark intervals that go on.{how}{more}"
    )
    return fig, numbers, Picture("arms", caption, "Estimates of p, mu and r for each arm")


def _earnings_picture(advice: Advice) -> tuple[Figure, Any, Picture]:
    import pandas as pd

    from zib.report import advice as draw

    ran = advice.simulation
    assert ran is not None
    totals = np.array([list(row.total) for row in ran.earned])
    fig = draw.earnings_figure(
        ran.labels, totals=totals, best=ran.best_total, rounds=ran.rounds,
        recommended=ran.labels[0], level=advice.level,
    )  # fmt: skip
    numbers = pd.DataFrame(
        {
            "policy": ran.labels,
            "earned": totals[:, 0],
            "low": totals[:, 1],
            "high": totals[:, 2],
            "paid": [row.paid for row in ran.earned],
            "best arm": [row.best_share for row in ran.earned],
        }
    )
    caption = (
        f"Earnings in {ran.rounds} rounds on rewards drawn again from the log, mean of "
        f"{ran.replications} runs: the mean rewards of the arms played, added up."
    )
    return fig, numbers, Picture("earnings", caption, "What each policy would have earned")
