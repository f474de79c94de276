"""The Dockerfiles: linted, each step against what it names, and the last stage's root put together from
what is here, in which the server runs as Kubernetes would run it. deploy/README.md tells how the images
themselves were built."""
import functools
import glob
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "http"))
from serving import MINILM, Served, environment, gpuserve, main, use_clients  # noqa: E402

use_clients("GPUSERVE_DEPLOY_PYTHON")

ROOT = os.path.dirname(os.path.dirname(HERE))
DEPLOY = os.path.join(ROOT, "deploy")
PROGRAM = os.environ["GPUSERVE"]
BUILD = os.path.dirname(os.path.dirname(PROGRAM))
EMULATED = os.path.join(BUILD, "tests/cudaemu/libgpuserve-cuda.so")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def steps_of(name):
    """(instruction, the rest) in order; continued lines joined, remarks gone."""
    text = re.sub(r"^#.*\n", "", read("deploy", "docker", name), flags=re.M)
    return [tuple(line.split(None, 1)) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def last_of(name, instruction):
    return [rest for step, rest in steps_of(name) if step == instruction][-1]


def variables_of(name):
    return dict(pair.split("=", 1) for step, rest in steps_of(name) if step == "ENV" for pair in rest.split())


class Docker(Served):
    names = ("Dockerfile", "Dockerfile.cuda")

    def test_steps(self):
        for name in self.names:
            steps = steps_of(name)
            known = {"FROM", "RUN", "COPY", "ENV", "ARG", "VOLUME", "EXPOSE", "USER", "STOPSIGNAL",
                     "HEALTHCHECK", "ENTRYPOINT"}
            self.assertLessEqual({step for step, _ in steps}, known)
            self.assertEqual([step for step, _ in steps].count("FROM"), 2)
            self.assertIn(("ENTRYPOINT", '["gpuserve", "serve"]'), steps)
            self.assertNotIn([rest for step, rest in steps if step == "USER"][-1], ("0", "root"))
            for step, rest in steps:
                if step == "RUN":
                    done = subprocess.run(["bash", "-n", "-c", rest], check=False)
                    self.assertEqual(done.returncode, 0, rest)

    def test_hadolint(self):
        """Except DL3008: a package's version that is pinned is gone from Debian's archive soon."""
        program = os.path.join(os.path.dirname(sys.executable), "hadolint")
        for name in self.names:
            done = subprocess.run([program, "--ignore", "DL3008", "--no-color", os.path.join(DEPLOY, "docker", name)],
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        done = subprocess.run([program, "-"], input="FROM debian\nRUN cd /tmp\n", capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0, "it refuses nothing")

    def test_the_toolkit_is_the_one_the_kernels_are_held_to(self):
        version = re.search(r"^ARG CUDA=(\d+\.\d+)\.\d+$", read("deploy/docker/Dockerfile.cuda"), re.M)[1]
        self.assertIn("nvidia-cuda-nvcc==%s." % version, read("tools/dev/cuda-requirements.txt"))
        self.assertTrue(read("kernels/cuda/release_targets.txt").split())
        self.assertEqual(last_of("Dockerfile.cuda", "ARG"), "GPU_TARGETS=release")

    def test_what_is_sent_to_the_build(self):
        """Neither history nor builds; everything that meson.build of the root takes."""
        left_out = read(".dockerignore").split()
        for name in (".git", "build*", "dist"):
            self.assertIn(name, left_out)
        for name in re.findall(r"^subdir\('([\w/]+)'\)", read("meson.build"), re.M):
            self.assertNotIn(name.split("/")[0], left_out)

    def test_commands_of_the_readme(self):
        """Those of README.md name the file, the volume, the port and the variables of the image, and serve what they pull."""
        build, pull, serve = map(shlex.split, re.findall(r"^    (docker .*)$", read("README.md"), re.M))
        after = lambda command, option: command[command.index(option) + 1]  # noqa: E731
        self.assertEqual(after(build, "-f"), "deploy/docker/Dockerfile")
        image = after(build, "-t")
        self.assertEqual((after(pull, image), pull[-1]), ("pull", serve[-1]))
        self.assertEqual(serve[serve.index(image):-1], [image])  # the entry point has the command
        self.assertEqual({after(command, "-v").split(":")[1] for command in (pull, serve)}, {last_of("Dockerfile", "VOLUME")})
        self.assertEqual(after(serve, "-p").split(":")[1], last_of("Dockerfile", "EXPOSE"))
        self.assertEqual(last_of("Dockerfile", "EXPOSE"), variables_of("Dockerfile")["GPUSERVE_PORT"])
        self.assertEqual(after(serve, "-e").split("=")[0], "GPUSERVE_API_KEY")

    def test_packages(self):
        """What is built with is what ./dev installs, except the tests' libdnnl."""
        declared = re.search(r"^build_packages=\((.*?)^\)", read("tools/dev/packages.sh"),
                             re.M | re.S)[1]
        want = {need.rstrip("?").split("|")[0] for need in shlex.split(declared)} - {"libdnnl-dev"}
        for name in self.names:
            runs = [rest for step, rest in steps_of(name) if step == "RUN"]
            self.assertLessEqual(want, set(runs[0].split()), name)

    @unittest.skipUnless(shutil.which("dpkg") and "bookworm" in open("/etc/os-release").read(),
                         "not the release of the image")
    def test_libraries(self):
        """Each library that the program and the server need is in a package of the last stage."""
        program = os.environ["GPUSERVE"]
        ours = glob.glob(os.path.dirname(os.path.dirname(program)) + "/lib/**/libgpuserve*.so.0",
                         recursive=True)
        self.assertGreaterEqual(len(ours), 2)
        needed = set()
        for path in [program, *ours]:
            out = subprocess.run(["objdump", "-p", path], capture_output=True, text=True,
                                 check=True).stdout
            needed |= set(re.findall(r"NEEDED +(\S+)", out))
        packages = {"libc6", "libgcc-s1"}
        for name in self.names:
            packages |= set([r for s, r in steps_of(name) if s == "RUN"][-1].split())
        for library in needed:
            if re.match(r"libgpuserve|libasan|libubsan|libtsan", library):
                continue
            owners = subprocess.run(["dpkg", "-S", "*/" + library], capture_output=True, text=True,
                                    check=False).stdout
            found = {line.split(":")[0] for line in owners.splitlines()}
            self.assertTrue(found & packages, (library, found))

    def test_build_options(self):
        declared = set(re.findall(r"^option\('(\w+)'", read("meson_options.txt"), re.M))
        for name in self.names:
            for _, rest in [step for step in steps_of(name) if "meson setup" in step[-1]]:
                given = set(re.findall(r"-D(\w+)=", rest))
                self.assertLessEqual(given - {"buildtype", "prefix", "libdir", "strip"}, declared)
                # Without it meson asks for the distribution's way, by a program the image has not.
                self.assertIn("-Dlibdir=lib ", rest)
                self.assertIn("/out/usr/lib/pkgconfig", rest)

        self.assertIn("-Dcuda=enabled", read("deploy/docker/Dockerfile.cuda"))

    def test_environment(self):
        for name in self.names:
            ours = {key: value for key, value in variables_of(name).items() if key.startswith("GPUSERVE_")}
            done = gpuserve("serve", "some/model", "--check-config", env=environment(**ours))
            told = json.loads(done.out)
            self.assertEqual((told["host"], told["port"]), ("0.0.0.0", 8080), name)
            refused = gpuserve("serve", MINILM, env=environment(**{**ours, "GPUSERVE_PORT": "0"}))
            self.assertNotEqual(refused.returncode, 0, "open to all without a key")
            self.assertIn("--insecure", refused.err)

    def test_health_check(self):
        for name in self.names:
            rest = [rest for step, rest in steps_of(name) if step == "HEALTHCHECK"][0]
            command = json.loads(rest.split(" CMD ", 1)[1])
            for port, healthy in ((self.server.port, True), (1, False)):
                done = subprocess.run(command, env={**os.environ, "GPUSERVE_PORT": str(port)},
                                      capture_output=True, timeout=20, check=False)
                self.assertEqual(done.returncode == 0, healthy, (name, port, done.stderr))


def install(root):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", root], check=True, stdout=subprocess.DEVNULL)


def one_of(root, name):
    return glob.glob(root + "/**/" + name, recursive=True)[0]


@functools.cache
def libraries(program):
    """What the loader takes for a program: (name, file), the loader itself with its whole path."""
    out = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*(\S+) => (/\S+) \(", out, re.M)
    return found + [(path, path) for path in re.findall(r"^\s*(/\S+) \(", out, re.M)]


SANITIZED = unittest.skipIf(any("san.so" in name for name, _ in libraries(PROGRAM)), "sanitizers are no part of the image")


@SANITIZED
class Installed(unittest.TestCase):
    """What `meson install` puts in place, as the build stage does."""

    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        install(self.root)

    def test_the_program_finds_its_libraries(self):
        program = one_of(self.root, "bin/gpuserve")
        done = subprocess.run([program, "--version"], env={}, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(os.path.exists(EMULATED), "no emulator here")
    def test_the_plugin_is_found_where_it_is_installed(self):
        rest = re.search(r"install_dir: get_option\('libdir'\) / '(\w+)'", read("kernels/cuda/meson.build"))[1]
        folder = os.path.join(os.path.dirname(one_of(self.root, "libgpuserve.so.0")), rest)
        os.makedirs(folder, exist_ok=True)
        shutil.copy(EMULATED, folder)
        emulator = {"LD_LIBRARY_PATH": os.path.dirname(EMULATED)}  # in the place of CUDA's runtime
        done = subprocess.run([one_of(self.root, "bin/gpuserve"), "doctor"], env=emulator, capture_output=True, text=True, check=False)
        self.assertRegex(done.stdout, r"(?m)^plugin +ok .*/libgpuserve-cuda\.so$")


@unittest.skipUnless(os.geteuid() == 0, "only root may change its root")
@SANITIZED
class Root(unittest.TestCase):
    """The last stage's root: what `meson install` puts there, the libraries, bash and a model."""
    environment = {**variables_of("Dockerfile"), "PATH": "/usr/bin", "GPUSERVE_API_KEY": "k", "GPUSERVE_PORT": "0"}

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        os.chmod(cls.root, 0o755)
        staged = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, staged)
        install(staged)
        cls.put(one_of(staged, "bin/gpuserve"), "usr/bin/gpuserve")
        for name in ("libgpuserve.so.0", "libgpuserve-http.so.0"):
            cls.put(one_of(staged, name), "usr/lib/" + name)
        cls.put(shutil.which("bash"), "usr/bin/bash")
        # The program loads the server's library when it runs.
        for program in (PROGRAM, os.path.join(BUILD, "lib/http/libgpuserve-http.so.0"), shutil.which("bash")):
            for name, path in libraries(program):
                if not name.startswith("libgpuserve"):
                    cls.put(path, name.lstrip("/") if name.startswith("/") else "usr/lib/" + name)
        shutil.copytree(MINILM, os.path.join(cls.root, "models/minilm"))

    @classmethod
    def put(cls, path, name):
        to = os.path.join(cls.root, name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(path, to)

    def inside(self, *command, **changes):
        """A process in that root, as the user of the image, with the variables of the image alone."""
        user, group = map(int, last_of("Dockerfile", "USER").split(":"))

        def enter():
            os.chroot(self.root)
            os.chdir("/")
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
        process = subprocess.Popen(command, executable="/usr/bin/" + command[0], preexec_fn=enter,
                                   env={**self.environment, **changes}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_it_serves_and_ends(self):
        entry = json.loads(last_of("Dockerfile", "ENTRYPOINT"))
        server = self.inside(*entry, "/models/minilm")
        url = server.stdout.readline().strip()
        self.assertRegex(url, r"^http://0\.0\.0\.0:\d+$", server.stderr.read() if not url else "")
        port = url.rsplit(":", 1)[1]
        with open("/proc/%d/status" % server.pid, encoding="ascii") as file:
            self.assertRegex(file.read(), r"Uid:\t65532\t65532\t65532\t65532")
        self.assertEqual(self.health(port), 0)
        server.send_signal(getattr(signal, last_of("Dockerfile", "STOPSIGNAL")))
        self.assertEqual(server.wait(timeout=60), 0)
        self.assertNotEqual(self.health(port), 0)

    def health(self, port):
        command = json.loads(last_of("Dockerfile", "HEALTHCHECK").split(" CMD ", 1)[1])
        return self.inside(*command, GPUSERVE_PORT=port).wait(timeout=20)

    def test_without_a_key_it_says_what_is_missing(self):
        server = self.inside("gpuserve", "serve", "/models/minilm", GPUSERVE_API_KEY="")
        self.assertNotEqual(server.wait(timeout=60), 0)
        self.assertIn("--insecure", server.stderr.read())


if __name__ == "__main__":
    main(__name__)
