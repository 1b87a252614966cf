"""KServe's own clients against a gateway: `kserve_client.py ADDRESS MODEL BEARER`. Fails at the first answer that is not right."""

import asyncio
import logging
import sys

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

address, model, bearer = sys.argv[1:]
image = (np.arange(64, dtype=np.float32) % 17 / 16).reshape(1, 1, 8, 8)
# It tells of each refusal at length; here they are expected.
logging.disable(logging.CRITICAL)


def request(name, binary, array=image):
    given = InferInput(name="image", shape=list(array.shape), datatype="FP32")
    given.set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model_name=name, request_id="r-1", infer_inputs=[given])


def told(answer):
    assert (answer.model_name, answer.id) == (model, "r-1"), answer
    return answer.outputs[0].as_numpy().reshape(1, 10)


async def refused(step, *says):
    try:
        await step
    except (httpx.HTTPStatusError, grpc.RpcError) as error:
        assert any(said in str(error) for said in says), error
        return
    raise AssertionError(f"not refused: {says}")


async def over_rest(results):
    url, mine = f"http://{address}", lambda: {"authorization": bearer}
    async with InferenceRESTClient(RESTConfig(protocol="v2", retries=1)) as client:
        assert await client.is_server_live(url, headers=mine()) and await client.is_server_ready(url, headers=mine())
        assert await client.is_model_ready(url, model, headers=mine())
        assert not await client.is_model_ready(url, "nothing", headers=mine())
        for binary in (False, True):
            said = {}
            answer = await client.infer(
                url, request(model, binary), model_name=model, headers=mine(), response_headers=said
            )
            results.append(told(answer))
            assert said["karman-model"] == model and said["karman-why"], said
        await refused(client.infer(url, request("nothing", True), model_name="nothing", headers=mine()), "404")
        await refused(client.infer(url, request(model, True), model_name=model), "401")
        wrong = request(model, True, np.zeros((1, 3), dtype=np.float32))
        await refused(client.infer(url, wrong, model_name=model, headers=mine()), "400")
        impossible = {**mine(), "karman-cost": "-1"}
        await refused(client.infer(url, request(model, True), model_name=model, headers=impossible), "karman-cost")


async def over_grpc(results):
    mine = (("authorization", bearer),)
    async with InferenceGRPCClient(address, retries=2) as client:
        assert await client.is_server_live(headers=mine) and await client.is_server_ready(headers=mine)
        assert await client.is_model_ready(model, headers=mine)
        for binary in (False, True):
            answer = await client.infer(request(model, binary), headers=mine)
            results.append(told(answer))
            assert answer.parameters["karman-model"].string_param == model, answer.parameters
        await refused(client.infer(request("nothing", True), headers=mine), "NOT_FOUND")
        await refused(client.infer(request(model, True)), "UNAUTHENTICATED")
        wrong = request(model, True, np.zeros((1, 3), dtype=np.float32))
        await refused(client.infer(wrong, headers=mine), "INVALID_ARGUMENT")


async def main():
    results = []
    await over_rest(results)
    await over_grpc(results)
    for result in results:
        assert abs(result.sum() - 1) < 1e-4 and np.allclose(result, results[0], atol=1e-6), result


asyncio.run(main())
print("done")
