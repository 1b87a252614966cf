"""Ray Serve over ONNX Runtime: `ray_server.py NAME FILE PORT REPLICAS THREADS`. Requests and answers as KServe's protocol has them."""

import json
import signal
import sys

import numpy as np
import onnxruntime
import ray
from ray import serve
from ray.serve.config import HTTPOptions
from starlette.responses import Response


@serve.deployment
class Onnx:
    def __init__(self, name, file, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self.name = name
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.names = [output.name for output in self.session.get_outputs()]

    async def __call__(self, request):
        body = json.loads(await request.body())
        inputs = {
            given["name"]: np.asarray(given["data"], dtype=np.float32).reshape(given["shape"]) for given in body["inputs"]
        }
        results = self.session.run(self.names, inputs)
        outputs = [
            {"name": name, "shape": list(result.shape), "datatype": "FP32", "data": result.ravel().tolist()}
            for name, result in zip(self.names, results)
        ]
        return Response(json.dumps({"model_name": self.name, "outputs": outputs}), media_type="application/json")


if __name__ == "__main__":
    name, file, port, replicas, threads = sys.argv[1:]
    ray.init(include_dashboard=False, log_to_driver=False)
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=int(port)))
    # A share of a core for each: they are not to be kept from starting by the proxy and the controller.
    deployment = Onnx.options(
        num_replicas=int(replicas), max_ongoing_requests=100, ray_actor_options={"num_cpus": 0.1},
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
    )
    serve.run(deployment.bind(name, file, int(threads)))
    signal.pause()
