/* SPDX-License-Identifier: MIT
 *
 * dnnl_with_amx.c - the test's dnnl_library: oneDNN, which says that it may use AMX whatever the processor
 * has. Everything but this one function is the library's own, and no product is run with it. */
#include <oneapi/dnnl/dnnl.h>

__attribute__((visibility("default"))) dnnl_cpu_isa_t dnnl_get_effective_cpu_isa(void) {
  return dnnl_cpu_isa_avx512_core_amx;
}
