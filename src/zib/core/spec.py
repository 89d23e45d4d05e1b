"""What all specs have in common: they print, compare, copy and travel by their parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar


class Spec:
    """Mix-in for NamedTuple specs whose constructor validates keyword arguments.

    Compiled code sees only numbers: a choice such as ``radius="given_count"`` is stored as its
    position in `choices`, and a word standing for "no number" as NaN (see `words`). `parameters`
    turns them back into what the user wrote.
    """

    __slots__ = ()

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    words: ClassVar[Mapping[str, str | None]] = {}
    default_label: ClassVar[str] = ""

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this spec."""
        out: dict[str, Any] = {}
        for name, value in self._asdict().items():  # type: ignore[attr-defined]
            if name in self.choices:
                out[name] = self.choices[name][int(value)]
            elif name in self.words and math.isnan(value):
                out[name] = self.words[name]
            else:
                out[name] = value
        return out

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return self.default_label or type(self).__name__

    @property
    def reward_range(self) -> tuple[float, float]:
        """The rewards this policy is meant for; the online object refuses others."""
        return (-math.inf, math.inf)

    @property
    def reward_values(self) -> tuple[float, ...] | None:
        """All rewards there are, ascending; None: any within `reward_range`."""
        return None

    def _replace(self, **changes: Any) -> Any:
        return type(self)(**{**self.parameters(), **changes})

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.parameters().items())
        return f"{type(self).__name__}({inside})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.parameters() == other.parameters()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), tuple(self.parameters().items())))

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.parameters()))


def _rebuild(spec_type: type, parameters: dict[str, Any]) -> Any:
    return spec_type(**parameters)


def parameters_of(spec: Any) -> dict[str, Any]:
    """Return the parameters of any registered spec, also of one that does not use `Spec`."""
    if isinstance(spec, Spec):
        return spec.parameters()
    return dict(spec._asdict())


def label_of(spec: Any) -> str:
    """Return a short name for any registered spec."""
    return spec.label if isinstance(spec, Spec) else type(spec).__name__
