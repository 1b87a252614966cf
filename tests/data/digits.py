"""Writes digits.bin: the 1,797 handwritten digits of the UCI repository (E. Alpaydin, C. Kaynak: Optical Recognition of
Handwritten Digits, 1998, CC BY 4.0) as scikit-learn carries them. One digit is 65 bytes: 64 levels of ink (0 to 16, row by
row), then its label.

    pip install scikit-learn
    python tests/data/digits.py
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
rows = np.column_stack([digits.data, digits.target]).astype(np.uint8)
(Path(__file__).parent / "digits.bin").write_bytes(rows.tobytes())
