#!/usr/bin/env python3
"""`gpuserve bench --transfer` on the emulated CUDA device, whose copies last as long as the environment says."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))

from common import Case, environment, main  # pylint: disable=wrong-import-position

# Nanoseconds of a KiB. Each kind has its own, so that no other kind passes for it.
COSTS = {("to device", "pageable"): 10000, ("to device", "pinned"): 20000,
         ("from device", "pageable"): 40000, ("from device", "pinned"): 80000}
KIB = (4, 16, 64, 256)


class Emulated(Case):
    def test_rows_are_of_their_direction_memory_and_size(self):
        slow = environment(GSV_EMU_COPY_NS=",".join(map(str, COSTS.values())))
        found = json.loads(self.works("bench", "--transfer", "--device", "cuda:0", "--max-bytes", "256KiB", "--json",
                                      env=slow).out)
        self.assertEqual(found["device"], "cuda:0")
        self.assertEqual([(row["bytes"], row["direction"], row["memory"]) for row in found["rows"]],
                         [(kib * 1024, *kind) for kib in KIB for kind in COSTS])
        for row in found["rows"]:
            # A copy of fewer bytes, or of a cheaper kind, is faster than that.
            least = row["bytes"] / 1024 * COSTS[row["direction"], row["memory"]] * 1e-9
            self.assertGreaterEqual(row["seconds"], least, row)
            self.assertAlmostEqual(row["bytes_per_s"] * row["seconds"] / row["bytes"], 1, delta=1e-6)
        longest = {kind: row["seconds"] for kind, row in zip(COSTS, found["rows"][-4:])}
        self.assertEqual(sorted(longest, key=longest.get), list(COSTS))

    def test_table(self):
        table = self.works("bench", "--transfer", "--device", "cuda", "--max-bytes", "16KiB").out.splitlines()
        self.assertEqual(table[3].split(), "to device, pageable to device, pinned from device, pageable from device, pinned".split())
        self.assertEqual(table[4].split(), ["size"] + 4 * ["ms", "GB/s"])
        self.assertEqual([line.split()[:2] for line in table[5:]], [["4", "KiB"], ["16", "KiB"]])
        self.assertEqual({len(line.split()) for line in table[5:]}, {10})

    def test_sizes_are_bounded_by_the_memory(self):
        small = environment(GSV_EMU_MEMORY=str(80 << 20))
        found = json.loads(self.works("bench", "--transfer", "--device", "cuda:0", "--json", env=small).out)
        largest = max(row["bytes"] for row in found["rows"])
        self.assertLess(largest, 80 << 20)
        self.assertGreaterEqual(largest, 4 << 20)
        self.fails(1, "a copy of 268435456 bytes is over the memory", "bench", "--transfer", "--device", "cuda:0",
                   "--max-bytes", "256MiB", env=small)


if __name__ == "__main__":
    main(__name__)
