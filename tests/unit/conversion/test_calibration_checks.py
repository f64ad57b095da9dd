"""From what is known of calibration samples to whether they can be right."""

from typing import Any

import numpy as np
import pytest

from edgeconv.conversion.calibration_checks import CalibrationCheck, verify_samples
from edgeconv.data.suspects import Hits
from edgeconv.tf.normalization import ScaledTwice
from edgeconv.tf.reference import StatisticsCheck
from edgeconv.tf.statistics_probe import Layer, LayerDistance, Probe, distances, share_left
from edgeconv.types import CalibrationRecord, InputRange

RANDOM = np.random.default_rng(2)
DIFFERENT = {"scores": np.eye(4, dtype=np.float32)[np.arange(64) % 4] * 0.6 + 0.1}
SAME = {"scores": DIFFERENT["scores"][[0] * 64]}
SATURATED = {"scores": np.eye(4, dtype=np.float32)[np.arange(64) % 4]}


LOGITS = {"scores": (DIFFERENT["scores"] - np.float32(0.4)) * 500}
LABELS = {"labels": np.repeat(np.float32([[0, 1, 1], [1, 0, 0]]), 32, axis=0)}
FLAT = {"scores": DIFFERENT["scores"] * 0.1 + 0.2}


def record(high: float = 1.0, *, is_whole: bool = False) -> CalibrationRecord:
    image = InputRange(
        name="image", low=0, high=high, mean=high / 2, deviation=high / 4, is_whole=is_whole
    )
    return CalibrationRecord(
        signature="s", source="x.npz", samples=64, sha256="", range="minmax", inputs=(image,)
    )


def check(
    shift: float = 0.0, factor: float = 1.0, *, samples: int = 64, better: str = "", **more: Any
) -> CalibrationCheck:
    layer = LayerDistance(name="norm", shift=shift, factor=factor, noise=more.get("noise", 0.0))
    statistics = StatisticsCheck(
        samples=samples,
        layers=1,
        farthest=layer,
        first=more.get("first", layer),
        better=better,
        own_distance=layer.distance,
        better_distance=0.1,
    )
    outputs = more.get("outputs", DIFFERENT)
    given = more.get("record", record())
    return verify_samples(given, outputs, more.get("labels"), statistics, images=["image"])


def test_samples_like_those_of_the_training_are_not_suspicious():
    assert check(0.4, 1.3).suspicions == ()
    assert check(0.4, 1.3).distance == pytest.approx(0.56, abs=0.01)


@pytest.mark.parametrize(
    ("facts", "is_wrong"),
    [
        ({"shift": 1.2}, False),
        ({"shift": 2.0}, True),
        ({"factor": 2.0}, False),
        ({"factor": 4.0}, True),
        # What makes them fit is what was done wrongly; a little better may be chance.
        ({"shift": 1.2, "better": "scale=1/255"}, True),
        ({"shift": 0.6, "better": "channels=bgr"}, False),
        # The answers say it too.
        ({"shift": 1.2, "outputs": SAME}, True),
        ({"shift": 0.1, "outputs": SAME}, False),
        ({"outputs": SATURATED}, False),
        ({"outputs": SATURATED, "record": record(255, is_whole=True)}, True),
        ({"outputs": SATURATED, "record": record(255.5)}, False),
        # Scores without softmax, and probabilities of several labels.
        ({"outputs": LOGITS, "record": record(255, is_whole=True)}, False),
        ({"outputs": LABELS, "record": record(255, is_whole=True)}, False),
        # What no other layer is before says that a doubtful set is wrong, and nothing alone.
        ({"shift": 1.2, "first": LayerDistance(name="first", shift=2.0, factor=1.0)}, True),
        # A few channels are many deviations off.
        ({"shift": 1.2, "first": LayerDistance(name="a", shift=1, factor=1, spread=5.0)}, True),
        ({"shift": 1.2, "labels": RANDOM.integers(0, 4, 64)}, True),
        # Images of an eighth of their scale, and of a 255th.
        ({"outputs": FLAT, "record": record(0.125)}, False),
        ({"outputs": SAME, "record": record(1 / 255)}, True),
    ],
)
def test_a_set_is_doubtful_or_wrong_by_how_much_speaks_against_it(facts, is_wrong):
    found = check(**facts)
    assert found.suspicions != ()
    assert found.is_wrong is is_wrong


