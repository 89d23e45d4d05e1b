"""A plan: which policies play what, how often and with which seed, cut into blocks with names.

A block is some replications of one policy. Its key is a hash of all that its numbers depend on and
of nothing else: the parameters, the environment, the checkpoints, the seed, the code of the modules
involved, ours and the user's, the versions of what that code calls. So a block that was played for
one study serves every other study that asks for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zib.contextual.policy import lookup_policy
from zib.core import saved, sources
from zib.core import validate as check
from zib.core.cluster import libraries as versions
from zib.core.kernel import REGISTRY, lookup
from zib.core.spec import label_of
from zib.env.arrays import world_of
from zib.sim import batched as batched  # which makes its player known
from zib.sim import delayed as delayed
from zib.sim.keys import CannotBeStored, fingerprint, hash_of, user_code
from zib.sim.loop import player_of
from zib.sim.many import check_playable, play_on

if TYPE_CHECKING:
    from zib.sim.store import Store

FORMAT = 2  # of the keys: raise it when the same words come to mean other numbers

# Rounds in a block: about a second of work. The number of workers and of replications must not
# matter, or a larger study could not take over the blocks of a smaller one.
BLOCK_ROUNDS, BLOCK_ROUNDS_CONTEXTUAL = 2_000_000, 50_000
LONGEST_BLOCK = 256
# Where each replication draws by itself a block is what a GPU plays at once, if its file is not
# too large.
MANY, MANY_BYTES = 131_072, 2**28
NUMPY, COUNTER, CUDA = ENGINES = ("numpy", "counter", "cuda")


def engine_of(backend: str) -> str:
    """Return who draws rewards where this backend plays."""
    return backend if backend in ENGINES else NUMPY


def backend_for(backend: str, policies: Iterable[Any], environment: Any, seed: int) -> str:
    """Return who plays: threads where a backend that draws in its own way cannot."""
    if engine_of(backend) != NUMPY:
        try:
            for spec in policies:
                check_playable(spec, environment)
            world_of(environment, seed, 0, 1)
        except check.InvalidParameterError:
            return "threads"
    return backend


class Block(NamedTuple):
    """Replications first, …, last − 1 of one policy."""

    policy: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many replications these are."""
        return self.last - self.first


