"""`gpuserve profile` on the emulated CUDA device, held to the figures that it is held to on a CPU."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))

from common import main  # pylint: disable=wrong-import-position
from test_profile import Figures  # pylint: disable=wrong-import-position


class Emulated(Figures):
    def test_figures_are_those_of_the_configuration(self):
        facts = self.profile("st-dense", "--device", "cuda", "--text-tokens", "8", "--texts", "2")
        self.assertEqual((facts["device"], facts["dtype"], facts["timing"], facts["tokens"]),
                         ("cuda:0", "float16", "differences", 16))
        self.check_figures(facts, "st-dense")
        self.assertGreater(facts["memory"]["weights_bytes"], 0)


if __name__ == "__main__":
    main(__name__)
