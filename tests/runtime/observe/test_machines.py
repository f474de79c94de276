#!/usr/bin/env python3
"""`gpuserve devices` on canned machines, against NVIDIA's own binding and against GPUtil.

usage: test_machines.py GPUSERVE FAKE_DRIVER_FOLDER LIBGPUSERVE

The folder holds a libnvidia-ml.so.1 and a CUDA plugin whose machine the environment names; in its
folder `old` is a driver from before MIG. Tests that run nvidia-smi have a fake one first in PATH.
"""
import json
import os
import random
import stat
import subprocess
import sys
import tempfile
import unittest

PROGRAM, FOLDER, LIBRARY = sys.argv[1:4]
PATIENCE = 240  # seconds, after which it is taken for a hang; what hangs on purpose does so for longer
KNOWN = ("LD_LIBRARY_PATH", "PATH", "CUDA_", "GPUSERVE_FAKE", "GPUSERVE_PLUGIN")
ONE = "GPU-11111111-1111-1111-1111-111111111111"
EIGHT = ["GPU-80000000-0000-0000-0000-000000000000", "GPU-80000001-0000-0000-0000-000000000001",
         "GPU-80000002-0000-0000-0000-000000000002", "GPU-80000003-0000-0000-0000-000000000003",
         "GPU-81000004-0000-0000-0000-000000000004", "GPU-81000005-0000-0000-0000-000000000005",
         "GPU-81000006-0000-0000-0000-000000000006", "GPU-81000007-0000-0000-0000-000000000007"]


def environment(machine=None, cuda=(), folder=FOLDER, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(KNOWN)}
    kept["PATH"] = os.environ["PATH"]
    kept["GPUSERVE_PLUGIN_DIR"] = FOLDER if cuda else "/nonexistent"
    kept["GPUSERVE_FAKE_CUDA"] = ",".join(cuda)
    if machine:
        kept.update(GPUSERVE_FAKE_MACHINE=machine, LD_LIBRARY_PATH=folder)
    kept.update(more)
    return kept


def run(*arguments, env):
    return subprocess.run([PROGRAM, "devices", *arguments], env=env, text=True, timeout=PATIENCE,
                          capture_output=True, check=False)


def report(*arguments, **options):
    done = run("--json", *arguments, env=environment(*options.pop("of", ()), **options))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def selected(selector, env):
    done = run("--select", selector, env=env)
    return done.stdout.split() if done.returncode == 0 else done.stderr


# A host whose handler interrupts calls asks for the devices, and gets one signal meanwhile.
INTERRUPTED = """
import ctypes, signal, sys
lib = ctypes.CDLL(sys.argv[1])
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
context, text = ctypes.c_void_p(), ctypes.create_string_buffer(1 << 16)
assert lib.gpuserve_context_create(ctypes.byref(context), None, None) == 0
signal.setitimer(signal.ITIMER_REAL, 0.5)
assert lib.gpuserve_device_report(context, text, len(text), None, None) == 0
print(len(seen), "signal")
"""

# What nvidia-ml-py says of the same machine, printed as our report has it.
ORACLE = """
import json, pynvml as n
n.nvmlInit()
def ask(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError:
        return None
def gpu(h, index, instance):
    memory, use = n.nvmlDeviceGetMemoryInfo(h), ask(n.nvmlDeviceGetUtilizationRates, h)
    processes = ask(n.nvmlDeviceGetComputeRunningProcesses_v3, h)
    return {"index": index, "mig_instance": instance, "uuid": n.nvmlDeviceGetUUID(h),
            "name": n.nvmlDeviceGetName(h), "memory_bytes": memory.total,
            "memory_used_bytes": memory.used, "memory_free_bytes": memory.free,
            "load_percent": use and use.gpu, "power_milliwatts": ask(n.nvmlDeviceGetPowerUsage, h),
            "temperature_celsius": ask(n.nvmlDeviceGetTemperature, h, 0),
            "processes_count": None if processes is None else len(processes)}
out = []
for i in range(n.nvmlDeviceGetCount()):
    h = ask(n.nvmlDeviceGetHandleByIndex, i)
    if h is None:
        continue
    out.append(gpu(h, i, None))
    if (ask(n.nvmlDeviceGetMigMode, h) or [0])[0]:
        parts = [ask(n.nvmlDeviceGetMigDeviceHandleByIndex, h, k) for k in range(7)]
        out += [gpu(part, i, at) for at, part in enumerate(filter(None, parts))]
print(json.dumps({"version": n.nvmlSystemGetDriverVersion(), "gpus": out}))
"""

