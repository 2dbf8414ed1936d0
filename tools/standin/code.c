/* SPDX-License-Identifier: MIT
 * code.c - modules, functions and launches. A kernel must be in the image, have a twin, and be launched as
 * its cubin allows; its arguments are as many bytes as the cubin says. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cuda/kernels.h"
#include "standin.h"
#include "tools/standin/twins/twins.h"

enum {
  INFO_MAX_THREADS = 0x05,
  INFO_FRAME_SIZE = 0x11,
  INFO_PARAM_SIZE = 0x19,
  INFO_REGISTERS = 0x2f,
  FORMAT_SIZED = 4
};
#define FATBIN_MAGIC 0xBA55ED50u

/* ---- reading a cubin -------------------------------------------------------------------------- */

static const char *elf_of(const void *image) {
  uint32_t magic;
  const char *at = image;
  memcpy(&magic, at, sizeof magic);
  if (magic == FATBIN_MAGIC) { /* header: magic, version, its size, size of what follows; then entries */
    uint64_t size;
    uint16_t head;
    memcpy(&head, at + 6, sizeof head);
    memcpy(&size, at + 8, sizeof size);
    for (uint64_t i = head; i + SELFMAG < head + size; i += 4)
      if (memcmp(at + i, ELFMAG, SELFMAG) == 0) return at + i;
    return NULL;
  }
  return memcmp(at, ELFMAG, SELFMAG) == 0 ? at : NULL;
}

static Elf64_Shdr section_at(const char *elf, unsigned i) {
  Elf64_Ehdr h;
  Elf64_Shdr s;
  memcpy(&h, elf, sizeof h);
  memcpy(&s, elf + h.e_shoff + (uint64_t)i * h.e_shentsize, sizeof s);
  return s;
}

static int find_section(const char *elf, const char *name, Elf64_Shdr *out) {
  Elf64_Ehdr h;
  memcpy(&h, elf, sizeof h);
  const Elf64_Shdr names = section_at(elf, h.e_shstrndx);
  for (unsigned i = 1; i < h.e_shnum; i++) {
    *out = section_at(elf, i);
    if (strcmp(elf + names.sh_offset + out->sh_name, name) == 0) return (int)i;
  }
  return 0;
}

/* The symbol of a kernel, as entries of .nv.info name it. */
#define SYSTEM_SHARED 1024u
#define DYNAMIC_SHARED 49152u /* without asking for more */
#define MOST_SHARED 101376u

static uint32_t symbol_of(const char *elf, const char *name) {
  Elf64_Shdr table;
  if (find_section(elf, ".symtab", &table) == 0) return 0;
  const Elf64_Shdr texts = section_at(elf, table.sh_link);
  for (uint32_t i = 1; i < table.sh_size / sizeof(Elf64_Sym); i++) {
    Elf64_Sym s;
    memcpy(&s, elf + table.sh_offset + i * sizeof s, sizeof s);
    if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && strcmp(elf + texts.sh_offset + s.st_name, name) == 0)
      return i;
  }
  return 0;
}

/* Each entry: format, attribute, 16 bits that are a value or, of FORMAT_SIZED, the bytes that follow. */
static void read_info(const char *at, uint64_t size, uint32_t symbol, si_kernel *out) {
  for (uint64_t i = 0; i + 4 <= size;) {
    const unsigned char format = (unsigned char)at[i], attribute = (unsigned char)at[i + 1];
    uint32_t words[3] = {0, 0, 0};
    uint16_t value;
    memcpy(&value, at + i + 2, sizeof value);
    i += 4;
    if (attribute == INFO_PARAM_SIZE) out->args_bytes = value;
    if (format != FORMAT_SIZED) continue;
    memcpy(words, at + i, value < sizeof words ? value : sizeof words);
    if (attribute == INFO_MAX_THREADS) out->max_threads = words[0] * words[1] * words[2];
    if (attribute == INFO_REGISTERS && words[0] == symbol) out->registers = words[1];
    if (attribute == INFO_FRAME_SIZE && words[0] == symbol) out->local = words[1];
    i += value;
  }
}

