/* SPDX-License-Identifier: MIT
 * version.c - bs_version and bs_build_id: which library this is. The build id is read from the loaded
 * image, so that it names the code that runs and not a file that replaced it. */
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

#include "blockshock/blockshock.h"

#ifndef BS_VERSION_STRING
#error "BS_VERSION_STRING is defined by core/CMakeLists.txt"
#endif

enum { ID_MAX_BYTES = 32 };
static char build_id[2 * ID_MAX_BYTES + 1];
static pthread_once_t build_id_once = PTHREAD_ONCE_INIT;

const char *bs_version(void) {
  return BS_VERSION_STRING;
}

static void take_id(const unsigned char *bytes, uint32_t n) {
  static const char hex[] = "0123456789abcdef";
  if (n > ID_MAX_BYTES) n = ID_MAX_BYTES;
  for (uint32_t i = 0; i < n; i++) {
    build_id[2 * i] = hex[bytes[i] >> 4];
    build_id[2 * i + 1] = hex[bytes[i] & 15];
  }
}

static void scan_notes(const char *at, size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) h;
    memcpy(&h, at, sizeof h);
    size_t name = sizeof h, desc = name + (((size_t)h.n_namesz + 3) & ~(size_t)3);
    size_t next = desc + (((size_t)h.n_descsz + 3) & ~(size_t)3);
    if (next > size) return;
    if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && memcmp(at + name, "GNU", 4) == 0) {
      take_id((const unsigned char *)at + desc, h.n_descsz);
      return;
    }
    at += next;
    size -= next;
  }
}

/* The object whose load segments hold this file's data. */
static int visit(struct dl_phdr_info *info, size_t size, void *data) {
  uintptr_t here = (uintptr_t)&build_id_once;
  int ours = 0;
  (void)size;
  (void)data;
  for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t start = (uintptr_t)info->dlpi_addr + p->p_vaddr;
    if (p->p_type == PT_LOAD && here >= start && here - start < p->p_memsz) ours = 1;
  }
  if (!ours) return 0;
  for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    if (p->p_type == PT_NOTE && p->p_align <= 4)
      scan_notes((const char *)((uintptr_t)info->dlpi_addr + p->p_vaddr), p->p_memsz);
  }
  return 1;
}

static void read_build_id(void) {
  dl_iterate_phdr(visit, NULL);
}

const char *bs_build_id(void) {
  pthread_once(&build_id_once, read_build_id);
  return build_id;
}
