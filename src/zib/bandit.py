"""`Bandit`: a policy that decides and learns, one decision at a time or in batches."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core import entry as _entry
from zib.core import kernel as kernel
from zib.core import saved as _saved
from zib.core import validate
from zib.core.rng import generator_from_data, generator_to_data
from zib.core.saved import SavedStateError
from zib.core.state import add_states, arrays, copied, problem_in, rearranged
from zib.core.validate import InvalidParameterError
from zib.mab.adaptive import ZIAdaptive
from zib.stats.arms import forget, observe
from zib.stats.intervals import ArmMeans, arm_means

LARGEST_REWARD = 1e100  # sums of squares stay finite for any number of rounds
FORMAT, FORMAT_VERSION = "zib.Bandit", 2
_PLAIN_NUMBERS = frozenset({float, int, bool, np.float64, np.bool_})

__all__ = ["ArmMeans", "Bandit", "Propensities", "SavedStateError"]


class Propensities(dict[Hashable, float]):
    """Probability of each arm at the next decision; `exact`, or with a standard `error`."""

    def __init__(self, values: Mapping[Hashable, float], *, exact: bool, error: float) -> None:
        super().__init__(values)
        self.exact = exact
        self.error = error


class _Parts(NamedTuple):
    arms: tuple[Hashable, ...]
    state: Any


class RewardDoor:
    """What both kinds of bandits do with a reward before they learn it."""

    _inflated: float
    _low: float
    _high: float
    _values: NDArray[np.float64] | None = None  # where only these rewards are allowed
    _known: frozenset[float] = frozenset()  # the same, to look one up fast
    _warn_after: float
    _horizon_hint = ""

    def _reward(self, reward: Any) -> float:
        value = (
            float(reward) if type(reward) in _PLAIN_NUMBERS else validate.real("reward", reward)
        ) - self._inflated
        if self._values is not None:
            if value in self._known or self._listed(np.array([value]))[0]:
                return value
            there = ", ".join(f"{v + self._inflated:.15g}" for v in self._values)
            raise InvalidParameterError(
                f"`reward` must be one of the policy's `values`, {there}; got {reward!r}"
            )
        if self._low <= value <= self._high:
            return value
        low, high = self._low + self._inflated, self._high + self._inflated
        raise InvalidParameterError(
            f"`reward` must be a finite number in [{low:g}, {high:g}]; got {reward!r}"
        )

    def _listed(self, rewards: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which rewards are among those there are, but for rounding errors."""
        values = self._values
        assert values is not None
        above = np.searchsorted(values, rewards).clip(1, values.size - 1)
        off = np.minimum(np.abs(rewards - values[above - 1]), np.abs(rewards - values[above]))
        # subtracting the inflated value rounds; what is not a number is not close to one
        close: NDArray[np.bool_] = off <= 1e-12 * (np.abs(values).max() + abs(self._inflated))
        return close

    def _warn_horizon(self) -> None:
        warnings.warn(
            f"the policy was made for a horizon of {self._warn_after:g} rewards and has learned "
            f"from more; it goes on{self._horizon_hint}",
            UserWarning,
            stacklevel=3,
        )
        self._warn_after = float("inf")


