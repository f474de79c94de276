"""Every file of deploy/ against what it names: Kubernetes' schemas, the options of `gpuserve serve`,
metrics of a running server, packages, and each other."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from serving import Served, environment, gpuserve, main, use_clients  # noqa: E402

use_clients("GPUSERVE_DEPLOY_PYTHON")
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
DEPLOY = os.path.join(ROOT, "deploy")
KUBERNETES = os.path.join(DEPLOY, "kubernetes")
RELEASES = ("1.29", "1.37")
OWN_KINDS = ("ServiceMonitor", "ServingRuntime", "Kustomization")  # of others, with no schema here


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def manifest(*path):
    return yaml.safe_load(read("deploy", "kubernetes", *path))


def merged(base, patch):
    """What kustomize makes of a strategic merge, as far as our patches need it."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {k: merged(base[k], patch[k]) if k in base and k in patch else
                patch.get(k, base.get(k)) for k in {**base, **patch}}
    if isinstance(patch, list) and patch and isinstance(patch[0], dict) and "name" in patch[0]:
        changes = {entry["name"]: entry for entry in patch}
        return [merged(entry, changes.pop(entry["name"], {})) for entry in base] + [*changes.values()]
    return patch


def valid(thing):
    for release in RELEASES:
        kubernetes_validate.validate(thing, release, strict=True)


def options():
    return set(re.findall(r"--[a-z][a-z0-9-]*", gpuserve("serve", "--help").out))


def deployments():
    base = manifest("deployment.yaml")
    yield "deployment.yaml", base
    for name in ("gpu", "mig", "shared"):
        yield name, merged(base, manifest(name, "deployment.yaml"))


