# cmake -DSOURCE=... -DCOMPILER=... -DOUTPUT=... -P build_stamp.cmake: writes OUTPUT, a C string. It is equal
# in two builds only if a front and libpinion share the same headers and compiler.
file(GLOB_RECURSE headers RELATIVE ${SOURCE} ${SOURCE}/src/*.h ${SOURCE}/include/*.h)
list(SORT headers)
set(all "${COMPILER}")
foreach(header ${headers})
  file(SHA256 ${SOURCE}/${header} hash)
  string(APPEND all "\n${header} ${hash}")
endforeach()
string(SHA256 stamp "${all}")
file(WRITE ${OUTPUT} "\"pinion-build-${stamp}\"\n")
