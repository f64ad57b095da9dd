"""Our protocol buffers beside TensorFlow's own: in one process, and field by field."""

import sys

import pytest
from commands import captured

OURS = """
from edgeconv.data import example_pb2
from edgeconv.reporting.trackers import tensorboard_pb2
from edgeconv.plugins.devices import serving_pb2
from edgeconv.model.source import graph_pb2
"""
THEIRS = """
import tensorflow as tf
import tensorboard.plugins.hparams.plugin_data_pb2
import tf_keras.protobuf.saved_metadata_pb2
import tensorflow_serving.apis.get_model_status_pb2, tensorflow_serving.apis.prediction_log_pb2
"""
WORKS = """
example = tf.train.Example()
example.features.feature["a"].int64_list.value.append(7)
ours = example_pb2.Example.FromString(example.SerializeToString())
assert list(ours.features.feature["a"].int64_list.value) == [7]
back = tf.io.parse_single_example(
    ours.SerializeToString(), {"a": tf.io.FixedLenFeature([], tf.int64)})
assert int(back["a"]) == 7
"""
# A field of ours may declare less: a map its entries, an enumeration its numbers.
SAME = """
from google.protobuf import descriptor_pool
pool = descriptor_pool.Default()
PLACES = ("tensorflow.serving.", "tensorflow.", "tensorboard.hparams.", "google.protobuf.",
          "third_party.tensorflow.python.keras.protobuf.", "tensorflow.python.keras.protobuf.")

# Of a SavedModel's graph ours are all at the top.
WITHIN = {
    "AnyList": "CollectionDef.AnyList",
    "ArgAttrs": "FunctionDef.ArgAttrs",
    "ArgDef": "OpDef.ArgDef",
    "AttrDef": "OpDef.AttrDef",
    "AttrList": "AttrValue.ListValue",
    "BytesList": "CollectionDef.BytesList",
    "CompositeTensor": "TensorInfo.CompositeTensor",
    "CooSparse": "TensorInfo.CooSparse",
    "Dim": "TensorShapeProto.Dim",
    "DtypeAndShape": "ResourceHandleProto.DtypeAndShape",
    "FloatList": "CollectionDef.FloatList",
    "Int64List": "CollectionDef.Int64List",
    "KerasLayer": "SavedObject",
    "MetaInfoDef": "MetaGraphDef.MetaInfoDef",
    "NodeList": "CollectionDef.NodeList",
    "ObjectReference": "TrackableObjectGraph.TrackableObject.ObjectReference",
    "SlotVariableReference": "TrackableObjectGraph.TrackableObject.SlotVariableReference",
}

def theirs(name, fields):
    first, dot, rest = name.partition(".")
    name = WITHIN.get(first, first) + dot + rest
    for place in PLACES:
        try:
            found = pool.FindMessageTypeByName(place + name)
        except KeyError:
            continue
        if fields <= set(found.fields_by_name):
            return found
    raise AssertionError("no message of TensorFlow's is " + name)

def kind(field):
    return "int32" if field.type in (field.TYPE_ENUM, field.TYPE_INT32) else field.type

def compared(ours):
    real = theirs(ours.full_name.removeprefix(ours.file.package + "."), set(ours.fields_by_name))
    for field in ours.fields:
        other = real.fields_by_name[field.name]
        assert field.number == other.number, field.full_name
        assert kind(field) == kind(other), field.full_name
        assert field.is_repeated == other.is_repeated, field.full_name
    return 1 + sum(map(compared, ours.nested_types))

modules = (example_pb2, tensorboard_pb2, serving_pb2, graph_pb2)
print(sum(compared(m) for module in modules
          for m in module.DESCRIPTOR.message_types_by_name.values()))
"""


@pytest.mark.parametrize(
    "program",
    [OURS + THEIRS + WORKS + SAME, pytest.param(THEIRS + OURS + WORKS, marks=pytest.mark.slow)],
)
def test_our_messages_and_those_of_tensorflow_go_together_and_are_the_same(program):
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = captured(command)
    assert done.returncode == 0, done.stderr
    if "compared" in program:
        assert int(done.stdout) > 50
