#!/usr/bin/env python3
"""What benchmarks share: verdicts, the filter of disturbed rounds, the order, equal work.

Nothing here is timed: the watch and the rounds get figures made up beforehand.
"""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "common"))

import measure                                                                  # noqa: E402
import verdict as judge                                                         # noqa: E402


class FakeWatch:
    """A watch whose rounds were disturbed as `seen` says."""

    def __init__(self, seen):
        self.seen = iter(seen)

    def __call__(self):
        return self

    def stop(self):
        share = next(self.seen)
        return {"seconds": 1.0, "others_share": share,
                "disturbed": measure.disturbed(2 * share, 1.0, 2)}


def test_a_clear_figure_is_met_or_missed():
    assert judge.verdict([1.0, 1.01, 0.99], 0.9)["verdict"] == "met"
    assert judge.verdict([0.8, 0.81, 0.79], 0.9)["verdict"] == "missed"
    assert judge.verdict([100, 101, 99], 150, at_most=True)["verdict"] == "met"
    assert judge.verdict([200, 201, 199], 150, at_most=True)["verdict"] == "missed"


def test_a_figure_within_its_spread_is_undecided():
    found = judge.verdict([-22.4, 40, 87.1, 200, 355.0], 150, at_most=True)
    assert found["verdict"] == "undecided" and "spread" in found["why"], found
    # Few values: the distance between the outermost counts, not the quartiles.
    assert judge.verdict([0.80, 0.95, 1.2], 0.9)["verdict"] == "undecided"


def test_a_figure_within_the_noise_floor_is_undecided():
    assert judge.verdict([140, 141, 139], 150, at_most=True)["verdict"] == "met"
    found = judge.verdict([140, 141, 139], 150, at_most=True, noise=11)
    assert found["verdict"] == "undecided" and "noise" in found["why"], found


def test_a_negative_overhead_is_not_met():
    found = judge.verdict([-1272, -1270, -1274], 150, at_most=True, least=0)
    assert found["verdict"] == "undecided" and "not possible" in found["why"], found


def test_too_few_rounds_decide_nothing():
    assert judge.verdict([], 0.9)["verdict"] == "undecided"
    assert judge.verdict([1.0, 1.0], 0.9)["verdict"] == "undecided"
    assert "not measured" in judge.line("x", judge.verdict([], 0.9))


def test_spread_is_complete():
    assert judge.spread([3, 1, 2, 5, 4]) == {"n": 5, "min": 1, "q1": 2, "median": 3, "q3": 4,
                                             "max": 5}
    assert judge.spread([7])["q1"] == 7 and judge.spread([]) == {"n": 0}
    assert "min 1, quartiles 2 to 4, max 5" in judge.line("x", judge.verdict([3, 1, 2, 5, 4], 9))


def test_noise_floor_is_what_the_same_differs():
    assert judge.noise_floor([(10, 12), (10, 9), (5, 5)]) == 1
    assert abs(judge.noise_floor([(9, 11)], relative=True) - 0.2) < 1e-12
    assert judge.noise_floor([]) == 0


def test_unequal_work_is_refused():
    judge.same_input({"library": ["a", "b"], "server": ["a", "b"]})
    judge.same_input({"library": 13, "server": 13})
    for sides in ({"library": 13, "server": 12}, {"a": ["x"], "b": ["y"]}):
        try:
            judge.same_input(sides)
        except ValueError as error:
            assert "unequal work" in str(error)
        else:
            raise AssertionError("accepted")


def test_other_vectors_are_found():
    ours = [[1.0, 0.0], [0.6, 0.8]]
    assert judge.least_cosine(ours, ours) > 0.999999
    assert judge.least_cosine([[1.0, 0.0], [0.8, 0.6]], ours) < 0.97
    assert judge.least_cosine([[1.0, 0.0]], ours) == 0, "a vector is missing"
    assert judge.least_cosine([[1.0], [1.0]], ours) == 0, "another width"
    assert judge.least_cosine([[0.0, 0.0], [0.6, 0.8]], ours) == 0, "an empty vector"


def test_each_part_takes_each_place():
    names = ("a", "b", "c")
    orders = [measure.order(names, number) for number in range(6)]
    for place in range(3):
        assert {one[place] for one in orders} == set(names)
    assert measure.order(("a", "b"), 0) != measure.order(("a", "b"), 1)
    firsts = [measure.order(("a", "b"), number)[0] for number in range(8)]
    assert firsts.count("a") == 4, firsts


def test_machine_time_leaves_interrupts_out():
    stat = "cpu  100 20 30 4000 50 600 700 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"
    assert measure.busy_ticks(stat) == 100 + 20 + 30 + 8
    assert measure.busy_ticks("cpu  100 20 30 4000\n") == 150


def test_process_time_counts_the_whole_tree():
    name = "7 (a) b) S 3 7 7 0 -1 0 0 0 0 0 11 12 13 14 20 0 1"
    assert measure.process_ticks(name) == (3, 50)
    tree = {1: (0, 1000), 3: (1, 5), 7: (3, 50), 8: (7, 100), 9: (1, 7)}
    assert measure.tree_ticks(tree, 3) == 155


def test_own_time_at_full_use_is_no_disturbance():
    # Two cores fully used by ourselves for 2 s: what the filter by "cores busy" was made of.
    assert not measure.disturbed(0.0, 2.0, 2)
    assert not measure.disturbed(0.05, 2.0, 2)
    assert measure.disturbed(0.5, 2.0, 2)


def test_disturbed_rounds_are_dropped_and_counted():
    calls = []
    parts = {name: (lambda name=name: calls.append(name) or len(calls)) for name in ("a", "b")}
    found = measure.rounds(3, parts, FakeWatch([0, 0.5, 0, 0.2, 0, 0]))
    assert len(found.kept) == 3 and found.dropped == 2 and len(calls) == 10, calls
    assert found.facts()["dropped_disturbed"] == 2
    assert calls[:4] == ["a", "b", "b", "a"]


def test_a_machine_that_is_never_quiet_decides_nothing():
    found = measure.rounds(3, {"a": lambda: 1.0}, FakeWatch([0.5] * 6))
    assert found.kept == [] and found.dropped == 6
    assert judge.verdict(found.values("a"), 0.5)["verdict"] == "undecided"


def main():
    passed = failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                passed += 1
            except Exception as error:  # a failed assertion or a broken tool alike
                failed += 1
                print(f"{name}: {type(error).__name__}: {error}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
