#!/usr/bin/env python3
"""What benchmarks share: verdicts, the filter of disturbed rounds, the order, equal work; and the
limit that a model's speed is a share of.

Nothing here is timed: the watch and the rounds get figures made up beforehand.
"""
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / "common"), str(ROOT / "benchmarks" / "peers"), str(ROOT / "benchmarks")]

import gemm_limit                                                               # noqa: E402
import harness                                                                  # noqa: E402
import measure                                                                  # noqa: E402
import report                                                                   # noqa: E402
import scale                                                                    # noqa: E402
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


def test_the_interval_of_a_median():
    # Ranks of the tables of the sign test, for 95 %.
    for n, low, high in ((5, 1, 5), (6, 1, 6), (10, 2, 9), (20, 6, 15), (50, 18, 33), (100, 40, 61)):
        assert judge.median_interval(list(range(n, 0, -1))) == (low, high), n


def test_many_pairs_decide_by_their_median():
    values = [100 + 10 * (i % 9 - 4) for i in range(90)]  # quartiles 80 and 120, median 100
    assert judge.verdict(values, 115, at_most=True)["verdict"] == "undecided"
    assert judge.verdict(values, 115, at_most=True, of_median=True)["verdict"] == "met"
    assert judge.verdict(values, 85, at_most=True, of_median=True)["verdict"] == "missed"
    assert judge.verdict(values, 100, at_most=True, of_median=True)["verdict"] == "undecided"


def test_the_noise_of_a_median_falls_with_the_pairs():
    pairs = [(300 * (i % 7 - 3), 0) for i in range(140)]
    assert judge.noise_of_median(pairs[:7]) == 900
    assert judge.noise_of_median(pairs) <= 300
    assert judge.noise_of_median([]) == float("inf")


def test_rounds_add_up():
    def found(n):
        return measure.rounds(n, {"a": lambda: n}, watch=FakeWatch([0.0] * n))

    both = found(2).add(found(3))
    assert both.values("a") == [2, 2, 3, 3, 3] and both.facts()["kept"] == 5 and len(both.watched) == 5


def test_a_share_above_the_whole_is_not_met():
    found = judge.verdict([1.03, 1.031, 1.029], 0.92, most=1.0)
    assert found["verdict"] == "undecided" and "not possible" in found["why"], found
    assert judge.verdict([0.95, 0.951, 0.949], 0.92, most=1.0)["verdict"] == "met"


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


MINILM = {"model_type": "bert", "num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12,
          "intermediate_size": 1536}


def limit_of(*rates):
    limit = gemm_limit.Limit("", 2, MINILM, {})
    limit.rates = list(rates)
    return limit


def rates(fp32, bf16, int8):
    return {"fp32": {"gpuserve": fp32, "oneDNN": fp32 / 2}, "bf16": {"gpuserve": bf16, "oneDNN": 0.0},
            "int8": {"gpuserve": int8, "oneDNN": 0.0}}


def test_the_limit_counts_the_model():
    # 24 products of MiniLM have 10,616,832 weights; attention of n tokens is 2 * 2 * n * n * 384 in each layer.
    n = 100
    operations = 2 * n * 10616832 + 6 * 4 * n * n * 384
    bounds = limit_of(rates(50, 0, 200)).result([n], None)["bounds"]
    assert abs(bounds["fp32"]["pure"]["W2"][0] / (50e9 / operations) - 1) < 1e-9, bounds
    assert abs(bounds["int8"]["pure"]["W2"][0] / (200e9 / operations) - 1) < 1e-9, bounds
    assert "bf16" not in bounds and "mix" not in bounds["int8"]
    assert limit_of(rates(1, 1, 1)).shapes == "6:1152,384:384,384:1536,384:384,1536"


