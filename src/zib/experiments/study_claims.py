"""The paper's claims on the multi-armed study, judged on its panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zib.experiments.judge import (
    Comparison,
    below,
    compare,
    from_cases,
    grows,
    growth,
    where,
)
from zib.experiments.panels import BASELINES, BEYOND, MUCH_HIGHER, STRONG, TITLES, Panel
from zib.experiments.record import Verdict
from zib.sim import Results


def verdicts(panels: Sequence[Panel]) -> tuple[Verdict, ...]:
    """Judge what the paper says about these panels."""
    one_range = len({panel.probs for panel in panels}) == 1
    by_name = {TITLES[p.family] if one_range else p.name: p.result for p in panels}
    light = {n: r for n, r in by_name.items() if not n.startswith(TITLES["exponential"])}
    found = [
        sublinear(
            "Our algorithms are sublinear for every distribution: Algorithm 1 as printed",
            by_name,
            ("ZI-UCB printed",),
        ),
        sublinear(
            "Our algorithms are sublinear for every distribution: Algorithm 1 with the tight "
            "radius, Thompson sampling",
            by_name,
            ("ZI-UCB", "ZI-TS", "ZI-TS exponential", "ZI-TS stable"),
        ),
        sublinear("The strong baseline is sublinear as well", by_name, (STRONG,)),
        *(far_higher(label, by_name) for label in BASELINES),
        below(
            "ZI-UCB has lower (the paper: much lower) regret than the strong baseline for Gaussian "
            "and mixture: as printed",
            light,
            "ZI-UCB printed",
            STRONG,
        ),
        below(
            "ZI-UCB has lower (the paper: much lower) regret than the strong baseline for Gaussian "
            "and mixture: tight radius",
            light,
            "ZI-UCB",
            STRONG,
        ),
        below("ZI-TS has lower regret than MOTS (Gaussian, mixture)", light, "ZI-TS", "MOTS"),
        outperforms_all("ZI-TS has the lowest regret of all methods of the paper", light),
        lowest_curve("Our target: the lowest curve is one of those beyond the paper", by_name),
    ]
    return tuple(found)


def lowest_curve(claim: str, panels: Mapping[str, Results]) -> Verdict:
    """Judge whether the best of the policies beyond the paper is below the best other one."""
    cases = []
    for name, result in panels.items():
        final = dict(zip(result.labels, result.mean()[:, -1]))
        ours = min(BEYOND, key=lambda label: final[label])
        theirs = min((label for label in final if label not in BEYOND), key=lambda x: final[x])
        cases.append(compare(name, result, ours, theirs))
    return from_cases(
        claim,
        cases,
        good=lambda c: c.lower,
        bad=lambda c: c.higher,
        name=lambda c: where(f"{c.first} against {c.second}", c.panel),
    )


def sublinear(claim: str, panels: Mapping[str, Results], labels: Sequence[str]) -> Verdict:
    """Judge whether regret grows sublinearly in the second half of the run."""
    return grows(
        claim, ((name, result, label) for name, result in panels.items() for label in labels)
    )


def far_higher(label: str, panels: Mapping[str, Results]) -> Verdict:
    """Judge "linear or significantly higher regret in some cases" for one baseline."""
    claim = f"{label}: linear or significantly higher regret than ours in some cases"
    evidence: list[str] = []
    linear: list[str] = []
    higher: list[Comparison] = []
    everything: list[Comparison] = []
    unsure = False
    for name, result in panels.items():
        ours = "ZI-TS" if "ZI-TS" in result.labels else "ZI-TS exponential"
        grows = growth(result, label)
        against = [compare(name, result, label, other) for other in ("ZI-UCB", ours)]
        worse = [c for c in against if c.higher and c.ratio >= MUCH_HIGHER]
        if grows.word == "linear":
            linear.append(name)
        unsure = unsure or grows.word == "undecided"
        higher.extend(worse[-1:])
        everything.extend(against)
        evidence.append(
            f"{name}: grows like {grows} ({grows.word}); "
            + "; ".join(f"{c.ratio:.2f} times {c.second}" for c in against)
        )
    found = []
    if linear:
        found.append(f"linear in {len(linear)} of {len(panels)} panels ({', '.join(linear)})")
    if higher:
        worst = max(higher, key=lambda c: c.ratio)
        found.append(
            f"at least {MUCH_HIGHER:g} times ours in {len(higher)} of {len(panels)} panels, most "
            f"in {worst.panel} ({worst.ratio:.1f} times {worst.second})"
        )
    if not found:
        top = max(everything, key=lambda c: c.ratio)
        most = f"at most {top.ratio:.2f} times {top.second}, in {top.panel}"
        if top.ratio >= MUCH_HIGHER or unsure:
            words = f"undecided: {most}, and growth not clearly linear, but within the noise"
            return Verdict(claim, "open", words, tuple(evidence))
        return Verdict(claim, "fails", f"does not hold: nowhere linear, {most}", tuple(evidence))
    return Verdict(claim, "holds", f"holds: {'; '.join(found)}", tuple(evidence))


def outperforms_all(claim: str, panels: Mapping[str, Results]) -> Verdict:
    """Judge whether ZI-TS is below every other method of the paper."""
    cases = [
        compare(name, result, "ZI-TS", label)
        for name, result in panels.items()
        for label in ("ZI-UCB printed", STRONG, *BASELINES)
        if label in result.labels
    ]
    return from_cases(
        claim,
        cases,
        good=lambda c: c.lower,
        bad=lambda c: c.higher,
        name=lambda c: where(c.second, c.panel),
    )
