"""What is peculiar about a log, in sentences."""

from __future__ import annotations

from zib.logs.advise.collect import Collected
from zib.logs.advise.estimates import FEW, ArmSummary
from zib.logs.advise.law import LawReport
from zib.logs.advise.snippet import Randomised
from zib.report.numbers import percent


def notes(
    found: Collected,
    arms: tuple[ArmSummary, ...],
    whole: ArmSummary,
    law: LawReport,
    random: Randomised,
) -> tuple[str, ...]:
    """Return one sentence for each peculiarity."""
    out = []
    if whole.nonzero == 0:
        out.append("All rewards are zero.")
    elif whole.nonzero == whole.rows:
        out.append("No reward is zero: this log is not zero-inflated.")
    empty = [arm for arm in arms if arm.rows == 0]
    if empty:
        out.append(f"{_named(empty)} no data; nothing can be said about {_it(empty)}.")
    silent = [arm for arm in arms if arm.rows and not arm.nonzero]
    if silent and whole.nonzero:
        out.append(f"{_named(silent)} never paid; see the upper end of p.")
    few = [arm for arm in arms if 0 < arm.nonzero < FEW]
    if few:
        out.append(
            f"{_named(few)} fewer than {FEW} non-zero rewards: the spread of the magnitudes is "
            "taken from all arms together."
        )
    if found.negative and found.negative < found.n_paid:
        out.append(
            f"{percent(found.negative / found.n_paid)} of the non-zero rewards are negative: "
            "only laws on the whole line were fitted."
        )
    if law.tail.finite_variance == "no":
        out.append(
            "With an infinite variance the intervals of mu and r are too short, and all numbers "
            "made from a standard deviation grow with the length of the log."
        )
    if random == "no":
        out.append(
            "The propensities vary, so arms met different situations: they are compared with "
            "inverse propensity weights, and the plain averages are not used for that."
        )
    elif random == "unknown" and found.n_arms > 1:
        out.append(
            "The log has no propensities: comparing arms assumes that they were drawn at random."
        )
    families = set(law.by_arm.values())
    if len(families) > 1 and law.best is not None:
        other = sum(name != law.best.name for name in law.by_arm.values())
        if other:
            out.append(
                f"In {other} of {len(law.by_arm)} arms looked at on their own another law fits "
                f"better than the {law.best.name}."
            )
    return tuple(out)


def _named(arms: list[ArmSummary]) -> str:
    shown = ", ".join(repr(arm.label) for arm in arms[:5])
    more = f" and {len(arms) - 5} more" if len(arms) > 5 else ""
    return f"Arm {shown} has" if len(arms) == 1 else f"Arms {shown}{more} have"


def _it(arms: list[ArmSummary]) -> str:
    return "it" if len(arms) == 1 else "them"
