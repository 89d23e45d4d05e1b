"""Figure 1a: a histogram of rewards in which zero is a bar of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.cases.loan import LoanMarket
from zib.cases.loan.market import CUT_PRICES
from zib.core.rng import Role, stream
from zib.experiments.draw import Drawn
from zib.experiments.harness import Experiment
from zib.experiments.record import Setting, Table
from zib.report.numbers import number

RECORDS = 208_085  # number of loan records in the paper's data


class Rewards(NamedTuple):
    """The market, and what its offers earned."""

    market: LoanMarket
    zeros: int
    paid: NDArray[np.float64]


class Figure1a(Experiment[Rewards]):
    """As many rewards as the paper has records, and their histogram."""

    order = 1.0
    title = "Figure 1a: histogram of rewards, zero apart"
    about = "Why zero inflation: most offers are refused and earn nothing."
    weight = 0.1

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        return (
            Setting("data", "synthetic loan market; the paper's records are not public", "ours"),
            Setting("number of offers", f"{RECORDS}", "paper"),
            Setting(
                "quantiles of the price, $1000",
                "1.5400, 3.6390, 5.4164, 8.5466 at .25, .75, .915, .9875",
                "paper",
            ),
            Setting("acceptance", "22 % overall, log-odds fall by 0.35 per $1000", "ours"),
            Setting("reward", "price if the offer is accepted, zero if not", "paper"),
        )

    def measure(self) -> Rewards:
        """Draw the rewards."""
        market = LoanMarket()
        rewards = market.history.sample(stream(self.context.seed, Role.ENVIRONMENT, 0), RECORDS)
        paid = rewards[rewards != 0.0]
        return Rewards(market, rewards.size - paid.size, paid)

    def tables(self, found: Rewards) -> Iterable[Table]:
        """Return how often and how much each price class pays."""
        market, zeros, paid = found
        rows = tuple(
            (name, f"{low:g} to {high:g}", f"{p:.3f}", f"{mu:.2f}", f"{p * mu:.3f}")
            for name, low, high, p, mu in zip(
                market.classes, CUT_PRICES[:-1], CUT_PRICES[1:], market.probs, market.magnitudes
            )
        )
        yield Table(
            f"The five price classes; {100 * zeros / RECORDS:.1f} % of all rewards are zero, the "
            f"others average {number(float(paid.mean()))}",
            ("class", "price, $1000", "accepted", "mean if accepted", "mean reward"),
            rows,
        )

    def figures(self, found: Rewards) -> Iterable[Drawn]:
        """Draw the zeros beside the histogram of what was paid."""
        import pandas as pd
        from matplotlib.figure import Figure

        zeros = found.zeros
        share = 100 * zeros / RECORDS
        edges = np.arange(0.0, CUT_PRICES[-1] + 0.25, 0.25)
        counts = np.histogram(found.paid, edges)[0]
        fig = Figure(figsize=(9.0, 4.2))
        left, right = fig.subplots(1, 2, width_ratios=(1, 6))
        fig.subplots_adjust(left=0.1, right=0.985, top=0.9, bottom=0.16, wspace=0.22)
        left.bar([0], [zeros], color="#E69F00", width=0.5)
        left.set_xlim(-0.6, 0.6)
        left.set_xticks([0], ["zero"])
        left.set_ylabel("number of offers")
        left.set_title(f"{share:.0f} % of offers")
        right.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color="#0072B2")
        right.set_xlim(0, edges[-1])
        right.set_xlabel("reward, $1000")
        right.set_title(f"the other {100 - share:.0f} % (another scale)")
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
        yield Drawn(
            fig,
            numbers,
            "Rewards of all offers. The orange bar holds the refused offers, exactly zero; the "
            "blue bars are prices of accepted ones.",
            f"A bar of {zeros} zeros beside a right-skewed histogram of {found.paid.size} positive "
            "rewards.",
        )
