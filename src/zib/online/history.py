"""The last rewards of a contextual bandit with their features, and what was known before them.

Models that are fitted by iteration cannot take a reward out again. What can be done is to go back:
the state before the kept rewards is kept as well, and learning them again, one of them changed,
gives bit for bit the bandit that had seen the right reward in the first place.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from zib.contextual import policy
from zib.contextual.entry import LARGEST_FEATURE
from zib.contextual.per_arm import regrouped, with_arms
from zib.core import saved, validate
from zib.core.invariants import problem_in
from zib.core.saved import SavedStateError
from zib.online.features import Matrix


class Row(NamedTuple):
    """A reward that was learned."""

    arm: int  # its number at that time
    z: Matrix  # one row
    w: Matrix  # the same array where one vector serves both parts
    outcome: tuple[Any, ...]  # reward, and category where the policy is told it


class Regrouped(NamedTuple):
    """Arms came or went: for each of those after it the arm it was, or −1."""

    sources: tuple[int, ...]


class Learner(NamedTuple):
    """How rows are learned by a state of its own."""

    d: int
    q: int
    learn: Callable[..., Any]  # (pin, arm, z, w, row, reward, …)
    pin: Callable[[Any, Any], Any]  # of a policy and a state; rewards are not counted


class History:
    """The last rewards, and the state before them.

    Parameters
    ----------
    spec
        The policy before the first of them.
    n_arms
        The number of its labelled arms.
    keep
        How many rewards are kept at least; None for all.
    """

    def __init__(self, spec: Any, n_arms: int, keep: int | None) -> None:
        self.spec = spec
        self.n_arms = n_arms
        self.keep = keep
        self.state: Any = None  # before the first kept reward; None if nothing had been learned
        self.events: deque[Row | Regrouped] = deque()
        self.n_rows = 0
        self._pin: Any = None  # of `state`, for compiled code

    @property
    def is_whole(self) -> bool:
        """Whether every reward is kept."""
        return self.state is None

    def add(self, row: Row, learner: Learner) -> None:
        """Keep one more reward; the oldest is forgotten if there are too many."""
        self.events.append(row)
        self.n_rows += 1
        if self.keep is not None and self.n_rows > self.keep:
            self._forget_one(learner)

    def regroup(self, sources: Sequence[int]) -> None:
        """Note that arms come or go."""
        self.events.append(Regrouped(tuple(sources)))

    def _forget_one(self, learner: Learner) -> None:
        while isinstance(gone := self.events.popleft(), Regrouped):
            self.spec, self.n_arms, self.state = self._replay([gone], learner, self.state)
            self._pin = None
        self.n_rows -= 1
        if self._pin is None:
            if self.state is None:
                self.state = policy.init(self.spec, learner.d, learner.q)
            self._pin = learner.pin(self.spec, self.state)
        learner.learn(self._pin, gone.arm, gone.z, gone.w, 0, *gone.outcome)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_pin": None}

    def replayed(self, learner: Learner, changes: dict[int, tuple[Any, ...]]) -> Any:
        """Return the state after all kept rewards; `changes` gives outcomes of some of them."""
        return self._replay(self._changed(changes), learner, copy.deepcopy(self.state))[2]

    def replace(self, changes: dict[int, tuple[Any, ...]]) -> None:
        """Put other outcomes in the place of those at some positions."""
        self.events = deque(self._changed(changes))

    def _changed(self, changes: dict[int, tuple[Any, ...]]) -> list[Row | Regrouped]:
        events = list(self.events)
        for at, outcome in changes.items():
            events[at] = events[at]._replace(outcome=outcome)  # type: ignore[call-arg]
        return events

    def _replay(
        self, events: Iterable[Row | Regrouped], learner: Learner, state: Any
    ) -> tuple[Any, int, Any]:
        """Learn into `state`; return policy, number of arms and state afterwards."""
        spec, n_arms = self.spec, self.n_arms
        if state is None:
            state = policy.init(spec, learner.d, learner.q)
        pin = learner.pin(spec, state)
        for event in events:
            if isinstance(event, Row):
                learner.learn(pin, event.arm, event.z, event.w, 0, *event.outcome)
            else:
                n_arms = len(event.sources)
                spec = with_arms(spec, n_arms)
                fresh = policy.init(spec, learner.d, learner.q)
                state = regrouped(state, fresh, event.sources)
                pin = learner.pin(spec, state)
        return spec, n_arms, state

    def latest(self, n_arms: int) -> Iterator[tuple[int, int, Row]]:
        """Yield the rows, newest first: position, number of the arm now (−1 if gone), row."""
        now = {k: k for k in range(n_arms)}  # from numbers at the time to those of today
        for at, event in zip(
            range(len(self.events) - 1, -1, -1), reversed(self.events), strict=True
        ):
            if isinstance(event, Row):
                yield at, now.get(event.arm, -1), event
            else:
                now = {
                    source: now[k]
                    for k, source in enumerate(event.sources)
                    if source >= 0 and k in now
                }

    # ------------------------------------------------------------------------------- keeping it

    def to_data(self) -> dict[str, Any]:
        """Return everything as plain data."""
        rows = [event for event in self.events if isinstance(event, Row)]
        regroupings = [
            [at, list(event.sources)]
            for at, event in enumerate(self.events)
            if isinstance(event, Regrouped)
        ]
        one = all(row.z is row.w for row in rows)
        return {
            "keep": self.keep,
            "n_arms": self.n_arms,
            "base": None if self.state is None else saved.state_to_data(self.state),
            "regrouped": regroupings,
            "arms": [row.arm for row in rows],
            "outcomes": [list(row.outcome) for row in rows],
            "z": [row.z[0].tolist() for row in rows],
            "w": None if one else [row.w[0].tolist() for row in rows],
        }

    @classmethod
    def from_data(
        cls,
        data: Any,
        spec: Any,
        n_arms: int,
        widths: tuple[int, int],
        checked_outcome: Callable[[list[Any]], tuple[Any, ...]],
    ) -> History:
        """Return the rows of a file, or raise; `spec` and `n_arms` are those of today."""
        try:
            keep = data["keep"]
            if keep is not None:
                validate.integer("keep", keep, low=1)
            first = validate.integer("n_arms", data["n_arms"], low=0)
            history = cls(with_arms(spec, max(first, 1)), first, keep)
            history._read_events(data, widths, checked_outcome)
            number = first
            for event in history.events:
                bound = number if number else np.inf  # without labels numbers mean nothing
                if isinstance(event, Row):
                    if not 0 <= event.arm < bound:
                        raise ValueError(f"there is no arm number {event.arm}")
                else:
                    _check_sources(event.sources, number)
                    number = len(event.sources)
            if number != n_arms:
                raise ValueError(f"rows end with {number} arms, not with {n_arms}")
            if data["base"] is not None:
                like = policy.init(history.spec, *widths)
                history.state = saved.state_from_data(data["base"], like, "rows.base")
                problem = problem_in(history.state)
                if problem is not None:
                    raise ValueError(problem)
        except SavedStateError:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise SavedStateError(f"the saved entry 'rows' cannot be: {error}") from error
        return history

    def _read_events(
        self,
        data: dict[str, Any],
        widths: tuple[int, int],
        checked_outcome: Callable[[list[Any]], tuple[Any, ...]],
    ) -> None:
        arms, outcomes = data["arms"], data["outcomes"]
        n = len(arms)
        if not (isinstance(arms, list) and isinstance(outcomes, list) and len(outcomes) == n):
            raise ValueError("`arms` and `outcomes` must be lists of equal length")
        z = _features(data["z"], n, widths[0], "z")
        w = z if data["w"] is None else _features(data["w"], n, widths[1], "w")
        if z is w and widths[0] != widths[1]:
            raise ValueError("`w` is missing")
        rows = deque(
            Row(
                validate.integer("arms", arms[i], low=0),
                z[i : i + 1].copy(),
                w[i : i + 1].copy(),
                checked_outcome(outcomes[i]),
            )
            for i in range(n)
        )
        if z is w:
            rows = deque(row._replace(w=row.z) for row in rows)
        self.n_rows = n
        regroupings = {
            validate.integer("regrouped", at, low=0): Regrouped(tuple(sources))
            for at, sources in data["regrouped"]
        }
        for at in range(n + len(regroupings)):
            self.events.append(regroupings[at] if at in regroupings else rows.popleft())


def _features(data: Any, n: int, width: int, name: str) -> Matrix:
    rows = saved.array_from_data(data, np.zeros((n, width)), f"rows.{name}")
    validate.inside(name, rows, -LARGEST_FEATURE, LARGEST_FEATURE)
    return rows


def _check_sources(sources: tuple[Any, ...], n_arms: int) -> None:
    known = [validate.integer("regrouped", k, low=-1, high=n_arms - 1) for k in sources]
    moved = [k for k in known if k >= 0]
    if not known or len(set(moved)) != len(moved):
        raise ValueError("an arm cannot become two")
