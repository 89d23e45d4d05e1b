"""Specs, labels and states as plain data (JSON), with a checksum. Nothing here can run code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from zib.core.files import write_atomically as write_atomically
from zib.core.spec import KNOWN, parameters_of, saved_name

DEEPEST = 20  # specs in specs, and tuples in tuples of a label
_SPECIAL = ("inf", "-inf", "nan")


class SavedStateError(ValueError):
    """A saved file that cannot be used; the message says why and what to do."""


@contextmanager
def entries_of(source: str) -> Iterator[None]:
    """Turn whatever goes wrong while entries are read into one error that names the source."""
    try:
        yield
    except SavedStateError:
        raise
    except (  # what forged entries cause in the code of specs, whose checks come first
        TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError,
        MemoryError,
    ) as error:  # fmt: skip
        raise SavedStateError(f"{source} lacks or garbles an entry: {error}") from error


# ------------------------------------------------------------------------------------------ specs


def spec_to_data(spec: Any) -> dict[str, Any]:
    """Return the name and the parameters of a spec."""
    return {
        "name": saved_name(type(spec)),
        "parameters": {key: _value_to_data(value) for key, value in parameters_of(spec).items()},
    }


def spec_from_data(data: Any, name: str = "policy") -> Any:
    """Return the spec; only types that are registered in this process can be built."""
    if name.count(".") >= DEEPEST:
        raise SavedStateError(f"the saved policy is nested more than {DEEPEST} deep")
    if not (isinstance(data, dict) and isinstance(data.get("name"), str)):
        raise SavedStateError(f"the saved entry {name!r} has no name")
    kind = data["name"]
    if kind not in KNOWN:
        raise SavedStateError(
            f"the saved policy {kind!r} is not registered here; import the module that registers "
            "it (or update zib) and load again"
        )
    given = data.get("parameters")
    if not isinstance(given, dict):
        raise SavedStateError(f"the saved entry {name!r} lacks its parameters")
    values = {key: _value_from_data(value, f"{name}.{key}") for key, value in given.items()}
    try:
        return KNOWN[kind](**values)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise SavedStateError(f"the saved entry {name!r} cannot be: {error}") from error


def _value_to_data(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return spec_to_data(value)
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (str, int, float, list, tuple, dict)):
        return value
    return {"object": repr(value)}  # a Python object, such as a model: described, not saved


def _value_from_data(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        if "object" in value:
            raise SavedStateError(f"{value['object']} is a Python object and was not saved")
        if "float" not in value:
            return spec_from_data(value, name)
        if value["float"] not in _SPECIAL:
            raise SavedStateError(f"the saved entry {name!r} is damaged: {value['float']!r}")
        return float(value["float"])
    return value


# ----------------------------------------------------------------------------------------- labels


def label_to_data(label: Any) -> Any:
    """Return a label as data; str, int, float, bool, None and tuples of these can be saved."""
    if isinstance(label, np.generic):
        label = label.item()
    if label is None or isinstance(label, (str, bool, int, float)):
        return label
    if isinstance(label, tuple):
        return {"tuple": [label_to_data(part) for part in label]}
    raise SavedStateError(
        "only labels made of str, int, float, bool, None and tuples can be saved; "
        f"got {label!r} of type {type(label).__name__}"
    )


def labels_from_data(data: Any) -> list[Any]:
    """Return the labels."""
    if not isinstance(data, list):
        raise SavedStateError(f"the saved entry 'arms' must be a list; got {type(data).__name__}")
    return [_label_from_data(label) for label in data]


def _label_from_data(data: Any, depth: int = 0) -> Any:
    if isinstance(data, dict) and isinstance(data.get("tuple"), list) and depth < DEEPEST:
        return tuple(_label_from_data(part, depth + 1) for part in data["tuple"])
    if data is None or isinstance(data, (str, bool, int, float)):
        return data
    raise SavedStateError(
        "the saved entry 'arms' holds a label that is none of str, int, float, bool, None and "
        f"tuple (at most {DEEPEST} deep); got {str(data)[:60]}"
    )


# ----------------------------------------------------------------------------------------- arrays


def array_to_data(array: Any) -> Any:
    """Return nested lists; numbers keep every bit, infinities and NaN become strings."""
    if isinstance(array, list):
        return [array_to_data(item) for item in array]
    if isinstance(array, np.ndarray):
        listed = array.tolist()
        return listed if np.isfinite(array).all() else array_to_data(listed)
    return array if np.isfinite(array) else repr(array)


def array_from_data(data: Any, like: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Return the array; its shape and type must be those of `like`."""
    found = _shape(data)
    if found != like.shape and not (like.size == 0 and 0 in found):
        raise SavedStateError(f"the saved array {name!r} has shape {found}, expected {like.shape}")
    flat: list[Any] = [data]
    for _ in range(len(found)):
        if not all(isinstance(row, list) for row in flat):
            raise SavedStateError(f"the saved array {name!r} is damaged: its rows differ")
        flat = [item for row in flat for item in row]
    odd = not set(map(type, flat)) <= {int, float}
    for item in flat if odd else ():
        if not (type(item) in (int, float) or (type(item) is str and item in _SPECIAL)):
            raise SavedStateError(
                f"the saved array {name!r} is damaged: {str(item)[:60]} is not a number"
            )
    try:
        return np.array(flat, dtype=like.dtype).reshape(like.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise SavedStateError(f"the saved array {name!r} is damaged: {error}") from error


def _shape(data: Any) -> tuple[int, ...]:
    """Return the shape of nested lists, by the first of each."""
    shape: list[int] = []
    while isinstance(data, list):
        shape.append(len(data))
        data = data[0] if data else None
    return tuple(shape)


# ----------------------------------------------------------------------------------------- states


def state_to_data(state: Any) -> Any:
    """Return a state, of arrays or of nested tuples of arrays, as data."""
    if not isinstance(state, tuple):
        if not isinstance(state, np.ndarray):
            raise SavedStateError(
                f"{type(state).__name__} is a Python object and cannot be saved as data; "
                "keep the bandit with pickle instead"
            )
        return array_to_data(state)
    return {name: state_to_data(part) for name, part in _named_parts(state)}


def state_from_data(data: Any, like: Any, name: str = "state") -> Any:
    """Return the state; its nesting, shapes and types must be those of `like`."""
    if not isinstance(like, tuple):
        return array_from_data(data, like, name)
    wanted = dict(_named_parts(like))
    if not isinstance(data, dict) or data.keys() != wanted.keys():
        found = sorted(data) if isinstance(data, dict) else type(data).__name__
        raise SavedStateError(
            f"the saved entry {name!r} must hold {', '.join(wanted)}; got {str(found)[:200]}"
        )
    parts = [state_from_data(data[key], part, f"{name}.{key}") for key, part in wanted.items()]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def _named_parts(state: Any) -> Iterator[tuple[str, Any]]:
    names = getattr(state, "_fields", None) or [str(i) for i in range(len(state))]
    return zip(names, state, strict=True)


# ------------------------------------------------------------------------------------------ files


def _plain(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def dumps(content: dict[str, Any]) -> str:
    """Return JSON text with a checksum."""
    text = _plain(content)  # written once: states are large
    return f'{text[:-1]},"checksum":"{_digest(text)}"}}'


def loads(text: str, kind: str, versions: range, source: str) -> dict[str, Any]:
    """Return the content after checking form, kind, version and checksum."""
    try:
        content = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise SavedStateError(
            f"{source} is not a saved {kind} (damaged or cut off): {error}"
        ) from None
    if not isinstance(content, dict) or content.get("format") != kind:
        raise SavedStateError(f"{source} is not a saved {kind}")
    found = content.get("format_version")
    if type(found) is not int or found not in versions:
        newer = isinstance(found, int) and found >= versions.stop
        raise SavedStateError(
            f"{source} was written by {'a newer' if newer else 'an older'} zib (format "
            f"{str(found)[:60]}; this one reads {_formats(versions)}); "
            + ("update zib" if newer else "learn from the log again, or read it with that version")
        )
    written = content.pop("checksum", None)
    try:
        digest = _digest(_plain(content))
    except (ValueError, RecursionError) as error:
        raise SavedStateError(f"{source} is damaged: {error}") from None
    if written != digest:
        raise SavedStateError(f"{source} is damaged: its checksum does not match its content")
    return content


def _formats(versions: range) -> str:
    return " and ".join(f"format {version}" for version in versions)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number")
