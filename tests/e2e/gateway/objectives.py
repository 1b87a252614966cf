"""Objectives as metadata of gRPC, by Triton's client: `objectives.py ADDRESS CAPABILITY`."""

import sys

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

address, capability = sys.argv[1:]
client = grpc.InferenceServerClient(address)
image = grpc.InferInput("image", [1, 1, 8, 8], "FP32")
image.set_data_from_numpy((np.arange(64, dtype=np.float32) % 17 / 16).reshape(1, 1, 8, 8))


def ask(**objectives):
    headers = {f"karman-{name}": value for name, value in objectives.items()}
    return client.infer(capability, [image], headers=headers)


def said(answer):
    return {name: value.string_param for name, value in answer.get_response().parameters.items()}


best = said(ask())
assert best["karman-model"] == "digits-l" and best["karman-decision"] and best["karman-cut"], best
assert "who serves" in best["karman-why"], best
cheap = ask(cost="0.001")
assert said(cheap)["karman-model"] == "digits-s", said(cheap)
assert cheap.as_numpy("probabilities").shape == (1, 10)

for objectives, name in [({"accuracy": "0.9999"}, "karman-accuracy"), ({"p95": "1 us"}, "karman-p95")]:
    try:
        ask(**objectives)
    except InferenceServerException as error:
        assert "FAILED_PRECONDITION" in error.status() and name in error.message(), error
    else:
        raise AssertionError(f"{objectives} can be met")
print("done")
