"""What a study file can name: public environments, laws, policies and their parts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import zib
from zib.contextual.link import LINKS
from zib.contextual.policy import POLICIES
from zib.core.kernel import REGISTRY
from zib.core.validate import InvalidParameterError

Makers = Mapping[str, Callable[..., Any]]

TAILS = ("SubExponential", "SubGaussian", "SubWeibull")
MODELS = ("GLMModel", "Huber", "LeastSquares", "MedianOfMeans", "Ridge")


class StudyError(InvalidParameterError):
    """A study file that cannot be run; the message says where and what is wrong."""


class Shelf(NamedTuple):
    """What may stand at one place of the file.

    Attributes
    ----------
    what
        The kind of thing, in words.
    kinds
        What can be made there, by public name.
    parts
        What can be made inside it: tails, links, laws, a policy in a wrapper.
    elsewhere
        Names that exist but do not belong there, with the reason.
    """

    what: str
    kinds: Makers
    parts: Makers
    elsewhere: Mapping[str, str]

    @property
    def inside(self) -> Shelf:
        """The shelf for what is nested in a thing from this one."""
        return Shelf("part", self.parts, self.parts, {})

    def find(self, name: object, place: str) -> Callable[..., Any]:
        """Return what makes `name`, or raise with a suggestion."""
        if not isinstance(name, str):
            raise StudyError(f"{place}: `kind` must be a name in quotes; got {name!r}")
        if name in self.kinds:
            return self.kinds[name]
        if name in self.elsewhere:
            raise StudyError(f"{place}: {name} {self.elsewhere[name]}")
        raise StudyError(f"{place}: there is no {self.what} {name!r}{suggestion(name, self.kinds)}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?", or the names there are when none is near.

    Examples
    --------
    >>> suggestion("sigmma", ["horizon", "sigma"])
    "; did you mean 'sigma'?"
    >>> suggestion("ZI-TS", ["UCB", "ZITS"])
    "; did you mean 'ZITS'?"
    """
    plain = {_letters(name): name for name in known}
    near = difflib.get_close_matches(_letters(word), plain, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {plain[near[0]]!r}?"
    names = sorted(plain.values())
    more = f" and {len(names) - 25} more" if len(names) > 25 else ""
    return f"; known: {', '.join(names[:25])}{more}" if names else ""


def _letters(name: str) -> str:
    return re.sub(r"[^0-9a-z]", "", name.lower())


def _public(module: ModuleType, wanted: Callable[[Any], bool]) -> dict[str, Any]:
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: thing for name, thing in found.items() if wanted(thing)}


def environments() -> Shelf:
    """Return what can stand under ``[environments.…]``."""
    law_type = zib.env.Law
    laws = _public(
        zib.env,
        lambda thing: (
            isinstance(thing, type) and issubclass(thing, law_type) and thing is not law_type
        ),
    )
    kinds = _public(zib.env, lambda thing: isinstance(thing, type) and hasattr(thing, "instance"))
    reason = (
        "is a law of rewards, not an environment; use it inside one, as in "
        '{ kind = "MAB", laws = […] }'
    )
    return Shelf("environment", kinds, {**laws, **kinds}, dict.fromkeys(laws, reason))


def policies(contextual: bool) -> Shelf:
    """Return what can stand under ``[policies.…]`` of a study with or without features."""
    by_arm = _public(zib.mab, lambda thing: thing in REGISTRY)
    by_features = _public(zib.contextual, lambda thing: thing in POLICIES)
    parts = {name: getattr(zib.mab, name) for name in TAILS}
    models = {name: getattr(zib.contextual, name) for name in MODELS}
    models |= _public(zib.contextual, lambda thing: thing in LINKS)
    if contextual:
        kinds, inside, others = by_features, {**models, **by_features}, by_arm
        reason = (
            "is a policy without features, and the environments of this study are contextual; "
            "write one study for each"
        )
    else:
        kinds, inside, others = by_arm, {**parts, **by_arm}, by_features
        reason = (
            "is a contextual policy, and the environments of this study have no features; "
            "write one study for each"
        )
    elsewhere = {name: reason for name in others if name not in kinds}
    for name in (*parts, *models):
        elsewhere.setdefault(name, "is a part of policies, not a policy")
    return Shelf("policy", kinds, inside, elsewhere)
