#!/usr/bin/env python3
"""Leave out each member of each cache key, one at a time: some test must fail.

    cache_keys.py [KEY...]      through `./dev limits keys`

A cache that ignores a member of its key gives one caller what was computed for another. KEYS has every cache:
where its keys are compared, and the tests that must notice. The comparison is cut at && or ||; each operand in
turn is replaced by what lets every entry match, in a copy of the tree below build-limits/, and the tests run.
An operand of EQUIVALENT only saves time: what follows it decides. Prints a table; the last line is
"N noticed, N unnoticed".
"""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "build-limits" / "keys"
BUILD = TREE / "build"

# key: (file, text of the comparison, operator, tests)
KEYS = {
    "CUDA graph, shape": ("kernels/cuda/runtime/graph_cache.cu", """a->n_rows == b->n_rows && a->n_sequences == b->n_sequences &&
           a->tile_height == b->tile_height && a->short_texts == b->short_texts""", "&&",
                          ["kernels-cuda-batch"]),
    "CUDA graph, program": ("kernels/cuda/runtime/graph_cache.cu",
                            "graph->last_use > 0 && graph->program == program && same_shape(&graph->shape, shape)", "&&",
                            ["kernels-cuda-batch"]),
    "cuBLASLt choice": ("kernels/cuda/runtime/cublaslt_tuner.cu", "choice->n == linear->n && choice->k == linear->k && choice->math == linear->math",
                        "&&", ["kernels-cuda-faults"]),
    "cuBLASLt checked rows": ("kernels/cuda/runtime/cublaslt.cu", "word && (__atomic_load_n(word, __ATOMIC_RELAXED) & bit)", "&&",
                              ["kernels-cuda-faults"]),
    "generated kernel": ("kernels/cuda/compute/chain_generated.cu", "e->source && strcmp(e->source, source) == 0", "&&",
                         ["compute-generated", "compute-chain"]),
    "compiled code on disk": ("kernels/cuda/runtime/kernel_cache.cu", """memcmp(h.magic, MAGIC, sizeof(MAGIC)) != 0 || h.key_size != key_size ||
        key_size > size - sizeof(h) || h.code_size != size - sizeof(h) - key_size ||
        h.code_size == 0 || memcmp(bytes + sizeof(h), key, key_size) != 0 ||
        h.sum != add_to_sum(SUM_OF_NOTHING, bytes + sizeof(h), size - sizeof(h))""", "||", ["compute-code_key"]),
    "batch that requests share": ("lib/runtime/scheduler/request.h", """a->tasks == b->tasks && a->dimensions == b->dimensions && a->normalize == b->normalize &&
           a->score == b->score && a->route == b->route && a->skip == b->skip &&
           (a->adapter == b->adapter || a->mixes_adapters) && a->drops == b->drops""", "&&",
                                  ["runtime_sharing"]),
    "batch that requests share, precision": ("lib/runtime/scheduler/request.h", "a->precision == b->precision && a->columns == b->columns", "&&",
                                             ["runtime_tiny", "runtime_sharing"]),
    "rows that are equal": ("lib/runtime/scheduler/request.h", "a->adapter == b->adapter && gsv_same_batch_key(a, b)", "&&",
                            ["runtime_adapters", "runtime_sharing", "runtime_cache"]),
    "batch that requests share, heads": ("lib/runtime/scheduler/request.h", "memcmp(&a->heads, &b->heads, sizeof(a->heads)) == 0", "&&",
                                         ["runtime_heads"]),
    "tokens of a text": ("lib/runtime/scheduler/request.h", """a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof(*a->ids)) == 0 &&
           gsv_types_equal(a->type_ids, b->type_ids, a->n)""", "&&", ["runtime_cache", "runtime_sharing"]),
    "result cache": ("lib/runtime/scheduler/result_cache.c", """entry->key.hash != key->hash || !gsv_same_row_key(&entry->key.batch, &key->batch) ||
            !gsv_tokens_equal(&entry->key.tokens, &key->tokens)""", "||", ["runtime_cache"]),
    "request coalescing": ("lib/runtime/scheduler/batch_formation.c", """item_of(part)->hash == item->hash && has_same_query(part->request, request) &&
            gsv_same_row_key(&part->request->key, &request->key) &&
            gsv_tokens_equal(&flying, &wanted)""", "&&", ["runtime_cache", "runtime_sharing", "runtime_modules"]),
    "words of a tokenizer": ("lib/text/pipeline/token_writer.h", "cached->key[0] == key[0] && cached->key[1] == key[1]", "&&",
                             ["text-wordpiece", "text-tokenizer", "text-bpe", "text-oracle", "text-differential"]),
    "words of a tokenizer, whose": ("lib/text/pipeline/token_writer.c", "scratch->serial == t->serial", "&&", ["text-tokenizer"]),
    "load that clients share, model": ("lib/http/inference/load_queue.c", "(**link)->entry == entry", "&&", ["http_load_queue"]),
    "load that clients share, kind": ("lib/http/inference/load_queue.c", "*task && (*task)->kind == kind", "&&", ["http_load_queue"]),
}
# What the hash of the packed weights' file covers. The lengths before texts only keep neighbours apart, and
# the backend is always the CPU's.
WEIGHTS = (
    ("path", "feed_text(state, path);", ";"),
    ("instruction set", "feed_text(state, plan->device.facts.isa);", ";"),
    ("dtype", "feed_number(state, plan->dtype);", ";"),
    ("token limit", "feed_number(state, plan->max_tokens);", ";"),
    ("settings", "feed(state, identity->shape, sizeof(identity->shape));", ";"),
    ("open weight files", "feed(&state, identity.files, sizeof(identity.files));", ";"),
    ("version", "feed_text(state, gpuserve_version());", ";"),
    ("build id", "feed(state, id, size);", ";"),
    ("C library", "feed_text(state, gnu_get_libc_version());", ";"),
    ("names of files", "feed_text(listing->state, names.names[i]);", ";"),
    ("subfolders", "depth < MAX_DEPTH)", "depth < 0)"),
    ("inode", "feed_number(listing->state, (int64_t)s.st_ino);", ";"),
    ("size", "feed_number(listing->state, (int64_t)s.st_size);", ";"),
    ("mtime", "feed_number(listing->state, (int64_t)s.st_mtim.tv_sec);", ";"),
    ("mtime, nanoseconds", "feed_number(listing->state, s.st_mtim.tv_nsec);", ";"),
    ("ctime", "feed_number(listing->state, (int64_t)s.st_ctim.tv_sec);", ";"),
    ("ctime, nanoseconds", "feed_number(listing->state, s.st_ctim.tv_nsec);", ";"),
)
OPEN_FILE = (
    ("inode", "feed_number(state, (int64_t)info.st_ino);"),
    ("size", "feed_number(state, (int64_t)info.st_size);"),
    ("mtime", "feed_number(state, (int64_t)info.st_mtim.tv_sec);"),
    ("mtime nanoseconds", "feed_number(state, info.st_mtim.tv_nsec);"),
    ("ctime", "feed_number(state, (int64_t)info.st_ctim.tv_sec);"),
    ("ctime nanoseconds", "feed_number(state, info.st_ctim.tv_nsec);"),
)
# What a key is made of where it is one text: each of these must be in it.
TEXTS = {
    "compiled code on disk, processor": ("kernels/cuda/runtime/kernel_cache.cu", "key->capability, key->version)", "0, key->version)",
                                         ["compute-code_key"]),
    "compiled code on disk, compiler": ("kernels/cuda/runtime/kernel_cache.cu", "key->capability, key->version)", "key->capability, 0)",
                                        ["compute-code_key"]),
    "compiled code on disk, options": ("kernels/cuda/runtime/kernel_cache.cu", 'at += snprintf(text + at, size - at, " %s", key->options[i]);',
                                       ";", ["compute-code_key"]),
    "compiled code on disk, source": ("kernels/cuda/runtime/kernel_cache.cu", 'snprintf(text + at, size - at, "\\n%s", key->source);',
                                      "(void)at;", ["compute-code_key"]),
    "known compiler, size": ("kernels/cuda/runtime/kernel_cache.cu", "static_cast<long long>(s.st_size),", "0LL,", ["compute-code_key"]),
    "known compiler, seconds": ("kernels/cuda/runtime/kernel_cache.cu", "static_cast<long long>(s.st_mtim.tv_sec), s.st_mtim.tv_nsec,",
                                "0LL, s.st_mtim.tv_nsec,", ["compute-code_key"]),
    "known compiler, nanoseconds": ("kernels/cuda/runtime/kernel_cache.cu", "tv_sec), s.st_mtim.tv_nsec,", "tv_sec), 0L,",
                                    ["compute-code_key"]),
    # The program of a CUDA graph: a number made of what the run is to do.
    "batch that requests share, ranges": ("lib/runtime/scheduler/request.h",
                                          "a->ranges[0] == b->ranges[0] && a->ranges[1] == b->ranges[1] &&", "", ["runtime_tiny"]),
    "program of a run, adapter": ("lib/model/encoder/run.c", "(uint64_t)(uint32_t)adapter << 48 |", "", ["cuda-programs"]),
    "program of a run, several adapters": ("lib/model/encoder/run.c", "(at->n_ranges > 1 || work", "(work", ["cuda-programs", "cuda-adapters"]),
    "program of a run, streamed weights": ("lib/model/encoder/run.c", " || work->net->streaming.n > 0)", ")", ["cuda-weight-streaming"]),
    "program of a pipeline's device, adapter": ("lib/model/encoder/pipeline.c", "? (uint64_t)(uint32_t)at->ranges[0].adapter : 0;", "? 0 : 0;",
                                                ["cuda-pipeline-encoder"]),
    "program of a pipeline's device, several adapters": ("lib/model/encoder/pipeline.c", "if (at->n_ranges > 1)", "if (at->n_ranges > 99)",
                                                         ["cuda-pipeline-encoder"]),
    "program of a run, precision": ("lib/model/encoder/run.c", "run->score | run->compact.precision;", "run->score;",
                                    ["cuda-programs", "cuda-public"]),
    "program of a run, raw": ("lib/model/encoder/run.c", "(uint64_t)run->raw << 14 |", "", ["cuda-programs"]),
    "program of a run, route": ("lib/model/encoder/run.c", "| (uint64_t)(run->route & 0xF) << 10 |", "|", ["cuda-programs"]),
    "program of a run, dimensions": ("lib/model/encoder/run.c", ": (uint32_t)run->dimensions;", ": 0;", ["cuda-programs"]),
    "program of a run, heads": ("lib/model/encoder/run.c", "? gsv_head_set(&run->heads) :", "? 0 :", ["cuda-programs"]),
    "program of a run, skip": ("lib/model/encoder/run.c", "(uint64_t)(run->skip > 0) << 9 |", "", ["cuda-programs"]),
    "program of a run, normalize": ("lib/model/encoder/run.c", "(uint64_t)run->normalize << 8 |", "", ["cuda-programs"]),
    "program of a run, score": ("lib/model/encoder/run.c", "(uint64_t)(score & 0xF) << 4 |", "", ["cuda-programs"]),
    "program of a run, task": ("lib/model/encoder/run.c", "(uint64_t)(run->task & 0xF);", "0;", ["cuda-programs"]),
    "program of a run, hidden states": ("lib/model/encoder/run.c", "program_of(work, run, true)", "program_of(work, run, false)",
                                        ["cuda-programs"]),
    **{f"packed weights on disk, {member}": ("lib/runtime/models/weights_cache.c", old, new, ["runtime_weights_key"])
       for member, old, new in WEIGHTS},
    **{f"packed weights on disk, {member} of an open file": ("lib/model/weights/packed_weights.c", old, ";", ["runtime_weights_key"])
       for member, old in OPEN_FILE},
}
# The rest of the comparison decides; or a damaged file is caught by another check; or a member follows from others
# (columns from dimensions).
EQUIVALENT = {"a->columns == b->columns",
              "entry->key.hash != key->hash", "item_of(part)->hash == item->hash",
              "key_size > size - sizeof(h)", "graph->last_use > 0", "e->source", "word", "*task"}


