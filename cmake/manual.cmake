# Man pages and shell completion, made by packaging/manual/generate.py from the command's own parser, docs/commands.md
# and the public headers. Part of the target `product`; a wheel goes without.
if(PINION_CORE_ONLY OR SKBUILD)
  return()
endif()
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
set(manual ${PROJECT_BINARY_DIR}/manual)
file(GLOB scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/packaging/manual/*.py)
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/pinion/*.h)
add_custom_command(
  OUTPUT ${manual}/made
  COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/packaging/manual/generate.py $<TARGET_FILE:pinion_command>
          ${PROJECT_SOURCE_DIR} ${manual}
  COMMAND ${CMAKE_COMMAND} -E touch ${manual}/made
  DEPENDS pinion_command ${scripts} ${headers} ${PROJECT_SOURCE_DIR}/docs/commands.md
  COMMENT "Making man pages and shell completion"
  VERBATIM)
add_custom_target(manual ALL DEPENDS ${manual}/made)
add_dependencies(product manual)

install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(DIRECTORY ${manual}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT development)
install(FILES ${manual}/completion/pinion DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${manual}/completion/pinion.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
# Debian's zsh looks for packages' functions in a directory of its own.
set(zsh_functions site-functions)
if(EXISTS /etc/debian_version)
  set(zsh_functions vendor-completions)
endif()
install(FILES ${manual}/completion/_pinion DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${zsh_functions})
