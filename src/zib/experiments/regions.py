"""A map of settings: for which magnitudes, spreads and probabilities the paper's claims hold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import zib
from zib.core.rng import Role, stream
from zib.env import RandomMAB
from zib.env.registry import pair
from zib.experiments.draw import Drawn
from zib.experiments.harness import Panel, Played, Scaled, Simulated, amount
from zib.experiments.judge import ERROR, side_of_zero, undecided
from zib.experiments.mab_study import STRONG
from zib.experiments.record import Setting, Status, Table, Verdict
from zib.report.numbers import percent
from zib.report.panels import leave_small_print

Floats = NDArray[np.float64]
PRINTED, TIGHT, TS, MOTS = "ZI-UCB printed", "ZI-UCB", "ZI-TS", "MOTS"
OURS, THEIRS = (PRINTED, TIGHT, TS), (STRONG, MOTS)
NARROW, WIDE = "narrow", "wide"
HALF = 0.5  # relative half-width of the magnitudes up to which a range is called narrow
RUNS_PER_CELL, FEWEST_RUNS, MOST_CELLS = 50, 8, 70
PROB_HALF = 0.08  # relative half-width of the probabilities: about that of [0.3, 0.35]


class AnySetting(RandomMAB):
    """Gaussian arms with σ = 1 whose setting is drawn, too, for every replication.

    Only mu/σ matters to regret/σ, so σ stays 1. The level of the magnitudes and that of the
    probabilities are log-uniform, the relative half-width of the magnitudes is uniform.
    """

    levels: tuple[float, float] = pair(0.0, default=(0.2, 20.0))
    widths: tuple[float, float] = pair(0.0, 1.0, default=(0.05, 1.0))
    rates: tuple[float, float] = pair(0.0, 1.0, default=(0.01, 0.5))

    def setting(self, rng: np.random.Generator) -> tuple[float, float, float]:
        """Draw level and half-width of the magnitudes, and the level of the probabilities."""
        return (
            math.exp(rng.uniform(*np.log(self.levels))),
            rng.uniform(*self.widths),
            math.exp(rng.uniform(*np.log(self.rates))),
        )

    def draw_parameters(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw a setting, and magnitudes and probabilities of all arms in it."""
        level, width, rate = self.setting(rng)
        around = rng.uniform(-1.0, 1.0, (2, self.n_arms))
        return level * (1.0 + width * around[0]), rate * (1.0 + PROB_HALF * around[1])


class Compared(NamedTuple):
    """Final regret of one policy over that of another, and whether it is less (−1) or more (1)."""

    ratio: float
    side: int


class Cell(NamedTuple):
    """Settings that are much alike, and how policies compare there."""

    width: str
    level: float  # in the middle, of mu/σ
    rate: float  # in the middle, of p
    column: int
    row: int
    n: int
    found: dict[tuple[str, str], Compared]


