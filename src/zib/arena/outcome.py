"""`Outcome`: what a competition found, as tables and as a page."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.arena.rivals import PER_ARM, YARDSTICK
from zib.arena.world import World
from zib.arena.worlds import chosen_kinds
from zib.core import validate as check
from zib.stats import intervals

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
TARGET = 1.15
RARE = 0.99


class Match(NamedTuple):
    """What happened in one world.

    Attributes
    ----------
    world
        Where.
    labels
        Who played.
    told
        What each was told; empty: nothing.
    regret
        Final regret, shape (policy, replication).
    hashes
        Fingerprints of the simulations.
    """

    world: World
    labels: tuple[str, ...]
    told: tuple[str, ...]
    regret: Floats
    hashes: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------- comparisons


def mean_of(runs: Floats) -> Floats:
    """Return mean regrets, one per row."""
    return np.asarray(runs.mean(axis=-1))


def rare_of(runs: Floats) -> Floats:
    """Return 99th percentiles, one per row."""
    return np.asarray(np.quantile(runs, RARE, axis=-1))


def halves(n: int) -> tuple[slice, slice]:
    """Return the two halves of n replications."""
    return slice(0, n // 2), slice(n // 2, n)


def best_of_the_other_half(
    runs: Floats, candidates: Sequence[int], statistic: Statistic
) -> list[tuple[slice, int]]:
    """Return, for each half of the replications, the candidate that is best in the other half.

    The least of several numbers is too low by luck; what the one that has it is worth, runs show
    that had no part in the choice.
    """
    first, second = halves(runs.shape[1])
    found = []
    for chosen_on, used in ((first, second), (second, first)):
        values = statistic(runs[list(candidates)][:, chosen_on])
        found.append((used, candidates[int(np.argmin(values))]))
    return found


def to_the_best(runs: Floats, candidates: Sequence[int], statistic: Statistic) -> Floats:
    """Return how many times the best candidate's each policy has, the best chosen by other runs.

    Examples
    --------
    >>> runs = np.array([[2.0, 4.0, 2.0, 4.0], [1.0, 2.0, 1.0, 2.0], [9.0, 9.0, 9.0, 9.0]])
    >>> to_the_best(runs, [0, 1], mean_of).tolist()
    [2.0, 1.0, 6.0]
    """
    mine = np.zeros(len(runs))
    best = 0.0
    for half, at in best_of_the_other_half(runs, candidates, statistic):
        mine += statistic(runs[:, half])
        best += float(statistic(runs[[at]][:, half])[0])
    return _ratio(mine, best)


def _ratio(values: Floats, reference: float) -> Floats:
    if reference > 0.0:
        return values / reference
    return np.where(values > 0.0, math.inf, 1.0)


def clearly_beyond(runs: Floats, candidates: Sequence[int], target: float) -> list[bool]:
    """Return for each policy whether its mean is clearly above `target` times the best.

    That is so where the interval of the mean difference at 95 %, corrected for skewness, lies above
    zero. The best is chosen by other runs, as everywhere.
    """
    found = []
    choice = best_of_the_other_half(runs, candidates, mean_of)
    for row in runs:
        apart = [row[half] - target * runs[at, half] for half, at in choice]
        found.append(bool(intervals.skewed_mean(np.concatenate(apart)).low > 0.0))
    return found


# ------------------------------------------------------------------------------------- the outcome


@dataclass(frozen=True)
class Outcome:
    """What policies did in worlds.

    Attributes
    ----------
    matches
        One per world.
    entered
        Labels of the policies that were entered, the default among them where it played.
    seed, target
        As they were given.
    provenance
        Versions, times, and how to do the same again.
    interrupted
        Whether worlds are missing because the user stopped.
    """

    matches: tuple[Match, ...]
    entered: tuple[str, ...]
    seed: int
    target: float = TARGET
    provenance: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def worlds(self) -> tuple[World, ...]:
        """The worlds, in the order they were played."""
        return tuple(match.world for match in self.matches)

    @property
    def labels(self) -> tuple[str, ...]:
        """All policies, in the order they appear."""
        return tuple(dict.fromkeys(label for match in self.matches for label in match.labels))

    @property
    def replications(self) -> int:
        """How often each policy played in each world."""
        return int(self.matches[0].regret.shape[1])

    @property
    def hash(self) -> str:
        """Fingerprint of all that was played."""
        text = " ".join(each for match in self.matches for each in match.hashes)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def table(self) -> pd.DataFrame:
        """Return one row per world and policy.

        ``regret`` with its 95 % interval (``low``, ``high``), its 99th percentile over the
        replications (``q99``), and ratios of the mean to that of Normal TS told the standard
        deviation, of the best policy told nothing and of the best of all, and of the 99th
        percentile to the smallest. A policy that is told something about each arm, and so which
        is which, is compared with the best and is not the best itself. Where the best has to be
        chosen, runs that had no part in the choice are compared (`to_the_best`).
        """
        return self._table.copy()

    @cached_property
    def _table(self) -> pd.DataFrame:
        import pandas as pd

        return pd.concat([self._rows(match) for match in self.matches], ignore_index=True)

    def _rows(self, match: Match) -> pd.DataFrame:
        import pandas as pd

        runs = match.regret
        n = len(match.labels)
        everybody = [i for i in range(n) if match.told[i] != PER_ARM] or list(range(n))
        nothing = [i for i in everybody if not match.told[i]] or everybody
        mean, low, high = intervals.skewed_mean(runs, axis=1)
        yardstick = (
            _ratio(mean_of(runs), float(runs[match.labels.index(YARDSTICK)].mean()))
            if YARDSTICK in match.labels
            else np.full(n, math.nan)
        )
        return pd.DataFrame(
            {
                "world": match.world.name,
                "kind": match.world.kind,
                "policy": match.labels,
                "told": match.told,
                "regret": mean,
                "low": low,
                "high": high,
                "q99": rare_of(runs),
                "replications": runs.shape[1],
                "to Normal TS": yardstick,
                "to the best told nothing": to_the_best(runs, nothing, mean_of),
                "to the best": to_the_best(runs, everybody, mean_of),
                "q99 to the best": to_the_best(runs, everybody, rare_of),
                "clearly beyond": clearly_beyond(runs, everybody, self.target),
            }
        )

    def ranking(self, kinds: Iterable[str] | str | None = None) -> pd.DataFrame:
        """Return one row per policy, the lowest median ratio to the best of all first.

        Parameters
        ----------
        kinds
            Kinds of worlds to rank in; all by default.

        Notes
        -----
        ``within`` is the share of worlds in which the ratio is at most the target, ``clearly
        beyond`` that of worlds in which the mean is beyond it by more than chance. A policy is
        ranked by the worlds in which it played; those that played in fewer than half of them come
        last.
        """
        import pandas as pd

        frame = self.table()
        frame = frame[frame["kind"].isin(chosen_kinds(kinds))]
        n_worlds = frame["world"].nunique()
        rows = []
        for label in self.labels:
            mine = frame[frame["policy"] == label]
            if mine.empty:
                continue
            row: dict[str, Any] = {
                "policy": label,
                "told": next((each for each in mine["told"] if each), ""),
                "worlds": len(mine),
            }
            for column, short in SHORT.items():
                values = mine[column].dropna()
                row |= {
                    f"{short}: median": values.median(),
                    f"{short}: worst": values.max(),
                    f"{short}: within": (values <= self.target).mean() if len(values) else math.nan,
                }
            row["clearly beyond"] = mine["clearly beyond"].mean()
            rows.append(row)
        found = pd.DataFrame(rows)
        if found.empty:
            return found
        few = found["worlds"] * 2 < n_worlds
        order = found.assign(few=few).sort_values(["few", "mean: median"], kind="stable").index
        return found.loc[order].reset_index(drop=True)

    def by_kind(self) -> pd.DataFrame:
        """Return the median ratio to the best of all, a row per policy and a column per kind."""
        frame = self.table()
        wide = frame.pivot_table("to the best", "policy", "kind", aggfunc="median", observed=True)
        order = [label for label in self.ranking()["policy"] if label in wide.index]
        present = set(frame["kind"])
        return wide.loc[order, [kind for kind in chosen_kinds(None) if kind in present]]

    def save(self, folder: str | Path) -> Path:
        """Write page, figure and tables into a folder, all of them or none; return the page.

        ``arena.html`` holds its figure itself. Next to it: ``ratios.png``, ``.svg`` and ``.csv``,
        ``table.csv``, ``ranking.csv``, ``worlds.csv`` and ``regrets.npz``, every final regret.
        """
        from zib.arena.page import write

        return write(self, check.path("folder", folder))

    def __repr__(self) -> str:
        worlds = f"{len(self.matches)} worlds, {self.replications} replications, seed {self.seed}"
        lines = [f"Outcome: {worlds}{' (interrupted)' if self.interrupted else ''}"]
        ranking = self.ranking()
        width = max(len(label) for label in ranking["policy"])
        for row in ranking.to_dict("records"):
            lines.append(
                f"  {row['policy']:<{width}}  {row['mean: median']:.2f} times the best, "
                f"worst {row['mean: worst']:.2f}, 99 %: {row['q99: median']:.2f}"
            )
        return "\n".join(lines)


# columns of the table and their short names in the ranking
SHORT = {
    "to the best": "mean",
    "q99 to the best": "q99",
    "to the best told nothing": "told nothing",
    "to Normal TS": "Normal TS",
}
