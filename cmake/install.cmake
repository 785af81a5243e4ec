# Places of what `cmake --install` installs: the library with its header, CMake package and pkg-config file; the command and
# the preload, which finds libpinion beside itself; licence and documents. The target `product` builds all of it.
# Each component is a package of cmake/packages.cmake: `runtime`, the default and `development`.
include(CMakePackageConfigHelpers)
add_custom_target(product)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime)

set(libraries pinion)
if(TARGET pinion-firehose)
  list(APPEND libraries pinion-firehose)
endif()
set(namelink NAMELINK_COMPONENT development)
# A wheel has no links: the linker's own script costs no second copy.
if(SKBUILD)
  set(namelink NAMELINK_SKIP)
  foreach(library IN LISTS libraries)
    file(WRITE ${PROJECT_BINARY_DIR}/links/lib${library}.so "INPUT(lib${library}.so.0)\n")
    install(FILES ${PROJECT_BINARY_DIR}/links/lib${library}.so DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  endforeach()
endif()
install(TARGETS ${libraries} EXPORT pinionTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${namelink}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/pinion DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
add_dependencies(product ${libraries})
foreach(target pinion-preload pinion-symbols pinion-heap pinion_command)
  if(TARGET ${target})
    add_dependencies(product ${target})
    install(TARGETS ${target}
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
            RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

if(TARGET pinion-preload)
  install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/pinion DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# The users' pages. A link to what stays with the sources, such as docs/internals, becomes its text.
set(stays "(\\.\\./)?(CHANGELOG|CONTRIBUTING|SECURITY)\\.md|\\.\\./(bench|papers|examples)/[^)]*|(docs/)?(internals/|architecture\\.md)[^)]*")
file(GLOB pages CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/docs/*.md)
list(REMOVE_ITEM pages docs/architecture.md)
foreach(page README.md ${pages})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${page})
  file(READ ${PROJECT_SOURCE_DIR}/${page} text)
  string(REGEX REPLACE "\\[([^]]*)\\]\\((${stays})\\)" "\\1" text "${text}")
  file(WRITE ${PROJECT_BINARY_DIR}/pages/${page} "${text}")
  get_filename_component(folder ${page} DIRECTORY)
  install(FILES ${PROJECT_BINARY_DIR}/pages/${page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/images DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/examples/registration_cache.c ${PROJECT_SOURCE_DIR}/examples/prepare.c
              ${PROJECT_SOURCE_DIR}/examples/firehose.c
              ${PROJECT_SOURCE_DIR}/examples/lease.cpp
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development)

# `pinion softroce` finds them beside the command, in the build tree too.
foreach(part machine init guest)
  configure_file(${PROJECT_SOURCE_DIR}/softroce/${part} ${PROJECT_BINARY_DIR}/share/pinion/softroce/${part} COPYONLY)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/softroce/${part} DESTINATION ${CMAKE_INSTALL_DATADIR}/pinion/softroce)
endforeach()

# Likewise the parts of the command in Python; `import pinion` finds the module there, too.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/pinion/python)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/pinion ${PROJECT_BINARY_DIR}/share/pinion/python/pinion SYMBOLIC)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/pinion DESTINATION ${CMAKE_INSTALL_DATADIR}/pinion/python
        PATTERN __pycache__ EXCLUDE)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pinion)
install(EXPORT pinionTargets NAMESPACE pinion:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/packaging/pinionConfig.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/pinionConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break compiled programs.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/pinionConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pinionConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/pinionConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT development)

# Relative to the file itself, so that an installed tree can be moved.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH PINION_PC_PREFIX ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
foreach(library ${libraries})
  configure_file(${PROJECT_SOURCE_DIR}/packaging/${library}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${library}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${library}.pc DESTINATION ${pkgconfig_dir} COMPONENT development)
endforeach()

# For installations beside each other: environment modules, or Lmod.
configure_file(${PROJECT_SOURCE_DIR}/packaging/modulefile.in ${CMAKE_CURRENT_BINARY_DIR}/modulefile @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/modulefile
        DESTINATION ${CMAKE_INSTALL_DATADIR}/pinion/modulefiles/pinion RENAME ${PROJECT_VERSION})

# The target `uninstall` runs it: `cmake --build build --target uninstall`.
add_custom_target(uninstall
                  COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
                          -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake
                  VERBATIM)
