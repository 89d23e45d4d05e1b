"""Environments: laws of rewards, fixed bandits, and bandits redrawn for every replication."""

from importlib import import_module as _import_module

from zib.env.batched import Batched
from zib.env.contextual import PAPER_SPARSITIES, ContextBlock, ContextualGLM, RandomContextual
from zib.env.delayed import Delayed
from zib.env.disjoint import DisjointContextual, DisjointGLM
from zib.env.drift import (
    DriftingActions,
    DriftingMAB,
    DriftingRun,
    MovingMAB,
    PathMAB,
    Paths,
    RoundBlock,
)
from zib.env.laws import (
    Constant,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMixture,
    Law,
    LogNormal,
    Lomax,
    Pareto,
    StudentT,
    Uniform,
)
from zib.env.logged import BootstrapContextual, BootstrapMAB
from zib.env.mab import (
    MAB,
    PAPER_PROBS,
    ExponentialMAB,
    GaussianMAB,
    MixtureMAB,
    OutcomesMAB,
    RandomMAB,
)
from zib.env.mixtures import Empirical, Mixture, QuantileTable, ZeroInflated
from zib.env.registry import (
    ContextualEnvironment,
    Environment,
    from_dict,
    law_from_dict,
    list_ids,
    make,
    register_id,
)
from zib.env.told import CategoryBlock, ContextualOutcomes

__all__ = [
    "MAB",
    "PAPER_PROBS",
    "PAPER_SPARSITIES",
    "Batched",
    "BootstrapContextual",
    "BootstrapMAB",
    "CategoryBlock",
    "Constant",
    "ContextBlock",
    "ContextualEnvironment",
    "ContextualGLM",
    "ContextualOutcomes",
    "Delayed",
    "DisjointContextual",
    "DisjointGLM",
    "DriftingActions",
    "DriftingMAB",
    "DriftingRun",
    "Empirical",
    "Environment",
    "Exponential",
    "ExponentialMAB",
    "Gamma",
    "Gaussian",
    "GaussianMAB",
    "GaussianMixture",
    "Law",
    "LogNormal",
    "Lomax",
    "Mixture",
    "MixtureMAB",
    "MovingMAB",
    "OutcomesMAB",
    "Pareto",
    "PathMAB",
    "Paths",
    "QuantileTable",
    "RandomContextual",
    "RandomMAB",
    "RoundBlock",
    "StudentT",
    "Uniform",
    "ZeroInflated",
    "from_dict",
    "law_from_dict",
    "list_ids",
    "make",
    "register_id",
]

_IN_CASES = ("LoanMarket", "LoanPricing", "LoanRecords", "synthetic_loan_records")


def __getattr__(name: str) -> object:
    # The loan market has a room of its own; its names stay here for one version.
    if name in _IN_CASES:
        return getattr(_import_module("zib.cases.loan"), name)
    raise AttributeError(f"module 'zib.env' has no attribute {name!r}")
