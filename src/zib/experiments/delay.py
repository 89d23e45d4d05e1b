"""Rewards that come late: what waiting, guessing and fractional pulls cost against no delay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import zib
from zib.env import Delayed, Exponential, Lomax, RandomMAB, Uniform
from zib.experiments.draw import Drawn
from zib.experiments.harness import Panel, Played, Scaled, Simulated
from zib.experiments.judge import (
    Comparison,
    compare,
    compare_runs,
    final_regrets,
    from_cases,
    lower,
    lowest,
    ratios,
)
from zib.experiments.record import Setting, Table, Verdict
from zib.mab import Pending
from zib.report import style_of
from zib.report.numbers import number
from zib.sim import Results
from zib.stats import intervals

HORIZON = 20_000
TARGET = 1.2
NOT_KNOWING = 1.1  # at most so much for estimating F
ADDED = HORIZON // 2  # the round in which the last arm comes
TIGHT = "uniform to the close"
SHOP = RandomMAB("exponential", n_arms=5, magnitudes=(2.0, 2.0), probs=(0.01, 0.05))
NO_DELAY, ESTIMATED, KNOWN = "no delay", "F estimated", "F known"
ZERO, AT_ONCE, WAIT = "pending as zeros", "rewards at once", "waiting"
WAYS = {
    NO_DELAY: "no_delay",
    ESTIMATED: "estimated",
    KNOWN: "known",
    ZERO: "zero",
    AT_ONCE: "at_once",
    WAIT: "wait",
}
SIMPLE = (ZERO, AT_ONCE, WAIT)
LOOKS = {  # whose colour and marker each way takes in the figure
    ESTIMATED: "ZI adaptive",
    KNOWN: "ZI-TS",
    ZERO: "ZI-UCB",
    AT_ONCE: "UCB component size",
    WAIT: "MOTS",
}
ADAPTIVE, SAMPLING, INDEX = "ZI adaptive", "ZI-TS exponential", "ZI-KL-UCB exponential"


class Cell(NamedTuple):
    """A law of delays, a window, and whether an arm comes in mid-run."""

    law: str
    window: int
    added: bool

    @property
    def name(self) -> str:
        """The cell in words."""
        part = f"T/{round(HORIZON / self.window)}"
        return f"{self.law}, window {part}" + (", an arm added" if self.added else "")

    @property
    def delay(self) -> Any:
        """The law of the delay."""
        return {
            "exponential": Exponential(self.window / 5.0),
            "uniform": Uniform(0.0, self.window / 2.0),
            TIGHT: Uniform(0.0, float(self.window)),
            "heavy": Lomax(self.window / 4.0, 1.5),
        }[self.law]

    @property
    def env(self) -> Delayed:
        """The environment."""
        starts = [0] * (SHOP.n_arms - 1) + [ADDED] if self.added else None
        return Delayed(SHOP, delay=self.delay, window=self.window, starts=starts)


CELLS = tuple(
    Cell(law, HORIZON // part, added)
    for added in (False, True)
    for part in (8, 3)
    for law in ("exponential", "uniform", "heavy", TIGHT)
    if law != TIGHT or not added
)


def way(policy: str, how: str) -> str:
    """Return the label of a policy with its way of treating what is pending."""
    return f"{policy}, {how}"


def policies(*, quick: bool) -> dict[str, Any]:
    """Return the policies that play, in every way."""
    found: dict[str, Any] = {ADAPTIVE: zib.mab.ZIAdaptive()}
    if not quick:
        found[SAMPLING] = zib.mab.ZIExponentialTS()
        found[INDEX] = zib.mab.ZIKLUCB(family="exponential")
    return found


class Delay(Simulated):
    """Three laws of delays, two windows, with and without an arm added; and a tight window."""

    order = 16.5
    title = "Beyond the paper: rewards that come late"
    about = (
        "Nobody reports a zero: a decision is pending until its reward comes or its window closes. "
        "What a policy makes of pending decisions decides what the delay costs."
    )
    weight = 2.0
    replications = Scaled(quick=5, paper=100)

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        low, high = SHOP.probs
        return (
            Setting("arms", f"K = {SHOP.n_arms}, p uniform on [{low:g}, {high:g}]", "ours"),
            Setting("amounts", f"exponential, mean {SHOP.magnitudes[0]:g} in all arms", "ours"),
            Setting("horizon, replications", f"T = {HORIZON}, N = {self.replications}", "ours"),
            Setting(
                "delays",
                "exponential with mean window/5; uniform on the first half of the window, or up to "
                "its close; heavy: Lomax with index 1.5 and mean window/4, half within 7 % of the "
                "window; each given that it is within the window; one round is one unit of time",
                "ours",
            ),
            Setting("windows", f"T/8 = {HORIZON // 8} and T/3 = {HORIZON // 3} rounds", "ours"),
            Setting("an arm added", f"the fifth arm comes in round {ADDED}", "ours"),
            Setting(
                "ways",
                "`zib.mab.Pending`: weighed anew a hundred times per window; F by the Kaplan–Meier "
                "estimator in reversed time, from one pseudo-reward and the rewards of the run; "
                "beyond the oldest decisions the trend of the delays goes on",
                "ours",
            ),
        )

    def panels(self) -> list[Panel]:
        """Return a panel per cell; at quick scale the default plays alone."""
        who = policies(quick=self.context.quick)
        return [
            Panel(
                name=cell.name,
                env=cell.env,
                policies={
                    way(name, label): Pending(spec, how=how)
                    for name, spec in who.items()
                    for label, how in WAYS.items()
                },
                horizon=HORIZON,
                replications=self.replications,
                checkpoints=20,
            )
            for cell in CELLS
        ]

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return a table per policy: regret ratios, a line per cell."""
        for policy in _playing(found):
            rows = []
            for panel in found:
                alone = final_regrets(panel.result, way(policy, NO_DELAY))
                cells = [str(Ratio.of(panel.result, policy, how)) for how in LOOKS]
                rows.append((panel.name, number(float(np.nanmean(alone))), *cells))
            yield Table(
                f"{policy}: regret over that without delay, with 95 % intervals",
                ("cell", "regret without delay", *LOOKS),
                tuple(rows),
                f"At round {HORIZON}, paired by replication: the j-th pull of an arm pays the same "
                "in every way, after the same delay.",
            )

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge the target, the price of not knowing F, and the simple ways."""
        who = _playing(found)
        yield _at_most(
            f"Our target: with F estimated, at most {TARGET} times the regret without delay, in "
            "every cell",
            _against(found, who, ESTIMATED, NO_DELAY, TARGET),
        )
        yield _at_most(
            f"Estimating F costs at most {100 * (NOT_KNOWING - 1):.0f} % more than knowing it",
            _against(found, who, ESTIMATED, KNOWN, NOT_KNOWING),
        )
        for policy in who:
            yield never_above(policy, found)
        yield _at_most(
            f"{ADAPTIVE} has lower regret with F estimated than with rewards learned as they come "
            "and zeros at the close",
            _against(found, (ADAPTIVE,), ESTIMATED, AT_ONCE),
        )

    def notes(self, found: list[Played]) -> Iterable[str]:
        """Say what the numbers mean."""
        if self.context.quick:
            yield "Quick scale: few replications, and the default plays alone."
        yield (
            "F known is what the delay itself costs: the rewards come late for whoever waits for "
            "them. Where delays are uniform up to the close of a window of a third of the horizon, "
            "a reward comes a sixth of the horizon late on average, and no estimate of F brings "
            "it back."
        )
        yield (
            "Rewards learned as they come, with zeros at the close, make p look several times too "
            "large, and the more so the more an arm was played of late: a policy then sticks to "
            "what it plays."
        )
        if INDEX in _playing(found):
            yield (
                "An index does not change until a reward comes or a decision ages, so an index "
                "policy plays one arm many times over meanwhile. Counting what is pending as zeros "
                "spreads its choices, which may outweigh that p is then too small. Posterior "
                "sampling spreads its choices by itself."
            )

    def figures(self, found: list[Played]) -> Iterable[Drawn]:
        """Draw the ratios: a panel per policy, a line per cell, a dot per way."""
        import pandas as pd
        from matplotlib.figure import Figure

        who = _playing(found)
        figure = Figure(figsize=(4.2 + 3.4 * len(who), 1.5 + 0.42 * len(found)))
        figure.set_layout_engine("constrained", rect=(0.0, 0.03, 1.0, 0.97))
        axes = figure.subplots(1, len(who), sharey=True, squeeze=False)[0]
        rows: list[dict[str, Any]] = []
        for ax, policy in zip(axes, who):
            ax.axvspan(1.0, TARGET, color="#DDEEDD", zorder=0)
            ax.axvline(1.0, color="#555555", linewidth=1.0)
            for height, panel in enumerate(found):
                for place, (how, like) in enumerate(LOOKS.items()):
                    ratio = Ratio.of(panel.result, policy, how)
                    look = style_of(like)
                    at = height + 0.14 * (place - 2)
                    ax.plot([ratio.low, ratio.high], [at, at], color=look.color, linewidth=1.0)
                    ax.plot(
                        ratio.value,
                        at,
                        linestyle="",
                        marker=look.marker or "o",
                        color=look.color,
                        markersize=5.5,
                        label=how if height == 0 and policy == who[0] else None,
                    )
                    rows.append(
                        {"cell": panel.name, "policy": policy, "way": how} | ratio._asdict()
                    )
            ax.set_title(policy)
            ax.set_xscale("log")
            ticks = (0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0)
            ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
            ax.set_xticks([], minor=True)
            ax.set_xlabel("regret / regret without delay")
            ax.grid(axis="y", visible=False)
        axes[0].set_yticks(range(len(found)), [panel.name for panel in found])
        axes[0].invert_yaxis()
        figure.legend(loc="outside upper center", ncols=5, frameon=False)
        yield Drawn(
            figure,
            pd.DataFrame(rows),
            "Final regret over that of the same policy without delay, with 95 % intervals, one dot "
            "per way of treating pending decisions. Shaded: within the target.",
            "Regret ratios of all ways in every cell",
        )


# ------------------------------------------------------------------------------------------ claims


class Ratio(NamedTuple):
    """Final regret over that without delay, with a 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, result: Results, policy: str, how: str) -> Ratio:
        """Compare a way with no delay, paired by replication."""
        runs = (final_regrets(result, way(policy, each)) for each in (how, NO_DELAY))
        return cls(*(float(np.exp(x)) for x in intervals.log_ratio(*runs)))

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def _playing(found: Sequence[Played]) -> list[str]:
    """Return the policies that played."""
    labels = found[0].result.labels
    return [name for name in (ADAPTIVE, SAMPLING, INDEX) if way(name, NO_DELAY) in labels]


