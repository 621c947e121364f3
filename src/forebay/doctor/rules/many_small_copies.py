"""Many little uploads from one line, step for step, where one upload of all of them would do."""

from collections.abc import Iterator

from forebay.core.spec import format_nbytes
from forebay.doctor.analyse.case import Case, Site
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.framework import copies, feeds
from forebay.doctor.predict.cure_changes import ahead, put_together
from forebay.doctor.rules.finding import Cure, Finding
from forebay.doctor.rules.precedence import charged
from forebay.doctor.rules.wording import calls, each_nbytes, feed_code

__all__ = ["examine", "recognises"]

FEWEST = 8  # a step
LARGEST_NBYTES = 64 << 10  # above this it is the bytes that take the time, not the calls
SURELY_WON = 0.5  # of the calls that fall away: putting the rows together takes some of it


def recognises(case: Case, site: Site) -> bool:
    return copies(site) and calls(site) >= FEWEST and each_nbytes(site) < LARGEST_NBYTES


def examine(case: Case) -> Iterator[Finding]:
    for site in charged(case, "many_small_copies"):
        cost, count = cost_of(case, site.events), calls(site)
        won = cost * (1 - 1 / count)
        how = f"one call in place of {count:.0f}, as measured; putting the rows together on the host takes some of it"
        framework = feeds(case, site.api)
        together = f"batch = {_UPLOADS.get(framework, site.api)}(np.stack(rows))   # one call for all rows"
        amount = format_nbytes(each_nbytes(site))
        yield Finding(
            rule="many_small_copies",
            title=f"{site.api} makes {count:.0f} uploads of {amount} a step",
            line=site.line,
            seconds=cost,
            cures=(
                Cure("put them together first", together, won * SURELY_WON, won, how, put_together(case, site)),
                Cure(
                    "let a feed make whole batches",
                    feed_code(case, framework),
                    won * SURELY_WON,
                    won,
                    how,
                    ahead(case, site),
                ),
            ),
            evidence=(f"{cost / count * 1e6:.1f} us a call, for {format_nbytes(site.nbytes)} a step in all",),
        )


_UPLOADS = {
    "tensorflow": "tf.convert_to_tensor",
    "keras": "keras.ops.convert_to_tensor",
    "torch": "torch.from_numpy",
    "jax": "jax.device_put",
    "cupy": "cupy.asarray",
}
