"""`debug` on trained models, and the rules that it names given to `convert`."""

import msgspec
import numpy as np
import pytest
from places import SHARED

from edgeconv import debug
from edgeconv.types import Debugged
from edgeconv.types.errors import UsageError

GESTURES = SHARED / "hand_gesture"
HAS_GESTURES = pytest.mark.skipif(
    not GESTURES.is_dir(), reason="the data sets are not beside the checkout"
)


@pytest.fixture
def gestures(tmp_path) -> str:
    rows = np.loadtxt(GESTURES / "point_history.csv", delimiter=",")[:408, 1:33]
    np.savez(tmp_path / "train.npz", input_1=rows.astype(np.float32))
    return str(tmp_path / "train.npz")


@HAS_GESTURES
def test_every_layer_of_a_trained_keras_file_has_its_share_of_the_error(gestures):
    found = debug(GESTURES / "point_history_classifier.hdf5", gestures, samples=400)
    assert [each.operator for each in found.layers].count("FULLY_CONNECTED") == 3
    alone = [each.alone_snr_db for each in found.layers]
    assert None not in alone
    assert alone == sorted(alone, key=float)
    assert all(each.inside_snr_db is not None for each in found.layers)
    assert sum(each.weights for each in found.layers) == 32 * 24 + 24 * 10 + 10 * 4
    added = -10 * np.log10(sum(10 ** (-each / 10) for each in alone if each is not None))
    assert abs(found.snr_db - added) < 6


def test_a_saved_model_of_convolutions_is_debugged_by_the_command(zoo, cli):
    done = cli("debug", zoo / "legacy", "--calibration", zoo / "images.npz", "--json", "-q")
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout, type=Debugged)
    costly = {each.operator for each in found.layers if each.alone_snr_db is not None}
    assert {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "SOFTMAX"} <= costly
    assert found.size_bytes < found.float_size_bytes
    assert any(fix.rules for fix in found.fixes)
    assert all(fix.rules or fix.methods or fix.recipe for fix in found.fixes)
    # The names of the Keras layers.
    names = {each.layer for each in found.layers if each.operator == "CONV_2D"}
    assert all("/" not in name and ";" not in name for name in names), names


def test_of_several_signatures_one_must_be_named(zoo, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(40, 4)).astype("f4"))
    with pytest.raises(UsageError, match="project"):
        debug(zoo / "many", str(tmp_path / "x.npz"))
    found = debug(zoo / "many", str(tmp_path / "x.npz"), signature="project")
    assert found.signature == "project"
    assert [each.operator for each in found.layers] == ["FULLY_CONNECTED"]


def test_a_model_without_weights_has_nothing_to_lose_by_weights(zoo, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(40, 4)).astype("f4"))
    found = debug(zoo / "weightless", str(tmp_path / "x.npz"), to="weight-only-int8")
    assert [each.alone_snr_db for each in found.layers] == [None] * len(found.layers)
    assert not any(fix.rules for fix in found.fixes)
    assert found.helpful == ()
    assert found.snr_db == 200
