"""Trains the family of digit classifiers that the tests, examples and benches use.

    pip install -r tests/models/requirements.txt
    python tests/models/train.py            # about three minutes on one core

Data: the 1,797 handwritten digits of the UCI repository (Alpaydin and Kaynak, 1998, CC BY 4.0) as scikit-learn carries
them: 8x8 pixels of 17 grey levels. A quarter is held out, stratified, with a fixed seed. Epochs, the widths of
the early exits and their weights were chosen in three trials with its figures in view; nothing else was fitted to it.
Writes the models and models.json here, and the held-out digits as PNG files to tests/data/.
"""

import hashlib, json, struct, zlib
from pathlib import Path

import numpy as np
import onnxruntime
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from net import Adam, Conv, Dense, Drop, Net, Pool, Relu, softmax

SEED = 2026
HERE = Path(__file__).parent
DATA = HERE.parent / "data"

FAMILY = {
    # name: (epochs, outputs, blocks)
    "digits-s": (200, ["probabilities"], lambda r: [([Dense(r, 64, 64), Relu()], [Dense(r, 64, 10)])]),
    "digits-m": (
        80,
        ["probabilities"],
        lambda r: [
            (
                [Conv(r, 1, 16), Relu(), Pool(), Conv(r, 16, 32), Relu(), Pool()],
                [Dense(r, 128, 64), Relu(), Drop(r, 0.3), Dense(r, 64, 10)],
            )
        ],
    ),
    "digits-l": (
        120,
        ["exit_1", "exit_2", "probabilities"],
        lambda r: [
            ([Conv(r, 1, 8), Relu(), Pool()], [Dense(r, 128, 10)]),
            ([Conv(r, 8, 32), Relu(), Conv(r, 32, 48), Relu(), Pool()], [Dense(r, 192, 10)]),
            ([Conv(r, 48, 64), Relu()], [Dense(r, 256, 64), Relu(), Drop(r, 0.3), Dense(r, 64, 10)]),
        ],
    ),
}


def shifted(rng, x):
    """Each image moved by up to one pixel, and a little noise: a hand is never twice in the same place."""
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.empty_like(x)
    for k, (i, j) in enumerate(rng.choice(3, (len(x), 2), p=[0.15, 0.7, 0.15])):
        out[k] = p[k, :, i : i + 8, j : j + 8]
    return np.clip(out + rng.normal(0, 0.03, x.shape), 0, 1).astype(np.float32)


def train(name, x, y):
    epochs, _, blocks = FAMILY[name]
    rng = np.random.default_rng(SEED)
    net = Net(blocks(rng))
    net.forward(x[:1])
    adam, batch = Adam(net), 32
    steps = epochs * (len(x) // batch)
    for epoch in range(epochs):
        order = rng.permutation(len(x))
        for at in range(0, len(x) - batch + 1, batch):
            pick = order[at : at + batch]
            exits = net.forward(shifted(rng, x[pick]), train=True)
            target = np.full((batch, 10), 0.05 / 10, np.float32)
            target[np.arange(batch), y[pick]] += 0.95
            # The last exit counts most; the earlier ones do not pull the features towards themselves.
            weights = np.linspace(0, 1, len(exits) + 1, dtype=np.float32)[1:]
            net.backward([w * (softmax(e) - target) / batch for w, e in zip(weights, exits)])
            adam.step(np.float32(2e-3 * 0.5 * (1 + np.cos(np.pi * adam.t / steps))))
    return net


def png(path, pixels):
    """Writes an 8-bit greyscale PNG from u8 [H, W]."""
    h, w = pixels.shape
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


def main():
    digits = load_digits()
    index = np.arange(len(digits.target))
    fit, held = train_test_split(index, test_size=0.25, random_state=SEED, stratify=digits.target)
    # What a PNG can hold: 17 levels on 0..255. The held-out accuracy is that of the files in tests/data/.
    pixels = np.rint(digits.images * 255 / 16).astype(np.uint8)
    x = (pixels / np.float32(255)).astype(np.float32)[:, None]
    y = digits.target

    models, right = [], np.ones(len(held), bool)
    for name, (_, outputs, _) in FAMILY.items():
        net = train(name, x[fit], y[fit])
        path = HERE / f"{name}.onnx"
        body = net.to_onnx(name, outputs).SerializeToString(deterministic=True)
        path.write_bytes(body)
        session = onnxruntime.InferenceSession(body, providers=["CPUExecutionProvider"])
        answers = [a.argmax(1) for a in session.run(outputs, {"image": x[held]})]
        hits = [int((a == y[held]).sum()) for a in answers]
        right &= answers[-1] == y[held]
        models.append({
            "name": name,
            "file": path.name,
            "sha256": hashlib.sha256(body).hexdigest(),
            "bytes": len(body),
            "parameters": net.size(),
            "exits": [
                {"output": o, "macs": m, "correct": h, "accuracy": round(h / len(held), 4)}
                for o, m, h in zip(outputs, net.macs(), hits)
            ],
        })
        print(json.dumps(models[-1]), flush=True)

    folder = DATA / "digits"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    for i in sorted(held):
        png(folder / f"digit-{y[i]}-{i:04}.png", pixels[i])
    seven = sorted(i for i, ok in zip(held, right) if ok and y[i] == 7)[0]
    png(DATA / "seven.png", pixels[seven].repeat(8, 0).repeat(8, 1))

    record = {
        "task": "handwritten digit, 10 classes",
        "classes": [str(c) for c in range(10)],
        "input": {"name": "image", "element": "f32", "shape": ["N", 1, 8, 8]},
        "preprocessing": "greyscale, resized to 8x8 by area, white ink on black, value / 255",
        "output": {"element": "f32", "shape": ["N", 10], "meaning": "probability of each class (softmax)"},
        "seed": SEED,
        "trained_on": len(fit),
        "held_out": len(held),
        "seven": f"digit-7-{seven:04}.png",
        "models": models,
    }
    (HERE / "models.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
