"""Spoil one argument of a valid call and look at the answer.

The promise: `zib.InvalidParameterError`, whose message names the parameter in backticks and is
short, and nothing has changed; or the value is one that may be allowed, and is taken.

    python -m tests.fuzz.api --seed 7 --seconds 60
"""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import zib
from tests.fuzz.calls import KINDS, KINDS_IN, Call, all_calls
from zib.online import SavedStateError

LONGEST_MESSAGE = 300


class Value(NamedTuple):
    """A bad value, made anew for each call; `always`: no parameter of the kind may take it."""

    name: str
    make: Callable[[], Any]
    always: bool = True


def _v(text: str, *, always: bool = True) -> Value:
    scope = {"np": np, "datetime": datetime, "decimal": decimal, "Path": Path}
    return Value(text, lambda: eval(text, scope), always)


JUNK = [
    _v(text)
    for text in (
        "object()", "1j", "1 + 2j", "np.complex128(1 + 1j)", "{'a': 1}", "lambda x: x",
        "b'abc'", "np.ma.masked", "np.datetime64('2020-01-01')", "datetime.date(2020, 1, 1)",
        "'x' * 100_000", "[object()]", "np.array([1 + 2j, 0])", "np.array(['2020'], 'datetime64')",
        "[['a', 'b'], ['c']]", "{1.5, 2.5}", "type", "...", "'nonsense'", "'\\x00'",
    )
]  # fmt: skip
NUMBERS = [
    *JUNK,
    *(
        _v(text)
        for text in (
            "float('nan')", "10**400", "-10**400", "10**5000", "'1'", "'0.5'", "b'1'",
            "np.str_('1')", "np.ma.array(1.0, mask=True)", "['1', '2']", "[1 + 2j]", "[10**400]",
            "np.ma.array([1.0, 1e9], mask=[False, True])", "np.array(['1.0'])",
            "np.array(float('nan'))", "[float('nan')]", "decimal.Decimal('NaN')",
            "[[1.0], [1.0, 2.0]]",
        )
    ),
    *(
        _v(text, always=False)
        for text in (
            "None", "True", "-1", "0", "1.5", "-1e300", "float('inf')", "-float('inf')", "[]", "{}",
            "[1.0]", "np.array([])", "np.float32(0.5)", "np.int8(-1)", "np.bool_(True)",
            "np.ones((2, 2, 2))", "()", "''", "decimal.Decimal(1)", "[None]", "[True]", "1e-300",
            "np.array(1.0)", "range(3)", "[0.5] * 50_000", "np.full(3, np.inf)",
        )
    ),
]  # fmt: skip
WORDS = [
    *JUNK,
    *(
        _v(text)
        for text in (
            "float('nan')", "10**400", "10**5000", "['kl', 'nonsense']", "'KL '",
            "np.array(['a', 'b'])",
            "np.ones((100, 100))",
        )
    ),
    *(_v(text, always=False) for text in ("None", "1", "1.5", "[]", "()", "''", "{}", "True")),
]  # fmt: skip
FLAGS = [
    *JUNK,
    *(
        _v(text)
        for text in ("'yes'", "float('nan')", "10**400", "2", "-1.5", "np.ones(3)", "'True'")
    ),
    *(_v(text, always=False) for text in ("None", "0", "1", "np.bool_(False)", "[]")),
]
OBJECTS = [
    *JUNK,
    *(_v(text) for text in ("5", "float('nan')", "10**400", "10**5000", "[1, 2]", "True")),
    *(_v(text, always=False) for text in ("None", "[]", "()", "''", "{}", "0.5", "np.ones(3)")),
]
SEEDS = [
    _v(text)
    for text in (
        "-1", "1.5", "'12'", "'abc'", "float('nan')", "object()", "1j", "np.ma.masked", "b'1'",
        "[1, -1]", "[1.5]", "['a']", "{'a': 1}", "lambda x: x", "'x' * 100_000",
        "np.datetime64('2020-01-01')", "np.ma.array([1, 2], mask=[0, 1])", "-10**400", "type",
        "datetime.date(2020, 1, 1)", "float('inf')", "[[1], [2, 3]]",
    )
] + [
    _v(text, always=False)
    for text in ("None", "True", "0", "2**70", "10**400", "[1, 2]", "np.int64(3)", "[]",
                 "np.random.default_rng(1)", "np.random.SeedSequence(1)",
                 "np.random.RandomState(1)")
]  # fmt: skip
LABEL = [
    _v(text)
    for text in ("'unknown'", "[]", "{}", "object()", "'x' * 100_000", "10**400", "10**5000", "1j",
                 "np.array([1, 2])", "float('nan')", "['a']", "lambda x: x", "np.ma.masked", "b'a'")
] + [_v(text, always=False) for text in ("None", "0", "1.5", "True", "('a',)", "''")]  # fmt: skip
NEW_LABEL = [
    _v(text)
    for text in ("[]", "{}", "object()", "1j", "np.array([1, 2])", "['a']", "lambda x: x", "b'a'",
                 "np.ma.masked", "frozenset([1])", "datetime.date(2020, 1, 1)", "float('nan')")
] + [
    _v(text, always=False)
    for text in ("None", "0", "1.5", "True", "('a', 1)", "''", "'x' * 100_000", "10**400", "'a'")
]  # fmt: skip
LABELS = [
    _v(text)
    for text in ("'abc'", "''", "b'abc'", "5", "1.5", "object()", "[]", "()", "['a', 'a']",
                 "[['a'], ['b']]", "[object(), object()]", "[1, 1.0]", "[{}, {}]", "10**400", "1j",
                 "[b'a', b'b']", "lambda x: x", "type", "'x' * 100_000", "float('nan')",
                 "[float('nan'), 'a']", "np.ma.masked", "np.ma.array([1, 2], mask=[0, 1])",
                 "np.array(1)", "[frozenset(), 'a']", "[('a', []), 'b']")
] + [
    _v(text, always=False)
    for text in ("None", "['a', 'b']", "range(2)", "{'a': 1, 'b': 2}", "{'a', 'b'}",
                 "np.array(['a', 'b'])", "[1, '1']", "[None, 'a']", "['x' * 100_000, 'b']",
                 "(x for x in 'ab')", "[10**400, 1]")
]  # fmt: skip
KNOWN_LABELS = [
    _v(text)
    for text in ("5", "object()", "['a', 'unknown']", "[['a'], ['b']]", "[object(), 'a']", "'ab'",
                 "10**400", "1j", "b'ab'", "lambda x: x", "float('nan')", "['x' * 100_000, 'b']",
                 "None", "[10**5000, 'b']", "np.ma.array(['a', 'b'], mask=[0, 1])")
] + [_v(text, always=False) for text in ("[]", "('b', 'a')", "['a']")]  # fmt: skip
PATHS = [
    _v(text)
    for text in (
        "5.5",
        "object()",
        "1j",
        "[]",
        "{}",
        "float('nan')",
        "10**400",
        "'\\x00'",
        "lambda x: x",
        "np.ones(3)",
        "['a']",
    )
] + [_v(text, always=False) for text in ("None", "Path('/nowhere/at/all')", "''", "b'abc'")]
TEXTS = [
    _v(text) for text in ("5", "object()", "None", "[]", "float('nan')", "1j", "{}", "10**400")
] + [_v(text, always=False) for text in ("''", "'{}'", "'nonsense'", "'x' * 100_000", "b'abc'")]
COLUMNS = [
    _v(text)
    for text in (
        "object()",
        "5",
        "1j",
        "[1j, 1j, 1j]",
        "[object()] * 3",
        "{'a': 1}",
        "lambda x: x",
        "np.ma.array([1.0, 2.0, 1e9], mask=[0, 0, 1])",
        "[1.0, 2.0]",
        "'abc'",
        "[[1.0], [2.0], [3.0, 4.0]]",
        "np.ones((3, 3, 3))",
    )
] + [_v(text, always=False) for text in ("None", "['2020-01-01'] * 3", "[True] * 3", "[1, 2, 3]")]
IDS = [
    *(_v(text) for text in ("5", "object()", "1j", "[]", "{}", "float('nan')", "b'abc'", "''")),
    *(_v(text) for text in ("'x' * 100_000", "'\\x00'", "10**400", "['a']", "' '", "np.ones(3)")),
    _v("None", always=False),
]
COLUMN_NAMES = [
    _v(text) for text in ("'nowhere'", "5", "object()", "1j", "[]", "{}", "'x' * 100_000", "b'arm'")
] + [_v(text, always=False) for text in ("None", "''")]
DATES = [value for value in NUMBERS if value.name not in ("datetime.date(2020, 1, 1)",)]
NEW_COLUMNS = [
    _v(text)
    for text in ("5", "object()", "1j", "[]", "{}", "b'arm'", "None", "''", "'key'", "'time'")
]
LABEL_COLUMNS = [
    _v(text)
    for text in (
        "object()",
        "5",
        "'abc'",
        "[object()] * 3",
        "['a', 'b']",
        "{'a': 1}",
        "[['a']] * 3",
        "np.ma.array([1, 2, 3], mask=[0, 0, 1])",
        "lambda x: x",
        "[1j] * 3",
    )
] + [_v(text, always=False) for text in ("None", "[1, 2, 3]", "['a', None, 'b']")]


