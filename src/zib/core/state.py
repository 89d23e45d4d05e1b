"""What a policy has learned: named arrays, declared once.

Every multi-armed policy keeps the same statistics of its arms (`ArmState`). What else it keeps, it
declares as a part of its own, and kernels read it by name, ``state.own.prob_cap[arm]``:

    class Caps(Part):
        prob_cap: Floats = per_arm()
        mean_cap: Floats = per_arm()
        log_total: Floats = per_arm(is_sum=True)  # adds up over rewards: merged and subtracted
        scale: Floats = scalar()                  # one number, read as state.own.scale[0]
        draws: Floats = count()                   # how often something has happened
        last: Floats = arm_number()               # an arm, or -1
        used: Floats = position("ring")           # how many entries of `ring` are filled
        prior: Scale = part(Scale)                # another part

From the declaration follow the empty state, arms that come and go, merging, subtracting, and the
checks of a loaded state (`zib.core.invariants`). A kernel that uses a stored number as a position
takes it through `clamped`, so that no number, whatever it is, makes it write outside an array.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from zib.core.registry import jitable
from zib.core.spec import Fixed

Floats = NDArray[np.float64]

MANY = 2**53  # counts beyond it would not grow by 1
MOST_ROUNDS = float(MANY)
# Of a reward, apart from zero: within these bounds sums of squares neither overflow, for any number
# of rounds, nor vanish.
LARGEST_REWARD, SMALLEST_REWARD = 1e100, 1e-100


# ---------------------------------------------------------------------------------- declared arrays


class Array(NamedTuple):
    """One declared array."""

    shape: tuple[int | str, ...]  # "arms", a number, or the name of a size given to `new_state`
    start: float = 0.0
    is_sum: bool = False
    is_arm: bool = False
    finite: bool = True
    least: float = -math.inf
    most: float = math.inf
    whole: bool = False
    inside: str | None = None  # the array this is a position in
    is_scratch: bool = False

    @property
    def is_per_arm(self) -> bool:
        """Whether there is one row per arm."""
        return self.shape[:1] == ("arms",)

    def empty(self, sizes: Mapping[str, int]) -> Floats:
        """Return the array before anything was learned."""
        shape = [sizes[n] if isinstance(n, str) else n for n in self.shape]
        claim(*shape)
        return np.full(shape, self.start)


def per_arm(*more: int | str, **about: Any) -> Any:
    """Declare one number per arm, or one row of `more` numbers.

    `start`: the value before anything was learned, 0 unless given. `is_sum`: adds up over the
    rewards of the arm. `finite=False`: infinity is allowed. `least`, `most`: the smallest and the
    largest value allowed. `whole=True`: whole numbers only.
    """
    return Array(("arms", *more), **about)


def scalar(**about: Any) -> Any:
    """Declare one number, kept in an array of length 1 so that kernels can change it."""
    return Array((1,), **about)


def count() -> Any:
    """Declare how often something has happened: a whole number."""
    return scalar(whole=True, least=0.0, most=MOST_ROUNDS)


def table(*shape: int | str, **about: Any) -> Any:
    """Declare an array that does not depend on the arms; `new_state` is given sizes with names."""
    return Array(shape, **about)


def scratch(*shape: int | str) -> Any:
    """Declare an array that kernels use as they like; what is in it means nothing."""
    return Array(shape, finite=False, is_scratch=True)


def position(array: str) -> Any:
    """Declare a position in another array of the same part, at most one behind its end."""
    return Array((1,), whole=True, least=0.0, inside=array)


def arm_number(*shape: int | str) -> Any:
    """Declare the number of an arm, or a table of them; −1 for none.

    It follows the arm when others are removed, and is −1 when the arm itself is.
    """
    return Array(shape or (1,), start=-1.0, is_arm=True, whole=True, least=-1.0)


@jitable
def clamped(index: float, size: int) -> int:
    """Return a stored number as a position in [0, size), whatever it is; NaN is 0."""
    return int(min(index, size - 1.0)) if index > 0.0 else 0


@jitable
def clamped_arm(number: float, n_arms: int) -> int:
    """Return a stored number of an arm, in [0, n_arms), or −1 for none."""
    return clamped(number, n_arms) if number >= 0.0 else -1


# -------------------------------------------------------------------------- room for what is loaded

_ROOM: ContextVar[list[int] | None] = ContextVar("room", default=None)


@contextmanager
def room_for(numbers: int) -> Iterator[None]:
    """Let states of at most so many numbers be made in this context."""
    token = _ROOM.set([numbers])
    try:
        yield
    finally:
        _ROOM.reset(token)


def claim(*shape: int) -> None:
    """Raise a ValueError if an array of this shape is larger than a context has room for.

    A saved file holds every number of its state, so a state with more numbers than the file has
    letters was never saved: it is refused before memory is taken for it.
    """
    room = _ROOM.get()
    if room is not None:
        room[0] -= math.prod(shape)
        if room[0] < 0:
            raise ValueError(f"an array of shape {shape} is larger than all that was saved")


# -------------------------------------------------------------------------------------------- parts


class Nested(NamedTuple):
    """A part inside a part."""

    kind: type[Part]

    def empty(self, sizes: Mapping[str, int]) -> Part:
        """Return the part before anything was learned."""
        return self.kind.new(sizes)


def part(kind: type[Part]) -> Any:
    """Declare another part."""
    return Nested(kind)


@dataclass_transform(
    field_specifiers=(per_arm, scalar, count, table, arm_number, scratch, position, part)
)
class Part(tuple[Any, ...], metaclass=Fixed):
    """Base of the named parts of a state; arrays are declared in the class body."""

    # Compiled code cannot tell two empty tuples apart, so an empty part has one array of length 0.
    declared: ClassVar[dict[str, Array | Nested]] = {"unused": Array((0,))}
    _fields: ClassVar[tuple[str, ...]] = ("unused",)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Collect the arrays of the class body, after those of the base classes."""
        super().__init_subclass__(**kwargs)
        own = {name: a for name, a in vars(cls).items() if isinstance(a, Array | Nested)}
        inherited: dict[str, Array | Nested] = {}
        for base in reversed(cls.__mro__[1:]):
            if base is not Part and issubclass(base, Part):
                inherited |= {name: a for name, a in base.declared.items() if name != "unused"}
        if own or inherited:
            cls.declared = {**inherited, **own}
            cls._fields = tuple(cls.declared)
            for position, name in enumerate(cls._fields):
                setattr(cls, name, property(operator.itemgetter(position)))

    def __new__(cls, *arrays: Any) -> Self:
        """Take the arrays in the order of their declaration."""
        return tuple.__new__(cls, arrays)

    @classmethod
    def new(cls, sizes: Mapping[str, int], **given: Any) -> Self:
        """Return the part before anything was learned; `sizes` gives "arms" and what is named.

        What is `given` by name stands for what follows from its declaration.
        """
        return cls(
            *(
                given.pop(name) if name in given else array.empty(sizes)
                for name, array in cls.declared.items()
            )
        )

    @classmethod
    def sum_names(cls) -> set[str]:
        """Return the names of the arrays that add up over rewards."""
        found: set[str] = set()
        for name, array in cls.declared.items():
            if isinstance(array, Nested):
                found |= {f"{name}.{inner}" for inner in array.kind.sum_names()}
            elif array.is_sum:
                found.add(name)
        return found

    @classmethod
    def keeps_sums(cls) -> bool:
        """Whether anything declared adds up over rewards."""
        return bool(cls.sum_names())

    def conflict(self, state: Any) -> str | None:
        """Return, in words, how the arrays contradict each other or the rest of the state.

        For what no declaration says of one array alone; states that come from outside are asked.
        """
        return None

    def _asdict(self) -> dict[str, Floats]:  # by this method Numba knows a tuple with names
        return dict(zip(self._fields, self, strict=True))

    def __reduce__(self) -> Any:
        return (type(self), tuple(self))


