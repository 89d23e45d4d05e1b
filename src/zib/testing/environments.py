"""What every environment must keep to: multi-armed, changing with the round, or contextual."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zib.core.rng import Role, stream
from zib.testing.specs import check_refusals, check_spec_is_data

Array = NDArray[np.float64]
ROUNDS = 500  # drawn at a time


def check_environment(env: Any, *, draws: int = 20_000) -> None:
    """Check an environment against every promise, one named check after the other.

    Parameters
    ----------
    env
        An environment or a generator of environments. What it promises depends on its kind: arms
        with laws (``sample``), whose rewards may come late (``delayed``), arms that change with the
        round (``by_round``) or rounds with features (``n_features``).
    draws
        Rewards per arm, or rounds, for the check that means are what the environment says.

    Notes
    -----
    The last check has an error probability of about 2e-9 per arm (six standard errors), that of
    delays one of about 3e-9; the others cannot fail by chance.
    """
    for check in ENVIRONMENT_CHECKS:
        check(env)
    check_means(env, draws=draws)


def _instance(env: Any) -> Any:
    return env.instance(stream(1, Role.INSTANCE, 0))


def _rng(arm: int = 0) -> np.random.Generator:
    return stream(1, Role.ENVIRONMENT, 0, arm)


def _kind(one: Any) -> str:
    if hasattr(one, "block"):
        return "contextual"
    return "rounds" if getattr(one, "by_round", False) else "arms"


def _drawn(one: Any, sizes: tuple[int, ...], seed: int = 0) -> list[tuple[Array, ...]]:
    """Return all arrays of consecutive blocks of these sizes, from fresh streams."""
    if _kind(one) == "arms":
        streams = [_rng(arm) for arm in range(one.n_arms)]
        return [tuple(one.sample(arm, rng, n) for arm, rng in enumerate(streams)) for n in sizes]
    rng, start, out = _rng(seed), 0, []
    for n in sizes:
        if _kind(one) == "contextual":
            out.append(tuple(one.block(rng, n)))
        else:
            out.append(tuple(one.round_block(rng, start, n)))
        start += n
    return out


def _same(first: list[tuple[Array, ...]], second: list[tuple[Array, ...]]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(np.array_equal(a, b) for x, y in pairs for a, b in zip(x, y, strict=True))


# ------------------------------------------------------------------------------------------ checks


def check_attributes(env: Any) -> None:
    """The environment and its instances agree on arms, actions and features."""
    one = _instance(env)
    assert one.n_arms >= 1, f"n_arms must be at least 1; got {one.n_arms}"
    for name in ("n_arms", "n_actions", "n_features"):
        if hasattr(env, name):
            said, found = getattr(env, name), getattr(one, name, None)
            assert said == found, f"the environment says {name} = {said!r}, its instance {found!r}"
    same_kind = hasattr(env, "n_features") == (_kind(one) == "contextual")
    assert same_kind, "`n_features` and instances with `block` go together"
    by_round = bool(getattr(env, "by_round", False))
    assert by_round == (_kind(one) == "rounds"), "`by_round` and its instances must agree"


def check_instances_repeat(env: Any) -> None:
    """The same stream gives the same instance, and the same streams the same rewards."""
    sizes = (1, 64)
    one, two = _instance(env), _instance(env)
    assert _same(_drawn(one, sizes), _drawn(two, sizes)), (
        "two instances from the same stream must pay the same rewards from the same streams"
    )
    if _kind(one) == "arms":
        assert np.array_equal(one.arm_means, two.arm_means), (
            "the same stream must give the same instance"
        )


def check_shapes(env: Any) -> None:
    """Blocks have the promised shapes, and rewards and means are finite."""
    one = _instance(env)
    kind = _kind(one)
    for n in (0, 1, 7, ROUNDS):
        (parts,) = _drawn(one, (n,))
        if kind == "arms":
            _check_arms(one, parts, n)
        elif kind == "rounds":
            for name, part in zip(("reward", "mean"), parts, strict=True):
                wanted = (n, one.n_arms)
                assert part.shape == wanted, f"{name} has shape {part.shape}, not {wanted}"
                assert np.isfinite(part).all(), f"{name} is not finite"
        else:
            _check_block(one, parts, n)
        one = _instance(env)  # a run may be used once only


def _check_arms(one: Any, parts: tuple[Array, ...], n: int) -> None:
    means = np.asarray(one.arm_means, dtype=np.float64)
    assert means.shape == (one.n_arms,), f"arm_means has shape {means.shape}, not ({one.n_arms},)"
    assert np.isfinite(means).all(), "arm_means are not finite"
    for arm, reward in enumerate(parts):
        assert reward.shape == (n,), f"sample returned shape {reward.shape}, not ({n},)"
        assert np.isfinite(reward).all(), f"arm {arm} paid a reward that is not finite"


def _check_block(one: Any, parts: tuple[Array, ...], n: int) -> None:
    arms, z, w, reward, mean, count, *categories = parts
    k, (d, q) = one.n_actions, one.n_features
    shapes = [part.shape for part in parts]
    wanted = [(n, k), (n, d, k), (n, q, k), (n, k), (n, k), (n,)] + [(n, k)] * len(categories)
    assert shapes == wanted, f"a block has shapes {shapes}, not {wanted}"
    assert ((count >= 1) & (count <= k)).all(), f"a round must have 1 to {k} actions"
    offered = np.arange(k) < count[:, None]
    assert ((arms >= 0) & (arms < one.n_arms))[offered].all(), "arm numbers must be below n_arms"
    assert (arms[~offered] == -1).all(), "columns without an action must have arm -1"
    assert np.isneginf(mean[~offered]).all(), "columns without an action must have mean -inf"
    for name, part in (("reward", reward), ("mean", mean)):
        assert np.isfinite(part[offered]).all(), f"{name} of an action is not finite"
    for category in categories:
        known = (category >= (reward != 0.0)) & (category <= one.n_categories)
        assert known.all(), f"a reward that is not 0 must have a category up to {one.n_categories}"
    assert np.isfinite(z).all(), "features of the magnitude are not finite"
    assert np.isfinite(w).all(), "features of the occurrence are not finite"
    ordered = np.where(offered, arms, -1 - np.arange(k))
    unique = np.array([np.unique(row).size == k for row in ordered], dtype=bool)
    assert unique.all(), "an arm is offered twice in a round"


def check_blocks_join(env: Any) -> None:
    """Rounds do not depend on how they are cut into blocks.

    Promised where rewards are drawn by round. Laws are sampled in blocks whose draws depend on
    their size, so nothing is promised for `sample`.
    """
    if _kind(_instance(env)) == "arms":
        return
    whole = _drawn(_instance(env), (65,))
    parts = _drawn(_instance(env), (1, 40, 24))
    joined = [tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))]
    assert _same(whole, joined), "65 rounds must be the same in one block and in three"


def check_means(env: Any, *, draws: int = 20_000) -> None:
    """Rewards agree with the means, within six standard errors.

    For arms with laws the error is that of the stated variance, and arms with an infinite one are
    skipped. Otherwise the differences between rewards and their means given the round are summed,
    and measured by the root of the sum of their squares; arms that paid fewer than 50 times are
    skipped, as a normal approximation says little about them.
    """
    one = _instance(env)
    if _kind(one) == "arms":
        _check_arm_means(one, draws)
        return
    total, square, paid = (np.zeros(one.n_arms) for _ in range(3))
    for arms, off, pays in _differences(one, draws):
        np.add.at(total, arms, off)
        np.add.at(square, arms, off**2)
        np.add.at(paid, arms, pays)
    bad = (np.abs(total) > 6.0 * np.sqrt(square) + 1e-9) & (paid >= 50)
    assert not bad.any(), (
        f"rewards of arm {int(np.argmax(bad))} differ from their stated means by "
        f"{float(total[np.argmax(bad)]):g} over {draws} rounds"
    )


def _check_arm_means(one: Any, draws: int) -> None:
    spreads = np.sqrt(getattr(one, "variances", np.full(one.n_arms, np.inf)))
    for arm in np.flatnonzero(np.isfinite(spreads)):
        mean = float(one.sample(int(arm), _rng(int(arm)), draws).mean())
        stated = float(one.arm_means[arm])
        assert abs(mean - stated) <= 6 * spreads[arm] / math.sqrt(draws) + 1e-12, (
            f"arm {arm} should pay {stated:g} on average and paid {mean:g}"
        )


def _differences(one: Any, draws: int) -> Iterator[tuple[NDArray[np.int64], Array, Array]]:
    """Yield arm numbers, rewards minus means, and whether there was a reward."""
    rng = _rng()
    for start in range(0, draws, ROUNDS):
        n = min(ROUNDS, draws - start)
        if _kind(one) == "contextual":
            block = one.block(rng, n)
            offered = np.arange(one.n_actions) < block.count[:, None]
            arms, reward, mean = block.arms, block.reward, block.mean
        else:
            reward, mean = one.round_block(rng, start, n)
            offered = np.ones(reward.shape, dtype=bool)
            arms = np.broadcast_to(np.arange(one.n_arms), reward.shape)
        paid = reward[offered]
        yield arms[offered], paid - mean[offered], (paid != 0.0).astype(np.float64)


def check_delays(env: Any) -> None:
    """Delays are within the window and follow the distribution that the environment states.

    Promised where rewards come late (``delayed``). The Kolmogorov–Smirnov distance of 2,000 delays
    exceeds the bound with probability 1e-9 per arm (Massart); it never does for steps.
    """
    if not getattr(env, "delayed", False):
        return
    one, n = _instance(env), 2_000
    within = math.sqrt(math.log(2.0 / 1e-9) / (2.0 * n))
    assert one.first_rounds.shape == (one.n_arms,), "`first_rounds` must have one entry per arm"
    assert one.first_rounds.min() == 0, "an arm must be there from the start"
    for arm in range(one.n_arms):
        delay, factor = one.sample_delays(arm, _rng(arm), n)
        again, _ = one.sample_delays(arm, _rng(arm), n)
        assert np.array_equal(delay, again), "the same stream must give the same delays"
        inside = ((delay >= 0.0) & (delay <= one.window)).all()
        assert inside, f"delays of arm {arm} must lie in [0, {one.window}]"
        mean = float(factor.mean())
        assert abs(mean - 1.0) <= within, f"what delays multiply rewards by averages {mean:g}"
        ages = np.linspace(0.0, one.window, 101)
        seen = np.searchsorted(np.sort(delay), ages, side="right") / n
        stated = one.fraction(arm, ages)
        assert stated[-1] == 1.0, f"all rewards of arm {arm} must have come by the window"
        off = float(np.abs(seen - stated).max())
        assert off <= within, f"delays of arm {arm} differ from `fraction` by {off:g}"


def check_plain_data(env: Any) -> None:
    """The environment is rebuilt by its parameters, by `from_dict` and by pickle."""
    if hasattr(env, "parameters"):
        check_spec_is_data(env)
    if hasattr(env, "to_dict"):
        from zib.env import from_dict

        again = from_dict(json.loads(json.dumps(env.to_dict())))
        assert again == env, f"{env!r} is not rebuilt by from_dict(to_dict())"
        assert again.to_dict() == env.to_dict(), "to_dict must not change on the way"


def check_wrong_parameters(env: Any) -> None:
    """Wrong parameters are refused in one sentence that names the parameter and the value."""
    if getattr(type(env), "declared", None):
        check_refusals(env)


ENVIRONMENT_CHECKS: tuple[Callable[[Any], None], ...] = (
    check_attributes,
    check_instances_repeat,
    check_shapes,
    check_blocks_join,
    check_delays,
    check_plain_data,
    check_wrong_parameters,
)
