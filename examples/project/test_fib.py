import unittest

from fib import fib
from shapes import area


class FibTest(unittest.TestCase):
    def test_first_numbers(self):
        self.assertEqual([fib(n) for n in range(8)], [0, 1, 1, 2, 3, 5, 8, 13])

    def test_area(self):
        self.assertEqual(area(6, 7), 42)


if __name__ == "__main__":
    unittest.main()
