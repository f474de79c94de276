#!/usr/bin/env python3
"""`gpuserve doctor --root` on broken stacks: the first cause, its remedy and the exit status.

usage: test_doctor.py GPUSERVE [--write]

Each stack is a small tree of files made here. What the program prints for it is in doctor_stacks.txt;
--write makes that file anew, to be read before it is committed.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
EXPECTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "doctor_stacks.txt")
LIB = "usr/lib/x86_64-linux-gnu/"
SITE = "opt/venv/lib/python3.11/site-packages/"
UUIDS = ["GPU-%08d-1111-2222-3333-444444444444" % i for i in range(8)]
CPUINFO = ("processor\t: 0\nmodel name\t: Test CPU\n"
           "flags\t\t: fpu sse2 fma avx2 avx512f avx512_vnni\n")
MEMINFO = ("MemTotal:       65536000 kB\nMemAvailable:   60000000 kB\nHugePages_Total:       0\n"
           "HugePages_Free:        0\nHugepagesize:       2048 kB\n")
MODULES = "nvidia_uvm 1540096 0 - Live 0x0\nnvidia_drm 73728 0 - Live 0x0\nnvidia 56717312 3 nvidia_uvm,nvidia_drm, Live 0x0\n"
NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (dvs-builder)\nGCC version:  gcc version 12.2.0\n"


def shared_object(soname, text=b""):
    """The bytes of an ELF file with a soname, `text` in its only segment."""
    strings = b"\0" + soname.encode() + b"\0"
    at_dynamic = 64 + 2 * 56
    at_strings = at_dynamic + 3 * 16
    dynamic = struct.pack("<QQQQQQ", 14, 1, 5, at_strings, 0, 0)
    body = dynamic + strings + text + b"\0"
    size = at_dynamic + len(body)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 183 if os.uname().machine == "aarch64" else 62, 1,
                         0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096)
    where = struct.pack("<IIQQQQQQ", 2, 4, at_dynamic, at_dynamic, at_dynamic, 48, 48, 8)
    return header + load + where + body


class Root:
    """A tree of files that stands for a machine or a container."""

    def __init__(self, folder):
        self.folder = folder
        self.variables = {}
        self.put("proc/cpuinfo", CPUINFO)
        self.put("proc/meminfo", MEMINFO)
        self.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")

    def at(self, path):
        return os.path.join(self.folder, path)

    def put(self, path, content=""):
        os.makedirs(os.path.dirname(self.at(path)), exist_ok=True)
        with open(self.at(path), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())

    def link(self, path, target):
        os.makedirs(os.path.dirname(self.at(path)), exist_ok=True)
        os.symlink(target, self.at(path))

    def remove(self, *paths):
        for path in paths:
            os.unlink(self.at(path))

    def library(self, path, soname, real=None):
        """A library, or a link to its file `real` in the same folder."""
        if real:
            self.link(path, real)
        self.put(os.path.join(os.path.dirname(path), real) if real else path, shared_object(soname))

    def environ(self, **variables):
        self.variables.update(variables)
        self.put("proc/1/environ", "".join("%s=%s\0" % pair for pair in self.variables.items()))

    # --------------------------------------------------------------------------------- parts

    def gpu_id(self, number, address="0000:01:00.0"):
        self.put("sys/bus/pci/devices/%s/device" % address, number + "\n")

    def gpuserve(self, cuda=13000, targets=None):
        self.put("usr/bin/gpuserve", "#!/bin/sh\nexit 99\n")
        self.library(LIB + "libgpuserve.so.0", "libgpuserve.so.0", "libgpuserve.so.0.1.0")
        self.put(LIB + "gpuserve/libgpuserve-cuda.so",
                 shared_object("libgpuserve-cuda.so", b"gpuserve-plugin-build cuda=%d" % cuda +
                               (b" targets=" + targets.encode() if targets else b"")))

    def cuda12(self):
        """The second plugin, for older drivers, and the libraries of its CUDA."""
        self.put(LIB + "gpuserve/libgpuserve-cuda12.so",
                 shared_object("libgpuserve-cuda12.so", b"gpuserve-plugin-build cuda=12040 targets=sm_80+sm_90+ptx_90"))
        self.toolkit(12, "usr/local/cuda-12.4/lib64")

    def toolkit(self, major=13, folder="usr/local/cuda/lib64"):
        for stem, number, full in (("cublasLt", major, "%d.1.0.3" % major), ("nvrtc", major, "%d.0.88" % major),
                                   ("cudnn", 9, "9.13.0"), ("curand", 10, "10.4.0.35")):
            self.library("%s/lib%s.so.%d" % (folder, stem, number), "lib%s.so.%d" % (stem, number),
                         "lib%s.so.%s" % (stem, full))

    def gpu_on_bus(self, driver="nvidia"):
        self.put("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
        self.put("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
        if driver:
            self.link("sys/bus/pci/devices/0000:01:00.0/driver", "../../../../bus/pci/drivers/" + driver)

    def module(self, version="580.65.06", gpus=1):
        self.put("proc/driver/nvidia/version", NVRM % version)
        self.put("proc/modules", MODULES)
        for i in range(gpus):
            self.put("proc/driver/nvidia/gpus/0000:0%d:00.0/information" % (i + 1),
                     "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t %s\nBus Location: \t 0000:0%d:00.0\n"
                     "Device Minor: \t %d\nGPU Excluded:\t No\n" % (UUIDS[i], i + 1, i))
        self.gpu_on_bus()

    def devices(self, gpus=1):
        for name in ["nvidiactl", "nvidia-uvm"] + ["nvidia%d" % i for i in range(gpus)]:
            self.put("dev/" + name)
            os.chmod(self.at("dev/" + name), 0o666)

    def libcuda(self, version="580.65.06", folder=LIB):
        self.library(folder + "libcuda.so.1", "libcuda.so.1", "libcuda.so." + version)

    def host(self, driver="580.65.06", cuda=13000, gpus=1, targets=None):
        """A machine with a GPU on which all works."""
        self.gpuserve(cuda, targets)
        self.toolkit(cuda // 1000)
        self.module(driver, gpus)
        self.devices(gpus)
        self.libcuda(driver)

    def container(self, driver="580.65.06", mounted=True, **options):
        """The same within a container: the driver's library is mounted from the host."""
        self.host(driver, **options)
        self.put(".dockerenv")
        self.environ(PATH="/usr/bin", NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility")
        lines = ["20 1 0:30 / / rw - overlay overlay rw"]
        if mounted:
            lines.append("21 20 8:1 /usr/lib/libcuda.so.%s /%slibcuda.so.%s ro - ext4 /dev/sda1 ro" % (driver, LIB, driver))
        self.put("proc/1/mountinfo", "\n".join(lines) + "\n")


# -------------------------------------------------------------------------------------------- stacks

STACKS = []


def stack(function):
    STACKS.append(function)
    return function


@stack
def host_where_all_works(root):
    root.host(gpus=2)


@stack
def container_where_all_works(root):
    root.container()


@stack
def machine_without_gpu(root):
    root.gpuserve()


@stack
def machine_without_gpu_but_gpu_asked(root):
    root.gpuserve()
    return ["--device", "cuda:0"]


@stack
def machine_with_gpu_but_cpu_asked(root):
    root.host()
    root.remove("dev/nvidia-uvm")
    return ["--device", "cpu"]


@stack
def gpu_without_any_driver(root):
    root.gpuserve()
    root.gpu_on_bus("nouveau")


@stack
def cuda_image_on_a_host_without_gpu(root):
    root.gpuserve()
    root.put(".dockerenv")
    root.environ(NVIDIA_VISIBLE_DEVICES="all")


@stack
def pod_without_gpu_on_a_host_with_one(root):
    root.gpuserve()
    root.module()
    root.environ(KUBERNETES_SERVICE_HOST="10.0.0.1")


@stack
def library_missing(root):
    root.host()
    root.remove(LIB + "libgpuserve.so.0")


@stack
def plugin_missing(root):
    root.host()
    root.remove(LIB + "gpuserve/libgpuserve-cuda.so")


@stack
def plugin_without_code_for_a_newer_gpu(root):
    root.host(targets="sm_80+sm_90")
    root.gpu_id("0x2901")


@stack
def plugin_with_ptx_for_a_newer_gpu(root):
    root.host(targets="sm_80+sm_90+ptx_90")
    root.gpu_id("0x2901")


@stack
def plugin_with_code_for_an_older_gpu_of_its_generation(root):
    root.host(targets="sm_80+sm_90")
    root.gpu_id("0x2684")


@stack
def gpu_older_than_every_target(root):
    root.host(targets="sm_80+sm_90+ptx_90")
    root.gpu_id("0x1eb8")


@stack
def one_of_two_gpus_has_no_code(root):
    root.host(gpus=2, targets="sm_90+ptx_90")
    root.gpu_id("0x2330")
    root.gpu_id("0x20b0", "0000:02:00.0")


@stack
def plugin_truncated(root):
    root.host()
    path = root.at(LIB + "gpuserve/libgpuserve-cuda.so")
    os.truncate(path, os.path.getsize(path) - 8)


@stack
def cublaslt_missing(root):
    root.host()
    root.remove("usr/local/cuda/lib64/libcublasLt.so.13")


@stack
def cublaslt_of_another_cuda(root):
    root.host()
    root.remove("usr/local/cuda/lib64/libcublasLt.so.13")
    root.library("usr/local/cuda-12.8/lib64/libcublasLt.so.12", "libcublasLt.so.12", "libcublasLt.so.12.8.4.1")


@stack
def cublaslt_renamed_to_another_version(root):
    root.host()
    root.remove("usr/local/cuda/lib64/libcublasLt.so.13")
    root.library("usr/local/cuda/lib64/libcublasLt.so.12", "libcublasLt.so.12")
    root.link("usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so.12")


@stack
def wheel_of_cuda_13(root):
    root.module()
    root.devices()
    root.libcuda()
    root.environ(PATH="/opt/venv/bin:/usr/bin", VIRTUAL_ENV="/opt/venv")
    root.library(SITE + "gpuserve/_native/libgpuserve.so.0", "libgpuserve.so.0")
    root.put(SITE + "gpuserve-0.1.0.dist-info/METADATA")
    root.put(SITE + "gpuserve/_native/libgpuserve-cuda.so",
             shared_object("libgpuserve-cuda.so", b"gpuserve-plugin-build cuda=13000"))
    for folder, name, wheel in (("cu13", "libcublasLt.so.13", "nvidia_cublas-13.1.0.3"),
                                ("cu13", "libnvrtc.so.13", "nvidia_cuda_nvrtc-13.0.88"),
                                ("cu13", "libcurand.so.10", "nvidia_curand-10.4.0.35"),
                                ("cudnn", "libcudnn.so.9", "nvidia_cudnn_cu13-9.13.0.50")):
        root.library(SITE + "nvidia/%s/lib/%s" % (folder, name), name)
        root.put(SITE + wheel + ".dist-info/METADATA")


@stack
def wheel_of_cuda_12_on_driver_525(root):
    root.module("525.147.05")
    root.devices()
    root.libcuda("525.147.05")
    root.environ(PATH="/usr/bin")
    site = "usr/local/lib/python3.9/site-packages/"
    root.library(site + "gpuserve/_native/libgpuserve.so.0", "libgpuserve.so.0")
    root.put(site + "gpuserve/_native/libgpuserve-cuda.so",
             shared_object("libgpuserve-cuda.so", b"gpuserve-plugin-build cuda=12080"))
    for folder, name, wheel in (("cublas", "libcublasLt.so.12", "nvidia_cublas_cu12-12.8.4.1"),
                                ("cuda_nvrtc", "libnvrtc.so.12", "nvidia_cuda_nvrtc_cu12-12.8.93")):
        root.library(site + "nvidia/%s/lib/%s" % (folder, name), name)
        root.put(site + wheel + ".dist-info/METADATA")


@stack
def cudnn_of_another_cuda(root):
    root.host(cuda=12080)
    root.toolkit(12, "usr/local/cuda-12.8/lib64")
    root.put("usr/local/cuda/lib64/libcudnn_adv.so.9", shared_object("libcudnn_adv.so.9", b"libcublasLt.so.13"))


@stack
def cudnn_of_the_plugins_cuda(root):
    root.host()
    root.put("usr/local/cuda/lib64/libcudnn_adv.so.9", shared_object("libcudnn_adv.so.9", b"libcublasLt.so.13"))


@stack
def conda_environment(root):
    root.host()
    root.environ(CONDA_PREFIX="/opt/conda", PATH="/usr/bin")
    root.remove("usr/local/cuda/lib64/libcublasLt.so.13", "usr/local/cuda/lib64/libnvrtc.so.13")
    root.library("opt/conda/lib/libcublasLt.so.13", "libcublasLt.so.13", "libcublasLt.so.13.0.2.14")
    root.library("opt/conda/targets/x86_64-linux/lib/libnvrtc.so.13", "libnvrtc.so.13", "libnvrtc.so.13.0.88")


@stack
def driver_too_old_for_cuda_13(root):
    root.host("550.163.01")


@stack
def driver_too_old_for_cuda_12(root):
    root.host("470.256.02", cuda=12080)


@stack
def driver_550_with_both_plugins(root):
    root.host("550.163.01")
    root.cuda12()


@stack
def driver_580_with_both_plugins(root):
    root.host()
    root.cuda12()


@stack
def driver_too_old_for_both_plugins(root):
    root.host("470.256.02")
    root.cuda12()


@stack
def plugin_of_cuda_12_alone_without_its_libraries(root):
    root.host("535.261.03")
    root.cuda12()
    root.remove(LIB + "gpuserve/libgpuserve-cuda.so", "usr/local/cuda-12.4/lib64/libcublasLt.so.12",
                "usr/local/cuda-12.4/lib64/libnvrtc.so.12")


@stack
def driver_550_with_cuda_compat_580(root):
    root.host("550.163.01")
    root.libcuda("580.65.06", "usr/local/cuda/compat/")
    root.put("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
    root.put("etc/ld.so.conf.d/000_cuda.conf", "/usr/local/cuda/compat\n")


@stack
def cuda_compat_older_than_the_driver(root):
    root.container("590.10.01")
    root.libcuda("580.65.06", "usr/local/cuda/compat/")
    root.environ(LD_LIBRARY_PATH="/usr/local/cuda/compat")


@stack
def library_and_module_differ_after_an_update(root):
    root.host("580.65.06")
    root.put("proc/driver/nvidia/version", NVRM % "575.57.08")


@stack
def libcuda_missing(root):
    root.host()
    root.remove(LIB + "libcuda.so.1")


@stack
def libcuda_empty_in_the_image(root):
    root.container(mounted=False)
    root.remove(LIB + "libcuda.so.1")
    root.put(LIB + "libcuda.so.1")


@stack
def libcuda_is_the_toolkits_stub(root):
    root.host()
    root.remove(LIB + "libcuda.so.1")
    root.library("usr/local/cuda/lib64/stubs/libcuda.so.1", "libcuda.so.1")
    root.environ(LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs", PATH="/usr/bin")


@stack
def driver_mounted_outside_the_loaders_path(root):
    root.container()
    root.remove(LIB + "libcuda.so.1")
    root.libcuda(folder="usr/local/nvidia/lib64/")


@stack
def driver_mounted_and_in_the_loaders_path(root):
    root.container()
    root.remove(LIB + "libcuda.so.1")
    root.libcuda(folder="usr/local/nvidia/lib64/")
    root.environ(LD_LIBRARY_PATH="/usr/local/nvidia/lib64")
    root.put("proc/1/mountinfo", "20 1 0:30 / / rw - overlay overlay rw\n"
             "21 20 8:1 /opt/nvidia /usr/local/nvidia ro - ext4 /dev/sda1 ro\n")


@stack
def ldconfig_not_run(root):
    root.host()
    root.remove(LIB + "libcuda.so.1")
    root.libcuda(folder="opt/nvidia/lib/")
    root.put("etc/ld.so.conf", "/opt/nvidia/lib # the driver\n")
    root.put("etc/ld.so.cache", b"glibc-ld.so.cache1.1\0libc.so.6\0")


@stack
def driver_baked_into_the_image(root):
    root.container(mounted=False)
    root.put("proc/driver/nvidia/version", NVRM % "570.172.08")


@stack
def driver_baked_into_the_image_of_the_hosts_version(root):
    root.container(mounted=False)


@stack
def container_started_without_gpus(root):
    root.container()
    root.remove(LIB + "libcuda.so.1", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0")


@stack
def container_with_utility_capability_only(root):
    root.container()
    root.remove(LIB + "libcuda.so.1")
    root.environ(NVIDIA_DRIVER_CAPABILITIES="utility")


@stack
def module_not_loaded(root):
    root.host()
    root.remove("proc/driver/nvidia/version", "proc/driver/nvidia/gpus/0000:01:00.0/information")
    root.remove("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0")


@stack
def module_built_for_another_kernel(root):
    module_not_loaded(root)
    root.put("proc/sys/kernel/osrelease", "6.8.0-60-generic\n")
    root.put("lib/modules/6.8.0-45-generic/updates/dkms/nvidia.ko.zst")
    root.put("lib/modules/6.8.0-60-generic/modules.dep")


@stack
def gpu_held_by_nouveau(root):
    module_not_loaded(root)
    root.remove("sys/bus/pci/devices/0000:01:00.0/driver")
    root.gpu_on_bus("nouveau")


@stack
def gpu_given_to_a_virtual_machine(root):
    module_not_loaded(root)
    root.remove("sys/bus/pci/devices/0000:01:00.0/driver")
    root.gpu_on_bus("vfio-pci")


@stack
def uvm_module_not_loaded(root):
    root.host()
    root.put("proc/modules", "nvidia 56717312 3 - Live 0x0\n")
    root.remove("dev/nvidia-uvm")


@stack
def device_file_of_uvm_missing(root):
    root.host()
    root.remove("dev/nvidia-uvm")


@stack
def device_files_for_root_only(root):
    root.host()
    os.chmod(root.at("dev/nvidiactl"), 0o600)


@stack
def visible_devices_with_a_typo(root):
    root.host(gpus=2)
    root.environ(CUDA_VISIBLE_DEVICES="cuda:0", PATH="/usr/bin")


@stack
def visible_devices_with_a_typo_in_the_second_entry(root):
    root.host(gpus=2)
    root.environ(CUDA_VISIBLE_DEVICES="1,2", PATH="/usr/bin")


@stack
def visible_devices_empty(root):
    root.host()
    root.environ(CUDA_VISIBLE_DEVICES="", PATH="/usr/bin")


@stack
def visible_devices_twice(root):
    root.host(gpus=2)
    root.environ(CUDA_VISIBLE_DEVICES="1,1", PATH="/usr/bin")


@stack
def mig_without_its_device_files(root):
    root.host()
    root.put("proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "DeviceFileMinor: 3\n")
    root.environ(CUDA_VISIBLE_DEVICES="MIG-11111111-2222-3333-4444-555555555555", PATH="/usr/bin")


@stack
def mig_without_a_choice(root):
    root.host()
    root.put("proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access", "DeviceFileMinor: 3\n")
    root.put("dev/nvidia-caps/nvidia-cap3")


@stack
def mps_daemon_ended(root):
    root.host()
    root.put("tmp/nvidia-mps/nvidia-cuda-mps-control.pid", "4711\n")


@stack
def mps_folder_not_there(root):
    root.host()
    root.environ(CUDA_MPS_PIPE_DIRECTORY="/run/mps", PATH="/usr/bin")


@stack
def pod_that_sees_all_gpus(root):
    root.container(gpus=2)
    root.environ(KUBERNETES_SERVICE_HOST="10.0.0.1")


@stack
def windows_subsystem(root):
    root.gpuserve()
    root.toolkit()
    root.put("dev/dxg")
    root.library("usr/lib/wsl/lib/libcuda.so.1", "libcuda.so.1")
    root.put("etc/ld.so.conf", "/usr/lib/wsl/lib\n")


@stack
def small_container_on_an_old_processor(root):
    root.gpuserve()
    root.put(".dockerenv")
    root.put("proc/cpuinfo", CPUINFO.replace(" fma avx2 avx512f avx512_vnni", ""))
    root.put("proc/1/cgroup", "0::/\n")
    root.put("sys/fs/cgroup/cpu.max", "50000 100000\n")
    root.put("sys/fs/cgroup/memory.max", str(256 << 20) + "\n")
    root.put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
    root.put("proc/meminfo", MEMINFO.replace("HugePages_Free:        0", "HugePages_Free:    16000"))


@stack
def container_of_one_and_a_half_cpus(root):
    root.gpuserve()
    root.put(".dockerenv")
    root.put("proc/1/cgroup", "0::/\n")
    root.put("proc/1/status", "Name:\tserver\nCpus_allowed_list:\t0-3\n")
    root.put("sys/fs/cgroup/cpu.max", "150000 100000\n")


@stack
def container_of_one_and_a_quarter_cpus(root):
    root.gpuserve()
    root.put("sys/fs/cgroup/cpu.max", "125000 100000\n")


# --------------------------------------------------------------------------------------------- tests

def doctor(*arguments):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "NVIDIA_", "GPUSERVE_P"))}
    return subprocess.run([PROGRAM, "doctor", *arguments], text=True, capture_output=True, check=False, timeout=60,
                          env=clean)


def printed(function):
    """The exit status and the part of the output that tells of the layers."""
    with tempfile.TemporaryDirectory() as folder:
        root = Root(folder)
        more = function(root) or []
        done = doctor("--root", folder, *more)
        assert not done.stderr, done.stderr
        shown = done.stdout.split("\nversion:")[0].replace(folder, "ROOT")
        lines = [line.rstrip() for line in shown.rstrip().splitlines()]
        return "== %s: exit status %d\n%s\n" % (function.__name__, done.returncode, "\n".join(lines))


class Stacks(unittest.TestCase):
    maxDiff = None

    def test_each_stack_has_its_expected_output(self):
        with open(EXPECTED, encoding="utf-8") as file:
            wanted = dict((part.split(":", 1)[0], "== " + part.rstrip() + "\n")
                          for part in ("\n" + file.read()).split("\n== ")[1:])
        self.assertEqual(list(wanted), [function.__name__ for function in STACKS])
        for function in STACKS:
            with self.subTest(function.__name__):
                self.assertEqual(printed(function), wanted[function.__name__])

    def test_json_has_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            driver_too_old_for_cuda_13(Root(folder))
            done = doctor("--json", "--root", folder)
        stack_ = json.loads(done.stdout)["stack"]
        self.assertEqual((stack_["cause"], stack_["exit_status"], done.returncode), ("cudart", 17, 17))
        self.assertIn("580", stack_["verdict"])
        self.assertEqual([layer["layer"] for layer in stack_["layers"]][:3], ["program", "library", "plugin"])
        layer = stack_["layers"][8]
        self.assertEqual((layer["path"], layer["version"]), ("/" + LIB + "libcuda.so.1", "550.163.01"))


class Hostile(unittest.TestCase):
    """A root of foreign origin: nothing outside of it is read, nothing of it runs or hangs the program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.outside = os.path.join(folder.name, "outside")
        with open(self.outside, "w", encoding="utf-8") as file:
            file.write(NVRM % "999.99.99")
        os.mkdir(os.path.join(folder.name, "root"))
        self.root = Root(os.path.join(folder.name, "root"))
        self.root.host()

    def stack(self, status=None):
        done = doctor("--json", "--root", self.root.folder)
        if status is not None:
            self.assertEqual(done.returncode, status, done.stdout)
        return json.loads(done.stdout)["stack"]

    def test_links_stay_inside(self):
        for target in (self.outside, "../../../../outside", "/../outside", "../" * 30 + self.outside[1:]):
            with self.subTest(target):
                os.unlink(self.root.at("proc/driver/nvidia/version"))
                self.root.link("proc/driver/nvidia/version", target)
                self.assertNotIn("999", json.dumps(self.stack(19)))

    def test_an_absolute_link_is_within_the_root(self):
        os.rename(self.root.at("proc/driver/nvidia/version"), self.root.at("version"))
        self.root.link("proc/driver/nvidia/version", "/version")
        self.assertEqual(self.stack(0)["layers"][9]["version"], "580.65.06")

    def test_a_folder_link_leads_nowhere_outside(self):
        os.rename(self.root.at("proc/driver"), self.root.at("driver"))
        self.root.link("proc/driver", "/../../driver")
        self.assertEqual(self.stack(0)["cause"], None)

    def test_loops_pipes_and_folders_in_place_of_files(self):
        os.unlink(self.root.at("proc/driver/nvidia/version"))
        self.root.link("proc/driver/nvidia/version", "version")
        self.stack(19)
        os.unlink(self.root.at("proc/driver/nvidia/version"))
        os.mkfifo(self.root.at("proc/driver/nvidia/version"))
        self.stack(19)
        os.unlink(self.root.at("proc/driver/nvidia/version"))
        os.mkdir(self.root.at("proc/driver/nvidia/version"))
        self.stack(19)

    def test_bytes_of_any_kind(self):
        self.root.put("proc/1/environ", b"CUDA_VISIBLE_DEVICES=\x1b[31m\xff\xfe,0\0=\0\0LD_LIBRARY_PATH=::;:/\xff:" + b"/a" * 3000)
        text = json.dumps(self.stack(21))
        self.assertNotIn("\\u001b", text)
        self.root.put("etc/ld.so.conf", "include /etc/ld.so.conf\n" * 50 + "include */x\ninclude\n" + "/x" * 4000)
        self.root.put("proc/driver/nvidia/gpus/0000:01:00.0/information", b"\xff" * 5000)
        self.root.put("proc/modules", b"\0" * 100000)
        self.root.put("proc/meminfo", "MemTotal: 99999999999999999999999 kB\nHugepagesize: 99999999999999 kB\nHugePages_Free: 99999999\n")
        self.root.put("sys/fs/cgroup/cpu.max", "18446744073709551615 1\n")
        self.stack()

    def test_libraries_of_random_bytes(self):
        good = shared_object("libcuda.so.1")
        path = LIB + "libcuda.so.580.65.06"
        for i in range(0, len(good), 9):
            self.root.put(path, good[:i] + b"\xff" * 8 + good[i + 8:])
            self.stack()
            self.root.put(path, good[:i])
            self.stack(18)

    def test_a_root_that_is_none(self):
        for path in ("/nonexistent", self.outside):
            done = doctor("--root", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(path, done.stderr)

    def test_many_files(self):
        for i in range(300):
            self.root.put("lib/modules/%d/x" % i)
            self.root.put("sys/bus/pci/devices/a%d/vendor" % i, "0x8086\n")
        self.stack(0)


class ThisMachine(unittest.TestCase):
    def test_a_machine_without_gpu_has_no_fault(self):
        if os.path.exists("/proc/driver/nvidia"):
            self.skipTest("a machine with a GPU")
        done = doctor()
        self.assertEqual((done.returncode, done.stdout.splitlines()[0]), (0, "no GPU: the CPU is used"))
        done = doctor("--device", "cpu")
        self.assertEqual((done.returncode, done.stdout.splitlines()[0]), (0, "the CPU is used, as asked"))

    def test_a_gpu_that_is_asked_for_is_missed(self):
        if os.path.exists("/proc/driver/nvidia"):
            self.skipTest("a machine with a GPU")
        done = doctor("--device", "cuda:0")
        self.assertGreaterEqual(done.returncode, 12)
        self.assertTrue(done.stdout.splitlines()[1].startswith("remedy: "), done.stdout)


if __name__ == "__main__":
    if "--write" in sys.argv:
        with open(EXPECTED, "w", encoding="utf-8") as out:
            out.write("\n".join(printed(function) for function in STACKS))
    else:
        unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
