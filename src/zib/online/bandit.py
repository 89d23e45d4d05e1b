"""`Bandit`: a policy that decides and learns, one decision at a time or in batches."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from zib.core import entry, kernel, saved, validate
from zib.core.exact import ExactSums, sums_of
from zib.core.invariants import problem_in
from zib.core.validate import InvalidParameterError
from zib.mab.adaptive import ZIAdaptive
from zib.mab.watching import Watching
from zib.mab.wrappers import Wrapper
from zib.online import warm
from zib.online.allocation import GuardRails
from zib.online.base import Propensities, Seed
from zib.online.categories import checked_categories, checked_category
from zib.online.guard import Careful, InUseError, arrays_in, may_raise, undrawn
from zib.online.pending import NOTHING
from zib.online.sums import SummedArms
from zib.stats.arm_means import ArmMeans, arm_means

__all__ = ["ArmMeans", "Bandit"]


MOST_ARMS = 10_000_000  # more would not fit into memory
MOST_DECISIONS = 10_000_000  # at once


class Bandit(SummedArms):
    """A multi-armed bandit policy in use.

    Parameters
    ----------
    spec
        The policy, such as ``zib.mab.ZITS(horizon=10_000, sigma=1.0)``. None:
        `zib.mab.ZIAdaptive`, which has to be told nothing.
    arms, n_arms
        Exactly one: the labels of the arms (text, numbers, None, or tuples of these), or their
        number (labels are then 0, 1, …).
    seed
        A whole number, a NumPy Generator (used as it is, not copied), or None for a fresh stream.
    inflated
        The reward that means "nothing happened", 0 unless said otherwise. A reward exactly equal to
        it is evidence for the occurrence part only.
    least_share
        Least probability of every arm at every decision, at most 1/K.
    largest_share
        Largest probability of an arm without evidence. What it may not take goes to the arms with
        evidence, as the policy would play those alone. While no arm has evidence shares are as even
        as it takes, at most 1/K or `largest_share`, whichever is larger.
    evidence
        How many rewards of an arm, zeros included, must have returned (and not be forgotten, by
        policies that forget) until it may take more than `largest_share`. The zeros that decisions
        in flight count for (`set_pending`) are among them.
    draws
        How many decisions of a policy with random scores are simulated to know its shares.
    drift
        ``"auto"``: changes of arms are noticed, and what was before is forgotten
        (`zib.mab.Watching` around the policy). None: arms stay as they are.

    Notes
    -----
    `select` never changes what was learned and `update` never draws, so rewards may come late, in
    any order and in batches. Untried arms come first, ties are broken at random. Bad input raises
    one clear error, and after any error everything is as it was before. One object serves one
    thread: a second that comes while it is in use gets a RuntimeError. Give each worker its own and
    `merge` them.

    With a `least_share` or a `largest_share`, and wherever a propensity is asked for, a decision is
    **drawn from an allocation**: one probability per arm, computed from what was learned and used
    until something else is learned. For policies with random scores it is how often each arm wins
    in `draws` simulated decisions, for the others 1 for the largest score (ties share evenly);
    then shares are brought within the limits. The probability that is returned is therefore exact
    for the decision that was made, and never 0. The shares hold whether rewards have returned or
    not: a new arm whose rewards take a week stays at its `largest_share` for that week.

    Examples
    --------
    >>> import zib
    >>> bandit = zib.Bandit(zib.mab.ZIUCB(horizon=1000, sigma=1.0), arms=["red", "blue"], seed=1)
    >>> for _ in range(200):
    ...     arm = bandit.select()
    ...     bandit.update(arm, 5.0 if arm == "blue" else 0.0)
    >>> bandit.pulls["blue"] > 190
    True
    """

    _format = "zib.Bandit"
    _format_version = 3
    _compiled = (
        "_pin",
        "_select",
        "_score",
        "_update",
        "_update_block",
        "_allocations",
        "_allocated_at",
        "_select_from",
        "_view",
    )
    _changing = ("_state", "_sums")
    _horizon_hint = ". Use zib.mab.Anytime(spec=...) when the horizon is unknown."

    def __init__(
        self,
        spec: Any = None,
        *,
        arms: Iterable[Hashable] | None = None,
        n_arms: int | None = None,
        seed: Seed = None,
        inflated: float = 0.0,
        least_share: float = 0.0,
        largest_share: float = 1.0,
        evidence: int = 100,
        draws: int = 1_000,
        drift: Literal["auto"] | None = None,
    ) -> None:
        spec = ZIAdaptive() if spec is None else spec
        kernel.lookup(spec)
        if drift is not None:
            if not isinstance(drift, str) or drift != "auto":
                raise InvalidParameterError(
                    f'`drift` must be None or "auto"; got {validate.shown(drift)}'
                )
            spec = Watching(spec)
        if getattr(spec, "needs_true_sizes", False):
            raise InvalidParameterError(
                "`size`='true' is for simulations, where the environment knows it; "
                "use 'component', 'variance' or 'estimated'"
            )
        if (arms is None) == (n_arms is None):
            raise InvalidParameterError(
                "give exactly one of `arms` and `n_arms`; got "
                f"arms={validate.shown(arms)}, n_arms={validate.shown(n_arms)}"
            )
        if arms is None:
            arms = range(validate.integer("n_arms", n_arms, low=1, high=MOST_ARMS))
        labels = validate.labels("arms", arms)
        rails = GuardRails(
            least_share=least_share, largest_share=largest_share, evidence=evidence, draws=draws
        )
        rails.check_room(len(labels))
        super().__init__(spec, seed, inflated, getattr(spec, "horizon", None), rails)
        self._in_flight = {}
        self._adopt(labels, kernel.init(spec, len(labels)), self._no_sums(len(labels)))

    def _adopt(self, arms: tuple[Hashable, ...], state: Any, sums: ExactSums) -> None:
        self._arms = arms
        self._position = {label: k for k, label in enumerate(arms)}
        self._in_flight = self._kept_in_flight(self._position)
        self._state = state
        self._sums = sums
        self._prepare()

    def _prepare(self) -> None:
        self._select = entry.select.for_spec(self._spec)
        self._score = entry.scores.for_spec(self._spec)
        self._n_categories = int(getattr(self._spec, "n_categories", 0))
        told = self._n_categories > 0
        self._update = (entry.learn if told else entry.update).for_spec(self._spec)
        self._update_block = (entry.learn_block if told else entry.update_block).for_spec(
            self._spec
        )
        self._pin = entry.pin(self._spec, self._state, self._rng, self._sums)
        if may_raise(self._spec):
            careful = Careful(arrays_in((self._state, self._sums)))
            self._select = undrawn(self._rng, self._select)
            self._score = undrawn(self._rng, self._score)
            self._update = functools.partial(careful, self._update)
            self._update_block = functools.partial(careful, self._update_block)
        self._view = None
        self._select_from = self._select
        if self._in_flight:
            self._select = self._select_in_view
        self._forget_shares()

    # ------------------------------------------------------------------------------- what it is

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The labels, in the order of every array here."""
        return self._arms  # type: ignore[no-any-return]

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self._arms)

    @property
    def pulls(self) -> dict[Hashable, int]:
        """How many rewards each arm has learned from."""
        return {label: int(n) for label, n in zip(self._arms, self._state.pulls, strict=True)}

    def __repr__(self) -> str:
        return f"Bandit({self._spec!r}, {self.n_arms} arms, {self._learned} rewards learned)"

    # -------------------------------------------------------------------------------- deciding

    def select(
        self, arms: Iterable[Hashable] | None = None, *, return_propensity: bool = False
    ) -> Any:
        """Return the label of the arm to play now.

        Parameters
        ----------
        arms
            Labels of the arms that may be played this time; None: all.
        return_propensity
            Whether to return a pair, the label and the probability with which it was chosen. The
            decision is then drawn from an allocation (see the notes of `Bandit`), so the
            probability is exact and never 0. Asking costs a table look-up until something else is
            learned.

        Examples
        --------
        >>> import zib
        >>> bandit = zib.Bandit(arms=["red", "blue"], seed=1, least_share=0.1)
        >>> bandit.update_many(["red"] * 50 + ["blue"] * 50, [0.0] * 50 + [2.0] * 50)
        >>> bandit.select(return_propensity=True)
        ('blue', 0.9)
        >>> bandit.select(arms=["red"], return_propensity=True)
        ('red', 1.0)
        """
        if arms is None and return_propensity is False and not self._guarded:
            if not self._enter(False):
                raise InUseError
            try:
                return self._arms[self._select(self._pin)]
            finally:
                self._leave()
        asked = return_propensity is True or validate.flag("return_propensity", return_propensity)
        labels = None if arms is None else tuple(validate.iterable("arms", arms))
        if not self._enter(False):
            raise InUseError
        try:
            if not (asked or self._guarded):
                return self._arms[self._best(self._rows(labels))]
            found = self._allocation(labels)
            k = found.draw(self._rng)
            return (found.labels[k], found.shares[k]) if asked else found.labels[k]
        finally:
            self._leave()

    def select_many(
        self, n: int, arms: Iterable[Hashable] | None = None, *, return_propensity: bool = False
    ) -> Any:
        """Return a list of the arms to play in the next `n` decisions, before any reward returns.

        Parameters
        ----------
        n
            How many decisions.
        arms, return_propensity
            As for `select`; with `return_propensity` a pair, the labels and an array of their
            probabilities.

        Notes
        -----
        A policy with chance decides as in `n` calls of `select`. One without (ZIIMED, ZIKLUCB,
        ZIUCB, …) would play one arm `n` times. So it decides as if each decision made in the batch
        had been paid what its arm has paid on average: means stay as they are, and the arm becomes
        less uncertain, until it is the turn of others. With both, the first decision for an untried
        arm counts as a zero for the rest of the batch, which therefore does not all go to new
        arms. What was learned does not change.

        Where decisions are drawn from an allocation (see the notes of `Bandit`), it is made of the
        shares of the arms in such a batch, within the limits, and the probabilities are exact.

        A policy without chance whose statistics are not sums plays one arm `n` times, unless it was
        registered with `imagine`.

        Examples
        --------
        >>> import zib
        >>> bandit = zib.Bandit(zib.mab.ZIIMED(sigma=1.0), arms=["red", "blue"], seed=1)
        >>> sorted(bandit.select_many(4))
        ['blue', 'blue', 'red', 'red']
        >>> bandit.update_many(["red"] * 50 + ["blue"] * 50, [0.0, 1.0] * 25 + [0.0, 1.5] * 25)
        >>> batch = bandit.select_many(1_000)
        >>> batch.count("red"), batch.count("blue")
        (26, 974)
        """
        n = validate.integer("n", n, low=0, high=MOST_DECISIONS)
        asked = validate.flag("return_propensity", return_propensity)
        labels = None if arms is None else tuple(validate.iterable("arms", arms))
        with self._alone():
            if asked or self._guarded:
                found = self._allocation(labels, n)
                positions = found.draw_many(self._rng, n)
                chosen = [found.labels[k] for k in positions]
                return (chosen, np.array(found.shares)[positions]) if asked else chosen
            rows = self._rows(labels)
            decide, over = (self._select, self._pin) if labels is None else (self._best, rows)
            before = self._rng.bit_generator.state
            try:
                if n > 1 and self._counts_decisions(rows):
                    return [self._arms[k] for k in self._played(rows, n, self._rng)]
                return [self._arms[decide(over)] for _ in range(n)]
            except BaseException:
                self._rng.bit_generator.state = before
                raise

    def indices(self, arms: Iterable[Hashable] | None = None) -> dict[Hashable, float]:
        """Return the score of every arm, or of some `arms`; a plain `select` takes the largest.

        For a Thompson sampling policy these are the draws the next `select` will make: the stream
        is copied, not advanced. Limits on shares play no part.
        """
        given = None if arms is None else tuple(validate.iterable("arms", arms))
        with self._alone():
            rows = self._rows(given)
            preview = entry.pin(self._spec, self._deciding().state, self._same_stream())
            scores = self._scores(preview, rows).tolist()
            return dict(zip(self._arms if given is None else given, scores, strict=True))

    def propensities(
        self, draws: int = 10_000, *, arms: Iterable[Hashable] | None = None
    ) -> Propensities:
        """Return the probability of each arm, or of some `arms`, at the next decision.

        Exact for index policies (ties share evenly), wherever the policy knows it, and with limits
        on shares; else from `draws` simulated decisions on a stream of their own, with `error` the
        largest standard error. The decisions to come are not affected. To log the probability of
        a decision, use `select(return_propensity=True)`.
        """
        draws = validate.integer("draws", draws, low=1)
        given = None if arms is None else tuple(validate.iterable("arms", arms))
        with self._alone():
            rows = self._rows(given)
            labels = self._arms if given is None else given
            shares = np.array(self._allocation(given).shares) if self._guarded else self._sure(rows)
            if shares is None:
                return Propensities.of_counts(labels, self._counts(rows, draws, self._own_stream()))
            named = dict(zip(labels, shares.tolist(), strict=True))
            return Propensities(named, exact=True, error=0.0)

    def means(self, level: float = 0.95, *, anytime: bool = False) -> dict[Hashable, ArmMeans]:
        """Return, per arm, estimates and intervals of p, mu and r = p·mu separately.

        Parameters
        ----------
        level
            Probability with which an interval holds, in (0, 1): each by itself, not all together.
        anytime
            False: for a number of pulls fixed in advance. True: for all numbers of pulls at once,
            so that one may look after every reward and stop when one likes; with many non-zero
            rewards about 1.6 times as wide.

        Notes
        -----
        By default p: exact (Clopper–Pearson); mu: Student's t on the non-zero rewards; r: profile
        likelihood of the zero-inflated Gaussian with unknown spread. With `anytime` p: exact; mu:
        exact for Gaussian rewards; r: in the limit of many non-zero rewards, as is mu for others;
        mu and r are infinite before about twenty of them (`zib.stats.sequences`).

        Policies stop playing arms that look bad, so on average estimates are too low, by more than
        one would think: with five arms, p = .1, r = .10 to .14 and 5,000 rewards by 2 % (ZIUCB) to
        10 % (EpsilonGreedy) of r where magnitudes are Gaussian, by 4 to 14 % where they are
        exponential, by 5 to 17 % where they are log-normal, and by 44 % for an arm with p = .02
        that was given up after some 300 pulls. Looking 20 times at intervals for fixed pulls, one
        finds r outside at some time in 11 to 20, 22 to 28 and 25 to 33 % of these runs, not in 5 %;
        with `anytime` in less than 1 %.
        """
        level = validate.real("level", level, low=0, high=1, closed="neither")
        if validate.flag("anytime", anytime) and isinstance(self._spec, Wrapper):
            raise InvalidParameterError(
                "`anytime` needs the statistics of all rewards; "
                f"{type(self._spec).__name__} forgets some"
            )
        with self._alone():
            state = self._deciding().state
        found = arm_means(state, level, self._inflated, anytime=anytime)
        return dict(zip(self._arms, found, strict=True))

    # -------------------------------------------------------------------------------- learning

    def update(self, arm: Hashable, reward: float, category: int | None = None) -> None:
        """Learn the reward of one decision for `arm`, now or long after it was made.

        `category` is for policies with `categories`: which of them the reward is, 1, 2, …, or None
        where nothing happened.
        """
        value = self._reward(reward)
        told: tuple[Any, ...] = ()
        if category is not None or self._n_categories > 0:
            told = (checked_category(self._n_categories, category, value),)
        if not self._enter(False):
            raise InUseError
        try:
            k = self._index(arm)
            if self._learned + 1 > self._warn_after:
                self._warn_of_horizon()
            self._update(self._pin, k, value, *told)
            self._learned += 1
        finally:
            self._leave()

    def update_many(
        self, arms: Iterable[Hashable], rewards: ArrayLike, categories: ArrayLike | None = None
    ) -> None:
        """Learn a batch, in the given order; all of it or, after an error, nothing.

        `categories` is for policies that have them: one per reward, 0 where nothing happened.
        """
        # first what may run code of the caller's that uses this bandit
        labels = list(validate.iterable("arms", arms))
        values = self._rewards(rewards, len(labels))
        told: tuple[Any, ...] = ()
        if categories is not None or self._n_categories > 0:
            told = (checked_categories(self._n_categories, categories, values),)
        with self._alone():
            positions = np.array([self._index(arm, "arms") for arm in labels], dtype=np.int64)
            if self._learned + positions.size > self._warn_after:
                self._warn_of_horizon()
            self._update_block(self._pin, positions, values, *told)
            self._learned += positions.size

    # ------------------------------------------------------------------------------------ arms

    def add_arm(self, arm: Hashable) -> None:
        """Add an untried arm; it will be played next, or get `largest_share` of the decisions."""
        with self._alone():
            if validate.label("arm", arm) in self._position:
                raise InvalidParameterError(
                    f"`arm` must be new; {validate.shown(arm)} is there already"
                )
            labels = (*self._arms, arm)
            self._rails.check_room(len(labels))
            self._take(labels, *self._part_of(labels))

    def remove_arm(self, arm: Hashable) -> None:
        """Forget an arm and what was learned about it."""
        with self._alone():
            self._index(arm)
            if self.n_arms == 1:
                raise InvalidParameterError(
                    f"`arm` must leave at least one other; {validate.shown(arm)} is the last"
                )
            labels = tuple(a for a in self._arms if a != arm)
            self._take(labels, *self._part_of(labels))

    # ------------------------------------------------------------------------------ keeping it

    def _use_everything(self) -> None:
        warm.use(self)

    def _content(self) -> dict[str, Any]:
        if not self._sums.total.size:
            return {}
        out: dict[str, Any] = {"sums": saved.state_to_data(self._sums)}
        if self._in_flight:
            held = [self._in_flight.get(label, NOTHING) for label in self._arms]
            out["pending"] = {"zeros": [z for z, _ in held], "amounts": [f for _, f in held]}
        return out

    @classmethod
    def _rebuilt(
        cls, spec: Any, arms: Any, seed: Seed, content: dict[str, Any], **given: Any
    ) -> Self:
        return cls(
            spec, arms=arms, seed=seed, inflated=content["inflated"], **content.get("shares", {})
        )

    def _restore(self, content: dict[str, Any]) -> None:
        if self._sums.total.size == 0:
            return
        self._in_flight = self._checked_in_flight(**content.get("pending", {}))
        if "sums" not in content:  # written before there were any
            self._sums = sums_of(self._state)
            return
        sums = saved.state_from_data(content["sums"], self._sums, "sums")
        problem = problem_in(sums) or sums.differs_from(self._state)
        if problem is not None:
            raise saved.SavedStateError(f"the saved entry 'sums' cannot be: {problem}")
        self._sums = sums
