"""Advice in words and plain tables: functions of its numbers that return text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from zib.logs.advise.collect import FEW, FEWEST_FOR_LAW, FEWEST_FOR_TAIL
from zib.report import numbers
from zib.report.numbers import percent, shortened
from zib.stats.intervals import Estimate

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from zib.logs.advise.advice import Advice
    from zib.logs.advise.balance import Balance
    from zib.logs.advise.collect import Collected, Randomised
    from zib.logs.advise.context import ContextReport
    from zib.logs.advise.estimates import ArmSummary
    from zib.logs.advise.law import LawReport, TailReport
    from zib.logs.advise.simulation import Simulation
    from zib.logs.advise.values import Dominant

    Array = NDArray[np.float64]

USUAL = 0.4  # share of the rows of a reward that may mean that nothing happened
MISMATCH = 0.001  # p-value below which arms do not occur as often as they should
DIFFERENT = math.log(20.0)  # evidence from which on magnitudes are said to differ
UNIFORM, LOG = "uniform", "as in the log"  # policies that every simulation has

Rows = list[tuple[str, ...]]


def number(x: float, digits: int = 4) -> str:
    """Return a number as it stands in an advice."""
    return numbers.number(x, digits, trim=True)


def interval(x: Estimate, digits: int = 4) -> str:
    """Return an estimate with its interval."""
    return numbers.interval(*x, digits, trim=True)


def arm_rows(advice: Advice, most: int, *, short: bool = False) -> tuple[tuple[str, ...], Rows]:
    """Return the head and the rows of the table of arms; the middle is left out beyond `most`.

    The `short` table is for terminals: fewer columns and digits.
    """
    weighted = any(arm.weighted is not None for arm in advice.arms)
    head: tuple[str, ...] = ("arm", "rows", "non-zero", "zeros", "p", "mu", "r", "from occurrence")
    if weighted:
        head = (*head, "r, plain average")
    make = _arm_row
    if short:
        head, make = ("arm", "rows", "zeros", "p", "mu", "r"), _short_row
    rows = [make(arm, weighted) for arm in advice.ranking]
    if len(rows) > most:
        bottom = max(most // 3, 1)
        left_out = len(rows) - most
        gap = (f"… {left_out} more …", *("" for _ in head[1:]))
        rows = [*rows[: most - bottom], gap, *rows[-bottom:]]
    rows.append(make(advice.overall, weighted))
    return head, rows


def _short_row(arm: ArmSummary, weighted: bool) -> tuple[str, ...]:
    parts = (interval(part, 3) for part in arm.compared)
    return (shortened(str(arm.label)), str(arm.rows), percent(arm.zero_share), *parts)


def _arm_row(arm: ArmSummary, weighted: bool) -> tuple[str, ...]:
    p, mu, r = arm.compared
    row = (
        shortened(str(arm.label)), str(arm.rows), str(arm.nonzero), percent(arm.zero_share),
        interval(p), interval(mu), interval(r), percent(arm.occurrence_share),
    )  # fmt: skip
    return (*row, number(arm.r.value)) if weighted else row


def plain_table(head: tuple[str, ...], rows: Rows) -> str:
    """Return columns of text, the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def law_rows(advice: Advice) -> tuple[tuple[str, ...], Rows]:
    """Return the table of fitted laws; BIC only where no value occurs again and again."""
    law = advice.law
    head: tuple[str, ...] = ("law", "parameters", "typical distance", "largest distance", "BIC")
    least = min((fit.bic for fit in law.fits), default=0.0)
    rows: Rows = []
    for fit in law.fits:
        inside = ", ".join(f"{k.replace('_', ' ')} {number(v)}" for k, v in fit.parameters.items())
        rows.append(
            (fit.name, inside, f"{fit.mean_distance:.4f}", f"{fit.distance:.3f}",
             f"+{fit.bic - least:.1f}")
        )  # fmt: skip
    if law.atoms:
        head, rows = head[:-1], [row[:-1] for row in rows]
    return head, rows


