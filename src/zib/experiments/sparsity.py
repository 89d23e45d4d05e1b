"""The rarer rewards are, the more the joint treatment of both parts buys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import zib
from zib.env import GaussianMAB, RandomMAB
from zib.experiments.draw import Drawn
from zib.experiments.harness import Panel, Played, Scaled, Simulated, horizons
from zib.experiments.judge import compare, decide, lowest
from zib.experiments.record import Setting, Table, Verdict
from zib.report import style_of

PROBS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
N_ARMS, SIGMA = 5, 0.5
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STRONG = "UCB true size (strong)"
BEYOND = ("ZI-KL-UCB", "ZI-IMED", "ZI posterior", "ZI adaptive")
OTHERS = ("ZI-UCB", STRONG, "MOTS", "UCB1")
FLAT, LEARNED = "ZI posterior", "ZI posterior learned"


@dataclass(frozen=True)
class ManyArms:
    """A generator of bandits with many arms that pay one time in a hundred, more or less."""

    n_arms: int

    def instance(self, rng: np.random.Generator) -> GaussianMAB:
        """Draw an environment: p ~ Beta(1, 99), mu uniform on [1, 3]."""
        means = rng.uniform(1.0, 3.0, self.n_arms)
        return GaussianMAB(means, rng.beta(1.0, 99.0, self.n_arms), SIGMA)


class Crowd(NamedTuple):
    """How many arms there are in the panel with many, and how much is played there."""

    n_arms: int
    horizon: int
    replications: int


class Sparsity(Simulated):
    """Few arms at six probabilities; and many arms that hardly ever pay."""

    order = 14
    title = "Beyond the paper: regret as rewards become rare"
    about = (
        "Five arms, Gaussian magnitudes, and probabilities of paying from 30 % down to 0.1 %. "
        "Final regret relative to the strong baseline, which is told the true size of every arm's "
        "reward."
    )
    weight = 1.5
    probs = PROBS
    horizon = Scaled(quick=20_000, paper=200_000)
    replications = Scaled(quick=8, paper=50)
    crowd = Scaled(quick=Crowd(200, 20_000, 3), paper=Crowd(1_000, 1_000_000, 5))

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        many, long, few = self.crowd
        return (
            Setting("arms", f"K = {N_ARMS}, mu ~ U[1, 3], σ = {SIGMA}, redrawn", "ours"),
            Setting("probabilities", "uniform between half and one and a half times p", "ours"),
            Setting(
                "horizon, replications", f"T = {self.horizon}, N = {self.replications}", "ours"
            ),
            Setting(
                "what policies know",
                "ZI-KL-UCB, ZI-UCB and MOTS know σ, UCB1 the range [0, 5]; the strong baseline "
                "the size of each reward; ZI-IMED, ZI posterior and ZI adaptive nothing",
                "ours",
            ),
            Setting(
                "many arms",
                f"K = {many}, p ~ Beta(1, 99), mu ~ U[1, 3], T = {long}, N = {few}; σ known but to "
                "ZI adaptive",
                "ours",
            ),
        )

    def panels(self) -> list[Panel]:
        """Return a panel per probability, and the one with many arms."""
        few_arms = [
            Panel(
                name=f"p about {prob:g}",
                key={"prob": prob},
                env=RandomMAB(
                    "gaussian", n_arms=N_ARMS, probs=(0.5 * prob, 1.5 * prob), sigma=SIGMA
                ),
                policies=policies(self.horizon),
                horizon=self.horizon,
                replications=self.replications,
                checkpoints=20,
            )
            for prob in self.probs
        ]
        many_arms = Panel(
            name=f"{self.crowd.n_arms} arms",
            env=ManyArms(self.crowd.n_arms),
            policies={
                FLAT: zib.mab.ZIPosterior(sigma=SIGMA),
                LEARNED: zib.mab.ZIPosterior(sigma=SIGMA, prior="learned"),
                "ZI adaptive": zib.mab.ZIAdaptive(),
            },
            horizon=self.crowd.horizon,
            replications=self.crowd.replications,
            checkpoints=2,
        )
        return [*few_arms, many_arms]

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return final regrets at every probability, and with many arms."""
        points = at_probabilities(found)
        probs = list(dict.fromkeys(point.prob for point in points))
        yield Table(
            "Final regret, and how many times that of the strong baseline",
            ("policy", *(f"p ≈ {prob:g}" for prob in probs)),
            tuple(
                (
                    label,
                    *(f"{p.regret:.0f} ({p.ratio:.2f} ×)" for p in points if p.policy == label),
                )
                for label in (*BEYOND, *OTHERS)
            ),
        )
        for panel in with_many_arms(found):
            means, errors = panel.result.mean()[:, -1], panel.result.standard_error()[:, -1]
            rows = zip(panel.result.labels, means, errors)
            yield Table(
                panel.name,
                ("policy", "final regret", "standard error"),
                tuple((label, f"{mean:.0f}", f"{error:.0f}") for label, mean, error in rows),
            )

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge whether ours are lowest, and what arms gain that learn from each other."""
        yield lowest_everywhere(found)
        for panel in with_many_arms(found):
            yield halved(panel)

    def figures(self, found: list[Played]) -> Iterable[Drawn]:
        """Draw ratios of final regrets against the probability."""
        import pandas as pd
        from matplotlib.figure import Figure

        points = at_probabilities(found)
        figure = Figure(figsize=(8.6, 4.8))
        figure.set_layout_engine("constrained", rect=(0.0, 0.05, 1.0, 0.95))
        ax = figure.subplots()
        for label in (*BEYOND, *OTHERS):
            part = [point for point in points if point.policy == label]
            ax.plot(
                [point.prob for point in part],
                [point.ratio for point in part],
                label=label,
                **style_of(label).arguments(),
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(self.probs, [f"{prob:g}" for prob in self.probs])
        ax.set_xticks([], minor=True)
        ax.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        ax.set_yticks([], minor=True)
        ax.invert_xaxis()
        ax.set_xlabel("probability of paying")
        ax.set_ylabel("regret / strong baseline")
        figure.legend(loc="outside right upper", frameon=False)
        yield Drawn(
            figure,
            pd.DataFrame(points),
            "Final regret over that of the strong baseline, both axes logarithmic.",
            "Regret ratios of eight policies against the probability of paying",
        )


def policies(horizon: int) -> dict[str, Any]:
    """Return who plays; those beyond the paper are told nothing but, for the first, σ."""
    return {
        "ZI-KL-UCB": zib.mab.ZIKLUCB(sigma=SIGMA),
        "ZI-IMED": zib.mab.ZIIMED(),
        "ZI posterior": zib.mab.ZIPosterior(),
        "ZI adaptive": zib.mab.ZIAdaptive(),
        "ZI-UCB": zib.mab.ZIUCB(horizon=horizon, sigma=SIGMA),
        STRONG: zib.mab.UCB(horizon=horizon, sigma=SIGMA, size="true"),
        "MOTS": zib.mab.MOTS(horizon=horizon, sigma=SIGMA),
        "UCB1": zib.mab.UCB1(scale=5.0),
    }


class Point(NamedTuple):
    """The final regret of one policy at one probability, and its ratio to the strong baseline."""

    prob: float
    policy: str
    regret: float
    error: float
    ratio: float


def at_probabilities(found: Sequence[Played]) -> list[Point]:
    """Return final regrets of the panels with few arms."""
    points = []
    for panel in found:
        if isinstance(panel.env, RandomMAB):
            result, prob = panel.result, float(panel.key["prob"])
            mean, error = result.mean()[:, -1], result.standard_error()[:, -1]
            strong = mean[result.labels.index(STRONG)]
            points += [
                Point(prob, label, float(m), float(e), float(m / strong))
                for label, m, e in zip(result.labels, mean, error)
            ]
    return points


def with_many_arms(found: Sequence[Played]) -> list[Played]:
    """Return the panel with many arms, if it was played."""
    return [panel for panel in found if isinstance(panel.env, ManyArms)]


def lowest_everywhere(found: Sequence[Played]) -> Verdict:
    """Judge whether one of the policies beyond the paper is lowest at every probability."""
    panels = [panel for panel in found if isinstance(panel.env, RandomMAB)]
    cases = [
        compare(
            panel.name,
            panel.result,
            lowest(panel.result, BEYOND),
            lowest(panel.result, OTHERS),
            chosen=True,
        )
        for panel in panels
    ]
    points = {(p.prob, p.policy): p.ratio for p in at_probabilities(panels)}
    ratios = [points[float(p.key["prob"]), c.first] for p, c in zip(panels, cases)]
    return decide(
        "Our target: one of the policies beyond the paper is lowest at every probability, "
        f"{horizons(panels)}",
        [case.decision for case in cases],
        f": {min(ratios):.2f} to {max(ratios):.2f} times the strong baseline",
        map(str, cases),
    )


def halved(panel: Played) -> Verdict:
    """Judge whether arms that learn from each other lose at most half."""
    found = compare(panel.name, panel.result, LEARNED, FLAT, factor=0.5)
    return decide(
        f"Our target: with {panel.name} that hardly ever pay, {horizons([panel])}, a learned prior "
        "halves the regret of the posterior of each arm on its own",
        [found.decision],
        f": {found.ratio:.2f} times",
        [str(found)],
    )
