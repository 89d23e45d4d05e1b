"""`advise`: from a log to a recommendation, and `Advice`, what it returns."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from zib.core import validate as check
from zib.logs.advise.balance import (
    Balance,
    BalanceReader,
    check_balance,
    doubly_robust,
    drawn,
    mismatch,
    with_values,
)
from zib.logs.advise.choose import (
    Choices,
    ContextualChoice,
    Gain,
    Parameter,
    choose,
    gain,
    with_context,
)
from zib.logs.advise.collect import Collected, Randomised, collect
from zib.logs.advise.collect import randomised as randomised_by_log
from zib.logs.advise.context import ContextReport, context_report
from zib.logs.advise.estimates import (
    ArmSummary,
    overall,
    summaries,
    within_sd,
)
from zib.logs.advise.law import LawReport, law_report
from zib.logs.advise.simulation import Played, Simulation, simulation
from zib.logs.advise.snippet import contextual_program, plain_program
from zib.logs.advise.times import TimeReport, time_report
from zib.logs.advise.units import in_log_units
from zib.logs.advise.verdict import WORTH, Verdict, arm_values, design_effect, verdict_on
from zib.logs.advise.words import (
    arm_rows,
    choice_words,
    drawn_words,
    inflated_words,
    magnitude_words,
    notes,
    plain_table,
    report,
)
from zib.logs.advise.worlds import compared_magnitudes
from zib.logs.log import Log, inflated_of
from zib.logs.passes import on_machines

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Alternative:
    """Another policy worth a look."""

    label: str
    code: str
    why: str


@dataclass(frozen=True)
class Recommendation:
    """The policy to use.

    Attributes
    ----------
    spec
        The policy, for rewards divided by `unit`; made for the horizon of the advice.
    label, code
        Its name, and Python text that makes it.
    contextual
        Whether it wants the context (`zib.ContextualBandit`).
    unit
        What rewards are divided by before the policy sees them.
    parameters
        The estimates behind it, in units of the rewards, with intervals where there are any.
    reasons
        Sentences.
    alternatives
        Other policies, with what speaks for them.
    snippet
        A complete program: it reads the log, learns from it where that is sound, and plays.
    """

    spec: Any
    label: str
    code: str
    contextual: bool
    unit: float
    parameters: tuple[Parameter, ...]
    reasons: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    snippet: str


@dataclass(frozen=True)
class Advice:
    """Everything `advise` found; print it, or `write` it as a page with figures.

    Attributes
    ----------
    verdict
        Ship an arm, keep testing, or no difference worth having; with the differences behind it.
    arms, overall
        What the log says about each arm, and about all rows together.
    law
        The law of the non-zero rewards.
    context
        Whether the context matters, or None for a log without one.
    balance
        Whether the arms met the same situations; None without context, and where the log or the
        caller says how arms were drawn.
    gain
        What telling zeros apart is worth, or None when nothing ever paid.
    recommendation
        The policy, with a program that runs it.
    simulation
        What it would have earned, or None.
    notes
        Sentences about peculiarities of the log.
    times
        What changes over time, or None for a log without times.
    inflated
        The reward that means "nothing happened". Means, sums and differences are in the units of
        the log; laws, sizes and the program's policy are about what comes on top of it.
    """

    verdict: Verdict
    arms: tuple[ArmSummary, ...]
    overall: ArmSummary
    law: LawReport
    context: ContextReport | None
    gain: Gain | None
    recommendation: Recommendation
    simulation: Simulation | None
    notes: tuple[str, ...]
    randomised: Randomised
    horizon: int
    level: float
    seed: int
    provenance: Mapping[str, Any]
    balance: Balance | None = None
    times: TimeReport | None = None
    inflated: float = 0.0

    @property
    def ranking(self) -> tuple[ArmSummary, ...]:
        """The arms by mean reward, best first; arms without data last."""
        return tuple(
            sorted(
                self.arms,
                key=lambda arm: -arm.compared[2].value if arm.rows else math.inf,
            )
        )

    def table(self, most: int = 12) -> str:
        """Return the arms as plain text, best first; the middle is left out beyond `most`."""
        return plain_table(*arm_rows(self, most, short=True))

    def __str__(self) -> str:
        return report(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, strings, lists and dicts; infinite numbers as strings."""
        from zib.logs.advise.page import to_data

        return to_data(self)

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``advice.html``, ``advice.json``, ``policy.py`` and the figures into `folder`.

        The page holds its images itself. Nothing is left half written: files are made elsewhere
        and moved in when all of them are complete. Returns the path of the page.
        """
        from zib.logs.advise.page import write

        return write(self, Path(folder))


@on_machines
def advise(
    log: Log,
    *,
    horizon: int | None = None,
    replications: int | None = None,
    simulate: bool = True,
    level: float = 0.95,
    worth: float = WORTH,
    randomised: bool | Mapping[Hashable, float] = False,
    seed: int = 0,
    timezone: str | None = None,
    source: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    backend: str = "serial",
    workers: int | None = None,
    scheduler: str | None = None,
) -> Advice:
    """Return what a log says about its arms, and the policy that suits it.

    Parameters
    ----------
    log
        A `LoggedData`, or a `LogScan` of any length: it is read once, in bounded memory (and twice
        more where arms have to be compared by doubly robust values).
    horizon
        Number of rounds the policy is to be used for; as many as the log has by default.
    replications
        Worlds to report from (≥ 2); as many others serve to choose the policy. By default as many
        as stay quick, 20 to 100.
    simulate
        Whether to let policies play in worlds drawn from the log, which decides between them and
        says what they would earn. Without it the default policy is recommended.
    level
        Probability of the intervals. On a log of equal arms a winner is declared with probability
        at most 1 − level.
    worth
        Smallest gain worth having, as a share of the best arm's mean reward. Arms that surely
        differ by less get the verdict "no difference worth having".
    randomised
        Whether the arms were drawn at random with the same probabilities in every row, where the
        log does not say so itself; or a mapping of arms to these probabilities.
    seed
        Of the samples taken from a long log and of the simulation. The answer does not depend on
        how the log is cut into batches.
    timezone
        Time zone of days, hours and weekdays, such as ``"Europe/Berlin"``, where the log has dates;
        UTC by default.
    source
        What the program reads: ``path`` and the columns ``arm``, ``reward``, ``propensity``,
        ``context``, …, as for `LoggedData.read`. Without it the program has names to be replaced.
    progress
        A function that is told what is being done, and which share of the work is done.
    backend, workers, scheduler
        "serial", or "dask": the log is read by the workers of a cluster, that of the scheduler with
        this address or one of `workers` processes made for it. The answer is the same to the bit.

    Notes
    -----
    Intervals: p by Clopper and Pearson; mu and r by Student's t with Hall's correction for
    skewness; where all rewards have one sign no end crosses 0 (`zib.stats.intervals.one_sided`).
    With fewer than ten non-zero rewards the spread of all arms is used, and r gets the joint
    likelihood bound of both parts (`zib.theory.joint_kl_upper`). With propensities every row counts
    1/propensity when arms are compared (self-normalised, linearised variances).

    Examples
    --------
    >>> import numpy as np
    >>> from zib.logs import LoggedData
    >>> rng = np.random.default_rng(0)
    >>> arm = rng.integers(0, 2, 4_000)
    >>> paid = rng.random(4_000) < np.array([0.05, 0.1])[arm]
    >>> log = LoggedData.from_arrays(arm, np.where(paid, rng.normal(8.0, 1.0, 4_000), 0.0))
    >>> advice = advise(log, simulate=False)
    >>> advice.law.best.name, advice.recommendation.label
    ('Gaussian', 'ZI adaptive')
    """
    if not isinstance(log, Log):
        raise check.InvalidParameterError(
            f"`log` must be a LoggedData or a LogScan; got {type(log).__name__}"
        )
    rounds = log.n_rows if horizon is None else check.integer("horizon", horizon, low=2)
    rounds = max(int(rounds), 2)
    if replications is not None:
        replications = check.integer("replications", replications, low=2)
    level = check.real("level", level, low=0, high=1, closed="neither")
    worth = check.real("worth", worth, low=0)
    seed = check.integer("seed", seed, low=0)
    check.flag("simulate", simulate)
    said = drawn(randomised, log)
    if source is not None and not isinstance(source, Mapping):
        raise check.InvalidTypeError(f"`source` must be a mapping; got {check.shown(source)}")
    tell = (
        (lambda message, share: None) if progress is None else check.function("progress", progress)
    )
    if inflated_of(log):
        source = {**(source or {}), "inflated": inflated_of(log)}
    reading = 0.6 if simulate else 0.9
    reader = BalanceReader(log, seed)
    found = collect(
        log, seed, lambda share: tell("reading the log", reading * share), reader,
        timezone=timezone,
    )  # fmt: skip
    random = randomised_by_log(found)
    if said.randomised and random == "no":
        raise check.InvalidParameterError(
            "`randomised` must be False for a log whose propensities vary; got "
            f"{check.shown(randomised)}"
        )
    balance = None if random == "no" else check_balance(log, reader, seed)
    remarks = inflated_words(found, inflated_of(log))
    if said.randomised or random == "yes":
        p = mismatch(found.rows, said.shares)
        remarks += drawn_words(log.arms, found.rows, said.shares, p, balance)
        random = "yes"
        balance = None
    elif balance is not None and balance.fails:
        random = "no"
        balance = doubly_robust(
            log, balance, level, seed, lambda share: tell("comparing arms", reading)
        )
    tell("fitting laws", reading)
    values = arm_values(found)
    verdict = verdict_on(
        found, balance, level=level, worth=worth, seed=seed, inflated=inflated_of(log),
        values=values,
    )  # fmt: skip
    whole = overall(found, level)
    arms = with_values(summaries(found, level, whole), balance)
    law = law_report(found, level)
    sd = within_sd(found, level)
    about = context_report(found)
    choices = choose(found, arms, whole, law, sd)
    remarks += notes(found, arms, whole, law, random, balance, design_effect(found, values))
    if random != "no" and found.clusters is None:
        means, _ = compared_magnitudes(arms, np.array([float(arm.nonzero) for arm in arms]))
        remarks += () if means is None else (magnitude_words(means.log_odds),)
    if balance is not None and not balance.comparable:
        remarks += (
            "The table of the arms shows raw means: what happened, not what arms are worth.",
        )
    some = int((found.rows > 0).sum())
    played = None
    if simulate and balance is not None and balance.fails:
        remarks += ("Nothing was simulated: earnings would rest on raw means.",)
    elif simulate and (whole.nonzero == 0 or some < 2):
        remarks += ("Nothing was simulated: that takes two arms with data and rewards to draw.",)
    elif simulate:
        start = reading + 0.05
        played = simulation(
            found, arms, whole, choices,
            context=about is not None and about.matters, rounds=rounds,
            replications=replications, level=level, seed=seed,
            tell=lambda message, share: tell(message, start + (1.0 - start) * share),
        )  # fmt: skip
        remarks += played.simulation.notes
    recommendation = _recommend(found, choices, about, played, rounds, random, source)
    tell("done", 1.0)
    origin = {"zib": version("zib"), "numpy": np.__version__, "seed": seed}
    advice = Advice(
        verdict, arms, whole, law, about, gain(found, whole, sd.value, rounds), recommendation,
        None if played is None else played.simulation, remarks, random, rounds, level, seed,
        origin, balance, time_report(found, level),
    )  # fmt: skip
    return in_log_units(advice, inflated_of(log))


def _recommend(
    found: Collected,
    choices: Choices,
    about: ContextReport | None,
    played: Played | None,
    rounds: int,
    random: Randomised,
    source: Mapping[str, Any] | None,
) -> Recommendation:
    """Return what lost least in the simulation; without one, the default."""
    candidates = choices.candidates
    if about is not None and about.matters and found.n_arms > 1:
        candidates = with_context(choices, found.n_arms)
    main = candidates[0]
    if played is not None:
        main = next(c for c in candidates if c.label == played.best.label)
    reasons = [] if about is None else [about.words]
    reasons += choices.reasons
    if found.n_arms == 1:
        reasons.insert(0, "The log has a single arm: there is nothing to choose between yet.")
    reasons.append(f"{main.label}: {main.why}.")
    if played is not None:
        reasons.insert(0, choice_words(played.simulation, candidates[0].label))
    if isinstance(main, ContextualChoice):
        program = contextual_program(main, found, rounds=rounds, unit=choices.unit, source=source)
    else:
        program = plain_program(
            main, found, rounds=rounds, unit=choices.unit, random=random, source=source
        )
    others = [c for c in (*candidates, *choices.others) if c is not main]
    if played is not None:  # by regret, then those that did not take part
        place = {label: i for i, label in enumerate(played.simulation.labels)}
        others.sort(key=lambda choice: place.get(choice.label, len(place)))
    return Recommendation(
        main.build(rounds), main.label, main.code(str(rounds)), main.contextual, choices.unit,
        choices.parameters, tuple(reasons),
        tuple(Alternative(o.label, o.code(str(rounds)), o.why) for o in others), program,
    )  # fmt: skip