@pytest.mark.parametrize(
    "facts",
    [
        {"shift": 1.2, "noise": 0.4},
        {"first": LayerDistance(name="first", shift=2.5, factor=1.0)},
        {"outputs": FLAT},
        {"outputs": LOGITS},
        {"outputs": LABELS},
        {"outputs": {"s": LOGITS["scores"] / 30}, "record": record(255, is_whole=True)},
        # Where something is in a picture, in pixels.
        {"outputs": {"box": LOGITS["scores"] + 150}, "record": record(255, is_whole=True)},
        {"record": record(0.125)},
        {"labels": np.arange(64) % 4},
    ],
)
def test_what_chance_or_a_model_of_its_own_kind_explains_is_not_suspicious(facts):
    assert check(**facts).suspicions == ()


@pytest.mark.parametrize(("told", "is_wrong"), [((0.2, 0.8), True), ((0.2, 0.4), False)])
def test_answers_that_tell_more_in_another_scale_say_it(told, is_wrong):
    without = StatisticsCheck(samples=64, better="scale=1/255", information=told)
    found = verify_samples(record(255, is_whole=True), DIFFERENT, None, without)
    (suspicion,) = found.suspicions
    assert suspicion.reason.startswith(
        f"the float model's answers carry {told[1]:.0%} of the possible"
    )
    assert (found.is_wrong, found.better) == (is_wrong, "scale=1/255")


@pytest.mark.parametrize(("told", "warnings"), [((0.01, 0.8), 2), ((0.01, 0.2), 1)])
def test_images_that_were_scaled_for_a_model_of_pixels_are_warned_of(told, warnings):
    """A model that was hardly trained looks the same, so nothing is refused for it."""
    without = StatisticsCheck(samples=64, better="scale=255", information=told)
    always_first = {"scores": FLAT["scores"] * 0.9 + [0.19, 0, 0, 0]}
    found = verify_samples(record(1), always_first, None, without)
    assert len(found.suspicions) == warnings
    assert not found.is_wrong


def without_layers(**facts: Any) -> StatisticsCheck:
    return StatisticsCheck(samples=64, **facts)


HIT = {"scores": SATURATED["scores"][:, [1, 2, 3, 0]]}


@pytest.mark.parametrize(
    ("facts", "outputs", "labels", "is_wrong"),
    [
        # What no training gets to is certain, unless labels or smaller samples say otherwise.
        ({}, SATURATED, None, True),
        ({}, SATURATED, np.arange(64) % 4, False),
        ({}, HIT, np.arange(64) % 4, True),
        ({"information": (0.9, 0.2)}, SATURATED, None, False),
        ({"information": (0.9, 0.8)}, SATURATED, None, True),
        ({}, DIFFERENT, None, False),
        # Labels prefer other samples.
        (
            {"better": "scale=255", "hits": Hits(count=64, own=2, other=60, gained=58, lost=0)},
            DIFFERENT,
            None,
            True,
        ),
    ],
)
def test_without_normalization_layers_extremes_and_labels_are_certain(
    facts, outputs, labels, is_wrong
):
    given = record(20.5)
    assert verify_samples(given, outputs, labels, without_layers(**facts)).is_wrong is is_wrong


def test_what_labels_say_of_the_same_steps_is_said_once():
    hits = Hits(count=64, own=2, other=60, gained=58, lost=0)
    twice = ScaledTwice(name="image", divisor=255.0, high=1.0, steps="scale=255", hits=hits)
    statistics = without_layers(better="scale=255", hits=hits, twice=twice)
    found = verify_samples(record(), DIFFERENT, None, statistics).suspicions
    assert len(found) == 2
    assert sum("of 64 labels" in each.reason for each in found) == 1


