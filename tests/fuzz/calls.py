"""One valid call, or a few, of everything public that takes arguments.

The fuzzer spoils one argument at a time. What kind of argument it is follows from the valid value,
unless `KINDS` says more; `test_no_name_is_left_out` compares with the public names.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pandas as pd

import zib
import zib.advise
import zib.live
import zib.ope
from tests import contextual_policies, policies
from tests.env.test_conformance import EXAMPLES
from zib import contextual, env, mab, theory
from zib.cases import loan
from zib.env import registry
from zib.logs import LoggedData, open_log
from zib.sim import Plan, Store
from zib.stats import delay
from zib.stats.pending import PendingDecisions


class Call(NamedTuple):
    """A function, arguments it takes, and what must not change when it refuses one."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    watched: Callable[[], Any] | None = None


# Kinds that the valid value does not tell. `anything`: any object is a value.
KINDS = {
    "seed": "seed",
    "arm": "label",
    "arms": "labels",
    "path": "path",
    "folder": "path",
    "source": "anything",
    "text": "text",
    "key": "id",
    "unit": "id",
    "event_id": "id",
    "revision_id": "id",
    "who": "optional",
    "decision_id": "known id",
    "decision_ids": "ids",
    "keys": "ids",
    "units": "ids",
    "revisions": "ids",
}
# Arguments with a meaning of their own in one call.
KINDS_IN = {
    ("Ledger", "name"): "id",
    ("event_many", "events"): "ids",
    ("Client", "token"): "id",
    ("Client", "bandit"): "id",
    ("decide", "fallback"): "new label",
    ("decide_many", "fallback"): "new label",
    **{
        (f"{name} by HTTP", "arm"): "new label"  # the service knows which there are
        for name in ("add_arm", "pause_arm", "resume_arm", "retire_arm", "set_shadow")
    },
    ("export", "out"): "path",
    ("Ledger", "window"): "duration",
    ("Ledger", "grace"): "duration",
    ("Ledger", "refresh"): "duration",
    ("Ledger", "park"): "duration",
    ("Ledger", "clock"): "function",
    ("decide", "arms"): "optional",
    ("set_shadow", "arm"): "label",
    ("export", "since"): "date",
    ("export", "until"): "date",
    ("always", "arm"): "anything",
    ("add_arm", "arm"): "new label",
    ("from_arrays", "arm"): "column of labels",
    ("from_arrays", "time"): "column",
    ("from_arrays", "unit"): "column of labels",
    ("from_arrays", "cluster"): "column of labels",
    ("from_frame", "arm"): "column name",
    ("from_frame", "reward"): "column name",
    ("from_frame", "propensity"): "column name",
    ("from_frame", "time"): "column name",
    ("from_frame", "unit"): "column name",
    ("from_frame", "cluster"): "column name",
    ("register_id", "name"): "new label",
    ("disjoint", "arms"): "array",
    ("hybrid", "arms"): "array",
    ("update_many", "arms"): "known labels",
    ("set_pending", "zeros"): "numbers by label",
    ("set_pending", "amounts"): "numbers by label",
    ("revise_many", "arms"): "known labels",
    ("LoanPricing", "source"): "text",
    ("register_id", "factory"): "function",
    ("simulate", "progress"): "progress",
    ("simulate", "store"): "store",
    ("from_frame", "frame"): "table",
    ("open_log", "source"): "table",
    ("join", "exposures"): "table",
    ("join", "conversions"): "table",
    ("join", "on"): "column name",
    ("join", "arm"): "column name",
    ("join", "time"): "column name",
    ("join", "conversion_time"): "column name",
    ("join", "amount"): "column name",
    ("join", "conversion_id"): "column name",
    ("join", "as_of"): "date",
    ("join", "reward"): "new column",
    ("BootstrapContextual", "features"): "word or function",
    ("evaluate", "policies"): "not functions",
    ("fit", "frame"): "not a mapping",
    ("Strata", "columns"): "not strings",
    ("advise", "source"): "not a mapping",
}


def _rng() -> np.random.Generator:
    return np.random.default_rng(5)


def small_log() -> LoggedData:
    rng = _rng()
    arm = rng.integers(2, size=300)
    reward = (rng.random(300) < 0.3) * rng.normal(4.0, 1.0, 300)
    return LoggedData.from_arrays(
        np.array(["a", "b"])[arm],
        reward,
        propensity=np.full(300, 0.5),
        context=rng.integers(2, size=(300, 2)).astype(float),
    )


def _declared(prefix: str, examples: Any) -> Iterator[Call]:
    seen = set()
    for example in examples:
        kind = type(example)
        given = example.parameters() if hasattr(example, "parameters") else {}
        shape = (kind, tuple((k, type(v)) for k, v in given.items()))
        if given and shape not in seen and kind.__module__.startswith("zib."):
            seen.add(shape)
            yield Call(f"{prefix}.{kind.__name__}", kind, given)


