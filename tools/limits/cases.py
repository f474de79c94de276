"""The tests of a build, as small as they can be run alone, and what has to be built for them.

A script that ends in `main(__name__)` (tests/cli/common.py) runs those of its cases that it is given by
name, so each is a test of its own here: `http_keys:Bad.test_options`. A check is then looked at by the
cases that meet it and not by all that stand in their file. Other programs are run whole.
"""
import ast
import json
import re
import subprocess
from pathlib import Path


def introspect(folder, what):
    return json.loads(subprocess.run(["meson", "introspect", "--" + what, str(folder)], check=True,
                                     stdout=subprocess.PIPE).stdout)


def cases_in(text):
    """["Class.test_name"] of a script; a class has those of its bases in the same file, too."""
    methods = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            own = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            methods[node.name] = dict.fromkeys([name for base in bases for name in methods.get(base, ())] + own)
    return [f"{owner}.{name}" for owner, names in methods.items() for name in names if name.startswith("test")]


def script_of(test):
    """The script of a test that can run its cases alone, or None."""
    path = Path(test["cmd"][-1])
    return path if path.suffix == ".py" and "main(__name__)" in path.read_text("utf-8") else None


def cases_of(folder, is_meant):
    """name -> test, as `meson introspect --tests` has them."""
    found = {}
    for test in filter(is_meant, introspect(folder, "tests")):
        script = script_of(test)
        if script:
            found |= {f"{test['name']}:{case}": {**test, "cmd": [*test["cmd"], case]}
                      for case in cases_in(script.read_text("utf-8"))}
        else:
            found[test["name"]] = test
    return found


def targets_of(folder, tests):
    """The files that these tests need, as ninja calls them."""
    wanted = {target for test in tests for target in test["depends"]}
    return sorted({str(Path(name).relative_to(folder.resolve())) for target in introspect(folder, "targets")
                   if target["id"] in wanted for name in target["filename"]})


def sources_of(tree, test):
    """The folders and files that decide what a test does: of the product, its own script, and what scripts
    of that folder share; of other programs their whole folder."""
    product = {tree / name for name in ("lib", "include", "kernels", "cli")}
    own = {tree / word for part in test["cmd"] for word in re.findall(r"tests/\w+(?=/)", part)}
    if tree / "tests" / "python" in own:
        product.add(tree / "python")
    scripts = {Path(part).resolve() for part in test["cmd"] if part.endswith(".py")}
    if not scripts:
        return product | own
    shared = {path for folder in own for path in folder.glob("*.py") if not path.name.startswith("test_")}
    return product | scripts | shared