@pytest.mark.parametrize(("high", "is_wrong"), [(1 / 255, True), (0.04, True), (0.2, False)])
def test_what_is_scaled_twice_and_answered_alike_is_wrong_whatever_it_is(high, is_wrong):
    assert verify_samples(record(high), SAME, None, without_layers()).is_wrong is is_wrong
    # A model of such small numbers answers differently.
    assert not verify_samples(record(high), DIFFERENT, None, without_layers()).is_wrong


@pytest.mark.parametrize(
    ("far", "left", "is_wrong"), [(0.5, 0.45, False), (1.7, 0.45, False), (6.0, 0.45, True)]
)
def test_statistics_that_have_not_converged_are_no_fault_of_the_samples(far, left, is_wrong):
    layer = LayerDistance(name="norm", shift=far, factor=1.0)
    statistics = without_layers(layers=1, farthest=layer, first=layer, left=left)
    found = verify_samples(record(), SAME, None, statistics)
    assert found.is_wrong is is_wrong
    said = [s for s in found.suspicions if s.reason.startswith("batch normalization has not")]
    assert len(said) == (not is_wrong)
    assert all("variance = 0.45 + 0.55 ×" in each.reason for each in said)


@pytest.mark.parametrize(("left", "is_wrong"), [(0.0, True), (0.61, False)])
def test_of_a_short_training_only_the_first_layers_tell_wrong_samples(left, is_wrong):
    """MobileNetV2 after 456 steps: its 52 layers lag more and more, the first one hardly does."""
    first = LayerDistance(name="bn_Conv1", shift=0.03, factor=1.09, spread=0.5)
    deep = LayerDistance(name="block_7_project_BN", shift=0.34, factor=11.4, spread=3.8)
    statistics = without_layers(layers=52, farthest=deep, first=first, left=left)
    found = verify_samples(record(), SAME, None, statistics)
    assert found.is_wrong is is_wrong


def test_few_samples_may_be_farther_away_by_chance():
    assert check(1.5, samples=5).suspicions == ()
    assert check(1.5, samples=20).suspicions != ()
    assert not check(2.5, samples=5).is_wrong


def layer(mean: Any, variance: Any, *, is_moving: bool = True) -> Layer:
    return Layer(np.asarray(mean), np.asarray(variance), 1e-3, is_moving, True, (None, None))


def moments(own: Layer, mean: Any, variance: Any) -> tuple[Any, Any]:
    """What 64 samples of a mean and a variance give in units of a layer's statistics."""
    deviation = np.sqrt(own.variance + own.epsilon)
    first = (mean - own.mean) / deviation
    return np.tile(first, (64, 1)), np.tile(variance / deviation**2 + first**2, (64, 1))


def near(layers: Any, seen: Any) -> Any:
    """The distances without what is left of the first statistics."""
    return distances(layers, seen, dict.fromkeys(layers, share_left(layers, seen)))


MEAN, VARIANCE = RANDOM.normal(0, 3, 32), RANDOM.uniform(0.02, 4, 32)


@pytest.mark.parametrize(
    ("scale", "offset", "expected"), [(1, 0, 0), (3, 0, 1.6), (255, 0, 200), (1, 2, 2)]
)
def test_a_distance_grows_with_scale_and_offset(scale, offset, expected):
    own = layer(MEAN, VARIANCE)
    inputs = (MEAN * scale + offset * np.sqrt(VARIANCE), VARIANCE * scale**2)
    (found,) = near({"a/norm/Rsqrt": own}, {"a/norm/Rsqrt": moments(own, *inputs)})
    assert found.name == "a/norm"
    assert found.distance >= expected * 0.9
    assert expected or found.distance < 0.01