def time_rows(advice: Advice) -> tuple[tuple[str, ...], Rows]:
    """Return the table of tests over time."""
    head = ("what may change", "arm", "F", "degrees of freedom", "p value", "adjusted")
    tests = advice.times.tests if advice.times is not None else ()
    return head, [
        (t.about, "all" if t.arm is None else shortened(str(t.arm)), f"{t.statistic:.2f}",
         f"{t.freedom:.0f}", f"{t.p_value:.2g}", f"{t.adjusted:.2g}")
        for t in tests
    ]  # fmt: skip


def parameter_rows(advice: Advice) -> tuple[tuple[str, ...], Rows]:
    """Return the table of estimated parameters."""
    rows: Rows = [(p.name, interval(p.estimate), p.how) for p in advice.recommendation.parameters]
    return ("parameter", "estimate", "how"), rows


def simulation_rows(advice: Advice) -> tuple[tuple[str, ...], Rows]:
    """Return the table of earnings, the most first."""
    head: tuple[str, ...] = ("policy", "more than uniform", "lost to the best arm")
    ran = advice.simulation
    if ran is None:
        return head, []
    if not ran.contextual:
        head = (*head, "best arm played")
    ordered = sorted(ran.earned, key=lambda row: row.regret.value)
    rows = [
        (
            row.label,
            "–" if row.label == UNIFORM else interval(row.above_uniform),
            interval(row.regret),
            percent(row.best_share),
        )
        for row in ordered
    ]
    return head, [row[: len(head)] for row in rows]


def chance(share: float) -> str:
    """Return a probability from draws, which are too few for very small and large ones."""
    if share < 1e-4:
        return "< 0.01 %"
    return "> 99.99 %" if share > 1.0 - 1e-4 else percent(share, 2)


def difference_rows(advice: Advice, most: int = 12) -> tuple[tuple[str, ...], Rows]:
    """Return the table of the leading arm against the others, the closest first."""
    verdict = advice.verdict
    several = len(verdict.differences) > 1
    head: tuple[str, ...] = ("against", "pays more by", "relative", "leader is better")
    if several:
        head = (*head[:2], "all together", *head[2:])
    rows: Rows = []
    for d in verdict.differences[:most]:
        base = abs(verdict.value - d.single.value)
        relative = f"+{number(100 * d.single.value / base, 2)} %" if base else "–"
        row = (shortened(str(d.second)), interval(d.single, 3), relative, chance(d.chance))
        ends = f"[{number(d.together.low, 3)}, {number(d.together.high, 3)}]"
        rows.append((*row[:2], ends, *row[2:]) if several else row)
    return head, rows


def pair_rows(advice: Advice) -> tuple[tuple[str, ...], Rows]:
    """Return the table of all pairs, with intervals that hold together."""
    rows: Rows = [
        (
            f"{shortened(str(d.first))} − {shortened(str(d.second))}",
            interval(d.together, 3),
            chance(d.chance),
        )
        for d in advice.verdict.pairs
    ]
    return ("difference", "all together", "first is better"), rows


def chance_rows(advice: Advice, most: int = 12) -> tuple[tuple[str, ...], Rows]:
    """Return the table of the probabilities to be best and of expected losses."""
    rows: Rows = [
        (shortened(str(c.arm)), chance(c.best), number(c.loss, 3))
        for c in advice.verdict.chances[:most]
    ]
    return ("arm", "P(best)", "expected loss per row"), rows


