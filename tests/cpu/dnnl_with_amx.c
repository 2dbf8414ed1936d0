/* SPDX-License-Identifier: MIT
 *
 * dnnl_with_amx.c - the test's dnnl_library: oneDNN as it is on a processor with AMX, on any processor. It
 * says that it may use AMX. A matmul asks for a scratchpad in which all of its weights fit once more, in
 * whole tiles: AMX multiplies pairs of rows, which plain weights are not, so oneDNN writes them anew.
 * Products are computed by the library's own kernels of this processor. */
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>

enum { TILE = 32, KEPT = 1024 };

__attribute__((visibility("default"))) dnnl_cpu_isa_t dnnl_get_effective_cpu_isa(void) {
  return dnnl_cpu_isa_avx512_core_amx;
}

/* A descriptor of so many bytes, which stays: its owner would be the primitive's descriptor. */
static const_dnnl_memory_desc_t of_bytes(dnnl_dim_t bytes) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct {
    dnnl_dim_t bytes;
    dnnl_memory_desc_t desc;
  } kept[KEPT];
  static int count;
  int i = 0;
  pthread_mutex_lock(&lock);
  while (i < count && kept[i].bytes != bytes) i++;
  if (i == count) {
    const dnnl_dims_t dims = {bytes}, strides = {1};
    if (count == KEPT ||
        dnnl_memory_desc_create_with_strides(&kept[i].desc, 1, dims, dnnl_u8, strides) != dnnl_success)
      abort();
    kept[i].bytes = bytes;
    count++;
  }
  pthread_mutex_unlock(&lock);
  return kept[i].desc;
}

static dnnl_dim_t whole_tiles(dnnl_dim_t n) {
  return (n + TILE - 1) / TILE * TILE;
}

__attribute__((visibility("default"))) const_dnnl_memory_desc_t dnnl_primitive_desc_query_md(
    const_dnnl_primitive_desc_t desc, dnnl_query_t what, int index) {
  __typeof__(&dnnl_primitive_desc_query_md) next;
  void *found = dlsym(RTLD_NEXT, "dnnl_primitive_desc_query_md");
  __builtin_memcpy(&next, &found, sizeof next);
  const const_dnnl_memory_desc_t own = next(desc, what, index);
  if (what != dnnl_query_scratchpad_md) return own;
  dnnl_dims_t *dims = NULL;
  dnnl_data_type_t type = dnnl_f32;
  const const_dnnl_memory_desc_t weights = next(desc, dnnl_query_weights_md, 0);
  if (dnnl_memory_desc_query(weights, dnnl_query_dims, &dims) != dnnl_success ||
      dnnl_memory_desc_query(weights, dnnl_query_data_type, &type) != dnnl_success)
    abort();
  const dnnl_dim_t needed = own != NULL ? (dnnl_dim_t)dnnl_memory_desc_get_size(own) : 0;
  const dnnl_dim_t tiles =
      whole_tiles((*dims)[0]) * whole_tiles((*dims)[1]) * (dnnl_dim_t)dnnl_data_type_size(type);
  return of_bytes(needed > tiles ? needed : tiles);
}
