"""Triton's client against a gateway: `triton.py ADDRESS MODEL BEARER`. Fails at the first answer that is not right."""

import queue
import sys

import grpc
import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

address, model, bearer = sys.argv[1:]
# The client writes into the headers that it is given, so each call gets its own.
bearer_only = {"authorization": bearer}
image = (np.arange(64, dtype=np.float32) % 17 / 16).reshape(1, 1, 8, 8)


def described(about):
    """Metadata as a dictionary, whichever protocol it came by."""
    if isinstance(about, dict):
        return about["inputs"][0]["name"], about["inputs"][0]["datatype"], list(map(int, about["inputs"][0]["shape"]))
    return about.inputs[0].name, about.inputs[0].datatype, list(about.inputs[0].shape)


def refused(step, *says):
    try:
        step()
    except InferenceServerException as error:
        text = f"{error.status()} {error.message()}"
        assert any(said in text for said in says), text
        return
    raise AssertionError(f"not refused: {says}")


def run(client, library, **how):
    given = library.InferInput("image", list(image.shape), "FP32")
    if library is over_http:
        given.set_data_from_numpy(image, binary_data=how.get("binary", True))
        wanted = [library.InferRequestedOutput("probabilities", binary_data=how.get("binary", True))]
    else:
        given.set_data_from_numpy(image)
        wanted = [library.InferRequestedOutput("probabilities")]
    answer = client.infer(model, [given], request_id="r-1", outputs=wanted, headers=dict(bearer_only))
    return answer.as_numpy("probabilities")


def task(client, library):
    given = library.InferInput("input", [1], "BYTES")
    given.set_data_from_numpy(np.array([b"12345"], dtype=np.object_))
    answer = client.infer("tiny", [given], headers=dict(bearer_only)).as_numpy("output")
    assert answer[0] in (b"5", "5"), answer


results = []
for library in (over_http, over_grpc):
    client = library.InferenceServerClient(address)
    assert client.is_server_live(headers=dict(bearer_only)) and client.is_server_ready(headers=dict(bearer_only))
    assert client.is_model_ready(model, headers=dict(bearer_only))
    server = client.get_server_metadata(headers=dict(bearer_only))
    assert (server["name"] if isinstance(server, dict) else server.name) == "karman"
    about = client.get_model_metadata(model, headers=dict(bearer_only))
    assert described(about) == ("image", "FP32", [-1, 1, 8, 8]), about
    listed = client.get_model_repository_index(headers=dict(bearer_only))
    entries = {}
    for entry in listed if isinstance(listed, list) else listed.models:
        name, version, state = (
            (entry["name"], entry["version"], entry["state"])
            if isinstance(entry, dict)
            else (entry.name, entry.version, entry.state)
        )
        entries[name] = version, state
    assert model in entries and "tiny" in entries, entries
    versions = about["versions"] if isinstance(about, dict) else list(about.versions)
    assert entries[model] == (versions[0], "READY"), (entries, versions)
    results += [run(client, library, binary=True), run(client, library, binary=False)]
    task(client, library)
    refused(lambda: client.get_model_metadata("nothing", headers=dict(bearer_only)), "404", "NOT_FOUND")
    refused(lambda: client.get_model_metadata(model), "401", "UNAUTHENTICATED")
    wrong = library.InferInput("image", [1], "FP32")
    wrong.set_data_from_numpy(np.zeros(1, dtype=np.float32))
    refused(lambda: client.infer(model, [wrong], headers=dict(bearer_only)), "400", "INVALID_ARGUMENT")
    given = library.InferInput("image", list(image.shape), "FP32")
    given.set_data_from_numpy(image)
    classes = [library.InferRequestedOutput("probabilities", class_count=3)]
    refused(lambda: client.infer(model, [given], outputs=classes, headers=dict(bearer_only)), "classification")
    compressed = {"request_compression_algorithm" if library is over_http else "compression_algorithm": "gzip"}
    refused(lambda: client.infer(model, [given], headers=dict(bearer_only), **compressed), "415", "UNIMPLEMENTED")
    timed = client.infer(model, [given], timeout=60_000_000, headers=dict(bearer_only))
    results.append(timed.as_numpy("probabilities"))
    client.close()

with grpc.insecure_channel(address) as channel:
    # A stream that says nothing and does not end is refused for what it is.
    asked = queue.Queue()
    stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(
        iter(asked.get, None), metadata=(("authorization", bearer),)
    )
    try:
        next(stream)
    except grpc.RpcError as error:
        said = error.code(), error.details()
        assert said[0] == grpc.StatusCode.UNIMPLEMENTED and "use `ModelInfer`" in said[1], said
    else:
        raise AssertionError("a stream is answered")
    asked.put(None)
    # A probe of Kubernetes has no token.
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"") == b"\x08\x01"

for result in results:
    assert result.shape == (1, 10) and abs(result.sum() - 1) < 1e-4, result
    assert np.allclose(result, results[0], atol=1e-6), (result, results[0])
print("done")
