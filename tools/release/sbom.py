#!/usr/bin/env python3
"""The bill of materials of a release, in SPDX 2.3 JSON: sbom.py VERSION OUTPUT RECORDS FILE...

Each file is a package with its sha256. Binary tarballs list their components themselves (LICENSES/components.json, which
tools/release/contents.py read from the build); for a wheel or a Debian package RECORDS/SHA256.json has that list; a source tarball
contains those of packaging/components.json whose "sources" it has. What a file contains, needs from the system and loads if it is installed are three kinds of relationship. spdx-tools then parses and
validates what was written. SOURCE_DATE_EPOCH is its time: the same files give the same bytes.
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import sys
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RELATIONS = {"contained": "CONTAINS", "needed": "DEPENDS_ON", "loaded": "OPTIONAL_DEPENDENCY_OF"}


def identifier(*words):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", "-".join(words))


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def components_of(path, data, records):
    """{id: version or None} of a file."""
    if path.suffix != ".gz":
        return json.loads((records / (sha256(path) + ".json")).read_text(encoding="utf-8"))
    return components_of_tarball(path, data)


def components_of_tarball(tarball, data):
    with tarfile.open(tarball) as archive:
        names = archive.getnames()
        top = names[0].split("/")[0]
        if f"{top}/LICENSES/components.json" in names:
            return json.load(archive.extractfile(f"{top}/LICENSES/components.json"))
        found = {}
        for component in data["contained"]:
            if "sources" in component and any(name.startswith(f"{top}/{component['sources']}") for name in names):
                text = archive.extractfile(f"{top}/{component['version_file']}").read().decode()
                found[component["id"]] = re.search(component["version"], text)[1]
        return found


def purpose(name):
    if not name.endswith(".tar.gz"):
        return "INSTALL"
    return "ARCHIVE" if "-linux-" in name else "SOURCE"


def own_name(path):
    """That of the Debian package or of the Python package, else the project's."""
    if path.suffix == ".deb":
        return path.name.split("_")[0]
    return path.name.split("-")[0].replace("_", "-") if path.suffix == ".whl" else "gpuserve"


def own_package(name, path, version, data, contained):
    own = data["gpuserve"]
    licences = [own["licence"], *sorted({f"({licence})" if " " in licence else licence for licence in contained})]
    return {
        "SPDXID": identifier(name), "name": own_name(path), "versionInfo": version, "packageFileName": name, "supplier": own["supplier"],
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": " AND ".join(licences), "licenseDeclared": own["licence"],
        "copyrightText": "Copyright " + own["copyright"], "primaryPackagePurpose": purpose(name),
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256(path)}],
    }


def component_package(component, version):
    # A version of something else, such as of the package whose tables were copied, is in the text only.
    known = version if version and "version_is" not in component else None
    copyright_text = component["copyright"]
    location = component["download"].format(version=known) if known or "{" not in component["download"] else "NOASSERTION"
    package = {
        "SPDXID": identifier(component["id"], *([version] if version else [])), "name": component["name"], "supplier": component["supplier"],
        "downloadLocation": location, "homepage": component["home"], "filesAnalyzed": False,
        "licenseConcluded": component["licence"], "licenseDeclared": component["licence"],
        "copyrightText": copyright_text if copyright_text == "NOASSERTION" else "Copyright " + copyright_text,
        "comment": component["what"].format(version=version),
    }
    if known:
        package["versionInfo"] = known
        if "purl" in component:
            package["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                        "referenceLocator": component["purl"].format(version=known)}]
    return package


def relation(entry, number):
    """How a file has a component. One that others contain, and that has no version, is the system's."""
    how, component = entry
    return "needed" if how == "contained" and number is None else how, component


def document(version, files, texts, records=None):
    data = json.loads((ROOT / "packaging/components.json").read_text(encoding="utf-8"))
    known = {component["id"]: (how, component) for how in RELATIONS for component in data[how]}
    packages, relationships, used = [], [], {}
    for path in sorted(files, key=lambda path: path.name):
        components = components_of(path, data, records)
        package = own_package(path.name, path, version, data,
                              [known[name][1]["licence"] for name, number in components.items() if relation(known[name], number)[0] == "contained"])
        packages.append(package)
        relationships.append(("SPDXRef-DOCUMENT", "DESCRIBES", package["SPDXID"]))
        for name, number in components.items():
            how, component = relation(known[name], number)
            entry = component_package(component, number)
            used[entry["SPDXID"]] = entry
            ends = (package["SPDXID"], entry["SPDXID"])
            relationships.append((ends[1], RELATIONS[how], ends[0]) if how == "loaded" else (ends[0], RELATIONS[how], ends[1]))
    packages += [used[name] for name in sorted(used)]
    unlisted = sorted({package["licenseDeclared"] for package in used.values() if package["licenseDeclared"].startswith("LicenseRef-")})
    digest = hashlib.sha256("".join(package["checksums"][0]["checksumValue"] for package in packages if "checksums" in package).encode())
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"gpuserve-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/gpuserve-{version}-{digest.hexdigest()}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": [data["gpuserve"]["supplier"], f"Tool: gpuserve-sbom-{version}"]},
        "packages": packages,
        "relationships": [{"spdxElementId": source, "relationshipType": kind, "relatedSpdxElement": target}
                          for source, kind, target in relationships],
        "hasExtractedLicensingInfos": [{"licenseId": name, "name": name, "extractedText": texts[name]} for name in unlisted],
    }


def texts_in(path):
    """{name: text} of the files in LICENSES/ of a tarball or wheel."""
    found = {}
    if path.suffix == ".gz":
        with tarfile.open(path) as archive:
            for name in archive.getnames():
                if re.fullmatch(r"[^/]+/LICENSES/[^/]+\.txt", name):
                    found[name.rsplit("/", 1)[1]] = archive.extractfile(name).read().decode(errors="replace")
    elif path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"[^/]+/licenses/LICENSES/[^/]+\.txt", name):
                    found[name.rsplit("/", 1)[1]] = archive.read(name).decode(errors="replace")
    return found


def licence_texts(files):
    """The texts of licences that SPDX does not list: tarballs and wheels bring them."""
    data = json.loads((ROOT / "packaging/components.json").read_text(encoding="utf-8"))
    brought = {name: text for path in files for name, text in texts_in(path).items()}
    return {component["licence"]: brought[component["text"]] for component in data["contained"]
            if component["licence"].startswith("LicenseRef-") and component["text"] in brought}


def problems(path):
    """What spdx-tools finds."""
    from spdx_tools.spdx.parser.error import SPDXParsingError
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
    try:
        return [message.validation_message for message in validate_full_spdx_document(parse_file(str(path)))]
    except SPDXParsingError as error:
        return error.get_messages()


def main():
    version, output = sys.argv[1], pathlib.Path(sys.argv[2])
    records, files = pathlib.Path(sys.argv[3]), [pathlib.Path(word) for word in sys.argv[4:]]
    output.write_text(json.dumps(document(version, files, licence_texts(files), records), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    found = problems(output)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
