"""Elements in the messages of gRPC, by Triton's own definition of them: `typed.py ADDRESS MODEL MANY`."""

import sys

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

address, model, many = sys.argv[1:]
stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.insecure_channel(address))


def ask(count):
    request = service_pb2.ModelInferRequest(model_name=model)
    image = request.inputs.add(name="image", datatype="FP32", shape=[1, 1, 8, 8])
    image.contents.fp32_contents.extend([0.5] * count)
    return stub.ModelInfer(request)


assert len(ask(64).raw_output_contents) == 1
try:
    ask(int(many))
except grpc.RpcError as error:
    said = error.code(), error.details()
    assert said[0] == grpc.StatusCode.RESOURCE_EXHAUSTED and "raw_input_contents" in said[1], said
else:
    raise AssertionError("they are read")
assert len(ask(64).raw_output_contents) == 1
print("done")
