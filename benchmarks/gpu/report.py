"""The table of P1 to P11 from a run's JSON lines: report.py RESULTS.jsonl"""
import json
import sys

GOALS = {"minilm": (0.60, 100000), "base": (0.75, 20000), "large": (0.80, 6000)}
DELAYS = {("minilm", 32): 120, ("base", 128): 300, ("large", 128): 700}


def main():
    lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]

    def find(stage, **fields):
        for line in lines:
            if line.get("stage") == stage and all(line.get(key) == value for key, value in fields.items()):
                return line
        return None

    on_emulator = (find("environment") or {}).get("emulator")

    def row(goal, what, measured, wanted, met, found=None):
        """found: the verdict over rounds, which decides where there is one."""
        measured = None if on_emulator else measured
        verdict = "not measured" if measured is None else "met" if met else "MISSED"
        if measured is not None and found:
            verdict = found["verdict"]
        shown = "-" if measured is None else f"{measured:.4g}"
        print(f"{goal:4} {what:58} {shown:>10} {wanted:>12}  {verdict}")

    for model, (share, speed) in GOALS.items():
        ours = find("encoder", model=model, dtype=2, texts=128, length=128)
        peer = find("peer_products", model=model)
        value = peer["us"] / ours["us"] if ours and peer else None
        row("P1", f"{model}: cuBLASLt's products / our whole encoder", value, f">= {share}", value and value >= share)
        value = ours["texts_per_s"] if ours else None
        row("P2", f"{model}: texts/s at length 128, float16, from ids", value, f">= {speed}", value and value >= speed)
    for of, least in (("default", 3), ("best", 1.3)):
        found = find("library_verdict", of=of)
        value = found["median"] if found else None
        row("P3", f"texts/s over sentence-transformers' {of}", value, f">= {least}", value and value >= least, found)
    for (model, length), most in DELAYS.items():
        ours = find("encoder", model=model, dtype=2, texts=1, length=length)
        value = ours["us"] if ours else None
        row("P4", f"{model}: one text of {length} tokens, us", value, f"<= {most}", value and value <= most)
    ours, peer = find("operation", model="base", name="attention", length=128), find("peer_attention", length=128)
    value = peer["us"] / ours["us"] if ours and peer else None
    row("P5", "base: torch's attention / ours, length 128", value, ">= 0.9", value and value >= 0.9)
    copy = find("ceiling", name="copy")
    for name in ("embed", "layernorm", "pool"):
        ours = find("operation", model="large", name=name, dtype=2)
        value = ours["gb_per_s"] / copy["gb_per_s"] if ours and copy else None
        row("P6", f"large: {name}, share of the copy bandwidth", value, ">= 0.8", value and value >= 0.8)
    for dtype, name, least in ((2, "torch.float16", 0.5), (1, "torch.float32", 0.6)):
        ours, peer = find("operation", model="square", dtype=dtype), find("ceiling", name="matmul", n=4096, dtype=name)
        value = peer["us"] / ours["us"] if ours and peer else None
        row("P7", f"own product of 4096 cubed against torch's, {name}", value, f">= {least}", value and value >= least)
    ours = find("chain", name="generated")
    for what, key, most in (("ms on the device", "ms", 3), ("s of the first call", "cold_s", 1),
                            ("ms of a later call, copies included", "call_ms", 20)):
        value = ours[key] if ours and ours["n"] >= 1 << 20 else None
        row("P8", f"500 operations on a million numbers: {what}", value, f"<= {most}", value is not None and value <= most)
    ours = find("chain", name="from the disk's cache")
    value = ours["cold_s"] * 1e3 if ours and ours["n"] >= 1 << 20 else None
    row("P8", "500 operations: ms of the first call, from the disk's cache", value, "<= 20",
        value is not None and value <= 20)
    ours = find("lstm", name="gpuserve", large=True)
    value = ours["steps_ms"] / ours["fused_ms"] if ours else None
    row("P9", "LSTM: our step-by-step path / fused, float16", value, ">= 5", value and value >= 5,
        ours and ours.get("verdict"))
    peer = find("lstm", name="cudnnRNNForward", large=True) or find("lstm", name="cudnn", large=True)
    value = ours["fused_ms"] / peer["ms"] if ours and peer else None
    row("P9", "LSTM: fused / cuDNN, float16", value, "<= 1.3", value and value <= 1.3, peer and peer.get("verdict"))
    for goal, what, stage, key, least in (("P10", "texts/s over those of this machine's CPU", "backends", "ratio", 20),
                                          ("P11", "HTTP with 64 clients, share of the library's texts/s", "http", "share", 0.7)):
        line = find(stage)
        value = line.get(key) if line else None
        row(goal, what, value, f">= {least}", value is not None and value >= least, line and line.get("verdict"))
    for line in lines:
        if line.get("stage") in ("deterministic", "footprint", "graph", "probe", "chain", "chain_exact", "lstm", "random", "transfer"):
            print("     " + json.dumps(line))
    failed = [line for line in lines if line.get("failed") or line.get("ok") is False]
    for line in failed:
        print("FAILED", json.dumps(line))
    sys.exit(1 if failed else 0)


main()
