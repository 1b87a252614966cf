"""The same two models as the plugin `fed-digits`, in NumPy: what a client of the comparators trains.

Arrays are float32. Patches of the pictures are made once per client, not once per step.
"""

import numpy

LABELS, PIXELS, SIDE, REACH, FILTERS = 10, 64, 8, 3, 16
MAP = SIDE - REACH + 1
POOLED = MAP // 2
FEATURES = FILTERS * POOLED * POOLED


def read(path):
    """Pictures [N,64] from 0 to 1, and their labels."""
    records = numpy.fromfile(path, numpy.uint8).reshape(-1, PIXELS + 1)
    return records[:, :PIXELS].astype(numpy.float32) / 16, records[:, PIXELS].astype(numpy.int64)


class Regression:
    """Multinomial logistic regression."""

    def initial(self, seed):
        return [numpy.zeros((LABELS, PIXELS), numpy.float32), numpy.zeros(LABELS, numpy.float32)]

    def prepare(self, pictures):
        return pictures

    def logits(self, model, inputs):
        return inputs @ model[0].T + model[1]

    def gradient(self, model, inputs, labels):
        delta = difference(self.logits(model, inputs), labels)
        return [delta.T @ inputs, delta.sum(0)]


class Convolution:
    """Convolution, ReLU, maxima of 2x2, one dense layer."""

    def initial(self, seed):
        random = numpy.random.default_rng(seed)
        draw = lambda *shape: (random.standard_normal(shape) * (2 / shape[-1]) ** 0.5).astype(numpy.float32)
        zeros = lambda count: numpy.zeros(count, numpy.float32)
        return [draw(FILTERS, REACH * REACH), zeros(FILTERS), draw(LABELS, FEATURES), zeros(LABELS)]

    def prepare(self, pictures):
        """Patches [N, pooled row, pooled column, one of four, 9]."""
        windows = numpy.lib.stride_tricks.sliding_window_view(pictures.reshape(-1, SIDE, SIDE), (REACH, REACH), (1, 2))
        patches = windows.reshape(-1, POOLED, 2, POOLED, 2, REACH * REACH).transpose(0, 1, 3, 2, 4, 5)
        return numpy.ascontiguousarray(patches).reshape(len(pictures), POOLED * POOLED, 4, REACH * REACH)

    def features(self, model, patches):
        maps = patches @ model[0].T + model[1]
        return maps.argmax(2), numpy.maximum(maps.max(2), 0)

    def logits(self, model, patches):
        _, features = self.features(model, patches)
        return features.reshape(len(patches), -1) @ model[2].T + model[3]

    def gradient(self, model, patches, labels):
        origin, features = self.features(model, patches)
        flat = features.reshape(len(patches), -1)
        delta = difference(flat @ model[2].T + model[3], labels)
        below = (delta @ model[2]).reshape(features.shape) * (features > 0)
        chosen = numpy.take_along_axis(patches, origin[..., None], 2)
        weights = numpy.einsum("bpf,bpfk->fk", below, chosen)
        return [weights, below.sum((0, 1)), delta.T @ flat, delta.sum(0)]


MODELS = {"regression": Regression, "convolution": Convolution}


def difference(logits, labels):
    """The gradient of the mean cross entropy by the logits."""
    exponents = numpy.exp(logits - logits.max(1, keepdims=True))
    delta = exponents / exponents.sum(1, keepdims=True)
    delta[numpy.arange(len(labels)), labels] -= 1
    return delta / len(labels)


def fit(net, model, inputs, labels, epochs, batch, rate, random):
    """Plain gradient descent from `model`, which stays as it is."""
    model = [array.copy() for array in model]
    for _ in range(epochs):
        order = random.permutation(len(labels))
        for at in range(0, len(order), batch):
            chosen = order[at : at + batch]
            for array, slope in zip(model, net.gradient(model, inputs[chosen], labels[chosen])):
                array -= rate * slope
    return model


def accuracy(net, model, inputs, labels):
    return float((net.logits(model, inputs).argmax(1) == labels).mean())


def average(models, samples):
    """The mean of all models, weighted by samples."""
    total = sum(samples)
    return [
        sum(array * numpy.float32(count / total) for array, count in zip(arrays, samples)) for arrays in zip(*models)
    ]
