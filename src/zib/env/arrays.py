"""Environments as arrays, from which compiled loops draw one reward at a time.

Other loops are handed rewards that NumPy has drawn. On a GPU every replication draws its own, from
the numbers here: how often each arm pays, what it loses against the best, and the parameters of its
law. Where all arms have laws of one kind, the kind is part of the type, and compiled code knows
nothing of others; `Several` asks every time.

Every array has a row per replication, or one row for all where the environment is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.core.registry import INLINED, Registry, borrowing, jitable
from zib.core.rng import Role, stream
from zib.core.validate import InvalidParameterError, shown
from zib.env.contextual import ContextualGLM
from zib.env.laws import (
    Constant,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMixture,
    Law,
    LogNormal,
    Lomax,
    Pareto,
    StudentT,
    Uniform,
)
from zib.env.mab import MAB, RandomMAB
from zib.env.mixtures import Empirical, Mixture, QuantileTable, ZeroInflated

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

LAWS = Registry("law", "LAWS.add(...)")


class Drawn(NamedTuple):
    """What is entered into `LAWS` for a kind of laws."""

    draw: Callable[..., float]


@LAWS.kernel(INLINED)
def draw(law: Any, arm: int, rng: Any) -> float:  # type: ignore[empty-body]
    """Draw what an arm pays when it pays."""


class Arms(NamedTuple):
    """Environments without contexts: per row, that is per replication, and arm."""

    prob: Floats
    gap: Floats
    law: Any


class Coefficients(NamedTuple):
    """Of environments with contexts, per row; see `zib.env.ContextualGLM`."""

    beta: Floats
    theta: Floats
    centres: Floats  # (rows, features, arms)


class Contexts(NamedTuple):
    """Environments with contexts: what differs between rows, and what does not."""

    coefficients: Coefficients
    link: Any
    codes: tuple[int, int]
    scales: tuple[float, float]


# ------------------------------------------------------------------------------------ single draws


@jitable
def _gaussian(mean: float, sd: float, rng: Any) -> Any:
    return mean + sd * rng.standard_normal()


@jitable
def _mixture(mean: float, sd: float, offset: float, rng: Any) -> Any:
    centre = mean + offset if rng.random() < 0.5 else mean - offset
    return centre + sd * rng.standard_normal()


@jitable
def _exponential(mean: float, rng: Any) -> Any:
    return mean * rng.standard_exponential()


@jitable
def _lognormal(log_mean: float, log_sd: float, rng: Any) -> Any:
    return math.exp(log_mean + log_sd * rng.standard_normal())


@jitable
def _pareto(scale: float, shape: float, shift: float, rng: Any) -> Any:
    return scale * math.exp(rng.standard_exponential() / shape) - shift


@jitable
def _gamma(scale: float, shape: float, rng: Any) -> Any:
    return scale * rng.standard_gamma(shape)


@borrowing
def _place(ends: Any, first: int, length: int, level: float) -> int:
    """Return the first position whose cumulative weight is larger than `level`."""
    low, high = first, first + length - 1
    while low < high:
        middle = (low + high) // 2
        if ends[middle] > level:
            high = middle
        else:
            low = middle + 1
    return low


@jitable
def _tabled(ends: Any, values: Any, first: int, length: int, rng: Any) -> Any:
    return values[_place(ends, first, length, rng.random())]


@jitable
def _interpolated(ends: Any, values: Any, first: int, length: int, rng: Any) -> Any:
    level = rng.random()
    at = max(_place(ends, first, length, level), first + 1)
    slope = (values[at] - values[at - 1]) / (ends[at] - ends[at - 1])
    return values[at - 1] + slope * (level - ends[at - 1])


# ------------------------------------------------------------------- laws of one kind, for all arms


class Gaussians(NamedTuple):
    """N(mean, sd²)."""

    mean: Floats
    sd: Floats


class Mixtures(NamedTuple):
    """½N(mean − offset, sd²) + ½N(mean + offset, sd²)."""

    mean: Floats
    sd: Floats
    offset: Floats


class Exponentials(NamedTuple):
    """Exponential laws."""

    mean: Floats


class LogNormals(NamedTuple):
    """exp(N(log_mean, log_sd²))."""

    log_mean: Floats
    log_sd: Floats


class Paretos(NamedTuple):
    """Pareto's law from `scale` on, less `shift`."""

    scale: Floats
    shape: Floats
    shift: Floats


