"""The one judge of all items: what is decided, what stays undecided, and in which words.

Regret is heavy-tailed. A Thompson sampler may give up the best arm in one run out of twenty, and
that run then costs more than all others together; in the few replications one can afford such a
run has often not happened yet. Student's interval does not know that, and no interval can: the runs
at hand do not show it. So a mean is said to lie on one side of a border only if two things agree:

- its interval, corrected for skewness, excludes the border, and
- three more runs as bad as the worst run of *any* policy in the panel would not turn it round.

Three, because what happens in a share 3/N of all runs is missed by N runs with probability 5 %.
Drawn again and again from 300 to 600 simulated runs of each policy of figures 2, S1 and S2, N = 3
to 100 of them, a single comparison is decided wrongly in at most 2.5 % of cases, in at most 4.9 %
to either side where the truth lies on the border itself, and rightly in about 30 % (N = 8), 60 %
(N = 25) and 75 % (N = 50) over all pairs. Student's interval is wrong in up to 47 % for one pair,
its skewness-corrected form in up to 53 %, a sign test, which is about medians, in up to 100 %
(`tests/experiments/test_judge_is_right.py`).

The level is shared by all comparisons of an item (Bonferroni): see `judged`. The best of several
policies is chosen on the first half of the replications and judged on the second: see `lowest`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.experiments.record import Status, Verdict
from zib.report.numbers import listing, number
from zib.sim import Results
from zib.stats import intervals

ERROR = 0.05  # probability of a wrong decision, shared by all comparisons of an item
UNSEEN = 3  # so many more bad runs a decision has to survive
LINEAR = 0.9  # an exponent above this is called linear growth, below it sublinear
LONGEST = 150  # a longer list of cases is given as their number; the evidence names them
Floats = NDArray[np.float64]


# ------------------------------------------------------------------------------------ the decision


@dataclass
class _Item:
    """The comparisons of an item: how many there are, and how many were asked for so far."""

    comparisons: int = 1
    asked: int = 0


_ITEM: ContextVar[_Item | None] = ContextVar("item", default=None)


def judged(claims: Callable[[], Iterable[Verdict]]) -> tuple[Verdict, ...]:
    """Return the verdicts of an item, whose comparisons share one probability of error.

    The claims are gone through twice: once to count their comparisons, once to decide.
    """
    with _judging(_Item()) as first:
        tuple(claims())
    with _judging(_Item(comparisons=max(first.asked, 1))):
        return tuple(claims())


@contextmanager
def _judging(item: _Item) -> Iterator[_Item]:
    token = _ITEM.set(item)
    try:
        yield item
    finally:
        _ITEM.reset(token)


def _next_level() -> float:
    """Return the confidence level of one more comparison; 95 % outside of an item."""
    item = _ITEM.get()
    if item is None:
        return 1.0 - ERROR
    item.asked += 1
    return 1.0 - ERROR / item.comparisons


class Decision(NamedTuple):
    """On which side of a border a number lies: −1 below, 1 above, 0 undecided.

    Attributes
    ----------
    side
        The decision.
    n
        Number of replications it rests on.
    value, low, high, level
        The number, as distance from the border, and its interval.
    """

    side: int
    n: int
    value: float
    low: float
    high: float
    level: float

    def __str__(self) -> str:
        ends = f"[{number(self.low)}, {number(self.high)}]"
        held = not self.side and (self.low > 0.0 or self.high < 0.0)
        return f"{number(self.value)} {ends} at {100 * self.level:.4g} %, N = {self.n}" + (
            f"; {UNSEEN} more bad runs could turn it round" if held else ""
        )


def decide_mean(values: ArrayLike, worst: tuple[float, float]) -> Decision:
    """Decide whether the mean of `values` is below or above 0.

    Parameters
    ----------
    values
        One number per replication, such as a difference of regrets; missing ones are left out.
    worst
        The least and the largest number one more replication could bring, as far as one has seen.

    Examples
    --------
    >>> decide_mean([-3.0, -4.0, -3.5, -3.2], worst=(-4.0, 1.0)).side
    -1
    >>> decide_mean([-3.0, -4.0, -3.5, -3.2], worst=(-4.0, 9.0)).side  # 27 − 13.7 is positive
    0
    """
    level = _next_level()
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    found = intervals.skewed_mean(x, level=level)
    return Decision(int(side_of_zero(x, *worst, level=level)), x.size, *found, level)


def side_of_zero(values: Floats, least: Any, largest: Any, *, level: float) -> Any:
    """Return the rule itself: −1, 0 or 1 for the mean of `values` along the first axis."""
    _, low, high = intervals.skewed_mean(values, level=level)
    total = values.sum(axis=0)
    below = (high < 0.0) & (total + UNSEEN * np.maximum(largest, 0.0) < 0.0)
    above = (low > 0.0) & (total + UNSEEN * np.minimum(least, 0.0) > 0.0)
    return np.where(below, -1, np.where(above, 1, 0))


def decide_share(successes: int, n: int, border: float) -> Decision:
    """Decide whether a probability is below or above `border`, by the exact interval.

    Examples
    --------
    >>> [decide_share(k, 100, 0.5).side for k in (30, 55, 70)]
    [-1, 0, 1]
    """
    level = _next_level()
    found = intervals.share(successes, n, level=level)
    value, low, high = (float(x) - border for x in found)
    return Decision(-1 if high < 0.0 else int(low > 0.0), n, value, low, high, level)


# ------------------------------------------------------------------------------------------ growth


class Growth(NamedTuple):
    """Exponent b of regret ~ t^b between half the horizon and the horizon, with a 95 % interval."""

    exponent: float
    low: float
    high: float
    decision: Decision

    @property
    def word(self) -> str:
        """``sublinear``, ``linear`` or ``undecided``."""
        return {-1: "sublinear", 0: "undecided", 1: "linear"}[self.decision.side]

    def __str__(self) -> str:
        return f"t^{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"


def growth(result: Results, label: str) -> Growth:
    """Return how fast the mean regret grows in the second half of the run.

    What is decided is whether the mean of D = R(T) − (T/t)^0.9·R(t), t half the horizon, is below
    0. The worst run is one that is linear and ends with the largest regret in the panel; on the
    other side, that with the least D of any policy. The interval shown is Student's, of the
    linearised exponent. A regret that does not grow at all has exponent 0.
    """
    at = result.labels.index(label)
    runs = result.regret[at][result.finished[at]]
    rounds = result.checkpoints
    half = int(np.argmin(np.abs(rounds - rounds[-1] / 2)))
    part = float(rounds[half] / rounds[-1])
    middle, end = runs[:, half], runs[:, -1]
    exponent, low, high = (x / -math.log(part) for x in intervals.log_ratio(end, middle))
    if not end.any():
        decision = Decision(-1, end.size, 0.0, 0.0, 0.0, 1.0)  # nothing lost in any run
        return Growth(exponent, low, high, decision)
    border = part**-LINEAR
    everybody = result.regret[:, :, -1] - border * result.regret[:, :, half]
    worst = float(np.nanmin(everybody)), worst_run(result) * (1.0 - border * part)
    return Growth(exponent, low, high, decide_mean(end - border * middle, worst))


class _GrowthCase(NamedTuple):
    panel: str
    label: str
    growth: Growth

    @property
    def n(self) -> int:
        return self.growth.decision.n

    def __str__(self) -> str:
        return f"{self.panel}: {self.label} grows like {self.growth} ({self.growth.word})"


def grows(
    claim: str,
    cases: Iterable[tuple[str, Results, str]],
    word: str = "sublinear",
    *,
    exponents: bool = False,
) -> Verdict:
    """Judge whether regret grows as `word` says in the second half of the run.

    A case is the name of a panel, its results and the label of a policy; policies that did not play
    there are left out. `exponents` adds their range to the words.
    """
    found = [
        _GrowthCase(name, label, growth(result, label))
        for name, result, label in cases
        if label in result.labels
    ]
    contrary = {"sublinear": "linear", "linear": "sublinear"}[word]
    alone = len({case.label for case in found}) == 1
    verdict = from_cases(
        claim,
        found,
        good=lambda c: c.growth.word == word,
        bad=lambda c: c.growth.word == contrary,
        name=lambda c: where("" if alone else c.label, c.panel),
    )
    if not (exponents and found):
        return verdict
    span = _span([case.growth.exponent for case in found])
    return replace(verdict, words=f"{verdict.words} (exponent {span})")


# ------------------------------------------------------------------------------------- comparisons


class Comparison(NamedTuple):
    """Final regret of one policy against a multiple of another's, paired by replication."""

    panel: str
    first: str
    second: str
    factor: float
    ratio: float
    decision: Decision

    @property
    def n(self) -> int:
        """Number of replications it rests on."""
        return self.decision.n

    @property
    def lower(self) -> bool:
        """Whether the first is decided to have less than `factor` times the regret."""
        return self.decision.side < 0

    @property
    def higher(self) -> bool:
        """Whether the first is decided to have more than `factor` times the regret."""
        return self.decision.side > 0

    def __str__(self) -> str:
        times = "" if self.factor == 1.0 else f"{self.factor:.3g} times "
        return (
            f"{self.panel}: {self.first} is {self.ratio:.2f} times {self.second} "
            f"(minus {times}{self.second}: {self.decision})"
        )


