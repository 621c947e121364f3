"""One case: an undamaged sample, and damaged files that seed and number determine."""

from dataclasses import dataclass
from random import Random

from tests.fuzz.corpus import load_samples
from tests.fuzz.mutate import damage_bytes
from tests.fuzz.sample import Files, Sample
from tests.fuzz.structures import damages_for

__all__ = ["Case", "damage_files", "make_case"]

STRUCTURE_SHARE = 0.5  # share of the cases, if the structure of the file is known
MAX_DAMAGED = 200_000  # bytes; larger samples are bombs, which stay undamaged


@dataclass(frozen=True, slots=True)
class Case:
    """The files of one case."""

    sample: Sample
    files: Files
    forged: bool = False  # the damage includes new checksums, so the reader cannot notice the damage

    @property
    def is_under_checksum(self) -> bool:
        """Whether a checksum covers every changed byte, and no length has changed."""
        before = self.sample.files
        if self.forged or before.keys() != self.files.keys():
            return False
        changed = [name for name in before if before[name] != self.files[name]]
        return bool(changed) and all(self._is_file_under_checksum(name) for name in changed)

    def _is_file_under_checksum(self, name: str) -> bool:
        before, after = self.sample.files[name], self.files[name]
        if len(before) != len(after):
            return False
        outside, next_start = 0, 0
        for start, stop in sorted(self.sample.checked.get(name, ())):
            outside += before[next_start:start] != after[next_start:start]
            # The checksum of a tar header is the sum of its bytes. Skip damage that keeps the sum.
            is_changed = before[start:stop] != after[start:stop]
            outside += is_changed and sum(before[start:stop]) == sum(after[start:stop])
            next_start = stop
        return not outside and before[next_start:] == after[next_start:]


def make_case(format_name: str, seed: int, index: int) -> Case:
    """Return the case that a seed and a number determine. The first cases of a format are its undamaged samples."""
    samples = load_samples(format_name)
    sample = samples[index % len(samples)]
    if index < len(samples) or sum(map(len, sample.files.values())) > MAX_DAMAGED:
        return Case(sample, sample.files)
    return damage_files(Random(f"{seed} {format_name} {index}"), sample, sample.files)


def damage_files(rng: Random, sample: Sample, files: Files) -> Case:
    """Damage one of the files, or delete one of several."""
    name = rng.choice(sorted(files))
    if len(files) > 1 and rng.random() < 0.03:
        return Case(sample, {other: content for other, content in files.items() if other != name})
    data, forged = files[name], False
    damages = damages_for(name, data)
    if damages and rng.random() < STRUCTURE_SHARE:
        damage = rng.choice(damages)
        changed = damage.apply(rng, data)
        if changed is not None:
            return Case(sample, files | {name: changed}, damage.forges)
    return Case(sample, files | {name: damage_bytes(rng, data)}, forged)
