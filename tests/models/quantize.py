"""Makes the 8-bit twin of digits-l: QDQ, static, calibrated on the digits that it was trained on.

    pip install -r tests/models/requirements.txt
    python tests/models/quantize.py
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from train import HERE, SEED


class Digits(CalibrationDataReader):
    def __init__(self, images):
        self.left = iter({"image": images[i : i + 1]} for i in range(len(images)))

    def get_next(self):
        return next(self.left, None)


def main():
    digits = load_digits()
    index = np.arange(len(digits.target))
    fit, held = train_test_split(index, test_size=0.25, random_state=SEED, stratify=digits.target)
    pixels = np.rint(digits.images * 255 / 16).astype(np.uint8)
    x = (pixels / np.float32(255)).astype(np.float32)[:, None]
    path = HERE / "digits-l-int8.onnx"
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.onnx"
        quant_pre_process(HERE / "digits-l.onnx", ready, skip_symbolic_shape=True)
        quantize_static(
            ready,
            path,
            Digits(x[fit]),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    model = onnx.load(path)
    path.write_bytes(model.SerializeToString(deterministic=True))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for output, answers in zip(session.get_outputs(), session.run(None, {"image": x[held]})):
        right = int((answers.argmax(1) == digits.target[held]).sum())
        print(f"{output.name}: {right} of {len(held)}")
    print({node.op_type: sum(n.op_type == node.op_type for n in model.graph.node) for node in model.graph.node})


if __name__ == "__main__":
    main()
