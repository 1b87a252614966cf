"""Multinomial logistic regression, in plain Python."""

import math
import random

from data import LABELS, PIXELS


class Model:
    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias

    @classmethod
    def zeros(cls):
        return cls([[0.0] * PIXELS for _ in range(LABELS)], [0.0] * LABELS)

    def probabilities(self, pixels):
        values = [
            sum(map(float.__mul__, row, pixels)) + bias for row, bias in zip(self.weight, self.bias)
        ]
        most = max(values)
        powers = [math.exp(value - most) for value in values]
        total = sum(powers)
        return [power / total for power in powers]

    def train(self, samples, epochs, batch, rate, seed, most_steps=None, proximal=0.0):
        """Plain gradient descent in place; the steps that it took and the mean loss on the way."""
        start, draw = [list(row) for row in self.weight], random.Random(seed)
        start_bias = list(self.bias)
        steps, losses = 0, 0.0
        for _ in range(epochs):
            order = list(samples)
            draw.shuffle(order)
            for at in range(0, len(order), batch):
                if most_steps is not None and steps >= most_steps:
                    break
                losses += self.step(order[at:at + batch], rate, proximal, start, start_bias)
                steps += 1
        return steps, losses / max(steps, 1)

    def step(self, samples, rate, proximal, start, start_bias):
        answers = [(pixels, label, self.probabilities(pixels)) for pixels, label in samples]
        share = rate / len(samples)
        for label in range(LABELS):
            row, origin = self.weight[label], start[label]
            if proximal:
                row = [weight - rate * proximal * (weight - old) for weight, old in zip(row, origin)]
                self.bias[label] -= rate * proximal * (self.bias[label] - start_bias[label])
            for pixels, truth, probabilities in answers:
                by = share * (probabilities[label] - (truth == label))
                row = [weight - by * pixel for weight, pixel in zip(row, pixels)]
                self.bias[label] -= by
            self.weight[label] = row
        return sum(-math.log(max(answer[truth], 1e-12)) for _, truth, answer in answers) / len(samples)

    def judge(self, samples):
        """How many it gets right, and the mean loss."""
        correct, loss = 0, 0.0
        for pixels, label in samples:
            answer = self.probabilities(pixels)
            correct += answer.index(max(answer)) == label
            loss -= math.log(max(answer[label], 1e-12))
        return correct, loss / max(len(samples), 1)
