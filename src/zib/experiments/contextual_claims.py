"""The paper's claims on the contextual study and our own targets, judged on its panels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zib.experiments.contextual_panels import (
    BETTER,
    INTEGRATED,
    NAIVE,
    ON_MEANS,
    PRINTED,
    ContextualPanel,
)
from zib.experiments.judge import at_most, below, compare, from_cases, grows, ratio
from zib.experiments.panels import TITLES
from zib.experiments.record import Verdict
from zib.sim import Results

Panels = Mapping[str, Results]
VERSIONS = {"as printed": PRINTED, "on the scale of means": ON_MEANS}
OF_UCB, OF_TS = 0.4, 0.8  # our targets: at most these multiples of the regret of ZI-UCB and ZI-TS
SHOWN_ALWAYS = "UCB"  # the paper shows no Thompson sampling where the noise is exponential


def by_name(panels: Sequence[ContextualPanel]) -> dict[str, Results]:
    """Return results by the shortest name that tells the panels apart."""
    if len({panel.maker.sparsity for panel in panels}) == 1:
        return {TITLES[panel.maker.noise]: panel.result for panel in panels}
    return {panel.name: panel.result for panel in panels}


def verdicts(panels: Sequence[ContextualPanel]) -> tuple[Verdict, ...]:
    """Judge what the paper says about these panels, then what we wanted to reach."""
    named = by_name(panels)
    light = {n: r for n, r in named.items() if not n.startswith(TITLES["exponential"])}
    return (
        *(
            grows(
                f"The zero-inflated UCB and TS are sublinear for every noise: {version}",
                claimed(named, light, labels),
                exponents=True,
            )
            for version, labels in VERSIONS.items()
        ),
        *(lowest(label, named, light) for labels in VERSIONS.values() for label in labels),
        *(
            grows(claim, claimed(named, light, labels), word, exponents=True)
            for claim, labels, word in (
                ("The misspecified (naive) methods are linear", NAIVE, "linear"),
                ("Integrated UCB is linear", INTEGRATED[:1], "linear"),
                ("Integrated TS is sublinear", INTEGRATED[1:], "sublinear"),
            )
        ),
        *(
            below(f"ZI-TS is below integrated TS: {version}", light, labels[1], INTEGRATED[1])
            for version, labels in VERSIONS.items()
        ),
        *targets(named),
    )


def claimed(
    named: Panels, light: Panels, labels: Sequence[str]
) -> Iterator[tuple[str, Results, str]]:
    """Yield the panels and policies the paper shows."""
    for label in labels:
        for name, result in (named if SHOWN_ALWAYS in label else light).items():
            yield name, result, label


def lowest(label: str, named: Panels, light: Panels) -> Verdict:
    """Judge whether one of the zero-inflated policies is below each of the paper's baselines."""
    cases = [
        compare(name, result, label, other)
        for name, result, _ in claimed(named, light, [label])
        for other in (*NAIVE, *INTEGRATED)
        if label in result.labels and other in result.labels
        if name in light or SHOWN_ALWAYS in other
    ]
    return from_cases(
        f"{label} has lower regret than each of the paper's other methods",
        cases,
        good=lambda c: c.lower,
        bad=lambda c: c.higher,
        name=lambda c: (c.second, c.panel),
    )


def targets(named: Panels) -> Iterator[Verdict]:
    """Judge, for each of our own policies, whether it beats the paper's by the factors we want."""
    for policy in BETTER:
        for version, labels in VERSIONS.items():
            limits = dict(zip(labels, (OF_UCB, OF_TS)))
            found = [
                ratio(name, result, policy, label)
                for name, result in named.items()
                for label in labels
                if policy in result.labels and label in result.labels
            ]
            yield at_most(
                f"Our target: {policy} has at most {OF_UCB:g} of the regret of ZI-UCB and "
                f"{OF_TS:g} of that of ZI-TS: {version}",
                found,
                limits,
            )
