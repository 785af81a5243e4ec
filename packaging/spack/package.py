# Copyright of the Pinion developers. SPDX-License-Identifier: BSD-3-Clause
"""Pinion for Spack: copy this folder to packages/pinion of a repository of yours (`spack repo create`)."""

from spack.package import *


class Pinion(CMakePackage):
    """Memory registration for RDMA and other DMA engines: keeps registered what the next transfers of a program need, below a
    limit and below unchanged programs."""

    license("BSD-3-Clause")

    # Nothing is published yet. In a checkout: `spack dev-build pinion@0.2.0`.
    version("0.2.0")

    variant("verbs", default=True, description="Devices of libibverbs, and the front below it")
    variant("libfabric", default=True, description="Device fabric, and memory events for libfabric's cache")
    variant("libdw", default=True, description="Call sites as lines of source in reports")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("pkgconfig", type="build")
    depends_on("cli11", type="build")
    depends_on("fmt", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("rdma-core", when="+verbs")
    depends_on("libfabric@1.14:", when="+libfabric")
    depends_on("elfutils", when="+libdw")

    requires("platform=linux")
    requires("%gcc@11:", "%clang@14:", policy="one_of")

    def cmake_args(self):
        return [
            self.define_from_variant("PINION_VERBS", "verbs"),
            self.define_from_variant("PINION_LIBFABRIC", "libfabric"),
            self.define_from_variant("PINION_LIBDW", "libdw"),
            self.define("PINION_MPI_PROGRAMS", False),
            self.define("PINION_UCX", False),
            self.define("PINION_OPEN_MPI_CACHE", False),
            self.define("BUILD_TESTING", self.run_tests),
        ]

    def check(self):
        ctest("-L", "unit")
