"""Component models fitted to a whole history: those of scikit-learn, a user's functions."""

from __future__ import annotations

import math
import zlib
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from zib.contextual.components import Array, Learner, as_row, as_rows, normal_draw
from zib.core import validate as check
from zib.core.spec import converted, optional, real, whole, word

METHODS = ("auto", "predict", "predict_proba")
KEEPS = ("sample", "latest")

REFIT_GROWTH: Any = real(low=1, default=1.2)
MIN_ROWS: Any = whole(low=1, default=10)
MEMORY: Any = optional(whole(), default=10_000)
KEEP: Any = word(KEEPS, default="sample")


class RefittedModel(Learner):
    """A model that is fitted to all it has seen, or a part of it, on a geometric schedule.

    The fit that is due is made when somebody asks, to the rows it was due for. So the answers are
    those of a fit at once, while a batch of observations causes one fit instead of many.
    Random numbers come from a stream named by the seed and by what was observed: they differ from
    history to history, and the same history gives the same model.
    """

    def check(self) -> None:
        """Refuse a memory too small for the first fit, and start with no history."""
        given = self.parameters()
        memory = given["memory"]
        self._due: int = given["min_rows"]
        self._room = math.inf if memory is None else check.integer("memory", memory, low=self._due)
        self._growth: float = given["refit_growth"]
        self._latest: bool = given["keep"] == "latest"
        self._seed: int = given.get("seed", 0)
        self._stream = np.random.default_rng(self._seed)
        self._x = np.empty((0, 0))
        self._y = np.empty(0)
        self._stored = 0
        self._count = 0
        self._pending = 0  # rows of the fit that is due
        self._key: tuple[int, ...] = ()
        self._fitted: Any = None

    @abstractmethod
    def _fit(self, x: Array, y: Array, rng: np.random.Generator) -> Any:
        """Return a model fitted to all rows."""

    @abstractmethod
    def _predict(self, fitted: Any, x: Array) -> tuple[Array, Array]:
        """Return means and standard errors of such a model."""

    def observe(self, x: Any, y: float) -> None:
        """Learn one observation."""
        row = as_row(x)
        self._store(row, float(y))
        self._count += 1
        if self._count >= self._due:
            self._pending = self._stored
            self._key = (self._seed, self._count, zlib.crc32(row.tobytes()))
            self._due = max(self._count + 1, math.ceil(self._growth * self._count))

    def _store(self, row: Array, y: float) -> None:
        if self._stored == 0:
            self._x = np.empty((0, row.size))
        elif row.size != self._x.shape[1]:
            raise check.InvalidParameterError(
                f"`x` must have {self._x.shape[1]} features, as before; got {row.size}"
            )
        if self._stored < self._room:
            place = self._stored
            if place == self._y.size:
                room = min(max(64, 2 * place), self._room)
                more = int(room) - place
                self._x = np.concatenate([self._x, np.zeros((more, row.size))])
                self._y = np.concatenate([self._y, np.zeros(more)])
            self._stored += 1
        else:
            self._settle()  # the fit that is due must not see what comes now
            if self._latest:
                place = self._count % self._stored
            else:
                place = int(self._stream.integers(self._count + 1))
                if place >= self._stored:
                    return
        self._x[place] = row
        self._y[place] = y

    def _settle(self) -> None:
        """Make the fit that is due."""
        if self._pending:
            rows, self._pending = self._pending, 0
            rng = np.random.default_rng(self._key)
            self._fitted = self._fit(self._x[:rows], self._y[:rows], rng)

    def _pooled(self) -> tuple[float, float]:
        """Return a mean and its standard error without any features, from few observations."""
        n = self._stored
        if n == 0:
            return 0.0, 1.0
        mean, size = centre(self._y[:n])
        return mean, size / math.sqrt(n)

    def predict(self, x: Any) -> tuple[Array, Array]:
        """Return means and standard errors."""
        rows = as_rows(x)
        self._settle()
        if self._fitted is None:
            mean, error = self._pooled()
            return np.full(len(rows), mean), np.full(len(rows), error)
        return self._predict(self._fitted, rows)

    def _pooled_draw(self, n: int, rng: np.random.Generator) -> Array:
        mean, error = self._pooled()
        return np.full(n, mean + error * rng.standard_normal())


def centre(y: Array) -> tuple[float, float]:
    """Return the mean and a standard deviation, widened where there are few observations."""
    mean = float(y.mean())
    return mean, max(float(y.std()), abs(mean) / math.sqrt(y.size))


