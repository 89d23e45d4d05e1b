"""The paper's claims on the loan study and our own, judged on its panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zib.experiments.contextual_claims import VERSIONS
from zib.experiments.contextual_panels import BETTER, INTEGRATED, NAIVE, ON_MEANS
from zib.experiments.judge import Comparison, at_most, compare, from_cases, ratio
from zib.experiments.loan_panels import LoanPanel
from zib.experiments.record import Verdict
from zib.sim import Results

CLOSE = 1.25  # "close to": at most this multiple of the regret


def verdicts(panels: Sequence[LoanPanel]) -> tuple[Verdict, ...]:
    """Judge what the paper says about its figure, then what we hoped for."""
    named = {panel.name: panel.result for panel in panels}
    return (
        *(
            from_pairs(
                "ZI-UCB and ZI-TS have significantly lower regret than integrated UCB and TS: "
                f"{version}",
                named,
                list(zip(labels, INTEGRATED)),
            )
            for version, labels in VERSIONS.items()
        ),
        *(
            at_most(
                "The misspecified (naive) UCB and TS come close to ZI-UCB and ZI-TS (at most "
                f"{CLOSE:g} times their regret): {version}",
                [
                    ratio(name, result, naive, label)
                    for name, result in named.items()
                    for naive, label in zip(NAIVE, labels)
                    if naive in result.labels and label in result.labels
                ],
                dict.fromkeys(labels, CLOSE),
            )
            for version, labels in VERSIONS.items()
        ),
        *(
            from_pairs(
                "ZI-UCB and ZI-TS have the lowest regret of the paper's methods: " + version,
                named,
                [(label, other) for label in labels for other in (*NAIVE, *INTEGRATED)],
            )
            for version, labels in VERSIONS.items()
        ),
        *(
            from_pairs(
                f"Ours: {policy} has lower regret than ZI-UCB and ZI-TS, tuned or not",
                named,
                [(policy, label) for label in ON_MEANS],
            )
            for policy in BETTER
        ),
    )


def from_pairs(
    claim: str, named: Mapping[str, Results], pairs: Sequence[tuple[str, str]]
) -> Verdict:
    """Judge whether the first of each pair has lower regret than the second in every panel."""

    def subject(case: Comparison) -> tuple[str, str]:
        return f"{case.first} below {case.second}", case.panel

    cases = [
        compare(name, result, first, second)
        for first, second in pairs
        for name, result in named.items()
        if first in result.labels and second in result.labels
    ]
    return from_cases(
        claim,
        cases,
        good=lambda c: c.lower,
        bad=lambda c: c.higher,
        name=subject,
    )
