"""The links of a contextual policy as functions of arrays, for its predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from zib.contextual import entry, policy
from zib.contextual.links import StandardLink, resolve_link
from zib.core.entry import Entry
from zib.online.features import Matrix
from zib.stats.predictions import Curve, capped

_IDENTITY = StandardLink(name="identity")


def innermost(spec: Any) -> Any:
    """Return the policy nested in a policy, or the policy itself."""
    for field in spec:
        if type(field) in policy.POLICIES:
            return innermost(field)
    return spec


def probabilities(spec: Any, predictors: Matrix) -> Matrix:
    """Return the probability of a non-zero reward at every linear predictor."""
    inner = innermost(spec)
    if not hasattr(inner, "link"):
        raise TypeError(
            f"{type(inner).__name__} has an occurrence part, so its spec needs a field `link`"
        )
    link = resolve_link(inner.link, probability=False)
    return capped(_apply(entry.link_values, link, predictors))


def magnitudes(spec: Any) -> Curve | None:
    """Return the curve of the magnitude, or None for the identity.

    It is that of the magnitude's model, if the model is one with a link.
    """
    model = getattr(innermost(spec), "magnitude", None)
    if not (hasattr(model, "_fields") or hasattr(model, "predictor")):
        return None
    link = resolve_link(getattr(model, "link", _IDENTITY), probability=False)
    if link == _IDENTITY:
        return None
    return Curve(
        lambda x: _apply(entry.link_values, link, x),
        lambda x: _apply(entry.link_inverses, link, x),
    )


def _apply(function: Entry, link: Any, values: Matrix) -> Matrix:
    """Return a function of a link at every number of an array."""
    flat = np.ascontiguousarray(values).reshape(-1)
    out = np.zeros(flat.size)
    function.for_spec(link)(link, flat, out)
    return out.reshape(values.shape)
