"""The default needs nothing: how much does that cost against policies that know the truth?"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import zib
from zib.experiments.judge import from_cases, growth, number, where
from zib.experiments.loan_study import FOLDER_VARIABLE
from zib.experiments.noknobs_worlds import DEFAULT, LONG, World, worlds
from zib.experiments.record import (
    Context,
    Picture,
    Record,
    Setting,
    Table,
    Verdict,
    provenance,
)
from zib.report import paper_style, save_figure, style_of
from zib.sim import Results

ID = "noknobs"
TITLE = "Beyond the paper: the default that needs nothing"
WEIGHT = 3.0
TARGET = 1.15
SHOWN = 12.0  # ratios beyond this stand at the edge of the figure


class Cost(NamedTuple):
    """Regret of the default over that of the best policy told the truth, with a 95 % interval."""

    world: str
    best: str
    default: float
    regret: float
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{self.world}: {number(self.default)} against {number(self.regret)} of {self.best}, "
            f"{self.ratio:.2f} times [{self.low:.2f}, {self.high:.2f}]"
        )


def cost(name: str, result: Results) -> Cost:
    """Compare the default with the policy whose mean regret turned out lowest.

    The lowest of many means is too low, so the ratio is rather too large. Its interval comes from
    the paired differences: the variance of D − r·B over replications.
    """
    final = {label: result.regret[i, :, -1] for i, label in enumerate(result.labels)}
    default = final.pop(DEFAULT)
    best = min(final, key=lambda label: float(final[label].mean()))
    base = float(final[best].mean())
    ratio = float(default.mean()) / base
    rest = default - ratio * final[best]
    half = 1.96 * float(rest.std(ddof=1)) / np.sqrt(len(rest)) / base
    return Cost(name, best, float(default.mean()), base, ratio, ratio - half, ratio + half)


def run(context: Context) -> Record:
    """Play in every world and compare the default with the best."""
    started = time.perf_counter()
    longest, replications = (10_000, 8) if context.quick else (LONG, 50)
    everywhere = worlds(longest)
    found: list[tuple[World, Results]] = []
    for i, world in enumerate(everywhere):

        def told(done: int, total: int, i: int = i, name: str = world.name) -> None:
            context.tell(name, (i + done / total) / len(everywhere))

        result = zib.simulate(
            world.policies,
            world.env,
            horizon=world.horizon,
            replications=replications,
            seed=context.seed,
            checkpoints=20,
            workers=context.workers,
            progress=told,
            store=context.store,
        )
        if not result.complete:
            raise KeyboardInterrupt
        found.append((world, result))
    costs = [cost(world.name, result) for world, result in found]
    origin = provenance(
        [ID, longest, replications, [world.name for world, _ in found]], context.seed
    )
    _draw(found, context, origin)
    return Record(
        id=ID,
        title=TITLE,
        about=(
            "`zib.Bandit(n_arms=K)` plays ZI adaptive, which is told nothing: no horizon, no size, "
            "no family. Here it meets, in every world, policies that are told the truth."
        ),
        scale=context.scale,
        settings=_settings(context, longest, replications),
        pictures=(
            Picture(
                ID,
                "Final regret over that of ZI adaptive (black line at 1), one dot per policy. Dots "
                f"to the left are better than the default. Ratios above {SHOWN:g} stand at the "
                "edge. Shaded: within the target.",
                "Regret ratios of all policies in every world",
            ),
        ),
        tables=(_table(costs),),
        verdicts=(_verdict(costs), _never_linear(found)),
        notes=_notes(),
        seconds=time.perf_counter() - started,
        provenance=origin,
    )


def _verdict(costs: list[Cost]) -> Verdict:
    verdict = from_cases(
        f"Our target: the default is within {TARGET} times the best policy told the truth, "
        "everywhere",
        costs,
        good=lambda c: c.high <= TARGET,
        bad=lambda c: c.low > TARGET,
        name=lambda c: where("", c.world),
    )
    worst = max(costs, key=lambda c: c.ratio)
    words = f"{verdict.words}; largest ratio {worst.ratio:.2f} ({worst.world})"
    return replace(verdict, words=words)


def _never_linear(found: list[tuple[World, Results]]) -> Verdict:
    """Judge the growth of the default in the second half of the run.

    With rare rewards the horizon ends before anybody has learned much; growth is shown there too.
    """
    cases = [(world.name, growth(result, DEFAULT)) for world, result in found]
    return from_cases(
        "Our target: the default is nowhere linear",
        [_Grown(name, str(grown), grown.word) for name, grown in cases],
        good=lambda c: c.word == "sublinear",
        bad=lambda c: c.word == "linear",
        name=lambda c: where("", c.world),
    )


class _Grown(NamedTuple):
    world: str
    exponent: str
    word: str

    def __str__(self) -> str:
        return f"{self.world}: grows like {self.exponent} ({self.word})"


def _settings(context: Context, longest: int, replications: int) -> tuple[Setting, ...]:
    return (
        Setting("worlds of the paper", "figures 2, S1 and S2 with all their policies", "paper"),
        Setting(
            "skewed worlds",
            "ten arms, means uniform on [1, 3], p on [.10, .35] (rare: [.0005, .01]); log-normal "
            "or Pareto, one tail for all arms or each its own",
            "ours",
        ),
        Setting("resampled worlds", "arms pay rewards drawn from logs of experiments", "ours"),
        Setting(
            "what policies are told",
            "in the paper's worlds sizes, families and horizon; in the others the largest variance "
            "or moment and each of three families; ZI adaptive nothing",
            "ours",
        ),
        Setting(
            "horizon, replications",
            f"T = {longest} (rare rewards: at most 10 000), N = {replications}",
            "ours",
        ),
        Setting("seed", str(context.seed), "ours"),
    )


def _notes() -> tuple[str, ...]:
    return (
        "The best policy is chosen after the fact, so its mean is too low by luck and the ratio "
        "rather too large. Regret of Thompson sampling has a long tail; with few replications "
        "the intervals say little.",
        "Experiments of Karlan and List (2007) and Karlan and Zinman (2008) are part of this where "
        f"{FOLDER_VARIABLE} names a folder that holds them.",
    )


def _table(costs: list[Cost]) -> Table:
    rows = tuple(
        (
            c.world,
            number(c.default),
            c.best,
            number(c.regret),
            f"{c.ratio:.2f} [{c.low:.2f}, {c.high:.2f}]",
        )
        for c in costs
    )
    head = ("world", "regret of the default", "best other policy", "its regret", "ratio")
    return Table("The default against the best", head, rows)


def _draw(found: list[tuple[World, Results]], context: Context, origin: dict[str, object]) -> None:
    import pandas as pd
    from matplotlib.figure import Figure

    rows: list[dict[str, Any]] = []
    with paper_style():
        figure = Figure(figsize=(10.4, 1.3 + 0.34 * len(found)))
        figure.set_layout_engine("constrained", rect=(0.0, 0.03, 1.0, 0.97))
        ax = figure.subplots()
        ax.axvspan(1 / TARGET, 1.0, color="#DDEEDD", zorder=0)
        ax.axvline(1.0, color=style_of(DEFAULT).color, linewidth=2.0, label=DEFAULT)
        seen: set[str] = set()
        for height, (world, result) in enumerate(found):
            final = result.mean()[:, -1]
            base = final[result.labels.index(DEFAULT)]
            for label, value in zip(result.labels, final):
                rows.append({"world": world.name, "policy": label, "regret": float(value)})
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
        ax.set_yticks(range(len(found)), [world.name for world, _ in found])
        ax.invert_yaxis()
        ax.set_xscale("log")
        ticks = (0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, SHOWN)
        ax.set_xticks(ticks, [*(f"{t:g}" for t in ticks[:-1]), f"≥ {SHOWN:g}"])
        ax.set_xticks([], minor=True)
        ax.set_xlabel("final regret / ZI adaptive")
        figure.legend(loc="outside upper center", ncols=5, frameon=False)
        save_figure(figure, context.folder, ID, pd.DataFrame(rows), origin)


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