def operands(text, operator):
    """(begin, end) of each operand at the top of the expression."""
    found, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and text.startswith(operator, at):
            found.append((begin, at))
            begin = at + len(operator)
    return found + [(begin, len(text))]


def mutations():
    """(key, member, file, old text, new text, tests)"""
    for key, (path, text, operator, tests) in KEYS.items():
        for begin, end in operands(text, operator):
            member = " ".join(text[begin:end].split())
            if member not in EQUIVALENT:
                constant = "1" if operator == "&&" else "0"
                yield key, member, path, text, text[:begin] + f" {constant} " + text[end:], tests
    for key, (path, old, new, tests) in TEXTS.items():
        yield key, old, path, old, new, tests


def unclear(some):
    """What is wrong with mutations whose text the sources do not have exactly once."""
    counts = [(key, path, (ROOT / path).read_text(encoding="utf-8").count(old)) for key, _, path, old, _, _ in some]
    return [f"{path} has {n} times what cache_keys.py says of {key}: write KEYS anew" for key, path, n in counts if n != 1]


def run(*words):
    return subprocess.run(words, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def copy_tree():
    TREE.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)
    for name in listed.stdout.split("\n"):
        if name and (ROOT / name).is_file() and not name.startswith("build"):
            content = (ROOT / name).read_bytes()
            target = TREE / name
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                target.chmod((ROOT / name).stat().st_mode & 0o777)
    if not (BUILD / "build.ninja").exists():
        made = run("meson", "setup", str(BUILD), "-Dbuildtype=release", "-Dcuda=disabled", "-Dtests=enabled")
        if made.returncode:
            sys.exit(made.stdout)


