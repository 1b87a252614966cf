"""Pictures of digits, and which of them a client has."""

import random
from dataclasses import dataclass
from pathlib import Path

PIXELS = 64
LABELS = 10

# Read while the component is built: it carries them.
RECORDS = Path(__file__).with_name("digits.bin").read_bytes()


class Invalid(Exception):
    def __init__(self, field, message):
        super().__init__(message)
        self.field, self.message = field, message


@dataclass
class Data:
    """Samples are pairs: 64 levels of ink, 0 to 1, and the label."""

    train: list
    held: list

    @classmethod
    def of(cls, share, alpha, split):
        """A quarter is held back; of the rest each label is dealt out by shares of a Dirichlet distribution."""
        alpha, draw = number("alpha", float, alpha), random.Random(number("split", int, split))
        if not 0 < alpha < float("inf"):
            raise Invalid("alpha", "it is a number above 0")
        samples = [
            ([ink / 16 for ink in RECORDS[at:at + PIXELS]], RECORDS[at + PIXELS])
            for at in range(0, len(RECORDS), PIXELS + 1)
        ]
        draw.shuffle(samples)
        train, held = samples[:len(samples) * 3 // 4], samples[len(samples) * 3 // 4:]
        if share is None:
            return cls(train, held)
        index, count = share
        return cls(dealt(train, count, alpha, draw)[index], held[index::count])


def dealt(samples, count, alpha, draw):
    shards = [[] for _ in range(count)]
    for label in range(LABELS):
        of_label = [sample for sample in samples if sample[1] == label]
        draws = [draw.gammavariate(alpha, 1) for _ in range(count)]
        ends, sum_so_far = [], 0.0
        for one in draws:
            sum_so_far += one / (sum(draws) or 1.0)
            ends.append(round(sum_so_far * len(of_label)))
        ends[-1] = len(of_label)
        start = 0
        for shard, end in zip(shards, ends):
            shard.extend(of_label[start:end])
            start = max(start, end)
    # A client without data would be none.
    for shard in shards:
        if not shard:
            shard.append(max(shards, key=len).pop())
    return shards


def number(field, kind, text):
    try:
        return kind(text)
    except ValueError:
        raise Invalid(field, f"`{text}` is not such a number") from None
