"""Specs, labels and states as plain data (JSON), with a checksum. Nothing here can run code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from zib.core.files import write_atomically as write_atomically
from zib.core.spec import KNOWN, parameters_of, saved_name


class SavedStateError(ValueError):
    """A saved file that cannot be used; the message says why and what to do."""


# ------------------------------------------------------------------------------------------ specs


def spec_to_data(spec: Any) -> dict[str, Any]:
    """Return the name and the parameters of a spec."""
    return {
        "name": saved_name(type(spec)),
        "parameters": {key: _value_to_data(value) for key, value in parameters_of(spec).items()},
    }


def spec_from_data(data: dict[str, Any]) -> Any:
    """Return the spec; only types that are registered in this process can be built."""
    name = data["name"]
    if name not in KNOWN:
        raise SavedStateError(
            f"the saved policy {name!r} is not registered here; import the module that registers "
            "it (or update zib) and load again"
        )
    return KNOWN[name](**{key: _value_from_data(v) for key, v in data["parameters"].items()})


def _value_to_data(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return spec_to_data(value)
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (str, int, float, list, tuple, dict)):
        return value
    return {"object": repr(value)}  # a Python object, such as a model: described, not saved


def _value_from_data(value: Any) -> Any:
    if isinstance(value, dict):
        if "object" in value:
            raise SavedStateError(f"{value['object']} is a Python object and was not saved")
        return float(value["float"]) if "float" in value else spec_from_data(value)
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


def label_from_data(data: Any) -> Any:
    """Return the label."""
    if isinstance(data, dict):
        return tuple(label_from_data(part) for part in data["tuple"])
    return data


# ----------------------------------------------------------------------------------------- arrays


def array_to_data(array: Any) -> Any:
    """Return nested lists; numbers keep every bit, infinities and NaN become strings."""
    if isinstance(array, list):
        return [array_to_data(item) for item in array]
    if isinstance(array, np.ndarray):
        return array_to_data(array.tolist())
    return array if np.isfinite(array) else repr(array)


def array_from_data(data: Any, like: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Return the array; its shape and type must be those of `like`."""
    try:
        array = np.array(data, dtype=like.dtype)
    except (TypeError, ValueError) as error:
        raise SavedStateError(f"the saved array {name!r} is damaged: {error}") from error
    if array.size == 0:
        array = array.reshape(like.shape)
    if array.shape != like.shape:
        raise SavedStateError(
            f"the saved array {name!r} has shape {array.shape}, expected {like.shape}"
        )
    return array


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
    parts = [state_from_data(data[key], part, f"{name}.{key}") for key, part in _named_parts(like)]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def _named_parts(state: Any) -> Iterator[tuple[str, Any]]:
    names = getattr(state, "_fields", None) or [str(i) for i in range(len(state))]
    return zip(names, state, strict=True)


# ------------------------------------------------------------------------------------------ files


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def dumps(content: dict[str, Any]) -> str:
    """Return JSON text with a checksum."""
    return json.dumps({**content, "checksum": _digest(content)}, allow_nan=False)


def loads(text: str, kind: str, version: int, source: str) -> dict[str, Any]:
    """Return the content after checking form, kind, version and checksum."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise SavedStateError(
            f"{source} is not a saved {kind} (damaged or cut off): {error}"
        ) from None
    if not isinstance(content, dict) or content.get("format") != kind:
        raise SavedStateError(f"{source} is not a saved {kind}")
    found = content.get("format_version")
    if found != version:
        newer = isinstance(found, int) and found > version
        raise SavedStateError(
            f"{source} was written by {'a newer' if newer else 'an older'} zib (format {found!r}; "
            f"this one reads format {version}); "
            + ("update zib" if newer else "learn from the log again, or read it with that version")
        )
    if content.pop("checksum", None) != _digest(content):
        raise SavedStateError(f"{source} is damaged: its checksum does not match its content")
    return content
