"""Every contextual policy keeps every promise, and the suite notices those that do not."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

import zib
from tests.contextual_policies import SPECS
from zib.contextual.policy import POLICIES, register_policy
from zib.core import spec as declare
from zib.core.entry import interpreted
from zib.testing import CONTEXTUAL_CHECKS, check_contextual_policy, contextual_checks_of
from zib.testing.specs import check_refusals


def is_slow(name: str, check: str) -> bool:
    """What compiles, but for one of the default policies; what integrates, but for one of two."""
    return name == "integrated ucb" or ("compiled" in check and name != "joint ucb")


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(name, check, marks=pytest.mark.slow if is_slow(name, check) else ())
        for name, spec in SPECS.items()
        for check in contextual_checks_of(spec)
    ],
)
def test_policy(name: str, check: str) -> None:
    with nullcontext() if "compiled" in check else interpreted():
        CONTEXTUAL_CHECKS[check](SPECS[name])


def test_no_registered_policy_is_left_out() -> None:
    native = {t for t in POLICIES if t.__module__.startswith("zib.")}
    assert native <= {type(spec) for spec in SPECS.values()}


# -------------------------------------------------------------------- specs that take what is wrong


class Careful(zib.Spec):
    level: float = declare.real(low=2)
    sigma: float | None = declare.optional(declare.positive())
    kind: str = declare.choice(("ucb", "ts"), default="ucb")


class Careless(zib.Spec):
    level: float = declare.converted(float, allowed="anything", default=1.0)


def _mute(level: float) -> float:
    if not 0.0 < level < 1.0:
        raise zib.InvalidParameterError("bad level")
    return level


class Mute(zib.Spec):
    level: float = declare.converted(_mute, allowed="number in (0, 1)", default=0.5)


def test_wrong_parameters_are_refused() -> None:
    check_refusals(Careful(level=3.0))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Careless(), "Careless must refuse level=nan"),
        (Mute(), "must be one sentence that names the parameter and the value; got 'bad level'"),
    ],
)
def test_a_spec_that_takes_anything_or_does_not_say_why_is_named(spec, message) -> None:
    with pytest.raises(AssertionError, match=message):
        check_refusals(spec)


# ------------------------------------------------------------------------- policies that break one


class Sums(NamedTuple):
    total: Any
    paid: Any


class Broken(zib.Spec):
    """The mean reward times the first feature, with a fault on demand."""

    fault: float = declare.real(default=0.0)


(SOUND, LEARNS, DRAWS, NAN, OVERFLOWS, BY_PLACE, MOVED_BY_ZERO, HUGE) = range(8)


def init(spec, d, q):
    return Sums(np.zeros(1), np.zeros(1, dtype=np.int64))


def scores(spec, state, arms, z, w, rng, work, out):
    for k in range(out.size):
        out[k] = z[0, k] * state.total[0]
        if spec.fault == NAN:
            out[k] = 0.0 * math.inf
        if spec.fault == BY_PLACE:
            out[k] += k
        if spec.fault == OVERFLOWS:
            # wraps around in compiled code, not in Python
            big = 2**62
            big = big + k * big
            out[k] += big * 4.0
        if spec.fault == HUGE and abs(z[0, k]) > 1e6:
            out[k] = math.inf
    if spec.fault == LEARNS:
        state.total[0] += 1.0


def update(spec, state, arm, z, w, reward):
    state.paid[0] += 1
    if reward != 0.0 or spec.fault == MOVED_BY_ZERO:
        state.total[0] += 0.1 * (reward - state.total[0])
    if spec.fault == DRAWS:
        np.random.random()  # noqa: NPY002


def moments(spec, state, arms, z, w, work, out):
    for k in range(out.shape[1]):
        for r in range(5):
            out[r, k] = 0.0
        out[2, k] = z[0, k] * state.total[0]


register_policy(Broken, init=init, scores=scores, update=update, moments=moments)


def test_the_sound_version_passes() -> None:
    check_contextual_policy(Broken(fault=SOUND), 2, 2, rounds=40)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (LEARNS, "must not change the state"),
        (DRAWS, "must not draw random numbers"),
        (NAN, "NaN score in round 0 of the scene 'dense'"),
        (OVERFLOWS, "part company in round 0"),
        (BY_PLACE, "must not depend on the place"),
        (MOVED_BY_ZERO, "says nothing about the magnitude"),
        (HUGE, "scores in round 0 with features of size 1e[+]08"),
    ],
)
def test_a_broken_promise_is_named(fault: int, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_contextual_policy(Broken(fault=fault), 2, 2, rounds=40)


def test_unregistered_policies_are_refused() -> None:
    with pytest.raises(TypeError, match="not a registered contextual policy"):
        check_contextual_policy(zib.mab.UCB1())
