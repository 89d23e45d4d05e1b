"""`ContextualBandit`: a policy that decides by features, one decision at a time, and learns."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Hashable, Iterable
from typing import Any, Self, cast

import numpy as np

from zib.contextual import entry, policy
from zib.contextual.adaptive import Adaptive
from zib.contextual.by_category import part_of
from zib.contextual.encoder import Encoder
from zib.contextual.joint import JointUCB
from zib.contextual.tally import new_tally
from zib.core import kernel, saved, validate
from zib.core.invariants import problem_in
from zib.core.state import claim
from zib.core.validate import InvalidParameterError, InvalidTypeError
from zib.online import links, warm
from zib.online.allocation import GuardRails
from zib.online.base import Propensities, Seed
from zib.online.categories import checked_category
from zib.online.encoding import checked_encoder, encoder_from_data, encoder_to_data
from zib.online.features import Matrix, is_ready
from zib.online.guard import InUseError, may_raise, undrawn
from zib.online.history import History
from zib.online.merging import Merging
from zib.online.served import Served
from zib.stats.predictions import Prediction, predictions

_FIRST_CAPACITY = 32
_MANY_FEATURES = 100_000  # a file may say so many that its state does not show

__all__ = ["ContextualBandit", "Prediction"]


class ContextualBandit(Merging, Served):
    """A contextual policy in use: it decides by features.

    Parameters
    ----------
    spec
        The policy, one of `zib.contextual` or your own. None: `zib.contextual.JointUCB`, which has
        to be told nothing; with `arms` models of their own for each of them
        (`zib.contextual.Adaptive`), which learn how much the features matter.
    n_features
        Number of features per action or user; or a pair (d, q), of the magnitude part and of the
        occurrence part.
    arms
        Labels of the actions, if they are the same in every round or come from a known set:
        text, numbers, None, or tuples of these. Without labels actions are known by their row
        number.
    encoder
        A fitted `zib.Encoder`: every call then takes dictionaries and frames as well as numbers.
        Or any fitted transformer with a method `transform`, as those of scikit-learn; it sees
        whatever is given as features. The number of features follows from it.
    keep_rows
        How many of the last rewards are kept with their features, so that they can be revised
        (`revise`) and handed to others (`merge`): a number, True for all, or False for none. One
        kept reward takes about as much memory as its features; beyond the number every reward is
        learned twice, by the state and by the one before the kept rewards.
    seed
        A whole number, a NumPy Generator (used as it is, not copied), or None for a fresh stream.
    inflated
        The reward that means "nothing happened", 0 unless said otherwise. A reward exactly equal to
        it is evidence for the occurrence part only.
    least_share, largest_share, evidence
        Limits on the probability of every arm and of arms without evidence, as for `zib.Bandit`.
        `largest_share` is for arms with names.
    draws
        How many decisions of a policy with random scores are simulated, for each decision whose
        shares are limited or asked for.

    Notes
    -----
    Where every arm has a model of its own, features are **one vector**: what is known about the
    user, the same for all arms. `arms` in a call are then those to choose from. Where actions share
    a model, features are **a matrix** with one row per action: an array, a list of lists or a
    DataFrame with numbers only. `arms` in a call are then the labels of its rows. A **tuple of
    two** gives the magnitude and the occurrence part features of their own; else both get the same.
    Nothing is added to the features: include a 1 for the intercept, as `zib.Encoder` does (but
    `Adaptive` has an intercept of its own).

    `select` never changes what was learned and `update` never draws, so rewards may come late, in
    any order and in batches; give each with the features that were decided on. Bad input raises one
    clear error, and after any error everything is as it was before (models of your own, in a
    `Template`, see to that themselves). One object serves one thread: a second that comes while it
    is in use gets a RuntimeError.

    As for `zib.Bandit`, decisions with limits on shares and those whose propensity is asked for are
    drawn from an allocation; here it is computed anew for every decision.

    Examples
    --------
    One model per arm, one vector per user:

    >>> import numpy as np
    >>> import zib
    >>> shop = zib.ContextualBandit(arms=["red", "blue"], n_features=2, seed=1)
    >>> user = [1.0, 0.3]
    >>> colour = shop.select(user)
    >>> shop.update(colour, 12.5, user)
    >>> len(shop.select_many([[1.0, 0.3], [1.0, -2.0]]))
    2

    One model for all actions, one row per action:

    >>> bandit = zib.ContextualBandit(zib.contextual.JointUCB(), n_features=2, seed=1)
    >>> rng = np.random.default_rng(0)
    >>> for _ in range(200):
    ...     features = rng.normal(size=(5, 2))
    ...     row = bandit.select(features)
    ...     bought = rng.random() < 0.2 + 0.3 * (features[row, 0] > 0)
    ...     bandit.update(row, 10.0 if bought else 0.0, features)
    >>> found = bandit.predict([[1.0, 0.0], [-1.0, 0.0]])
    >>> bool(found.p[0] > found.p[1])
    True
    """

    _format = "zib.ContextualBandit"
    _format_version = 3
    _compiled = (
        "_pin", "_space", "_select_one", "_select_pair", "_select_arms", "_select_users", "_learn",
        "_learner",
    )  # fmt: skip
    _changing = ("_state", "_tally", "_history")

    def __init__(
        self,
        spec: Any = None,
        *,
        n_features: int | tuple[int, int] | None = None,
        arms: Iterable[Hashable] | None = None,
        encoder: Any = None,
        keep_rows: int | bool = False,
        seed: Seed = None,
        inflated: float = 0.0,
        least_share: float = 0.0,
        largest_share: float = 1.0,
        evidence: int = 100,
        draws: int = 100,
    ) -> None:
        labels = None if arms is None else validate.labels("arms", arms)
        if spec is None:
            spec = JointUCB() if labels is None else Adaptive(n_arms=len(labels))
        if type(spec) in kernel.REGISTRY:
            raise InvalidTypeError(
                f"`spec` must be a contextual policy; {type(spec).__name__} is a policy without "
                "features; use zib.Bandit for it"
            )
        policy.lookup_policy(spec)
        self._encoder, n_features = checked_encoder(encoder, n_features)
        widths = n_features if isinstance(n_features, tuple) else (n_features, n_features)
        if len(widths) != 2:
            raise InvalidParameterError(
                f"`n_features` must be a number or a pair of numbers; "
                f"got {validate.shown(n_features)}"
            )
        d, q = cast("tuple[int, int]", widths)
        self._d = validate.integer("n_features", d, low=1)
        self._q = validate.integer("n_features", q, low=1)
        rails = GuardRails(
            least_share=least_share, largest_share=largest_share, evidence=evidence, draws=draws
        )
        horizon = getattr(links.innermost(spec), "horizon", None)
        super().__init__(spec, seed, inflated, horizon, rails)
        self._capacity = _FIRST_CAPACITY
        self._name(labels)
        if self._arms is not None and self._known_arms not in (None, len(self._arms)):
            raise InvalidParameterError(
                f"`arms` must be {self._known_arms} labels, as many as the policy has arms; "
                f"got {len(self._arms)}"
            )
        self._check_rails(rails)
        self._state = policy.init(spec, self._d, self._q)
        self._tally = new_tally(len(self._every))
        self._history = None
        if keep_rows is not False:
            keep = None if keep_rows is True else validate.integer("keep_rows", keep_rows, low=1)
            self._history = History(spec, len(self._every), keep)
        self._prepare()

    def _prepare(self) -> None:
        self._space = entry.buffers(self._capacity, self._d, self._q, self._tally)
        self._pin = entry.pin(self._spec, self._state, self._rng, self._space)
        self._select_one = entry.select_one.for_spec(self._spec)
        self._select_pair = entry.select.for_spec(self._spec)
        self._select_arms = entry.select_arms.for_spec(self._spec)
        self._select_users = entry.select_users.for_spec(self._spec)
        self._prepare_learning()
        if may_raise(self._spec):
            for name in ("_select_one", "_select_pair", "_select_arms", "_select_users"):
                setattr(self, name, undrawn(self._rng, getattr(self, name)))
        # What the quick checks compare with: the width of a matrix that serves both parts, and
        # the numbers of rows that need no second look.
        # A transformer of others may want to see a matrix first, whatever it looks like.
        self._width = self._d if self._d == self._q and self._saves_encoder else -1
        room: int = self._space.out.size
        if self._arms is not None:
            self._fewest = self._most = len(self._arms)
        else:
            self._fewest, self._most = 1, min(room, self._known_arms or room)

    # ------------------------------------------------------------------------------- what it is

    @property
    def n_features(self) -> tuple[int, int]:
        """Numbers of features of the magnitude and of the occurrence part."""
        return (self._d, self._q)

    @property
    def arms(self) -> tuple[Hashable, ...] | None:
        """The labels, or None where actions are known by their row."""
        return self._arms  # type: ignore[no-any-return]

    @property
    def encoder(self) -> Any:
        """What turns frames and dictionaries into features, or None."""
        return self._encoder

    @property
    def n_updates(self) -> int:
        """How many rewards were learned."""
        return self._learned

    def __repr__(self) -> str:
        width = self._d if self._d == self._q else (self._d, self._q)
        arms = "" if self._arms is None else f"{len(self._arms)} arms, "
        return (
            f"ContextualBandit({self._spec!r}, n_features={width}, "
            f"{arms}{self._learned} rewards learned)"
        )

    # -------------------------------------------------------------------------------- deciding

    def select(
        self,
        features: Any,
        arms: Iterable[Hashable] | None = None,
        *,
        return_propensity: bool = False,
    ) -> Any:
        """Return the action to take now: its label, or its row where there are no labels.

        Parameters
        ----------
        features
            One vector, where every arm has a model of its own; or one row per action. Either may be
            a tuple of two, for magnitude and occurrence.
        arms
            With one vector: the arms to choose from, all by default. With a matrix: the labels of
            its rows, where the actions differ from round to round; if the bandit was made with
            labels they must be among those.
        return_propensity
            Whether to return a pair, the action and the probability with which it was chosen. The
            decision is then drawn from an allocation (see `zib.Bandit`), so the probability is
            exact and never 0.
        """
        if return_propensity is not False or self._guarded:
            asked = validate.flag("return_propensity", return_propensity)
            return self._served(*self._given(features, arms), asked)
        labels = None if arms is None else tuple(validate.iterable("arms", arms))
        if is_ready(features, self._width):
            z = w = features
        else:
            z, w, alone = self._decided(features)
            if alone:
                return self._for_users(z, w, labels)[0]
        if not self._enter(False):
            raise InUseError
        try:
            if labels is None and self._fewest <= len(z) <= self._most:
                if z is w:
                    row: int = self._select_one(self._pin, z)
                else:
                    row = self._select_pair(self._pin, z, w)
                if row < 0:
                    self._refuse_features(z, w)
                return row if self._arms is None else self._arms[row]
            named, ids = self._actions(len(z), labels)
            row = self._select_arms(self._pin, ids, z, w)
            if row < 0:
                self._refuse_features(z, w)
            return named[row]
        finally:
            self._leave()

    def select_many(
        self,
        features: Any,
        arms: Iterable[Hashable] | None = None,
        *,
        return_propensity: bool = False,
    ) -> Any:
        """Return the arm for each of many users, as `select` would one after the other.

        Parameters
        ----------
        features
            One row per user, or a tuple of two such matrices. For policies with a model of its own
            for every arm.
        arms
            The arms to choose from, all by default.
        return_propensity
            Whether to return a pair, the arms and an array of the probabilities with which they
            were chosen, as for `select`.
        """
        asked = validate.flag("return_propensity", return_propensity)
        labels = None if arms is None else tuple(validate.iterable("arms", arms))
        z, w = self._rows(features)
        if not (asked or self._guarded):
            return self._for_users(z, w, labels)
        self._need_own_models()
        self._refuse_features(z, w)
        n = len(self._every if labels is None else labels)
        pairs = [self._served(z[[k] * n], w[[k] * n], labels, asked=True) for k in range(len(z))]
        chosen = [arm for arm, _ in pairs]
        return (chosen, np.array([share for _, share in pairs])) if asked else chosen

    def _for_users(self, z: Matrix, w: Matrix, labels: tuple[Hashable, ...] | None) -> list[Any]:
        """Return the arm for every row."""
        self._need_own_models()
        if not self._enter(False):
            raise InUseError
        try:
            named, ids = self._eligible(labels)
            chosen = np.empty(len(z), dtype=np.int64)
            if not self._select_users(self._pin, ids, z, w, chosen):
                self._refuse_features(z, w)
            return [named[k] for k in chosen.tolist()]
        finally:
            self._leave()

    def indices(
        self, features: Any, arms: Iterable[Hashable] | None = None
    ) -> dict[Hashable, float]:
        """Return the score of every action; `select` with these features takes the largest.

        For a Thompson sampling policy these are the draws the next `select` will make: the stream
        is copied, not advanced.
        """
        z, w, named = self._given(features, arms)
        with self._alone():
            labels, ids = self._load(z, w, named)
            out = np.zeros(len(labels))
            preview = entry.pin(self._spec, self._state, self._same_stream(), self._space)
            entry.scores.for_spec(self._spec)(preview, ids, out)
            return dict(zip(labels, out.tolist(), strict=True))

    def propensities(
        self, features: Any, draws: int = 10_000, *, arms: Iterable[Hashable] | None = None
    ) -> Propensities:
        """Return the probability of each action if `select` were called with these features.

        Exact for policies whose scores are not random (ties share evenly); else from `draws`
        simulated decisions on a stream of their own, with `error` the largest standard error. With
        limits on shares these are the shares that the next decision is drawn from. The decisions to
        come are not affected.
        """
        draws = validate.integer("draws", draws, low=1)
        if self._guarded:
            z, w, named = self._given(features, arms)
            with self._alone():
                found = self._allocation(z, w, named, self._same_stream())
            shares = dict(zip(found.labels, found.shares, strict=True))
            return Propensities(shares, exact=True, error=0.0)
        if not policy.draws_randomly(self._spec):
            return Propensities.of_largest(self.indices(features, arms))
        z, w, named = self._given(features, arms)
        with self._alone():
            labels, ids = self._load(z, w, named)
            pin = entry.pin(self._spec, self._state, self._own_stream(), self._space)
            counts = np.zeros(len(labels), dtype=np.int64)
            entry.count_choices.for_spec(self._spec)(pin, ids, draws, counts)
            return Propensities.of_counts(labels, counts)

    def predict(
        self,
        features: Any,
        level: float = 0.95,
        *,
        arms: Iterable[Hashable] | None = None,
        category: int | None = None,
    ) -> Prediction:
        """Return estimates and intervals of p, mu and r for every action.

        p is the probability that something happens, mu the mean reward when it does, r the mean
        reward. Where the policy models the reward as a whole, p and mu are NaN. With `category`
        they are those of one category, for policies that are told them.

        Notes
        -----
        Intervals treat the estimated linear predictors as normal with the variances the policy
        reports: p gets h(η̂ ± z·se), mu gets g(ζ̂ ± z·se), r the quantiles of h(η)·g(ζ) for jointly
        normal (η, ζ). They hold for many rewards, features that vary and a model that is right.
        With few rewards they show the penalty of the fit (its prior) rather than the data.
        """
        level = validate.real("level", level, low=0, high=1, closed="neither")
        if category is not None:
            category = checked_category(self._n_categories, category, 1.0)
        z, w, named = self._given(features, arms)
        with self._alone():
            labels, ids = self._load(z, w, named)
            out = np.zeros((5, len(labels)))
            if category is None:
                entry.moments.for_spec(self._spec)(self._pin, ids, out)
            else:
                inner, part = self._spec.spec, part_of(self._state, category)
                pin = entry.pin(inner, part, self._rng, self._space)
                entry.moments.for_spec(inner)(pin, ids, out)
        probabilities = functools.partial(links.probabilities, self._spec)
        whole = category is None and self._n_categories > 0  # the reward, not its magnitude
        magnitudes = None if whole else links.magnitudes(self._spec)
        return predictions(labels, out, probabilities, magnitudes, level, self._inflated)

    # ------------------------------------------------------------------------------ keeping it

    def _use_everything(self) -> None:
        self._encoder = None
        self._prepare()
        warm.use_with_features(self)

    def _content(self) -> dict[str, Any]:
        return {
            "n_features": [self._d, self._q],
            "encoder": encoder_to_data(self._encoder),
            "tally": saved.state_to_data(self._tally),
            "rows": None if self._history is None else self._history.to_data(),
        }

    @classmethod
    def _rebuilt(
        cls, spec: Any, arms: Any, seed: Seed, content: dict[str, Any], **given: Any
    ) -> Self:
        d, q = content["n_features"]
        for width in (d, q):
            if validate.integer("n_features", width, low=1) > _MANY_FEATURES:
                claim(width)
        return cls(
            spec,
            n_features=(d, q),
            arms=arms,
            encoder=encoder_from_data(content.get("encoder"), given.get("encoder")),
            seed=seed,
            inflated=content["inflated"],
            **content.get("shares", {}),
        )

    def _restore(self, content: dict[str, Any]) -> None:
        if content["format_version"] == 2:  # without tally, rows and encoder
            return
        counted = saved.state_from_data(content["tally"], self._tally, "tally")
        problem = problem_in(counted)
        if problem is not None:
            raise saved.SavedStateError(f"the saved entry 'tally' cannot be: {problem}")
        self._tally = counted
        if content["rows"] is not None:
            self._history = History.from_data(
                content["rows"],
                self._spec,
                len(self._every),
                (self._d, self._q),
                self._checked_outcome,
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `dumps` to a file, whole or not at all.

        A `zib.Encoder` is saved with the bandit. A transformer of another library is not data: keep
        it by its own means, and give it to `load` again.
        """
        if not self._saves_encoder:
            warnings.warn(
                f"the bandit is saved without its encoder, {type(self._encoder).__name__}, which "
                "is not data; keep it with joblib, and load with "
                "zib.ContextualBandit.load(path, encoder=...)",
                UserWarning,
                stacklevel=2,
            )
        super().save(path)

    @property
    def _saves_encoder(self) -> bool:
        return self._encoder is None or isinstance(self._encoder, Encoder)

    @classmethod
    def loads(
        cls, text: str, *, seed: Seed = None, source: str = "the text", encoder: Any = None
    ) -> Self:
        """Return the bandit saved by `dumps`; see `load`."""
        return cls._read(text, seed, source, encoder=encoder)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, seed: Seed = None, encoder: Any = None) -> Self:
        """Return the bandit saved at `path`.

        Without `seed` the random stream goes on exactly where it stopped: right for a restart, but
        two loads then explore alike. Give each further copy a `seed` of its own. `encoder` is for
        a bandit whose encoder was not saved, or to replace it by one with as many features.
        """
        return cls._read_file(path, seed, encoder=encoder)
