#!/usr/bin/env python3
"""How many sources of lib/http one POST /v1/embeddings passes, from its first byte to the last of its reply.

Callgrind records one request of one text on a connection that is open already, on a server with default
options. Counted are the .c files below lib/http/ with a function that ran meanwhile, in any thread: the files
that one who follows a body to its reply opens. What a tick of the event loop runs counts too if it falls into that
time. The objects of the build tell the file of a function; a name that two files have (both static) tells nothing.
Exits 77, which means "not run", where there is no callgrind.
"""
import glob
import http.client
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from common import PATIENCE, PROGRAM, environment, wait_until

MAX_FILES = 26
OBJECTS = os.path.join(os.path.dirname(os.path.dirname(PROGRAM)), "lib/http/libgsv-http.a")
RECORD = re.compile(r"^(c?)(ob|fn)=\((\d+)\)(?: (.*))?$", re.MULTILINE)
DEFINED = re.compile(r"[:/](\w+)\.c\.o:\w+ [Tt] (\w+)")


def embed(connection):
    connection.request("POST", "/v1/embeddings", json.dumps({"input": "a short text"}),
                       {"Content-Type": "application/json"})
    reply = connection.getresponse()
    return reply.status, len(json.loads(reply.read())["data"])


def owners():
    """The file of each function that one file alone has."""
    found = {}
    done = subprocess.run(["nm", "-A", "--defined-only", OBJECTS], check=True, capture_output=True, text=True)
    for name, function in DEFINED.findall(done.stdout):
        found.setdefault(function, set()).add(name.replace("_", "/", 1) + ".c")
    return {function: files.pop() for function, files in found.items() if len(files) == 1}


def functions(text):
    """Of the server's library, those that ran. A name is written where its number comes first."""
    names, library, found = {}, "", set()
    for called, kind, number, name in RECORD.findall(text):
        names.setdefault((kind, number), name)
        if called:
            continue
        if kind == "ob":
            library = names[kind, number]
        elif "libgpuserve-http" in library:
            found.add(re.match(r"\w*", names[kind, number])[0])  # without ".part.0" and the like
    return found


class Path(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = os.path.join(self.folder.name, "out")
        self.server = subprocess.Popen(
            ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=" + self.out, PROGRAM, "serve",
             "random:bert-tiny,seed=1", "--port", "0", "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**environment(), "GPUSERVE_NO_SANDBOX": "1"})
        self.addCleanup(self.stop)
        self.url = self.server.stdout.readline().strip()

    def stop(self):
        self.server.terminate()
        self.server.communicate(timeout=PATIENCE)

    def control(self, *arguments):
        subprocess.run(["callgrind_control", *arguments, str(self.server.pid)], check=True, stdout=subprocess.DEVNULL)

    def test_files_of_an_embedding(self):
        connection = http.client.HTTPConnection(self.url.split("//")[1], timeout=PATIENCE)
        self.addCleanup(connection.close)
        self.assertEqual(embed(connection), (200, 1))
        self.control("-i", "on")
        self.assertEqual(embed(connection), (200, 1))
        self.control("-i", "off")
        self.stop()
        wait_until(lambda: glob.glob(self.out + "*"))
        owner, ran = owners(), set()
        for name in glob.glob(self.out + "*"):
            ran |= functions(pathlib.Path(name).read_text("utf-8"))
        files = sorted({owner[name] for name in ran if name in owner})
        print(f"{len(files)} files: {' '.join(files)}")
        self.assertIn("net/connection.c", files)
        self.assertIn("dialects/openai.c", files)
        self.assertLessEqual(len(files), MAX_FILES)


if __name__ == "__main__":
    if not shutil.which("callgrind_control") or not shutil.which("nm"):
        print("there is no callgrind or no nm: nothing was tried", file=sys.stderr)
        sys.exit(77)
    unittest.main()
