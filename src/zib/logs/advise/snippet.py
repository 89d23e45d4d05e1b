"""The recommendation as a program that runs as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zib.logs.advise.choose import Choice
from zib.logs.advise.collect import Collected, Randomised

# how the file is written, where that had to be said
_HOW = ("missing_reward", "inflated", "strip_labels", "sep", "decimal", "encoding", "sheet")


def reading(source: Mapping[str, Any] | None, found: Collected, *, context: bool) -> str:
    """Return the lines that read what the policy needs; without a source, with stand-in names."""
    given = dict(source or {})
    path = str(given.pop("path", "log.parquet"))
    columns: dict[str, Any] = {"arm": "arm", "reward": "reward"}
    if context:
        columns["context"] = list(dict.fromkeys(n.split("=")[0] for n in found.context_names))
    columns |= {key: given[key] for key in (*columns, *_HOW) if given.get(key)}
    inside = "".join(f"    {key}={_text(columns[key])},\n" for key in columns)
    return f"log = LoggedData.read(\n    {path!r},\n{inside})\n"


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return repr([str(item) for item in value])
    return repr(value) if isinstance(value, (bool, float)) else repr(str(value))


def _rewards(source: Mapping[str, Any] | None) -> dict[str, str]:
    """Return how a program speaks of rewards: those of a log are counted from `inflated`."""
    if (source or {}).get("inflated"):
        return {
            "reward": "(log.reward + log.inflated)",
            "nothing": "log.inflated",
            "inflated": ", inflated=log.inflated / unit",
        }
    return {"reward": "log.reward", "nothing": "0.0", "inflated": ""}


_HEAD = '''\
"""Plays the arms of a log with {label}. Replace `observe` by your own system."""

import numpy as np

import zib
from zib.logs import LoggedData

{reading}
rounds = {rounds}  # decisions still to come
unit = {unit!r}  # the policy sees rewards divided by this
'''

_OBSERVE = '''
rng = np.random.default_rng(0)
seen = {{arm: {reward}[log.arm == k] for k, arm in enumerate(log.arms)}}


def observe(arm{more}):
    """Return what `arm` pays. Here a reward of the log is drawn again."""
    return rng.choice(seen[arm]) if seen[arm].size else {nothing}

'''

_LEARN = "bandit.update_many([log.arms[k] for k in log.arm], {reward} / unit)\n"

_PLAIN = """\
spec = {spec}
bandit = zib.Bandit(spec, arms=log.arms, seed=0{inflated})

{learning}"""

_PLAIN_LOOP = """
for _ in range(rounds):
    arm = bandit.select()
    bandit.update(arm, observe(arm) / unit)

for arm, found in bandit.means().items():
    print(arm, found.pulls, found.reward * unit)
"""

_CONTEXTUAL = '''\
spec = {spec}
bandit = zib.ContextualBandit(spec, n_features=1 + log.n_features, arms=log.arms, seed=0{inflated})

centre, spread = log.context.mean(axis=0), log.context.std(axis=0)
spread[spread == 0.0] = 1.0


def features(context):
    """Return 1 and the standardised context, one row per decision."""
    rows = (np.atleast_2d(context) - centre) / spread
    return np.hstack([np.ones((len(rows), 1)), rows])


# The models are fitted given the context, so they may learn from the log.
bandit.update_many([log.arms[k] for k in log.arm], {reward} / unit, features(log.context))
'''

_CONTEXTUAL_LOOP = """
for _ in range(rounds):
    context = log.context[rng.integers(log.n_rows)]  # replace by what is known now
    z = np.repeat(features(context), len(log.arms), axis=0)  # the same row for every arm
    arm = bandit.select(z)
    bandit.update(arm, observe(arm, context) / unit, z)

print(bandit.predict(z))
"""


def plain_program(
    choice: Choice,
    found: Collected,
    *,
    rounds: int,
    unit: float,
    random: Randomised,
    source: Mapping[str, Any] | None,
) -> str:
    """Return a program that plays a policy without context."""
    rewards = _rewards(source)
    learn = _LEARN.format(**rewards)
    if random == "yes":
        learning = (
            f"# The arms were drawn at random, so the policy may learn from the log.\n{learn}"
        )
    elif random == "no":
        learning = "# The arms of the log were not drawn at random: the policy starts without it.\n"
    else:
        learning = (
            "# The log does not say how arms were chosen. If they were drawn at random, let the\n"
            f"# policy learn from it:\n# {learn}"
        )
    warm = random == "yes" or (random == "unknown" and choice.timed)
    horizon = "log.n_rows + rounds" if warm else "rounds"
    return (
        _HEAD.format(
            label=choice.label,
            reading=reading(source, found, context=False),
            rounds=rounds,
            unit=unit,
        )
        + _PLAIN.format(spec=choice.code(horizon), learning=learning, **rewards)
        + _OBSERVE.format(more="", **rewards)
        + _PLAIN_LOOP
    )


def contextual_program(
    choice: Choice,
    found: Collected,
    *,
    rounds: int,
    unit: float,
    source: Mapping[str, Any] | None,
) -> str:
    """Return a program that plays a contextual policy."""
    rewards = _rewards(source)
    return (
        _HEAD.format(
            label=choice.label,
            reading=reading(source, found, context=True),
            rounds=rounds,
            unit=unit,
        )
        + _CONTEXTUAL.format(spec=choice.code("log.n_rows + rounds"), **rewards)
        + _OBSERVE.format(more=", context", **rewards)
        + _CONTEXTUAL_LOOP
    )
