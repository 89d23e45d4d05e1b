"""Verdicts computed from numbers: growth of regret, paired comparisons, and their wording."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from zib.core.rng import Role, stream
from zib.experiments.record import SAID, Status, Verdict
from zib.report.numbers import listing, number
from zib.sim import Results
from zib.stats import intervals

LINEAR = 0.9  # an exponent above this is called linear growth, below it sublinear
RESAMPLES = 2000
FEW = 10  # replications below which resampling them says too little
LONGEST = 150  # a longer list of cases is given as their number; the evidence names them
Floats = NDArray[np.float64]
T = TypeVar("T")


class Growth(NamedTuple):
    """Exponent b of regret ~ t^b between half the horizon and the horizon, with a 95 % interval."""

    exponent: float
    low: float
    high: float

    @property
    def word(self) -> str:
        """``sublinear``, ``linear``, or ``undecided`` when the interval contains the border."""
        if self.high < LINEAR:
            return "sublinear"
        return "linear" if self.low >= LINEAR else "undecided"

    def __str__(self) -> str:
        return f"t^{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"


def growth(result: Results, label: str) -> Growth:
    """Return how fast the mean regret grows in the second half of the run.

    The interval is a percentile bootstrap over replications with a fixed stream; with fewer than
    ten of them, where that is too narrow, Student's interval of the linearised exponent. A regret
    that does not grow at all has exponent 0.
    """
    at = result.labels.index(label)
    runs = result.regret[at][result.finished[at]]
    rounds = result.checkpoints
    half = int(np.argmin(np.abs(rounds - rounds[-1] / 2)))
    pair = runs[:, [half, -1]]
    base = math.log(rounds[-1] / rounds[half])
    if len(pair) < FEW:
        return Growth(*(x / base for x in _log_ratio_of_few(pair)))
    exponent = float(_log_ratio(pair.mean(axis=0)[None])[0] / base)
    rng = stream(0, Role.BOOTSTRAP, at)
    drawn = pair[rng.integers(0, len(pair), (RESAMPLES, len(pair)))].mean(axis=1)
    exponents = _log_ratio(drawn) / base
    low, high = np.quantile(exponents, [0.025, 0.975])
    return Growth(exponent, float(low), float(high))


def _log_ratio(pairs: Floats) -> Floats:
    safe = np.maximum(pairs, 1e-300)
    return np.asarray(np.log(safe[:, 1] / safe[:, 0]))


def _log_ratio_of_few(pairs: Floats) -> intervals.Estimate:
    """Return the logarithm of a ratio of means with Student's interval, linearised."""
    means = np.maximum(pairs.mean(axis=0), 1e-300)
    parts = pairs[:, 1] / means[1] - pairs[:, 0] / means[0]
    return intervals.from_error(
        _log_ratio(means[None])[0], intervals.standard_error(parts), df=len(pairs) - 1
    )


class _GrowthCase(NamedTuple):
    panel: str
    label: str
    growth: Growth

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


class Comparison(NamedTuple):
    """Regret of one policy minus that of another at the end, paired, with a 95 % interval."""

    panel: str
    first: str
    second: str
    mean: float
    low: float
    high: float
    ratio: float

    @property
    def lower(self) -> bool:
        """Whether the first is lower beyond the noise."""
        return self.high < 0.0

    @property
    def higher(self) -> bool:
        """Whether the first is higher beyond the noise."""
        return self.low > 0.0

    def __str__(self) -> str:
        return (
            f"{self.panel}: {self.first} is {self.ratio:.2f} times {self.second} "
            f"(difference {number(self.mean)} [{number(self.low)}, {number(self.high)}])"
        )


def compare(panel: str, result: Results, first: str, second: str) -> Comparison:
    """Compare final regrets."""
    mean, low, high = result.difference(first, second).final
    finals = result.mean()[:, -1]
    a, b = (float(finals[result.labels.index(label)]) for label in (first, second))
    return Comparison(panel, first, second, mean, low, high, a / b if b > 0 else math.inf)


