"""Environments redrawn for each replication, and the settings of the paper by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from zib.core.validate import InvalidParameterError, choice, integer, real, vector
from zib.env.contextual import ContextualGLM
from zib.env.contextual_draws import LINK_NAMES, NOISES, LinkName, Noise
from zib.env.contextual_drift import DriftingActions
from zib.env.contextual_random import DisjointContextual, DisjointGLM, RandomContextual
from zib.env.drift import DriftingMAB, PathMAB
from zib.env.mab import MAB, ExponentialMAB, GaussianMAB, MixtureMAB, _mab_from_dict
from zib.env.outcomes import OutcomesMAB
from zib.env.rewards import Exponential, Gaussian, GaussianMixture, Kind, Law

Family = Literal["gaussian", "mixture", "exponential"]
FAMILIES: tuple[Family, ...] = ("gaussian", "mixture", "exponential")


def _range(name: str, value: object, low: float, high: float) -> tuple[float, float]:
    pair = vector(name, value, low, high)
    if pair.size != 2 or pair[0] > pair[1]:
        raise InvalidParameterError(f"`{name}` must be a pair (low, high); got {value!r}")
    return float(pair[0]), float(pair[1])


@dataclass(frozen=True)
class RandomMAB:
    """A new multi-armed bandit for every replication.

    Parameters
    ----------
    family
        Law of the non-zero rewards: ``"gaussian"``, ``"mixture"`` or ``"exponential"``.
    n_arms
        Number of arms.
    magnitudes
        Mean magnitudes are drawn uniformly from this interval.
    probs
        Probabilities of paying are drawn uniformly from this interval.
    sigma, offset
        Standard deviation of the Gaussian (parts), and half the distance of the two parts of the
        mixture; the exponential family uses neither.

    Notes
    -----
    `component_size` gives one size valid for every arm that can be drawn, which is what a policy
    must be told before it has seen anything.

    Examples
    --------
    >>> maker = RandomMAB("gaussian", n_arms=3, probs=(0.3, 0.35))
    >>> maker.instance(np.random.default_rng(0)).n_arms
    3
    """

    family: Family
    n_arms: int = 10
    magnitudes: tuple[float, float] = (1.0, 3.0)
    probs: tuple[float, float] = (0.30, 0.35)
    sigma: float = 0.5
    offset: float = 1.0

    def __post_init__(self) -> None:
        choice("family", self.family, FAMILIES)
        low = 1e-300 if self.family == "exponential" else -np.inf
        checked = {
            "n_arms": integer("n_arms", self.n_arms, 1),
            "magnitudes": _range("magnitudes", self.magnitudes, low, np.inf),
            "probs": _range("probs", self.probs, 0.0, 1.0),
            "sigma": real("sigma", self.sigma, 0.0, closed="neither"),
            "offset": real("offset", self.offset, 0.0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def law(self, mean: float) -> Law:
        """Return the law of non-zero rewards with this mean."""
        if self.family == "gaussian":
            return Gaussian(mean, self.sigma)
        if self.family == "mixture":
            return GaussianMixture(mean, self.sigma, self.offset)
        return Exponential(mean)

    def component_size(self, kind: Kind = "subgaussian") -> float:
        """Return a size of the non-zero part that is valid for every arm that can be drawn."""
        return max(self.law(mean).size(kind) for mean in self.magnitudes)

    def instance(self, rng: np.random.Generator) -> MAB:
        """Draw magnitudes, then probabilities, and return the environment they make."""
        means = rng.uniform(*self.magnitudes, self.n_arms)
        probs = rng.uniform(*self.probs, self.n_arms)
        if self.family == "gaussian":
            return GaussianMAB(means, probs, self.sigma)
        if self.family == "mixture":
            return MixtureMAB(means, probs, self.sigma, self.offset)
        return ExponentialMAB(means, probs)

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this generator."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """Return the generator as plain data; see `from_dict`."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in self.parameters().items()}
        return {"environment": "RandomMAB", **plain}


ContextualEnvironment = (
    ContextualGLM | RandomContextual | DisjointGLM | DisjointContextual | DriftingActions
)
Environment = MAB | RandomMAB | PathMAB | DriftingMAB | ContextualEnvironment

_TYPES: dict[str, Callable[..., Environment]] = {
    "GaussianMAB": GaussianMAB,
    "MixtureMAB": MixtureMAB,
    "ExponentialMAB": ExponentialMAB,
    "OutcomesMAB": OutcomesMAB,
    "RandomMAB": RandomMAB,
    "PathMAB": PathMAB,
    "DriftingMAB": DriftingMAB,
    "ContextualGLM": ContextualGLM,
    "RandomContextual": RandomContextual,
    "DisjointGLM": DisjointGLM,
    "DisjointContextual": DisjointContextual,
    "DriftingActions": DriftingActions,
}