def _against(
    found: Sequence[Played], who: Iterable[str], first: str, second: str, factor: float = 1.0
) -> list[Comparison]:
    """Compare two ways of each policy in every cell.

    The worst run that could still come is one of these two ways: what waiting costs says nothing
    about them.
    """
    cases = []
    for policy in who:
        for panel in found:
            one, other = (final_regrets(panel.result, way(policy, how)) for how in (first, second))
            worst = float(np.nanmax([one, other]))
            cases.append(compare_runs(panel.name, policy, second, (one, other), worst, factor))
    return cases


def _at_most(claim: str, cases: Sequence[Comparison]) -> Verdict:
    """Judge whether ratios stay below the factors they were compared with, policy by policy."""
    alone = len({case.first for case in cases}) == 1
    verdict = lower(claim, cases, lambda c: ("" if alone else c.first, c.panel))
    return replace(verdict, words=verdict.words + ratios(cases))


def never_above(policy: str, found: Sequence[Played]) -> Verdict:
    """Judge whether F estimated is nowhere above the best of the simple ways by more than noise.

    The best is chosen on one half of the replications and compared on the other. What speaks
    against the claim is an interval above 0, without the bad runs that a decision has to survive:
    doubt is not to count in favour.
    """
    cases = []
    for panel in found:
        best = lowest(panel.result, [way(policy, how) for how in SIMPLE])
        label = way(policy, ESTIMATED)
        cases.append(compare(panel.name, panel.result, label, best, chosen=True))
    verdict = from_cases(
        f"{policy} with F estimated is nowhere above the best of the simple ways by more than "
        "noise",
        cases,
        good=lambda c: c.decision.low <= 0.0,
        bad=lambda c: c.decision.low > 0.0,
        name=lambda c: ("", c.panel),
    )
    least, most = min(c.ratio for c in cases), max(c.ratio for c in cases)
    return replace(verdict, words=f"{verdict.words} ({least:.2f} to {most:.2f} times its regret)")
