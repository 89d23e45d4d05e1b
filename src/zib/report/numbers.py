"""Numbers as text: the digits, signs and units of all pages, tables and sentences."""

from __future__ import annotations

import math

MISSING = "–"
PLAIN = (1e-4, 1e7)  # magnitudes that are written without an exponent


def number(x: float, digits: int = 3, *, trim: bool = False) -> str:
    """Return a number with `digits` significant digits; the integer part is never rounded away.

    `trim` drops zeros at the end, for numbers that were chosen rather than measured.

    Examples
    --------
    >>> number(1234.5), number(0.012345), number(-12.345), number(2e9)
    ('1234', '0.0123', '−12.3', '2.00e+09')
    >>> number(0.5), number(0.5, trim=True), number(float("nan"))
    ('0.500', '0.5', '–')
    """
    if math.isnan(x):
        return MISSING
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    size = abs(x)
    if size == 0.0 or PLAIN[0] <= size < PLAIN[1]:
        whole = math.floor(math.log10(size)) if size else digits
        text = f"{x:.{max(0, digits - 1 - whole)}f}"
        if trim and "." in text:
            text = text.rstrip("0").rstrip(".")
    else:
        text = f"{x:.{digits}g}" if trim else f"{x:.{digits - 1}e}"
    return text.replace("-", "−", 1) if x < 0 else text


def interval(value: float, low: float, high: float, digits: int = 3, *, trim: bool = False) -> str:
    """Return an estimate with its interval, or alone where there is no interval.

    Examples
    --------
    >>> interval(1.2345, 1.0, 1.5), interval(3.0, float("nan"), float("nan"))
    ('1.23 [1.00, 1.50]', '3.00')
    """
    estimate = number(value, digits, trim=trim)
    if math.isnan(low) and math.isnan(high):
        return estimate
    ends = (number(end, digits, trim=trim) for end in (low, high))
    return f"{estimate} [{', '.join(ends)}]"


def percent(share: float, digits: int = 3) -> str:
    """Return a share in per cent; only a share of 1 is 100 %.

    Examples
    --------
    >>> percent(0.1234), percent(0.5), percent(0.99996), percent(float("nan"))
    ('12.3 %', '50 %', '99.996 %', '–')
    """
    if math.isnan(share):
        return MISSING
    text = f"{100 * share:.{digits}g}"
    if share < 1.0 and float(text) >= 100.0 and digits < 15:
        return percent(share, digits + 1)
    return f"{text} %"


def times(ratio: float) -> str:
    """Return a ratio with two decimals, as in "1.25 times".

    Examples
    --------
    >>> times(1.254), times(float("inf"))
    ('1.25', '–')
    """
    return f"{ratio:.2f}" if math.isfinite(ratio) else MISSING


def count(n: int, one: str, many: str = "") -> str:
    """Return a number of things.

    Examples
    --------
    >>> count(1, "policy", "policies"), count(12_000, "round")
    ('1 policy', '12,000 rounds')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Return a time in the unit one would use.

    Examples
    --------
    >>> duration(0.0), duration(0.21), duration(75.0), duration(5_400.0), duration(200_000.0)
    ('0 s', '0.2 s', '75 s', '90 min', '56 h')
    """
    if seconds >= 4 * 3600:
        return f"{seconds / 3600:.0f} h"
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"


def file_size(size: float) -> str:
    """Return a number of bytes in the unit one would use.

    Examples
    --------
    >>> file_size(0), file_size(1536), file_size(3.2e9)
    ('0 B', '1.5 kB', '3.2 GB')
    """
    if size < 1000:
        return f"{size:.0f} B"
    power = min(int(math.log10(size) // 3), 4)
    return f"{size / 1000**power:.1f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def listing(names: list[str] | tuple[str, ...]) -> str:
    """Return names as a phrase, each once.

    Examples
    --------
    >>> listing(["a", "b", "c", "a"])
    'a, b and c'
    """
    unique = list(dict.fromkeys(names))
    if len(unique) < 2:
        return "".join(unique)
    return f"{', '.join(unique[:-1])} and {unique[-1]}"


def shortened(text: str, most: int = 28) -> str:
    """Return a text cut to `most` characters.

    Examples
    --------
    >>> shortened("a rather long name of an arm", 12)
    'a rather lo…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"