class Gammas(NamedTuple):
    """Gamma laws."""

    scale: Floats
    shape: Floats


class Tables(NamedTuple):
    """Finitely many values; those of an arm begin at `first`, with cumulative weights in `ends`.

    (`length` is not called `count`: for GPUs that would be the method of all tuples.)
    """

    first: Counts
    length: Counts
    ends: Floats
    values: Floats


class Several(NamedTuple):
    """Arms with laws of different kinds: `kind` says which, `a`, `b`, `c` are its parameters."""

    kind: Counts
    a: Floats
    b: Floats
    c: Floats
    first: Counts
    length: Counts
    ends: Floats
    values: Floats


@jitable
def _draw_gaussian(law: Any, arm: int, rng: Any) -> Any:
    return _gaussian(law.mean[arm], law.sd[arm], rng)


@jitable
def _draw_mixture(law: Any, arm: int, rng: Any) -> Any:
    return _mixture(law.mean[arm], law.sd[arm], law.offset[arm], rng)


@jitable
def _draw_exponential(law: Any, arm: int, rng: Any) -> Any:
    return _exponential(law.mean[arm], rng)


@jitable
def _draw_lognormal(law: Any, arm: int, rng: Any) -> Any:
    return _lognormal(law.log_mean[arm], law.log_sd[arm], rng)


@jitable
def _draw_pareto(law: Any, arm: int, rng: Any) -> Any:
    return _pareto(law.scale[arm], law.shape[arm], law.shift[arm], rng)


@jitable
def _draw_gamma(law: Any, arm: int, rng: Any) -> Any:
    return _gamma(law.scale[arm], law.shape[arm], rng)


@jitable
def _draw_table(law: Any, arm: int, rng: Any) -> Any:
    return _tabled(law.ends, law.values, law.first[arm], law.length[arm], rng)


(
    GAUSSIAN, MIXTURE, EXPONENTIAL, LOGNORMAL, PARETO, GAMMA, TABLE, INTERPOLATED, STUDENT, UNIFORM,
    CONSTANT,
) = range(11)  # fmt: skip


@borrowing
def _draw_several(law: Any, arm: int, rng: Any) -> Any:
    kind, a, b, c = law.kind[arm], law.a[arm], law.b[arm], law.c[arm]
    if kind == GAUSSIAN:
        return _gaussian(a, b, rng)
    if kind == MIXTURE:
        return _mixture(a, b, c, rng)
    if kind == EXPONENTIAL:
        return _exponential(a, rng)
    if kind == LOGNORMAL:
        return _lognormal(a, b, rng)
    if kind == PARETO:
        return _pareto(a, b, c, rng)
    if kind == GAMMA:
        return _gamma(a, b, rng)
    if kind == TABLE:
        return _tabled(law.ends, law.values, law.first[arm], law.length[arm], rng)
    if kind == INTERPOLATED:
        return _interpolated(law.ends, law.values, law.first[arm], law.length[arm], rng)
    if kind == STUDENT:
        return a + b * rng.standard_t(c)
    if kind == UNIFORM:
        return a + b * rng.random()
    return a


for _kind, _draw in (
    (Gaussians, _draw_gaussian),
    (Mixtures, _draw_mixture),
    (Exponentials, _draw_exponential),
    (LogNormals, _draw_lognormal),
    (Paretos, _draw_pareto),
    (Gammas, _draw_gamma),
    (Tables, _draw_table),
    (Several, _draw_several),
):
    LAWS.add(_kind, Drawn(_draw))

# Kinds that have a type of their own, which takes the first so many of a, b, c.
OF_ONE_KIND: dict[int, type[Any]] = {
    GAUSSIAN: Gaussians,
    MIXTURE: Mixtures,
    EXPONENTIAL: Exponentials,
    LOGNORMAL: LogNormals,
    PARETO: Paretos,
    GAMMA: Gammas,
}

