"""Images in `.tar` archives: the decoder threads, and which library decodes."""

import io

import numpy as np
from PIL import Image
from tests.sources.formats.test_webdataset import write_members

from forebay.sources.files.many_files import open_files
from forebay.sources.formats.webdataset import open_webdataset
from forebay.testing import SourceTests


def write_jpegs(path, rows):
    members = []
    for row in rows:
        stream = io.BytesIO()
        coarse = np.random.default_rng(row).integers(0, 256, (3, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((40, 30)).save(stream, "jpeg")
        members += [(f"{row:03}.jpg", stream.getvalue()), (f"{row:03}.cls", b"%d" % row)]
    return write_members(path, members)


def received_images(path):
    """Decode the images of an archive one by one, and return them."""
    source = open_webdataset(path, size=(6, 8), decoder="simplejpeg")
    out = [spec.empty(len(source)) for spec in source.specs]
    for row in range(len(source)):
        source.gather(slice(row, row + 1), [leaf[row : row + 1] for leaf in out])
    return out[0]


class TestJpegArchives(SourceTests):
    def make_source(self, tmp_path):
        """Three archives of JPEG images, whose rows are gathered on the decoder threads."""
        paths = [write_jpegs(tmp_path / f"{shard}.tar", range(shard * 5, shard * 5 + 5)) for shard in range(3)]
        images = np.concatenate([received_images(path) for path in paths])
        source = open_files(paths, size=(6, 8), decoder="simplejpeg", max_open_files=2)
        return source, {"jpg": images, "cls": np.arange(15)}


def test_an_archive_counts_the_images_of_each_decoder(tmp_path):
    paths = [write_jpegs(tmp_path / f"{shard}.tar", range(3)) for shard in range(2)]
    source = open_files(paths, size=(6, 8), decoder="simplejpeg", max_open_files=1)
    source.gather(np.asarray([0, 5, 1]), [spec.empty(3) for spec in source.specs])
    assert source.counters() == {"simplejpeg_images": 3, "pillow_images": 0}
    assert source.read_decision.choice == "simplejpeg"


def test_pillow_decodes_the_images_of_an_archive_by_default(tmp_path):
    source = open_webdataset(write_jpegs(tmp_path / "x.tar", range(3)), size=(6, 8))
    assert source.read_decision.choice == "pillow"
    assert source.counters() == {"pillow_images": 0}