def test_a_short_training_leaves_something_of_the_first_statistics_and_is_no_fault():
    """Of momentum 0.99, 140 steps leave a quarter of a mean of 0 and a variance of 1."""
    own = layer(0.75 * MEAN, 0.75 * VARIANCE + 0.25)
    seen = {"norm/x": moments(own, MEAN, VARIANCE)}
    (found,) = near({"norm/x": own}, seen)
    assert found.distance < 0.1
    (computed,) = near({"norm/x": own._replace(is_moving=False)}, seen)
    assert computed.distance > 0.3


@pytest.mark.parametrize("left", [0.1, 0.25, 0.938])
@pytest.mark.parametrize("scale", [1, 0.1, 0.01])
def test_of_small_variances_what_is_left_is_found_to_the_third_digit(left, scale):
    """64 steps of MobileNetV2, whose momentum is 0.999, leave 0.938."""
    mean, variance = MEAN * np.sqrt(scale) / 9, (VARIANCE + 1) * scale
    own = layer((1 - left) * mean, (1 - left) * variance + left)
    (found,) = near({"norm/x": own}, {"norm/x": moments(own, mean, variance)})
    assert found.distance < 0.02
    wrong = {"norm/x": moments(own, MEAN / 255, VARIANCE / 255**2)}
    assert near({"norm/x": own}, wrong)[0].distance > 1.8


class Measured(Probe):
    """Layers of which the first alone meets the inputs, and what right samples give in all."""

    def __init__(self, shares: list[float]) -> None:
        owns = [layer((1 - left) * MEAN, (1 - left) * VARIANCE + left) for left in shares]
        self.layers = {
            str(at): each._replace(meets_inputs=not at, stored={f"m{at}": MEAN, f"v{at}": VARIANCE})
            for at, each in enumerate(owns)
        }

    def _moments(self, _outputs: Any, layers: Any, *_feeds: Any) -> Any:
        return [], {name: moments(layers[name], MEAN, VARIANCE) for name in layers}


@pytest.mark.parametrize("shares", [(0.9, 0.9, 0.3, 0.3), (0.3, 0.3), (0.9, 0.0)])
def test_layers_of_another_momentum_have_another_share_left(shares):
    left, found = Measured(shares)._settled({}, 1)
    assert left == pytest.approx(shares[0], abs=0.01)
    assert max(each.distance for each in found) < 0.1


def test_channels_that_are_dead_in_training_and_now_are_no_fault():
    own = layer([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0])
    inputs = (np.float64([0, 0, 0, 1]), np.float64([0, 0, 0, 1]))
    (found,) = near({"norm/x": own}, {"norm/x": moments(own, *inputs)})
    assert found.distance < 0.01


def test_what_few_samples_with_rare_large_values_give_is_chance():
    """Nine of ten of these channels have a value in fifty samples that is most of the variance."""
    own = layer(np.zeros(32) + 1e-3, np.full(32, 2.0))
    values = RANDOM.normal(0, 0.2, (20, 32)) + (RANDOM.random((20, 32)) < 0.02) * 14.0
    z = values / np.sqrt(2.0)
    (found,) = near({"norm/x": own}, {"norm/x": (z, z**2)})
    assert found.distance > 0.9
    (many,) = near({"norm/x": own}, {"norm/x": (np.tile(z, (9, 1)), np.tile(z**2, (9, 1)))})
    assert many.noise < found.noise / 2


def test_what_moves_a_few_channels_spreads():
    own = layer(MEAN, VARIANCE)
    moved = MEAN + np.where(np.arange(32) < 8, 4.0, 0.0) * np.sqrt(VARIANCE)
    (found,) = near({"norm/x": own}, {"norm/x": moments(own, moved, VARIANCE)})
    assert found.distance < 0.1
    assert found.spread == pytest.approx(2.0, rel=0.1)


def test_what_overflows_is_far_away_and_a_number():
    own = layer(MEAN, VARIANCE)
    overflown = (np.full((64, 32), np.inf), np.full((64, 32), np.inf))
    with np.errstate(invalid="ignore"):
        (found,) = near({"norm/x": own}, {"norm/x": overflown})
    assert 1e6 < found.distance < np.inf