# ------------------------------------------------------------------------------ from laws to arrays

Row = tuple[int, float, float, float]
NO_TABLE = (np.empty(0), np.empty(0))


def _row(law: Law) -> Row:
    """Return kind and parameters of a law; the table of one that has a table is not among them."""
    match law:
        case Gaussian():
            return GAUSSIAN, law.mean, law.sigma, 0.0
        case GaussianMixture():
            return MIXTURE, law.mean, law.sigma, law.offset
        case Exponential():
            return EXPONENTIAL, law.mean, 0.0, 0.0
        case LogNormal():
            return LOGNORMAL, law.log_mean, law.log_sd, 0.0
        case Pareto():
            return PARETO, law.scale, law.shape, 0.0
        case Lomax():
            return PARETO, law.scale, law.shape, law.scale
        case Gamma():
            return GAMMA, law.scale, law.shape, 0.0
        case StudentT():
            return STUDENT, law.mean, law.scale, law.df
        case Uniform():
            return UNIFORM, law.low, law.high - law.low, 0.0
        case Constant():
            return CONSTANT, law.value, 0.0, 0.0
        case Empirical():
            return TABLE, 0.0, 0.0, 0.0
        case Mixture() if all(isinstance(part, Constant) for part in law.laws):
            return TABLE, 0.0, 0.0, 0.0
        case QuantileTable():
            return INTERPOLATED, 0.0, 0.0, 0.0
    raise InvalidParameterError(
        "`env` must have arms whose law is one of Gaussian, GaussianMixture, Exponential, "
        "LogNormal, Pareto, Lomax, Gamma, StudentT, Uniform, Constant, Empirical, QuantileTable or "
        f"a Mixture of constants, where every replication draws its own rewards; got {shown(law)}"
    )


def _table(law: Law) -> tuple[Floats, Floats]:
    """Return cumulative weights and values of a law that has a table."""
    if isinstance(law, QuantileTable):
        return np.array(law.levels), np.array(law.values)
    if isinstance(law, Empirical):
        weights, values = np.array(law.weights), np.array(law.values)
    elif isinstance(law, Mixture):
        weights = np.array(law.probs)
        values = np.array([part.mean for part in law.laws])
    else:
        return NO_TABLE
    ends = np.cumsum(weights / weights.sum())
    ends[-1] = 1.0  # rounding must not leave a gap at the top
    return ends, values


def _arms(environments: Sequence[MAB]) -> Arms:
    """Return arms of environments, one per row."""
    laws = [[_paid(law) for law in env.laws] for env in environments]
    rows = np.array([[_row(law) for law in each] for each in laws])
    kinds = rows[:, :, 0].astype(np.int64)
    return Arms(
        side_by_side([env.probs for env in environments]),
        side_by_side([env.gaps for env in environments]),
        _law_of_arms(kinds, [side_by_side(rows[:, :, j]) for j in (1, 2, 3)], laws),
    )


def _law_of_arms(kinds: Counts, parameters: list[Floats], laws: Sequence[Sequence[Law]]) -> Any:
    """Return the laws of all arms: those of one kind by themselves, if all are of that kind."""
    kind = int(kinds[0, 0])
    if (kinds == kind).all():
        if kind in OF_ONE_KIND:
            return _of_one_kind(kind, parameters)
        if kind == TABLE:
            return Tables(*_tables(laws))
    a, b, c = parameters
    return Several(side_by_side(kinds), a, b, c, *_tables(laws))


def _of_one_kind(kind: int, parameters: Sequence[Floats]) -> Any:
    of = OF_ONE_KIND[kind]
    return of(*parameters[: len(of._fields)])


def _paid(law: Law) -> Law:
    return law.law if isinstance(law, ZeroInflated) else law


