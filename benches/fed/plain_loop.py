"""Federated averaging as a loop over clients in one process: nothing but the arithmetic.

    FED_TASK='{"folder": …, "model": …, "rounds": …, "epochs": …, "batch": …, "rate": …, "seed": …}' python plain_loop.py

The folder holds `held.bin` and `train-0.bin`, `train-1.bin`, …; each round is a line `round N`, the last line is `accuracy A`.
"""

import json
import os
import pathlib

import numpy

import digits


def main(folder, model, rounds, epochs, batch, rate, seed):
    net, folder = digits.MODELS[model](), pathlib.Path(folder)

    def prepared(path):
        pictures, labels = digits.read(path)
        return net.prepare(pictures), labels

    clients = [prepared(folder / f"train-{client}.bin") for client in range(len(list(folder.glob("train-*.bin"))))]
    random, rate = numpy.random.default_rng(seed), numpy.float32(rate)
    arrays = net.initial(seed)
    for number in range(1, rounds + 1):
        trained = [digits.fit(net, arrays, *client, epochs, batch, rate, random) for client in clients]
        arrays = digits.average(trained, [len(labels) for _, labels in clients])
        print("round", number, flush=True)
    print("accuracy", digits.accuracy(net, arrays, *prepared(folder / "held.bin")), flush=True)


if __name__ == "__main__":
    main(**json.loads(os.environ["FED_TASK"]))
