#!/usr/bin/env python3
"""Check the words of names: one word for each thing, the field's own.

Identifiers of C, C++ and CUDA sources and names of source files are split at `_`. A word of the table
WORDS fails with the word to use, unless ALLOWED has the identifier. Comments and strings are not read. A constant or macro
of at most two words does not end in a word of TYPES. A tag (struct, union, enum) is of one definition, except those of the backend interface,
which each backend defines for itself. In Python, constants that bound a value are MAX_ and MIN_.

Prints each finding as file:line and then "N passed, N failed", counted in files.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (".c", ".h", ".cpp", ".cu", ".cuh")
EVERYWHERE = ("lib/", "kernels/", "cli/")
RUNTIME = ("lib/runtime/", "lib/model/")
HTTP = ("lib/http/",)
PLAIN = EVERYWHERE
NO_TEXT = ("lib/base/", "lib/model/", "lib/runtime/", "lib/http/", "kernels/", "cli/") # in lib/text a piece is a subword token, as in SentencePiece
SCHEDULER = ("lib/runtime/scheduler/",) # elsewhere `take` is the plain verb: to remove from the front of an input
RESERVING = ("lib/runtime/scheduler/", "lib/runtime/memory/") # where capacity is reserved and released
# word: (where, what to use)
WORDS = {
    "seat": (EVERYWHERE, "slot"), "seats": (EVERYWHERE, "slots"),
    "flights": (EVERYWHERE, "in_flight"), "rider": (EVERYWHERE, "coalesced"), "riders": (EVERYWHERE, "coalesced"),
    "ride": (EVERYWHERE, "coalesce"), "land": (EVERYWHERE, "end_coalescing"), "board": (EVERYWHERE, "coalesce"),
    "lane": (RUNTIME, "class (of priority)"), "lanes": (RUNTIME, "classes (of priority)"),
    "stand": (EVERYWHERE, "replica_state"), "stands": (EVERYWHERE, "replica_states"),
    "quantum": (EVERYWHERE, "turn_tokens"),
    "leads": (EVERYWHERE, "inline"), "led": (EVERYWHERE, "inline"),
    "charge": (EVERYWHERE, "reservation"), "charged": (EVERYWHERE, "reserved"),
    "claim": (EVERYWHERE, "reservation"), "claims": (EVERYWHERE, "reservations"),
    "rerun": (EVERYWHERE, "retry"), "reruns": (EVERYWHERE, "retries"),
    "face": (EVERYWHERE, "model_info"), "faces": (EVERYWHERE, "model_infos"),
    "opening": (EVERYWHERE, "load_options"),
    "park": (EVERYWHERE, "offload"), "parked": (EVERYWHERE, "offloaded"), "unpark": (EVERYWHERE, "restore"),
    "crew": (EVERYWHERE, "worker_threads"), "team": (EVERYWHERE, "thread_pool"),
    "guard": (EVERYWHERE, "event_loop, watchdog or fork_check"),
    "tally": (EVERYWHERE, "stats"), "account": (EVERYWHERE, "usage"),
    "beat": (EVERYWHERE, "heartbeat"),
    "patience": (EVERYWHERE, "backpressure"), "aside": (EVERYWHERE, "offloaded"),
    "members": (EVERYWHERE, "fields"),
    "piece": (NO_TEXT, "chunk"), "pieces": (NO_TEXT, "chunks"),
    "place": (PLAIN, "position, index, link or address"), "places": (PLAIN, "positions, indices or addresses"),
    "room": (PLAIN, "capacity or free bytes"), "mark": (PLAIN, "flag, key or delimiter"), "marks": (PLAIN, "flags"),
    "beside": (PLAIN, "adjacent or concurrent"),
    "truth": (EVERYWHERE, "bool"), "lent": (EVERYWHERE, "borrowed"),
    "take": (SCHEDULER, "form (a batch), acquire"), "takes": (SCHEDULER, "forms"), "taken": (SCHEDULER, "formed"),
    "keep": (RESERVING, "reserve"), "keeps": (RESERVING, "reserves"), "kept": (RESERVING, "reserved"),
    "give": (EVERYWHERE, "release"), "gives": (EVERYWHERE, "releases"), "lose": (RESERVING, "release"),
    "suspend": (EVERYWHERE, "offload"), "suspends": (EVERYWHERE, "offloads"), "suspended": (EVERYWHERE, "offloaded"),
    "counts": (EVERYWHERE, "stats or counters"),
}
# The last word of a constant or macro for a type of values, such as OPTION_NUMBER.
TYPES = {"REAL": "NUMBER", "TEXT": "STRING", "WHOLE": "INT", "TRUTH": "BOOL"}
# Words that count in a longer name except after `at`, and as a name by themselves in PLAIN.
PREFIXES = {"most": "max", "least": "min"}
# identifier: why it stays
ALLOWED = {
    "lock_guard": "the C++ standard library's",
    "GSV_LINK_BOARD": "NVML: two GPUs of one board",
    "GSV_REGEX_MARK": "Unicode: category M, the combining marks",
    "is_mark": "Unicode: a combining mark", "put_marks": "Unicode: combining marks",
    "find_end_of_marks": "Unicode: combining marks", "sort_marks": "Unicode: combining marks in canonical order",
    "skip_byte_order_mark": "Unicode: U+FEFF at the start of a file",
    "check_byte_order_mark": "Unicode: U+FEFF at the start of a file",
    "gsv_pickle_pop_mark": "pickle: the MARK object", "above_mark": "pickle: the MARK object", "op_mark": "pickle: the MARK object",
    "GSV_PICKLE_MAX_MARKS": "pickle: the MARK object", "n_marks": "pickle: the MARK object", "marks": "pickle: the MARK object",
    **dict.fromkeys(("gsv_handle_suspend", "is_suspended", "fail_suspended", "suspend_due", "suspend", "n_suspended",
                     "when_suspended"), "the API's word: gpuserve_model_suspend() frees the device; with or without offload"),
    **dict.fromkeys(("MHD_suspend_connection", "MHD_ALLOW_SUSPEND_RESUME", "gsv_call_suspend", "GSV_SUSPENDED"),
                    "libmicrohttpd's word for a connection"),
    "CLI_TEXT": "the output format --format text", "PIECE_TEXT": "a field of SentencePiece's protobuf",
    "TEXT": "Triton: the name of an input tensor",
    "with_pieces": "llama.cpp: a field of POST /tokenize", "place_children": "a verb: give the children of a trie node their base",
}
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*|\n', re.S)
PUBLIC = re.compile(r"^(gpuserve_|GPUSERVE_)")


def word_of(name, path):
    """The word of a name that the table replaces, and by what, or None."""
    if name in ALLOWED or PUBLIC.match(name):
        return None
    parts = [part.lower() for part in name.split("_") if part]
    for part in parts:
        where, use = WORDS.get(part, ((), ""))
        if path.startswith(where):
            return part, use
    last = name.rsplit("_", 1)[-1]
    if name.isupper() and last in TYPES and len(parts) <= 2:
        return last, TYPES[last]
    for i, part in enumerate(parts):
        if part in PREFIXES and (len(parts) > 1 or path.startswith(PLAIN)) and parts[max(i - 1, 0)] != "at":
            return part, PREFIXES[part]
    return None


def findings(path, public):
    found = []
    stem = Path(path).stem
    if word := word_of(stem, path):
        found.append(f"{path}: the file's name: not \"{word[0]}\" but \"{word[1]}\"")
    line = 1
    for token in TOKEN.findall((ROOT / path).read_text("utf-8")):
        if re.match(r"[A-Za-z_]", token) and token not in public and (word := word_of(token, path)):
            found.append(f"{path}:{line}: {token}: not \"{word[0]}\" but \"{word[1]}\"")
        line += token.count("\n")
    return found


TAG = re.compile(r"^\s*(?:typedef )?(?:struct|union|enum) (\w+) \{", re.MULTILINE)
BACKEND_STRUCTS = {"gpuserve_device", "gpuserve_stream", "gpuserve_linear", "gpuserve_lstm_layer"}


def shared_tags(paths):
    """Sentences about tags that are defined twice."""
    defined = {}
    for path in paths:
        for name in TAG.findall((ROOT / path).read_text("utf-8")):
            defined.setdefault(name, []).append(path)
    return [f"tag {name}: defined in {' and '.join(files)}" for name, files in sorted(defined.items())
            if len(files) > 1 and name not in BACKEND_STRUCTS]


BOUND = re.compile(r"^((?:MOST|LEAST)(?:_\w+)?) = ", re.MULTILINE)


def python_findings(path):
    """Sentences about bounds of a Python file that are named otherwise than MAX_ and MIN_."""
    text = (ROOT / path).read_text("utf-8")
    return [f"{path}: {name}: not MOST_ and LEAST_ but MAX_ and MIN_" for name in BOUND.findall(text)]


def public_names(files):
    """The identifiers of the public headers, which are reviewed with the interface."""
    names = set()
    for path in files:
        if path.startswith("include/"):
            names.update(token for token in TOKEN.findall((ROOT / path).read_text("utf-8")) if re.match(r"[A-Za-z_]", token))
    return names


def main():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout.split("\n")
    public = public_names(listed)
    paths = [path for path in listed if path.startswith(EVERYWHERE) and path.endswith(SOURCES)]
    failed = 0
    for path in paths:
        found = findings(path, public)
        failed += bool(found)
        if found:
            print("\n".join(found))
    others = shared_tags([*paths, *(path for path in listed if path.startswith("include/"))])
    scripts = [path for path in listed if path.endswith(".py")]
    others += [finding for path in scripts for finding in python_findings(path)]
    print("\n".join(others), end="\n" if others else "")
    failed += len(others)
    print(f"{len(paths) + len(scripts) - failed} passed, {failed} failed")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
