"""A client app and a server app with FedAvg, as Flower's users write them. `flower.py` runs them.

Actors are processes of their own that import this file: what is to be done stands in their environment.
"""

import functools
import json
import os
import pathlib

import numpy
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import digits

TASK = json.loads(os.environ["FED_TASK"])
FOLDER, NET = pathlib.Path(TASK["folder"]), digits.MODELS[TASK["model"]]()
COUNT = len(list(FOLDER.glob("train-*.bin")))


@functools.cache
def prepared(path):
    """A client's data stay in the process that has read them."""
    pictures, labels = digits.read(path)
    return NET.prepare(pictures), labels


client_app = ClientApp()


@client_app.train()
def train(message, context):
    inputs, labels = prepared(FOLDER / f"train-{context.node_config['partition-id']}.bin")
    model = message.content["arrays"].to_numpy_ndarrays()
    random, rate = numpy.random.default_rng(), numpy.float32(TASK["rate"])
    trained = digits.fit(NET, model, inputs, labels, TASK["epochs"], TASK["batch"], rate, random)
    metrics = MetricRecord({"num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message)


class Told(FedAvg):
    """Says when a round is over."""

    def aggregate_train(self, server_round, replies):
        aggregated = super().aggregate_train(server_round, replies)
        print("round", server_round, flush=True)
        return aggregated


server_app = ServerApp()


@server_app.main()
def serve(grid, context):
    strategy = Told(fraction_evaluate=0.0, min_train_nodes=COUNT, min_available_nodes=COUNT)
    initial = ArrayRecord(NET.initial(TASK["seed"]))
    result = strategy.start(grid=grid, initial_arrays=initial, num_rounds=TASK["rounds"])
    model = result.arrays.to_numpy_ndarrays()
    print("accuracy", digits.accuracy(NET, model, *prepared(FOLDER / "held.bin")), flush=True)
