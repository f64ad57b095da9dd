"""A server with TensorFlow Serving's two interfaces, in a process of its own.

    python serving_server.py DIRECTORY

It makes a SavedModel in DIRECTORY/model/3 and answers with it: REST as TensorFlow Serving's
documentation has it, gRPC with the real messages and stubs of tensorflow-serving-api. It writes
the ports to DIRECTORY/ports.json and serves until stdin closes.
"""

import json
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAME, VERSION = "two", "3"


def make_model(directory: Path) -> None:
    import tensorflow as tf

    class Two(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec((None, 3), tf.float32, name="x"),
                tf.TensorSpec((None,), tf.int32, name="shift"),
            ]
        )
        def both(self, x, shift):
            sums = tf.reduce_sum(x, axis=1)
            return {
                "scores": tf.nn.softmax(x) / tf.cast(shift[:, None], tf.float32),
                "rank": tf.argsort(x, axis=1) + shift[:, None],
                "large": tf.cast(sums, tf.float64) > 0.0,
            }

        @tf.function(input_signature=[tf.TensorSpec((None, 3), tf.float32, name="x")])
        def one(self, x):
            return {"y": 2.0 * x}

    module = Two()
    tf.saved_model.save(
        module, str(directory), signatures={"serving_default": module.both, "twice": module.one}
    )


def columns(loaded, request):
    """The named inputs of a predict call as tensors of the signature's types."""
    import tensorflow as tf

    specs = loaded.signatures[request["signature_name"]].structured_input_signature[1]
    given = request["inputs"]
    if set(given) != set(specs):
        raise ValueError(f"Missing inputs: {set(specs) ^ set(given)}")
    return {name: tf.constant(given[name], spec.dtype) for name, spec in specs.items()}


def described(signature):
    def info(spec):
        dims = [{"size": str(-1 if d is None else d), "name": ""} for d in spec.shape.as_list()]
        shape = {"dim": dims, "unknown_rank": False}
        from tensorflow.core.framework import types_pb2

        dtype = types_pb2.DataType.Name(spec.dtype.as_datatype_enum)
        return {"dtype": dtype, "tensor_shape": shape, "name": spec.name}

    return {
        "inputs": {k: info(v) for k, v in signature.structured_input_signature[1].items()},
        "outputs": {k: info(v) for k, v in signature.structured_outputs.items()},
        "method_name": "tensorflow/serving/predict",
    }


def handler(loaded):
    class Rest(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, said):
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            state = {"version": VERSION, "state": "AVAILABLE", "status": {"error_code": "OK"}}
            ending = {**state, "version": "7", "state": "END"}
            signatures = {k: described(v) for k, v in loaded.signatures.items()}
            pages = {
                f"/v1/models/{NAME}": {"model_version_status": [ending, state]},
                "/v1/models/ending": {"model_version_status": [ending]},
                f"/v1/models/{NAME}/metadata": {
                    "model_spec": {"name": NAME, "version": VERSION},
                    "metadata": {"signature_def": {"signature_def": signatures}},
                },
            }
            if self.path in pages:
                self.reply(200, pages[self.path])
            else:
                self.reply(404, {"error": f"Servable not found for request: Latest({self.path})"})

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                signature = loaded.signatures[request["signature_name"]]
                given = signature(**columns(loaded, request))
            except (KeyError, ValueError) as error:
                self.reply(400, {"error": str(error)})
                return
            lists = {name: tensor.numpy().tolist() for name, tensor in given.items()}
            # A model's only output comes without its name.
            self.reply(200, {"outputs": lists if len(lists) > 1 else next(iter(lists.values()))})

    return Rest


def grpc_server(loaded):
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import (
        get_model_status_pb2,
        model_service_pb2_grpc,
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802
            if request.model_spec.name != NAME:
                message = f"Servable not found for request: Latest({request.model_spec.name})"
                context.abort(grpc.StatusCode.NOT_FOUND, message)
            signature = loaded.signatures[request.model_spec.signature_name]
            given = {name: tf.constant(tf.make_ndarray(v)) for name, v in request.inputs.items()}
            if set(given) != set(signature.structured_input_signature[1]):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"inputs are {sorted(given)}")
            response = predict_pb2.PredictResponse(model_spec=request.model_spec)
            for name, tensor in signature(**given).items():
                # Values one by one, as the server writes them, but for one output.
                if name == "scores":
                    proto = tf.make_tensor_proto(tensor.numpy())
                else:
                    values = tensor.numpy()
                    proto = tf.make_tensor_proto(
                        values.flatten().tolist(), tensor.dtype, [values.size]
                    )
                    proto.tensor_shape.CopyFrom(tensor.shape.as_proto())
                response.outputs[name].CopyFrom(proto)
            return response

    class Models(model_service_pb2_grpc.ModelServiceServicer):
        def GetModelStatus(self, request, context):  # noqa: N802
            if request.model_spec.name != NAME:
                context.abort(grpc.StatusCode.NOT_FOUND, "Could not find any versions of model")
            response = get_model_status_pb2.GetModelStatusResponse()
            response.model_version_status.add(version=int(VERSION), state=30)
            return response

    server = grpc.server(futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Models(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return port, server


def main(directory: Path) -> None:
    import tensorflow as tf

    make_model(directory / "model" / VERSION)
    loaded = tf.saved_model.load(str(directory / "model" / VERSION))
    rest = ThreadingHTTPServer(("127.0.0.1", 0), handler(loaded))
    threading.Thread(target=rest.serve_forever, daemon=True).start()
    grpc_port, server = grpc_server(loaded)
    said = {"rest": rest.server_address[1], "grpc": grpc_port}
    (directory / "part.json").write_text(json.dumps(said))
    (directory / "part.json").rename(directory / "ports.json")
    sys.stdin.read()
    server.stop(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
