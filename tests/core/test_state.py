"""State arrays that are declared once."""

from __future__ import annotations

import pickle
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zib.core.invariants import problem_in
from zib.core.state import (
    ArmState,
    Floats,
    Part,
    add_states,
    arm_number,
    copied,
    new_state,
    per_arm,
    rearranged,
    scalar,
    table,
)
from zib.stats.arms import observe


class Own(Part):
    cap: Floats = per_arm(start=np.inf, finite=False)
    log_total: Floats = per_arm(is_sum=True)
    by_outcome: Floats = per_arm("outcomes")
    last: Floats = arm_number()
    scale: Floats = scalar(least=0.0)


class Ring(Part):
    ring: Floats = table("length", 2)


def example(n_arms: int = 3) -> ArmState:
    return new_state(n_arms, own=Own, around=Ring, horizon=50.0, sizes={"outcomes": 4, "length": 5})


def test_shapes_and_first_values_follow_from_the_declaration() -> None:
    state = example()
    assert state.own.by_outcome.shape == (3, 4)
    assert state.around.ring.shape == (5, 2)
    assert (state.own.cap == np.inf).all()
    assert (state.own.last[0], state.horizon[0]) == (-1.0, 50.0)
    assert problem_in(state) is None


def test_compiled_code_reads_and_writes_by_name() -> None:
    @numba.njit
    def touch(state: Any) -> float:
        state.own.scale[0] += 2.0
        state.own.by_outcome[1, 3] = 7.0
        return state.own.last[0] + state.around.ring.shape[0]

    state = example()
    assert touch(state) == 4.0
    assert (state.own.scale[0], state.own.by_outcome[1, 3]) == (2.0, 7.0)


def test_arms_come_and_go_with_all_that_is_theirs() -> None:
    state = example()
    state.own.log_total[:] = [1.0, 2.0, 3.0]
    state.own.by_outcome[2] = 9.0
    state.own.last[0] = 2.0
    state.clock[0] = 12.0
    moved = rearranged(state, example(3), [2, -1, 0])
    assert moved.own.log_total.tolist() == [3.0, 0.0, 1.0]
    assert moved.own.by_outcome[0].tolist() == [9.0] * 4
    assert moved.own.cap[1] == np.inf
    assert (moved.own.last[0], moved.clock[0]) == (0.0, 12.0)
    assert rearranged(state, example(2), [0, 1]).own.last[0] == -1.0  # that arm is gone
    moved.pulls[0] = 5.0
    assert state.pulls[2] == 0.0  # a copy


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(-50, 50) | st.just(0.0)), max_size=30),
    st.integers(0, 30),
)
def test_halves_add_up_and_can_be_taken_apart(rewards: list[tuple[int, float]], cut: int) -> None:
    def learned(part: list[tuple[int, float]]) -> ArmState:
        state = example()
        for arm, reward in part:
            observe(state, arm, reward)
            state.own.log_total[arm] += reward
        return state

    whole, first, second = learned(rewards), learned(rewards[:cut]), learned(rewards[cut:])
    total = copied(first)
    add_states(total, second)
    for name in ("pulls", "nonzero", "total", "spread", "clock"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name), 1e-9, 1e-9)
    np.testing.assert_allclose(total.own.log_total, whole.own.log_total, 1e-9, 1e-9)
    add_states(total, second, sign=-1.0)
    for name in ("pulls", "nonzero", "total", "clock"):
        np.testing.assert_allclose(getattr(total, name), getattr(first, name), 1e-9, 1e-9)
    np.testing.assert_allclose(total.spread, first.spread, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pulls", np.nan, "`pulls` holds a value that is not a finite number"),
        ("total", np.inf, "`total` holds a value that is not a finite number"),
        ("spread", -1.0, "`spread` holds -1, less than 0"),
        ("nonzero", 3.0, "`nonzero` holds more non-zero rewards than `pulls` has rewards"),
        ("own.last", 3.0, "`own.last` must hold numbers of 3 arms or -1; got [3.0]"),
        ("own.last", 0.5, "`own.last` must hold numbers of 3 arms or -1; got [0.5]"),
        ("own.scale", -2.0, "`own.scale` holds -2, less than 0"),
    ],
)
def test_a_state_that_cannot_be_is_named(name: str, value: float, message: str) -> None:
    state: Any = example()
    array = state
    for part in name.split("."):
        array = getattr(array, part)
    array[0] = value
    assert problem_in(state) == message


def test_infinity_is_allowed_where_it_is_declared() -> None:
    state = example()
    state.own.cap[:] = np.inf
    assert problem_in(state) is None


def test_states_are_pickled() -> None:
    state = example()
    again = pickle.loads(pickle.dumps(state))
    assert type(again.own) is Own
    assert again.own.by_outcome.shape == (3, 4)
