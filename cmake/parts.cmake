# Optional parts. Each is a cache variable with one of three values: AUTO (in where all that it needs is found), ON (an
# error where something is missing), OFF. pinion_summary() prints at the end of the configuration which are in, and why
# others are out.
include(CheckIncludeFileCXX)

# pinion_part(OPTION TEXT MISSING): declares the part and sets OPTION_IN to whether it is built. MISSING: the needs that
# this machine lacks, with their Debian packages; empty where it has all.
function(pinion_part option text missing)
  set(${option} AUTO CACHE STRING "${text}: AUTO, ON or OFF")
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  string(TOUPPER "${${option}}" value)
  if(NOT value MATCHES "^(AUTO|ON|OFF|TRUE|FALSE|YES|NO|1|0)$")
    message(FATAL_ERROR "${option}=${${option}}: valid are AUTO, ON and OFF")
  endif()
  set(in FALSE)
  if(value STREQUAL "AUTO")
    if(missing STREQUAL "")
      set(in TRUE)
    else()
      set(why "needs ${missing}")
    endif()
  elseif(${option})
    if(NOT missing STREQUAL "")
      message(FATAL_ERROR "${option}=${${option}} needs ${missing}")
    endif()
    set(in TRUE)
  else()
    set(why "${option}=${${option}}")
  endif()
  set(${option}_IN ${in} PARENT_SCOPE)
  if(in)
    pinion_note("in   ${text} (${option})")
  else()
    pinion_note("out  ${text} (${option}): ${why}")
  endif()
endfunction()

# One more line of the summary.
function(pinion_note line)
  set_property(GLOBAL APPEND PROPERTY PINION_NOTES "${line}")
endfunction()

function(pinion_summary)
  get_property(lines GLOBAL PROPERTY PINION_NOTES)
  message(STATUS "Pinion ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}:")
  foreach(line ${lines})
    message(STATUS "  ${line}")
  endforeach()
endfunction()

# pinion_missing_header(VARIABLE HEADER PACKAGE): empties VARIABLE where the compiler finds HEADER. One that was missing is
# looked for again each time: it may have been installed since.
function(pinion_missing_header variable header package)
  string(MAKE_C_IDENTIFIER "PINION_FOUND_${header}" found)
  if(NOT ${found})
    unset(${found} CACHE)
  endif()
  check_include_file_cxx(${header} ${found})
  set(${variable} "" PARENT_SCOPE)
  if(NOT ${found})
    set(${variable} "${header} (Debian: ${package})" PARENT_SCOPE)
  endif()
endfunction()
