"""The panels of the contextual study: who plays, with which parameters, and what came out.

Figures 3 and S3 and the comparison of links are the same study with other sparsities and links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import zib
from zib.env import RandomContextual
from zib.env.contextual_draws import NOISES, LinkName, Noise
from zib.experiments.panels import TITLES, play
from zib.experiments.record import Context
from zib.sim import Results

HORIZON, REPLICATIONS = 20_000, 25  # the paper's
FEW = 3  # replications of the quick version
RIDGE = 1.0
PRINTED = ("ZI-UCB printed", "ZI-TS printed")
ON_MEANS = ("ZI-UCB", "ZI-TS")
NAIVE = ("naive UCB", "naive TS")
INTEGRATED = ("integrated UCB", "integrated TS")
BETTER = ("Joint-UCB", "Laplace-TS")
GROUPS = {
    "made for zero inflation": ("ZI-UCB printed", "ZI-UCB", "ZI-TS printed", "ZI-TS"),
    "the paper's baselines": (*NAIVE, *INTEGRATED),
    "one better (ours)": BETTER,
}


class ContextualPanel(NamedTuple):
    """One panel of a figure: an environment, its name in words and over the panel, its results."""

    maker: RandomContextual
    name: str
    title: str
    result: Results

    @property
    def key(self) -> dict[str, object]:
        """What tells this panel from others, as columns of a table."""
        maker = self.maker
        return {"noise": maker.noise, "sparsity": maker.sparsity, "link": maker.link}

    @property
    def references(self) -> dict[str, NDArray[np.float64]]:
        """No curve but those of policies: the regret bound of the theorem is off the scale."""
        return {}


def environment_id(noise: Noise, sparsity: int, link: LinkName = "probit") -> str:
    """Return the id of the paper's environment.

    Examples
    --------
    >>> environment_id("mixture", 3)
    'paper-contextual-mixture-s3-probit-v1'
    """
    return f"paper-contextual-{noise}-s{sparsity}-{link}-v1"


def panel_ids(sparsities: Sequence[int]) -> list[str]:
    """Return the ids of three panels per sparsity."""
    return [environment_id(noise, s) for s in sparsities for noise in NOISES]


def policies(maker: RandomContextual, horizon: int) -> dict[str, Any]:
    """Return the policies of the study, by the label they carry in all figures.

    All are told the link. Those of the paper are told the standard deviation of the noise as well;
    Joint-UCB and Laplace-TS estimate it.
    """
    known: dict[str, Any] = {"horizon": horizon, "sigma": maker.sigma, "ridge": RIDGE}
    model: dict[str, Any] = {"link": maker.link, "ridge": RIDGE}
    both = known | model
    return {
        "ZI-UCB printed": zib.contextual.ZIUCB(index="printed", **both),
        "ZI-UCB": zib.contextual.ZIUCB(**both),
        "ZI-TS printed": zib.contextual.ZITS(index="printed", **both),
        "ZI-TS": zib.contextual.ZITS(**both),
        "naive UCB": zib.contextual.Naive(kind="ucb", **known),
        "naive TS": zib.contextual.Naive(kind="ts", **known),
        "integrated UCB": zib.contextual.Integrated(kind="ucb", **both),
        "integrated TS": zib.contextual.Integrated(kind="ts", **both),
        "Joint-UCB": zib.contextual.JointUCB(**model),
        "Laplace-TS": zib.contextual.LaplaceTS(**model),
    }


def run_panels(
    context: Context, ids: Sequence[str], horizon: int, replications: int
) -> Iterator[ContextualPanel]:
    """Play all policies in each environment of `ids`; yield panels as they are finished."""
    for maker, result in play(context, ids, policies, horizon, replications):
        noise, sparsity = TITLES[maker.noise], f"s = {maker.sparsity}"
        yield ContextualPanel(maker, f"{noise} {sparsity}", f"{noise} noise, {sparsity}", result)