def _unfitted(estimator: Any) -> Any:
    if isinstance(estimator, type) or not (
        hasattr(estimator, "fit") and hasattr(estimator, "get_params")
    ):
        raise check.InvalidParameterError(
            f"`estimator` must be an unfitted estimator of scikit-learn; "
            f"got {check.shown(estimator)}"
        )
    return estimator


class SklearnModel(RefittedModel, positional=1):
    """A model of scikit-learn, with the spread of bootstrap fits as its uncertainty.

    Parameters
    ----------
    estimator
        An unfitted classifier (occurrence only) or regressor, or a pipeline. It is cloned.
    n_bootstrap
        Fits per refit (≥ 2), each to as many rows drawn with replacement.
    prior
        Pairs of made-up observations that each fit gets in addition: at the features of two rows
        drawn at random, the classes 0 and 1; for a regressor, mean ± standard deviation.
    method
        ``"predict_proba"`` or ``"predict"``; ``"auto"`` takes the first where there is one.
    refit_growth
        Refit when there are this many times as many observations as at the last fit (≥ 1; 1 refits
        after every one).
    min_rows
        Observations before the first fit. Until then the mean of all serves for every action.
    memory
        Rows kept for refitting; None keeps all.
    keep
        Which: a uniform ``"sample"`` of all, or the ``"latest"``.
    seed
        Seed of the bootstrap.

    Notes
    -----
    The mean is that of the bootstrap fits (bagging) and the standard error their standard
    deviation. A draw is the prediction of one fit taken at random: bootstrapped Thompson sampling
    [1]_. Without made-up observations all fits would agree where only zeros, or too few rows, have
    been seen, and nothing would be explored; their weight fades as rows come in. They also see to
    it that every fit meets both classes.

    A refit costs `n_bootstrap` fits and a decision of ``kind="ucb"`` as many predictions. For trees
    take one tree as the estimator rather than a forest: the bootstrap makes the forest.

    Needs scikit-learn (``pip install "zib[sklearn]"``).

    References
    ----------
    .. [1] Osband and Van Roy (2015), Bootstrapped Thompson sampling and deep exploration,
       arXiv:1507.00300.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> model = SklearnModel(DecisionTreeClassifier(min_samples_leaf=5), n_bootstrap=50)
    >>> for i in range(100):
    ...     model.observe([i / 100], float(i >= 50))
    >>> mean, error = model.predict([[0.1], [0.9]])
    >>> bool(mean[0] < 0.1), bool(mean[1] > 0.9)
    (True, True)
    """

    estimator: Any = converted(_unfitted, allowed="unfitted estimator of scikit-learn")
    n_bootstrap: int = whole(low=2, default=20)
    prior: int = whole(low=0, default=1)
    method: str = word(METHODS, default="auto")
    refit_growth: float = REFIT_GROWTH
    min_rows: int = MIN_ROWS
    memory: int | None = MEMORY
    keep: str = KEEP
    seed: int = whole(low=0, default=0)

    def check(self) -> None:
        """Refuse what the estimator cannot do."""
        base = _sklearn_base()
        self._binary = bool(base.is_classifier(self.estimator))
        check.integer("prior", self.prior, low=int(self._binary))
        has_proba = hasattr(self.estimator, "predict_proba")
        if self.method == "predict_proba" and not has_proba:
            raise check.InvalidParameterError(
                f"`method` must be 'predict' for {self.estimator!r}, which has no predict_proba; "
                f"got {check.shown(self.method)}"
            )
        self._by_proba = has_proba and self.method != "predict"
        self._estimator = base.clone(self.estimator)
        super().check()

    def observe(self, x: Any, y: float) -> None:
        """Learn one observation."""
        if self._binary and y not in (0.0, 1.0):
            raise check.InvalidParameterError(
                f"`y` must be 0 or 1 for a classifier, which models the occurrence; "
                f"got {check.shown(y)}"
            )
        super().observe(x, y)

    def _fit(self, x: Array, y: Array, rng: np.random.Generator) -> Any:
        clone = _sklearn_base().clone
        n = len(y)
        mean, size = (0.5, 0.5) if self._binary else centre(y)
        made_up = np.tile([mean - size, mean + size], self.prior)
        members = []
        for _ in range(self.n_bootstrap):
            drawn = rng.integers(n, size=n)
            borrowed = rng.integers(n, size=made_up.size)
            target = np.concatenate([y[drawn], made_up])
            member = clone(self._estimator)
            _seed_estimator(member, rng)
            rows = x[np.concatenate([drawn, borrowed])]
            members.append(member.fit(rows, target.astype(np.int64) if self._binary else target))
        return members

    def _of_member(self, member: Any, x: Array) -> Array:
        if self._by_proba:
            return np.asarray(member.predict_proba(x)[:, 1], dtype=np.float64)
        return np.asarray(member.predict(x), dtype=np.float64).reshape(len(x))

    def _predict(self, fitted: Any, x: Array) -> tuple[Array, Array]:
        found = np.stack([self._of_member(member, x) for member in fitted])
        return found.mean(axis=0), found.std(axis=0, ddof=1)

    def sample(self, x: Any, rng: np.random.Generator) -> Array:
        """Return the predictions of one bootstrap fit."""
        rows = as_rows(x)
        self._settle()
        if self._fitted is None:
            return self._pooled_draw(len(rows), rng)
        return self._of_member(self._fitted[int(rng.integers(len(self._fitted)))], rows)


