"""Directories of images: good, odd, damaged and hostile ones."""

import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from PIL import Image
from places import SHARED
from sources import identity, open_samples
from wording import fails

from edgeconv.data import parse_preprocessing
from edgeconv.data.arrays import Items
from edgeconv.data.kinds import images
from edgeconv.data.location import located, parse_source
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

FLOWERS = SHARED / "flowers128/flowers128.tar"
RNG = np.random.default_rng(4)
PHOTO = RNG.integers(0, 256, (6, 5, 3), np.uint8)
RGB = TensorSpec(name="image", shape=(1, 6, 5, 3), dtype="uint8")


def saved(path: Path, pixels: Any = PHOTO, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(path, **options)
    return path


@pytest.fixture
def pets(tmp_path) -> Path:
    """Two cats and a dog, each of another value."""
    for value, name in enumerate(("cats/b.png", "cats/a.bmp", "dogs/c.png")):
        saved(tmp_path / "pets" / name, np.full((6, 5, 3), value, np.uint8))
    return tmp_path / "pets"


def column(folder: Path, **options: str) -> Items:
    (found,) = images.read(str(folder), options, None).by_name.values()
    return found


def labels(folder: Path, **options: str) -> list[int] | None:
    found = images.read(str(folder), options, None).labels
    return None if found is None else found.tolist()


class TestClasses:
    def test_each_directory_is_a_class_in_the_order_of_the_names(self, pets):
        read = images.read(str(pets), {}, None)
        assert read.class_names == ("cats", "dogs")
        assert read.labels.dtype == np.int64
        assert read.labels.tolist() == [0, 0, 1]
        (found,) = read.by_name.values()
        assert [int(found[index][0, 0, 0]) for index in range(len(found))] == [1, 0, 2]

    def test_a_directory_without_directories_has_no_labels(self, pets):
        read = images.read(str(pets / "cats"), {}, None)
        assert (read.labels, read.class_names) == (None, ())
        assert len(column(pets / "cats")) == 2
        with fails(InputRefused):
            labels(pets / "cats", labels="folder")

    def test_bytes_are_floats_for_a_model_that_scales_them_itself(self, pets):
        floats = structs.replace(RGB, shape=(-1, 6, 5, 3), dtype="float32", is_scaled=True)
        taken = open_samples(str(pets), (floats,)).take(np.arange(3)).arrays["image"]
        assert (taken.dtype, taken[:, 0, 0, 0].tolist()) == (np.float32, [1, 0, 2])

    def test_labels_may_be_left_out(self, pets):
        assert labels(pets, labels="none") is None
        assert len(column(pets, labels="none")) == 3

    def test_an_unknown_way_to_label_gets_a_suggestion(self, pets):
        with fails(UsageError):
            labels(pets, labels="folders")
        with fails(UsageError):
            labels(pets, labels="prefix")

    def test_a_file_of_classes_gives_the_order(self, pets, tmp_path):
        classes = tmp_path / "classes.txt"
        classes.write_bytes(b"\xef\xbb\xbfdogs\r\n cats \r\n\r\n")
        read = images.read(str(pets), {"classes": str(classes)}, None)
        assert read.class_names == ("dogs", "cats")
        assert labels(pets, classes=str(classes)) == [1, 1, 0]

    def test_a_file_of_classes_may_lie_beside_them(self, pets):
        (pets / "classes.txt").write_text("dogs\ncats\n")
        assert labels(pets, classes=str(pets / "classes.txt")) == [1, 1, 0]

    @pytest.mark.parametrize(
        "content",
        [
            b"cats\n",
            b"cats\ndogs\nfish",
            b"cats\n\ndogs",
            b"cats\ndogs\ncats",
            b"cats\xff\ndogs",
            b"",
            b"\n\n",
        ],
    )
    def test_a_file_of_classes_that_does_not_fit_is_refused(self, content, pets, tmp_path):
        (tmp_path / "classes").write_bytes(content)
        with fails(InputRefused):
            labels(pets, classes=str(tmp_path / "classes"))

    def test_a_file_of_classes_that_is_missing_or_huge_is_refused(self, pets, tmp_path):
        with fails(InputRefused):
            labels(pets, classes=str(tmp_path / "gone"))
        with (tmp_path / "classes").open("wb") as file:
            file.truncate(1 << 30)
        with fails(InputRefused):
            labels(pets, classes=str(tmp_path / "classes"))

    def test_classes_without_labels_are_refused(self, pets):
        with fails(UsageError):
            labels(pets, labels="none", classes="classes.txt")


class TestLayout:
    def test_what_file_managers_leave_is_passed_over(self, pets):
        for name in (".DS_Store", "Thumbs.db", "cats/.hidden", "dogs/desktop.ini"):
            (pets / name).write_text("x")
        (pets / ".git").mkdir()
        assert len(column(pets)) == 3

    def test_the_content_counts_and_not_the_ending(self, tmp_path):
        saved(tmp_path / "x.jpg", format="PNG")
        np.testing.assert_array_equal(column(tmp_path)[0], PHOTO)

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda pets: (pets / "cats/readme.txt").write_text("hello"),
            lambda pets: (pets / "dogs/a.jpg").write_text("hello"),
            lambda pets: (pets / "cats/z.png").touch(),
            lambda pets: saved(pets / "cats/x.gif"),
            lambda pets: saved(pets / "cats/x.tiff"),
            lambda pets: saved(pets / "cats/x.webp"),
            lambda pets: saved(pets / "stray.png"),
            lambda pets: saved(pets / "fish/.gitkeep", format="PNG"),
            lambda pets: saved(pets / "cats/small/x.png"),
            lambda pets: (pets / "cats/up").symlink_to(pets),
            lambda pets: (pets / "cats/z.png").symlink_to(pets / "gone"),
            # Which nobody waits for.
            lambda pets: os.mkfifo(pets / "cats/z.png"),
        ],
    )
    def test_what_is_no_image_in_a_class_is_named(self, spoil, pets):
        spoil(pets)
        with fails(InputRefused):
            column(pets)

    @pytest.mark.parametrize("read", [images.read, images.identity])
    def test_a_place_without_images_is_refused(self, read, tmp_path):
        more = (None,) if read is images.read else ()
        with fails(InputRefused):
            read(str(tmp_path), {}, *more)
        with fails(InputRefused):
            read(str(tmp_path / "gone"), {}, *more)
        (tmp_path / "file").write_text("x")
        with fails(InputRefused):
            read(str(tmp_path / "file"), {}, *more)

    def test_links_are_followed_and_loops_refused(self, pets, tmp_path):
        (pets / "cats/link.png").symlink_to(pets / "dogs/c.png")
        assert len(column(pets)) == 4
        loop = tmp_path / "loop"
        loop.symlink_to(loop)
        with fails(InputRefused):
            column(loop)
        (pets / "cats/loop.png").symlink_to(loop)
        with fails(InputRefused):
            column(pets)

    def test_what_may_not_be_read_is_named(self, pets):
        file = pets / "cats/a.bmp"
        file.chmod(0)
        if os.access(file, os.R_OK):
            pytest.skip("this user may read every file")
        with pytest.raises(InputRefused, match=r"a\.bmp cannot be read: Permission denied"):
            column(pets)

    def test_a_name_that_is_not_utf8_is_taken_for_a_file_and_refused_for_a_class(self, pets):
        odd = os.fsdecode(b"\xff")
        saved(pets / "cats" / f"{odd}.png")
        assert len(column(pets)) == 4
        images.identity(str(pets), {})
        saved(pets / odd / "x.png")
        with fails(InputRefused):
            column(pets)

    def test_arrays_cannot_be_chosen_by_name(self, pets):
        with fails(UsageError):
            images.read(str(pets), {}, frozenset({"x"}))