def lower(
    claim: str, cases: Sequence[Comparison], name: Callable[[Comparison], tuple[str, str]]
) -> Verdict:
    """Judge whether the first policy has lower regret than the second in every case."""
    return from_cases(claim, cases, good=lambda c: c.lower, bad=lambda c: c.higher, name=name)


def below(
    claim: str, panels: Mapping[str, Results], first: str, second: str, factor: float = 1.0
) -> Verdict:
    """Judge "first has lower regret than second" over panels; `factor` 0.5 asks for half."""
    found = compare_all(panels, [(first, second)])
    verdict = from_cases(
        claim,
        found,
        good=lambda c: c.lower and c.ratio <= factor,
        bad=lambda c: c.higher or (c.lower and c.ratio > factor),
        name=lambda c: where("", c.panel),
    )
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


class Ratio(NamedTuple):
    """Regret of one policy as a multiple of another's, paired, with a 95 % interval."""

    panel: str
    first: str
    second: str
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{self.panel}: {self.first} is {self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}] "
            f"times {self.second}"
        )


def final_regrets(result: Results, label: str) -> Floats:
    """Return the regret of each replication at the end; NaN where it was not finished."""
    return np.asarray(result.regret[result.labels.index(label), :, -1])


def ratio(panel: str, result: Results, first: str, second: str) -> Ratio:
    """Compare final regrets as a ratio, with Fieller's interval."""
    finals = (final_regrets(result, label) for label in (first, second))
    return Ratio(panel, first, second, *intervals.ratio(*finals))


def at_most(claim: str, found: Sequence[Ratio], limits: Mapping[str, float]) -> Verdict:
    """Judge whether ratios stay below the limit of the policy they are multiples of."""
    verdict = from_cases(
        claim,
        found,
        good=lambda r: r.high <= limits[r.second],
        bad=lambda r: r.low > limits[r.second],
        name=lambda r: (r.second, r.panel),
    )
    spans = []
    for second in limits:
        values = [r.ratio for r in found if r.second == second]
        if values:
            spans.append(f"{_span(values)} times {second}")
    return replace(verdict, words=f"{verdict.words} ({', '.join(spans)})") if spans else verdict


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def from_cases(
    claim: str,
    cases: Sequence[T],
    *,
    good: Callable[[T], bool],
    bad: Callable[[T], bool],
    name: Callable[[T], tuple[str, str]],
) -> Verdict:
    """Return the verdict over cases, each of which supports the claim, contradicts it, or neither.

    `name` gives the subject of a case (empty when all have the same) and where it was seen.
    """
    yes = [name(case) for case in cases if good(case)]
    no = [name(case) for case in cases if bad(case) and not good(case)]
    rest = [name(case) for case in cases if not good(case) and not bad(case)]
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
    elif yes:
        many = len(yes) > 4 and len(cases) > 2 * (len(cases) - len(yes))
        some = f"in {len(yes)} of {len(cases)} cases" if many else f"for {phrase(yes)}"
        status, words = "partly", f"holds only {some}"
        words += f"; does not hold for {phrase(no)}" if no else ""
        words += f"; undecided for {phrase(rest)}" if rest else ""
    elif no:
        status, words = "fails", "does not hold"
        words += f" for {phrase(no)}; undecided for {phrase(rest)}" if rest else ""
    else:
        status, words = "open", "undecided: the differences are within the noise"
    return Verdict(claim, status, words, evidence)


def decide(
    claim: str,
    good: Iterable[bool],
    bad: Iterable[bool],
    words: str,
    evidence: Iterable[str] = (),
) -> Verdict:
    """Return a verdict that holds if every case is good and fails as soon as one is bad."""
    status: Status = "holds" if all(good) else "fails" if any(bad) else "open"
    return Verdict(claim, status, f"{SAID[status]}{words}", tuple(evidence))


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
