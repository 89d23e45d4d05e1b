"""What both kinds of bandits do alike: check rewards, name arms, save, load and copy."""

from __future__ import annotations

import copy
import math
import os
import threading
import time
import warnings
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zib.core import kernel, saved, validate
from zib.core.invariants import problem_in
from zib.core.rng import generator_from_data, generator_to_data
from zib.core.saved import SavedStateError
from zib.core.state import LARGEST_REWARD, SMALLEST_REWARD, room_for
from zib.core.validate import InvalidParameterError
from zib.online.allocation import GuardRails, of_largest
from zib.online.guard import InUseError

_PLAIN_NUMBERS = frozenset({float, bool, np.float64, np.bool_})

Seed = int | np.random.Generator | None


class Propensities(dict[Hashable, float]):
    """Probability of each arm at the next decision; `exact`, or with a standard `error`."""

    def __init__(self, values: Mapping[Hashable, float], *, exact: bool, error: float) -> None:
        super().__init__(values)
        self.exact = exact
        self.error = error

    @classmethod
    def of_largest(cls, scores: Mapping[Hashable, float]) -> Self:
        """Return the exact propensities of a policy without chance: ties share evenly."""
        shares = of_largest(np.fromiter(scores.values(), dtype=np.float64)).tolist()
        return cls(dict(zip(scores, shares, strict=True)), exact=True, error=0.0)

    @classmethod
    def of_counts(cls, labels: Iterable[Hashable], counts: NDArray[np.int64]) -> Self:
        """Return the propensities estimated by how often each arm was chosen."""
        draws = int(counts.sum())
        shares = counts / draws
        error = float(np.sqrt(shares * (1 - shares) / draws).max())
        named = dict(zip(labels, shares.tolist(), strict=True))
        return cls(named, exact=False, error=max(error, 1 / draws))