class Bandit(RewardDoor):
    """A multi-armed bandit policy in use.

    Parameters
    ----------
    spec
        The policy, such as ``zib.mab.ZITS(horizon=10_000, sigma=1.0)``. None:
        `zib.mab.ZIAdaptive`, which has to be told nothing.
    arms, n_arms
        Exactly one: the labels of the arms (any hashable values), or their number (labels are then
        0, 1, …).
    seed
        A whole number, a NumPy Generator (used as it is, not copied), or None for a fresh stream.
    inflated
        The reward that means "nothing happened", 0 unless said otherwise. A reward exactly equal to
        it is evidence for the occurrence part only.

    Notes
    -----
    `select` never changes what was learned and `update` never draws, so rewards may come late, in
    any order and in batches. Untried arms come first, ties are broken at random. Bad input raises
    one clear error and changes nothing. One object serves one thread; give each worker its own and
    `merge` them.

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

    _horizon_hint = ". Use zib.mab.Anytime(spec=...) when the horizon is unknown."

    def __init__(
        self,
        spec: Any = None,
        *,
        arms: Iterable[Hashable] | None = None,
        n_arms: int | None = None,
        seed: int | np.random.Generator | None = None,
        inflated: float = 0.0,
    ) -> None:
        spec = ZIAdaptive() if spec is None else spec
        kernel.lookup(spec)
        if getattr(spec, "needs_true_sizes", False):
            raise InvalidParameterError(
                "`size`='true' is for simulations, where the environment knows it; "
                "use 'component', 'variance' or 'estimated'"
            )
        if (arms is None) == (n_arms is None):
            raise InvalidParameterError(
                f"give exactly one of `arms` and `n_arms`; got arms={arms!r}, n_arms={n_arms!r}"
            )
        labels: tuple[Hashable, ...]
        if arms is None:
            labels = tuple(range(validate.integer("n_arms", n_arms, low=1)))
        else:
            labels = tuple(arms)
        if not labels:
            raise InvalidParameterError("`arms` must hold at least one label; got none")
        if len(set(labels)) != len(labels):
            raise InvalidParameterError(f"`arms` must be different from each other; got {labels!r}")
        self._spec = spec
        self._inflated = validate.real("inflated", inflated)
        low, high = getattr(spec, "reward_range", (-np.inf, np.inf))
        self._low = max(low, -LARGEST_REWARD)
        self._high = min(high, LARGEST_REWARD)
        listed = getattr(spec, "reward_values", None)
        self._values = None if listed is None else np.array(listed)
        self._known = frozenset(listed or ())
        self._rng = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)
        horizon = getattr(spec, "horizon", None)
        self._warn_after = float("inf") if horizon is None else float(horizon)
        self._select = _entry.select.for_spec(spec)
        self._update = _entry.update.for_spec(spec)
        self._adopt(_Parts(labels, kernel.init(spec, len(labels))))

    def _adopt(self, parts: _Parts) -> None:
        self._arms = parts.arms
        self._position = {label: k for k, label in enumerate(parts.arms)}
        self._state = parts.state
        self._pin = _entry.pin(self._spec, self._state, self._rng)
        self._clock = int(self._state.clock[0]) if hasattr(self._state, "clock") else 0

    # ------------------------------------------------------------------------------- what it is

    @property
    def spec(self) -> Any:
        """The policy's parameters."""
        return self._spec

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The labels, in the order of every array here."""
        return self._arms

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self._arms)

    @property
    def inflated(self) -> float:
        """The reward that means "nothing happened"."""
        return self._inflated

    @property
    def rng(self) -> np.random.Generator:
        """The random stream of the decisions."""
        return self._rng

    @property
    def state(self) -> Any:
        """A copy of what was learned."""
        return copied(self._state)

    @property
    def pulls(self) -> dict[Hashable, int]:
        """How many rewards each arm has learned from."""
        return {label: int(n) for label, n in zip(self._arms, self._state.pulls, strict=True)}

    def __getstate__(self) -> dict[str, Any]:
        # what is unpacked for compiled code holds addresses: it is made anew by the copy
        compiled = ("_pin", "_select", "_update")
        return {name: value for name, value in self.__dict__.items() if name not in compiled}

    def __setstate__(self, content: dict[str, Any]) -> None:
        self.__dict__.update(content)
        self._select = _entry.select.for_spec(self._spec)
        self._update = _entry.update.for_spec(self._spec)
        self._pin = _entry.pin(self._spec, self._state, self._rng)

    def __repr__(self) -> str:
        return f"Bandit({self._spec!r}, {self.n_arms} arms, {self._clock} rewards learned)"

    # -------------------------------------------------------------------------------- deciding

    def select(self) -> Hashable:
        """Return the label of the arm to play now."""
        arm: Hashable = self._arms[self._select(self._pin)]
        return arm

    def indices(self) -> dict[Hashable, float]:
        """Return the score of every arm; the next `select` takes the largest.

        For a Thompson sampling policy these are the draws the next `select` will make: the stream
        is copied, not advanced.
        """
        out = np.zeros(self.n_arms)
        _entry.scores.for_spec(self._spec)(self._preview(), out)
        return dict(zip(self._arms, out.tolist(), strict=True))

    def propensities(self, draws: int = 10_000) -> Propensities:
        """Return the probability of each arm at the next decision.

        Exact for index policies (ties share evenly) and wherever the policy knows it; else from
        `draws` simulated decisions on a stream of their own, with `error` the largest standard
        error. The decisions to come are not affected.
        """
        draws = validate.integer("draws", draws, low=1)
        found = kernel.lookup(self._spec)
        if found.propensities is not None:
            exact = found.propensities(self._spec, self._state)
            return Propensities(self._labelled(exact), exact=True, error=0.0)
        if not kernel.draws_randomly(self._spec):
            values = np.fromiter(self.indices().values(), dtype=np.float64)
            best = values == values.max()
            return Propensities(self._labelled(best / best.sum()), exact=True, error=0.0)
        counts = np.zeros(self.n_arms, dtype=np.int64)
        own = np.random.default_rng(copy.deepcopy(self._rng).integers(2**63, size=4))
        pin = _entry.pin(self._spec, self._state, own)
        _entry.count_choices.for_spec(self._spec)(pin, draws, counts)
        shares = counts / draws
        error = float(np.sqrt(shares * (1 - shares) / draws).max())
        return Propensities(self._labelled(shares), exact=False, error=max(error, 1 / draws))

    def means(self, level: float = 0.95) -> dict[Hashable, ArmMeans]:
        """Return, per arm, estimates and intervals of p, mu and r = p·mu separately.

        p: exact (Clopper–Pearson); mu: Student's t on the non-zero rewards; r: profile likelihood
        of the zero-inflated Gaussian with unknown spread. Each holds with probability about `level`
        for a number of pulls fixed in advance; a bandit's own choices bias estimates slightly
        downwards.
        """
        level = validate.real("level", level, low=0, high=1, closed="neither")
        found = arm_means(self._state, level, self._inflated)
        return dict(zip(self._arms, found, strict=True))

    # -------------------------------------------------------------------------------- learning

    def update(self, arm: Hashable, reward: float) -> None:
        """Learn the reward of one decision for `arm`, now or long after it was made."""
        k = self._index(arm)
        value = self._reward(reward)
        self._update(self._pin, k, value)
        self._clock += 1
        if self._clock > self._warn_after:
            self._warn_horizon()

    def update_many(self, arms: Iterable[Hashable], rewards: ArrayLike) -> None:
        """Learn a batch, in the given order; all of it or, after an error, nothing."""
        positions = np.array([self._index(arm) for arm in arms], dtype=np.int64)
        given = np.asarray(rewards)
        if given.shape != positions.shape or given.dtype.kind not in "fiub":
            raise InvalidParameterError(
                f"`rewards` must be numbers, one per arm, shape {positions.shape}; "
                f"got shape {given.shape} of {given.dtype}"
            )
        values = given.astype(np.float64) - self._inflated
        outside = ~((self._low <= values) & (values <= self._high))
        if self._values is not None:
            outside = ~self._listed(values)
        if outside.any():
            self._reward(given[np.argmax(outside)].item())  # raises and names the first one
        _entry.update_block.for_spec(self._spec)(self._pin, positions, values)
        self._clock += positions.size
        if self._clock > self._warn_after:
            self._warn_horizon()

    def revise(self, arm: Hashable, old: float, new: float) -> None:
        """Replace a reward learned earlier: a zero that turned out to be a sale, a refund.

        Exact for policies whose statistics are sums; the others raise.
        """
        self._need_sums("revise")
        k = self._index(arm)
        before, after = self._reward(old), self._reward(new)
        held = (
            self._state.nonzero[k] if before != 0 else self._state.pulls[k] - self._state.nonzero[k]
        )
        if held < 1:
            kind = "non-zero" if before != 0 else "zero"
            raise InvalidParameterError(
                f"`old` must be a reward learned for arm {arm!r}, which has no {kind} reward; "
                f"got {old!r}"
            )
        forget(self._state, k, before)
        kernel.weigh(self._spec, self._state, k, before, -1.0)
        observe(self._state, k, after)
        kernel.weigh(self._spec, self._state, k, after, 1.0)
        _entry.refresh.for_spec(self._spec)(self._pin, k)

    def merge(self, other: Bandit, *, since: Bandit | None = None) -> None:
        """Add what another worker learned, as if one bandit had seen all rewards.

        Parameters
        ----------
        other
            A bandit with the same policy and inflated value. Arms only it knows are added here.
        since
            The common state both started from, if it was not empty; it is then counted once. Arms
            of it that this bandit has removed stay removed.
        """
        self._need_sums("merge")
        for bandit in (other,) if since is None else (other, since):
            if bandit._spec != self._spec or bandit._inflated != self._inflated:
                raise InvalidParameterError(
                    "`other` must have the same policy and inflated value; "
                    f"got {bandit._spec!r}, inflated={bandit._inflated!r}"
                )
        gone = () if since is None else since._arms  # known before: this side removed them since
        known = {*self._position, *gone}
        labels = self._arms + tuple(a for a in other._arms if a not in known)
        total = self._spread_over(labels)
        add_states(total, other._spread_over(labels))
        if since is not None:
            base = since._spread_over(labels)
            for k, label in enumerate(labels):
                if label not in other._position:  # removed over there: not counted twice
                    for _, declaration, array in arrays(base):
                        if declaration.is_per_arm:
                            array[k] = 0.0
            if (base.pulls > total.pulls).any() or (base.nonzero > total.nonzero).any():
                raise InvalidParameterError(
                    "`since` must be the state both bandits started from; it holds more rewards"
                )
            add_states(total, base, sign=-1.0)
        self._adopt(_Parts(labels, total))
        self._refresh()

    # ------------------------------------------------------------------------------------ arms

    def add_arm(self, arm: Hashable) -> None:
        """Add an untried arm; it will be played next."""
        if arm in self._position:
            raise InvalidParameterError(f"`arm` must be new; {arm!r} is there already")
        self._adopt(_Parts((*self._arms, arm), self._spread_over((*self._arms, arm))))
        self._refresh()

    def remove_arm(self, arm: Hashable) -> None:
        """Forget an arm and what was learned about it."""
        self._index(arm)
        if self.n_arms == 1:
            raise InvalidParameterError(f"`arm` must leave at least one other; {arm!r} is the last")
        labels = tuple(a for a in self._arms if a != arm)
        self._adopt(_Parts(labels, self._spread_over(labels)))
        self._refresh()

    # ------------------------------------------------------------------------------ keeping it

    def dumps(self) -> str:
        """Return everything as JSON text (no pickle: reading it can run no code)."""
        return _saved.dumps(
            {
                "format": FORMAT,
                "format_version": FORMAT_VERSION,
                "policy": _saved.spec_to_data(self._spec),
                "arms": [_saved.label_to_data(label) for label in self._arms],
                "inflated": self._inflated,
                "state": _saved.state_to_data(self._state),
                "rng": generator_to_data(self._rng),
            }
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `dumps` to a file, whole or not at all."""
        _saved.write_atomically(path, self.dumps())

    @classmethod
    def loads(
        cls,
        text: str,
        *,
        seed: int | np.random.Generator | None = None,
        source: str = "the text",
    ) -> Self:
        """Return the bandit saved by `dumps`; see `load`."""
        content = _saved.loads(text, FORMAT, FORMAT_VERSION, source, oldest=FORMAT_VERSION)
        try:
            spec = _saved.spec_from_data(content["policy"])
            arms = [_saved.label_from_data(label) for label in content["arms"]]
            rng = generator_from_data(content["rng"]) if seed is None else seed
            bandit = cls(spec, arms=arms, seed=rng, inflated=content["inflated"])
            state = _saved.state_from_data(content["state"], bandit._state)
        except (KeyError, TypeError) as error:
            raise SavedStateError(f"{source} lacks or garbles an entry: {error}") from error
        problem = problem_in(state)
        if problem is not None:
            raise SavedStateError(f"{source} is damaged: {problem}")
        bandit._adopt(_Parts(bandit._arms, state))
        return bandit

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, seed: int | np.random.Generator | None = None
    ) -> Self:
        """Return the bandit saved at `path`.

        Without `seed` the random stream goes on exactly where it stopped: right for a restart, but
        two loads then explore alike. Give each further copy a `seed` of its own.
        """
        return cls.loads(Path(path).read_text(), seed=seed, source=str(path))

    # --------------------------------------------------------------------------------- helpers

    def _index(self, arm: Hashable) -> int:
        try:
            return self._position[arm]
        except (KeyError, TypeError):
            known = ", ".join(repr(label) for label in self._arms[:8])
            more = ", …" if self.n_arms > 8 else ""
            raise InvalidParameterError(
                f"`arm` must be one of {known}{more}; got {arm!r}"
            ) from None

    def _labelled(self, values: Any) -> dict[Hashable, float]:
        return dict(zip(self._arms, np.asarray(values).tolist(), strict=True))

    def _preview(self) -> Any:
        return _entry.pin(self._spec, self._state, copy.deepcopy(self._rng))

    def _refresh(self) -> None:
        _entry.refresh_all.for_spec(self._spec)(self._pin)

    def _need_sums(self, what: str) -> None:
        if not kernel.is_additive(self._spec):
            raise InvalidParameterError(
                f"`{what}` needs statistics that are sums over rewards; those of "
                f"{type(self._spec).__name__} depend on the order of the rewards"
            )

    def _spread_over(self, labels: tuple[Hashable, ...]) -> Any:
        """Return a copy of the state with the rows of `labels`; unknown labels are untried."""
        sources = [self._position.get(label, -1) for label in labels]
        return rearranged(self._state, kernel.init(self._spec, len(labels)), sources)
