# The preloads by paths with `$LIB`, which each dynamic loader of glibc replaces by its own word: pinion/$LIB beside the libraries
# leads to them for programs of 64 bits, and to a library without content for those of 32, whose loader would complain of the other
# kind. musl's loader knows no `$LIB`, finds nothing there, and goes on. A remote shell that replaces `$LIB` by nothing finds them, too.
set(place ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/pinion)
set(preloads)
# The library that the preloads need has a link beside each of theirs: in each directory of the path a loader looks into up to
# ten subdirectories first, at each start of a process. A wheel has no links, and its preloads look further up.
set(origins "\$ORIGIN")
set(needed libpinion.so.0)
if(SKBUILD)
  list(APPEND origins "\$ORIGIN/.." "\$ORIGIN/../.." "\$ORIGIN/../../..")
  set(needed)
endif()
foreach(target pinion-preload pinion-symbols pinion-heap)
  if(TARGET ${target})
    list(APPEND preloads lib${target}.so)
    set_target_properties(${target} PROPERTIES BUILD_RPATH "${origins}" INSTALL_RPATH "${origins}")
  endif()
endforeach()

# Nobody; Fedora and SUSE; Arch and Nix; Debian and Ubuntu.
foreach(lib . lib64 lib lib/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
  file(MAKE_DIRECTORY ${place}/${lib})
  cmake_path(RELATIVE_PATH CMAKE_LIBRARY_OUTPUT_DIRECTORY BASE_DIRECTORY ${place}/${lib} OUTPUT_VARIABLE up)
  foreach(name IN LISTS preloads needed)
    file(CREATE_LINK ${up}/${name} ${place}/${lib}/${name} SYMBOLIC)
  endforeach()
endforeach()

# A compiler that makes nothing for 32 bits leaves such programs to their loader's complaint.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  set(small ${CMAKE_C_COMPILER} -m32)
  if(PINION_ZIG)
    set(small ${PINION_ZIG} cc -target x86-linux-gnu)
  endif()
  set(empty ${CMAKE_CURRENT_BINARY_DIR}/empty)
  file(WRITE ${empty}.c "")
  execute_process(COMMAND ${small} -shared -nostdlib -fPIC -Wl,-s ${empty}.c -o ${empty}.so RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  foreach(lib lib/i386-linux-gnu lib32)
    foreach(name IN LISTS preloads)
      if(NOT failed)
        file(MAKE_DIRECTORY ${place}/${lib})
        configure_file(${empty}.so ${place}/${lib}/${name} COPYONLY)
      endif()
    endforeach()
  endforeach()
endif()