class TestPixels:
    @pytest.mark.parametrize("ending", ["png", "bmp"])
    def test_rgb_and_gray_are_as_they_were_stored(self, ending, tmp_path):
        saved(tmp_path / f"a.{ending}")
        saved(tmp_path / f"b.{ending}", PHOTO[..., 0])
        rgb, gray = (column(tmp_path)[index] for index in (0, 1))
        np.testing.assert_array_equal(rgb, PHOTO)
        np.testing.assert_array_equal(gray, PHOTO[..., :1])
        assert rgb.dtype == gray.dtype == np.uint8

    def test_alpha_is_kept(self, tmp_path):
        rgba = RNG.integers(0, 256, (6, 5, 4), np.uint8)
        saved(tmp_path / "a.png", rgba)
        saved(tmp_path / "b.png", Image.fromarray(rgba[..., :2], "LA"))
        np.testing.assert_array_equal(column(tmp_path)[0], rgba)
        np.testing.assert_array_equal(column(tmp_path)[1], rgba[..., :2])

    def test_a_palette_is_read_as_the_colours_it_stands_for(self, tmp_path):
        two = np.where(PHOTO[..., :1] < 128, (10, 20, 30), (200, 100, 50)).astype(np.uint8)
        palette = Image.fromarray(two).quantize(2)
        saved(tmp_path / "a.png", palette)
        saved(tmp_path / "b.png", palette, transparency=0)
        np.testing.assert_array_equal(column(tmp_path)[0], two)
        clear = column(tmp_path)[1]
        np.testing.assert_array_equal(clear[..., :3], two)
        assert set(clear[..., 3].ravel().tolist()) == {0, 255}

    def test_black_and_white_is_0_and_255(self, tmp_path):
        saved(tmp_path / "a.png", Image.fromarray(PHOTO[..., 0]).convert("1", dither=0))
        np.testing.assert_array_equal(column(tmp_path)[0], np.where(PHOTO[..., :1] < 128, 0, 255))

    def test_a_jpeg_of_cmyk_is_read_as_rgb(self, tmp_path):
        plain = np.full((16, 16, 3), (200, 40, 90), np.uint8)
        saved(tmp_path / "a.jpg", Image.fromarray(plain).convert("CMYK"), quality=100)
        found = column(tmp_path)[0]
        assert found.shape == (16, 16, 3)
        assert np.abs(found.astype(int) - plain).max() <= 4

    def test_16_bit_gray_keeps_its_bits(self, tmp_path):
        deep = RNG.integers(0, 65536, (6, 5), np.uint16)
        saved(tmp_path / "a.png", deep)
        found = column(tmp_path)[0]
        assert found.dtype == np.uint16
        np.testing.assert_array_equal(found, deep[..., None])

    def test_16_bit_colour_is_refused_and_not_halved(self, tmp_path):
        data = bytearray(saved(tmp_path / "a.png", PHOTO).read_bytes())
        data[24] = 16
        data[29:33] = crc(data[12:29])
        (tmp_path / "a.png").write_bytes(data)
        with fails(InputRefused):
            column(tmp_path)[0]

    def test_the_orientation_that_a_camera_noted_is_not_applied(self, tmp_path):
        turned = Image.Exif()
        turned[0x0112] = 6
        saved(tmp_path / "a.jpg", exif=turned)
        assert column(tmp_path)[0].shape == (6, 5, 3)


