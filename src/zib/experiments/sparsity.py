"""The rarer rewards are, the more the joint treatment of both parts buys."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import zib
from zib.env import GaussianMAB, RandomMAB
from zib.experiments.judge import compare
from zib.experiments.record import (
    SAID,
    Context,
    Picture,
    Record,
    Setting,
    Status,
    Table,
    Verdict,
    provenance,
)
from zib.report import paper_style, save_figure, style_of
from zib.sim import Results

ID = "sparsity"
TITLE = "Beyond the paper: regret as rewards become rare"
WEIGHT = 1.5
PROBS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
N_ARMS, SIGMA = 5, 0.5
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
BEYOND = ("ZI-KL-UCB", "ZI-IMED", "ZI posterior", "ZI adaptive")
OTHERS = ("ZI-UCB", "UCB true size (strong)", "MOTS", "UCB1")


FLAT, LEARNED = "ZI posterior", "ZI posterior learned"


@dataclass(frozen=True)
class ManyArms:
    """A generator of bandits with many arms that pay one time in a hundred, more or less."""

    n_arms: int

    def instance(self, rng: np.random.Generator) -> GaussianMAB:
        """Draw an environment: p ~ Beta(1, 99), mu uniform on [1, 3]."""
        means = rng.uniform(1.0, 3.0, self.n_arms)
        return GaussianMAB(means, rng.beta(1.0, 99.0, self.n_arms), SIGMA)


class Point(NamedTuple):
    """The final regret of one policy at one probability, and its ratio to the strong baseline."""

    prob: float
    policy: str
    regret: float
    error: float
    ratio: float


def maker(prob: float) -> RandomMAB:
    """Return a generator of bandits whose arms pay about this often."""
    return RandomMAB("gaussian", n_arms=N_ARMS, probs=(0.5 * prob, 1.5 * prob), sigma=SIGMA)


def policies(horizon: int) -> dict[str, Any]:
    """Return who plays; those beyond the paper are told nothing but, for the first, σ."""
    return {
        "ZI-KL-UCB": zib.mab.ZIKLUCB(sigma=SIGMA),
        "ZI-IMED": zib.mab.ZIIMED(),
        "ZI posterior": zib.mab.ZIPosterior(),
        "ZI adaptive": zib.mab.ZIAdaptive(),
        "ZI-UCB": zib.mab.ZIUCB(horizon=horizon, sigma=SIGMA),
        "UCB true size (strong)": zib.mab.UCB(horizon=horizon, sigma=SIGMA, size="true"),
        "MOTS": zib.mab.MOTS(horizon=horizon, sigma=SIGMA),
        "UCB1": zib.mab.UCB1(scale=5.0),
    }


def run(context: Context) -> Record:
    """Play all policies at every probability."""
    started = time.perf_counter()
    horizon, replications = (20_000, 8) if context.quick else (200_000, 50)
    points: list[Point] = []
    for i, prob in enumerate(PROBS):

        def told(done: int, total: int, i: int = i, prob: float = prob) -> None:
            context.tell(f"p about {prob:g}", 0.9 * (i + done / total) / len(PROBS))

        result = zib.simulate(
            policies(horizon),
            maker(prob),
            horizon=horizon,
            replications=replications,
            seed=context.seed,
            checkpoints=20,
            workers=context.workers,
            progress=told,
            store=context.store,
        )
        if not result.complete:
            raise KeyboardInterrupt
        points += _points(prob, result)
    many, long, few = (200, 20_000, 3) if context.quick else (1_000, 1_000_000, 5)
    crowd = zib.simulate(
        {
            FLAT: zib.mab.ZIPosterior(sigma=SIGMA),
            LEARNED: zib.mab.ZIPosterior(sigma=SIGMA, prior="learned"),
            "ZI adaptive": zib.mab.ZIAdaptive(),
        },
        ManyArms(many),
        horizon=long,
        replications=few,
        seed=context.seed,
        checkpoints=2,
        workers=context.workers,
        progress=lambda done, total: context.tell(f"{many} arms", 0.9 + 0.1 * done / total),
        store=context.store,
    )
    if not crowd.complete:
        raise KeyboardInterrupt
    origin = provenance([ID, horizon, replications, PROBS, many, long, few], context.seed)
    _draw(points, context, origin)
    return Record(
        id=ID,
        title=TITLE,
        about=(
            "Five arms, Gaussian magnitudes, and probabilities of paying from 30 % down to 0.1 %. "
            "Final regret relative to the strong baseline, which is told the true size of every "
            "arm's reward."
        ),
        scale=context.scale,
        settings=(
            Setting("arms", f"K = {N_ARMS}, mu ~ U[1, 3], σ = {SIGMA}, redrawn", "ours"),
            Setting("probabilities", "uniform between half and one and a half times p", "ours"),
            Setting("horizon, replications", f"T = {horizon}, N = {replications}", "ours"),
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
            Setting("seed", str(context.seed), "ours"),
        ),
        pictures=(
            Picture(
                ID,
                "Final regret over that of the strong baseline, both axes logarithmic.",
                "Regret ratios of eight policies against the probability of paying",
            ),
        ),
        tables=(_table(points), _crowd_table(crowd, many)),
        verdicts=(_verdict(points), _crowd_verdict(crowd, many)),
        seconds=time.perf_counter() - started,
        provenance=origin,
    )


def _points(prob: float, result: Results) -> list[Point]:
    strong = float(result.regret[result.labels.index("UCB true size (strong)"), :, -1].mean())
    out = []
    for at, label in enumerate(result.labels):
        final = result.regret[at, :, -1]
        error = float(final.std(ddof=1)) / math.sqrt(len(final))
        mean = float(final.mean())
        out.append(Point(prob, label, mean, error, mean / strong))
    return out


def _verdict(points: list[Point]) -> Verdict:
    """Judge whether one of the policies beyond the paper is lowest at every probability."""
    lines, statuses = [], []
    for prob in PROBS:
        here = {point.policy: point for point in points if point.prob == prob}
        ours = min((here[name] for name in BEYOND), key=lambda point: point.regret)
        theirs = min((here[name] for name in OTHERS), key=lambda point: point.regret)
        margin = 1.96 * math.hypot(ours.error, theirs.error)
        gap = theirs.regret - ours.regret
        statuses.append("holds" if gap > margin else "fails" if gap < -margin else "open")
        lines.append(
            f"p about {prob:g}: {ours.policy} {ours.regret:.0f}, {theirs.policy} "
            f"{theirs.regret:.0f} (± {margin:.0f} on the difference, unpaired)"
        )
    status: Status = (
        "holds" if set(statuses) == {"holds"} else "fails" if "fails" in statuses else "open"
    )
    ratios = [
        min(point.ratio for point in points if point.prob == prob and point.policy in BEYOND)
        for prob in PROBS
    ]
    return Verdict(
        "Our target: one of the policies beyond the paper is lowest at every probability",
        status,
        f"{SAID[status]}: {min(ratios):.2f} to {max(ratios):.2f} times the strong baseline",
        tuple(lines),
    )


def _crowd_verdict(result: Results, n_arms: int) -> Verdict:
    """Judge whether arms that learn from each other lose at most half."""
    case = compare(f"{n_arms} arms", result, LEARNED, FLAT)
    halved = (
        result.regret[result.labels.index(LEARNED)] - 0.5 * result.regret[result.labels.index(FLAT)]
    )
    error = float(halved[:, -1].std(ddof=1)) / math.sqrt(len(halved))
    gap = float(halved[:, -1].mean())
    status: Status = "holds" if gap < -2 * error else "fails" if gap > 2 * error else "open"
    return Verdict(
        "Our target: with many arms that hardly ever pay, a learned prior halves the regret of the "
        "posterior of each arm on its own",
        status,
        f"{SAID[status]}: {case.ratio:.2f} times, {n_arms} arms",
        (str(case),),
    )


def _crowd_table(result: Results, n_arms: int) -> Table:
    rows = tuple(
        (label, f"{mean:.0f}", f"{error:.0f}")
        for label, mean, error in zip(
            result.labels, result.mean()[:, -1], result.standard_error()[:, -1]
        )
    )
    return Table(f"{n_arms} arms", ("policy", "final regret", "standard error"), rows)


def _table(points: list[Point]) -> Table:
    rows = tuple(
        (
            label,
            *(
                f"{point.regret:.0f} ({point.ratio:.2f} ×)"
                for point in points
                if point.policy == label
            ),
        )
        for label in (*BEYOND, *OTHERS)
    )
    return Table(
        "Final regret, and how many times that of the strong baseline",
        ("policy", *(f"p ≈ {prob:g}" for prob in PROBS)),
        rows,
    )


def _draw(points: list[Point], context: Context, origin: dict[str, object]) -> None:
    import pandas as pd
    from matplotlib.figure import Figure

    with paper_style():
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
        ax.set_xticks(PROBS, [f"{prob:g}" for prob in PROBS])
        ax.set_xticks([], minor=True)
        ax.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        ax.set_yticks([], minor=True)
        ax.invert_xaxis()
        ax.set_xlabel("probability of paying")
        ax.set_ylabel("regret / strong baseline")
        figure.legend(loc="outside right upper", frameon=False)
        save_figure(figure, context.folder, ID, pd.DataFrame(points), origin)
