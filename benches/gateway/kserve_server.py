"""KServe's model server over ONNX Runtime: `kserve_server.py NAME FILE PORT WORKERS THREADS`."""

import sys

import onnxruntime
from kserve import InferOutput, InferResponse, Model, ModelServer


class Onnx(Model):
    def __init__(self, name, file, threads):
        super().__init__(name)
        self.file, self.threads, self.session = file, threads, None
        self.ready = True

    def _session(self):
        # Made in the process that uses it: a session does not survive a fork.
        if self.session is None:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = self.threads
            options.inter_op_num_threads = 1
            self.session = onnxruntime.InferenceSession(self.file, options, providers=["CPUExecutionProvider"])
            self.names = [output.name for output in self.session.get_outputs()]
        return self.session

    async def predict(self, payload, headers=None, response_headers=None):
        session = self._session()
        results = session.run(self.names, {given.name: given.as_numpy() for given in payload.inputs})
        outputs = []
        for name, result in zip(self.names, results):
            output = InferOutput(name=name, shape=list(result.shape), datatype="FP32")
            output.set_data_from_numpy(result, binary_data=False)
            outputs.append(output)
        return InferResponse(response_id=payload.id or "", model_name=self.name, infer_outputs=outputs)


if __name__ == "__main__":
    name, file, port, workers, threads = sys.argv[1:]
    server = ModelServer(http_port=int(port), workers=int(workers), enable_grpc=False, access_log_format=None)
    server.start([Onnx(name, file, int(threads))])