def gain_words(advice: Advice) -> tuple[str, ...]:
    """Return what telling zeros apart buys, in sentences."""
    whole, ran = advice.overall, advice.simulation
    if advice.gain is None:
        return ("Nothing has been paid yet, so there is nothing to compare.",)
    first = (
        f"{percent(whole.zero_share)} of the rewards are zero. Of the variance of a reward "
        f"{percent(whole.occurrence_share)} comes from whether it is paid at all, the rest from "
        "its size."
    )
    if whole.nonzero == whole.rows:
        return (first, "Without zeros a zero-inflated policy has nothing to gain.")
    if ran is None or ran.against_plain is None:
        return (first, "What telling zeros apart is worth was not simulated.")
    found = ran.against_plain
    lost = {row.label: number(row.regret.value) for row in ran.earned}
    second = (
        f"In the simulation {found.telling}, the best policy that tells zeros apart, loses "
        f"{lost[found.telling]} against playing the best arm throughout; {found.plain}, the best "
        f"that takes the reward as one number, {lost[found.plain]}."
    )
    if found.saved.low > 0.0:
        third = (
            f"Against the best plain policy telling zeros apart saves {interval(found.saved)} in "
            f"{ran.rounds} rounds."
        )
    elif found.saved.high < 0.0:
        third = (
            "Telling zeros apart does not pay here: the best plain policy loses "
            f"{interval(_negative(found.saved))} less in {ran.rounds} rounds."
        )
    else:
        third = (
            "Against the best plain policy telling zeros apart buys little or nothing here: "
            f"{interval(found.saved)} in {ran.rounds} rounds, within the noise of the simulation."
        )
    return first, second, third


def _negative(x: Estimate) -> Estimate:
    return Estimate(-x.value, -x.high, -x.low)


def choice_words(ran: Simulation, default: str) -> str:
    """Return why the simulation speaks for the policy that is recommended."""
    main = ran.earned[0]
    if main.label == default:
        return f"In the simulation no policy did clearly better than the default, {default}."
    other = next(row for row in ran.earned if row.label == default)
    return (
        f"In the simulation {main.label} loses {interval(main.regret)} against playing the best "
        f"arm throughout, {interval(other.behind)} less than the default, {default}."
    )


def simulation_words(advice: Advice) -> tuple[str, ...]:
    """Return what the simulation says, in sentences."""
    ran = advice.simulation
    if ran is None:
        return ()
    main = ran.earned[0]
    words = [
        f"In {ran.rounds} rounds {main.label} would earn {interval(main.total)}, which is "
        f"{interval(main.above_uniform)} more than choosing at random."
    ]
    if main.above_uniform.low <= 0.0 and ran.alike > 0.0:
        words[0] += (
            f" That may be nothing: the probability that all arms pay the same is "
            f"{percent(ran.alike)} given the log, and then no policy earns more than another."
        )
    words.append(
        f"The intervals are over {ran.replications} worlds that the log leaves open, in which arms "
        "are closer to each other than their averages: a lucky arm is not taken at its word. "
        "Policies start without knowing the log."
    )
    if ran.contextual:
        words.append(
            "Every round has the context of a row of the log, and the best arm is the one that is "
            "best in that context."
        )
    rivals = [row for row in ran.earned[1:] if row.label not in (UNIFORM, LOG)]
    better = [row.label for row in rivals if row.behind.high < 0.0]
    equal = [row.label for row in rivals if row.behind.low <= 0.0 <= row.behind.high]
    if better:
        words.append(f"Somewhat more is earned by {' and '.join(better)}.")
    if equal:
        words.append(f"No difference beyond the noise: {' and '.join(equal)}.")
    return tuple(words)


def report(advice: Advice) -> str:
    """Return the whole advice as plain text."""
    rec = advice.recommendation
    verdict = advice.verdict
    parts = [verdict.words, "", f"{advice.overall.rows} rows, {len(advice.arms)} arms"]
    if advice.balance is not None and advice.balance.fails:
        parts = [advice.balance.words, *parts]
    elif advice.balance is not None:
        parts.append(advice.balance.words)
    parts += [*advice.notes, "", advice.table(), ""]
    if verdict.differences:
        parts += [f"{shortened(str(verdict.arm))} against the other arms"]
        parts += [_indented(plain_table(*difference_rows(advice))), ""]
        parts += [_indented(plain_table(*chance_rows(advice))), ""]
    parts += ["What zero inflation can buy", *(f"  {line}" for line in gain_words(advice)), ""]
    parts += ["Law of the non-zero rewards", f"  {advice.law.words}", f"  {advice.law.tail.words}"]
    if advice.law.fits:
        parts += ["", _indented(plain_table(*law_rows(advice)))]
    if advice.times is not None:
        parts += ["", "Over time", *(f"  {line}" for line in advice.times.words)]
    parts += ["", f"Recommended: {rec.code}"]
    if rec.unit != 1.0:
        parts.append(f"  for rewards divided by {rec.unit:g}")
    parts += [f"  {line}" for line in rec.reasons]
    parts += [f"  or {other.code}: {other.why}" for other in rec.alternatives]
    if rec.parameters:
        parts += ["", _indented(plain_table(*parameter_rows(advice)))]
    if advice.simulation is not None:
        parts += ["", "What it would have earned"]
        parts += [f"  {line}" for line in simulation_words(advice)]
        parts += ["", _indented(plain_table(*simulation_rows(advice)))]
    return "\n".join(parts).rstrip() + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