def crc(data: bytes | bytearray) -> bytes:
    import zlib

    return zlib.crc32(data).to_bytes(4, "big")


class TestDamage:
    @pytest.mark.parametrize("ending", ["png", "bmp", "jpg"])
    def test_a_file_that_is_cut_short_is_named(self, ending, tmp_path):
        whole = saved(tmp_path / f"a.{ending}", np.tile(PHOTO, (20, 20, 1))).read_bytes()
        for share in (0.1, 0.5, 0.9):
            (tmp_path / f"a.{ending}").write_bytes(whole[: int(len(whole) * share)])
            with fails(InputRefused):
                column(tmp_path)[0]

    def test_a_decompression_bomb_is_refused_from_its_header(self, tmp_path):
        data = bytearray(saved(tmp_path / "a.png").read_bytes())
        for side in (9000, 60000):
            data[16:24] = side.to_bytes(4, "big") * 2
            data[29:33] = crc(data[12:29])
            (tmp_path / "a.png").write_bytes(data)
            with fails(InputRefused):
                column(tmp_path)[0]

    def test_the_largest_allowed_image_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr("edgeconv.data.kinds.images.MOST_PIXELS", 30)
        saved(tmp_path / "a.png")
        assert column(tmp_path)[0].shape == (6, 5, 3)
        monkeypatch.setattr("edgeconv.data.kinds.images.MOST_PIXELS", 29)
        with fails(InputRefused):
            column(tmp_path)[0]


