"""The numbers of a report: final regrets, paired differences, and what they say in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zib.experiments.judge import number

if TYPE_CHECKING:
    import pandas as pd

    from zib.studies.play import Played

LEVEL = 0.95
MISSING = "–"


class Apart(NamedTuple):
    """How much more regret a policy has than the best one, paired by replication."""

    mean: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval lies above zero."""
        return self.low > 0.0


def ranking(result: Any) -> list[str]:
    """Return the labels by final regret, the lowest first; those without a finished run last."""
    final = result.mean()[:, -1]
    return [result.labels[int(i)] for i in np.argsort(np.where(np.isnan(final), np.inf, final))]


def apart(result: Any, label: str, best: str) -> Apart:
    """Return the paired difference of final regrets."""
    return Apart(*result.difference(label, best, LEVEL).final)


def final_frame(played: tuple[Played, ...]) -> pd.DataFrame:
    """Return final regrets of all policies in all environments, with the distance to the best."""
    import pandas as pd

    parts: list[pd.DataFrame] = []
    for case, result in played:
        best = ranking(result)[0]
        frame = result.summary(LEVEL)
        frame.insert(0, "environment", case.label)
        between = [apart(result, label, best) for label in result.labels]
        for name in Apart._fields:
            column = "above the best" if name == "mean" else f"above the best, {name}"
            frame[column] = [getattr(each, name) for each in between]
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def curve_frame(played: tuple[Played, ...]) -> pd.DataFrame:
    """Return mean regret with its interval at every checkpoint."""
    import pandas as pd

    parts = []
    for case, result in played:
        mean, (low, high) = result.mean(), result.interval(LEVEL)
        runs = result.summary(LEVEL)["replications"]
        for i, label in enumerate(result.labels):
            parts.append(
                pd.DataFrame(
                    {
                        "environment": case.label,
                        "policy": label,
                        "round": result.checkpoints,
                        "regret": mean[i],
                        "low": low[i],
                        "high": high[i],
                        "replications": int(runs[i]),
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def final_rows(result: Any) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heading and rows of the table of one environment, the best policy first."""
    order = ranking(result)
    frame = result.summary(LEVEL).set_index("policy")
    rows: list[tuple[str, ...]] = []
    for label in order:
        row = frame.loc[label]
        more = apart(result, label, order[0])
        rows.append(
            (
                label,
                _estimate(row["regret"], row["low"], row["high"]),
                MISSING if label == order[0] else _estimate(*more),
                _ratio(row["regret"], frame.loc[order[0], "regret"]),
                _number(row["median"]),
                f"{_number(row['10 %'])} to {_number(row['90 %'])}",
                _number(row["reward"]),
                str(int(row["replications"])),
            )
        )
    heading = (
        "policy", "regret", "more than the best", "× best", "median", "10 % to 90 %", "reward",
        "runs",
    )  # fmt: skip
    return heading, rows


def in_words(result: Any) -> str:
    """Return one or two sentences: which policy is best, and which are as good within the noise.

    Intervals are each on their own; that the best was picked by the same numbers is not in them.
    """
    best, *others = ranking(result)
    i = result.labels.index(best)
    low, high = result.interval(LEVEL)
    value = _estimate(result.mean()[i, -1], low[i, -1], high[i, -1])
    said = f"{best} has the lowest regret, {value}."
    between = {label: apart(result, label, best) for label in others}
    known = {label: each for label, each in between.items() if math.isfinite(each.mean)}
    if not known:
        return said
    if any(math.isnan(each.low) for each in known.values()):
        return f"{said} One replication does not show how much of the difference is chance."
    near = [label for label, each in known.items() if not each.clear]
    if near:
        alike = "; ".join(near)  # labels may hold commas
        return f"{said} Within the noise of these replications, as good: {alike}."
    label, each = min(known.items(), key=lambda item: item[1].mean)
    return f"{said} The next, {label}, has {_estimate(*each)} more."


def _estimate(value: float, low: float, high: float) -> str:
    if math.isnan(low):
        return _number(value)
    return f"{_number(value)} [{_number(low)}, {_number(high)}]"


def _number(value: float) -> str:
    return number(float(value)) if math.isfinite(value) else MISSING


def _ratio(value: float, best: float) -> str:
    return f"{value / best:.2f}" if best > 0 and math.isfinite(value) else MISSING