# A fake nvidia-smi: answers what is asked of MACHINE, a JSON list of the fields' values by GPU. It has three
# seconds, as the real one: whatever stands for python3 in PATH, and its packages, may take most of them.
SMI = "#!" + sys.executable + """ -IS
import json, os, sys
machine = json.load(open(os.environ["FAKE_SMI"]))
if sys.argv[1].startswith("--query-gpu="):
    fields = sys.argv[1].split("=", 1)[1].split(",")
    if "mig.mode.current" in fields and os.environ.get("FAKE_SMI_OLD"):
        print('Field "mig.mode.current" is not a valid field to query.')
        sys.exit(2)
    for gpu in machine:
        print(", ".join(str(gpu.get(field, "[N/A]")) for field in fields))
elif sys.argv[1] == "-L":
    for gpu in machine:
        print("GPU %s: %s (UUID: %s)" % (gpu["index"], gpu["name"], gpu["uuid"]))
        for at, uuid in enumerate(gpu.get("mig", ())):
            print("  MIG 3g.40gb     Device  %d: (UUID: %s)" % (at, uuid))
elif sys.argv[1].startswith("--query-compute-apps"):
    for gpu in machine:
        for pid, name, used in gpu.get("apps", ()):
            print(", ".join([gpu["uuid"], str(pid), str(used), name]))
"""


