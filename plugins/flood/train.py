"""Trains the two models that tell water from land in the tiles of the flood demonstration.

    python -m venv venv && venv/bin/pip install -r plugins/flood/requirements.txt
    OPENBLAS_NUM_THREADS=1 venv/bin/python plugins/flood/train.py            # about ten minutes on one core

The pictures are those that the plugin `flood-capture` takes: the crate `scene` makes both. Models learn on the north of the terrain
and are judged on the south, which they have never seen. A tile has 32 by 32 pixels; the truth of a pixel is whether water can be
seen there. Neither the widths nor anything else was chosen by the figures of the south.

Writes models/flood-s.onnx, models/flood-l.onnx and models/models.json. The same machine gives the same bytes; another one's
arithmetic may round differently, so commit the three together.
"""

import hashlib, json, subprocess, sys, tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "tests/models"))
from net import Adam, Conv, F, Pool, Relu  # noqa: E402

SEED, SIDE, TILE = 2026, 128, 32
# Rows of pictures: those of the north end before those of the south begin.
NORTH, SOUTH = (0, 127), (255, 255)
COLUMNS = (0, 255)


class Up:
    """Each pixel four times."""

    params, grads, macs = (), (), 0

    def forward(self, x, train=False):
        return x.repeat(2, 2).repeat(2, 3)

    def backward(self, dy):
        n, c, h, w = dy.shape
        return dy.reshape(n, c, h // 2, 2, w // 2, 2).sum((3, 5))


class Plain:
    """Layers in a row."""

    def __init__(self, rng):
        self.row = [Conv(rng, 3, 8), Relu(), Conv(rng, 8, 8), Relu(), Conv(rng, 8, 1)]

    def layers(self):
        return self.row

    def forward(self, x, train=False):
        for layer in self.row:
            x = layer.forward(x, train)
        return x

    def backward(self, dy):
        for layer in reversed(self.row):
            dy = layer.backward(dy)

    def graph(self, write):
        x = "pixels"
        for number, layer in enumerate(self.row):
            x = write(layer, x, f"layer{number}")
        return x


class Unet:
    """Down twice and up again; what was seen at each size is looked at once more on the way up."""

    def __init__(self, rng):
        block = lambda a, b: [Conv(rng, a, b), Relu()]
        self.fine = block(3, 16) + block(16, 16)
        self.mid = [Pool()] + block(16, 24)
        self.deep = [Pool()] + block(24, 32) + block(32, 32) + [Up()]
        self.up = block(56, 24) + [Up()]
        self.out = block(40, 16) + [Conv(rng, 16, 1)]

    def parts(self):
        return {"fine": self.fine, "mid": self.mid, "deep": self.deep, "up": self.up, "out": self.out}

    def layers(self):
        return [layer for part in self.parts().values() for layer in part]

    def forward(self, x, train=False):
        run = lambda part, x: [x := layer.forward(x, train) for layer in part][-1]
        fine = run(self.fine, x)
        mid = run(self.mid, fine)
        up = run(self.up, np.concatenate([run(self.deep, mid), mid], 1))
        return run(self.out, np.concatenate([up, fine], 1))

    def backward(self, dy):
        run = lambda part, dy: [dy := layer.backward(dy) for layer in reversed(part)][-1]
        dup = run(self.out, dy)
        ddeep = run(self.up, dup[:, :24])
        dmid = run(self.deep, ddeep[:, :32]) + ddeep[:, 32:]
        run(self.fine, run(self.mid, dmid) + dup[:, 24:])

    def graph(self, write):
        def part(name, x):
            for number, layer in enumerate(self.parts()[name]):
                x = write(layer, x, f"{name}{number}")
            return x

        fine = part("fine", "pixels")
        mid = part("mid", fine)
        up = part("up", write("concat", [part("deep", mid), mid], "both_mid"))
        return part("out", write("concat", [up, fine], "both_fine"))


FAMILY = {"flood-s": (Plain, 12), "flood-l": (Unet, 6)}  # name: network, epochs


def shots(rng, rows, count):
    """Lines for `dump`: places, levels and skies."""
    for _ in range(count):
        column, row = rng.integers(COLUMNS[0], COLUMNS[1] + 1), rng.integers(rows[0], rows[1] + 1)
        yield f"{column} {row} {rng.uniform(4, 45):.2f} {rng.uniform(0, 0.6):.2f} {rng.integers(1 << 31)}"


def tiles(rng, rows, count):
    """Pixels u8 [N, 3, 32, 32] and truth bool [N, 1, 32, 32], without tiles that clouds hide for the most part."""
    with tempfile.NamedTemporaryFile() as file:
        cargo = ["cargo", "run", "--release", "--quiet", "--example", "dump", "--manifest-path", HERE / "scene/Cargo.toml"]
        subprocess.run([*cargo, "--", file.name], input="\n".join(shots(rng, rows, count)), text=True, check=True)
        all = np.fromfile(file.name, np.uint8).reshape(count, 4, SIDE // TILE, TILE, SIDE // TILE, TILE)
    all = all.transpose(0, 2, 4, 1, 3, 5).reshape(-1, 4, TILE, TILE)
    all = all[(all[:, 3] == 2).mean((1, 2)) < 0.4]
    return all[:, :3], all[:, 3:] == 1


def some_dry(rng, x, y):
    """Most tiles are dry land: of those, as many as there are wet ones."""
    wet = y.any((1, 2, 3))
    dry = rng.permutation(np.flatnonzero(~wet))[: wet.sum()]
    keep = np.sort(np.concatenate([np.flatnonzero(wet), dry]))
    return x[keep], y[keep]


def train(name, x, y):
    net, epochs = FAMILY[name][0](np.random.default_rng(SEED)), FAMILY[name][1]
    rng, adam, batch = np.random.default_rng(SEED), None, 32
    net.forward(x[:1].astype(F) / 255)
    adam, steps = Adam(net), epochs * (len(x) // batch)
    for epoch in range(epochs):
        order, loss = rng.permutation(len(x)), 0.0
        for at in range(0, len(x) - batch + 1, batch):
            pick = np.sort(order[at : at + batch])
            # The sun stays where it is, so that nothing is turned or mirrored.
            scores = net.forward(x[pick].astype(F) / F(255), train=True)
            share = 1 / (1 + np.exp(-scores))
            loss += float(-np.log(np.where(y[pick], share, 1 - share) + 1e-7).mean())
            net.backward((share - y[pick]) / F(batch * TILE * TILE) * F(64))
            adam.step(F(2e-3 * 0.5 * (1 + np.cos(np.pi * adam.t / steps))))
        print(name, epoch, round(loss / (len(x) // batch), 4), flush=True)
    return net


def to_onnx(name, net):
    nodes, weights, constants = [], [], {}

    def write(layer, x, name):
        if layer == "concat":
            nodes.append(helper.make_node("Concat", x, [name], name=name, axis=1))
        elif isinstance(layer, Up):
            constants["scales"] = np.array([1, 1, 2, 2], F)
            keys = dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
            nodes.append(helper.make_node("Resize", [x, "", "scales"], [name], name=name, **keys))
        else:
            of_layer, of_weights = layer.nodes(x, name)
            nodes.extend(of_layer)
            weights.extend(of_weights)
        return name

    nodes.append(helper.make_node("Cast", ["image"], ["raw"], name="raw", to=TensorProto.FLOAT))
    constants["range"], constants["even"] = np.array(255, F), np.array(0, F)
    nodes.append(helper.make_node("Div", ["raw", "range"], ["pixels"], name="pixels"))
    score = net.graph(write)
    nodes.append(helper.make_node("Greater", [score, "even"], ["is_water"], name="is_water"))
    nodes.append(helper.make_node("Cast", ["is_water"], ["water"], name="water", to=TensorProto.UINT8))
    value = lambda name, channels: helper.make_tensor_value_info(name, TensorProto.UINT8, ["N", channels, TILE, TILE])
    held = [numpy_helper.from_array(np.ascontiguousarray(w), n) for n, w in [*weights, *constants.items()]]
    graph = helper.make_graph(nodes, name, [value("image", 3)], [value("water", 1)], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="karman")


def judge(body, x, y):
    """Intersection over union of all pixels, the same in the mean of tiles (1 where both are empty), and F1."""
    session = onnxruntime.InferenceSession(body, providers=["CPUExecutionProvider"])
    found = session.run(["water"], {"image": x})[0] == 1
    both, either = (found & y).sum((1, 2, 3)), (found | y).sum((1, 2, 3))
    by_tile = np.where(either > 0, both / np.maximum(either, 1), 1)
    iou = both.sum() / either.sum()
    return {"iou": round(float(iou), 4), "tile_iou": round(float(by_tile.mean()), 4), "f1": round(float(2 * iou / (1 + iou)), 4)}


def main():
    rng = np.random.default_rng(SEED)
    x, y = some_dry(rng, *tiles(rng, NORTH, 500))
    held = tiles(rng, SOUTH, 150)
    few = some_dry(rng, *held)
    print(len(x), len(held[0]), len(few[0]), flush=True)
    models = []
    for name in FAMILY:
        net = train(name, x, y)
        body = to_onnx(name, net).SerializeToString(deterministic=True)
        (HERE / f"models/{name}.onnx").write_bytes(body)
        models.append({
            "name": name,
            "file": f"{name}.onnx",
            "sha256": hashlib.sha256(body).hexdigest(),
            "bytes": len(body),
            "parameters": sum(p.size for layer in net.layers() for p in layer.params),
            "macs": sum(layer.macs for layer in net.layers()),
            "held_out": judge(body, *held),
            "held_out_wet": judge(body, *few),
        })
        print(json.dumps(models[-1]), flush=True)
    record = {
        "task": "water that can be seen, pixel by pixel",
        "input": {"name": "image", "element": "u8", "shape": ["N", 3, TILE, TILE], "bands": ["green", "red", "near infrared"]},
        "output": {"name": "water", "element": "u8", "shape": ["N", 1, TILE, TILE], "meaning": "1 where there is water"},
        "seed": SEED,
        "tiles": {"trained_on": len(x), "held_out": len(held[0]), "held_out_wet": len(few[0])},
        "models": models,
    }
    (HERE / "models/models.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