# ------------------------------------------------------------------------- sentences about parts


def law_words(law: LawReport) -> str:
    """Return which law comes closest and which single values stand out."""
    if law.constant is not None:
        return f"All non-zero rewards are {law.constant:.6g}: only how often matters."
    if law.best is None and law.n < FEWEST_FOR_LAW:
        return f"Too few non-zero rewards to fit a law ({law.n}; it takes {FEWEST_FOR_LAW})."
    if law.best is None:
        return "Every arm always pays the same amount when it pays, so there is no law to fit."
    inside = ", ".join(f"{k.replace('_', ' ')} {v:.4g}" for k, v in law.best.parameters.items())
    what = {"": "", "scaled": ", after bringing all arms to one mean",
            "centred": ", after centring all arms on one mean"}[law.adjusted]  # fmt: skip
    best = law.best
    text = (
        f"Of the laws tried the {best.name} fits best{what}: {inside}. Its distribution function "
        f"is off by at most {best.distance:.2g}"
    )
    if best.fits(law.n):
        text += ", no more than chance explains."
    else:
        text += (
            f" where chance explains {best.off_by_chance(law.n):.2g}, so it describes the shape "
            "and not the details."
        )
    if law.sign < 0:
        text += " All rewards are negative; the laws describe their size."
    if law.points > 1:
        text += (
            f" The rewards sit mostly on {law.points} values, which hold "
            f"{100 * law.points_share:.0f} % of them."
        )
    return f"{text} {atom_words(law)}".rstrip()


def atom_words(law: LawReport, most: int = 5) -> str:
    """Return which values occur again and again, the most frequent first, or nothing."""
    if not law.atoms or law.constant is not None:
        return ""
    first, *others = law.atoms[:most]
    text = f"The value {first.value:.6g} alone makes up {percent(first.share)} of them"
    if others:
        text += "; others are " + ", ".join(f"{a.value:.6g} ({percent(a.share)})" for a in others)
    more = len(law.atoms) - most
    if more > 0:
        text += f" and {more} more with at least 2 % each"
    return text + ("." if law.atoms_exact else " (in a sample).")


def dominant_words(arms: tuple[ArmSummary, ...], found: tuple[Dominant, ...]) -> tuple[str, ...]:
    """Return which arms one reward carries, and whether another arm leads without it."""
    out = []
    ranked = sorted((a for a in arms if a.rows), key=lambda a: -a.compared[2].value)
    for each in found[:3]:
        text = (
            f"One reward of {number(each.reward)} is {percent(each.share)} of all that arm "
            f"{each.arm!r} paid. Without it mu would be {number(each.mu_without)} instead of "
            f"{number(each.mu)}, and r {number(each.r_without)} instead of {number(each.r)}"
        )
        if len(ranked) > 1 and ranked[0].label == each.arm and ranked[0].weighted is None:
            second = ranked[1]
            if each.r_without < second.compared[2].value:
                text += f": then arm {second.label!r} would lead"
        out.append(text + ".")
    if len(found) > 3:
        out.append(f"Of {len(found) - 3} more arms one reward makes up more than 10 %.")
    return tuple(out)


def tail_words(tail: TailReport) -> str:
    """Return whether the variance is finite, in a sentence or two."""
    return f"{_tail_answer(tail)} {tail.remark}".strip()