def constructors() -> Iterator[Call]:
    """Specs, laws and environments, from the examples of the conformance tests."""
    yield from _declared("mab", [*policies.SPECS.values(), *policies.TOLD.values()])
    yield from _declared("contextual", contextual_policies.SPECS.values())
    laws = [
        env.Constant(1.0),
        env.Exponential(2.0),
        env.Gaussian(1.0, 2.0),
        env.GaussianMixture(1.0, 0.5),
        env.LogNormal(0.1, 0.5),
        env.Pareto(2.0, 1.5),
        env.Lomax(2.0, 1.5),
        env.Gamma(2.0, 1.5),
        env.Uniform(0.0, 2.0),
        env.StudentT(1.0, 1.0, 3.0),
        env.Empirical([1.0, 2.0], [0.5, 0.5]),
        env.QuantileTable([0.0, 0.5, 1.0], [1.0, 2.0, 4.0]),
        env.Mixture([env.Constant(0.0), env.Exponential(2.0)], [0.7, 0.3]),
        env.ZeroInflated(env.Gaussian(1.0, 1.0), 0.3),
    ]
    yield from _declared("env", [*laws, *EXAMPLES.values()])
    yield Call("mab.SubGaussian", mab.SubGaussian, {"sigma": 1.0})
    yield Call("mab.SubExponential", mab.SubExponential, {"size": 1.0})
    yield Call("mab.SubWeibull", mab.SubWeibull, {"theta": 1.0, "size": 2.0})
    yield Call("contextual.MedianOfMeans", contextual.MedianOfMeans, {"groups": 7})
    yield Call("contextual.LeastSquares", contextual.LeastSquares, {"link": "log"})
    yield Call("contextual.StandardLink", contextual.StandardLink, {"name": "logit"})
    yield Call(
        "contextual.GLMModel",
        contextual.GLMModel,
        {"family": "bernoulli", "ridge": 1.0, "bound": 1.0, "memory": 4096},
    )
    models = (contextual.GLMModel("bernoulli"), contextual.GLMModel("gaussian"))
    yield Call(
        "contextual.Template",
        contextual.Template,
        {
            "occurrence": models[0],
            "magnitude": models[1],
            "kind": "ucb",
            "scale": 1.0,
            "growth": "log",
            "random_rounds": 3,
        },
    )
    yield Call(
        "env.BootstrapContextual",
        env.BootstrapContextual,
        {"log": small_log(), "features": "disjoint", "empty": "raise", "use_propensity": True},
    )
    yield Call("env.make", env.make, {"name": env.list_ids()[0]})
    known = set(env.list_ids())

    def register_id(name: Any, factory: Any) -> None:
        env.register_id(name, factory)
        for new in set(env.list_ids()) - known:
            registry._IDS.pop(new)

    yield Call("env.register_id", register_id, {"name": "fuzz/one", "factory": loan.LoanMarket})
    yield Call("env.from_dict", env.from_dict, {"data": EXAMPLES["GaussianMAB"].to_dict()})
    yield Call("env.law_from_dict", env.law_from_dict, {"data": laws[1].to_dict()})
    yield Call("loan.LoanMarket", loan.LoanMarket, {"slope": 0.35, "acceptance": 0.22})
    yield Call(
        "loan.synthetic_loan_records",
        loan.synthetic_loan_records,
        {"n": 200, "seed": 1, "slope": 0.35, "acceptance": 0.22},
    )


