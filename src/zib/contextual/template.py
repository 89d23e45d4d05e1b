"""`Template`: the paper's general algorithm, with any pair of component models."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any, ClassVar

import numpy as np

from zib.contextual.components import Array, ComponentModel, normal_draw
from zib.contextual.links import IDENTITY
from zib.contextual.policy import (
    COVARIANCE,
    ETA,
    ETA_VARIANCE,
    ZETA,
    ZETA_VARIANCE,
    Parts,
    new_clock,
    play_at_random,
    random_rounds,
    register_policy,
)
from zib.core import validate as check
from zib.core.cache import cached_njit
from zib.core.spec import Spec, choice, converted, optional, real, whole
from zib.theory.products import signed_product

UCB, TS = 0, 1
LOG, NONE = 0, 1


def _is_model(name: str, model: Any) -> Any:
    for method in ("observe", "predict"):
        if isinstance(model, type) or not callable(getattr(model, method, None)):
            raise check.InvalidParameterError(
                f"`{name}` must be a model with the methods observe(x, y) and predict(x), "
                f"such as GLMModel(...) or SklearnModel(...); got {check.shown(model)}"
            )
    return model


class Template(Spec):
    """Bandit from two models of your choice (Algorithm CB-general-UCB of the paper).

    Parameters
    ----------
    occurrence
        Model of whether something happens, taught 0 or 1 in every round: a `GLMModel`, a
        `SklearnModel`, a `UserModel` or any object with the methods of `ComponentModel`.
    magnitude
        Model of the non-zero rewards, taught by these only.
    kind
        ``"ucb"`` (default) or ``"ts"``.
    scale
        Factor of the models' standard errors; for ``"ts"``, of how far draws are from the mean.
    growth
        For ``"ucb"``. ``"log"`` (default): U = scale·√log(1 + t) standard errors, as in `JointUCB`.
        ``"none"``: U = scale times what the models report, for models that report a confidence
        radius rather than a standard error.
    random_rounds
        Rounds τ played at random at the start; max(50, 2·d, 2·q) unless given.

    Notes
    -----
    UCB plays the largest [p̂ + U_all]·[mû + U_nonzero], the first factor within [0, 1] and replaced
    by p̂ − U_all where the second is negative. TS plays the largest product of draws. Which
    guarantees hold depends on the models.

    Each run starts with copies of the models as they are given: what they learned before, they
    know. A template runs in the interpreter, at the speed of its models, in `zib.ContextualBandit`
    and in `zib.simulate`. Its models are Python objects: pickle a bandit to keep it (`save` refuses
    them, since reading a file of plain data could not bring them back).

    Examples
    --------
    >>> import zib
    >>> from zib.contextual import GLMModel, SklearnModel, Template
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> spec = Template(SklearnModel(DecisionTreeClassifier(min_samples_leaf=10)),
    ...                 GLMModel("gaussian"))
    >>> bandit = zib.ContextualBandit(spec, n_features=2, seed=0)
    >>> features = [[1.0, 0.0], [0.0, 1.0]]
    >>> row = bandit.select(features)
    >>> bandit.update(row, 0.0, features)
    """

    interpreted: ClassVar[bool] = True
    occurrence: ComponentModel = converted(
        functools.partial(_is_model, "occurrence"), allowed="model", kw_only=False
    )
    magnitude: ComponentModel = converted(
        functools.partial(_is_model, "magnitude"), allowed="model", kw_only=False
    )
    kind: str = choice(("ucb", "ts"), default="ucb")
    scale: float = real(low=0, default=1.0)
    growth: str = choice(("log", "none"), default="log")
    random_rounds: int | None = optional(whole(low=0), default=None)

    @property
    def samples(self) -> bool:
        """Whether the policy is Thompson sampling."""
        return bool(self.parameters()["kind"] == "ts")

    @property
    def label(self) -> str:
        """A short name for figures and tables."""
        return "Template-TS" if self.samples else "Template-UCB"

    @property
    def link(self) -> Any:
        """The link of the occurrence: that of its model, the identity where it has none."""
        if hasattr(self.occurrence, "predictor"):
            return self.occurrence.link  # type: ignore[attr-defined]
        return IDENTITY


def _init(spec: Any, d: int, q: int) -> Parts:
    clock = new_clock(random_rounds(spec.random_rounds, d, q))
    return Parts(copy.deepcopy(spec.occurrence), copy.deepcopy(spec.magnitude), clock)


def _update(spec: Any, state: Parts, arm: int, z: Array, w: Array, reward: float) -> None:
    state.clock.rounds[0] += 1.0
    # copies: a model may keep the row, and the caller may use its memory again
    state.occurrence.observe(w.copy(), 1.0 if reward != 0.0 else 0.0)
    if reward != 0.0:
        state.magnitude.observe(z.copy(), reward)


def _rows(columns: Array, n: int) -> Array:
    return np.ascontiguousarray(columns[:, :n].T)


def _believed(name: str, found: Any, n: int) -> tuple[Array, Array]:
    """Return means and standard errors, after a check of what a model has said."""
    mean, error = (np.asarray(part, dtype=np.float64) for part in found)
    if mean.shape != (n,) or error.shape != (n,):
        raise ValueError(
            f"the model of the {name} must predict one mean and one standard error per row, "
            f"shapes ({n},) and ({n},); got {mean.shape} and {error.shape}"
        )
    if not (np.isfinite(mean).all() and (error >= 0.0).all()):
        raise ValueError(
            f"the model of the {name} must predict finite means and standard errors ≥ 0; "
            f"got {mean} and {error}"
        )
    return mean, error


def _drawn(name: str, model: Any, x: Array, scale: float, rng: np.random.Generator) -> Array:
    n = len(x)
    sample = getattr(model, "sample", None)
    draw = normal_draw(model, x, rng) if sample is None else sample(x, rng)
    draw, _ = _believed(name, (draw, np.zeros(n)), n)
    if scale != 1.0:
        mean, _ = _believed(name, model.predict(x), n)
        draw = mean + scale * (draw - mean)
    return draw


def _index(prob: Any, prob_error: Any, mu: Any, mu_error: Any, width: float, out: Any) -> None:
    for k in range(out.size):
        bonus_y = width * prob_error[k] if width > 0.0 else 0.0
        bonus_x = width * mu_error[k] if width > 0.0 else 0.0
        p = min(max(prob[k], 0.0), 1.0)
        high = min(p + bonus_y, 1.0)
        # an infinite bonus on the magnitude of what never happens counts for nothing
        out[k] = 0.0
        if high > 0.0:
            out[k] = signed_product(mu[k] + bonus_x, max(p - bonus_y, 0.0), high)


_write_index = cached_njit(_index)


def _scores(
    spec: Any,
    state: Parts,
    arms: Any,
    z: Array,
    w: Array,
    rng: np.random.Generator,
    work: Any,
    out: Array,
) -> None:
    if play_at_random(state, out):
        return
    n = out.size
    x = _rows(z, n)
    y = x if w is z else _rows(w, n)
    if spec.kind == TS:
        mu = _drawn("magnitude", state.magnitude, x, spec.scale, rng)
        prob = _drawn("occurrence", state.occurrence, y, spec.scale, rng)
        out[:] = np.clip(prob, 0.0, 1.0) * mu
        return
    width = spec.scale
    if spec.growth == LOG:
        width *= math.sqrt(math.log1p(state.clock.rounds[0]))
    prob, prob_error = _believed("occurrence", state.occurrence.predict(y), n)
    mu, mu_error = _believed("magnitude", state.magnitude.predict(x), n)
    _write_index(prob, prob_error, mu, mu_error, width, out)


def _moments(spec: Any, state: Parts, arms: Any, z: Array, w: Array, work: Any, out: Array) -> None:
    n = out.shape[1]
    parts = (
        ("occurrence", state.occurrence, w, ETA, ETA_VARIANCE),
        ("magnitude", state.magnitude, z, ZETA, ZETA_VARIANCE),
    )
    for name, model, columns, estimate, variance in parts:
        predict = getattr(model, "predictor", model.predict)
        mean, error = _believed(name, predict(_rows(columns, n)), n)
        out[estimate] = mean
        out[variance] = error * error
    out[COVARIANCE] = 0.0


register_policy(
    Template,
    init=_init,
    scores=_scores,
    update=_update,
    moments=_moments,
    randomized=lambda spec: spec.samples,
)