def final_regrets(result: Results, label: str) -> Floats:
    """Return the regret of each replication at the end; NaN where it was not finished."""
    return np.asarray(result.regret[result.labels.index(label), :, -1])


def worst_run(result: Results) -> float:
    """Return the largest final regret of any policy in any replication of a panel."""
    return float(np.nanmax(result.regret[:, :, -1]))


def compare_runs(
    panel: str,
    first: str,
    second: str,
    runs: tuple[Floats, Floats],
    worst: float,
    factor: float = 1.0,
) -> Comparison:
    """Decide whether mean(first) is below or above `factor` times mean(second), given the runs."""
    there = ~np.any(np.isnan(runs), axis=0)
    a, b = (np.asarray(x)[there] for x in runs)
    mean_a, mean_b = (float(x.mean()) if x.size else math.nan for x in (a, b))
    decision = decide_mean(a - factor * b, (mean_a - factor * worst, worst - factor * mean_b))
    ratio = mean_a / mean_b if mean_b > 0 else math.inf
    return Comparison(panel, first, second, factor, ratio, decision)


def compare(
    panel: str,
    result: Results,
    first: str,
    second: str,
    *,
    factor: float = 1.0,
    chosen: bool = False,
) -> Comparison:
    """Compare final regrets; on the second half of the runs if a policy was `chosen` on the first.

    See `lowest`.
    """
    runs = [final_regrets(result, label) for label in (first, second)]
    if chosen:
        runs = [x[x.size // 2 :] for x in runs]
    return compare_runs(panel, first, second, (runs[0], runs[1]), worst_run(result), factor)


def lowest(result: Results, labels: Iterable[str]) -> str:
    """Return the policy with the lowest mean regret on the first half of the replications.

    The least of several means is too low by luck; what it is worth the other half shows.
    """
    half = max(result.regret.shape[1] // 2, 1)
    present = [label for label in labels if label in result.labels]
    return min(present, key=lambda label: float(np.nanmean(final_regrets(result, label)[:half])))


def lower(
    claim: str, cases: Sequence[Comparison], name: Callable[[Comparison], tuple[str, str]]
) -> Verdict:
    """Judge whether the first policy has lower regret than the second in every case."""
    return from_cases(claim, cases, good=lambda c: c.lower, bad=lambda c: c.higher, name=name)


def below(claim: str, panels: Mapping[str, Results], first: str, second: str) -> Verdict:
    """Judge "first has lower regret than second" over panels."""
    found = compare_all(panels, [(first, second)])
    verdict = lower(claim, found, lambda c: where("", c.panel))
    return replace(verdict, words=verdict.words + ratios(found)) if found else verdict


def compare_all(
    panels: Mapping[str, Results], pairs: Iterable[tuple[str, str]]
) -> list[Comparison]:
    """Compare pairs of policies in every panel in which both play."""
    return [
        compare(name, result, first, second)
        for first, second in pairs
        for name, result in panels.items()
        if first in result.labels and second in result.labels
    ]


def ratios(found: Sequence[Comparison]) -> str:
    """Return the range of ratios of final regrets as an addition to a verdict."""
    return f" ({_span([c.ratio for c in found])} times the regret of {found[0].second})"


def at_most(claim: str, found: Sequence[Comparison]) -> Verdict:
    """Judge whether ratios stay below the factors they were compared with."""
    verdict = lower(claim, found, lambda c: (c.second, c.panel))
    spans = []
    for second in dict.fromkeys(c.second for c in found):
        values = [c.ratio for c in found if c.second == second]
        spans.append(f"{_span(values)} times {second}")
    return replace(verdict, words=f"{verdict.words} ({', '.join(spans)})") if spans else verdict


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


# ------------------------------------------------------------------------------------------- words


class Case(Protocol):
    """What a verdict is made of."""

    @property
    def n(self) -> int:
        """Number of replications it rests on."""


C = TypeVar("C", bound=Case)


def undecided(replications: Iterable[int]) -> str:
    """Return that nothing is decided with so few replications.

    Examples
    --------
    >>> undecided([8]), undecided([4, 8, 8])
    ('undecided at this scale (N = 8)', 'undecided at this scale (N = 4 to 8)')
    """
    found = sorted(set(replications))
    many = f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return f"undecided at this scale (N = {many})"


def from_cases(
    claim: str,
    cases: Sequence[C],
    *,
    good: Callable[[C], bool],
    bad: Callable[[C], bool],
    name: Callable[[C], tuple[str, str]],
) -> Verdict:
    """Return the verdict over cases, each of which supports the claim, contradicts it, or neither.

    `name` gives the subject of a case (empty when all have the same) and where it was seen.
    """
    yes = [name(case) for case in cases if good(case)]
    no = [name(case) for case in cases if bad(case) and not good(case)]
    unsure = [case for case in cases if not good(case) and not bad(case)]
    rest = [name(case) for case in unsure]
    unclear = undecided(case.n for case in unsure) if unsure else ""
    evidence = tuple(str(case) for case in cases)
    totals = Counter(subject for subject, _ in map(name, cases))

    def phrase(names: Sequence[tuple[str, str]]) -> str:
        words = _grouped(names, totals)
        return words if len(words) <= LONGEST else f"{len(names)} of {len(cases)} cases"

    status: Status
    if not cases:
        return Verdict(claim, "open", "not measured here", evidence)
    if len(yes) == len(cases):
        status, words = "holds", f"holds in all {len(cases)} cases" if len(cases) > 1 else "holds"
    elif yes and not no:
        status, words = "open", f"{unclear} for {phrase(rest)}; holds for {phrase(yes)}"
    elif yes:
        many = len(yes) > 4 and len(cases) > 2 * (len(cases) - len(yes))
        some = f"in {len(yes)} of {len(cases)} cases" if many else f"for {phrase(yes)}"
        status, words = "partly", f"holds only {some}"
        words += f"; does not hold for {phrase(no)}" if no else ""
        words += f"; {unclear} for {phrase(rest)}" if rest else ""
    elif no:
        status, words = "fails", "does not hold"
        words += f" for {phrase(no)}; {unclear} for {phrase(rest)}" if rest else ""
    else:
        status, words = "open", unclear
    return Verdict(claim, status, words, evidence)


def decide(
    claim: str,
    decisions: Sequence[Decision],
    words: str,
    evidence: Iterable[str] = (),
    *,
    side: int = -1,
) -> Verdict:
    """Return a verdict that holds if every number is on that side of its border.

    It fails as soon as one is on the other side.
    """
    status: Status = "open"
    if decisions and all(d.side == side for d in decisions):
        status = "holds"
    elif any(d.side == -side for d in decisions):
        status = "fails"
    said = {"holds": "holds", "fails": "does not hold"}
    start = said.get(status) or undecided(d.n for d in decisions if not d.side)
    return Verdict(claim, status, f"{start}{words}", tuple(evidence))


_PLACE = re.compile(r" (?=p \d|s = \d)")


def where(subject: str, panel: str) -> tuple[str, str]:
    """Split the name of a panel, so that ranges of p or sparsities can be listed under its family.

    Examples
    --------
    >>> where("ZI-TS", "Gaussian p 0.1–0.15"), where("", "Gaussian"), where("", "Gaussian s = 3")
    (('ZI-TS, Gaussian', 'p 0.1–0.15'), ('', 'Gaussian'), ('Gaussian', 's = 3'))
    """
    family, *place = _PLACE.split(panel, maxsplit=1)
    if not place:
        return subject, panel
    return f"{subject}, {family}" if subject else family, place[0]


def _grouped(names: Sequence[tuple[str, str]], totals: Mapping[str, int]) -> str:
    groups: dict[str, list[str]] = {}
    for subject, place in names:
        groups.setdefault(subject, []).append(place)
    if set(groups) == {""}:
        return listing(groups[""])
    phrases = []
    for subject, places in groups.items():
        complete = len(places) > 1 and len(places) == totals[subject]
        phrases.append(subject if complete else f"{subject} ({', '.join(places)})")
    return "; ".join(phrases)