def _but(values: list[Value], *starts: str) -> list[Value]:
    return [value for value in values if not value.name.startswith(starts)]


VALUES = {
    "function": _but(OBJECTS, "lambda", "type"), "progress": _but(FLAGS, "lambda", "type"),
    "store": _but(FLAGS, "'"), "table": _but(OBJECTS, "'"),
    "word or function": _but(WORDS, "lambda", "type"),
    "not functions": _but(OBJECTS, "lambda", "type"), "not strings": _but(OBJECTS, "'"),
    "numbers by label": _but(NUMBERS, "{'"), "not a mapping": _but(OBJECTS, "{'"),
    "number": NUMBERS, "array": NUMBERS, "word": WORDS, "flag": FLAGS, "object": OBJECTS,
    "seed": SEEDS, "label": LABEL, "new label": NEW_LABEL, "labels": LABELS,
    "known labels": KNOWN_LABELS, "path": PATHS, "text": TEXTS, "column": COLUMNS,
    "column name": COLUMN_NAMES, "new column": NEW_COLUMNS, "date": DATES,
    "column of labels": LABEL_COLUMNS, "anything": [],
    "id": IDS, "known id": IDS, "ids": _but(OBJECTS, "{'", "'"), "duration": _but(NUMBERS, "'1"),
    "optional": [value for value in OBJECTS if value.name in ("object()", "1j", "'x' * 100_000")],
}  # fmt: skip


