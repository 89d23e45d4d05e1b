"""Files that nobody saved: refused in one sentence that names the entry, before memory is taken."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.fuzz import child
from tests.fuzz.forge import content_of

import zib
from zib import contextual, mab
from zib.core import saved
from zib.core.entry import interpreted
from zib.core.spec import saved_name
from zib.core.state import clamped, clamped_arm

UCB = mab.ZIUCB(horizon=50, sigma=1.0)


def content(spec: Any = UCB, seed: Any = 0) -> dict[str, Any]:
    with interpreted():
        bandit = zib.Bandit(spec, n_arms=3, seed=seed)
        bandit.update_many([0, 1, 2, 0, 2, 1], [0.0, 1.0, 2.0, 3.0, 0.0, 1.5])
        return content_of(bandit)


def put(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *steps, last = path.split(".")
    held = data
    for step in steps:
        held = held[step]
    held[last] = value
    return data


def refused(data: dict[str, Any] | str, words: str, kind: Any = zib.Bandit) -> None:
    text = data if isinstance(data, str) else saved.dumps(data)
    with interpreted(), pytest.raises(zib.SavedStateError, match=words):
        kind.loads(text)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("state.pulls", ["nan", 2.0, 2.0], "`pulls` holds a value that is not a finite number"),
        ("state.pulls", [2.5, 2.0, 2.0], "`pulls` must hold whole numbers"),
        ("state.pulls", [1e300, 2.0, 2.0], r"`pulls` holds 1e\+300, more than"),
        ("state.pulls", [2.0, 2.0], r"'state.pulls' has shape \(2,\), expected \(3,\)"),
        ("state.pulls", [2.0, "2.0", 2.0], "'state.pulls' is damaged: 2.0 is not a number"),
        ("state.pulls", [2.0, True, 2.0], "'state.pulls' is damaged: True is not a number"),
        ("state.pulls", [2.0, [2.0], 2.0], "'state.pulls' is damaged: .* is not a number"),
        ("state.pulls", [2.0, 10**400, 2.0], "'state.pulls' is damaged: int too large"),
        ("state.total", [1e300, 0.0, 0.0], "`total` holds a sum of more than"),
        ("state.spread", [1e300, 0.0, 0.0], "`spread` holds more than"),
        ("state.log_horizon", [1.0], "`log_horizon` must be the logarithm of 50"),
        ("state.own", [], "'state.own' must hold score, mean_upper; got list"),
        ("state.another", 1.0, "'state' must hold pulls, .*; got .*'another'"),
        ("sums.total", [7.0, 0.0, 0.0], "'sums' cannot be: `total` must be 3"),
        ("sums.squares", ["inf", 0.0, 0.0], "'sums' cannot be: `squares` holds a value"),
        ("inflated", "0", "`inflated` must be a finite number"),
        ("inflated", 1e300, "`inflated` must lie in"),
        ("learned", -1, "`learned` must lie in"),
        ("learned", 1.5, "`learned` must be a whole number"),
        ("arms", None, "give exactly one of `arms`"),
        ("arms", "abc", "'arms' must be a list; got str"),
        ("arms", [1, 2, [3]], "'arms' holds a label that is none of str"),
        ("arms", [1, 1, 2], "`arms` must be different"),
        ("policy", 7, "'policy' has no name"),
        ("policy.parameters", 7, "'policy' lacks its parameters"),
        ("policy.parameters.horizon", -5, "'policy' cannot be: `horizon` must"),
        ("policy.parameters.tail", 1.0, "'policy' cannot be"),
        ("policy.parameters.another", 1.0, "'policy' cannot be: .*another"),
        ("rng", 3, "`bit_generator` must be one of"),
        ("rng.state", {}, "the saved random state is damaged"),
    ],
)
def test_what_cannot_have_been_saved_is_named(path: str, value: Any, words: str) -> None:
    refused(put(content(), path, value), words)


def test_entries_that_are_missing_are_named() -> None:
    for key in ("policy", "arms", "inflated", "learned", "state", "rng"):
        data = content()
        del data[key]
        refused(data, f"lacks or garbles an entry: '{key}'")


def test_a_ring_that_contradicts_the_statistics_is_refused() -> None:
    for path, value, words in (
        ("state.around.head", [2.0], "in `around`, `head` must be 6, behind the 6 slots"),
        ("state.around.held", [9.0], "position in"),
        ("state.around.reward", [0.0] * 8, r"in `around`, `nonzero` must count"),
        ("state.around.arm", [1.0] * 8, r"in `around`, `pulls` must count"),
        ("state.around.arm", [1e300] * 8, "`around.arm` must hold numbers of 3 arms"),
    ):
        refused(put(content(mab.Windowed(mab.UCB1(), 8)), path, value), words)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("MT19937", "rng.state.pos", 1_000_000),
        ("MT19937", "rng.state.pos", -5),
        ("MT19937", "rng.state.key", [1] * 10),
        ("Philox", "rng.buffer_pos", 1_000_000),
        ("Philox", "rng.buffer", [1]),
        ("PCG64", "rng.has_uint32", 7),
        ("SFC64", "rng.state.state", [1, 2]),
    ],
)
def test_random_streams_that_read_elsewhere_are_refused(name: str, path: str, value: Any) -> None:
    stream = np.random.Generator(getattr(np.random, name)(5))
    refused(put(content(seed=stream), path, value), "the saved random state is damaged")


def nested(depth: int) -> dict[str, Any]:
    data = content()
    spec: Any = data["policy"]
    for _ in range(depth):
        spec = {"name": saved_name(mab.Anytime), "parameters": {"spec": spec}}
    return put(data, "policy", spec)


def test_what_is_nested_too_deeply_is_refused() -> None:
    refused(nested(30), "nested more than 20 deep")
    label: Any = "a"
    for _ in range(30):
        label = {"tuple": [label]}
    refused(put(content(), "arms", [label, 1, 2]), "at most 20 deep")
    refused('{"format": ' + "[" * 100_000 + "]" * 100_000 + "}", "damaged or cut off")
    refused(put(content(), "state.pulls", [[[[[[1.0]]]]]]), r"has shape \(1, 1, 1, 1, 1, 1\)")


@pytest.mark.parametrize("word", ["NaN", "Infinity", "1e400"])
def test_numbers_that_json_does_not_have_are_refused(word: str) -> None:
    text = saved.dumps(content()).replace('"inflated":0.0', f'"inflated":{word}')
    refused(text, "is not a number|damaged")


def _greedy() -> dict[str, Callable[[], tuple[Any, dict[str, Any]]]]:
    def window() -> tuple[Any, dict[str, Any]]:
        data = content(mab.Windowed(mab.UCB1(), 8))
        return zib.Bandit, put(data, "policy.parameters.length", 10_000_000)

    def with_features(spec: Any) -> dict[str, Any]:
        bandit = zib.ContextualBandit(spec, n_features=2, seed=0)
        return content_of(bandit)

    def features() -> tuple[Any, dict[str, Any]]:
        data = with_features(contextual.Naive(horizon=50, sigma=1.0))
        return zib.ContextualBandit, put(data, "n_features", [20_000, 20_000])

    def unused_features() -> tuple[Any, dict[str, Any]]:
        data = with_features(contextual.Naive(horizon=50, sigma=1.0))
        return zib.ContextualBandit, put(data, "n_features", [2, 10**9])

    def memory() -> tuple[Any, dict[str, Any]]:
        data = with_features(contextual.JointUCB(memory=256))
        return zib.ContextualBandit, put(data, "policy.parameters.memory", 10**9)

    def arms() -> tuple[Any, dict[str, Any]]:
        spec = contextual.Disjoint(spec=contextual.Naive(horizon=50, sigma=1.0), n_arms=2)
        return zib.ContextualBandit, put(with_features(spec), "policy.parameters.n_arms", 10**8)

    return {f.__name__: f for f in (window, features, unused_features, memory, arms)}


def _within_a_gigabyte(case: tuple[Any, str]) -> None:
    kind, text = case
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with pytest.raises(zib.SavedStateError, match="larger than all that was saved"):
        kind.loads(text)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - used < 2**28


@pytest.mark.parametrize("name", _greedy())
def test_sizes_are_checked_before_memory_is_taken(name: str) -> None:
    with interpreted():
        kind, data = _greedy()[name]()
        text = saved.dumps(data)
        assert len(text) < 200_000
        assert child.run([(kind, text)], _within_a_gigabyte, 20.0, 20.0) == 1


def test_a_file_that_is_not_text_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "bandit.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(zib.SavedStateError, match="is not a saved zib.Bandit"):
        zib.Bandit.load(path)


@pytest.mark.parametrize(
    ("stored", "position"),
    [(0.0, 0), (2.0, 2), (2.9, 2), (7.0, 4), (1e300, 4), (np.inf, 4), (-1e300, 0), (np.nan, 0)],
)
def test_stored_numbers_are_positions_inside_their_array(stored: float, position: int) -> None:
    import numba

    compiled = numba.njit(lambda x: (clamped(x, 5), clamped_arm(x, 5)))
    arm = -1 if not stored >= 0 else position
    assert compiled(stored) == (position, arm)
    assert (clamped(stored, 5), clamped_arm(stored, 5)) == (position, arm)


def test_json_is_what_json_says() -> None:
    """A file written by another program with the same content is the same."""
    data = content()
    text = json.dumps(json.loads(saved.dumps(data)), indent=2)
    with interpreted():
        assert content_of(zib.Bandit.loads(text)) == data