THEORY: dict[str, list[dict[str, Any]]] = {
    "beta_tail": [{"alpha": 1.0, "beta": 0.1, "x": 0.045, "version": "corrected"}],
    "error_share": [{"prob": 0.75}],
    "gaussian_beta_tail": [
        {"mean": 1.0, "sigma": 1.0, "alpha": 1.0, "beta": 1.0, "x": 1.0, "version": "corrected"}
    ],
    "minimax_ratio": [
        {"algorithm": "heavy_ucb", "horizon": 1e6, "n_arms": 2, "epsilon": 1.0,
         "version": "derived"},
    ],
    "bernoulli_lower": [{"successes": 10, "n": 1000, "delta": 0.05, "method": "kl"}],
    "bernoulli_upper": [{"successes": 10, "n": [1000, 2000], "delta": 0.05, "method": "kl"}],
    "contextual_optimism": [{"radius": 2.0, "spread": 1.0}],
    "contextual_radius": [
        {"rounds": 1000, "dim": 5, "delta": 0.01, "ridge": 1.0, "sigma": 1.0, "kappa": 1.0,
         "norm": 1.0, "version": "printed"},
    ],
    "contextual_random_period": [
        {"dim_magnitude": 5, "dim_occurrence": 5, "delta": 0.01, "prob_min": 0.2,
         "eigenvalue_magnitude": 0.1, "eigenvalue_occurrence": 0.1,
         "constants": (1.0, 1.0, 1.0, 1.0)},
    ],
    "contextual_regret_bound": [
        {"horizon": 1e6, "dim_magnitude": 5, "dim_occurrence": 5, "delta": 1e-4, "sigma": 1.0,
         "slope_magnitude": 1.0, "slope_occurrence": 0.25, "kappa_magnitude": 1.0,
         "kappa_occurrence": 0.2, "prob_min": 0.25, "at_zero": 0.0, "ridge_magnitude": 1.0,
         "ridge_occurrence": 1.0, "random_rounds": 0.0, "version": "corrected"},
        {"horizon": [1e6], "dim_magnitude": 5, "dim_occurrence": 5, "delta": 1e-4,
         "radii": (2.0, 3.0)},
    ],
    "contextual_spread": [
        {"dim": 10, "delta": 1e-4, "horizon": 1e4, "sigma": 1.0, "n_actions": 100}
    ],
    "contextual_thompson_rate": [{"horizon": 1e4, "dim_magnitude": 2, "dim_occurrence": 3}],
    "divergence_to": [
        {"mean": 2.0, "prob": 0.2, "target": 0.5, "sigma": 1.0, "family": "gaussian"},
        {"mean": 2.0, "prob": 0.2, "target": 0.5, "family": "gamma", "shape": 2.0},
    ],
    "exponential_subexponential_size": [{"mean": 2.0}],
    "gamma_subexponential_size": [{"scale": 2.0, "shape": 0.5}],
    "given_count_radius": [{"count": 100, "delta": 0.05, "sigma": 1.0}],
    "heavy_tail_minimax_bound": [
        {"n_arms": 10, "prob_min": 0.2, "horizon": 1e10, "epsilon": 1.0, "moment": 5.0}
    ],
    "heavy_tail_regret_bound": [
        {"means": [2.5, 2.0], "probs": [0.2, 0.2], "horizon": 1e6, "epsilon": 1.0, "moment": 8.0}
    ],
    "delayed_level": [{"horizon": 1e4}],
    "delayed_regret_bound": [
        {"means": [2.5, 2.0], "probs": [0.2, 0.2], "horizon": 1e6, "bound": 4.0, "mean_delay": 9.0},
    ],
    "poisson_kl_upper": [{"total": 3.0, "n": 100.0, "level": 3.0}],
    "hoeffding_radius": [{"n": 100, "delta": 0.05}, {"n": [1, 2], "delta": [0.1, 0.2]}],
    "joint_kl_level": [{"delta": 0.05}],
    "joint_kl_lower": [
        {"n": 100, "count": 5, "total": 20.0, "sigma": 1.0, "level": 3.0, "family": "gaussian"},
    ],
    "joint_kl_upper": [
        {"n": 100, "count": 5, "total": 20.0, "sigma": 1.0, "level": 3.0, "family": "gaussian"},
        {"n": 100, "count": 5, "total": 20.0, "level": 3.0, "family": "gamma", "shape": 2.0},
        {"n": 100, "count": 5, "total": 20.0, "spread": 9.0, "level": 3.0, "family": "gaussian"},
    ],
    "kl_lower": [{"p_hat": 0.01, "n": 1000, "level": 3.0}],
    "kl_upper": [{"p_hat": 0.01, "n": 1000, "level": [3.0, 4.0]}],
    "light_tail_minimax_bound": [
        {"n_arms": 10, "prob_min": 0.2, "horizon": 1e8, "theta": 2.0, "size": 1.0}
    ],
    "light_tail_regret_bound": [
        {"means": [2.5, 2.0], "probs": [0.2, 0.2], "horizon": 1e6, "theta": 2.0, "size": 1.0,
         "constants": "simplified"},
    ],
    "lower_bound": [
        {"means": [2.5, 2.0], "probs": [0.2, 0.2], "sigma": 1.0, "family": "gaussian"}
    ],
    "outcome_kl_upper": [
        {"counts": [90, 6, 3], "means": [0.0, 1.0, 20.0], "sigma": 0.0, "level": 3.0}
    ],
    "printed_lower_bound": [
        {"means": [2.5, 2.0], "probs": [0.2, 0.2], "sigma": 1.0, "reading": "literal"}
    ],
    "product_lower": [{"mean_lower": 2.0, "prob_lower": 0.1, "prob_upper": 0.3}],
    "product_upper": [{"mean_upper": 2.0, "prob_lower": 0.1, "prob_upper": 0.3}],
    "product_subexponential_size": [{"mean": 2.0, "prob": 0.3, "lam": 1.0}],
    "product_variance_proxy": [{"mean": 2.0, "prob": 0.3, "sigma": 1.0}],
    "product_variance_proxy_gradient": [{"mean": 2.0, "prob": 0.3, "sigma": 1.0}],
    "rare_arm_ratio": [
        {"prob": 0.01, "horizon": 1e4, "loss": 0.25, "gain": 0.5, "never": 3.0,
         "now_and_then": 500.0},
    ],
    "rare_arm_regret": [{"pulls": 20, "prob": 0.01, "horizon": 1e4, "loss": 0.25, "gain": 0.5}],
    "subexponential_radius": [{"count": 100, "delta": 0.05, "lam": 1.0}],
    "subweibull_constants": [{"theta": 1.0, "size": 2.0}],
    "subweibull_radius": [{"n": 100, "delta": 0.05, "theta": 1.0, "size": 2.0}],
    "thompson_regret_rate": [{"means": [2.5, 2.0], "probs": [0.2, 0.2], "horizon": 1e4}],
    "trimmed_count_radius": [{"count": 2000, "delta": 0.05, "moment": 4.0, "epsilon": 1.0}],
    "trimmed_mean": [
        {"values": [1.0, 2.0, 900.0, 1.0], "delta": 0.05, "moment": 20.0, "epsilon": 1.0}
    ],
    "trimmed_radius": [
        {"n": 10_000, "prob": 0.2, "delta": 0.05, "moment": 4.0, "epsilon": 1.0}
    ],
    "trimming_factor": [{"prob": 1.0, "epsilon": 1.0}],
    "unseen_upper": [{"n": 100, "level": 3.0, "magnitude": 2.0}],
    "zi_subweibull_min_n": [{"prob": 0.5, "delta": 0.05, "method": "printed"}],
    "zi_subweibull_radius": [
        {"n": 100_000, "prob": 0.5, "delta": 0.05, "theta": 2.0, "size": 1.0}
    ],
}  # fmt: skip