def kind_of(call: Call, name: str) -> str:
    """Say what a parameter is, by its name or by the value it has in a valid call."""
    found = KINDS_IN.get((call.name.rpartition(".")[2], name)) or KINDS.get(name)
    if found is not None:
        return found
    value = call.arguments[name]
    if value is None:
        return "optional"
    if isinstance(value, (bool, np.bool_)):
        return "flag"
    if isinstance(value, (int, float, np.number)):
        return "number"
    if isinstance(value, str):
        return "word"
    try:
        numeric = np.asarray(value).dtype.kind in "fiu"
    except ValueError:
        numeric = False
    return "array" if numeric else "object"


class Finding(NamedTuple):
    """One answer that was not as promised."""

    call: str
    parameter: str
    value: str
    problem: str


def answer(call: Call, parameter: str, value: Value) -> Finding | None:
    """Call with one bad argument; return what is wrong with the answer, if anything is."""
    arguments = {**call.arguments, parameter: value.make()}

    def wrong(problem: str) -> Finding:
        return Finding(call.name, parameter, value.name, problem)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call.function(**arguments)
    except (zib.InvalidParameterError, SavedStateError) as error:
        message = str(error)
        named = [parameter] if value.always else call.arguments
        if call.watched is not None and not call.watched():
            return wrong(f"changed something, then {message[:120]}")
        is_named = any(f"`{name}`" in message or f"`{name}[" in message for name in named)
        is_named |= "column `" in message  # of a log
        if not is_named and (value.always or not isinstance(error, SavedStateError)):
            return wrong(f"not named: {message[:160]}")
        if len(message) > LONGEST_MESSAGE:
            return wrong(f"message of {len(message)} characters: {message[:80]}")
        if "\n" in message or "\x00" in message:
            return wrong(f"message is not one line: {message[:80]!r}")
    except OSError:
        return None if kind_of(call, parameter) == "path" else wrong("OSError")
    except Exception as error:
        return wrong(f"{type(error).__name__}: {str(error)[:120]}")
    else:
        if value.always:
            return wrong("accepted")
    return None


