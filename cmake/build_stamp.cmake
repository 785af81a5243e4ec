# cmake -DSOURCE=... -DCOMPILER=... -DOUTPUT=... -P build_stamp.cmake: writes OUTPUT, a C string that is the same for two
# builds only if what a front and libpinion share is the same: every header, and the compiler.
file(GLOB_RECURSE headers RELATIVE ${SOURCE} ${SOURCE}/src/*.h ${SOURCE}/include/*.h)
list(SORT headers)
set(all "${COMPILER}")
foreach(header ${headers})
  file(SHA256 ${SOURCE}/${header} hash)
  string(APPEND all "\n${header} ${hash}")
endforeach()
string(SHA256 stamp "${all}")
file(WRITE ${OUTPUT} "\"pinion-build-${stamp}\"\n")