def formulas() -> Iterator[Call]:
    """Every function of `zib.theory`, and the encoders and links of `zib.contextual`."""
    for name, examples in THEORY.items():
        for arguments in examples:
            yield Call(f"theory.{name}", getattr(theory, name), arguments)
    from scipy import stats

    size = {"dist": stats.expon(), "theta": 1.0, "scale": 1.0}
    yield Call("theory.subweibull_size", theory.subweibull_size, size)
    context, table = [1.0, 0.5], [[1.0, 0.0], [0.0, 1.0]]
    encode = {"context": context, "n_arms": 2, "arms": [0, 1], "intercept": True}
    yield Call("contextual.disjoint", contextual.disjoint, encode)
    yield Call("contextual.hybrid", contextual.hybrid, {**encode, "shared_features": table})
    yield Call(
        "contextual.shared",
        contextual.shared,
        {"context": context, "arm_features": table, "interactions": True, "intercept": True},
    )
    yield Call("contextual.kappa", contextual.kappa, {"link": contextual.Logit(), "radius": 1.0})


def online() -> Iterator[Call]:
    """Bandits: the constructors and every method that takes arguments."""
    spec = mab.ZIUCB(horizon=100, sigma=1.0)
    yield Call(
        "Bandit",
        zib.Bandit,
        {"spec": spec, "arms": ["a", "b"], "n_arms": None, "seed": 1, "inflated": 0.0,
         "least_share": 0.1, "largest_share": 0.5, "evidence": 10, "draws": 50},
    )  # fmt: skip
    yield Call("Bandit", zib.Bandit, {"spec": None, "n_arms": 3, "seed": 1})
    bandit = zib.Bandit(spec, arms=["a", "b"], seed=1)
    bandit.update_many(["a", "b", "a"], [0.0, 2.0, 3.0])
    other = copy.copy(bandit)
    text = bandit.dumps()
    file = Path(tempfile.mkdtemp(), "bandit.json")
    bandit.save(file)
    for name, arguments in {
        "select": {"arms": ["b"], "return_propensity": True},
        "select_many": {"n": 3, "arms": ["b"], "return_propensity": True},
        "indices": {"arms": ["b", "a"]},
        "set_shares": {"least_share": 0.1, "largest_share": 0.5, "evidence": 10, "draws": 50},
        "update": {"arm": "a", "reward": 1.0},
        "update_many": {"arms": ["a", "b"], "rewards": [0.0, 1.0]},
        "revise": {"arm": "b", "old": 2.0, "new": 1.0},
        "merge": {"other": other, "since": None},
        "add_arm": {"arm": "c"},
        "remove_arm": {"arm": "b"},
        "means": {"level": 0.9, "anytime": True},
        "propensities": {"draws": 20, "arms": ["b", "a"]},
        "save": {"path": str(file)},
        "set_pending": {"zeros": [0.5, 3.0], "amounts": [1.5, 1.0]},
    }.items():
        yield _method("Bandit", bandit, name, arguments)
    told = zib.Bandit(mab.OutcomesKLUCB(categories=2), arms=["a", "b"], seed=1)
    told.update("a", 2.0, category=1)
    for name, arguments in {
        "update": {"arm": "a", "reward": 1.0, "category": 2},
        "update_many": {"arms": ["a", "b"], "rewards": [0.0, 1.0], "categories": [0, 2]},
    }.items():
        yield _method("told Bandit", told, name, arguments)
    yield Call("Bandit.load", zib.Bandit.load, {"path": str(file), "seed": 1})
    yield Call("Bandit.loads", zib.Bandit.loads, {"text": text, "seed": 1, "source": "a text"})
    yield from _contextual()


