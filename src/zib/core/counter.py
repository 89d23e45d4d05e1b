"""Random streams that are a function of a counter, the same on processors and on GPUs.

Philox 4x32-10 (Salmon et al. 2011) turns a counter and a key into four random words. The key comes
from the seed. The counter holds the replication, the lane (what a stream is for: the policy, one of
the arms) and the number of the block, so nothing but a position is kept per stream, and a million
of them cost eight megabytes. Each block gives two numbers in [0, 1) with 53 bits each.

A `Stream` has the methods of a NumPy Generator that kernels use. They are plain Python; the
interpreter runs them as they stand, and the compiler of either target is told where to find them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.core.datamodel import models
from numba.core.imputils import impl_ret_borrowed
from numba.extending import lower_builtin, overload_method, register_model, type_callable
from numpy.typing import NDArray

from zib.core.registry import INLINED, borrowing, jitable

POLICY_LANE, INSTANCE_LANE, FIRST_ARM_LANE = 0, 1, 2

WORD = 0xFFFFFFFF
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
STEPS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
MOST_REPLICATIONS = 2**48
UNIT = 2.0**-53


@jitable
def philox(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Return four random words of 32 bits for a counter of four words and a key of two."""
    m0, m1 = MULTIPLIERS
    s0, s1 = STEPS
    for _ in range(ROUNDS):
        p0 = m0 * c0
        p1 = m1 * c2
        c0 = ((p1 >> 32) ^ c1 ^ k0) & WORD
        c1 = p1 & WORD
        c2 = ((p0 >> 32) ^ c3 ^ k1) & WORD
        c3 = p0 & WORD
        k0 = (k0 + s0) & WORD
        k1 = (k1 + s1) & WORD
    return c0, c1, c2, c3


def key_of(seed: int) -> tuple[int, int]:
    """Return the key of all streams of a seed."""
    first, second = np.random.SeedSequence(seed).generate_state(2, np.uint32)
    return int(first), int(second)


class Stream(NamedTuple):
    """One stream of random numbers.

    Attributes
    ----------
    first_key, second_key
        Of the seed.
    replication, lane
        Which stream it is.
    used
        [0]: how many numbers were drawn.
    """

    first_key: int
    second_key: int
    replication: int
    lane: int
    used: NDArray[np.int64]

    def random(self) -> float:
        """Draw from [0, 1)."""
        return float(_random(self))

    def standard_normal(self) -> float:
        """Draw from N(0, 1)."""
        return float(_standard_normal(self))

    def standard_exponential(self) -> float:
        """Draw from the exponential law with mean 1."""
        return float(_standard_exponential(self))

    def standard_gamma(self, shape: float) -> float:
        """Draw from the gamma law with scale 1."""
        return float(_standard_gamma(self, shape))

    def beta(self, a: float, b: float) -> float:
        """Draw from Beta(a, b)."""
        return float(_beta(self, a, b))

    def standard_t(self, df: float) -> float:
        """Draw from Student's t law."""
        return float(_standard_t(self, df))


def stream(seed: int, replication: int, lane: int) -> Stream:
    """Return the stream of this seed, replication and lane, at its beginning."""
    return Stream(*key_of(seed), replication, lane, np.zeros(1, dtype=np.int64))


# ------------------------------------------------------------------------------------------ draws


@jitable
def _words(s: Any, number: int) -> tuple[int, int, int, int]:
    """Return the four words of a block."""
    c1 = (((s.replication >> 32) & 0xFFFF) << 16) | ((number >> 32) & 0xFFFF)
    return philox(number & WORD, c1, s.replication & WORD, s.lane & WORD, s.first_key, s.second_key)


@jitable
def _block(s: Any, number: int) -> tuple[float, float]:
    """Return the two numbers of a block."""
    w0, w1, w2, w3 = _words(s, number)
    first = ((w0 >> 5) * 67108864.0 + (w1 >> 6)) * UNIT
    second = ((w2 >> 5) * 67108864.0 + (w3 >> 6)) * UNIT
    return first, second


@jitable
def _random(s: Any) -> float:
    n = int(s.used[0])
    s.used[0] = n + 1
    first, second = _block(s, n >> 1)
    return second if n & 1 else first


@jitable
def _next_block(s: Any) -> int:
    """Return the number of the next whole block, and go behind it."""
    block = (int(s.used[0]) + 1) >> 1
    s.used[0] = 2 * block + 2
    return block


@jitable
def _normal(first: float, second: float) -> float:
    # Box and Muller; the second normal that two numbers give is left out, as keeping it would make
    # what a stream returns depend on more than its position.
    return math.sqrt(-2.0 * math.log(1.0 - first)) * math.cos(2.0 * math.pi * second)


@jitable
def _standard_normal(s: Any) -> float:
    first, second = _block(s, _next_block(s))
    return _normal(first, second)


@jitable
def _proposed(s: Any) -> tuple[float, float]:
    """Draw a normal and a uniform number in (0, 1] from one block: 53, 43 and 32 bits."""
    w0, w1, w2, w3 = _words(s, _next_block(s))
    first = (w0 * 2097152.0 + (w1 >> 11)) * UNIT
    second = ((w1 & 0x7FF) * 4294967296.0 + w2) * 2.0**-43
    return _normal(first, second), (w3 + 1.0) * 2.0**-32