def test_the_mix_counts_kept_products_and_attention_at_their_rate():
    n, kept = 100, ["layer 0 feed-forward out", "layer 3 attention output"]
    slow = 2 * n * (384 * 1536 + 384 * 384)
    fast = 2 * n * 10616832 - slow
    attention = 6 * 4 * n * n * 384
    found = limit_of(rates(50, 100, 200)).result([n], {"kept": kept, "kept_dtype": "bfloat16"})
    wanted = 1 / (fast / 200e9 + (slow + attention) / 100e9)
    mix = found["bounds"]["int8"]["mix"]
    assert abs(mix["W2"][0] / wanted - 1) < 1e-9 and mix["kept"] == 2, mix
    # Without bfloat16 both are in float32.
    found = limit_of(rates(50, 0, 200)).result([n], {"kept": kept, "kept_dtype": "float32"})
    wanted = 1 / (fast / 200e9 + (slow + attention) / 50e9)
    assert abs(found["bounds"]["int8"]["mix"]["W2"][0] / wanted - 1) < 1e-9, found
    # With int16 both are in int16, whatever 16-bit weights multiply at.
    int16 = {**rates(50, 60, 200), "int16": {"gpuserve": 75, "oneDNN": 0.0}}
    found = limit_of(int16).result([n], {"kept": kept, "kept_dtype": "int16"})
    wanted = 1 / (fast / 200e9 + (slow + attention) / 75e9)
    assert abs(found["bounds"]["int8"]["mix"]["W2"][0] / wanted - 1) < 1e-9, found


def test_other_shapes():
    qwen = {"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96}
    assert gemm_limit.shapes_of(qwen) == [(256, 64), (64, 128), (192, 64), (64, 96)]
    assert gemm_limit.attention_flops(qwen, 3) == 2 * 4 * 128 * 6  # causal: 6 of 9 pairs
    modern = {"model_type": "modernbert", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 2,
              "intermediate_size": 96, "local_attention": 8, "global_attn_every_n_layers": 3}
    assert gemm_limit.attention_flops(modern, 100) == 4 * 64 * (100 * 100 + 2 * 100 * 9)


def made_up_run(ours, peer, bound):
    engines = {
        "gpuserve fp32": {"precision": "fp32", "ours": True},
        "peer": {"precision": "fp32", "ours": False, "accuracy": {"cosine_mean": 1.0}},
        "wrong": {"precision": "fp32", "ours": False, "accuracy": {"cosine_mean": 0.5}}}
    for name, value in (("gpuserve fp32", ours), ("peer", peer), ("wrong", 10 * peer)):
        engines[name]["rounds"] = {workload: [value] * 3 for workload in report.WORKLOADS}
        engines[name]["median"] = {workload: value for workload in report.WORKLOADS}
    document = {"engines": engines, "isa_limit": "avx512_vnni", "machine": {"isa": []},
                "limit": {"bounds": {"fp32": {"pure": {"W2": [bound] * 3, "W3": [bound] * 3}}}}}
    document["ratios"] = report.ratios(document)
    return document, report.shares(document)["fp32"]["pure"]["W2"]


def test_a_model_faster_than_its_limit_decides_nothing():
    _, share = made_up_run(103, 80, 100)
    assert share["verdict"] == "undecided" and "not possible" in share["why"], share
    assert made_up_run(95, 80, 100)[1]["verdict"] == "met"
    assert made_up_run(80, 80, 100)[1]["verdict"] == "missed"


def test_a_peer_of_other_vectors_is_no_peer():
    document, _ = made_up_run(95, 80, 100)
    found = document["ratios"]["fp32"]["W2"]
    assert found["peer"] == "peer" and found["ratio"] == 1.188, found
    # 1.25 times the peer is 100, which the limit allows; of a limit of 99 it does not.
    assert not found["limit_forbids"]
    assert made_up_run(95, 80, 99)[0]["ratios"]["fp32"]["W2"]["limit_forbids"]


def test_every_instruction_set_can_be_the_limit():
    source = (ROOT / "kernels/cpu/runtime/dispatch.c").read_text("utf-8")
    names = set(re.findall(r"&gsv_cpu_isa_(avx\w+)", source))
    assert len(names) >= 6 and names == set(harness.ISA_LIMITS) == set(harness.BEYOND), names


def test_an_engine_beyond_the_limit_is_seen():
    seen = harness.reported("onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel DL Boost\n")
    assert seen == "Intel AVX-512 with Intel DL Boost"
    assert harness.exceeds(seen, "avx2") and harness.exceeds(seen, "avx512")
    assert not harness.exceeds(seen, "avx512_vnni")
    assert harness.reported("[info] CPU: x\n [info] - Selected ISA: AVX2\n") == "AVX2"
    assert harness.reported("nothing") is None and not harness.exceeds(None, "avx2")


PROBE = """
#include <cpuid.h>
#include <pthread.h>
#include <stdio.h>
static void *print_bits(void *unused)
{
    unsigned a, b, c, d, e, f, g;
    __cpuid_count(7, 0, a, b, c, d);
    __cpuid_count(7, 1, e, f, f, g);
    printf("%d %d %d %d %d\\n", b >> 5 & 1, b >> 16 & 1, c >> 11 & 1, e >> 5 & 1, d >> 24 & 1);
    return unused;
}
int main(void)
{
    pthread_t thread;
    print_bits(NULL);
    if (pthread_create(&thread, NULL, print_bits, NULL) || pthread_join(thread, NULL))
        return 1;
    return 0;
}
"""
HIDES = {"avx2": "10000", "avx2_vnni": "10000", "avx512": "11000", "avx512_vnni": "11100", "avx512_bf16": "11110",
         "avx512_amx": "11111"}  # of AVX2, AVX512-F, AVX512-VNNI, AVX512-BF16, AMX-TILE: 0 for those hidden


def limited_bits(folder, isa):
    """What CPUID says in a process with the limit, in both of its threads; or the exit status."""
    done = subprocess.run([str(folder / "probe")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env={**os.environ, **(isa and harness.limit_of(isa, folder / "cpuid_limit.so") or {})})
    lines = done.stdout.split("\n")[:-1]
    return done.returncode or [[int(bit) for bit in line.split()] for line in lines]


def test_cpuid_hides_what_is_beyond_the_limit():
    if platform.machine() != "x86_64":
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "probe.c").write_text(PROBE, "utf-8")
        subprocess.run(["cc", "-o", folder / "probe", folder / "probe.c", "-pthread"], check=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-z,initfirst", "-o", folder / "cpuid_limit.so",
                        ROOT / "benchmarks/peers/cpuid_limit.c"], check=True)
        has = limited_bits(folder, None)[0]
        for isa, shown in HIDES.items():
            found = limited_bits(folder, isa)
            wanted = [bit & int(mask) for bit, mask in zip(has, shown)]
            # Without CPUID faulting nothing runs.
            assert found == ([wanted, wanted] if harness.has_cpuid_faulting() else 3), (isa, found, wanted)


