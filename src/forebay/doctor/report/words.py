"""Numbers as people read them."""

__all__ = ["interval", "percent", "seconds"]


def seconds(value: float) -> str:
    """A time with as many digits as matter.

    >>> seconds(0.00123)
    '1.23 ms'
    """
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}" if value * factor < 1000 else f"{value * factor:,.0f} {unit}"
    return f"{value * 1e9:.0f} ns" if value else "0 s"


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 or not share else f"{share:.1%}"


def interval(low: float, high: float, step: float) -> str:
    """How many times as fast a step becomes when so many of its seconds are won.

    >>> interval(0.4, 0.5, 1.0)
    '1.7 to 2.0 x'
    """
    fastest = step / max(step - high, step * 0.01)
    slowest = step / max(step - low, step * 0.01)
    if f"{slowest:.1f}" == f"{fastest:.1f}":
        return f"{fastest:.1f} x"
    return f"{slowest:.1f} to {fastest:.1f} x"