@jitable
def _proposed_twice(s: Any) -> tuple[float, float, float, float]:
    """Draw two normals and two uniform numbers from one block: 40, 32, 28 and 28 bits."""
    w0, w1, w2, w3 = _words(s, _next_block(s))
    radius = math.sqrt(-2.0 * math.log(1.0 - (w0 * 256.0 + (w2 & 0xFF)) * 2.0**-40))
    angle = (2.0 * math.pi * 2.0**-32) * w1
    first = ((w2 >> 8) * 16.0 + (w3 & 0xF) + 1.0) * 2.0**-28
    second = ((w3 >> 4) + 1.0) * 2.0**-28
    return radius * math.cos(angle), first, radius * math.sin(angle), second


@jitable
def _standard_exponential(s: Any) -> float:
    return -math.log(1.0 - _random(s))


@jitable
def _accepted(shape: float, x: float, u: float) -> float:
    """Return a draw of the gamma law made of a normal and a uniform number, or 0 for none.

    Marsaglia and Tsang (2000), for shapes from 1 on.
    """
    d = shape - 1.0 / 3.0
    v = 1.0 + 1.0 / math.sqrt(9.0 * d) * x
    if v <= 0.0:
        return 0.0
    v = v * v * v
    square = x * x
    if u < 1.0 - 0.0331 * square * square:
        return d * v
    if math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
        return d * v
    return 0.0


@jitable
def _until_accepted(s: Any, shape: float, found: float) -> float:
    """Return `found` if it is a draw, and draw until there is one if not."""
    while found == 0.0:
        x, u = _proposed(s)
        found = _accepted(shape, x, u)
    return found


@jitable
def _boost(s: Any, shape: float) -> float:
    """Return what turns a draw for a shape above 1 into one for the shape below it by 1."""
    return (1.0 - _random(s)) ** (1.0 / shape) if shape < 1.0 else 1.0


@borrowing
def _standard_gamma(s: Any, shape: float) -> float:
    if shape <= 0.0:
        return 0.0
    boost = _boost(s, shape)
    return boost * _until_accepted(s, shape if shape >= 1.0 else shape + 1.0, 0.0)


@borrowing
def _beta(s: Any, a: float, b: float) -> float:
    if a <= 1.0 and b <= 1.0:
        # Jöhnk: no gamma law of a small shape, which would underflow
        while True:
            u, v = _block(s, _next_block(s))
            log_x = math.log(1.0 - u) / a
            log_y = math.log(1.0 - v) / b
            top = max(log_x, log_y)
            log_sum = top + math.log(math.exp(log_x - top) + math.exp(log_y - top))
            if log_sum <= 0.0:
                return math.exp(log_x - log_sum)
    # two gamma laws; mostly one block is enough for both
    of_x, of_y = _boost(s, a), _boost(s, b)
    a = a if a >= 1.0 else a + 1.0
    b = b if b >= 1.0 else b + 1.0
    z, u, w, v = _proposed_twice(s)
    x = of_x * _until_accepted(s, a, _accepted(a, z, u))
    y = of_y * _until_accepted(s, b, _accepted(b, w, v))
    return x / (x + y)


@borrowing
def _standard_t(s: Any, df: float) -> float:
    z = _standard_normal(s)
    return z * math.sqrt(0.5 * df / _standard_gamma(s, 0.5 * df))


DRAWS: dict[str, Callable[..., Any]] = {
    "random": _random,
    "standard_normal": _standard_normal,
    "standard_exponential": _standard_exponential,
    "standard_gamma": _standard_gamma,
    "beta": _beta,
    "standard_t": _standard_t,
}


# -------------------------------------------------------------------------------- for the compiler


def opened(first_key: int, second_key: int, replication: int, lane: int, used: Any) -> Stream:
    """Return a stream that goes on where `used` says."""
    return Stream(first_key, second_key, replication, lane, used)


class StreamType(types.NamedTuple):
    """A type of its own: methods of all named tuples would hide fields of specs, such as `beta`."""


register_model(StreamType)(models.TupleModel)


@type_callable(opened)
def _type_opened(context: Any) -> Any:
    def opened_type(first_key: Any, second_key: Any, replication: Any, lane: Any, used: Any) -> Any:
        parts = (first_key, second_key, replication, lane, used)
        return StreamType([types.unliteral(part) for part in parts], Stream)  # type: ignore[no-untyped-call]

    return opened_type


@lower_builtin(opened, *[types.Integer] * 4, types.Array)  # type: ignore[untyped-decorator]
def _lower_opened(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    made = context.make_tuple(builder, signature.return_type, args)
    return impl_ret_borrowed(context, builder, signature.return_type, made)


def give_methods(overload_method: Callable[..., Any]) -> None:
    """Tell a compiler of the methods of a `Stream`; `overload_method` is that compiler's own."""
    for name, draw in DRAWS.items():
        overload_method(StreamType, name, jit_options=INLINED)(_always(draw))


def _always(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return what gives the compiler `draw`; it insists on the same parameters."""

    @functools.wraps(draw)
    def found(*args: Any, **kwargs: Any) -> Any:
        return draw

    return found


give_methods(overload_method)