def _tables(laws: Sequence[Sequence[Law]]) -> tuple[Counts, Counts, Floats, Floats]:
    """Return where the table of each arm begins, how long it is, and all tables, row by row."""
    tables = [[_table(law) for law in each] for each in laws]
    length = np.array([[ends.size for ends, _ in each] for each in tables], dtype=np.int64)
    first = np.cumsum(length, axis=1) - length
    longest = int(length.sum(axis=1).max())
    ends, values = np.ones((2, len(laws), longest))
    for row, each in enumerate(tables):
        for k, (levels, numbers) in enumerate(each):
            at = slice(int(first[row, k]), int(first[row, k] + length[row, k]))
            ends[row, at], values[row, at] = levels, numbers
    return side_by_side(first), side_by_side(length), side_by_side(ends), side_by_side(values)


def side_by_side(array: Any) -> NDArray[Any]:
    """Return an array whose rows lie side by side in memory: a GPU reads those of many at once."""
    return np.asfortranarray(array)


# ------------------------------------------------------------------- from environments to arrays


class World(NamedTuple):
    """What some replications are played in."""

    arrays: Any  # `Arms` or `Contexts`
    inflated: float = 0.0
    reward_sizes: Callable[[str], Floats] | None = None  # by kind, for policies that ask
    example: Any = None  # the first of the instances, where contexts arrive


def world_of(environment: Any, seed: int, first: int, last: int) -> World:
    """Return the environments of replications first, …, last − 1: those of every other backend.

    Raises
    ------
    InvalidParameterError
        If rewards cannot be drawn one by one from a few numbers.
    """
    if isinstance(environment, MAB):
        return _world([environment])
    sources = (stream(seed, Role.INSTANCE, replication) for replication in range(first, last))
    if isinstance(environment, RandomMAB):
        return _random_world(environment, sources)
    if not getattr(environment, "by_round", False):
        found = [environment.instance(source) for source in sources]
        if all(isinstance(env, MAB) for env in found):
            return _world(found)
        if all(isinstance(env, ContextualGLM) for env in found):
            return _contextual_world(found)
    raise InvalidParameterError(
        "`env` must have arms that stay as they are, or the contexts of ContextualGLM, and no "
        "delays or batches, where every replication draws its own rewards; got "
        f"{shown(environment)}"
    )


def _world(environments: Sequence[MAB]) -> World:
    def sizes(kind: Any) -> Floats:
        return np.array([env.reward_sizes(kind) for env in environments])

    return World(_arms(environments), environments[0].inflated, sizes)


def _random_world(environment: RandomMAB, sources: Iterable[np.random.Generator]) -> World:
    """Return the environments that `RandomMAB.instance` would draw, without making them."""
    means, probs = (np.array(parts) for parts in zip(*map(environment.draw_parameters, sources)))
    sd = np.full_like(means, environment.sigma)
    kind, parameters = {
        "gaussian": (GAUSSIAN, (means, sd)),
        "mixture": (MIXTURE, (means, sd, np.full_like(means, environment.offset))),
        "exponential": (EXPONENTIAL, (means,)),
    }[environment.family]
    values = means * probs

    def sizes(of: Any) -> Floats:
        from zib import theory

        if of == "subgaussian":
            size = environment.component_size()
            if not math.isfinite(size):
                return np.full_like(means, math.inf)
            return np.asarray(np.sqrt(theory.product_variance_proxy(means, probs, size)))
        each = np.vectorize(lambda mean: environment.law(mean).subexponential_size)(means)
        return np.asarray(theory.product_subexponential_size(means, probs, each))

    law = _of_one_kind(kind, [side_by_side(each) for each in parameters])
    gaps = values.max(axis=1, keepdims=True) - values
    return World(Arms(side_by_side(probs), side_by_side(gaps), law), reward_sizes=sizes)


def _contextual_world(environments: Sequence[ContextualGLM]) -> World:
    """Return environments with contexts, which differ in their coefficients and centres only."""
    example = environments[0]
    link, codes, *_ = example.parts
    coefficients = Coefficients(
        side_by_side([env.beta for env in environments]),
        side_by_side([env.theta for env in environments]),
        side_by_side([env.centres.T for env in environments]),
    )
    scales = (float(example.sigma), float(example.jitter))
    return World(Contexts(coefficients, link, codes, scales), example=example)
