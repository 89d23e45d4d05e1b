"""`evaluate`: the value of policies from a log of another one."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from typing import Any

from zib.core import validate
from zib.core.validate import InvalidParameterError
from zib.logs.log import Log, inflated_of
from zib.logs.ope.estimators import ESTIMATORS
from zib.logs.ope.evaluation import (
    DO_NOT_USE,
    Diagnostics,
    Evaluation,
    SupportError,
    Value,
    support_message,
)
from zib.logs.ope.learners import Learning
from zib.logs.ope.models import resolve_model
from zib.logs.ope.policies import LoggingTarget, Target, resolve_targets
from zib.logs.ope.propensities import resolve_source
from zib.logs.ope.readers import EvaluationPass, Survey
from zib.logs.passes import Reader, on_machines, read

INTERVALS = ("corrected", "asymptotic", "bootstrap")


@on_machines
def evaluate(
    log: Log,
    policies: Any,
    *,
    estimators: Sequence[str] = ("ips", "snips", "dr"),
    model: Any = "hurdle",
    propensities: Any = "logged",
    baseline: str | None = None,
    level: float = 0.95,
    interval: str = "corrected",
    clip: float = 10.0,
    folds: int = 2,
    learn_folds: int = 5,
    fit_rows: int = 500_000,
    replicates: int = 400,
    on_missing_support: str = "raise",
    seed: int = 0,
    progress: bool = False,
    backend: str = "serial",
    workers: int | None = None,
    scheduler: str | None = None,
) -> Evaluation:
    """Estimate what policies would have earned per decision, from a log of another policy.

    Parameters
    ----------
    log
        A `zib.datasets.LoggedData`, a `LogScan`, or anything else with their protocol. It is read
        two or three times, in memory that does not grow with it.
    policies
        A mapping of names to target policies, or a list. A target policy is ``"uniform"``,
        ``"logging"`` (the log's own policy: the mean of its rewards), an arm or
        ``zib.ope.always(arm)``, a mapping of arms to probabilities, a function of the context
        (n, d) that returns probabilities (n, K) in the order of ``log.arms``, a `zib.Bandit` (its
        propensities now), a `zib.ContextualBandit` whose arms have models of their own,
        ``zib.ope.snapshot(contextual_bandit, features=...)``, or ``zib.ope.learned(...)``: what is
        learned from this very log, cross-fitted.
    estimators
        Any of "ips", "snips", "dr", "sndr", "dm", "clipped", "switch", "replay"; see Notes.
    model
        "hurdle" (`zib.ope.Hurdle`), "one_part" (`zib.ope.OnePart`), or an object with
        ``fit(arm, context, reward, n_arms)`` and ``predict(context)`` giving (n, K).
    propensities
        "logged"; `zib.ope.Strata` (arms drawn at random within strata); a mapping of arms to
        probabilities or a function like a policy's (the logging policy, known); one number per
        row; "randomised", drawn with the same probabilities in every row, which are the shares of
        the arms in the log; or "estimated", from the context, with a warning.
    baseline
        Name of a policy; the others are compared with it. "logging" need not be in `policies`.
    level
        Confidence level of the intervals.
    interval
        "corrected" for skewness, "asymptotic" (normal) or "bootstrap" (studentised).
    clip
        Weights above it are cut by "clipped" and left to the model by "switch".
    folds
        Rows are predicted by a model fitted on the other folds. Rows of a cluster stay together.
    learn_folds
        The same for policies that are learned; each learns from all folds but one.
    fit_rows
        A model is fitted on at most so many rows, drawn at random; rows with a reward first.
    replicates
        Of the bootstrap.
    on_missing_support
        "raise" a `SupportError` when a policy plays arms the log cannot show, or "warn", widen the
        intervals by what such arms could pay at most, and lower the grade.
    seed
        Of folds, samples, replay and bootstrap.
    progress
        Whether to show a progress bar.
    backend, workers, scheduler
        "serial", or "dask": the log is read by the workers of a cluster, that of the scheduler with
        this address or one of `workers` processes made for it. Values are the same to the bit.

    Notes
    -----
    With w the target's probability of the logged arm over the propensity: "ips" is the mean of w·r,
    unbiased; "snips" divides by the mean weight, slightly biased and more stable; "dr" adds w times
    the residual to the model's prediction, unbiased whatever the model; "sndr" is its
    self-normalised form; "dm" is the prediction alone and has no interval; "clipped" is ips with
    weights of at most `clip`, too low if rewards are positive; "switch" uses dr where the weight is
    at most `clip` and the model alone elsewhere; "replay" keeps each row with probability w divided
    by the largest weight of the log (so, under uniformly random arms, the rows where a
    deterministic policy agrees with the log) and averages their rewards.

    Rewards that are mostly zero make estimates skewed. The corrected interval takes this out
    (Hall's transformation); the asymptotic one covers less than it says, and misses mostly above,
    when there are fewer than some hundred effective rewards. Of 2000 simulated logs with 20 000
    rows, 1 % rewards and lognormal sizes, nominal 95 % intervals of a value held the truth in 95 %
    (corrected), 91 % (asymptotic) and, of 500, 93 % (bootstrap); those of a difference between two
    arms in 94 %, 92 % and 91 %.

    A policy that was learned from these rows, such as a bandit that learned the log, looks better
    on them than it is. That is noticed, with a warning and a lower grade, when a bandit has learned
    as many rewards as the log holds, of each arm, zero and not; it is not noticed when a part of
    the log was learned, or more, or by something else. `zib.ope.learned` has no such problem: every
    row is evaluated with a policy learned without its fold. The value is the mean over these
    policies, which have learned from a little less than the whole log.

    Rows are taken as independent, or as dependent within the clusters of the log; propensities and
    fitted models as given; the bootstrap does not refit. For propensities that are shares of the
    same log, or estimated by the right model, the interval of "ips" is then too wide rather than
    too narrow; "snips" and "dr" lose little.

    Examples
    --------
    >>> import numpy as np
    >>> from zib.logs import LoggedData
    >>> rng = np.random.default_rng(0)
    >>> arm = rng.integers(2, size=20_000)
    >>> reward = (rng.random(20_000) < 0.02 * (1 + arm)) * rng.exponential(5.0, 20_000)
    >>> log = LoggedData.from_arrays(np.array(["a", "b"])[arm], reward, propensity=[0.5] * 20_000)
    >>> found = evaluate(log, {"b": "b"}, baseline="logging")
    >>> best = found.value("b", "dr")
    >>> best.low < 0.2 < best.high, best.grade
    (True, 'good')
    >>> found.difference("b", "dr").low > 0
    True
    """
    names = _estimators(estimators)
    level = validate.real("level", level, 0.0, 1.0, closed="neither")
    validate.choice("interval", interval, INTERVALS)
    clip = validate.real("clip", clip, 1.0)
    folds = validate.integer("folds", folds, low=2, high=100)
    learn_folds = validate.integer("learn_folds", learn_folds, low=2, high=100)
    fit_rows = validate.integer("fit_rows", fit_rows, low=100)
    replicates = validate.integer("replicates", replicates, low=200)
    validate.choice("on_missing_support", on_missing_support, ("raise", "warn"))
    seed = validate.integer("seed", seed, low=0)
    validate.flag("progress", progress)
    if not isinstance(log, Log):
        raise InvalidParameterError(
            f"`log` must be a zib.datasets.LoggedData or LogScan; got {type(log).__name__}"
        )
    if log.n_rows < 2:
        raise InvalidParameterError(f"`log` must have at least 2 rows; got {log.n_rows}")
    learning = Learning(log, learn_folds, fit_rows, seed)
    targets = resolve_targets(policies, log.arms, log.context_names, learning.target)
    base = _baseline(baseline, targets, len(log.arms))
    chosen = resolve_model(model)
    if not any(ESTIMATORS[e].model for e in names):
        chosen = None
    if chosen is not None and log.n_rows < 10 * folds:
        raise InvalidParameterError(
            f"`log` must have at least {10 * folds} rows to fit a model in {folds} folds; "
            f"got {log.n_rows}"
        )
    source = resolve_source(propensities, log, fit_rows, seed, folds)
    survey = Survey(log, source, chosen, folds, fit_rows, seed)
    _read(log, survey, "reading", progress, learning)
    survey.finish()
    learning.finish()
    _warn_seen_before(targets, survey)
    if interval == "bootstrap" and survey.clustered:
        raise InvalidParameterError(
            "`interval` must be 'corrected' or 'asymptotic' for a log with clusters; "
            "got 'bootstrap'"
        )
    done = EvaluationPass(log, targets, base, names, survey, clip, seed)
    if "replay" in names:
        _read(log, done.largest, "largest weights", progress)
    if interval == "bootstrap":
        done.resample(replicates)
    _read(log, done, "evaluating", progress)
    diagnostics = tuple(done.diagnostics(j) for j in range(len(targets)))
    for found in diagnostics:
        if found.missing_mass > 0.0:
            message = support_message(found.policy, found.missing)
            if on_missing_support == "raise":
                raise SupportError(message)
            warnings.warn(message, UserWarning, stacklevel=2)
    values = done.values(diagnostics, interval, level)
    _warn_bad(values, diagnostics)
    differences = done.differences(values, diagnostics, interval, level)
    inflated = inflated_of(log)
    if inflated:  # rewards were counted from it
        values = tuple(
            v._replace(value=v.value + inflated, low=v.low + inflated, high=v.high + inflated)
            for v in values
        )
    settings = {
        "rows": log.n_rows,
        "nonzero": int(survey.totals.nonzero.sum()),
        "arms": len(log.arms),
        "estimators": names,
        "model": None if chosen is None else repr(chosen),
        "propensities": source.description,
        "inflated": inflated,
        "baseline": baseline,
        "level": level,
        "interval": interval,
        "clip": clip,
        "folds": folds,
        "learn_folds": learn_folds if learning.targets else None,
        "clusters": done.clusters,
        "seed": seed,
    }
    return Evaluation(values, differences, diagnostics, settings)


def _estimators(given: Any) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else validate.words("estimators", given)
    if not names:
        raise InvalidParameterError("`estimators` must name at least one; got none")
    for name in names:
        if name not in ESTIMATORS:
            near = difflib.get_close_matches(str(name).lower(), ESTIMATORS, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            allowed = ", ".join(map(repr, ESTIMATORS))
            raise InvalidParameterError(
                f"`estimators` must be among {allowed}; got {validate.shown(name)}{hint}"
            )
    return tuple(dict.fromkeys(names))


def _baseline(baseline: str | None, targets: list[Target], n_arms: int) -> int | None:
    if baseline is None:
        return None
    names = [target.name for target in targets]
    if not isinstance(baseline, str):
        baseline = validate.shown(baseline)
    if baseline in names:
        return names.index(baseline)
    if baseline == "logging":
        targets.append(LoggingTarget("logging", n_arms))
        return len(names)
    known = ", ".join(map(repr, names))
    raise InvalidParameterError(
        f"`baseline` must be 'logging' or the name of a policy ({known}); "
        f"got {validate.shown(baseline)}"
    )


def _warn_bad(values: tuple[Value, ...], diagnostics: tuple[Diagnostics, ...]) -> None:
    for found in diagnostics:
        bad = [v for v in values if v.policy == found.policy and v.grade == DO_NOT_USE]
        if bad:
            which = ", ".join(v.estimator for v in bad)
            warnings.warn(
                f"policy {found.policy!r}: do not use its value by {which}: {bad[0].reasons[0]}",
                UserWarning,
                stacklevel=3,
            )


def _warn_seen_before(targets: list[Target], survey: Survey) -> None:
    """Warn of policies that seem to have learned from the log, and remember it."""
    for target in targets:
        found = target.seen_before(survey.totals.rows, survey.totals.nonzero)
        if found:
            target.remark = "it probably learned from these very rows, which flatters it"
            warnings.warn(
                f"policy {target.name!r}: {found}, so it probably learned from these very rows and "
                "its value is too high; evaluate it on other rows, or let it be learned in folds "
                "with zib.ope.learned(...)",
                UserWarning,
                stacklevel=3,
            )


def _read(log: Log, reader: Reader, what: str, progress: bool, *more: Reader) -> None:
    """Show the log to readers, with a progress bar if wanted."""
    if not progress:
        read(log, reader, *more)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0)
        read(log, reader, *more, tell=lambda share: bar.update(task, completed=share))