# --------------------------------------------------------------------------- the state of a policy


class ArmState(NamedTuple):
    """What a multi-armed policy has learned.

    For arm k: `pulls` n, `nonzero` B, `total` S (sum of the non-zero rewards) and `spread`, the
    centred sum of squares of the non-zero rewards. The centred form loses no digits when rewards
    are large against their spread, and two workers' statistics still add up.
    """

    pulls: Floats
    nonzero: Floats
    total: Floats
    spread: Floats
    clock: Floats  # [0]: rewards learned from
    horizon: Floats  # [0]: the horizon in force; in the state because the doubling trick changes it
    log_horizon: Floats  # [0]: its logarithm
    own: Any  # what the policy declares
    around: Any  # what a wrapper of the policy declares


COMMON: dict[str, Array] = {
    "pulls": per_arm(least=0.0, most=MOST_ROUNDS),
    "nonzero": per_arm(least=0.0, most=MOST_ROUNDS),
    "total": per_arm(),
    "spread": per_arm(least=0.0),
    "clock": scalar(least=0.0, most=MOST_ROUNDS),
    "horizon": scalar(start=1.0, least=1.0),
    "log_horizon": scalar(least=0.0),
}
_UNDECLARED = Array(("arms",), finite=False)


def new_state(
    n_arms: int,
    *,
    own: type[Part] = Part,
    around: type[Part] = Part,
    horizon: float = 1.0,
    sizes: Mapping[str, int] | None = None,
) -> ArmState:
    """Return the state of `n_arms` untried arms."""
    named = {"arms": n_arms, **(sizes or {})}
    common = {name: array.empty(named) for name, array in COMMON.items()}
    state = ArmState(**common, own=own.new(named), around=around.new(named))
    set_horizon(state, float(horizon))
    return state


