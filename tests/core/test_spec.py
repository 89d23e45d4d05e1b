"""Parameters that are declared once."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

import zib
from zib.core import saved
from zib.core.spec import (
    Declared,
    Spec,
    choice,
    converted,
    derived,
    number_or,
    optional,
    parameter_table,
    positive,
    real,
    whole,
    word,
)


class Inner(Spec):
    pass


class Example(Spec):
    horizon: float = real(low=2)
    sigma: float | None = optional(positive())
    radius: str = choice(("tight", "printed"), default="tight")
    unseen: float | str = number_or("pooled", default="pooled")
    count: int = whole(low=1, high=9, default=3)
    inner: Any = converted(lambda value: value, allowed="a spec", default=Inner())
    twice: float = derived(lambda known: 2.0 * known["horizon"], init=False)
    label = "example"

    def check(self) -> None:
        if self.count > self.horizon:
            raise zib.InvalidParameterError(
                f"`count` must be at most `horizon`; got {self.count} for {self.horizon:g}"
            )


class Wider(Example, positional=1):
    width: float = positive(default=1.0)


class Market(Declared, positional=2):
    mean: float = real()
    sigma: float = positive(default=1.0)
    shape: str = word(("round", "square"), default="round")


EXAMPLES = [
    Example(horizon=3),
    Example(horizon=3, sigma=2.0, radius="printed", unseen=1.5),
    Wider(5, width=2.0),
    Inner(),
    Market(1.0, 2.0, shape="square"),
]


@pytest.mark.parametrize("spec", EXAMPLES, ids=repr)
def test_what_is_declared_travels(spec: Any) -> None:
    again = type(spec)(**spec.parameters())
    for twin in (again, copy.copy(spec), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert twin == spec
        assert hash(twin) == hash(spec)
        assert repr(twin) == repr(spec)
    assert eval(repr(spec), globals()) == spec


def test_specs_are_numbers_for_compiled_code() -> None:
    @numba.njit
    def read(spec: Any) -> tuple[float, float, float]:
        return spec.horizon + spec.radius, spec.twice, spec.sigma

    value, twice, sigma = read(Example(horizon=3, radius="printed"))
    assert (value, twice) == (4.0, 6.0)
    assert math.isnan(sigma)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"horizon": 1}, r"^`horizon` must lie in \[2, inf\); got 1$"),
        ({"horizon": math.inf}, "^`horizon` must be a finite number .*; got inf$"),
        ({"sigma": 0.0}, r"^`sigma` must lie in \(0, inf\); got 0.0$"),
        ({"sigma": "x"}, "^`sigma` must be a finite number .*; got 'x'$"),
        ({"radius": "wide"}, "^`radius` must be one of 'tight', 'printed'; got 'wide'$"),
        ({"unseen": "most"}, "^`unseen` must be 'pooled' or a number; got 'most'$"),
        ({"count": 2.5}, r"^`count` must be a whole number in \[1, 9\]; got 2.5$"),
        ({"count": 5}, "^`count` must be at most `horizon`; got 5 for 3$"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(changes: Any, sentence: str) -> None:
    with pytest.raises(zib.InvalidParameterError, match=sentence):
        Example(**{"horizon": 3, **changes})


def test_unknown_and_missing_parameters_name_what_is_taken() -> None:
    with pytest.raises(TypeError, match="Example: .*'sigm'.* it takes .*horizon, sigma=None"):
        Example(horizon=3, sigm=1.0)
    with pytest.raises(TypeError, match="missing a required (keyword-only )?argument: 'horizon'"):
        Example()
    with pytest.raises(TypeError, match="too many positional arguments"):
        Example(3)


def test_what_is_derived_is_no_parameter() -> None:
    assert "twice" not in Example(horizon=3).parameters()
    assert "twice" not in inspect.signature(Example).parameters
    assert Wider(4).twice == 8.0


def test_declared_objects_do_not_change() -> None:
    with pytest.raises(AttributeError, match="Market cannot be changed"):
        Market(1.0).mean = 2.0


def test_arrays_as_parameters_compare_by_their_entries() -> None:
    class Table(Declared):
        values: Any = converted(np.asarray, allowed="numbers")

    assert Table(values=[1.0, 2.0]) == Table(values=[1.0, 2.0])
    assert Table(values=[1.0, 2.0]) != Table(values=[1.0, 3.0])


def test_specs_are_saved_by_name_and_parameters() -> None:
    spec = Example(horizon=3, inner=Example(horizon=7, sigma=1.0))
    assert saved.spec_from_data(saved.spec_to_data(spec)) == spec


def test_the_table_for_the_documentation() -> None:
    assert parameter_table(Market).splitlines()[2:] == [
        "| `mean` | number in (-inf, inf) | required |",
        "| `sigma` | number in (0, inf) | `1.0` |",
        "| `shape` | one of 'round', 'square' | `'round'` |",
    ]


class _Fields(NamedTuple):
    width: float


class BeforeFieldsWereDeclared(zib.Spec, _Fields):
    __slots__ = ()

    def __new__(cls, *, width: float = 1.0):
        return super().__new__(cls, float(width))


def test_the_form_before_fields_were_declared_still_works() -> None:
    spec = BeforeFieldsWereDeclared(width=2)
    assert (spec.width, spec.parameters()) == (2.0, {"width": 2.0})
    assert spec._replace(width=3.0) == BeforeFieldsWereDeclared(width=3.0)
    assert pickle.loads(pickle.dumps(spec)) == spec