class Blocks(Sequence[Block]):
    """Blocks in the order in which they are played: row by row of equal replications.

    None of them is made before it is asked for: there may be more than memory holds.
    """

    def __init__(self, policies: int, replications: int, length: int) -> None:
        self._policies, self._replications, self._length = policies, replications, length

    def __len__(self) -> int:
        return self._policies * self.rows

    @property
    def rows(self) -> int:
        """How many blocks each policy has."""
        return -(-self._replications // self._length)

    def at(self, policy: int, row: int) -> Block:
        """Return a block of one policy."""
        first = row * self._length
        return Block(policy, first, min(first + self._length, self._replications))

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        row, policy = divmod(range(len(self))[at], self._policies)
        return self.at(policy, row)


@dataclass(frozen=True, eq=False)
class Plan:
    """Policies × replications in one environment; make it with `Plan.of`.

    Attributes
    ----------
    labels, specs
        The policies.
    environment
        Environment, or generator of environments.
    checkpoints
        Rounds at which regret and reward are recorded; the last is the horizon.
    replications, seed
        Replication r of seed s draws from streams named after both.
    engine
        Who draws rewards: "numpy", or each replication by itself, on processors ("counter") or on a
        GPU ("cuda"), where logarithms differ in the last bit.
    """

    labels: tuple[str, ...]
    specs: tuple[Any, ...]
    environment: Any = field(repr=False)
    checkpoints: NDArray[np.int64] = field(repr=False)
    replications: int
    seed: int
    engine: str = NUMPY

    @classmethod
    def of(
        cls,
        policies: Mapping[str, Any] | Sequence[Any],
        env: Any,
        *,
        horizon: int,
        replications: int = 50,
        seed: int = 0,
        checkpoints: int | Sequence[int] = 200,
        engine: str = NUMPY,
    ) -> Plan:
        """Check everything and return the plan; the parameters are those of `zib.simulate`.

        Examples
        --------
        >>> import zib
        >>> env = zib.env.GaussianMAB(means=[4.0, 5.0], probs=[0.1, 0.05], sigma=1.0)
        >>> plan = Plan.of([zib.mab.UCB1()], env, horizon=10_000, replications=450)
        >>> [(block.first, block.last) for block in plan.blocks]
        [(0, 200), (200, 400), (400, 450)]
        """
        _check_environment(env)
        labelled = _labelled(policies, _either if hasattr(env, "n_features") else lookup)
        horizon = check.integer("horizon", horizon, low=1)
        return cls(
            tuple(labelled),
            tuple(labelled.values()),
            env,
            _rounds(checkpoints, horizon),
            check.integer("replications", replications, low=1),
            check.seed("seed", seed),
            engine,
        )

    @property
    def horizon(self) -> int:
        """Rounds per replication."""
        return int(self.checkpoints[-1])

    @property
    def is_contextual(self) -> bool:
        """Whether contexts arrive."""
        return hasattr(self.environment, "n_features")

    @property
    def block_length(self) -> int:
        """Replications of a whole block."""
        if self.engine != NUMPY:
            return max(1, min(MANY, MANY_BYTES // (16 * self.checkpoints.size)))
        rounds = BLOCK_ROUNDS_CONTEXTUAL if self.is_contextual else BLOCK_ROUNDS
        return max(1, min(rounds // self.horizon, LONGEST_BLOCK))

    @property
    def blocks(self) -> Blocks:
        """The blocks in the order in which they are played: row by row of equal replications."""
        return Blocks(len(self.specs), self.replications, self.block_length)

    def block_around(self, part: Block) -> Block:
        """Return the block that some replications of one policy are a part of."""
        first = part.first - part.first % self.block_length
        return Block(part.policy, first, min(first + self.block_length, self.replications))

    @cached_property
    def policy_hashes(self) -> tuple[str, ...]:
        """Per policy the hash of all that one replication depends on, but for its number.

        Raises
        ------
        CannotBeStored
            If a policy or the environment cannot be named exactly.
        """
        environment, around = fingerprint(self.environment)
        return tuple(self._policy_hash(spec, environment, around) for spec in self.specs)

    def _policy_hash(self, spec: Any, environment: str, around: frozenset[str]) -> str:
        content, own = fingerprint(spec)
        player = player_of(self.environment) if self.engine == NUMPY else play_on
        modules = own | around | {player.__module__}
        other = {} if self.engine == NUMPY else {"engine": self.engine}
        return hash_of(
            {
                **other,
                "format": FORMAT,
                "spec": content,
                "environment": environment,
                "checkpoints": self.checkpoints.tolist(),
                "seed": self.seed,
                "code": sources.hash_of(modules),
                "user code": user_code(modules),
                "versions": versions(),
            }
        )

    def key_of(self, block: Block) -> str:
        """Return the name of a block in a store, or raise CannotBeStored."""
        return hash_of([self.policy_hashes[block.policy], block.first, block.last])

    def missing(self, store: Store) -> list[Block]:
        """Return the blocks that are not in `store`."""
        return [block for block in self.blocks if self.key_of(block) not in store]

    @cached_property
    def hash(self) -> str:
        """A fingerprint of the results: it changes when, and only when, they could."""
        try:
            parts: list[Any] = [list(self.policy_hashes)]
        except CannotBeStored:  # the next best: words, and all sources
            specs = [saved.spec_to_data(spec) for spec in self.specs]
            rounds = self.checkpoints.tolist()
            parts = [specs, repr(self.environment), rounds, self.seed, sources.source_hash()]
        return hash_of([*parts, list(self.labels), self.replications])[:16]

    def to_data(self) -> dict[str, Any]:
        """Return the plan as data for JSON."""
        data = {
            "policies": dict(
                zip(self.labels, (saved.spec_to_data(spec) for spec in self.specs), strict=True)
            ),
            "environment": repr(self.environment),
            "horizon": self.horizon,
            "replications": self.replications,
            "seed": self.seed,
            "checkpoints": self.checkpoints.tolist(),
            "block_length": self.block_length,
            "engine": self.engine,
        }
        try:
            data["hashes"] = dict(zip(self.labels, self.policy_hashes, strict=True))
        except CannotBeStored as error:
            data["not storable"] = str(error)
        return data


def _either(spec: Any, name: str) -> Any:
    """Look a policy up that plays where contexts arrive: with a look at them, or without."""
    return lookup(spec, name) if type(spec) in REGISTRY else lookup_policy(spec, name)


def _labelled(
    policies: Mapping[str, Any] | Sequence[Any], find: Callable[[Any, str], Any]
) -> dict[str, Any]:
    if isinstance(policies, Mapping):
        labelled = {str(label): spec for label, spec in policies.items()}
    else:
        single = hasattr(policies, "_fields")
        specs = [policies] if single else list(check.iterable("policies", policies))
        labels = [label_of(spec) if hasattr(spec, "_fields") else "" for spec in specs]
        labelled = {}
        for label, spec in zip(labels, specs, strict=True):
            name = label if labels.count(label) == 1 else repr(spec)
            if name in labelled:
                raise check.InvalidParameterError(f"`policies` holds {spec!r} twice")
            labelled[name] = spec
    if not labelled:
        raise check.InvalidParameterError("`policies` must hold at least one policy; got none")
    for spec in labelled.values():
        find(spec, "policies")
    return labelled


def _rounds(checkpoints: int | Sequence[int], horizon: int) -> NDArray[np.int64]:
    if isinstance(checkpoints, (int, np.integer)):
        number = check.integer("checkpoints", checkpoints, low=1)
        rounds = np.unique(np.ceil(np.arange(1, number + 1) * (horizon / number)).astype(np.int64))
        return np.asarray(np.minimum(rounds, horizon), dtype=np.int64)
    values = check.vector("checkpoints", checkpoints, low=1, high=horizon)
    rounds = np.unique(values.astype(np.int64))
    return rounds if rounds[-1] == horizon else np.append(rounds, horizon)


def _check_environment(env: Any) -> None:
    for name in ("n_arms", "instance"):
        if not hasattr(env, name):
            raise check.InvalidParameterError(
                f"`env` must be an environment (it lacks `{name}`); got {check.shown(env)}"
            )
