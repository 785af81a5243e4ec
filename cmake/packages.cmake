# Debian packages by CPack, of what `cmake --install` puts into /usr: `pinion` (the command, the preloads, the libraries)
# and `libpinion-dev`. Binaries are stripped; their debug information is in `pinion-dbgsym`, by build id. Dependencies are
# dpkg-shlibdeps's.
# The target `deb` builds them into packages/ of the build directory; it needs dpkg-dev and file.
# RPMs of the same: `pinion` and `pinion-devel`. The target `rpm` builds them, and needs rpmbuild. Built by the preset
# manylinux, they suit every distribution from glibc 2.28 on (RHEL 8).
# The target `dist` makes packages/pinion-VERSION.tar.gz, the sources of the commit that is checked out; it needs git.
add_custom_target(
  dist
  COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/packages
  COMMAND git -C ${PROJECT_SOURCE_DIR} archive --prefix=pinion-${PROJECT_VERSION}/
          -o ${PROJECT_BINARY_DIR}/packages/pinion-${PROJECT_VERSION}.tar.gz HEAD
  VERBATIM)
if(PINION_CORE_ONLY)
  return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME pinion)
set(CPACK_PACKAGE_VENDOR "the Pinion developers")
set(CPACK_PACKAGE_CONTACT "the Pinion developers")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME pinion)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION net)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
    "memory registration for RDMA: the command and its libraries\n Keeps registered the memory that the next transfers of a program need, below a limit.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "libdw1 | libdw1t64, python3, python3-matplotlib, python3-jinja2")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libibverbs1, libfabric1, qemu-system-x86, busybox-static")
set(CPACK_DEBIAN_RUNTIME_DEBUGINFO_PACKAGE ON)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libpinion-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "memory registration for RDMA: headers\n Headers, CMake package, pkg-config files, examples and manual of the C and C++ interfaces.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)  # it has no binaries

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE BSD-3-Clause)
set(CPACK_RPM_PACKAGE_RELOCATABLE ON)
set(CPACK_RPM_RUNTIME_PACKAGE_NAME pinion)
set(CPACK_RPM_RUNTIME_PACKAGE_SUGGESTS "elfutils-libs")
set(CPACK_RPM_DEVELOPMENT_PACKAGE_NAME pinion-devel)
set(CPACK_RPM_DEVELOPMENT_PACKAGE_AUTOREQ OFF)  # it has no binaries
# The links of the preloads are nothing to depend on, and busybox is for machines that have QEMU.
set(CPACK_RPM_SPEC_MORE_DEFINE "%define __provides_exclude_from ^/usr/lib(64)?/pinion/
%define __requires_exclude_from ^/usr/(lib(64)?|share)/pinion/")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "pinion (= ${PROJECT_VERSION})")
set(CPACK_RPM_DEVELOPMENT_PACKAGE_REQUIRES "pinion = ${PROJECT_VERSION}")
# These folders belong to the distribution's own package `filesystem`, or to others.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
    /usr/lib64 /usr/include /usr/share/man /usr/share/man/man1 /usr/share/man/man3 /usr/share/man/man5 /usr/share/man/man7
    /usr/${CMAKE_INSTALL_LIBDIR}/cmake /usr/${CMAKE_INSTALL_LIBDIR}/pkgconfig /usr/share/bash-completion
    /usr/share/bash-completion/completions /usr/share/zsh /usr/share/zsh/site-functions /usr/share/zsh/vendor-completions
    /usr/share/fish /usr/share/fish/vendor_completions.d)
include(CPack)

# pinion_packages(TARGET GENERATOR TOOLS PACKAGES): the target, and what it says where a tool is missing.
function(pinion_packages target generator tools packages)
  list(TRANSFORM tools PREPEND "command -v ")
  list(JOIN tools " && " all)
  add_custom_target(
    ${target}
    COMMAND sh -c "{ ${all}; } >/dev/null || { echo '${target}: needs ${packages}' >&2; exit 2; }"
    COMMAND ${CMAKE_CPACK_COMMAND} -G ${generator} --config ${PROJECT_BINARY_DIR}/CPackConfig.cmake
    VERBATIM)
  add_dependencies(${target} product)
endfunction()
pinion_packages(deb DEB "file;dpkg-shlibdeps" "the packages dpkg-dev and file: apt-get install dpkg-dev file")
pinion_packages(rpm RPM rpmbuild "rpmbuild (Debian: the package rpm)")