class OnlinePolicy:
    """Base of `Bandit` and `ContextualBandit`."""

    _format: ClassVar[str]
    _format_version: ClassVar[int]
    _oldest_format: ClassVar[int] = 2  # that can be read
    _horizon_hint: ClassVar[str] = ""
    _compiled: ClassVar[tuple[str, ...]]  # attributes that hold addresses, made anew by a copy
    _changing: ClassVar[tuple[str, ...]] = ("_state",)  # attributes that kernels write to

    _arms: Any  # labels, or None where actions are known by their row
    _position: dict[Hashable, int]
    _state: Any
    _learned: int

    def __init__(
        self,
        spec: Any,
        seed: Seed,
        inflated: float,
        horizon: float | None,
        rails: GuardRails | None = None,
    ) -> None:
        self._spec = spec
        self._rails = GuardRails() if rails is None else rails
        self._guarded = self._rails.limits  # decisions are drawn from an allocation
        self._inflated = validate.real("inflated", inflated, -LARGEST_REWARD, LARGEST_REWARD)
        low, high = getattr(spec, "reward_range", (-np.inf, np.inf))
        self._low = max(low, -LARGEST_REWARD)
        self._high = min(high, LARGEST_REWARD)
        listed = getattr(spec, "reward_values", None)
        self._values = None if listed is None else np.array(listed)  # only these are allowed
        self._known = frozenset(listed or ())  # the same, to look one up fast
        self._rng = validate.generator("seed", seed)
        told = math.inf if horizon is None else float(horizon)
        self._warn_after = math.inf if math.isnan(told) else told  # NaN: not told
        self._learned = 0
        self._lock()

    @abstractmethod
    def _prepare(self) -> None:
        """Unpack everything for compiled code."""

    # ------------------------------------------------------------------------ one at a time

    def _lock(self) -> None:
        """Make the lock that is held while anything is read or changed.

        Compiled code runs without the interpreter's lock, so two threads could do so at once.
        """
        lock = threading.Lock()
        self._enter, self._leave = lock.acquire, lock.release

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock, or raise if it is held: nobody waits, and nobody waits for ever."""
        if not self._enter(False):
            raise InUseError
        try:
            yield
        finally:
            self._leave()

    # ------------------------------------------------------------------------------- what it is

    @property
    def spec(self) -> Any:
        """The policy's parameters."""
        return self._spec

    @property
    def inflated(self) -> float:
        """The reward that means "nothing happened"."""
        return self._inflated

    @property
    def guard_rails(self) -> GuardRails:
        """The limits on the shares of the arms; `set_shares` changes them."""
        return self._rails

    def set_shares(
        self,
        *,
        least_share: float | None = None,
        largest_share: float | None = None,
        evidence: int | None = None,
        draws: int | None = None,
    ) -> None:
        """Change limits on the shares of the arms, from the next decision on; None: as it is."""
        given = {"least_share": least_share, "largest_share": largest_share,
                 "evidence": evidence, "draws": draws}  # fmt: skip
        rails = self._rails._replace(**{k: v for k, v in given.items() if v is not None})
        with self._alone():
            self._check_rails(rails)
            self._rails, self._guarded = rails, rails.limits
            self._forget_shares()

    def _check_rails(self, rails: GuardRails) -> None:
        """Raise if the arms cannot be kept within these limits."""

    def _forget_shares(self) -> None:
        """Make ready to compute the shares of the arms again."""

    @property
    def rng(self) -> np.random.Generator:
        """The random stream of the decisions."""
        return self._rng

    @property
    def state(self) -> Any:
        """A copy of what was learned."""
        with self._alone():
            return copy.deepcopy(self._state)

    # ---------------------------------------------------------------------------------- rewards

    def _reward(self, reward: Any, name: str = "reward") -> float:
        """Return a reward as the policy learns it, or raise."""
        plain = type(reward) in _PLAIN_NUMBERS
        value = (float(reward) if plain else validate.real(name, reward)) - self._inflated
        if self._values is not None:
            if value in self._known or self._listed(np.array([value]))[0]:
                return value
            there = ", ".join(f"{v + self._inflated:.15g}" for v in self._values)
            raise InvalidParameterError(
                f"`{name}` must be one of the policy's `values`, {there}; got "
                f"{validate.shown(reward)}"
            )
        if self._low <= value <= self._high:
            if value >= SMALLEST_REWARD or value <= -SMALLEST_REWARD or value == 0.0:
                return value
            raise InvalidParameterError(
                f"`{name}` must be {self._inflated:g} or differ from it by at least "
                f"{SMALLEST_REWARD:g}; got {validate.shown(reward)}"
            )
        low, high = self._low + self._inflated, self._high + self._inflated
        raise InvalidParameterError(
            f"`{name}` must be a finite number in [{low:g}, {high:g}]; got {validate.shown(reward)}"
        )

    def _rewards(self, rewards: ArrayLike, n: int, name: str = "rewards") -> NDArray[np.float64]:
        """Return the rewards of a batch of `n` as the policy learns them, or raise."""
        given = validate.numbers(name, rewards)
        if given.shape != (n,):
            raise InvalidParameterError(
                f"`{name}` must be numbers, one per arm, shape {(n,)}; got shape {given.shape}"
            )
        values = given - self._inflated
        if self._values is None:
            allowed = (self._low <= values) & (values <= self._high)
            allowed &= (np.abs(values) >= SMALLEST_REWARD) | (values == 0.0)
        else:
            allowed = self._listed(values)
        if not allowed.all():
            self._reward(given[np.argmin(allowed)].item(), name)  # raises: the first one
        return values

    def _listed(self, rewards: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which rewards are among those there are, but for rounding errors."""
        values = self._values
        assert values is not None
        above = np.searchsorted(values, rewards).clip(1, values.size - 1)
        off = np.minimum(np.abs(rewards - values[above - 1]), np.abs(rewards - values[above]))
        # subtracting the inflated value rounds; what is not a number is not close to one
        close: NDArray[np.bool_] = off <= 1e-12 * (np.abs(values).max() + abs(self._inflated))
        return close

    def _warn_of_horizon(self) -> None:
        """Warn once; before anything is learned, since a warning may be turned into an error."""
        horizon, self._warn_after = self._warn_after, float("inf")
        warnings.warn(
            f"the policy was made for a horizon of {horizon:g} rewards and has learned "
            f"from more; it goes on{self._horizon_hint}",
            UserWarning,
            stacklevel=3,
        )

    # ------------------------------------------------------------------------- labels and chance

    def _index(self, arm: Hashable, name: str = "arm") -> int:
        """Return the number of a labelled arm, or raise."""
        try:
            return self._position[arm]
        except (KeyError, TypeError):
            labels = self._arms or ()
            known = ", ".join(validate.shown(label) for label in labels[:8])
            more = ", …" if len(labels) > 8 else ""
            raise InvalidParameterError(
                f"`{name}` must be one of {known}{more}; got {validate.shown(arm)}"
            ) from None

    def _same_stream(self) -> np.random.Generator:
        """Return a stream that will draw what this one will, so that looking changes nothing."""
        return copy.deepcopy(self._rng)

    def _own_stream(self) -> np.random.Generator:
        """Return a stream of its own, for simulated decisions."""
        return np.random.default_rng(self._same_stream().integers(2**63, size=4))

    # ------------------------------------------------------------------------------- at the start

    def warm_up(self) -> float:
        """Compile whatever this bandit may need, before traffic arrives; return the seconds.

        Every call is made once on a copy, so nothing is learned and the stream does not move. The
        first time after an installation this compiles, which takes a minute for some policies;
        later it loads what is kept on disk. Policies of your own compile in each process. ``zib
        warm`` does the same from the shell.

        Examples
        --------
        >>> import zib
        >>> bandit = zib.Bandit(zib.mab.UCB1(), n_arms=3, seed=1)
        >>> before = bandit.dumps()
        >>> seconds = bandit.warm_up()
        >>> bandit.dumps() == before
        True
        """
        start = time.perf_counter()
        if not kernel.is_interpreted(self._spec):  # else nothing is compiled
            twin = copy.copy(self)
            twin._warn_after = float("inf")
            twin._use_everything()
        return time.perf_counter() - start

    @abstractmethod
    def _use_everything(self) -> None:
        """Make every call once; what is learned and drawn does not matter."""

    # ------------------------------------------------------------------------ copying and keeping

    def __getstate__(self) -> dict[str, Any]:
        left_out = (*self._compiled, "_enter", "_leave")
        content = {name: value for name, value in vars(self).items() if name not in left_out}
        with self._alone():  # copied now, not when somebody else has changed it
            return content | {name: copy.deepcopy(content[name]) for name in self._changing}

    def __setstate__(self, content: dict[str, Any]) -> None:
        vars(self).update(content)
        self._lock()
        self._prepare()

    def __copy__(self) -> Self:
        """Return an independent bandit; its stream goes on from the same point."""
        return copy.deepcopy(self)

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """Return what a file has to hold besides policy, labels, state and stream."""

    @classmethod
    @abstractmethod
    def _rebuilt(
        cls, spec: Any, arms: Any, seed: Seed, content: dict[str, Any], **given: Any
    ) -> Self:
        """Return a new bandit from a file's content; its state is put in afterwards."""

    def dumps(self) -> str:
        """Return everything as JSON text (no pickle: reading it can run no code)."""
        with self._alone():
            labels = self._arms
            return saved.dumps(
                {
                    "format": self._format,
                    "format_version": self._format_version,
                    "policy": saved.spec_to_data(self._spec),
                    "arms": None if labels is None else [saved.label_to_data(a) for a in labels],
                    "inflated": self._inflated,
                    "learned": self._learned,
                    "shares": self._rails.parameters(),
                    **self._content(),
                    "state": saved.state_to_data(self._state),
                    "rng": generator_to_data(self._rng),
                }
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `dumps` to a file, whole or not at all."""
        saved.write_atomically(validate.path("path", path), self.dumps())

    @classmethod
    def loads(cls, text: str, *, seed: Seed = None, source: str = "the text") -> Self:
        """Return the bandit saved by `dumps`; see `load`."""
        return cls._read(text, seed, source)

    @classmethod
    def _read(cls, text: str, seed: Seed, source: str, **given: Any) -> Self:
        """Return a saved bandit; what is `given` was not saved."""
        if not isinstance(text, str):
            raise validate.InvalidTypeError(f"`text` must be a string; got {validate.shown(text)}")
        content = saved.loads(
            text, cls._format, range(cls._oldest_format, cls._format_version + 1), source
        )
        with saved.entries_of(source), room_for(len(text)):
            labels = content["arms"]
            bandit = cls._rebuilt(
                saved.spec_from_data(content["policy"]),
                None if labels is None else saved.labels_from_data(labels),
                generator_from_data(content["rng"]) if seed is None else seed,
                content,
                **given,
            )
            bandit._learned = validate.integer("learned", content["learned"], low=0)
            bandit._state = saved.state_from_data(content["state"], bandit._state)
            problem = problem_in(bandit._state)
            if problem is not None:
                raise SavedStateError(f"{source} holds a state that cannot be: {problem}")
            bandit._restore(content)
            bandit._prepare()
        return bandit

    def _restore(self, content: dict[str, Any]) -> None:
        """Take over what else a file holds; the state is there already."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, seed: Seed = None) -> Self:
        """Return the bandit saved at `path`.

        Without `seed` the random stream goes on exactly where it stopped: right for a restart, but
        two loads then explore alike. Give each further copy a `seed` of its own.
        """
        return cls._read_file(path, seed)

    @classmethod
    def _read_file(cls, path: str | os.PathLike[str], seed: Seed, **given: Any) -> Self:
        file = validate.path("path", path)
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise SavedStateError(f"{file} is not a saved {cls._format}: {error}") from None
        return cls._read(text, seed, str(file), **given)