int si_image_kernel(const void *image, const char *name, si_kernel *out) {
  char section[128];
  Elf64_Shdr s;
  const char *elf = elf_of(image);
  memset(out, 0, sizeof *out);
  if (elf == NULL) return -1;
  const uint32_t symbol = symbol_of(elf, name);
  if (symbol == 0) return 0;
  snprintf(section, sizeof section, ".nv.info.%s", name);
  if (find_section(elf, ".nv.info", &s) != 0) read_info(elf + s.sh_offset, s.sh_size, symbol, out);
  if (find_section(elf, section, &s) != 0) read_info(elf + s.sh_offset, s.sh_size, symbol, out);
  snprintf(section, sizeof section, ".nv.shared.%s", name);
  /* For sm_90 the section begins with the part of a block's shared memory that the system keeps. It does not
   * belong to the kernel. */
  if (find_section(elf, section, &s) != 0)
    out->shared = (uint32_t)(s.sh_size >= SYSTEM_SHARED ? s.sh_size - SYSTEM_SHARED : s.sh_size);
  return 1;
}

/* ---- modules and functions -------------------------------------------------------------------- */

CUresult cuModuleLoadData(CUmodule *out_module, const void *image) {
  si_kernel none;
  const CUresult rc = si_enter_context("cuModuleLoadData");
  if (rc != CUDA_SUCCESS) return rc;
  if (image == NULL || si_image_kernel(image, "", &none) < 0) return CUDA_ERROR_INVALID_IMAGE;
  CUmodule m = calloc(1, sizeof *m);
  if (m == NULL) si_die("no memory");
  m->image = image;
  si_live(SI_MODULE, m);
  *out_module = m;
  return CUDA_SUCCESS;
}

/* Checks the plugin's table of a kernel against the compiled kernel. */
static void check_table(const char *name, const si_kernel *kernel) {
  for (uint32_t i = 0; i < CUDA_KERNEL_COUNT_; i++) {
    const cuda_kernel_info *k = &cuda_kernel_table[i];
    if (k->name == NULL || strcmp(k->name, name) != 0) continue;
    if (k->args_bytes != kernel->args_bytes)
      si_die("the arguments of %s are %u bytes on the host, %u on the device", name, k->args_bytes,
             kernel->args_bytes);
    if (kernel->registers > (k->registers != 0 ? k->registers : 255))
      si_die("%s has %u registers a thread, %u are allowed", name, kernel->registers, k->registers);
    if (k->threads > (kernel->max_threads != 0 ? kernel->max_threads : 1024))
      si_die("%s is launched by %u threads a block, and built for %u", name, k->threads, kernel->max_threads);
    if (kernel->local > k->local_bytes)
      si_die("%s has %u bytes of local memory a thread, %u are allowed", name, kernel->local, k->local_bytes);
  }
}

static struct CUfunc_st functions[1 << 16]; /* never freed: queued launches may still name them */
static size_t n_functions;

CUresult cuModuleUnload(CUmodule m) {
  const CUresult rc = si_enter_context("cuModuleUnload");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_MODULE, m)) return CUDA_ERROR_INVALID_HANDLE;
  si_end(SI_MODULE, m);
  free(m);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *out_function, CUmodule m, const char *name) {
  si_kernel kernel;
  const CUresult rc = si_enter_context("cuModuleGetFunction");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_MODULE, m)) return CUDA_ERROR_INVALID_HANDLE;
  if (si_image_kernel(m->image, name, &kernel) != 1) return CUDA_ERROR_NOT_FOUND;
  const cuda_twin *twin = cuda_twin_find(name);
  check_table(name, &kernel);
  if (twin == NULL) si_die("kernel %s has no twin (tools/standin/twins/table.c)", name);
  pthread_mutex_lock(&si_lock);
  if (n_functions == sizeof functions / sizeof functions[0]) si_die("too many functions");
  struct CUfunc_st *f = &functions[n_functions++];
  f->module = m;
  f->twin = twin;
  f->kernel = kernel;
  pthread_mutex_unlock(&si_lock);
  *out_function = f;
  return CUDA_SUCCESS;
}

