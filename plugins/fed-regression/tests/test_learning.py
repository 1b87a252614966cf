import unittest

from data import Data, Invalid
from model import Model


class Learning(unittest.TestCase):
    def test_shares_are_all_of_it_and_nothing_twice(self):
        shares = [Data.of((index, 7), "0.3", "0") for index in range(7)]
        self.assertEqual(sum(len(share.train) + len(share.held) for share in shares), 1797)
        self.assertTrue(all(share.train and share.held for share in shares))

    def test_it_learns(self):
        data = Data.of((0, 3), "100", "0")
        model = Model.zeros()
        steps, _ = model.train(data.train, 4, 16, 0.3, 1)
        self.assertEqual(steps, 4 * -(-len(data.train) // 16))
        correct, _ = model.judge(data.held)
        self.assertGreater(correct / len(data.held), 0.9)

    def test_what_is_no_number_is_refused(self):
        for alpha in ("0", "-1", "nan", "much"):
            with self.assertRaises(Invalid):
                Data.of((0, 3), alpha, "0")


if __name__ == "__main__":
    unittest.main()
