"""Layers of a small convolutional network in numpy: forward, backward, Adam, and the ONNX nodes of each.

An array of images is [N, C, H, W]. A layer has `forward(x)`, `backward(dy)` (gradient of its input; the gradients of its
parameters stay in `grads`), `macs` after a forward pass, and `nodes(x, name)` giving its ONNX nodes and initializers.
"""

import numpy as np
from onnx import helper, numpy_helper

F = np.float32


class Layer:
    params, grads, macs = (), (), 0


class Conv(Layer):
    """3x3 convolution, padding 1, with bias."""

    def __init__(self, rng, c_in, c_out):
        w = rng.normal(0, np.sqrt(2 / (9 * c_in)), (c_out, c_in * 9)).astype(F)
        self.c_in, self.params = c_in, [w, np.zeros(c_out, F)]

    def forward(self, x, train=False):
        n, c, h, w = x.shape
        p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        cols = np.stack([p[:, :, i : i + h, j : j + w] for i in range(3) for j in range(3)], 2)
        self.cols = cols.reshape(n, c * 9, h * w)
        self.shape, self.macs = x.shape, self.params[0].size * h * w
        y = np.matmul(self.params[0], self.cols) + self.params[1][:, None]
        return y.reshape(n, -1, h, w)

    def backward(self, dy):
        n, c, h, w = self.shape
        dy = dy.reshape(n, -1, h * w)
        self.grads = [np.einsum("nop,nkp->ok", dy, self.cols, optimize=True), dy.sum((0, 2))]
        cols = np.matmul(self.params[0].T, dy).reshape(n, c, 9, h, w)
        dx = np.zeros((n, c, h + 2, w + 2), F)
        for k in range(9):
            dx[:, :, k // 3 : k // 3 + h, k % 3 : k % 3 + w] += cols[:, :, k]
        return dx[:, :, 1:-1, 1:-1]

    def nodes(self, x, name):
        w, b = self.params
        weights = [(f"{name}.weight", w.reshape(-1, self.c_in, 3, 3)), (f"{name}.bias", b)]
        node = helper.make_node(
            "Conv", [x] + [n for n, _ in weights], [name], name=name, kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        )
        return [node], weights


class Dense(Layer):
    """A fully connected layer with bias; flattens what it is given."""

    def __init__(self, rng, n_in, n_out):
        self.params = [rng.normal(0, np.sqrt(2 / n_in), (n_in, n_out)).astype(F), np.zeros(n_out, F)]
        self.macs = n_in * n_out

    def forward(self, x, train=False):
        self.shape, self.x = x.shape, x.reshape(len(x), -1)
        return self.x @ self.params[0] + self.params[1]

    def backward(self, dy):
        self.grads = [self.x.T @ dy, dy.sum(0)]
        return (dy @ self.params[0].T).reshape(self.shape)

    def nodes(self, x, name):
        weights = [(f"{name}.weight", self.params[0]), (f"{name}.bias", self.params[1])]
        flat = helper.make_node("Flatten", [x], [f"{name}.flat"], name=f"{name}.flat")
        gemm = helper.make_node("Gemm", [f"{name}.flat"] + [n for n, _ in weights], [name], name=name)
        return [flat, gemm], weights


class Relu(Layer):
    def forward(self, x, train=False):
        self.on = x > 0
        return x * self.on

    def backward(self, dy):
        return dy * self.on

    def nodes(self, x, name):
        return [helper.make_node("Relu", [x], [name], name=name)], []


class Pool(Layer):
    """2x2 maximum, stride 2."""

    def forward(self, x, train=False):
        n, c, h, w = x.shape
        t = x.reshape(n, c, h // 2, 2, w // 2, 2)
        y = t.max((3, 5), keepdims=True)
        self.on = t == y
        self.on = self.on / self.on.sum((3, 5), keepdims=True, dtype=F)
        return y[:, :, :, 0, :, 0]

    def backward(self, dy):
        dx = self.on * dy[:, :, :, None, :, None]
        n, c, h, _, w, _ = dx.shape
        return dx.reshape(n, c, h * 2, w * 2)

    def nodes(self, x, name):
        return [helper.make_node("MaxPool", [x], [name], name=name, kernel_shape=[2, 2], strides=[2, 2])], []


class Drop(Layer):
    """Dropout while training; nothing in the exported graph."""

    def __init__(self, rng, rate):
        self.rng, self.rate = rng, rate

    def forward(self, x, train=False):
        self.on = (self.rng.random(x.shape, F) >= self.rate).astype(F) / F(1 - self.rate) if train else F(1)
        return x * self.on

    def backward(self, dy):
        return dy * self.on

    def nodes(self, x, name):
        return [], []


class Net:
    """Blocks in a row; after each block a head may leave with class scores (an exit)."""

    def __init__(self, blocks):
        self.blocks = blocks  # [(layers, head layers or None)]

    def layers(self):
        return [layer for body, head in self.blocks for layer in body + (head or [])]

    def forward(self, x, train=False):
        exits = []
        for body, head in self.blocks:
            for layer in body:
                x = layer.forward(x, train)
            y = x
            for layer in head or []:
                y = layer.forward(y, train)
            if head:
                exits.append(y)
        return exits

    def backward(self, grads):
        dx = 0
        for body, head in reversed(self.blocks):
            if head:
                dy = grads.pop()
                for layer in reversed(head):
                    dy = layer.backward(dy)
                dx = dx + dy
            for layer in reversed(body):
                dx = layer.backward(dx)

    def size(self):
        return sum(p.size for layer in self.layers() for p in layer.params)

    def macs(self):
        """Multiply-accumulates of one image up to and including each exit."""
        total, out = 0, []
        for body, head in self.blocks:
            total += sum(layer.macs for layer in body)
            total += sum(layer.macs for layer in head or [])
            if head:
                out.append(total)
        return out

    def to_onnx(self, name, outputs):
        """The graph: `image` f32 [N,1,8,8] to softmax probabilities f32 [N,10] under these names."""
        nodes, weights, x, left = [], [], "image", list(outputs)

        def add(layer, x, name):
            new, values = layer.nodes(x, name)
            nodes.extend(new)
            weights.extend(values)
            return name if new else x

        for b, (body, head) in enumerate(self.blocks):
            for i, layer in enumerate(body):
                x = add(layer, x, f"block{b + 1}.{i}.{type(layer).__name__.lower()}")
            y = x
            for i, layer in enumerate(head or []):
                y = add(layer, y, f"head{b + 1}.{i}.{type(layer).__name__.lower()}")
            if head:
                out = left.pop(0)
                nodes.append(helper.make_node("Softmax", [y], [out], name=out, axis=1))
        value = lambda name, shape: helper.make_tensor_value_info(name, 1, shape)
        graph = helper.make_graph(
            nodes,
            name,
            [value("image", ["N", 1, 8, 8])],
            [value(out, ["N", 10]) for out in outputs],
            [numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in weights],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="karman tests/models"
        )


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


class Adam:
    """Adam with decoupled weight decay over a network's parameters."""

    def __init__(self, net, decay=1e-4):
        self.net, self.decay, self.t = net, decay, 0
        self.m = [[np.zeros_like(p) for p in layer.params] for layer in net.layers()]
        self.v = [[np.zeros_like(p) for p in layer.params] for layer in net.layers()]

    def step(self, rate):
        self.t += 1
        for layer, m, v in zip(self.net.layers(), self.m, self.v):
            for p, g, m, v in zip(layer.params, layer.grads, m, v):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                p -= rate * (m / (1 - 0.9**self.t) / (np.sqrt(v / (1 - 0.999**self.t)) + 1e-8) + self.decay * p)