static CUresult function_enter(const char *function, const struct CUfunc_st *f) {
  const CUresult rc = si_enter_context(function);
  if (rc != CUDA_SUCCESS) return rc;
  const int known = f >= functions && f < functions + sizeof functions / sizeof functions[0];
  return known && si_lives(SI_MODULE, f->module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetAttribute(int *out_value, CUfunction_attribute attribute, CUfunction f) {
  const CUresult rc = function_enter("cuFuncGetAttribute", f);
  if (rc != CUDA_SUCCESS) return rc;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *out_value = (int)f->kernel.registers + si_get_setup()->registers;
      break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *out_value = (int)f->kernel.local + si_get_setup()->local;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *out_value = (int)f->kernel.shared;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *out_value = f->kernel.max_threads != 0 ? (int)f->kernel.max_threads : 1024;
      if (si_get_setup()->threads > 0) *out_value = si_get_setup()->threads;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/* The limit is that of devices 8.6, the least of those that the plugin has code for. */
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
  const CUresult rc = function_enter("cuFuncSetAttribute", f);
  if (rc != CUDA_SUCCESS) return rc;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      (uint32_t)value + f->kernel.shared > MOST_SHARED)
    return CUDA_ERROR_INVALID_VALUE;
  __atomic_store_n(&functions[f - functions].dynamic, (uint32_t)value, __ATOMIC_RELAXED);
  return CUDA_SUCCESS;
}

/* ---- launching -------------------------------------------------------------------------------- */

static void run_launch(si_work *work) {
  if (work->stream != NULL) {
    const cuda_twin_grid grid = {work->u.launch.grid[0], work->u.launch.grid[1], work->u.launch.grid[2],
                                 work->u.launch.threads, work->u.launch.shared};
    si_running = work->u.launch.function->twin->name;
    work->u.launch.function->twin->run(work->u.launch.args, &grid);
    si_running = "";
  }
  free(work->u.launch.args);
}

static void repeat_launch(si_work *copy) {
  const uint32_t bytes = copy->u.launch.function->kernel.args_bytes;
  const void *args = copy->u.launch.args;
  copy->u.launch.args = malloc(bytes != 0 ? bytes : 1u);
  if (copy->u.launch.args == NULL) si_die("no memory");
  memcpy(copy->u.launch.args, args, bytes);
}

static CUresult check_launch(const struct CUfunc_st *f, const unsigned grid[3], const unsigned block[3],
                             unsigned shared_bytes) {
  const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  for (int i = 0; i < 3; i++)
    if (grid[i] == 0 || block[i] == 0 || grid[i] > (i == 0 ? 2147483647u : 65535u))
      return CUDA_ERROR_INVALID_VALUE;
  if (threads > 1024 || block[2] > 64) return CUDA_ERROR_INVALID_VALUE;
  if (f->kernel.max_threads != 0 && threads > f->kernel.max_threads) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t asked = __atomic_load_n(&f->dynamic, __ATOMIC_RELAXED);
  if (shared_bytes + f->kernel.shared > (asked > DYNAMIC_SHARED ? asked : DYNAMIC_SHARED))
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t registers = (f->kernel.registers + 7u) / 8u * 8u * ((threads + 31u) / 32u * 32u);
  return registers <= 65536 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void **params, void **extra) {
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  CUresult rc = function_enter("cuLaunchKernel", f);
  if (rc == CUDA_SUCCESS) rc = check_launch(f, grid, block, shared_bytes);
  if (rc != CUDA_SUCCESS) return rc;
  if (extra != NULL || (f->kernel.args_bytes != 0 && (params == NULL || params[0] == NULL)))
    return CUDA_ERROR_INVALID_VALUE;
  si_work *work = si_work_new(stream, &rc);
  if (work == NULL) return rc;
  work->u.launch.args =
      malloc(f->kernel.args_bytes != 0 ? f->kernel.args_bytes : 1u); /* exactly: what reads more is seen */
  if (work->u.launch.args == NULL) si_die("no memory");
  if (f->kernel.args_bytes != 0) memcpy(work->u.launch.args, params[0], f->kernel.args_bytes);
  work->u.launch.function = f;
  memcpy(work->u.launch.grid, grid, sizeof grid);
  work->u.launch.threads = (unsigned)(block_x * block_y * block_z);
  work->u.launch.shared = shared_bytes;
  work->run = run_launch;
  work->repeat = repeat_launch;
  si_submit(work);
  return CUDA_SUCCESS;
}