def _tail_answer(tail: TailReport) -> str:
    if math.isnan(tail.index.value) and tail.finite_variance == "yes":
        return (
            "The variance is finite as far as the log shows: the largest magnitude occurs "
            "again and again, so the rewards look capped."
        )
    if math.isnan(tail.index.value):
        return (
            f"The tail cannot be judged: that takes at least {FEWEST_FOR_TAIL} non-zero rewards of "
            "different sizes."
        )
    near = (
        f"tail index {tail.index.value:.2f} [{tail.index.low:.2f}, {tail.index.high:.2f}] from "
        f"the {tail.k} largest magnitudes"
    )
    if tail.finite_variance == "yes":
        return f"The variance is finite ({near}, extreme value index {tail.extreme.value:.2f})."
    if tail.finite_variance == "no":
        return (
            f"The variance is infinite ({near}); moments of order below "
            f"{tail.index.value:.2f} are finite. If rewards cannot exceed some amount by "
            "design, the variance is finite all the same, but the largest rewards dominate it."
        )
    return f"Whether the variance is finite cannot be told ({near})."


def context_words(context: ContextReport) -> str:
    """Return whether the context matters, in one sentence."""
    if context.reason:
        return context.reason
    found = " and ".join(f"{t.part} p = {t.p_value:.2g}" for t in context.tests)
    if context.matters:
        return f"Which arm is best depends on the context (context × arm: {found})."
    return f"Nothing says that the best arm depends on the context (context × arm: {found})."


def balance_words(balance: Balance) -> str:
    """Return whether the arms met the same situations, and what follows, in a few sentences."""
    worst = balance.differences[0] if balance.differences else None
    apart = ""
    if worst is not None and math.isfinite(worst.difference):
        apart = (
            f"the largest difference is {worst.difference:.2f} standard deviations, in "
            f"{worst.column!r}"
        )
    p = "p < 0.01" if balance.p_value < 0.01 else f"p = {balance.p_value:.2g}"
    if not balance.fails:
        inside = f"{p}; {apart}" if apart else p
        return (
            "The arms met similar situations: the context does not tell which arm was played "
            f"({inside})."
        )
    text = (
        f"The arms were not drawn at random: the context tells which arm was played ({p}"
        + (f"; {apart} between arms {worst.high!r} and {worst.low!r}" if apart and worst else "")
        + "). Raw means compare situations rather than arms."
    )
    if not balance.comparable:
        return text
    where = (
        ""
        if balance.kept > 0.995
        else (f", in the {percent(balance.kept)} of the rows where every arm had a chance")
    )
    return (
        f"{text} The arms are compared by doubly robust values instead{where}; they are right only "
        "if the context holds every reason why one arm was chosen and not another."
    )


def balance_rows(balance: Balance, most: int = 15) -> tuple[tuple[str, ...], Rows]:
    """Return the columns in which the arms differ most."""
    head = ("column", "largest difference between two arms, in standard deviations", "high", "low")
    return head, [
        (d.column, f"{d.difference:.2f}", shortened(str(d.high)), shortened(str(d.low)))
        for d in balance.differences[:most]
    ]


def inflated_words(found: Collected, inflated: float) -> tuple[str, ...]:
    """Return which reward means that nothing happened, or which one might."""
    if inflated:
        return (
            f"A reward of {number(inflated)} means that nothing happened: p counts the others, and "
            f"laws and sizes describe what comes on top of it. Means and sums are in the units of "
            "the log.",
        )
    if found.counted is None or not found.n_rows:
        return ()
    values, counts = found.counted
    if not len(counts):
        return ()
    at = int(np.argmax(counts))
    share, zeros = counts[at] / found.n_rows, 1.0 - found.n_paid / found.n_rows
    if share < USUAL or zeros > 0.1 * share or len(counts) < 2:
        return ()
    text = number(float(values[at]), 6)
    return (
        f"{percent(share)} of the rewards are {text}. If that means that nothing happened, such as "
        f"the cost of a contact, say so: --inflated {values[at]:.6g} (inflated= in Python).",
    )


