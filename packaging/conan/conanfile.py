"""conan create packaging/conan [-o gpuserve/*:shared=True] [-o gpuserve/*:http=True]

The recipe packs the checkout that it lies in.
"""
import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy, rm, rmdir
from conan.tools.gnu import PkgConfigDeps
from conan.tools.layout import basic_layout
from conan.tools.meson import Meson, MesonToolchain

required_conan_version = ">=2.0"


class Gpuserve(ConanFile):
    name = "gpuserve"
    version = "0.2.0"
    description = "Text to vectors, labels and scores inside your process"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "http": [True, False]}
    default_options = {"shared": True, "http": False}

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("gpuserve runs on Linux only")
        if self.options.http and not self.options.shared:
            raise ConanInvalidConfiguration("the HTTP front end is a shared library: http=True needs shared=True")

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("meson.build", "meson_options.txt", "LICENSE", "include/*", "lib/*", "kernels/*", "cli/*",
                        "docs/gpuserve.1", "packaging/cmake/*", "examples/*", "share/*", "tests/*", "fuzz/*", "benchmarks/*", "tools/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        self.requires("jansson/2.14")
        self.requires("xxhash/0.8.2", visible=False)
        if self.options.http:
            self.requires("libmicrohttpd/1.0.1")
            self.requires("openssl/[>=3 <4]")
            self.requires("zlib/[>=1.2.11 <2]")

    def build_requirements(self):
        self.tool_requires("meson/[>=1.2 <2]")
        self.tool_requires("pkgconf/[>=2.1 <3]")

    def layout(self):
        basic_layout(self)

    def generate(self):
        toolchain = MesonToolchain(self)
        toolchain.project_options.update({
            "tests": "disabled", "cuda": "disabled", "onednn": "disabled", "cli": "disabled",
            "http": "enabled" if self.options.http else "disabled",
            "static_library": not self.options.shared,
        })
        toolchain.generate()
        PkgConfigDeps(self).generate()

    def build(self):
        meson = Meson(self)
        meson.configure()
        meson.build()

    def package(self):
        Meson(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        if not self.options.shared:
            rm(self, "*.so*", os.path.join(self.package_folder, "lib"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "gpuserve")
        core = self.cpp_info.components["gpuserve"]
        core.libs = ["gpuserve"]
        core.set_property("cmake_target_name", "gpuserve::gpuserve")
        core.set_property("pkg_config_name", "gpuserve")
        core.requires = ["jansson::jansson", "xxhash::xxhash"]
        core.system_libs = ["pthread", "dl", "m"]
        if self.options.http:
            http = self.cpp_info.components["http"]
            http.libs = ["gpuserve-http"]
            http.set_property("cmake_target_name", "gpuserve::http")
            http.requires = ["gpuserve", "libmicrohttpd::libmicrohttpd", "openssl::openssl", "zlib::zlib"]