class Kubernetes(unittest.TestCase):
    def test_every_file_parses_and_fits_its_schema(self):
        kinds = set()
        for path in glob.glob(KUBERNETES + "/**/*.yaml", recursive=True):
            thing = yaml.safe_load(open(path, encoding="utf-8"))
            kinds.add(thing.get("kind"))
            if "kind" in thing and thing["kind"] not in OWN_KINDS and os.path.dirname(path) == KUBERNETES:
                with self.subTest(path):
                    valid(thing)
        self.assertLessEqual({"Deployment", "Service", "HorizontalPodAutoscaler", "ConfigMap",
                              "PodDisruptionBudget", *OWN_KINDS}, kinds)

    def test_the_schema_refuses(self):
        thing = manifest("deployment.yaml")
        thing["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            valid(thing)

    def test_overlays(self):
        for folder in ("", "gpu", "mig", "shared"):
            for entry in manifest(folder, "kustomization.yaml")["resources"]:
                self.assertTrue(os.path.exists(os.path.join(KUBERNETES, folder, entry)), entry)
        for name, thing in deployments():
            with self.subTest(name):
                valid(thing)
        limits = {name: thing["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
                  for name, thing in deployments()}
        self.assertIn("nvidia.com/gpu", limits["gpu"])
        self.assertTrue([key for key in limits["mig"] if key.startswith("nvidia.com/mig-")])
        self.assertIn("nvidia.com/gpu.shared", limits["shared"])

    def test_sharing(self):
        """The device plugin's configurations make the resources that the overlays ask for."""
        config = manifest("shared", "device-plugin-config.yaml")
        valid(config)
        made = {}
        for name, text in config["data"].items():
            settings = yaml.safe_load(text)
            self.assertEqual(settings.pop("version"), "v1", name)
            self.assertLessEqual(set(settings), {"flags", "sharing"}, name)
            self.assertIn(settings.get("flags", {}).get("migStrategy", "mixed"), ("none", "single", "mixed"))
            for sharing in settings.get("sharing", {}).values():
                for entry in sharing["resources"]:
                    self.assertGreaterEqual(entry["replicas"], 2)
                    made[name] = entry["name"] + (".shared" if sharing["renameByDefault"] else "")
        self.assertEqual(set(made.values()), {"nvidia.com/gpu.shared"})
        values = manifest("shared", "gpu-operator-values.yaml")
        self.assertEqual(values["devicePlugin"]["config"]["name"], config["metadata"]["name"])
        self.assertIn(values["devicePlugin"]["config"]["default"], config["data"])

    def test_the_component_of_kubeflow(self):
        """Its command, with its inputs in place, run by the program."""
        component = yaml.safe_load(read("deploy", "platforms", "kubeflow_component.yaml"))
        with tempfile.TemporaryDirectory() as folder:
            texts, vectors = os.path.join(folder, "texts"), os.path.join(folder, "vectors")
            with open(texts, "w", encoding="utf-8") as file:
                file.write("one\ntwo\n")
            values = {entry["name"]: entry.get("default") for entry in component["inputs"]}
            values.update(texts=texts, vectors=vectors,
                          model=os.path.join(ROOT, "tests", "data", "long-texts", "model"))
            command = [part if isinstance(part, str) else values[next(iter(part.values()))]
                       for part in component["implementation"]["container"]["command"]]
            self.assertEqual(command.pop(0), "gpuserve")
            done = gpuserve(*command)
            self.assertEqual(done.returncode, 0, done.err)
            with open(vectors, encoding="utf-8") as file:
                self.assertEqual([json.loads(line)["index"] for line in file], [0, 1])

    def test_a_serving_runtime_is_a_pod(self):
        runtime = manifest("servingruntime.yaml")
        valid({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"},
               "spec": {"containers": runtime["spec"]["containers"]}})
        self.assertEqual(runtime["spec"]["containers"][0]["name"], "kserve-container")

    def test_they_name_each_other(self):
        things = {name: manifest(name + ".yaml") for name in
                  ("deployment", "service", "pdb", "hpa", "servicemonitor", "configmap")}
        pod = things["deployment"]["spec"]["template"]
        labels = pod["metadata"]["labels"]
        for selector in (things["deployment"]["spec"]["selector"]["matchLabels"],
                         things["service"]["spec"]["selector"],
                         things["pdb"]["spec"]["selector"]["matchLabels"]):
            self.assertLessEqual(selector.items(), labels.items())
        self.assertLessEqual(things["servicemonitor"]["spec"]["selector"]["matchLabels"].items(),
                             things["service"]["metadata"]["labels"].items())
        self.assertEqual(things["servicemonitor"]["spec"]["endpoints"][0]["port"],
                         things["service"]["spec"]["ports"][0]["name"])
        self.assertIn(things["service"]["spec"]["ports"][0]["targetPort"],
                      [port["name"] for port in pod["spec"]["containers"][0]["ports"]])
        target = things["hpa"]["spec"]["scaleTargetRef"]
        self.assertEqual((target["kind"], target["name"]), ("Deployment", "gpuserve"))
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"] + pod["spec"]["initContainers"]:
            for mount in container["volumeMounts"]:
                self.assertIn(mount["name"], volumes)
        self.assertEqual(volumes["config"]["configMap"]["name"],
                         things["configmap"]["metadata"]["name"])

    def test_time_for_the_drain(self):
        """While /health says 503 the server serves on, until no proxy sends new connections any more; then the drain."""
        options = json.loads(manifest("configmap.yaml")["data"]["config.json"])
        self.assertEqual(options["shutdown-delay"], 5)
        for name, thing in deployments():
            pod = thing["spec"]["template"]["spec"]
            self.assertNotIn("lifecycle", pod["containers"][0], name)
            self.assertLess(options["shutdown-delay"] + options["drain-timeout"], pod["terminationGracePeriodSeconds"], name)
        unit = read("deploy", "systemd", "gpuserve.service")
        self.assertLess(30, int(re.search(r"^TimeoutStopSec=(\d+)", unit, re.M)[1]))


class Options(unittest.TestCase):
    """Commands as they stand, tried by --check-config."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def checked(self, arguments, **env):
        done = gpuserve("serve", *arguments, "--check-config", env=environment(**env))
        self.assertEqual(done.returncode, 0, (arguments, done.err))
        return json.loads(done.out)

    def test_manifests(self):
        path = os.path.join(self.folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            config = manifest("configmap.yaml")["data"]["config.json"]
            keys = json.loads(config)["api-key-file"]
            file.write(config.replace(keys, os.path.join(self.folder, "keys.txt")))
        with open(os.path.join(self.folder, "keys.txt"), "w", encoding="ascii") as file:
            file.write("a-key\n")  # what is checked is read
        for name, thing in deployments():
            container = thing["spec"]["template"]["spec"]["containers"][0]
            told = self.checked([argument.replace("/etc/gpuserve/config.json", path)
                                 for argument in container["args"]])
            self.assertEqual(told["port"], container["ports"][0]["containerPort"], name)
            self.assertEqual(told["host"], "0.0.0.0")
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            self.assertIn(os.path.dirname(keys), mounts)
        container = manifest("servingruntime.yaml")["spec"]["containers"][0]
        told = self.checked([a.replace("{{.Name}}", "minilm") for a in container["args"]])
        self.assertEqual(told["models"], ["minilm=/mnt/models"])

    def test_the_model_that_is_pulled_is_the_one_served(self):
        pull = manifest("deployment.yaml")["spec"]["template"]["spec"]["initContainers"][0]
        self.assertEqual(pull["command"][:2], ["gpuserve", "pull"])
        models = json.loads(manifest("configmap.yaml")["data"]["config.json"])["models"]
        self.assertEqual([model.split("=")[-1] for model in models], pull["command"][2:])

    def test_the_unit(self):
        command = re.search(r"^ExecStart=(.*)$", read("deploy/systemd/gpuserve.service"), re.M)[1]
        self.assertEqual(command.split()[:2], ["/usr/bin/gpuserve", "serve"])
        self.assertLessEqual({a for a in command.split() if a.startswith("--")}, options())

    def test_every_flag_there_is(self):
        """In the words of remarks and of README.md too; lines of other programs are not ours. Those of platforms/ are run."""
        foreign = re.compile(r"apt-get|docker |buildah |meson|interval=|--from=|helm |kubectl|--entrypoint|--gpus")
        known = options()
        for path in glob.glob(DEPLOY + "/**/*", recursive=True):
            if os.path.isfile(path) and os.path.basename(os.path.dirname(path)) != "platforms":
                for line in open(path, encoding="utf-8"):
                    if not foreign.search(line):
                        for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", line):
                            self.assertIn(flag, known, path)


class Metrics(Served):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.post("/embed", {"inputs": "one"})
        cls.page = cls.server.get("/metrics").body.decode()
        types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", cls.page, re.M))
        cls.names = set()
        for name, kind in types.items():
            cls.names |= ({name + end for end in ("_bucket", "_sum", "_count")}
                          if kind == "histogram" else {name})
        # Those a server without a GPU does not show.
        cls.names |= set(re.findall(r'{ "(gpuserve_device_\w+)",', read("lib/runtime/observe/prometheus_devices.c")))

    def exist(self, expression, recorded=()):
        # Recorded series have colons; names of labels and words of PromQL do not begin with gpuserve_.
        plain = re.sub(r"\w+:[\w:]+", lambda match: self.assertIn(match[0], recorded) or "", expression)
        used = re.findall(r"\bgpuserve_\w+", re.sub(r'"[^"]*"', '""', plain))
        for name in used:
            self.assertIn(name, self.names, expression)
        for value in re.findall(r'result=~?"([^"]*)"', expression):
            for result in value.split("|"):
                self.assertIn('gpuserve_requests_total{result="%s"}' % result, self.page)
        self.assertEqual([expression.count(a) for a in "([{"], [expression.count(a) for a in ")]}"])
        return used

    def test_rules(self):
        groups = yaml.safe_load(read("deploy/prometheus/rules.yml"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        recorded = {rule["record"] for rule in rules if "record" in rule}
        for rule in rules:
            used = self.exist(rule["expr"], recorded)
            self.assertTrue(used or re.search(r"\w:\w", rule["expr"]), rule)
            if "alert" in rule:
                self.assertIn("severity", rule["labels"])
                self.assertIn("summary", rule["annotations"])
        self.assertGreaterEqual(len(rules), 10)

    @unittest.skipUnless(shutil.which("promtool"), "no promtool")
    def test_rules_by_promtool(self):
        done = subprocess.run(["promtool", "check", "rules", DEPLOY + "/prometheus/rules.yml"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_autoscaler(self):
        wanted = manifest("hpa.yaml")["spec"]["metrics"][0]["pods"]
        rule = manifest("prometheus-adapter.yaml")["rules"]["custom"][0]
        self.assertEqual(rule["name"]["as"], wanted["metric"]["name"])
        series = self.exist(rule["seriesQuery"])
        self.assertEqual(len(series), 1)
        self.assertRegex(series[0], rule["name"]["matches"])
        self.exist(re.sub(r"<<[.]\w+>>", "", rule["metricsQuery"].replace("<<.Series>>", series[0])))

    def test_what_the_queue_can_hold_is_above_what_is_watched_for(self):
        """More than --queue-ms never waits: an autoscaler or an alert at that would never act."""
        config = json.loads(manifest("configmap.yaml")["data"]["config.json"])
        default = re.search(r"--queue-ms N.*?\(default\s+(\d+)\)", gpuserve("serve", "--help").out, re.S)[1]
        most_ms = config.get("queue-ms", int(default))
        target = manifest("hpa.yaml")["spec"]["metrics"][0]["pods"]["target"]["averageValue"]
        self.assertLessEqual(int(re.fullmatch(r"(\d+)m", target)[1]), most_ms / 2)
        alert = re.search(r"queue_seconds:avg5m > ([\d.]+)", read("deploy/prometheus/rules.yml"))[1]
        self.assertLess(float(alert) * 1000, most_ms)

    def test_the_dashboard(self):
        board = json.loads(read("deploy/grafana/dashboard.json"))
        variables = {entry["name"] for entry in board["templating"]["list"]}
        taken, ids = set(), []
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                     for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, panel["title"] + " lies over another")
            self.assertLessEqual(at["x"] + at["w"], 24)
            taken |= cells
            ids.append(panel["id"])
            for target in panel.get("targets", ()):
                self.assertTrue(self.exist(target["expr"]), panel["title"])
                names = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
                self.assertLessEqual(names, variables)
        self.assertEqual(len(ids), len(set(ids)))
        for entry in board["templating"]["list"]:
            if entry["type"] == "query":
                self.assertTrue(self.exist(entry["query"]["query"]))


if __name__ == "__main__":
    main(__name__)