@jitable
def set_horizon(state: Any, horizon: float) -> None:
    """Put a horizon in force."""
    state.horizon[0] = horizon
    state.log_horizon[0] = math.log(horizon)


def arrays(state: Any) -> Iterator[tuple[str, Array, Floats]]:
    """Return name, declaration and array of everything a state, or a part of one, holds.

    A state may also be a NamedTuple of a user's own; arrays that are not declared are per arm.
    """
    if isinstance(state, Part):
        yield from _arrays_of(state, "")
        return
    for field, held in state._asdict().items():
        if isinstance(held, Part):
            yield from _arrays_of(held, f"{field}.")
        else:
            yield field, COMMON.get(field, _UNDECLARED), held


def _arrays_of(part: Part, prefix: str) -> Iterator[tuple[str, Array, Floats]]:
    for (name, declaration), held in zip(part.declared.items(), part, strict=True):
        if isinstance(declaration, Nested):
            yield from _arrays_of(held, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", declaration, held


def _rebuilt(state: Any, new: Mapping[str, Floats]) -> Any:
    if isinstance(state, Part):
        return _rebuilt_part(state, "", new)
    return type(state)(
        *(
            _rebuilt_part(held, f"{field}.", new) if isinstance(held, Part) else new[field]
            for field, held in state._asdict().items()
        )
    )


def _rebuilt_part(part: Part, prefix: str, new: Mapping[str, Floats]) -> Part:
    return type(part)(
        *(
            _rebuilt_part(held, f"{prefix}{name}.", new)
            if isinstance(declaration, Nested)
            else new[f"{prefix}{name}"]
            for (name, declaration), held in zip(part.declared.items(), part, strict=True)
        )
    )


def copied(state: Any) -> Any:
    """Return a state with arrays of its own."""
    return _rebuilt(state, {name: array.copy() for name, _, array in arrays(state)})


def in_one_piece(state: Any) -> tuple[Any, NDArray[np.uint64]]:
    """Return a copy of a state whose arrays lie side by side in memory, and that memory.

    So compiled code can put a whole state aside, whatever it is made of.
    """
    sizes = [-(-array.nbytes // 8) for _, _, array in arrays(state)]
    memory = np.zeros(sum(sizes), dtype=np.uint64)
    new, start = {}, 0
    for (name, _, array), size in zip(arrays(state), sizes, strict=True):
        room = memory[start : start + size].view(array.dtype)[: array.size]
        new[name] = room.reshape(array.shape)
        new[name][...] = array
        start += size
    return _rebuilt(state, new), memory


def rearranged(state: Any, fresh: Any, sources: Sequence[int]) -> Any:
    """Return the state of other arms: for each, the arm of `state` it is, or −1 if it is untried.

    `fresh` is the empty state for as many arms. What is derived from all arms together has to be
    refreshed afterwards. The clock keeps counting the rewards of arms that are gone.
    """
    chosen = np.asarray(sources, dtype=np.int64)
    known = chosen >= 0
    # where each arm is now; the last entry stands for none
    n_arms = next(len(array) for _, declaration, array in arrays(state) if declaration.is_per_arm)
    now = np.full(n_arms + 1, -1.0)
    now[chosen[known]] = np.flatnonzero(known)
    new = {}
    for (name, declaration, array), (_, _, empty) in zip(arrays(state), arrays(fresh), strict=True):
        if declaration.is_per_arm:
            new[name] = empty.copy()
            new[name][known] = array[chosen[known]]
        elif declaration.is_arm:
            new[name] = now[array.astype(np.int64)]
        else:
            new[name] = array.copy()
    return _rebuilt(state, new)


def add_states(into: ArmState, other: ArmState, sign: float = 1.0) -> None:
    """Add the statistics of `other` to those of `into`, as if one had seen all rewards.

    With `sign` −1 those of `other`, which `into` contains, are taken out again.
    """
    count = into.nonzero + sign * other.nonzero  # of the sum, or of the rest
    total = into.total + sign * other.total
    a = into.nonzero if sign > 0 else count
    both = (a > 0) & (other.nonzero > 0)
    mean = (into.total if sign > 0 else total)[both] / a[both]
    apart = mean - other.total[both] / other.nonzero[both]
    weight = a[both] * other.nonzero[both] / (a[both] + other.nonzero[both])
    into.spread[:] += sign * other.spread
    into.spread[both] += sign * apart * apart * weight
    into.pulls[:] += sign * other.pulls
    into.nonzero[:] = count
    into.total[:] = total
    into.clock[0] += sign * other.clock[0]
    emptied = count == 0
    for (_, declaration, mine), (_, _, others) in zip(arrays(into), arrays(other), strict=True):
        if declaration.is_sum:
            mine += sign * others
            if sign < 0 and declaration.is_per_arm:
                mine[emptied] = 0.0
    if sign < 0:
        into.total[emptied] = 0.0
        into.spread[count <= 1] = 0.0
        np.maximum(into.spread, 0.0, out=into.spread)
