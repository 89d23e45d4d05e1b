"""Figure 2 with other magnitudes: whether ZI-UCB beats the strong baseline depends on mu and σ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import zib
from zib.env import RandomMAB
from zib.experiments.draw import Look
from zib.experiments.harness import Panel, Played, Scaled, Simulated
from zib.experiments.judge import below
from zib.experiments.mab_study import STRONG
from zib.experiments.record import Setting, Table, Verdict
from zib.report.numbers import number

ZI_UCB = "ZI-UCB"


class Magnitudes(NamedTuple):
    """The range of the mean magnitudes and the standard deviation of a Gaussian bandit."""

    low: float
    high: float
    sigma: float

    def __str__(self) -> str:
        return f"mu ~ U[{self.low:g}, {self.high:g}], σ = {self.sigma:g}"


GRID = (
    Magnitudes(1.0, 3.0, 0.5),  # those of figures 2, S1 and S2
    Magnitudes(1.0, 3.0, 1.0),
    Magnitudes(1.0, 3.0, 2.0),
    Magnitudes(1.0, 3.0, 3.0),
    Magnitudes(0.2, 1.0, 1.0),
)


class Conditions(Simulated):
    """The Gaussian panel of figure 2, at five pairs of magnitudes and spreads."""

    order = 2.5
    title = "Figure 2 with other magnitudes: for which mu and σ its conclusions hold"
    about = (
        "The paper does not say which magnitudes it simulates; those of figures 2, S1 and S2 are "
        "our choice. Here the Gaussian panel of figure 2 is played with others: the larger σ is "
        "compared with mu, the better for ZI-UCB."
    )
    weight = 0.5
    horizon = 75_000
    replications = Scaled(quick=50, paper=100)
    look = Look(
        groups={"made for zero inflation": (ZI_UCB,), "the paper's baseline": (STRONG,)},
        caption="Mean cumulative regret with 95 % bands, linear axes.",
    )

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        return (
            Setting("arms, horizon", f"K = 10, T = {self.horizon}", "paper"),
            Setting("replications", f"N = {self.replications}", "ours"),
            Setting("probability of paying", "p_k iid uniform on [0.3, 0.35], redrawn", "ours"),
            Setting("magnitudes", f"Gaussian; {'; '.join(map(str, GRID))}", "ours"),
            Setting("policies", "those of figure 2, told σ", "ours"),
        )

    def panels(self) -> list[Panel]:
        """Return a panel per pair of magnitudes and spread."""
        return [
            Panel(
                name=str(these),
                key=these._asdict(),
                env=RandomMAB(
                    "gaussian",
                    probs=(0.30, 0.35),
                    magnitudes=(these.low, these.high),
                    sigma=these.sigma,
                ),
                policies=policies(self.horizon, these.sigma),
                horizon=self.horizon,
                replications=self.replications,
            )
            for these in GRID
        ]

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return ratios of final regrets, a row per pair."""
        rows = []
        for panel in found:
            mean = dict(zip(panel.result.labels, panel.result.mean()[:, -1]))
            ours, theirs = float(mean[ZI_UCB]), float(mean[STRONG])
            rows.append((panel.name, number(ours), number(theirs), f"{ours / theirs:.2f}"))
        head = ("magnitudes", ZI_UCB, "strong baseline", "ratio")
        yield Table("Final regret", head, tuple(rows))

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge whether ZI-UCB is below the strong baseline."""
        yield below(
            "ZI-UCB has lower regret than the strong baseline: tight radius, whatever mu and σ "
            f"(Gaussian, p from 0.3 to 0.35, T = {self.horizon})",
            {panel.name: panel.result for panel in found},
            ZI_UCB,
            STRONG,
        )


def policies(horizon: int, sigma: float) -> dict[str, Any]:
    """Return ZI-UCB with its defaults, and the strong baseline."""
    return {
        ZI_UCB: zib.mab.ZIUCB(horizon=horizon, sigma=sigma),
        STRONG: zib.mab.UCB(horizon=horizon, sigma=sigma, size="true"),
    }
