# pinion_own_runtime(LIBRARY): the C++ runtime is inside of the library and hidden, so that it cannot clash with the program's. The
# unwinder is the process's (src/unwinder.cpp), and static variables are made anew in a forked child (src/static_guards.cpp).
# Sanitizers need the shared runtime. zig's runtime is inside anyway, and its unwinder that of libgcc_s (manylinux.cmake).
function(pinion_own_runtime library)
  if(PINION_SANITIZE)
    return()
  endif()
  target_link_options(${library} PRIVATE -static-libstdc++ -static-libgcc)
  target_sources(${library} PRIVATE ${PROJECT_SOURCE_DIR}/src/static_guards.cpp)
  if(PINION_ZIG)
    return()
  endif()
  target_sources(${library} PRIVATE ${PROJECT_SOURCE_DIR}/src/unwinder.cpp)
  foreach(function RaiseException Resume Resume_or_Rethrow DeleteException GetLanguageSpecificData GetRegionStart GetIPInfo
                   GetTextRelBase GetDataRelBase SetGR SetIP)
    target_link_options(${library} PRIVATE -Wl,--wrap=_Unwind_${function})
  endforeach()
endfunction()
