"""Samples, and their preprocessing."""

from typing import Literal

from edgeconv.types.model import FrozenStruct


class Preprocessing(FrozenStruct, kw_only=True, frozen=True, rename="kebab", omit_defaults=True):
    """The preprocessing of a stored sample for the model, in the order of the fields.

    `length`: the number of values that a sample (values,) or (values, columns) is cut or padded to,
    with zeros at its end.
    `channels`: what pixels (height, width) or (height, width, 1 to 4) become: "rgb" and "bgr"
    give three channels, "gray" one, (height, width, 1), by the weights of ITU-R BT.601. Stored
    pixels are taken to be in the order red, green, blue, and a last channel of two or four to be
    alpha, which is dropped. "mono" is the mean of the channels of audio (length, channels).
    `resize`, `crop`: (height, width); a crop is from the middle. Without `antialias`, the
    default, a resize is what `tf.image.resize` and Keras's `Resizing` do, and with it what
    Pillow does.
    `mel_bins` and what follows it: 1-D audio becomes a log-mel spectrogram (frames, mel_bins).
    `wave_scale` is multiplied with the audio first; integers need one. Frames of `frame_length`
    samples, `frame_step` apart, in a periodic Hann window; magnitudes of a transform of
    `fft_length` (0: the next power of two); `mel_bins` triangles between `mel_low_hz` and
    `mel_high_hz` (0: half the rate); the natural logarithm of that plus `log_floor`.
    `scale`, `mean`, `std`: (x * scale - mean) / std; `mean` and `std` have one value, or one
    for each index of the last dimension. `add_channel` appends a dimension of one. `dtype` is
    the numpy dtype that comes out, rounded where it is whole numbers: float32 where anything is
    computed, else the stored one. Gray of uint8 stays uint8, rounded.
    """

    length: int | None = None
    channels: Literal["rgb", "bgr", "gray", "mono"] | None = None
    resize: tuple[int, int] | None = None
    resize_method: Literal["nearest", "bilinear", "bicubic"] = "bilinear"
    antialias: bool = False
    crop: tuple[int, int] | None = None
    mel_bins: int | None = None
    wave_scale: float | None = None
    sample_rate_hz: int = 16000
    frame_length: int = 640
    frame_step: int = 320
    fft_length: int = 0
    mel_low_hz: float = 20.0
    mel_high_hz: float = 0.0
    log_floor: float = 1e-6
    scale: float | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    add_channel: bool = False
    dtype: str | None = None


class Steps(FrozenStruct, kw_only=True, frozen=True):
    """Preprocessing by input name, "" for every input not named; and the file that said it."""

    by_input: dict[str, Preprocessing] = {}
    file: str = ""


class DataSource(FrozenStruct, kw_only=True, frozen=True):
    """A SOURCE: data of a kind, and the options that it is read with, in their order.

    `kind` is "" where what the directory holds decides it. Its text is the one that was typed:
    `kind:location?option=value&option=value`, without `kind:` unless `names_kind`; or `held`, of
    what Python gave from memory and a temporary file has.
    """

    kind: str
    location: str
    options: dict[str, str] = {}
    names_kind: bool = False
    held: str = ""

    def __str__(self) -> str:
        if self.held:
            return self.held
        kind = f"{self.kind}:" if self.names_kind else ""
        options = "&".join(f"{name}={value}" for name, value in self.options.items())
        return f"{kind}{self.location}{'?' if options else ''}{options}"


class DataIdentity(FrozenStruct, kw_only=True, frozen=True):
    """Which samples were used: where from, how many, and the hash of them and their labels.

    `sha256` is of the samples as stored, before `preprocessing`, which is as `--preprocess` takes
    it, "" for none.
    """

    source: str
    samples: int
    sha256: str
    preprocessing: str = ""