def cases(calls: list[Call]) -> list[tuple[Call, str, Value]]:
    """Return every parameter of every call with every bad value of its kind."""
    return [
        (call, parameter, value)
        for call in calls
        for parameter in call.arguments
        for value in VALUES[kind_of(call, parameter)]
    ]


# What no array of numbers may hold.
_WRONG_ENTRIES = (
    "'a'",
    "'1'",
    "1j",
    "None",
    "10**400",
    "object()",
    "float('nan')",
    "b'1'",
)


def spoilt(call: Call, parameter: str, rng: np.random.Generator) -> Value | None:
    """Return a random bad value: one wrong entry somewhere, an odd number, a number as text."""
    kind, valid = kind_of(call, parameter), call.arguments[parameter]
    one_row = ("ContextualBandit.update", "told ContextualBandit.update")  # look at no other
    if kind == "array" and call.name not in one_row:
        table = np.array(valid, dtype=object)
        at = tuple(int(rng.integers(n)) for n in table.shape)
        text = str(rng.choice(_WRONG_ENTRIES))
        table[at] = _v(text).make()
        listed = table.tolist()
        return Value(f"{text} at {at} of {valid!r}", lambda: listed)
    if kind == "number":
        exponent = int(rng.integers(310, 4000))
        number = float(rng.normal() * 10.0 ** rng.uniform(-12, 12))
        size = int(rng.integers(1, 5))
        return [
            _v(f"{int(rng.choice([-1, 1]))} * 10**{exponent}"),
            _v(f"'{number!r}'"),
            _v(f"np.ma.array({[number] * size}, mask={[True] + [False] * (size - 1)})"),
            _v(repr(number), always=False),
            _v(repr(int(number) if abs(number) < 1e3 else number), always=False),
        ][int(rng.integers(5))]
    return None


def fuzz(seed: int, seconds: float) -> tuple[int, list[Finding]]:
    """Try cases in an order that follows from the seed until the time is over; return findings."""
    calls = all_calls()
    for call in calls if seconds > 10 else ():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call.function(**call.arguments)  # the table itself must be right
            except Exception as error:
                error.add_note(f"the valid call of {call.name} failed")
                raise
    todo = cases(calls)
    end = time.monotonic() + seconds
    found, done = [], 0
    rng = np.random.default_rng(seed)
    for i in rng.permutation(len(todo)):
        if time.monotonic() > end:
            break
        call, parameter, _ = todo[i]
        random = spoilt(call, parameter, rng)
        for value in (todo[i][2],) if random is None else (todo[i][2], random):
            done += 1
            finding = answer(call, parameter, value)
            if finding is not None:
                found.append(finding)
    return done, found


def main() -> None:
    """Fuzz for some time; print the findings as JSON on the last line, and a summary before it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    done, found = fuzz(given.seed, given.seconds)
    print(f"{len(found)} of {done} answers were not as promised")
    for (name, parameter), n in collections.Counter((f.call, f.parameter) for f in found).items():
        print(f"{n:5d}  {name}({parameter})")
    print(json.dumps({"done": done, "found": found}))


if __name__ == "__main__":
    main()
