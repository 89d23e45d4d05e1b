"""What no default can have: two worlds that nobody can tell apart before a rare arm pays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from zib import theory
from zib.arena import DEFAULT, World, rivals
from zib.arena.rivals import YARDSTICK
from zib.env import MAB, Constant, ZeroInflated
from zib.experiments.draw import Drawn
from zib.experiments.harness import Panel, Played, Scaled, Simulated
from zib.experiments.judge import (
    Decision,
    decide_mean,
    final_regrets,
    from_cases,
    lowest,
    worst_run,
)
from zib.experiments.record import Setting, Table, Verdict
from zib.report import style_of
from zib.report.numbers import number
from zib.sim import Results

OFTEN, PRICE = 0.5, 1.0  # the arm that pays often
USUAL = OFTEN * PRICE  # and what it earns a round
TIMES = 2.0  # as much is earned by the rare arm where it pays
NEVER, PAYS = "never pays", "pays now and then"
LOSS, GAIN = USUAL, (TIMES - 1.0) * USUAL  # a wrong round, in either world
RARE = {1 / 200: 10_000, 1 / 1000: 100_000}  # how often it pays, and the rounds then played
PLAYERS = (
    DEFAULT, "ZI posterior learned", "ZI-IMED", "ε-greedy",
    YARDSTICK, "Normal TS (half of it)", "MOTS (told)",
)  # fmt: skip
TOLD_NOTHING = PLAYERS[:4]


class Aim(NamedTuple):
    """In both worlds at most `factor` times the regret of the best of these policies."""

    factor: float
    labels: tuple[str, ...]
    words: str


AIMS = (
    Aim(1.15, (YARDSTICK,), "Normal TS that is told the standard deviation"),
    Aim(1.1, TOLD_NOTHING, "the best policy that is told nothing"),
    Aim(1.5, PLAYERS, "the best policy of all"),
)


class Rare(Simulated):
    """An arm that rarely pays, or never; and the least regrets that one policy can have in both."""

    order = 15.5
    title = "Beyond the paper: what no default can have"
    about = (
        "Two arms, one of which pays often. The other one never pays in one world, and in the "
        "other it pays rarely and so much that it is the better arm. Until it pays for the first "
        "time nobody can tell which world it is: whoever tries it often loses where it never pays, "
        "whoever does not loses where it does. The least pair of regrets can be computed, whatever "
        "the policy: the black line."
    )
    weight = 0.4
    replications = Scaled(quick=100, paper=2_000)
    remarks = (
        "The black line is that of a policy that knows everything but in which of the two worlds "
        "it is. Whoever is told the standard deviation of the reward is told which world it is, so "
        "the line does not hold for these policies.",
    )

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        prices = " or ".join(f"{TIMES * USUAL / prob:g}" for prob in RARE)
        return (
            Setting("usual arm", f"pays {PRICE:g} with probability {OFTEN:g}", "ours"),
            Setting(
                "rare arm",
                f"pays {prices} with probability {' or '.join(map(_odds, RARE))}, and so earns "
                f"{TIMES:g} times as much as the usual one; or never pays",
                "ours",
            ),
            Setting("horizon", f"T = {' or '.join(map(str, RARE.values()))}", "ours"),
            Setting("replications", f"N = {self.replications}", "ours"),
            Setting("policies", "of the arena; told the sd of rewards where they say so", "ours"),
        )

    def panels(self) -> list[Panel]:
        """Return the two worlds of each probability."""
        return [
            Panel(
                name=f"{_odds(prob)}, {kind}",
                key={"prob": prob, "rare arm": kind},
                env=found.env,
                policies=players(found),
                horizon=horizon,
                replications=self.replications,
                checkpoints=2,
            )
            for prob, horizon in RARE.items()
            for kind in (NEVER, PAYS)
            for found in [world(prob, kind, horizon)]
        ]

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return what the best policies have, and how close to both one policy can be."""
        rows = [
            (
                _odds(pair.prob),
                case.aim.words,
                *(f"{number(r)} ({label})" for r, label in zip(case.regrets, case.labels)),
                f"{case.aim.factor:g}",
                f"{case.least:.2f}",
                f"{max(case.ratios(DEFAULT)):.2f}",
            )
            for pair in pairs(found)
            for case in pair.cases
        ]
        head = (
            "rare arm pays", "compared with", "its regret where that never happens",
            "where it does", "aim in both: at most, times", "least that is possible",
            "the default",
        )  # fmt: skip
        yield Table("The price of not knowing which world it is", head, tuple(rows))

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge which aims nobody can reach."""
        cases = [case for pair in pairs(found) for case in pair.cases]
        for aim in AIMS:
            yield from_cases(
                f"No policy that is told nothing is within {aim.factor:g} times {aim.words} in "
                "both worlds",
                [case for case in cases if case.aim is aim],
                good=lambda case: case.decision.side < 0,
                bad=lambda case: case.decision.side > 0,
                name=lambda case: ("", f"an arm that pays 1 time in {1 / case.pair.prob:.0f}"),
            )

    def figures(self, found: list[Played]) -> Iterable[Drawn]:
        """Draw the regrets in the two worlds against each other, with the least ones."""
        import pandas as pd
        from matplotlib.figure import Figure

        both = pairs(found)
        figure = Figure(figsize=(10.0, 5.2))
        figure.set_layout_engine("constrained", rect=(0.0, 0.04, 1.0, 0.96))
        axes = figure.subplots(1, max(len(both), 1), squeeze=False)[0]
        rows = []
        for ax, pair in zip(axes, both):
            never, pays = pair.curve(np.geomspace(0.1, 0.999 * pair.horizon, 2_001))
            ax.plot(never, pays, color="#000000", linewidth=2.0, label="least possible")
            ax.fill_between(never, pays, 1e-9, color="#EEEEEE", zorder=0)
            for label in pair.never.labels:
                x, y = pair.regrets(label)
                look = style_of(label)
                ax.plot(
                    x, y, linestyle="", marker=look.marker or "o", markersize=8, label=label,
                    color=look.color, fillstyle="full" if label in TOLD_NOTHING else "none",
                )  # fmt: skip
                rows.append({"prob": pair.prob, "policy": label, NEVER: x, PAYS: y})
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlim(0.5, 10.0 / pair.prob)
            ax.set_ylim(pair.horizon / 500.0, pair.horizon)
            ax.set_title(f"{_odds(pair.prob)}, T = {pair.horizon}")
            ax.set_xlabel("regret where the rare arm never pays")
        axes[0].set_ylabel("regret where it pays so often")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
        yield Drawn(
            figure,
            pd.DataFrame(rows),
            "Mean regret in two worlds that differ only in whether the rare arm ever pays, one dot "
            "per policy; hollow ones are told the standard deviation of the reward. Grey: what "
            "nobody can have who is not told which world it is.",
            "Regret where a rare arm pays against regret where it never does",
        )


def _odds(prob: float) -> str:
    return f"1 time in {1 / prob:.0f}"


def world(prob: float, kind: str, horizon: int) -> World:
    """Return the world in which the rare arm is `kind`."""
    often = ZeroInflated(Constant(PRICE), OFTEN)
    rare = ZeroInflated(Constant(TIMES * USUAL / prob), prob if kind == PAYS else 0.0)
    env = MAB(laws=[often, rare])
    return World(name=kind, kind="odd", about="a rare arm", env=env, horizon=horizon)


def players(played_in: World) -> dict[str, Any]:
    """Return who plays in a world."""
    return {each.label: each.spec for each in rivals(played_in) if each.label in PLAYERS}


@dataclass(frozen=True)
class Pair:
    """What was played in the two worlds of one probability."""

    prob: float
    horizon: int
    never: Results
    pays: Results

    def curve(self, pulls: Any) -> tuple[Any, Any]:
        """Return the least regrets of who tries a silent rare arm so often."""
        return theory.rare_arm_regret(pulls, self.prob, self.horizon, LOSS, GAIN)

    @property
    def results(self) -> tuple[Results, Results]:
        """What was played, where the rare arm never pays and where it does."""
        return self.never, self.pays

    def regrets(self, label: str, runs: slice = slice(None)) -> tuple[float, float]:
        """Return the mean regrets of a policy in the two worlds."""
        first, second = (float(final_regrets(r, label)[runs].mean()) for r in self.results)
        return first, second

    @property
    def cases(self) -> list[Case]:
        """The aims, held against what is possible."""
        return [Case(self, aim) for aim in AIMS]


@dataclass(frozen=True)
class Case:
    """One aim in one pair of worlds.

    The best policies, and the line they are judged by, are chosen on the first half of the
    replications and judged on the second.
    """

    pair: Pair
    aim: Aim

    @cached_property
    def labels(self) -> list[str]:
        """The best policy in each world."""
        return [lowest(result, self.aim.labels) for result in self.pair.results]

    def halves(self, second: bool) -> list[Any]:
        """Return regrets of the best policy in each world, in one half of the replications."""
        chosen = zip(self.pair.results, self.labels, strict=True)
        return [np.array_split(final_regrets(r, label), 2)[second] for r, label in chosen]

    @property
    def n(self) -> int:
        """Number of replications it rests on."""
        return min(len(runs) for runs in self.halves(second=True))

    @property
    def regrets(self) -> tuple[float, float]:
        """Their means."""
        first, second = (float(runs.mean()) for runs in self.halves(second=True))
        return first, second

    @property
    def least(self) -> float:
        """The smallest ratio to both of them that one policy can have."""
        never, pays = self.regrets
        return theory.rare_arm_ratio(
            self.pair.prob, self.pair.horizon, LOSS, GAIN, never=never, now_and_then=pays
        )

    def ratios(self, label: str) -> tuple[float, float]:
        """Return the ratios of a policy in both worlds, over all replications."""
        ours, best = self.pair.regrets(label), self.regrets
        return ours[0] / best[0], ours[1] / best[1]

    @cached_property
    def decision(self) -> Decision:
        """Whether `factor` times both regrets lies below what is possible (−1).

        Every policy is above each line through two neighbouring points of the curve,
        s·never + pays >= c. The line is the one that says most.
        """
        x, y = self.pair.curve(np.arange(self.pair.horizon))
        s = -np.diff(y) / np.diff(x)
        c = s * x[:-1] + y[:-1]
        first, second = (float(runs.mean()) for runs in self.halves(second=False))
        at = int(np.argmin((s * first + second) / c))
        worst = s[at] * worst_run(self.pair.never) + worst_run(self.pair.pays)
        border = c[at] / self.aim.factor
        never, pays = self.halves(second=True)
        return decide_mean(s[at] * never + pays - border, (-border, worst - border))

    def __str__(self) -> str:
        return (
            f"{_odds(self.pair.prob)}: nobody is within less than {self.least:.2f} times "
            f"{self.aim.words} in both worlds; distance of {self.aim.factor:g} times both from "
            f"what is possible (negative: out of reach) {self.decision}"
        )


def pairs(found: Sequence[Played]) -> list[Pair]:
    """Return the pairs of worlds of which both were played."""
    played = {(panel.key["prob"], panel.key["rare arm"]): panel for panel in found}
    return [
        Pair(prob, played[prob, NEVER].horizon, played[prob, NEVER].result, other.result)
        for prob in RARE
        if (prob, NEVER) in played and (other := played.get((prob, PAYS))) is not None
    ]