class TestAsSource:
    def test_the_kind_is_told_by_what_the_directory_holds(self, pets):
        assert located(parse_source(str(pets))).kind == "images"
        assert located(parse_source(f"{pets / 'cats'}?labels=none")).kind == "images"
        (pets / "cats/x.wav").touch()
        with fails(InputRefused):
            located(parse_source(str(pets)))

    def test_a_directory_of_other_files_is_of_no_kind(self, tmp_path):
        (tmp_path / "x.txt").touch()
        with fails(InputRefused):
            located(parse_source(str(tmp_path)))

    def test_only_the_samples_taken_are_decoded(self, pets):
        (pets / "cats/z.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
        source = open_samples(f"images:{pets}", (RGB,))
        assert source.count == 4
        taken = source.take(np.array([3, 0]))
        assert taken.arrays["image"][:, 0, 0, 0].tolist() == [2, 1]
        assert taken.labels.tolist() == [1, 0]
        with fails(InputRefused):
            source.take(np.array([2]))

    def test_images_of_several_sizes_and_modes_are_refused_until_they_are_made_equal(self, pets):
        saved(pets / "cats/large.png", np.zeros((9, 9, 3), np.uint8))
        saved(pets / "dogs/gray.png", PHOTO[..., 0])
        with fails(InputRefused):
            open_samples(str(pets), (RGB,)).take(np.arange(5))
        steps = parse_preprocessing("resize=6x5&channels=rgb&resize-method=nearest")
        taken = open_samples(str(pets), (RGB,), preprocessing=steps).take(np.arange(5))
        assert taken.arrays["image"].shape == (5, 6, 5, 3)

    def test_the_way_out_names_only_what_differs(self, pets):
        saved(pets / "dogs/gray.png", PHOTO[..., 0])
        gray = TensorSpec(name="image", shape=(1, 6, 5, 1), dtype="uint8")
        with fails(InputRefused):
            open_samples(str(pets), (gray,)).take(np.arange(4))
        steps = parse_preprocessing("channels=gray")
        taken = open_samples(str(pets), (gray,), preprocessing=steps).take(np.arange(4))
        assert taken.arrays["image"].dtype == np.uint8

    def test_8_and_16_bits_are_not_mixed_even_where_the_steps_would_hide_it(self, pets):
        saved(pets / "dogs/deep.png", PHOTO[..., 0].astype(np.uint16))
        steps = parse_preprocessing("channels=rgb&scale=1/255")
        spec = TensorSpec(name="image", shape=(1, 6, 5, 3), dtype="float32")
        source = open_samples(str(pets), (spec,), preprocessing=steps)
        with fails(InputRefused):
            source.take(np.arange(4))


class TestIdentity:
    def test_it_follows_names_bytes_classes_and_not_the_place(self, pets, tmp_path):
        first = images.identity(str(pets), {})
        assert identity(str(pets)) == identity(f"images:{pets}")
        moved = pets.rename(tmp_path / "moved")
        assert images.identity(str(moved), {}) == first
        assert images.identity(f"{moved}/", {}) == first
        (moved / ".DS_Store").write_text("x")
        assert images.identity(str(moved), {}) == first
        assert images.identity(str(moved), {"labels": "none"}) != first
        (tmp_path / "classes").write_text("dogs\ncats")
        assert images.identity(str(moved), {"classes": str(tmp_path / "classes")}) != first
        (moved / "cats/a.bmp").rename(moved / "cats/0.bmp")
        renamed = images.identity(str(moved), {})
        assert renamed != first
        with (moved / "cats/0.bmp").open("ab") as file:
            file.write(b"\0")
        assert images.identity(str(moved), {}) != renamed


@pytest.mark.skipif(not FLOWERS.is_file(), reason="the flower photos are not here")
def test_flower_photos_become_what_a_mobilenet_takes(tmp_path):
    with tarfile.open(FLOWERS) as tar:
        some = [member for member in tar.getmembers() if member.isfile()][::400]
        for member in some:
            content = tar.extractfile(member)
            file = tmp_path / member.name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.read())
    spec = TensorSpec(name="image", shape=(-1, 96, 96, 3), dtype="float32")
    steps = parse_preprocessing("resize=96x96&scale=1/127.5&mean=1")
    source = open_samples(str(tmp_path / "flowers"), (spec,), preprocessing=steps)
    assert source.class_names == ("daisy", "dandelion", "rose", "sunflower", "tulip")
    taken = source.take(np.arange(source.count))
    assert taken.arrays["image"].shape == (len(some), 96, 96, 3)
    assert -1 <= taken.arrays["image"].min() < -0.8
    assert 0.8 < taken.arrays["image"].max() <= 1
    assert sorted(set(taken.labels.tolist())) == [0, 1, 2, 3, 4]
