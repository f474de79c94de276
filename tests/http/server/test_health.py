"""Live, ready and deep apart; a GPU that is lost, on the emulator of CUDA."""
import os
import unittest

from serving import MINILM, PATIENCE, Server, environment, main, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SMALL = os.path.join(ROOT, "tests", "data", "models", "st-newer")
SECOND = "second=" + SMALL
PLUGIN = os.environ.get("GPUSERVE_EMULATED_PLUGIN", os.path.join(ROOT, "build/tests/cudaemu"))
READY = ("/readyz", "/health", "/healthz", "/ping", "/v2/health/ready", "/v2/models/st-newer/ready")


class Health(unittest.TestCase):
    def setUp(self):
        self.server = None

    def tearDown(self):
        if self.server:
            self.server.stop(9)

    def statuses(self):
        return {path: self.server.get(path).status for path in READY}

    def all_are(self, status):
        self.assertEqual(self.statuses(), dict.fromkeys(READY, status))

    def figure(self, name):
        for line in self.server.get("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
        raise AssertionError(name)

    def stop(self):
        server, self.server = self.server, None
        code, err = server.stop()
        self.assertEqual(code, 0, err)
        return err

    def on_a_gpu(self, *arguments, error=700, at=3000, devices=1):
        """A server whose device fails in its `at`-th call to CUDA: long after it was loaded."""
        self.server = Server(SMALL, "--device", "cuda:0", "--warmup", "off", *arguments, env=environment(
            GPUSERVE_PLUGIN_DIR=PLUGIN, GSV_EMU_FAIL="%d:%d" % (at, error), GSV_EMU_DEVICES=str(devices)))

    def test_warm_up(self):
        """Batches run before the server is ready: on a GPU, and where the option says so."""
        small = ("--batch-tokens", "64", "--max-tokens", "32")
        for device, words, runs in (("cpu", (), False), ("cpu", ("--warmup", "on"), True), ("cuda:0", (), True),
                                    ("cuda:0", ("--warmup", "off"), False)):
            with self.subTest(device, words=words):
                self.server = Server(SMALL, "--device", device, *small, *words, env=environment(GPUSERVE_PLUGIN_DIR=PLUGIN))
                self.assertEqual(self.figure("gpuserve_batches_total") > 0, runs)
                self.stop()

    def until_it_fails(self):
        """Requests are answered, until one is not; that one."""
        n = 0
        while True:
            reply = self.server.post("/embed", {"inputs": "a text %d" % n})
            if reply.status != 200:
                self.assertGreater(n, 0, reply.body)
                return reply
            n += 1
            self.assertLess(n, 5000, "the planted fault did not happen")

    def test_a_lost_device(self):
        for error in (700, 719):
            self.on_a_gpu(error=error)
            self.all_are(200)
            failed = self.until_it_fails()
            self.all_are(503)  # from the very next moment
            self.assertEqual((failed.status, failed.json()["error_type"]), (424, "Backend"))
            self.assertIn("CUDA error %d " % error, failed.json()["error"])
            self.assertIn("CUDA error %d " % error, self.server.get("/readyz").json()["error"])
            self.assertEqual(self.server.get("/health").json()["error_type"], "Unhealthy")
            self.assertEqual(self.server.get("/livez").status, 200)
            self.assertEqual(self.figure("gpuserve_http_ready"), 0)
            index = self.server.post("/v2/repository/index", {}).json()
            self.assertEqual([one["state"] for one in index], ["UNAVAILABLE"])
            self.assertEqual(self.server.post("/v2/repository/index", {"ready": True}).json(), [])
            deep = self.server.get("/health/deep")
            self.assertEqual((deep.status, deep.json()["ready"]), (503, False))
            self.assertIn("CUDA error %d " % error, deep.json()["models"][0]["error"])
            # never an answer again that looks good
            for _ in range(3):
                self.assertEqual(self.server.post("/embed", {"inputs": "b"}).status, 424)
            self.stop()

    def goes_on(self, policy, devices, where):
        self.on_a_gpu("--on-device-lost", policy, devices=devices)
        on_gpu = self.server.post("/embed", {"inputs": "a dog"})
        self.assertNotEqual(on_gpu.headers["x-compute-type"], "cpu")
        self.until_it_fails()
        wait_until(lambda: self.server.get("/readyz").status == 200)
        self.all_are(200)
        after = self.server.post("/embed", {"inputs": "a dog"})
        self.assertEqual(after.headers["x-compute-type"], where)
        for got, want in zip(after.json()[0], on_gpu.json()[0]):
            self.assertLessEqual(abs(got - want), 2e-2)
        self.assertEqual(self.server.get("/health/deep").status, 200)
        self.stop()

    def test_it_goes_on_on_the_cpu(self):
        self.goes_on("cpu", 2, "cpu")

    def test_it_goes_on_on_another_gpu(self):
        self.goes_on("gpu", 2, "cuda:1")

    def test_it_goes_on_on_the_cpu_where_there_is_no_other_gpu(self):
        self.goes_on("gpu-or-cpu", 1, "cpu")

    def test_it_fails_where_there_is_no_other_gpu(self):
        self.on_a_gpu("--on-device-lost", "gpu")
        self.until_it_fails()
        self.all_are(503)
        self.assertEqual(self.server.post("/embed", {"inputs": "b"}).status, 424)
        self.stop()

    def test_it_ends(self):
        """And says why, with an exit code that lets a supervisor start it anew."""
        self.on_a_gpu("--on-device-lost", "exit")
        self.assertIn("CUDA error 700 ", self.until_it_fails().json()["error"])
        server, self.server = self.server, None
        _, err = server.process.communicate(timeout=PATIENCE)
        self.assertEqual(server.process.returncode, 1, err)
        self.assertIn("the device is lost: CUDA error 700 ", err)

    def test_one_of_two_models(self):
        """The other one's device is lost for both: what is left is not ready either."""
        self.on_a_gpu(SECOND, at=5000)
        self.until_it_fails()
        self.assertEqual(self.server.get("/v2/models/second/ready").status, 503)
        self.assertEqual(self.server.get("/readyz").status, 503)
        self.stop()

    def test_deep(self):
        self.server = Server(MINILM, SECOND, "--model-control", "--api-key", "secret")
        key = {"Authorization": "Bearer secret"}
        self.assertEqual(self.server.get("/health/deep").status, 401)
        self.assertEqual(self.server.get("/livez").status, 200)
        reply = self.server.get("/health/deep", **key)
        self.assertEqual(reply.status, 200)
        self.assertEqual([(one["name"], one["status"], one["error"])
                          for one in reply.json()["models"]],
                         [("all-MiniLM-L6-v2", "GPUSERVE_OK", None), ("second", "GPUSERVE_OK", None)])
        # a model that a client unloads is no illness, the default one's absence is
        for name, status in (("second", 200), ("all-MiniLM-L6-v2", 503)):
            done = self.server.post("/v2/repository/models/%s/unload" % name, {}, key)
            self.assertEqual(done.status, 200)
            reply = self.server.get("/readyz")
            self.assertEqual((reply.status, "no model is loaded" in reply.body.decode()), (status, status == 503))
            self.assertEqual(self.server.get("/health/deep", **key).status, status)
            self.assertEqual(self.server.get("/livez").status, 200)
        self.server.post("/v2/repository/models/all-MiniLM-L6-v2/load", {}, key)
        self.assertEqual(self.server.get("/readyz").status, 200)
        self.stop()


if __name__ == "__main__":
    main(__name__)