def _sklearn_base() -> Any:
    try:
        import sklearn.base
    except ImportError as error:
        raise ImportError(
            'SklearnModel needs scikit-learn; install it with `pip install "zib[sklearn]"`'
        ) from error
    return sklearn.base


def _seed_estimator(estimator: Any, rng: np.random.Generator) -> None:
    """Give seeds to all parts of an estimator that would else use NumPy's global stream."""
    seeds = {
        name: int(rng.integers(2**31 - 1))
        for name, value in sorted(estimator.get_params(deep=True).items())
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    }
    if seeds:
        estimator.set_params(**seeds)


class UserModel(RefittedModel):
    """A model made of your own functions, refitted on a geometric schedule.

    Parameters
    ----------
    fit
        ``fit(x, y) -> fitted``: x has one row of features per observation.
    predict
        ``predict(fitted, x) -> (mean, error)``, one entry per row.
    sample
        ``sample(fitted, x, rng) -> means``, one joint draw, for Thompson sampling. Without it each
        mean is drawn from N(mean, error²).
    refit_growth, min_rows, memory, keep
        As for `SklearnModel`.

    Notes
    -----
    For a model that learns from single observations, or has bounds of its own at every step, write
    a class with the methods of `ComponentModel` instead.

    Examples
    --------
    >>> def fit(x, y):
    ...     return y.mean(), y.std() / len(y) ** 0.5
    >>> def predict(fitted, x):
    ...     mean, error = fitted
    ...     return np.full(len(x), mean), np.full(len(x), error)
    >>> model = UserModel(fit, predict, min_rows=2)
    >>> for y in [1.0, 3.0]:
    ...     model.observe([1.0], y)
    >>> mean, error = model.predict([[1.0]])
    >>> float(mean[0]), float(error.round(3)[0])
    (2.0, 0.707)
    """

    refit_growth: float = REFIT_GROWTH
    min_rows: int = MIN_ROWS
    memory: int | None = MEMORY
    keep: str = KEEP

    # the functions are no fields: `predict` and `sample` are methods of every model
    def __init__(
        self,
        fit: Callable[[Array, Array], Any],
        predict: Callable[[Any, Array], tuple[Any, Any]],
        *,
        sample: Callable[[Any, Array, np.random.Generator], Any] | None = None,
        **history: Any,
    ) -> None:
        self._functions: dict[str, Any] = {"fit": fit, "predict": predict, "sample": sample}
        for name, function in self._functions.items():
            if not (callable(function) or (name == "sample" and function is None)):
                raise check.InvalidParameterError(
                    f"`{name}` must be a function; got {check.shown(function)}"
                )
        super().__init__(**history)

    def parameters(self) -> dict[str, Any]:
        """Return the arguments that rebuild this model."""
        return {**self._functions, **super().parameters()}

    def _fit(self, x: Array, y: Array, rng: np.random.Generator) -> Any:
        # copies: what the function keeps must not change with the history
        return self._functions["fit"](x.copy(), y.copy())

    def _predict(self, fitted: Any, x: Array) -> tuple[Array, Array]:
        mean, error = self._functions["predict"](fitted, x)
        return np.asarray(mean, dtype=np.float64), np.asarray(error, dtype=np.float64)

    def sample(self, x: Any, rng: np.random.Generator) -> Array:
        """Return one draw of the means."""
        rows = as_rows(x)
        self._settle()
        if self._fitted is None:
            return self._pooled_draw(len(rows), rng)
        if self._functions["sample"] is None:
            return normal_draw(self, rows, rng)
        return np.asarray(self._functions["sample"](self._fitted, rows, rng), dtype=np.float64)