def failing(tests):
    """The first test that fails, "" when all pass. Building is a part of it."""
    for test in tests:
        done = run("meson", "test", "-C", str(BUILD), test)
        if "ninja: build stopped" in done.stdout or "FAILED:" in done.stdout:
            sys.exit(f"the mutated tree does not compile:\n{done.stdout[-3000:]}")
        if "No suitable tests defined" in done.stdout:
            sys.exit(f"there is no test {test}")
        if done.returncode:
            return test
    return ""


def plant(every_mutation):
    """Plant each mutation that a word of the command line names, or all; returns the exit status."""
    copy_tree()
    wanted = sys.argv[1:]
    chosen = [m for m in every_mutation if not wanted or any(word in m[0] for word in wanted)]
    every = sorted({test for m in chosen for test in m[5]})
    if broken := failing(every):
        sys.exit(f"{broken} fails without any mutation")
    unnoticed = 0
    for key, member, path, old, new, tests in chosen:
        if broken := unclear([(key, member, path, old, new, tests)]):
            sys.exit(broken[0])
        source = (ROOT / path).read_text(encoding="utf-8")
        (TREE / path).write_text(source.replace(old, new), encoding="utf-8")
        try:
            found = failing(tests)
        finally:
            (TREE / path).write_text(source, encoding="utf-8")
        unnoticed += not found
        print(f"{key} | {member} | {found or 'UNNOTICED'}", flush=True)
    print(f"{len(chosen) - unnoticed} noticed, {unnoticed} unnoticed")
    return 1 if unnoticed or not chosen else 0


if __name__ == "__main__":
    sys.exit(plant(mutations()))
