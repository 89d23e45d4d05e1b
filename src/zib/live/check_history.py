"""The part of `check` about the history: it is the fold of the log, day by day.

Shorter periods are put together as they get old, up to days, and a clock that jumps ahead and back
does so to young ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from zib.live.book import POLICY
from zib.live.database import Connection
from zib.live.history import BEFORE, HOUR, MANY, MOST_EXPECTED, REWARDS, Made, weight_of
from zib.live.outcome import Share
from zib.live.pages import KINDS, Bandit, Columns, real, whole

DAY = 24 * HOUR
CLOSE = 1e-9  # of the sizes of what went into a sum
KNOWN = (*KINDS, "policy (among unknown arms)", "policy (among many arms)")

Key = tuple[int, int, int]  # start, arm, kind


class PeriodsCheck:
    """What the log says about the history."""

    def __init__(self) -> None:
        # sums as in `REWARDS`, and the sizes of what went into the last four
        self._sums: dict[Key, NDArray[np.float64]] = defaultdict(lambda: np.zeros(10))
        self._drawn: dict[int, int] = defaultdict(int)  # decisions of the policy, cancelled or not

    def add(
        self, page: Columns, sound: NDArray[np.bool_], told: dict[int, tuple[Share, float]]
    ) -> None:
        """Count the decisions of a page; those without events wait."""
        arm, at, kind = whole(page["arm"]), whole(page["at"]), whole(page["kind"])
        choices, start = whole(page["choices"]), at - at % DAY
        known = np.where(
            kind != POLICY,
            kind,
            np.where(choices == 0, BEFORE, np.where(choices > MOST_EXPECTED, MANY, POLICY)),
        )
        starts, n = np.unique(start[sound & (known == POLICY)], return_counts=True)
        for each, many in zip(starts.tolist(), n.tolist(), strict=True):
            self._drawn[each] += many
        counted = sound.copy()
        counted[[k for k, (part, _) in told.items() if not any(part[:3])]] = False  # cancelled
        keys, n = np.unique(np.stack([start, arm, known])[:, counted], axis=1, return_counts=True)
        for key, many in zip(zip(*keys.tolist(), strict=True), n.tolist(), strict=True):
            self._sums[key][0] += many
        probability = real(page["probability"])
        for k, (part, size) in told.items():
            sums = self._sums[int(start[k]), int(arm[k]), int(known[k])]
            made = Made(arm[k], at[k], kind[k], max(probability[k], 1e-300), choices[k])
            weight = weight_of(made)
            sums[6:] += size, size * size, abs(weight) * size, (weight * size) ** 2
            if part.nonzero:
                score = part.amount * weight
                sums[1:6] += 1, part.amount, part.amount**2, score, score**2

    def compared(self, connection: Connection, bandit: Bandit) -> Iterator[str]:
        """Yield a sentence for each sum that is not what the log says."""
        stored: dict[Key, NDArray[np.float64]] = defaultdict(lambda: np.zeros(6))
        chances: dict[int, float] = defaultdict(float)
        for at, arm, kind, *sums in connection.rows(
            f"SELECT at, arm, kind, {', '.join(f'SUM({name})' for name in REWARDS)}, "
            "SUM(expected) FROM history WHERE bandit = $1 GROUP BY at, arm, kind",
            bandit.id,
        ):
            start = int(at) // DAY * DAY
            stored[start, int(arm), int(kind)] += [float(x) for x in sums[:6]]
            if kind == POLICY:
                chances[start] += float(sums[6])
        for key in sorted(stored.keys() | self._sums.keys()):
            was, now = stored[key], self._sums[key]
            room = np.concatenate([[0.0, 0.0], CLOSE * now[6:]])
            for k in np.flatnonzero(~(np.abs(was - now[:6]) <= room)).tolist():
                yield (
                    f"`{REWARDS[k]}` of {self._words(bandit, key)} is {was[k]:.17g} in the "
                    f"history, but {now[k]:.17g} in the log"
                )
        for start in sorted(chances.keys() | self._drawn.keys()):
            n = self._drawn[start]
            if not abs(chances[start] - n) <= CLOSE * max(n, 1):
                yield (
                    f"`expected` of all arms in the period from {start} is {chances[start]:.17g} "
                    f"in the history, but the log has {n} decisions of the policy"
                )

    def _words(self, bandit: Bandit, key: Key) -> str:
        start, arm, kind = key
        label = repr(bandit.arms[arm].label) if arm in bandit.arms else f"number {arm}"
        named = KNOWN[kind] if 0 <= kind < len(KNOWN) else f"of kind {kind}"
        return f"arm {label}, {named}, in the period from {start}"