def drawn_words(
    labels: tuple[Hashable, ...],
    rows: Array,
    shares: Array | None,
    p: float,
    balance: Balance | None,
) -> tuple[str, ...]:
    """Return what speaks against arms drawn as it is said they were.

    `p` belongs to the test that arms occur with their `shares`; `balance` to that of the context.
    """
    out = []
    if shares is not None and p < MISMATCH:
        k = int(np.argmax(np.abs(rows / rows.sum() - shares)))
        out.append(
            f"The arms do not occur with the shares given (p = {p:.2g}; arm {labels[k]!r} has "
            f"{percent(rows[k] / rows.sum())} of the rows and should have {percent(shares[k])}): "
            "find out why before relying on any comparison."
        )
    if balance is not None and balance.fails:
        worst = balance.differences[0]
        out.append(
            "The arms are said to be drawn at random, but the context tells which arm was played "
            f"(p < {balance.error:g}; largest difference {worst.difference:.2f} standard "
            f"deviations, in {worst.column!r}): check how they were drawn."
        )
    return tuple(out)


def notes(
    found: Collected,
    arms: tuple[ArmSummary, ...],
    whole: ArmSummary,
    law: LawReport,
    random: Randomised,
    balance: Balance | None = None,
    effect: float = 1.0,
) -> tuple[str, ...]:
    """Return one sentence for each peculiarity; `effect` is the design effect of clusters."""
    out = []
    if found.clusters is not None:
        out.append(_cluster_words(found, effect))
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
    if balance is not None:
        pass  # said first, and at length
    elif random == "no":
        out.append(
            "The propensities vary, so arms met different situations: they are compared with "
            "inverse propensity weights, and the plain averages are not used for that."
        )
    elif random == "unknown" and found.n_arms > 1:
        out.append(
            "The log has no propensities: comparing arms assumes that they were drawn at random."
        )
    out += dominant_words(arms, law.dominant)
    families = set(law.by_arm.values())
    if len(families) > 1 and law.best is not None:
        other = sum(name != law.best.name for name in law.by_arm.values())
        if other:
            out.append(
                f"In {other} of {len(law.by_arm)} arms looked at on their own another law fits "
                f"better than the {law.best.name}."
            )
    return tuple(out)


def magnitude_words(log_odds: float) -> str:
    """Say whether arms differ in what they pay when they pay, and what that means for a policy.

    `log_odds` is the logarithm of the Bayes factor, for magnitudes that differ.
    """
    share = 'zib.mab.ZIAdaptive(magnitudes="shared")'
    if log_odds > DIFFERENT:
        return (
            "Arms differ in what they pay when they pay (Bayes factor "
            f"{number(math.exp(min(log_odds, 50.0)), 2)}): do not let them share magnitudes."
        )
    odds = number(math.exp(-log_odds), 2) if log_odds < 0.0 else number(math.exp(log_odds), 2)
    lean = "for the same magnitudes" if log_odds < 0.0 else "for different ones"
    return (
        "The log does not show that arms differ in what they pay when they pay (Bayes factor "
        f"{odds} {lean}). If you know from your business that they do not, {share} learns from "
        "how often they pay alone: 0.7 to 0.9 times the regret of the default where that is true, "
        "several times as much where it is not."
    )


def _cluster_words(found: Collected, effect: float) -> str:
    n = int(found.cluster_table()[0].max()) + 1
    width = f"{number(math.sqrt(effect), 2)} times as wide as if rows were independent"
    if found.repeated is None:
        return (
            f"Rows come in {n:,} clusters and may depend on each other within them. The design "
            f"effect is {number(effect, 3)}: intervals of differences are {width}."
        )
    return (
        f"Column `{found.repeated}` names {n:,} units in {found.n_rows:,} rows, so rows are not "
        f"independent. The design effect is {number(effect, 3)}: with it intervals of differences "
        f"are {width}. The verdict takes this into account, other intervals on this page do not; "
        f"name it with --cluster {found.repeated} (cluster={found.repeated!r} in Python)."
    )


def _named(arms: list[ArmSummary]) -> str:
    shown = ", ".join(repr(arm.label) for arm in arms[:5])
    more = f" and {len(arms) - 5} more" if len(arms) > 5 else ""
    return f"Arm {shown} has" if len(arms) == 1 else f"Arms {shown}{more} have"


def _it(arms: list[ArmSummary]) -> str:
    return "it" if len(arms) == 1 else "them"
