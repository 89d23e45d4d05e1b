"""The default needs nothing: how much does that cost against policies that know the truth?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np

import zib
from zib.env import MAB, LogNormal, Pareto, ZeroInflated
from zib.experiments.draw import Drawn
from zib.experiments.harness import Panel, Played, Scaled, Simulated, horizons
from zib.experiments.judge import Comparison, compare, grows, lower, lowest, where
from zib.experiments.loan_study import FOLDER_VARIABLE, KL_FILE, KZ_FILE, data_files
from zib.experiments.mab_study import panel_ids, panel_name, policies
from zib.experiments.record import Setting, Table, Verdict
from zib.report import style_of
from zib.report.numbers import number
from zib.sim import Results

DEFAULT = "ZI adaptive"
TARGET = 1.15
SHOWN = 12.0  # ratios beyond this stand at the edge of the figure
TAGS = ("p10", "p15", "p20", "p25", "p30", "tiny")
LONG, SHORT = 75_000, 10_000
N_ARMS = 10


class NoKnobs(Simulated):
    """The default in every world, with policies that are told the truth."""

    order = 15
    title = "Beyond the paper: the default that needs nothing"
    about = (
        "`zib.Bandit(n_arms=K)` plays ZI adaptive, which is told nothing: no horizon, no size, no "
        "family. Here it meets, in every world, policies that are told the truth."
    )
    weight = 3.0
    longest = Scaled(quick=10_000, paper=LONG)
    replications = Scaled(quick=8, paper=50)
    remarks = (
        "The best policy is chosen on one half of the replications and compared on the other: the "
        "lowest of many means is too low by luck.",
        "Experiments of Karlan and List (2007) and Karlan and Zinman (2008) are part of this where "
        f"{FOLDER_VARIABLE} names a folder that holds them.",
    )

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        return (
            Setting("worlds of the paper", "figures 2, S1 and S2 with all their policies", "paper"),
            Setting(
                "skewed worlds",
                "ten arms, means uniform on [1, 3], p on [.10, .35] (rare: [.0005, .01]); "
                "log-normal or Pareto, one tail for all arms or each its own",
                "ours",
            ),
            Setting("resampled worlds", "arms pay rewards drawn from logs of experiments", "ours"),
            Setting(
                "what policies are told",
                "in the paper's worlds sizes, families and horizon; in the others the largest "
                "variance or moment and each of three families; ZI adaptive nothing",
                "ours",
            ),
            Setting(
                "horizon, replications",
                f"T = {self.longest} (rare rewards: at most 10 000), N = {self.replications}",
                "ours",
            ),
        )

    def panels(self) -> list[Panel]:
        """Return a panel per world."""
        return [
            Panel(
                name=world.name,
                env=world.env,
                policies=world.policies,
                horizon=world.horizon,
                replications=self.replications,
                checkpoints=20,
            )
            for world in worlds(self.longest)
        ]

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return the default against the best of the others."""
        rows = []
        for panel in found:
            finals = dict(zip(panel.result.labels, panel.result.mean()[:, -1]))
            case = cost(panel.name, panel.result)
            rows.append(
                (
                    panel.name,
                    number(float(finals[DEFAULT])),
                    case.second,
                    number(float(finals[case.second])),
                    f"{case.ratio:.2f}",
                )
            )
        head = ("world", "regret of the default", "best other policy", "its regret", "ratio")
        note = (
            "The best other policy is chosen on the first half of the replications; the ratio is "
            "that of the second half, the regrets are means over all."
        )
        yield Table("The default against the best", head, tuple(rows), note)

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge what knowing nothing costs, and the growth of the default's regret.

        With rare rewards the horizon ends before anybody has learned much; growth is shown there
        too.
        """
        return (
            costs_verdict(found),
            grows(
                f"Our target: the default is nowhere linear, {horizons(found)}",
                ((panel.name, panel.result, DEFAULT) for panel in found),
            ),
        )

    def figures(self, found: list[Played]) -> Iterable[Drawn]:
        """Draw every policy's regret over that of the default, a line per world."""
        import pandas as pd
        from matplotlib.figure import Figure

        rows: list[dict[str, Any]] = []
        figure = Figure(figsize=(10.4, 1.3 + 0.34 * len(found)))
        figure.set_layout_engine("constrained", rect=(0.0, 0.03, 1.0, 0.97))
        ax = figure.subplots()
        ax.axvspan(1 / TARGET, 1.0, color="#DDEEDD", zorder=0)
        ax.axvline(1.0, color=style_of(DEFAULT).color, linewidth=2.0, label=DEFAULT)
        seen: set[str] = set()
        for height, panel in enumerate(found):
            result = panel.result
            final = result.mean()[:, -1]
            base = final[result.labels.index(DEFAULT)]
            for label, value in zip(result.labels, final):
                rows.append({"world": panel.name, "policy": label, "regret": float(value)})
                if label == DEFAULT:
                    continue
                kind = _kind(label)
                look = style_of(_KINDS[kind])
                ax.plot(
                    min(float(value / base), SHOWN),
                    height,
                    linestyle="",
                    marker=look.marker or "o",
                    color=look.color,
                    markersize=5.5,
                    alpha=0.85,
                    label=kind if kind not in seen else None,
                )
                seen.add(kind)
        ax.set_yticks(range(len(found)), [panel.name for panel in found])
        ax.invert_yaxis()
        ax.set_xscale("log")
        ticks = (0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, SHOWN)
        ax.set_xticks(ticks, [*(f"{t:g}" for t in ticks[:-1]), f"≥ {SHOWN:g}"])
        ax.set_xticks([], minor=True)
        ax.set_xlabel("final regret / ZI adaptive")
        figure.legend(loc="outside upper center", ncols=5, frameon=False)
        yield Drawn(
            figure,
            pd.DataFrame(rows),
            "Final regret over that of ZI adaptive (black line at 1), one dot per policy. Dots to "
            f"the left are better than the default. Ratios above {SHOWN:g} stand at the edge. "
            "Shaded: within the target.",
            "Regret ratios of all policies in every world",
        )


