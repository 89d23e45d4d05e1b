"""The default needs nothing: how much does that cost against policies that know the truth?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from zib.arena import DEFAULT, TARGET, World, rivals, worlds
from zib.arena.rivals import PER_ARM
from zib.experiments.draw import Drawn
from zib.experiments.harness import Panel, Played, Scaled, Simulated, horizons
from zib.experiments.judge import Comparison, compare, grows, lower, lowest, where
from zib.experiments.record import Setting, Table, Verdict
from zib.logs.folder import FOLDER_VARIABLE
from zib.report import style_of
from zib.report.numbers import number
from zib.sim import Results

SHOWN = 12.0  # ratios beyond this stand at the edge of the figure
LONG = 75_000
# worlds that change or have features have items of their own; the arena has them all
STILL = ("plain", "many", "odd", "batched", "resampled")
QUICK_WORLDS = (
    "Gaussian p 0.1–0.15",
    "Gaussian mixture p 0.2–0.25",
    "Exponential p 0.3–0.35",
    "Gaussian p 0.0005–0.01",
    "log-normal, sd of logs 1",
    "Pareto, index 1.8",
    "ten arms, gamma, shape .3",
    "ten arms, constant",
    "opposed over two decades, exponential",
    "100 arms, short",
    "nine log-normal arms and a rare, large one that is best",
    "losses possible, Gaussian",
    "RAND health insurance, resampled",
)
QUICK_RIVALS = (
    DEFAULT, "ZI posterior learned", "ZI-IMED", "ε-greedy", "Normal TS (told sd)",
    "Normal TS (half of it)", "ZI posterior (told family)", "ZI-TS (told)", "MOTS (told)",
)  # fmt: skip


class NoKnobs(Simulated):
    """The default in every world, with policies that are told the truth."""

    order = 15
    title = "Beyond the paper: the default that needs nothing"
    about = (
        "`zib.Bandit(n_arms=K)` plays ZI adaptive, which is told nothing: no horizon, no size, no "
        "family. Here it meets, in the arena's worlds for development, policies that are told the "
        "truth."
    )
    weight = 3.0
    longest = Scaled(quick=10_000, paper=LONG)
    replications = Scaled(quick=8, paper=50)
    remarks = (
        "The best policy is chosen on one half of the replications and compared on the other: the "
        "lowest of many means is too low by luck.",
        "Experiments of Karlan and List (2007) and Karlan and Zinman (2008) are part of this where "
        f"{FOLDER_VARIABLE} names a folder that holds them.",
        "A policy can be tuned to worlds that are known. `zib arena` ranks policies in worlds that "
        "are drawn from a fresh seed.",
    )

    def settings(self) -> Iterable[Setting]:
        """Return the settings."""
        return (
            Setting("worlds", "those for development of `zib.arena` that stay the same", "ours"),
            Setting(
                "what policies are told",
                "the standard deviation of rewards, the family and scale of what is paid, sizes "
                "and horizon; ZI adaptive nothing",
                "ours",
            ),
            Setting(
                "horizon, replications",
                f"at most T = {self.longest}, N = {self.replications}",
                "ours",
            ),
        )

    def worlds(self) -> list[World]:
        """Return where to play: at quick scale in some of the worlds."""
        found = worlds(STILL, horizon=self.longest)
        return [world for world in found if not self.context.quick or world.name in QUICK_WORLDS]

    def policies(self, world: World) -> dict[str, Any]:
        """Return who plays: rivals that are not told which arm is which; at quick scale some."""
        return {
            rival.label: rival.spec
            for rival in rivals(world)
            if rival.told != PER_ARM and (not self.context.quick or rival.label in QUICK_RIVALS)
        }

    def panels(self) -> list[Panel]:
        """Return a panel per world."""
        return [
            Panel(
                name=world.name,
                env=world.env,
                policies=self.policies(world),
                horizon=world.horizon,
                replications=self.replications,
                checkpoints=20,
            )
            for world in self.worlds()
        ]

    def notes(self, found: list[Played]) -> Iterable[str]:
        """Say what quick scale leaves out."""
        if self.context.quick:
            yield (
                f"Quick scale: {len(found)} of {len(worlds(STILL))} worlds, few replications and "
                "not all rivals."
            )
        yield from self.remarks

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
        ax.set_ylim(len(found) - 0.4, -0.6)
        ax.set_xscale("log")
        ticks = (0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, SHOWN)
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
    "Normal TS (half of it)": "Normal TS (half of it)",  # before the next, which is told it whole
    "Normal TS": "Normal TS",
    "UCB": "UCB component size",
    "others": "UCB1",
}


def _kind(label: str) -> str:
    return next((kind for kind in _KINDS if label.startswith(kind)), "others")
