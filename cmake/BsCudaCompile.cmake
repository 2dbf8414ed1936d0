# One .cu into one cubin, or with ARCH compute_NN into PTX:
#   cmake -DNVCC= -DCCBIN= -DARCH= -DSOURCE= -DOUT= -DINCLUDE= [-DFROM=] -P this
# FROM: the same file of another build. It is copied where it was made of the same contents by the same command (OUT.key).
# What ptxas says of registers and memory goes to OUT with .log for .cubin; a kernel that spills, or has local memory,
# is an error.
# -fmad=false: products and sums are fused where the source says so, as everywhere (docs/numbers.md).
string(REGEX REPLACE "\\.(cubin|ptx)$" ".log" log "${OUT}")
string(REGEX REPLACE "^compute_" "" number "${ARCH}")
set(code sm_${number} -cubin -Xptxas -v,-warn-spills,-warn-lmem-usage,-Werror)
if(ARCH MATCHES "^compute_")
  set(code compute_${number} -ptx)
endif()
list(POP_FRONT code target)

# The key of what a depfile names: the command, and every file that was read.
function(key_of depfile out)
  file(READ "${depfile}" text)
  string(REGEX REPLACE "^[^:]*:" "" text "${text}")
  string(REGEX MATCHALL "[^ \\\\\n]+" files "${text}")
  set(key "${NVCC} ${CCBIN} ${number} ${code} ${INCLUDE}")
  foreach(file IN LISTS files)
    set(sum "none")
    if(EXISTS "${file}")
      file(SHA256 "${file}" sum)
    endif()
    string(APPEND key " ${file} ${sum}")
  endforeach()
  string(SHA256 key "${key}")
  set(${out} "${key}" PARENT_SCOPE)
endfunction()
if(FROM AND EXISTS "${FROM}" AND EXISTS "${FROM}.key" AND EXISTS "${FROM}.d")
  key_of("${FROM}.d" key)
  file(READ "${FROM}.key" known)
  if(key STREQUAL known)
    string(REGEX REPLACE "\\.(cubin|ptx)$" ".log" from_log "${FROM}")
    file(READ "${FROM}.d" text)
    string(REPLACE "${FROM}" "${OUT}" text "${text}")
    file(WRITE "${OUT}.d" "${text}")
    file(COPY_FILE "${from_log}" "${log}")
    file(COPY_FILE "${FROM}" "${OUT}")
    return()
  endif()
endif()
execute_process(
  COMMAND "${NVCC}" ${CCBIN} -std=c++17 -O3 -fmad=false -gencode=arch=compute_${number},code=${target} ${code}
    -Werror all-warnings -I "${INCLUDE}" -MD -MF "${OUT}.d" "${SOURCE}" -o "${OUT}"
  RESULT_VARIABLE rc OUTPUT_VARIABLE text ERROR_VARIABLE text)
file(WRITE "${log}" "${text}")
if(NOT rc EQUAL 0)
  file(REMOVE "${OUT}")
  message(FATAL_ERROR "${text}")
endif()
key_of("${OUT}.d" key)
file(WRITE "${OUT}.key" "${key}")
