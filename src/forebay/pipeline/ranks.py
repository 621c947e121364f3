"""The rank of this process, for `shard("auto")` and for pipelines without `shard`."""

from contextlib import suppress
from dataclasses import dataclass

from forebay.core.decision import Decision
from forebay.core.launchers import ReportedRank, lockstep_ranks
from forebay.errors import PipelineError
from forebay.order.schedule import Cursor, Schedule

__all__ = [
    "Rank",
    "detect_rank",
    "detect_undivided_rank",
    "rank_decision",
    "refuse_later_rank",
    "refuse_undivided_rows",
    "undivided_decision",
    "uneven_shards_decision",
    "validate_equal_steps",
]


@dataclass(frozen=True, slots=True)
class Rank:
    """The number of this process among the processes of a training run."""

    index: int
    count: int
    reported_by: str  # names of the launchers; empty if none reports a rank, so that the process is the only rank

    def __str__(self) -> str:
        return f"{self.index} of {self.count}"


def detect_rank() -> Rank:
    """Return the rank that launchers report, or rank 0 of 1 without a report.

    One launcher may start another: Slurm may start torchrun. The innermost launcher decides. Raise PipelineError if a
    report is invalid, or if two launchers on the innermost level report different ranks.
    """
    ranks = [_to_rank(reported) for reported in lockstep_ranks()]
    if len({(rank.index, rank.count) for rank in ranks}) > 1:
        raise PipelineError(
            f"shard('auto') found different ranks: {', '.join(f'{rank} by {rank.reported_by}' for rank in ranks)}. "
            "Unset the environment variables that belong to another run, or use shard(index, count)."
        )
    if not ranks:
        return Rank(0, 1, "")
    return Rank(ranks[0].index, ranks[0].count, " and ".join(rank.reported_by for rank in ranks))


def detect_undivided_rank() -> Rank | None:
    """Return this process's rank if it is one of several in lockstep, else None.

    Ignore invalid reports: a pipeline without `shard` does not depend on them.
    """
    with suppress(Exception):  # a framework may be half imported, and a variable may not be a number
        for reported in lockstep_ranks():
            if reported.index is not None and reported.count is not None and not reported.has_parameter_servers:
                rank = Rank(reported.index, reported.count, reported.reported_by)
                if rank.count > 1 and 0 <= rank.index < rank.count:
                    return rank
    return None


def refuse_undivided_rows() -> None:
    """Raise PipelineError if this process is one of several ranks.

    Without `shard`, all ranks would read the same rows.
    """
    rank = detect_undivided_rank()
    if rank is None:
        return
    raise PipelineError(
        f"this process is rank {rank} (reported by {rank.reported_by}), but the pipeline has no shard(), so all ranks "
        "would read the same rows. Call .shard('auto') before feed(), so that each rank reads its own part. Call "
        ".shard(0, 1) if the rows are already divided, or if this process shall read all of them, as for a validation "
        "on one rank or for independent runs."
    )


def refuse_later_rank(rank: Rank | None, *, has_shard: bool) -> None:
    """Raise PipelineError if the rank of this process has changed since `feed()`.

    The feed would read the rows of another rank. `rank` is the rank that `feed()` detected; None without
    `shard("auto")`.
    """
    if rank is None:
        if not has_shard:
            refuse_undivided_rows()
        return
    now = detect_undivided_rank()
    if now is not None and (now.index, now.count) != (rank.index, rank.count):
        raise PipelineError(
            f"this process is rank {now} (reported by {now.reported_by}), but it was rank {rank} when feed() ran, so "
            "the feed would read rows of other ranks. Call feed() after the ranks have started, for example after "
            "init_process_group(), or use feed('loader'), which follows the rank."
        )


def validate_equal_steps(rank: Rank, schedule: Schedule, position: int, *, unit: str = "rows") -> None:
    """Raise PipelineError if some ranks would have no row in the last step.

    The other ranks would wait forever for these ranks. `position` is the position in the pass at which the run begins.
    `unit` says what a position is: "rows", or "batches" with `batch(tokens=)`.
    """
    starved = schedule.starved_shards(position)
    if starved == 0:
        return
    if unit == "batches":
        raise PipelineError(
            f"{schedule.pass_rows - position} batches from batch {position} on cannot be divided among {rank.count} "
            f"ranks: in the last step {starved} ranks would have no batch, and the others would wait for them. Leave "
            "that step out with batch(..., drop_remainder=True)."
        )
    remaining_rows = schedule.pass_rows - position
    raise PipelineError(
        f"{remaining_rows} rows from position {position} on cannot be divided among {rank.count} ranks in batches of "
        f"{schedule.batch_rows}: in the last step {starved} ranks would have no row, and the others would wait for "
        "them. Leave that step out with batch(..., drop_remainder=True), or choose larger batches or fewer ranks."
    )


def rank_decision(rank: Rank, schedule: Schedule) -> Decision:
    """Return the decision about the rank, for `explain()`."""
    if not rank.reported_by:
        why = "no framework and no launcher reports a rank, so this process reads all rows"
        return Decision("rank", "the only one", why)
    remainder = "and an incomplete last step is left out" if schedule.drop_remainder else "and every row is read once"
    why = f"reported by {rank.reported_by}; all ranks take the same number of steps, {remainder}"
    return Decision("rank", str(rank), why)


def undivided_decision(rank: Rank) -> Decision:
    """Return the decision to read all rows on one of several ranks, for `explain()`."""
    why = f"shard(0, 1) says that the rows are already divided; {rank.reported_by} reports rank {rank}"
    return Decision("rank", "reads all rows", why)


def uneven_shards_decision(schedule: Schedule) -> Decision | None:
    """Return a decision that warns of shards with different numbers of steps, or None.

    Only `shard(index, count)` allows such shards. With `shard("auto")`, all ranks take the same number of steps.
    """
    starved, count = schedule.starved_shards(0), schedule.shard_count
    if starved == 0 or schedule.incomplete_step_rows(Cursor()) == 0:  # take() may end the epoch before the last step
        return None
    shards = "1 shard takes" if starved == 1 else f"{starved} shards take"
    why = (
        f"{shards} one step less than the others. If shards wait for each other, leave the last step out with "
        "batch(..., drop_remainder=True); shard('auto') requires this"
    )
    return Decision("shard", f"{schedule.shard_index} of {count}", why)


def _to_rank(reported: ReportedRank) -> Rank:
    """Return a report as `Rank`. Raise PipelineError for a cluster with parameter servers."""
    if reported.has_parameter_servers:
        raise PipelineError(
            f"{reported.reported_by} describes a cluster with parameter servers, where TensorFlow distributes the "
            "work. shard('auto') is for workers in lockstep. Use shard(index, count)."
        )
    # Only a cluster with parameter servers reports no index, and `lockstep_ranks` skips reports without a count.
    assert reported.index is not None
    assert reported.count is not None
    return Rank(reported.index, reported.count, reported.reported_by)
