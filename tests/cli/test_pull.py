"""`gpuserve pull` against a stand-in for the hub."""
import hashlib
import json
import os
import ssl
import subprocess
import sys
import threading
import http.server

from common import Case, PROGRAM, ROOT, environment, gpuserve, main, model
from hub import COMMIT, Hub, git_hash

FILES = {
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b'{"version": "1.0"}' * 1000,
    "sentencepiece.bpe.model": b"never fetched: tokenizer.json has it",
    "vocab.txt": b"[PAD]\n[UNK]\n",
    "modules.json": b"[]",
    "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
    "model.safetensors": bytes(range(256)) * 4096,  # 1 MiB
    "model.fp16.safetensors": b"a variant",
    "pytorch_model.bin": b"never fetched",
    "onnx/model.onnx": b"never fetched",
    "openvino/config.json": b"never fetched",
    "README.md": b"# tiny",
}
NEEDED = ["1_Pooling/config.json", "config.json", "model.safetensors", "modules.json",
          "tokenizer.json", "vocab.txt"]
WEIGHTS = hashlib.sha256(FILES["model.safetensors"]).hexdigest()


class Pull(Case):
    def setUp(self):
        super().setUp()
        self.hub = Hub(FILES)
        self.addCleanup(self.hub.close)
        self.home = self.path("hf")
        self.model = os.path.join(self.home, "hub", "models--org--tiny")
        self.env = environment(HF_ENDPOINT=self.hub.url, HF_HOME=self.home)

    def snapshot(self):
        folder, found = os.path.join(self.model, "snapshots", COMMIT), {}
        for parent, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(parent, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = file.read()
        return found

    def check_whole(self):
        found = self.snapshot()
        self.assertEqual(sorted(found), NEEDED)
        for name in NEEDED:
            self.assertEqual(found[name], FILES[name], name)
        blobs = os.listdir(os.path.join(self.model, "blobs"))
        self.assertFalse([b for b in blobs if b.endswith((".incomplete", ".tmp"))])

    def pull(self, *options, **env):
        return self.works("pull", "org/tiny", *options, env={**self.env, **env})

    def refused(self, message, *options, **env):
        return self.fails(1, message, "pull", "org/tiny", *options, env={**self.env, **env})

    def test_an_adapter_brings_its_base(self):
        config = {"peft_type": "LORA", "base_model_name_or_path": "org/base", "revision": None}
        self.hub.files = {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": b"adapter",
                          "adapter_model.bin": b"the same", "training_args.bin": b"no"}
        self.hub.more["org/base"] = FILES
        done = self.pull()
        self.assertEqual(done.out.strip(), os.path.join(self.model, "snapshots", COMMIT))
        self.assertEqual(sorted(self.snapshot()), ["adapter_config.json", "adapter_model.safetensors"])
        offline = self.pull(HF_HUB_OFFLINE="1")
        self.assertEqual(offline.out, done.out)
        self.model = os.path.join(self.home, "hub", "models--org--base")
        self.check_whole()
        for base, revision in (("/models/mine", None), ("org/base", "../x"), (None, None)):  # none of the hub
            self.hub.files = {"adapter_config.json": json.dumps({"base_model_name_or_path": base, "revision": revision}).encode(),
                              "adapter_model.bin": b"adapter"}
            self.hub.requests.clear()
            self.pull()
            self.assertEqual([path for _, path, _, _ in self.hub.requests if "base" in path], [])
        self.hub.files["adapter_config.json"] = json.dumps({"base_model_name_or_path": "org/absent"}).encode()
        self.refused("org/absent")

    def test_layout_is_that_of_the_cache(self):
        done = self.pull()
        snapshot = os.path.join(self.model, "snapshots", COMMIT)
        self.assertEqual(done.out.strip(), snapshot)
        self.check_whole()
        with open(os.path.join(self.model, "refs", "main"), encoding="ascii") as file:
            self.assertEqual(file.read(), COMMIT)
        self.assertEqual(os.readlink(os.path.join(snapshot, "model.safetensors")),
                         "../../blobs/" + WEIGHTS)
        self.assertEqual(os.readlink(os.path.join(snapshot, "1_Pooling/config.json")),
                         "../../../blobs/" + git_hash(FILES["1_Pooling/config.json"]))

    def test_second_pull_fetches_no_file(self):
        self.pull()
        self.hub.requests.clear()
        self.pull()
        self.assertEqual(len(self.hub.requests), 1)
        self.check_whole()

    def test_places_of_the_cache(self):
        self.pull(HF_HUB_CACHE=self.path("a"))
        self.assertTrue(os.path.isdir(self.path("a/models--org--tiny/blobs")))
        self.pull("--cache-dir", self.path("b"), HF_HUB_CACHE=self.path("a"))
        self.assertTrue(os.path.isdir(self.path("b/models--org--tiny/blobs")))
        env = dict(self.env, HOME=self.path("home"), XDG_CACHE_HOME="")
        del env["HF_HOME"]
        self.works("pull", "org/tiny", env=env)
        self.assertTrue(os.path.isdir(
            self.path("home/.cache/huggingface/hub/models--org--tiny/blobs")))

    def test_revisions(self):
        self.pull("--revision", "refs/pr/1")
        with open(os.path.join(self.model, "refs/refs/pr/1"), encoding="ascii") as file:
            self.assertEqual(file.read(), COMMIT)
        self.pull("--revision", COMMIT)
        self.assertFalse(os.path.exists(os.path.join(self.model, "refs", COMMIT)))
        self.refused("the revision does not exist", "--revision", "nowhere")

    def test_sentencepiece_where_there_is_no_tokenizer_json(self):
        del self.hub.files["tokenizer.json"]
        self.pull()
        self.assertIn("sentencepiece.bpe.model", self.snapshot())

    def test_include(self):
        self.pull("--include", "*.md", "--include", "onnx/*")
        self.assertEqual(self.snapshot()["README.md"], FILES["README.md"])
        self.assertIn("onnx/model.onnx", self.snapshot())

    def test_broken_connection_is_gone_on_with(self):
        self.hub.break_after["model.safetensors"] = 300000
        self.pull()
        self.check_whole()
        ranges = [r for kind, path, r, _ in self.hub.requests
                  if kind == "cdn" and path.endswith("model.safetensors")]
        self.assertEqual(ranges, [None, "bytes=300000-"])

    def test_killed_program_is_gone_on_with(self):
        blob = os.path.join(self.model, "blobs", WEIGHTS)
        os.makedirs(os.path.dirname(blob))
        with open(blob + ".incomplete", "wb") as file:
            file.write(FILES["model.safetensors"][:500001])
        self.pull()
        self.check_whole()
        self.assertIn("bytes=500001-", [r for _, _, r, _ in self.hub.requests])

    def test_wrong_beginning_is_thrown_away(self):
        blob = os.path.join(self.model, "blobs", WEIGHTS)
        os.makedirs(os.path.dirname(blob))
        with open(blob + ".incomplete", "wb") as file:
            file.write(b"x" * 1000)
        self.pull()
        self.check_whole()

    def test_server_without_ranges(self):
        self.hub.no_range = True
        self.hub.break_after["model.safetensors"] = 300000
        self.pull()
        self.check_whole()

    def test_wrong_hash(self):
        for name, word in (("tokenizer.json", "git hash"), ("model.safetensors", "sha256")):
            self.hub.corrupt = {name}
            done = self.refused("%s: the %s is" % (name, word))
            self.assertIn("the hub lists", done.err)
            self.assertNotIn(name, self.snapshot())
            self.assertFalse(os.path.exists(os.path.join(self.model, "refs", "main")))
        self.hub.corrupt = set()
        self.pull()
        self.check_whole()

    def test_more_than_listed(self):
        self.hub.longer = {"model.safetensors"}
        self.refused("sends more than the 1048576 bytes listed")
        self.assertNotIn("model.safetensors", self.snapshot())

    def test_passing_faults_are_tried_again(self):
        self.hub.statuses = [503]
        self.pull()
        self.check_whole()
        self.assertEqual(len(self.hub.requests), 2 + len(NEEDED) + 1)

    def test_not_found(self):
        done = self.fails(1, "status 404", "pull", "org/other", env=self.env)
        self.assertIn("the model or the revision does not exist", done.err)

    def test_token(self):
        self.hub.token = "hf_secret"
        done = self.refused("status 401")
        self.assertIn("set HF_TOKEN", done.err)
        done = self.refused("status 401", HF_TOKEN="hf_wrong")
        self.assertIn("has no access", done.err)
        self.assertNotIn("hf_wrong", done.err)
        self.hub.requests.clear()
        self.pull(HF_TOKEN="hf_secret\n")
        self.check_whole()
        self.assertEqual({a for kind, _, _, a in self.hub.requests if kind == "hub"},
                         {"Bearer hf_secret"})
        # The redirect leads to another host (port): the token must not follow.
        self.assertEqual({a for kind, _, _, a in self.hub.requests if kind == "cdn"}, {None})

    def test_token_file(self):
        self.hub.token = "hf_file"
        os.makedirs(self.home)
        with open(os.path.join(self.home, "token"), "w", encoding="ascii") as file:
            file.write("hf_file\n")
        self.pull()
        self.check_whole()

    def test_offline(self):
        self.refused("not in the cache", HF_HUB_OFFLINE="1")
        self.assertEqual(self.hub.requests, [])
        self.pull()
        self.hub.requests.clear()
        done = self.pull(HF_HUB_OFFLINE="yes")
        self.assertEqual(done.out.strip(), os.path.join(self.model, "snapshots", COMMIT))
        self.pull("--revision", COMMIT, HF_HUB_OFFLINE="1")
        self.refused("not in the cache", "--revision", "other", HF_HUB_OFFLINE="1")
        self.assertEqual(self.hub.requests, [])

    def test_names_that_lead_elsewhere(self):
        for name in ("../../evil.json", "/etc/evil.json", "a\\b.json", "1_Pooling/../evil.json",
                     "1_Pooling//evil.json", "evil\n.json", "x" * 300 + ".json"):
            self.hub.extra = [{"rfilename": name, "size": 2, "blobId": git_hash(b"{}")}]
            done = gpuserve("pull", "org/tiny", "--include", "*", env=self.env)
            self.assertEqual(done.returncode, 1, name)
            self.assertIn("unsafe name", done.err, name)
        for hash_ in ("../x", "", None, "0" * 39):
            self.hub.extra = [{"rfilename": "more.json", "size": 2, "blobId": hash_}]
            self.refused("no size or hash")
        self.assertEqual([n for n in os.listdir(self.folder) if n.startswith("evil")], [])

    def test_names_of_models(self):
        for name in ("../x", "a/b/c", "a/", "/a", "a--b/c", "a/..", "a b/c", "-a/b", ".a/b", ""):
            done = gpuserve("pull", "--", name, env=self.env)
            self.assertEqual(done.returncode, 2, name)
        for revision in ("../x", "a b", "/a", "", "a?b"):
            done = gpuserve("pull", "org/tiny", "--revision=" + revision, env=self.env)
            self.assertEqual(done.returncode, 2, revision)
        self.fails(2, "needs one model", "pull", env=self.env)

    def test_pytorch_file_where_there_are_no_safetensors(self):
        del self.hub.files["model.safetensors"]
        self.hub.files.update({"pytorch_model-00001-of-00001.bin": b"never fetched: there is a single file",
                               "2_Dense/pytorch_model.bin": b"dense", "2_Dense/config.json": b"{}",
                               "colbert_linear.pt": b"a head", "sparse_linear.pt": b"a head",
                               "optimizer.pt": b"never fetched", "training_args.bin": b"never fetched"})
        self.pull()
        self.assertEqual(sorted(self.snapshot()), sorted(
            set(NEEDED) - {"model.safetensors"} | {"pytorch_model.bin", "2_Dense/pytorch_model.bin", "2_Dense/config.json",
                                                   "colbert_linear.pt", "sparse_linear.pt"}))

    def test_pytorch_shards(self):
        del self.hub.files["model.safetensors"], self.hub.files["pytorch_model.bin"]
        shards = {f"pytorch_model-0000{i}-of-00002.bin": b"shard" for i in (1, 2)}
        self.hub.files.update({**shards, "pytorch_model.bin.index.json": b"{}",
                               "2_Dense/pytorch_model.bin": b"never fetched", "2_Dense/model.safetensors": b"dense"})
        self.pull()
        self.assertEqual(sorted(self.snapshot()), sorted(
            set(NEEDED) - {"model.safetensors"} | {*shards, "pytorch_model.bin.index.json", "2_Dense/model.safetensors"}))

    def test_needs_weights(self):
        for name in ("model.safetensors", "model.fp16.safetensors", "pytorch_model.bin"):
            del self.hub.files[name]
        self.refused("no weights in safetensors or PyTorch format")
        self.assertFalse(os.path.exists(self.model))

    def only_gguf(self, *names):
        """Replace the files of the hub with GGUF files of different sizes, and files that are never fetched."""
        self.hub.files.clear()
        self.hub.files.update({"config.json": b"{}", "README.md": b"# tiny",
                               **{name: b"GGUF" * (i + 1) * 250000 for i, name in enumerate(names)}})

    def test_the_only_gguf_file(self):
        self.only_gguf("tiny-Q8_0.gguf")
        path = os.path.join(self.model, "snapshots", COMMIT, "tiny-Q8_0.gguf")
        for env in ({}, {"HF_HUB_OFFLINE": "1"}):
            self.assertEqual(self.pull(**env).out.strip(), path)
        self.assertEqual(self.snapshot(), {"tiny-Q8_0.gguf": self.hub.files["tiny-Q8_0.gguf"]})

    def test_one_of_several_gguf_files(self):
        self.only_gguf("tiny-F16.gguf", "more/tiny-Q4_0.gguf")
        done = self.refused("the model has 2 GGUF files and no other weights; name one: gpuserve pull org/tiny FILE")
        self.assertIn("tiny-F16.gguf, 1.0 MB", done.err)
        self.assertIn("more/tiny-Q4_0.gguf, 2.0 MB", done.err)
        self.assertIn('no file "tiny.gguf"', self.refused("more/tiny-Q4_0.gguf, 2.0 MB", "tiny.gguf").err)
        self.assertFalse(os.path.exists(self.model))
        path = os.path.join(self.model, "snapshots", COMMIT, "more/tiny-Q4_0.gguf")
        for env in ({}, {"HF_HUB_OFFLINE": "1"}):
            self.assertEqual(self.pull("more/tiny-Q4_0.gguf", **env).out.strip(), path)
        self.assertEqual(list(self.snapshot()), ["more/tiny-Q4_0.gguf"])
        self.refused("org/tiny/tiny-F16.gguf: revision main is not in the cache", "tiny-F16.gguf", HF_HUB_OFFLINE="1")

    def test_many_gguf_files(self):
        self.only_gguf(*(f"tiny-{i}.gguf" for i in range(40)))
        done = self.refused("the model has 40 GGUF files")
        self.assertIn("and 10 more", done.err)

    def test_gguf_file_beside_other_weights(self):
        self.hub.files["tiny.gguf"] = b"GGUF"
        self.pull()
        self.check_whole()
        self.assertTrue(self.pull("tiny.gguf").out.strip().endswith("/tiny.gguf"))
        self.assertEqual(sorted(self.snapshot()), sorted([*NEEDED, "tiny.gguf"]))

    def test_all_parts_of_a_split_gguf_file(self):
        parts = [f"tiny-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
        path = os.path.join(self.model, "snapshots", COMMIT, parts[0])
        self.only_gguf(*reversed(parts))
        for env in ({}, {"HF_HUB_OFFLINE": "1"}):
            for name in ([], parts[:1]):
                self.assertEqual(self.pull(*name, **env).out.strip(), path)
        self.assertEqual(sorted(self.snapshot()), parts)
        done = self.refused("tiny-00002-of-00003.gguf is part 2 of 3 of a split GGUF file", parts[1])
        self.assertIn("gpuserve pull org/tiny tiny-00001-of-00003.gguf", done.err)

    def test_a_split_gguf_file_without_a_part(self):
        self.only_gguf("tiny-00001-of-00002.gguf", "other.gguf")
        self.refused("the model has no file tiny-00002-of-00002.gguf", "tiny-00001-of-00002.gguf")
        self.only_gguf("tiny-00001-of-00001.gguf")
        self.pull()

    def test_names_that_are_no_gguf_files(self):
        self.refused("the model has no GGUF files", "tiny.gguf")
        for name in ("model.safetensors", "../tiny.gguf", "/tiny.gguf", ".gguf", ""):
            done = gpuserve("pull", "org/tiny", name, env=self.env)
            self.assertEqual(done.returncode, 2, name)
            self.assertIn("is not the name of a .gguf file", done.err, name)
        self.fails(2, "needs one model", "pull", "org/tiny", "a.gguf", "b.gguf", env=self.env)

    def test_answers_that_are_no_listing(self):
        for text, message in (("<html>", "is not JSON"), ("{}", "does not describe"),
                              ('{"sha": "../../x", "siblings": []}', "does not describe")):
            self.hub.listing = lambda _, text=text: text
            self.refused(message)
        self.hub.listing = lambda _: " " * (17 << 20)
        self.refused("exceeds")

    def test_no_hub(self):
        self.refused("http://127.0.0.1:1", HF_ENDPOINT="http://127.0.0.1:1")
        self.refused("not an http or https URL", HF_ENDPOINT="ftp://127.0.0.1")

    def test_what_was_pulled_is_found_by_name(self):
        folder = model("splade-tiny")
        self.hub.files.clear()
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            with open(os.path.join(folder, name), "rb") as file:
                self.hub.files[name] = file.read()
        self.pull()
        env = environment(HF_HOME=self.home, HF_HUB_OFFLINE="1")
        by_name = self.works("embed", "-m", "org/tiny", "a text", env=env).out
        self.assertEqual(by_name, self.works("embed", "-m", folder, "a text").out)

    def test_two_at_once(self):
        self.hub.break_after["model.safetensors"] = 1000
        both = [subprocess.Popen([PROGRAM, "pull", "org/tiny"], env=self.env,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for _ in range(2)]
        for one in both:
            one.communicate()
            self.assertEqual(one.returncode, 0)
        self.check_whole()

    def test_certificate_is_checked(self):
        key, certificate = self.path("key.pem"), self.path("certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                        "-out", certificate, "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        hub = self.hub

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                hub.requests.append(("tls", self.path, None, self.headers.get("Authorization")))
                hub.answer(self, "hub")

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = "https://127.0.0.1:%d" % server.server_address[1]
        done = self.refused("certificate", HF_ENDPOINT=url, HF_TOKEN="hf_secret")
        self.assertIn("CURL_CA_BUNDLE", done.err)
        self.assertEqual(hub.requests, [])
        # With the certificate trusted the listing comes, but the redirect of the weights leads
        # from https to http: not followed.
        self.refused("model.safetensors", HF_ENDPOINT=url, CURL_CA_BUNDLE=certificate)
        self.assertEqual([r for r in hub.requests if r[0] == "cdn"], [])

    def test_without_libcrypto(self):
        """A libcurl that does nothing, and a libcrypto that cannot be loaded."""
        functions = "global_init global_cleanup easy_cleanup easy_reset easy_setopt easy_getinfo easy_perform easy_strerror"
        source = self.write("curl.c", "".join("long curl_%s(void) { return 0; }\n" % name for name in functions.split()) +
                            "void *curl_easy_init(void) { return \"\"; }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.path("libcurl.so.4"), source], check=True)
        for name in ("libcrypto.so.3", "libcrypto.so.1.1"):
            self.write(name, "no library")
        done = self.refused("libcrypto.so.3: ", LD_LIBRARY_PATH=self.folder)
        self.assertIn("libcrypto, which verifies downloads, cannot be loaded", done.err)
        self.assertIn("apt-get install libssl3", done.err)

    def test_hashes_of_small_files(self):
        data, lengths = bytes(range(200)), (0, 1, 55, 56, 63, 64, 65, 130)
        self.hub.files.update({f"part-{n}.json": data[:n] for n in lengths})
        self.hub.files.update({f"lfs-{n}.safetensors": data[:n] for n in lengths})
        self.pull("--include", "lfs-*.safetensors")
        found = self.snapshot()
        for n in lengths:
            self.assertEqual(found[f"part-{n}.json"], data[:n])
            self.assertEqual(found[f"lfs-{n}.safetensors"], data[:n])


class PullByHelper(Pull):
    """What depends on the requests, without libcurl: Python's own TLS makes them."""

    names = ("layout_is_that_of_the_cache", "broken_connection_is_gone_on_with", "server_without_ranges", "more_than_listed", "token",
             "not_found", "no_hub", "certificate_is_checked", "helpers_that_fail", "helpers_that_compute_no_hash")

    def setUp(self):
        super().setUp()
        self.env["GPUSERVE_FETCH"] = "\n".join((sys.executable, "-I", os.path.join(ROOT, "python/gpuserve/_fetch.py")))

    def test_helpers_that_fail(self):
        for helper, message in (("/nowhere/helper", "No such file"), ("false", "gave no answer"),
                                ("sh\n-c\necho 0 the cable is cut", "the cable is cut"),
                                ("sh\n-c\nyes no number", "no number"),
                                ("sh\n-c\nyes | tr -d '\\n'", "gave no answer"), ("\n".join("x" * 17), "more than 16 words")):
            self.refused(message, GPUSERVE_FETCH=helper)

    def test_helpers_that_compute_no_hash(self):
        fetch = self.env["GPUSERVE_FETCH"].replace("\n", " ")
        for answer in ("echo 0123", "exit 1", "echo %s" % ("0" * 65), "printf %s" % ("x" * 41)):
            script = 'case " $*" in *--hash*) %s;; *) exec %s;; esac' % (answer, fetch)
            self.refused("config.json: the helper of GPUSERVE_FETCH computes no git hash",
                         GPUSERVE_FETCH="sh\n-c\n%s\nsh" % script)


for missing in [name for name in dir(Pull) if name.startswith("test_") and name[len("test_"):] not in PullByHelper.names]:
    setattr(PullByHelper, missing, None)  # a process for each request takes its time


if __name__ == "__main__":
    main(__name__)