def _method(
    kind: str,
    owner: Any,
    name: str,
    arguments: dict[str, Any],
    text: Callable[[Any], str] = lambda bandit: bandit.dumps(),
) -> Call:
    """Call a method of a copy, made anew for every call so that no call sees another one."""
    current = [copy.deepcopy(owner)]

    def function(**given: Any) -> Any:
        current[0] = copy.deepcopy(owner)
        return getattr(current[0], name)(**given)

    before = text(owner)
    return Call(f"{kind}.{name}", function, arguments, lambda: text(current[0]) == before)


def _contextual() -> Iterator[Call]:
    spec = contextual.ZIUCB(horizon=100, sigma=1.0, memory=256)
    yield Call(
        "ContextualBandit",
        zib.ContextualBandit,
        {"spec": spec, "n_features": 2, "arms": ["a", "b"], "seed": 1, "inflated": 0.0,
         "least_share": 0.1, "largest_share": 0.5, "evidence": 10, "draws": 50},
    )  # fmt: skip
    features = [[1.0, 0.0], [0.0, 1.0]]
    bandit = zib.ContextualBandit(spec, n_features=2, arms=["a", "b"], seed=1)
    bandit.update_many(["a", "b"], [0.0, 2.0], features)
    for name, arguments in {
        "select": {"features": features, "arms": ["b", "a"], "return_propensity": True},
        "set_shares": {"least_share": 0.1, "largest_share": 0.5, "evidence": 10, "draws": 50},
        "indices": {"features": features, "arms": ["b", "a"]},
        "propensities": {"features": features, "draws": 5, "arms": ["b", "a"]},
        "predict": {"features": features, "level": 0.9, "arms": ["b", "a"]},
        "update": {"arm": "a", "reward": 1.0, "features": features, "arms": ["b", "a"]},
        "update_many": {"arms": ["a", "b"], "rewards": [0.0, 1.0], "features": features},
        "save": {"path": str(Path(tempfile.mkdtemp(), "bandit.json"))},
    }.items():
        yield _method("ContextualBandit", bandit, name, arguments)
    by_category = contextual_policies.TOLD["by category"]
    told = zib.ContextualBandit(by_category, n_features=2, arms=["a", "b"], seed=1)
    told.update("b", 2.0, features, category=1)
    for name, arguments in {
        "predict": {"features": features, "category": 2},
        "update": {"arm": "b", "reward": 1.0, "features": features, "category": 2},
        "update_many": {"arms": ["a", "b"], "rewards": [0.0, 1.0], "features": features,
                        "categories": [0, 2]},
    }.items():  # fmt: skip
        yield _method("told ContextualBandit", told, name, arguments)
    per_arm = contextual.Disjoint(spec=spec, n_arms=2)
    users = zib.ContextualBandit(per_arm, n_features=2, arms=["a", "b"], seed=1)
    for name, arguments in {
        "select": {"features": [1.0, 0.5], "arms": ["b", "a"], "return_propensity": True},
        "select_many": {"features": features, "arms": ["b", "a"], "return_propensity": True},
        "predict": {"features": [1.0, 0.5], "level": 0.9, "arms": ["b", "a"]},
        "update": {"arm": "a", "reward": 1.0, "features": [1.0, 0.5]},
        "means": {"level": 0.9, "anytime": True},
        "add_arm": {"arm": "c"},
        "remove_arm": {"arm": "b"},
    }.items():
        yield _method("ContextualBandit", users, name, arguments)
    kept = zib.ContextualBandit(per_arm, n_features=2, arms=["a", "b"], seed=1, keep_rows=9)
    since = copy.copy(kept)
    kept.update_many(["a", "b"], [0.0, 2.0], features)
    yield Call(
        "ContextualBandit", zib.ContextualBandit, {"spec": spec, "n_features": 2, "keep_rows": 9}
    )
    for name, arguments in {
        "revise": {"arm": "b", "old": 2.0, "new": 1.0, "features": features[1]},
        "revise_many": {"arms": ["b"], "old": [2.0], "new": [1.0], "features": features[1:]},
        "merge": {"other": copy.copy(kept), "since": since},
        "update": {"arm": "a", "reward": 1.0, "features": [1.0, 0.5]},
        "remove_arm": {"arm": "b"},
    }.items():
        yield _method("ContextualBandit", kept, name, arguments)
    yield from _encoders(per_arm)


def _encoders(spec: Any) -> Iterator[Call]:
    options = {"columns": ["x", "y"], "categories": ["y"], "rare": 1, "most_levels": 3}
    yield Call("Encoder", zib.Encoder, {**options, "intercept": True})
    table = {"x": [1.0, 2.0, 4.0], "y": ["a", "b", "a"]}
    encoder = zib.Encoder().fit(table)
    before = copy.deepcopy(encoder)
    unchanged = partial(encoder.__eq__, before)
    yield Call("Encoder.fit", encoder.fit, {"frame": table}, unchanged)
    row = {"x": 1.5, "y": "a"}
    yield Call("Encoder.transform", encoder.transform, {"features": row}, unchanged)
    yield Call(
        "ContextualBandit",
        zib.ContextualBandit,
        {"spec": spec, "arms": ["a", "b"], "encoder": encoder},
    )
    bandit = zib.ContextualBandit(spec, arms=["a", "b"], encoder=encoder, seed=1)
    for name, arguments in {
        "select": {"features": row, "arms": ["b", "a"]},
        "update": {"arm": "a", "reward": 1.0, "features": row},
        "update_many": {"arms": ["a", "b"], "rewards": [0.0, 1.0], "features": [row, row]},
    }.items():
        yield _method("ContextualBandit", bandit, name, arguments)
    text = bandit.dumps()
    loading = {"text": text, "seed": 1, "source": "a text", "encoder": encoder}
    yield Call("ContextualBandit.loads", zib.ContextualBandit.loads, loading)


