"""Many states in one, and what is declared about parts, positions and scratch space."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numba
import numpy as np
import pytest

from zib.core.invariants import problem_in
from zib.core.registry import borrowing
from zib.core.stacked import row_of, stacked
from zib.core.state import Floats, Part, part, position, scalar, scratch, table


class Inner(Part):
    matrix: Floats = table("dim", "dim", start=1.0)
    seen: Floats = scalar(least=0.0)


class Outer(Part):
    coef: Floats = table("dim")
    inner: Inner = part(Inner)
    used: Floats = position("coef")
    work: Floats = scratch(2)


class State(NamedTuple):
    model: Outer
    clock: Floats


def new(n: int = 4) -> State:
    return stacked(State(Outer.new({"dim": 3}), np.zeros(1)), n)


@borrowing
def learn(state, x):
    state.model.coef[1] = x
    state.model.inner.seen[0] += 1.0
    state.clock[0] += x


@borrowing
def learn_all(states, n):
    for i in range(n):
        learn(row_of(states, i % 4), float(i))


@numba.njit
def compiled(states, n):
    learn_all(states, n)
    return row_of(states, 1).model.inner.matrix.sum()


def test_rows_are_views_of_the_same_form() -> None:
    states = new()
    one = row_of(states, 2)
    assert type(one) is State
    assert type(one.model.inner) is Inner
    one.model.inner.matrix[0, 0] = 7.0
    assert states.model.inner.matrix[2, 0, 0] == 7.0
    assert states.model.inner.matrix.sum() == 4 * 9 + 6


def test_compiled_code_sees_the_same_rows() -> None:
    fast, slow = new(), new()
    assert compiled(fast, 6) == 9.0
    learn_all(slow, 6)
    assert np.array_equal(fast.model.coef, slow.model.coef)
    assert np.array_equal(fast.clock, slow.clock)
    assert fast.clock.ravel().tolist() == [4.0, 6.0, 2.0, 3.0]


def test_views_made_by_compiled_code_are_given_back() -> None:
    states = new()
    compiled(states, 1)
    before = sys.getrefcount(states.model.coef)
    for _ in range(100):
        compiled(states, 6)
    after = sys.getrefcount(states.model.coef)
    assert after == before


@pytest.mark.parametrize("n", [None, 4])
def test_impossible_states_are_named(n) -> None:
    def fresh() -> State:
        return State(Outer.new({"dim": 3}), np.zeros(1)) if n is None else new(n)

    assert problem_in(fresh()) is None
    state = fresh()
    state.model.used[...] = 3.0  # one behind the end: full
    state.model.work[...] = np.nan  # means nothing
    assert problem_in(state) is None
    for change, message in (
        (lambda s: s.model.used.fill(4.0), "`model.used` must be a position in [0, 3]"),
        (lambda s: s.model.used.fill(0.5), "`model.used` must be a position in [0, 3]"),
        (lambda s: s.model.inner.seen.fill(-1.0), "`model.inner.seen` holds -1, less than 0"),
        (lambda s: s.model.coef.fill(np.inf), "`model.coef` holds a value that is not a finite"),
        (lambda s: s.clock.fill(np.nan), "`clock` holds a value that is not a finite"),
    ):
        state = fresh()
        change(state)
        found = problem_in(state)
        assert found is not None
        assert found.startswith(message)