# ------------------------------------------------------------------------------------------ worlds


@dataclass(frozen=True)
class SkewedMAB:
    """A generator of bandits with skewed or heavy-tailed rewards; means and p as in the paper.

    `low` and `high` are the range of what makes the tail: the standard deviation of the logarithms,
    or Pareto's index. Where they differ, every arm has its own.
    """

    kind: Literal["lognormal", "pareto"]
    low: float
    high: float
    probs: tuple[float, float] = (0.10, 0.35)
    n_arms: int = N_ARMS

    def instance(self, rng: np.random.Generator) -> MAB:
        """Draw an environment."""
        means = rng.uniform(1.0, 3.0, self.n_arms)
        probs = rng.uniform(*self.probs, self.n_arms)
        tails = rng.uniform(self.low, self.high, self.n_arms)
        return MAB([ZeroInflated(self.law(m, t), p) for m, t, p in zip(means, tails, probs)])

    def law(self, mean: float, tail: float) -> Any:
        """Return the law of non-zero rewards."""
        mean, tail = float(mean), float(tail)
        if self.kind == "lognormal":
            return LogNormal.from_mean(mean, tail)
        return Pareto(mean, tail)

    def largest(self) -> Any:
        """Return the law with the heaviest tail and the largest mean."""
        return self.law(3.0, self.high if self.kind == "lognormal" else self.low)


class World(NamedTuple):
    """Where policies play, for how long, and who plays."""

    name: str
    env: Any
    horizon: int
    policies: dict[str, Any]


def worlds(longest: int = LONG) -> list[World]:
    """Return all worlds whose data are there; horizons are at most `longest`."""
    found = [_of_the_paper(name, longest) for name in panel_ids(TAGS)]
    skewed = {
        "log-normal, sd of logs 1": SkewedMAB("lognormal", 1.0, 1.0),
        "log-normal, rare": SkewedMAB("lognormal", 1.0, 1.0, probs=(0.0005, 0.01)),
        "log-normal, sd of logs .3–1.5": SkewedMAB("lognormal", 0.3, 1.5),
        "Pareto, index 1.8": SkewedMAB("pareto", 1.8, 1.8),
        "Pareto, index 1.5–4": SkewedMAB("pareto", 1.5, 4.0),
    }
    for name, maker in skewed.items():
        horizon = min(SHORT if "rare" in name else LONG, longest)
        found.append(World(name, maker, horizon, _told(maker.largest(), horizon)))
    for name, log in _logs().items():
        env: Any = zib.env.BootstrapMAB(log)
        horizon = min(LONG, longest)
        widest = max((law.law for law in env.laws), key=lambda law: law.variance)
        found.append(World(name, env, horizon, _told(widest, horizon)))
    return found