def runs() -> Iterator[Call]:
    """Simulations, their results, logs, evaluation and advice."""
    market = EXAMPLES["GaussianMAB"]
    play: dict[str, Any] = {
        "policies": [mab.EpsilonGreedy()],
        "env": market,
        "horizon": 5,
        "replications": 2,
        "seed": 1,
        "checkpoints": 2,
    }
    yield Call("Plan.of", Plan.of, play)
    rest = {"backend": "serial", "workers": 1, "keep": "runs", "store": False, "scheduler": None}
    yield Call("simulate", zib.simulate, {**play, **rest, "progress": False})
    result = zib.simulate([mab.EpsilonGreedy(), mab.UCB1()], market, horizon=5, replications=3,
                          backend="serial", progress=False)  # fmt: skip
    names = {"first": result.labels[0], "second": result.labels[1], "level": 0.9}
    yield Call("Results.difference", result.difference, names)
    yield Call("Results.interval", result.interval, {"level": 0.9})
    yield Call("Results.quantile", result.quantile, {"q": 0.5})
    yield Call("Results.summary", result.summary, {"level": 0.9})
    yield Call("Store", Store, {"folder": tempfile.mkdtemp()})
    log = small_log()
    arrays = {
        "arm": ["a", "b", "a"],
        "reward": [0.0, 1.0, 2.0],
        "propensity": [0.5, 0.5, 0.5],
        "context": [[1.0], [2.0], [3.0]],
        "context_names": ["age"],
        "time": [1.0, 2.0, 3.0],
        "unit": ["u", "v", "w"],
        "cluster": ["u", "u", "w"],
        "arms": ["b", "a"],
        "inflated": 1.0,
    }
    yield Call("LoggedData.from_arrays", LoggedData.from_arrays, arrays)
    frame = log.to_frame()
    roles = {"frame": frame, "arm": "arm", "reward": "reward", "propensity": "propensity",
             "context": ["x0"], "arms": ["a", "b"], "missing_reward": "zero", "strip_labels": True,
             "decimal": ".", "inflated": 0.0}  # fmt: skip
    yield Call("LoggedData.from_frame", LoggedData.from_frame, roles)
    yield Call(
        "open_log",
        lambda source, in_memory: open_log(source, arm="arm", reward="reward", in_memory=in_memory),
        {"source": frame, "in_memory": 1000.0},
    )
    sold = pd.DataFrame({"key": [1, 2], "at": [1.5, 9.0], "paid": [3.0, 4.0], "number": [7, 8]})
    shown = pd.DataFrame({"key": [1, 2, 3], "arm": ["a", "b", "a"], "time": [1.0, 2.0, 3.0]})
    joined = {
        "exposures": shown, "conversions": sold, "window": 5.0, "on": "key", "arm": "arm",
        "time": "time", "conversion_time": "at", "amount": "paid", "conversion_id": "number",
        "attribute": "last", "combine": "sum", "pending": "leave-out", "as_of": 20.0,
        "timezone": "UTC", "conversion_timezone": "UTC", "reward": "reward", "prior": None,
        "seed": 1, "out": None, "backend": "serial", "workers": None, "scheduler": None,
    }  # fmt: skip
    yield Call("logs.join", zib.datasets.join, joined)
    edges = delay.delay_bins(8.0, n_bins=2)
    law = {"edges": [0.0, 1.0, 8.0], "values": [0.0, 0.5, 1.0], "events": 3.0, "reach": 2.0}
    yield Call("delay.delay_bins", delay.delay_bins, {"horizon": 8.0, "n_bins": 2})
    yield Call("delay.DelayDistribution", delay.DelayDistribution, law)
    assumed = delay.DelayDistribution(**law)
    yield Call("delay.DelayDistribution.quantile", assumed.quantile, {"share": 0.5})
    between = {"low": [0.5, 1.0], "high": [0.5, 3.0]}
    yield Call("delay.DelayDistribution.average", assumed.average, between)
    yield Call("delay.DelayCounts", delay.DelayCounts, {"edges": edges})
    counts = delay.DelayCounts(edges)
    yield Call("delay.DelayCounts.add", counts.add, {"delay": [0.5], "age": [3.0]})
    yield Call("delay.DelayCounts.merge", counts.merge, {"other": delay.DelayCounts(edges)})
    yield Call(
        "delay.DelayCounts.distribution",
        counts.distribution,
        {"prior": assumed, "prior_events": 1.0},
    )
    yield Call("delay.delays_differ", delay.delays_differ, {"groups": [counts, counts]})
    yield Call("delay.pending_weight", delay.pending_weight, {"fraction": 0.5, "chance": 0.1})
    pending = {"events": 3.0, "zeros": 9.0, "fractions": [0.1, 0.5], "counts": [4.0, 5.0],
               "alpha": 1.0, "beta": 1.0}  # fmt: skip
    yield Call("delay.pending_posterior", delay.pending_posterior, pending)
    yield from _in_flight(assumed)
    yield Call("LoggedData.subset", log.subset, {"rows": [0, 1, 2]})
    yield Call("LoggedData.with_propensity", log.with_propensity, {"propensity": [0.5] * 300})
    yield Call("datasets.info", zib.datasets.info, {"name": zib.datasets.names()[0]})
    yield Call("ope.always", zib.ope.always, {"arm": "a"})
    yield Call("ope.learned", zib.ope.learned, {"learner": "best"})
    yield Call("ope.Greedy", zib.ope.Greedy, {"model": "hurdle"})
    yield Call("ope.Strata", zib.ope.Strata, {"columns": ["x0"]})
    yield Call("ope.propensities_by", zib.ope.propensities_by, {"log": log, "columns": ["x0"]})
    evaluation = {
        "log": log,
        "policies": ["uniform", "a"],
        "estimators": ["ips"],
        "baseline": "logging",
        "level": 0.9,
        "interval": "corrected",
        "clip": 10.0,
        "folds": 2,
        "learn_folds": 2,
        "fit_rows": 100,
        "replicates": 200,
        "on_missing_support": "warn",
        "seed": 1,
        "model": "hurdle",
        "propensities": "logged",
        "progress": False,
        "backend": "serial",
        "workers": None,
        "scheduler": None,
    }
    known = inspect.signature(zib.ope.evaluate).parameters
    yield Call(
        "ope.evaluate", zib.ope.evaluate, {k: v for k, v in evaluation.items() if k in known}
    )
    advice = {
        "log": log,
        "horizon": 100,
        "replications": 2,
        "simulate": False,
        "level": 0.9,
        "worth": 0.05,
        "randomised": True,
        "seed": 1,
        "source": None,
        "progress": None,
        "backend": "serial",
        "workers": None,
        "scheduler": None,
    }
    yield Call("advise.advise", zib.advise.advise, advice)


