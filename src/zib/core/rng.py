"""Random streams named by (seed, role, replication, index), and Generators as plain data."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from zib.core.validate import InvalidParameterError, shown

_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")
_POSITIONS = {"pos": 624, "buffer_pos": 4, "has_uint32": 1}  # and the largest; NumPy trusts them


class Role(IntEnum):
    """What a stream is for; streams of different roles never overlap."""

    ENVIRONMENT = 0
    POLICY = 1
    INSTANCE = 2
    BOOTSTRAP = 3
    ALLOCATION = 4
    DELAY = 5


def stream(seed: int, role: Role, *key: int) -> np.random.Generator:
    """Return the Generator of this seed, role and key.

    The same arguments always give the same stream, whatever else was drawn before: results
    depend neither on the order of the work nor on who does it.
    """
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(int(role), *key)))
    )


def generator_to_data(rng: np.random.Generator) -> dict[str, Any]:
    """Return the full state of `rng` as numbers, strings, lists and dicts only."""
    return _plain(rng.bit_generator.state)  # type: ignore[no-any-return]


def generator_from_data(data: dict[str, Any]) -> np.random.Generator:
    """Return a Generator that continues exactly where the saved one stopped."""
    name = data.get("bit_generator") if isinstance(data, dict) else data
    if name not in _BIT_GENERATORS:
        raise InvalidParameterError(
            f"`bit_generator` must be one of {', '.join(_BIT_GENERATORS)}; got {shown(name)}"
        )
    bit_generator = getattr(np.random, name)()
    template = bit_generator.state
    try:
        bit_generator.state = _like(template, data)
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise InvalidParameterError(f"the saved random state is damaged: {error}") from error
    return np.random.Generator(bit_generator)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return [int(item) for item in value]
    return value


def _like(template: Any, value: Any) -> Any:
    if isinstance(template, dict):
        for key in template.keys() & _POSITIONS.keys():
            if not 0 <= int(value[key]) <= _POSITIONS[key]:
                raise ValueError(f"{key} must lie in [0, {_POSITIONS[key]}]; got {value[key]!r}")
        return {key: _like(item, value[key]) for key, item in template.items()}
    if isinstance(template, np.ndarray):
        array = np.array(value, dtype=template.dtype)
        if array.shape != template.shape:
            raise ValueError(f"an array of shape {array.shape} should have {template.shape}")
        return array
    return type(template)(value)