def test_without_cpuid_faulting_the_variables_limit():
    assert "LD_PRELOAD" not in harness.limit_of("avx2") and harness.limit_of("avx2")["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert harness.limit_of("avx2", "x.so")["CPUID_LIMIT"] == "avx2" and harness.limit_of(None, "x.so") == {}
    with tempfile.TemporaryDirectory() as folder:
        cpuinfo = Path(folder, "cpuinfo")
        for flags, has in (("fpu cpuid_fault avx2", True), ("fpu avx2", False)):
            cpuinfo.write_text(f"processor : 0\nflags\t\t: {flags}\n", "utf-8")
            assert harness.has_cpuid_faulting(cpuinfo) is has


def test_plan_takes_the_newest_full_run():
    """A quick run has few rounds, and was taken because its name sorts last."""
    engine = {"median": {"W2": 1, "W1-32": 1}, "peak_mb": 1}
    with tempfile.TemporaryDirectory() as folder:
        for name, quick in (("2026-01-01-cpu-peers-x", False), ("2026-01-02-cpu-peers-x", False), ("2026-01-03-cpu-peers-x-quick", True)):
            results = {"quick": quick, "machine": {}, "engines": {scale.KINDS[0]: engine}}
            Path(folder, name + ".json").write_text(json.dumps(results), "utf-8")
        assert Path(scale.node_figures(folder)[0]).name == "2026-01-02-cpu-peers-x.json"


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
