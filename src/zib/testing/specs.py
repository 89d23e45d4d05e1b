"""Checks that all kinds of specs share."""

from __future__ import annotations

import math
import pickle
from contextlib import suppress
from typing import Any

from zib.core.spec import parameters_of
from zib.core.validate import InvalidParameterError, shown

# What no parameter takes. Whether a finite number is right depends on the range of the parameter.
_NEVER: tuple[Any, ...] = (math.nan, math.inf, -math.inf, "no such word", object())
_MAYBE: tuple[Any, ...] = (-1e300, -1.0, 0.0, 0.5, 1e300, None, (), True)


def allowed(spec: Any, reward: float) -> float:
    """Return the reward nearest to this one that the policy is meant for."""
    values = getattr(spec, "reward_values", None)
    if values is not None:
        return float(min(values, key=lambda value: abs(value - reward)))
    low, high = getattr(spec, "reward_range", (-math.inf, math.inf))
    return min(max(reward, low), high)


def category_of(spec: Any, reward: float) -> int | None:
    """Return a category for a reward, where the policy is told them."""
    n = getattr(spec, "n_categories", 0)
    if n == 0:
        return None
    return 0 if reward == 0.0 else 1 + int(1e3 * abs(reward)) % int(n)


def check_spec_is_data(spec: Any) -> None:
    """Check that a spec is rebuilt by its parameters, pickles and hashes."""
    rebuilt = type(spec)(**parameters_of(spec))
    assert rebuilt == spec, f"{spec!r} is not rebuilt by its own parameters"
    assert pickle.loads(pickle.dumps(spec)) == spec, f"{spec!r} does not survive pickling"
    hash(spec)


def check_refusals(spec: Any) -> None:
    """Check that wrong parameters are refused in one sentence with the parameter and the value.

    The parameters are those declared in the body of a `zib.Spec`; a plain NamedTuple declares none,
    so there is nothing to check.
    """
    kind, given = type(spec), parameters_of(spec)
    declared = getattr(kind, "declared", {})
    for name in (name for name, field in declared.items() if field.is_parameter):
        for wrong in _NEVER:
            if isinstance(wrong, str) and declared[name].allowed == "text":
                continue
            if wrong == math.inf and "or inf" in declared[name].allowed:
                continue
            made = _made(kind, given, name, wrong)
            assert made is None, f"{kind.__name__} must refuse {name}={wrong!r}"
        for doubtful in _MAYBE:
            made = _made(kind, given, name, doubtful)
            if made is not None:
                again = kind(**parameters_of(made))
                assert repr(again) == repr(made), f"{made!r} is not rebuilt by its own parameters"
    if declared:
        with suppress(TypeError):
            kind(**given, no_such_parameter=1.0)
            raise AssertionError(f"{kind.__name__} takes a parameter it does not declare")


def _made(kind: Any, given: dict[str, Any], name: str, value: Any) -> Any:
    """Return the spec with another value of one parameter, or None where that is refused."""
    try:
        return kind(**{**given, name: value})
    except InvalidParameterError as error:
        sentence = str(error)
        if not all(part in sentence for part in (f"`{name}`", "got")) or "\n" in sentence:
            raise AssertionError(
                f"the error for {name}={value!r} must be one sentence that names the parameter "
                f"and the value; got {shown(sentence)}"
            ) from error
    except TypeError as error:
        if "not a registered" not in str(error):  # as for a link, which has to be registered
            raise AssertionError(f"{name}={value!r} raises {error!r}") from error
    return None