class WithSmi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.program(SMI)

    def program(self, text):
        path = os.path.join(self.folder, "nvidia-smi")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def machine(self, gpus):
        path = os.path.join(self.folder, "machine.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(gpus, file)
        return {"FAKE_SMI": path, "PATH": self.folder + ":" + os.environ["PATH"]}


class Nvml(unittest.TestCase):
    def compare(self, machine, folder=FOLDER):
        env = environment(machine, folder=folder)
        oracle = json.loads(subprocess.run([sys.executable, "-c", ORACLE], env=env, check=True,
                                           capture_output=True, text=True).stdout)
        driver = report(of=(machine,), folder=folder)["driver"]
        self.assertTrue(driver["works"])
        self.assertEqual(driver["source"], "nvml")
        self.assertEqual(driver["version"], oracle["version"])
        ours = [{k: gpu[k] for k in oracle["gpus"][0]} for gpu in driver["gpus"]
                if not gpu["lost"]]
        self.assertEqual(ours, oracle["gpus"])
        return driver

    def test_every_figure_is_the_one_that_nvidia_s_binding_reads(self):
        for machine in ("one", "eight", "mixed", "mig", "virtual", "lost", "exclusive",
                        "crowded"):
            with self.subTest(machine):
                self.compare(machine)

    def test_a_driver_from_before_mig(self):
        driver = self.compare("eight", os.path.join(FOLDER, "old"))
        self.assertEqual(driver["cuda_version"], 0)
        self.assertEqual(len(driver["gpus"]), 8)

    def test_a_lost_gpu_is_told_and_the_other_works(self):
        driver = report(of=("lost",))["driver"]
        self.assertEqual([g["cuda"] for g in driver["gpus"]], ["cuda:0", None])
        self.assertTrue(driver["gpus"][1]["lost"])
        self.assertIn("fell off the bus", driver["gpus"][1]["hidden_by"])

    def test_a_driver_that_cannot_start_says_why(self):
        for machine, reason in (("no-module", "kernel driver is not loaded"),
                                ("mismatch", "different versions")):
            driver = report(of=(machine,))["driver"]
            self.assertFalse(driver["works"])
            self.assertIn(reason, driver["reason"])
            self.assertTrue(driver["remedy"])

    def test_a_driver_that_hangs_is_left_alone(self):
        facts = report(of=("hang",))
        self.assertIn("did not answer", facts["driver"]["reason"])
        self.assertEqual(facts["auto"], "cpu")

    def test_processes_that_use_gpuserve_are_marked(self):
        env = environment("one", ["GPU-11111111-1111-1111-1111-111111111111"],
                          GPUSERVE_FAKE_PID=str(os.getpid()))
        process = json.loads(run("--json", env=env).stdout)["devices"][1]["processes"][0]
        self.assertEqual((process["pid"], process["gpuserve"]), (os.getpid(), False))
        self.assertIn("python", process["name"])
        done = subprocess.Popen([PROGRAM, "devices", "--watch", "--json", "--interval", "30"],
                                env=environment(), stdout=subprocess.PIPE, text=True)
        done.stdout.readline()
        env["GPUSERVE_FAKE_PID"] = str(done.pid)
        process = json.loads(run("--json", env=env).stdout)["devices"][1]["processes"][0]
        done.terminate()
        done.communicate()
        self.assertTrue(process["gpuserve"])

    def test_more_processes_than_usual_are_counted_and_listed(self):
        driver = report(of=("crowded",))["driver"]
        self.assertEqual(driver["gpus"][0]["processes_count"], 300)
        env = environment("crowded", ["GPU-77777777-0000-0000-0000-000000000000"])
        device = json.loads(run("--json", env=env).stdout)["devices"][1]
        self.assertEqual([one["pid"] for one in device["processes"]], list(range(1, 301)))

    def test_peers(self):
        facts = report(of=("eight", EIGHT))
        peers = {(p["from"], p["to"]): (p["link"], p["access"]) for p in facts["peers"]}
        self.assertEqual(len(peers), 56)
        self.assertEqual(peers[0, 3], ("nvlink", True))
        self.assertEqual(peers[3, 4], ("system", True))

    def test_the_table_has_it_all(self):
        done = run(env=environment("eight", EIGHT[:2], CUDA_VISIBLE_DEVICES="0,1"))
        for words in ("cuda:0", "97%", "71 C", "690 W", EIGHT[1], "1:nvlink*", "auto: cuda:1",
                      "not shown: GPU 7", "CUDA_VISIBLE_DEVICES", "libraries of the CUDA toolkit",
                      "cuBLASLt", "NVRTC"):
            self.assertIn(words, done.stdout)
        looks = run("--watch", "--json", "--looks", "2", "--interval", "0.05",
                    env=environment("one")).stdout.splitlines()
        self.assertEqual(len([json.loads(look) for look in looks]), 2)


class Visible(unittest.TestCase):
    """CUDA_VISIBLE_DEVICES, by the CUDA programming guide: what CUDA's numbers stand for."""

    def shown(self, machine, devices, order="PCI_BUS_ID"):
        more = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
        if order:
            more["CUDA_DEVICE_ORDER"] = order
        driver = report(of=(machine,), **more)["driver"]
        by_number = {g["cuda"]: (g["index"] if g["mig_instance"] is None
                                 else g["uuid"][:12]) for g in driver["gpus"] if g["cuda"]}
        return [by_number["cuda:%d" % i] for i in range(len(by_number))], driver["visible"]

    def test_all_forms(self):
        cases = [
            (None, [0, 1, 2, 3, 4, 5, 6, 7]), ("", []), ("-1", []), ("2", [2]), ("3,1", [3, 1]),
            ("0,-1,1", [0]), ("0,8,1", [0]), ("0,x,1", [0]), ("1 , 2", [1, 2]), ("1gpu,2", [1, 2]),
            ("0,1,0", []), (",0", []), ("0,", [0]), ("+3", [3]), ("007", [7]), ("NoDevFiles", []),
            (EIGHT[6], [6]), (EIGHT[6].lower().replace("gpu", "GPU"), [6]),
            (EIGHT[1] + "," + EIGHT[0], [1, 0]), ("GPU-80000002", [2]), ("GPU-8000000", []),
            ("GPU-81", []), ("GPU-80000003,GPU-nothing,GPU-80000001", [3]),
            ("GPU-80000003,1", [3]), ("1,GPU-80000003", [1]), (EIGHT[2] + "," + EIGHT[2], []),
        ]
        for devices, wanted in cases:
            with self.subTest(devices):
                self.assertEqual(self.shown("eight", devices)[0], wanted)

    def test_order(self):
        self.assertEqual(self.shown("mixed", None)[0], [0, 1])
        self.assertEqual(self.shown("mixed", None, "FASTEST_FIRST")[0], [1, 0])
        shown, visible = self.shown("mixed", "0", None)
        self.assertEqual((shown, visible["exact"]), ([1], False))
        self.assertTrue(self.shown("mixed", "0")[1]["exact"])
        self.assertEqual(self.shown("mixed", "GPU-aaaa", None)[0], [0])

    def test_mig(self):
        self.assertEqual(self.shown("mig", "MIG-ffffffff-0000-0000-0000-000000000003")[0],
                         ["MIG-ffffffff"])
        self.assertEqual(self.shown("mig", "0")[0], ["MIG-eeeeeeee"])
        self.assertEqual(self.shown("mig", "GPU-dddddddd")[0], [1])

    def test_what_ends_the_list_is_told(self):
        visible = self.shown("eight", "0,nine,1")[1]
        self.assertEqual((visible["list_ends_at"], visible["repeated"]), ("nine", False))
        self.assertTrue(self.shown("eight", "2,2")[1]["repeated"])
        doctor = subprocess.run([PROGRAM, "doctor"], text=True, capture_output=True, check=False,
                                env=environment("eight", CUDA_VISIBLE_DEVICES="0,nine"))
        self.assertIn('"nine" is not a GPU', doctor.stdout)
        self.assertEqual(doctor.returncode, 12, "the driver has GPUs, the plugin is missing")
        self.assertTrue(doctor.stdout.startswith("plugin: "), doctor.stdout)

    def test_the_doctor_believes_cuda(self):
        """Devices that CUDA lists outweigh files that are not there."""
        env = environment("eight", EIGHT[:2], CUDA_VISIBLE_DEVICES="0,1")
        done = subprocess.run([PROGRAM, "doctor", "--json"], text=True, capture_output=True,
                              check=True, env=env)
        stack = json.loads(done.stdout)["stack"]
        self.assertEqual((stack["verdict"], stack["exit_status"]), ("the GPU can be used", 0))
        done = subprocess.run([PROGRAM, "doctor", "--device", "cuda:2"], text=True, env=env,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 21)
        self.assertIn("available are 2", done.stdout.splitlines()[0])


class Selectors(unittest.TestCase):
    def test_names(self):
        env = environment("eight", EIGHT)
        for selector, wanted in (
                ("cpu", ["cpu"]), ("cuda", ["cuda:0"]), ("cuda:3", ["cuda:3"]),
                ("cuda:*", ["cuda:%d" % i for i in range(8)]), (EIGHT[5], ["cuda:5"]),
                ("cuda:6,cuda:1", ["cuda:6", "cuda:1"]),
                ("gpu-80000002", ["cuda:2"]), ("auto", ["cuda:5"]),
                ("auto:order=load", ["cuda:3"]), ("auto:order=memory,max_load=1", ["cuda:5"]),
                ("auto:order=load,limit=3,max_memory=1", ["cuda:3", "cuda:6", "cuda:4"]),
                ("auto:limit=9,exclude=1,2", ["cuda:3", "cuda:4"]),
                ("auto:exclude_uuid=" + EIGHT[1] + "," + EIGHT[2], ["cuda:3"]),
                ("auto:max_load=5%,max_memory=60%", ["cuda:3"]),
                ("auto:memory_free=130G,max_load=0.3", ["cuda:4"]), ("auto:max_load=0", ["cpu"])):
            with self.subTest(selector):
                self.assertEqual(selected(selector, env), wanted)

    def test_numbers_are_cuda_s_and_figures_follow_the_uuid(self):
        facts = report(of=("eight", [EIGHT[7], EIGHT[0]]), CUDA_VISIBLE_DEVICES="7,0")
        self.assertEqual([(d["selector"], d.get("driver_index")) for d in facts["devices"]],
                         [("cpu", None), ("cuda:0", 7), ("cuda:1", 0)])
        self.assertEqual(facts["devices"][2]["load_percent"], 97)

    def test_what_is_wrong_is_named_with_what_there_is(self):
        env = environment("eight", EIGHT[:2], CUDA_VISIBLE_DEVICES="0,1")
        for selector, *words in (
                ("cuda:2", "available are 2", EIGHT[0], "cuda:1", "the machine has 8"),
                ("GPU-99", "no such device", EIGHT[1]), ("GPU-8000000", "cuda:0 and cuda:1 both"),
                (EIGHT[4], "in this machine", "CUDA_VISIBLE_DEVICES=" + EIGHT[4]),
                ("cdua", "is not a device", '"cuda"'), ("cuda:x", "is not a device"),
                ("auto:ordre=load", 'unknown option "ordre"', "did you mean order?"),
                ("auto:order=laod", 'unknown order "laod"', "did you mean load?"),
                ("auto:", 'unknown option ""', "order, limit"), ("auto:limit=0", "limit=0"),
                ("auto:max_load=x", "max_load=x"), ("auto:exclude=a", "exclude=a"),
                ("auto:limit=1,2", 'unknown option "2"'), ("auto:memory_free=8Q", "memory_free=8Q"),
                ("auto:exclude=" + ",".join(map(str, range(40))), "more than 32"),
                ("GPU-" + "1" * 3000, "longer than")):
            with self.subTest(selector):
                message = selected(selector, env)
                for word in words:
                    self.assertIn(word, message)

    def test_why_auto_chose(self):
        facts = report(of=("eight", EIGHT))
        self.assertEqual(facts["auto"], "cuda:5")
        self.assertIn("most memory free of 8", facts["reason"])
        facts = report(of=("exclusive", ["GPU-44444444-0000-0000-0000-000000000000",
                                         "GPU-55555555-0000-0000-0000-000000000001"]))
        self.assertEqual(facts["auto"], "cpu")
        self.assertIn("EXCLUSIVE_PROCESS", facts["reason"])
        self.assertIn("PROHIBITED", facts["reason"])

    def memory(self, *of, **more):
        device = report(of=of, **more)["devices"][1]
        return device["memory_bytes"] >> 30, device["memory_free_bytes"] >> 30, device["limit"]

    def test_memory_is_what_can_be_had(self):
        # CUDA gives a MIG device's UUID as a GPU's; the backend believes in 80 GiB, all free.
        mig = ("mig", ["GPU-ffffffff-0000-0000-0000-000000000003"])
        self.assertEqual(self.memory(*mig), (9, 8, "MIG"))
        self.assertEqual(selected("MIG-ffffffff", environment(*mig)), ["cuda:0"])
        self.assertIn("MIG mode", selected("GPU-cccccccc", environment(*mig)))
        virtual = ("virtual", ["GPU-22222222-0000-0000-0000-000000000000"])
        self.assertEqual(self.memory(*virtual), (8, 5, "vGPU"))
        limit = self.memory("one", [ONE],
                            CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="1=2G,0=16G")
        self.assertEqual(limit, (80, 16, "MPS: 16384 MiB per process"))
        for broken in ("0", "0=", "=1G", "x", "1=2G"):
            self.assertEqual(self.memory("one", [ONE], CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=broken)[2],
                             None)

    def test_the_share_that_mps_gives_is_shown(self):
        share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"}
        self.assertEqual(self.memory("one", [ONE], **share)[2], "MPS: 30 % of its threads")
        both = dict(share, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1G")
        self.assertEqual(self.memory("one", [ONE], **both)[2],
                         "MPS: 1024 MiB per process, 30 % of its threads")
        self.assertEqual(self.memory("mig", ["GPU-ffffffff-0000-0000-0000-000000000003"], **share)[2],
                         "MIG, MPS: 30 % of its threads")
        self.assertIn("30 % of its threads", run(env=environment("one", [ONE], **share)).stdout)
        for broken in ("0", "101", "-5", "x", ""):
            self.assertEqual(self.memory("one", [ONE], CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=broken)[2],
                             None)

    def test_a_model_keeps_to_what_mps_allows(self):
        model = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                             "data", "models", "st-dense")
        for limit, works in (("0=8K", False), ("0=1G", True), ("1=8K", True)):
            env = environment("one", [ONE], CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=limit)
            done = subprocess.run([PROGRAM, "embed", "-m", model, "--device", "cuda:0",
                                   "--dtype", "fp32"], env=env, text=True, input="a text\n",
                                  capture_output=True, timeout=PATIENCE, check=False)
            self.assertEqual(done.returncode == 0, works, done.stderr)
            if not works:
                self.assertIn("the MPS memory limit per process of cuda:0 is 8192", done.stderr)


class Replicas(unittest.TestCase):
    def embed(self, device, env):
        model = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                             "data", "models", "st-dense")
        texts = ["text number %d, and some words" % i for i in range(200)]
        done = subprocess.run([PROGRAM, "embed", "-m", model, "--device", device, "--dtype",
                               "fp32", "--format", "json"], env=env, text=True, timeout=PATIENCE,
                              input="\n".join(texts), capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_several_devices_give_the_rows_of_one(self):
        env = environment("eight", EIGHT[:3])
        wanted = self.embed("cpu", env)
        self.assertEqual(wanted.count("\n"), 200)
        for device in ("cuda:*", "auto:limit=2,max_load=1", EIGHT[2]):
            self.assertEqual(self.embed(device, env), wanted, device)


class Ranges(unittest.TestCase):
    """NVTX. That the fake tool speaks the protocol of NVIDIA's headers was tried with them."""

    def watched(self, library):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "ranges")
            model = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                                 "data", "models", "st-dense")
            done = subprocess.run([PROGRAM, "embed", "-m", model, "one text", "another"],
                                  env=environment(NVTX_INJECTION64_PATH=library,
                                                  GPUSERVE_FAKE_NVTX=log),
                                  capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertEqual((done.returncode, done.stdout.count("\n")), (0, 2), done.stderr)
            if not os.path.exists(log):
                return None
            with open(log, encoding="utf-8") as file:
                return [line.split(" ", 2) for line in file.read().splitlines()]

    def test_a_tool_sees_loading_tokenizing_and_batches(self):
        ranges = self.watched(os.path.join(FOLDER, "libfake-nvtx.so"))
        depth, seen = {}, []
        for kind, thread, *text in ranges:
            depth[thread] = depth.get(thread, 0) + (1 if kind == "push" else -1)
            self.assertGreaterEqual(depth[thread], 0)
            seen += text
        self.assertEqual(set(depth.values()), {0})
        self.assertTrue(seen[0].startswith("gpuserve load ") and seen[0].endswith("st-dense"))
        self.assertEqual(seen[1], "gpuserve tokenize")
        self.assertRegex(seen[-1], r"^gpuserve batch of \d texts, \d+ tokens$")

    def test_a_tool_that_is_none_changes_nothing(self):
        for library in ("/nonexistent.so", os.path.join(FOLDER, "libgpuserve-cuda.so"), FOLDER):
            self.assertIsNone(self.watched(library))


class Smi(WithSmi):
    """The way through nvidia-smi, and GPUtil, which goes it too."""

    def gpus(self, chance, n):
        def maybe(value):
            return "[N/A]" if chance.random() < 0.1 else value
        gpus = []
        for i in range(n):
            total = chance.choice([15360, 40960, 81920])
            used = chance.choice([0, total // 2, total, chance.randrange(total)])
            gpus.append({"index": i, "uuid": "GPU-%08x-0000-0000-0000-000000000000" % i,
                         "name": "NVIDIA Test", "pci.bus_id": "00000000:%02X:00.0" % i,
                         "memory.total": total, "memory.used": used, "memory.free": total - used,
                         "utilization.gpu": maybe(chance.choice([0, 50, 100, chance.randrange(101)])),
                         "temperature.gpu": maybe(40), "power.draw": maybe("101.25"),
                         "driver_version": "580.65.06"})
        return gpus

    def test_get_available_of_gputil(self):
        import GPUtil  # pylint: disable=import-outside-toplevel
        chance = random.Random(5)
        compared = 0
        for _ in range(6):
            gpus = self.gpus(chance, chance.randrange(1, 9))
            more = self.machine(gpus)
            os.environ["FAKE_SMI"] = more["FAKE_SMI"]
            env = environment(cuda=[g["uuid"] for g in gpus], **more)
            for _ in range(6):
                order = chance.choice(["first", "last", "load", "memory"])
                limit = chance.choice([1, 2, 8])
                load, memory = chance.choice([(0.5, 0.5), (0.75, 1), (1, 0.25), (1.01, 1.01)])
                free = chance.choice([0, 1000, 20000])
                nan = chance.choice([False, True])
                ids = chance.sample(range(8), chance.randrange(3))
                uuids = ["GPU-%08x-0000-0000-0000-000000000000" % i
                         for i in chance.sample(range(8), chance.randrange(2))]
                path, os.environ["PATH"] = os.environ["PATH"], more["PATH"]
                theirs = GPUtil.getAvailable(order, limit, load, memory, free, nan, ids, uuids)
                os.environ["PATH"] = path
                words = ["order=" + order, "limit=%d" % limit, "max_load=%s" % load,
                         "max_memory=%s" % memory, "memory_free=%d" % free,
                         "include_unknown=" + ("yes" if nan else "no")]
                words += ["exclude=" + ",".join(map(str, ids))] * bool(ids)
                words += ["exclude_uuid=" + ",".join(uuids)] * bool(uuids)
                ours = selected("auto:" + ",".join(words), env)
                self.assertEqual(ours, ["cuda:%d" % i for i in theirs] or ["cpu"], (words, gpus))
                compared += bool(theirs)
        self.assertGreater(compared, 10)

    def test_fields(self):
        gpus = self.gpus(random.Random(1), 2)
        gpus[0].update({"mig.mode.current": "Enabled", "temperature.gpu": 55, "utilization.gpu": 7,
                        "power.draw": "99.5", "mig": ["MIG-11111111-0000-0000-0000-000000000000"],
                        "apps": [[os.getpid(), "/usr/bin/a, b", 512]]})
        gpus[1].update({"compute_mode": "Exclusive_Process", "memory.total": "[GPU is lost]"})
        driver = report(of=(None,), **self.machine(gpus))["driver"]
        self.assertEqual((driver["source"], driver["version"]), ("nvidia-smi", "580.65.06"))
        first, second, mig = driver["gpus"]
        self.assertEqual((first["load_percent"], first["temperature_celsius"],
                          first["power_milliwatts"], first["mig_mode"]), (7, 55, 99500, True))
        self.assertEqual(first["processes_count"], 1)
        self.assertTrue(second["lost"])
        self.assertEqual((mig["uuid"], mig["mig_instance"], mig["index"]),
                         ("MIG-11111111-0000-0000-0000-000000000000", 0, 0))

    def test_an_old_one_without_mig(self):
        more = self.machine(self.gpus(random.Random(1), 3))
        self.assertEqual(len(report(of=(None,), FAKE_SMI_OLD="1", **more)["driver"]["gpus"]), 3)

    def test_one_that_hangs_floods_or_talks_nonsense(self):
        for program in ("sleep 1000", "yes", "echo nonsense", "exit 9", "printf '0, , , ,'"):
            with self.subTest(program):
                self.program("#!/bin/sh\n" + program + "\n")
                driver = report(of=(None,), **self.machine([]))["driver"]
                self.assertFalse(driver["works"])

    def test_a_flood_of_good_lines(self):
        """What fits is not taken for all of it."""
        line = ("0, %s, NVIDIA Test, 00000000:01:00.0, 15360, 0, 15360, 0, 40, 101.25, [N/A], Default, 580.65.06, [N/A]" % ONE)
        for program, works in (("echo", True), ("yes", False)):
            self.program("#!/bin/sh\nexec %s '%s'\n" % (program, line))
            driver = report(of=(None,), **self.machine([]))["driver"]
            self.assertEqual(driver["works"], works, driver)

    def test_a_signal_of_the_host_does_not_lengthen_the_wait(self):
        self.program("#!/bin/sh\nsleep 1000\n")
        done = subprocess.run([sys.executable, "-c", INTERRUPTED, LIBRARY], timeout=PATIENCE, text=True,
                              env=environment(None, **self.machine([])), capture_output=True,
                              check=False)
        self.assertEqual(done.stdout, "1 signal\n", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