def ledgers() -> Iterator[Call]:
    """The ledger of decisions; what it refuses leaves no trace in its database."""
    folder = Path(tempfile.mkdtemp())
    fresh = itertools.count()

    def made(**given: Any) -> None:
        zib.live.Ledger(folder / f"new{next(fresh)}.db", background=False, **given).close()

    settings = {
        "name": "shop", "arms": ["a", "b"], "policy": mab.EpsilonGreedy(), "window": 60.0,
        "grace": 10.0, "aggregate": "sum", "inflated": 0.0, "least_share": 0.1,
        "largest_share": 0.5, "evidence": 10, "draws": 50, "holdout": 0.1, "delay": None,
        "prior_events": 2.0, "refresh": 1.0, "park": 5.0, "features": None, "learn": "close",
        "clock": time.time,
    }  # fmt: skip
    yield Call("live.Ledger", made, settings)

    def opened() -> tuple[zib.live.Ledger, Callable[[], list[str]]]:
        path = folder / f"kept{next(fresh)}.db"
        ledger = zib.live.Ledger(path, arms=["a", "b"], window=60.0, background=False)
        reading = sqlite3.connect(path)
        # conflicts are counted, and nothing else changes
        return ledger, lambda: [x for x in reading.iterdump() if 'INTO "counter"' not in x]

    def method(scene: Any, name: str, arguments: dict[str, Any]) -> Call:
        ledger, content = scene
        before: list[list[str]] = [[]]

        def function(**given: Any) -> Any:
            before[0] = content()
            return getattr(ledger, name)(**given)

        return Call(f"Ledger.{name}", function, arguments, lambda: content() == before[0])

    # What one call is given, another must not know: new arms and units have a ledger each.
    scene, with_arms, with_units = opened(), opened(), opened()
    decided = scene[0].decide("known", at=1000.0)
    scene[0].event("paid", decided.id, 2.0, at=1001.0, received=1001.0)
    event = {"decision_id": decided.id, "value": 2.0, "at": 1001.0}
    for name, arguments in {
        "decide": {"key": "known", "unit": None, "arms": None, "context": None, "at": 1000.0},
        "decide_many": {"keys": ["x", "y"], "contexts": None, "at": 1000.0},
        "submit_decide": {"key": "known", "at": 1000.0},
        "decision_id": {"key": "known"},
        "decision": {"decision_id": decided.id},
        "parked": {"most": 10},
        "audit": {"most": 10},
        "event": {"event_id": "paid", **event, "received": 1001.0},
        "submit_event": {"event_id": "paid", **event, "received": 1001.0},
        "event_many": {"events": [("paid", decided.id, 2.0)]},
        "revise": {"revision_id": "refund", **event},
        "revise_many": {"revisions": [("refund", decided.id, 2.0, 1001.0)]},
        "cancel": {"decision_id": decided.id},
        "cancel_many": {"decision_ids": [decided.id]},
        "pause_arm": {"arm": "a", "who": "ann"},
        "resume_arm": {"arm": "a", "who": "ann"},
        "retire_arm": {"arm": "b", "who": "ann"},
        "set_shadow": {"arm": "a", "who": "ann"},
        "statistics": {"level": 0.9},
        "overview": {"level": 0.9},
        "export": {"out": None, "pending": "leave-out", "since": 5.0, "until": 10.0,
                   "kind": "policy", "seed": 1},
    }.items():  # fmt: skip
        yield method(scene, name, arguments)
    yield method(with_arms, "add_arm", {"arm": "c", "who": "ann"})

    def for_units(units: Any) -> Any:
        return with_units[0].decide_many([f"{next(fresh)}", f"{next(fresh)}"], units=units)

    yield Call("Ledger.decide_many", for_units, {"units": ["u", "v"]})


