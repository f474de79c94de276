"""`gpuserve profile`: its figures against the model's configuration, its trace against the format."""
import json
import os

from common import ROOT, Case, main

MODELS = os.path.join(ROOT, "tests", "data", "models")
PRODUCTS = ("qkv", "attention output", "expand", "contract")
LAYER = ["qkv", "attention", "attention output", "attention norm", "expand", "contract", "ffn norm"]


def model(name):
    return os.path.join(MODELS, name)


def config(name):
    with open(os.path.join(model(name), "config.json"), encoding="utf-8") as file:
        return json.load(file)


class Figures(Case):
    def profile(self, name, *options):
        return json.loads(self.works("profile", model(name), "--json", "--rounds", "3", "--threads", "1",
                                     *options).out)

    def check_figures(self, facts, name):
        shape = config(name)
        hidden, wide = shape["hidden_size"], shape["intermediate_size"]
        layers = shape["num_hidden_layers"]
        self.assertEqual([layer["layer"] for layer in facts["layers"]], list(range(layers)))
        sizes = {"qkv": (3 * hidden, hidden), "attention output": (hidden, hidden),
                 "expand": (wide, hidden), "contract": (hidden, wide)}
        products = {p["stage"]: p for p in facts["products"] if p["stage"] in PRODUCTS}
        self.assertEqual(sorted(products), sorted(PRODUCTS))
        for stage, (columns, inner) in sizes.items():
            product = products[stage]
            self.assertEqual((product["rows"], product["columns"], product["inner"],
                              product["calls"]), (facts["tokens"], columns, inner, layers))
        stages = {s["stage"]: s for s in facts["stages"]}
        for stage in LAYER:
            self.assertEqual(stages[stage]["calls"], layers)
        self.assertEqual([s for s in stages if s in LAYER], LAYER)
        self.assertEqual(stages["tokenize"]["calls"], facts["texts"])
        self.assertAlmostEqual(sum(s["share"] for s in stages.values()), 1, places=6)
        self.assertAlmostEqual(sum(s["us"] for s in stages.values()), facts["us"], delta=0.01)
        self.assertGreater(facts["peak_gflops"], 0)
        memory = facts["memory"]
        self.assertEqual(memory["total_bytes"], sum(v for k, v in memory.items()
                                                    if k != "total_bytes"))
        return products


class Profile(Figures):
    def test_figures_are_those_of_the_configuration(self):
        facts = self.profile("st-dense", "--text-tokens", "8", "--texts", "4")
        self.assertEqual((facts["timing"], facts["texts"], facts["tokens"]), ("operations", 4, 32))
        products = self.check_figures(facts, "st-dense")
        for stage, product in products.items():
            work = 2 * product["rows"] * product["columns"] * product["inner"] * product["calls"]
            self.assertAlmostEqual(product["gflops"], work / (product["us"] * 1000), delta=
                                   product["gflops"] * 1e-6, msg=stage)
            self.assertAlmostEqual(product["of_peak"], product["gflops"] / facts["peak_gflops"],
                                   places=6)
        heads = [p for p in facts["products"] if p["stage"] == "head"]
        self.assertTrue(heads, "the Dense module")

    def test_by_differences(self):
        facts = self.profile("st-dense", "--timing", "differences", "--text-tokens", "16")
        self.assertEqual(facts["timing"], "differences")
        self.check_figures(facts, "st-dense")

    def test_int8_and_a_classifier(self):
        self.check_figures(self.profile("st-poolings", "--dtype", "int8"), "st-poolings")

    def test_the_trace_nests(self):
        path = self.path("trace.json")
        facts = self.profile("st-dense", "--trace", path, "--text-tokens", "12", "--texts", "3")
        with open(path, encoding="utf-8") as file:
            trace = json.load(file)
        self.assertEqual(trace["displayTimeUnit"], "ms")
        spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        names = {e["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
        self.assertEqual(names, {"process_name", "thread_name"})
        self.assertEqual(len(spans) + 2, len(trace["traceEvents"]))
        open_spans, parents = [], {}
        for span in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
            self.assertGreaterEqual(span["dur"], 0)
            self.assertTrue({"name", "cat", "ts", "dur", "pid", "tid", "args"} <= set(span))
            while open_spans and open_spans[-1]["ts"] + open_spans[-1]["dur"] <= span["ts"] + 1e-6 \
                    and span["dur"] > 0:
                open_spans.pop()
            if open_spans:
                outer = open_spans[-1]
                self.assertLessEqual(span["ts"] + span["dur"], outer["ts"] + outer["dur"] + 0.001)
                parents.setdefault(outer["name"], []).append(span["name"])
            open_spans.append(span)
        self.assertEqual(parents["texts to rows"][:1], ["tokenize"])
        for layer in range(config("st-dense")["num_hidden_layers"]):
            self.assertEqual(parents["layer %d" % layer], LAYER)
        self.assertIn("embed", parents["batch"])
        self.assertEqual(spans[0]["args"], {"texts": 3, "tokens": facts["tokens"]})

    def test_tables(self):
        done = self.works("profile", model("st-dense"), "--rounds", "1")
        for words in ("tokenize", "attention output", "GFLOP/s", "of peak", "layers, us:",
                      "memory, MiB:  weights"):
            self.assertIn(words, done.out)

    def test_what_is_wrong_is_told(self):
        self.fails(2, "profile needs one model", "profile")
        self.fails(1, "neither a directory", "profile", self.path("nothing"))
        self.fails(1, "outside 3 to", "profile", model("st-dense"), "--text-tokens", "100000")
        self.fails(1, "exceed a batch", "profile", model("st-dense"), "--texts", "1000000")
        self.fails(1, "No such file", "profile", model("st-dense"), "--rounds", "1", "--trace",
                   self.path("no/folder"))


if __name__ == "__main__":
    main(__name__)
