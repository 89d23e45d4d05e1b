"""Figure 1a: a histogram of rewards in which zero is a bar of its own."""

from __future__ import annotations

import time

import numpy as np

from zib.cases.loan import LoanMarket
from zib.cases.loan.market import CUT_PRICES
from zib.core.rng import Role, stream
from zib.experiments.judge import number
from zib.experiments.record import Context, Picture, Record, Setting, Table, provenance
from zib.report import paper_style, save_figure

ID = "fig1a"
TITLE = "Figure 1a: histogram of rewards, zero apart"
WEIGHT = 0.1
RECORDS = 208_085  # number of loan records in the paper's data


def run(context: Context) -> Record:
    """Draw as many rewards as the paper has records and show their histogram."""
    started = time.perf_counter()
    market = LoanMarket()
    rewards = market.history.sample(stream(context.seed, Role.ENVIRONMENT, 0), RECORDS)
    paid = rewards[rewards != 0.0]
    edges = np.arange(0.0, CUT_PRICES[-1] + 0.25, 0.25)
    counts = np.histogram(paid, edges)[0]
    origin = provenance([market.to_dict(), RECORDS, context.seed], context.seed)
    _draw(context, rewards.size - paid.size, edges, counts, origin)
    rows = tuple(
        (name, f"{low:g} to {high:g}", f"{p:.3f}", f"{mu:.2f}", f"{p * mu:.3f}")
        for name, low, high, p, mu in zip(
            market.classes, CUT_PRICES[:-1], CUT_PRICES[1:], market.probs, market.magnitudes
        )
    )
    return Record(
        id=ID,
        title=TITLE,
        about="Why zero inflation: most offers are refused and earn nothing.",
        scale=context.scale,
        settings=(
            Setting("data", "synthetic loan market; the paper's records are not public", "ours"),
            Setting("number of offers", f"{RECORDS}", "paper"),
            Setting(
                "quantiles of the price, $1000",
                "1.5400, 3.6390, 5.4164, 8.5466 at .25, .75, .915, .9875",
                "paper",
            ),
            Setting("acceptance", "22 % overall, log-odds fall by 0.35 per $1000", "ours"),
            Setting("reward", "price if the offer is accepted, zero if not", "paper"),
            Setting("seed", str(context.seed), "ours"),
        ),
        pictures=(
            Picture(
                ID,
                "Rewards of all offers. The orange bar holds the refused offers, exactly zero; "
                "the blue bars are prices of accepted ones.",
                f"A bar of {rewards.size - paid.size} zeros beside a right-skewed histogram of "
                f"{paid.size} positive rewards.",
            ),
        ),
        tables=(
            Table(
                f"The five price classes; {100 * (1 - paid.size / rewards.size):.1f} % of all "
                f"rewards are zero, the others average {number(float(paid.mean()))}",
                ("class", "price, $1000", "accepted", "mean if accepted", "mean reward"),
                rows,
            ),
        ),
        verdicts=(),
        seconds=time.perf_counter() - started,
        provenance=origin,
    )


def _draw(
    context: Context,
    zeros: int,
    edges: np.ndarray,
    counts: np.ndarray,
    origin: dict[str, object],
) -> None:
    import pandas as pd
    from matplotlib.figure import Figure

    with paper_style():
        fig = Figure(figsize=(9.0, 4.2))
        left, right = fig.subplots(1, 2, width_ratios=(1, 6))
        fig.subplots_adjust(left=0.1, right=0.985, top=0.9, bottom=0.16, wspace=0.22)
        left.bar([0], [zeros], color="#E69F00", width=0.5)
        left.set_xlim(-0.6, 0.6)
        left.set_xticks([0], ["zero"])
        left.set_ylabel("number of offers")
        left.set_title(f"{100 * zeros / RECORDS:.0f} % of offers")
        right.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color="#0072B2")
        right.set_xlim(0, edges[-1])
        right.set_xlabel("reward, $1000")
        right.set_title(f"the other {100 - 100 * zeros / RECORDS:.0f} % (another scale)")
        for cut in CUT_PRICES[1:-1]:
            right.axvline(cut, color="#777777", linewidth=0.9, linestyle=(0, (2, 2)))
        right.text(
            0.99,
            0.97,
            "dotted: borders of the price classes",
            transform=right.transAxes,
            ha="right",
            va="top",
            fontsize=9,
            color="#555555",
        )
        for ax in (left, right):
            ax.grid(axis="x", visible=False)
        numbers = pd.DataFrame(
            {
                "low": np.concatenate([[0.0], edges[:-1]]),
                "high": np.concatenate([[0.0], edges[1:]]),
                "count": np.concatenate([[zeros], counts]),
                "kind": ["zero"] + ["accepted"] * counts.size,
            }
        )
        save_figure(fig, context.folder, ID, numbers, origin)