class Regions(Simulated):
    """Ratios of final regrets over the plane of mu/σ and p, for narrow and wide ranges of mu."""

    order = 2.6
    title = "Where the paper's claims hold: a map over σ, the range of mu, and p"
    about = (
        "The paper's conclusions about regret are drawn at a few settings. Here every replication "
        "has a setting of its own, and the plane of magnitude over standard deviation and "
        "probability of paying is cut into cells: blue where the paper's policy has less regret "
        "than its rival, red where it has more."
    )
    weight = 0.6
    horizon = Scaled(quick=2_000, paper=20_000)
    replications = Scaled(quick=1_600, paper=20_000)
    remarks = (
        "With a GPU, zib reproduce --only regions --scale paper --backend cuda --replications "
        "1000000 fills about ten thousand cells.",
    )

    _cells: list[Cell] | None = None

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        env = self.environment
        return (
            Setting("arms", "K = 10, Gaussian magnitudes, σ = 1, known to all", "ours"),
            Setting(
                "magnitudes",
                "level mu log-uniform on [{:g}, {:g}], each arm uniform on mu·(1 ± w), "
                "w uniform on [{:g}, {:g}]".format(*env.levels, *env.widths),
                "ours",
            ),
            Setting(
                "probabilities",
                "level p log-uniform on [{:g}, {:g}], each arm uniform on ".format(*env.rates)
                + f"p·(1 ± {PROB_HALF:g})",
                "ours",
            ),
            Setting("horizon", f"T = {self.horizon}", "ours"),
            amount("replications, each with its own setting", "N", self.replications, 0),
            Setting("cells", f"{self.per_side} × {self.per_side}, twice", "ours"),
        )

    @property
    def environment(self) -> AnySetting:
        """What is played in."""
        return AnySetting("gaussian", sigma=1.0)

    @property
    def per_side(self) -> int:
        """How many cells there are along each axis."""
        return int(min(max(2.0, math.sqrt(self.replications / 2 / RUNS_PER_CELL)), MOST_CELLS))

    def panels(self) -> list[Panel]:
        """Return the one panel."""
        known: dict[str, Any] = {"horizon": self.horizon, "sigma": 1.0}
        return [
            Panel(
                name="settings",
                env=self.environment,
                policies={
                    PRINTED: zib.mab.ZIUCB(
                        **known, radius="subweibull", occurrence="hoeffding", unseen=1.0
                    ),
                    TIGHT: zib.mab.ZIUCB(**known),
                    TS: zib.mab.ZITS(**known),
                    STRONG: zib.mab.UCB(**known, size="true"),
                    MOTS: zib.mab.MOTS(**known),
                },
                horizon=self.horizon,
                replications=self.replications,
                checkpoints=1,
            )
        ]

    # ---------------------------------------------------------------------------------- the cells

    def cells(self, found: list[Played]) -> list[Cell]:
        """Return the cells with enough replications, and how policies compare in them."""
        if self._cells is None:  # a minute's work for a million replications
            self._cells = self._compare(found)
        return self._cells

    def _compare(self, found: list[Played]) -> list[Cell]:
        result, env, n = found[0].result, self.environment, self.per_side
        regret = dict(zip(result.labels, result.regret[:, :, -1]))
        streams = (stream(self.context.seed, Role.INSTANCE, r) for r in range(result.counts[0]))
        drawn = np.array([env.setting(source) for source in streams])
        column, row = (
            np.clip((n * _share(drawn[:, j], ends)).astype(int), 0, n - 1)
            for j, ends in ((0, env.levels), (2, env.rates))
        )
        wide = (drawn[:, 1] >= HALF).astype(int)
        order = np.argsort((wide * n + column) * n + row, kind="stable")
        places = np.unique((wide * n + column) * n + row, return_counts=True)
        level = 1.0 - ERROR / (places[0].size * len(OURS) * len(THEIRS))
        cells, start = [], 0
        for place, many in zip(*(part.tolist() for part in places)):
            here = order[start : start + many]
            start += many
            if many < FEWEST_RUNS:
                continue
            i, j = place // n % n, place % n
            compared = _compared({label: x[here] for label, x in regret.items()}, level)
            middles = _middle(i, n, env.levels), _middle(j, n, env.rates)
            cells.append(Cell((NARROW, WIDE)[place // n // n], *middles, i, j, many, compared))
        return cells

    # ------------------------------------------------------------------------------ what is shown

    def claims(self, found: list[Played]) -> Iterable[Verdict]:
        """Judge each claim on all cells at once."""
        cells = self.cells(found)
        for ours in OURS:
            for theirs in THEIRS:
                claim = (
                    f"{ours} has lower regret than {theirs}, whatever mu/σ, the range of mu, and p "
                    f"(Gaussian, T = {self.horizon})"
                )
                yield _verdict(claim, (ours, theirs), cells)

    def tables(self, found: list[Played]) -> Iterable[Table]:
        """Return ratios over all settings, by width."""
        cells = self.cells(found)
        rows = []
        for ours in OURS:
            for theirs in THEIRS:
                for width in (NARROW, WIDE):
                    ratio = [c.found[ours, theirs].ratio for c in cells if c.width == width]
                    if not ratio:
                        continue
                    low, middle, high = np.quantile(ratio, [0.1, 0.5, 0.9])
                    rows.append((ours, theirs, width, f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}"))
        head = ("policy", "rival", "range of mu", "10 % of cells below", "median", "90 % below")
        yield Table("Ratio of final regrets, over the cells", head, tuple(rows))

    def figures(self, found: list[Played]) -> Iterable[Drawn]:
        """Draw a map per policy, rival and width."""
        import matplotlib.pyplot as plt
        import pandas as pd
        from matplotlib.colors import TwoSlopeNorm

        cells, env, n = self.cells(found), self.environment, self.per_side
        columns = [(theirs, width) for theirs in THEIRS for width in (NARROW, WIDE)]
        fig, axes = plt.subplots(
            len(OURS), len(columns), figsize=(12.0, 8.4), sharex=True, sharey=True,
            layout="constrained",
        )  # fmt: skip
        edges = [np.geomspace(*ends, n + 1) for ends in (env.levels, env.rates)]
        for line, ours in zip(axes, OURS):
            for ax, (theirs, width) in zip(line, columns):
                ratio, open_x, open_y = np.full((n, n), np.nan), [], []
                for cell in cells:
                    if cell.width == width:
                        compared = cell.found[ours, theirs]
                        ratio[cell.row, cell.column] = math.log2(max(compared.ratio, 2.0**-6))
                        if compared.side == 0:
                            open_x.append(cell.level)
                            open_y.append(cell.rate)
                drawn = ax.pcolormesh(
                    *edges, ratio, cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -2.0, 2.0)
                )
                ax.plot(open_x, open_y, ".", color="black", markersize=max(1.0, 24 / n))
                ax.set(xscale="log", yscale="log")
        for ax, (theirs, width) in zip(axes[0], columns):
            rival = "strong baseline" if theirs == STRONG else theirs
            ax.set_title(f"over {rival},\n{width} range of mu", fontsize=10)
        for ax in axes[-1]:
            ax.set_xlabel("mu/σ")
            ax.set_xticks([0.3, 1.0, 3.0, 10.0], ["0.3", "1", "3", "10"])
            ax.minorticks_off()
        for ax, ours in zip(axes[:, 0], OURS):
            ax.set_ylabel(f"{ours}\np")
            ax.set_yticks([0.01, 0.03, 0.1, 0.3], ["0.01", "0.03", "0.1", "0.3"])
            ax.minorticks_off()
        leave_small_print(fig)
        bar = fig.colorbar(drawn, ax=axes, shrink=0.6, extend="both", ticks=[-2, -1, 0, 1, 2])
        bar.ax.set_yticklabels(["¼", "½", "1", "2", "4"])
        bar.set_label("ratio of final regrets")
        numbers = pd.DataFrame(
            [
                (cell.width, cell.level, cell.rate, *key, each.ratio, each.side, cell.n)
                for cell in cells
                for key, each in cell.found.items()
            ],
            columns=["width", "mu/sigma", "p", "policy", "rival", "ratio", "side", "replications"],
        )
        caption = (
            "Ratio of mean final regrets in each cell: blue where the paper's policy is better, "
            "red where its rival is. A dot: not decided with the replications of that cell, at an "
            "error of 5 % shared by all cells. Narrow: magnitudes within ±50 % of their level."
        )
        alternative = (
            "Twelve maps over mu/σ and p, coloured by the ratio of final regrets of three policies "
            "of the paper to two rivals, for narrow and wide ranges of mu."
        )
        yield Drawn(fig, numbers, caption, alternative)


def _share(x: Floats, ends: tuple[float, float]) -> Floats:
    """Return how far along a logarithmic axis numbers are, in [0, 1]."""
    low, high = np.log(ends)
    return np.asarray((np.log(x) - low) / (high - low))


def _middle(k: int, n: int, ends: tuple[float, float]) -> float:
    low, high = np.log(ends)
    return math.exp(low + (high - low) * (k + 0.5) / n)


def _compared(regret: dict[str, Floats], level: float) -> dict[tuple[str, str], Compared]:
    """Compare policies in one cell, by the rule of all comparisons; see `judge`."""
    worst = float(max(x.max() for x in regret.values()))
    found = {}
    for ours in OURS:
        for theirs in THEIRS:
            a, b = regret[ours], regret[theirs]
            ends = float(a.mean()) - worst, worst - float(b.mean())
            side = int(side_of_zero(a - b, *ends, level=level))
            ratio = float(a.mean() / b.mean()) if b.mean() > 0.0 else math.inf
            found[ours, theirs] = Compared(ratio, side)
    return found


def _verdict(claim: str, pair: tuple[str, str], cells: list[Cell]) -> Verdict:
    """Say in how many cells a policy has less regret than another, and where."""
    if not cells:
        return Verdict(claim, "open", f"{undecided([0])}: no cell has {FEWEST_RUNS} replications")
    sides = [cell.found[pair].side for cell in cells]
    less = [cell for cell, side in zip(cells, sides) if side < 0]
    more = [cell for cell, side in zip(cells, sides) if side > 0]
    shares = f"less in {percent(len(less) / len(cells))}, more in {percent(len(more) / len(cells))}"
    status: Status
    if more and less:
        status, words = "partly", f"depends: {shares} of the cells{_place(less, more)}"
    elif more:
        status, words = "fails", f"does not hold: {shares} of the cells"
    elif len(less) == len(cells):
        status, words = "holds", "holds in every cell"
    else:
        status, words = "open", f"{undecided(cell.n for cell in cells)}: {shares} of the cells"
    named = (
        f"mu/σ ≈ {cell.level:.2g}, p ≈ {cell.rate:.2g}, {cell.width}: "
        f"{cell.found[pair].ratio:.2f} times, N = {cell.n}"
        for cell in cells[:: max(1, len(cells) // 20)]
    )
    return Verdict(claim, status, words, tuple(named))


def _place(less: list[Cell], more: list[Cell]) -> str:
    """Say which of mu/σ and p tells the two apart best, by their medians."""
    apart = {
        name: (float(np.median([getattr(c, of) for c in less])),
               float(np.median([getattr(c, of) for c in more])))
        for name, of in (("mu/σ", "level"), ("p", "rate"))
    }  # fmt: skip
    name = max(apart, key=lambda each: abs(math.log(apart[each][0] / apart[each][1])))
    a, b = apart[name]
    return f"; the median {name} is {a:.2g} where it is less and {b:.2g} where it is more"
