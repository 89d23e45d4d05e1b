"""Encoders of a bandit: `zib.Encoder`, or any fitted transformer such as those of scikit-learn.

An `Encoder` turns frames and dictionaries into features and lets arrays pass, which are features
already. A transformer of others gets whatever the caller gives.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from zib.contextual.encoder import Encoder
from zib.core import validate
from zib.core.saved import SavedStateError
from zib.core.validate import InvalidParameterError, InvalidTypeError


def checked_encoder(encoder: Any, n_features: Any) -> tuple[Any, Any]:
    """Return an encoder as the bandit keeps it, and the number of features; or raise."""
    if encoder is None:
        if n_features is None:
            raise InvalidParameterError(
                "`n_features` must be a whole number in [1, inf], or follow from an `encoder`; "
                "got None"
            )
        return None, n_features
    if isinstance(encoder, Encoder):
        if not encoder.is_fitted:
            raise InvalidParameterError(
                "`encoder` must be fitted, by encoder.fit(frame); got one that is not"
            )
        encoder = copy.deepcopy(encoder)  # fitting it again must not change the bandit
        found = encoder.n_features
    elif callable(getattr(encoder, "transform", None)) and not isinstance(encoder, type):
        found = _n_features_out(encoder)
    else:
        raise InvalidTypeError(
            "`encoder` must be a zib.Encoder or have a method `transform`; "
            f"got {validate.shown(encoder)}"
        )
    if n_features is None:
        if found is None:
            raise InvalidParameterError(
                "`n_features` must be given with an encoder that does not tell it by "
                f"get_feature_names_out(); got {type(encoder).__name__}"
            )
        return encoder, found
    if found is not None and n_features not in (found, (found, found)):
        raise InvalidParameterError(
            f"`n_features` must be that of the encoder, {found}; got {validate.shown(n_features)}"
        )
    return encoder, n_features


def _n_features_out(transformer: Any) -> int | None:
    try:
        return len(transformer.get_feature_names_out())
    except Exception:  # not fitted, or without names: `transform` will tell
        return None


def encoded(encoder: Any, features: Any) -> Any:
    """Return features as numbers: a vector for a dictionary, a matrix for a table."""
    one = _as_row(features)
    if isinstance(encoder, Encoder):
        if one is not None:
            return encoder.transform(one)
        is_table = hasattr(features, "columns") or hasattr(features, "column_names")
        if is_table or (isinstance(features, list) and features and isinstance(features[0], dict)):
            return encoder.transform(features)
        return features
    try:
        return _transformed(encoder, features, one)
    except InvalidParameterError:
        raise
    except Exception as error:
        raise InvalidParameterError(
            f"`features` must be what {type(encoder).__name__} takes; got "
            f"{validate.shown(features)}, and it says: {error}"
        ) from error


def _as_row(features: Any) -> dict[str, Any] | None:
    """Return the dictionary of one row: of a mapping, or of a row of a pandas frame."""
    if isinstance(features, dict):
        return features
    if isinstance(features, Mapping):
        return dict(features)
    if (
        hasattr(features, "to_dict")
        and hasattr(features, "index")
        and not hasattr(features, "columns")
    ):
        return features.to_dict()  # type: ignore[no-any-return]
    return None


def _transformed(transformer: Any, features: Any, one: dict[str, Any] | None) -> Any:
    import pandas as pd

    if one is not None:
        table: Any = pd.DataFrame([one])
    elif isinstance(features, list) and features and isinstance(features[0], dict):
        table = pd.DataFrame(features)
    else:
        table = features
        if np.ndim(features) == 1:
            table, one = [features], {}
    found = transformer.transform(table)
    if hasattr(found, "toarray"):
        found = found.toarray()
    rows = validate.numbers("features", found)
    return rows[0] if one is not None else rows


def encoder_to_data(encoder: Any) -> Any:
    """Return an encoder as data; one that is not ours is described, not saved."""
    if encoder is None or isinstance(encoder, Encoder):
        return None if encoder is None else encoder.to_data()
    return {"object": type(encoder).__name__}


def encoder_from_data(data: Any, given: Any) -> Any:
    """Return the encoder of a file, or the one that is given instead of it."""
    if given is not None or data is None:
        return given
    if isinstance(data, dict) and data.keys() == {"object"}:
        raise SavedStateError(
            f"the bandit was saved without its encoder, {str(data['object'])[:60]}, which is not "
            "data; give it again: ContextualBandit.load(path, encoder=...)"
        )
    return Encoder.from_data(data)
