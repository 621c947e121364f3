"""What is refused before anything is built, each with the way out."""

from dataclasses import replace

from forebay.errors import PipelineError
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.ranks import Rank, check_steps
from forebay.pipeline.target import Place
from forebay.sources.streams.batches import BatchStream
from forebay.sources.streams.generator import RowStream

__all__ = ["check_pipeline", "check_place", "loosened"]


def check_pipeline(pipeline: Pipeline, resident: str) -> None:
    """What no feed could be made of."""
    if pipeline.batching is None and not isinstance(pipeline.source, BatchStream):
        raise PipelineError("the pipeline has no batch size: call batch(n) before feed().")
    if isinstance(pipeline.rank, Rank) and pipeline.rank.count > 1:
        _check_rank(pipeline, pipeline.rank)
    if pipeline.indexed and pipeline.schedule.batches == 0:
        schedule = pipeline.schedule
        raise PipelineError(
            f"there is nothing to feed: {schedule.pass_rows} rows over {schedule.shard_count} shards give shard "
            f"{schedule.shard_index} not a single batch of {schedule.batch_rows}."
        )
    if resident not in ("auto", "always", "never"):
        raise PipelineError(f"resident={resident!r} is unknown: choose 'auto', 'always' or 'never'.")


def check_place(pipeline: Pipeline, place: Place, resident: str, budget: int | None) -> None:
    """What only a device can do is refused where there is none."""
    if place.side is not None:
        return
    if resident == "always":
        raise PipelineError("resident='always' needs a device to keep the data on, and this feeds the CPU: use 'auto'.")
    if budget is not None:
        raise PipelineError("device_bytes= is a budget for a device, and this feeds the CPU: leave it out.")
    placed = [transform for transform in pipeline.transforms if transform.where == "device"]
    if placed:
        raise PipelineError(
            f"{placed[0]} asks for where='device', and this feeds the CPU: choose 'thread', 'process' or 'ray'."
        )


def loosened(pipeline: Pipeline) -> Pipeline:
    """Padding takes rows of any length, straight from whoever gives them; without it, none may differ."""
    if not pipeline.padded and any(spec.ragged for spec in pipeline.specs):
        raise PipelineError(
            f"rows may differ in length ({_fields(pipeline)}): say what to fill them up with, batch(n, pad=0)."
        )
    if not pipeline.padded or pipeline.indexed:
        return pipeline
    if not isinstance(pipeline.source, RowStream):
        raise PipelineError(
            "rows to be padded come straight from the generator: take, repeat and shuffle there, or after batch()."
        )
    return replace(pipeline, source=pipeline.source.loosened())


def _check_rank(pipeline: Pipeline, rank: Rank) -> None:
    """All ranks must take the same number of steps, or those that go on wait for the others for ever."""
    if pipeline.indexed:
        check_steps(rank, pipeline.schedule, 0)
    elif pipeline.batching is None:
        raise PipelineError(
            "shard('auto') cannot share out ready-made batches: their number need not be the same for all "
            f"{rank.count} ranks. Let the loader make those of its rank, or say shard(index, count)."
        )
    elif not pipeline.batching.drop_remainder:
        raise PipelineError(
            f"a stream may end with rows for some of {rank.count} ranks only, and the others would wait for them: "
            "say batch(..., drop_remainder=True), which leaves that step out."
        )


def _fields(pipeline: Pipeline) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in zip(pipeline.structure.paths, pipeline.specs, strict=True))