def register_type(name: str, make: Callable[..., Any]) -> None:
    """Let `from_dict` build environments of this name."""
    _TYPES[name] = make


def from_dict(data: Mapping[str, Any]) -> Environment:
    """Return the environment or generator that its `to_dict` described.

    Examples
    --------
    >>> env = ExponentialMAB(means=[1, 2], probs=[0.5, 0.1])
    >>> from_dict(env.to_dict()) == env
    True
    """
    arguments = dict(data)
    name = arguments.pop("environment", None)
    if not isinstance(name, str) or (name != "MAB" and name not in _TYPES):
        known = ", ".join(["MAB", *_TYPES])
        raise InvalidParameterError(f"`environment` must be one of {known}; got {name!r}")
    try:
        if name == "MAB":
            return _mab_from_dict(arguments)
        nested = {k: from_dict(v) if isinstance(v, Mapping) else v for k, v in arguments.items()}
        return _TYPES[name](**nested)
    except (TypeError, KeyError):
        raise InvalidParameterError(
            f"`data` must hold the parameters of {name}; got {sorted(arguments)}"
        ) from None


PAPER_PROBS: dict[str, tuple[float, float]] = {
    "p10": (0.10, 0.15),
    "p15": (0.15, 0.20),
    "p20": (0.20, 0.25),
    "p25": (0.25, 0.30),
    "p30": (0.30, 0.35),
    "tiny": (0.0005, 0.01),
}

_IDS: dict[str, Callable[[], Environment]] = {}


def register_id(name: str, factory: Callable[[], Environment]) -> None:
    """Let `make` build an environment by this name; a name is never given to two environments."""
    if name in _IDS:
        raise InvalidParameterError(f"`name` must be new; got {name!r}, which is taken")
    _IDS[name] = factory


def _paper(family: Family, probs: tuple[float, float]) -> Callable[[], Environment]:
    return lambda: RandomMAB(family, n_arms=10, probs=probs)


for _tag, _probs in PAPER_PROBS.items():
    for _family in FAMILIES:
        register_id(f"paper-mab-{_family}-{_tag}-v1", _paper(_family, _probs))


def _drifting_mab(prob_speed: float, mean_speed: float) -> Callable[[], Environment]:
    return lambda: DriftingMAB(pattern="waves", prob_speed=prob_speed, mean_speed=mean_speed)


register_id("drifting-mab-probs-v1", _drifting_mab(5e-5, 0.0))
register_id("drifting-mab-means-v1", _drifting_mab(0.0, 5e-5))
register_id("drifting-mab-none-v1", _drifting_mab(0.0, 0.0))

PAPER_SPARSITIES = (1, 3, 5, 7)


def _paper_contextual(noise: Noise, sparsity: int, link: LinkName) -> Callable[[], Environment]:
    return lambda: RandomContextual(sparsity=sparsity, noise=noise, link=link)


def _disjoint(noise: Noise) -> Callable[[], Environment]:
    return lambda: DisjointContextual(noise=noise)


def _drifting(noise: Noise) -> Callable[[], Environment]:
    return lambda: DriftingActions(RandomContextual(noise=noise))


for _noise in NOISES:
    for _sparsity in PAPER_SPARSITIES:
        for _link in LINK_NAMES:
            register_id(
                f"paper-contextual-{_noise}-s{_sparsity}-{_link}-v1",
                _paper_contextual(_noise, _sparsity, _link),
            )
    register_id(f"disjoint-{_noise}-v1", _disjoint(_noise))
    register_id(f"drifting-{_noise}-v1", _drifting(_noise))


def make(name: str) -> Environment:
    """Return the environment registered under a versioned id.

    An id never changes its meaning: a corrected setting gets the next version number.

    Examples
    --------
    >>> make("paper-mab-gaussian-p30-v1").probs
    (0.3, 0.35)
    >>> make("paper-contextual-mixture-s3-logit-v1").n_features
    (10, 10)
    """
    factory = _IDS.get(name)
    if factory is None:
        near = difflib.get_close_matches(str(name), _IDS, n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidParameterError(
            f"`name` must be an id listed by zib.env.list_ids(); got {name!r}{hint}"
        )
    return factory()


def list_ids() -> list[str]:
    """Return every id that `make` knows."""
    return sorted(_IDS)
