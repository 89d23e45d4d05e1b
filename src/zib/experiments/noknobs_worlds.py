"""The worlds of the experiment `noknobs`, and in each of them the policies that know the truth."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import zib
from zib.env import MAB, LogNormal, Pareto, ZeroInflated
from zib.experiments.loan_study import FOLDER_VARIABLE, KL_FILE, KZ_FILE
from zib.experiments.panels import TITLES, panel_ids, policies

DEFAULT = "ZI adaptive"
TAGS = ("p10", "p15", "p20", "p25", "p30", "tiny")
LONG, SHORT = 75_000, 10_000
N_ARMS = 10


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
    low, high = maker.probs
    told: dict[str, Any] = {"family": "exponential"}
    if maker.family != "exponential":
        told = {"sigma": maker.component_size("subgaussian")}
    everybody = {
        **policies(maker, horizon),
        "ZI-IMED, size unknown": zib.mab.ZIIMED(),
        "ZI posterior, size unknown": zib.mab.ZIPosterior(),
        "ZI posterior learned": zib.mab.ZIPosterior(prior="learned", **told),
    }
    return World(f"{TITLES[maker.family]} p {low:g}–{high:g}", maker, horizon, everybody)


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
    found = {}
    if find_spec("statsmodels"):  # which brings the data, and is optional
        found["RAND health insurance, resampled"] = zib.datasets.load_randhie()
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        loaders = {
            "Karlan–List donations, resampled": (zib.datasets.load_karlan_list, KL_FILE),
            "Karlan–Zinman loans, resampled": (zib.datasets.load_karlan_zinman, KZ_FILE),
        }
        for name, (load, file) in loaders.items():
            if (Path(folder) / file).exists():
                found[name] = load(Path(folder) / file)
    return found
