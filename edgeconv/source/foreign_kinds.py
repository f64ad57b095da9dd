"""The kinds of models that edgeconv does not convert, with a way to convert each."""

from __future__ import annotations

from typing import NamedTuple


class Foreign(NamedTuple):
    """A kind of model that edgeconv does not convert: what it is, and what to do."""

    what: str
    hint: str


TORCH_HINT = (
    "build the network in Python, load its weights, and convert it to a float .tflite "
    "(pip install litert-torch): litert_torch.convert(network.eval(), (sample,))"
    ".export('model.tflite'); give edgeconv that"
)
TORCH = Foreign("weights that PyTorch saved", TORCH_HINT)
TORCH_SCRIPT = Foreign("a TorchScript model of PyTorch", TORCH_HINT)
TORCH_EXPORT = Foreign("a program that torch.export saved", TORCH_HINT)
SAFETENSORS = Foreign(
    "a safetensors file, which has weights and no network",
    "build the network in Python, load the weights into it, and save it whole: "
    "model.save('NAME.keras') in Keras, or by litert_torch in PyTorch",
)
ONNX = Foreign(
    "an ONNX model",
    "convert it to a SavedModel: pip install onnx2tf, onnx2tf -i MODEL.onnx -o DIR -osd; then "
    "give edgeconv DIR. -osd adds the signature",
)
FROZEN = Foreign(
    "a frozen TensorFlow graph (GraphDef), which has no signature",
    "export it as a SavedModel, with the names of its inputs and outputs; docs/models.md has the "
    "lines to do it",
)
SAVED_MODEL_FILE = Foreign(
    "the graph of a SavedModel without its directory",
    "give the directory that was exported, with saved_model.pb and variables/ in it",
)
SAVED_MODEL_TEXT = Foreign(
    "a SavedModel in text form",
    "save it again without as_text, so that it has a saved_model.pb",
)
CHECKPOINT = Foreign(
    "a TensorFlow checkpoint, which has weights and no network",
    "build the network in Python, load the checkpoint into it (model.load_weights('PREFIX')), "
    "and save it whole: model.save('NAME.keras'); where there is a .meta file too, docs/models.md "
    "has the lines to export it",
)
META_GRAPH = Foreign(
    "the graph of a TensorFlow 1 checkpoint (MetaGraph)",
    "restore it and export it as a SavedModel; docs/models.md has the lines to do it",
)
TFJS_LAYERS = Foreign(
    "a TensorFlow.js layers model",
    "pip install tensorflowjs, then tensorflowjs_converter --input_format=tfjs_layers_model "
    "--output_format=keras model.json model.h5; give edgeconv model.h5",
)
TFJS_GRAPH = Foreign(
    "a TensorFlow.js graph model",
    "pip install tfjs-graph-converter, then tfjs_graph_converter DIR SAVED_MODEL "
    "--output_format tf_saved_model; give edgeconv SAVED_MODEL",
)
KERAS_JSON = Foreign(
    "the architecture of a Keras model as text, without weights",
    "build it, load its weights, and save it whole: model = "
    "keras.models.model_from_json(open('model.json').read()), "
    "model.load_weights('WEIGHTS.h5'), model.save('NAME.keras'); with tf_keras for one of Keras 1 "
    "or 2",
)
UNZIPPED_KERAS = Foreign(
    "an unzipped .keras file",
    "zip its files without compression: cd DIR, zip -r -0 ../NAME.keras .",
)
CORE_ML = Foreign(
    "a Core ML model",
    "Core ML models are not converted back; export the model that it was made from",
)
OPENVINO = Foreign(
    "an OpenVINO model",
    "OpenVINO models are not converted back; export the model that it was made from",
)
TENSOR_RT = Foreign(
    "a TensorRT engine, which is compiled for one GPU",
    "engines are not converted back; give the model that it was built from",
)
TASK = Foreign(
    "a MediaPipe task bundle (a zip archive of .tflite files)",
    "unzip it, and give one of the .tflite files in it",
)
LITERT_LM = Foreign(
    "a LiteRT-LM bundle of a language model",
    "it is already in its final form for a device; edgeconv takes the model that it was made from",
)
FOREST = Foreign(
    "a decision forest (Yggdrasil)",
    "TFLite has no operators for forests; export it as C++: pip install ydf, "
    "ydf.load_model('DIR').to_standalone_cc(); or train a network",
)
FOREST_SAVED_MODEL = Foreign(
    "a TensorFlow Decision Forests model",
    "TFLite has no operators for forests; export it as C++: pip install ydf, "
    "ydf.from_tensorflow_decision_forests('DIR').to_standalone_cc(); or train a network",
)
HUB_MODULE = Foreign(
    "a TensorFlow 1 Hub module, which is not tagged for serving",
    "export it as a SavedModel for serving; docs/models.md has the lines to do it",
)
SKLEARN = Foreign(
    "a pickled scikit-learn model",
    "it cannot become a .tflite file, and pickles are never loaded, because they run code; train a "
    "network in Keras",
)
PICKLE = Foreign(
    "a pickled Python object",
    "pickles are never loaded, because they run code; save the model whole: "
    "model.save('NAME.keras')",
)
ARRAYS = Foreign(
    "an archive of arrays, as np.savez writes it",
    "weights alone are not a model: set them in the network that they belong to "
    "(model.set_weights(...)), and save it whole: model.save('NAME.keras')",
)
PADDLE = Foreign("a PaddlePaddle model", "convert it to ONNX with paddle2onnx, then see ONNX")
CAFFE = Foreign("a Caffe model", "build the network in Keras, and save it with its weights")