def clients() -> Iterator[Call]:
    """The client of a service that never answers; what it refuses is not sent."""
    sent: list[httpx.Request] = []

    def away(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(409, json={"error": "`service` is away"})

    http = httpx.Client(transport=httpx.MockTransport(away))
    made = {
        "address": "http://service.test", "bandit": "shop", "token": "abc", "timeout": 1.0,
        "retries": 0, "http": http,
    }  # fmt: skip
    yield Call("live.Client", zib.live.Client, made)
    client = zib.live.Client(**made)

    def method(name: str, arguments: dict[str, Any], by: str = "") -> Call:
        def function(**given: Any) -> Any:
            sent.clear()
            with contextlib.suppress(zib.live.LedgerError):
                return getattr(client, name)(**given)

        return Call(f"Client.{name}{by}", function, arguments, lambda: not sent)

    event = {"decision_id": "d", "value": 2.0, "at": 1001.0}
    for name, arguments in {
        "decide": {"key": "k", "unit": "u", "arms": None, "context": None, "at": 1000.0,
                   "fallback": "a"},
        "decide_many": {"keys": ["x", "y"], "units": ["u", "v"], "arms": None, "contexts": None,
                        "at": 1000.0, "fallback": "a"},
        "decision_id": {"key": "known"},
        "within": {"timeout": 1.0},
        "decision": {"decision_id": "d"},
        "event": {"event_id": "e", **event},
        "event_many": {"events": [("e", "d", 2.0)]},
        "revise": {"revision_id": "r", **event},
        "revise_many": {"revisions": [("r", "d", 2.0, 1001.0)]},
        "cancel": {"decision_id": "d"},
        "cancel_many": {"decision_ids": ["d"]},
        "parked": {"most": 10},
        "audit": {"most": 10},
        "export": {"out": "log.csv", "pending": "leave-out", "since": 5.0, "until": 10.0,
                   "kind": "policy"},
    }.items():  # fmt: skip
        yield method(name, arguments)
    for name in ("add_arm", "pause_arm", "resume_arm", "retire_arm", "set_shadow"):
        yield method(name, {"arm": "a"}, " by HTTP")


def all_calls() -> list[Call]:
    """Everything."""
    return [*constructors(), *formulas(), *online(), *runs(), *ledgers(), *clients()]


def _in_flight(law: delay.DelayDistribution) -> Iterator[Call]:
    kind, made = PendingDecisions, {"horizon": 8.0, "arms": ["a", "b"]}
    yield Call("PendingDecisions", kind, made)
    columns = {"waiting": ([0], [5], [10]), "rewarded": ([1], [5], [3], [1], [2.0], [4.0])}
    yield Call("PendingDecisions.from_counts", kind.from_counts, {**made, **columns})
    pending = kind(**made)
    pending.decide("a", 1.0, n=9)
    pending.reward("a", 1.0, 0.5, 2.0)
    for name, arguments in {
        "decide": {"arm": "b", "at": 2.0, "n": 3},
        "reward": {"arm": "a", "at": 1.0, "delay": 0.5, "amount": 2.0},
        "cancel": {"arm": "a", "at": 1.0, "n": 1},
        "revise": {"arm": "a", "at": 1.0, "delay": 0.5, "old": 2.0, "new": 0.0},
        "add_arm": {"arm": "c"},
        "merge": {"other": kind(**made)},
        "bin_of": {"delay": [0.5, 3.0]},
        "delay_counts": {"now": 3.0},
        "estimate": {"now": 3.0, "delay": None, "prior": law, "prior_events": 2.0,
                     "by_arm": "auto", "by_delay": True},
    }.items():  # fmt: skip
        yield _method("PendingDecisions", pending, name, arguments, repr)