def _of_the_paper(name: str, longest: int) -> World:
    maker: Any = zib.env.make(name)
    horizon = min(SHORT if "tiny" in name else LONG, longest)
    told: dict[str, Any] = {"family": "exponential"}
    if maker.family != "exponential":
        told = {"sigma": maker.component_size("subgaussian")}
    everybody = {
        **policies(maker, horizon),
        "ZI-IMED, size unknown": zib.mab.ZIIMED(),
        "ZI posterior, size unknown": zib.mab.ZIPosterior(),
        "ZI posterior learned": zib.mab.ZIPosterior(prior="learned", **told),
    }
    return World(panel_name(maker), maker, horizon, everybody)


def _told(law: Any, horizon: int) -> dict[str, Any]:
    """Return policies that are told the law with the largest variance (or its moments)."""
    sigma = math.sqrt(law.variance) if math.isfinite(law.variance) else None
    epsilon = 1.0 if sigma is not None else 0.5 * (law.shape - 1.0)
    out: dict[str, Any] = {
        DEFAULT: zib.mab.ZIAdaptive(),
        "ZI-UCB heavy": zib.mab.ZIHeavyUCB(epsilon=epsilon, moment=law.moment(1.0 + epsilon)),
        "ZI-KL-UCB": zib.mab.ZIKLUCB(),
        "ε-greedy": zib.mab.EpsilonGreedy(epsilon=0.05),
    }
    for family in ("gaussian", "exponential", "lognormal"):
        out |= {
            f"ZI-IMED, {family}": zib.mab.ZIIMED(family=family),
            f"ZI posterior, {family}": zib.mab.ZIPosterior(family=family),
            f"ZI posterior learned, {family}": zib.mab.ZIPosterior(family=family, prior="learned"),
        }
    if sigma is not None:
        out |= {
            "ZI-UCB": zib.mab.ZIUCB(horizon=horizon, sigma=sigma),
            "ZI-TS": zib.mab.ZITS(horizon=horizon, sigma=sigma),
            "UCB true size (strong)": zib.mab.UCB(horizon=horizon, sigma=sigma, size="true"),
            "MOTS": zib.mab.MOTS(horizon=horizon, sigma=sigma),
            "Normal TS": zib.mab.NormalTS(sigma=sigma),
        }
    return out


def _logs() -> dict[str, Any]:
    """Return the logs of experiments that are there."""
    found: dict[str, Any] = {}
    if find_spec("statsmodels"):  # which brings the data, and is optional
        found["RAND health insurance, resampled"] = zib.datasets.load_randhie()
    loaders = {
        "Karlan–List donations, resampled": (zib.datasets.load_karlan_list, KL_FILE),
        "Karlan–Zinman loans, resampled": (zib.datasets.load_karlan_zinman, KZ_FILE),
    }
    for name, (load, file) in loaders.items():
        for path in data_files([file]):
            found[name] = load(path)
    return found


# ------------------------------------------------------------------------------------------ claims


def cost(name: str, result: Results) -> Comparison:
    """Compare the default with the policy whose mean regret is lowest.

    The lowest is chosen on the first half of the replications and judged on the second.
    """
    others = (label for label in result.labels if label != DEFAULT)
    return compare(name, result, DEFAULT, lowest(result, others), factor=TARGET, chosen=True)


def costs_verdict(found: Sequence[Played]) -> Verdict:
    """Judge whether the default is close to the best everywhere."""
    costs = [cost(panel.name, panel.result) for panel in found]
    verdict = lower(
        f"Our target: the default is within {TARGET} times the best policy told the truth, "
        f"everywhere, {horizons(found)}",
        costs,
        lambda c: where("", c.panel),
    )
    worst = max(costs, key=lambda c: c.ratio)
    words = f"{verdict.words}; largest ratio {worst.ratio:.2f} ({worst.panel})"
    return replace(verdict, words=words)


# dots are coloured by the kind of policy; the style is that of the policy named here
_KINDS = {
    "ZI posterior": "ZI posterior",
    "ZI-IMED": "ZI-IMED",
    "ZI-KL-UCB": "ZI-KL-UCB",
    "ZI-TS": "ZI-TS",
    "ZI-UCB": "ZI-UCB",
    "MOTS": "MOTS",
    "UCB": "UCB component size",
    "others": "UCB1",
}


def _kind(label: str) -> str:
    return next((kind for kind in _KINDS if label.startswith(kind)), "others")
