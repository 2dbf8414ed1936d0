# One .cu into one cubin: cmake -DNVCC= -DCCBIN= -DARCH= -DSOURCE= -DOUT= -DINCLUDE= -P this. What ptxas says of registers
# and memory goes to OUT with .log for .cubin; a kernel that spills, or has local memory, is an error.
# -fmad=false: products and sums are fused where the source says so, as everywhere (docs/numbers.md).
string(REGEX REPLACE "\\.cubin$" ".log" log "${OUT}")
execute_process(
  COMMAND "${NVCC}" ${CCBIN} -std=c++17 -O3 -fmad=false -gencode=arch=compute_${ARCH},code=sm_${ARCH} -cubin
    -Xptxas -v,-warn-spills,-warn-lmem-usage,-Werror -Werror all-warnings -I "${INCLUDE}" -MD -MF "${OUT}.d" "${SOURCE}"
    -o "${OUT}"
  RESULT_VARIABLE rc OUTPUT_VARIABLE text ERROR_VARIABLE text)
file(WRITE "${log}" "${text}")
if(NOT rc EQUAL 0)
  file(REMOVE "${OUT}")
  message(FATAL_ERROR "${text}")
endif()
