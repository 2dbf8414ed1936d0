# One .cu into one cubin, or with ARCH compute_NN into PTX:
#   cmake -DNVCC= -DCCBIN= -DARCH= -DSOURCE= -DOUT= -DINCLUDE= -P this
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
execute_process(
  COMMAND "${NVCC}" ${CCBIN} -std=c++17 -O3 -fmad=false -gencode=arch=compute_${number},code=${target} ${code}
    -Werror all-warnings -I "${INCLUDE}" -MD -MF "${OUT}.d" "${SOURCE}" -o "${OUT}"
  RESULT_VARIABLE rc OUTPUT_VARIABLE text ERROR_VARIABLE text)
file(WRITE "${log}" "${text}")
if(NOT rc EQUAL 0)
  file(REMOVE "${OUT}")
  message(FATAL_ERROR "${text}")
endif()
