"""Over TLS: `tls.py ADDRESS MODEL BEARER CERTIFICATE`. HTTP/2 by Triton's gRPC client, HTTP/1.1 by Python's own."""

import http.client
import json
import socket
import ssl
import sys

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

address, model, bearer, certificate = sys.argv[1:]
host, port = address.split(":")
image = (np.arange(64, dtype=np.float32) % 17 / 16).reshape(1, 1, 8, 8)

# What it agrees to speak, and how it is encrypted.
for offered, spoken in [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1")]:
    context = ssl.create_default_context(cafile=certificate)
    context.set_alpn_protocols(offered)
    with context.wrap_socket(socket.create_connection((host, int(port))), server_hostname="localhost") as stream:
        assert stream.selected_alpn_protocol() == spoken, stream.selected_alpn_protocol()
        assert stream.version() == "TLSv1.3", stream.version()
old = ssl.create_default_context(cafile=certificate)
old.maximum_version = ssl.TLSVersion.TLSv1_1
try:
    old.wrap_socket(socket.create_connection((host, int(port))), server_hostname="localhost")
except (ssl.SSLError, ConnectionError, ValueError):
    pass
else:
    raise AssertionError("TLS 1.1 is spoken")

# HTTP/2: gRPC.
client = grpc.InferenceServerClient(f"localhost:{port}", ssl=True, root_certificates=certificate)
given = grpc.InferInput("image", list(image.shape), "FP32")
given.set_data_from_numpy(image)
over_grpc = client.infer(model, [given], headers={"authorization": bearer}).as_numpy("probabilities")
try:
    client.infer(model, [given])
except InferenceServerException as error:
    assert "UNAUTHENTICATED" in error.status(), error
else:
    raise AssertionError("no token is needed")

# HTTP/1.1.
connection = http.client.HTTPSConnection(host, int(port), context=ssl.create_default_context(cafile=certificate))
inputs = [{"name": "image", "shape": list(image.shape), "datatype": "FP32", "data": image.ravel().tolist()}]
headers = {"authorization": bearer, "content-type": "application/json"}
connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": inputs}), headers)
answer = connection.getresponse()
assert answer.status == 200, answer.read()
assert answer.getheader("strict-transport-security") == "max-age=31536000", answer.getheaders()
over_rest = np.array(json.loads(answer.read())["outputs"][0]["data"], dtype=np.float32)
assert np.allclose(over_grpc.ravel(), over_rest, atol=1e-6), (over_grpc, over_rest)
connection.request("GET", f"/v2/models/{model}")
assert connection.getresponse().status == 401
print("done")
