"""The parts of a step as shares of the step, as all reports show them."""

__all__ = ["SMALLER_PARTS", "merge_small_parts", "shares_of"]

SMALLER_PARTS = "smaller parts"  # the sum of the parts that a report does not show


def shares_of(parts: dict[str, float]) -> dict[str, float]:
    """Return the share of each part; all are 0 if the step takes no time.

    Otherwise the shares add up to 1.
    """
    total = sum(parts.values())
    return {name: seconds / total if total else 0.0 for name, seconds in parts.items()}


def merge_small_parts(parts: dict[str, float], smallest: float) -> dict[str, float]:
    """Return the parts with shares of at least `smallest`, and the sum of smaller parts.

    Omit the sum if its share is below `smallest`.
    """
    shares = shares_of(parts)
    large = {name: seconds for name, seconds in parts.items() if shares[name] >= smallest}
    small = sum(seconds for name, seconds in parts.items() if name not in large)
    merged = large | {SMALLER_PARTS: small}
    return merged if shares_of(merged)[SMALLER_PARTS] >= smallest else large
